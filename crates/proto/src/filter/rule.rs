//! Rules as text: rsync's short and long names, modifiers, and files of rules.

use super::pattern::Pattern;
use std::fmt;

/// Side of a transfer that a rule applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The side that walks: excluded entries are hidden from the transfer.
    Sender,
    /// The side that deletes: excluded entries are protected.
    Receiver,
}

/// Sides that a rule names.
///
/// A rule that names none holds for both, but with `--delete-excluded` for the sender alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sides {
    is_sender: bool,
    is_receiver: bool,
}

impl Sides {
    /// The sender alone.
    pub(super) const SENDER: Self = Self { is_sender: true, is_receiver: false };
    /// The receiver alone.
    pub(super) const RECEIVER: Self = Self { is_sender: false, is_receiver: true };

    /// True if no side is named.
    pub(super) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// True if a rule with these sides holds for a side.
    pub(super) fn admits(self, side: Side) -> bool {
        let is_named = match side {
            Side::Sender => self.is_sender,
            Side::Receiver => self.is_receiver,
        };
        is_named || self.is_empty()
    }

    /// Returns the sides of a rule in a file, whose rule may name them, too.
    fn within(self, outer: Self) -> Result<Self, RuleError> {
        match (self.is_empty(), outer.is_empty()) {
            (true, _) => Ok(outer),
            (false, true) => Ok(self),
            (false, false) => {
                let text = "the rule names a side, and so does the rule that reads its file";
                Err(RuleError::new(text))
            }
        }
    }

    /// Returns the modifiers that name sides; true for those that are set.
    fn modifiers(self) -> [(u8, bool); 2] {
        [(b's', self.is_sender), (b'r', self.is_receiver)]
    }
}

/// Rule that includes or excludes what matches its pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatchRule {
    /// True if it includes.
    pub is_include: bool,
    /// Sides that it names.
    pub sides: Sides,
    /// True if it applies to what does not match.
    pub is_negated: bool,
    /// True if it does not count in a directory that is deleted.
    pub is_perishable: bool,
    /// True if the pattern is compared with absolute paths.
    pub is_absolute: bool,
    /// True if it applies to names of extended attributes.
    pub is_xattr: bool,
    pub(super) text: Vec<u8>,
    pub(super) pattern: Pattern,
}

impl MatchRule {
    /// Returns the rule as text, with short names, for another side that parses it.
    #[must_use]
    pub fn to_text(&self) -> Vec<u8> {
        let mut text = vec![if self.is_include { b'+' } else { b'-' }];
        let [sender, receiver] = self.sides.modifiers();
        let modifiers = [
            (b'/', self.is_absolute),
            (b'!', self.is_negated),
            sender,
            receiver,
            (b'p', self.is_perishable),
            (b'x', self.is_xattr),
        ];
        text.extend(modifiers.into_iter().filter(|(_, is_set)| *is_set).map(|(byte, _)| byte));
        text.push(b' ');
        text.extend_from_slice(&self.text);
        text
    }
}

/// File with rules, and what its rules have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeFile {
    /// Name of the file.
    pub name: Vec<u8>,
    /// True if the rules hold in subdirectories, too.
    pub is_inherited: bool,
    /// True if the file itself is excluded.
    pub excludes_itself: bool,
    pub(super) defaults: Defaults,
}

impl MergeFile {
    /// Returns the rule as text that reads this file in each directory.
    ///
    /// The rule that excludes the file itself stands before it.
    #[must_use]
    pub fn to_text(&self) -> Vec<u8> {
        let defaults = &self.defaults;
        let [sender, receiver] = defaults.sides.modifiers();
        let modifiers = [
            (b'-', defaults.plain == Some(false) && !defaults.is_cvs),
            (b'+', defaults.plain == Some(true)),
            (b'C', defaults.is_cvs),
            (b'n', !self.is_inherited && !defaults.is_cvs),
            (b'w', defaults.is_split && !defaults.is_cvs),
            (b'/', defaults.is_absolute),
            sender,
            receiver,
            (b'p', defaults.is_perishable),
        ];
        let set = modifiers.into_iter().filter(|(_, is_set)| *is_set).map(|(byte, _)| byte);
        [b":".to_vec(), set.collect(), b" ".to_vec(), self.name.clone()].concat()
    }
}

/// Properties that the rules of a file have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Defaults {
    /// Each line is a pattern alone, included (true) or excluded.
    pub(super) plain: Option<bool>,
    /// Rules are separated by blanks, too.
    pub(super) is_split: bool,
    /// A line `!` clears the list although lines are patterns.
    pub(super) is_cvs: bool,
    pub(super) sides: Sides,
    pub(super) is_absolute: bool,
    pub(super) is_perishable: bool,
}

/// A rule that was parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Parsed {
    Match(MatchRule),
    /// Forget the rules of this list before this one.
    Clear,
    /// Rules of a file in place of this one.
    Merge(MergeFile),
    /// Rules of a file in each directory.
    DirMerge(MergeFile),
    /// The names that CVS ignores, as patterns with these properties.
    CvsNames(Defaults),
}

