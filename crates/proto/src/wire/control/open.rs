//! Request of a transfer: [`Open`] and its answer [`Opened`].

use super::bytes::{Bytes, PathBytes};
use super::deletion::DeleteRules;
use super::earlier::EarlierRules;
use super::metadata::MetadataRules;
use super::rules::{ComparisonRules, WalkRules};
use crate::error::WireError;
use crate::limits::{
    MAX_FILTER_RULES, MAX_FILTER_RULES_BYTES, MAX_IO_METHOD_NAME_BYTES, MAX_PATH_BYTES,
    MAX_REQUEST_PATHS, MAX_STREAMS, MAX_THROUGHPUT_TEST_MS,
};
use crate::wire::bounds::{at_most, check_congestion, check_name};
use minicbor::{Decode, Encode};

/// Direction of the files, seen from the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Direction {
    /// Client sends, server receives.
    #[default]
    #[n(0)]
    Push,
    /// Server sends, client receives.
    #[n(1)]
    Pull,
}

/// Flush policy of the receiver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Fsync {
    /// No flush.
    #[default]
    #[n(0)]
    None,
    /// Flush of each file before its rename, and of its directory after.
    #[n(1)]
    File,
    /// One flush of the destination's file system at the end.
    #[n(2)]
    End,
}

/// Request of a transfer.
#[derive(Debug, Clone, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Open {
    /// Direction of the files.
    #[n(0)]
    pub direction: Direction,
    /// Push: the one destination. Pull: the sources. As typed by the user, resolved by the server.
    #[n(1)]
    pub paths: Vec<PathBytes>,
    /// Push: the sources.
    #[n(2)]
    pub sources: Vec<Source>,
    /// Flush policy of the receiver.
    #[n(3)]
    pub fsync: Fsync,
    /// Comparison by content instead of size and time.
    #[n(4)]
    pub checksum: bool,
    /// Dry run: report what would be done, change nothing.
    #[n(5)]
    pub dry_run: bool,
    /// Data streams without encryption.
    #[n(6)]
    pub unencrypted: bool,
    /// Number of data streams that the client will open.
    #[n(7)]
    pub streams: u32,
    /// Timeout of the client in milliseconds of silence; 0: not stated. The server pings often
    /// enough for it.
    #[n(8)]
    pub timeout_ms: u64,
    /// No tuning of windows and pacing; absent: tuning is on.
    #[n(9)]
    pub autotune_off: Option<bool>,
    /// Maximum data rate of all data streams together, in bytes per second; absent: no limit.
    #[n(10)]
    pub rate_max: Option<u64>,
    /// Fixed receive window of all data streams together, in bytes; absent: chosen by the
    /// receiver.
    #[n(11)]
    pub window: Option<u64>,
    /// Pull: congestion control of the data streams; absent: the server's default.
    #[n(12)]
    pub congestion: Option<String>,
    /// Throughput test instead of a transfer: duration of the filler in milliseconds.
    #[n(13)]
    pub throughput_test_ms: Option<u32>,
    /// Push: initial estimate from an earlier transfer, as path rate in bytes per second and min
    /// RTT in microseconds.
    #[n(14)]
    pub cached_path: Option<[u64; 2]>,
    /// Maximum number of data streams that the receiver may choose; absent: the initial number.
    #[n(15)]
    pub max_streams: Option<u32>,
    /// Credit. Pull: the client offers to grant it, see [`super::Message::Credits`]. Push: the
    /// client complies with it if the server grants it.
    #[n(16)]
    pub credit: Option<bool>,
    /// Pull: I/O method of the server; absent: chosen by the server.
    #[n(17)]
    pub io_method: Option<String>,
    /// Pull: block size of the files in bytes; absent: chosen by the server.
    #[n(18)]
    pub block_bytes: Option<u32>,
    /// True if the server is to bypass its page cache; absent: chosen by the server.
    #[n(19)]
    pub direct: Option<bool>,
    /// Pull: maximum number of outstanding files and symlinks; absent: no limit.
    #[n(20)]
    pub max_outstanding_files: Option<u32>,
    /// Push: blocks in the journal of an earlier session are taken without a check.
    #[n(21)]
    pub trust_journal: Option<bool>,
    /// Filter rules in order, see [`crate::filter`]; absent: none.
    ///
    /// In a pull, and in a push that deletes or keeps extended attributes.
    #[n(22)]
    pub filters: Option<Vec<Bytes>>,
    /// Pull: rules of the walk; absent: none.
    #[n(23)]
    pub walk: Option<WalkRules>,
    /// Push: rules for what exists at the destination; absent: none.
    #[n(24)]
    pub comparison: Option<ComparisonRules>,
    /// Metadata that is kept; absent: modes, modification times and symlinks.
    #[n(25)]
    pub metadata: Option<MetadataRules>,
    /// The receiver deletes what the source does not have; absent: nothing.
    #[n(26)]
    pub delete: Option<DeleteRules>,
    /// Push: rules for earlier versions; absent: none.
    #[n(27)]
    pub earlier: Option<EarlierRules>,
    /// Pull: the server removes files that the client has; absent: none.
    #[n(28)]
    pub remove_sources: Option<bool>,
    /// Push: the receiver reports each change, see [`super::Message::Changes`].
    #[n(29)]
    pub itemize: Option<bool>,
    /// The client may change the rate limit, see [`super::Message::RateLimit`]; absent: it does
    /// not.
    #[n(31)]
    pub rate_changes: Option<bool>,
    /// Tuning by SOBAS; absent: by the receiver's own controller.
    #[n(32)]
    pub tune_sobas: Option<bool>,
}

