//! Access of a daemon's clients: their permissions by token or key, and the directory of a request.
//!
//! Paths of a request begin with the name of a share, if there are shares, and with the directory
//! that the token is limited to. Both are removed: what remains is resolved beneath that directory
//! alone, whatever links are in it.

use super::share_limits::ShareLimits;
use crate::base::error::{Error, ErrorKind, os_message};
use crate::file_io::root::PathRoot;
use crate::model::access::{Credential, Grant, Share, TokenHash, is_plain_name};
use crate::model::client_key::{ClientKey, is_proven};
use crate::model::options::{Access, Served};
use crate::transport::channel_binding::ChannelBinding;
use bankfull_proto::wire::control::{
    Cause, Direction, EarlierRules, Failure, Hello, Open, PathBytes,
};
use bankfull_sys::Dir;
use std::collections::HashMap;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

/// A client that has authenticated.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    /// Token, or proven key; `None` if none was needed.
    credential: Option<Credential>,
    /// Permissions of its token; `None`: all.
    grant: Option<Arc<Grant>>,
}

impl Client {
    /// Returns the name of its token, if that has one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.grant.as_deref().map(|grant| &*grant.name)
    }
}

/// Directory of a request.
#[derive(Debug)]
pub(crate) struct Place {
    /// Root of its paths.
    pub(crate) root: PathRoot,
    /// True if uploads are refused.
    pub(crate) is_read_only: bool,
    /// Path of the root in the paths of the client.
    pub(crate) mount: PathBuf,
    /// Limits of the share.
    pub(crate) limits: ShareLimits,
}

impl Place {
    /// Returns a path beneath the root as the client names it.
    pub(crate) fn shown(&self, path: PathBytes) -> PathBytes {
        match (self.mount.as_os_str().as_bytes(), &*path.0) {
            ([], _) => path,
            (mount, []) => PathBytes(mount.to_vec()),
            (mount, below) => PathBytes([mount, b"/", below].concat()),
        }
    }
}

/// An open share.
#[derive(Debug)]
struct OpenShare {
    share: Share,
    dir: Arc<Dir>,
    limits: ShareLimits,
}

/// Directories that are served.
#[derive(Debug)]
enum Places {
    /// The whole host, with the user's permissions.
    Host,
    /// One directory.
    Root(Arc<Dir>),
    /// Directories by their names.
    Shares(Vec<OpenShare>),
}

impl Places {
    fn shares(&self) -> &[OpenShare] {
        match self {
            Self::Shares(shares) => shares,
            Self::Host | Self::Root(_) => &[],
        }
    }

    /// Returns the share of this name and directory.
    fn same(&self, name: &str, dir: &Dir) -> Option<&OpenShare> {
        let id = identity(dir);
        self.shares().iter().find(|one| one.share.name == name && identity(&one.dir) == id)
    }
}

/// Rules in force.
#[derive(Debug)]
struct Rules {
    token: Option<TokenHash>,
    grants: Option<HashMap<Credential, Arc<Grant>>>,
    places: Arc<Places>,
    is_read_only: bool,
}

/// Access of clients, which may change while sessions run.
#[derive(Debug)]
pub(crate) struct AccessControl(RwLock<Arc<Rules>>);

impl AccessControl {
    /// Permits everything on this host, to the one client of an agent.
    pub(crate) fn of_host() -> Self {
        let (token, grants) = (None, None);
        let rules = Rules { token, grants, places: Arc::new(Places::Host), is_read_only: false };
        Self(RwLock::new(Arc::new(rules)))
    }

    /// Opens the directories of a daemon.
    ///
    /// # Errors
    /// [`ErrorKind::Local`] for a directory that cannot be opened; [`ErrorKind::Usage`] for shares
    /// that contradict each other.
    pub(crate) fn open(access: &Access) -> Result<Self, Error> {
        Ok(Self(RwLock::new(Arc::new(Rules::open(access, None)?))))
    }

