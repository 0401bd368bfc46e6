//! Rounds: the receiver asks all senders for a block each, and begins the next round when all have
//! come. Untouched, with windows held small, or steered by `bankfull_control::ictcp`.

use super::sources::{PORT, failed, for_each_sender, is_pause};
use super::{Field, Figures, Job, Tool, Way};
use crate::deadline::Deadline;
use crate::error::Result;
use crate::flows;
use crate::hosts::Hosts;
use crate::network::Network;
use crate::scenario::Steer;
use bankfull_control::ictcp::{Action, Config, Ictcp, NewConnection, Sample};
use bankfull_control::pacing::{DEFAULT_MSS, DEFAULT_MTU};
use bankfull_control::{Bytes, Rate};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// How often windows are looked at. (as bankfull does)
const TICK: Duration = Duration::from_millis(10);

/// Read at once. (ours: what arrives in half a millisecond at 1 Gbit/s)
const READ_BYTES: usize = 64 << 10;

/// At least as often the control is told what has come. (as bankfull does)
const TOLD: u64 = 64 << 10;

/// What a connection offers its sender at first, where the kernel does not tell. (as bankfull
/// assumes)
const OFFERED: u32 = 72 << 10;

pub(super) static INCAST: Tool = Tool {
    name: "incast",
    about: "rounds: the receiver asks all senders, each answers with a block",
    needs: &[],
    version: &[],
    takes: &[
        Field::Rounds,
        Field::Block,
        Field::Total,
        Field::Congestion,
        Field::Window,
        Field::Steer,
    ],
    refuses: |_, contender| {
        let both = [
            (contender.window.is_some() && contender.steer.is_some())
                .then_some("holds windows or steers them, not both"),
            (contender.block.is_some() && contender.total.is_some())
                .then_some("asks for a block of each or a total of all, not both"),
        ];
        both.into_iter().flatten().next().map(str::to_owned)
    },
    way: Way::Source(run),
};

/// Connections that stay; the receiver asks for so many bytes, again and again.
fn run(network: &Network, job: &Job<'_>, deadline: &Deadline<'_>) -> Result<Figures> {
    let receiver = network.receiver();
    let to = SocketAddr::from((Hosts::address(receiver), PORT));
    let window = job.contender.window.map(|window| u32::try_from(window.0).unwrap_or(u32::MAX));
    let listener = network.hosts().on(receiver, || flows::listen(to, job.senders, window))?;
    let senders = for_each_sender(job.senders, |sender| {
        flows::connect(network, sender, to, (1, None), deadline)
    })?;
    let senders: Vec<TcpStream> = senders.into_iter().flatten().collect();
    let asked = flows::accept(&listener, senders.len(), deadline)?;
    for socket in senders.iter().chain(&asked) {
        socket.set_nodelay(true).map_err(failed)?;
    }
    for socket in &asked {
        socket.set_nonblocking(true).map_err(failed)?;
    }
    let (block, rounds) = (job.contender.block(job.senders), job.contender.rounds());
    thread::scope(|scope| {
        for sender in &senders {
            scope.spawn(move || {
                // It ends when the connection does.
                let _ = answer(sender);
            });
        }
        let senders = paired(&senders, &asked).map_err(failed);
        let figures = senders.and_then(|senders| {
            let config = job.contender.steer.map(|steer| config(steer, job.rate));
            let mut port = Port::new(&asked, senders, window, config).map_err(failed)?;
            port.run(block, rounds, deadline)
        });
        for sender in &asked {
            let _ = sender.shutdown(Shutdown::Both);
        }
        figures
    })
}

/// The senders' ends in the order of the receiver's.
fn paired<'s>(senders: &'s [TcpStream], asked: &[TcpStream]) -> io::Result<Vec<&'s TcpStream>> {
    let near: io::Result<Vec<SocketAddr>> = senders.iter().map(TcpStream::local_addr).collect();
    let near = near?;
    let pair = |one: &TcpStream| {
        let peer = one.peer_addr()?;
        let at = near.iter().position(|near| *near == peer);
        at.map(|at| &senders[at]).ok_or_else(|| ErrorKind::NotConnected.into())
    };
    asked.iter().map(pair).collect()
}

/// Sends as many bytes as it is asked for.
fn answer(mut stream: &TcpStream) -> io::Result<()> {
    let block = vec![0x55; READ_BYTES];
    loop {
        let mut request = [0; 8];
        stream.read_exact(&mut request)?;
        let mut left = u64::from_le_bytes(request);
        while left > 0 {
            let part = left.min(block.len() as u64);
            stream.write_all(&block[..part as usize])?;
            left -= part;
        }
    }
}

