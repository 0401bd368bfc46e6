//! One-line messages for invalid command lines: the problem, the way out, and the help to read.
//! clap finds the problem; this module joins its paragraphs, and adds advice for flags of other
//! programs.

use crate::flags::Cli;
use crate::foreign;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::path::Path;

/// Name of the program in messages.
const PROGRAM: &str = "bankfull";

/// Command that copies.
const COPY: &str = "bankfull cp";

/// Length of the arguments up to which a message repeats them. (chosen: a line of a terminal)
const MAX_SHOWN_BYTES: usize = 60;

/// Leading bytes that a mistyped subcommand shares with the real one. (chosen: as `gahter`)
const MIN_COMMON_START: usize = 2;

/// Start of clap's messages, and starts of their last paragraphs.
const PREFIX: &str = "error: ";
const TRAILERS: [&str; 2] = ["Usage: ", "For more information"];

/// Leading bytes that a suggested flag shares with the typed one, dashes included. (chosen: keeps
/// typing errors, drops other words)
const MIN_COMMON_PREFIX: usize = 5;

/// Subcommands that other programs have.
const FOREIGN_COMMANDS: [&str; 4] = ["daemon", "server", "listen", "start"];

/// Returns the line for an error in `arguments`, the first of which is the program.
pub(crate) fn line(error: &clap::Error, arguments: impl Iterator<Item = OsString>) -> String {
    let arguments: Vec<OsString> = arguments.collect();
    let command = command(&arguments);
    let problem = match error.kind() {
        ErrorKind::MissingRequiredArgument if is_destination_missing(error) => {
            destination_missing(&command, &arguments)
        }
        ErrorKind::MissingRequiredArgument if command == COPY => {
            format!("the operands are missing: write {command} SRC... DST")
        }
        ErrorKind::UnknownArgument if command == PROGRAM => {
            missing_command(&arguments).unwrap_or_else(|| unknown_flag(error, &arguments))
        }
        ErrorKind::UnknownArgument => unknown_flag(error, &arguments),
        ErrorKind::InvalidSubcommand => unknown_command(error, &arguments),
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            let flag = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::String(flag)) => foreign::value_advice(flag),
                _ => "",
            };
            joined(&error.to_string(), |_| true) + flag
        }
        _ => joined(&error.to_string(), |_| true),
    };
    format!("{problem} (see {command} --help)")
}

/// Returns the problem of an error, without the command line.
pub(crate) fn problem(error: &clap::Error) -> String {
    joined(&error.to_string(), |_| true)
}

/// Returns the program with the subcommand in `arguments`, if that exists.
fn command(arguments: &[OsString]) -> String {
    let root = Cli::command();
    let found = arguments.get(1).and_then(|name| root.find_subcommand(name).cloned());
    let name = found.filter(|found| !found.is_hide_set()).map(|found| found.get_name().to_owned());
    name.map_or_else(|| PROGRAM.to_owned(), |name| format!("{PROGRAM} {name}"))
}

/// True if there is one operand where two are required.
fn is_destination_missing(error: &clap::Error) -> bool {
    // The error is not clap's own: it has no context.
    error.context().next().is_none()
}

/// Describes a missing destination; a group such as `-avf` may have taken it as its value.
fn destination_missing(command: &str, arguments: &[OsString]) -> String {
    match foreign::group_ending_with(arguments, 'f') {
        Some(group) => {
            format!("-f in {group} is --filter RULE, as in rsync: leave it out, or add the rule")
        }
        None => {
            let taken = foreign::letter_with_operand(arguments).map(|(letter, value)| {
                format!("; -{letter} took '{}' as its value, as in scp", value.escape_debug())
            });
            let taken = taken.unwrap_or_default();
            format!("the destination is missing: write {command} SRC... DST{taken}")
        }
    }
}

/// Describes a command line without a subcommand, such as `bankfull -av data host:copy`.
fn missing_command(arguments: &[OsString]) -> Option<String> {
    let root = Cli::command();
    let mut names = arguments.iter().skip(1);
    match names.find_map(|name| root.find_subcommand(name).filter(|found| !found.is_hide_set())) {
        Some(found) => {
            let name = found.get_name();
            Some(format!("flags follow the command: write {PROGRAM} {name} [OPTIONS]"))
        }
        None if operands(arguments) > 1 => Some(format!("to copy, write {}", as_copy(arguments))),
        None => None,
    }
}

