//! Patterns of filter rules: rsync's wildcards, in bytes.

/// Kind of a part of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Byte,
    /// `?`: any byte but a slash.
    AnyByte,
    /// `*`: any number of bytes but slashes.
    Star,
    /// `**`: any number of bytes.
    DoubleStar,
    /// `[…]`: a byte of a class, but never a slash.
    Class,
    /// An unterminated class, which matches nothing.
    Nothing,
}

/// Part of a pattern; small, as a peer may send many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Token {
    kind: Kind,
    /// The byte, or the index of the class.
    value: u16,
}

/// Bytes of a class, as bits.
type Class = [u64; 4];

/// Part of a path that a pattern is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MatchScope {
    /// The whole path.
    Whole,
    /// The last components, of which this is the number.
    Last(usize),
    /// The path, and each suffix of it that follows a slash.
    AnySuffix,
}

/// Pattern for paths relative to the root of a transfer.
///
/// With a slash at its beginning it matches at the root only; with one at its end directories only.
/// One with another slash or `**` is compared with whole components, one without with the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    tokens: Vec<Token>,
    classes: Vec<Class>,
    reach: MatchScope,
    /// Directory that the pattern is relative to, with a slash at its end.
    base: Vec<u8>,
    is_dir_only: bool,
    /// Ends with `***`: `dir/***` matches the directory, too.
    matches_dir_itself: bool,
    /// Begins with `**`, which may be nothing before a slash at the root.
    begins_with_double_star: bool,
}

impl Pattern {
    /// Parses a pattern that is relative to the directory `base`, empty for the root.
    #[must_use]
    pub fn new(text: &[u8], base: &[u8]) -> Self {
        let is_dir_only = text.len() > 1 && text.ends_with(b"/");
        let text = if is_dir_only { &text[..text.len() - 1] } else { text };
        let is_anchored = text.starts_with(b"/");
        let body = text.strip_prefix(b"/").unwrap_or(text);
        let is_wild = text.iter().any(|byte| b"*?[".contains(byte));
        let has_double_star = text.windows(2).any(|pair| pair == b"**");
        let begins_with_double_star = text.starts_with(b"**");
        let slashes = text.iter().filter(|byte| **byte == b'/').count();
        let reach = match (is_anchored, has_double_star) {
            (true, _) => MatchScope::Whole,
            (false, true) if begins_with_double_star => MatchScope::Whole,
            (false, true) => MatchScope::AnySuffix,
            (false, false) => MatchScope::Last(slashes + 1),
        };
        let mut base = if is_anchored { base.to_vec() } else { Vec::new() };
        if !base.is_empty() {
            base.push(b'/');
        }
        let (tokens, classes) = if is_wild { tokens(body) } else { (bytes(body), Vec::new()) };
        Self {
            tokens,
            classes,
            reach,
            base,
            is_dir_only,
            matches_dir_itself: is_wild && text.ends_with(b"***"),
            begins_with_double_star,
        }
    }

    /// True if more than the name is compared.
    pub(super) fn matches_full_path(&self) -> bool {
        self.reach != MatchScope::Last(1)
    }

