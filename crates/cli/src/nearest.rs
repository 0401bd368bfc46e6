//! Known name that is nearest to a mistyped one.

/// Minimum bytes of a prefix that stands for a name. (chosen: two bytes match too many names)
const MIN_START: usize = 3;

/// Bytes per edit that is taken for a typing error, beyond the first. (chosen: `recusrive` has two)
const BYTES_PER_EDIT: usize = 5;

/// Returns the known name that a typed one abbreviates or misspells.
pub(crate) fn nearest<'n>(typed: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let is_start = |name: &str| typed.len() >= MIN_START && name.starts_with(typed);
    let rank = |name: &&str| (!is_start(name), edits(typed.as_bytes(), name.as_bytes()));
    let most = 1 + typed.len() / BYTES_PER_EDIT;
    let found = known.min_by_key(rank)?;
    let is_close = edits(typed.as_bytes(), found.as_bytes()) <= most && typed.len() >= MIN_START;
    (is_start(found) || is_close).then_some(found)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_error_is_found_and_other_words_are_not() {
        let known =
            ["io", "report", "exclude", "exclude-from", "recursive", "streams", "read-only"];
        let found = |typed: &str| nearest(typed, known.into_iter());
        assert_eq!(found("exlude"), Some("exclude"));
        assert_eq!(found("excl"), Some("exclude"));
        assert_eq!(found("recusrive"), Some("recursive"));
        assert_eq!(found("strems"), Some("streams"));
        assert_eq!(found("readonly"), Some("read-only"));
        for other in ["z", "port", "rep0", "weather", "", "é"] {
            assert_eq!(found(other), None, "{other}");
        }
        assert_eq!(nearest("x", std::iter::empty()), None);
    }
}