/// The receiver.
struct Port<'s> {
    asked: &'s [TcpStream],
    senders: Vec<&'s TcpStream>,
    received: Vec<u64>,
    /// Windows to be held.
    windows: Vec<Option<u32>>,
    control: Option<Ictcp>,
    /// What is to have come on each before the control looks at it.
    looks: Vec<u64>,
    /// Something has come on it.
    is_heard: Vec<bool>,
    epoll: std::os::fd::OwnedFd,
    began: Instant,
    ticked: Duration,
    buffer: Vec<u8>,
}

impl<'s> Port<'s> {
    fn new(
        asked: &'s [TcpStream],
        senders: Vec<&'s TcpStream>,
        window: Option<u32>,
        config: Option<Config>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, stream) in asked.iter().enumerate() {
            let data = epoll::EventData::new_u64(at as u64);
            epoll::add(&epoll, stream, data, epoll::EventFlags::IN)?;
        }
        let mut control = config.map(Ictcp::new);
        for ((id, stream), asked) in (0..).zip(&senders).zip(asked) {
            if let Some(control) = &mut control {
                let info = bankfull_sys::tcp_info(stream)?;
                let offered_window = bankfull_sys::tcp_info(asked)?.rcv_wnd.unwrap_or(OFFERED);
                control.join(
                    Duration::ZERO,
                    id,
                    &NewConnection {
                        mss: Bytes(info.snd_mss.into()),
                        rtt: info.min_rtt,
                        offered_window: Bytes(offered_window.into()),
                        grant_driven: true,
                        lost_segments: 0,
                    },
                );
            }
        }
        Ok(Self {
            asked,
            senders,
            received: vec![0; asked.len()],
            windows: vec![window; asked.len()],
            control,
            looks: vec![0; asked.len()],
            is_heard: vec![false; asked.len()],
            epoll,
            began: Instant::now(),
            ticked: Duration::ZERO,
            buffer: vec![0; READ_BYTES],
        })
    }

    fn run(&mut self, block: Bytes, count: u32, deadline: &Deadline<'_>) -> Result<Figures> {
        let mut rounds = Vec::new();
        let began = Instant::now();
        for round in 1..=u64::from(count) {
            let asked = Instant::now();
            self.want(block).map_err(failed)?;
            let due = round * block.0;
            while self.received.iter().any(|&received| received < due) {
                self.step().map_err(failed)?;
                deadline.check(INCAST.name)?;
            }
            rounds.push(asked.elapsed().as_secs_f64());
        }
        let bytes = Bytes(self.received.iter().sum());
        Ok(Figures { rounds, ..super::goodput(bytes, began.elapsed()) })
    }

    fn want(&mut self, block: Bytes) -> io::Result<()> {
        match &mut self.control {
            Some(control) => {
                (0..self.asked.len() as u64).for_each(|id| control.add_demand(id, block))
            }
            None => {
                for mut stream in self.asked {
                    stream.write_all(&block.0.to_le_bytes())?;
                }
            }
        }
        self.obey()
    }

    fn obey(&mut self) -> io::Result<()> {
        let Some(control) = &mut self.control else { return Ok(()) };
        let orders: Vec<Action> = control.poll_actions(self.began.elapsed()).collect();
        for order in orders {
            match order {
                Action::Grant(id, bytes) => {
                    (&self.asked[id as usize]).write_all(&bytes.0.to_le_bytes())?;
                    self.note_look(id as usize);
                }
                Action::SetWindow(id, window, _) => {
                    self.windows[id as usize] = Some(window.0 as u32);
                    bankfull_sys::hold_window(&self.asked[id as usize], window.0 as u32)?;
                }
                Action::SetPacing(id, rate) => {
                    let rate = Some(rate.bytes_per_sec());
                    bankfull_sys::set_pacing(self.senders[id as usize], rate)?;
                }
            }
        }
        Ok(())
    }

    /// Takes what comes until the next look at the windows.
    fn step(&mut self) -> io::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        let left = (self.ticked + TICK).saturating_sub(self.began.elapsed());
        let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in events {
            self.read(event.data.u64() as usize)?;
        }
        let now = self.began.elapsed();
        if now >= self.ticked + TICK {
            self.ticked = now;
            self.tick(now)?;
        }
        Ok(())
    }

    fn read(&mut self, at: usize) -> io::Result<()> {
        let n = match (&self.asked[at]).read(&mut self.buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => n as u64,
            Err(e) if is_pause(&e) => return Ok(()),
            Err(e) => return Err(e),
        };
        self.received[at] += n;
        if let Some(window) = self.windows[at] {
            // The kernel raises it by itself, when the first full segment comes and later.
            bankfull_sys::hold_window(&self.asked[at], window)?;
        }
        match &mut self.control {
            Some(control) if self.received[at] >= self.looks[at] => {
                let (id, received) = (at as u64, self.received[at]);
                control.on_received(self.began.elapsed(), id, Bytes(received));
                if !std::mem::replace(&mut self.is_heard[at], true)
                    && let Some(window) = bankfull_sys::tcp_info(&self.asked[at])?.rcv_wnd
                {
                    let unread = bankfull_sys::unread_bytes(&self.asked[at])?;
                    control.on_window_offered(id, Bytes(unread + u64::from(window)));
                }
                self.note_look(at);
                self.obey()
            }
            _ => Ok(()),
        }
    }

    /// When the control wants to know of a sender next.
    fn note_look(&mut self, at: usize) {
        let look = self.control.as_ref().and_then(|control| control.next_report_at(at as u64));
        let told = self.received[at] + TOLD;
        self.looks[at] = look.map_or(told, |look| told.min(look.0));
    }

    fn tick(&mut self, now: Duration) -> io::Result<()> {
        let Some(control) = &mut self.control else { return Ok(()) };
        let mut seen = Vec::with_capacity(self.asked.len());
        for (at, sender) in self.senders.iter().enumerate() {
            let info = bankfull_sys::tcp_info(sender)?;
            let (id, received) = (at as u64, Bytes(self.received[at]));
            // A tail that is sent again in doubt is no loss.
            let needless = info.dsack_dups.unwrap_or_default();
            let lost_segments = u64::from(info.total_retrans.saturating_sub(needless));
            seen.push(Sample { id, received, rtt: Some(info.rtt), lost_segments });
        }
        control.tick(now, &seen);
        self.obey()
    }
}