    /// True if the pattern matches a path.
    #[must_use]
    pub fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        if self.is_dir_only && !is_dir {
            return false;
        }
        let Some(path) = path.strip_prefix(self.base.as_slice()) else { return false };
        let is_any_end = self.reach == MatchScope::AnySuffix;
        let name = |path: &[u8]| match is_dir && self.matches_dir_itself {
            true => self.matches_text(&[path, b"/"].concat(), is_any_end),
            false => self.matches_text(path, is_any_end),
        };
        match self.reach {
            MatchScope::Whole if self.begins_with_double_star => name(&[b"/", path].concat()),
            MatchScope::Whole | MatchScope::AnySuffix => name(path),
            MatchScope::Last(components) => last_components(path, components).is_some_and(name),
        }
    }

    /// True if the tokens match a whole text; with `any_end`, also a suffix that follows a slash.
    ///
    /// After a mismatch, only the last star of each kind takes more text: an earlier star would
    /// leave less for the later tokens. For the same reason, no other suffix is tried after a `**`.
    /// The time is bounded by the product of both lengths.
    fn matches_text(&self, text: &[u8], any_end: bool) -> bool {
        if let (Some(Token { kind: Kind::Byte, value }), Some(last)) =
            (self.tokens.last(), text.last())
            && *value != u16::from(*last)
        {
            return false;
        }
        let (mut token, mut at) = (0, 0);
        // Start of the suffix that is compared; `None` once a `**` may take all before it.
        let mut end_start = any_end.then_some(0);
        // Tokens after the last star, and the text that it ends before.
        let (mut star, mut double_star) = (None, None);
        loop {
            match self.tokens.get(token) {
                Some(Token { kind: Kind::Star, .. }) => {
                    token += 1;
                    star = Some((token, at));
                    continue;
                }
                Some(Token { kind: Kind::DoubleStar, .. }) => {
                    token += 1;
                    (star, double_star, end_start) = (None, Some((token, at)), None);
                    continue;
                }
                Some(&single) if text.get(at).is_some_and(|byte| self.takes(single, *byte)) => {
                    (token, at) = (token + 1, at + 1);
                    continue;
                }
                None if at == text.len() => return true,
                _ => {}
            }
            let takes_more = |end: &(usize, usize)| text.get(end.1).is_some();
            if let Some((after, end)) = star.filter(|end| takes_more(end) && text[end.1] != b'/') {
                (token, at) = (after, end + 1);
                star = Some((token, at));
            } else if let Some((after, end)) = double_star.filter(takes_more) {
                (token, at) = (after, end + 1);
                (star, double_star) = (None, Some((token, at)));
            } else if let Some(next) = end_start.and_then(|start| next_component(text, start)) {
                (token, at) = (0, next);
                (star, end_start) = (None, Some(next));
            } else {
                return false;
            }
        }
    }

    fn takes(&self, token: Token, byte: u8) -> bool {
        match token.kind {
            Kind::Byte => token.value == u16::from(byte),
            Kind::AnyByte => byte != b'/',
            Kind::Class => {
                let class = self.classes.get(usize::from(token.value));
                byte != b'/' && class.is_some_and(|bits| has_bit(bits, byte))
            }
            Kind::Star | Kind::DoubleStar | Kind::Nothing => false,
        }
    }
}

/// Returns the last components of a path; `None` if it has fewer.
fn last_components(path: &[u8], components: usize) -> Option<&[u8]> {
    let mut starts = std::iter::once(path.len() + 1)
        .chain((1..path.len()).rev().filter(|&at| path[at - 1] == b'/'))
        .chain(std::iter::once(0));
    starts.nth(components).map(|start| &path[start..])
}

/// Returns the place after the next slash from `start` on.
fn next_component(text: &[u8], start: usize) -> Option<usize> {
    text[start..].iter().position(|byte| *byte == b'/').map(|slash| start + slash + 1)
}

/// Returns the tokens of a pattern without wildcards: each byte stands for itself.
fn bytes(text: &[u8]) -> Vec<Token> {
    text.iter().map(|byte| Token { kind: Kind::Byte, value: u16::from(*byte) }).collect()
}

/// Returns the tokens of a pattern with wildcards, and its classes.
///
/// A backslash takes the next byte literally.
fn tokens(mut text: &[u8]) -> (Vec<Token>, Vec<Class>) {
    let (mut tokens, mut classes) = (Vec::new(), Vec::new());
    while let Some((&first, rest)) = text.split_first() {
        text = rest;
        let mut value = u16::from(first);
        let kind = match first {
            b'?' => Kind::AnyByte,
            b'*' => {
                let more = text.iter().take_while(|byte| **byte == b'*').count();
                text = &text[more..];
                if more == 0 { Kind::Star } else { Kind::DoubleStar }
            }
            b'[' => match (class(text), u16::try_from(classes.len())) {
                (Some((class, rest)), Ok(index)) => {
                    text = rest;
                    value = index;
                    classes.push(class);
                    Kind::Class
                }
                _ => Kind::Nothing,
            },
            b'\\' if !text.is_empty() => {
                text = &text[1..];
                value = u16::from(rest[0]);
                Kind::Byte
            }
            _ => Kind::Byte,
        };
        tokens.push(Token { kind, value });
    }
    (tokens, classes)
}