/// Number of arguments that are no flags, without the program.
fn operands(arguments: &[OsString]) -> usize {
    arguments
        .iter()
        .skip(1)
        .filter(|argument| !argument.as_encoded_bytes().starts_with(b"-"))
        .count()
}

/// Returns the command line of `cp` for these arguments, if they are short and plain.
fn as_copy(arguments: &[OsString]) -> String {
    let is_plain = |c: char| c.is_ascii_graphic() && !"'\"\\$`;&|<>*?(){}#!".contains(c);
    let words: Option<Vec<&str>> = arguments.iter().skip(1).map(|word| word.to_str()).collect();
    let words = words.map(|words| words.join(" ")).unwrap_or_default();
    let is_shown = (1..=MAX_SHOWN_BYTES).contains(&words.len());
    let words = Some(words).filter(|all| is_shown && all.chars().all(|c| c == ' ' || is_plain(c)));
    format!("{PROGRAM} cp {}", words.as_deref().unwrap_or("SRC... DST"))
}

/// Describes an unknown flag, with advice if another program has it.
fn unknown_flag(error: &clap::Error, arguments: &[OsString]) -> String {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return joined(&error.to_string(), |_| true);
    };
    let name = flag.split('=').next().unwrap_or(flag);
    match foreign::advice(name) {
        Some(advice) => format!("unknown flag {}: {advice}", typed(name, arguments)),
        None => joined(&error.to_string(), |tip| is_plausible(tip, name)),
    }
}

/// Returns the flag, with its argument if letters are joined, as in `-avz`.
fn typed(flag: &str, arguments: &[OsString]) -> String {
    let letter = flag.strip_prefix('-').filter(|letter| letter.len() == 1);
    let is_holder = |argument: &&str| {
        let letters = argument.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        letters.zip(letter).is_some_and(|(all, one)| all.len() > 1 && all.contains(one))
    };
    match arguments.iter().filter_map(|argument| argument.to_str()).find(is_holder) {
        Some(holder) => format!("{flag} in {holder}"),
        None => flag.to_owned(),
    }
}

/// True if a tip of clap suggests a flag that resembles the typed one.
fn is_plausible(tip: &str, flag: &str) -> bool {
    let suggested = tip.split('\'').nth(1).unwrap_or_default();
    let common = suggested.bytes().zip(flag.bytes()).take_while(|(a, b)| a == b).count();
    tip.contains("similar") && common >= MIN_COMMON_PREFIX
}

/// Describes an unknown subcommand, without suggesting a hidden one.
fn unknown_command(error: &clap::Error, arguments: &[OsString]) -> String {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) if FOREIGN_COMMANDS.contains(&name.as_str()) => {
            format!("unrecognized subcommand '{name}'; the daemon is 'serve'")
        }
        Some(ContextValue::String(name)) if is_copy(name, arguments) => {
            format!("unrecognized subcommand '{name}'; to copy, write {}", as_copy(arguments))
        }
        _ => joined(&error.to_string(), |tip| !tip.contains("'agent'")),
    }
}

/// True if a name in the place of a subcommand is rather a source.
///
/// It is a path, or one of two operands and no typing error.
fn is_copy(name: &str, arguments: &[OsString]) -> bool {
    let count = operands(arguments);
    let is_path = name.contains([':', '/']) || Path::new(name).exists();
    let root = Cli::command();
    let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
    let is_error = shown.map(clap::Command::get_name).any(|known| {
        let common = known.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        common >= MIN_COMMON_START && known.len().abs_diff(name.len()) <= 1
    });
    (count > 1 && is_path) || (count == 2 && !is_error)
}

