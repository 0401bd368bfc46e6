//! Datagram service: many clients send messages to one socket, whose handler has a CPU share.
//!
//! Messages beyond the socket's receive buffer are discarded. The buffer is fixed, or tuned by RRDA
//! (`docs/algorithms/rrda.md`), which lives in `bankfull_control`.

mod client;
mod duty_cycle;
mod message;
mod service;

use crate::base::deadline::Deadline;
use crate::base::error::{LabError, Result};
use crate::model::contender::Contender;
use crate::model::job::Job;
use crate::model::metrics::{Metrics, ServiceMetrics};
use crate::model::settings::Settings;
use crate::tools::builtin::datagrams::client::{SendMode, SentCount};
use crate::tools::builtin::datagrams::service::{BufferHistory, Counters, Service};
use crate::tools::builtin::generators::{PORT, for_each_sender, panicked};
use crate::tools::fields::Field;
use crate::tools::tool::{Tool, ToolKind};
use crate::topology::hosts::Hosts;
use crate::topology::network::Network;
use bankfull_control::{Bytes, Rate};
use message::{MessageBuilder, NAME};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// Reassembly memory in bytes. (chosen: a thousand of the largest datagrams)
const REASSEMBLY_BYTES: &str = "67108864";

/// Smallest CPU share. (chosen: below, no message fits into a period)
const MIN_CPU: f64 = 0.01;

/// Time for all threads to start before clients send. (chosen: ample for some hundred)
const START_DELAY: Duration = Duration::from_millis(100);

pub(crate) static DATAGRAMS: Tool = Tool {
    name: NAME,
    about: "built-in datagram service, and the messages that it discards",
    needs: &[],
    version: &[],
    supports: &[Field::Load, Field::Message, Field::ReceiveBuffer, Field::Cpu],
    unsupported,
    kind: ToolKind::Generator(run),
};

fn unsupported(settings: &Settings, contender: &Contender) -> Option<String> {
    let message = contender.message();
    let range = Bytes(message::MIN_MESSAGE_BYTES as u64)..=Bytes(message::MAX_MESSAGE_BYTES as u64);
    if !range.contains(&message) {
        return Some(format!(
            "supports messages of {} to {} bytes, not message = \"{}B\"",
            range.start().0,
            range.end().0,
            message.0
        ));
    }
    let cpu = contender.cpu();
    if !(MIN_CPU..=1.0).contains(&cpu) {
        return Some(format!("supports a share of one CPU, not cpu = {cpu}: write {MIN_CPU} to 1"));
    }
    let path = &settings.path;
    let breaks = [
        ("loss", path.loss.is_some()),
        ("loss-back", path.loss_back.is_some()),
        ("cut", path.cut.is_some()),
        ("link, back or first-hop", path.has_words()),
    ];
    let found = breaks.iter().find(|(_, is_set)| *is_set);
    found.map(|(field, _)| format!("attributes all losses to its socket: leave out path.{field}"))
}

/// Runs the clients for the job's time, and the service. The service runs until all messages are
/// processed and its buffer has shrunk.
fn run(network: &Network, job: &Job<'_>, deadline: &Deadline<'_>) -> Result<Metrics> {
    let contender = job.contender;
    let receiver = network.receiver();
    let to = SocketAddr::from((Hosts::address(receiver), PORT));
    let socket = network.hosts().run_on(receiver, || {
        raise_reassembly_memory()?;
        UdpSocket::bind(to)
    })?;
    let service = Service::new(socket, contender.receive_buffer, contender.cpu())?;
    let sockets = for_each_sender(job.senders, |sender| {
        network.hosts().run_on(sender, || {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(to)?;
            Ok(socket)
        })
    })?;
    let begin = Instant::now() + START_DELAY;
    let end = begin + job.duration;
    let (sent, while_sending, history) = thread::scope(|scope| {
        let handling = scope.spawn(|| service.serve(job.senders, deadline));
        let keeping = scope.spawn(|| service.tune_buffer(deadline));
        let sent = for_each_sender(job.senders, |sender| {
            let bytes = contender.message().0 as usize;
            let mut builder = MessageBuilder::new(sender as u32, bytes, job.seed);
            let mode = send_mode(job, sender, bytes);
            client::run(&sockets[sender], &mut builder, mode, (begin, end), deadline)
        });
        let while_sending = service.counters();
        let all = sent.as_ref().map_or(0, |all| all.iter().map(|one| one.messages).sum());
        service.on_clients_finished(all);
        let handled = handling.join().unwrap_or_else(|_| panicked());
        let history = keeping.join().unwrap_or_else(|_| panicked());
        Ok::<_, LabError>((handled.and(sent)?, while_sending, history?))
    })?;
    let sent = total(&sent);
    check_all_accounted(network, &service, sent)?;
    let metrics = ServiceMetrics {
        discarded: service.discarded()?,
        ..service_metrics(sent, while_sending, service.counters(), &history, (begin, end))
    };
    let first = service.counters().discarded_in_warmup.unwrap_or(metrics.discarded);
    let discarded_after_warmup = metrics.discarded.saturating_sub(first);
    let arrived = metrics.received + metrics.discarded;
    let share = metrics.discarded as f64 / arrived.max(1) as f64;
    let service =
        Some(ServiceMetrics { discarded_share: share, discarded_after_warmup, ..metrics });
    Ok(Metrics { service, ..Metrics::of_transfer(while_sending.processed, job.duration) })
}

