//! Our congestion control in the place of the protocol's own.

use bankfull_control::Bytes;
use bankfull_control::delivery::Delivery;
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Opened, it lets out what is to be sent whatever has arrived. The protocol would keep back the
/// word that a connection is over while its window is full, and no window opens after the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<AtomicBool>);

impl Gate {
    pub(super) fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Makes the controllers of a connection's paths.
#[derive(Debug)]
pub(super) struct Deliveries(pub(super) Gate);

impl ControllerFactory for Deliveries {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let delivery = Delivery::new(Duration::ZERO, Bytes(mtu.into()));
        Box::new(Control { first: delivery.window().0, delivery, since: now, gate: self.0.clone() })
    }
}

/// The controller of a path.
#[derive(Clone)]
struct Control {
    delivery: Delivery,
    since: Instant,
    first: u64,
    gate: Gate,
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

    fn on_end_acks(
        &mut self,
        _now: Instant,
        in_flight: u64,
        app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        self.delivery.on_acks_end(Bytes(in_flight), app_limited);
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
        if self.gate.0.load(Ordering::SeqCst) { u64::MAX } else { self.delivery.window().0 }
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
