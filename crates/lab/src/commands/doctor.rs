//! `bankfull-lab doctor`: what this machine lacks, and how to get it.

use crate::hosts::{Hosts, Setup};
use crate::{say, tools};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

/// Something that the lab cannot do without, or that its scenarios are better with.
struct Need {
    what: &'static str,
    /// Without it the lab does not work at all.
    is_vital: bool,
    /// Fails with what was found instead; nothing where that is plain.
    check: fn() -> Result<(), String>,
    remedy: &'static str,
}

const NEEDS: [Need; 10] = [
    vital("root", || there(bankfull_sys::effective_uid() == 0), "use sudo"),
    vital("/dev/net/tun", || there(Path::new("/dev/net/tun").exists()), "modprobe tun"),
    vital("ip", || program("ip"), "apt-get install iproute2"),
    vital("a host", make_host, "be root; in a container, run it with --privileged"),
    wish("real time", real_time, "give CAP_SYS_NICE; without it the emulator is late more often"),
    wish("/dev/shm", shm, "mount -o remount,size=5G /dev/shm, or use --work for large files"),
    wish("ss", || program("ss"), "apt-get install iproute2"),
    vital("cubic", || congestion("cubic"), "modprobe tcp_cubic"),
    wish("bbr", || congestion("bbr"), "modprobe tcp_bbr"),
    wish("reno", || congestion("reno"), "use a kernel with it"),
];

/// What files need where they are kept: the largest of our scenarios, `movers-research`, has one of
/// 2 GB, which is there twice while it runs. (ours)
const SHM_BYTES: u64 = 4_200_000_000;

/// Looks at everything and says what is missing. Fails when the lab cannot work.
#[must_use]
pub fn run() -> ExitCode {
    let mut works = true;
    for need in &NEEDS {
        let found = (need.check)();
        works &= found.is_ok() || !need.is_vital;
        say(&line(need, &found));
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

fn line(need: &Need, found: &Result<(), String>) -> String {
    let state = match found {
        Ok(()) => "there".to_owned(),
        Err(why) => {
            let word = if need.is_vital { "MISSING" } else { "missing" };
            let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
            format!("{word}: {}{why}", need.remedy)
        }
    };
    format!("{:14} {state}", need.what)
}

type Check = fn() -> Result<(), String>;

const fn vital(what: &'static str, check: Check, remedy: &'static str) -> Need {
    Need { what, is_vital: true, check, remedy }
}

const fn wish(what: &'static str, check: Check, remedy: &'static str) -> Need {
    Need { what, is_vital: false, check, remedy }
}

fn there(is_there: bool) -> Result<(), String> {
    if is_there { Ok(()) } else { Err(String::new()) }
}

fn program(name: &str) -> Result<(), String> {
    there(tools::program_path(name).is_some())
}

/// Makes a host, as every run does, and removes it.
fn make_host() -> Result<(), String> {
    let setup = Setup { count: 1, ..Setup::default() };
    Hosts::create(&setup).map(drop).map_err(|e| e.to_string())
}

fn real_time() -> Result<(), String> {
    // On a thread of its own, which ends with what it was given.
    let asked = thread::spawn(bankfull_sys::tun::run_promptly).join();
    match asked.unwrap_or(Ok(false)) {
        Ok(is_given) => there(is_given),
        Err(error) => Err(error.to_string()),
    }
}

fn shm() -> Result<(), String> {
    let found = rustix::fs::statvfs("/dev/shm").map_err(|e| e.to_string())?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    match free >= SHM_BYTES {
        true => Ok(()),
        false => Err(format!("{} are free", bankfull_control::Bytes(free))),
    }
}

fn congestion(name: &str) -> Result<(), String> {
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    there(known.is_ok_and(|known| known.split_whitespace().any(|one| one == name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_its_remedy_and_what_was_found() {
        let need = vital("it", || there(true), "make it");
        assert_eq!(line(&need, &(need.check)()), "it             there");
        assert_eq!(line(&need, &there(false)), "it             MISSING: make it");
        let wish = wish("it", || there(true), "make it");
        let found = Err("1 MB are free".to_owned());
        assert_eq!(line(&wish, &found), "it             missing: make it (1 MB are free)");
    }
}
