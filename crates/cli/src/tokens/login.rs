//! `bankfull login`: stores the daemon of an invite as a remote of the user; `--key` prints the
//! public key of the user, for an invite without a token.

use super::invite::{Invite, InviteFor, MAX_BYTES};
use crate::config;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::flags::LoginFlags;
use crate::output::{Output, printable};
use crate::signals;
use crate::token;
use bankfull::{ClientKey, ClientKeyPair, Error, ErrorKind};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Name of the user's private key beside the configuration.
const KEY_FILE: &str = "client.key";

/// Stores the daemon, or prints the key.
pub(crate) fn run(flags: &LoginFlags) -> Exit {
    let mut output = Output::standard();
    let environment = Environment::read();
    let done = match flags.key {
        true => own_key(&environment).map(|(key, text)| {
            output.data_line(&key.to_string());
            text
        }),
        false => store(flags, &environment, &mut output),
    };
    match (done, output.failure()) {
        (Ok(text), None) => {
            output.message(&text);
            Exit::Done
        }
        (Ok(_), Some(why)) => {
            output.error(&why);
            Exit::Local
        }
        (Err(error), _) => {
            output.error(&error.to_string());
            error.kind().into()
        }
    }
}

fn usage(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, text)
}

/// Returns the configuration file and its directory, which is created if missing.
fn own_dir(environment: &Environment) -> Result<(PathBuf, PathBuf), Error> {
    let file = config::user_file(environment).ok_or_else(|| {
        usage("there is no configuration file to store it in: set HOME, or unset BANKFULL_CONFIG")
    })?;
    let dir = file.parent().map(Path::to_owned).unwrap_or_default();
    let dir_failed = |e| Error::local(format!("cannot create {}", printable(&dir)), &e);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(dir_failed)?;
    Ok((file, dir))
}

/// Returns the public key of the user, creating one if needed, and a message.
fn own_key(environment: &Environment) -> Result<(ClientKey, String), Error> {
    let path = own_dir(environment)?.1.join(KEY_FILE);
    let is_new = path.symlink_metadata().is_err();
    if is_new {
        let pem = ClientKeyPair::generate()?.to_pem()?;
        write_private(&path, &pem, |temp, path| match fs::hard_link(temp, path) {
            // Another login was faster: its key counts.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => fs::remove_file(temp),
            linked => linked.and_then(|()| fs::remove_file(temp)),
        })?;
    }
    let key = read_key(&path)?;
    let shown = printable(&path);
    let made = if is_new { "created the private key" } else { "this is the public one of" };
    let hint = "give the line to the administrator, for bankfull token create NAME --invite --key";
    Ok((key, format!("{made} {shown}; {hint}")))
}

/// Returns the public key of a file.
fn read_key(path: &Path) -> Result<ClientKey, Error> {
    let read = token::read(Some(path), &Environment::default())?;
    let missing = || {
        let path = printable(path);
        usage(format!("{path} has no private key: remove it, and run bankfull login --key again"))
    };
    Ok(read.key.ok_or_else(missing)?.public())
}

/// Returns the file of the private key that an invite is for.
///
/// # Errors
/// [`ErrorKind::Usage`] for the key of another user.
fn key_file(key: ClientKey, dir: &Path) -> Result<PathBuf, Error> {
    let path = dir.join(KEY_FILE);
    let own = match path.exists() {
        true => Some(read_key(&path)?),
        false => None,
    };
    match own {
        Some(own) if own == key => Ok(path),
        _ => Err(usage(format!(
            "the invite is for the client with the key {key}, which is not in {}: give the \
             administrator the line of bankfull login --key",
            printable(&path)
        ))),
    }
}

/// Reads the invite and stores it; returns what to tell the user.
fn store(
    flags: &LoginFlags,
    environment: &Environment,
    output: &mut Output,
) -> Result<String, Error> {
    let hidden = match io::stdin().is_terminal() {
        true => {
            output.message(
                "paste the line of `bankfull token create NAME --invite` (it is not shown):",
            );
            HiddenInput::start()?
        }
        false => None,
    };
    let mut line = String::new();
    let read = io::stdin().lock().take(MAX_BYTES).read_line(&mut line);
    drop(hidden);
    read.map_err(|e| Error::local("cannot read the invite from standard input", &e))?;
    let invite = Invite::parse(&line).map_err(usage)?;
    let name = flags.name.clone().or_else(|| invite.host_name()).ok_or_else(|| {
        usage("the invite has an address instead of a name: write bankfull login NAME")
    })?;
    let (file, dir) = own_dir(environment)?;
    let token_file = match &invite.credential {
        InviteFor::Token(_) => dir.join(format!("{name}.token")),
        InviteFor::Key(key) => key_file(*key, &dir)?,
    };
    let known = config::remote(&name, environment).map_err(usage)?;
    let wanted = config::KnownRemote {
        url: invite.url.clone(),
        token_file: Some(token_file.clone()),
        fingerprint: Some(invite.fingerprint),
    };
    let is_same = known.as_ref() == Some(&wanted);
    if let Some(other) = known.as_ref().filter(|_| !is_same && !flags.replace) {
        return Err(usage(format!(
            "there is a remote {name}, {}, with another place, token-file or fingerprint: write \
             bankfull login --replace, or another name",
            other.url
        )));
    }
    let token = match &invite.credential {
        InviteFor::Token(token) => Some(token),
        InviteFor::Key(_) => None,
    };
    if known.is_none() && token.is_some() && token_file.symlink_metadata().is_ok() {
        return Err(usage(format!(
            "{} exists and belongs to no remote: remove it, or write bankfull login with another \
             name",
            printable(&token_file)
        )));
    }
    if let Some(token) = token {
        write_private(&token_file, &format!("{token}\n"), |temp, path| fs::rename(temp, path))?;
    }
    if !is_same {
        put(&file, &name, &table(&name, &invite, &token_file), environment)?;
    }
    let (url, file) = (&invite.url, printable(&file));
    Ok(match known {
        None => format!("stored {url} as {name}: in {file}; try bankfull ls {name}:"),
        Some(_) if !is_same => format!("replaced {name}: by {url}; try bankfull ls {name}:"),
        Some(_) if token.is_none() => format!("{name}:, {url}, is stored already"),
        Some(_) => format!("replaced the token of {name}:, {url}; try bankfull ls {name}:"),
    })
}

