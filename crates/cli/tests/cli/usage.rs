//! Invalid command lines: exit code 1, a message on standard error, and no data on standard output.

use super::{bankfull, command, err, out};

#[test]
fn bad_command_line_is_exit_code_1() {
    let cases = [
        &[][..],
        &["mv", "a", "b"],
        &["cp"],
        &["cp", "a"],
        &["cp", "--streams", "0", "a", "b"],
        &["cp", "--streams", "65", "a", "b"],
        &["cp", "--timeout", "0", "a", "b"],
        &["cp", "--max-rate", "0bit", "a", "h:b"],
        &["cp", "--schedule", "08:00-18:00=50mbit", "a", "h:b"],
        &["cp", "--schedule", "08:00-18:00=0,*=max", "a", "h:b"],
        &["cp", "--buffer", "2000", "a", "h:b"],
        &["cp", "--congestion", "Reno!", "a", "h:b"],
        &["cp", "--fsync", "always", "a", "b"],
        &["cp", "--fingerprint", "sha256:00", "a", "b"],
        &["cp", "--ssh-command", "ssh '", "a", "b"],
        &["cp", "-q", "-v", "a", "b"],
        &["cp", "--modify-window", "-1", "a", "b"],
        &["cp", "--max-size", "10M", "a", "b"],
        &["cp", "--min-size", "small", "a", "b"],
        &["cp", "--newer-than", "yesterday", "a", "b"],
        &["cp", "--ignore-file", "a/b", "a", "b"],
        &["cp", "--ignore-file", "", "a", "b"],
        &["cp", "--max-depth", "-1", "a", "b"],
        &["cp", "-avP", "22", "a", "b"],
        &["cp", "-avz", "a", "b"],
        &["gather"],
        &["gather", "in"],
        &["gather", "h:a", "h:b"],
        &["gather", "a", "in"],
        &["gather", "h:a/x", "h:b/x", "in"],
        &["gather", "--max-failed", "-1", "h:a", "in"],
        &["gather", "--max-rate", "150kbit", "h:a", "i:a", "in"],
        &["serve"],
        &["serve", ".", "--listen", "host:port"],
        &["serve", ".", "--max-connections", "1"],
        &["completions", "cobol"],
        &["man", "agent"],
    ];
    for arguments in cases {
        let output = bankfull(arguments).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_ne!(err(&output), "", "{arguments:?}");
        assert_eq!(out(&output), "", "{arguments:?}");
        // The program without arguments shows its help.
        if !arguments.is_empty() {
            let reported = err(&output);
            assert!(
                reported.starts_with("bankfull: ") && reported.lines().count() == 1,
                "{reported}"
            );
        }
    }
}

#[test]
fn command_line_error_names_problem_and_help() {
    for (arguments, reported) in [
        (
            &["cp", "data"][..],
            "the destination is missing: write bankfull cp SRC... DST (see bankfull cp --help)",
        ),
        (
            &["serve", ".", "--read-onl"],
            "unknown flag --read-onl: did you mean --read-only? (see bankfull serve --help)",
        ),
        (
            &["mv", "a", "b"],
            "unrecognized subcommand 'mv'; choose one of cp, gather, ls, probe, serve, token, \
             login, guard, doctor, config, completions, man (see bankfull --help)",
        ),
        (
            &["./data", "host:copy"],
            "unrecognized subcommand './data'; to copy, write bankfull cp ./data host:copy (see \
             bankfull --help)",
        ),
        (
            &["cp", "-rlptgoD", "data", "copy"],
            "-o in -rlptgoD is an ssh option, as in scp: write --owner, or -a (see bankfull cp \
             --help)",
        ),
    ] {
        assert_eq!(err(&bankfull(arguments).unwrap()), format!("bankfull: {reported}\n"));
    }
}

