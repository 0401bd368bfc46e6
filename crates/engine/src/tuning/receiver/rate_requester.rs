//! Requests to the sender: a rate with a stream count, and packet trains.

use crate::transport::control::Outbox;
use bankfull_proto::wire::control::{Message, RateRequest};

/// Sends requests to the sender; each rate request once.
pub(super) struct RateRequester {
    outbox: Outbox,
    /// The sender has the current rate request.
    is_current: bool,
}

impl RateRequester {
    /// Returns a requester without a pending request.
    pub(super) fn new(outbox: Outbox) -> Self {
        Self { outbox, is_current: true }
    }

    /// Marks the rate request as changed.
    pub(super) fn invalidate(&mut self) {
        self.is_current = false;
    }

    /// Drops a changed rate request that was not sent yet.
    pub(super) fn reset(&mut self) {
        self.is_current = true;
    }

    /// True if the rate request changed since it was sent.
    pub(super) fn is_due(&self) -> bool {
        !self.is_current
    }

    /// Sends the rate request. It stays due if the outbox is full.
    pub(super) fn send(&mut self, request: RateRequest) {
        self.is_current = self.outbox.try_post(&Message::RateRequest(request));
    }

    /// Requests packet trains of this many packets. Returns false if the outbox is full.
    pub(super) fn request_trains(&self, packets: usize) -> bool {
        let packets = u32::try_from(packets).unwrap_or(u32::MAX);
        self.outbox.try_post(&Message::TrainRequest(packets))
    }
}
