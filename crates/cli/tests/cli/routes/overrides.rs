//! Settings by the user instead of tuning: `--max-rate`, `--schedule`, `--buffer`, `--congestion`;
//! and the controller that tunes.
//! `ss` on the sending side shows the effect on connections.

use super::super::harness::{
    Daemon, Done, FakeServer, Rng, Running, Scratch, SshServer, assert_same, cp, fill,
    is_over_path, run, run_there, wait_until, write_file,
};
use super::{UNREACHABLE, cp_through_firewall, firewalled};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Size of the copied file.
const CONTENT_BYTES: u64 = 4 << 20;

/// Creates a file.
fn source() -> Scratch {
    let scratch = Scratch::new();
    fill(&scratch.join("file"), CONTENT_BYTES, &mut Rng::new(5));
    scratch
}

/// Copies at up to 16 Mbit/s and checks the duration.
#[track_caller]
fn capped(command: &mut Command) -> Done {
    capped_by(&["--max-rate", "16mbit"], command)
}

/// Copies under flags that allow 16 Mbit/s and checks the duration.
#[track_caller]
fn capped_by(flags: &[&str], command: &mut Command) -> Done {
    let started = Instant::now();
    let done = run(command.args(flags)).expect(0);
    let least = Duration::from_secs_f64(CONTENT_BYTES as f64 / 2e6 * 0.9);
    let took = started.elapsed();
    assert!(took >= least, "{took:?} of {least:?}");
    assert_eq!(done.figure("bytes"), CONTENT_BYTES);
    // Over a long path, the start takes as long as the data; on a busy machine, other work.
    if !is_over_path() && took < least * 2 {
        assert_eq!(done.events().last().unwrap()["limited_by"], "max-rate");
    }
    done
}

#[test]
fn max_rate_limits_copies_with_a_daemon() {
    for flags in [&["--streams", "8"][..], &["--tune", "off"], &["--no-encryption"]] {
        let (from, to) = (source(), Scratch::new());
        let daemon = Daemon::start(to.path(), &["--allow-no-encryption"]);
        capped(daemon.cp().args(flags).arg(from.join("file")).arg(daemon.url("pushed")));
        assert_same(&from.join("file"), &to.join("pushed"));
        capped(daemon.cp().args(flags).arg(daemon.url("pushed")).arg(to.join("pulled")));
        assert_same(&from.join("file"), &to.join("pulled"));
    }
}

/// Returns the distinct controllers of window and pacing that decided in a copy.
fn controllers_of(command: &mut Command) -> BTreeSet<String> {
    let events = run(command.args(["--max-rate", "40mbit"])).expect(0).events();
    let names = events.iter().filter_map(|event| event["controller"].as_str());
    names.filter(|name| *name != "streams").map(str::to_owned).collect()
}

#[test]
fn tune_selects_the_controller_of_both_receivers() {
    let ssh = SshServer::start();
    for (flags, controller) in [
        (&[][..], "delay"),
        (&["--streams", "2"], "delay"),
        (&["--tune", "sobas"], "sobas"),
        (&["--tune", "sobas", "--streams", "2"], "sobas"),
    ] {
        let expected = BTreeSet::from([controller.to_owned()]);
        let (from, to) = (source(), Scratch::new());
        let daemon = Daemon::start(to.path(), &[]);
        let file = from.join("file");
        let pushed = controllers_of(daemon.cp().args(flags).arg(&file).arg(daemon.url("pushed")));
        assert_eq!(pushed, expected, "{flags:?}");
        let copy = to.join("pulled");
        let pulled = controllers_of(daemon.cp().args(flags).arg(daemon.url("pushed")).arg(copy));
        assert_eq!(pulled, expected, "{flags:?}");
        if let Some(ssh) = &ssh {
            let there = SshServer::place(&to.join("over-ssh"));
            let pushed = controllers_of(ssh.cp().args(flags).arg(&file).arg(there));
            assert_eq!(pushed, expected, "{flags:?}");
        }
    }
}

/// Makes a directory of 1 MB in files that no file system shares: they are read and written.
fn small_files(here: &Scratch) -> PathBuf {
    let source = here.join("s");
    fs::create_dir(&source).unwrap();
    for number in 0..50 {
        write_file(&source.join(number.to_string()), vec![b'x'; 20_000]);
    }
    source
}

#[test]
fn max_rate_limits_copies_within_a_host() {
    let here = Scratch::new();
    let source = small_files(&here);
    let started = Instant::now();
    let mut command = cp();
    command.args(["--max-rate", "8mbit"]).arg(&source).arg(here.join("d"));
    let done = run(&mut command).expect(0);
    // 1 MB at 1 MB/s, less what the limiter lets pass at first.
    assert!(started.elapsed() >= Duration::from_millis(900), "{:?}", started.elapsed());
    let last = done.events().pop().unwrap();
    assert_eq!((&last["files"], &last["limited_by"]), (&50.into(), &"max-rate".into()));
}

