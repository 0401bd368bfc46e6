//! A network at work: hosts, the emulator between them, and whether a run on it may be believed.

use crate::emulator::{Emulator, FlowKey, NOWHERE, Recording, Station};
use crate::error::{LabError, Result};
use crate::flows;
use crate::hosts::{Hosts, Setup};
use crate::machine;
use crate::text::short_time;
use bankfull_control::Bytes;
use bankfull_sim::{LinkConfig, PathConfig};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

/// Share of deliveries whose lateness counts, the others being the machine's hiccups.
/// (design: "a run whose p99 lateness exceeds max(1 ms, 2 % of RTT) is void")
const LATENESS_SHARE: f64 = 0.99;
const LATENESS_MAX: Duration = Duration::from_millis(1);
const LATENESS_RTT_SHARE: f64 = 0.02;

/// After this, a network that has read no probe does not know how long packets wait. (ours: ten
/// times the distance between probes)
const PROBES_WAIT: Duration = Duration::from_millis(100);

/// How long the first connection may take. (ours: the longest round trip that is allowed, and three
/// tries of the first packet, which TCP makes within 3 s)
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// TCP's number in IP. (RFC 9293)
const TCP: u8 = 6;

/// What a network is like.
#[derive(Debug, Clone)]
pub struct Plan {
    /// For each host its uplink and the port towards it. The first is the usual sender, the last
    /// the receiver.
    pub hosts: Vec<(LinkConfig, LinkConfig)>,
    /// The longest round trip without queues.
    pub rtt: Duration,
    /// Congestion control of all connections; `None`: what the host and the programs choose.
    pub congestion: Option<String>,
    /// A host that is left out of that: whoever connects from there says what is used.
    pub unpinned: Option<usize>,
    /// Largest TCP buffers; `None`: the machine's.
    pub tcp_buffer_bytes: Option<u64>,
    /// Decides loss and cross traffic.
    pub seed: u64,
    /// Length of the intervals that are recorded.
    pub interval: Duration,
}

impl Plan {
    /// Two hosts and a path from the first to the second.
    #[must_use]
    pub fn path(path: &PathConfig) -> Self {
        let sender = (LinkConfig::default(), path.reverse.clone());
        let receiver = (LinkConfig::default(), path.forward.clone());
        Self {
            hosts: vec![sender, receiver],
            rtt: path.rtt(),
            congestion: None,
            unpinned: None,
            tcp_buffer_bytes: None,
            seed: 1,
            interval: Duration::from_millis(10),
        }
    }

    /// Many senders behind one port towards the last host, which a quick link leads back from.
    /// There are as many as lines to the switch.
    #[must_use]
    pub fn fan_in(access: &[LinkConfig], path: &PathConfig) -> Self {
        let mut plan = Self::path(path);
        let receiver = (LinkConfig::default(), path.forward.clone());
        plan.hosts = access.iter().map(|line| (line.clone(), path.reverse.clone())).collect();
        plan.hosts.push(receiver);
        let longest = access.iter().map(|line| line.delay).max().unwrap_or_default();
        plan.rtt = path.rtt() + longest;
        plan
    }

    /// One more sender, just before the receiver, with nothing between it and the port. Its
    /// connections are not pinned.
    #[must_use]
    pub fn with_cross_host(mut self, path: &PathConfig) -> Self {
        let at = self.hosts.len() - 1;
        self.hosts.insert(at, (LinkConfig::default(), path.reverse.clone()));
        self.unpinned = Some(at);
        self
    }
}

/// A network at work. Hosts and processes on them end with it.
#[derive(Debug)]
pub struct Network {
    // In this order: first the processes go, then the link.
    hosts: Hosts,
    emulator: Emulator,
    count: usize,
    rtt: Duration,
    buffer: Bytes,
    started: Instant,
    /// What the hypervisor had taken away by then.
    stolen: Duration,
    /// The connection that told the congestion control.
    own: Option<FlowKey>,
}

