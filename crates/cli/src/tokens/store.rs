//! File of a daemon's tokens: their hashes or client keys, and what they permit.

use crate::flags::instant;
use crate::output::{printable, rfc3339};
use bankfull::{
    ClientKey, Credential, Error, ErrorKind, Grant, TokenHash, check_prefix, is_plain_name,
};
use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use toml::de::{DeTable, DeValue};

/// Name of the file in the state directory.
const FILE_NAME: &str = "tokens.toml";

/// Maximum size of the file, in bytes. (chosen: some thirty thousand tokens)
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Attempts to lock the file, and the pause between them. (chosen: five seconds; a change takes
/// milliseconds)
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// Permission bits that let group and others change the file.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// First lines of the file.
const HEADER: &str =
    "# Tokens of bankfull's daemon, as hashes, and client keys. Changed by `bankfull token`.\n";

/// A token in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Permissions.
    pub(crate) grant: Grant,
    /// Time of its creation.
    pub(crate) created: Option<SystemTime>,
}

/// State of the file by which a change is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

/// The file.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    path: PathBuf,
}

impl Store {
    /// Returns the file of a path, else that in a state directory.
    pub(crate) fn new(path: Option<&Path>, state_dir: &Path) -> Self {
        Self { path: path.map_or_else(|| state_dir.join(FILE_NAME), Path::to_owned) }
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the state of the file; `None` if there is none.
    pub(crate) fn version(&self) -> Option<Version> {
        let found = fs::metadata(&self.path).ok()?;
        let changed = (found.ctime(), found.ctime_nsec());
        Some(Version { inode: found.ino(), size: found.len(), changed })
    }

    /// Reads the tokens by their names; `None` if there is no file.
    ///
    /// # Errors
    /// One line that names the file.
    pub(crate) fn read(&self) -> Result<Option<BTreeMap<String, Stored>>, Error> {
        let shown = printable(&self.path);
        let local = |e: io::Error| Error::local(format!("cannot read the tokens {shown}"), &e);
        // A FIFO must not block the daemon.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(local)?,
        };
        let found = file.metadata().map_err(local)?;
        let mode = found.mode() & 0o7777;
        let refused = |why: String| Err(Error::new(ErrorKind::Local, why));
        let daemon = fs::metadata(self.dir()).map(|dir| dir.uid()).ok();
        let is_own = [Some(0), Some(geteuid().as_raw()), daemon].contains(&Some(found.uid()));
        if !found.is_file() || !is_own {
            return refused(format!(
                "the tokens {shown} are not a regular file of root, of the daemon's user or of \
                 your own: replace them"
            ));
        }
        if mode & WRITABLE_BY_OTHERS != 0 {
            return refused(format!(
                "other users may change the tokens {shown} (mode {mode:04o}): chmod 600 it"
            ));
        }
        let mut text = String::new();
        file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(local)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return refused(format!("the tokens {shown} are larger than 8 MiB: revoke some"));
        }
        parse(&text)
            .map(Some)
            .map_err(|why| Error::new(ErrorKind::Local, format!("the tokens {shown}: {why}")))
    }

    /// Changes the tokens; another change waits for this one.
    ///
    /// # Errors
    /// One line that names the file; that of `change`.
    pub(crate) fn change(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, Stored>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let shown = printable(&self.path);
        let failed = |e: io::Error| Error::local(format!("cannot write the tokens {shown}"), &e);
        let dir = self.dir();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
        // The lock ends with the handle. Other users cannot open its file, and hold it.
        let lock = self.lock_file(dir).map_err(failed)?;
        let is_locked = (0..LOCK_TRIES).any(|_| {
            let is_locked = lock.try_lock().is_ok();
            if !is_locked {
                thread::sleep(LOCK_PAUSE);
            }
            is_locked
        });
        if !is_locked {
            let text = format!("another process changes the tokens {shown}: try again later");
            return Err(Error::new(ErrorKind::Local, text));
        }
        let mut tokens = self.read()?.unwrap_or_default();
        change(&mut tokens)?;
        let text = text_of(&tokens);
        if parse(&text).as_ref() != Ok(&tokens) {
            let text = "the token cannot be stored: choose a plainer prefix, or an earlier time";
            return Err(Error::new(ErrorKind::Usage, text));
        }
        self.replace(&text, dir).map_err(failed)
    }

    /// Opens the file of the lock, which gets the owner of its directory.
    fn lock_file(&self, dir: &Path) -> io::Result<File> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut options = OpenOptions::new();
        let options = options.append(true).create(true).mode(0o600).custom_flags(flags);
        let file = options.open(dir.join(format!(".{FILE_NAME}.lock")))?;
        let (owner, own) = (fs::metadata(dir)?, file.metadata()?);
        if (owner.uid(), owner.gid()) != (own.uid(), own.gid()) {
            // Only root may change the owner; for others, the file stays their own.
            let _ = fchown(&file, Some(owner.uid()), Some(owner.gid()));
        }
        Ok(file)
    }

    fn dir(&self) -> &Path {
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        dir.unwrap_or(Path::new("."))
    }

    /// Replaces the file, which keeps owner and mode; a new one has the owner of its directory.
    fn replace(&self, text: &str, dir: &Path) -> io::Result<()> {
        let temp = dir.join(format!(".{FILE_NAME}-{}", std::process::id()));
        // Of an earlier process of this number.
        let _ = fs::remove_file(&temp);
        let write = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&temp)?;
            file.write_all(text.as_bytes())?;
            let earlier = fs::symlink_metadata(&self.path).ok().filter(|found| found.is_file());
            let (owner, own) =
                (earlier.clone().map_or_else(|| fs::metadata(dir), Ok)?, file.metadata()?);
            if (owner.uid(), owner.gid()) != (own.uid(), own.gid()) {
                // Only root may change the owner; for others, the file stays their own.
                let _ = fchown(&file, Some(owner.uid()), Some(owner.gid()));
            }
            if let Some(earlier) = earlier {
                let mode = earlier.mode() & 0o777 & !WRITABLE_BY_OTHERS;
                file.set_permissions(fs::Permissions::from_mode(mode))?;
            }
            file.sync_all()?;
            fs::rename(&temp, &self.path)
        };
        write().inspect_err(|_| drop(fs::remove_file(&temp)))
    }
}