    /// Replaces the rules. Those in force stay as they are if the new ones are refused.
    ///
    /// Rates and quotas that were there before change for running sessions as well.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn replace(&self, access: &Access) -> Result<(), Error> {
        let earlier = self.rules();
        let rules = Arc::new(Rules::open(access, Some(&earlier))?);
        for OpenShare { share, dir, .. } in rules.places.shares() {
            let same = earlier.places.same(&share.name, dir);
            same.iter().for_each(|one| one.limits.set(share));
        }
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = rules;
        Ok(())
    }

    /// True if clients need a token.
    pub(crate) fn needs_token(&self) -> bool {
        self.rules().needs_token()
    }

    /// Replaces the grants (tokens and keys with permissions), and nothing else.
    pub(crate) fn set_grants(&self, grants: &[Grant]) {
        let mut rules = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *rules = Arc::new(Rules {
            token: rules.token,
            grants: Some(by_credential(grants)),
            places: Arc::clone(&rules.places),
            is_read_only: rules.is_read_only,
        });
    }

    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the client with the token or the key of its first message.
    ///
    /// A signature is verified only if its key is known: strangers cost a lookup.
    ///
    /// # Errors
    /// [`Cause::BadToken`] without a valid token or key, if one is required.
    pub(crate) fn authenticate(
        &self,
        hello: &Hello,
        binding: Option<&ChannelBinding>,
    ) -> Result<Client, Error> {
        let rules = self.rules();
        // What is not proven now must not count once rules change.
        let proof = hello.key.as_ref().filter(|_| rules.needs_token());
        let credential = match (proof, &hello.token) {
            (Some(proof), _) => Some(ClientKey(proof.public).into()),
            (None, token) => token.as_deref().map(|token| TokenHash::of(token).into()),
        };
        let is_signed = |proof| binding.is_some_and(|own| is_proven(proof, own));
        if let Some(proof) = proof
            && !(rules.knows(ClientKey(proof.public).into()) && is_signed(proof))
        {
            return Err(unknown_key(ClientKey(proof.public)));
        }
        let grant = rules.grant(credential, SystemTime::now())?;
        Ok(Client { credential, grant })
    }

    /// Checks that a client of a running session still has its permissions.
    ///
    /// # Errors
    /// [`Cause::BadToken`] once its token has expired, was revoked, or permits something else.
    pub(crate) fn check(&self, client: &Client) -> Result<(), Error> {
        let grant = self.rules().grant(client.credential, SystemTime::now());
        if grant.is_ok_and(|grant| grant == client.grant) {
            return Ok(());
        }
        let text = match (client.credential, client.name()) {
            (None, _) => "a token is needed from now on".to_owned(),
            (_, None) => "the token of this session was revoked".to_owned(),
            (_, Some(name)) => format!("the token {name} has expired or was revoked"),
        };
        let text = format!("{text}: ask the administrator of the server for another one");
        Err(Failure::new(Cause::BadToken, text).into())
    }

    /// Returns the limits of a throughput test, which names no share.
    ///
    /// They are those of the slowest share that the client may use.
    ///
    /// # Errors
    /// [`Cause::NotFound`] if there are shares, and none for the client.
    pub(crate) fn test_limits(
        &self,
        client: &Client,
        peer: Option<IpAddr>,
    ) -> Result<ShareLimits, Error> {
        self.check(client)?;
        let rules = self.rules();
        let Places::Shares(shares) = &*rules.places else { return Ok(ShareLimits::default()) };
        let grant = client.grant.as_deref();
        let permitted = shares.iter().filter(|one| is_permitted(&one.share, grant, peer));
        let slowest =
            permitted.min_by_key(|one| (one.share.max_rate.is_none(), one.share.max_rate));
        let none = || {
            let text = "there is no share for you: ask the administrator of the server for access";
            Error::from(Failure::new(Cause::NotFound, text))
        };
        Ok(slowest.ok_or_else(none)?.limits.clone().without_quota())
    }

    /// Returns the directory of a request, whose paths are then beneath it.
    ///
    /// # Errors
    /// A request that the client's token does not permit, or without a share that exists.
    pub(crate) fn place(
        &self,
        client: &Client,
        peer: Option<IpAddr>,
        open: &mut Open,
    ) -> Result<Place, Error> {
        // Since the handshake, the rules may have changed.
        self.check(client)?;
        let rules = self.rules();
        let grant = client.grant.as_deref();
        grant.map_or(Ok(()), |grant| check_rights(grant, open))?;
        match &*rules.places {
            Places::Host => Ok(Place {
                root: PathRoot::Host,
                is_read_only: rules.is_read_only,
                mount: PathBuf::new(),
                limits: ShareLimits::default(),
            }),
            Places::Root(_) if grant.is_some_and(|grant| grant.share.is_some()) => {
                let text = "the token is for a share, and this server has none: ask its \
                            administrator for another token";
                Err(Failure::new(Cause::Permission, text).into())
            }
            Places::Root(dir) => {
                let is_read_only = rules.is_read_only;
                limited(Arc::clone(dir), grant, open, (PathBuf::new(), is_read_only))
            }
            Places::Shares(shares) => {
                let OpenShare { share, dir, limits } = chosen(shares, grant, peer, open)?;
                let is_read_only = rules.is_read_only || share.read_only;
                let mount = PathBuf::from(&share.name);
                let place = limited(Arc::clone(dir), grant, open, (mount, is_read_only))?;
                Ok(Place { limits: limits.clone(), ..place })
            }
        }
    }
}

