//! Answers for flags of rsync and scp that bankfull does not have.
//!
//! [`advice`] completes the error of an unknown flag. [`adapted`] reads groups of letters, such as
//! `-avP`, before clap does: a letter with a value here would take an operand for it. The table in
//! `docs/rsync.md` lists all flags of both programs, and a test compares it with this module.

use crate::flags::Cli;
use clap::CommandFactory;
use std::ffi::OsString;

/// Letters of rsync: a group has no others.
const RSYNC_LETTERS: &str = "vqcarRbudlLkKHpEAXogDtUNOJSnWxBeI@TyzCfF0s8hPiM46Vm";

/// Letters with a value here, without one in rsync, and the way out.
const SWALLOWING: [(char, &str); 5] = [
    (
        'i',
        "is the identity file, as in scp: write --itemize-changes for rsync's list \
         of changes, or -i FILE apart",
    ),
    (
        'P',
        "is the port of the ssh server, as in scp: leave it out to show progress, or write -P PORT \
         apart",
    ),
    ('o', "is an ssh option, as in scp: write --owner, or -a"),
    (
        'F',
        "is the configuration file of ssh, as in scp: write --filter 'dir-merge .rsync-filter', or \
         -F FILE apart",
    ),
    ('J', "is the jump host, as in scp: leave it out, or write -J HOSTS apart"),
];

