//! Latest feedback of the peer, from the control thread to the tuner.

use crate::base::sync::lock;
use bankfull_proto::wire::control::{RateRequest, ReceiverReport, SenderReport};
use std::sync::Mutex;

/// Maximum length of the queues of reports and decisions; further ones are dropped. (chosen: one
/// second of reports, and decisions)
pub(crate) const MAX_QUEUED_REPORTS: usize = 64;

/// Feedback of the peer, passed from the control thread to the tuner.
#[derive(Default)]
pub(crate) struct FeedbackInbox {
    /// Latest sender report, and whether it is still to be taken.
    sender_report: Mutex<(SenderReport, bool)>,
    pub(crate) rate_request: Mutex<Option<RateRequest>>,
    pub(crate) train_request: Mutex<Option<u32>>,
    pub(crate) receiver_reports: Mutex<Vec<ReceiverReport>>,
}

impl FeedbackInbox {
    /// Stores a sender report; a newer one replaces it.
    pub(crate) fn on_sender_report(&self, report: SenderReport) {
        *lock(&self.sender_report) = (report, true);
    }

    /// Takes a new sender report.
    pub(crate) fn take_sender_report(&self) -> Option<SenderReport> {
        let (report, is_new) = &mut *lock(&self.sender_report);
        std::mem::take(is_new).then_some(*report)
    }

    /// Returns the latest sender report, or the default before the first.
    pub(crate) fn last_sender_report(&self) -> SenderReport {
        lock(&self.sender_report).0
    }

    /// Stores a rate request of the receiver; a newer one replaces it.
    pub(crate) fn on_rate_request(&self, request: RateRequest) {
        *lock(&self.rate_request) = Some(request);
    }

    /// Stores a request for packet trains with this number of packets each.
    pub(crate) fn on_train_request(&self, packets: u32) {
        *lock(&self.train_request) = Some(packets);
    }

    /// Queues a receiver report.
    pub(crate) fn on_receiver_report(&self, report: ReceiverReport) {
        let mut reports = lock(&self.receiver_reports);
        if reports.len() < MAX_QUEUED_REPORTS {
            reports.push(report);
        }
    }
}
