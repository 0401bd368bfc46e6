//! `bankfull token`: the tokens of a daemon. `bankfull login`: the other side of an invite.

mod invite;
mod login;
mod store;

pub(crate) use login::run as login;
pub(crate) use store::{Store, Version};

use crate::address::host_name;
use crate::config;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::flags::{Listen, TokenAction, TokenFlags};
use crate::output::{Output, printable, rfc3339};
use bankfull::{
    Credential, Error, ErrorKind, Fingerprint, Grant, TokenHash, certificate_fingerprint,
    check_prefix, default_state_dir, new_token, server_fingerprint,
};
use invite::{Invite, InviteFor};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::{Stored, rights_of};

/// Runs the action.
pub(crate) fn run(flags: &TokenFlags) -> Exit {
    let environment = Environment::read();
    let mut output = Output::standard();
    let done = Tokens::find(flags, &environment).and_then(|tokens| match flags.action {
        TokenAction::Create => tokens.create(&mut output),
        TokenAction::List => tokens.list(&mut output),
        TokenAction::Revoke => tokens.revoke(&mut output),
    });
    match (done, output.failure()) {
        (Ok(()), None) => Exit::Done,
        (Ok(()), Some(why)) => {
            output.error(&why);
            Exit::Local
        }
        (Err(error), _) => {
            output.error(&error.to_string());
            error.kind().into()
        }
    }
}

/// Returns the directory of a daemon's state: of a flag, else of the variable, else the default.
///
/// # Errors
/// No home directory.
pub(crate) fn state_dir(
    flag: Option<&PathBuf>,
    environment: &Environment,
) -> Result<PathBuf, Error> {
    flag.or(environment.state_dir.as_ref()).cloned().map_or_else(default_state_dir, Ok)
}

/// Returns the directory that a token permits, in the paths of clients.
fn place_of(grant: &Grant) -> PathBuf {
    let share = grant.share.iter().map(Path::new);
    let parts = share.chain([&*grant.prefix]).filter(|part| !part.as_os_str().is_empty());
    parts.collect()
}

/// Returns a time without its fraction: the file has whole seconds.
fn in_whole_seconds(at: SystemTime) -> SystemTime {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

/// Adds a token to the file.
///
/// # Errors
/// A name that is taken; a file that cannot be changed.
fn insert(store: &Store, grant: Grant) -> Result<(), Error> {
    store.change(|tokens| {
        let name = grant.name.clone();
        if tokens.contains_key(&name) {
            let text = format!(
                "there is a token {name}: choose another name, or revoke it with bankfull token \
                 revoke {name}"
            );
            return Err(Error::new(ErrorKind::Usage, text));
        }
        let has_it = |(_, one): &(&String, &Stored)| one.grant.credential == grant.credential;
        if let Some((other, _)) = tokens.iter().find(has_it) {
            let text = format!(
                "the key is stored already, as {other}: revoke that first with bankfull token \
                 revoke {other}"
            );
            return Err(Error::new(ErrorKind::Usage, text));
        }
        let created = Some(in_whole_seconds(SystemTime::now()));
        tokens.insert(name, Stored { grant, created });
        Ok(())
    })
}

/// Returns the location of a daemon's directory.
fn url_of(host: &str, port: u16, place: &str) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let port = match port {
        bankfull::DEFAULT_PORT => String::new(),
        other => format!(":{other}"),
    };
    format!("bankfull://{host}{port}/{place}")
}

/// Adds a token with all permissions, and returns it.
///
/// # Errors
/// A name that is taken; a file that cannot be changed.
pub(crate) fn add(store: &Store, name: &str) -> Result<String, Error> {
    let token = new_token()?;
    insert(store, Grant::new(name, TokenHash::of(token.as_bytes())))?;
    Ok(token)
}

/// Removes a token that was just added.
pub(crate) fn remove_created(store: &Store, name: &str) {
    // On failure, the user can revoke the token.
    let _ = store.change(|tokens| {
        tokens.remove(name);
        Ok(())
    });
}