#[test]
fn invalid_number_names_the_limits() {
    for (arguments, words) in [
        (&["cp", "--streams", "four", "a", "b"][..], "write a number from 1 to 64"),
        (&["cp", "-P", "abc", "a", "h:b"], "write a number from 1 to 65535"),
        (&["cp", "--max-rate", "9", "a", "h:b"], "\"9\" is not a rate: write 100mbit, 1.5gbit"),
        (&["cp", "--schedule", "8-9=1mbit,*=max", "a", "b"], "\"8-9\" is not a time range: write"),
        (&["cp", "--schedule", "00:00-12:00=max", "a", "b"], "12:00 has no rate: add a range, or"),
        (&["cp", "--schedule", "*=0", "a", "b"], "\"0\" would pause the copy, which a schedule"),
        (&["serve", ".", "--max-connections", "x"], "write a number from 2 to 65535"),
    ] {
        let message = err(&bankfull(arguments).unwrap());
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn bad_operand_is_one_line() {
    let output = bankfull(&["cp", "a", "bankfull://host:0/"]).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = err(&output);
    assert!(message.starts_with("bankfull: \"bankfull://host:0/\": "), "{message}");
    assert_eq!(message.lines().count(), 1);
}

#[test]
fn flag_without_effect_is_refused_by_name() {
    for (flag, places, kind) in [
        (&["--accept-new"][..], ["a", "host:b"], "bankfull://"),
        (&["-P", "22"], ["bankfull://h/a", "b"], "host:path"),
        (&["--deploy"], ["a", "b"], "host:path"),
        (&["--buffer", "4MB"], ["a", "b"], "bankfull:// or host:path"),
        (&["--congestion", "reno"], ["a", "b"], "bankfull:// or host:path"),
        (&["--max-memory", "1GiB"], ["a", "b"], "bankfull:// or host:path"),
    ] {
        let output = bankfull(&[&["cp"], flag, &places].concat()).unwrap();
        assert_eq!(output.status.code(), Some(1), "{flag:?}");
        let text = format!("bankfull: {} needs a {kind} operand", flag[0]);
        assert!(err(&output).starts_with(&text), "{}", err(&output));
    }
    let both = ["cp", "--direct", "on", "--io", "mmap", "a", "bankfull://h/b"];
    let output = bankfull(&both).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("leave out --io or --direct"), "{}", err(&output));
    let untuned = ["gather", "--tune", "off", "--link-rate", "1gbit", "bankfull://h/a", "b"];
    let output = bankfull(&untuned).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).starts_with("bankfull: --link-rate has no effect with --tune off"),
        "{}",
        err(&output)
    );
}

#[test]
fn mistyped_scheme_is_not_a_host() {
    for (place, scheme) in [("bankful://127.0.0.1/", "bankful"), ("http://h/x", "http")] {
        let output = bankfull(&["cp", "data", place]).unwrap();
        assert_eq!(output.status.code(), Some(1), "{place}");
        let message = err(&output);
        assert!(message.contains(&format!("unknown scheme {scheme}://")), "{message}");
        assert!(message.ends_with("write host:path or bankfull://host/path\n"), "{message}");
    }
}

#[test]
fn json_starts_with_start_and_ends_with_error() {
    let output = bankfull(&["cp", "--json", "a", "bankfull://host:0/"]).unwrap();
    let text = out(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with(r#"{"event":"start","schema":1,"#));
    assert!(lines[1].starts_with(r#"{"event":"error","kind":"usage","#));
    assert!(lines[1].ends_with(r#","exit_code":1}"#));
}

#[test]
fn empty_token_is_an_error() {
    for arguments in [&["cp", "a", "b"][..], &["serve", "."]] {
        let output = command().args(arguments).env("BANKFULL_TOKEN", "").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(err(&output), "bankfull: BANKFULL_TOKEN is empty: store a token there\n");
    }
}

#[test]
fn missing_token_file_is_a_local_error() {
    let output =
        bankfull(&["cp", "--token-file", "/nonexistent/t", "a", "bankfull://h/b"]).unwrap();
    assert_eq!(output.status.code(), Some(11));
    let message =
        "bankfull: cannot read the token file /nonexistent/t: no such file or directory\n";
    assert_eq!(err(&output), message);
}

#[test]
fn flags_and_operands_stand_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let copy = |words: &[&str]| {
        let output = command().arg("cp").args(words).current_dir(dir.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", err(&output));
    };
    std::fs::write(dir.path().join("from"), "data").unwrap();
    copy(&["from", "-v", "to"]);
    copy(&["to", "-q", "--", "-to"]);
    copy(&["--", "from", "-last"]);
    copy(&["--", "-last", "-first"]);
    for name in ["to", "-to", "-last", "-first"] {
        assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), b"data", "{name}");
    }
}

#[test]
fn flags_of_rsync_that_are_always_on_are_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, "data").unwrap();
    let flags = ["cp", "-rthS", "--info=progress2", "--stats", "--partial", "-W", "--progress"];
    let output = command().args(flags).arg(&from).arg(&to).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(std::fs::read(to).unwrap(), b"data");
}
