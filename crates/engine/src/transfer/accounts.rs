//! Accounts of owners and groups, as the side of the user maps them.

use bankfull_proto::account_map::{AccountMap, MappedTo};
use bankfull_proto::wire::control::{Account, AccountKind, Bytes};

/// Returns an account as mapped for the receiver; `None` if its number is kept as it is.
pub(crate) fn account_of(
    kind: AccountKind,
    id: u32,
    name: Option<Vec<u8>>,
    map: &AccountMap,
    is_named: bool,
) -> Option<Account> {
    let account = Account { kind, id, name: None, mapped: None, required: None };
    // By number, all accounts count as nameless.
    let name = name.filter(|_| is_named);
    match map.map(id, name.as_deref()) {
        Some(MappedTo::Id(mapped)) => Some(Account { mapped: Some(*mapped), ..account }),
        Some(MappedTo::Name(name)) => {
            Some(Account { name: Some(Bytes(name.clone())), required: Some(true), ..account })
        }
        None => name.map(|name| Account { name: Some(Bytes(name)), ..account }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_come_before_names() {
        let map = AccountMap::parse("alice:bob,7:9").unwrap();
        let of = |id, name: Option<&str>, is_named| {
            account_of(AccountKind::User, id, name.map(Into::into), &map, is_named)
        };
        assert_eq!(of(1, Some("alice"), true).unwrap().required, Some(true));
        assert_eq!(of(7, Some("carol"), true).unwrap().mapped, Some(9));
        assert_eq!(of(8, Some("carol"), true).unwrap().name.unwrap().0, b"carol");
        assert_eq!(of(8, Some("carol"), false), None);
        assert_eq!(of(1, Some("alice"), false), None);
        // The other side may have a rule for the name.
        assert_eq!(of(0, Some("root"), true).unwrap().name.unwrap().0, b"root");
    }
}
