//! Flags of rsync and scp: those that bankfull does not have, and those with another meaning.
//!
//! [`adapted`] reads the arguments before clap does, and describes all flags that the user cannot
//! have meant: unknown flags, and letters that consumed an operand as their value. The table in
//! `docs/rsync.md` lists all flags of both programs, and a test compares it with this module.

mod answers;
mod swallowed;
mod words;

pub(crate) use answers::advice;
pub(crate) use words::{Word, words};

use crate::flags;
use crate::nearest::nearest;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use swallowed::LETTERS;
use words::{find_letter, find_long, group, longs, takes_value};

/// Commands with flags of rsync.
const COPYING: [&str; 2] = ["cp", "gather"];

/// Names of the flag that switches `--relative` off.
const NO_RELATIVE: [&str; 2] = ["no-relative", "no-R"];

/// Flags and letters that every command has.
const ALWAYS: [&str; 2] = ["help", "version"];
const ALWAYS_LETTERS: [char; 2] = ['h', 'V'];

/// Returns the arguments without `h` in groups, where rsync has it for readable numbers.
///
/// # Errors
/// A line for each flag that is unknown, or means something else than in rsync.
pub(crate) fn adapted(arguments: Vec<OsString>) -> Result<Vec<OsString>, Vec<String>> {
    let root = flags::command();
    let found = arguments.get(1).and_then(|name| root.find_subcommand(name));
    let Some(command) = found.filter(|command| !command.is_hide_set()) else {
        return Ok(arguments);
    };
    let name = command.get_name();
    let (start, rest) = arguments.split_at(2);
    let words = words(command, rest);
    let problems = Line { command, words: &words }.problems();
    if !problems.is_empty() {
        let with_help = |problem| format!("{problem} (see bankfull {name} --help)");
        return Err(problems.into_iter().map(with_help).collect());
    }
    let mut adapted = start.to_vec();
    for word in words {
        match word {
            Word::Flags(text, value) => {
                let letters = group(command, text).filter(|_| has_sizes(name));
                let kept = letters.map(|all| format!("-{}", all.replace('h', "")));
                let kept = kept.map_or_else(|| text.into(), OsString::from);
                adapted.extend(Some(kept).filter(|kept| kept != "-"));
                adapted.extend(value.map(OsStr::to_owned));
            }
            Word::Operand(other) | Word::Other(other) => adapted.push(other.to_owned()),
        }
    }
    Ok(adapted)
}

/// True for a command that shows sizes: `-h` has a meaning in its model.
fn has_sizes(name: &str) -> bool {
    COPYING.contains(&name) || name == "ls"
}

/// Returns the last group of letters that ends with `letter`, such as `-avf`.
pub(crate) fn group_ending_with<'a>(
    command: &clap::Command,
    words: &[Word<'a>],
    letter: char,
) -> Option<&'a str> {
    let mut groups = words.iter().filter_map(|word| match word {
        Word::Flags(text, _) => group(command, text).map(|all| (*text, all)),
        _ => None,
    });
    groups.rfind(|(_, all)| all.ends_with(letter)).map(|(text, _)| text)
}