/// Formats the tokens.
fn text_of(tokens: &BTreeMap<String, Stored>) -> String {
    tokens.iter().fold(HEADER.to_owned(), |mut text, (name, Stored { grant, created })| {
        let rights = rights_of(grant);
        let time = |at: &SystemTime| rfc3339(at.duration_since(UNIX_EPOCH).unwrap_or_default());
        let (hash, key) = match grant.credential {
            Credential::Token(hash) => (Some(hash.to_string()), None),
            Credential::Key(key) => (None, Some(key.to_string())),
        };
        let path = grant.prefix.to_str().filter(|path| !path.is_empty());
        let values = [
            ("sha256", hash),
            ("key", key),
            ("rights", Some(rights.to_owned())),
            ("share", grant.share.clone()),
            ("prefix", path.map(str::to_owned)),
            ("expires", grant.expires.as_ref().map(time)),
            ("created", created.as_ref().map(time)),
        ];
        // Writing to a string cannot fail. A string of JSON is one of TOML.
        let _ = write!(text, "\n[token.{}]\n", serde_json::Value::from(name.as_str()));
        for (key, value) in values {
            if let Some(value) = value {
                let _ = writeln!(text, "{key} = {}", serde_json::Value::from(value));
            }
        }
        text
    })
}

/// Returns the directions that a token permits.
pub(crate) fn rights_of(grant: &Grant) -> &'static str {
    match (grant.read, grant.write) {
        (true, true) => "read-write",
        (true, false) => "read",
        (false, _) => "write",
    }
}

/// Parses the file.
///
/// # Errors
/// A line without the name of the file.
fn parse(text: &str) -> Result<BTreeMap<String, Stored>, String> {
    let table = DeTable::parse(text).map_err(|e| {
        let before = e.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        format!("line {line}: {}", e.message().replace('\n', ", "))
    })?;
    let (mut tokens, mut known) = (BTreeMap::new(), HashSet::new());
    for (key, value) in table.get_ref() {
        let key = key.get_ref().as_ref();
        let Some(all) = value.get_ref().as_table().filter(|_| key == "token") else {
            return Err(format!("{key} is unknown: write [token.NAME]"));
        };
        for (name, token) in all {
            let name = name.get_ref().as_ref();
            let Some(token) = token.get_ref().as_table().filter(|_| is_plain_name(name)) else {
                return Err(format!("{name:?} is no name of a token: write [token.NAME]"));
            };
            let stored = one(name, token).map_err(|why| format!("[token.{name}]: {why}"))?;
            if !known.insert(stored.grant.credential) {
                return Err(format!("[token.{name}] has the sha256 or the key of another token"));
            }
            tokens.insert(name.to_owned(), stored);
        }
    }
    Ok(tokens)
}

/// Parses an absolute time; a relative one would start anew with each read.
fn time(key: &str, text: &str) -> Result<SystemTime, String> {
    instant(text).ok_or_else(|| format!("{key} takes a time such as 2027-01-31T18:00:00Z"))
}