/// Joins the paragraphs of a message into one line, with the tips that `keep` accepts.
fn joined(text: &str, keep: impl Fn(&str) -> bool) -> String {
    let text = text.strip_prefix(PREFIX).unwrap_or(text);
    let is_trailer = |line: &str| TRAILERS.iter().any(|trailer| line.starts_with(trailer));
    let lines = text.lines().take_while(|line| !is_trailer(line)).map(str::trim);
    lines.filter(|line| !line.is_empty()).fold(String::new(), |mut all, line| {
        let (separator, line) = match line.strip_prefix("tip: ") {
            Some(tip) if !keep(tip) => return all,
            Some(tip) => ("; ", tip),
            None => (" ", line),
        };
        if !all.is_empty() {
            all.push_str(separator);
        }
        all + line
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::Parser;

    pub(crate) fn message(typed: &str) -> String {
        let all = || ["bankfull"].into_iter().chain(typed.split_whitespace()).map(OsString::from);
        line(&Cli::try_parse_from(all()).unwrap_err(), all())
    }

    #[test]
    fn error_is_one_line_that_names_the_help() {
        for (typed, line) in [
            (
                "cp --strems 3 a b",
                "unexpected argument '--strems' found; a similar argument exists: '--streams' \
                 (see bankfull cp --help)",
            ),
            (
                "cp --fsync foo a b",
                "invalid value 'foo' for '--fsync <WHEN>' [possible values: none, file, end]; \
                 for rsync's --fsync, write --fsync file (see bankfull cp --help)",
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
            assert_eq!(message(typed), line);
        }
    }

    #[test]
    fn foreign_flag_has_advice() {
        for (typed, line) in [
            ("cp -avz a b", "unknown flag -z in -avz: bankfull does not compress: leave it out"),
            ("cp --bwlimit 10 a b", "unknown flag --bwlimit: write --max-rate 80mbit; 10M of"),
            ("cp -e ssh a b", "unknown flag -e: use --ssh-command"),
            ("cp -C a b", "unknown flag -C: bankfull does not compress"),
            ("cp -l 100 a b", "unknown flag -l: symlinks are kept"),
            ("cp --token t a b", "unknown flag --token: use --token-file FILE"),
            ("cp --no-xattrs a b", "unknown flag --no-xattrs: --xattrs is off unless it is given"),
            ("cp -avf a b", "-f in -avf is --filter RULE, as in rsync: leave it out"),
        ] {
            let shown = message(typed);
            assert!(shown.starts_with(line), "{shown}");
            assert!(!shown.contains("as a value"), "{shown}");
            assert!(shown.ends_with(" (see bankfull cp --help)"), "{shown}");
        }
    }

    #[test]
    fn implausible_suggestion_is_dropped() {
        let shown = message("cp --weather a b");
        assert_eq!(shown, "unexpected argument '--weather' found (see bankfull cp --help)");
        let shown = message("daemon /srv");
        let line = "unrecognized subcommand 'daemon'; the daemon is 'serve' (see bankfull --help)";
        assert_eq!(shown, line);
        assert!(!message("agnt").contains("agent"));
    }

    #[test]
    fn value_of_a_flag_that_has_none_in_rsync_is_explained() {
        for (typed, line) in [
            (
                "cp -P a b c",
                "invalid value 'a' for '-P <PORT>': write a number from 1 to 65535; for rsync's \
                 -P, leave it out",
            ),
            (
                "cp --fsync a b",
                "invalid value 'a' for '--fsync <WHEN>' [possible values: none, file, end]; for \
                 rsync's --fsync, write --fsync file",
            ),
            (
                "cp -av -i a b",
                "the destination is missing: write bankfull cp SRC... DST; -i took 'a' as its \
                 value, as in scp",
            ),
        ] {
            assert_eq!(message(typed), format!("{line} (see bankfull cp --help)"));
        }
    }

    #[test]
    fn copy_without_command_is_suggested() {
        for (typed, line) in [
            ("data dst", "unrecognized subcommand 'data'; to copy, write bankfull cp data dst"),
            ("a b", "unrecognized subcommand 'a'; to copy, write bankfull cp a b"),
            ("h:a b c", "unrecognized subcommand 'h:a'; to copy, write bankfull cp h:a b c"),
            ("-av data h:b", "to copy, write bankfull cp -av data h:b"),
            ("a$b c", "unrecognized subcommand 'a$b'; to copy, write bankfull cp SRC... DST"),
            ("-v cp a b", "flags follow the command: write bankfull cp [OPTIONS]"),
        ] {
            assert_eq!(message(typed), format!("{line} (see bankfull --help)"));
        }
        assert!(!message("data").contains("to copy"));
        assert!(!message("serv data").contains("to copy"));
    }

    #[test]
    fn missing_operands_are_named() {
        assert_eq!(
            message("cp data"),
            "the destination is missing: write bankfull cp SRC... DST (see bankfull cp --help)"
        );
        assert_eq!(
            message("cp -v"),
            "the operands are missing: write bankfull cp SRC... DST (see bankfull cp --help)"
        );
    }
}
