//! The configuration file: defaults, named remotes, and `bankfull config`.

use super::harness::{Daemon, Scratch, cp, gather, probe, run, set_mode, write_file};
use super::{command, err, out};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Lets a command use a configuration file with this text.
fn configured<'c>(command: &'c mut Command, scratch: &Scratch, text: &str) -> &'c mut Command {
    let file = scratch.join("config.toml");
    fs::write(&file, text).unwrap();
    set_mode(&file, 0o600);
    command.env("BANKFULL_CONFIG", file).current_dir(scratch.path())
}

#[test]
fn default_applies_and_a_flag_overrides_it() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("a")).unwrap();
    write_file(&scratch.join("a/x.o"), b"x");
    write_file(&scratch.join("a/y"), b"y");
    let text = "[cp]\nexclude = [\"*.o\"]\nmax-rate = \"80mbit\"\nmodify-window = 3\n\
                schedule = \"*=90mbit\"";
    run(configured(&mut cp(), &scratch, text).args(["a/", "b"])).expect(0);
    assert!(scratch.join("b/y").exists() && !scratch.join("b/x.o").exists());
    let included = ["--include", "*.o", "--modify-window", "0", "a/", "c"];
    run(configured(&mut cp(), &scratch, text).args(included)).expect(0);
    assert!(scratch.join("c/x.o").exists());
}

#[test]
fn default_without_effect_does_not_break_a_stream() {
    let scratch = Scratch::new();
    write_file(&scratch.join("x"), b"data");
    let text = "[cp]\ndelete = true\nmax-delete = 9\nbackup = true\nrelative = true\n\
                checksum = true\nupdate = true\nlink-dest = \"old\"\nitemize-changes = true\n\
                trust-journal = true\nremove-source-files = true";
    let mut copy = command();
    let output = configured(&mut copy, &scratch, text).args(["cp", "x", "-"]).output().unwrap();
    assert_eq!((output.status.code(), out(&output).as_str()), (Some(0), "data"));
    let text = text.replace("link-dest = \"old\"\n", "");
    let mut copy = command();
    let copy = configured(&mut copy, &scratch, &text).args(["cp", "-", "y"]);
    let output = copy.stdin(fs::File::open(scratch.join("x")).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(fs::read(scratch.join("y")).unwrap(), b"data");
    // A flag of the command line is an error, as it is relied on.
    let mut refused = command();
    let refused = configured(&mut refused, &scratch, &text).args(["cp", "--delete", "x", "-"]);
    assert_eq!(refused.output().unwrap().status.code(), Some(1));
}

#[test]
fn switch_of_the_file_can_be_switched_off() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.join("a")).unwrap();
    fs::create_dir(scratch.join("b")).unwrap();
    write_file(&scratch.join("a/x"), b"x");
    write_file(&scratch.join("b/kept"), b"kept");
    let text = "[cp]\ndelete = true\nmax-delete = 5";
    run(configured(&mut cp(), &scratch, text).args(["--no-delete", "a/", "b"])).expect(0);
    assert!(scratch.join("b/x").exists() && scratch.join("b/kept").exists());
    run(configured(&mut cp(), &scratch, text).args(["a/", "b"])).expect(0);
    assert!(scratch.join("b/x").exists() && !scratch.join("b/kept").exists());
}

