//! Built-in traffic generators: TCP flows, and datagrams at a constant rate.

use crate::base::deadline::Deadline;
use crate::base::error::{LabError, Result};
use crate::model::job::Job;
use crate::model::metrics::Metrics;
use crate::model::plan::FlowSpec;
use crate::tools::fields::Field;
use crate::tools::tool::{Tool, ToolKind};
use crate::topology::flows::Flows;
use crate::topology::hosts::Hosts;
use crate::topology::network::Network;
use bankfull_control::{Bytes, Rate};
use bankfull_sim::CrossTraffic;
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// First port of the receiver; flows use one for each sender. (chosen: no
/// result depends on it)
pub(crate) const PORT: u16 = 7701;

/// Largest Ethernet packet, and its UDP payload: 20 bytes are IP's, 8 are UDP's. (RFC 894, RFC 791,
/// RFC 768)
const PACKET_BYTES: usize = 1500;
const DATAGRAM_BYTES: usize = 1472;

/// Period whose due datagrams are sent in one call, and their maximum per call. (chosen: far
/// shorter than any queue, few calls; the largest UDP payload is 65 507 bytes)
const BATCH_SECONDS: f64 = 50e-6;
const MAX_BATCH_DATAGRAMS: u64 = (65_507 / DATAGRAM_BYTES) as u64;

/// Lateness from which datagrams are skipped. (chosen: a small part of the queues to be filled)
const MAX_LATENESS: Duration = Duration::from_millis(1);

/// Receive buffer, so that the receiver drops nothing itself. (chosen: a quarter of a second at 1
/// Gbit/s)
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;

/// Time without arrivals, after sending has ended, that ends the counting. (chosen: several RTTs)
const QUIET_TIMEOUT: Duration = Duration::from_secs(1);

/// Smallest share of the intended datagrams that must be sent. (chosen: otherwise the loss
/// would be that of a smaller load)
const MIN_SENT_SHARE: f64 = 0.95;

/// Interval of deadline checks while waiting for data. (chosen: not noticeable)
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) static TCP: Tool = Tool {
    name: "tcp",
    about: "built-in TCP flows",
    needs: &[],
    version: &[],
    supports: &[Field::Streams, Field::Congestion, Field::Window],
    unsupported: |_, _| None,
    kind: ToolKind::Generator(run_tcp),
};

pub(crate) static UDP: Tool = Tool {
    name: "udp",
    about: "built-in datagrams at a constant rate, and their loss",
    needs: &[],
    version: &[],
    supports: &[Field::Load],
    unsupported: |_, _| None,
    kind: ToolKind::Generator(run_udp),
};

pub(crate) fn generator_error(source: io::Error) -> LabError {
    LabError::io("a traffic generator failed", source)
}

pub(crate) fn panicked<T>() -> Result<T> {
    Err(generator_error(io::Error::other("a thread has panicked")))
}

/// Runs `work` for all senders in parallel.
pub(crate) fn for_each_sender<T: Send>(
    senders: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..senders).map(|at| scope.spawn(move || work(at))).collect();
        let joined = all.into_iter().map(|one| one.join().unwrap_or_else(|_| panicked()));
        // Joins all threads before returning an error.
        let all: Vec<_> = joined.collect();
        all.into_iter().collect()
    })
}

/// Goodput of all senders; connection setup is not measured.
fn run_tcp(network: &Network, job: &Job<'_>, deadline: &Deadline<'_>) -> Result<Metrics> {
    // Pinned by the hosts' routes.
    let kind = FlowSpec { count: job.streams(), window: job.contender.window, congestion: None };
    let mut flows = for_each_sender(job.senders, |sender| {
        Flows::connect(network, sender, PORT + sender as u16, &kind, deadline)
    })?;
    let began = Instant::now();
    flows.iter_mut().try_for_each(Flows::start)?;
    deadline.sleep_until(began + job.duration, TCP.name)?;
    let received = flows.iter().map(|flows| flows.received().0).sum();
    Ok(Metrics::of_transfer(Bytes(received), began.elapsed()))
}

