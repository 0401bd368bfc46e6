//! Flags of `bankfull gather`.

use super::cp::{DaemonFlags, SshFlags};
use super::filters::FilterFlags;
use super::metadata::MetadataFlags;
use super::notify::Notify;
use super::selection::{ComparisonFlags, SelectionFlags};
use super::values::{
    FsyncWhen, MergeRule, TuneHow, failures, memory, page, rate, round_size, schedule, seconds,
    seconds_or_none,
};
use super::{Example, ShowFlags, after_help};
use bankfull::{Bytes, Rate, Schedule};
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
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
        "Fetch the sources listed in a file; stop when a fourth one fails.",
    ),
    (
        "bankfull gather --token-file token --accept-new bankfull://a/run bankfull://b/run .",
        "Fetch from two daemons, and remember their fingerprints.",
    ),
];

/// Fetch from many hosts at once
///
/// A source is `[user@]host:path` over your own ssh, or `bankfull://host[:port]/path` at a daemon.
/// Each source is stored in DST under the name of its host, as `cp SRC DST/HOST/` would do, and
/// sources with the same destination are refused; with `--merge`, all sources are merged into DST.
/// Up to 256 sources are fetched at a time, each over one data stream. A failed source does not
/// stop the others, and is named; only a lost session is retried (--retry-for). After an
/// interruption or a failure, run the same command again to continue.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    override_usage = "bankfull gather [OPTIONS] SRC... DST\n       \
                      bankfull gather [OPTIONS] --from-file LIST [SRC]... DST",
    after_long_help = after_help(EXAMPLES),
)]
pub(crate) struct GatherFlags {
    /// Sources on other hosts (SRC), and last the local directory (DST)
    ///
    /// The directory is created if it is missing.
    #[arg(required = true, value_name = "PLACE")]
    pub(crate) places: Vec<OsString>,

    /// Read more sources from a file, one per line
    ///
    /// They follow the sources on the command line. Empty lines and lines that begin with # are
    /// skipped; - is standard input. Default: none.
    #[arg(long, value_name = "LIST")]
    pub(crate) from_file: Option<PathBuf>,

    /// Stop when more than N sources have failed
    ///
    /// Default: the other sources continue, however many fail.
    #[arg(long, value_name = "N", value_parser = failures)]
    pub(crate) max_failed: Option<u32>,

    /// Merge all sources into one tree under DST
    ///
    /// Each source is stored as `cp SRC DST/` would do; the rule chooses the file to keep if
    /// several sources have the same path. Nothing is copied before all sources are listed; up to
    /// 256 sources. Default: each source is stored under the name of its host.
    #[arg(long, value_name = "RULE", value_enum)]
    pub(crate) merge: Option<MergeRule>,

    /// Receive data without encryption
    ///
    /// The data stays authenticated and verified. A source fails if its host does not allow it.
    /// Default: encrypted.
    #[arg(long)]
    pub(crate) no_encryption: bool,

