//! [`Filters`]: rules about what is copied, and the files of this host that they name.

use crate::base::error::{Error, ErrorKind, os_message};
use bankfull_proto::filter::{FilterOptions, FilterScope, Given, GivenKind};
use bankfull_proto::limits::{MAX_FILTER_RULES, MAX_FILTER_RULES_BYTES, MAX_PATH_BYTES};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::{ffi::OsString, fs};

/// A filter rule as a user gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterRule {
    /// Rule with its name, such as `- *.o`, `+ /src/***`, `merge FILE` or `dir-merge .rules`.
    Rule(OsString),
    /// Pattern of entries to exclude.
    Exclude(OsString),
    /// Pattern of entries to include.
    Include(OsString),
    /// File of patterns to exclude; `-`: standard input.
    ExcludeFrom(OsString),
    /// File of patterns to include; `-`: standard input.
    IncludeFrom(OsString),
}

/// Filter rules with the syntax and meaning of rsync's: the first that matches decides.
#[derive(Debug, Clone, Default)]
pub struct Filters(pub(crate) FilterScope);

impl Filters {
    /// Parses rules in order and reads the files that they name.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a rule that cannot be parsed or read, named with file and line, and
    /// for more rules than the protocol allows.
    pub fn parse(rules: &[FilterRule]) -> Result<Self, Error> {
        let given: Vec<_> = rules.iter().map(given).collect();
        let parsed = FilterScope::parse(&given, FilterOptions::default(), &mut read_file);
        let scope = parsed.map_err(|e| Error::new(ErrorKind::Usage, e.to_string()))?;
        let texts = scope.to_texts();
        let bytes = texts.iter().map(Vec::len).sum::<usize>();
        if texts.len() > MAX_FILTER_RULES || bytes > MAX_FILTER_RULES_BYTES {
            let text = format!(
                "{} filter rules of {bytes} bytes are too many: the limits are {MAX_FILTER_RULES} \
                 rules and {MAX_FILTER_RULES_BYTES} bytes",
                texts.len()
            );
            return Err(Error::new(ErrorKind::Usage, text));
        }
        match texts.iter().find(|text| text.len() > MAX_PATH_BYTES) {
            Some(text) => {
                let shown = String::from_utf8_lossy(&text[..40]).into_owned();
                let text = format!("a filter rule exceeds {MAX_PATH_BYTES} bytes: {shown}…");
                Err(Error::new(ErrorKind::Usage, text))
            }
            None => Ok(Self(scope)),
        }
    }
}

fn given(rule: &FilterRule) -> Given {
    let (kind, text) = match rule {
        FilterRule::Rule(text) => (GivenKind::Rule, text),
        FilterRule::Exclude(text) => (GivenKind::Pattern(false), text),
        FilterRule::Include(text) => (GivenKind::Pattern(true), text),
        FilterRule::ExcludeFrom(name) => (GivenKind::File(false), name),
        FilterRule::IncludeFrom(name) => (GivenKind::File(true), name),
    };
    Given { kind, text: text.clone().into_vec() }
}

/// Reads a file of rules of this host.
fn read_file(name: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let read = match name {
        b"-" => {
            let mut content = Vec::new();
            io::stdin().lock().read_to_end(&mut content).map(|_| content)
        }
        name => fs::read(OsStr::from_bytes(name)),
    };
    read.map(Some).map_err(|e| {
        let shown = String::from_utf8_lossy(name);
        format!("cannot read the file of rules {shown}: {}", os_message(&e))
    })
}
