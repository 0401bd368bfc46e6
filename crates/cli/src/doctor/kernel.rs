//! Checks of the kernel, the limits of this process, the clock and ssh.

use super::Finding;
use super::host::Host;
use bankfull::{IoMethod, is_clock_synchronized, kernel_version, raise_open_file_limit};
use std::process::{Command, Stdio};

/// Open files that some hundred connections of a daemon need. (chosen: 160 connections, 8 each)
const USEFUL_OPEN_FILES: u64 = 4096;

/// Capabilities that copies use, by their numbers in `CapEff`. (linux/capability.h)
const CAPABILITIES: [(u32, &str, &str); 6] = [
    (0, "CAP_CHOWN", "owners of files are kept"),
    (1, "CAP_DAC_OVERRIDE", "files of others are read and written"),
    (3, "CAP_FOWNER", "modes and times of files of others are kept"),
    (4, "CAP_FSETID", "set-id bits are kept"),
    (12, "CAP_NET_ADMIN", "socket buffers may exceed tcp_rmem and tcp_wmem"),
    (27, "CAP_MKNOD", "devices are copied"),
];

/// Runs the checks.
pub(super) fn all(host: &Host) -> Vec<Finding> {
    if !host.is_own() {
        return Vec::new();
    }
    [kernel(), Some(io_uring(host)), capabilities(host), open_files(), clock(), Some(ssh())]
        .into_iter()
        .flatten()
        .collect()
}

fn kernel() -> Option<Finding> {
    let (major, minor) = kernel_version()?;
    Some(Finding::good("kernel", format!("Linux {major}.{minor}")))
}

fn io_uring(host: &Host) -> Finding {
    let topic = "io_uring";
    if IoMethod::IoUring.is_available() {
        return Finding::good(topic, "may be used to read from disks");
    }
    let text = "is not available: files are read by other methods";
    let finding = match host.number("kernel.io_uring_disabled") {
        Some(disabled) if disabled > 0 => {
            Finding::note(topic, text, "sysctl -w kernel.io_uring_disabled=0")
        }
        _ => return Finding::good(topic, text),
    };
    finding.with_effect("less CPU time for files that are not cached")
}

fn capabilities(host: &Host) -> Option<Finding> {
    let status = host.read("proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let held = u64::from_str_radix(line.trim(), 16).ok()?;
    let missing: Vec<_> =
        CAPABILITIES.into_iter().filter(|(bit, ..)| held & (1 << bit) == 0).collect();
    if missing.is_empty() {
        return Some(Finding::good("permissions", "owners may be set, and buffers be forced"));
    }
    let names: Vec<&str> = missing.iter().map(|(_, name, _)| *name).collect();
    let effects: Vec<&str> = missing.iter().map(|(.., effect)| *effect).collect();
    let text = format!("this process lacks {}", names.join(", "));
    let named: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let way = format!(
        "run the copy as root, or setcap {}=ep $(command -v bankfull), if you need them",
        named.join(",")
    );
    let finding = Finding::note("permissions", text, way);
    Some(finding.with_effect(effects.join("; ")))
}

fn open_files() -> Option<Finding> {
    let files = raise_open_file_limit().ok()?;
    let text = format!("{files} may be open");
    if files >= USEFUL_OPEN_FILES {
        return Some(Finding::good("open files", text));
    }
    let finding = Finding::note("open files", text, "ulimit -n 65536, or LimitNOFILE=65536");
    Some(finding.with_effect("more connections of a daemon, and more files at a time"))
}

fn clock() -> Option<Finding> {
    if is_clock_synchronized()? {
        return Some(Finding::good("clock", "is synchronized"));
    }
    let text = "is not synchronized: --update and --newer-than compare times of two hosts";
    Some(Finding::note("clock", text, "timedatectl set-ntp true"))
}

fn ssh() -> Finding {
    let shown = Command::new("ssh").arg("-V").stdin(Stdio::null()).output();
    match shown {
        Ok(shown) => {
            let text = String::from_utf8_lossy(&shown.stderr).trim().to_owned();
            Finding::good("ssh", text)
        }
        Err(_) => {
            let text = "there is no ssh: only daemons can be reached";
            Finding::note("ssh", text, "apt-get install openssh-client")
        }
    }
}
