//! Rules of the daemon for its clients: shares and tokens, which are read again when they change.

use super::service;
use crate::environment::Environment;
use crate::flags::ServeFlags;
use crate::output::printable;
use crate::tokens::{Store, Version, state_dir};
use crate::{config, token};
use bankfull::{Access, EVENT_LOG_TARGET, Error, ErrorKind, Grant, Served, Server, Share};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tracing::{info, warn};

/// Interval at which a change of the tokens is looked for. (chosen: below the time of the command
/// that follows a new token; a stat(2) each time)
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Flags and files that the rules come from.
pub(super) struct Rules {
    flags: ServeFlags,
    environment: Environment,
    store: Store,
    /// State of the tokens before they are read.
    first_version: Option<Version>,
    /// Settings of the files at the start, which flags have taken.
    settings: BTreeMap<String, String>,
}

impl Rules {
    /// Finds the files.
    ///
    /// # Errors
    /// [`ErrorKind::Local`] without a state directory.
    pub(super) fn find(flags: ServeFlags, environment: Environment) -> Result<Self, Error> {
        let state_dir = state_dir(flags.state_dir.as_ref(), &environment)?;
        let store = Store::new(flags.tokens.as_deref(), &state_dir);
        let first_version = store.version();
        let mut rules =
            Self { flags, environment, store, first_version, settings: BTreeMap::new() };
        rules.settings = rules.read_settings()?;
        Ok(rules)
    }

    fn read_settings(&self) -> Result<BTreeMap<String, String>, Error> {
        let settings = config::serve_settings(&self.environment, self.flags.root.is_some());
        settings.map_err(|problem| Error::new(ErrorKind::Usage, problem))
    }

    /// Returns a warning about settings that differ from those in force, if there are any.
    ///
    /// # Errors
    /// A file that cannot be read.
    fn outdated(&self) -> Result<Option<String>, Error> {
        let now = self.read_settings()?;
        let keys: BTreeSet<&String> = self.settings.keys().chain(now.keys()).collect();
        let changed = keys.into_iter().filter(|key| self.settings.get(*key) != now.get(*key));
        let changed: Vec<&str> = changed.map(String::as_str).collect();
        let text = format!(
            "changed settings of [serve] need a restart of the daemon: {}",
            changed.join(", ")
        );
        Ok((!changed.is_empty()).then_some(text))
    }

    /// Returns the file of the tokens.
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Reads the rules; also returns a warning about the token.
    ///
    /// # Errors
    /// No directory to serve; tokens that cannot be read.
    pub(super) fn read(&self, shares: Vec<Share>) -> Result<(Access, Option<String>), Error> {
        let served = match &self.flags.root {
            Some(root) => Served::Root(root.clone()),
            None if !shares.is_empty() => Served::Shares(shares),
            None => {
                let text = "the operand is missing: write bankfull serve ROOT, or shares \
                            [share.NAME] in /etc/bankfull/serve.toml (see bankfull serve --help)";
                return Err(Error::new(ErrorKind::Usage, text));
            }
        };
        let token = token::read(self.flags.token_file.as_deref(), &self.environment)?;
        if let Some(key) = &token.key {
            let text = format!(
                "the token file has the private key of a client: leave it there, and add {} by \
                 bankfull token create NAME --key",
                key.public()
            );
            return Err(Error::new(ErrorKind::Usage, text));
        }
        let tokens = self.grants()?;
        if let (Some(path), None) = (&self.flags.tokens, &tokens) {
            let path = path.display();
            let text = format!(
                "the tokens {path} do not exist: run bankfull token create NAME --tokens {path}"
            );
            return Err(Error::new(ErrorKind::Local, text));
        }
        let mut access = Access::new(served);
        access.token = token.bytes;
        access.grants = tokens;
        access.read_only = self.flags.read_only;
        Ok((access, token.warning))
    }

    fn grants(&self) -> Result<Option<Vec<Grant>>, Error> {
        let tokens = self.store.read()?;
        Ok(tokens.map(|all| all.into_values().map(|one| one.grant).collect()))
    }

    fn read_again(&self) -> Result<Access, Error> {
        let shares = match &self.flags.root {
            Some(_) => Vec::new(),
            None => config::shares(&self.environment)
                .map_err(|problem| Error::new(ErrorKind::Usage, problem))?,
        };
        self.read(shares).map(|(access, _)| access)
    }
}

/// Applies changed rules to a running daemon.
pub(super) struct Reloader<W> {
    rules: Rules,
    server: Arc<Server>,
    /// Shows a warning.
    warn: W,
}

impl<W: Fn(String) + Send + 'static> Reloader<W> {
    /// Takes the rules in force.
    pub(super) fn new(rules: Rules, server: Arc<Server>, warn: W) -> Self {
        Self { rules, server, warn }
    }

    /// Starts the thread that reads the rules again when the tokens change.
    ///
    /// Returns the function that has it read them at once, and never waits.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(self) -> Result<impl Fn() + Send + 'static, Error> {
        let (ask, asked) = mpsc::channel();
        let kept = ask.clone();
        let work = move || {
            // A sender of its own keeps the channel open.
            let _kept = kept;
            let mut seen = self.rules.first_version;
            let mut failure = None;
            loop {
                let is_asked = asked.recv_timeout(POLL_INTERVAL).is_ok();
                let version = self.rules.store.version();
                if is_asked && let Err(error) = self.server.reload_certificate() {
                    self.report(format!("the earlier certificate stays in force: {error}"));
                }
                let result = match (is_asked, version != seen || failure.is_some()) {
                    (true, _) => service::reloading(|| self.reload()),
                    (false, true) => self.reload_tokens(),
                    (false, false) => continue,
                };
                seen = version;
                let now = result.err().map(|error| error.to_string());
                // One line each, though it is tried again until it succeeds.
                if let Some(text) =
                    now.as_ref().filter(|now| is_asked || Some(*now) != failure.as_ref())
                {
                    self.report(format!("the earlier shares and tokens stay in force: {text}"));
                }
                failure = now;
            }
        };
        thread::Builder::new().spawn(work).map_err(|e| Error::thread_start(&e))?;
        Ok(move || {
            // The thread lasts as long as the program.
            let _ = ask.send(());
        })
    }

    /// Logs and shows a warning.
    fn report(&self, text: String) {
        warn!(target: EVENT_LOG_TARGET, text = &*text, "warning");
        (self.warn)(text);
    }

    /// Reads the rules again. Those in force stay if the new ones cannot be used.
    fn reload(&self) -> Result<(), Error> {
        let access = self.rules.read_again()?;
        self.refuse_opening(access.needs_token())?;
        let outdated = self.rules.outdated()?;
        self.server.set_access(&access)?;
        info!("shares and tokens read again");
        outdated.into_iter().for_each(|text| self.report(text));
        Ok(())
    }

    /// Reads the tokens again, and nothing else.
    fn reload_tokens(&self) -> Result<(), Error> {
        let grants = self.rules.grants()?;
        self.refuse_opening(grants.is_some())?;
        if let Some(grants) = grants {
            self.server.set_grants(&grants);
            info!("tokens read again");
        }
        Ok(())
    }

    /// Refuses to drop the token requirement: a lost file must not open the daemon.
    fn refuse_opening(&self, needs_token: bool) -> Result<(), Error> {
        if needs_token || !self.server.needs_token() {
            return Ok(());
        }
        let path = printable(self.rules.store.path());
        let text = format!(
            "the tokens {path} are gone: restore them, or restart the daemon to serve without"
        );
        Err(Error::new(ErrorKind::Local, text))
    }
}
