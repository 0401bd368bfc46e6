//! Patterns in the paths of a request, matched by components as in glob(7).

use crate::filter::Pattern;

/// True if a component is a pattern: with `*`, `?`, or a bracket that is closed.
#[must_use]
pub fn is_pattern(component: &[u8]) -> bool {
    let mut rest = component;
    while let Some((&byte, after)) = rest.split_first() {
        match byte {
            b'*' | b'?' => return true,
            // A bracket right behind the first one is a member.
            b'[' if after.iter().skip(1).any(|&byte| byte == b']') => return true,
            b'\\' => rest = after.get(1..).unwrap_or_default(),
            _ => rest = after,
        }
        if byte == b'\\' {
            continue;
        }
        rest = after;
    }
    false
}

/// True if a component of a path is a pattern.
#[must_use]
pub fn has_pattern(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').any(is_pattern)
}

/// Pattern for one component of a path.
#[derive(Debug, Clone)]
pub struct Glob {
    pattern: Pattern,
    matches_hidden: bool,
}

impl Glob {
    /// Parses a component.
    #[must_use]
    pub fn new(component: &[u8]) -> Self {
        let mut text = component.to_vec();
        // Two stars would match across components.
        text.dedup_by(|next, last| *next == b'*' && *last == b'*');
        let matches_hidden = text.first() == Some(&b'.');
        Self { pattern: Pattern::new(&text, b""), matches_hidden }
    }

    /// True if a name matches; a dot at its beginning only if the pattern begins with one.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        (self.matches_hidden || name.first() != Some(&b'.')) && self.pattern.matches(name, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_told_from_names() {
        for pattern in ["*", "a?", "x[ab]", "[!a]", "[]]"] {
            assert!(is_pattern(pattern.as_bytes()), "{pattern}");
        }
        for name in ["", "a", "[", "[]", "a[b", "\\*", "a]"] {
            assert!(!is_pattern(name.as_bytes()), "{name}");
        }
        assert!(has_pattern(b"a/*.txt") && !has_pattern(b"a/b"));
    }

    #[test]
    fn names_match_as_in_a_shell() {
        let cases = [
            ("*", "a", true),
            ("*", ".a", false),
            (".*", ".a", true),
            ("**", "ab", true),
            ("?", "ab", false),
            ("run-[0-9]", "run-7", true),
            ("[!a]*", "b", true),
            ("*.log", "x.log", true),
            ("*.log", "x.log.gz", false),
        ];
        for (pattern, name, is_match) in cases {
            let glob = Glob::new(pattern.as_bytes());
            assert_eq!(glob.matches(name.as_bytes()), is_match, "{pattern} {name}");
        }
    }
}
