//! A service of datagrams: many clients send messages to one socket, whose handler has a part of a
//! processor. What finds no room in the socket's receive buffer is discarded; that buffer has one
//! size, or follows the load (`docs/algorithms/rrda.md`).
//!
//! What never lives here: the rule that the buffer follows.

mod client;
mod duty;
mod message;
mod service;

use super::sources::{PORT, for_each_sender};
use super::{Field, Figures, Job, Tool, Way};
use crate::deadline::Deadline;
use crate::error::{LabError, Result};
use crate::hosts::Hosts;
use crate::network::Network;
use crate::scenario::{Contender, Settings};
use bankfull_control::{Bytes, Rate};
use client::{Pace, Sent};
use message::Draft;
use serde::Serialize;
use service::{Books, Course, Service};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

const NAME: &str = "datagrams";

/// Memory for datagrams whose fragments have not all come: each client's may be under way. (ours:
/// a thousand of the largest)
const FRAGMENTS: &str = "67108864";

/// The least part of a processor: less is no whole message in a period. (ours)
const CPU_MIN: f64 = 0.01;

/// Time until all threads are there, and clients begin. (ours)
const READY: Duration = Duration::from_millis(100);

pub(super) static DATAGRAMS: Tool = Tool {
    name: NAME,
    about: "a service that takes messages from one socket, and what it discards",
    needs: &[],
    version: &[],
    takes: &[Field::Load, Field::Message, Field::ReceiveBuffer, Field::Cpu],
    refuses,
    way: Way::Source(run),
};

fn refuses(settings: &Settings, contender: &Contender) -> Option<String> {
    let message = contender.message();
    let range = Bytes(message::BYTES_MIN as u64)..=Bytes(message::BYTES_MAX as u64);
    if !range.contains(&message) {
        return Some(format!(
            "sends messages of {} to {} bytes, and not message = \"{}B\"",
            range.start().0,
            range.end().0,
            message.0
        ));
    }
    let cpu = contender.cpu();
    if !(CPU_MIN..=1.0).contains(&cpu) {
        return Some(format!(
            "has a part of one processor, and not cpu = {cpu}: write {CPU_MIN} to 1"
        ));
    }
    let path = &settings.path;
    let breaks = [
        ("loss", path.loss.is_some()),
        ("loss-back", path.loss_back.is_some()),
        ("cut", path.cut.is_some()),
    ];
    let found = breaks.iter().find(|(_, is_said)| *is_said);
    found.map(|(field, _)| format!("counts what its socket discards: leave out path.{field}"))
}

/// What a service of datagrams was like.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ServiceFigures {
    /// Messages that the clients sent, those sent again among them.
    pub sent: u64,
    /// Those that were sent again.
    pub again: u64,
    /// Those that were taken out of the socket.
    pub taken: u64,
    /// Those of them that had been processed before.
    pub repeated: u64,
    /// Those that the socket discarded for want of room, as the kernel counts them.
    pub discarded: u64,
    /// Those of them that were discarded later than 2 s after the service had begun.
    pub discarded_later: u64,
    /// Those as a share of all that arrived.
    pub discarded_share: f64,
    /// Processor time of the service for each Gbit that it processed, while clients sent: of the
    /// handler, and of whoever looks after the buffer.
    pub cpu_seconds_per_gbit: Option<f64>,
    /// Mean size of the receive buffer while clients sent.
    pub buffer_mean_bytes: f64,
    /// The largest.
    pub buffer_max_bytes: u64,
    /// The last one.
    pub buffer_end_bytes: u64,
    /// So long after the clients had ended a buffer that follows the load was back; nothing where
    /// it was not within 10 s, and where it has one size.
    pub back_seconds: Option<f64>,
    /// Its sizes, each with the seconds since the clients began from which it has it.
    pub buffer: Vec<(f64, u64)>,
}

/// Clients send for the time of the job; the service goes on until all is processed, and its buffer
/// is back.
fn run(network: &Network, job: &Job<'_>, deadline: &Deadline<'_>) -> Result<Figures> {
    let contender = job.contender;
    let receiver = network.receiver();
    let to = SocketAddr::from((Hosts::address(receiver), PORT));
    let socket = network.hosts().on(receiver, || {
        allow_fragments()?;
        UdpSocket::bind(to)
    })?;
    let service = Service::new(socket, contender.receive_buffer, contender.cpu())?;
    let sockets = for_each_sender(job.senders, |sender| {
        network.hosts().on(sender, || {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(to)?;
            Ok(socket)
        })
    })?;
    let begin = Instant::now() + READY;
    let end = begin + job.time;
    let (sent, seen, course) = thread::scope(|scope| {
        let handling = scope.spawn(|| service.handle(job.senders, deadline));
        let keeping = scope.spawn(|| service.keep(deadline));
        let sent = for_each_sender(job.senders, |sender| {
            let bytes = contender.message().0 as usize;
            let mut draft = Draft::new(sender as u32, bytes, job.seed);
            let pace = pace(job, sender, bytes);
            client::run(&sockets[sender], &mut draft, pace, (begin, end), deadline)
        });
        let seen = service.books();
        let all = sent.as_ref().map_or(0, |all| all.iter().map(|one| one.messages).sum());
        service.end(all);
        let handled = handling.join().unwrap_or_else(|_| super::sources::panicked());
        let course = keeping.join().unwrap_or_else(|_| super::sources::panicked());
        Ok::<_, LabError>((handled.and(sent)?, seen, course?))
    })?;
    let sent = together(&sent);
    check(network, &service, sent)?;
    let figures = ServiceFigures {
        discarded: service.discarded()?,
        ..figures(sent, seen, service.books(), &course, (begin, end))
    };
    let first = service.books().discarded_first.unwrap_or(figures.discarded);
    let discarded_later = figures.discarded.saturating_sub(first);
    let arrived = figures.taken + figures.discarded;
    let share = figures.discarded as f64 / arrived.max(1) as f64;
    let service = Some(ServiceFigures { discarded_share: share, discarded_later, ..figures });
    Ok(Figures { service, ..super::goodput(seen.processed, job.time) })
}

