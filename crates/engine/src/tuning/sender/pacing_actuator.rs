//! Division of the requested rate among the streams, and its application to their sockets.

use super::sender_sample::SenderSample;
use crate::session::Session;
use crate::transport::socket::Socket;
use crate::transport::start_stagger::{MIN_PACING_RTT, UNLIMITED_PACING_RATE};
use crate::tuning::MIN_SHARE_INTERVAL;
use crate::tuning::bbr_switch::BbrSwitch;
use crate::tuning::notsent_lowat::NotSentLowat;
use crate::tuning::socket_buffers::{BufferSide, SocketBuffers};
use bankfull_control::{Bytes, Rate, StreamShares, pacing};
use std::time::Duration;

/// Paces a sending session's streams, and switches them to BBR and back.
pub(super) struct PacingActuator {
    /// Each stream's share of the rate.
    shares: StreamShares,
    buffers: SocketBuffers,
    lowat: NotSentLowat,
    bbr_switch: BbrSwitch,
    /// TCP pacing is enabled.
    is_pacing: bool,
}

impl PacingActuator {
    pub(super) fn new(session: &Session) -> Self {
        Self {
            shares: StreamShares::default(),
            buffers: SocketBuffers::new(BufferSide::Send),
            lowat: NotSentLowat::new(),
            bbr_switch: BbrSwitch::new(session),
            is_pacing: false,
        }
    }

    /// Returns the most data that a stream can have in flight, in bytes.
    pub(super) fn max_inflight(&self) -> Bytes {
        self.buffers.max_inflight()
    }

    /// True if the receiver may request BBR.
    pub(super) fn is_bbr_available(&self) -> bool {
        self.bbr_switch.is_available()
    }

    /// Stores the receiver's request for BBR.
    pub(super) fn request_bbr(&mut self, is_requested: bool) {
        self.bbr_switch.request(is_requested);
    }

    /// Distributes the rate by what each stream sends, and applies rate and BBR.
    pub(super) fn apply(
        &mut self,
        session: &Session,
        rate: Option<Rate>,
        sample: &SenderSample,
        now: Duration,
    ) {
        let interval = MIN_SHARE_INTERVAL.max(sample.min_rtt.unwrap_or_default() * 2);
        self.shares.observe(now, interval, rate, &sample.acked);
        self.bbr_switch.apply(session);
        self.apply_pacing(session, rate, sample);
    }

    /// Paces each stream at its share of the rate. Bursts fit in a shallow queue.
    ///
    /// Over a short path TCP stays unpaced until a rate is requested. Pacing cannot be disabled
    /// again, only raised to an unlimited rate.
    fn apply_pacing(&mut self, session: &Session, rate: Option<Rate>, sample: &SenderSample) {
        let min_rtt = sample.min_rtt;
        let is_short = min_rtt.is_none_or(|rtt| rtt < MIN_PACING_RTT);
        if rate.is_none() && !self.is_pacing && is_short {
            return;
        }
        self.is_pacing = true;
        let mut largest = Rate::default();
        let (shares, buffers, lowat) = (&self.shares, &mut self.buffers, &mut self.lowat);
        // The throttle limits all streams together: data it let pass must not wait again.
        let is_throttled = rate.is_some() && rate == session.rate_max();
        session.for_each_stream(|number, socket| {
            let own = |rate| if is_throttled { rate } else { shares.rate(number, rate) };
            let share = rate.map(own);
            largest = largest.max(share.unwrap_or_default());
            lowat.update(number, socket, share);
            if let (Some(share), Some(rtt)) = (share, min_rtt) {
                let bdp = Bytes((share.bytes_per_sec() as f64 * rtt.as_secs_f64()) as u64);
                buffers.ensure(number, socket, bdp.min(sample.max_next_inflight(number)));
            }
            if let Socket::Tcp(tcp) = socket {
                // If the kernel cannot pace, it sends as usual.
                let pacing_rate = share.map_or(UNLIMITED_PACING_RATE, Rate::bytes_per_sec);
                if !sample.is_paced_at(number, pacing_rate) {
                    let _ = bankfull_sys::set_pacing(tcp, Some(pacing_rate));
                }
            }
        });
        let segment = sample.min_segment.unwrap_or(pacing::DEFAULT_MSS);
        let limit = rate.and_then(|rate| pacing::burst_limit(rate, largest, segment));
        session.send.burst_limit.set(limit);
    }
}
