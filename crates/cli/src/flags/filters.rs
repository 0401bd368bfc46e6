//! Filter flags, whose order counts across their names.

use bankfull::FilterRule;
use clap::{ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use std::ffi::OsString;

/// Filter rules in the order of the command line.
#[derive(Debug, Default, Clone)]
pub(crate) struct FilterFlags {
    /// Rules of all flags.
    pub(crate) rules: Vec<FilterRule>,
}

/// The flags as clap sees them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters (as in rsync)")]
struct EachFlag {
    /// Leave out what matches a pattern, such as '*.o' or /build/
    ///
    /// The first pattern that matches an entry, of all filter flags in their order, decides. One
    /// with a slash at its beginning matches at the top of the copy only, one with a slash at its
    /// end directories only; `*` stops at slashes, `**` does not. Default: nothing is left out.
    #[arg(long, value_name = "PATTERN", action = ArgAction::Append, allow_hyphen_values = true)]
    exclude: Vec<OsString>,

    /// Copy what matches a pattern, even if a later one excludes it
    ///
    /// Default: everything is copied that no pattern excludes.
    #[arg(long, value_name = "PATTERN", action = ArgAction::Append, allow_hyphen_values = true)]
    include: Vec<OsString>,

    /// Read patterns to exclude from a file, one on each line
    ///
    /// Empty lines and those that begin with `#` or `;` do not count; `-` is standard input.
    /// Default: none.
    #[arg(long, value_name = "FILE", action = ArgAction::Append, allow_hyphen_values = true)]
    exclude_from: Vec<OsString>,

    /// Read patterns to include from a file, as --exclude-from does
    ///
    /// Default: none.
    #[arg(long, value_name = "FILE", action = ArgAction::Append, allow_hyphen_values = true)]
    include_from: Vec<OsString>,

    /// Add a filter rule of rsync, such as '- *.o' or 'dir-merge .rsync-filter'
    ///
    /// Default: none.
    #[arg(short = 'f', long, value_name = "RULE", action = ArgAction::Append, allow_hyphen_values = true)]
    filter: Vec<OsString>,
}

/// Constructor of a rule by the name of its flag.
type MakeRule = fn(OsString) -> FilterRule;

const FLAGS: [(&str, MakeRule); 5] = [
    ("exclude", FilterRule::Exclude),
    ("include", FilterRule::Include),
    ("exclude_from", FilterRule::ExcludeFrom),
    ("include_from", FilterRule::IncludeFrom),
    ("filter", FilterRule::Rule),
];

impl FromArgMatches for FilterFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut rules = Vec::new();
        for (name, make) in FLAGS {
            let values = matches.get_many::<OsString>(name).into_iter().flatten();
            let positions = matches.indices_of(name).into_iter().flatten();
            rules.extend(positions.zip(values.map(|value| make(value.clone()))));
        }
        rules.sort_by_key(|(position, _)| *position);
        Ok(Self { rules: rules.into_iter().map(|(_, rule)| rule).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for FilterFlags {
    fn augment_args(command: Command) -> Command {
        EachFlag::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        EachFlag::augment_args_for_update(command)
    }
}
