//! The environment variables that stand in for flags. They are read here and nowhere else; a flag
//! always wins over its variable.

use std::ffi::OsString;
use std::path::PathBuf;

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
