//! Connections that are left to the kernel, or to QUIC: nothing is asked or set, and whoever runs
//! the transfer is told all the same how they do, as far as the two sides see it.

use super::LOOK;
use super::course::{Seen, Teller, staged_there};
use crate::datagram_room::BufferAdvice;
use crate::driver::Latch;
use crate::net::control::{Outbox, lock};
use crate::session::Session;
use bankfull_control::{LimitSamples, StageTimes};
use bankfull_proto::wire::control::{ReceiverReport, stage_times};
use std::time::Duration;

/// Looks at them until the session is over. Where whoever runs the transfer is on the other side, a
/// receiver tells what it sees; a sender has nothing to tell, and ends at once.
pub(crate) fn watch(
    session: &Session,
    mut teller: Teller<'_>,
    outbox: &Outbox,
    receives: bool,
    over: &Latch,
) {
    let is_near = teller.is_near();
    let mut watch = Watch::new(session, receives);
    while (is_near || receives) && !over.wait(LOOK) {
        let mut seen = watch.look();
        if !teller.is_due() {
            continue;
        }
        seen.stages[usize::from(receives)] = teller.stages();
        if receives {
            seen.buffered_peak = session.buffer_pool.status();
        } else {
            watch.hear(&teller, &mut seen);
        }
        if is_near {
            teller.sample(&seen);
        } else {
            // Whoever sends measures them better.
            seen.rtts.clear();
            teller.post(outbox, &mut seen, "", None);
        }
    }
}

/// What was seen so far.
struct Watch<'a> {
    session: &'a Session,
    receives: bool,
    samples: LimitSamples,
    /// What the receiver has told last.
    course: ReceiverReport,
}

impl<'a> Watch<'a> {
    fn new(session: &'a Session, receives: bool) -> Self {
        let (samples, course) = Default::default();
        Self { session, receives, samples, course }
    }

    /// Looks at all connections.
    fn look(&mut self) -> Seen {
        let (receives, samples) = (self.receives, &mut self.samples);
        let mut seen = Seen::default();
        let mut rtt: Option<Duration> = None;
        let carried = self.session.sample_streams(|_, socket, info| {
            let shortest = if receives { info.rcv_rtt } else { Some(info.rtt) };
            rtt = rtt.into_iter().chain(shortest).filter(|rtt| !rtt.is_zero()).min();
            if receives {
                samples.add(socket.unread_bytes() > u64::from(info.rcv_space) / 2);
            } else {
                samples.add(info.notsent_bytes == Some(0));
                if let Some(window) = info.snd_wnd {
                    *seen.granted.get_or_insert(0) += u64::from(window);
                }
            }
        });
        seen.streams = self.session.stream_count() as u32;
        seen.rtts.extend(rtt.or(carried.quic_smoothed_rtt));
        if receives {
            seen.carried = carried.received;
            seen.reads = *samples;
        } else {
            seen.carried = carried.acked;
            seen.retransmits = Some(carried.retransmits);
            seen.sends = *samples;
        }
        seen
    }

    /// Takes what the receiver has told.
    fn hear(&mut self, teller: &Teller<'_>, seen: &mut Seen) {
        // The lock is free again before anything is told, which may take a while.
        let courses = std::mem::take(&mut *lock(&self.session.feedback.courses));
        for course in courses {
            teller.decided_there(&course);
            self.course = course;
        }
        let course = &self.course;
        seen.buffered_peak = staged_there(course);
        seen.stages[1] = course.stage_nanos.map_or_else(StageTimes::default, stage_times);
        seen.reads = LimitSamples { count: course.samples, limited: course.receiver_limited };
    }
}

