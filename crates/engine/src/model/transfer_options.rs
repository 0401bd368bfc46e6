//! Options of a transfer, as plain data.

use super::metadata::Metadata;
use super::options::{
    DEFAULT_RETRY_FOR, DEFAULT_STREAMS, DEFAULT_TIMEOUT, DaemonOptions, Fsync, SshOptions,
    Transport, Tune,
};
use super::overrides::Overrides;
use crate::base::location::Location;
use bankfull_control::{Bytes, ControllerKind, Rate};
use bankfull_proto::filter::FilterScope;
use bankfull_proto::limits::MAX_STREAMS;
use bankfull_proto::names::NameList;
use bankfull_proto::part::ResumePolicy;
use bankfull_proto::wire::control::{ComparisonRules, DeleteRules, EarlierRules, WalkRules};
use std::sync::Arc;
use std::time::Duration;

/// Message for a deletion in the root of a host.
pub(crate) const ROOT_REFUSED: &str =
    "--delete into / would delete the system: name the directories to copy to";

/// Purpose of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Files are copied.
    #[default]
    Copy,
    /// The sources are listed, and nothing is copied.
    Listing,
    /// Filler is sent for a time, instead of files.
    ThroughputTest(Duration),
}

impl Purpose {
    /// Returns the duration of a throughput test.
    pub(crate) fn test_time(self) -> Option<Duration> {
        match self {
            Self::ThroughputTest(time) => Some(time),
            Self::Copy | Self::Listing => None,
        }
    }
}

/// Options of a transfer between two locations.
#[derive(Debug, Clone)]
pub(crate) struct TransferOptions {
    pub(crate) sources: Vec<Location>,
    pub(crate) destination: Location,
    /// `None`: chosen from the path's RTT.
    pub(crate) streams: Option<u32>,
    pub(crate) encryption: bool,
    pub(crate) rules: CopyRules,
    pub(crate) dry_run: bool,
    pub(crate) timeout: Duration,
    /// Time for which a lost session is connected again.
    pub(crate) retry_for: Duration,
    pub(crate) tune: Tune,
    pub(crate) overrides: Overrides,
    pub(crate) purpose: Purpose,
    /// Rate of the link by which this host receives.
    pub(crate) link_rate: Option<Rate>,
    pub(crate) max_memory: Option<Bytes>,
    pub(crate) ssh: SshOptions,
    pub(crate) daemon: DaemonOptions,
}

/// Rules of what is copied and how it is received, here or there.
#[derive(Debug, Clone, Default)]
pub(crate) struct CopyRules {
    pub(crate) fsync: Fsync,
    pub(crate) comparison: ComparisonRules,
    /// Blocks in the journal of an earlier run are taken without a check.
    pub(crate) trust_journal: bool,
    pub(crate) filters: FilterScope,
    pub(crate) walk: WalkRules,
    pub(crate) metadata: Metadata,
    /// Rules for deleting what the source does not have.
    pub(crate) delete: Option<DeleteRules>,
    pub(crate) earlier: EarlierRules,
    /// Files are removed at the source once the destination has them.
    pub(crate) removes_sources: bool,
    /// Each change at the destination is reported.
    pub(crate) itemizes: bool,
    /// Names beneath the one source, if it is not copied whole.
    pub(crate) list: Option<Arc<NameList>>,
}

impl CopyRules {
    /// True if rules may leave out directories of a source.
    pub(crate) fn may_leave_out_dirs(&self) -> bool {
        let WalkRules { one_file_system, max_depth, ignore_files, .. } = &self.walk;
        !self.filters.is_empty()
            || *one_file_system
            || max_depth.is_some()
            || ignore_files.is_some()
    }

    /// Rule for blocks that an earlier run left.
    pub(crate) fn resume_policy(&self) -> ResumePolicy {
        if self.trust_journal { ResumePolicy::TrustJournal } else { ResumePolicy::Check }
    }
}

impl TransferOptions {
    /// Default options for a copy of `sources` to `destination`.
    pub(crate) fn new(sources: Vec<Location>, destination: Location) -> Self {
        Self {
            sources,
            destination,
            streams: None,
            encryption: true,
            rules: CopyRules::default(),
            dry_run: false,
            timeout: DEFAULT_TIMEOUT,
            retry_for: DEFAULT_RETRY_FOR,
            tune: Tune::default(),
            overrides: Overrides::default(),
            purpose: Purpose::default(),
            link_rate: None,
            max_memory: None,
            ssh: SshOptions::default(),
            daemon: DaemonOptions::default(),
        }
    }

    /// Initial number of data streams at a path RTT of `rtt`, if it is known.
    pub(crate) fn initial_streams(&self, rtt: Option<Duration>) -> u32 {
        let chosen = || rtt.map_or(DEFAULT_STREAMS, bankfull_control::initial_streams);
        self.streams.unwrap_or_else(chosen)
    }

    /// Maximum number of data streams; `None` if their number is fixed.
    pub(crate) fn max_streams(&self) -> Option<u32> {
        let may_vary = self.streams.is_none() && self.tune == Tune::Auto && !self.dry_run;
        (may_vary && self.is_tuned()).then_some(MAX_STREAMS)
    }

    /// Controller of windows and pacing, if they are tuned.
    pub(crate) fn controller(&self) -> ControllerKind {
        match self.tune {
            Tune::Sobas => ControllerKind::Sobas,
            Tune::Auto | Tune::Off => ControllerKind::Delay,
        }
    }

    /// True if windows and pacing are tuned.
    pub(crate) fn is_tuned(&self) -> bool {
        // QUIC has a congestion controller of its own.
        !self.uses_quic() && self.tune != Tune::Off && self.overrides.window.is_none()
    }

    /// True if QUIC carries the transfer.
    pub(crate) fn uses_quic(&self) -> bool {
        let mut locations = self.sources.iter().chain([&self.destination]);
        let is_daemon = |location: &Location| matches!(location, Location::Daemon { .. });
        self.daemon.transport == Transport::Quic && locations.any(is_daemon)
    }
}
