//! Incast rounds: the receiver requests a block from each sender, and starts the next round when
//! all have arrived. Uncontrolled, with small windows, or controlled by `bankfull_control::ictcp`.

use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::model::contender::IncastControl;
use crate::model::job::Job;
use crate::model::metrics::Metrics;
use crate::tools::builtin::generators::{PORT, for_each_sender, generator_error, is_transient};
use crate::tools::fields::Field;
use crate::tools::tool::{Tool, ToolKind};
use crate::topology::flows;
use crate::topology::hosts::Hosts;
use crate::topology::network::Network;
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

/// Interval of window decisions. (as in bankfull)
const TICK_INTERVAL: Duration = Duration::from_millis(10);

/// Bytes per read. (chosen: arrivals of half a millisecond at 1 Gbit/s)
const READ_BYTES: usize = 64 << 10;

/// Largest number of bytes between updates of the control. (as in bankfull)
const MAX_UPDATE_BYTES: u64 = 64 << 10;

/// Initial receive window in bytes, if the kernel does not report it. (as in bankfull)
const DEFAULT_RWND_BYTES: u32 = 72 << 10;

pub(crate) static INCAST: Tool = Tool {
    name: "incast",
    about: "rounds: the receiver requests a block from each sender",
    needs: &[],
    version: &[],
    supports: &[
        Field::Rounds,
        Field::Block,
        Field::Total,
        Field::Congestion,
        Field::Window,
        Field::IncastControl,
    ],
    unsupported: |_, contender| {
        let both = [
            (contender.window.is_some() && contender.control.is_some())
                .then_some("takes window or control, not both"),
            (contender.block.is_some() && contender.total.is_some())
                .then_some("takes block or total, not both"),
        ];
        both.into_iter().flatten().next().map(str::to_owned)
    },
    kind: ToolKind::Generator(run),
};

/// Runs the rounds over persistent connections.
fn run(network: &Network, job: &Job<'_>, deadline: &Deadline<'_>) -> Result<Metrics> {
    let receiver = network.receiver();
    let to = SocketAddr::from((Hosts::address(receiver), PORT));
    let window = job.contender.window.map(|window| u32::try_from(window.0).unwrap_or(u32::MAX));
    let listener = network.hosts().run_on(receiver, || flows::listen(to, job.senders, window))?;
    let senders = for_each_sender(job.senders, |sender| {
        flows::connect(network, sender, to, (1, None), deadline)
    })?;
    let senders: Vec<TcpStream> = senders.into_iter().flatten().collect();
    let connections = flows::accept(&listener, senders.len(), deadline)?;
    for socket in senders.iter().chain(&connections) {
        socket.set_nodelay(true).map_err(generator_error)?;
    }
    for socket in &connections {
        socket.set_nonblocking(true).map_err(generator_error)?;
    }
    let (block, rounds) = (job.contender.block(job.senders), job.contender.rounds());
    thread::scope(|scope| {
        for sender in &senders {
            scope.spawn(move || {
                // Ends with the connection.
                let _ = serve_requests(sender);
            });
        }
        let senders = pair_ends(&senders, &connections).map_err(generator_error);
        let metrics = senders.and_then(|senders| {
            let config = job.contender.control.map(|mode| config(mode, job.rate));
            let mut port = IncastReceiver::new(&connections, senders, window, config)
                .map_err(generator_error)?;
            port.run(block, rounds, deadline)
        });
        for sender in &connections {
            let _ = sender.shutdown(Shutdown::Both);
        }
        metrics
    })
}

/// Senders' ends in the order of the receiver's.
fn pair_ends<'s>(
    senders: &'s [TcpStream],
    connections: &[TcpStream],
) -> io::Result<Vec<&'s TcpStream>> {
    let sender_addrs: io::Result<Vec<SocketAddr>> =
        senders.iter().map(TcpStream::local_addr).collect();
    let sender_addrs = sender_addrs?;
    let pair = |one: &TcpStream| {
        let peer = one.peer_addr()?;
        let at = sender_addrs.iter().position(|sender_addrs| *sender_addrs == peer);
        at.map(|at| &senders[at]).ok_or_else(|| ErrorKind::NotConnected.into())
    };
    connections.iter().map(pair).collect()
}

