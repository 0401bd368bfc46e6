//! `bankfull login`: stores the daemon of an invite as a remote of the user.

use super::invite::{Invite, MAX_BYTES};
use crate::config;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::flags::LoginFlags;
use crate::output::{Output, printable};
use bankfull::{Error, ErrorKind};
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Stores the daemon.
pub(crate) fn run(flags: &LoginFlags) -> Exit {
    let mut output = Output::standard();
    match store(flags, &Environment::read(), &mut output) {
        Ok(text) => {
            output.message(&text);
            Exit::Done
        }
        Err(error) => {
            output.error(&error.to_string());
            error.kind().into()
        }
    }
}

fn usage(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, text)
}

/// Reads the invite and stores it; returns what to tell the user.
fn store(
    flags: &LoginFlags,
    environment: &Environment,
    output: &mut Output,
) -> Result<String, Error> {
    if io::stdin().is_terminal() {
        output.message("paste the line of `bankfull token create NAME --invite`:");
    }
    let mut line = String::new();
    let read = io::stdin().lock().take(MAX_BYTES).read_line(&mut line);
    read.map_err(|e| Error::local("cannot read the invite from standard input", &e))?;
    let invite = Invite::parse(&line).map_err(usage)?;
    let name = flags.name.clone().or_else(|| invite.host_name()).ok_or_else(|| {
        usage("the invite has an address instead of a name: write bankfull login NAME")
    })?;
    let file = config::user_file(environment).ok_or_else(|| {
        usage("there is no configuration file to store it in: set HOME, or unset BANKFULL_CONFIG")
    })?;
    let dir = file.parent().map(Path::to_owned).unwrap_or_default();
    let token_file = dir.join(format!("{name}.token"));
    let known = config::remote(&name, environment).map_err(usage)?;
    let wanted = config::KnownRemote {
        url: invite.url.clone(),
        token_file: Some(token_file.clone()),
        fingerprint: Some(invite.fingerprint),
    };
    if let Some(other) = known.as_ref().filter(|known| **known != wanted) {
        return Err(usage(format!(
            "there is a remote {name}, {}, with another place, token-file or fingerprint: remove \
             it, or write bankfull login with another name",
            other.url
        )));
    }
    if known.is_none() && token_file.symlink_metadata().is_ok() {
        return Err(usage(format!(
            "{} exists and belongs to no remote: remove it, or write bankfull login with another \
             name",
            printable(&token_file)
        )));
    }
    let dir_failed = |e| Error::local(format!("cannot create {}", printable(&dir)), &e);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(dir_failed)?;
    replace_private(&token_file, &format!("{}\n", invite.token))?;
    if known.is_none() {
        append(&file, &table(&name, &invite, &token_file))?;
    }
    let (url, file) = (&invite.url, printable(&file));
    Ok(match known {
        None => format!("stored {url} as {name}: in {file}; try bankfull ls {name}:"),
        Some(_) => format!("replaced the token of {name}:, {url}; try bankfull ls {name}:"),
    })
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

/// Writes a file that only its owner may read, in place of an earlier one.
fn replace_private(path: &Path, text: &str) -> Result<(), Error> {
    let temp = PathBuf::from(format!("{}.{}", path.display(), std::process::id()));
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temp)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temp, path)
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&temp);
        Error::local(format!("cannot write the token to {}", printable(path)), &e)
    })
}

/// Appends a table to the configuration file, which is created for its owner alone.
fn append(path: &Path, text: &str) -> Result<(), Error> {
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    let failed = |e| Error::local(format!("cannot write the remote to {}", printable(path)), &e);
    write().map_err(failed)
}
