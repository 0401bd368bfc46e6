//! Replacement of owners and groups, as rsync's `--usermap`, `--groupmap` and `--chown` have it.

use crate::filter::Pattern;

/// Rules that replace accounts; the first that matches decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountMap(Vec<Rule>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    from: From,
    to: MappedTo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum From {
    /// All accounts.
    All,
    /// Accounts with a name that matches.
    Name(Pattern),
    /// Accounts without a name.
    Nameless,
    /// Numbers from the first to the last.
    Ids(u32, u32),
}

/// Account that replaces another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MappedTo {
    /// Number.
    Id(u32),
    /// Name at the receiver.
    Name(Vec<u8>),
}

impl AccountMap {
    /// Parses rules such as `alice:bob,1000-1999:www,*:guest`.
    ///
    /// # Errors
    /// The rule that cannot be parsed.
    pub fn parse(text: &str) -> Result<Self, String> {
        text.split(',').map(parse_rule).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the rules for an account that replaces all others.
    ///
    /// # Errors
    /// A number that is too large.
    pub fn all_to(account: &str) -> Result<Self, String> {
        Ok(Self(vec![Rule { from: From::All, to: parse_account(account)? }]))
    }

    /// True if no account is replaced.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the account that replaces the one with this number and name, if any does.
    #[must_use]
    pub fn map(&self, id: u32, name: Option<&[u8]>) -> Option<&MappedTo> {
        let matches = |rule: &&Rule| match (&rule.from, name) {
            (From::Ids(first, last), _) => (*first..=*last).contains(&id),
            (From::Nameless, name) => name.is_none(),
            (From::All, _) => true,
            (From::Name(pattern), name) => name.is_some_and(|name| pattern.matches(name, false)),
        };
        self.0.iter().find(matches).map(|rule| &rule.to)
    }

    /// Returns the names of the replacement accounts.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter_map(|rule| match &rule.to {
            MappedTo::Name(name) => Some(name.as_slice()),
            MappedTo::Id(_) => None,
        })
    }
}

fn parse_rule(text: &str) -> Result<Rule, String> {
    let invalid = || format!("{text:?} is not a rule of the form FROM:TO");
    let (from, to) = text.split_once(':').ok_or_else(invalid)?;
    let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let from = match from.split_once('-') {
        _ if from.is_empty() => From::Nameless,
        _ if from == "*" => From::All,
        Some((first, last)) if is_number(first) => From::Ids(parse_id(first)?, parse_id(last)?),
        None if is_number(from) => From::Ids(parse_id(from)?, parse_id(from)?),
        _ => From::Name(Pattern::new(from.as_bytes(), b"")),
    };
    Ok(Rule { from, to: parse_account(to)? })
}

fn parse_account(text: &str) -> Result<MappedTo, String> {
    match text.as_bytes() {
        [] => Err("the name of an account is empty".to_owned()),
        [b'0'..=b'9', ..] => parse_id(text).map(MappedTo::Id),
        name => Ok(MappedTo::Name(name.to_vec())),
    }
}

/// Parses the number of an account; the largest means "unchanged" to the kernel.
fn parse_id(text: &str) -> Result<u32, String> {
    let id = text.parse().ok().filter(|id| *id != u32::MAX);
    id.ok_or_else(|| format!("{text:?} is not the number of an account: 0 to {}", u32::MAX - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_matching_rule_decides() {
        let map = AccountMap::parse("0:root,al*:bob,:7,1000-1999:www,*:9").unwrap();
        let name = |name: &str| MappedTo::Name(name.into());
        for (id, from, to) in [
            (0, Some("root"), name("root")),
            (5, Some("alice"), name("bob")),
            (1500, Some("carol"), name("www")),
            (1500, None, MappedTo::Id(7)),
            (2000, Some("carol"), MappedTo::Id(9)),
        ] {
            assert_eq!(map.map(id, from.map(str::as_bytes)), Some(&to), "{id} {from:?}");
        }
        assert_eq!(AccountMap::parse("a:b").unwrap().map(1, Some(b"c")), None);
        assert_eq!(map.names().collect::<Vec<_>>(), [&b"root"[..], b"bob", b"www"]);
    }

    #[test]
    fn star_matches_accounts_without_a_name() {
        let map = AccountMap::all_to("bob").unwrap();
        assert_eq!(map.map(1, None), Some(&MappedTo::Name(b"bob".to_vec())));
    }

    #[test]
    fn malformed_rules_are_named() {
        for text in ["", "a", "a:", "1-x:b", "4294967295:b", "a:4294967295", "a:99999999999"] {
            assert!(AccountMap::parse(text).is_err(), "{text}");
        }
    }
}
