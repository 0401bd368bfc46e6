//! Socket buffers beyond the kernel's autotuning limit. Requires CAP_NET_ADMIN; used for streams
//! whose share of the BDP exceeds the limit.

use crate::transport::socket::Socket;
use bankfull_control::Bytes;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;

/// Largest buffer of a stream in data bytes; the kernel allocates twice that.
pub(super) const MAX_SOCKET_BUFFER: Bytes = Bytes(bankfull_sys::MAX_WINDOW as u64);

/// Divisor of the host's memory that bounds the buffers of a session, in data bytes. (chosen:
/// kernel memory cannot be paged out, and other programs need some)
const SOCKET_MEMORY_DIVISOR: u64 = 16;

/// Ratio of a new buffer to the current need. (chosen: small steps of the controller then need no
/// new one; one of a half does)
const SOCKET_BUFFER_MARGIN: f64 = 1.25;

/// Receive or send buffer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BufferSide {
    Receive,
    Send,
}

impl BufferSide {
    /// Returns the sysctl that bounds the kernel's autotuning.
    pub(crate) fn sysctl(self) -> &'static str {
        match self {
            Self::Receive => "net.ipv4.tcp_rmem",
            Self::Send => "net.ipv4.tcp_wmem",
        }
    }

    /// Returns the sysctl's values on this host: minimum, default and maximum, in bytes.
    pub(crate) fn sysctl_values(self) -> Option<[u64; 3]> {
        let file = format!("/proc/sys/{}", self.sysctl().replace('.', "/"));
        let values = fs::read_to_string(file).ok()?;
        let values: Vec<u64> = values.split_whitespace().map_while(|n| n.parse().ok()).collect();
        values.try_into().ok()
    }

    /// Sets the buffer of a connection regardless of the sysctl limit.
    fn force(self, socket: impl AsFd, bytes: u32) -> io::Result<()> {
        match self {
            Self::Receive => bankfull_sys::force_receive_buffer(socket, bytes),
            Self::Send => bankfull_sys::force_send_buffer(socket, bytes),
        }
    }

    /// True if this process may force buffer sizes. Tested on an unconnected socket.
    fn is_permitted(self) -> bool {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        socket.is_ok_and(|socket| self.force(&socket, 1 << 16).is_ok())
    }
}

/// Enlarges the socket buffers of a session's streams.
#[derive(Debug)]
pub(crate) struct SocketBuffers {
    side: BufferSide,
    /// Limit of the kernel's autotuning in data bytes: half of the buffer (tcp_adv_win_scale,
    /// ip-sysctl.rst).
    autotune_max: Bytes,
    /// Forced buffer of each stream.
    forced: BTreeMap<u32, Bytes>,
    /// Limit of the session's forced buffers together.
    session_max: Bytes,
    is_denied: bool,
}

/// Returns the share of this host's memory that the buffers of a session may take.
fn memory_share() -> Option<Bytes> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(Bytes(kib * 1024 / SOCKET_MEMORY_DIVISOR))
}

impl SocketBuffers {
    pub(crate) fn new(side: BufferSide) -> Self {
        // Without a known autotuning limit no buffer is forced.
        let autotune_max = Bytes(side.sysctl_values().map_or(u64::MAX, |[_, _, max]| max / 2));
        let session_max = memory_share().unwrap_or(MAX_SOCKET_BUFFER);
        let is_denied = !side.is_permitted();
        Self { side, autotune_max, forced: BTreeMap::new(), session_max, is_denied }
    }

    /// Returns the most data that a stream can have in flight, in bytes.
    pub(crate) fn max_inflight(&self) -> Bytes {
        if self.is_denied { self.autotune_max.min(MAX_SOCKET_BUFFER) } else { MAX_SOCKET_BUFFER }
    }

    /// Enlarges a stream's buffer for this much data in flight, as far as permitted.
    pub(crate) fn ensure(&mut self, number: u32, socket: &Socket, data: Bytes) {
        let (Some(bytes), Socket::Tcp(tcp)) = (self.required(number, data), socket) else {
            return;
        };
        let size = u32::try_from(bytes.0).unwrap_or(u32::MAX);
        match self.side.force(tcp, size) {
            Ok(()) => drop(self.forced.insert(number, bytes)),
            Err(error) => self.is_denied |= error.kind() == io::ErrorKind::PermissionDenied,
        }
    }

    /// Returns the buffer to force for a stream, if permitted and larger than now.
    fn required(&self, number: u32, data: Bytes) -> Option<Bytes> {
        let forced = self.forced.get(&number).copied();
        let current = forced.unwrap_or(self.autotune_max);
        let wanted = Bytes((data.0 as f64 * SOCKET_BUFFER_MARGIN) as u64).min(MAX_SOCKET_BUFFER);
        let total: u64 = self.forced.values().map(|forced| forced.0).sum();
        let other_streams = total - forced.unwrap_or_default().0;
        let fits = other_streams + wanted.0 <= self.session_max.0;
        (!self.is_denied && fits && data > current && wanted > current).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forced_buffers_stay_within_the_session_limit() {
        assert!(memory_share().unwrap() > Bytes::mib(1));
        let mut buffers = SocketBuffers {
            autotune_max: Bytes::mib(3),
            is_denied: false,
            session_max: Bytes::mib(24),
            ..SocketBuffers::new(BufferSide::Receive)
        };
        buffers.forced.insert(0, Bytes::mib(10));
        assert_eq!(buffers.required(1, Bytes::mib(8)), Some(Bytes::mib(10)));
        buffers.forced.insert(1, Bytes::mib(10));
        assert_eq!(buffers.required(2, Bytes::mib(4)), None);
        let replaced = buffers.required(1, Bytes::mib(11));
        assert_eq!(replaced, Some(Bytes(14_417_920)), "its own buffer does not count");
    }

    #[test]
    fn buffer_is_forced_above_autotuning_and_with_a_margin() {
        let mut buffers = SocketBuffers {
            autotune_max: Bytes::mib(3),
            is_denied: false,
            ..SocketBuffers::new(BufferSide::Receive)
        };
        assert_eq!(buffers.max_inflight(), MAX_SOCKET_BUFFER);
        assert_eq!(buffers.required(0, Bytes::mib(3)), None);
        assert_eq!(buffers.required(0, Bytes::mib(4)), Some(Bytes::mib(5)));
        buffers.forced.insert(0, Bytes::mib(5));
        assert_eq!(buffers.required(0, Bytes::mib(5)), None);
        assert_eq!(buffers.required(1, Bytes::mib(4)), Some(Bytes::mib(5)), "another stream");
        assert_eq!(buffers.required(0, Bytes::mib(500)), Some(MAX_SOCKET_BUFFER));
        buffers.forced.insert(0, MAX_SOCKET_BUFFER);
        assert_eq!(buffers.required(0, Bytes::mib(500)), None);
        buffers.is_denied = true;
        let denied = (buffers.required(1, Bytes::mib(4)), buffers.max_inflight());
        assert_eq!(denied, (None, Bytes::mib(3)));
    }
}
