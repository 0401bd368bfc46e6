//! Rights of this process to give files to users and groups.

use rustix::process::{Gid, getegid, getgroups};
use std::ops::RangeInclusive;

/// Number of the capability to change owners. (linux/capability.h)
const CAP_CHOWN: u32 = 0;

/// True if this process may give files to any owner (CAP_CHOWN); false without `/proc`.
#[must_use]
pub fn may_change_owners() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    parse_may_change_owners(&status)
}

fn parse_may_change_owners(status: &str) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> CAP_CHOWN & 1 == 1)
}

/// Returns the groups of this process: the effective and the supplementary ones.
#[must_use]
pub fn group_ids() -> Vec<u32> {
    let further = getgroups().unwrap_or_default();
    let own = getegid();
    std::iter::once(own).chain(further).map(Gid::as_raw).collect()
}

/// Users and groups that the user namespace of this process has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedIds {
    users: Vec<RangeInclusive<u32>>,
    groups: Vec<RangeInclusive<u32>>,
}

impl MappedIds {
    /// Reads the maps of this process; without `/proc`, all numbers count as mapped.
    #[must_use]
    pub fn read() -> Self {
        let ranges = |path| parse_id_map(&std::fs::read_to_string(path).unwrap_or_default());
        Self { users: ranges("/proc/self/uid_map"), groups: ranges("/proc/self/gid_map") }
    }

    /// True if files may belong to a user.
    #[must_use]
    pub fn has_user(&self, id: u32) -> bool {
        self.users.iter().any(|range| range.contains(&id))
    }

    /// True if files may belong to a group.
    #[must_use]
    pub fn has_group(&self, id: u32) -> bool {
        self.groups.iter().any(|range| range.contains(&id))
    }
}

/// Parses lines with the first number inside, that outside, and their count.
/// (user_namespaces(7))
fn parse_id_map(text: &str) -> Vec<RangeInclusive<u32>> {
    let range = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (first, _, count) = (numbers.next()?.ok()?, numbers.next()?, numbers.next()?.ok()?);
        Some(first..=first.saturating_add(count.checked_sub(1)?))
    };
    let ranges: Vec<_> = text.lines().filter_map(range).collect();
    if text.is_empty() { vec![0..=u32::MAX] } else { ranges }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_to_change_owners_is_parsed() {
        assert!(parse_may_change_owners("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!parse_may_change_owners("CapEff:\t000001fffffffffe\n"));
        assert!(!parse_may_change_owners("CapPrm:\t000001ffffffffff\n"));
        assert!(group_ids().contains(&getegid().as_raw()));
    }

    #[test]
    fn mapped_ids_are_those_of_the_namespace() {
        let container = parse_id_map("         0       1000          1\n 1 100000 65536\n");
        assert_eq!(container, [0..=0, 1..=65536]);
        assert_eq!(parse_id_map("0 0 4294967295\n"), [0..=u32::MAX - 1]);
        assert!(parse_id_map("0 0 0\nx\n").is_empty());
        let ids = MappedIds::read();
        assert!(ids.has_user(crate::effective_uid()) && ids.has_group(group_ids()[0]));
        let one = MappedIds { users: vec![0..=0], groups: vec![0..=9] };
        assert!(one.has_group(9) && !one.has_user(9));
    }
}
