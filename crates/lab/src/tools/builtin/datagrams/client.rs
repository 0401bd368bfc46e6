//! Client of the datagram service: sends messages, each as one datagram, and receives the
//! responses.

use crate::base::deadline::Deadline;
use crate::base::error::{LabError, Result};
use crate::tools::builtin::datagrams::message::{Header, MessageBuilder, NAME};
use crate::tools::builtin::generators::{generator_error, is_transient};
use bankfull_control::Rate;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Parameters of the retransmission timeout (RTO). (RFC 6298 §2: initially 1 s, gains of 1/8 and
/// 1/4, four times RTTVAR, at most 60 s)
const INITIAL_RTO: Duration = Duration::from_secs(1);
const SRTT_DIVISOR: u32 = 8;
const RTTVAR_DIVISOR: u32 = 4;
const RTTVAR_FACTOR: u32 = 4;
const MAX_RTO: Duration = Duration::from_secs(60);

/// Smallest RTO. (TCP_RTO_MIN of Linux, net/tcp.h; RFC 6298 has 1 s)
const MIN_RTO: Duration = Duration::from_millis(200);

/// Interval of deadline checks while waiting for a response. (chosen: not noticeable)
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Smallest share of the intended messages that a paced client must send. (chosen:
/// otherwise the drops would be those of a smaller load)
const MIN_SENT_SHARE: f64 = 0.95;

/// Sending mode of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendMode {
    /// One message at a time: the next after its response, the same after a timeout.
    StopAndWait,
    /// At a constant rate regardless of responses, each message once; starts after a delay.
    Paced(Rate, Duration),
}

/// Counts of sent messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SentCount {
    /// Messages, retransmissions included.
    pub(crate) messages: u64,
    /// Retransmissions.
    pub(crate) retransmits: u64,
}

/// Sends from `begin` to `end`.
pub(crate) fn run(
    socket: &UdpSocket,
    builder: &mut MessageBuilder,
    mode: SendMode,
    (begin, end): (Instant, Instant),
    deadline: &Deadline<'_>,
) -> Result<SentCount> {
    deadline.sleep_until(begin, NAME)?;
    match mode {
        SendMode::StopAndWait => stop_and_wait(socket, builder, end, deadline),
        SendMode::Paced(rate, after) => {
            send_paced(socket, builder, rate, (begin + after, end), deadline)
        }
    }
}

fn stop_and_wait(
    socket: &UdpSocket,
    builder: &mut MessageBuilder,
    end: Instant,
    deadline: &Deadline<'_>,
) -> Result<SentCount> {
    let mut rto = RtoEstimator::default();
    let mut sent = SentCount::default();
    for number in 1.. {
        let mut tries = 0;
        loop {
            let now = Instant::now();
            if now >= end {
                return Ok(sent);
            }
            socket.send(builder.with_number(number)).map_err(generator_error)?;
            sent.messages += 1;
            sent.retransmits += u64::from(tries > 0);
            let until = (now + rto.current).min(end);
            if wait_for_response(socket, number, until, deadline)? {
                // A response to a retransmitted message is ambiguous. (RFC 6298 §3)
                if tries == 0 {
                    rto.on_sample(now.elapsed());
                }
                break;
            }
            tries += 1;
            rto.on_timeout();
        }
    }
    Ok(sent)
}

/// Waits for the response to a message until a time.
fn wait_for_response(
    socket: &UdpSocket,
    number: u64,
    until: Instant,
    deadline: &Deadline<'_>,
) -> Result<bool> {
    let mut answer = [0; Header::BYTES];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        socket.set_read_timeout(Some(left.min(POLL_INTERVAL))).map_err(generator_error)?;
        match socket.recv(&mut answer) {
            // Responses to earlier retransmissions may arrive late.
            Ok(_) if Header::read(&answer).is_some_and(|header| header.number == number) => {
                return Ok(true);
            }
            Ok(_) => {}
            Err(e) if is_transient(&e) => deadline.check(NAME)?,
            Err(e) => return Err(generator_error(e)),
        }
    }
}

fn send_paced(
    socket: &UdpSocket,
    builder: &mut MessageBuilder,
    rate: Rate,
    (begin, end): (Instant, Instant),
    deadline: &Deadline<'_>,
) -> Result<SentCount> {
    let distance = builder.bytes() as f64 * 8.0 / rate.bits_per_sec().max(1) as f64;
    let planned = (end.saturating_duration_since(begin).as_secs_f64() / distance).ceil() as u64;
    let mut sent = 0;
    while sent < planned {
        let due = begin + Duration::from_secs_f64(sent as f64 * distance);
        deadline.sleep_until(due, NAME)?;
        if Instant::now() >= end {
            break;
        }
        sent += 1;
        // Responses are ignored; messages dropped for lack of buffer are lost.
        socket.send(builder.with_number(sent)).map_err(generator_error)?;
    }
    if (sent as f64) < planned as f64 * MIN_SENT_SHARE {
        let what = format!("a client could not send {rate}: {sent} of {planned} messages in time");
        return Err(LabError::Command(NAME.to_owned(), what));
    }
    Ok(SentCount { messages: sent, retransmits: 0 })
}

