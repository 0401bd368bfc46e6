//! `bankfull-lab doctor`: checks the requirements of the lab, and names remedies.

use crate::base::notify;
use crate::tools;
use crate::tools::shell::program_path;
use crate::topology::hosts::{Hosts, HostsConfig};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

/// Requirement of the lab.
struct Requirement {
    name: &'static str,
    /// True if the lab cannot work without it.
    is_required: bool,
    /// Check; its error is the finding, empty if the name suffices.
    check: fn() -> Result<(), String>,
    remedy: &'static str,
}

const NEEDS: [Requirement; 10] = [
    required("root", || met(bankfull_sys::effective_uid() == 0), "use sudo"),
    required("/dev/net/tun", || met(Path::new("/dev/net/tun").exists()), "modprobe tun"),
    required("ip", || program("ip"), "apt-get install iproute2"),
    required("create a host", check_host, "be root; in a container, run it with --privileged"),
    optional(
        "real time",
        check_real_time,
        "grant CAP_SYS_NICE; without it, the emulator is late more often",
    ),
    optional(
        "/dev/shm",
        check_shm,
        "mount -o remount,size=5G /dev/shm, or use --work for large files",
    ),
    optional("ss", || program("ss"), "apt-get install iproute2"),
    required("cubic", || congestion("cubic"), "modprobe tcp_cubic"),
    optional("bbr", || congestion("bbr"), "modprobe tcp_bbr"),
    optional("reno", || congestion("reno"), "use a kernel with reno"),
];

/// Free space for files. (chosen: `movers-research` has a file of 2 GB, stored twice while it runs)
const MIN_SHM_BYTES: u64 = 4_200_000_000;

/// Runs all checks, and prints the results. Fails if a required one is not met.
#[must_use]
pub fn run() -> ExitCode {
    let mut works = true;
    for need in &NEEDS {
        let found = (need.check)();
        works &= found.is_ok() || !need.is_required;
        notify(&line(need, &found));
    }
    for tool in tools::TOOLS {
        let state = match tool.missing() {
            Some(what) => what,
            None => tool.version_line().unwrap_or_else(|| "ok".to_owned()),
        };
        notify(&format!("{:14} {state}", format!("tool {}", tool.name)));
    }
    if works {
        notify("The lab works on this machine. Missing tools are skipped with a message.");
        ExitCode::SUCCESS
    } else {
        notify("The lab does not work on this machine yet.");
        ExitCode::FAILURE
    }
}

fn line(need: &Requirement, found: &Result<(), String>) -> String {
    let state = match found {
        Ok(()) => "ok".to_owned(),
        Err(why) => {
            let word = if need.is_required { "MISSING" } else { "missing" };
            let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
            format!("{word}: {}{why}", need.remedy)
        }
    };
    format!("{:14} {state}", need.name)
}

type Check = fn() -> Result<(), String>;

const fn required(name: &'static str, check: Check, remedy: &'static str) -> Requirement {
    Requirement { name, is_required: true, check, remedy }
}

const fn optional(name: &'static str, check: Check, remedy: &'static str) -> Requirement {
    Requirement { name, is_required: false, check, remedy }
}

fn met(is_there: bool) -> Result<(), String> {
    if is_there { Ok(()) } else { Err(String::new()) }
}

fn program(name: &str) -> Result<(), String> {
    met(program_path(name).is_some())
}

/// Creates and removes a host, as each run does.
fn check_host() -> Result<(), String> {
    let setup = HostsConfig { count: 1, ..HostsConfig::default() };
    Hosts::create(&setup).map(drop).map_err(|e| e.to_string())
}

fn check_real_time() -> Result<(), String> {
    // On its own thread, so that the priority ends with it.
    let result = thread::spawn(bankfull_sys::tun::set_realtime_priority).join();
    match result.unwrap_or(Ok(false)) {
        Ok(is_given) => met(is_given),
        Err(error) => Err(error.to_string()),
    }
}

fn check_shm() -> Result<(), String> {
    let found = rustix::fs::statvfs("/dev/shm").map_err(|e| e.to_string())?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    match free >= MIN_SHM_BYTES {
        true => Ok(()),
        false => Err(format!("{} free", bankfull_control::Bytes(free))),
    }
}

fn congestion(name: &str) -> Result<(), String> {
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    met(known.is_ok_and(|known| known.split_whitespace().any(|one| one == name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmet_check_shows_remedy_and_finding() {
        let need = required("it", || met(true), "make it");
        assert_eq!(line(&need, &(need.check)()), "it             ok");
        assert_eq!(line(&need, &met(false)), "it             MISSING: make it");
        let wish = optional("it", || met(true), "make it");
        let found = Err("1 MB free".to_owned());
        assert_eq!(line(&wish, &found), "it             missing: make it (1 MB free)");
    }
}
