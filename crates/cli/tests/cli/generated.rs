//! `bankfull completions` and `bankfull man`.

use super::{bankfull, command, out};
use std::process::Stdio;

#[test]
fn completions_are_written_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = bankfull(&["completions", shell]).unwrap();
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(out(&output).contains("no-encryption"), "{shell}");
    }
}

#[test]
fn manual_has_the_flags_of_all_commands() {
    let output = bankfull(&["man"]).unwrap();
    assert_eq!(output.status.code(), Some(0));
    let page = out(&output).replace("\\-", "-");
    assert!(page.contains(".TH bankfull 1"), "{page}");
    assert!(page.contains("--accept-new") && page.contains("--max-connections"));
}

#[test]
fn manual_page_of_one_command() {
    let page = out(&bankfull(&["man", "serve"]).unwrap()).replace("\\-", "-");
    assert!(page.contains(".TH bankfull-serve 1"), "{page}");
    assert!(page.contains("--max-connections") && !page.contains("--accept-new"));
}

#[test]
fn closed_pipe_is_not_an_error() {
    let mut child = command().arg("man").stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
