//! Deploys this binary to a remote host that has none: statically linked, in its cache directory by
//! version, checked by hash on arrival.

use super::command::{Login, cache_path};
use crate::base::cancel::Cancel;
use crate::base::error::{Error, ErrorKind};
use crate::base::event::{Event, EventSink};
use std::fs::{self, File};
use std::io;
use std::process::Stdio;
use std::time::Duration;

/// ELF program header type for the name of the dynamic loader. A static binary lacks it.
const PT_INTERP: u32 = 3;

/// Interval at which the wait for ssh checks for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Deploys this program to the remote host.
pub(crate) fn deploy(
    login: &Login<'_>,
    events: &dyn EventSink,
    cancel: &Cancel,
) -> Result<(), Error> {
    let path = std::env::current_exe()
        .map_err(|e| Error::local("cannot find the path of this program", &e))?;
    let image = fs::read(&path).map_err(|e| Error::local("cannot read this program", &e))?;
    if !is_static(&image) {
        return Err(Error::new(
            ErrorKind::AgentStart,
            "this bankfull is dynamically linked and may not run elsewhere: use one built with \
             `make release` for --deploy, or install bankfull on the remote host",
        ));
    }
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &image);
    let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let software = concat!("bankfull ", env!("CARGO_PKG_VERSION")).to_owned();
    events.event(Event::Deploying { software, host: login.host.to_owned() });
    let file = File::open(&path).map_err(|e| Error::local("cannot read this program", &e))?;
    let mut command = login.command(&script(&digest));
    command.stdin(Stdio::from(file)).stdout(Stdio::null());
    let unusable = |e: io::Error| {
        Error::new(
            ErrorKind::AgentStart,
            format!("cannot run ssh: {}", crate::base::error::os_message(&e)),
        )
    };
    let mut child = command.spawn().map_err(unusable)?;
    let status = loop {
        match child.try_wait().map_err(unusable)? {
            Some(status) => break status,
            None if cancel.is_cancelled() => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Error::interrupted());
            }
            None => std::thread::sleep(POLL_INTERVAL),
        }
    };
    match status.code() {
        Some(0) => Ok(()),
        Some(EXIT_WRONG_MACHINE) => {
            Err(failed(login, "its operating system or CPU differs from this host's"))
        }
        Some(EXIT_WRONG_HASH) => Err(failed(login, "the copy arrived damaged: try again")),
        _ => Err(failed(login, "see ssh's message above")),
    }
}

const EXIT_WRONG_MACHINE: i32 = 90;
const EXIT_WRONG_HASH: i32 = 91;

fn failed(login: &Login<'_>, why: &str) -> Error {
    Error::new(ErrorKind::AgentStart, format!("cannot deploy bankfull to {}: {why}", login.host))
}

/// Script that reads the binary on standard input, checks it, and renames it into place.
fn script(digest: &str) -> String {
    format!(
        "[ \"$(uname -s)/$(uname -m)\" = Linux/{machine} ] || exit {EXIT_WRONG_MACHINE}; \
         p={path}; d=$(dirname \"$p\"); umask 077; mkdir -p \"$d\" || exit 1; \
         t=\"$d/.new.$$\"; trap 'rm -f \"$t\"' EXIT; cat > \"$t\" || exit 1; \
         s=$(sha256sum < \"$t\") || exit 1; [ \"${{s%% *}}\" = {digest} ] || exit \
         {EXIT_WRONG_HASH}; chmod 700 \"$t\" && mv -f \"$t\" \"$p\"",
        machine = std::env::consts::ARCH,
        path = cache_path(),
    )
}

/// True if a 64-bit ELF image needs no dynamic loader.
fn is_static(image: &[u8]) -> bool {
    let u16_at = |at: usize| image.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let u32_at =
        |at: usize| image.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    // ELF-64: e_phoff at 32 (its low half suffices for any program), e_phentsize at 54, e_phnum at
    // 56.
    let header = (u32_at(32), u16_at(54), u16_at(56));
    let (Some(table), Some(size), Some(count)) = header else { return false };
    image.starts_with(b"\x7fELF\x02\x01")
        && (0..usize::from(count))
            .map(|i| u32_at(table as usize + i * usize::from(size)))
            .all(|kind| kind.is_some_and(|kind| kind != PT_INTERP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::Command;

    fn run_script(script: &str, home: &std::path::Path, input: &[u8]) -> Option<i32> {
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(script)
            .env("HOME", home)
            .env_remove("XDG_CACHE_HOME")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait().unwrap().code()
    }

    #[test]
    fn deploy_script_installs_only_a_matching_binary() {
        let home = tempfile::tempdir().unwrap();
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, b"program");
        let digest: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
        let dir = home.path().join(".cache/bankfull").join(env!("CARGO_PKG_VERSION"));
        assert_eq!(run_script(&script(&digest), home.path(), b"progra"), Some(EXIT_WRONG_HASH));
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "the damaged copy is removed");
        assert_eq!(run_script(&script(&digest), home.path(), b"program"), Some(0));
        assert_eq!(fs::read(dir.join("bankfull")).unwrap(), b"program");
    }

    #[test]
    fn elf_with_loader_is_not_static() {
        let shell = fs::read("/bin/sh").unwrap();
        assert!(!is_static(&shell));
        assert!(!is_static(b"#!/bin/sh"));
        let mut image = vec![0; 64 + 56];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        image[32] = 64;
        image[54] = 56;
        image[56] = 1;
        image[64] = 1;
        assert!(is_static(&image));
        image[64] = 3;
        assert!(!is_static(&image));
    }
}
