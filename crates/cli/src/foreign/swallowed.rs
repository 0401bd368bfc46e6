//! Letters with a value in scp but none in rsync, which may consume an operand.

use super::answers::is_about;
use crate::flags::port;
use crate::output::printable;
use bankfull::Location;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// ShortFlagWithValue with a value here, without one in rsync.
pub(super) struct ShortFlagWithValue {
    pub(super) letter: char,
    /// Its meaning here.
    meaning: &'static str,
    /// Advice for a user who means rsync's letter.
    way_out: &'static str,
    /// Name of its value; empty if the advice does not mention the value.
    value: &'static str,
}

/// The letters.
pub(super) const LETTERS: [ShortFlagWithValue; 5] = [
    ShortFlagWithValue {
        letter: 'i',
        meaning: "the identity file",
        way_out: "write --itemize-changes for rsync's list of changes",
        value: "FILE",
    },
    ShortFlagWithValue {
        letter: 'P',
        meaning: "the port of the ssh server",
        way_out: "leave it out to show progress",
        value: "PORT",
    },
    ShortFlagWithValue {
        letter: 'o',
        meaning: "an ssh option",
        way_out: "write --owner, or -a",
        value: "",
    },
    ShortFlagWithValue {
        letter: 'F',
        meaning: "the configuration file of ssh",
        way_out: "write --filter 'dir-merge .rsync-filter'",
        value: "FILE",
    },
    ShortFlagWithValue {
        letter: 'J',
        meaning: "the jump host",
        way_out: "leave it out",
        value: "HOSTS",
    },
];

/// Bytes of a file that show if it is a key. (chosen: the longest certificates of ssh)
const KEY_BYTES: u64 = 64 << 10;

/// Texts of which a key has one: of PEM and of OpenSSH, of public keys, and of PuTTY.
const KEY_MARKS: [&str; 5] = ["-----BEGIN ", "ssh-", "ecdsa-", "sk-", "PuTTY-User-Key-File"];

impl ShortFlagWithValue {
    /// Describes the letter in a group such as `-avi`.
    pub(super) fn in_group(&self, command: &clap::Command, all: &str) -> String {
        let Self { letter, meaning, value, .. } = self;
        let way_out = self.way_out(command);
        let apart = match value.is_empty() {
            true => String::new(),
            false => format!(", or write -{letter} {value} apart"),
        };
        let way_out = way_out.to_owned() + &apart;
        // "write A, or write B" needs the verb once.
        let way_out = match way_out.starts_with("write ") {
            true => way_out.replacen(", or write ", ", or ", 1),
            false => way_out,
        };
        format!("-{letter} in -{all} is {meaning}, as in scp: {way_out}")
    }

    /// Describes the letter with an operand as its value, if that is one.
    pub(super) fn with_operand(&self, command: &clap::Command, value: &OsStr) -> Option<String> {
        let Self { letter, meaning, .. } = self;
        let way_out = self.way_out(command);
        let (what, is_possible) = self.operand(value)?;
        let shown = printable(value.as_ref());
        let joined = match is_possible {
            true => format!("; if {shown} is {meaning}, write -{letter}{shown}"),
            false => String::new(),
        };
        Some(format!("-{letter} took {what}{shown} as {meaning}, as in scp: {way_out}{joined}"))
    }

    /// True if an operand may be the value, although nothing shows that it is one.
    pub(super) fn may_have_taken(&self, value: &OsStr) -> bool {
        ['i', 'F'].contains(&self.letter) && !Path::new(value).exists()
    }

    fn way_out(&self, command: &clap::Command) -> &'static str {
        if is_about(command, self.way_out) { self.way_out } else { "leave it out" }
    }

    /// Returns the kind of a value that is an operand; true if it may be meant nevertheless.
    fn operand(&self, value: &OsStr) -> Option<(&'static str, bool)> {
        let path = Path::new(value);
        let text = value.to_string_lossy();
        let is_elsewhere = !matches!(Location::parse(value), Ok(Location::Local(_)) | Err(_));
        let is_dir = text.ends_with('/') || path.is_dir();
        match self.letter {
            'i' | 'F' if is_dir => Some(("the directory ", false)),
            // A key on a hardware token is named by a PKCS #11 URI.
            'i' | 'F' if is_elsewhere && !path.exists() && !text.starts_with("pkcs11:") => {
                Some(("the operand ", false))
            }
            'i' if !may_be_key(path) => Some(("the file ", false)),
            'o' if !is_option(&text) => Some(("", false)),
            'P' if port(&text).is_ok() && path.exists() => Some(("the file ", true)),
            'J' if text.split(',').all(is_jump) && !path.exists() => None,
            'J' if text.split(',').all(is_jump) => Some(("the path ", true)),
            'J' if is_elsewhere && !text.contains('/') => Some(("the operand ", false)),
            'J' => Some(("the path ", false)),
            _ => None,
        }
    }
}

/// True for an option of ssh, `Name=value` or `Name value`.
fn is_option(text: &str) -> bool {
    let text = text.trim_start();
    let end = text.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(text.len());
    let (name, value) = text.split_at(end);
    !value.is_empty() && !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// True for `[user@]host[:port]`, where an IPv6 address with a port is in brackets, and `ssh://`.
fn is_jump(text: &str) -> bool {
    if text.starts_with("ssh://") || text.contains('/') {
        return text.starts_with("ssh://");
    }
    let host = text.rsplit_once('@').map_or(text, |(_, host)| host);
    let host = host.split_once(']').map_or(host, |(_, behind)| behind);
    match host.split_once(':') {
        Some((_, number)) => number.contains(':') || port(number).is_ok(),
        None => true,
    }
}

/// True unless a file can be read and has no key.
fn may_be_key(path: &Path) -> bool {
    if !path.metadata().is_ok_and(|found| found.is_file()) {
        return true;
    }
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(KEY_BYTES).read_to_end(&mut start));
    let has = |mark: &&str| start.windows(mark.len()).any(|part| part == mark.as_bytes());
    read.is_err() || KEY_MARKS.iter().any(has)
}
