//! One-line messages for invalid command lines: the problem, the way out, and the help to read.
//! clap finds the problem; this module joins its paragraphs, and adds advice for flags of other
//! programs.

use crate::flags;
use crate::foreign::{self, Word};
use crate::output::printable;
use bankfull::Location;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Name of the program in messages.
const PROGRAM: &str = "bankfull";

/// Command that copies.
const COPY: &str = "bankfull cp";

/// Operands of the commands that copy.
const COPY_OPERANDS: &str = "SRC... DST";

/// Length of the arguments up to which a message repeats them. (chosen: a line of a terminal)
const MAX_SHOWN_BYTES: usize = 60;

/// Leading bytes that a mistyped subcommand shares with the real one. (chosen: as `gahter`)
const MIN_COMMON_START: usize = 2;

/// Start of clap's messages, and starts of their last paragraphs.
const PREFIX: &str = "error: ";
const TRAILERS: [&str; 2] = ["Usage: ", "For more information"];

/// Subcommands of other programs, and their equivalents.
const FOREIGN_COMMANDS: [(&[&str], &str); 5] = [
    (&["daemon", "server", "listen", "start"], "the daemon is 'serve'"),
    (
        &["sync", "copy", "rsync", "scp", "put", "push", "send", "get", "pull", "fetch"],
        "to copy, write bankfull cp SRC... DST",
    ),
    (&["list", "dir"], "to list, write bankfull ls PLACE"),
    (&["ping", "test", "speedtest"], "to measure a path, write bankfull probe HOST"),
    (&["version"], "write bankfull --version"),
];

/// Returns the line for an error in `arguments`, the first of which is the program.
pub(crate) fn line(error: &clap::Error, arguments: impl Iterator<Item = OsString>) -> String {
    let arguments: Vec<OsString> = arguments.collect();
    let command = command(&arguments);
    let problem = match error.kind() {
        ErrorKind::MissingRequiredArgument if is_destination_missing(error) => {
            destination_missing(&command, &arguments)
        }
        ErrorKind::MissingRequiredArgument if command == COPY => {
            format!("the operands are missing: write {command} {COPY_OPERANDS}")
        }
        ErrorKind::MissingRequiredArgument => operands_missing(error, &command),
        ErrorKind::UnknownArgument if command == PROGRAM => {
            missing_command(&arguments).unwrap_or_else(|| unknown_flag(error))
        }
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
    let root = flags::command();
    let found = arguments.get(1).and_then(|name| root.find_subcommand(name).cloned());
    let name = found.filter(|found| !found.is_hide_set()).map(|found| found.get_name().to_owned());
    name.map_or_else(|| PROGRAM.to_owned(), |name| format!("{PROGRAM} {name}"))
}

/// True if there is one operand where two are required.
fn is_destination_missing(error: &clap::Error) -> bool {
    // The error is not clap's own: it has no context.
    error.context().next().is_none()
}

/// Describes missing operands other than a destination.
fn operands_missing(error: &clap::Error, command: &str) -> String {
    let missing = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(missing)) => &missing[..],
        _ => &[],
    };
    let name = |shown: &String| shown.strip_prefix('<')?.strip_suffix('>').map(str::to_owned);
    let names: Option<Vec<_>> = missing.iter().map(name).collect();
    match names.as_deref() {
        _ if missing.iter().any(|shown| shown.ends_with("...")) => {
            format!("the operands are missing: write {command} {COPY_OPERANDS}")
        }
        Some([name]) => format!("the operand is missing: write {command} {name}"),
        _ => joined(&error.to_string(), |_| true),
    }
}

