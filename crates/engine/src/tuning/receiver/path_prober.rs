//! Probing of the path over UDP: echoes for RTT and loss, packet trains for the capacity.

use super::forward_delay::{ForwardDelay, MAX_PLAUSIBLE_RTT, MIN_CLOCK_STEP};
use crate::transport::probe::{MIN_PROBE_TIMEOUT, ProbeArrival, clock};
use crate::tuning::probe_loss::ProbeLoss;
use crate::tuning::telemetry::Telemetry;
use crate::tuning::trains::{TrainCollector, TrainResult};
use crate::tuning::{ProbeChannel, ProbeRegistrar};
use bankfull_control::{Bytes, ProbeSchedule, Rate, pacing};
use bankfull_proto::wire::probe::Kind;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Data received since the last echo that shows that only UDP is blocked. (chosen:
/// more than was in flight)
const UDP_BLOCKED_MIN_DATA: Bytes = Bytes::mib(64);

/// Longest time between the two clock readings for a valid comparison. (chosen: half of
/// [`MIN_CLOCK_STEP`], so that a pause of the thread is no step)
const MAX_CLOCK_READ_TIME: Duration = Duration::from_micros(500);

/// Delays of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProbeDelay {
    /// Round trip.
    pub(super) rtt: Duration,
    /// Its part in the direction of the data, from an arbitrary origin.
    pub(super) forward: Option<Duration>,
}

/// Probes the path of a receiving session. Without a UDP channel it measures nothing.
pub(super) struct PathProber {
    channel: Option<ProbeChannel>,
    registrar: ProbeRegistrar,
    schedule: ProbeSchedule,
    clock_steps: ClockStepDetector,
    forward_delay: ForwardDelay,
    trains: TrainCollector,
    loss: ProbeLoss,
    /// Echoes so far, and how many the peer may have sent: a hostile one sends more.
    echoes: (u64, u64),
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
            schedule: ProbeSchedule::default(),
            clock_steps: ClockStepDetector { started, offset: None, stepped_at: None },
            forward_delay: ForwardDelay::default(),
            trains: TrainCollector::new(),
            loss: ProbeLoss::default(),
            echoes: (0, 0),
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

    /// Records the data received, which decides how often probes are sent.
    pub(super) fn on_received(&mut self, received: Bytes) {
        self.schedule.on_received(received);
    }

    /// Sends the next probe if it is due, and handles arrived datagrams.
    ///
    /// Returns the delays of all valid echoes, in the order of their arrival.
    pub(super) fn exchange(
        &mut self,
        now: Duration,
        min_rtt: Duration,
        telemetry: &Telemetry<'_>,
    ) -> Vec<ProbeDelay> {
        self.begin_tick(now);
        let Some(ProbeChannel { line, .. }) = self.channel.as_mut() else { return Vec::new() };
        let is_known = self.registrar.poll(line, now);
        if is_known && self.schedule.poll_due(now) {
            let _ = line.send_probe();
        }
        if let Some(address) = self.registrar.poll_unanswered(is_known, now) {
            telemetry.warn_no_udp_response(address);
        }
        self.echoes.1 = line.expected_echoes();
        let arrived: Vec<ProbeArrival> = line.arrivals().collect();
        let timeout = probe_timeout(min_rtt);
        arrived.iter().filter_map(|arrived| self.on_datagram(arrived, now, timeout)).collect()
    }

    /// Checks whether this host's clock has stepped.
    fn begin_tick(&mut self, now: Duration) {
        self.forward_delay.begin_tick();
        if self.clock_steps.detect(now) {
            self.forward_delay.reset();
        }
    }

