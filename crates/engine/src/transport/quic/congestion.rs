//! Adapter that runs the congestion control of `bankfull-control` in `quinn-proto`, and its pacing.

use crate::base::sync::lock;
use bankfull_control::Bytes;
use bankfull_control::congestion::ModelBased;
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory};
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Pacing and close of a connection, shared by its thread and its congestion controller.
///
/// The pacer of `quinn-proto` sends 1.25 windows per RTT, whatever the controller's pacing rate is.
/// The connection's thread therefore consults this gate first; while the gate is shut, the
/// controller reports a full window.
#[derive(Clone, Debug, Default)]
pub(crate) struct SendGate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    /// The window is lifted, so that CONNECTION_CLOSE is sent: nothing opens it after the close.
    is_closing: AtomicBool,
    /// Pacing allows no data now.
    is_shut: AtomicBool,
    pacing: Mutex<Pacing>,
}

/// Pacing of a path.
#[derive(Clone, Copy, Debug, Default)]
struct Pacing {
    /// Time of the next burst.
    next_send: Option<Instant>,
    /// Bytes of a burst; `None` if the window alone limits.
    burst: Option<u64>,
}

impl SendGate {
    /// Lifts the window for good.
    pub(crate) fn close_connection(&self) {
        self.0.is_closing.store(true, Ordering::SeqCst);
    }

    /// Begins a batch; returns the bytes that it may have, if pacing limits them.
    pub(crate) fn begin_batch(&self, now: Instant) -> Option<u64> {
        let pacing = *lock(&self.0.pacing);
        let is_shut = pacing.next_send.is_some_and(|at| at > now);
        self.0.is_shut.store(is_shut, Ordering::SeqCst);
        pacing.burst
    }

    /// Ends a batch.
    pub(crate) fn end_batch(&self) {
        self.0.is_shut.store(false, Ordering::SeqCst);
    }

    /// Returns when the next burst may be sent, if that is after `now`.
    pub(crate) fn next_send(&self, now: Instant) -> Option<Instant> {
        lock(&self.0.pacing).next_send.filter(|&at| at > now)
    }
}

/// Creates the controllers of a connection's paths.
#[derive(Debug)]
pub(crate) struct PathControllerFactory(pub(crate) SendGate);

impl ControllerFactory for PathControllerFactory {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let delivery = ModelBased::new(Duration::ZERO, Bytes(mtu.into()));
        Box::new(PathController {
            initial_window: delivery.window().0,
            delivery,
            origin: now,
            gate: self.0.clone(),
        })
    }
}

/// Congestion controller of a path.
#[derive(Clone)]
struct PathController {
    delivery: ModelBased,
    origin: Instant,
    initial_window: u64,
    gate: SendGate,
}

impl PathController {
    fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.origin)
    }
}

impl Controller for PathController {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        self.delivery.on_sent(self.elapsed(now), Bytes(bytes));
        let burst = self.delivery.pacing_rate().map(|_| self.delivery.send_quantum().0);
        let next_send = burst.map(|_| self.origin + self.delivery.next_send());
        *lock(&self.gate.0.pacing) = Pacing { next_send, burst };
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
        // Without a loss, the event is a mark (`process_ecn`, connection/mod.rs, quinn-proto).
        if lost_bytes == 0 && !is_persistent_congestion {
            self.delivery.on_marked();
        } else {
            self.delivery.on_lost(Bytes(lost_bytes), is_persistent_congestion);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.delivery.on_mtu_update(Bytes(new_mtu.into()));
    }

    fn window(&self) -> u64 {
        let gate = &self.gate.0;
        if gate.is_closing.load(Ordering::SeqCst) {
            u64::MAX
        } else if gate.is_shut.load(Ordering::SeqCst) {
            0
        } else {
            self.delivery.window().0
        }
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