fn config(steer: Steer, rate: Rate) -> Config {
    let data = DEFAULT_MSS.0 as f64 / DEFAULT_MTU.0 as f64;
    Config {
        capacity: Some(Rate::from_bits_per_sec(rate.bits_per_sec() as f64 * data)),
        min_window_segments: if steer == Steer::IctcpOne { 1 } else { 2 },
        can_clamp_windows: steer != Steer::Asking,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::Signals;
    use std::net::TcpListener;

    /// Senders and the receiver's ends over loopback.
    fn connected(count: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = |_| {
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let far = listener.accept().unwrap().0;
            far.set_nonblocking(true).unwrap();
            (near, far)
        };
        (0..count).map(pair).unzip()
    }

    #[test]
    fn all_blocks_of_all_rounds_come_however_the_senders_are_steered() {
        let gigabit = Rate::from_bits_per_sec(1e9);
        let ways = [None, Some(Steer::Ictcp), Some(Steer::IctcpOne), Some(Steer::Asking)];
        for steer in ways {
            let (senders, asked) = connected(5);
            let signals = Signals::none();
            let long = Deadline::new(&signals, Duration::from_secs(60));
            let paired = paired(&senders, &asked).unwrap();
            let config = steer.map(|steer| config(steer, gigabit));
            let mut port = Port::new(&asked, paired, None, config).unwrap();
            let figures = thread::scope(|scope| {
                for sender in &senders {
                    scope.spawn(move || answer(sender));
                }
                let figures = port.run(Bytes(300_001), 3, &long);
                for sender in &senders {
                    sender.shutdown(Shutdown::Both).unwrap();
                }
                figures
            });
            assert_eq!(figures.unwrap().rounds.len(), 3, "{steer:?}");
            assert_eq!(port.received, [900_003; 5], "{steer:?}");
        }
    }

    #[test]
    fn a_sender_that_does_not_answer_is_given_up_at_the_limit() {
        let (senders, asked) = connected(1);
        let signals = Signals::none();
        let short = Deadline::new(&signals, Duration::from_millis(50));
        let mut port = Port::new(&asked, senders.iter().collect(), None, None).unwrap();
        let error = port.run(Bytes(5000), 3, &short).unwrap_err().to_string();
        assert!(error.contains("given up after 50ms"), "{error}");
    }
}