/// Sends evenly spaced datagrams from all senders, and counts them at both ends. Drops of the
/// receiver's socket are not losses of the path.
fn run_udp(network: &Network, job: &Job<'_>, deadline: &Deadline<'_>) -> Result<Metrics> {
    let receiver = network.receiver();
    let to = SocketAddr::from((Hosts::address(receiver), PORT));
    let incoming = network.hosts().run_on(receiver, || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        socket.bind(&to.into())?;
        // Exceeds the machine's limit, as root may.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES)?;
        bankfull_sys::enable_udp_gro(&socket)?;
        Ok(UdpSocket::from(socket))
    })?;
    incoming.set_read_timeout(Some(POLL_INTERVAL)).map_err(generator_error)?;
    let load = job.contender.load() / job.senders as f64;
    let rate = Rate::from_bits_per_sec(job.rate.bits_per_sec() as f64 * load);
    let ended = Mutex::new(None);
    let (sent, received) = thread::scope(|scope| {
        let counting = scope.spawn(|| count_datagrams(&incoming, || *lock(&ended), deadline));
        let sent = for_each_sender(job.senders, |sender| {
            let socket = network.hosts().run_on(sender, || {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
                socket.connect(to)?;
                bankfull_sys::set_udp_gso_size(&socket, DATAGRAM_BYTES as u16)?;
                Ok(socket)
            })?;
            send_evenly(&socket, rate, job.duration, deadline)
        });
        *lock(&ended) = Some(Instant::now());
        (sent, counting.join().unwrap_or_else(|_| panicked()))
    });
    let (sent, received) = (sent?.iter().sum(), received?);
    check_sent(sent, datagrams_due(rate, job.duration) * job.senders as u64, rate, job.senders)?;
    check_socket_drops(network.hosts().port_drops(receiver, PORT)?)?;
    Ok(Metrics {
        seconds: Some(job.duration.as_secs_f64()),
        lost_share: Some(1.0 - received as f64 / (sent as f64).max(1.0)),
        expected_lost_share: expected_loss(network, job, sent),
        ..Metrics::default()
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Counts datagrams until sending has ended and none arrives any more; earlier pauses, as during a
/// cut, end nothing.
fn count_datagrams(
    incoming: &UdpSocket,
    ended: impl Fn() -> Option<Instant>,
    deadline: &Deadline<'_>,
) -> Result<u64> {
    let mut buffer = vec![0; DATAGRAM_BYTES * MAX_BATCH_DATAGRAMS as usize];
    let mut received = 0;
    let mut last = Instant::now();
    loop {
        match incoming.recv(&mut buffer) {
            Ok(bytes) => {
                received += bytes.div_ceil(DATAGRAM_BYTES) as u64;
                last = Instant::now();
            }
            Err(e) if is_transient(&e) => {
                if ended().is_some_and(|ended| ended.max(last).elapsed() >= QUIET_TIMEOUT) {
                    return Ok(received);
                }
                deadline.check(UDP.name)?;
            }
            Err(e) => return Err(generator_error(e)),
        }
    }
}

/// True for errors that only mean that a socket is not ready.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Expected loss: datagrams beyond line rate and buffer, and those lost on the link. `None` with
/// other traffic or rate-limited access links.
fn expected_loss(network: &Network, job: &Job<'_>, sent: u64) -> Option<f64> {
    if job.has_disturbance || job.has_access_rate || job.path.forward.cross != CrossTraffic::None {
        return None;
    }
    let line = job.rate.bytes_per_sec() as f64 * job.duration.as_secs_f64();
    Some(loss_share(sent, line + network.buffer().0 as f64, job.path.forward.loss.mean()))
}

/// Returns the lost share of `sent` packets if `fits` bytes pass the queue. The share `behind` of
/// the passed ones is lost, too.
fn loss_share(sent: u64, fits: f64, behind: f64) -> f64 {
    let passed = (fits / (sent.max(1) * PACKET_BYTES as u64) as f64).min(1.0);
    1.0 - passed * (1.0 - behind)
}

/// Datagrams of one sender that are due within a time.
fn datagrams_due(rate: Rate, length: Duration) -> u64 {
    (length.as_secs_f64() / interval_seconds(rate)).ceil() as u64
}

/// Seconds between two datagrams.
fn interval_seconds(rate: Rate) -> f64 {
    PACKET_BYTES as f64 * 8.0 / rate.bits_per_sec().max(1) as f64
}

/// Fails if too few datagrams were sent: their loss is not that of the requested load.
fn check_sent(sent: u64, planned: u64, rate: Rate, senders: usize) -> Result<()> {
    if sent as f64 >= planned as f64 * MIN_SENT_SHARE {
        return Ok(());
    }
    let each = if senders > 1 { " from each sender" } else { "" };
    let what =
        format!("the generator could not send {rate}{each}: {sent} of {planned} datagrams in time");
    Err(LabError::Command(UDP.name.to_owned(), what))
}

/// Fails if the receiver's socket dropped datagrams.
fn check_socket_drops(dropped: u64) -> Result<()> {
    if dropped == 0 {
        return Ok(());
    }
    let what =
        format!("the receiver was too slow: its socket dropped {dropped} datagrams, not the path");
    Err(LabError::Command(UDP.name.to_owned(), what))
}

fn send_evenly(
    socket: &UdpSocket,
    rate: Rate,
    length: Duration,
    deadline: &Deadline<'_>,
) -> Result<u64> {
    // Without real-time priority, it is late more often.
    bankfull_sys::tun::set_realtime_priority().map_err(generator_error)?;
    let (interval_seconds, planned) = (interval_seconds(rate), datagrams_due(rate, length));
    let at_once = ((BATCH_SECONDS / interval_seconds) as u64).clamp(1, MAX_BATCH_DATAGRAMS);
    let data = vec![0x55; DATAGRAM_BYTES * at_once as usize];
    let began = Instant::now();
    let (mut due, mut sent) = (Duration::ZERO, 0u64);
    while sent < planned && due < length {
        deadline.sleep_until(began + due, UDP.name)?;
        let count = at_once.min(planned - sent);
        socket.send(&data[..DATAGRAM_BYTES * count as usize]).map_err(generator_error)?;
        sent += count;
        // Datagrams that are late by more are skipped, not sent in a burst.
        due = due.max(began.elapsed().saturating_sub(MAX_LATENESS));
        due += Duration::from_secs_f64(count as f64 * interval_seconds);
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::signals::Signals;

    #[test]
    fn expected_loss_is_overflow_plus_random_share() {
        // 100 packets of 1500 bytes, of which half fit; then few enough that all fit.
        assert!((loss_share(100, 75_000.0, 0.0) - 0.5).abs() < 1e-9);
        assert!((loss_share(100, 75_000.0, 0.1) - 0.55).abs() < 1e-9);
        assert!((loss_share(10, 75_000.0, 0.1) - 0.1).abs() < 1e-9);
        assert!(loss_share(0, 75_000.0, 0.0).abs() < 1e-9);
    }

    #[test]
    fn generator_sending_too_little_fails() {
        let rate = Rate::from_bits_per_sec(12e6);
        assert_eq!(datagrams_due(rate, Duration::from_secs(2)), 2000);
        assert!(check_sent(2000, 2000, rate, 1).is_ok() && check_sent(1900, 2000, rate, 1).is_ok());
        let error = check_sent(1899, 2000, rate, 1).unwrap_err().to_string();
        let planned = "the generator could not send 12.0 Mbit/s: 1899 of 2000 datagrams in time";
        assert!(error.contains(planned), "{error}");
    }

    #[test]
    fn socket_drops_fail_the_run() {
        assert!(check_socket_drops(0).is_ok());
        let error = check_socket_drops(7).unwrap_err().to_string();
        assert!(error.contains("its socket dropped 7 datagrams, not the path"), "{error}");
    }

    #[test]
    fn counting_survives_pause_and_ends_after_sending() {
        let incoming = UdpSocket::bind("127.0.0.1:0").unwrap();
        incoming.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
        let outgoing = UdpSocket::bind("127.0.0.1:0").unwrap();
        outgoing.connect(incoming.local_addr().unwrap()).unwrap();
        let ended = Mutex::new(None);
        let signals = Signals::unwatched();
        let long = Deadline::new(&signals, Duration::from_secs(60));
        let received = thread::scope(|scope| {
            let counting = scope.spawn(|| count_datagrams(&incoming, || *lock(&ended), &long));
            outgoing.send(b"before").unwrap();
            thread::sleep(QUIET_TIMEOUT + POLL_INTERVAL * 10);
            outgoing.send(b"behind").unwrap();
            *lock(&ended) = Some(Instant::now());
            counting.join().unwrap()
        });
        assert_eq!(received.unwrap(), 2);
    }
}
