//! Roots of a transfer: what a sender walks, and where a receiver writes.

use crate::model::merge_conflicts::MergeHandle;
use crate::model::options::Fsync;
use bankfull_proto::filter::FilterScope;
use bankfull_proto::part::ResumePolicy;
use bankfull_proto::wire::control::{ComparisonRules, Source};
use bankfull_sys::{Dir, FileKind, Stat};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// Destination of a transfer, and options for receiving it.
pub(crate) struct ReceiveTarget {
    /// Destination directory; `None` in a dry run if it does not exist yet.
    pub(crate) base: Option<Arc<Dir>>,
    /// Path for messages.
    pub(crate) shown: PathBuf,
    /// New name of a single copied file.
    pub(crate) rename: Option<OsString>,
    pub(crate) fsync: Fsync,
    /// Rules for what exists.
    pub(crate) comparison: ComparisonRules,
    pub(crate) dry_run: bool,
    /// Rule for blocks that an earlier run left.
    pub(crate) resume_policy: ResumePolicy,
    /// True if the peer is trusted with set-id bits: over ssh and within a host.
    pub(crate) set_id: bool,
    /// Device and inode of a daemon's root, whose mode and time no client changes.
    pub(crate) served_root: Option<(u64, u64)>,
    /// Sources, the only entries allowed at the top of the destination.
    pub(crate) sources: Vec<Source>,
    /// Filter rules that the sender was asked to apply.
    pub(crate) filters: FilterScope,
    /// Resolves conflicts with other sources, if several are merged.
    pub(crate) merge_handle: Option<MergeHandle>,
}

/// A resolved source operand.
#[derive(Debug, Clone)]
pub(crate) struct SourceItem {
    /// Its directory, or the directory itself if only its contents are copied.
    pub(crate) dir: Arc<Dir>,
    /// Name in that directory.
    pub(crate) name: OsString,
    pub(crate) stat: Stat,
    /// True if only the contents are copied into the destination.
    pub(crate) contents: bool,
    /// Path as given, for messages.
    pub(crate) operand: PathBuf,
}

impl SourceItem {
    /// Returns the description that the receiver gets.
    pub(crate) fn to_source(&self) -> Source {
        Source {
            name: if self.contents { Vec::new() } else { self.name.as_bytes().to_vec() },
            is_dir: self.stat.kind == FileKind::Dir,
            contents: self.contents,
        }
    }
}
