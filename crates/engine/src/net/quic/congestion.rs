//! Our congestion control in the place of the protocol's own.

use bankfull_control::Bytes;
use bankfull_control::delivery::Delivery;
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes the controllers of paths.
#[derive(Debug)]
pub(super) struct Deliveries;

impl ControllerFactory for Deliveries {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let delivery = Delivery::new(Duration::ZERO, Bytes(mtu.into()));
        Box::new(Control { first: delivery.window().0, delivery, since: now })
    }
}

/// The controller of a path.
#[derive(Clone)]
struct Control {
    delivery: Delivery,
    since: Instant,
    first: u64,
}

impl Control {
    fn at(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

impl Controller for Control {
    fn on_sent(&mut self, now: Instant, _bytes: u64, _last_packet_number: u64) {
        self.delivery.on_sent(self.at(now));
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        let (now, sent) = (self.at(now), self.at(sent));
        self.delivery.on_ack(now, sent, Bytes(bytes), app_limited);
    }

    fn on_congestion_event(
        &mut self,
        _now: Instant,
        _sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.delivery.on_lost(Bytes(lost_bytes), is_persistent_congestion);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.delivery.on_datagram(Bytes(new_mtu.into()));
    }

    fn window(&self) -> u64 {
        self.delivery.window().0
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.first
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