/// Sends as many bytes as each request asks for.
fn serve_requests(mut stream: &TcpStream) -> io::Result<()> {
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

/// Receiver of all senders.
struct IncastReceiver<'s> {
    connections: &'s [TcpStream],
    senders: Vec<&'s TcpStream>,
    received: Vec<u64>,
    /// Windows to hold, in bytes.
    windows: Vec<Option<u32>>,
    control: Option<Ictcp>,
    /// Received bytes at which the control is updated next, by connection.
    next_updates: Vec<u64>,
    /// True if the connection has received data.
    has_received: Vec<bool>,
    epoll: std::os::fd::OwnedFd,
    began: Instant,
    ticked: Duration,
    buffer: Vec<u8>,
}

impl<'s> IncastReceiver<'s> {
    fn new(
        connections: &'s [TcpStream],
        senders: Vec<&'s TcpStream>,
        window: Option<u32>,
        config: Option<Config>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (at, stream) in connections.iter().enumerate() {
            let data = epoll::EventData::new_u64(at as u64);
            epoll::add(&epoll, stream, data, epoll::EventFlags::IN)?;
        }
        let mut control = config.map(Ictcp::new);
        for ((id, stream), connections) in (0..).zip(&senders).zip(connections) {
            if let Some(control) = &mut control {
                let info = bankfull_sys::tcp_info(stream)?;
                let offered_window =
                    bankfull_sys::tcp_info(connections)?.rcv_wnd.unwrap_or(DEFAULT_RWND_BYTES);
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
            connections,
            senders,
            received: vec![0; connections.len()],
            windows: vec![window; connections.len()],
            control,
            next_updates: vec![0; connections.len()],
            has_received: vec![false; connections.len()],
            epoll,
            began: Instant::now(),
            ticked: Duration::ZERO,
            buffer: vec![0; READ_BYTES],
        })
    }

    fn run(&mut self, block: Bytes, count: u32, deadline: &Deadline<'_>) -> Result<Metrics> {
        let mut rounds = Vec::new();
        let began = Instant::now();
        for round in 1..=u64::from(count) {
            let connections = Instant::now();
            self.request_round(block).map_err(generator_error)?;
            let due = round * block.0;
            while self.received.iter().any(|&received| received < due) {
                self.step().map_err(generator_error)?;
                deadline.check(INCAST.name)?;
            }
            rounds.push(connections.elapsed().as_secs_f64());
        }
        let bytes = Bytes(self.received.iter().sum());
        Ok(Metrics { rounds, ..Metrics::of_transfer(bytes, began.elapsed()) })
    }

    fn request_round(&mut self, block: Bytes) -> io::Result<()> {
        match &mut self.control {
            Some(control) => {
                (0..self.connections.len() as u64).for_each(|id| control.add_demand(id, block))
            }
            None => {
                for mut stream in self.connections {
                    stream.write_all(&block.0.to_le_bytes())?;
                }
            }
        }
        self.apply_orders()
    }

    fn apply_orders(&mut self) -> io::Result<()> {
        let Some(control) = &mut self.control else { return Ok(()) };
        let orders: Vec<Action> = control.poll_actions(self.began.elapsed()).collect();
        for order in orders {
            match order {
                Action::Grant(id, bytes) => {
                    (&self.connections[id as usize]).write_all(&bytes.0.to_le_bytes())?;
                    self.schedule_update(id as usize);
                }
                Action::SetWindow(id, window, _) => {
                    self.windows[id as usize] = Some(window.0 as u32);
                    bankfull_sys::set_window_clamp(
                        &self.connections[id as usize],
                        window.0 as u32,
                    )?;
                }
                Action::SetPacing(id, rate) => {
                    let rate = Some(rate.bytes_per_sec());
                    bankfull_sys::set_pacing(self.senders[id as usize], rate)?;
                }
            }
        }
        Ok(())
    }

