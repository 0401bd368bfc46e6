//! Owners and groups that this receiver can set; others do not count as differences.

use crate::model::metadata::Permits;
use bankfull_proto::wire::control::AccountKind;
use bankfull_sys::MappedIds;

/// Owners and groups that this receiver can set.
#[derive(Debug)]
pub(super) struct SettableAccounts {
    is_permitted: bool,
    has_all: bool,
    mapped: MappedIds,
    groups: Vec<u32>,
}

impl SettableAccounts {
    /// Reads the rights of this process.
    pub(super) fn of(permits: Permits) -> Self {
        Self {
            is_permitted: permits.owner,
            has_all: bankfull_sys::may_change_owners(),
            mapped: MappedIds::read(),
            groups: bankfull_sys::group_ids(),
        }
    }

    /// True if a file's owner or group may become this number.
    ///
    /// Users other than root can give their files only to groups that they are in. (chown(2))
    pub(super) fn has(&self, kind: AccountKind, id: u32) -> bool {
        let is_reached = match kind {
            AccountKind::User => self.has_all && self.mapped.has_user(id),
            AccountKind::Group => {
                self.has_all && self.mapped.has_group(id) || self.groups.contains(&id)
            }
        };
        self.is_permitted && is_reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_user_sets_groups_of_its_own_alone() {
        let own = bankfull_sys::group_ids()[0];
        let user = SettableAccounts { has_all: false, ..SettableAccounts::of(Permits::ALL) };
        assert!(user.has(AccountKind::Group, own));
        assert!(!user.has(AccountKind::Group, 4_000_001) && !user.has(AccountKind::User, 0));
        let daemon = SettableAccounts { is_permitted: false, has_all: true, ..user };
        assert!(!daemon.has(AccountKind::Group, own) && !daemon.has(AccountKind::User, 0));
    }
}