/// Flags of other programs, and the answer to them.
const ANSWERS: &[(&[&str], &str)] = &[
    // Accepted by `cp`, not by other commands.
    (
        &["--progress", "--info", "--stats", "--human-readable", "--partial"],
        "a terminal shows progress, a summary follows, and a copy resumes: leave it out",
    ),
    (
        &["-S", "--sparse", "-W", "--whole-file", "-s", "--secluded-args"],
        "that is always done: leave it out",
    ),
    // Data and connection.
    (
        &[
            "-z",
            "--compress",
            "--compress-level",
            "--compress-choice",
            "--compress-threads",
            "--zc",
            "--zl",
            "--zt",
            "--new-compress",
            "--old-compress",
            "--skip-compress",
        ],
        "bankfull does not compress: leave it out",
    ),
    (
        &["-C", "--cvs-exclude"],
        "bankfull does not compress, as -C of scp does: leave it out; for rsync's, use --exclude or \
         --ignore-file",
    ),
    (
        &["--bwlimit", "--limit-rate"],
        "write --max-rate 80mbit; 10M of rsync's is 10 MiB/s, which is --max-rate 84mbit",
    ),
    (
        &["-l"],
        "symlinks are kept: leave it out; to limit the rate, scp's -l 8000 is --max-rate 8mbit",
    ),
    (
        &["-e", "--rsh", "--blocking-io"],
        "use --ssh-command COMMAND, or -P, -i, -F, -J and -o as in scp",
    ),
    (&["--rsync-path"], "use --remote-bankfull PATH"),
    (&["-M", "--remote-option"], "flags apply to both sides: write the flag itself"),
    (
        &["--port"],
        "use -P PORT for ssh, bankfull://HOST:PORT/ for a daemon, and serve --listen PORT",
    ),
    (&["--password-file", "--token", "--early-input"], "use --token-file FILE"),
    (
        &["--daemon", "--config", "--no-detach", "--dparam"],
        "the daemon is a command: write bankfull serve ROOT",
    ),
    (&["--no-motd"], "a daemon has no message of the day: leave it out"),
    (&["--contimeout"], "use --timeout SECONDS, which limits the connection setup, too"),
    (&["-4", "--ipv4"], "use -o AddressFamily=inet for ssh, or an IPv4 address as the host"),
    (&["-6", "--ipv6"], "use -o AddressFamily=inet6 for ssh, or an IPv6 address as the host"),
    (&["--address"], "use -o BindAddress=ADDRESS for ssh, or leave it out"),
    (&["--sockopts"], "use --buffer SIZE and --congestion NAME"),
    (&["--protocol"], "both sides agree on a version by themselves: leave it out"),
    (&["--max-alloc"], "use --max-memory SIZE"),
    (&["-3"], "one side of a copy is this host: run bankfull on one of the two hosts"),
    (
        &["-B"],
        "write --block-size 4MiB to set the block size; for scp's batch mode, -o BatchMode=yes",
    ),
    (
        &["--checksum-choice", "--cc", "--checksum-seed"],
        "blocks and files are verified with BLAKE3: leave it out",
    ),
    (
        &["--write-batch", "--only-write-batch", "--read-batch"],
        "there are no batch files: run the copy once for each destination",
    ),
    (
        &["--stop-after", "--stop-at", "--time-limit"],
        "run it under timeout(1); the same command resumes",
    ),
    // How files are written.
    (
        &["--inplace"],
        "a file is renamed into place once it is verified, and resumes by blocks: leave it out",
    ),
    (
        &["--append", "--append-verify", "--partial-dir"],
        "an interrupted copy always resumes: leave it out",
    ),
    (
        &["--no-whole-file", "--no-W", "-y", "--fuzzy"],
        "files that differ are sent whole: leave it out",
    ),
    (
        &["-T", "--temp-dir"],
        "files grow in the directory of their destination: leave it out; scp's -T is not needed",
    ),
    (&["--delay-updates"], "each file is renamed once it is complete: leave it out"),
    (&["--preallocate"], "the receiver decides on allocation: leave it out"),
    (
        &["--copy-devices", "--write-devices"],
        "devices are copied as devices with -D; use dd over ssh for their contents",
    ),
    (&["--mkpath"], "DST alone is created, not its parent: run mkdir -p first"),
    (&["--compare-dest", "--copy-dest"], "use --link-dest DIR, which links unchanged files"),
    (
        &["--force"],
        "a directory in the place of a file stays, and the file fails: remove the directory first",
    ),
    (&["-I", "--ignore-times"], "use --checksum, which compares the content"),
    // Metadata.
    (&["-E", "--executability"], "modes are kept: leave it out"),
    (&["-N", "--crtimes"], "creation times are not copied: leave it out"),
    (
        &["--omit-link-times"],
        "symlinks keep their times, as files do: leave it out, or use --no-times",
    ),
    (
        &["--super", "--fake-super"],
        "a receiver that is root sets owners with -a, and others do not: leave it out",
    ),
    (&["--drop-D"], "use --no-D"),
    (&["--copy-as"], "use --chown USER:GROUP, or run bankfull as that user"),
    (&["--iconv"], "names are copied byte for byte: leave it out"),
    // Selection.
    (
        &["-d", "--dirs", "--old-dirs", "--old-d", "--no-recursive", "--no-r"],
        "write --max-depth 0 for empty directories, or --max-depth 1 for what is directly in them",
    ),
    (&["-m", "--prune-empty-dirs"], "empty directories are copied: leave it out, or use --exclude"),
    (
        &["-K", "--keep-dirlinks"],
        "symlinks at the destination are not followed: name the directory itself as DST",
    ),
    (
        &["--copy-unsafe-links"],
        "use --copy-links for all symlinks, or --safe-links to leave unsafe ones out",
    ),
    (
        &["--munge-links"],
        "symlinks are kept unchanged: leave it out, or use --safe-links or --no-links",
    ),
    (
        &["--insecure-links", "--confine-root"],
        "bankfull serve ROOT confines its clients to ROOT: leave it out",
    ),
    (&["--trust-sender"], "received names are always checked: leave it out"),
    (
        &["--ignore-missing-args", "--delete-missing-args"],
        "a missing source is an error: leave it out of the command",
    ),
    (&["--old-args"], "no shell expands remote names: leave it out, and name each source"),
    (
        &["--no-implied-dirs"],
        "with --relative the directories above a source keep their metadata: leave it out",
    ),
    // Output.
    (&["--list-only"], "use bankfull ls -lR PLACE; --dry-run lists what would be copied"),
    (&["--out-format"], "use -v, or --json for a program"),
    (&["--log-file-format"], "use --log-format text or --log-format json"),
    (&["--debug"], "use -vv, or --log-file FILE -vv"),
    (
        &["--stderr", "--msgs2stderr", "--outbuf"],
        "messages go to standard error, a line at a time: leave it out",
    ),
    (&["-8", "--8-bit-output"], "use --json for names with unusual bytes, or leave it out"),
    (&["--no-progress"], "use --quiet, or --json for a program"),
    (&["--no-partial"], "an interrupted copy always keeps what it has: leave it out"),
    (&["--no-sparse", "--no-S"], "holes are kept: leave it out"),
    (&["--no-relative", "--no-R"], "sources lose their paths without --relative: leave it out"),
];