/// Syntax of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    /// A name with modifiers, and a pattern.
    Rule,
    /// A pattern that is included (true) or excluded.
    ///
    /// Unless `+ ` or `- ` precedes it, or it is `!` alone.
    Pattern(bool),
}

/// Error of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleError {
    /// File and line, or nothing.
    pub(super) origin: String,
    /// Column of the error in the rule, from 1, if one byte is wrong.
    pub(super) column: Option<usize>,
    pub(super) text: String,
}

impl RuleError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self { origin: String::new(), column: None, text: text.into() }
    }

    pub(super) fn at(column: usize, text: impl Into<String>) -> Self {
        Self { column: Some(column), ..Self::new(text) }
    }

    pub(super) fn from(self, origin: &str) -> Self {
        let origin = if self.origin.is_empty() { origin.to_owned() } else { self.origin };
        Self { origin, ..self }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.origin.is_empty() {
            write!(f, "{}", self.origin)?;
            self.column.map_or(Ok(()), |column| write!(f, ":{column}"))?;
            write!(f, ": ")?;
        }
        write!(f, "{}", self.text)
    }
}

impl std::error::Error for RuleError {}

/// Kind of a rule, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Match { is_include: bool, sides: Sides },
    Merge { is_per_dir: bool },
    Clear,
}

/// Long names of rules, and the short ones that they stand for.
const LONG_NAMES: [(&[u8], u8); 9] = [
    (b"exclude", b'-'),
    (b"include", b'+'),
    (b"merge", b'.'),
    (b"dir-merge", b':'),
    (b"hide", b'H'),
    (b"show", b'S'),
    (b"protect", b'P'),
    (b"risk", b'R'),
    (b"clear", b'!'),
];

/// Modifiers of a rule.
#[derive(Debug, Default)]
struct Modifiers {
    plain: Option<bool>,
    is_absolute: bool,
    is_negated: bool,
    is_cvs: bool,
    excludes_itself: bool,
    is_not_inherited: bool,
    is_perishable: bool,
    sides: Sides,
    is_split: bool,
    is_xattr: bool,
}

/// Parses a rule of a file or option with these defaults, in the directory `base`.
pub(super) fn parse(
    text: &[u8],
    syntax: Syntax,
    defaults: &Defaults,
    base: &[u8],
) -> Result<Parsed, RuleError> {
    if let Some(is_include) = defaults.plain {
        if defaults.is_cvs && text == b"!" {
            return Ok(Parsed::Clear);
        }
        let kind = Kind::Match { is_include, sides: Sides::default() };
        return assemble(kind, Modifiers::default(), text, defaults, base);
    }
    if let Syntax::Pattern(is_include) = syntax {
        let (is_include, pattern) = match text {
            b"!" => return Ok(Parsed::Clear),
            [b'-', b' ', pattern @ ..] => (false, pattern),
            [b'+', b' ', pattern @ ..] => (true, pattern),
            pattern => (is_include, pattern),
        };
        let kind = Kind::Match { is_include, sides: Sides::default() };
        return assemble(kind, Modifiers::default(), pattern, defaults, base);
    }
    let (kind, rest) = kind_of(text)?;
    if kind == Kind::Clear {
        return match rest {
            b"" => Ok(Parsed::Clear),
            _ => Err(RuleError::at(text.len() - rest.len() + 1, "nothing may follow a clear rule")),
        };
    }
    let (modifiers, pattern) = modifiers_of(kind, text, rest)?;
    assemble(kind, modifiers, pattern, defaults, base)
}

/// Returns the kind of a rule and the text behind its name.
fn kind_of(text: &[u8]) -> Result<(Kind, &[u8]), RuleError> {
    let long = LONG_NAMES.iter().find_map(|&(name, short)| {
        let rest = text.strip_prefix(name)?;
        matches!(rest.first(), None | Some(b',' | b'_' | b' ' | b'\t')).then_some((short, rest))
    });
    let (short, rest) = match (long, text.split_first()) {
        (Some(found), _) => found,
        (None, Some((&short, rest))) => (short, rest),
        (None, None) => return Err(RuleError::new("the rule is empty")),
    };
    let kind = |is_include, sides| Kind::Match { is_include, sides };
    let kind = match short {
        b'-' => kind(false, Sides::default()),
        b'+' => kind(true, Sides::default()),
        b'H' => kind(false, Sides::SENDER),
        b'S' => kind(true, Sides::SENDER),
        b'P' => kind(false, Sides::RECEIVER),
        b'R' => kind(true, Sides::RECEIVER),
        b'.' => Kind::Merge { is_per_dir: false },
        b':' => Kind::Merge { is_per_dir: true },
        b'!' => Kind::Clear,
        _ => {
            let shown = String::from_utf8_lossy(text);
            let advice = "begin it with -, +, ., :, H, S, P, R or !, as in \"- *.o\"";
            return Err(RuleError::at(1, format!("unknown filter rule \"{shown}\": {advice}")));
        }
    };
    Ok((kind, rest.strip_prefix(b",").unwrap_or(rest)))
}