/// Describes a missing destination; a flag such as `-f` in `-avf` may have taken it as its value.
fn destination_missing(command: &str, arguments: &[OsString]) -> String {
    let root = flags::command();
    let found = arguments.get(1).and_then(|name| root.find_subcommand(name));
    let words = found.map(|found| foreign::words(found, arguments.get(2..).unwrap_or_default()));
    let words = words.unwrap_or_default();
    if let Some(group) = found.and_then(|found| foreign::group_ending_with(found, &words, 'f')) {
        return format!(
            "-f in {group} is --filter RULE, as in rsync: leave it out, or add the rule"
        );
    }
    let taken = foreign::letter_with_operand(&words).map(|(letter, value)| {
        format!("; -{letter} took '{}' as its value, as in scp", printable(value.as_ref()))
    });
    let is_elsewhere =
        |typed: &&OsStr| !matches!(Location::parse(typed), Ok(Location::Local(_)) | Err(_));
    let mut operands = words.iter().filter_map(|word| match word {
        Word::Operand(typed) => Some(*typed),
        _ => None,
    });
    let listed = operands
        .find(is_elsewhere)
        .map(|typed| format!("; to list it, write {PROGRAM} ls {}", printable(typed.as_ref())));
    let more = taken.or(listed).unwrap_or_default();
    format!("the destination is missing: write {command} SRC... DST{more}")
}

/// Describes a command line without a subcommand, such as `bankfull -av data host:copy`.
fn missing_command(arguments: &[OsString]) -> Option<String> {
    let root = flags::command();
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

/// Describes an unknown flag in front of a subcommand.
fn unknown_flag(error: &clap::Error) -> String {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return joined(&error.to_string(), |_| true);
    };
    match flag.as_str() {
        "-v" | "--verbose" => format!(
            "{flag} follows a command: write {PROGRAM} cp {flag} SRC... DST, or {PROGRAM} --version"
        ),
        _ => format!("unknown flag {flag}: flags follow the command"),
    }
}

/// Describes an unknown subcommand, without suggesting a hidden one.
fn unknown_command(error: &clap::Error, arguments: &[OsString]) -> String {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) if is_copy(name, arguments) => {
            format!("unrecognized subcommand '{name}'; to copy, write {}", as_copy(arguments))
        }
        Some(ContextValue::String(name)) if foreign_command(name).is_some() => {
            let way_out = foreign_command(name).unwrap_or_default();
            format!("unrecognized subcommand '{name}'; {way_out}")
        }
        _ => {
            let problem = joined(&error.to_string(), |tip| !tip.contains("'agent'"));
            if problem.contains(';') { problem } else { format!("{problem}; {}", all_commands()) }
        }
    }
}

/// Lists the commands.
fn all_commands() -> String {
    let root = flags::command();
    let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<_> = shown.map(clap::Command::get_name).collect();
    format!("choose one of {}", names.join(", "))
}

/// Returns the equivalent of a subcommand of another program.
fn foreign_command(name: &str) -> Option<&'static str> {
    FOREIGN_COMMANDS.iter().find(|(names, _)| names.contains(&name)).map(|(_, way_out)| *way_out)
}

/// True if a name in the place of a subcommand is rather a source.
///
/// It is a path, or one of two operands and no typing error.
fn is_copy(name: &str, arguments: &[OsString]) -> bool {
    let count = operands(arguments);
    let is_path = name.contains([':', '/']) || Path::new(name).exists();
    let root = flags::command();
    let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
    let is_error = shown.map(clap::Command::get_name).any(|known| {
        let common = known.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        common >= MIN_COMMON_START && known.len().abs_diff(name.len()) <= 1
    });
    (count > 1 && is_path) || (count == 2 && !is_error && foreign_command(name).is_none())
}