    /// Choose when received files are flushed to the disk
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = FsyncWhen::End)]
    pub(crate) fsync: FsyncWhen,

    /// Compare files by content
    ///
    /// Default: by size and modification time.
    #[arg(short, long)]
    pub(crate) checksum: bool,

    /// Reuse the data of an interrupted run without hashing it again
    ///
    /// Default: each of its blocks is hashed again during the transfer, and sent again if the disk
    /// changed it. Within this host, nothing is hashed.
    #[arg(long)]
    pub(crate) trust_journal: bool,

    /// Show what would be copied, and change nothing
    ///
    /// Default: off.
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Tune window and pacing while data is received
    #[arg(long, value_name = "HOW", value_enum, default_value_t = TuneHow::Auto)]
    pub(crate) tune: TuneHow,

    /// Limit the data rate of all sources together, such as 100mbit or 10MB/s
    ///
    /// The sources get about equal shares; the others may use what one leaves. The minimum is
    /// 100kbit for each source that is fetched at the same time. Default: no limit.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) max_rate: Option<Rate>,

    /// Limit the total rate by the time of day, such as 08:00-18:00=50mbit,*=max
    ///
    /// Each range of local times has a rate, or max for none; * is the rest of the day. The limit
    /// changes within a second of the end of a range. With --max-rate, the lower of both limits
    /// applies. Default: no limit.
    #[arg(long, value_name = "RANGE=RATE,...", value_parser = schedule)]
    pub(crate) schedule: Option<Schedule>,

    /// Set the rate of the receiving link, such as 1gbit or 10gbit
    ///
    /// The sources get time slots, and their windows together fit that link. Default: the rate that
    /// the interface reports, else the measured rate.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) link_rate: Option<Rate>,

    /// Limit receive-buffer memory, such as 256MiB
    ///
    /// The buffers of all sources together hold data until it is written; their use follows the
    /// load. The minimum is 1MiB. Default: a quarter of the free memory, at most 1GiB.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    pub(crate) max_memory: Option<Bytes>,

    /// Fetch in rounds of this size per source, such as 1MiB
    ///
    /// A round ends when every source has sent that much. A source sends whole blocks, and
    /// correspondingly less in the next round. The duration of the rounds is reported. Up to 256
    /// sources. Default: all sources send as fast as they can.
    #[arg(long, value_name = "SIZE", value_parser = round_size, conflicts_with = "dry_run")]
    pub(crate) rounds: Option<Bytes>,

    /// Give up on a source after this many seconds without a response
    ///
    /// Fractions are allowed.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub(crate) timeout: Duration,

    /// Reconnect a lost session for this many seconds
    ///
    /// Its source then resumes. With 0, a lost session fails its source. No effect with `--merge`
    /// and `--rounds`.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds_or_none)]
    pub(crate) retry_for: Duration,

    /// Write an HTML report of the gather
    ///
    /// The page has the result of each source, its rate, window and RTT over time, and the
    /// decisions with their reasons. The file name must end in .html. Default: no report.
    #[arg(long, value_name = "FILE.html", value_parser = OsStringValueParser::new().try_map(page))]
    pub(crate) report: Option<PathBuf>,

    /// Run this command, or post to this URL, when the gather has ended
    ///
    /// The command is run by sh, and has the result as JSON on its standard input, and
    /// BANKFULL_OUTCOME and BANKFULL_EXIT_CODE in its environment; a URL gets the JSON by POST. If
    /// that fails, a warning says so, and the exit code is that of the gather. Default: none.
    #[arg(long, value_name = "COMMAND|URL", conflicts_with = "dry_run")]
    pub(crate) notify: Option<Notify>,

    /// Filter flags.
    #[command(flatten)]
    pub(crate) filters: FilterFlags,

    /// Metadata flags.
    #[command(flatten)]
    pub(crate) metadata: MetadataFlags,
    /// Selection flags.
    #[command(flatten)]
    pub(crate) selection: SelectionFlags,

    /// Comparison flags.
    #[command(flatten)]
    pub(crate) comparison: ComparisonFlags,

    /// Output flags.
    #[command(flatten)]
    pub(crate) show: ShowFlags,

    /// Daemon flags.
    #[command(flatten)]
    pub(crate) daemon: DaemonFlags,

    /// Ssh flags.
    #[command(flatten)]
    pub(crate) ssh: SshFlags,
}

impl GatherFlags {
    /// Returns the typed sources, and the destination, which is last.
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
    fn last_operand_is_the_destination() {
        let flags = gather("a:x b:x in").unwrap();
        assert_eq!(flags.operands(), (&["a:x".into(), "b:x".into()][..], "in".into()));
        let flags = gather("--from-file - in").unwrap();
        assert_eq!(flags.operands(), (&[][..], "in".into()));
        assert_eq!(flags.from_file, Some("-".into()));
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        let flags = gather("a:x in").unwrap();
        assert_eq!((flags.timeout, flags.fsync), (DEFAULT_TIMEOUT, FsyncWhen::End));
        assert_eq!((flags.max_failed, flags.tune), (None, TuneHow::Auto));
        assert_eq!(flags.merge, None);
        assert!(!flags.no_encryption && !flags.checksum && !flags.dry_run);
    }

    #[test]
    fn merge_rule_is_refuse_first_or_newest() {
        let rule = |text| gather(&format!("--merge {text} a:x in")).map(|flags| flags.merge);
        assert_eq!(rule("refuse"), Ok(Some(MergeRule::Refuse)));
        assert_eq!(rule("first"), Ok(Some(MergeRule::First)));
        assert_eq!(rule("newest"), Ok(Some(MergeRule::Newest)));
        assert!(rule("oldest").is_err());
    }

    #[test]
    fn max_failed_accepts_zero() {
        assert_eq!(gather("--max-failed 0 a:x in").unwrap().max_failed, Some(0));
        assert!(gather("--max-failed many a:x in").unwrap_err().contains("write a number"));
    }
}