/// Returns a time zone in which it is noon after some seconds.
fn zone_before_noon(seconds: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let ahead = (12 * 3_600 + 86_400 - seconds - now % 86_400) % 86_400;
    format!("XXX-{:02}:{:02}:{:02}", ahead / 3_600, ahead / 60 % 60, ahead % 60)
}

#[test]
fn schedule_limits_copies_on_every_route() {
    let always = ["--schedule", "00:00-12:00=16mbit,*=16mbit"];
    let lower = ["--schedule", "*=80mbit", "--max-rate", "16mbit"];
    let (from, to) = (source(), Scratch::new());
    let daemon = Daemon::start(to.path(), &[]);
    for (number, (limits, flags)) in
        [(&always[..], &[][..]), (&lower, &["--tune", "off"]), (&always, &["--transport", "quic"])]
            .into_iter()
            .enumerate()
    {
        let (pushed, pulled) = (format!("pushed-{number}"), to.join(format!("pulled-{number}")));
        let mut push = daemon.cp();
        capped_by(limits, push.args(flags).arg(from.join("file")).arg(daemon.url(&pushed)));
        let mut pull = daemon.cp();
        capped_by(limits, pull.args(flags).arg(daemon.url(&pushed)).arg(&pulled));
        assert_same(&from.join("file"), &pulled);
    }
    let Some(ssh) = SshServer::start() else { return };
    let place = SshServer::place(&to.join("over-ssh"));
    capped_by(&always, ssh.cp().arg(from.join("file")).arg(&place));
    capped_by(&always, ssh.cp().arg(&place).arg(to.join("back")));
    assert_same(&from.join("file"), &to.join("back"));
}

#[test]
fn schedule_that_changes_is_followed_by_a_running_copy() {
    let (from, to) = (source(), Scratch::new());
    let daemon = Daemon::start(to.path(), &[]);
    let (file, url) = (from.join("file").display().to_string(), daemon.url("pushed"));
    let fetched = to.join("fetched").display().to_string();
    for [from, to] in [[&file, &url], [&url, &fetched]] {
        // At 1 Mbit/s the file would take 33 s.
        let mut command = daemon.cp();
        command.args(["--schedule", "00:00-12:00=1mbit,12:00-24:00=max"]).args([from, to]);
        let started = Instant::now();
        let done = run(command.env("TZ", zone_before_noon(3))).expect(0);
        let took = started.elapsed();
        assert!(took > Duration::from_secs(1) && took < Duration::from_secs(25), "{took:?}");
        let events = done.events();
        let changes = events.iter().filter(|event| event["controller"] == "rate-limit");
        let changes: Vec<_> = changes.map(|event| event["reason"].as_str().unwrap()).collect();
        let expected =
            ["--schedule limits to 1.0 Mbit/s until 12:00", "--schedule sets no limit until 00:00"];
        assert_eq!(changes, expected);
        // The receiver's controller knows of the change, here or there.
        assert!(
            is_over_path()
                || events.iter().any(|event| {
                    event["controller"] == "delay"
                        && event["reason"] == "there is no maximum rate any more"
                })
        );
    }
    assert_same(&from.join("file"), &to.join("fetched"));
}

#[test]
fn schedule_limits_a_copy_within_a_host_until_it_changes() {
    let here = Scratch::new();
    let source = small_files(&here);
    let started = Instant::now();
    let mut command = cp();
    command.args(["--schedule", "00:00-12:00=400kbit,*=max"]).arg(&source).arg(here.join("d"));
    // 1 MB would take 20 s.
    let done = run(command.env("TZ", zone_before_noon(3))).expect(0);
    let took = started.elapsed();
    assert!(took > Duration::from_secs(1) && took < Duration::from_secs(15), "{took:?}");
    assert_eq!(done.figure("files"), 50);
}

#[test]
fn max_rate_limits_copies_over_ssh() {
    let (Some(open), Some(closed)) = (SshServer::start(), firewalled()) else { return };
    let (from, to) = (source(), Scratch::new());
    let there = |name: &str| SshServer::place(&to.join(name));
    let through = |name: &str| format!("{UNREACHABLE}:{}", to.join(name).display());
    capped(open.cp().arg(from.join("file")).arg(there("pushed")));
    capped(open.cp().arg(there("pushed")).arg(to.join("pulled")));
    for done in [
        capped(cp_through_firewall(&closed).arg(from.join("file")).arg(through("tunnelled"))),
        capped(cp_through_firewall(&closed).arg(through("tunnelled")).arg(to.join("fetched"))),
    ] {
        let events = done.events();
        let connected = events.iter().find(|event| event["event"] == "connected").unwrap();
        assert_eq!(connected["route"], "ssh-only");
    }
    for copied_to in ["pushed", "pulled", "tunnelled", "fetched"] {
        assert_same(&from.join("file"), &to.join(copied_to));
    }
}