impl Rules {
    /// Opens the directories; shares that stay as they are keep what counts for their limits.
    fn open(access: &Access, earlier: Option<&Self>) -> Result<Self, Error> {
        let places = match &access.served {
            Served::Root(root) => Places::Root(Arc::new(open_dir(root)?)),
            Served::Shares(shares) => {
                Places::Shares(open_shares(shares, earlier.map(|rules| &*rules.places))?)
            }
        };
        let token = access.token.as_deref().map(TokenHash::of);
        let grants = access.grants.as_deref().map(by_credential);
        Ok(Self { token, grants, places: Arc::new(places), is_read_only: access.read_only })
    }

    /// True if clients need a token or a key.
    fn needs_token(&self) -> bool {
        self.token.is_some() || self.grants.is_some()
    }

    /// True if a token or a key has permissions, expired or not.
    fn knows(&self, credential: Credential) -> bool {
        self.grants.as_ref().is_some_and(|grants| grants.contains_key(&credential))
    }

    /// Returns the permissions of a token or a key; `None`: all.
    ///
    /// Hashes are compared, so that the time of a comparison tells nothing about a token.
    fn grant(
        &self,
        credential: Option<Credential>,
        now: SystemTime,
    ) -> Result<Option<Arc<Grant>>, Error> {
        if !self.needs_token() {
            return Ok(None);
        }
        let refused = |text: &str| Err(Failure::new(Cause::BadToken, text).into());
        let Some(credential) = credential else {
            return refused("a token is needed: give --token-file FILE or set BANKFULL_TOKEN");
        };
        if self.token.map(Credential::Token) == Some(credential) {
            return Ok(None);
        }
        let grant = self.grants.as_ref().and_then(|grants| grants.get(&credential));
        match (grant, credential) {
            (Some(grant), _) if grant.is_expired(now) => refused(&format!(
                "the token {} has expired: ask the administrator of the server for another one",
                grant.name
            )),
            (Some(grant), _) => Ok(Some(Arc::clone(grant))),
            (None, Credential::Key(key)) => Err(unknown_key(key)),
            (None, Credential::Token(_)) => {
                refused("the token is wrong: ask the administrator of the server for the right one")
            }
        }
    }
}

/// Error of a key that is unknown or not proven, in the same words.
fn unknown_key(key: ClientKey) -> Error {
    let text = format!(
        "the key {key} is unknown here, or not proven for this connection: ask the administrator \
         of the server to add it by bankfull token create NAME --key"
    );
    Failure::new(Cause::BadToken, text).into()
}

/// Returns permissions by their tokens and keys.
fn by_credential(grants: &[Grant]) -> HashMap<Credential, Arc<Grant>> {
    grants.iter().map(|grant| (grant.credential, Arc::new(grant.clone()))).collect()
}

/// Returns device and inode of a directory.
fn identity(dir: &Dir) -> Option<(u64, u64)> {
    dir.stat_self().ok().map(|stat| (stat.dev, stat.ino))
}

