//! Defaults without effect, given the operands of a command line or other keys.

use super::file::Entry;

/// Keys without effect unless an operand is at a daemon.
const FOR_DAEMONS: [&str; 4] = ["token-file", "fingerprint", "accept-new", "transport"];

/// Keys without effect unless an operand is reached over ssh.
const FOR_SSH: [&str; 3] = ["ssh-command", "remote-bankfull", "deploy"];

/// Keys without effect within this host.
const FOR_PATHS: [&str; 9] = [
    "no-encryption",
    "buffer",
    "congestion",
    "io",
    "block-size",
    "direct",
    "max-memory",
    "tune",
    "state-dir",
];

/// Keys without effect unless the sources are files.
const FOR_SOURCES: [&str; 5] =
    ["delete", "delete-excluded", "remove-source-files", "files-from", "relative"];

/// Keys without effect unless the destination is a file or a directory.
const FOR_DESTINATIONS: [&str; 15] = [
    "checksum",
    "delete",
    "delete-excluded",
    "backup",
    "backup-dir",
    "link-dest",
    "remove-source-files",
    "files-from",
    "relative",
    "trust-journal",
    "update",
    "existing",
    "ignore-existing",
    "size-only",
    "modify-window",
];

/// Keys without effect unless one of others is in force.
const NEEDS: [(&str, &[&str]); 5] = [
    ("max-delete", &["delete", "delete-excluded"]),
    ("ignore-errors", &["delete", "delete-excluded"]),
    ("allow-empty-source", &["delete", "delete-excluded"]),
    ("suffix", &["backup", "backup-dir"]),
    ("from0", &["files-from"]),
];

/// Keys without effect while another key has a certain value.
///
/// Columns: the other key, its value, the key without effect, and its values concerned (none: all).
const EXCLUDED: [(&str, &str, &str, &[&str]); 10] = [
    ("transport", "quic", "no-encryption", &[]),
    ("transport", "quic", "buffer", &[]),
    ("transport", "quic", "congestion", &[]),
    ("transport", "quic", "tune", &[]),
    ("transport", "quic", "io", &["zerobuffer", "sendfile", "splice"]),
    ("transport", "quic", "link-rate", &[]),
    ("transport", "quic", "rounds", &[]),
    ("tune", "sobas", "buffer", &[]),
    ("tune", "off", "link-rate", &[]),
    ("tune", "off", "rounds", &[]),
];

/// Kinds of the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) has_daemon: bool,
    pub(super) has_ssh: bool,
    /// True if the destination is at a daemon, which limits its memory itself.
    pub(super) is_upload: bool,
    /// True if the source is standard input.
    pub(super) is_input: bool,
    /// True if the destination is standard output.
    pub(super) is_output: bool,
}

impl Places {
    /// True if a key has an effect.
    pub(super) fn use_of(self, key: &str) -> bool {
        let Self { has_daemon, has_ssh, is_upload, is_input, is_output } = self;
        match key {
            "max-memory" if is_upload => false,
            _ if is_input && FOR_SOURCES.contains(&key) => false,
            _ if is_output && FOR_DESTINATIONS.contains(&key) => false,
            _ if FOR_DAEMONS.contains(&key) => has_daemon,
            _ if FOR_SSH.contains(&key) => has_ssh,
            _ if FOR_PATHS.contains(&key) => has_daemon || has_ssh,
            _ => true,
        }
    }
}

/// Removes the defaults that other keys leave without effect.
///
/// `typed` returns the value of a flag on the command line, which is empty for a switch.
pub(super) fn remove(entries: &mut Vec<Entry>, typed: impl Fn(&str) -> Option<String>) {
    let is_one = |values: &[&str], found: &str| values.is_empty() || values.contains(&found);
    for (key, value, excluded, values) in EXCLUDED {
        match (typed(key), typed(excluded)) {
            (Some(found), _) if found == value => {
                entries.retain(|entry| entry.key != excluded || !is_one(values, &entry.text()));
            }
            (None, Some(found)) if is_one(values, &found) => {
                entries.retain(|entry| entry.key != key || entry.text() != value);
            }
            _ => {}
        }
    }
    // If both are defaults, the transport takes precedence over the keys that it excludes.
    for (key, value, excluded, values) in EXCLUDED.iter().filter(|row| row.0 == "transport") {
        if entries.iter().any(|entry| entry.key == *key && entry.text() == *value) {
            entries.retain(|entry| entry.key != *excluded || !is_one(values, &entry.text()));
        }
    }
    for (key, needed) in NEEDS {
        let in_force = |needed: &&str| {
            let is_set = |entry: &Entry| entry.key == **needed && !entry.arguments().is_empty();
            typed(needed).is_some() || entries.iter().any(is_set)
        };
        if !needed.iter().any(in_force) {
            entries.retain(|entry| entry.key != key);
        }
    }
}