/// Returns the line of an invite to a running daemon.
pub(crate) fn invite_line(
    (host, port): (&str, u16),
    place: &str,
    fingerprint: Fingerprint,
    token: String,
) -> String {
    let credential = InviteFor::Token(token);
    Invite { url: url_of(host, port, place), fingerprint, credential }.line()
}

/// An action and the daemon that it is about.
struct Tokens<'f> {
    flags: &'f TokenFlags,
    state_dir: PathBuf,
    store: Store,
    /// Certificate of the administrator, if the daemon has one.
    certificate: Option<PathBuf>,
    /// Port in the daemon's file.
    port: Option<u16>,
    /// True if the tokens are for the host's daemon, which has no share yet.
    has_no_share: bool,
}

impl<'f> Tokens<'f> {
    /// Finds the daemon's state.
    ///
    /// # Errors
    /// A file of the daemon that cannot be read; no home directory.
    fn find(flags: &'f TokenFlags, environment: &Environment) -> Result<Self, Error> {
        let usage = |why: String| Error::new(ErrorKind::Usage, why);
        let served = config::daemon_settings(environment).map_err(usage)?;
        let flag = flags.state_dir.as_ref().or(match environment.state_dir {
            Some(_) => None,
            None => served.state_dir.as_ref(),
        });
        let state_dir = state_dir(flag, environment)?;
        // Flags may name another daemon than the file does.
        let is_other = flags.state_dir.is_some() && flags.state_dir != served.state_dir;
        let tokens = match is_other {
            true => flags.tokens.as_deref(),
            false => flags.tokens.as_deref().or(served.tokens.as_deref()),
        };
        let certificate = flags.certificate.clone().or(match is_other {
            true => None,
            false => served.certificate,
        });
        let store = Store::new(tokens, &state_dir);
        let has_no_share = served.has_no_share && flags.state_dir.is_none();
        let port = served.port;
        Ok(Self { flags, state_dir, store, certificate, port, has_no_share })
    }

    /// Returns the name that the action needs.
    fn name(&self) -> Result<&str, Error> {
        let action = match self.flags.action {
            TokenAction::Create => "create",
            TokenAction::List => "list",
            TokenAction::Revoke => "revoke",
        };
        let missing = || {
            let text = format!("the name is missing: write bankfull token {action} NAME");
            Error::new(ErrorKind::Usage, text)
        };
        self.flags.name.as_deref().ok_or_else(missing)
    }

    fn create(&self, output: &mut Output) -> Result<(), Error> {
        let name = self.name()?;
        let (token, credential) = match self.flags.key {
            Some(key) => (None, Credential::Key(key)),
            None => {
                let token = new_token()?;
                let hash = TokenHash::of(token.as_bytes());
                (Some(token), Credential::Token(hash))
            }
        };
        let mut grant = Grant::new(name, credential);
        (grant.read, grant.write) = (!self.flags.write_only, !self.flags.read_only);
        grant.share.clone_from(&self.flags.share);
        grant.prefix = self.flags.prefix.clone().unwrap_or_default();
        grant.expires = self.flags.expires.map(in_whole_seconds);
        check_prefix(&grant.prefix)?;
        if grant.is_expired(SystemTime::now()) {
            let text = "the time of --expires is over: give a later one";
            return Err(Error::new(ErrorKind::Usage, text));
        }
        let line = self.invite(&grant, token.as_deref())?.as_ref().map(Invite::line);
        insert(&self.store, grant)?;
        if self.flags.json {
            let key = self.flags.key.map(|key| key.to_string());
            let shown = json!({ "name": name, "token": token, "key": key, "invite": line });
            output.data_line(&shown.to_string());
            return Ok(());
        }
        line.iter().chain(&token).take(1).for_each(|text| output.data_line(text));
        let file = printable(self.store.path());
        let stored = match self.flags.key {
            Some(_) => format!("stored the key {name} in {file}"),
            None => format!("stored the hash of the token {name} in {file}; it is shown only now"),
        };
        let way_on = match (line, token) {
            (Some(_), _) => "give the line to bankfull login on the other side",
            (None, Some(_)) => "give it to clients by --token-file",
            (None, None) => "its client gives the private key by --token-file",
        };
        output.message(&format!("{stored}: {way_on}"));
        if self.has_no_share {
            output.message(
                "note: /etc/bankfull/serve.toml has no share, so that this token is for bankfull \
                 serve ROOT alone: add [share.NAME] first for the daemon of this host",
            );
        }
        Ok(())
    }