/// Raises the reassembly memory of the calling thread's network namespace.
fn raise_reassembly_memory() -> io::Result<()> {
    std::fs::write("/proc/sys/net/ipv4/ipfrag_high_thresh", REASSEMBLY_BYTES)
}

/// Sending mode of a client.
fn send_mode(job: &Job<'_>, sender: usize, bytes: usize) -> SendMode {
    let Some(load) = job.contender.load else { return SendMode::StopAndWait };
    let each = job.rate.bits_per_sec() as f64 * load / job.senders as f64;
    // Staggered, not all at once.
    let part = sender as f64 / job.senders as f64;
    let after = Duration::from_secs_f64(bytes as f64 * 8.0 / each * part);
    SendMode::Paced(Rate::from_bits_per_sec(each), after)
}

fn total(all: &[SentCount]) -> SentCount {
    SentCount {
        messages: all.iter().map(|one| one.messages).sum(),
        retransmits: all.iter().map(|one| one.retransmits).sum(),
    }
}

/// Checks that every message was received or discarded by the socket.
fn check_all_accounted(network: &Network, service: &Service, sent: SentCount) -> Result<()> {
    let (counters, discarded) = (service.counters(), service.discarded()?);
    let fail = |what: String| Err(LabError::Command(NAME.to_owned(), what));
    if counters.damaged > 0 {
        return fail(format!("{} messages arrived damaged", counters.damaged));
    }
    // Messages still queued after the time are not lost.
    let unread = service.count_unread()?;
    let missing = sent.messages.saturating_sub(counters.received + discarded + unread);
    if missing == 0 {
        return Ok(());
    }
    let not_reassembled = network.hosts().reassembly_failures(network.receiver());
    let not_reassembled =
        not_reassembled.map_or("an unknown number of".to_owned(), |count| count.to_string());
    fail(format!(
        "{missing} of {} messages were neither received nor discarded by the socket \
         ({not_reassembled} datagrams were not reassembled): give the path a larger queue",
        sent.messages
    ))
}

/// Metrics without the kernel's counters.
fn service_metrics(
    sent: SentCount,
    while_sending: Counters,
    counters: Counters,
    history: &BufferHistory,
    (begin, end): (Instant, Instant),
) -> ServiceMetrics {
    let gbit = while_sending.processed.0 as f64 * 8e-9;
    let cpu = (while_sending.handler_cpu + while_sending.tuner_cpu).as_secs_f64();
    let largest = history.sizes.iter().map(|(_, size)| size.0).max();
    ServiceMetrics {
        sent: sent.messages,
        retransmits: sent.retransmits,
        received: counters.received,
        duplicates: counters.duplicates,
        cpu_seconds_per_gbit: (gbit > 0.0).then(|| cpu / gbit),
        buffer_mean_bytes: mean_size(&history.sizes, (begin, end)),
        buffer_max_bytes: largest.unwrap_or_default(),
        buffer_last_bytes: history.sizes.last().map_or(0, |(_, size)| size.0),
        shrink_seconds: history.shrink_time.map(|back| back.as_secs_f64()),
        buffer: history
            .sizes
            .iter()
            .map(|(at, size)| (at.saturating_duration_since(begin).as_secs_f64(), size.0))
            .collect(),
        ..ServiceMetrics::default()
    }
}

/// Time-weighted mean size between two times.
fn mean_size(sizes: &[(Instant, Bytes)], (begin, end): (Instant, Instant)) -> f64 {
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
    fn mean_size_is_weighted_by_sending_time() {
        let begin = Instant::now() + MS * 100;
        let span = (begin, begin + MS * 1000);
        let at = |ms: u32| begin + MS * ms - MS * 100;
        assert!((mean_size(&[(at(0), Bytes(500))], span) - 500.0).abs() < 1e-9);
        // 100 for 600 ms, then 1100; the last size begins after the end.
        let sizes = [(at(0), Bytes(100)), (at(700), Bytes(1100)), (at(1300), Bytes(9000))];
        assert!((mean_size(&sizes, span) - (100.0 * 0.6 + 1100.0 * 0.4)).abs() < 1e-6);
    }

    #[test]
    fn service_cpu_time_is_per_gigabit_processed() {
        let begin = Instant::now();
        let while_sending = Counters {
            processed: Bytes(250_000_000),
            handler_cpu: MS * 300,
            tuner_cpu: MS * 2,
            ..Counters::default()
        };
        let counters = Counters { received: 9, duplicates: 2, ..while_sending };
        let history =
            BufferHistory { sizes: vec![(begin, Bytes(7))], shrink_time: Some(MS * 4100) };
        let sent = total(&[
            SentCount { messages: 6, retransmits: 1 },
            SentCount { messages: 5, retransmits: 2 },
        ]);
        let found =
            service_metrics(sent, while_sending, counters, &history, (begin, begin + MS * 1000));
        assert_eq!(
            (found.sent, found.retransmits, found.received, found.duplicates),
            (11, 3, 9, 2)
        );
        assert!((found.cpu_seconds_per_gbit.unwrap() - 0.151).abs() < 1e-9);
        assert_eq!((found.shrink_seconds, found.buffer_last_bytes), (Some(4.1), 7));
        let idle =
            service_metrics(sent, Counters::default(), counters, &history, (begin, begin + MS));
        assert_eq!(idle.cpu_seconds_per_gbit, None);
    }
}