/// Returns the modifiers of a rule and its pattern.
fn modifiers_of<'t>(
    kind: Kind,
    text: &'t [u8],
    rest: &'t [u8],
) -> Result<(Modifiers, &'t [u8]), RuleError> {
    let mut found = Modifiers::default();
    let has_side = matches!(kind, Kind::Match { sides, .. } if !sides.is_empty());
    let is_merge = matches!(kind, Kind::Merge { .. });
    let end = rest.iter().position(|byte| matches!(byte, b' ' | b'_' | b'\t'));
    let end = end.unwrap_or(rest.len());
    for (at, byte) in rest[..end].iter().enumerate() {
        match byte {
            b'-' | b'+' if is_merge && found.plain.is_none() => found.plain = Some(*byte == b'+'),
            b'/' => found.is_absolute = true,
            b'!' if !is_merge => found.is_negated = true,
            b'C' if found.plain.is_none() && !has_side => {
                found.is_cvs = true;
                if is_merge {
                    found.plain = Some(false);
                    found.is_split = true;
                    found.is_not_inherited = true;
                }
            }
            b'e' if is_merge => found.excludes_itself = true,
            b'n' if is_merge => found.is_not_inherited = true,
            b'w' if is_merge => found.is_split = true,
            b'p' => found.is_perishable = true,
            b's' if !has_side => found.sides.is_sender = true,
            b'r' if !has_side => found.sides.is_receiver = true,
            b'x' => found.is_xattr = true,
            _ => {
                let column = text.len() - rest.len() + at + 1;
                let shown = String::from_utf8_lossy(text).into_owned();
                let byte = char::from(*byte);
                let text = format!("the modifier '{byte}' is not valid in \"{shown}\"");
                return Err(RuleError::at(column, text));
            }
        }
    }
    Ok((found, rest.get(end + 1..).unwrap_or_default()))
}

/// Puts a rule together from its parts and the defaults of its file.
fn assemble(
    kind: Kind,
    modifiers: Modifiers,
    pattern: &[u8],
    defaults: &Defaults,
    base: &[u8],
) -> Result<Parsed, RuleError> {
    let own_sides = match kind {
        Kind::Match { sides, .. } if !sides.is_empty() => sides,
        _ => modifiers.sides,
    };
    let sides = own_sides.within(defaults.sides)?;
    if pattern.contains(&0) {
        let text = "the rule has a NUL, which no name has: write one rule on each line";
        return Err(RuleError::new(text));
    }
    let is_absolute = modifiers.is_absolute || defaults.is_absolute;
    let is_perishable = modifiers.is_perishable || defaults.is_perishable;
    let Kind::Match { is_include, .. } = kind else {
        let name = match pattern {
            b"" if modifiers.is_cvs => b".cvsignore",
            name => name,
        };
        let file = MergeFile {
            name: name.to_vec(),
            is_inherited: !modifiers.is_not_inherited,
            excludes_itself: modifiers.excludes_itself,
            defaults: Defaults {
                plain: modifiers.plain,
                is_split: modifiers.is_split,
                is_cvs: modifiers.is_cvs,
                sides,
                is_absolute,
                is_perishable,
            },
        };
        let is_per_dir = kind == Kind::Merge { is_per_dir: true };
        return match name {
            b"" => Err(RuleError::new("the rule names no file")),
            _ if is_per_dir => Ok(Parsed::DirMerge(file)),
            _ => Ok(Parsed::Merge(file)),
        };
    };
    if pattern.is_empty() {
        return match modifiers.is_cvs {
            true => Ok(Parsed::CvsNames(Defaults {
                plain: Some(is_include),
                is_split: true,
                is_cvs: false,
                sides,
                is_absolute,
                is_perishable: true,
            })),
            false => Err(RuleError::new("the rule has no pattern")),
        };
    }
    // An absolute path does not begin at the directory of its file.
    let base = if is_absolute { b"" } else { base };
    Ok(Parsed::Match(MatchRule {
        is_include,
        sides,
        is_negated: modifiers.is_negated,
        is_perishable,
        is_absolute,
        is_xattr: modifiers.is_xattr,
        text: pattern.to_vec(),
        pattern: Pattern::new(pattern, base),
    }))
}

/// Returns the rules of a file with their line numbers, from 1.
pub(super) fn lines<'t>(
    content: &'t [u8],
    defaults: &Defaults,
) -> impl Iterator<Item = (usize, &'t [u8])> {
    let is_split = defaults.is_split;
    let numbered = content.split(|byte| *byte == b'\n').zip(1..);
    numbered
        .flat_map(move |(line, number)| {
            let is_end =
                move |byte: &u8| *byte == b'\r' || (is_split && byte.is_ascii_whitespace());
            line.split(is_end).map(move |rule| (number, rule))
        })
        .filter(move |(_, rule)| match rule.first() {
            None => false,
            Some(first) => is_split || !matches!(first, b'#' | b';'),
        })
}
