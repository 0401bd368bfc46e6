//! The log: sessions with their outcome, folded failures, escaped names, a limit per peer, and the
//! decisions of the controllers.

use super::harness::{
    Daemon, Many, Proxy, Rng, Running, Scratch, cp, fill, run, wait_until, write_file,
};
use super::{command, err};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

/// Starts a daemon that logs JSON into a file.
fn logging(root: &Path, log: &Path, flags: &[&str]) -> Daemon {
    let own = ["--log-file", log.to_str().unwrap(), "--log-format", "json"];
    Daemon::start(root, &[&own, flags].concat())
}

/// Returns the whole lines of a JSON log.
fn lines(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the lines with a message.
fn with_message(log: &Path, message: &str) -> Vec<Value> {
    lines(log).into_iter().filter(|line| line["message"] == message).collect()
}

#[test]
fn session_is_logged_alike_on_both_sides() {
    let (here, there) = (Scratch::new(), Scratch::new());
    let [near, far] = ["near.log", "far.log"].map(|name| here.join(name));
    fill(&here.dir("data").join("file"), 3 << 20, &mut Rng::new(1));
    let daemon = logging(there.path(), &far, &[]);
    let mut command = daemon.cp();
    command.args(["--log-format", "json", "--log-file"]).arg(&near);
    run(command.arg(here.join("data")).arg(daemon.url("in"))).expect(0);
    wait_until("the session ended", || !with_message(&far, "transfer ended").is_empty());
    let [started, ended] =
        ["transfer started", "transfer ended"].map(|message| with_message(&far, message).remove(0));
    assert_eq!((&started["direction"], &started["path"]), (&"receive".into(), &"in".into()));
    assert_eq!((&ended["outcome"], &ended["bytes"]), (&"complete".into(), &(3 << 20).into()));
    assert_eq!((&ended["level"], &ended["files"]), (&"INFO".into(), &1.into()));
    assert!(ended["seconds"].as_f64().is_some() && ended["timestamp"].is_string(), "{ended}");
    assert!(ended["span"]["peer"].as_str().is_some_and(|peer| peer.contains(':')), "{ended}");
    let number = ended["span"]["id"].as_str().unwrap();
    let connected = with_message(&near, "connected").remove(0);
    assert_eq!(connected["span"]["id"], number, "both sides log the same number");
    let own = with_message(&near, "transfer ended").remove(0);
    assert_eq!((&own["direction"], &own["bytes"]), (&"send".into(), &(3 << 20).into()));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(&far).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn listing_and_probe_are_logged_as_such() {
    let (here, there) = (Scratch::new(), Scratch::new());
    let [near, far] = ["near.log", "far.log"].map(|name| here.join(name));
    let daemon = logging(there.path(), &far, &[]);
    for (mut command, flags, name) in
        [(daemon.ls(), &[][..], "list"), (daemon.probe(), &["--time", "1"], "probe")]
    {
        command.args(flags).args(["--log-format", "json", "--log-file"]).arg(&near);
        run(command.arg(daemon.url(""))).expect(0);
        let started = with_message(&near, "transfer started").pop().unwrap();
        assert_eq!(started["direction"], name);
    }
    let seen = with_message(&far, "transfer started").pop().unwrap();
    assert_eq!(seen["direction"], "probe");
}

#[test]
fn failed_files_are_folded_and_names_escaped() {
    let (here, there) = (Scratch::new(), Scratch::new());
    let log = here.join("log");
    let name = |n: usize| format!("in the way {n}\n\u{1b}[2J\u{202e}");
    for n in 0..30 {
        write_file(&here.join("data").join(name(n)), "file");
        write_file(&there.join("data").join(name(n)).join("leaf"), "leaf");
    }
    let daemon = logging(there.path(), &log, &[]);
    run(daemon.cp().arg(here.join("data")).arg(daemon.url(""))).expect(23);
    wait_until("the session ended", || !with_message(&log, "transfer ended").is_empty());
    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains('\u{1b}'), "control characters are escaped");
    let failed = with_message(&log, "file failed");
    let more = with_message(&log, "more files failed");
    let rest: u64 = more.iter().filter_map(|line| line["files"].as_u64()).sum();
    assert!(failed.len() <= 20, "{} lines", failed.len());
    assert_eq!(failed.len() as u64 + rest, 30);
    let ended = with_message(&log, "transfer ended").remove(0);
    assert_eq!((&ended["outcome"], &ended["failed_files"]), (&"partial".into(), &30.into()));

    let text_log = here.join("text.log");
    let flags = ["--log-file", text_log.to_str().unwrap()];
    let daemon = Daemon::start(there.path(), &flags);
    run(daemon.cp().arg(here.join("data")).arg(daemon.url(""))).expect(23);
    let text = || fs::read_to_string(&text_log).unwrap();
    wait_until("the session ended", || text().contains("transfer ended"));
    let is_control = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    assert!(!text().contains(is_control), "{:?}", text());
    let is_line = |line: &str| line.starts_with("20") && line.contains("Z ");
    assert!(text().lines().all(is_line), "{:?}", text());
}

#[test]
fn warning_with_a_forged_line_stays_one_line() {
    let (here, there) = (Scratch::new(), Scratch::new());
    let forged = "x\n2026-01-01T00:00:00Z  WARN forged";
    write_file(&there.join("data/plain"), "x");
    rustix::fs::mkfifoat(rustix::fs::CWD, there.join("data").join(forged), 0o600.into()).unwrap();
    for format in ["text", "json"] {
        let log = here.join(format);
        let own = ["--log-format", format, "--log-file", log.to_str().unwrap()];
        let daemon = Daemon::start(there.path(), &own);
        run(daemon.cp().arg(daemon.url("data")).arg(here.join("copy"))).expect(0);
        let text = || fs::read_to_string(&log).unwrap_or_default();
        wait_until("the session ended", || text().contains("transfer ended"));
        assert!(text().contains("forged"), "the skipped file is logged: {}", text());
        let begins = |line: &str| {
            line.starts_with('{') || line.starts_with("20") && !line.starts_with("2026-01-01")
        };
        assert!(text().lines().all(begins), "{}", text());
        if format == "json" {
            let warnings = with_message(&log, "warning");
            let has = |text: &str| {
                warnings.iter().any(|line| line["text"].as_str().is_some_and(|t| t.contains(text)))
            };
            assert!(has("skipped") && has("no token is set"), "{warnings:?}");
        }
    }
}

#[test]
fn interrupted_session_is_logged_with_its_bytes() {
    let (here, there) = (Scratch::new(), Scratch::new());
    let log = here.join("log");
    fill(&here.join("file"), 40 << 20, &mut Rng::new(4));
    let daemon = logging(there.path(), &log, &[]);
    let mut command = daemon.cp();
    command.args(["--max-rate", "40mbit"]).arg(here.join("file")).arg(daemon.url(""));
    let client = Running::start(&mut command);
    let has_moved = || {
        let moved = |line: &str| {
            Some(serde_json::from_str::<Value>(line).ok()?["bytes_moved"].as_u64()? > 0)
        };
        client.out().lines().any(|line| moved(line) == Some(true))
    };
    wait_until("a block is verified", has_moved);
    client.signal(rustix::process::Signal::INT);
    client.wait().expect(20);
    wait_until("the session ended", || !with_message(&log, "transfer ended").is_empty());
    let ended = with_message(&log, "transfer ended").remove(0);
    assert_eq!((&ended["outcome"], &ended["level"]), (&"interrupted".into(), &"WARN".into()));
    assert!(ended["bytes"].as_u64() > Some(0) && ended["seconds"].as_f64() > Some(0.0), "{ended}");
}

#[test]
fn json_log_of_a_daemon_owns_standard_error() {
    let there = Scratch::new();
    let mut command = command();
    command.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--state-dir"]);
    command.arg(there.join("state")).arg(there.path());
    let daemon = Running::start(&mut command);
    wait_until("it serves", || daemon.err().contains("\"serving\""));
    daemon.signal(rustix::process::Signal::TERM);
    let text = daemon.wait().expect(0).err;
    let is_object = |line: &str| serde_json::from_str::<Value>(line).is_ok();
    assert!(text.lines().count() >= 3 && text.lines().all(is_object), "{text}");
}

#[test]
fn refused_client_is_logged_without_its_token() {
    let (here, there) = (Scratch::new(), Scratch::new());
    let log = here.join("log");
    write_file(&here.join("file"), "x");
    write_file(&here.join("right"), "the-right-secret");
    write_file(&here.join("wrong"), "a-wrong-secret");
    let right = here.join("right");
    let flags = ["-vv", "--token-file", right.to_str().unwrap()];
    let daemon = logging(there.path(), &log, &flags);
    for (token, code) in [("wrong", 6), ("right", 0)] {
        let mut command = daemon.cp();
        command.arg("--token-file").arg(here.join(token));
        let done = run(command.arg(here.join("file")).arg(daemon.url("")));
        assert_eq!(done.code == Some(0), code == 0, "{done:?}");
    }
    wait_until("both ended", || !with_message(&log, "transfer ended").is_empty());
    assert_eq!(with_message(&log, "client refused").len(), 1);
    assert_eq!(with_message(&log, "transfer ended")[0]["outcome"], "complete");
    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains("secret"), "a token is logged");
}

