//! TCP flows from one host to the receiver that send without pause until dropped.

use crate::base::deadline::Deadline;
use crate::base::error::{LabError, Result};
use crate::model::plan::FlowSpec;
use crate::topology::hosts::Hosts;
use crate::topology::network::{Network, congestion_of};
use bankfull_control::Bytes;
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Bytes per read or write. (chosen: four super-packets, for few calls)
const CHUNK_BYTES: usize = 256 << 10;

/// Poll interval while a connection is being made. (chosen: below the shortest RTT)
const CONNECT_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Interval at which windows are set again. (chosen: the kernel raises them within RTTs)
const WINDOW_INTERVAL: Duration = Duration::from_millis(10);

/// Connected flows, which send once started.
#[derive(Debug)]
pub struct Flows {
    received: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    /// Both ends of all flows.
    streams: Vec<TcpStream>,
    /// Sender and receiver ends of flows that have not started.
    unstarted: Vec<(TcpStream, TcpStream)>,
    window: Option<u32>,
    threads: Vec<JoinHandle<()>>,
}

impl Flows {
    /// Connects all flows from a host to a port of the receiver in parallel.
    ///
    /// # Errors
    /// [`LabError::Io`] if a connection fails, [`LabError::Command`] at the deadline,
    /// [`LabError::Congestion`] if the requested congestion control is not in use.
    pub fn connect(
        network: &Network,
        from: usize,
        port: u16,
        kind: &FlowSpec<'_>,
        deadline: &Deadline<'_>,
    ) -> Result<Self> {
        let FlowSpec { count, window, congestion } = *kind;
        let receiver = network.receiver();
        let to = SocketAddr::from((Hosts::address(receiver), port));
        let window = window.map(|bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX));
        let listener = network.hosts().run_on(receiver, || listen(to, count, window))?;
        let senders = connect(network, from, to, (count, congestion), deadline)?;
        let accepted = accept(&listener, count, deadline)?;
        let ends = senders.iter().chain(&accepted).map(TcpStream::try_clone);
        let streams: io::Result<Vec<_>> = ends.collect();
        let streams = streams.map_err(|e| LabError::io("a flow failed", e))?;
        let unstarted = senders.into_iter().zip(accepted).collect();
        let (received, stop) = Default::default();
        Ok(Self { received, stop, streams, unstarted, window, threads: Vec::new() })
    }

    /// Starts sending.
    ///
    /// # Errors
    /// [`LabError::Io`] if a socket cannot be duplicated to hold its window.
    pub fn start(&mut self) -> Result<()> {
        if let Some(window) = self.window {
            let sockets = self.unstarted.iter().map(|(_, accepted)| accepted.try_clone());
            let sockets: io::Result<Vec<_>> = sockets.collect();
            let sockets = sockets.map_err(|e| LabError::io("cannot duplicate a socket", e))?;
            let stop = Arc::clone(&self.stop);
            self.threads.push(thread::spawn(move || hold_windows(&sockets, window, &stop)));
        }
        for (sender, accepted) in self.unstarted.drain(..) {
            let received = Arc::clone(&self.received);
            self.threads.push(thread::spawn(move || send(sender)));
            self.threads.push(thread::spawn(move || receive(accepted, &received)));
        }
        Ok(())
    }

    /// Bytes received so far, of all flows.
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

/// Listens for `count` connections, whose first receive window is at most `window` bytes.
///
/// The kernel raises the window again while data flows.
pub(crate) fn listen(
    address: SocketAddr,
    count: usize,
    window: Option<u32>,
) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if let Some(window) = window {
        // Before the first SYN-ACK: an advertised window cannot be withdrawn.
        bankfull_sys::set_window_clamp(&socket, window)?;
    }
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(count).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Connects `count` sockets from a host, all in parallel.
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
    let connecting = || Ok((0..count).map(|_| begin_connect(to, congestion)).collect());
    let connecting: io::Result<Vec<Socket>> = network.hosts().run_on(from, connecting)?;
    let sockets = connecting.map_err(failed)?;
    for socket in &sockets {
        while !is_connected(socket).map_err(failed)? {
            deadline.check("connect")?;
            thread::sleep(CONNECT_POLL_INTERVAL);
        }
        socket.set_nonblocking(false).map_err(failed)?;
        let used = congestion_of(socket).map_err(failed)?;
        if let Some(requested) = congestion.filter(|requested| *requested != used) {
            return Err(LabError::Congestion(format!("flows use {used}, not {requested}")));
        }
    }
    Ok(sockets.into_iter().map(TcpStream::from).collect())
}

fn begin_connect(to: SocketAddr, congestion: Option<&str>) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if let Some(name) = congestion {
        // Before connecting: state set up by one control may survive a later change to another.
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

/// Accepts `count` connections.
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
                thread::sleep(CONNECT_POLL_INTERVAL);
            }
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(accepted)
}

/// Sets the receive windows periodically.
fn hold_windows(sockets: &[TcpStream], window: u32, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        for stream in sockets {
            // Fails for a flow that has ended.
            let _ = bankfull_sys::set_window_clamp(stream, window);
        }
        thread::sleep(WINDOW_INTERVAL);
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
