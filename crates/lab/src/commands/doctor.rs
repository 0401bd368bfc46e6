//! `bankfull-lab doctor`: what this machine lacks, and how to get it.

use crate::say;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Something that the lab, or some of its scenarios, needs.
struct Need {
    what: &'static str,
    /// Without it the lab does not work at all.
    is_vital: bool,
    is_there: fn() -> bool,
    remedy: &'static str,
}

const NEEDS: [Need; 14] = [
    vital("root", || bankfull_sys::effective_uid() == 0, "use sudo"),
    vital("/dev/net/tun", || Path::new("/dev/net/tun").exists(), "modprobe tun"),
    vital("ip", || is_program("ip"), "apt-get install iproute2"),
    vital("cubic", || has_congestion("cubic"), "modprobe tcp_cubic"),
    wish("bbr", || has_congestion("bbr"), "modprobe tcp_bbr"),
    wish("ping", || is_program("ping"), "apt-get install iputils-ping"),
    wish("iperf3", || is_program("iperf3"), "apt-get install iperf3"),
    wish("nuttcp", || is_program("nuttcp"), "apt-get install nuttcp"),
    wish("rsync", || is_program("rsync"), "apt-get install rsync"),
    wish("scp", || is_program("scp"), "apt-get install openssh-client"),
    wish("sshd", || is_program("sshd"), "apt-get install openssh-server"),
    wish("rclone", || is_program("rclone"), "apt-get install rclone"),
    wish(
        "globus-url-copy",
        || is_program("globus-url-copy"),
        "apt-get install globus-gass-copy-progs globus-gridftp-server-progs",
    ),
    wish("qcp", || is_program("qcp"), "cargo install qcp"),
];

/// Looks at everything and says what is missing. Fails when the lab cannot work.
#[must_use]
pub fn run() -> ExitCode {
    let mut works = true;
    for need in &NEEDS {
        let is_there = (need.is_there)();
        works &= is_there || !need.is_vital;
        let state = match (is_there, need.is_vital) {
            (true, _) => "there",
            (false, true) => "MISSING",
            (false, false) => "missing",
        };
        let remedy = if is_there { String::new() } else { format!(": {}", need.remedy) };
        say(&format!("{:16} {state}{remedy}", need.what));
    }
    if works {
        say("The lab works here. What is missing is skipped with a word.");
        ExitCode::SUCCESS
    } else {
        say("The lab does not work here yet.");
        ExitCode::FAILURE
    }
}

const fn vital(what: &'static str, is_there: fn() -> bool, remedy: &'static str) -> Need {
    Need { what, is_vital: true, is_there, remedy }
}

const fn wish(what: &'static str, is_there: fn() -> bool, remedy: &'static str) -> Need {
    Need { what, is_vital: false, is_there, remedy }
}

/// Whether there is a program of this name, on the `PATH` or where servers are.
#[must_use]
pub fn is_program(name: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin"]).any(|dir| Path::new(dir).join(name).is_file())
}

fn has_congestion(name: &str) -> bool {
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    known.is_ok_and(|known| known.split_whitespace().any(|one| one == name))
}