/// Parses a class after its bracket; returns it with the rest of the text.
///
/// `None` if the class is not terminated.
fn class(text: &[u8]) -> Option<(Class, &[u8])> {
    let is_negated = matches!(text.first(), Some(b'!' | b'^'));
    let mut at = usize::from(is_negated);
    let mut bits = [0; 4];
    // Lower end of a range, if the last element was a byte.
    let mut low = None;
    let mut is_first = true;
    loop {
        let byte = *text.get(at)?;
        match byte {
            b']' if !is_first => break,
            b'[' if text.get(at + 1) == Some(&b':') && named_class(&text[at..]).is_some() => {
                let (name, length) = named_class(&text[at..])?;
                set_bits(&mut bits, |byte| is_of_class(name, byte));
                // An unknown name matches nothing.
                is_known_class(name).then_some(())?;
                (low, at) = (None, at + length);
            }
            b'-' if low.is_some() && !matches!(text.get(at + 1), None | Some(b']')) => {
                let is_escaped = text[at + 1] == b'\\';
                at += 1 + usize::from(is_escaped);
                let high = *text.get(at)?;
                let low_end = low.take()?;
                set_bits(&mut bits, |byte| (low_end..=high).contains(&byte));
                at += 1;
            }
            b'\\' => {
                let escaped = *text.get(at + 1)?;
                set_bits(&mut bits, |byte| byte == escaped);
                (low, at) = (Some(escaped), at + 2);
            }
            _ => {
                set_bits(&mut bits, |other| other == byte);
                (low, at) = (Some(byte), at + 1);
            }
        }
        is_first = false;
    }
    if is_negated {
        bits.iter_mut().for_each(|word| *word = !*word);
    }
    Some((bits, &text[at + 1..]))
}

/// Returns the name in `[:name:]` at the beginning of a text, and their length.
fn named_class(text: &[u8]) -> Option<(&[u8], usize)> {
    let inside = text.strip_prefix(b"[:")?;
    let end = inside.iter().position(|byte| *byte == b']')?;
    let name = inside[..end].strip_suffix(b":")?;
    Some((name, end + 3))
}

fn is_known_class(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 12] = [
        b"alnum", b"alpha", b"blank", b"cntrl", b"digit", b"graph", b"lower", b"print", b"punct",
        b"space", b"upper", b"xdigit",
    ];
    NAMES.contains(&name)
}

/// True if a byte belongs to a POSIX class of the C locale.
fn is_of_class(name: &[u8], byte: u8) -> bool {
    match name {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace() || byte == 0x0b,
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => false,
    }
}

