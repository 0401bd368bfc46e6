//! Command lines of people who are used to rsync, scp and ssh.

use super::{bankfull, command, err, out};
use std::fs;
use std::path::Path;

/// Makes two directories with a file, and a destination with another one.
fn make_tree(dir: &Path) {
    for name in ["src/docs/a", "src/photos/b", "dst/kept"] {
        fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
        fs::write(dir.join(name), name).unwrap();
    }
}

#[test]
fn rsync_letter_for_paths_deletes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path());
    for flags in [&["-aR", "--delete"][..], &["-a", "-R", "--delete"], &["-avRn", "--del"]] {
        let mut refused = command();
        refused.arg("cp").args(flags).args(["src/docs/", "dst"]).current_dir(dir.path());
        let output = refused.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{flags:?}");
        let line = err(&output);
        assert!(line.contains("write --relative for rsync's -R, or -r"), "{line}");
        assert_eq!(fs::read_dir(dir.path().join("dst")).unwrap().count(), 1);
    }
}

#[test]
fn letter_of_readable_numbers_is_no_silent_success() {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path());
    let mut refused = command();
    refused.args(["cp", "-a", "-h", "src", "dst"]).current_dir(dir.path());
    let output = refused.output().unwrap();
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(1), ""));
    assert!(err(&output).contains("sizes are human-readable already: leave it out"));
    let help = bankfull(&["cp", "-h"]).unwrap();
    assert!(help.status.success() && out(&help).contains("Usage: bankfull cp"));
}

#[test]
fn source_taken_by_a_letter_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path());
    for flag in ["-i", "-F", "-J", "-o"] {
        let mut refused = command();
        refused.args(["cp", "-a", flag, "src/docs", "src/photos", "127.0.0.1:/two"]);
        let output = refused.current_dir(dir.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{flag}");
        let (line, start) = (err(&output), format!("bankfull: {flag} took "));
        assert!(line.starts_with(&start) && line.contains("src/docs as "), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}

#[test]
fn letters_of_what_is_kept_anyway_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path());
    std::os::unix::fs::symlink("a", dir.path().join("src/docs/link")).unwrap();
    for (number, flags) in ["-l", "-rlt", "-rlptD", "-lE", "-al", "-a --no-z"].iter().enumerate() {
        let mut copy = command();
        let target = format!("to{number}");
        copy.arg("cp").args(flags.split(' ')).args(["src/docs/", &target]);
        let output = copy.current_dir(dir.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{flags}: {}", err(&output));
        let link = fs::read_link(dir.path().join(target).join("link")).unwrap();
        assert_eq!(link, Path::new("a"));
    }
    let refused = bankfull(&["cp", "-E", "--no-perms", "a", "b"]).unwrap();
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn list_on_another_host_is_refused() {
    for list in [":/list", "host:/list", "me@host:list"] {
        let from = format!("--files-from={list}");
        let refused = bankfull(&["cp", "-F", "/dev/null", &from, "src", "dst"]).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{list}");
        let line = format!("bankfull: cannot read the list {list}: lists are read on this host:");
        assert!(err(&refused).starts_with(&line), "{}", err(&refused));
    }
    let missing = bankfull(&["cp", "--files-from=missing", "src", "dst"]).unwrap();
    let line = "bankfull: cannot read the list missing: no such file or directory\n";
    assert_eq!((missing.status.code(), err(&missing).as_str()), (Some(1), line));
}

#[test]
fn suffix_that_no_name_can_have_is_a_usage_error() {
    for (flags, part) in [
        (&["-b", "--suffix="][..], "--suffix is empty"),
        (&["-b", "--suffix=/x"], "--suffix must not contain a slash"),
        (&["--backup-dir=d", "--suffix=a/b"], "--suffix must not contain a slash"),
    ] {
        for target in ["b", "bankfull://127.0.0.1:1/b"] {
            let all = [&["cp"], flags, &["/dev/null", target]].concat();
            let output = bankfull(&all).unwrap();
            assert_eq!(output.status.code(), Some(1), "{all:?}: {}", err(&output));
            assert!(err(&output).contains(part), "{}", err(&output));
        }
    }
}

#[test]
fn number_with_a_minus_is_a_bad_value() {
    for (flag, part) in [
        ("--max-delete", "write a whole number, 0 or more"),
        ("--max-depth", "write a whole number, 0 or more"),
        ("--modify-window", "to the nanosecond without it: leave it out"),
        ("--streams", "write a number from 1 to 64"),
        ("--timeout", "\"-1\" is not a time in seconds"),
    ] {
        for typed in [vec![format!("{flag}=-1")], vec![flag.to_owned(), "-1".to_owned()]] {
            let output = command().arg("cp").args(&typed).args(["a", "b"]).output().unwrap();
            assert_eq!(output.status.code(), Some(1));
            assert!(err(&output).contains(part), "{}", err(&output));
        }
    }
}

#[test]
fn every_wrong_flag_is_shown_at_once() {
    let output = bankfull(&["cp", "-azI", "--exlude", "x", "--bwlimit=500", "a", "b"]).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let shown = err(&output);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 4, "{shown}");
    for (line, part) in lines.iter().zip(["-z in -azI", "-I in -azI", "--exclude?", "500KiB/s"]) {
        assert!(line.starts_with("bankfull: unknown flag ") && line.contains(part), "{line}");
    }
}

#[test]
fn switch_is_switched_off_again() {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path());
    let mut copy = command();
    copy.args(["cp", "-aAX", "--delete", "--no-A", "--no-delete", "src/docs/", "dst"]);
    let output = copy.current_dir(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(fs::read_dir(dir.path().join("dst")).unwrap().count(), 2);
}

#[test]
fn version_of_a_command_is_that_of_the_program() {
    let version = out(&bankfull(&["--version"]).unwrap());
    for command in ["cp", "gather", "ls", "probe", "serve", "config", "man"] {
        assert_eq!(out(&bankfull(&[command, "--version"]).unwrap()), version, "{command}");
    }
}