/// Tells whoever runs the transfer, where that is not done on this side, what could be set here for
/// the socket, as soon as something is discarded for want of it.
pub(crate) fn watch_room(
    advice: &mut BufferAdvice,
    teller: &Teller<'_>,
    outbox: &Outbox,
    over: &Latch,
) {
    while !teller.is_near() && !over.wait(LOOK) {
        if let Some(message) = advice.next_advice() {
            teller.remark(outbox, &message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventSink};
    use crate::net::control::tests::sent;
    use crate::net::socket::Socket;
    use crate::session::SessionStats;
    use bankfull_control::Bytes;
    use bankfull_proto::wire::control::Message;
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

    /// What is posted next, all of it of the path: waits for it.
    fn next_courses(outbox: &Outbox) -> Vec<ReceiverReport> {
        let course = |message| match message {
            Message::ReceiverReport(course) => course,
            other => panic!("{other:?}"),
        };
        sent(outbox).into_iter().map(course).collect()
    }

    fn is_sample(event: &Event) -> bool {
        matches!(event, Event::Sample(_))
    }

    impl Kept {
        /// Waits for a sample; all events until then.
        fn until_sample(&self) -> Vec<Event> {
            let deadline = Instant::now() + Duration::from_secs(20);
            loop {
                let events = lock(&self.0).clone();
                if events.iter().any(is_sample) || Instant::now() > deadline {
                    return events;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }

        fn staging(&self) -> Vec<(Bytes, String)> {
            let staging = |event: &Event| match event {
                Event::BufferLimit(staging) => Some((staging.size, staging.reason.clone())),
                _ => None,
            };
            lock(&self.0).iter().filter_map(staging).collect()
        }
    }

    #[test]
    fn what_a_receiver_sees_of_its_connections_is_told_here_or_to_the_client() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let session = Session::default();
        session.add_stream(0, &Socket::Tcp(listener.accept().unwrap().0)).unwrap();
        let _share = session.buffer_pool.share();
        let size = 6 << 18;
        far.write_all(&[7; 1000]).unwrap();
        for is_near in [true, false] {
            let (kept, over, outbox) = (Kept::default(), Latch::default(), Outbox::default());
            let stats = SessionStats::new(&kept, Instant::now());
            thread::scope(|scope| {
                let teller = Teller::new(&stats, is_near);
                scope.spawn(|| watch(&session, teller, &outbox, true, &over));
                if is_near {
                    let events = kept.until_sample();
                    over.set();
                    let Some(Event::Sample(sample)) = events.iter().find(|e| is_sample(e)) else {
                        panic!("{events:?}")
                    };
                    assert_eq!((sample.streams, sample.carried.0), (1, 1000));
                    let held = (sample.window, sample.pacing, sample.retransmits);
                    assert_eq!(held, (None, None, None));
                    assert_eq!(kept.staging().iter().map(|told| told.0.0).max(), Some(size));
                    return;
                }
                let told = [next_courses(&outbox), next_courses(&outbox)].concat();
                over.set();
                for (at, course) in told.iter().enumerate() {
                    assert_eq!((course.buffered_peak, course.buffer_limit), (Some(0), Some(size)));
                    assert_eq!(course.buffer_reason.is_some(), at == 0, "{course:?}");
                }
                assert!(lock(&kept.0).is_empty(), "a server tells its client, and nobody here");
            });
        }
    }

    #[test]
    fn what_the_receiver_has_told_of_its_staging_is_told_by_whoever_sends() {
        let session = Session::default();
        let (kept, over, outbox) = (Kept::default(), Latch::default(), Outbox::default());
        let stats = SessionStats::new(&kept, Instant::now());
        for reason in [Some("because\n"), None] {
            session.feedback.on_course(ReceiverReport {
                buffered_peak: Some(5),
                buffer_limit: Some(7),
                buffer_reason: reason.map(str::to_owned),
                stage_nanos: Some([0, 0, 0, 9, 0]),
                ..ReceiverReport::default()
            });
        }
        thread::scope(|scope| {
            let teller = Teller::new(&stats, true);
            scope.spawn(|| watch(&session, teller, &outbox, false, &over));
            let events = kept.until_sample();
            over.set();
            assert_eq!(kept.staging(), [(Bytes(7), "because\\n".to_owned())]);
            let Some(Event::Sample(sample)) = events.iter().find(|e| is_sample(e)) else {
                panic!("{events:?}")
            };
            assert_eq!(
                (sample.buffered_peak, sample.buffer_limit),
                (Some(Bytes(5)), Some(Bytes(7)))
            );
            assert_eq!(sample.receiver.write, Duration::from_nanos(9));
        });
    }
}
