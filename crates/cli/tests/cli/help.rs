//! `--help` and `--version`.

use super::{bankfull, err, out};

#[test]
fn help_is_on_standard_output_with_exit_codes() {
    for arguments in [&["--help"][..], &["cp", "--help"], &["serve", "--help"], &["man", "--help"]]
    {
        let output = bankfull(arguments).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(err(&output), "");
        let text = out(&output);
        assert!(text.contains("Examples:"), "{text}");
        assert!(text.contains("  23  some files failed"), "{text}");
    }
}

#[test]
fn help_command_equals_help_flag() {
    for (arguments, flags) in [
        (&["help"][..], &["--help"][..]),
        (&["help", "cp"], &["cp", "--help"]),
        (&["help", "serve"], &["serve", "--help"]),
    ] {
        let output = bankfull(arguments).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(out(&output), out(&bankfull(flags).unwrap()));
    }
}

#[test]
fn short_help_omits_exit_codes() {
    let output = bankfull(&["cp", "-h"]).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!out(&output).contains("Exit codes:"));
}

#[test]
fn version_is_one_line() {
    for arguments in [&["--version"][..], &["-V"]] {
        let output = bankfull(arguments).unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(out(&output), format!("bankfull {}\n", env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn agent_command_is_not_in_the_help() {
    assert!(!out(&bankfull(&["--help"]).unwrap()).contains("agent"));
}