/// Parses the table of a token.
fn one(name: &str, table: &DeTable<'_>) -> Result<Stored, String> {
    let mut created = None;
    let (mut hash, mut public, mut rights) = (None, None, None);
    let mut grant = Grant::new(name, TokenHash::of(b""));
    for (key, value) in table {
        let key = key.get_ref().as_ref();
        let DeValue::String(text) = value.get_ref() else {
            return Err(format!("{key} takes a string"));
        };
        match key {
            "sha256" => hash = Some(text.parse::<TokenHash>().map_err(|e| format!("sha256: {e}"))?),
            "key" => public = Some(text.parse::<ClientKey>().map_err(|e| format!("key: {e}"))?),
            "rights" => rights = Some(text.as_ref()),
            "share" => grant.share = Some(text.to_string()),
            "prefix" => grant.prefix = PathBuf::from(text.as_ref()),
            "expires" => grant.expires = Some(time(key, text)?),
            "created" => created = Some(time(key, text)?),
            _ => return Err(format!("unknown key {key}")),
        }
    }
    check_prefix(&grant.prefix).map_err(|e| e.to_string())?;
    grant.credential = match (hash, public) {
        (Some(hash), None) => hash.into(),
        (None, Some(public)) => public.into(),
        (None, None) => return Err("sha256 or key is missing".to_owned()),
        (Some(_), Some(_)) => return Err("sha256 and key exclude each other".to_owned()),
    };
    (grant.read, grant.write) = match rights {
        Some("read-write") => (true, true),
        Some("read") => (true, false),
        Some("write") => (false, true),
        _ => return Err("rights takes read, write or read-write".to_owned()),
    };
    Ok(Stored { grant, created })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(dir: &tempfile::TempDir) -> Store {
        Store::new(None, dir.path())
    }

    fn stored(name: &str) -> Stored {
        let mut grant = Grant::new(name, TokenHash::of(name.as_bytes()));
        (grant.share, grant.prefix) = (Some("data".to_owned()), "a \"b\"\\é".into());
        (grant.write, grant.expires) =
            (false, Some(UNIX_EPOCH + Duration::from_secs(1_900_000_000)));
        Stored { grant, created: Some(UNIX_EPOCH + Duration::from_secs(1_800_000_061)) }
    }

    #[test]
    fn tokens_are_kept_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        assert!(store.read().unwrap().is_none() && store.version().is_none());
        let insert = |name: &str| {
            store.change(|tokens| {
                tokens.insert(name.to_owned(), stored(name));
                Ok(())
            })
        };
        insert("x.y-1").unwrap();
        let first = store.version();
        insert("second").unwrap();
        assert_ne!(store.version(), first);
        let keyed = Stored { grant: Grant::new("a-key", ClientKey([7; 32])), created: None };
        let insert_key = |tokens: &mut BTreeMap<_, _>| {
            tokens.insert("a-key".to_owned(), keyed.clone());
            Ok(())
        };
        store.change(insert_key).unwrap();
        let tokens = store.read().unwrap().unwrap();
        assert_eq!(
            tokens.values().cloned().collect::<Vec<_>>(),
            [keyed, stored("second"), stored("x.y-1")]
        );
        let mode = fs::metadata(store.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "tokens and lock are left");
    }

    #[test]
    fn refused_change_leaves_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let refuse = |_: &mut BTreeMap<_, _>| Err(Error::new(ErrorKind::Usage, "no"));
        assert!(store.change(refuse).is_err() && store.version().is_none());
        // A token that could not be read back is not written.
        let mut late = stored("late");
        late.grant.expires = Some(UNIX_EPOCH + Duration::from_secs(400_000_000_000));
        let insert = |tokens: &mut BTreeMap<_, _>| {
            tokens.insert("late".to_owned(), late);
            Ok(())
        };
        let error = store.change(insert).unwrap_err().to_string();
        assert!(error.contains("cannot be stored") && store.version().is_none(), "{error}");
    }

    #[test]
    fn bad_file_is_one_line_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir);
        let hash = TokenHash::of(b"t");
        let whole = format!("[token.x]\nsha256 = \"{hash}\"\nrights = \"read\"\n");
        for (text, mode, says) in [
            (whole.clone(), 0o620, "other users may change the tokens"),
            (whole.clone() + "shares = \"d\"", 0o600, "[token.x]: unknown key shares"),
            (whole.clone() + "prefix = \"../x\"", 0o600, "without '..'"),
            (whole.clone() + "expires = 3", 0o600, "expires takes a string"),
            (whole.clone() + "expires = \"9d\"", 0o600, "expires takes a time such as"),
            (whole.replace("read", "all"), 0o600, "rights takes read, write or read-write"),
            (whole.replace(&hash.to_string(), "00"), 0o600, "sha256: a hash of a token has 64"),
            ("[token.x]\nrights = \"read\"".to_owned(), 0o600, "sha256 or key is missing"),
            (whole.clone() + "key = \"ssh-ed25519 AAAA\"", 0o600, "key: write a public key as"),
            (whole.clone() + &format!("key = \"{}\"", ClientKey([7; 32])), 0o600, "exclude each"),
            (whole.clone() + &whole.replace("token.x", "token.y"), 0o600, "of another token"),
            ("[token]\nx = 1".to_owned(), 0o600, "write [token.NAME]"),
            ("[token.x".to_owned(), 0o600, "line 1: "),
        ] {
            fs::write(store.path(), text).unwrap();
            fs::set_permissions(store.path(), PermissionsExt::from_mode(mode)).unwrap();
            let error = store.read().unwrap_err().to_string();
            assert!(error.contains(says) && error.lines().count() == 1, "{error}");
        }
    }
}