fn open_dir(path: &Path) -> Result<Dir, Error> {
    Dir::open(path).map_err(|e| Error::local(format!("cannot serve {}", path.display()), &e))
}

/// Opens the directories of the shares.
///
/// # Errors
/// A name that is taken or not plain; a directory that is missing, or inside another one.
fn open_shares(shares: &[Share], earlier: Option<&Places>) -> Result<Vec<OpenShare>, Error> {
    let usage = |text: String| Err(Error::new(ErrorKind::Usage, text));
    let mut real: Vec<(&str, PathBuf)> = Vec::new();
    let mut opened = Vec::new();
    for share in shares {
        let (name, path) = (&*share.name, share.path.display());
        if !is_plain_name(name) {
            return usage(format!(
                "the name of a share has letters, digits, - _ and . only: rename {name:?}"
            ));
        }
        let found = std::fs::canonicalize(&share.path).map_err(|e| {
            let text = format!("cannot serve the share {name}, {path}: {}", os_message(&e));
            Error::new(ErrorKind::Local, text)
        })?;
        for (other, at) in &real {
            if *other == name {
                return usage(format!("there are two shares {name}: rename one"));
            }
            let (inner, outer) = match (found.starts_with(at), at.starts_with(&found)) {
                (true, _) => (name, *other),
                (_, true) => (*other, name),
                _ => continue,
            };
            return usage(format!(
                "the share {inner} is inside the share {outer}: choose directories beside each \
                 other"
            ));
        }
        real.push((name, found));
        let dir = Arc::new(open_dir(&share.path)?);
        let same = earlier.and_then(|earlier| earlier.same(name, &dir));
        let limits = ShareLimits::new((share, &dir), same.map(|one| &one.limits));
        opened.push(OpenShare { share: share.clone(), dir, limits });
    }
    Ok(opened)
}

/// Checks that a token permits the direction of a request.
fn check_rights(grant: &Grant, open: &Open) -> Result<(), Error> {
    let is_push = open.direction == Direction::Push;
    let action = match () {
        () if is_push && !grant.write => "uploads",
        () if open.remove_sources == Some(true) && !grant.write => "removal of files",
        () if !is_push && !grant.read => "downloads",
        // The results would reveal which files exist.
        () if !grant.read && (open.dry_run || open.checksum) => "dry runs and comparisons",
        () if !grant.read && open.delete.is_some() => "deletion, which lists names",
        () => return Ok(()),
    };
    let text = format!(
        "the token {} does not permit {action}: ask the administrator of the server for one that \
         does",
        grant.name
    );
    Err(Failure::new(Cause::Permission, text).into())
}

/// True if a client with this token and address may use a share.
fn is_permitted(share: &Share, grant: Option<&Grant>, peer: Option<IpAddr>) -> bool {
    grant.and_then(|grant| grant.share.as_ref()).is_none_or(|only| *only == share.name)
        && peer.is_none_or(|address| share.admits(address))
}

/// Returns the share of a request.
fn chosen<'s>(
    shares: &'s [OpenShare],
    grant: Option<&Grant>,
    peer: Option<IpAddr>,
    open: &Open,
) -> Result<&'s OpenShare, Error> {
    let is_permitted = |share: &Share| is_permitted(share, grant, peer);
    let permitted = || {
        let names: Vec<&str> = shares
            .iter()
            .filter(|one| is_permitted(&one.share))
            .map(|one| &*one.share.name)
            .collect();
        match names.is_empty() {
            true => "ask the administrator of the server for access".to_owned(),
            false => format!("begin the path with one of {}", names.join(", ")),
        }
    };
    let failed = |text: String| Err(Failure::new(Cause::NotFound, text).into());
    let mut names = open.paths.iter().map(|path| first_name(&path.0));
    let name = names.next().unwrap_or_default();
    if name.is_empty() {
        return failed(format!("the path has no share: {}", permitted()));
    }
    let shown = String::from_utf8_lossy(name);
    if let Some(other) = names.find(|other| *other != name) {
        let other = String::from_utf8_lossy(other);
        let text = format!(
            "the paths are in two shares, {shown} and {other}: copy them with separate commands"
        );
        return Err(Failure::new(Cause::Usage, text).into());
    }
    // Names of other shares are not told apart from those that do not exist.
    let found = shares.iter().find(|one| one.share.name.as_bytes() == name);
    match found.filter(|found| is_permitted(&found.share)) {
        Some(found) => Ok(found),
        None => failed(format!("there is no share {shown:?} for you: {}", permitted())),
    }
}

