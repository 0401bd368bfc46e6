//! What carries a stream: a TCP connection, a stream of a QUIC connection, or a pipe through an ssh
//! session. How it is set up, and what is told of it; not what is said on it.

use crate::block_io::send::splice_once;
use crate::datagram_room::Advice;
use crate::net::quic::{QuicSight, QuicStream};
use bankfull_control::Bytes;
use bankfull_sys::{Pipe, TcpInfo};
use socket2::SockRef;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What carries a stream.
#[derive(Debug)]
pub(crate) enum Socket {
    /// A TCP connection.
    Tcp(TcpStream),
    /// One end of a socket pair, whose other end is pumped through an ssh session.
    Unix(UnixStream),
    /// A stream of a QUIC connection, which is encrypted.
    Quic(QuicStream),
}

impl Socket {
    /// A second handle on the same connection, to shut it down from another thread.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(s) => s.try_clone().map(Self::Tcp),
            Self::Unix(s) => s.try_clone().map(Self::Unix),
            Self::Quic(s) => Ok(Self::Quic(s.clone())),
        }
    }

    /// Ends both directions; whoever waits on it is woken.
    pub(crate) fn shutdown(&self) {
        let _ = match self {
            Self::Tcp(s) => s.shutdown(Shutdown::Both),
            Self::Unix(s) => s.shutdown(Shutdown::Both),
            Self::Quic(s) => {
                s.shutdown();
                Ok(())
            }
        };
    }

    /// Round trip of the path; `None` where there is no path, or nobody measured it yet.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        match self {
            Self::Tcp(s) => rtt_of(s),
            Self::Unix(_) => None,
            Self::Quic(s) => Some(s.rtt()),
        }
    }

    /// Where it leads.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(s) => s.peer_addr().ok(),
            Self::Unix(_) => None,
            Self::Quic(s) => Some(s.peer()),
        }
    }

    /// What TCP says about this connection.
    pub(crate) fn info(&self) -> Option<TcpInfo> {
        match self {
            Self::Tcp(s) => bankfull_sys::tcp_info(s).ok(),
            Self::Unix(_) | Self::Quic(_) => None,
        }
    }

    /// What QUIC says about the connection, with all of its streams.
    pub(crate) fn quic_sight(&self) -> Option<QuicSight> {
        match self {
            Self::Quic(s) => Some(s.sight()),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// Bytes that have come and were not read.
    pub(crate) fn unread(&self) -> u64 {
        let unread = match self {
            Self::Tcp(s) => bankfull_sys::unread_bytes(s),
            Self::Unix(s) => bankfull_sys::unread_bytes(s),
            Self::Quic(_) => return 0,
        };
        unread.unwrap_or_default()
    }

    /// Segments that TCP sent again on this connection; or packets that QUIC has lost of which no
    /// other stream of the connection has told, nor this one before.
    pub(crate) fn retransmits(&self) -> u64 {
        match self {
            Self::Quic(s) => s.newly_lost_packets(),
            _ => self.info().map_or(0, |info| u64::from(info.total_retrans)),
        }
    }

    /// What an administrator could set for it, where datagrams are discarded from now on.
    pub(crate) fn advice(&self) -> Option<Advice> {
        match self {
            Self::Quic(s) => Some(s.advice()),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// Whether it is encrypted without anything on top.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Quic(_))
    }

    /// Bytes of its send buffer, of which the kernel's own books are up to half; zero where it has
    /// none of its own.
    pub(crate) fn send_buffer(&self) -> usize {
        let size = match self {
            Self::Tcp(s) => SockRef::from(s).send_buffer_size(),
            Self::Unix(s) => SockRef::from(s).send_buffer_size(),
            Self::Quic(_) => return 0,
        };
        size.unwrap_or_default()
    }

    /// Sends a piece of a file without copying it through user space.
    pub(crate) fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => bankfull_sys::send_file(s, file, offset, len),
            Self::Unix(s) => bankfull_sys::send_file(s, file, offset, len),
            Self::Quic(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The same through a pipe.
    pub(crate) fn splice_file(
        &self,
        pipe: &Pipe,
        file: &File,
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => splice_once(pipe, file, offset, len, s),
            Self::Unix(s) => splice_once(pipe, file, offset, len, s),
            Self::Quic(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The other side has shown that it may be here.
    pub(crate) fn trust(&self) {
        if let Self::Quic(s) = self {
            s.trust();
        }
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.set_read_timeout(timeout),
            Self::Unix(s) => s.set_read_timeout(timeout),
            Self::Quic(s) => {
                s.set_read_timeout(timeout);
                Ok(())
            }
        }
    }

    /// Ends what is read, and still writes.
    pub(crate) fn stop_reading(&self) {
        let _ = match self {
            Self::Tcp(s) => s.shutdown(Shutdown::Read),
            Self::Unix(s) => s.shutdown(Shutdown::Read),
            Self::Quic(s) => {
                s.stop_reading();
                Ok(())
            }
        };
    }
}

impl Read for Socket {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.read(out),
            Self::Unix(s) => s.read(out),
            Self::Quic(s) => s.read(out),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.write(bytes),
            Self::Unix(s) => s.write(bytes),
            Self::Quic(s) => s.write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.write_vectored(parts),
            Self::Unix(s) => s.write_vectored(parts),
            Self::Quic(s) => s.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The most that TCP is to send at once, of every connection of a session; zero: no limit.
#[derive(Debug, Default)]
pub(crate) struct BurstLimit(AtomicUsize);

impl BurstLimit {
    pub(crate) fn set(&self, limit: Option<Bytes>) {
        self.0.store(limit.map_or(0, |bytes| bytes.0 as usize), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&bytes| bytes > 0)
    }
}

/// Hands a TCP connection its bytes in bursts of a limited length.
pub(super) struct Bursts<'a> {
    pub(super) socket: &'a mut Socket,
    pub(super) limit: Option<usize>,
}

impl Write for Bursts<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let (Some(limit), Socket::Tcp(tcp)) = (self.limit, &*self.socket) else {
            return self.socket.write_vectored(parts);
        };
        let mut left = limit;
        let first = |part| {
            let part: &[u8] = part;
            let taken = &part[..part.len().min(left)];
            left -= taken.len();
            IoSlice::new(taken)
        };
        let burst: Vec<_> = parts.iter().map(|part| &**part).map(first).collect();
        bankfull_sys::send_apart(tcp, &burst)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Round trip of a connection, as the kernel measured it last.
pub(crate) fn rtt_of(socket: &TcpStream) -> Option<Duration> {
    bankfull_sys::tcp_info(socket).ok().map(|i| i.rtt).filter(|rtt| !rtt.is_zero())
}

/// Settings that every TCP connection of ours gets.
pub(crate) fn configure(socket: &TcpStream, timeout: Duration) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new()
        .with_time((timeout / 4).max(Duration::from_secs(1)))
        .with_interval((timeout / 4).max(Duration::from_secs(1)));
    SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
    bankfull_sys::set_user_timeout(socket, timeout)
}
