//! Names in the files: paths in the home directory, and the known name nearest to a typed one.

use std::path::Path;

/// Returns a path with `~/` at its start replaced by the home directory.
pub(super) fn at_home(text: &str, home: Option<&Path>) -> String {
    match (text.strip_prefix("~/"), home.and_then(Path::to_str)) {
        (Some(rest), Some(home)) => format!("{home}/{rest}"),
        _ => text.to_owned(),
    }
}

/// Returns the known name with the fewest edits from a typed one.
pub(super) fn nearest<'n>(typed: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    known.min_by_key(|name| (!name.starts_with(typed), edits(typed.as_bytes(), name.as_bytes())))
}

/// Returns the insertions, deletions and replacements between two names.
fn edits(from: &[u8], to: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut left = i + 1;
        let mut diagonal = i;
        for (cell, b) in row.iter_mut().skip(1).zip(to) {
            let replaced = diagonal + usize::from(a != b);
            diagonal = *cell;
            left = replaced.min(*cell + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}