/// RTO estimator. (RFC 6298)
#[derive(Debug)]
struct RtoEstimator {
    /// Current RTO.
    current: Duration,
    /// SRTT and RTTVAR; `None` before the first sample.
    smoothed: Option<(Duration, Duration)>,
}

impl Default for RtoEstimator {
    fn default() -> Self {
        Self { current: INITIAL_RTO, smoothed: None }
    }
}

impl RtoEstimator {
    /// Updates the RTO from a response to a message sent once. (§2.2, §2.3)
    fn on_sample(&mut self, sample: Duration) {
        let (mean, variation) = match self.smoothed {
            None => (sample, sample / 2),
            Some((mean, variation)) => (
                mean - mean / SRTT_DIVISOR + sample / SRTT_DIVISOR,
                variation - variation / RTTVAR_DIVISOR + mean.abs_diff(sample) / RTTVAR_DIVISOR,
            ),
        };
        self.smoothed = Some((mean, variation));
        self.current = (mean + variation * RTTVAR_FACTOR).clamp(MIN_RTO, MAX_RTO);
    }

    /// Doubles the RTO after a timeout. (§5.5)
    fn on_timeout(&mut self) {
        self.current = (self.current * 2).min(MAX_RTO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::signals::Signals;
    use std::thread;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn rto_follows_rtt_and_doubles_on_timeout() {
        let mut rto = RtoEstimator::default();
        assert_eq!(rto.current, Duration::from_secs(1));
        rto.on_sample(MS * 100);
        assert_eq!(rto.current, MS * 300, "the mean, and four times half of it");
        rto.on_sample(MS * 180);
        // SRTT of 110 ms; RTTVAR of 3/4 of 50 ms plus 1/4 of 80 ms.
        assert_eq!(rto.current, MS * 110 + Duration::from_micros(57_500) * 4);
        rto.on_timeout();
        assert_eq!(rto.current, MS * 680);
        (0..20).for_each(|_| rto.on_timeout());
        assert_eq!(rto.current, MAX_RTO);
        (0..100).for_each(|_| rto.on_sample(MS));
        assert_eq!(rto.current, MIN_RTO);
    }

    /// Pair of connected sockets.
    fn connected() -> (UdpSocket, UdpSocket) {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        server.connect(client.local_addr().unwrap()).unwrap();
        (client, server)
    }

    #[test]
    fn stop_and_wait_retransmits_unanswered_message() {
        let (client, server) = connected();
        let signals = Signals::unwatched();
        let deadline = Deadline::new(&signals, Duration::from_secs(60));
        let begin = Instant::now();
        let span = (begin, begin + Duration::from_millis(1500));
        let mut numbers = Vec::new();
        let sent = thread::scope(|scope| {
            let sending = scope.spawn(|| {
                run(
                    &client,
                    &mut MessageBuilder::new(0, 2000, 1),
                    SendMode::StopAndWait,
                    span,
                    &deadline,
                )
            });
            // The third message is treated as lost once.
            let mut buffer = [0; 2000];
            for _ in 0..5 {
                let bytes = server.recv(&mut buffer).unwrap();
                let header = Header::read(&buffer[..bytes]).unwrap();
                numbers.push(header.number);
                if numbers != [1, 2, 3] {
                    server.send(&buffer[..Header::BYTES]).unwrap();
                }
            }
            sending.join().unwrap()
        });
        assert_eq!(numbers, [1, 2, 3, 3, 4]);
        let sent = sent.unwrap();
        assert!(
            sent.retransmits >= 1 && sent.messages >= 6,
            "the last ones are not answered: {sent:?}"
        );
    }

    #[test]
    fn paced_client_sends_at_rate_without_waiting() {
        let signals = Signals::unwatched();
        let deadline = Deadline::new(&signals, Duration::from_secs(60));
        let bytes = 1000;
        // 100 messages per second.
        let mode = SendMode::Paced(Rate::from_bits_per_sec(bytes as f64 * 800.0), Duration::ZERO);
        let send = || {
            let (client, server) = connected();
            let span = (Instant::now(), Instant::now() + MS * 200);
            let sent = run(&client, &mut MessageBuilder::new(0, bytes, 1), mode, span, &deadline);
            (sent, client, server)
        };
        // A machine that stalls in this time sends too few; then again.
        let all = SentCount { messages: 20, retransmits: 0 };
        let is_all = |sent: &Result<SentCount>| sent.as_ref().is_ok_and(|sent| *sent == all);
        let sent = (0..20).map(|_| send()).find(|(sent, ..)| is_all(sent));
        let (_, client, server) = sent.expect("20 messages in 200 ms");
        let mut buffer = [0; 1000];
        for number in 1..=20 {
            assert_eq!(server.recv(&mut buffer).unwrap(), bytes);
            assert_eq!(Header::read(&buffer).unwrap().number, number);
        }
        let too_much = SendMode::Paced(Rate::from_bits_per_sec(1e13), Duration::ZERO);
        let span = (Instant::now(), Instant::now() + MS * 20);
        let error = run(&client, &mut MessageBuilder::new(0, bytes, 1), too_much, span, &deadline);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("a client could not send"), "{error}");
    }
}
