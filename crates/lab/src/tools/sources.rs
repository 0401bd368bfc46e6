//! Sources of the lab's own: what no program does as a scenario wants it.

use super::{Field, Figures, Job, Tool, Way};
use crate::deadline::Deadline;
use crate::error::{LabError, Result};
use crate::flows::{Flows, Kind};
use crate::hosts::Hosts;
use crate::network::Network;
use bankfull_control::{Bytes, Rate};
use bankfull_sim::Cross;
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// First port of the receiver; flows have one for each sender. (ours)
pub(super) const PORT: u16 = 7701;

/// The largest packet of Ethernet, and the data in it: 20 bytes are IP's, 8 are UDP's. (RFC 894,
/// RFC 791, RFC 768)
const PACKET_BYTES: usize = 1500;
const DATAGRAM_BYTES: usize = 1472;

/// Datagrams that are due within this time are sent at once, as many as fit in one call. (ours: far
/// shorter than any queue, and fewer calls than a core can do; 65 507 bytes are UDP's most)
const CALL_TIME: f64 = 50e-6;
const CALL_DATAGRAMS_MAX: u64 = (65_507 / DATAGRAM_BYTES) as u64;

/// What a source is behind for longer is missing. (ours: a small part of the queues that it is to
/// fill)
const LATE_MAX: Duration = Duration::from_millis(1);

/// Room for datagrams that wait for the receiver, beyond which it would lose what the link did not.
/// (ours: a quarter of a second at 1 Gbit/s)
const UDP_BUFFER: usize = 32 << 20;

/// So long nothing may have arrived, and nothing been sent, before counting ends. (ours: several
/// round trips)
const LAST_WAIT: Duration = Duration::from_secs(1);

/// A source of datagrams that sends less than this share of what it should has failed. (ours: what
/// is lost of a load between 0.95 and 1 would be taken for another)
const SENT_SHARE_MIN: f64 = 0.95;

/// How often a wait for data looks whether it must end. (ours: as short as nobody notices)
const LOOK: Duration = Duration::from_millis(20);

pub(super) static TCP: Tool = Tool {
    name: "tcp",
    about: "the lab's own TCP flows, as wide as they get",
    needs: &[],
    version: &[],
    takes: &[Field::Streams, Field::Congestion, Field::Window],
    refuses: |_, _| None,
    way: Way::Source(run_tcp),
};

pub(super) static UDP: Tool = Tool {
    name: "udp",
    about: "the lab's own datagrams at a constant rate, and how many are lost",
    needs: &[],
    version: &[],
    takes: &[Field::Load],
    refuses: |_, _| None,
    way: Way::Source(run_udp),
};

pub(super) fn failed(source: io::Error) -> LabError {
    LabError::io("a source of the lab failed", source)
}

pub(super) fn panicked<T>() -> Result<T> {
    Err(failed(io::Error::other("a thread has panicked")))
}

/// The same for each sender, at the same time.
pub(super) fn for_each_sender<T: Send>(
    senders: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..senders).map(|at| scope.spawn(move || work(at))).collect();
        let joined = all.into_iter().map(|one| one.join().unwrap_or_else(|_| panicked()));
        // All are waited for, whatever became of the first.
        let all: Vec<_> = joined.collect();
        all.into_iter().collect()
    })
}

/// What arrives within the time, from all senders together. Connecting is not in it.
fn run_tcp(network: &Network, job: &Job<'_>, deadline: &Deadline<'_>) -> Result<Figures> {
    // The hosts pin their congestion control.
    let kind = Kind { count: job.streams(), window: job.contender.window, congestion: None };
    let mut flows = for_each_sender(job.senders, |sender| {
        Flows::connect(network, sender, PORT + sender as u16, &kind, deadline)
    })?;
    let began = Instant::now();
    flows.iter_mut().try_for_each(Flows::begin)?;
    deadline.sleep_until(began + job.time, TCP.name)?;
    let received = flows.iter().map(|flows| flows.received().0).sum();
    Ok(super::goodput(Bytes(received), began.elapsed()))
}