    /// Receives until the next tick.
    fn step(&mut self) -> io::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        let left = (self.ticked + TICK_INTERVAL).saturating_sub(self.began.elapsed());
        let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in events {
            self.read(event.data.u64() as usize)?;
        }
        let now = self.began.elapsed();
        if now >= self.ticked + TICK_INTERVAL {
            self.ticked = now;
            self.tick(now)?;
        }
        Ok(())
    }

    fn read(&mut self, at: usize) -> io::Result<()> {
        let n = match (&self.connections[at]).read(&mut self.buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => n as u64,
            Err(e) if is_transient(&e) => return Ok(()),
            Err(e) => return Err(e),
        };
        self.received[at] += n;
        if let Some(window) = self.windows[at] {
            // The kernel raises the window by itself, from the first full segment on.
            bankfull_sys::set_window_clamp(&self.connections[at], window)?;
        }
        match &mut self.control {
            Some(control) if self.received[at] >= self.next_updates[at] => {
                let (id, received) = (at as u64, self.received[at]);
                control.on_received(self.began.elapsed(), id, Bytes(received));
                if !std::mem::replace(&mut self.has_received[at], true)
                    && let Some(window) = bankfull_sys::tcp_info(&self.connections[at])?.rcv_wnd
                {
                    let unread = bankfull_sys::receive_queue_bytes(&self.connections[at])?;
                    control.on_window_offered(id, Bytes(unread + u64::from(window)));
                }
                self.schedule_update(at);
                self.apply_orders()
            }
            _ => Ok(()),
        }
    }

    /// Sets when the control is updated next for a sender.
    fn schedule_update(&mut self, at: usize) {
        let report = self.control.as_ref().and_then(|control| control.next_report_at(at as u64));
        let limit = self.received[at] + MAX_UPDATE_BYTES;
        self.next_updates[at] = report.map_or(limit, |report| limit.min(report.0));
    }

    fn tick(&mut self, now: Duration) -> io::Result<()> {
        let Some(control) = &mut self.control else { return Ok(()) };
        let mut observations = Vec::with_capacity(self.connections.len());
        for (at, sender) in self.senders.iter().enumerate() {
            let info = bankfull_sys::tcp_info(sender)?;
            let (id, received) = (at as u64, Bytes(self.received[at]));
            // A spurious retransmission is not a loss.
            let spurious = info.dsack_dups.unwrap_or_default();
            let lost_segments = u64::from(info.total_retrans.saturating_sub(spurious));
            observations.push(Sample { id, received, rtt: Some(info.rtt), lost_segments });
        }
        control.tick(now, &observations);
        self.apply_orders()
    }
}

fn config(mode: IncastControl, rate: Rate) -> Config {
    let data = DEFAULT_MSS.0 as f64 / DEFAULT_MTU.0 as f64;
    Config {
        capacity: Some(Rate::from_bits_per_sec(rate.bits_per_sec() as f64 * data)),
        min_window_segments: if mode == IncastControl::IctcpOneSegment { 1 } else { 2 },
        can_clamp_windows: mode != IncastControl::Grants,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::signals::Signals;
    use std::net::TcpListener;

    /// Senders' and receiver's ends over loopback.
    fn connected(count: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = |_| {
            let sender_addrs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let receiver = listener.accept().unwrap().0;
            receiver.set_nonblocking(true).unwrap();
            (sender_addrs, receiver)
        };
        (0..count).map(pair).unzip()
    }

    #[test]
    fn rounds_complete_under_each_control() {
        let gigabit = Rate::from_bits_per_sec(1e9);
        let ways = [
            None,
            Some(IncastControl::Ictcp),
            Some(IncastControl::IctcpOneSegment),
            Some(IncastControl::Grants),
        ];
        for mode in ways {
            let (senders, connections) = connected(5);
            let signals = Signals::unwatched();
            let long = Deadline::new(&signals, Duration::from_secs(60));
            let paired = pair_ends(&senders, &connections).unwrap();
            let config = mode.map(|mode| config(mode, gigabit));
            let mut port = IncastReceiver::new(&connections, paired, None, config).unwrap();
            let metrics = thread::scope(|scope| {
                for sender in &senders {
                    scope.spawn(move || serve_requests(sender));
                }
                let metrics = port.run(Bytes(300_001), 3, &long);
                for sender in &senders {
                    sender.shutdown(Shutdown::Both).unwrap();
                }
                metrics
            });
            assert_eq!(metrics.unwrap().rounds.len(), 3, "{mode:?}");
            assert_eq!(port.received, [900_003; 5], "{mode:?}");
        }
    }

    #[test]
    fn silent_sender_times_out() {
        let (senders, connections) = connected(1);
        let signals = Signals::unwatched();
        let short = Deadline::new(&signals, Duration::from_millis(50));
        let mut port =
            IncastReceiver::new(&connections, senders.iter().collect(), None, None).unwrap();
        let error = port.run(Bytes(5000), 3, &short).unwrap_err().to_string();
        assert!(error.contains("timed out after 50ms"), "{error}");
    }
}