#[test]
fn lines_about_a_flooding_peer_are_limited() {
    let (here, there) = (Scratch::new(), Scratch::new());
    let log = here.join("log");
    let daemon = logging(there.path(), &log, &[]);
    let stray = || {
        if let Ok(mut socket) = TcpStream::connect(super::harness::remote_address(daemon.port)) {
            let _ = socket.write_all(b"GET / HTTP/1.0\r\n\r\n");
            let _ = std::io::copy(&mut socket, &mut std::io::sink());
        }
    };
    (0..400).for_each(|_| stray());
    wait_until("all are rejected", || daemon.clients_done() >= 400);
    let rejected = with_message(&log, "connection rejected").len();
    // A burst of 100 and 10 a second, for at most 20 s.
    assert!((100..300).contains(&rejected), "{rejected} lines");
    // The next line that is allowed says how many are missing.
    wait_until("the rest is counted", || {
        stray();
        let left_out = with_message(&log, "log lines about a peer left out");
        left_out.iter().any(|line| line["lines"].as_u64() > Some(0))
    });
}

#[test]
fn verbose_commands_show_decisions() {
    let many = Many::start(2, 6 << 20);
    let (root, here) = (Scratch::new(), Scratch::new());
    fill(&here.join("file"), 4 << 20, &mut Rng::new(2));
    let daemon = Daemon::start(root.path(), &[]);
    let proxy = Proxy::start(daemon.port);
    proxy.slow_to(2 << 20);
    let shown = |arguments: &[&str]| {
        let mut command = command();
        command.args(arguments).args(["-v", "--fingerprint", &daemon.fingerprint]);
        command
    };
    let mut copy = shown(&["cp"]);
    let copied = err(&copy.arg(here.join("file")).arg(proxy.url("")).output().unwrap());
    assert!(copied.contains(": delay: ") && copied.contains(": rrda: staging buffer"), "{copied}");
    let mut copy = shown(&["cp", "--transport", "quic"]);
    let copied = err(&copy.arg(here.join("file")).arg(daemon.url("over")).output().unwrap());
    assert!(copied.contains(": quic-window: send, window "), "{copied}");
    let probed = err(&shown(&["probe", "--time", "1"]).arg(daemon.url("")).output().unwrap());
    assert!(probed.contains(": delay: "), "{probed}");
    let gather = many.gather(&["--link-rate", "20mbit"], &many.sources());
    // The helper asks for JSON lines.
    let mut text = command();
    text.args(gather.get_args().filter(|argument| *argument != "--json")).arg("-v");
    let gathered = err(&text.output().unwrap());
    let is_decision =
        |line: &&str| line.starts_with("bankfull://") && line.contains(": ictcp: shared");
    assert!(gathered.lines().filter(is_decision).count() >= 2, "{gathered}");
}