/// Room for the fragments of messages, in the network of the calling thread.
fn allow_fragments() -> io::Result<()> {
    std::fs::write("/proc/sys/net/ipv4/ipfrag_high_thresh", FRAGMENTS)
}

/// How a client sends.
fn pace(job: &Job<'_>, sender: usize, bytes: usize) -> Pace {
    let Some(load) = job.contender.load else { return Pace::StopAndWait };
    let each = job.rate.bits_per_sec() as f64 * load / job.senders as f64;
    // One after the other, not all at once.
    let part = sender as f64 / job.senders as f64;
    let after = Duration::from_secs_f64(bytes as f64 * 8.0 / each * part);
    Pace::Even(Rate::from_bits_per_sec(each), after)
}

fn together(all: &[Sent]) -> Sent {
    Sent {
        messages: all.iter().map(|one| one.messages).sum(),
        again: all.iter().map(|one| one.again).sum(),
    }
}

/// What was sent was taken or discarded by the socket, and by nothing else.
fn check(network: &Network, service: &Service, sent: Sent) -> Result<()> {
    let (books, discarded) = (service.books(), service.discarded()?);
    let fail = |what: String| Err(LabError::Command(NAME.to_owned(), what));
    if books.damaged > 0 {
        return fail(format!("{} messages arrived damaged", books.damaged));
    }
    // What still stands there after the time was not lost.
    let unread = service.count_unread()?;
    let missing = sent.messages.saturating_sub(books.taken + discarded + unread);
    if missing == 0 {
        return Ok(());
    }
    let failed = network.hosts().not_reassembled(network.receiver());
    let failed = failed.map_or("an unknown number of".to_owned(), |count| count.to_string());
    fail(format!(
        "{missing} of {} messages were neither taken nor discarded by the socket ({failed} \
         datagrams were not reassembled): give the path a larger queue",
        sent.messages
    ))
}

/// All but what the kernel has counted.
fn figures(
    sent: Sent,
    seen: Books,
    books: Books,
    course: &Course,
    (begin, end): (Instant, Instant),
) -> ServiceFigures {
    let gbit = seen.processed.0 as f64 * 8e-9;
    let cpu = (seen.handler + seen.keeper).as_secs_f64();
    let largest = course.sizes.iter().map(|(_, size)| size.0).max();
    ServiceFigures {
        sent: sent.messages,
        again: sent.again,
        taken: books.taken,
        repeated: books.repeated,
        cpu_seconds_per_gbit: (gbit > 0.0).then(|| cpu / gbit),
        buffer_mean_bytes: mean(&course.sizes, (begin, end)),
        buffer_max_bytes: largest.unwrap_or_default(),
        buffer_end_bytes: course.sizes.last().map_or(0, |(_, size)| size.0),
        back_seconds: course.back.map(|back| back.as_secs_f64()),
        buffer: course
            .sizes
            .iter()
            .map(|(at, size)| (at.saturating_duration_since(begin).as_secs_f64(), size.0))
            .collect(),
        ..ServiceFigures::default()
    }
}

/// Mean size between two moments.
fn mean(sizes: &[(Instant, Bytes)], (begin, end): (Instant, Instant)) -> f64 {
    let untils = sizes.iter().skip(1).map(|(at, _)| *at).chain([end.max(begin)]);
    let parts = sizes.iter().zip(untils).map(|((from, size), until)| {
        let from = (*from).clamp(begin, end);
        size.0 as f64 * until.clamp(begin, end).saturating_duration_since(from).as_secs_f64()
    });
    parts.sum::<f64>() / end.saturating_duration_since(begin).as_secs_f64().max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_mean_size_is_that_of_the_time_in_which_clients_sent() {
        let begin = Instant::now() + MS * 100;
        let span = (begin, begin + MS * 1000);
        let at = |ms: u32| begin + MS * ms - MS * 100;
        assert!((mean(&[(at(0), Bytes(500))], span) - 500.0).abs() < 1e-9);
        // A tenth of it before, from 600 ms on, and behind the end.
        let sizes = [(at(0), Bytes(100)), (at(700), Bytes(1100)), (at(1300), Bytes(9000))];
        assert!((mean(&sizes, span) - (100.0 * 0.6 + 1100.0 * 0.4)).abs() < 1e-6);
    }

    #[test]
    fn what_a_service_has_used_is_told_for_each_gigabit_of_new_messages() {
        let begin = Instant::now();
        let seen = Books {
            processed: Bytes(250_000_000),
            handler: MS * 300,
            keeper: MS * 2,
            ..Books::default()
        };
        let books = Books { taken: 9, repeated: 2, ..seen };
        let course = Course { sizes: vec![(begin, Bytes(7))], back: Some(MS * 4100) };
        let sent = together(&[Sent { messages: 6, again: 1 }, Sent { messages: 5, again: 2 }]);
        let found = figures(sent, seen, books, &course, (begin, begin + MS * 1000));
        assert_eq!((found.sent, found.again, found.taken, found.repeated), (11, 3, 9, 2));
        assert!((found.cpu_seconds_per_gbit.unwrap() - 0.151).abs() < 1e-9);
        assert_eq!((found.back_seconds, found.buffer_end_bytes), (Some(4.1), 7));
        let idle = figures(sent, Books::default(), books, &course, (begin, begin + MS));
        assert_eq!(idle.cpu_seconds_per_gbit, None);
    }
}