impl Network {
    /// Builds it.
    ///
    /// # Errors
    /// What [`Hosts::create`] and [`Emulator::start`] say; [`LabError::Congestion`] when the
    /// congestion control that was asked for is not what connections get.
    pub fn start(plan: &Plan) -> Result<Self> {
        let setup = Setup {
            count: plan.hosts.len(),
            congestion: plan.congestion.clone(),
            unpinned: plan.unpinned,
            tcp_buffer_bytes: plan.tcp_buffer_bytes,
        };
        let (hosts, tuns) = Hosts::create(&setup)?;
        let links = plan.hosts.iter().cloned().enumerate();
        let stations = links
            .map(|(at, (uplink, port))| Station { address: Hosts::address(at), uplink, port })
            .collect();
        let probe = |at| {
            hosts.on(at, || {
                let socket = UdpSocket::bind((Hosts::address(at), 0))?;
                socket.connect(NOWHERE)?;
                Ok(socket)
            })
        };
        let probes = (0..setup.count).map(probe).collect::<Result<_>>()?;
        let (started, stolen) = (Instant::now(), machine::stolen());
        let emulator = Emulator::start(stations, tuns, probes, plan.seed, plan.interval)
            .map_err(|e| LabError::io("cannot start the emulator", e))?;
        let buffer = plan.hosts.last().map(|(_, port)| port.buffer).unwrap_or_default();
        let (count, rtt) = (setup.count, plan.rtt);
        let mut network = Self { hosts, emulator, count, rtt, buffer, started, stolen, own: None };
        if let Some(wanted) = &plan.congestion {
            network.own = Some(network.check_congestion(wanted)?);
        }
        Ok(network)
    }

    /// The hosts.
    #[must_use]
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Number of the receiver: the last host.
    #[must_use]
    pub fn receiver(&self) -> usize {
        self.count - 1
    }

    /// Time since the emulator began.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// What the queue towards the receiver holds.
    #[must_use]
    pub fn buffer(&self) -> Bytes {
        self.buffer
    }

    /// Cuts all ways, or joins them again.
    pub fn set_cut(&self, is_cut: bool) {
        self.emulator.set_cut(is_cut);
    }

    /// Ends the processes and the link, and returns what was seen.
    ///
    /// # Errors
    /// What ended the emulator before; when a host does not tell what it has dropped.
    pub fn stop(self) -> Result<Outcome> {
        let Self { hosts, emulator, count, rtt, started, stolen, own, .. } = self;
        let ran = started.elapsed();
        let stolen = machine::stolen().saturating_sub(stolen);
        let unread: Result<u64> = (0..count).map(|host| hosts.unread(host)).sum();
        drop(hosts);
        let mut recording =
            emulator.stop().map_err(|e| LabError::io("the emulator has failed", e))?;
        recording.unread = unread?;
        recording.own = own;
        Ok(Outcome { recording, rtt, ran, stolen })
    }

    /// A connection between two hosts must have the congestion control that was asked for: routes,
    /// settings and programs overrule each other in ways that are easily missed. Returns that
    /// connection: it is no contender's.
    fn check_congestion(&self, wanted: &str) -> Result<FlowKey> {
        let receiver = self.receiver();
        let listener =
            self.hosts.on(receiver, || TcpListener::bind((Hosts::address(receiver), 0)))?;
        let failed = |e| {
            let what = "the connection that reads the congestion control back cannot be made";
            LabError::io(format!("{what} within {CONNECT_WAIT:?}"), e)
        };
        let to = listener.local_addr().map_err(failed)?;
        let (used, source_port) = self.hosts.on(0, || Ok(congestion_to(to)))?.map_err(failed)?;
        if used != wanted {
            let text =
                format!("connections use {used}, not {wanted}: load the module tcp_{wanted}");
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

/// What a connection uses, and its port at the near side.
fn congestion_to(address: SocketAddr) -> io::Result<(String, u16)> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.connect_timeout(&address.into(), CONNECT_WAIT)?;
    let port = socket.local_addr()?.as_socket().map_or(0, |near| near.port());
    Ok((flows::congestion_of(&socket)?, port))
}

/// What became of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What the emulator saw.
    pub recording: Recording,
    rtt: Duration,
    ran: Duration,
    stolen: Duration,
}

impl Outcome {
    /// Why the run must not be believed; `None` when it may.
    #[must_use]
    pub fn void(&self) -> Option<String> {
        self.reason().map(|why| why + &machine::stolen_words(self.stolen))
    }