#[test]
fn daemon_logs_decisions_and_files_with_verbose() {
    let (here, there) = (Scratch::new(), Scratch::new());
    let log = here.join("log");
    fill(&here.join("file"), 3 << 20, &mut Rng::new(3));
    let daemon = logging(there.path(), &log, &["-v"]);
    for transport in ["tcp", "quic"] {
        let mut command = daemon.cp();
        command.args(["--transport", transport]);
        run(command.arg(here.join("file")).arg(daemon.url(transport))).expect(0);
    }
    wait_until("both ended", || with_message(&log, "transfer ended").len() >= 2);
    let decisions = with_message(&log, "tuning decision");
    for controller in ["delay", "quic-window"] {
        assert!(decisions.iter().any(|line| line["controller"] == controller), "{decisions:?}");
    }
    assert!(decisions.iter().all(|line| line["span"]["id"].is_string()), "{decisions:?}");
    assert_eq!(with_message(&log, "file copied").len(), 2);
}

#[test]
fn log_flags_are_checked() {
    let here = Scratch::new();
    write_file(&here.join("file"), "x");
    let mut command = cp();
    command.env("BANKFULL_LOG", "loud").arg(here.join("file")).arg(here.join("copy"));
    run(&mut command).expect(1).says(&["BANKFULL_LOG has the invalid value \"loud\""]);
    let mut command = cp();
    command.args(["--log-file", "/nonexistent/log"]).arg(here.join("file"));
    run(command.arg(here.join("copy"))).says(&["cannot open the log /nonexistent/log"]);
    let mut command = cp();
    command.args(["--log-format", "json"]).arg(here.join("file")).arg(here.join("copy"));
    run(&mut command).expect(1).says(&["--log-format has no effect without a log"]);
    assert!(!here.join("copy").exists());
}