/// Returns the lines of `ss` for a copy's sending connections. Without `ss`, prints a message and
/// returns `None`.
fn senders(daemon: &Daemon, push: bool) -> Option<Vec<String>> {
    if Command::new("ss").arg("-V").output().is_err() {
        println!("skipped: no ss");
        return None;
    }
    let filter = format!("( {} = :{} )", if push { "dport" } else { "sport" }, daemon.port);
    let mut ss = Command::new("ss");
    ss.args(["-tinHO", "state", "established", &filter]);
    let reported = if push { run(&mut ss) } else { run_there(&mut ss) };
    Some(reported.out.lines().map(str::to_owned).collect())
}

/// Returns the number after a name in a line of `ss`.
fn number(line: &str, name: &str) -> u64 {
    let words = line.split_whitespace();
    words.filter_map(|word| word.strip_prefix(name)).find_map(|n| n.parse().ok()).unwrap_or(0)
}

/// Starts a copy with a daemon, of 20 s unless it is killed.
fn slow_copy(from: &Scratch, daemon: &Daemon, push: bool, flags: &[&str]) -> Running {
    fill(&from.join("file"), 10 * CONTENT_BYTES, &mut Rng::new(6));
    let mut command = daemon.cp();
    command.args(["--max-rate", "16mbit"]).args(flags);
    if push {
        command.arg(from.join("file")).arg(daemon.url("pushed"));
    } else {
        command.arg(daemon.url("file")).arg(from.join("pulled"));
    }
    Running::start(&mut command)
}

#[test]
fn buffer_sets_the_receive_windows() {
    for push in [true, false] {
        let from = Scratch::new();
        let daemon = Daemon::start(from.path(), &[]);
        let mut copy = slow_copy(&from, &daemon, push, &["--streams", "1", "--buffer", "200kB"]);
        // Windows have a granularity of about one kilobyte. The kernel raises them between two
        // clamps, so one sample within the range is enough; without clamps there is none.
        let is_clamped = |window: &u64| (50_000..=202_000).contains(window);
        let mut windows: Vec<u64> = Vec::new();
        wait_until("the window was clamped", || {
            let Some(lines) = senders(&daemon, push) else { return true };
            let moved = lines.iter().find(|line| number(line, "bytes_sent:") > 1_000_000);
            windows.extend(moved.map(|line| number(line, "snd_wnd:")));
            windows.last().is_some_and(is_clamped)
        });
        assert!(windows.last().is_none_or(is_clamped), "push: {push}, {windows:?}");
        copy.kill();
    }
}

/// Returns an available congestion control other than the default.
fn another_congestion_control() -> Option<String> {
    let reported =
        |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}")).unwrap();
    let own = reported("congestion_control");
    let allowed = reported("allowed_congestion_control");
    let other = allowed.split_whitespace().find(|name| *name != own.trim_end());
    if other.is_none() {
        println!("skipped: there is only one congestion control");
    }
    other.map(str::to_owned)
}

#[test]
fn congestion_sets_the_congestion_control_of_the_sender() {
    let Some(name) = another_congestion_control() else { return };
    for push in [true, false] {
        let from = Scratch::new();
        let daemon = Daemon::start(from.path(), &[]);
        let mut copy = slow_copy(&from, &daemon, push, &["--streams", "2", "--congestion", &name]);
        wait_until("both connections use it", || {
            let Some(lines) = senders(&daemon, push) else { return true };
            let uses_it = |line: &&String| line.split_whitespace().any(|word| word == name);
            lines.iter().filter(uses_it).count() == 2
        });
        copy.kill();
    }
}

#[test]
fn unknown_congestion_control_is_refused() {
    let there = FakeServer::raw(|_| panic!("the client has connected"));
    let (from, to) = (source(), Scratch::new());
    let words = ["the sending host has no congestion control no-such: choose one of ", "reno"];
    let chosen = ["--congestion", "no-such"];
    let mut push = cp();
    run(push.args(chosen).arg(from.join("file")).arg(there.url())).expect(1).says(&words);
    let daemon = Daemon::start(from.path(), &[]);
    let mut pull = daemon.cp();
    pull.args(chosen).arg(daemon.url("file")).arg(to.join("new/file"));
    let done = run(&mut pull).expect(1);
    done.says(&words);
    done.says(&["127.0.0.1 reported: "]);
    assert!(fs::read_dir(to.path()).unwrap().next().is_none());
}

#[test]
fn flag_without_effect_through_ssh_gives_a_warning() {
    let Some(ssh) = firewalled() else { return };
    let (from, to) = (source(), Scratch::new());
    let mut command = cp_through_firewall(&ssh);
    command.args(["--buffer", "4MB"]).arg(from.join("file"));
    command.arg(format!("{UNREACHABLE}:{}", to.join("file").display()));
    let events = run(&mut command).expect(0).events();
    let reported = |event: &&serde_json::Value| {
        event["message"].as_str().is_some_and(|text| text.contains("have no effect"))
    };
    assert_eq!(events.iter().filter(reported).count(), 1, "{events:?}");
}
