//! Keys of the command tables, and advice for unknown keys.

use crate::foreign;
use crate::nearest::nearest;
use clap::Command;

/// Unknown keys that stand for ssh options, with the ssh_config(5) option to set.
const SSH_KEYS: [(&[&str], &str); 5] = [
    (&["P", "port"], "Port"),
    (&["i", "identity", "identity-file"], "IdentityFile"),
    (&["J", "jump", "jump-host", "proxy-jump"], "ProxyJump"),
    (&["o", "option", "ssh-option"], "the option"),
    (&["F", "ssh-config"], "the settings"),
];

/// Returns the flags that are keys: long, visible, and neither help nor version.
pub(super) fn flags(command: &Command) -> impl Iterator<Item = (&str, &clap::Arg)> {
    command
        .get_arguments()
        .filter(|flag| !flag.is_positional() && !flag.is_hide_set())
        .filter_map(|flag| flag.get_long().map(|long| (long, flag)))
        .filter(|(long, _)| !["help", "version"].contains(long))
}

/// Returns the end of the message about an unknown key.
pub(super) fn way_out(command: &Command, key: &str) -> String {
    let name = command.get_name();
    let has_ssh = flags(command).any(|(long, _)| long == "ssh-command");
    let ssh = SSH_KEYS.iter().find(|(keys, _)| has_ssh && keys.contains(&key));
    if let Some((_, setting)) = ssh {
        return format!(
            ": write {setting} in ~/.ssh/config, which bankfull's ssh reads, or set ssh-command"
        );
    }
    let dashes = if key.chars().count() == 1 { "-" } else { "--" };
    if let Some(advice) = foreign::advice(command, &format!("{dashes}{key}"), None) {
        return format!(": {advice}");
    }
    match nearest(key, flags(command).map(|(long, _)| long)) {
        Some(near) => format!(": did you mean {near}?"),
        None => format!(": the keys are the long flags of bankfull {name} --help"),
    }
}
