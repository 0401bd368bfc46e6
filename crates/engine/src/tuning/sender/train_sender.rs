//! Sends packet trains to the receiver, once its UDP address is known.

use crate::base::sync::lock;
use crate::session::Session;
use crate::tuning::telemetry::Telemetry;
use crate::tuning::{MAX_TRAIN_REQUESTS, ProbeChannel, ProbeRegistrar};
use bankfull_control::path_control::capacity::{TRAIN_COUNT, TRAIN_PACKETS};
use bankfull_proto::wire::probe::MAX_TRAIN_PACKET_BYTES;
use std::time::Duration;

/// Packet trains still to be sent.
struct TrainPlan {
    /// Number of packets in each train.
    packets: u32,
    remaining: usize,
    /// Number of requests for more trains.
    requests: u32,
}

impl TrainPlan {
    /// Plans the trains that the receiver requested, if any.
    fn on_request(&mut self, packets: Option<u32>) {
        if let Some(packets) = packets
            && self.requests < MAX_TRAIN_REQUESTS
        {
            *self = Self { packets, remaining: TRAIN_COUNT, requests: self.requests + 1 };
        }
    }
}

/// Sends the packet trains of a session. Without a UDP channel it sends nothing.
pub(super) struct TrainSender {
    channel: Option<ProbeChannel>,
    registrar: ProbeRegistrar,
    plan: TrainPlan,
}

impl TrainSender {
    pub(super) fn new(channel: Option<ProbeChannel>) -> Self {
        let address = channel.as_ref().and_then(|channel| channel.register_address);
        let plan = TrainPlan { packets: TRAIN_PACKETS as u32, remaining: TRAIN_COUNT, requests: 0 };
        Self { channel, registrar: ProbeRegistrar::new(address), plan }
    }

    /// True if a part of the trains has been sent.
    pub(super) fn is_between_trains(&self) -> bool {
        (1..TRAIN_COUNT).contains(&self.plan.remaining)
    }

    /// Sends the next train, if any remains and the receiver's UDP address is known.
    pub(super) fn poll(&mut self, session: &Session, now: Duration, telemetry: &Telemetry<'_>) {
        self.plan.on_request(lock(&session.feedback.train_request).take());
        let Some(ProbeChannel { line, register_address, .. }) = &mut self.channel else { return };
        let is_known = self.registrar.poll(line, now);
        if let Some(address) = self.registrar.poll_unanswered(is_known, now) {
            telemetry.warn_no_udp_response(address);
        }
        let address = line.address().or(*register_address).filter(|_| self.plan.remaining > 0);
        let Some(address) = address else { return };
        self.plan.remaining -= 1;
        // The estimate ignores packets that do not arrive.
        let _ = line.send_train(self.plan.packets, address);
        if let Some(throttle) = session.throttle() {
            throttle.charge(self.plan.packets as usize * MAX_TRAIN_PACKET_BYTES);
        }
    }
}