    /// Handles an arrived datagram. Returns the delays if it is a valid echo.
    fn on_datagram(
        &mut self,
        arrived: &ProbeArrival,
        now: Duration,
        timeout: Duration,
    ) -> Option<ProbeDelay> {
        let probe = &arrived.probe;
        match probe.kind {
            Kind::Echo => {
                let [received, expected] = [self.echoes.0, self.echoes.1];
                if probe.number.max(received) >= expected || !self.loss.on_echo(probe.number) {
                    return None;
                }
                self.echoes.0 += 1;
                self.last_echo_at = now;
                let sent = Duration::from_micros(probe.echoed_timestamp_us);
                let rtt = arrived.at.checked_sub(sent)?;
                let has_stepped = self.clock_steps.has_stepped_within(timeout, now);
                if has_stepped || rtt.is_zero() || rtt >= MAX_PLAUSIBLE_RTT {
                    return None;
                }
                let forward = self.forward_delay.compute(probe.timestamp_us, arrived.at, rtt);
                Some(ProbeDelay { rtt, forward })
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
    /// Compares both clocks at a tick. Returns true if the probe clock stepped.
    fn detect(&mut self, now: Duration) -> bool {
        let from = self.started.elapsed();
        let clock = clock();
        let to = self.started.elapsed();
        // This thread was preempted in between.
        if to - from >= MAX_CLOCK_READ_TIME {
            return false;
        }
        self.compare(clock, to, now)
    }

    fn compare(&mut self, clock: Duration, monotonic: Duration, now: Duration) -> bool {
        let offset = clock.saturating_sub(monotonic);
        let before = self.offset.replace(offset).unwrap_or(offset);
        let has_stepped = offset.abs_diff(before) > MIN_CLOCK_STEP;
        if has_stepped {
            self.stepped_at = Some(now);
        }
        has_stepped
    }

    /// True if the clock stepped less than `time` ago.
    fn has_stepped_within(&self, time: Duration, now: Duration) -> bool {
        self.stepped_at.is_some_and(|at| now < at + time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_proto::wire::probe::ProbePacket;

    const MS: Duration = Duration::from_millis(1);
    const NOW: Duration = Duration::from_secs(1_000);

    /// Returns the delays in ms of probes sent, and echoes arrived, this long after `NOW`.
    fn delays(prober: &mut PathProber, now: Duration, echoes: &[[u32; 2]]) -> Vec<(u64, i64)> {
        let first = prober.loss.sent();
        prober.echoes.1 = first + echoes.len() as u64;
        delays_from(prober, now, first, echoes)
    }

    /// Returns those of probes from a number on.
    fn delays_from(
        prober: &mut PathProber,
        now: Duration,
        first: u64,
        echoes: &[[u32; 2]],
    ) -> Vec<(u64, i64)> {
        let delay = |(number, &[sent, arrived]): (u64, &[u32; 2])| {
            let at = NOW + MS * arrived;
            // The sender's clock is five seconds behind; the reverse path takes 5 ms.
            let echoed = NOW + MS * sent + MS * 5 - MS * 5_000;
            let probe = ProbePacket::new(
                Kind::Probe,
                [0; 16],
                number,
                (NOW + MS * sent).as_micros() as u64,
            );
            let probe = probe.echo(number, echoed.as_micros() as u64);
            let delay = prober.on_datagram(&ProbeArrival { probe, at, len: 128 }, now, MS * 600)?;
            let forward = delay.forward.map_or(-1, |forward| forward.as_millis() as i64 - 10_000);
            Some((delay.rtt.as_millis() as u64, forward))
        };
        (first..).zip(echoes).filter_map(delay).collect()
    }

    #[test]
    fn echoes_give_rtt_and_forward_delay_in_order() {
        let mut prober = PathProber::new(None, Instant::now());
        let found = delays(&mut prober, MS, &[[0, 20], [10, 35], [30, 51], [20, 52]]);
        assert_eq!(found, [(20, 10), (25, 15), (21, 11), (32, 22)]);
        assert_eq!(delays(&mut prober, MS, &[[40, 40], [50, 40]]), [], "implausible");
    }

    #[test]
    fn echoes_that_no_probe_asked_for_are_ignored() {
        let mut prober = PathProber::new(None, Instant::now());
        assert_eq!(delays(&mut prober, MS, &[[0, 20], [10, 30]]).len(), 2);
        // Duplicates, and numbers beyond those sent.
        assert_eq!(delays_from(&mut prober, MS, 0, &[[0, 20], [10, 30]]), []);
        assert_eq!(delays_from(&mut prober, MS, 2, &[[20, 40]; 5_000]), []);
        prober.echoes.1 += 1;
        assert_eq!(delays_from(&mut prober, MS, 1 << 40, &[[20, 40]]), []);
        assert_eq!((prober.loss.sent(), prober.loss.lost()), (2, 0));
        assert_eq!(delays(&mut prober, MS, &[[20, 40]]).len(), 1);
    }

    #[test]
    fn clock_step_suspends_delays_then_changes_their_origin() {
        let mut prober = PathProber::new(None, Instant::now());
        let tick = |prober: &mut PathProber, now: Duration, clock: Duration| {
            prober.forward_delay.begin_tick();
            if prober.clock_steps.compare(clock, now, now) {
                prober.forward_delay.reset();
            }
        };
        tick(&mut prober, MS * 10, MS * 1_010);
        assert_eq!(delays(&mut prober, MS * 10, &[[0, 20]]), [(20, 10)]);
        // A step of 2 ms.
        tick(&mut prober, MS * 20, MS * 1_022);
        assert_eq!(delays(&mut prober, MS * 20, &[[0, 20]]), []);
        tick(&mut prober, MS * 630, MS * 1_632);
        assert_eq!(delays(&mut prober, MS * 630, &[[0, 22], [10, 34]]), [(22, -1), (24, -1)]);
        tick(&mut prober, MS * 640, MS * 1_642);
        assert_eq!(delays(&mut prober, MS * 640, &[[0, 20]]), [(20, 10)]);
    }
}
