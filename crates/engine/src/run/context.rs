//! Runtime handles of one transfer among others in this process.

use crate::base::barrier::BarrierParty;
use crate::base::error::{Error, ErrorKind};
use crate::base::location::Location;
use crate::file_io::ordered_output::OrderedOutput;
use crate::file_io::root::PathRoot;
use crate::file_io::roots::SourceItem;
use crate::file_io::spooled_input::SpooledInput;
use crate::model::merge_conflicts::MergeHandle;
use crate::model::throttle::Throttle;
use crate::model::transfer_options::TransferOptions;
use crate::session::interface_sharing::InterfaceSharing;
use crate::transport::buffer_pool::BufferPool;
use crate::tuning::incast::is_receiving;
use bankfull_proto::wire::control::PathBytes;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Handles that a transfer shares with the process and with the others of a gather.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunContext {
    /// Memory for received data that waits for the disk, and its limit.
    pub(crate) buffer_pool: Arc<BufferPool>,
    /// Number of transfers, this one included, that are to receive at the same time.
    pub(crate) concurrent_receivers: Option<Arc<AtomicUsize>>,
    /// Place at the barrier of a gather in rounds.
    pub(crate) barrier_party: Option<BarrierParty>,
    /// Resolves conflicts with other sources that are merged into the same tree.
    pub(crate) merge_handle: Option<MergeHandle>,
    /// Rate limit that the transfers of a gather share.
    pub(crate) receive_limit: Option<Arc<Throttle>>,
    /// Open file that takes the content of the one source.
    pub(crate) output: Option<Arc<OrderedOutput>>,
    /// Content of the one source, read while it is sent.
    pub(crate) input: Option<Arc<SpooledInput>>,
    /// The destination's directory will exist, though a dry run may not find it yet.
    pub(crate) parent_is_planned: bool,
}

impl RunContext {
    /// Finds the sources on this host.
    ///
    /// # Errors
    /// Names the first one that is missing or cannot be copied.
    pub(crate) fn source_items(&self, options: &TransferOptions) -> Result<Vec<SourceItem>, Error> {
        if let Some(input) = &self.input {
            if !input.can_restart() {
                return Err(Error::new(ErrorKind::Source, "the input was read before"));
            }
            let item = SourceItem::of_input(input);
            let failed = |e| Error::local("cannot read the current directory", &e);
            return item.map(|item| vec![item]).map_err(failed);
        }
        let bytes = |source: &Location| PathBytes(source.path().as_os_str().as_bytes().to_vec());
        let typed: Vec<_> = options.sources.iter().map(bytes).collect();
        let rules = &options.rules;
        let items = PathRoot::Host.resolve_sources(&typed, &rules.walk, rules.list.as_ref())?;
        PathRoot::refuse_special(&items, rules.metadata.rules)?;
        Ok(items)
    }

    /// True if no other transfer depends on this one's session.
    pub(crate) fn is_alone(&self) -> bool {
        self.barrier_party.is_none() && self.merge_handle.is_none()
    }

    /// True if other transfers are to receive at the same time.
    pub(crate) fn has_concurrent_receivers(&self) -> bool {
        let is_many = |count: &Arc<AtomicUsize>| count.load(Ordering::Relaxed) > 1;
        self.concurrent_receivers.as_ref().is_some_and(is_many)
    }

    /// Sharing of the receiving interface with other transfers. `uses_credit`: the sender sends
    /// only what the receiver grants.
    pub(crate) fn sharing(&self, options: &TransferOptions, uses_credit: bool) -> InterfaceSharing {
        let receivers = self.concurrent_receivers.clone();
        let is_tuned = options.is_tuned();
        let mut sharing =
            InterfaceSharing::new(is_tuned, uses_credit, options.link_rate, receivers);
        sharing.barrier_party.clone_from(&self.barrier_party);
        sharing
    }

    /// True if the sender is to send only what the receiver grants: other transfers of this process
    /// receive, or are about to.
    pub(crate) fn uses_credit(&self, options: &TransferOptions) -> bool {
        let is_shared =
            self.barrier_party.is_some() || self.has_concurrent_receivers() || is_receiving();
        is_shared && options.is_tuned() && options.purpose.test_time().is_none() && !options.dry_run
    }
}