fn set_bits(bits: &mut Class, is_set: impl Fn(u8) -> bool) {
    for byte in (0..=u8::MAX).filter(|byte| is_set(*byte)) {
        bits[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }
}

fn has_bit(bits: &Class, byte: u8) -> bool {
    bits[usize::from(byte >> 6)] & (1 << (byte & 63)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        for (paths, expected) in [(matching, true), (others, false)] {
            for path in paths {
                let (name, is_dir) = path.strip_suffix('/').map_or((*path, false), |p| (p, true));
                let found = Pattern::new(pattern.as_bytes(), b"").matches(name.as_bytes(), is_dir);
                assert_eq!(found, expected, "{pattern} {path}");
            }
        }
    }

    #[test]
    fn patterns_without_slash_match_names() {
        check("foo", &["foo", "a/foo", "a/foo/"], &["foobar", "foo/bar", "xfoo"]);
        check("*.o", &["a.o", "b/.o", "b/c/d.o"], &["a.oo", "a.o/b"]);
        check("f?o", &["foo", "a/fxo"], &["fo", "f/o"]);
        check("foo/", &["foo/", "a/foo/"], &["foo", "a/foo"]);
    }

    #[test]
    fn anchored_patterns_match_at_the_root() {
        check("/foo", &["foo", "foo/"], &["a/foo", "foo/bar"]);
        check("/a/*", &["a/b", "a/.c"], &["a/b/c", "b/a/c"]);
        check("/a/**", &["a/b", "a/b/c"], &["a", "a/", "b/a/c"]);
    }

    #[test]
    fn patterns_with_slashes_match_last_components() {
        check("foo/bar", &["foo/bar", "x/foo/bar"], &["xfoo/bar", "foo/bar/x", "bar"]);
        check("foo/*", &["foo/bar", "x/foo/bar"], &["foo/bar/baz", "foo"]);
        check("a/b/", &["a/b/", "c/a/b/"], &["a/b", "xa/b/"]);
    }

    #[test]
    fn double_stars_cross_slashes() {
        check("foo/**", &["foo/a", "foo/a/b", "x/foo/a"], &["foo", "xfoo/a"]);
        check("**/foo", &["foo", "a/foo", "a/b/foo"], &["xfoo", "foo/a"]);
        check("a**b", &["ab", "a/x/b", "q/axb"], &["xab", "a/bc"]);
        check("foo/**/bar", &["foo/a/bar", "foo/a/b/bar", "x/foo/a/bar"], &["foo/bar"]);
        check("dir/***", &["dir/", "dir/a", "dir/a/b", "x/dir/"], &["dir", "xdir/"]);
        check("/dir/***", &["dir/", "dir/a"], &["dir", "x/dir/a"]);
    }

    #[test]
    fn classes_match_one_byte() {
        check("[a-c]x", &["ax", "d/bx"], &["dx", "x", "aax"]);
        check("[!a-c]x", &["dx", "-x"], &["ax", "/x"]);
        check("[]a]", &["]", "a"], &["b"]);
        check("[a-]", &["a", "-"], &["b"]);
        check("[[:digit:]_]", &["7", "_"], &["a", ":"]);
        check("[[:wrong:]]", &[], &["w", ":]", "[:wrong:]"]);
        check("[a", &[], &["a", "[a"]);
        check("[\\]]", &["]"], &["\\"]);
    }

    #[test]
    fn backslash_escapes_only_beside_wildcards() {
        check("a\\b", &["a\\b"], &["ab"]);
        check("a\\*b", &["a*b"], &["a\\*b", "axb"]);
        check("\\[x]*", &["[x]y"], &["xy"]);
    }

    #[test]
    fn base_of_a_merge_file_is_literal() {
        let pattern = Pattern::new(b"/x*", b"a[b]/c");
        assert!(pattern.matches(b"a[b]/c/xy", false));
        for other in [&b"ab/c/xy"[..], b"xy", b"a[b]/c/d/xy"] {
            assert!(!pattern.matches(other, false));
        }
        assert!(Pattern::new(b"x*", b"a").matches(b"a/b/xy", false));
    }

    #[test]
    fn many_stars_take_little_time() {
        let text = "a".repeat(255);
        check(&format!("{}b", "a*".repeat(60)), &[], &[&text]);
        let path = "a/".repeat(2000);
        check(&format!("{}b", "a**".repeat(60)), &[], &[&path]);
        check(&format!("{}/", "a**".repeat(60)), &[&path], &[]);
        // A long tail is not compared at each component of each end.
        let tail = "a/".repeat(1500);
        for pattern in [format!("a**{tail}b"), format!("a**{tail}b*"), format!("a*/{tail}b**")] {
            check(&pattern, &[], &[&path]);
        }
    }

    /// Matches as the rules say, in any time.
    fn matches_naively(pattern: &Pattern, tokens: &[Token], text: &[u8]) -> bool {
        let Some((first, rest)) = tokens.split_first() else { return text.is_empty() };
        let takes_none = || matches_naively(pattern, rest, text);
        let stays = |more: &[u8]| matches_naively(pattern, tokens, more);
        match (first.kind, text.split_first()) {
            (Kind::Star | Kind::DoubleStar, None) => takes_none(),
            (Kind::Star, Some((byte, more))) => takes_none() || *byte != b'/' && stays(more),
            (Kind::DoubleStar, Some((_, more))) => takes_none() || stays(more),
            (_, Some((byte, more))) => {
                pattern.takes(*first, *byte) && matches_naively(pattern, rest, more)
            }
            (_, None) => false,
        }
    }

    proptest! {
        #[test]
        fn ends_match_as_by_the_rules(
            text in "[ab?][ab*/?]{0,4}[*][*][ab*/?]{0,4}[ab*?]", path in "[ab](/?[ab]){0,8}",
        ) {
            let pattern = Pattern::new(text.as_bytes(), b"");
            prop_assert_eq!(pattern.reach, MatchScope::AnySuffix);
            let path = path.as_bytes();
            let starts = (0..path.len()).filter(|&at| at == 0 || path[at - 1] == b'/');
            let mut ends = starts.map(|start| &path[start..]);
            let expected = ends.any(|end| matches_naively(&pattern, &pattern.tokens, end));
            prop_assert_eq!(pattern.matches(path, false), expected);
        }
    }
}