/// Datagrams at equal distances, of all senders together at the rate, counted at both ends. What
/// the receiver's socket has dropped was not lost on the path.
fn run_udp(network: &Network, job: &Job<'_>, deadline: &Deadline<'_>) -> Result<Figures> {
    let receiver = network.receiver();
    let to = SocketAddr::from((Hosts::address(receiver), PORT));
    let incoming = network.hosts().on(receiver, || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        socket.bind(&to.into())?;
        // More than the machine's limit, which the lab may as root.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, UDP_BUFFER)?;
        bankfull_sys::join_datagrams(&socket)?;
        Ok(UdpSocket::from(socket))
    })?;
    incoming.set_read_timeout(Some(LOOK)).map_err(failed)?;
    let load = job.contender.load() / job.senders as f64;
    let rate = Rate::from_bits_per_sec(job.rate.bits_per_sec() as f64 * load);
    let ended = Mutex::new(None);
    let (sent, received) = thread::scope(|scope| {
        let counting = scope.spawn(|| count(&incoming, || *lock(&ended), deadline));
        let sent = for_each_sender(job.senders, |sender| {
            let socket = network.hosts().on(sender, || {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
                socket.connect(to)?;
                bankfull_sys::cut_datagrams(&socket, DATAGRAM_BYTES as u16)?;
                Ok(socket)
            })?;
            send_evenly(&socket, rate, job.time, deadline)
        });
        *lock(&ended) = Some(Instant::now());
        (sent, counting.join().unwrap_or_else(|_| panicked()))
    });
    let (sent, received) = (sent?.iter().sum(), received?);
    check_sent(sent, due_within(rate, job.time) * job.senders as u64, rate, job.senders)?;
    check_read(network.hosts().overrun(receiver, PORT)?)?;
    Ok(Figures {
        seconds: Some(job.time.as_secs_f64()),
        lost_share: Some(1.0 - received as f64 / (sent as f64).max(1.0)),
        expected_lost_share: expected_loss(network, job, sent),
        ..Figures::default()
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Counts datagrams until sending has ended and nothing arrives any more: a pause before, as when
/// the path is cut, ends nothing.
fn count(
    incoming: &UdpSocket,
    ended: impl Fn() -> Option<Instant>,
    deadline: &Deadline<'_>,
) -> Result<u64> {
    let mut buffer = vec![0; DATAGRAM_BYTES * CALL_DATAGRAMS_MAX as usize];
    let mut received = 0;
    let mut last = Instant::now();
    loop {
        match incoming.recv(&mut buffer) {
            Ok(bytes) => {
                received += bytes.div_ceil(DATAGRAM_BYTES) as u64;
                last = Instant::now();
            }
            Err(e) if is_pause(&e) => {
                if ended().is_some_and(|ended| ended.max(last).elapsed() >= LAST_WAIT) {
                    return Ok(received);
                }
                deadline.check(UDP.name)?;
            }
            Err(e) => return Err(failed(e)),
        }
    }
}

/// Whether a socket only has nothing to give or to take for the moment.
pub(super) fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// What the path must lose of this: what neither the line nor the buffer took, and what is lost on
/// the line. `None` where others send, too, and where each sender's own line may lose some.
fn expected_loss(network: &Network, job: &Job<'_>, sent: u64) -> Option<f64> {
    if job.is_disturbed || job.has_access_rate || job.path.forward.cross != Cross::None {
        return None;
    }
    let line = job.rate.bytes_per_sec() as f64 * job.time.as_secs_f64();
    Some(lost_of(sent, line + network.buffer().0 as f64, job.path.forward.loss.mean()))
}

/// Share of so many packets that is lost when `fits` bytes of them fit, and some are lost behind.
fn lost_of(sent: u64, fits: f64, behind: f64) -> f64 {
    let passed = (fits / (sent.max(1) * PACKET_BYTES as u64) as f64).min(1.0);
    1.0 - passed * (1.0 - behind)
}

/// Datagrams of one sender that are due within a time.
fn due_within(rate: Rate, length: Duration) -> u64 {
    (length.as_secs_f64() / distance(rate)).ceil() as u64
}

/// Seconds between two datagrams.
fn distance(rate: Rate) -> f64 {
    PACKET_BYTES as f64 * 8.0 / rate.bits_per_sec().max(1) as f64
}

/// Fails when too little was sent: what is lost of that tells nothing of the load that was asked
/// for.
fn check_sent(sent: u64, wanted: u64, rate: Rate, senders: usize) -> Result<()> {
    if sent as f64 >= wanted as f64 * SENT_SHARE_MIN {
        return Ok(());
    }
    let each = if senders > 1 { " from each sender" } else { "" };
    let what =
        format!("the source could not send {rate}{each}: {sent} of {wanted} datagrams in time");
    Err(LabError::Command(UDP.name.to_owned(), what))
}

/// Fails when the receiver did not read in time what had arrived.
fn check_read(overrun: u64) -> Result<()> {
    if overrun == 0 {
        return Ok(());
    }
    let what =
        format!("the receiver was too slow: its socket dropped {overrun} datagrams, not the path");
    Err(LabError::Command(UDP.name.to_owned(), what))
}

fn send_evenly(
    socket: &UdpSocket,
    rate: Rate,
    length: Duration,
    deadline: &Deadline<'_>,
) -> Result<u64> {
    // Where it may not, it is late more often.
    bankfull_sys::tun::run_promptly().map_err(failed)?;
    let (distance, wanted) = (distance(rate), due_within(rate, length));
    let at_once = ((CALL_TIME / distance) as u64).clamp(1, CALL_DATAGRAMS_MAX);
    let data = vec![0x55; DATAGRAM_BYTES * at_once as usize];
    let began = Instant::now();
    let (mut due, mut sent) = (Duration::ZERO, 0u64);
    while sent < wanted && due < length {
        deadline.sleep_until(began + due, UDP.name)?;
        let count = at_once.min(wanted - sent);
        socket.send(&data[..DATAGRAM_BYTES * count as usize]).map_err(failed)?;
        sent += count;
        // What was not sent for longer than that is not made up for in a burst, but missing.
        due = due.max(began.elapsed().saturating_sub(LATE_MAX));
        due += Duration::from_secs_f64(count as f64 * distance);
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::Signals;

    #[test]
    fn what_must_be_lost_is_what_does_not_fit_and_a_share_of_the_rest() {
        // 100 packets of 1500 bytes, of which half fit; and so many that all do.
        assert!((lost_of(100, 75_000.0, 0.0) - 0.5).abs() < 1e-9);
        assert!((lost_of(100, 75_000.0, 0.1) - 0.55).abs() < 1e-9);
        assert!((lost_of(10, 75_000.0, 0.1) - 0.1).abs() < 1e-9);
        assert!(lost_of(0, 75_000.0, 0.0).abs() < 1e-9);
    }

    #[test]
    fn a_source_that_sends_far_less_than_it_should_has_failed() {
        let rate = Rate::from_bits_per_sec(12e6);
        assert_eq!(due_within(rate, Duration::from_secs(2)), 2000);
        assert!(check_sent(2000, 2000, rate, 1).is_ok() && check_sent(1900, 2000, rate, 1).is_ok());
        let error = check_sent(1899, 2000, rate, 1).unwrap_err().to_string();
        let wanted = "the source could not send 12.0 Mbit/s: 1899 of 2000 datagrams in time";
        assert!(error.contains(wanted), "{error}");
    }

    #[test]
    fn what_the_receivers_socket_dropped_is_no_loss_of_the_path() {
        assert!(check_read(0).is_ok());
        let error = check_read(7).unwrap_err().to_string();
        assert!(error.contains("its socket dropped 7 datagrams, not the path"), "{error}");
    }

    #[test]
    fn counting_survives_a_pause_and_ends_after_sending_has() {
        let incoming = UdpSocket::bind("127.0.0.1:0").unwrap();
        incoming.set_read_timeout(Some(LOOK)).unwrap();
        let outgoing = UdpSocket::bind("127.0.0.1:0").unwrap();
        outgoing.connect(incoming.local_addr().unwrap()).unwrap();
        let ended = Mutex::new(None);
        let signals = Signals::none();
        let long = Deadline::new(&signals, Duration::from_secs(60));
        let received = thread::scope(|scope| {
            let counting = scope.spawn(|| count(&incoming, || *lock(&ended), &long));
            outgoing.send(b"before").unwrap();
            thread::sleep(LAST_WAIT + LOOK * 10);
            outgoing.send(b"behind").unwrap();
            *lock(&ended) = Some(Instant::now());
            counting.join().unwrap()
        });
        assert_eq!(received.unwrap(), 2);
    }
}
