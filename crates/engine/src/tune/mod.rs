//! Steers the data connections of a session while it runs: the side that receives holds the windows
//! and asks for a rate, the side that sends paces and tells how its connections do.
//!
//! What is decided, and why, is `bankfull_control::sobas`'s; this looks, asks and sets.

mod advice;
mod congestion;
mod course;
mod echoes;
mod incast;
mod receiver;
mod room;
mod sender;
mod spread;
mod streams;
mod trains;
mod unsent;
mod watch;

pub(crate) use course::Teller;
pub(crate) use incast::{Barrier, BarrierSeat, Lane, Receiving, Sharing, is_receiving};
pub(crate) use receiver::Steering;
pub(crate) use sender::Pacer;
pub(crate) use spread::Spread;
pub(crate) use watch::{watch, watch_room};

use crate::driver::Latch;
use crate::net::control::lock;
use crate::net::probe::{ProbeHandle, ProbePort};
use crate::net::socket::Socket;
use crate::session::Session;
use bankfull_control::Bytes;
use bankfull_proto::wire::control::{RateRequest, ReceiverReport, SenderReport};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// The widest window of TCP, 65 535 bytes, scaled by 14 (RFC 7323 §2.3): none is held.
const OPEN: Bytes = Bytes(65_535 << 14);

/// How often connections are looked at, and probes sent. [SOBAS, section IV.B: 10 ms]
const LOOK: Duration = Duration::from_millis(10);

/// Over so long, or two round trips, it is seen what each connection takes of its share. (ours:
/// shorter pauses are TCP's)
const SHARING_TIME: Duration = Duration::from_millis(100);

/// How far apart the first knocks are, and how many: then they are answered, or nobody is there.
/// (ours: a round trip around the earth, three times)
const KNOCK: (Duration, u32) = (Duration::from_millis(200), 4);

/// And how far apart the later ones, for a router may forget where an answer belongs, and map us
/// anew. (ours)
const KNOCK_AGAIN: Duration = Duration::from_secs(5);

/// A rate that holds nothing, but has TCP pace itself, slow start too: all ones would not.
/// (sk_setsockopt, net/core/sock.c) Measured over 100 Mbit/s, 40 ms and 50 kB: 16 connections of
/// CUBIC sent 85 and 119 segments again with it, 181 without.
const FREE: u64 = u64::MAX - 1;

/// Only where a round trip takes as long as this. (ours: handshakes of busy hosts take some
/// milliseconds, and on a local network pacing costs more than it saves)
const FREE_RTT: Duration = Duration::from_millis(5);

/// How often a receiver may ask for more trains. (wire.md, section 16)
const TRAINS_ASKED_MAX: u32 = 2;

/// A session's way to the other side beside its data.
pub(crate) struct Probing {
    pub(crate) line: ProbeHandle,
    /// Where to knock: the side that connects does.
    pub(crate) door: Option<SocketAddr>,
    /// The port, where it serves this session only and is to be run with it.
    pub(crate) own: Option<Arc<ProbePort>>,
}

/// Whether data connections are steered.
#[derive(Default)]
pub(crate) enum Steer {
    /// They are left to the kernel.
    #[default]
    Not,
    /// With what datagrams tell, where they get through.
    With(Option<Box<Probing>>),
}

/// How often the course of the path is told.
const TELL_COURSE: Duration = Duration::from_millis(100);

/// Reports of the far side that wait to be told; more are dropped. (ours: a second of them, and
/// decisions)
const COURSES_MAX: usize = 64;

/// What the control thread passes on to whoever steers.
#[derive(Default)]
pub(crate) struct Steered {
    sight: Mutex<Option<SenderReport>>,
    /// The last one, whoever has taken it since.
    last_sight: Mutex<SenderReport>,
    pace: Mutex<Option<RateRequest>>,
    trains: Mutex<Option<u32>>,
    courses: Mutex<Vec<ReceiverReport>>,
}

impl Steered {
    /// The sender has told how its connections do.
    pub(crate) fn on_sight(&self, sight: SenderReport) {
        *lock(&self.last_sight) = sight;
        *lock(&self.sight) = Some(sight);
    }

    /// What the sender has told last.
    fn last_sight(&self) -> SenderReport {
        *lock(&self.last_sight)
    }

    /// The receiver asks for a rate, and how the connections are to send.
    pub(crate) fn on_pace(&self, pace: RateRequest) {
        *lock(&self.pace) = Some(pace);
    }

    /// The receiver wants more packet trains, of so many packets.
    pub(crate) fn on_trains(&self, packets: u32) {
        *lock(&self.trains) = Some(packets);
    }

    /// The receiver has told what it holds and sees.
    pub(crate) fn on_course(&self, course: ReceiverReport) {
        let mut courses = lock(&self.courses);
        if courses.len() < COURSES_MAX {
            courses.push(course);
        }
    }
}

