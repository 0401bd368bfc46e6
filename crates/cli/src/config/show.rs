//! `bankfull config`: shows the values in force, or the paths of the files.

use super::file::{COMMANDS, Value};
use super::share::Shared;
use super::{DAEMON_FILE, Reader, defaults, load, paths};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::flags::{self, ConfigFlags, ConfigView};
use crate::output::{Output, printable};
use serde_json::json;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A value in force.
struct Setting {
    key: String,
    value: Value,
    file: PathBuf,
    /// Variable that is set and wins.
    overridden_by: Option<&'static str>,
}

impl Setting {
    fn new(key: String, value: Value, file: &Path) -> Self {
        Self { key, value, file: file.to_owned(), overridden_by: None }
    }

    fn line(&self) -> String {
        let variable = self.overridden_by.map(|name| format!(", overridden by {name}"));
        let variable = variable.unwrap_or_default();
        format!("{} = {}  # {}{variable}", self.key, self.value, printable(&self.file))
    }

    fn json(&self) -> String {
        let value = match &self.value {
            Value::Switch(value) => json!(value),
            Value::Number(value) | Value::Count(value) => json!(value),
            Value::Text(value) => json!(value),
            Value::List(values) => json!(values),
        };
        json!({
            "key": self.key,
            "value": value,
            "file": self.file.to_string_lossy(),
            "overridden_by": self.overridden_by,
        })
        .to_string()
    }
}

/// Shows what the flags ask for.
pub(crate) fn run(flags: &ConfigFlags) -> Exit {
    let environment = Environment::read();
    let mut output = Output::standard();
    let reader = reader(&environment);
    if (flags.view, reader) == (ConfigView::Show, Reader::Command) && environment.config.is_none() {
        output.message(&format!("not shown: {DAEMON_FILE}, which you may not read"));
    }
    let lines = match flags.view {
        ConfigView::Path => Ok(paths(&environment, Reader::Daemon)
            .iter()
            .map(|path| match flags.json {
                true => json!({ "path": path.to_string_lossy() }).to_string(),
                false => printable(path),
            })
            .collect()),
        ConfigView::Show => settings(&environment, reader).map(|all| {
            let line = if flags.json { Setting::json } else { Setting::line };
            all.iter().map(line).collect::<Vec<String>>()
        }),
    };
    match lines {
        Err(problem) => {
            output.error(&problem);
            return Exit::Usage;
        }
        Ok(lines) if lines.is_empty() => output.message(&nothing(&environment)),
        Ok(lines) => lines.iter().for_each(|line| output.data_line(line)),
    }
    match output.failure() {
        None => Exit::Done,
        Some(why) => {
            output.error(&why);
            Exit::Local
        }
    }
}

/// Returns why there are no values.
fn nothing(environment: &Environment) -> String {
    let paths = paths(environment, Reader::Command);
    let shown: Vec<String> = paths.iter().map(|path| printable(path)).collect();
    match (paths.is_empty(), paths.iter().any(|path| path.exists())) {
        (true, _) => "no configuration file: BANKFULL_CONFIG is empty".to_owned(),
        (false, true) => format!("no settings in {}", shown.join(" and ")),
        (false, false) => format!("no configuration file: create {}", shown.join(" or ")),
    }
}

/// Returns the reader of all files that this user may read.
fn reader(environment: &Environment) -> Reader {
    let is_refused = |e: std::io::Error| e.kind() == ErrorKind::PermissionDenied;
    let is_own = environment.config.is_none();
    match is_own && File::open(DAEMON_FILE).is_err_and(is_refused) {
        true => Reader::Command,
        false => Reader::Daemon,
    }
}

/// Returns the values in force, checked.
fn settings(environment: &Environment, reader: Reader) -> Result<Vec<Setting>, String> {
    let root = flags::command();
    let content = load(environment, &root, reader)?;
    let mut all = Vec::new();
    for name in COMMANDS {
        for entry in content.defaults.get(name).into_iter().flatten() {
            defaults::check(&root, name, entry)?;
            let key = format!("{name}.{}", entry.key);
            let overridden_by = environment.variable_of(&entry.key);
            let setting = Setting::new(key, entry.value.clone(), &entry.file);
            all.push(Setting { overridden_by, ..setting });
        }
    }
    for (name, remote) in &content.remotes {
        let token = remote.token_file.as_ref().map(|path| path.display().to_string());
        let fingerprint = remote.fingerprint.map(|fingerprint| fingerprint.to_string());
        let values = [
            ("url", Some(remote.url.clone())),
            ("token-file", token),
            ("fingerprint", fingerprint),
        ];
        for (key, value) in values {
            let overridden_by = environment.variable_of(key);
            let key = format!("remote.{name}.{key}");
            let setting = value.map(|value| Setting::new(key, Value::Text(value), &remote.file));
            all.extend(setting.map(|setting| Setting { overridden_by, ..setting }));
        }
    }
    for (name, Shared { share, file }) in &content.shares {
        let allow = share.allow.iter().map(ToString::to_string).collect();
        let path = Value::Text(share.path.display().to_string());
        let read_only = Value::Switch(share.read_only);
        for (key, value) in
            [("path", path), ("read-only", read_only), ("allow", Value::List(allow))]
        {
            all.push(Setting::new(format!("share.{name}.{key}"), value, file));
        }
    }
    Ok(all)
}
