//! The command line: arguments, help texts and their checks. Their effect is in [`crate::cp`],
//! [`crate::gather`], [`crate::ls`], [`crate::probe`], [`crate::serve`] and [`crate::tokens`].
//!
//! The help texts are the source of `--help`, the manual and the completions. The first paragraph
//! is the line of `-h`. Tests compare them with `docs/cli.md`.

mod config;
mod cp;
mod delete;
mod doctor;
mod earlier;
mod filters;
mod gather;
mod guard;
mod habits;
mod ls;
mod metadata;
mod negation;
mod notify;
mod operands;
mod probe;
mod selection;
mod serve;
mod show;
mod token;
mod values;
mod when;

pub(crate) use config::{ConfigFlags, ConfigView};
pub(crate) use cp::{CpFlags, DaemonFlags, SshFlags};
pub(crate) use doctor::DoctorFlags;
pub(crate) use gather::GatherFlags;
pub(crate) use guard::{GuardFlags, GuardMode};
pub(crate) use habits::HEADING as HABITS;
pub(crate) use ls::LsFlags;
pub(crate) use negation::negated;
pub(crate) use notify::Notify;
pub(crate) use operands::{Operands, PLACES};
pub(crate) use probe::ProbeFlags;
pub(crate) use selection::SelectionFlags;
pub(crate) use serve::ServeFlags;
pub(crate) use show::{Example, LogFlags, LogFormat, ShowFlags};
pub(crate) use token::{LoginFlags, TokenAction, TokenFlags};
pub(crate) use values::{
    Listen, SshCommand, StreamCount, TransportHow, TuneHow, listen, port, rate,
};
pub(crate) use when::instant;

use bankfull::Bytes;
use clap::error::ErrorKind;
use clap::{ArgAction, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use show::after_help;
use std::ffi::OsString;
use std::ops::RangeInclusive;

/// Copy bulk data between hosts as fast as disk, CPU and network allow
///
/// Files and directory trees are copied over several data streams, every block is verified, and an
/// interrupted copy resumes when the same command is run again.
#[derive(Debug, Parser)]
#[command(
    name = "bankfull",
    version,
    propagate_version = true,
    color = ColorChoice::Never,
    after_long_help = after_help(EXAMPLES),
)]
pub(crate) struct Cli {
    /// Subcommand.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Cp(Box<CpFlags>),
    Gather(Box<GatherFlags>),
    Ls(Box<LsFlags>),
    Probe(Box<ProbeFlags>),
    Serve(Box<ServeFlags>),
    Token(Box<TokenFlags>),
    Login(LoginFlags),
    Guard(Box<GuardFlags>),
    Doctor(DoctorFlags),
    Config(ConfigFlags),
    /// Speak the protocol on standard input and output; `bankfull cp` starts it over ssh
    #[command(hide = true)]
    Agent {
        /// Limit receive-buffer memory
        #[arg(long, value_name = "SIZE", value_parser = values::memory)]
        max_memory: Option<Bytes>,
        /// Choose the data port from these
        #[arg(long, value_name = "A-B", value_parser = values::ports)]
        data_ports: Option<RangeInclusive<u16>>,
    },
    /// Write a shell completion script to standard output
    #[command(after_long_help = after_help(COMPLETIONS_EXAMPLES))]
    Completions {
        /// Shell to write the script for
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Write the manual page to standard output, in roff
    ///
    /// The page covers all commands and flags, or a single command if one is named.
    #[command(after_long_help = after_help(MAN_EXAMPLES))]
    Man {
        /// Command to document, such as `cp`
        ///
        /// Default: all commands.
        #[arg(value_name = "COMMAND")]
        command: Option<String>,
    },
}

/// Returns the definitions that command lines are parsed by: those of [`Cli`], with hidden flags
/// `--no-NAME`.
pub(crate) fn command() -> clap::Command {
    Cli::command().mut_subcommands(|command| {
        // A number with a minus is a bad value, no flag; --version names the program.
        negation::with_negations(command)
            .mut_args(|flag| match flag.get_action().takes_values() && !flag.is_positional() {
                true => flag.allow_negative_numbers(true),
                false => flag,
            })
            .display_name(env!("CARGO_BIN_NAME"))
    })
}

/// Parses a command line, the first word of which is the program.
///
/// # Errors
/// Errors of clap; help and version are among them.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let help = |error: clap::Error| match error.kind() {
        ErrorKind::DisplayHelp => help(arguments.clone()).unwrap_or(error),
        _ => error,
    };
    let mut matches = command.try_get_matches_from_mut(arguments.clone()).map_err(help)?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Returns the requested help, without an ellipsis behind switches that may be repeated.
