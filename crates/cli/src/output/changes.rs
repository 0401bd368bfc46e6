//! Text of itemized changes, in the notation of rsync.

use super::text::printable;
use bankfull::ItemizedChange;
use std::path::PathBuf;

/// Formats a change: its columns, the path, and what a link leads to.
pub(super) fn change_line(change: &ItemizedChange) -> String {
    let ItemizedChange { columns, path, is_dir, target, first_name, .. } = change;
    let is_base = path.as_os_str().is_empty();
    let path = if is_base { ".".to_owned() } else { printable(path) };
    let slash = if *is_dir { "/" } else { "" };
    let other = |sign: &str, other: &Option<PathBuf>| {
        let shown = |other: &PathBuf| format!(" {sign} {}", printable(other));
        other.as_ref().map(shown).unwrap_or_default()
    };
    format!("{columns} {path}{slash}{}{}", other("->", target), other("=>", first_name))
}
