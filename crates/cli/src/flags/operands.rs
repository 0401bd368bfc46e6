//! Operands of `bankfull cp`: sources, and last the destination.

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use std::ffi::OsString;

/// Identifier of the operands for clap.
pub(crate) const PLACES: &str = "places";

/// Sources and destination.
#[derive(Debug, Default, Clone)]
pub(crate) struct Operands {
    /// Files and directories to copy, at least one.
    pub(crate) sources: Vec<OsString>,
    /// Destination.
    pub(crate) destination: OsString,
}

/// The operands as clap sees them.
///
/// A single list: clap misparses a list followed by a last operand if flags stand between the two,
/// or if the last operand begins with a dash.
#[derive(Debug, Args)]
struct Places {
    /// Files and directories to copy (SRC), and last the destination (DST)
    ///
    /// SRC may be - for standard input. DST is a directory, the new name of a single source, or -
    /// for standard output, as is /dev/stdout.
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<OsString>,
}

impl FromArgMatches for Operands {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut sources = Places::from_arg_matches(matches)?.places;
        match sources.pop() {
            Some(destination) if !sources.is_empty() => Ok(Self { sources, destination }),
            _ => Err(Error::raw(ErrorKind::MissingRequiredArgument, "the destination is missing")),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Operands {
    fn augment_args(command: Command) -> Command {
        Places::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Places::augment_args_for_update(command)
    }
}