/// A terminal that does not show input, until this is dropped or a signal comes.
struct HiddenInput(Termios);

impl HiddenInput {
    /// Hides the input; `None` if the terminal cannot.
    fn start() -> Result<Option<Self>, Error> {
        let Ok(shown) = tcgetattr(io::stdin()) else { return Ok(None) };
        let of_signal = shown.clone();
        signals::on_signals(vec![Box::new(move || {
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &of_signal);
            std::process::exit(Exit::Interrupted.code().into());
        })])?;
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // The line still ends on the screen.
        hidden.local_modes.insert(LocalModes::ECHONL);
        let is_hidden = tcsetattr(io::stdin(), OptionalActions::Flush, &hidden).is_ok();
        Ok(is_hidden.then_some(Self(shown)))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // Input after the line must not reach the shell, as it may be part of the secret. If the
        // terminal is gone, there is nothing to restore.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Returns the table of the remote.
fn table(name: &str, invite: &Invite, token_file: &Path) -> String {
    // A string of JSON is one of TOML.
    let text = |text: &str| serde_json::Value::from(text).to_string();
    format!(
        "\n[remote.{}]\nurl = {}\ntoken-file = {}\nfingerprint = {}\n",
        text(name),
        text(&invite.url),
        text(&token_file.to_string_lossy()),
        text(&invite.fingerprint.to_string()),
    )
}

/// Writes a file that only its owner may read; `place` gives it its name.
fn write_private(
    path: &Path,
    text: &str,
    place: impl FnOnce(&Path, &Path) -> io::Result<()>,
) -> Result<(), Error> {
    let temp = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
    // Of an earlier process of this number.
    let _ = fs::remove_file(&temp);
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        place(&temp, path)
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&temp);
        Error::local(format!("cannot write {}", printable(path)), &e)
    })
}

/// Puts the table of a remote into the configuration file, replacing one of its name.
///
/// A new file is for its owner alone. Another login waits meanwhile.
fn put(path: &Path, name: &str, table: &str, environment: &Environment) -> Result<(), Error> {
    let failed = |e| Error::local(format!("cannot write the remote to {}", printable(path)), &e);
    let lock = || -> io::Result<File> {
        let at = PathBuf::from(format!("{}.lock", path.display()));
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(at)?;
        file.lock()?;
        Ok(file)
    };
    let _lock = lock().map_err(failed)?;
    // A link, such as to a repository of settings, stays one.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let text = match fs::read_to_string(&target) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(failed)?,
    };
    let permissions = fs::metadata(&target).ok().map(|found| found.permissions());
    let text = without_table(&text, name) + table;
    config::check(&text, path, environment).map_err(usage)?;
    write_private(&target, &text, |temp, path| {
        if let Some(permissions) = permissions {
            fs::set_permissions(temp, permissions)?;
        }
        fs::rename(temp, path)
    })
}

/// Returns the text of a configuration file without the table of a remote.
fn without_table(text: &str, name: &str) -> String {
    let headers = [format!("[remote.{name}]"), format!("[remote.\"{name}\"]")];
    let mut is_inside = false;
    let is_kept = |line: &&str| {
        let line = line.trim();
        if line.starts_with('[') {
            is_inside = headers.iter().any(|header| line.starts_with(header));
        }
        !is_inside
    };
    text.split_inclusive('\n').filter(is_kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_a_remote_is_replaced() {
        let before = "[cp]\nverify = true\n\n[remote.a]\nurl = \"x\"\n\n# kept\n[remote.ab]\n";
        assert_eq!(without_table(before, "a"), "[cp]\nverify = true\n\n[remote.ab]\n");
        assert_eq!(without_table(before, "b"), before);
        let quoted = "[remote.\"a\"] # of the office\nurl = \"x\"\n";
        assert_eq!(without_table(quoted, "a"), "");
    }

    #[test]
    fn remotes_are_put_beside_other_settings() {
        let dir = tempfile::tempdir().unwrap();
        let (real, path) = (dir.path().join("real.toml"), dir.path().join("config.toml"));
        fs::write(&real, "[cp]\nstreams = 4\n").unwrap();
        std::os::unix::fs::symlink(&real, &path).unwrap();
        let environment = Environment::default();
        let add = |name: &str, url: &str| {
            let table = format!("\n[remote.{name}]\nurl = \"bankfull://{url}/\"\n");
            put(&path, name, &table, &environment).unwrap();
        };
        add("a", "one");
        add("b", "two");
        add("a", "three");
        let text = fs::read_to_string(&real).unwrap();
        assert!(path.is_symlink() && text.starts_with("[cp]\nstreams = 4\n"), "{text}");
        assert_eq!(text.matches("bankfull://").count(), 2, "{text}");
        assert!(text.contains("three") && text.contains("two"), "{text}");
        let error = put(&path, "c", "[nonsense", &environment).unwrap_err().to_string();
        assert!(error.contains("config.toml"), "{error}");
    }
}