    fn reason(&self) -> Option<String> {
        let allowed = LATENESS_MAX.max(self.rtt.mul_f64(LATENESS_RTT_SHARE));
        // No word must not be taken for punctuality.
        if self.ran > PROBES_WAIT && self.recording.probes == 0 {
            return Some("nobody knows how long packets waited: no probe was read".to_owned());
        }
        let late = self.recording.late(LATENESS_SHARE);
        if late > allowed {
            return Some(format!(
                "1 % of the packets was read or delivered {} late or more ({} allowed)",
                short_time(late),
                short_time(allowed)
            ));
        }
        if self.recording.unread > 0 {
            let n = self.recording.unread;
            return Some(format!("{n} packets were dropped before the emulator read them"));
        }
        if self.recording.refused > 0 {
            let n = self.recording.refused;
            return Some(format!("{n} packets were refused by a host's interface"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::Lateness;

    const MS: Duration = Duration::from_millis(1);

    /// Of a network with a round trip of 20 ms that ran for a second, always in time.
    fn quiet() -> Outcome {
        let mut recording = Recording::default();
        for _ in 0..1000 {
            recording.lateness.add(MS / 10);
            recording.waited.add(MS / 10);
            recording.probes += 1;
        }
        Outcome { recording, rtt: MS * 20, ran: MS * 1000, stolen: Duration::ZERO }
    }

    #[track_caller]
    fn assert_void(outcome: &Outcome, word: &str) {
        let why = outcome.void().unwrap();
        assert!(why.contains(word), "{why}");
    }

    #[test]
    fn what_was_in_time_is_not_void_and_one_hiccup_changes_nothing() {
        let mut outcome = quiet();
        assert_eq!(outcome.void(), None);
        outcome.recording.lateness.add(MS * 50);
        outcome.recording.waited.add(MS * 50);
        assert_eq!(outcome.void(), None);
    }

    #[test]
    fn what_was_late_to_be_read_or_delivered_is_void() {
        for is_read in [true, false] {
            let mut outcome = quiet();
            let times = [&mut outcome.recording.lateness, &mut outcome.recording.waited];
            let [delivered, read] = times;
            let late = if is_read { read } else { delivered };
            (0..20).for_each(|_| late.add(MS * 2));
            assert_void(&outcome, "late");
            outcome.rtt = MS * 150;
            assert_eq!(outcome.void(), None, "2 % of the round trip are allowed");
        }
    }

    #[test]
    fn what_was_dropped_unread_or_refused_is_void() {
        let mut outcome = quiet();
        outcome.recording.unread = 1;
        assert_void(&outcome, "1 packets were dropped before");
        let mut outcome = quiet();
        outcome.recording.refused = 2;
        assert_void(&outcome, "2 packets were refused");
    }

    #[test]
    fn what_the_hypervisor_took_away_is_told_with_the_reason_and_is_none_by_itself() {
        let mut outcome = quiet();
        outcome.stolen = MS * 90;
        assert_eq!(outcome.void(), None);
        outcome.recording.unread = 1;
        assert_void(&outcome, "read them (the hypervisor took the processors away for 90 ms");
    }

    #[test]
    fn without_a_probe_nobody_knows() {
        let mut outcome = quiet();
        outcome.recording.waited = Lateness::default();
        assert_eq!(outcome.void(), None, "nothing had to wait");
        outcome.recording.probes = 0;
        assert_void(&outcome, "no probe was read");
        outcome.ran = MS * 50;
        assert_eq!(outcome.void(), None, "it ended before one had to come");
    }
}
