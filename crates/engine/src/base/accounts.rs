//! Users and groups of this host: names of numbers, and numbers of names.
//!
//! `/etc/passwd` and `/etc/group` come first. Other accounts (LDAP, SSSD) are looked up with
//! getent(1): a static program cannot load the modules of the name service switch.

use super::sync::lock;
use bankfull_proto::limits::MAX_ACCOUNT_NAME_BYTES;
use bankfull_proto::wire::control::AccountKind;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Runs of getent(1) of a session; further accounts count as unknown.
///
/// (chosen: at some milliseconds each, less than a timeout)
const MAX_GETENT_RUNS: u32 = 4096;

/// Accounts of this host, as far as they were asked for.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    users: Mutex<Database>,
    groups: Mutex<Database>,
}

/// Accounts of one kind.
#[derive(Debug, Default)]
struct Database {
    is_loaded: bool,
    names: HashMap<u32, Option<Vec<u8>>>,
    ids: HashMap<Vec<u8>, Option<u32>>,
    getent_runs: u32,
}

impl Accounts {
    /// Returns the name of a number, if it has one.
    pub(crate) fn name_of(&self, kind: AccountKind, id: u32) -> Option<Vec<u8>> {
        let mut database = self.loaded(kind);
        if let Some(known) = database.names.get(&id) {
            return known.clone();
        }
        let found = database.ask(kind, id.to_string().as_bytes());
        let name = found.filter(|(_, found)| *found == id).map(|(name, _)| name);
        database.names.insert(id, name.clone());
        name
    }

    /// Returns the number of a name, if there is such an account.
    pub(crate) fn id_of(&self, kind: AccountKind, name: &[u8]) -> Option<u32> {
        let mut database = self.loaded(kind);
        if let Some(known) = database.ids.get(name) {
            return *known;
        }
        let found = if is_plain(name) { database.ask(kind, name) } else { None };
        let id = found.filter(|(found, _)| found == name).map(|(_, id)| id);
        database.ids.insert(name.to_vec(), id);
        id
    }

    fn loaded(&self, kind: AccountKind) -> std::sync::MutexGuard<'_, Database> {
        let (database, path) = match kind {
            AccountKind::User => (&self.users, "/etc/passwd"),
            AccountKind::Group => (&self.groups, "/etc/group"),
        };
        let mut database = lock(database);
        if !std::mem::replace(&mut database.is_loaded, true) {
            // Without the file, all accounts are asked for.
            let content = fs::read(path).unwrap_or_default();
            content.split(|&byte| byte == b'\n').filter_map(parse).for_each(|(name, id)| {
                database.names.entry(id).or_insert_with(|| Some(name.clone()));
                database.ids.entry(name).or_insert(Some(id));
            });
        }
        database
    }
}

impl Database {
    /// Looks up an account with getent(1) by its name or number.
    fn ask(&mut self, kind: AccountKind, key: &[u8]) -> Option<(Vec<u8>, u32)> {
        if self.getent_runs >= MAX_GETENT_RUNS {
            return None;
        }
        self.getent_runs += 1;
        let database = match kind {
            AccountKind::User => "passwd",
            AccountKind::Group => "group",
        };
        let mut command = Command::new("getent");
        command.arg(database).arg(OsStr::from_bytes(key));
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        parse(output.stdout.split(|&byte| byte == b'\n').next()?)
    }
}

/// Returns the home directory of a user; `None` if there is no such user.
pub(crate) fn home_of(user: &[u8]) -> Option<Vec<u8>> {
    if !is_plain(user) {
        return None;
    }
    let home = |line: &[u8]| {
        let mut fields = line.split(|&byte| byte == b':');
        let is_own = fields.next() == Some(user);
        fields.nth(4).filter(|home| is_own && home.starts_with(b"/")).map(<[u8]>::to_vec)
    };
    let content = fs::read("/etc/passwd").unwrap_or_default();
    content.split(|&byte| byte == b'\n').find_map(home).or_else(|| {
        let mut command = Command::new("getent");
        command.arg("passwd").arg(OsStr::from_bytes(user));
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        home(output.stdout.split(|&byte| byte == b'\n').next()?)
    })
}

/// Parses a line of passwd(5) or group(5): name and number.
fn parse(line: &[u8]) -> Option<(Vec<u8>, u32)> {
    let mut fields = line.split(|&byte| byte == b':');
    let (name, _, id) = (fields.next()?, fields.next()?, fields.next()?);
    let id = std::str::from_utf8(id).ok()?.parse().ok()?;
    (!name.is_empty()).then(|| (name.to_vec(), id))
}

/// True for a name that getent(1) does not take for an option or a number.
fn is_plain(name: &[u8]) -> bool {
    let is_separator = |byte: &u8| matches!(byte, b':' | b'\n' | b'\0');
    let starts_plain = name.first().is_some_and(|&first| first != b'-' && !first.is_ascii_digit());
    starts_plain && name.len() <= MAX_ACCOUNT_NAME_BYTES && !name.iter().any(is_separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_this_host_are_found_both_ways() {
        let accounts = Accounts::default();
        for kind in [AccountKind::User, AccountKind::Group] {
            assert_eq!(accounts.name_of(kind, 0).as_deref(), Some(&b"root"[..]));
            assert_eq!(accounts.id_of(kind, b"root"), Some(0));
            assert_eq!(accounts.id_of(kind, b"no-such-account"), None);
            assert_eq!(accounts.name_of(kind, 4_000_000_000), None);
        }
    }

    #[test]
    fn home_of_a_user_is_found() {
        assert_eq!(home_of(b"root").as_deref(), Some(&b"/root"[..]));
        assert_eq!(home_of(b"no-such-account"), None);
        assert_eq!(home_of(b""), None);
    }

    #[test]
    fn names_are_no_options() {
        for name in [&b""[..], b"-s", b"12", b"a:b", b"a\nb", &[b'x'; 257]] {
            assert!(!is_plain(name), "{name:?}");
        }
        assert!(is_plain(b"alice") && is_plain(b"DOMAIN\\user name"));
    }
}
