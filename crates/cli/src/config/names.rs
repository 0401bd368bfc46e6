//! Paths in the files: those in the home directory.

use std::path::Path;

/// Returns a path with `~/` at its start replaced by the home directory.
pub(super) fn at_home(text: &str, home: Option<&Path>) -> String {
    match (text.strip_prefix("~/"), home.and_then(Path::to_str)) {
        (Some(rest), Some(home)) => format!("{home}/{rest}"),
        _ => text.to_owned(),
    }
}