#[test]
fn remote_has_its_url_token_and_fingerprint() {
    let (scratch, root) = (Scratch::new(), Scratch::new());
    let token = scratch.join("token");
    write_file(&token, b"secret");
    set_mode(&token, 0o600);
    fs::create_dir(root.join("base")).unwrap();
    let daemon = Daemon::start(root.path(), &["--token-file", token.to_str().unwrap()]);
    let text = format!(
        "[remote.store]\nurl = \"{}\"\ntoken-file = \"{}\"\nfingerprint = \"{}\"",
        daemon.url("base"),
        token.display(),
        daemon.fingerprint
    );
    let in_use = |mut command: Command, words: &[&str]| {
        run(configured(&mut command, &scratch, &text).args(words))
    };
    write_file(&scratch.join("x"), b"data");
    in_use(cp(), &["x", "store:y"]).expect(0);
    assert_eq!(fs::read(root.join("base/y")).unwrap(), b"data");
    in_use(cp(), &["store:/y", "z"]).expect(0);
    assert_eq!(fs::read(scratch.join("z")).unwrap(), b"data");
    in_use(gather(), &["store:y", "in"]).expect(0);
    in_use(probe(), &["--time", "1", "store"]).expect(0);
    let wrong = format!("sha256:{}", "00".repeat(32));
    in_use(cp(), &["--fingerprint", &wrong, "store:y", "w"]).expect(5);
    let mut shown = command();
    shown.args(["cp", "-v"]);
    let output = configured(&mut shown, &scratch, &text).args(["store:y", "v"]).output().unwrap();
    let first = err(&output).lines().next().unwrap().to_owned();
    let url = daemon.url("base");
    assert_eq!(
        first,
        format!("store is the remote of {}: {url}", scratch.join("config.toml").display())
    );
    in_use(gather(), &["store:y", "bankfull://127.0.0.1:1/x", "in"]).expect(1);
}

#[test]
fn refused_file_is_one_line_with_the_way_out() {
    let scratch = Scratch::new();
    let failed = |text: &str, mode: u32, says: &str| {
        let mut command = command();
        configured(&mut command, &scratch, text).args(["cp", "a", "b"]);
        set_mode(&scratch.join("config.toml"), mode);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let line = err(&output);
        assert!(line.contains(says) && line.lines().count() == 1, "{line}");
    };
    failed("", 0o666, "run chmod go-w ");
    failed("[cp]\nstrems = 1", 0o600, "did you mean streams?");
    failed("[cp]\nstreams = 99", 0o600, "streams in [cp]: invalid value '99'");
    let missing =
        command().env("BANKFULL_CONFIG", "/nonexistent/c").args(["cp", "a", "b"]).output();
    assert!(err(&missing.unwrap()).contains("does not exist"));
    // Help works whatever the file says.
    let help = command().env("BANKFULL_CONFIG", "/nonexistent/c").args(["cp", "--help"]).output();
    assert_eq!(help.unwrap().status.code(), Some(0));
}

#[test]
fn config_shows_values_with_their_file() {
    let scratch = Scratch::new();
    let file = scratch.join("config.toml");
    let text = "[cp]\nstreams = 8\nexclude = [\"*.o\"]\n[remote.box]\nurl = \"me@box:\"";
    let show = |words: &[&str]| {
        let output = configured(&mut command(), &scratch, text).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        out(&output)
    };
    let at = |file: &Path| file.display().to_string();
    let lines = format!(
        "cp.streams = 8  # {0}\ncp.exclude = [\"*.o\"]  # {0}\nremote.box.url = \"me@box:\"  # {0}\n",
        at(&file)
    );
    assert_eq!(show(&["config", "show"]), lines);
    assert!(show(&["config", "show", "--json"]).contains("\"key\":\"cp.streams\""));
    assert_eq!(show(&["config", "path"]), format!("{}\n", at(&file)));
    write_file(&file, "[cp]\nssh-command = \"mine\"\n");
    let mut shown = command();
    shown.args(["config", "show"]).env("BANKFULL_CONFIG", &file).env("BANKFULL_SSH", "other");
    let output = String::from_utf8(shown.output().unwrap().stdout).unwrap();
    let line = format!("cp.ssh-command = \"mine\"  # {}, overridden by BANKFULL_SSH\n", at(&file));
    assert_eq!(output, line);
    let none = command().args(["config", "show"]).output().unwrap();
    assert!(err(&none).contains("no configuration file"), "{}", err(&none));
}
