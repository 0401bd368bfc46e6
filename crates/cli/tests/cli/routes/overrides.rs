//! What a user sets in place of what the path would decide: `--max-rate`.

use super::super::harness::{Daemon, Done, Rng, Scratch, SshServer, assert_same, fill, run};
use super::{UNREACHABLE, cp_through_firewall, firewalled};
use std::process::Command;
use std::time::{Duration, Instant};

/// Bytes of the file that is copied.
const CONTENT_BYTES: u64 = 4 << 20;

/// A file.
fn source() -> Scratch {
    let scratch = Scratch::new();
    fill(&scratch.join("file"), CONTENT_BYTES, &mut Rng::new(5));
    scratch
}

/// Copies at 16 Mbit/s at most: that takes as long as it must.
#[track_caller]
fn capped(command: &mut Command) -> Done {
    let started = Instant::now();
    let done = run(command.args(["--max-rate", "16mbit"])).expect(0);
    let least = Duration::from_secs_f64(CONTENT_BYTES as f64 / 2e6 * 0.9);
    assert!(started.elapsed() >= least, "{:?} of {least:?}", started.elapsed());
    assert_eq!(done.figure("bytes"), CONTENT_BYTES);
    done
}

#[test]
fn a_capped_copy_to_or_from_a_daemon_takes_as_long_as_it_must() {
    for flags in [&["--streams", "8"][..], &["--tune", "off"], &["--no-encryption"]] {
        let (from, to) = (source(), Scratch::new());
        let daemon = Daemon::start(to.path(), &["--allow-no-encryption"]);
        capped(daemon.cp().args(flags).arg(from.join("file")).arg(daemon.url("pushed")));
        assert_same(&from.join("file"), &to.join("pushed"));
        capped(daemon.cp().args(flags).arg(daemon.url("pushed")).arg(to.join("pulled")));
        assert_same(&from.join("file"), &to.join("pulled"));
    }
}

#[test]
fn a_capped_copy_over_ssh_takes_as_long_as_it_must_with_a_data_port_or_without() {
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
    for landed in ["pushed", "pulled", "tunnelled", "fetched"] {
        assert_same(&from.join("file"), &to.join(landed));
    }
}