/// Returns the place of a request in a directory that its token may limit further.
fn limited(
    dir: Arc<Dir>,
    grant: Option<&Grant>,
    open: &mut Open,
    (share, is_read_only): (PathBuf, bool),
) -> Result<Place, Error> {
    let prefix = grant.map(|grant| &*grant.prefix).unwrap_or(Path::new(""));
    let mount = match prefix.as_os_str().is_empty() {
        true => share.clone(),
        false => share.join(prefix),
    };
    if mount.as_os_str().is_empty() {
        let limits = ShareLimits::default();
        return Ok(Place { root: PathRoot::Dir(dir), is_read_only, mount, limits });
    }
    let refused = |path: &[u8]| {
        let shown = String::from_utf8_lossy(path).into_owned();
        let name = grant.map_or("", |grant| &grant.name);
        let text = match prefix.as_os_str().is_empty() {
            true => format!("the path {shown:?} is not in the share {}", share.display()),
            false => format!("the token {name} is limited to {}, not {shown:?}", mount.display()),
        };
        Error::from(Failure::new(Cause::Permission, text))
    };
    for path in &mut open.paths {
        path.0 = below(&path.0, &mount).ok_or_else(|| refused(&path.0))?.to_vec();
    }
    for path in open.earlier.iter_mut().flat_map(directories) {
        // Others are relative to the destination.
        if path.starts_with(b"/") {
            let rest = below(path, &mount).ok_or_else(|| refused(path))?;
            *path = [b"/", rest].concat();
        }
    }
    let dir = match prefix.as_os_str().is_empty() {
        true => dir,
        false => Arc::new(dir.open_beneath(prefix.as_os_str().as_bytes()).map_err(|e| {
            let text = format!(
                "cannot use {}, to which the token is limited: {}",
                mount.display(),
                os_message(&e)
            );
            Error::from(Failure::new(Cause::NotFound, text))
        })?),
    };
    Ok(Place { root: PathRoot::Dir(dir), is_read_only, mount, limits: ShareLimits::default() })
}

/// Returns the directories of earlier versions.
fn directories(rules: &mut EarlierRules) -> impl Iterator<Item = &mut Vec<u8>> {
    let backup = rules.backup.as_mut().and_then(|backup| backup.dir.as_mut());
    backup.into_iter().chain(rules.link_dest.iter_mut().flatten()).map(|dir| &mut dir.0)
}

/// Returns a path without slashes and `./` at its start.
fn trimmed(mut path: &[u8]) -> &[u8] {
    loop {
        path = match path {
            [b'/', rest @ ..] | [b'.', b'/', rest @ ..] => rest,
            b"." => b"",
            _ => return path,
        };
    }
}