/// Returns the last letter that may have consumed an operand, and that operand.
pub(crate) fn letter_with_operand<'a>(words: &[Word<'a>]) -> Option<(char, &'a OsStr)> {
    words.iter().rev().find_map(|word| {
        let Word::Flags(text, Some(value)) = *word else { return None };
        let letter = text.strip_prefix('-').and_then(|all| all.parse::<char>().ok())?;
        let known = LETTERS.iter().find(|known| known.letter == letter)?;
        known.may_have_taken(value).then_some((letter, value))
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

/// The arguments after the name of a command.
struct Line<'a> {
    command: &'a clap::Command,
    words: &'a [Word<'a>],
}

impl Line<'_> {
    /// Describes each flag that is unknown or cannot be meant.
    fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = Vec::new();
        for (at, word) in self.words.iter().enumerate() {
            let Word::Flags(text, value) = *word else { continue };
            // A value of a flag that is unknown here is read as an operand.
            let next = match self.words.get(at + 1) {
                Some(Word::Operand(next)) => Some(*next),
                _ => None,
            };
            let found = match text.strip_prefix("--") {
                Some(long) => self.long(long, next).into_iter().collect(),
                None => self.letters(text, value, next),
            };
            for problem in found {
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
        }
        problems
    }

    /// Describes a long flag.
    fn long(&self, text: &str, next: Option<&OsStr>) -> Option<String> {
        let (name, value) = text.split_once('=').map_or((text, None), |(n, v)| (n, Some(v)));
        if NO_RELATIVE.contains(&name) && self.has_long(|long| long == "files-from") {
            return Some(format!("names in --files-from keep their paths: leave --{name} out"));
        }
        if ALWAYS.contains(&name) || find_long(self.command, name).is_some() {
            return None;
        }
        let value = value.or_else(|| next.and_then(OsStr::to_str));
        let flag = format!("--{name}");
        Some(match advice(self.command, &flag, value) {
            Some(advice) => format!("unknown flag {flag}: {advice}"),
            None => match nearest(name, self.command.get_arguments().flat_map(longs)) {
                Some(near) => format!("unknown flag {flag}: did you mean --{near}?"),
                None => format!("unknown flag {flag}"),
            },
        })
    }

    /// Describes the letters of an argument.
    fn letters(&self, text: &str, value: Option<&OsStr>, next: Option<&OsStr>) -> Vec<String> {
        let command = self.command;
        let all = text.strip_prefix('-').unwrap_or(text);
        let is_copy = COPYING.contains(&command.get_name());
        let in_group = group(command, text);
        let mut problems = Vec::new();
        for letter in all.chars() {
            let known = LETTERS.iter().find(|known| known.letter == letter);
            let known = known.filter(|_| takes_value(command, letter));
            let within = if all.len() > 1 { format!(" in {text}") } else { String::new() };
            match (known, in_group) {
                (Some(known), Some(group)) => problems.push(known.in_group(command, group)),
                _ if takes_value(command, letter) => break,
                _ if letter == 'R' && is_copy && self.means_relative(all) => {
                    problems.push(format!(
                        "-R{within} is --recursive, as in cp: write --relative for rsync's -R, or -r"
                    ));
                }
                _ if letter == 'h' && all == "h" => problems.extend(self.readable_numbers()),
                _ if ALWAYS_LETTERS.contains(&letter) => {}
                _ if find_letter(command, letter).is_some() => {}
                // clap describes what is no letter.
                _ if !letter.is_alphanumeric() => break,
                _ => {
                    let flag = format!("-{letter}");
                    let advice = advice(command, &flag, None);
                    let advice = advice.map(|advice| format!(": {advice}")).unwrap_or_default();
                    problems.push(format!("unknown flag {flag}{within}{advice}"));
                }
            }
        }
        let apart = LETTERS.iter().find(|known| all.parse() == Ok(known.letter));
        problems.extend(apart.zip(value).and_then(|(known, v)| known.with_operand(command, v)));
        let is_bare = is_copy && !all.chars().any(|letter| takes_value(command, letter));
        problems.extend(next.filter(|_| is_bare).and_then(|next| number_of_ssh(all, next)));
        problems
    }

    /// True if `-R` is rsync's: in a group, or beside a flag that deletes.
    fn means_relative(&self, letters: &str) -> bool {
        letters.len() > 1 || self.has_long(|long| long == "del" || long.starts_with("delete"))
    }

    /// Describes `-h` beside operands, where it would show the help and do nothing.
    fn readable_numbers(&self) -> Option<String> {
        let name = self.command.get_name();
        let is_operand = |word: &Word<'_>| !matches!(word, Word::Flags(..));
        let has_operands = self.words.iter().any(is_operand);
        let sizes = match name {
            "ls" => "sizes are in bytes",
            _ => "sizes are human-readable already",
        };
        (has_operands && has_sizes(name))
            .then(|| format!("-h: {sizes}: leave it out, or write bankfull {name} --help alone"))
    }

    fn has_long(&self, is_it: impl Fn(&str) -> bool) -> bool {
        self.words.iter().any(|word| {
            let Word::Flags(text, _) = word else { return false };
            let long = text.strip_prefix("--").map(|long| long.split('=').next().unwrap_or(long));
            long.is_some_and(&is_it)
        })
    }
}