/// Joins the paragraphs of a message into one line, with the tips that `keep` accepts.
fn joined(text: &str, keep: impl Fn(&str) -> bool) -> String {
    let text = &without_ellipses(text.strip_prefix(PREFIX).unwrap_or(text));
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

/// Removes the ellipsis that clap puts behind a switch that may be repeated.
fn without_ellipses(text: &str) -> String {
    let mut parts = text.split("...'").peekable();
    let mut all = String::new();
    while let Some(part) = parts.next() {
        all.push_str(part);
        let quoted = part.rsplit('\'').next().unwrap_or_default();
        let is_switch = quoted.starts_with('-') && !quoted.contains(['<', ' ']);
        if parts.peek().is_some() {
            all.push_str(if is_switch { "'" } else { "...'" });
        }
    }
    all
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn message(typed: &str) -> String {
        let all = || ["bankfull"].into_iter().chain(typed.split_whitespace()).map(OsString::from);
        match foreign::adapted(all().collect()) {
            Ok(adapted) => line(&flags::parse(adapted).unwrap_err(), all()),
            Err(problems) => problems.join("\n"),
        }
    }

    #[test]
    fn error_is_one_line_that_names_the_help() {
        for (typed, line) in [
            (
                "cp --strems 3 a b",
                "unknown flag --strems: did you mean --streams? (see bankfull cp --help)",
            ),
            (
                "cp --fsync foo a b",
                "invalid value 'foo' for '--fsync <WHEN>' [possible values: none, file, end]; \
                 for rsync's --fsync, write --fsync file (see bankfull cp --help)",
            ),
            (
                "cp -q -v a b",
                "the argument '--quiet' cannot be used with '--verbose' (see bankfull cp --help)",
            ),
            (
                "mv a b",
                "unrecognized subcommand 'mv'; choose one of cp, gather, ls, probe, serve, token, \
                 login, guard, doctor, config, completions, man (see bankfull --help)",
            ),
        ] {
            assert_eq!(message(typed), line);
        }
    }

    #[test]
    fn foreign_flag_has_advice() {
        for (typed, line) in [
            ("cp -avz a b", "unknown flag -z in -avz: bankfull does not compress: leave it out"),
            ("cp --bwlimit x a b", "unknown flag --bwlimit: write --max-rate 80mbit; 10M of"),
            (
                "cp --bwlimit 500 a b",
                "unknown flag --bwlimit: write --max-rate 500KiB/s for rsync's",
            ),
            (
                "cp --bwlimit=1.5m a b",
                "unknown flag --bwlimit: write --max-rate 1.5MiB/s for rsync's 1",
            ),
            (
                "cp --bwlimit 20KB a b",
                "unknown flag --bwlimit: write --max-rate 20kB/s for rsync's 20KB",
            ),
            (
                "cp --bwlimit 10 a b",
                "unknown flag --bwlimit: write --max-rate 100kbit, the minimum",
            ),
            (
                "cp --bwlimit=0 a b",
                "unknown flag --bwlimit: there is no limit without it: leave it",
            ),
            ("cp -e ssh a b", "unknown flag -e: use --ssh-command"),
            ("cp -C a b", "unknown flag -C: bankfull does not compress"),
            (
                "cp -l 8000 a b",
                "-l keeps symlinks, as in rsync, and takes no value: write --max-rate 8mbit",
            ),
            (
                "cp -rp 22522 a h:b",
                "-p keeps modes, as in rsync and scp, and takes no value: write -P 22522",
            ),
            ("cp --token t a b", "unknown flag --token: use --token-file FILE"),
            ("cp --no-stats a b", "unknown flag --no-stats: what --stats asks for is always done"),
            (
                "cp --no-max-size a b",
                "unknown flag --no-max-size: --max-size has no effect unless it",
            ),
            ("cp --exlude x a b", "unknown flag --exlude: did you mean --exclude?"),
            (
                "cp --files-from=l --no-R a b",
                "names in --files-from keep their paths: leave --no-R",
            ),
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
        assert_eq!(shown, "unknown flag --weather (see bankfull cp --help)");
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
            (
                "cp -F /dev/null h:a",
                "the destination is missing: write bankfull cp SRC... DST; to \
              list it, write bankfull ls h:a",
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
            ("sync a b", "unrecognized subcommand 'sync'; to copy, write bankfull cp SRC... DST"),
            ("version", "unrecognized subcommand 'version'; write bankfull --version"),
            ("-v", "-v follows a command: write bankfull cp -v SRC... DST, or bankfull --version"),
            ("--json", "unknown flag --json: flags follow the command"),
        ] {
            assert_eq!(message(typed), format!("{line} (see bankfull --help)"));
        }
        assert!(!message("data").contains("to copy"));
        assert!(!message("serv data").contains("to copy"));
    }

    #[test]
    fn missing_operands_are_named() {
        for (typed, line) in [
            ("token", "the operand is missing: write bankfull token ACTION"),
            ("probe --json", "the operand is missing: write bankfull probe HOST"),
            ("completions", "the operand is missing: write bankfull completions SHELL"),
            ("gather", "the operands are missing: write bankfull gather SRC... DST"),
        ] {
            let command = typed.split(' ').next().unwrap();
            assert_eq!(message(typed), format!("{line} (see bankfull {command} --help)"));
        }
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
