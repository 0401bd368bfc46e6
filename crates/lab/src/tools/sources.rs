//! Sources of the lab's own: what no program does as a scenario wants it.

use super::{Figures, Job, Tool, Way};
use crate::error::{LabError, Result};
use crate::flows::Flows;
use crate::hosts::Hosts;
use crate::network::Network;
use bankfull_control::{Bytes, Rate};
use bankfull_sim::Cross;
use socket2::{Domain, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

const PORT: u16 = 7701;

/// Data of a packet of 1500 bytes: 20 are IP's, 8 are UDP's.
const DATAGRAM_BYTES: usize = 1472;
const PACKET_BYTES: usize = 1500;

/// Room for datagrams that wait for the receiver, beyond which it would lose what the link did not.
/// (ours: a quarter of a second at 1 Gbit/s)
const UDP_BUFFER: usize = 32 << 20;

/// How long the last datagrams may be on their way, and an answer in a round of questions. (ours:
/// several round trips; several time-outs in a row)
const LAST_WAIT: Duration = Duration::from_secs(1);
const ANSWER_WAIT: Duration = Duration::from_secs(60);

pub(super) static TCP: Tool = Tool {
    name: "tcp",
    about: "the lab's own TCP flows, as wide as they get",
    needs: &[],
    version: &[],
    way: Way::Source(run_tcp),
};

pub(super) static UDP: Tool = Tool {
    name: "udp",
    about: "the lab's own datagrams at a constant rate, and how many are lost",
    needs: &[],
    version: &[],
    way: Way::Source(run_udp),
};

pub(super) static INCAST: Tool = Tool {
    name: "incast",
    about: "rounds: the receiver asks all senders at once, each answers with a block",
    needs: &[],
    version: &[],
    way: Way::Source(run_incast),
};

fn failed(source: io::Error) -> LabError {
    LabError::io("a source of the lab failed", source)
}

/// What arrives within the time, from all senders together.
fn run_tcp(network: &Network, job: &Job<'_>) -> Result<Figures> {
    let began = Instant::now();
    let flows: Vec<Flows> = (0..job.senders)
        .map(|sender| {
            let port = PORT + 1 + sender as u16;
            Flows::start(network, sender, port, job.streams(), None)
        })
        .collect::<Result<_>>()?;
    thread::sleep(job.time.saturating_sub(began.elapsed()));
    let received = flows.iter().map(|flows| flows.received().0).sum();
    Ok(super::goodput(Bytes(received), began.elapsed()))
}

/// Datagrams at equal distances, counted at both ends.
fn run_udp(network: &Network, job: &Job<'_>) -> Result<Figures> {
    let receiver = network.receiver();
    let to = SocketAddr::from((Hosts::address(receiver), PORT));
    let incoming = network.hosts().on(receiver, || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        socket.bind(&to.into())?;
        // More than the machine's limit, which the lab may as root.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, UDP_BUFFER)?;
        Ok(UdpSocket::from(socket))
    })?;
    incoming.set_read_timeout(Some(LAST_WAIT)).map_err(failed)?;
    let outgoing = network.hosts().on(job.sender, || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(to)?;
        Ok(socket)
    })?;
    let rate = Rate::from_bits_per_sec(job.rate.bits_per_sec() as f64 * job.contender.load);
    let (sent, received) = thread::scope(|scope| {
        let counting = scope.spawn(move || {
            let mut buffer = [0; DATAGRAM_BYTES];
            let mut received = 0u64;
            while incoming.recv(&mut buffer).is_ok() {
                received += 1;
            }
            received
        });
        let sent = send_evenly(&outgoing, rate, job.time);
        (sent, counting.join().unwrap_or(0))
    });
    let sent = sent.map_err(failed)?;
    Ok(Figures {
        seconds: Some(job.time.as_secs_f64()),
        lost_share: Some(1.0 - received as f64 / sent.max(1) as f64),
        expected_lost_share: expected_loss(network, job, sent),
        ..Figures::default()
    })
}

/// What the path must lose of this: what neither the line nor the buffer took, and what is lost on
/// the line. `None` where others send, too.
fn expected_loss(network: &Network, job: &Job<'_>, sent: u64) -> Option<f64> {
    if job.is_disturbed || job.path.forward.cross != Cross::None {
        return None;
    }
    let line = job.rate.bytes_per_sec() as f64 * job.time.as_secs_f64();
    let fits = line + network.buffer().0 as f64;
    let passed = (fits / (sent.max(1) * PACKET_BYTES as u64) as f64).min(1.0);
    Some(1.0 - passed * (1.0 - job.path.forward.loss.mean()))
}

fn send_evenly(socket: &UdpSocket, rate: Rate, length: Duration) -> io::Result<u64> {
    let distance = PACKET_BYTES as f64 * 8.0 / rate.bits_per_sec().max(1) as f64;
    let data = [0x55; DATAGRAM_BYTES];
    let began = Instant::now();
    let mut sent = 0u64;
    while began.elapsed() < length {
        let due = Duration::from_secs_f64(sent as f64 * distance);
        if due >= length {
            break;
        }
        let now = began.elapsed();
        if due > now {
            thread::sleep(due - now);
        }
        socket.send(&data)?;
        sent += 1;
    }
    Ok(sent)
}

/// Connections that stay; the receiver asks with one byte each, and waits for all blocks.
fn run_incast(network: &Network, job: &Job<'_>) -> Result<Figures> {
    let receiver = network.receiver();
    let to = SocketAddr::from((Hosts::address(receiver), PORT));
    let listener = network.hosts().on(receiver, || TcpListener::bind(to))?;
    let block = job.contender.block.0 as usize;
    let mut senders = Vec::new();
    let mut asked = Vec::new();
    for host in 0..job.senders {
        senders.push(network.hosts().on(host, || TcpStream::connect(to))?);
        asked.push(listener.accept().map_err(failed)?.0);
    }
    for socket in senders.iter().chain(&asked) {
        socket.set_nodelay(true).map_err(failed)?;
        socket.set_read_timeout(Some(ANSWER_WAIT)).map_err(failed)?;
        socket.set_write_timeout(Some(ANSWER_WAIT)).map_err(failed)?;
    }
    let ready = Barrier::new(senders.len() + 1);
    thread::scope(|scope| {
        for sender in senders {
            let ready = &ready;
            scope.spawn(move || {
                ready.wait();
                // It ends when the receiver closes.
                let _ = answer(sender, block);
            });
        }
        ready.wait();
        ask(asked, block, job.contender.rounds)
    })
    .map_err(failed)
}

fn answer(mut stream: TcpStream, block: usize) -> io::Result<()> {
    let block = vec![0x55; block];
    loop {
        stream.read_exact(&mut [0])?;
        stream.write_all(&block)?;
    }
}

fn ask(mut streams: Vec<TcpStream>, block: usize, count: u32) -> io::Result<Figures> {
    let mut buffer = vec![0; block];
    let mut rounds = Vec::new();
    let began = Instant::now();
    for _ in 0..count {
        let asked = Instant::now();
        for stream in &mut streams {
            stream.write_all(&[1])?;
        }
        for stream in &mut streams {
            stream.read_exact(&mut buffer)?;
        }
        rounds.push(asked.elapsed().as_secs_f64());
    }
    let bytes = Bytes((streams.len() * block) as u64 * u64::from(count));
    Ok(Figures { rounds, ..super::goodput(bytes, began.elapsed()) })
}
