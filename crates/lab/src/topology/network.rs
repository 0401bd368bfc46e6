//! A running network: hosts, the emulator between them, and the validity of a run.

use crate::base::error::{LabError, Result};
use crate::model::plan::Plan;
use crate::model::units::format_time;
use crate::topology::emulator::{BLACKHOLE, Emulator, Endpoint, FlowKey, Recording};
use crate::topology::hosts::{Hosts, HostsConfig};
use crate::topology::machine;
use bankfull_control::Bytes;
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

/// Limits of lateness: a run is void if its 99th percentile exceeds max(1 ms, 2 % of the RTT).
/// (chosen: the last percent is scheduling noise)
const LATENESS_QUANTILE: f64 = 0.99;
const MAX_LATENESS: Duration = Duration::from_millis(1);
const MAX_LATENESS_RTT_SHARE: f64 = 0.02;

/// Run length from which at least one probe must have been read. (chosen: ten probe intervals)
const PROBE_TIMEOUT: Duration = Duration::from_millis(100);

/// Timeout of the first connection. (chosen: the longest RTT, and three tries of the SYN, which TCP
/// makes within 3 s)
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// IP protocol number of TCP. (RFC 9293)
const TCP: u8 = 6;

/// Running network; dropping it ends hosts and processes.
#[derive(Debug)]
pub struct Network {
    // Field order is drop order: processes end before the link.
    hosts: Hosts,
    emulator: Emulator,
    count: usize,
    rtt: Duration,
    buffer: Bytes,
    started: Instant,
    /// Steal time at the start.
    steal_time: Duration,
    /// Connection that verified the congestion control.
    check_flow: Option<FlowKey>,
}

impl Network {
    /// Starts a network.
    ///
    /// # Errors
    /// Errors of [`Hosts::create`] and [`Emulator::start`]; [`LabError::Congestion`] if connections
    /// do not use the requested congestion control.
    pub fn start(plan: &Plan) -> Result<Self> {
        let setup = HostsConfig {
            count: plan.hosts.len(),
            congestion: plan.congestion.clone(),
            unpinned: plan.unpinned,
            tcp_buffer_bytes: plan.tcp_buffer_bytes,
            tcp_ecn: plan.tcp_ecn,
        };
        let (hosts, tuns) = Hosts::create(&setup)?;
        let links = plan.hosts.iter().cloned().enumerate();
        let stations = links
            .map(|(at, (uplink, port))| {
                let (address, has_first_hop) = (Hosts::address(at), plan.has_first_hop);
                Endpoint { address, uplink, port, has_first_hop }
            })
            .collect();
        let probe = |at| {
            hosts.run_on(at, || {
                let socket = UdpSocket::bind((Hosts::address(at), 0))?;
                socket.connect(BLACKHOLE)?;
                Ok(socket)
            })
        };
        let probes = (0..setup.count).map(probe).collect::<Result<_>>()?;
        let (started, steal_time) = (Instant::now(), machine::steal_time());
        let emulator = Emulator::start(
            stations,
            tuns,
            probes,
            plan.background.clone(),
            plan.seed,
            plan.interval,
        )
        .map_err(|e| LabError::io("cannot start the emulator", e))?;
        let buffer = plan.hosts.last().map(|(_, port)| port.buffer).unwrap_or_default();
        let (count, rtt) = (setup.count, plan.rtt);
        let mut network =
            Self { hosts, emulator, count, rtt, buffer, started, steal_time, check_flow: None };
        if let Some(requested) = &plan.congestion {
            network.check_flow = Some(network.check_congestion(requested)?);
        }
        Ok(network)
    }

    /// The hosts.
    #[must_use]
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Index of the receiver: the last host.
    #[must_use]
    pub fn receiver(&self) -> usize {
        self.count - 1
    }

    /// Time since the emulator started.
    #[must_use]
    pub fn elapsed_since_start(&self) -> Duration {
        self.started.elapsed()
    }

    /// Buffer of the queue towards the receiver in bytes.
    #[must_use]
    pub fn buffer(&self) -> Bytes {
        self.buffer
    }

    /// Cuts all paths, or restores them.
    pub fn set_cut(&self, is_cut: bool) {
        self.emulator.set_cut(is_cut);
    }

    /// Ends processes and link, and returns the recording.
    ///
    /// # Errors
    /// [`LabError::Io`] if the emulator had failed, or if a host's drop counter is unavailable.
    pub fn stop(self) -> Result<Outcome> {
        let Self { hosts, emulator, count, rtt, started, steal_time, check_flow, .. } = self;
        let ran = started.elapsed();
        let steal_time = machine::steal_time().saturating_sub(steal_time);
        let tun_drops: Result<u64> = (0..count).map(|host| hosts.tun_drops(host)).sum();
        drop(hosts);
        let mut recording =
            emulator.stop().map_err(|e| LabError::io("the emulator has failed", e))?;
        recording.tun_drops = tun_drops?;
        recording.check_flow = check_flow;
        Ok(Outcome { recording, rtt, ran, steal_time })
    }

