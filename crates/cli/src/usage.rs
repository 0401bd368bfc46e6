//! One-line messages for invalid command lines: the problem, the way out, and the help to read.
//! clap finds the problem; this module joins its paragraphs, and adds advice for flags of other
//! programs.

use crate::flags::Cli;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// Name of the sources of `cp` in clap's messages.
const SOURCES: &str = "<SRC>...";

/// Start of clap's messages, and starts of their last paragraphs.
const PREFIX: &str = "error: ";
const TRAILERS: [&str; 2] = ["Usage: ", "For more information"];

/// Leading bytes that a suggested flag shares with the typed one, dashes included. (chosen: keeps
/// typing errors, drops other words)
const MIN_COMMON_PREFIX: usize = 5;

/// Advice for flags of rsync, scp and cp that bankfull does not have.
const FOREIGN_FLAGS: &[(&[&str], &str)] = &[
    (
        &["-z", "-C", "--compress", "--compress-level", "--zc"],
        "bankfull does not compress: leave it out",
    ),
    (
        &["--progress", "--info", "--human-readable"],
        "a terminal always shows progress: leave it out, or use --json for a program",
    ),
    (
        &["--bwlimit", "--limit-rate"],
        "use --max-rate, in bits per second, such as --max-rate 100mbit",
    ),
    (&["-e", "--rsh", "-S"], "use --ssh-command COMMAND, or -P, -i, -F, -J and -o as in scp"),
    (
        &["-l"],
        "symlinks are always kept; to limit the rate, use --max-rate, such as --max-rate 100mbit",
    ),
    (
        &["--partial", "--append", "--append-verify", "--inplace", "--partial-dir"],
        "an interrupted copy always resumes: leave it out",
    ),
    (&["--stats"], "a summary is always shown: leave it out, or use --json for more"),
    (
        &["--port"],
        "use -P PORT for ssh, bankfull://HOST:PORT/ for a daemon, and serve --listen PORT",
    ),
    (&["--password-file", "--token"], "use --token-file FILE"),
];

/// Subcommands that other programs have.
const FOREIGN_COMMANDS: [&str; 4] = ["daemon", "server", "listen", "start"];

/// Returns the line for an error in `arguments`, the first of which is the program.
pub(crate) fn line(error: &clap::Error, arguments: impl Iterator<Item = OsString>) -> String {
    let arguments: Vec<OsString> = arguments.collect();
    let command = command(&arguments);
    let problem = match error.kind() {
        ErrorKind::MissingRequiredArgument if is_destination_missing(error) => {
            format!("the destination is missing: write {command} SRC... DST")
        }
        ErrorKind::UnknownArgument => unknown_flag(error, &arguments),
        ErrorKind::InvalidSubcommand => unknown_command(error),
        ErrorKind::ValueValidation if has_rsync_letters(&arguments) => {
            "-P is the port of the ssh server, as in scp: leave it out to show progress".to_owned()
        }
        _ => joined(&error.to_string(), |_| true),
    };
    format!("{problem} (see {command} --help)")
}

/// Returns the program with the subcommand in `arguments`, if that exists.
fn command(arguments: &[OsString]) -> String {
    let root = Cli::command();
    let found = arguments.get(1).and_then(|name| root.find_subcommand(name).cloned());
    let name = found.filter(|found| !found.is_hide_set()).map(|found| found.get_name().to_owned());
    name.map_or_else(|| "bankfull".to_owned(), |name| format!("bankfull {name}"))
}

/// True if there is one operand where two are required; clap takes it for the last one.
fn is_destination_missing(error: &clap::Error) -> bool {
    let missing = error.get(ContextKind::InvalidArg);
    matches!(missing, Some(ContextValue::Strings(names)) if names.as_slice() == [SOURCES])
}

/// True if letters of rsync end with `P`, as in `-avP`: the operand becomes a port.
fn has_rsync_letters(arguments: &[OsString]) -> bool {
    arguments.iter().filter_map(|argument| argument.to_str()).any(|argument| {
        let letters = argument.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        letters.is_some_and(|letters| letters.len() > 1 && letters.ends_with('P'))
    })
}

/// Describes an unknown flag, with advice if another program has it.
fn unknown_flag(error: &clap::Error, arguments: &[OsString]) -> String {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return joined(&error.to_string(), |_| true);
    };
    let name = flag.split('=').next().unwrap_or(flag);
    let advice = FOREIGN_FLAGS.iter().find(|(flags, _)| flags.contains(&name));
    match advice {
        Some((_, advice)) => format!("unknown flag {}: {advice}", typed(name, arguments)),
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
fn unknown_command(error: &clap::Error) -> String {
    match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) if FOREIGN_COMMANDS.contains(&name.as_str()) => {
            format!("unrecognized subcommand '{name}'; the daemon is 'serve'")
        }
        _ => joined(&error.to_string(), |tip| !tip.contains("'agent'")),
    }
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
mod tests {
    use super::*;
    use clap::Parser;

    fn message(typed: &str) -> String {
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
            assert_eq!(message(typed), line);
        }
    }

    #[test]
    fn foreign_flag_has_advice() {
        for (typed, line) in [
            ("cp -avz a b", "unknown flag -z in -avz: bankfull does not compress: leave it out"),
            ("cp --progress a b", "unknown flag --progress: a terminal always shows progress"),
            ("cp --bwlimit 10 a b", "unknown flag --bwlimit: use --max-rate, in bits per second"),
            ("cp -e ssh a b", "unknown flag -e: use --ssh-command"),
            ("cp -C a b", "unknown flag -C: bankfull does not compress"),
            ("cp -l 100 a b", "unknown flag -l: symlinks are always kept"),
            ("cp --token t a b", "unknown flag --token: use --token-file FILE"),
            ("cp -avP data/docs h:b", "-P is the port of the ssh server, as in scp"),
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
    fn missing_operands_are_named() {
        assert_eq!(
            message("cp data"),
            "the destination is missing: write bankfull cp SRC... DST (see bankfull cp --help)"
        );
        let both = message("cp");
        assert!(both.contains("not provided: <SRC>... <DST> (see bankfull cp --help)"), "{both}");
    }
}
