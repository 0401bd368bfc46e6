//! Probing of the path over UDP: echoes for RTT and loss, packet trains for the capacity.

use crate::transport::probe::{ProbeArrival, clock};
use crate::tuning::probe_loss::ProbeLoss;
use crate::tuning::telemetry::Telemetry;
use crate::tuning::trains::{TrainCollector, TrainResult};
use crate::tuning::{ProbeChannel, ProbeRegistrar};
use bankfull_control::{Bytes, Rate, pacing};
use bankfull_proto::wire::probe::Kind;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Minimum timeout of an echo, and of the first probe. (chosen: one and a half long RTTs with their
/// queue)
pub(super) const MIN_PROBE_TIMEOUT: Duration = Duration::from_millis(600);

/// Largest accepted RTT; longer ones come from a clock step. (chosen)
pub(super) const MAX_PLAUSIBLE_RTT: Duration = Duration::from_secs(10);

/// Data received since the last echo that shows that only UDP is blocked. (chosen:
/// more than was in flight)
const UDP_BLOCKED_MIN_DATA: Bytes = Bytes::mib(64);

/// Change of the probe clock's offset between two ticks that counts as a step. (chosen: the kernel
/// slews a clock by 5 µs in that time at most)
const MIN_CLOCK_STEP: Duration = Duration::from_millis(1);

/// Longest time between the two clock readings for a valid comparison. (chosen)
const MAX_CLOCK_READ_TIME: Duration = Duration::from_micros(500);

/// Probes the path of a receiving session. Without a UDP channel it measures nothing.
pub(super) struct PathProber {
    channel: Option<ProbeChannel>,
    registrar: ProbeRegistrar,
    clock_steps: ClockStepDetector,
    trains: TrainCollector,
    loss: ProbeLoss,
    last_echo_at: Duration,
    /// Data received by the last echo; `None` once the UDP warning was returned.
    received_at_echo: Option<Bytes>,
    /// Data rate of the bottleneck link, from packet trains.
    capacity: Option<Rate>,
}

impl PathProber {
    /// Returns a prober whose times count from `started`.
    pub(super) fn new(channel: Option<ProbeChannel>, started: Instant) -> Self {
        let address = channel.as_ref().and_then(|channel| channel.register_address);
        Self {
            channel,
            registrar: ProbeRegistrar::new(address),
            clock_steps: ClockStepDetector { started, offset: None, stepped_at: None },
            trains: TrainCollector::new(),
            loss: ProbeLoss::default(),
            last_echo_at: Duration::ZERO,
            received_at_echo: Some(Bytes(0)),
            capacity: None,
        }
    }

    /// Returns the time to wait for the capacity: none without a UDP channel.
    pub(super) fn capacity_timeout(&self) -> Duration {
        if self.channel.is_some() { MIN_PROBE_TIMEOUT } else { Duration::ZERO }
    }

    /// Returns the data rate of the bottleneck link, if the packet trains measured it.
    pub(super) fn capacity(&self) -> Option<Rate> {
        self.capacity
    }

    /// Returns the probe loss.
    pub(super) fn loss(&self) -> &ProbeLoss {
        &self.loss
    }

    /// True if no echo has arrived within the timeout, or there is no UDP channel.
    pub(super) fn is_timed_out(&self, now: Duration, min_rtt: Duration) -> bool {
        self.channel.is_none() || now > self.last_echo_at + probe_timeout(min_rtt)
    }

    /// Sends the next probe and handles arrived datagrams. Returns the latest RTT.
    pub(super) fn exchange(
        &mut self,
        now: Duration,
        min_rtt: Duration,
        telemetry: &Telemetry<'_>,
    ) -> Option<Duration> {
        self.clock_steps.detect(now);
        let ProbeChannel { line, .. } = self.channel.as_mut()?;
        let is_known = self.registrar.poll(line, now);
        if is_known {
            let _ = line.send_probe();
        }
        if let Some(address) = self.registrar.poll_unanswered(is_known, now) {
            telemetry.warn_no_udp_response(address);
        }
        let arrived: Vec<ProbeArrival> = line.arrivals().collect();
        let timeout = probe_timeout(min_rtt);
        arrived.iter().fold(None, |rtt, arrived| self.on_datagram(arrived, now, timeout).or(rtt))
    }

    /// Handles an arrived datagram. Returns the RTT if it is a valid echo.
    fn on_datagram(
        &mut self,
        arrived: &ProbeArrival,
        now: Duration,
        timeout: Duration,
    ) -> Option<Duration> {
        let probe = &arrived.probe;
        match probe.kind {
            Kind::Echo => {
                self.loss.on_echo(probe.number);
                self.last_echo_at = now;
                let sent = Duration::from_micros(probe.echoed_timestamp_us);
                let rtt = arrived.at.checked_sub(sent)?;
                let has_stepped = self.clock_steps.has_stepped_within(timeout, now);
                (!has_stepped && !rtt.is_zero() && rtt < MAX_PLAUSIBLE_RTT).then_some(rtt)
            }
            Kind::Train => {
                self.trains.on_packet(arrived, now);
                None
            }
            Kind::Register | Kind::Probe => None,
        }
    }

    /// Returns the result of the packet trains, once.
    pub(super) fn poll_trains(&mut self, now: Duration) -> Option<TrainResult> {
        let result = self.trains.poll_result(now, self.segment_data());
        if let Some(TrainResult::Capacity(rate)) = result {
            self.capacity = Some(rate);
        }
        result
    }

    /// Expects trains of this many packets if the request for them was sent.
    pub(super) fn on_trains_requested(&mut self, packets: usize, is_sent: bool) {
        self.trains.on_requested(packets, is_sent);
    }

    /// Returns a warning, once, if echoes stopped while data still arrives.
    pub(super) fn poll_blocked_warning(
        &mut self,
        now: Duration,
        min_rtt: Duration,
        received: Bytes,
    ) -> Option<String> {
        let at_echo = self.received_at_echo?;
        if !self.is_timed_out(now, min_rtt) {
            self.received_at_echo = Some(received);
            return None;
        }
        if self.loss.sent() == 0 || received.0 <= at_echo.0 + UDP_BLOCKED_MIN_DATA.0 {
            return None;
        }
        self.received_at_echo = None;
        let from = self.address().map(|address| format!(" from {address}")).unwrap_or_default();
        Some(format!(
            "UDP responses{from} stopped: the path is measured with TCP alone; to measure it with \
             UDP, let UDP through for as long as a copy takes"
        ))
    }

    /// Returns the peer's UDP address, if known.
    fn address(&self) -> Option<SocketAddr> {
        self.channel.as_ref().and_then(|channel| channel.line.address())
    }

    /// Returns the payload of a full segment on this path.
    fn segment_data(&self) -> Bytes {
        match self.address().map(|address| address.ip().to_canonical()) {
            Some(IpAddr::V6(_)) => pacing::DEFAULT_MSS_V6,
            _ => pacing::DEFAULT_MSS,
        }
    }
}

/// Returns the timeout of an echo.
fn probe_timeout(min_rtt: Duration) -> Duration {
    MIN_PROBE_TIMEOUT.max(min_rtt * 4)
}

/// Detects steps of the probe clock, which falsify the RTTs of probes in flight.
struct ClockStepDetector {
    /// Start of the monotonic time.
    started: Instant,
    /// Offset of the probe clock from `started`, at the latest tick.
    offset: Option<Duration>,
    /// Time of the latest step.
    stepped_at: Option<Duration>,
}

impl ClockStepDetector {
    /// Compares both clocks at a tick.
    fn detect(&mut self, now: Duration) {
        let from = self.started.elapsed();
        let clock = clock();
        let to = self.started.elapsed();
        // Otherwise this thread was preempted in between.
        if to - from < MAX_CLOCK_READ_TIME {
            let offset = clock.saturating_sub(to);
            let before = self.offset.replace(offset).unwrap_or(offset);
            if offset.abs_diff(before) > MIN_CLOCK_STEP {
                self.stepped_at = Some(now);
            }
        }
    }

    /// True if the clock stepped less than `time` ago.
    fn has_stepped_within(&self, time: Duration, now: Duration) -> bool {
        self.stepped_at.is_some_and(|at| now < at + time)
    }
}