///
/// With one, as clap shows them, they look as if they took several values.
fn help(arguments: Vec<OsString>) -> Option<clap::Error> {
    let as_switch = |flag: clap::Arg| match flag.get_action() {
        ArgAction::Count => {
            let id = flag.get_id().clone();
            let flag = flag.action(ArgAction::SetTrue).overrides_with(id);
            flag.value_parser(clap::value_parser!(bool))
        }
        _ => flag,
    };
    let mut shown = command().mut_subcommands(|command| command.mut_args(as_switch));
    let error = shown.try_get_matches_from_mut(arguments).err()?;
    (error.kind() == ErrorKind::DisplayHelp).then_some(error)
}

/// Returns the definitions that shells complete: without hidden commands.
pub(crate) fn completable() -> clap::Command {
    let whole = Cli::command();
    let bare = clap::Command::new("bankfull").args(whole.get_arguments());
    let bare = bare.version(env!("CARGO_PKG_VERSION")).propagate_version(true);
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
    let bare = bare.subcommands(shown);
    match whole.get_about() {
        Some(about) => bare.about(about.clone()),
        None => bare,
    }
}

/// Returns the examples of a subcommand; the empty name means the whole command.
pub(crate) fn examples(command: &str) -> &'static [Example] {
    match command {
        "" => EXAMPLES,
        "cp" => cp::EXAMPLES,
        "gather" => gather::EXAMPLES,
        "ls" => ls::EXAMPLES,
        "probe" => probe::EXAMPLES,
        "doctor" => doctor::EXAMPLES,
        "guard" => guard::EXAMPLES,
        "serve" => serve::EXAMPLES,
        "token" => token::EXAMPLES,
        "login" => token::LOGIN_EXAMPLES,
        "config" => config::EXAMPLES,
        "completions" => COMPLETIONS_EXAMPLES,
        "man" => MAN_EXAMPLES,
        _ => &[],
    }
}

const EXAMPLES: &[Example] = &[
    ("bankfull cp ./data host:/incoming/", "Copy a tree to another host over ssh."),
    ("bankfull cp host:results.tar .", "Fetch a file from your home directory there."),
    ("bankfull gather one:/var/log two:/var/log /srv/logs", "Fetch from many hosts at once."),
    ("bankfull serve /srv/data --token-file token", "Serve a directory to many clients."),
    ("bankfull man cp | man -l -", "Read the manual of one subcommand."),
];

const COMPLETIONS_EXAMPLES: &[Example] = &[(
    "bankfull completions bash > ~/.local/share/bash-completion/completions/bankfull",
    "Install the completions of bash.",
)];

