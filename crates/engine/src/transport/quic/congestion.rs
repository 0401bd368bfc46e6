//! Adapter that runs the congestion control of `bankfull-control` in `quinn-proto`.

use bankfull_control::Bytes;
use bankfull_control::congestion::ModelBased;
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Lifts the congestion window once enabled, so that CONNECTION_CLOSE is sent.
///
/// `quinn-proto` withholds it while the window is full, and nothing opens the window after the
/// close.
#[derive(Clone, Debug, Default)]
pub(crate) struct WindowBypass(Arc<AtomicBool>);

impl WindowBypass {
    pub(crate) fn enable(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Creates the controllers of a connection's paths.
#[derive(Debug)]
pub(crate) struct PathControllerFactory(pub(crate) WindowBypass);

impl ControllerFactory for PathControllerFactory {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let delivery = ModelBased::new(Duration::ZERO, Bytes(mtu.into()));
        Box::new(PathController {
            initial_window: delivery.window().0,
            delivery,
            origin: now,
            bypass: self.0.clone(),
        })
    }
}

/// Congestion controller of a path.
#[derive(Clone)]
struct PathController {
    delivery: ModelBased,
    origin: Instant,
    initial_window: u64,
    bypass: WindowBypass,
}

impl PathController {
    fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.origin)
    }
}

impl Controller for PathController {
    fn on_sent(&mut self, now: Instant, _bytes: u64, _last_packet_number: u64) {
        self.delivery.on_sent(self.elapsed(now));
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        let (now, sent) = (self.elapsed(now), self.elapsed(sent));
        self.delivery.on_ack(now, sent, Bytes(bytes), app_limited);
    }

    fn on_end_acks(
        &mut self,
        _now: Instant,
        in_flight: u64,
        app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        self.delivery.on_end_acks(Bytes(in_flight), app_limited);
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
        self.delivery.on_mtu_update(Bytes(new_mtu.into()));
    }

    fn window(&self) -> u64 {
        if self.bypass.0.load(Ordering::SeqCst) { u64::MAX } else { self.delivery.window().0 }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.initial_window
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
