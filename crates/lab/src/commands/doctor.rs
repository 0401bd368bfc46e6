//! `bankfull-lab doctor`: what this machine lacks, and how to get it.

use crate::{say, tools};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Something that the lab cannot do without, or that its scenarios are better with.
struct Need {
    what: &'static str,
    /// Without it the lab does not work at all.
    is_vital: bool,
    is_there: fn() -> bool,
    remedy: &'static str,
}

const NEEDS: [Need; 7] = [
    vital("root", || bankfull_sys::effective_uid() == 0, "use sudo"),
    vital("/dev/net/tun", || Path::new("/dev/net/tun").exists(), "modprobe tun"),
    vital("ip", || tools::program_path("ip").is_some(), "apt-get install iproute2"),
    wish("ss", || tools::program_path("ss").is_some(), "apt-get install iproute2"),
    vital("cubic", || has_congestion("cubic"), "modprobe tcp_cubic"),
    wish("bbr", || has_congestion("bbr"), "modprobe tcp_bbr"),
    wish("reno", || has_congestion("reno"), "use a kernel with it"),
];

/// Looks at everything and says what is missing. Fails when the lab cannot work.
#[must_use]
pub fn run() -> ExitCode {
    let mut works = true;
    for need in &NEEDS {
        let is_there = (need.is_there)();
        works &= is_there || !need.is_vital;
        let state = match (is_there, need.is_vital) {
            (true, _) => "there".to_owned(),
            (false, true) => format!("MISSING: {}", need.remedy),
            (false, false) => format!("missing: {}", need.remedy),
        };
        say(&format!("{:14} {state}", need.what));
    }
    for tool in tools::TOOLS {
        let state = match tool.missing() {
            Some(what) => what,
            None => tool.version_line().unwrap_or_else(|| "there".to_owned()),
        };
        say(&format!("{:14} {state}", format!("tool {}", tool.name)));
    }
    if works {
        say("The lab works here. Tools that are missing are skipped with a word.");
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

fn has_congestion(name: &str) -> bool {
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    known.is_ok_and(|known| known.split_whitespace().any(|one| one == name))
}
