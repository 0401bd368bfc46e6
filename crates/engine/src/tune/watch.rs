//! Connections that are left to the kernel: nothing is asked or set, and whoever runs the transfer
//! is told all the same how they do, as far as this side sees it.

use super::LOOK;
use super::course::{Seen, Teller};
use crate::datagram_room::Advice;
use crate::driver::Latch;
use crate::net::control::Outbox;
use crate::session::Session;
use bankfull_control::Looks;
use std::time::Duration;

/// Looks at them until the session is over; at once over where nobody is to be told.
pub(crate) fn watch(session: &Session, mut teller: Teller<'_>, receives: bool, over: &Latch) {
    let mut looks = Looks::default();
    while teller.is_near() && !over.wait(LOOK) {
        let mut seen = Seen::default();
        let mut rtt: Option<Duration> = None;
        let carried = session.look(|_, socket, info| {
            seen.streams += 1;
            let shortest = if receives { info.rcv_rtt } else { Some(info.rtt) };
            rtt = rtt.into_iter().chain(shortest).filter(|rtt| !rtt.is_zero()).min();
            if receives {
                looks.add(socket.unread() > u64::from(info.rcv_space) / 2);
            } else {
                looks.add(info.notsent_bytes == Some(0));
                if let Some(window) = info.snd_wnd {
                    *seen.granted.get_or_insert(0) += u64::from(window);
                }
            }
        });
        if teller.is_due() {
            seen.rtts.extend(rtt);
            seen.carried = if receives { carried.received } else { carried.acked };
            seen.retransmits = (!receives).then_some(carried.retransmits);
            seen.staged = receives.then(|| session.staging.staged()).flatten();
            let own = usize::from(receives);
            seen.stages[own] = teller.stages();
            *(if receives { &mut seen.reads } else { &mut seen.sends }) = looks;
            teller.sample(&seen);
        }
    }
}

/// Tells whoever runs the transfer, where that is not done on this side, what could be set here for
/// the socket, as soon as something is discarded for want of it.
pub(crate) fn watch_room(advice: &mut Advice, teller: &Teller<'_>, outbox: &Outbox, over: &Latch) {
    while !teller.is_near() && !over.wait(LOOK) {
        if let Some(message) = advice.news() {
            teller.remark(outbox, &message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventSink};
    use crate::net::control::lock;
    use crate::net::socket::Socket;
    use crate::session::Tally;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Mutex;
    use std::thread;
    use std::time::Instant;

    #[derive(Default)]
    struct Kept(Mutex<Vec<Event>>);

    impl EventSink for Kept {
        fn event(&self, event: Event) {
            lock(&self.0).push(event);
        }
    }

    #[test]
    fn what_a_receiver_sees_of_its_connections_is_told_and_a_server_tells_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let session = Session::default();
        session.enter_stream(0, &Socket::Tcp(listener.accept().unwrap().0)).unwrap();
        far.write_all(&[7; 1000]).unwrap();
        for is_near in [true, false] {
            let (kept, over) = (Kept::default(), Latch::default());
            let tally = Tally::new(&kept, Instant::now());
            thread::scope(|scope| {
                scope.spawn(|| watch(&session, Teller::new(&tally, is_near), true, &over));
                thread::sleep(Duration::from_millis(500));
                over.set();
            });
            let events = lock(&kept.0);
            assert_eq!(events.is_empty(), !is_near);
            let Some(last) = events.last() else { continue };
            let Event::Sample(sample) = last else { panic!("{last:?}") };
            assert_eq!((sample.streams, sample.carried.0), (1, 1000));
            assert_eq!((sample.window, sample.pacing, sample.retransmits), (None, None, None));
        }
    }
}