    /// Returns the invite, if one is wanted; a key has no token.
    fn invite(&self, grant: &Grant, token: Option<&str>) -> Result<Option<Invite>, Error> {
        if !self.flags.invite {
            return Ok(None);
        }
        let usage = |text: &str| Err(Error::new(ErrorKind::Usage, text));
        let place = place_of(grant);
        let Some(place) = place.to_str().filter(|text| !text.contains(char::is_whitespace)) else {
            return usage("an invite cannot have a prefix with spaces: leave out --invite");
        };
        let (host, port) = match &self.flags.address {
            Some(Listen { host, port }) if !host.is_empty() => (host.clone(), *port),
            Some(Listen { port, .. }) => (host_name(), *port),
            None => (host_name(), self.port.unwrap_or(bankfull::DEFAULT_PORT)),
        };
        if port == 0 {
            return usage("an invite needs the port of the daemon: give --address HOST:PORT");
        }
        let fingerprint = match &self.certificate {
            Some(file) => certificate_fingerprint(file)?,
            None => server_fingerprint(&self.state_dir)?,
        };
        let url = url_of(&host, port, place);
        let credential = match grant.credential {
            Credential::Key(key) => InviteFor::Key(key),
            Credential::Token(_) => InviteFor::Token(token.unwrap_or_default().to_owned()),
        };
        Ok(Some(Invite { url, fingerprint, credential }))
    }

    fn list(&self, output: &mut Output) -> Result<(), Error> {
        let tokens = self.store.read()?.unwrap_or_default();
        if tokens.is_empty() && !self.flags.json {
            output.message(&format!("no tokens in {}", printable(self.store.path())));
        }
        let time = |at: SystemTime| rfc3339(at.duration_since(UNIX_EPOCH).unwrap_or_default());
        let now = SystemTime::now();
        for (name, Stored { grant, created }) in &tokens {
            let rights = rights_of(grant);
            let (expires, is_expired) = (grant.expires.map(time), grant.is_expired(now));
            let key = match grant.credential {
                Credential::Key(key) => Some(key.to_string()),
                Credential::Token(_) => None,
            };
            if self.flags.json {
                let line = json!({
                    "name": name,
                    "key": key,
                    "rights": rights,
                    "share": grant.share,
                    "prefix": grant.prefix.to_string_lossy(),
                    "created": created.map(time),
                    "expires": expires,
                    "expired": is_expired,
                });
                output.data_line(&line.to_string());
                continue;
            }
            let mut line = format!("{name}: {rights}");
            let place = place_of(grant);
            if !place.as_os_str().is_empty() {
                line += &format!(" in {}", printable(&place));
            }
            if let Some(at) = expires {
                line += &format!(", {} {at}", if is_expired { "expired" } else { "until" });
            }
            if let Some(key) = key {
                line += &format!(", {key}");
            }
            output.data_line(&line);
        }
        Ok(())
    }

    fn revoke(&self, output: &mut Output) -> Result<(), Error> {
        let name = self.name()?;
        self.store.change(|tokens| match tokens.remove(name) {
            Some(_) => Ok(()),
            None => {
                let file = printable(self.store.path());
                let text = format!("there is no token {name} in {file}: see bankfull token list");
                Err(Error::new(ErrorKind::Usage, text))
            }
        })?;
        if !self.flags.json {
            output.message(&format!(
                "revoked the token {name}; a daemon that runs ends its sessions within a second"
            ));
        }
        Ok(())
    }
}
