//! The arguments of a subcommand as it reads them: flags with their values, and operands.

use std::ffi::{OsStr, OsString};

/// Letters of rsync: a group has no others.
const RSYNC_LETTERS: &str = "vqcarRbudlLkKHpEAXogDtUNOJSnWxBeI@TyzCfF0s8hPiM46Vm";

/// Argument, or two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word<'a> {
    /// A long flag or letters, and the value in the next argument.
    Flags(&'a str, Option<&'a OsStr>),
    /// Operand before `--`.
    Operand(&'a OsStr),
    /// `--`, an operand after it, or a flag that is not UTF-8.
    Other(&'a OsStr),
}

/// Splits the arguments after the name of a command.
pub(crate) fn words<'a>(command: &clap::Command, arguments: &'a [OsString]) -> Vec<Word<'a>> {
    let mut rest = arguments.iter().map(OsString::as_os_str);
    let mut words = Vec::new();
    while let Some(argument) = rest.next() {
        let is_flag = argument.len() > 1 && argument.as_encoded_bytes().starts_with(b"-");
        words.push(match argument.to_str() {
            Some("--") => Word::Other(argument),
            Some(text) if is_flag => {
                let value = if awaits_value(command, text) { rest.next() } else { None };
                Word::Flags(text, value)
            }
            _ if is_flag => Word::Other(argument),
            _ => Word::Operand(argument),
        });
        if argument == "--" {
            words.extend(rest.by_ref().map(Word::Other));
        }
    }
    words
}

/// Returns the letters of a group: several of rsync's, the first without a value here.
pub(super) fn group<'a>(command: &clap::Command, text: &'a str) -> Option<&'a str> {
    let all = text.strip_prefix('-').filter(|all| all.len() > 1)?;
    let first = all.chars().next()?;
    let is_group = all.chars().all(|letter| RSYNC_LETTERS.contains(letter));
    (is_group && !takes_value(command, first)).then_some(all)
}

/// True if the next argument is the value of this one.
fn awaits_value(command: &clap::Command, text: &str) -> bool {
    if let Some(name) = text.strip_prefix("--") {
        return find_long(command, name).is_some_and(|flag| flag.get_action().takes_values());
    }
    let Some(all) = text.strip_prefix('-') else { return false };
    let first = all.char_indices().find(|(_, letter)| takes_value(command, *letter));
    first.is_some_and(|(at, letter)| at + letter.len_utf8() == all.len())
}

/// True if the command has this letter, with a value.
pub(super) fn takes_value(command: &clap::Command, letter: char) -> bool {
    find_letter(command, letter).is_some_and(|flag| flag.get_action().takes_values())
}

/// Returns the flag of a letter.
pub(super) fn find_letter(command: &clap::Command, letter: char) -> Option<&clap::Arg> {
    command.get_arguments().find(|flag| letters(flag).any(|known| known == letter))
}

/// Returns the flag of a long name without dashes.
pub(super) fn find_long<'c>(command: &'c clap::Command, name: &str) -> Option<&'c clap::Arg> {
    command.get_arguments().find(|flag| longs(flag).any(|known| known == name))
}

/// Returns the letters of a flag.
pub(super) fn letters(flag: &clap::Arg) -> impl Iterator<Item = char> + '_ {
    flag.get_short().into_iter().chain(flag.get_all_short_aliases().unwrap_or_default())
}

/// Returns the long names of a flag.
pub(super) fn longs(flag: &clap::Arg) -> impl Iterator<Item = &str> {
    flag.get_long().into_iter().chain(flag.get_all_aliases().unwrap_or_default())
}