/// Processors that this process may use. Found once: it takes a dozen system calls.
fn cpus() -> u32 {
    static COUNT: OnceLock<u32> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let count = std::thread::available_parallelism();
        count.map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
    })
}

/// Holds the windows of a session that receives at what the user has set: again at every look, for
/// the kernel raises them by itself. Runs until the session is over.
pub(crate) fn hold_windows(session: &Session, over: &Latch) {
    while let Some(share) = session.window_share() {
        session.for_each_stream(|_, socket| hold_window(socket, share));
        if over.wait(LOOK) {
            return;
        }
    }
}

/// Holds the receive window of a connection.
pub(crate) fn hold_window(socket: &Socket, share: Bytes) {
    set_window(socket, share, socket.tcp_info().map_or(0, |info| info.snd_mss));
}

/// Holds the receive window of a connection with such segments: they may be larger than those of
/// Ethernet, and two have to fit.
fn set_window(socket: &Socket, share: Bytes, segment: u32) {
    let Socket::Tcp(tcp) = socket else { return };
    let least = 2 * u64::from(segment);
    let window = u32::try_from(share.0.max(least)).unwrap_or(u32::MAX);
    // Where the kernel cannot, pacing is left.
    let _ = bankfull_sys::hold_window(tcp, window);
}

/// Tells at which ticks the connections are to be looked at.
#[derive(Default)]
struct Glances {
    next: Duration,
}

impl Glances {
    /// The next tick is one at which to look, whatever the time.
    fn hurry(&mut self) {
        self.next = Duration::ZERO;
    }

    /// Asked at every tick.
    fn is_due(&mut self, now: Duration, seldom: bool) -> bool {
        // Ticks come a little late, now and then.
        let is_due = now + LOOK / 2 >= self.next;
        if is_due {
            self.next = now + if seldom { LOOK * 2 } else { LOOK };
        }
        is_due
    }
}

/// Tells the other side where we are, again and again.
struct Knocker {
    door: Option<SocketAddr>,
    next: Duration,
    knocks: u32,
    /// Nobody has answered, and that was noticed.
    is_unheard: bool,
}

impl Knocker {
    fn new(door: Option<SocketAddr>) -> Self {
        Self { door, next: Duration::ZERO, knocks: 0, is_unheard: false }
    }

    /// Whether the other side is known by now.
    fn look(&mut self, line: &mut ProbeHandle, now: Duration) -> bool {
        let is_known = line.address().is_some();
        if let Some(door) = self.door
            && now >= self.next
        {
            self.knocks += 1;
            let is_early = self.knocks < KNOCK.1 && !is_known;
            self.next = now + if is_early { KNOCK.0 } else { KNOCK_AGAIN };
            // Where it cannot be sent, nothing comes back either.
            let _ = line.register(door);
        }
        is_known
    }

    /// The door at which nobody answers, once.
    fn unheard(&mut self, is_known: bool, now: Duration) -> Option<SocketAddr> {
        let is_unheard = !is_known && !self.is_unheard && now > KNOCK.0 * (KNOCK.1 + 1);
        self.is_unheard |= is_unheard;
        self.door.filter(|_| is_unheard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overrides::Overrides;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::thread;

    #[test]
    fn connections_are_looked_at_half_as_often_where_that_is_enough_unless_it_hurries() {
        let looks = |seldom| {
            let mut glances = Glances::default();
            // Each tick is a little late, in turn more and less.
            let ticks = (0..100).map(|tick| LOOK * tick + Duration::from_millis(2) * (tick % 2));
            ticks.filter(|&now| glances.is_due(now, seldom)).count()
        };
        assert_eq!((looks(false), looks(true)), (100, 50));
        let mut glances = Glances::default();
        assert!(glances.is_due(LOOK, true) && !glances.is_due(LOOK * 2, true));
        glances.hurry();
        assert!(glances.is_due(LOOK * 2, true));
    }

    #[test]
    fn windows_that_the_user_has_set_stay_there_while_data_flows() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = Socket::Tcp(listener.accept().unwrap().0);
        let set = Overrides { window: Some(Bytes::kib(256)), ..Overrides::default() };
        let session = Session::new(set, 1);
        session.add_stream(0, &far).unwrap();
        let over = Latch::default();
        let mut windows = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| hold_windows(&session, &over));
            scope.spawn(|| {
                let mut buffer = vec![0; 1 << 20];
                while far.read(&mut buffer).is_ok_and(|n| n > 0) {}
            });
            for _ in 0..200 {
                near.write_all(&[0; 1 << 18]).unwrap();
                windows.extend(bankfull_sys::tcp_info(&near).unwrap().snd_wnd);
                thread::sleep(Duration::from_millis(1));
            }
            near.shutdown(Shutdown::Both).unwrap();
            over.set();
        });
        // The kernel raises it between two looks now and then, and no more than that.
        windows.sort_unstable();
        let median = windows.get(windows.len() / 2).copied().unwrap_or_default();
        assert!(((128 << 10)..=(256 << 10) + (16 << 10)).contains(&median), "{median}");
    }
}