    /// Verifies the congestion control with a connection between two hosts. Necessary because
    /// routes, sysctls and programs override each other. Returns the key of that flow, which is no
    /// contender's.
    fn check_congestion(&self, requested: &str) -> Result<FlowKey> {
        let receiver = self.receiver();
        let listener =
            self.hosts.run_on(receiver, || TcpListener::bind((Hosts::address(receiver), 0)))?;
        let failed = |e| {
            let what = "cannot establish the connection that verifies the congestion control";
            LabError::io(format!("{what} within {CONNECT_TIMEOUT:?}"), e)
        };
        let to = listener.local_addr().map_err(failed)?;
        let (used, source_port) =
            self.hosts.run_on(0, || Ok(congestion_to(to)))?.map_err(failed)?;
        if used != requested {
            let text =
                format!("connections use {used}, not {requested}: load the module tcp_{requested}");
            return Err(LabError::Congestion(text));
        }
        Ok(FlowKey {
            source: Hosts::address(0),
            destination: Hosts::address(receiver),
            protocol: TCP,
            source_port,
            destination_port: to.port(),
        })
    }
}

/// Congestion control of a new connection, and its local port.
fn congestion_to(address: SocketAddr) -> io::Result<(String, u16)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.connect_timeout(&address.into(), CONNECT_TIMEOUT)?;
    let port = socket.local_addr()?.as_socket().map_or(0, |local| local.port());
    Ok((congestion_of(&socket)?, port))
}

/// Outcome of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Recording of the emulator.
    pub recording: Recording,
    rtt: Duration,
    ran: Duration,
    steal_time: Duration,
}

impl Outcome {
    /// Reason why the run is void; `None` if it is valid.
    #[must_use]
    pub fn void(&self) -> Option<String> {
        self.reason().map(|why| why + &machine::steal_note(self.steal_time))
    }

    fn reason(&self) -> Option<String> {
        let allowed = MAX_LATENESS.max(self.rtt.mul_f64(MAX_LATENESS_RTT_SHARE));
        // Unknown must not pass for punctual.
        if self.ran > PROBE_TIMEOUT && self.recording.probe_count == 0 {
            return Some("unknown read delay: no probe was read".to_owned());
        }
        let late = self.recording.lateness_quantile(LATENESS_QUANTILE);
        if late > allowed {
            return Some(format!(
                "99th percentile of lateness is {}, above {}",
                format_time(late),
                format_time(allowed)
            ));
        }
        if self.recording.tun_drops > 0 {
            let n = self.recording.tun_drops;
            return Some(format!("{n} packets were dropped before the emulator read them"));
        }
        if self.recording.write_errors > 0 {
            let n = self.recording.write_errors;
            return Some(format!("{n} packets were refused by a host's interface"));
        }
        None
    }
}

/// Congestion control of a socket.
pub(crate) fn congestion_of(socket: &Socket) -> io::Result<String> {
    let name = socket.tcp_congestion()?;
    Ok(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::emulator::Lateness;

    const MS: Duration = Duration::from_millis(1);

    /// Outcome of a one-second run with an RTT of 20 ms, always on time.
    fn quiet() -> Outcome {
        let mut recording = Recording::default();
        for _ in 0..1000 {
            recording.lateness.record(MS / 10);
            recording.read_delay.record(MS / 10);
            recording.probe_count += 1;
        }
        Outcome { recording, rtt: MS * 20, ran: MS * 1000, steal_time: Duration::ZERO }
    }

    #[track_caller]
    fn assert_void(outcome: &Outcome, word: &str) {
        let why = outcome.void().unwrap();
        assert!(why.contains(word), "{why}");
    }

    #[test]
    fn single_late_packet_is_not_void() {
        let mut outcome = quiet();
        assert_eq!(outcome.void(), None);
        outcome.recording.lateness.record(MS * 50);
        outcome.recording.read_delay.record(MS * 50);
        assert_eq!(outcome.void(), None);
    }

    #[test]
    fn late_read_or_delivery_is_void() {
        for is_read in [true, false] {
            let mut outcome = quiet();
            let times = [&mut outcome.recording.lateness, &mut outcome.recording.read_delay];
            let [delivered, read] = times;
            let late = if is_read { read } else { delivered };
            (0..20).for_each(|_| late.record(MS * 2));
            assert_void(&outcome, "late");
            outcome.rtt = MS * 150;
            assert_eq!(outcome.void(), None, "2 % of the round trip are allowed");
        }
    }

    #[test]
    fn tun_drops_and_write_errors_are_void() {
        let mut outcome = quiet();
        outcome.recording.tun_drops = 1;
        assert_void(&outcome, "1 packets were dropped before");
        let mut outcome = quiet();
        outcome.recording.write_errors = 2;
        assert_void(&outcome, "2 packets were refused");
    }

    #[test]
    fn steal_time_is_noted_but_does_not_void() {
        let mut outcome = quiet();
        outcome.steal_time = MS * 90;
        assert_eq!(outcome.void(), None);
        outcome.recording.tun_drops = 1;
        assert_void(&outcome, "read them (steal time meanwhile: 90 ms");
    }

    #[test]
    fn run_without_probes_is_void() {
        let mut outcome = quiet();
        outcome.recording.read_delay = Lateness::default();
        assert_eq!(outcome.void(), None, "nothing had to wait");
        outcome.recording.probe_count = 0;
        assert_void(&outcome, "no probe was read");
        outcome.ran = MS * 50;
        assert_eq!(outcome.void(), None, "the run ended before the first probe was due");
    }
}
