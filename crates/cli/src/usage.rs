//! Command lines that make no sense, told in one line as every other error is: what is wrong, with
//! what, and where to read on. What is wrong is found by clap; its paragraphs are joined here.

use crate::flags::Cli;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// The sources of `cp`, as clap calls them.
const SOURCES: &str = "<SRC>...";

/// What clap begins with, and the parts with which it ends.
const BEGINNING: &str = "error: ";
const ENDINGS: [&str; 2] = ["Usage: ", "For more information"];

/// The line of an error in `arguments`, the first of which is the program.
pub(crate) fn line(error: &clap::Error, arguments: impl Iterator<Item = OsString>) -> String {
    let command = command(arguments);
    let what = match error.kind() {
        ErrorKind::MissingRequiredArgument if is_without_destination(error) => {
            format!("the destination is missing: write {command} SRC... DST")
        }
        _ => joined(&error.to_string()),
    };
    format!("{what} (see {command} --help)")
}

/// The command that was meant: the subcommand, where there is one of that name.
fn command(mut arguments: impl Iterator<Item = OsString>) -> String {
    let root = Cli::command();
    let meant = arguments.nth(1).and_then(|name| root.find_subcommand(&name).cloned());
    let name = meant.filter(|meant| !meant.is_hide_set()).map(|meant| meant.get_name().to_owned());
    name.map_or_else(|| "bankfull".to_owned(), |name| format!("bankfull {name}"))
}

/// Whether there was one operand where two are needed: clap takes the only one for the last.
fn is_without_destination(error: &clap::Error) -> bool {
    let missing = error.get(ContextKind::InvalidArg);
    matches!(missing, Some(ContextValue::Strings(names)) if names.as_slice() == [SOURCES])
}

/// The paragraphs that say what is wrong, in one line.
fn joined(text: &str) -> String {
    let text = text.strip_prefix(BEGINNING).unwrap_or(text);
    let is_end = |line: &str| ENDINGS.iter().any(|ending| line.starts_with(ending));
    let lines = text.lines().take_while(|line| !is_end(line)).map(str::trim);
    lines.filter(|line| !line.is_empty()).fold(String::new(), |mut all, line| {
        let (between, line) = match line.strip_prefix("tip: ") {
            Some(tip) => ("; ", tip),
            None => (" ", line),
        };
        if !all.is_empty() {
            all.push_str(between);
        }
        all + line
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn told(typed: &str) -> String {
        let all = || ["bankfull"].into_iter().chain(typed.split_whitespace()).map(OsString::from);
        line(&Cli::try_parse_from(all()).unwrap_err(), all())
    }

    #[test]
    fn every_error_is_one_line_that_ends_with_where_to_read_on() {
        for (typed, line) in [
            (
                "cp --strems 3 a b",
                "unexpected argument '--strems' found; a similar argument exists: '--streams' \
                 (see bankfull cp --help)",
            ),
            (
                "cp --fsync foo a b",
                "invalid value 'foo' for '--fsync <WHEN>' [possible values: none, file, end] \
                 (see bankfull cp --help)",
            ),
            (
                "cp -q -v a b",
                "the argument '--quiet' cannot be used with '--verbose...' (see bankfull cp --help)",
            ),
            ("mv a b", "unrecognized subcommand 'mv' (see bankfull --help)"),
            (
                "serve",
                "the following required arguments were not provided: <ROOT> (see bankfull serve \
                 --help)",
            ),
        ] {
            assert_eq!(told(typed), line);
        }
    }

    #[test]
    fn one_operand_of_cp_lacks_the_destination_and_none_lacks_both() {
        assert_eq!(
            told("cp data"),
            "the destination is missing: write bankfull cp SRC... DST (see bankfull cp --help)"
        );
        let both = told("cp");
        assert!(both.contains("not provided: <SRC>... <DST> (see bankfull cp --help)"), "{both}");
    }
}
