//! TCP flows from one host to the receiver that send as much as they may, until they are dropped.

use crate::error::Result;
use crate::hosts::Hosts;
use crate::network::Network;
use bankfull_control::Bytes;
use socket2::{Domain, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

/// Bytes written or read at once. (ours: a super-packet's four times)
const CHUNK_BYTES: usize = 256 << 10;

/// Flows at work.
#[derive(Debug)]
pub struct Flows {
    received: Arc<AtomicU64>,
    streams: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Flows {
    /// Starts `count` flows from a host to a port of the receiver. With `window`, that is the most
    /// that each may have in flight.
    ///
    /// # Errors
    /// When they cannot be connected.
    pub fn start(
        network: &Network,
        from: usize,
        port: u16,
        count: usize,
        window: Option<Bytes>,
    ) -> Result<Self> {
        let receiver = network.receiver();
        let to = SocketAddr::from((Hosts::address(receiver), port));
        let listener = network.hosts().on(receiver, || listen(to, window))?;
        // When one cannot be connected, dropping this ends those before it.
        let mut flows = Self { received: Arc::default(), streams: Vec::new(), threads: Vec::new() };
        for _ in 0..count {
            let sender = network.hosts().on(from, || TcpStream::connect(to))?;
            let accepted = listener.accept().map_err(|e| flow_failed(from, e))?.0;
            let kept = [sender.try_clone(), accepted.try_clone()];
            for stream in kept {
                flows.streams.push(stream.map_err(|e| flow_failed(from, e))?);
            }
            let received = Arc::clone(&flows.received);
            flows.threads.push(thread::spawn(move || send(sender)));
            flows.threads.push(thread::spawn(move || receive(accepted, &received)));
        }
        Ok(flows)
    }

    /// What has arrived so far, of all of them.
    #[must_use]
    pub fn received(&self) -> Bytes {
        Bytes(self.received.load(Ordering::Relaxed))
    }
}

impl Drop for Flows {
    fn drop(&mut self) {
        for stream in &self.streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn flow_failed(from: usize, source: io::Error) -> crate::error::LabError {
    crate::error::LabError::io(format!("a flow of host {from} failed"), source)
}

fn listen(to: SocketAddr, window: Option<Bytes>) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if let Some(window) = window {
        // Half of what the kernel makes of it is the window (tcp(7), tcp_adv_win_scale).
        socket.set_recv_buffer_size(window.0 as usize)?;
    }
    socket.bind(&to.into())?;
    socket.listen(128)?;
    Ok(socket.into())
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
