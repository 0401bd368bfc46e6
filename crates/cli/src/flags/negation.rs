//! Hidden flags `--no-NAME`, each of which switches `--NAME` off.
//!
//! They override an earlier flag, and the default in the configuration file.

use super::habits::HEADING;
use clap::{Arg, ArgAction, Command};

/// Switches without a negation: rsync's `--no-recursive` has another meaning.
const WITHOUT: [&str; 1] = ["recursive"];

/// Further names: letters that rsync has for other flags than bankfull.
const FURTHER: [(&str, &str); 2] = [("relative", "no-R"), ("itemize_changes", "no-i")];

/// Adds the negations to a subcommand.
pub(super) fn with_negations(command: Command) -> Command {
    let negations: Vec<Arg> =
        command.get_arguments().filter_map(|flag| negation(&command, flag)).collect();
    command.args(negations)
}

/// Returns the identifier of the flag that switches another one off.
pub(crate) fn negated(id: &str) -> String {
    format!("negated_{id}")
}

/// Returns the flag that switches another one off, if that has a meaning.
fn negation(command: &Command, flag: &Arg) -> Option<Arg> {
    let is_switch = matches!(flag.get_action(), ArgAction::SetTrue | ArgAction::Count);
    let is_idle = flag.get_help_heading() == Some(HEADING);
    let id = flag.get_id().as_str();
    let long = flag.get_long().filter(|_| is_switch && !is_idle && !WITHOUT.contains(&id))?;
    let mut names = match long.strip_prefix("no-") {
        // A flag such as --no-perms is itself the negation of --perms.
        Some(positive) => vec![positive.to_owned()],
        None => {
            let aliases = flag.get_all_aliases().unwrap_or_default().into_iter();
            let letters = flag.get_short().into_iter();
            let letters = letters.chain(flag.get_all_short_aliases().unwrap_or_default());
            let longs = std::iter::once(long).chain(aliases).map(str::to_owned);
            let names = longs.chain(letters.map(String::from)).map(|name| format!("no-{name}"));
            let further = FURTHER.iter().filter(|(other, _)| *other == id);
            names.chain(further.map(|(_, name)| (*name).to_owned())).collect()
        }
    };
    names.retain(|name| name.len() > 1 && !has_long(command, name));
    let own = negated(id);
    let (first, others) = names.split_first()?;
    let negation = Arg::new(own).long(first.clone()).aliases(others.to_vec());
    Some(negation.action(ArgAction::SetTrue).hide(true).overrides_with(id.to_owned()))
}

fn has_long(command: &Command, name: &str) -> bool {
    command.get_arguments().any(|flag| {
        let aliases = flag.get_all_aliases().unwrap_or_default();
        flag.get_long() == Some(name) || aliases.contains(&name)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Command as Subcommand, CpFlags, parse};

    fn cp(line: &str) -> Box<CpFlags> {
        let words = ["bankfull", "cp"].into_iter().chain(line.split(' ')).chain(["a", "b"]);
        match parse(words.map(Into::into).collect()) {
            Ok(cli) => match cli.command {
                Subcommand::Cp(flags) => flags,
                other => panic!("{other:?}"),
            },
            Err(error) => panic!("{line}: {error}"),
        }
    }

    fn metadata(line: &str) -> String {
        format!("{:?}", cp(line).metadata.metadata().unwrap())
    }

    #[test]
    fn switch_is_off_after_its_negation() {
        assert_eq!(metadata("-aAX --no-A"), metadata("-aX"));
        assert_eq!(metadata("-aAX --no-acls --no-xattrs"), metadata("-a"));
        assert_eq!(metadata("-aH --no-H -H"), metadata("-aH"));
        assert_eq!(metadata("-aO --no-O"), metadata("-a"));
        assert_eq!(metadata("--numeric-ids --no-numeric-ids"), metadata("-p"));
        assert!(cp("--delete --no-delete").delete.delete().is_none());
        assert!(cp("--delete-during --no-del").delete.delete().is_none());
        assert!(cp("--no-delete --delete").delete.delete().is_some());
        assert!(cp("-b --no-b").earlier.backup().is_none());
        assert!(!cp("--no-encryption --encryption").no_encryption);
        assert!(!cp("-nc --no-checksum --no-dry-run").checksum);
        assert_eq!(cp("-vv --no-v").show.verbose, 0);
        assert!(!cp("-q --no-quiet -v").show.quiet);
        assert!(!cp("--relative --no-R").selection.selection().relative);
    }

    #[test]
    fn flags_that_cannot_be_switched_off_have_no_negation() {
        let refused = |flag: &str| {
            let words = ["bankfull", "cp", flag, "a", "b"];
            parse(words.map(Into::into).to_vec()).is_err()
        };
        for flag in ["--no-recursive", "--no-stats", "--no-no-perms", "--no-max-rate", "--D"] {
            assert!(refused(flag), "{flag}");
        }
    }
}