const MAN_EXAMPLES: &[Example] = &[
    ("bankfull man | man -l -", "Read the manual."),
    ("bankfull man cp > bankfull-cp.1", "Write the page of one subcommand."),
];

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn parse(arguments: &[&str]) -> Result<Command, clap::Error> {
        let all = std::iter::once("bankfull").chain(arguments.iter().copied());
        Cli::try_parse_from(all).map(|cli| cli.command)
    }

    /// Returns every visible command, the root first.
    fn commands() -> Vec<clap::Command> {
        let mut root = Cli::command();
        root.build();
        // The text of `help` is generated by clap.
        let shown = |c: &&clap::Command| !c.is_hide_set() && c.get_name() != "help";
        let below: Vec<_> = root.get_subcommands().filter(shown).cloned().collect();
        std::iter::once(root).chain(below).collect()
    }

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
        command().debug_assert();
    }

    #[test]
    fn repeated_switch_has_no_ellipsis_in_help() {
        for arguments in [&["cp", "-AA", "-vv", "--help"][..], &["ls", "-h"], &["help", "gather"]] {
            let typed = ["bankfull"].iter().chain(arguments).map(OsString::from).collect();
            let help = super::parse(typed).unwrap_err();
            assert_eq!(help.kind(), ErrorKind::DisplayHelp);
            let help = help.to_string();
            assert!(help.contains("--verbose") && !help.contains("--verbose..."), "{help}");
        }
    }

    #[test]
    fn quiet_conflicts_with_verbose_and_json() {
        let Ok(Command::Cp(flags)) = parse(&["cp", "-vv", "--json", "a", "b"]) else { panic!() };
        assert_eq!((flags.show.verbose, flags.show.json, flags.show.quiet), (2, true, false));
        let Ok(Command::Cp(flags)) = parse(&["cp", "-q", "a", "b"]) else { panic!() };
        assert!(flags.show.quiet);
        assert!(parse(&["cp", "-q", "-v", "a", "b"]).is_err());
        assert!(parse(&["cp", "-q", "--json", "a", "b"]).is_err());
    }

    #[test]
    fn agent_command_is_hidden() {
        assert!(matches!(parse(&["agent"]), Ok(Command::Agent { max_memory: None, .. })));
        assert!(parse(&["agent", "x"]).is_err());
        assert!(!Cli::command().render_long_help().to_string().contains("agent"));
    }

    #[test]
    fn completions_require_a_shell() {
        let shell = Shell::Fish;
        assert!(
            matches!(parse(&["completions", "fish"]), Ok(Command::Completions { shell: s }) if s == shell)
        );
        assert!(parse(&["completions"]).is_err());
        assert!(matches!(parse(&["man"]), Ok(Command::Man { command: None })));
        assert!(matches!(parse(&["man", "cp"]), Ok(Command::Man { command: Some(_) })));
    }

    #[test]
    fn long_help_ends_with_examples_and_exit_codes() {
        for mut command in commands() {
            let name = command.get_name().to_owned();
            let help = command.render_long_help().to_string();
            let of = if name == "bankfull" { "" } else { &name };
            assert!(!examples(of).is_empty(), "{name}");
            for (line, _) in examples(of) {
                assert!(help.contains(line), "{name}: {line}");
            }
            assert!(help.trim_end().ends_with(crate::exit::help_table().trim_end()), "{name}");
        }
    }

    #[test]
    fn example_is_a_valid_command_line() {
        for command in commands() {
            let name = command.get_name();
            for (line, _) in examples(if name == "bankfull" { "" } else { name }) {
                let own = line.split(" | ").find(|part| part.starts_with("bankfull")).unwrap();
                let own = own.split(" > ").next().and_then(|own| own.split(" < ").next()).unwrap();
                let words = crate::shellsplit::split(own.as_ref()).unwrap();
                if let Err(error) = Cli::try_parse_from(words) {
                    panic!("{line}: {error}");
                }
            }
        }
    }

    #[test]
    fn command_and_flag_are_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
        let text = std::fs::read_to_string(path).unwrap();
        for command in commands() {
            assert!(text.contains(command.get_name()), "{} is missing", command.get_name());
            for flag in command.get_arguments().filter(|a| !a.is_positional()) {
                let names = flag.get_long().map(|long| format!("--{long}")).into_iter().chain(
                    flag.get_short_and_visible_aliases()
                        .unwrap_or_default()
                        .into_iter()
                        .map(|short| format!("`-{short}")),
                );
                for name in names {
                    assert!(text.contains(&name), "{name} is missing in docs/cli.md");
                }
            }
        }
    }
}
