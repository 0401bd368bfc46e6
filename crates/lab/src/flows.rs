//! TCP flows from one host to the receiver that send as much as they may, until they are dropped.

use crate::deadline::Deadline;
use crate::error::{LabError, Result};
use crate::hosts::Hosts;
use crate::network::Network;
use bankfull_control::Bytes;
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes written or read at once. (ours: a super-packet's four times, so that calls are few)
const CHUNK_BYTES: usize = 256 << 10;

/// How often a wait for a connection looks again. (ours: below the shortest round trips)
const LOOK: Duration = Duration::from_millis(1);

/// How often a window is set again. (ours: the kernel raises it within round trips)
const HOLD: Duration = Duration::from_millis(10);

/// What flows are like.
#[derive(Debug, Clone, Copy)]
pub struct Kind<'a> {
    /// How many.
    pub count: usize,
    /// The most that each may have in flight.
    pub window: Option<Bytes>,
    /// Their congestion control; `None`: that of their host.
    pub congestion: Option<&'a str>,
}

/// Flows, connected, and at work once they have begun.
#[derive(Debug)]
pub struct Flows {
    received: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    /// Both ends of all of them.
    streams: Vec<TcpStream>,
    /// Those that have not begun.
    waiting: Vec<(TcpStream, TcpStream)>,
    window: Option<u32>,
    threads: Vec<JoinHandle<()>>,
}

impl Flows {
    /// Connects flows from a host to a port of the receiver, all at once.
    ///
    /// # Errors
    /// When they cannot be connected, or not before the deadline; [`LabError::Congestion`] when
    /// they do not get the congestion control that was asked for.
    pub fn connect(
        network: &Network,
        from: usize,
        port: u16,
        kind: &Kind<'_>,
        deadline: &Deadline<'_>,
    ) -> Result<Self> {
        let Kind { count, window, congestion } = *kind;
        let receiver = network.receiver();
        let to = SocketAddr::from((Hosts::address(receiver), port));
        let window = window.map(|bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX));
        let listener = network.hosts().on(receiver, || listen(to, count, window))?;
        let senders = connect(network, from, to, (count, congestion), deadline)?;
        let accepted = accept(&listener, count, deadline)?;
        let ends = senders.iter().chain(&accepted).map(TcpStream::try_clone);
        let streams: io::Result<Vec<_>> = ends.collect();
        let streams = streams.map_err(|e| LabError::io("a flow failed", e))?;
        let waiting = senders.into_iter().zip(accepted).collect();
        let (received, stop) = Default::default();
        Ok(Self { received, stop, streams, waiting, window, threads: Vec::new() })
    }

    /// Lets them send.
    ///
    /// # Errors
    /// When a window cannot be held.
    pub fn begin(&mut self) -> Result<()> {
        if let Some(window) = self.window {
            let held = self.waiting.iter().map(|(_, accepted)| accepted.try_clone());
            let held: io::Result<Vec<_>> = held.collect();
            let held = held.map_err(|e| LabError::io("cannot hold a window", e))?;
            let stop = Arc::clone(&self.stop);
            self.threads.push(thread::spawn(move || hold(&held, window, &stop)));
        }
        for (sender, accepted) in self.waiting.drain(..) {
            let received = Arc::clone(&self.received);
            self.threads.push(thread::spawn(move || send(sender)));
            self.threads.push(thread::spawn(move || receive(accepted, &received)));
        }
        Ok(())
    }

    /// What has arrived so far, of all of them.
    #[must_use]
    pub fn received(&self) -> Bytes {
        Bytes(self.received.load(Ordering::Relaxed))
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for stream in &self.streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A place for so many connections at the same time.
pub(crate) fn listen(to: SocketAddr, count: usize, window: Option<u32>) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if let Some(window) = window {
        // From the first answer on: a window that was offered cannot be taken back.
        bankfull_sys::hold_window(&socket, window)?;
    }
    socket.bind(&to.into())?;
    socket.listen(i32::try_from(count).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Connections from a host, so many and with this congestion control, all begun before any is
/// waited for.
pub(crate) fn connect(
    network: &Network,
    from: usize,
    to: SocketAddr,
    (count, congestion): (usize, Option<&str>),
    deadline: &Deadline<'_>,
) -> Result<Vec<TcpStream>> {
    let failed = |e: io::Error| match congestion {
        Some(name) if e.kind() == ErrorKind::NotFound => LabError::no_congestion(name),
        _ => LabError::io(format!("host {from} cannot connect to {to}"), e),
    };
    let begun = || Ok((0..count).map(|_| begin_connect(to, congestion)).collect());
    let begun: io::Result<Vec<Socket>> = network.hosts().on(from, begun)?;
    let sockets = begun.map_err(failed)?;
    for socket in &sockets {
        while !is_connected(socket).map_err(failed)? {
            deadline.check("connect")?;
            thread::sleep(LOOK);
        }
        socket.set_nonblocking(false).map_err(failed)?;
        let used = congestion_of(socket).map_err(failed)?;
        if let Some(wanted) = congestion.filter(|wanted| *wanted != used) {
            return Err(LabError::Congestion(format!("flows use {used}, not {wanted}")));
        }
    }
    Ok(sockets.into_iter().map(TcpStream::from).collect())
}

/// What a connection uses.
pub(crate) fn congestion_of(socket: &Socket) -> io::Result<String> {
    let name = socket.tcp_congestion()?;
    Ok(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned())
}

fn begin_connect(to: SocketAddr, congestion: Option<&str>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if let Some(name) = congestion {
        // Before it connects: what one control has set up for a connection, another may not undo.
        socket.set_tcp_congestion(name.as_bytes())?;
    }
    socket.set_nonblocking(true)?;
    match socket.connect(&to.into()) {
        Err(e) if e.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Err(e),
        _ => Ok(socket),
    }
}

fn is_connected(socket: &Socket) -> io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotConnected => Ok(false),
        Err(e) => Err(e),
    }
}

/// The other ends of so many connections.
pub(crate) fn accept(
    listener: &TcpListener,
    count: usize,
    deadline: &Deadline<'_>,
) -> Result<Vec<TcpStream>> {
    let failed = |e| LabError::io("cannot accept a connection", e);
    listener.set_nonblocking(true).map_err(failed)?;
    let mut accepted = Vec::new();
    while accepted.len() < count {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(failed)?;
                accepted.push(stream);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                deadline.check("accept")?;
                thread::sleep(LOOK);
            }
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(accepted)
}

/// Sets the windows again and again.
fn hold(held: &[TcpStream], window: u32, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        for stream in held {
            // One that has ended has none.
            let _ = bankfull_sys::hold_window(stream, window);
        }
        thread::sleep(HOLD);
    }
}

fn send(mut stream: TcpStream) {
    let chunk = vec![0x55; CHUNK_BYTES];
    while stream.write_all(&chunk).is_ok() {}
}

fn receive(mut stream: TcpStream, received: &AtomicU64) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(n @ 1..) = stream.read(&mut chunk) {
        received.fetch_add(n as u64, Ordering::Relaxed);
    }
}
