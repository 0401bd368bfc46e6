//! The flags of `bankfull gather`.

use super::cp::{DaemonFlags, SshFlags};
use super::values::{FsyncWhen, MergeRule, TuneHow, failures, memory, piece, rate, seconds};
use super::{Example, ShowFlags, after_help};
use bankfull::{Bytes, Rate};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const EXAMPLES: &[Example] = &[
    (
        "bankfull gather one:/var/log two:/var/log /srv/logs",
        "Fetch two trees over your own ssh, to /srv/logs/one/log and /srv/logs/two/log.",
    ),
    (
        "bankfull gather --from-file hosts --max-failed 3 ./results",
        "Fetch all that a file names, one source a line; stop when a fourth one fails.",
    ),
    (
        "bankfull gather --token-file token bankfull://a/run bankfull://b/run .",
        "Fetch from two daemons.",
    ),
];

/// Fetches from many hosts at once.
///
/// A source is `[user@]host:path` over your own ssh, or `bankfull://host[:port]/path` at a daemon.
/// Each lands in DST under the name of its host, as `cp SRC DST/HOST/` would put it, and sources
/// that would land on each other are refused; or all are merged (`--merge`). Up to 256 are fetched
/// at a time, each over one data connection. A source that fails does not keep the others; it is
/// named, and not tried again. Interrupted or failed, the same command continues.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    override_usage = "bankfull gather [OPTIONS] SRC... DST\n       \
                      bankfull gather [OPTIONS] --from-file LIST [SRC]... DST",
    after_long_help = after_help(EXAMPLES),
)]
pub(crate) struct GatherFlags {
    /// Files and directories on other hosts (SRC), and last the directory on this one that they go
    /// to (DST), which is made where it is missing.
    #[arg(required = true, value_name = "PLACE")]
    pub(crate) places: Vec<OsString>,

    /// Takes further sources from this file, one a line, after those on the command line; empty
    /// lines and those that begin with # are skipped, and - is the standard input. Default: none.
    #[arg(long, value_name = "LIST")]
    pub(crate) from_file: Option<PathBuf>,

    /// Stops when more sources than this have failed. Default: the others go on, however many fail.
    #[arg(long, value_name = "N", value_parser = failures)]
    pub(crate) max_failed: Option<u32>,

    /// Merges all sources into one tree under DST, each as `cp SRC DST/` would put it, and says
    /// which file counts where several have one of the same path. Nothing is copied before all are
    /// listed; up to 256 sources. Default: each lands under its host's name.
    #[arg(long, value_name = "RULE", value_enum)]
    pub(crate) merge: Option<MergeRule>,

    /// Has data sent without encryption. It stays authenticated and verified, and a far side that
    /// does not allow it refuses. Default: encrypted.
    #[arg(long)]
    pub(crate) no_encryption: bool,

    /// Sets when received files are flushed to the disk.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = FsyncWhen::End)]
    pub(crate) fsync: FsyncWhen,

    /// Compares files by content. Default: by size and modification time.
    #[arg(short, long)]
    pub(crate) checksum: bool,

    /// Says what would be done and changes nothing. Default: off.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Says whether the windows and the pacing of data connections follow the paths.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = TuneHow::Auto)]
    pub(crate) tune: TuneHow,

    /// Says what the link carries by which this host receives, such as 1gbit or 10gbit: the sources
    /// take turns, and their windows fit that link together. Default: what the interface tells,
    /// else what turns out.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) link_rate: Option<Rate>,

    /// Lets no more than this wait in memory until it is written, of all sources together, such as
    /// 256MiB, 1MiB at least. How much is used follows the load. Default: a quarter of the memory
    /// that is free, 1GiB at most.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) max_memory: Option<Bytes>,

    /// Asks every source for a piece of this size, such as 1MiB, and for the next one only when all
    /// are there; a source sends whole blocks, and in the next round so much less. Says how long
    /// the rounds took. Up to 256 sources. Default: all sources send as they can.
    #[arg(long, value_name = "SIZE", value_parser = piece, conflicts_with = "dry_run")]
    pub(crate) rounds: Option<Bytes>,

    /// Gives a source up when nothing was heard from its far side for this long, in seconds;
    /// fractions are allowed.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// What is shown.
    #[command(flatten)]
    pub(crate) show: ShowFlags,

    /// How daemons are reached.
    #[command(flatten)]
    pub(crate) daemon: DaemonFlags,

    /// How ssh is called.
    #[command(flatten)]
    pub(crate) ssh: SshFlags,
}

impl GatherFlags {
    /// The sources that were typed, and the destination, which comes last.
    pub(crate) fn operands(&self) -> (&[OsString], OsString) {
        match self.places.split_last() {
            Some((destination, sources)) => (sources, destination.clone()),
            None => (&[], OsString::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Command;
    use super::super::tests::parse;
    use super::*;
    use bankfull::DEFAULT_TIMEOUT;

    fn gather(line: &str) -> Result<Box<GatherFlags>, String> {
        let all: Vec<&str> = ["gather"].into_iter().chain(line.split(' ')).collect();
        match parse(&all) {
            Ok(Command::Gather(flags)) => Ok(flags),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_last_operand_is_the_destination() {
        let flags = gather("a:x b:x in").unwrap();
        assert_eq!(flags.operands(), (&["a:x".into(), "b:x".into()][..], "in".into()));
        let flags = gather("--from-file - in").unwrap();
        assert_eq!(flags.operands(), (&[][..], "in".into()));
        assert_eq!(flags.from_file, Some("-".into()));
    }

    #[test]
    fn nothing_but_operands_gives_the_defaults_of_the_library() {
        let flags = gather("a:x in").unwrap();
        assert_eq!((flags.timeout, flags.fsync), (DEFAULT_TIMEOUT, FsyncWhen::End));
        assert_eq!((flags.max_failed, flags.tune), (None, TuneHow::Auto));
        assert_eq!(flags.merge, None);
        assert!(!flags.no_encryption && !flags.checksum && !flags.dry_run);
    }

    #[test]
    fn a_rule_to_merge_by_is_refuse_first_or_newest() {
        let rule = |text| gather(&format!("--merge {text} a:x in")).map(|flags| flags.merge);
        assert_eq!(rule("refuse"), Ok(Some(MergeRule::Refuse)));
        assert_eq!(rule("first"), Ok(Some(MergeRule::First)));
        assert_eq!(rule("newest"), Ok(Some(MergeRule::Newest)));
        assert!(rule("oldest").is_err());
    }

    #[test]
    fn none_may_be_allowed_to_fail() {
        assert_eq!(gather("--max-failed 0 a:x in").unwrap().max_failed, Some(0));
        assert!(gather("--max-failed many a:x in").unwrap_err().contains("write a number"));
    }
}
