//! The environment variables that stand in for flags. They are read here and nowhere else; a flag
//! always wins over its variable.

use std::ffi::OsString;
use std::path::PathBuf;

/// Every variable that counts, and what for. `docs/cli.md` names the same ones; a test compares.
pub(crate) const VARIABLES: [(&str, &str); 6] = [
    (
        "BANKFULL_TOKEN",
        "The access token itself, in place of --token-file; set but empty is an error.",
    ),
    ("BANKFULL_STATE_DIR", "Stands in for --state-dir."),
    ("BANKFULL_SSH", "Stands in for --ssh-command."),
    ("XDG_STATE_HOME, HOME", "Where state is kept by default."),
    ("TERM", "Unset or dumb: no progress line."),
    ("NO_COLOR", "Respected: nothing is ever coloured."),
];

/// The variables as they were when the program started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    /// `BANKFULL_TOKEN`: the access token itself. Kept when empty, so that a secret that was not
    /// filled in is noticed instead of serving or connecting without one.
    pub(crate) token: Option<OsString>,
    /// `BANKFULL_STATE_DIR`: stands in for `--state-dir`.
    pub(crate) state_dir: Option<PathBuf>,
    /// `BANKFULL_SSH`: stands in for `--ssh-command`.
    pub(crate) ssh: Option<OsString>,
}

impl Environment {
    /// Reads the variables of this process.
    pub(crate) fn read() -> Self {
        let filled = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            token: std::env::var_os("BANKFULL_TOKEN"),
            state_dir: filled("BANKFULL_STATE_DIR").map(PathBuf::from),
            ssh: filled("BANKFULL_SSH"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_is_in_the_documentation() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
        let text = std::fs::read_to_string(path).unwrap();
        for name in VARIABLES.iter().flat_map(|(names, _)| names.split(", ")) {
            assert!(text.contains(&format!("`{name}`")), "{name} is missing in docs/cli.md");
        }
    }
}
