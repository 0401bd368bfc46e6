//! A client of the service: sends messages, each as one datagram, and hears the answers.
//!
//! What never lives here: namespaces, and how many clients there are.

use super::NAME;
use super::message::{Draft, Heading};
use crate::deadline::Deadline;
use crate::error::{LabError, Result};
use crate::tools::sources::{failed, is_pause};
use bankfull_control::Rate;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// The first time-out, the weights of a measurement, and the most that a time-out grows to.
/// (RFC 6298, §2: 1 s, 1/8, 1/4, four times the variation, 60 s)
const FIRST: Duration = Duration::from_secs(1);
const WEIGHT: u32 = 8;
const VARIATION_WEIGHT: u32 = 4;
const VARIATIONS: u32 = 4;
const MOST: Duration = Duration::from_secs(60);

/// The shortest time-out. (as TCP's in Linux: TCP_RTO_MIN, net/tcp.h; the RFC would have 1 s)
const LEAST: Duration = Duration::from_millis(200);

/// A wait for an answer looks so often whether it must end. (ours: as short as nobody notices)
const LOOK: Duration = Duration::from_millis(20);

/// A paced client that sends less than this share of what it should has failed. (ours: what is
/// discarded of a smaller load would be taken for another)
const SENT_SHARE_MIN: f64 = 0.95;

/// How clients send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// A message at a time: the next one when the answer is there, the same one at a time-out.
    StopAndWait,
    /// At this rate, whatever comes back, and each message once; so long after the others begin.
    Even(Rate, Duration),
}

/// What a client has sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sent {
    /// Messages, those sent again among them.
    pub(super) messages: u64,
    /// Those sent again.
    pub(super) again: u64,
}

/// Sends from one moment to another.
pub(super) fn run(
    socket: &UdpSocket,
    draft: &mut Draft,
    pace: Pace,
    (begin, end): (Instant, Instant),
    deadline: &Deadline<'_>,
) -> Result<Sent> {
    deadline.sleep_until(begin, NAME)?;
    match pace {
        Pace::StopAndWait => stop_and_wait(socket, draft, end, deadline),
        Pace::Even(rate, after) => evenly(socket, draft, rate, (begin + after, end), deadline),
    }
}

fn stop_and_wait(
    socket: &UdpSocket,
    draft: &mut Draft,
    end: Instant,
    deadline: &Deadline<'_>,
) -> Result<Sent> {
    let mut timeout = Timeout::default();
    let mut sent = Sent::default();
    for number in 1.. {
        let mut tries = 0;
        loop {
            let now = Instant::now();
            if now >= end {
                return Ok(sent);
            }
            socket.send(draft.number(number)).map_err(failed)?;
            sent.messages += 1;
            sent.again += u64::from(tries > 0);
            let until = (now + timeout.now).min(end);
            if is_answered(socket, number, until, deadline)? {
                // The answer may be to any of several tries, and tells nothing then. (§3)
                if tries == 0 {
                    timeout.on_measured(now.elapsed());
                }
                break;
            }
            tries += 1;
            timeout.on_expired();
        }
    }
    Ok(sent)
}

/// Waits for the answer to a message: at most until a moment.
fn is_answered(
    socket: &UdpSocket,
    number: u64,
    until: Instant,
    deadline: &Deadline<'_>,
) -> Result<bool> {
    let mut answer = [0; Heading::BYTES];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        socket.set_read_timeout(Some(left.min(LOOK))).map_err(failed)?;
        match socket.recv(&mut answer) {
            // Those to what was sent twice may come twice.
            Ok(_) if Heading::read(&answer).is_some_and(|heading| heading.number == number) => {
                return Ok(true);
            }
            Ok(_) => {}
            Err(e) if is_pause(&e) => deadline.check(NAME)?,
            Err(e) => return Err(failed(e)),
        }
    }
}

fn evenly(
    socket: &UdpSocket,
    draft: &mut Draft,
    rate: Rate,
    (begin, end): (Instant, Instant),
    deadline: &Deadline<'_>,
) -> Result<Sent> {
    let distance = draft.bytes() as f64 * 8.0 / rate.bits_per_sec().max(1) as f64;
    let wanted = (end.saturating_duration_since(begin).as_secs_f64() / distance).ceil() as u64;
    let mut sent = 0;
    while sent < wanted {
        let due = begin + Duration::from_secs_f64(sent as f64 * distance);
        deadline.sleep_until(due, NAME)?;
        if Instant::now() >= end {
            break;
        }
        sent += 1;
        // Nobody waits for the answers: those that find no room are lost, and that is all.
        socket.send(draft.number(sent)).map_err(failed)?;
    }
    if (sent as f64) < wanted as f64 * SENT_SHARE_MIN {
        let what =
            format!("a client could not send {rate}: {sent} of {wanted} messages in the time");
        return Err(LabError::Command(NAME.to_owned(), what));
    }
    Ok(Sent { messages: sent, again: 0 })
}