/// Returns the answer to an unknown flag without its value, if another program has it.
pub(crate) fn advice(flag: &str) -> Option<String> {
    let found = |name: &str| ANSWERS.iter().find(|(flags, _)| flags.contains(&name));
    if let Some((_, advice)) = found(flag) {
        return Some((*advice).to_owned());
    }
    let name = flag.strip_prefix("--no-")?;
    let positive = if name.len() == 1 { format!("-{name}") } else { format!("--{name}") };
    let root = Cli::command();
    let has_it = root.find_subcommand("cp").is_some_and(|cp| match name.len() {
        1 => name.chars().all(|letter| letters(cp).any(|(known, _)| known == letter)),
        _ => longs(cp).any(|(known, _)| known == name),
    });
    let is_known = has_it || found(&positive).is_some();
    is_known.then(|| format!("{positive} is off unless it is given: leave it out"))
}

/// Returns the arguments without `h` in groups, where rsync has it for readable numbers.
///
/// # Errors
/// A message for a group with a letter that would take an operand as its value.
pub(crate) fn adapted(arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let root = Cli::command();
    let Some(command) = arguments.get(1).and_then(|name| root.find_subcommand(name)) else {
        return Ok(arguments);
    };
    let mut rest = arguments.into_iter();
    let mut adapted: Vec<OsString> = rest.by_ref().take(2).collect();
    while let Some(argument) = rest.next() {
        let text = argument.to_str().unwrap_or_default();
        if text == "--" {
            adapted.push(argument);
            break;
        }
        let has_value_apart = awaits_value(command, text);
        match group(command, text) {
            Some(all) => {
                if let Some(problem) = swallowed(command, all) {
                    return Err(format!("{problem} (see bankfull {} --help)", command.get_name()));
                }
                let kept = all.replace('h', "");
                adapted.extend((!kept.is_empty()).then(|| format!("-{kept}").into()));
            }
            None => adapted.push(argument),
        }
        if has_value_apart {
            adapted.extend(rest.next());
        }
    }
    adapted.extend(rest);
    Ok(adapted)
}

/// Returns the last group of letters that ends with `letter`, such as `-avf`.
pub(crate) fn group_ending_with(arguments: &[OsString], letter: char) -> Option<&str> {
    let root = Cli::command();
    let command = arguments.get(1).and_then(|name| root.find_subcommand(name))?;
    let mut texts = arguments.iter().skip(2).filter_map(|argument| argument.to_str());
    texts.rfind(|text| group(command, text).is_some_and(|all| all.ends_with(letter)))
}

/// Returns the letters of a group: several of rsync's, the first without a value here.
fn group<'a>(command: &clap::Command, text: &'a str) -> Option<&'a str> {
    let all = text.strip_prefix('-').filter(|all| all.len() > 1)?;
    let first = all.chars().next()?;
    let is_group = all.chars().all(|letter| RSYNC_LETTERS.contains(letter));
    (is_group && !takes_value(command, first)).then_some(all)
}

/// Describes a letter of a group that would take an operand as its value.
fn swallowed(command: &clap::Command, all: &str) -> Option<String> {
    let is_taken =
        |(letter, _): &&(char, &str)| all.contains(*letter) && takes_value(command, *letter);
    let (letter, way_out) = SWALLOWING.iter().find(is_taken)?;
    // -l adds nothing to the advice for -o in -rlptgoD.
    let is_unknown = |other: &char| {
        !['h', 'l'].contains(other) && !letters(command).any(|(known, _)| known == *other)
    };
    let others = all.chars().filter(is_unknown).filter_map(|other| {
        let other = format!("-{other}");
        advice(&other).map(|advice| format!("; {other}: {advice}"))
    });
    Some(format!("-{letter} in -{all} {way_out}{}", others.collect::<String>()))
}