/// Returns the first component of a path.
fn first_name(path: &[u8]) -> &[u8] {
    let path = trimmed(path);
    path.split(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Returns what follows `mount` in a path; `None` if it does not begin so.
fn below<'p>(path: &'p [u8], mount: &Path) -> Option<&'p [u8]> {
    let mut rest = path;
    for name in mount.components() {
        let name = name.as_os_str().as_bytes();
        rest = trimmed(rest).strip_prefix(name)?;
        if !rest.is_empty() && !rest.starts_with(b"/") {
            return None;
        }
    }
    let start = rest.iter().position(|&byte| byte != b'/').unwrap_or(rest.len());
    Some(&rest[start..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::access::Network;
    use crate::model::client_key::ClientKeyPair;
    use bankfull_control::Rate;
    use bankfull_proto::wire::control::Bytes;

    fn request(direction: Direction, paths: &[&str]) -> Open {
        let paths = paths.iter().map(|path| PathBytes(path.as_bytes().to_vec())).collect();
        Open { direction, paths, ..Open::default() }
    }

    fn pull(paths: &[&str]) -> Open {
        request(Direction::Pull, paths)
    }

    fn enter(control: &AccessControl, token: Option<&[u8]>) -> Result<Client, Error> {
        let hello = Hello { token: token.map(<[u8]>::to_vec), ..Hello::default() };
        control.authenticate(&hello, None)
    }

    fn grant(share: Option<&str>, prefix: &str) -> Grant {
        let mut grant = Grant::new("t", TokenHash::of(b"t"));
        (grant.share, grant.prefix) = (share.map(str::to_owned), prefix.into());
        grant
    }

    /// Directory with the shares `data` and `logs`, and a control with these tokens.
    fn control(grants: Option<Vec<Grant>>) -> (tempfile::TempDir, AccessControl) {
        let dir = tempfile::tempdir().unwrap();
        for name in ["d/alice/deep", "l"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let mut logs = Share::new("logs", dir.path().join("l"));
        (logs.read_only, logs.allow) = (true, vec!["10.0.0.0/8".parse::<Network>().unwrap()]);
        let shares = vec![Share::new("data", dir.path().join("d")), logs];
        let access = Access { grants, ..Access::new(Served::Shares(shares)) };
        (dir, AccessControl::open(&access).unwrap())
    }

    #[test]
    fn first_component_names_the_share() {
        let (_dir, control) = control(None);
        let place = |open: &mut Open, peer: &str| {
            control.place(&Client::default(), Some(peer.parse().unwrap()), open)
        };
        let mut open = pull(&["/data/alice/x", "./data//y/", "data", "data/./z"]);
        let found = place(&mut open, "192.0.2.1").unwrap();
        assert!(!found.is_read_only && found.mount == Path::new("data"));
        let rest: Vec<&[u8]> = open.paths.iter().map(|path| &*path.0).collect();
        assert_eq!(rest, [&b"alice/x"[..], b"y/", b"", b"./z"]);
        assert!(place(&mut pull(&["logs/x"]), "10.1.2.3").unwrap().is_read_only);
        for (paths, says) in [
            (&["x/y"][..], "there is no share \"x\" for you: begin the path with one of data"),
            (&["/"], "the path has no share: begin the path with one of data"),
            (&[], "the path has no share"),
            (&["data/a", "logs/b"], "in two shares, data and logs: copy them with separate"),
            (&["logs/x"], "there is no share \"logs\" for you: begin the path with one of data"),
            (&["../data"], "there is no share \"..\" for you"),
            (&["da*/x"], "there is no share \"da*\""),
        ] {
            let error = place(&mut pull(paths), "192.0.2.1").unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn tests_have_the_limits_of_the_slowest_share() {
        let dir = tempfile::tempdir().unwrap();
        let share = |name: &str, rate: Option<f64>, allow: &str| {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            let mut share = Share::new(name, dir.path().join(name));
            share.max_rate = rate.map(Rate::from_bits_per_sec);
            share.allow = vec![allow.parse::<Network>().unwrap()];
            share
        };
        let shares = vec![
            share("a", Some(2e6), "10.0.0.0/8"),
            share("b", Some(1e6), "10.1.0.0/16"),
            share("c", None, "10.2.0.0/16"),
        ];
        let control = AccessControl::open(&Access::new(Served::Shares(shares))).unwrap();
        let rate = |peer: &str| {
            let limits = control.test_limits(&Client::default(), Some(peer.parse().unwrap()));
            limits.map(|limits| limits.sending_rate())
        };
        assert_eq!(rate("10.1.0.1").unwrap(), Some(Rate::from_bits_per_sec(1e6)));
        assert_eq!(rate("10.2.0.1").unwrap(), Some(Rate::from_bits_per_sec(2e6)));
        let error = rate("192.0.2.1").unwrap_err().to_string();
        assert!(error.contains("there is no share for you"), "{error}");
    }

    #[test]
    fn token_is_limited_to_its_share_and_prefix() {
        let (_dir, control) = control(Some(vec![grant(Some("data"), "alice")]));
        let client = enter(&control, Some(b"t")).unwrap();
        assert_eq!(client.name(), Some("t"));
        let place = |open: &mut Open| control.place(&client, None, open);
        let mut open = pull(&["data/alice/deep"]);
        let PathRoot::Dir(root) = place(&mut open).unwrap().root else { panic!("no directory") };
        assert!(root.open_beneath(b"deep").is_ok());
        assert_eq!(open.paths[0].0, b"deep");
        for path in ["data", "data/", "data/bob", "data/alicex", "logs/alice", "data/../alice"] {
            assert!(place(&mut pull(&[path])).is_err(), "{path}");
        }
        let mut open = request(Direction::Push, &["data/alice"]);
        let dirs = ["/data/alice/old", "old"].map(|dir| Bytes(dir.as_bytes().to_vec()));
        open.earlier = Some(EarlierRules { backup: None, link_dest: Some(dirs.to_vec()) });
        place(&mut open).unwrap();
        let earlier = open.earlier.unwrap().link_dest.unwrap();
        assert_eq!(earlier.iter().map(|dir| &*dir.0).collect::<Vec<_>>(), [&b"/old"[..], b"old"]);
        let dirs = Some(vec![Bytes(b"/data/bob".to_vec())]);
        let mut open = request(Direction::Push, &["data/alice"]);
        open.earlier = Some(EarlierRules { backup: None, link_dest: dirs });
        assert!(place(&mut open).is_err());
    }

    #[test]
    fn prefix_limits_a_root_without_shares() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("in")).unwrap();
        let mut access = Access::new(Served::Root(dir.path().to_owned()));
        (access.grants, access.read_only) = (Some(vec![grant(None, "in")]), true);
        let control = AccessControl::open(&access).unwrap();
        let client = enter(&control, Some(b"t")).unwrap();
        let mut open = pull(&["/in/x"]);
        assert!(control.place(&client, None, &mut open).unwrap().is_read_only);
        assert_eq!(open.paths[0].0, b"x");
        assert!(control.place(&client, None, &mut pull(&["x"])).is_err());
        control.set_grants(&[grant(Some("in"), "")]);
        let other = enter(&control, Some(b"t")).unwrap();
        let error = control.place(&other, None, &mut pull(&["in/x"])).unwrap_err().to_string();
        assert!(error.contains("this server has none"), "{error}");
    }

    #[test]
    fn token_permits_directions() {
        let rights = |read, write| {
            let grant = Grant { read, write, ..grant(None, "") };
            let (_dir, control) = control(Some(vec![grant]));
            let client = enter(&control, Some(b"t")).unwrap();
            let mut removing = pull(&["data/x"]);
            removing.remove_sources = Some(true);
            let mut comparing = request(Direction::Push, &["data"]);
            comparing.checksum = true;
            [pull(&["data/x"]), request(Direction::Push, &["data"]), removing, comparing]
                .map(|mut open| control.place(&client, None, &mut open).is_ok())
        };
        assert_eq!(rights(true, false), [true, false, false, false]);
        assert_eq!(rights(false, true), [false, true, false, false]);
        assert_eq!(rights(true, true), [true; 4]);
    }

    #[test]
    fn credentials_are_checked_again_when_they_change() {
        let (dir, control) = control(Some(vec![grant(None, "")]));
        let client = enter(&control, Some(b"t")).unwrap();
        assert!(control.check(&client).is_ok());
        assert!(enter(&control, None).is_err() && enter(&control, Some(b"u")).is_err());
        // A refused change leaves the rules as they were.
        let missing = Access::new(Served::Root("/nonexistent/x".into()));
        assert!(control.replace(&missing).is_err());
        assert!(control.check(&client).is_ok());
        // Other permissions end it, too.
        control.set_grants(&[grant(None, "alice")]);
        assert!(control.check(&client).is_err());
        let mut expired = grant(None, "");
        expired.expires = Some(SystemTime::UNIX_EPOCH);
        let mut access = Access::new(Served::Root(dir.path().to_owned()));
        (access.token, access.grants) = (Some(b"own".to_vec()), Some(vec![expired]));
        control.replace(&access).unwrap();
        let error = control.check(&client).unwrap_err().to_string();
        assert!(error.contains("the token t has expired or was revoked"), "{error}");
        assert!(enter(&control, Some(b"own")).unwrap().name().is_none());
        let error = enter(&control, Some(b"t")).unwrap_err().to_string();
        assert!(error.contains("the token t has expired"), "{error}");
    }

    #[test]
    fn refused_rules_change_no_limit() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["d", "m"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let access = |max_rate, more: &str| {
            let mut data = Share::new("data", dir.path().join("d"));
            data.max_rate = Some(Rate::from_bits_per_sec(max_rate));
            Access::new(Served::Shares(vec![data, Share::new("more", dir.path().join(more))]))
        };
        let control = AccessControl::open(&access(1e6, "m")).unwrap();
        let running = control.place(&Client::default(), None, &mut pull(&["data"])).unwrap().limits;
        let rate = || running.sending_rate();
        assert!(control.replace(&access(2e6, "none")).is_err());
        assert_eq!(rate(), Some(Rate::from_bits_per_sec(1e6)));
        control.replace(&access(2e6, "m")).unwrap();
        assert_eq!(rate(), Some(Rate::from_bits_per_sec(2e6)));
        // The share without a limit lifts that of running sessions.
        let mut access = access(2e6, "m");
        let Served::Shares(shares) = &mut access.served else { panic!("no shares") };
        shares[0].max_rate = None;
        control.replace(&access).unwrap();
        assert_eq!(rate(), None);
    }

    #[test]
    fn key_is_proven_before_it_counts() {
        let (own, other) = ([7; 32], [8; 32]);
        let pair = ClientKeyPair::generate().unwrap();
        let hello = Hello { key: Some(pair.prove(&own)), ..Hello::default() };
        let keyed = Grant { credential: pair.public().into(), ..grant(Some("data"), "") };
        let (_dir, control) = control(Some(vec![keyed.clone()]));
        let client = control.authenticate(&hello, Some(&own)).unwrap();
        assert!(client.name() == Some("t") && control.check(&client).is_ok());
        for binding in [Some(&other), None] {
            let error = control.authenticate(&hello, binding).unwrap_err().to_string();
            assert!(error.contains("not proven for this connection"), "{error}");
        }
        // Neither its public key nor a token with a key's bytes is a credential.
        for token in [pair.public().to_string().as_bytes(), &pair.public().0[..]] {
            assert!(enter(&control, Some(token)).is_err());
        }
        control.set_grants(&[]);
        let error = control.check(&client).unwrap_err().to_string();
        assert!(error.contains("the token t has expired or was revoked"), "{error}");
        let error = control.authenticate(&hello, Some(&own)).unwrap_err().to_string();
        assert!(error.contains(&format!("the key {} is unknown", pair.public())), "{error}");
    }

    #[test]
    fn unproven_key_does_not_count_later() {
        let pair = ClientKeyPair::generate().unwrap();
        let hello = Hello { key: Some(pair.prove(&[7; 32])), ..Hello::default() };
        let (_dir, control) = control(None);
        let client = control.authenticate(&hello, Some(&[8; 32])).unwrap();
        assert!(control.check(&client).is_ok());
        control.set_grants(&[Grant::new("t", pair.public())]);
        let error = control.check(&client).unwrap_err().to_string();
        assert!(error.contains("a token is needed from now on"), "{error}");
    }

    #[test]
    fn contradicting_shares_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let refused = |shares: &[(&str, &str)], says: &str| {
            let share = |(name, path): &(&str, &str)| Share::new(*name, dir.path().join(path));
            let access = Access::new(Served::Shares(shares.iter().map(share).collect()));
            let error = AccessControl::open(&access).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        };
        refused(&[("x", "a"), ("y", "a/b")], "the share y is inside the share x");
        refused(&[("x", "a/b"), ("y", "a")], "the share x is inside the share y");
        refused(&[("x", "a"), ("y", "a")], "the share y is inside the share x");
        refused(&[("x", "none")], "cannot serve the share x, ");
        refused(&[("x/y", "a")], "the name of a share has letters");
    }
}
