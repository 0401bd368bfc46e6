//! Transport of a stream: a TCP connection, a QUIC stream, or a socket pair tunnelled through ssh.
//!
//! Covers setup and statistics, not the data.

use super::quic::connection::QuicStream;
use super::udp_receive_buffer::BufferAdvice;
use crate::file_io::block_io::send::splice_once;
use crate::stats::quic_stats::QuicStats;
use bankfull_control::Bytes;
use bankfull_sys::{Pipe, TcpInfo};
use socket2::SockRef;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Transport of a stream.
#[derive(Debug)]
pub(crate) enum Socket {
    /// TCP connection.
    Tcp(TcpStream),
    /// One end of a socket pair; the other end is relayed through an ssh session.
    Unix(UnixStream),
    /// Stream of a QUIC connection, encrypted by QUIC.
    Quic(QuicStream),
}

impl Socket {
    /// Returns the TCP connection, if it is one.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            _ => None,
        }
    }

    /// Returns a second handle on the same connection, to shut it down from another thread.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(s) => s.try_clone().map(Self::Tcp),
            Self::Unix(s) => s.try_clone().map(Self::Unix),
            Self::Quic(s) => Ok(Self::Quic(s.clone())),
        }
    }

    /// Closes both directions and wakes blocked threads.
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

    /// True once the peer has closed the connection, or reading was stopped.
    pub(crate) fn is_ended(&self) -> bool {
        match self {
            Self::Tcp(s) => bankfull_sys::is_hung_up(s),
            Self::Unix(s) => bankfull_sys::is_hung_up(s),
            Self::Quic(s) => s.is_ended(),
        }
    }

    /// Returns the smoothed RTT; `None` without a network path or a measurement.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        match self {
            Self::Tcp(s) => tcp_rtt(s),
            Self::Unix(_) => None,
            Self::Quic(s) => Some(s.rtt()),
        }
    }

    /// Returns the address of the peer.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(s) => s.peer_addr().ok(),
            Self::Unix(_) => None,
            Self::Quic(s) => Some(s.peer()),
        }
    }

    /// Returns the kernel's statistics of a TCP connection.
    pub(crate) fn tcp_info(&self) -> Option<TcpInfo> {
        match self {
            Self::Tcp(s) => bankfull_sys::tcp_info(s).ok(),
            Self::Unix(_) | Self::Quic(_) => None,
        }
    }

    /// Returns the statistics of the whole QUIC connection, with all its streams.
    pub(crate) fn quic_stats(&self) -> Option<QuicStats> {
        match self {
            Self::Quic(s) => Some(s.stats()),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// Returns the received bytes that were not read yet; zero for QUIC.
    pub(crate) fn unread_bytes(&self) -> u64 {
        let bytes = match self {
            Self::Tcp(s) => bankfull_sys::receive_queue_bytes(s),
            Self::Unix(s) => bankfull_sys::receive_queue_bytes(s),
            Self::Quic(_) => return 0,
        };
        bytes.unwrap_or_default()
    }

    /// Returns the TCP segments retransmitted, or the QUIC packets lost.
    ///
    /// A lost QUIC packet is reported once, by the first stream of its connection that calls this.
    pub(crate) fn retransmits(&self) -> u64 {
        match self {
            Self::Quic(s) => s.newly_lost_packets(),
            _ => self.tcp_info().map_or(0, |info| u64::from(info.total_retrans)),
        }
    }

    /// Returns advice on the receive buffer of a QUIC socket. Considers datagrams dropped from now
    /// on.
    pub(crate) fn advice(&self) -> Option<BufferAdvice> {
        match self {
            Self::Quic(s) => Some(s.advice()),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }

    /// True if the transport itself encrypts.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Quic(_))
    }

    /// Returns the size of the send buffer in bytes; zero for QUIC. Up to half of it is kernel
    /// overhead.
    pub(crate) fn send_buffer_bytes(&self) -> usize {
        let size = match self {
            Self::Tcp(s) => SockRef::from(s).send_buffer_size(),
            Self::Unix(s) => SockRef::from(s).send_buffer_size(),
            Self::Quic(_) => return 0,
        };
        size.unwrap_or_default()
    }

    /// Sends a range of a file without copying it through user space.
    pub(crate) fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => bankfull_sys::send_file(s, file, offset, len),
            Self::Unix(s) => bankfull_sys::send_file(s, file, offset, len),
            Self::Quic(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Sends a range of a file with splice(2) through `pipe`.
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

    /// Marks the peer as authenticated.
    pub(crate) fn set_authenticated(&self) {
        if let Self::Quic(s) = self {
            s.set_authenticated();
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

    /// Closes the receiving direction; sending continues.
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

/// Burst size limit of each TCP connection of a session, in bytes; zero disables it.
#[derive(Debug, Default)]
pub(crate) struct BurstLimit(AtomicUsize);

impl BurstLimit {
    pub(crate) fn set(&self, limit: Option<Bytes>) {
        self.0.store(limit.map_or(0, |bytes| bytes.0 as usize), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&bytes| bytes > 0)
    }
}

/// Writer that sends on TCP in bursts of limited size.
pub(crate) struct BurstWriter<'a> {
    pub(crate) socket: &'a mut Socket,
    pub(crate) limit: Option<usize>,
}

impl Write for BurstWriter<'_> {
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
            let sent = &part[..part.len().min(left)];
            left -= sent.len();
            IoSlice::new(sent)
        };
        let burst: Vec<_> = parts.iter().map(|part| &**part).map(first).collect();
        bankfull_sys::send_eor(tcp, &burst)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the smoothed RTT of a TCP connection; `None` before the first measurement.
pub(crate) fn tcp_rtt(socket: &TcpStream) -> Option<Duration> {
    bankfull_sys::tcp_info(socket).ok().map(|i| i.rtt).filter(|rtt| !rtt.is_zero())
}

/// Connects a data stream whose window can be clamped.
pub(crate) fn connect(address: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    // Without it, pacing alone may limit the stream.
    let _ = bankfull_sys::limit_window_scale(&socket);
    socket.connect_timeout(&address.into(), timeout)?;
    Ok(socket.into())
}

/// Applies the options of every TCP connection: no delay, keep-alive, user timeout.
pub(crate) fn configure(socket: &TcpStream, timeout: Duration) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new()
        .with_time((timeout / 4).max(Duration::from_secs(1)))
        .with_interval((timeout / 4).max(Duration::from_secs(1)));
    SockRef::from(socket).set_tcp_keepalive(&keepalive)?;
    bankfull_sys::set_user_timeout(socket, timeout)
}

/// Clamps a stream's receive window; false if it has to be tried again.
pub(crate) fn clamp_window(socket: &Socket, share: Bytes) -> bool {
    clamp_window_for(socket, share, socket.tcp_info().map_or(0, |info| info.snd_mss))
}

/// Clamps a stream's receive window, to two segments at least; false if it has to be tried again.
///
/// Segments may be larger than those of Ethernet.
pub(crate) fn clamp_window_for(socket: &Socket, share: Bytes, segment: u32) -> bool {
    let Socket::Tcp(tcp) = socket else { return true };
    let min = 2 * u64::from(segment);
    let window = u32::try_from(share.0.max(min)).unwrap_or(u32::MAX);
    // If the kernel cannot clamp it, pacing alone limits the stream.
    bankfull_sys::set_window_clamp(tcp, window).unwrap_or(true)
}
