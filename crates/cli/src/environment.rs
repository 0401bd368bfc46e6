//! Environment variables that provide defaults of flags. They are read only here; a flag overrides
//! its variable.

use std::ffi::OsString;
use std::path::PathBuf;

/// All variables in use, with their purpose. A test compares them with `docs/cli.md`.
pub(crate) const VARIABLES: [(&str, &str); 10] = [
    (
        "BANKFULL_TOKEN",
        "The access token itself, instead of --token-file; an empty value is an error.",
    ),
    ("BANKFULL_STATE_DIR", "Default of --state-dir."),
    ("BANKFULL_SSH", "Default of --ssh-command."),
    (
        "BANKFULL_LOG",
        "What is logged: a level (error, warn, info, debug, trace, off), or TARGET=LEVEL separated \
         by commas. On standard error, unless --log-file names a file.",
    ),
    (
        "BANKFULL_CONFIG",
        "The configuration file, instead of those of the user and the system; empty: none.",
    ),
    ("XDG_CONFIG_HOME", "Base of the user's configuration file; ~/.config if it is not absolute."),
    ("XDG_STATE_HOME, HOME", "Base of the default state directory."),
    ("TMPDIR", "Where blocks wait for standard output, the destination -; /tmp without a value."),
    ("TERM", "Without a value, or dumb: no progress line."),
    ("NO_COLOR", "Respected: the output never has colours."),
];

/// Values of the variables at program start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    /// `BANKFULL_TOKEN`: the access token. An empty value is kept, so that an unset secret is
    /// reported instead of connecting or serving without a token.
    pub(crate) token: Option<OsString>,
    /// `BANKFULL_STATE_DIR`: default of `--state-dir`.
    pub(crate) state_dir: Option<PathBuf>,
    /// `BANKFULL_SSH`: default of `--ssh-command`.
    pub(crate) ssh: Option<OsString>,
    /// `BANKFULL_LOG`: filter of the log.
    pub(crate) log: Option<String>,
    /// `BANKFULL_CONFIG`: the only configuration file; an empty value is kept.
    pub(crate) config: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`: base of the user's configuration file.
    pub(crate) config_home: Option<PathBuf>,
    /// `TMPDIR`: directory of temporary files.
    pub(crate) temp_dir: Option<PathBuf>,
    /// `HOME`: home directory.
    pub(crate) home: Option<PathBuf>,
}

impl Environment {
    /// Reads the variables of this process.
    pub(crate) fn read() -> Self {
        let filled = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            token: std::env::var_os("BANKFULL_TOKEN"),
            state_dir: filled("BANKFULL_STATE_DIR").map(PathBuf::from),
            ssh: filled("BANKFULL_SSH"),
            log: filled("BANKFULL_LOG").map(|value| value.to_string_lossy().into_owned()),
            config: std::env::var_os("BANKFULL_CONFIG").map(PathBuf::from),
            temp_dir: filled("TMPDIR").map(PathBuf::from),
            config_home: filled("XDG_CONFIG_HOME").map(PathBuf::from),
            home: filled("HOME").map(PathBuf::from),
        }
    }

    /// Returns the directory where blocks wait for standard output. (default: FHS 3.0, `/tmp`)
    pub(crate) fn spool(&self) -> PathBuf {
        self.temp_dir.clone().unwrap_or_else(|| PathBuf::from("/tmp"))
    }

    /// Returns the variable that decides on a flag, if it is set.
    pub(crate) fn variable_of(&self, flag: &str) -> Option<&'static str> {
        let (name, is_set) = match flag {
            "token-file" => ("BANKFULL_TOKEN", self.token.is_some()),
            "state-dir" => ("BANKFULL_STATE_DIR", self.state_dir.is_some()),
            "ssh-command" => ("BANKFULL_SSH", self.ssh.is_some()),
            _ => return None,
        };
        is_set.then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_is_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
        let text = std::fs::read_to_string(path).unwrap();
        for name in VARIABLES.iter().flat_map(|(names, _)| names.split(", ")) {
            assert!(text.contains(&format!("`{name}`")), "{name} is missing in docs/cli.md");
        }
    }
}
