//! Limits of a share, which its sessions have together: rates, and the quota.

use crate::file_io::storage_quota::StorageQuota;
use crate::model::access::Share;
use crate::model::shared_limit::SharedLimit;
use crate::model::throttle::Throttle;
use crate::session::Session;
use bankfull_proto::wire::control::Direction;
use bankfull_sys::Dir;
use std::sync::Arc;

/// Limits of a share that its sessions have together.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShareLimits {
    /// Rates from and to the clients.
    sending: Option<Arc<Throttle>>,
    receiving: Option<Arc<Throttle>>,
    quota: Option<Arc<StorageQuota>>,
}

impl ShareLimits {
    /// Returns the limits of a share, which keep the counts of its earlier limits.
    ///
    /// The earlier ones change only by [`set`](Self::set).
    pub(super) fn new((share, dir): (&Share, &Arc<Dir>), earlier: Option<&Self>) -> Self {
        let throttle = |earlier: Option<&Arc<Throttle>>| {
            let new = || Arc::new(Throttle::new(share.max_rate));
            share.max_rate.map(|_| earlier.cloned().unwrap_or_else(new))
        };
        let quota = earlier.and_then(|limits| limits.quota.as_ref());
        let new = || Arc::new(StorageQuota::new(&share.name, Arc::clone(dir), share.quota));
        Self {
            sending: throttle(earlier.and_then(|limits| limits.sending.as_ref())),
            receiving: throttle(earlier.and_then(|limits| limits.receiving.as_ref())),
            quota: (!share.quota.is_unlimited()).then(|| quota.cloned().unwrap_or_else(new)),
        }
    }

    /// Sets the values of a share, also for sessions that run with these limits.
    pub(super) fn set(&self, share: &Share) {
        for throttle in self.sending.iter().chain(&self.receiving) {
            throttle.set_rate(share.max_rate);
        }
        self.quota.iter().for_each(|quota| quota.set_limit(share.quota));
    }

    /// Returns the limits without the quota, for what stores nothing.
    pub(super) fn without_quota(self) -> Self {
        Self { quota: None, ..self }
    }

    /// Returns the rate at which the share sends, if it is limited.
    #[cfg(test)]
    pub(super) fn sending_rate(&self) -> Option<bankfull_control::Rate> {
        self.sending.as_ref().and_then(|throttle| throttle.rate())
    }

    /// Returns the quota of the share, if it has one.
    pub(super) fn quota(&self) -> Option<Arc<StorageQuota>> {
        self.quota.clone()
    }

    /// Applies the limits to a session that sends or receives.
    pub(super) fn apply(&self, session: &mut Session, direction: Direction) {
        let limit = |throttle: &Option<Arc<Throttle>>| {
            let throttle = throttle.as_ref().map(Arc::clone);
            throttle.map(|throttle| Arc::new(SharedLimit::of_share(throttle)))
        };
        match direction {
            Direction::Pull => session.send.share_limit = limit(&self.sending),
            Direction::Push => {
                session.receive_limit = limit(&self.receiving);
                session.storage_quota.clone_from(&self.quota);
            }
        }
    }
}