/// Returns a letter that took an operand as its value, and the value: the last of such.
pub(crate) fn letter_with_operand(arguments: &[OsString]) -> Option<(char, &str)> {
    let pairs = arguments.iter().zip(arguments.iter().skip(1)).rev();
    let mut texts = pairs.filter_map(|(flag, value)| flag.to_str().zip(value.to_str()));
    texts.find_map(|(flag, value)| {
        let letter = flag.strip_prefix('-').and_then(|all| all.parse::<char>().ok())?;
        SWALLOWING.iter().any(|(known, _)| *known == letter).then_some((letter, value))
    })
}

/// Returns the end of the error of a value that rsync's flag does not take.
pub(crate) fn value_advice(flag: &str) -> &'static str {
    match flag.split(' ').next() {
        Some("-P") => "; for rsync's -P, leave it out",
        Some("--fsync") => "; for rsync's --fsync, write --fsync file",
        _ => "",
    }
}

/// True if the next argument is the value of this one.
fn awaits_value(command: &clap::Command, text: &str) -> bool {
    if let Some(name) = text.strip_prefix("--") {
        return longs(command).any(|(known, takes_value)| takes_value && known == name);
    }
    let Some(all) = text.strip_prefix('-') else { return false };
    let first = all.char_indices().find(|(_, letter)| takes_value(command, *letter));
    first.is_some_and(|(at, letter)| at + letter.len_utf8() == all.len())
}

/// True if the command has this letter, with a value.
fn takes_value(command: &clap::Command, letter: char) -> bool {
    letters(command).any(|(known, takes_value)| takes_value && known == letter)
}

/// Letters of a command, and whether they take a value.
fn letters(command: &clap::Command) -> impl Iterator<Item = (char, bool)> + '_ {
    command.get_arguments().flat_map(|flag| {
        let takes_value = flag.get_action().takes_values();
        let aliases = flag.get_all_short_aliases().unwrap_or_default();
        flag.get_short().into_iter().chain(aliases).map(move |letter| (letter, takes_value))
    })
}