/// When a message is sent again. (RFC 6298)
#[derive(Debug)]
struct Timeout {
    /// As long as it is now.
    now: Duration,
    /// The smoothed round trip and its variation; none as long as nothing was measured.
    smoothed: Option<(Duration, Duration)>,
}

impl Default for Timeout {
    fn default() -> Self {
        Self { now: FIRST, smoothed: None }
    }
}

impl Timeout {
    /// A message that was sent once was answered after this time. (§2.2, §2.3)
    fn on_measured(&mut self, time: Duration) {
        let (mean, variation) = match self.smoothed {
            None => (time, time / 2),
            Some((mean, variation)) => (
                mean - mean / WEIGHT + time / WEIGHT,
                variation - variation / VARIATION_WEIGHT + mean.abs_diff(time) / VARIATION_WEIGHT,
            ),
        };
        self.smoothed = Some((mean, variation));
        self.now = (mean + variation * VARIATIONS).clamp(LEAST, MOST);
    }

    /// No answer came in time. (§5.5)
    fn on_expired(&mut self) {
        self.now = (self.now * 2).min(MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::Signals;
    use std::thread;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_time_out_follows_round_trips_doubles_when_it_expires_and_is_measured_anew() {
        let mut timeout = Timeout::default();
        assert_eq!(timeout.now, Duration::from_secs(1));
        timeout.on_measured(MS * 100);
        assert_eq!(timeout.now, MS * 300, "the mean, and four times half of it");
        timeout.on_measured(MS * 180);
        // A mean of 110 ms, and a variation of 3/4 of 50 ms and 1/4 of 80 ms.
        assert_eq!(timeout.now, MS * 110 + Duration::from_micros(57_500) * 4);
        timeout.on_expired();
        assert_eq!(timeout.now, MS * 680);
        (0..20).for_each(|_| timeout.on_expired());
        assert_eq!(timeout.now, MOST);
        (0..100).for_each(|_| timeout.on_measured(MS));
        assert_eq!(timeout.now, LEAST);
    }

    /// A socket that is connected with another, which hears.
    fn connected() -> (UdpSocket, UdpSocket) {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        near.connect(far.local_addr().unwrap()).unwrap();
        far.connect(near.local_addr().unwrap()).unwrap();
        (near, far)
    }

    #[test]
    fn the_next_message_waits_for_the_answer_and_what_is_not_answered_is_sent_again() {
        let (near, far) = connected();
        let signals = Signals::none();
        let deadline = Deadline::new(&signals, Duration::from_secs(60));
        let begin = Instant::now();
        let span = (begin, begin + Duration::from_millis(1500));
        let mut numbers = Vec::new();
        let sent = thread::scope(|scope| {
            let sending = scope.spawn(|| {
                run(&near, &mut Draft::new(0, 2000, 1), Pace::StopAndWait, span, &deadline)
            });
            // Of the third one it is as if it had been lost, once.
            let mut buffer = [0; 2000];
            for _ in 0..5 {
                let bytes = far.recv(&mut buffer).unwrap();
                let heading = Heading::read(&buffer[..bytes]).unwrap();
                numbers.push(heading.number);
                if numbers != [1, 2, 3] {
                    far.send(&buffer[..Heading::BYTES]).unwrap();
                }
            }
            sending.join().unwrap()
        });
        assert_eq!(numbers, [1, 2, 3, 3, 4]);
        let sent = sent.unwrap();
        assert!(sent.again >= 1 && sent.messages >= 6, "the last ones are not answered: {sent:?}");
    }

    #[test]
    fn a_paced_client_sends_what_is_due_and_waits_for_nobody() {
        let (near, far) = connected();
        let signals = Signals::none();
        let deadline = Deadline::new(&signals, Duration::from_secs(60));
        let (begin, bytes) = (Instant::now(), 1000);
        let span = (begin, begin + MS * 200);
        // 100 messages a second.
        let pace = Pace::Even(Rate::from_bits_per_sec(bytes as f64 * 800.0), Duration::ZERO);
        let sent = run(&near, &mut Draft::new(0, bytes, 1), pace, span, &deadline).unwrap();
        assert_eq!(sent, Sent { messages: 20, again: 0 });
        let mut buffer = [0; 1000];
        for number in 1..=20 {
            assert_eq!(far.recv(&mut buffer).unwrap(), bytes);
            assert_eq!(Heading::read(&buffer).unwrap().number, number);
        }
        let too_much = Pace::Even(Rate::from_bits_per_sec(1e13), Duration::ZERO);
        let span = (Instant::now(), Instant::now() + MS * 20);
        let error = run(&near, &mut Draft::new(0, bytes, 1), too_much, span, &deadline);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("a client could not send"), "{error}");
    }
}