/// Answer to [`Open`].
#[derive(Debug, Clone, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Opened {
    /// Pull: the sources.
    #[n(0)]
    pub sources: Vec<Source>,
    /// Push: destination of each source.
    #[n(1)]
    pub destinations: Vec<PathBytes>,
    /// True if file data needs credit, see [`super::Message::Credits`]. Only in answer to
    /// [`Open::credit`].
    #[n(2)]
    pub credit: Option<bool>,
    /// Push: maximum number of outstanding files and symlinks; absent: the protocol's.
    #[n(3)]
    pub max_outstanding_files: Option<u32>,
    /// Push: the server reports each change. In answer to [`Open::itemize`].
    #[n(4)]
    pub itemizes: Option<bool>,
    /// Push: the server takes a file of unknown size. In answer to [`Source::open_ended`].
    #[n(5)]
    pub open_ended: Option<bool>,
    /// The server follows changes of the rate limit. In answer to [`Open::rate_changes`].
    #[n(6)]
    pub rate_changes: Option<bool>,
}

/// A source operand of the command.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Source {
    /// Last component of the path; may be empty if only the contents are copied.
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub name: Vec<u8>,
    /// True if the source is a directory.
    #[n(1)]
    pub is_dir: bool,
    /// True if the contents of the directory are copied, without the directory itself.
    #[n(2)]
    pub contents: bool,
    /// True if the size may be unknown and the name means nothing: standard input.
    #[n(3)]
    pub open_ended: Option<bool>,
}

impl Source {
    /// True if the size may be unknown and the name means nothing.
    #[must_use]
    pub fn is_open_ended(&self) -> bool {
        self.open_ended == Some(true)
    }
}

impl Open {
    pub(super) fn check(&self) -> Result<(), WireError> {
        for streams in self.max_streams.into_iter().chain([self.streams]) {
            at_most("the number of streams", streams as usize, MAX_STREAMS as usize)?;
        }
        let test_ms = self.throughput_test_ms.unwrap_or_default() as usize;
        at_most("the time of a throughput test", test_ms, MAX_THROUGHPUT_TEST_MS as usize)?;
        at_most("the number of paths", self.paths.len(), MAX_REQUEST_PATHS)?;
        for path in &self.paths {
            at_most("a path", path.0.len(), MAX_PATH_BYTES)?;
        }
        let filters = self.filters.as_deref().unwrap_or_default();
        at_most("the number of filter rules", filters.len(), MAX_FILTER_RULES)?;
        for rule in filters {
            at_most("a filter rule", rule.0.len(), MAX_PATH_BYTES)?;
        }
        let bytes = filters.iter().map(|rule| rule.0.len()).sum();
        at_most("all filter rules", bytes, MAX_FILTER_RULES_BYTES)?;
        self.metadata.map_or(Ok(()), MetadataRules::check)?;
        self.earlier.as_ref().map_or(Ok(()), EarlierRules::check)?;
        self.congestion.as_deref().map_or(Ok(()), check_congestion)?;
        let method = self.io_method.as_deref().unwrap_or_default();
        at_most("the name of an I/O method", method.len(), MAX_IO_METHOD_NAME_BYTES)?;
        self.walk.iter().try_for_each(WalkRules::check)?;
        self.sources.iter().try_for_each(Source::check)
    }
}

impl Opened {
    pub(super) fn check(&self) -> Result<(), WireError> {
        self.sources.iter().try_for_each(Source::check)
    }
}

impl Source {
    fn check(&self) -> Result<(), WireError> {
        if self.contents && self.name.is_empty() { Ok(()) } else { check_name(&self.name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::control::{Message, tests::round_trip};

    #[test]
    fn open_paths_are_counted() {
        let open = |count| {
            let paths = vec![PathBytes(b"*".to_vec()); count];
            Message::Open(Open { paths, ..Open::default() })
        };
        assert!(round_trip(&open(MAX_REQUEST_PATHS)).is_ok());
        let max = MAX_REQUEST_PATHS;
        let refused = WireError::OverLimit { what: "the number of paths", max };
        assert_eq!(round_trip(&open(MAX_REQUEST_PATHS + 1)), Err(refused));
    }

    #[test]
    fn open_congestion_name_follows_kernel_rules() {
        let open = |name: &str| {
            Message::Open(Open { congestion: Some(name.to_owned()), ..Open::default() })
        };
        for name in ["reno", "bbr", "a-b_3", "fifteen-letters"] {
            assert_eq!(round_trip(&open(name)), Ok(open(name)));
        }
        for name in ["", "sixteen-letters-", "Reno", "../x", "a b", "a\0", "é"] {
            assert!(matches!(round_trip(&open(name)), Err(WireError::BadCongestion(_))), "{name}");
        }
    }
}