/// Long names of the flags of a command, and whether they take a value.
fn longs(command: &clap::Command) -> impl Iterator<Item = (&str, bool)> {
    command.get_arguments().flat_map(|flag| {
        let takes_value = flag.get_action().takes_values();
        let aliases = flag.get_all_aliases().unwrap_or_default();
        flag.get_long().into_iter().chain(aliases).map(move |name| (name, takes_value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::tests::message;
    use clap::Parser;
    use clap::error::ErrorKind;

    fn words(line: &str) -> Vec<OsString> {
        std::iter::once("bankfull").chain(line.split(' ')).map(OsString::from).collect()
    }

    /// Row of the table in `docs/rsync.md`.
    struct Row {
        flags: Vec<String>,
        kind: String,
        text: String,
    }

    fn table() -> Vec<Row> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rsync.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows = text.lines().filter(|line| line.starts_with("| `-"));
        rows.map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let flags = cells[0].split(", ").map(|flag| flag.replace('`', "")).collect();
            Row { flags, kind: cells[2].to_owned(), text: cells[3].replace('`', "") }
        })
        .collect()
    }

    /// Returns the flag with a value instead of the word that stands for one.
    fn with_value(flag: &str) -> String {
        let Some((name, word)) = flag.split_once(['=', ' ']) else { return flag.to_owned() };
        let value = match word {
            "NUM" | "SECONDS" => "3",
            "PORT" => "22",
            "SIZE" => "10MB",
            "BLOCK" => "4MiB",
            "WHEN" => "file",
            "KIND" => "text",
            "CHANGES" => "u+w",
            "USER:GROUP" | "RULES" => "a:b",
            _ => "x",
        };
        format!("{name}{}{value}", &flag[name.len()..=name.len()])
    }

    #[test]
    fn table_of_flags_is_what_the_command_does() {
        let table = table();
        assert!(table.len() > 120, "{} rows", table.len());
        for row in &table {
            for flag in &row.flags {
                match row.kind.as_str() {
                    "same" | "other" | "always on" => assert_accepted(flag),
                    "answered" => assert_answered(flag, &row.text),
                    other => panic!("{flag}: {other}"),
                }
            }
        }
    }

    fn assert_accepted(flag: &str) {
        let list = if flag.contains("-0") || flag == "--from0" { "--files-from x " } else { "" };
        let line = format!("cp {list}{} a b", with_value(flag));
        let parsed = Cli::try_parse_from(adapted(words(&line)).unwrap());
        if let Err(error) = parsed {
            let is_shown = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
            assert!(is_shown.contains(&error.kind()), "{line}: {error}");
        }
    }

    fn assert_answered(flag: &str, text: &str) {
        let name = flag.split('=').next().unwrap();
        let letter = name.strip_prefix('-').filter(|letter| letter.len() == 1);
        let group = letter.map(|letter| format!("-a{letter}"));
        let lines = [Some(with_value(flag)), Some(format!("{name} 1")), group.clone()];
        for typed in lines.into_iter().flatten() {
            let line = format!("cp {typed} a b");
            assert_eq!(adapted(words(&line)).as_ref(), Ok(&words(&line)), "{line}");
            let within = group.as_ref().filter(|group| **group == typed);
            let within = within.map(|group| format!(" in {group}")).unwrap_or_default();
            let wanted = format!("unknown flag {name}{within}: {text} (see bankfull cp --help)");
            assert_eq!(message(&line), wanted);
        }
        assert!(!text.contains("as a value") && !text.contains('\n'), "{text}");
        let ways = ["leave it out", "use ", "write ", "run ", "name ", "remove "];
        assert!(ways.iter().any(|way| text.contains(way)), "{name}: {text}");
    }

    #[test]
    fn answered_flags_of_cp_are_in_the_table() {
        let table = table();
        let bare = |flag: &str| flag.split(['=', ' ']).next().unwrap_or_default().to_owned();
        let named: Vec<String> =
            table.iter().flat_map(|row| &row.flags).map(|flag| bare(flag)).collect();
        for flag in ANSWERS.iter().flat_map(|(flags, _)| *flags) {
            let is_ours = ["--limit-rate", "--token"].contains(flag);
            assert!(is_ours || named.iter().any(|name| name == flag), "{flag}");
        }
    }

    #[test]
    fn group_with_a_letter_that_takes_a_value_is_refused() {
        for (typed, line) in [
            ("cp -avi a b", "-i in -avi is the identity file, as in scp: write --itemize-changes"),
            ("cp -avP a b", "-P in -avP is the port of the ssh server, as in scp: leave it out"),
            ("cp -rlptgoD a b", "-o in -rlptgoD is an ssh option, as in scp: write --owner, or -a"),
            ("cp -avo a b", "-o in -avo is an ssh option, as in scp: write --owner, or -a"),
            ("cp -aF a b", "-F in -aF is the configuration file of ssh, as in scp: write"),
            ("cp -aJ a b", "-J in -aJ is the jump host, as in scp: leave it out"),
            ("cp -n --exclude x -avhi a b", "-i in -avhi is the identity file"),
            ("gather -rP h:a b", "-P in -rP is the port"),
            (
                "cp -avzP a b",
                "-P in -avzP is the port of the ssh server, as in scp: leave it out to show \
                 progress, or write -P PORT apart; -z: bankfull does not compress: leave it out (",
            ),
        ] {
            let refused = adapted(words(typed)).unwrap_err();
            assert!(refused.starts_with(line), "{refused}");
            assert!(refused.contains(" --help)") && !refused.contains('\n'), "{refused}");
        }
    }

    #[test]
    fn flags_with_values_are_no_groups() {
        for line in [
            "cp -i FILE -P 22 -iFILE -P22 -oX=Y -JPi a b",
            "cp -P22 -Pi a b",
            "cp --exclude -avi --filter -avP a b",
            "cp -f -avi -av a b",
            "cp -avf -avi a b",
            "cp -av -- -avi b",
            "cp -avzx -zP9 a b",
            "serve -avi",
            "man -avi",
        ] {
            assert_eq!(adapted(words(line)), Ok(words(line)));
        }
    }

    #[test]
    fn letter_of_readable_numbers_is_dropped_from_groups() {
        assert_eq!(adapted(words("cp -avh a b")), Ok(words("cp -av a b")));
        assert_eq!(adapted(words("cp -hh a b")), Ok(words("cp a b")));
        assert_eq!(adapted(words("cp -h")), Ok(words("cp -h")));
        assert_eq!(adapted(words("cp --exclude -avh a b")), Ok(words("cp --exclude -avh a b")));
    }
}
