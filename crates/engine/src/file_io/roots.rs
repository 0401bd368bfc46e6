//! Roots of a transfer: what a sender walks, and where a receiver writes.

use super::earlier::Earlier;
use super::links::Referent;
use super::ordered_output::OrderedOutput;
use super::root::PathRoot;
use super::spooled_input::{INPUT_NAME, SpooledInput};
use crate::model::merge_conflicts::MergeHandle;
use crate::model::metadata::{Metadata, Permits};
use crate::model::options::Fsync;
use crate::model::transfer_options::TransferOptions;
use bankfull_proto::filter::FilterScope;
use bankfull_proto::names::NameList;
use bankfull_proto::part::ResumePolicy;
use bankfull_proto::wire::control::{ComparisonRules, DeleteRules, Source, WalkRules};
use bankfull_sys::{Dir, FileKind, Stat};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Destination of a transfer, and options for receiving it.
pub(crate) struct ReceiveTarget {
    /// Destination directory; `None` in a dry run if it does not exist yet.
    pub(crate) base: Option<Arc<Dir>>,
    /// True if the destination directory was created for this transfer.
    pub(crate) is_new: bool,
    /// Path for messages.
    pub(crate) shown: PathBuf,
    /// Absolute path that absolute filter rules are compared with.
    pub(crate) filter_root: Vec<u8>,
    /// New name of a single copied file.
    pub(crate) rename: Option<OsString>,
    pub(crate) fsync: Fsync,
    /// Rules for what exists.
    pub(crate) comparison: ComparisonRules,
    pub(crate) dry_run: bool,
    /// Rule for blocks that an earlier run left.
    pub(crate) resume_policy: ResumePolicy,
    /// Device and inode of a daemon's root, whose mode and time no client changes.
    pub(crate) served_root: Option<(u64, u64)>,
    /// Sources, the only entries allowed at the top of the destination.
    pub(crate) sources: Vec<Source>,
    pub(crate) requested: RequestedRules,
    pub(crate) metadata: MetadataTarget,
    pub(crate) earlier: Earlier,
    /// Resolves conflicts with other sources, if several are merged.
    pub(crate) merge_handle: Option<MergeHandle>,
    /// Open file that takes the content of the one source.
    pub(crate) output: Option<Arc<OrderedOutput>>,
}

/// Rules of the user, for both sides.
#[derive(Debug, Default)]
pub(crate) struct RequestedRules {
    pub(crate) filters: FilterScope,
    pub(crate) walk: WalkRules,
    /// Names; empty if whole sources are requested.
    pub(crate) names: Vec<Arc<NameList>>,
    /// User who asks for each change.
    pub(crate) changes: Option<ChangeReader>,
    /// Rules for deleting what the source does not have.
    pub(crate) delete: Option<DeleteRules>,
}

/// User who asks for each change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeReader {
    /// The user of this process.
    Here,
    /// The user of the sender.
    Sender,
}

/// Metadata that the receiver sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct MetadataTarget {
    /// Kept metadata, with the changes that this side makes.
    pub(crate) keep: Metadata,
    /// Rules for extended attributes.
    pub(crate) filters: FilterScope,
    pub(crate) permits: Permits,
    /// True if the user is on the sender's side, which then replaces accounts.
    pub(crate) sender_maps_accounts: bool,
}

/// Rules for what a sender announces of its sources.
#[derive(Debug, Clone)]
pub(crate) struct SendRules {
    pub(crate) dry_run: bool,
    pub(crate) filters: FilterScope,
    pub(crate) walk: WalkRules,
    /// Files are removed once the receiver has them.
    pub(crate) removes_sources: bool,
    pub(crate) metadata: Metadata,
    /// Rules of a receiver that deletes.
    pub(crate) delete: Option<DeleteRules>,
    /// True if the user asked for each change.
    pub(crate) itemizes: bool,
    /// Root that the sources were resolved against, for links.
    pub(crate) root: PathRoot,
    /// Device and inode of a destination on this host, which is not copied into itself.
    pub(crate) destination: Option<(u64, u64)>,
}

impl SendRules {
    /// Returns the rules for sources on this host.
    pub(crate) fn of_host(options: &TransferOptions) -> Self {
        Self {
            dry_run: options.dry_run,
            filters: options.rules.filters.clone(),
            walk: options.rules.walk.clone(),
            removes_sources: options.rules.removes_sources,
            metadata: options.rules.metadata.clone(),
            delete: options.rules.delete,
            itemizes: options.rules.itemizes,
            root: PathRoot::Host,
            destination: None,
        }
    }
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
    /// Referent, if the source is a symlink that is followed; `stat` is the referent's.
    pub(crate) referent: Option<Referent>,
    /// Names beneath the source, if not all of its contents are copied.
    pub(crate) names: Option<ItemNames>,
    /// Content of unknown size, which has no place in the directory.
    pub(crate) input: Option<Arc<SpooledInput>>,
}

/// Names beneath a source that are copied, each with its path.
#[derive(Debug, Clone)]
pub(crate) enum ItemNames {
    /// Names that are known here.
    Known(Arc<NameList>),
    /// Names that the receiver has.
    Requested,
}

/// Returns the descriptions of sources that the receiver gets.
///
/// Names copied with their paths form a single source: the contents of the destination.
pub(crate) fn sources_of(items: &[SourceItem]) -> Vec<Source> {
    match items.iter().any(|item| item.names.is_some()) {
        true => vec![Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None }],
        false => items.iter().map(SourceItem::to_source).collect(),
    }
}

impl SourceItem {
    /// Returns the description that the receiver gets.
    fn to_source(&self) -> Source {
        Source {
            name: if self.contents { Vec::new() } else { self.name.as_bytes().to_vec() },
            is_dir: self.stat.kind == FileKind::Dir,
            contents: self.contents,
            open_ended: self.input.as_ref().map(|_| true),
        }
    }

    /// Returns a source of unknown size.
    pub(crate) fn of_input(input: &Arc<SpooledInput>) -> io::Result<Self> {
        Ok(Self {
            dir: Arc::new(Dir::open(Path::new("."))?),
            name: INPUT_NAME.into(),
            stat: input.stat,
            contents: false,
            operand: INPUT_NAME.into(),
            referent: None,
            names: None,
            input: Some(Arc::clone(input)),
        })
    }
}