/// Describes a number after `-p` or `-l` that is no operand: an ssh port, or scp's limit.
fn number_of_ssh(letters: &str, next: &OsStr) -> Option<String> {
    let text = next.to_str().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    let number: u64 = text.parse().ok().filter(|_| !Path::new(text).exists())?;
    match letters.chars().last()? {
        'p' => Some(format!(
            "-p keeps modes, as in rsync and scp, and takes no value: write -P {number} for the \
             port of the ssh server"
        )),
        'l' => {
            // scp counts kilobits per second.
            let rate = match number {
                megabits if megabits % 1000 == 0 => format!("{}mbit", megabits / 1000),
                kilobits => format!("{kilobits}kbit"),
            };
            Some(format!(
                "-l keeps symlinks, as in rsync, and takes no value: write --max-rate {rate} for \
                 scp's limit"
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::tests::message;
    use clap::error::ErrorKind;

    fn typed_words(line: &str) -> Vec<OsString> {
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
            "OPTION" => "A=b",
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
        // Beside operands it is refused.
        let operands = if flag == "-h" { "" } else { " a b" };
        let line = format!("cp {list}{}{operands}", with_value(flag));
        let parsed = flags::parse(adapted(typed_words(&line)).unwrap());
        if let Err(error) = parsed {
            let is_shown = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
            assert!(is_shown.contains(&error.kind()), "{line}: {error}");
        }
    }

    fn assert_answered(flag: &str, text: &str) {
        let name = flag.split('=').next().unwrap();
        let letter = name.strip_prefix('-').filter(|letter| letter.len() == 1);
        let group = letter.map(|letter| format!("-a{letter}"));
        let lines = [Some(with_value(flag)), Some(format!("{name} x")), group.clone()];
        for typed in lines.into_iter().flatten() {
            let line = format!("cp {typed} a b");
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
        for flag in answers::ANSWERS.iter().flat_map(|(flags, _)| *flags) {
            let is_ours = ["--limit-rate", "--token"].contains(flag);
            assert!(is_ours || named.iter().any(|name| name == flag), "{flag}");
        }
    }

    fn refused(typed: &str) -> Vec<String> {
        adapted(typed_words(typed)).unwrap_err()
    }

    #[test]
    fn group_with_a_letter_that_takes_a_value_is_refused() {
        for (typed, line) in [
            (
                "cp -avi a b",
                "-i in -avi is the identity file, as in scp: write --itemize-changes for rsync's \
                 list of changes, or -i FILE apart",
            ),
            ("gather -avi h:a b", "-i in -avi is the identity file, as in scp: leave it out, or"),
            (
                "cp -avP a b",
                "-P in -avP is the port of the ssh server, as in scp: leave it out to show \
                 progress, or write -P PORT apart",
            ),
            ("cp -rlptgoD a b", "-o in -rlptgoD is an ssh option, as in scp: write --owner, or -a"),
            ("cp -avo a b", "-o in -avo is an ssh option, as in scp: write --owner, or -a"),
            ("cp -aF a b", "-F in -aF is the configuration file of ssh, as in scp: write"),
            ("cp -aJ a b", "-J in -aJ is the jump host, as in scp: leave it out, or write -J"),
            ("cp -n --exclude x -avhi a b", "-i in -avhi is the identity file"),
            ("gather -rP h:a b", "-P in -rP is the port"),
            ("cp -aR a b", "-R in -aR is --recursive, as in cp: write --relative for rsync's -R"),
            ("gather -avR h:a b", "-R in -avR is --recursive, as in cp"),
            ("cp -a -R --delete a b", "-R is --recursive, as in cp: write --relative for rsync's"),
            ("cp -R --del a b", "-R is --recursive, as in cp: write --relative for rsync's"),
        ] {
            let lines = refused(typed);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].starts_with(line), "{lines:?}");
            assert!(lines[0].contains(" --help)") && !lines[0].contains('\n'), "{lines:?}");
        }
    }

    #[test]
    fn each_wrong_flag_has_a_line() {
        let lines = refused("cp -azPR --exlude x --bwlimit=500 --weather -z -q a b");
        let starts = [
            "unknown flag -z in -azPR: bankfull does not compress",
            "-P in -azPR is the port of the ssh server",
            "-R in -azPR is --recursive",
            "unknown flag --exlude: did you mean --exclude?",
            "unknown flag --bwlimit: write --max-rate 500KiB/s",
            "unknown flag --weather (see",
            "unknown flag -z: bankfull does not compress",
        ];
        assert_eq!(lines.len(), starts.len(), "{lines:#?}");
        for (line, start) in lines.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
        assert_eq!(refused("cp -zz -z -z a b").len(), 2);
    }

    #[test]
    fn operand_that_a_letter_took_is_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        std::fs::create_dir(at("src")).unwrap();
        std::fs::write(at("data"), "no key").unwrap();
        std::fs::write(at("key"), "-----BEGIN OPENSSH PRIVATE KEY-----\n").unwrap();
        std::fs::write(at("key.pub"), "ssh-ed25519 AAAA me\n").unwrap();
        for (flag, start) in [
            (format!("-i {}", at("src")), "-i took the directory "),
            (format!("-i {}", at("data")), "-i took the file "),
            ("-i host:x".to_owned(), "-i took the operand host:x as the identity file"),
            ("-i sources/".to_owned(), "-i took the directory sources/ as the identity"),
            ("-i bankfull://h/x".to_owned(), "-i took the operand "),
            (format!("-F {}", at("src")), "-F took the directory "),
            ("-o src".to_owned(), "-o took src as an ssh option, as in scp: write --owner"),
            ("-o src/a=b".to_owned(), "-o took src/a=b as an ssh option"),
            ("-J src/docs".to_owned(), "-J took the path src/docs as the jump host"),
            ("-J host:src".to_owned(), "-J took the operand host:src as the jump host"),
        ] {
            let lines = refused(&format!("cp -a {flag} photos h:b"));
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].starts_with(start), "{lines:?}");
        }
        let missing = at("missing");
        for flag in [
            format!("-i {} -i {} -i {missing} -F {}", at("key"), at("key.pub"), at("data")),
            "-o X=src/a -J me@gate:22,other,ssh://h:1,[::1]:2 -P 2222".to_owned(),
            "-i pkcs11:id=%01".to_owned(),
        ] {
            let line = format!("cp -a {flag} photos h:b");
            assert_eq!(adapted(typed_words(&line)), Ok(typed_words(&line)));
        }
    }

    #[test]
    fn letter_of_readable_numbers_beside_operands_is_refused() {
        let line = "-h: sizes are human-readable already: leave it out, or write bankfull cp \
                    --help alone (see bankfull cp --help)";
        assert_eq!(refused("cp -a -h a b"), [line]);
        assert_eq!(refused("cp a b -h"), [line]);
        assert_eq!(refused("cp -h -- a b"), [line]);
        assert!(refused("ls -l -h a")[0].starts_with("-h: sizes are in bytes: leave it out"));
        for line in ["cp -h", "cp -a -h", "cp a b --help", "serve -h a", "cp --exclude -h a b"] {
            assert_eq!(adapted(typed_words(line)), Ok(typed_words(line)));
        }
    }

    #[test]
    fn answer_names_no_flag_that_the_command_lacks() {
        for (typed, line) in [
            ("ls -ld a", "unknown flag -d in -ld: a directory is listed with its entries: list"),
            ("ls --bwlimit 5 a", "unknown flag --bwlimit: bankfull ls has no such flag: leave it"),
            ("ls -i src/ a", "-i took the directory src/ as the identity file, as in scp: leave"),
            ("serve --port 22 a", "unknown flag --port: use -P PORT for ssh, bankfull://HOST"),
            ("gather -z h:a b", "unknown flag -z: bankfull does not compress"),
            ("gather --list-only h:a b", "unknown flag --list-only: use bankfull ls -lR PLACE"),
        ] {
            let lines = refused(typed);
            assert!(lines.len() == 1 && lines[0].starts_with(line), "{lines:?}");
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
            "cp -R a b",
            "ls -lR a",
            "agent --unknown",
        ] {
            assert_eq!(adapted(typed_words(line)), Ok(typed_words(line)));
        }
    }

    #[test]
    fn letter_of_readable_numbers_is_dropped_from_groups() {
        let read = |line: &str| adapted(typed_words(line));
        assert_eq!(read("cp -avh a b"), Ok(typed_words("cp -av a b")));
        assert_eq!(read("cp -hh a b"), Ok(typed_words("cp a b")));
        assert_eq!(read("cp --exclude -avh a b"), Ok(typed_words("cp --exclude -avh a b")));
        assert_eq!(read("serve -vh a"), Ok(typed_words("serve -vh a")));
    }
}
