//! Receive buffer of a UDP socket, sized by RRDA. The size follows its load and the host's memory.
//!
//! Used by QUIC sockets, and by the lab's datagram service, which measures the effect. The sizing
//! rule is `bankfull_control::rrda`; reading from the socket is the caller's task.

use crate::base::sync::lock;
use crate::stats::quic_stats::BufferChange;
use bankfull_control::Bytes;
use bankfull_control::rrda::{Bounds, EPOCH_INTERVAL, Epoch, Reason, Rrda};
use bankfull_sys::ReceiveBuffer;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Minimum buffer of a service. (RRDA paper §V-A: 1 MB, the size of the static scheme, as a lower
/// bound; 1 Gbit/s for 8 ms, two scheduler time slices)
pub const MIN_BUFFER: Bytes = Bytes::mib(1);

/// Default maximum: this fraction of all memory, at most [`MAX_BUFFER`]. (chosen: 10 Gbit/s for
/// 0.2 s)
const MEMORY_DIVISOR: u64 = 16;
const MAX_BUFFER: Bytes = Bytes::mib(256);

/// Interval at which the memory in use is read.
const MEMORY_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Datagram size assumed before the first one arrives (RFC 9000 §14).
const DEFAULT_DATAGRAM_BYTES: u64 = 1200;

/// Record of changes of the buffer size, and of shortfalls.
#[derive(Clone, Debug, Default)]
pub struct ReceiveBufferLog(Arc<Mutex<LoggedChanges>>);

/// Changes and shortfalls logged so far.
#[derive(Debug, Default)]
struct LoggedChanges {
    /// Number of requests that were not granted in full.
    shortfall_count: u64,
    /// Size requested last of these, and size granted.
    last_sizes: (Bytes, Bytes),
    last_change: Option<BufferChange>,
}

/// Advice to an administrator, from a [`ReceiveBufferLog`].
#[derive(Debug)]
pub struct BufferAdvice {
    log: ReceiveBufferLog,
    /// Events already considered.
    seen_count: u64,
    /// Size named by the last advice.
    advised_size: Bytes,
}

impl ReceiveBufferLog {
    /// Returns advice about events from now on.
    #[must_use]
    pub fn advice(&self) -> BufferAdvice {
        let seen_count = lock(&self.0).shortfall_count;
        BufferAdvice { log: self.clone(), seen_count, advised_size: Bytes(0) }
    }

    /// Returns the last change of the size.
    pub(crate) fn last_change(&self) -> Option<BufferChange> {
        lock(&self.0).last_change
    }
}

impl BufferAdvice {
    /// Returns new advice: after the first shortfall, and each time the requested size has doubled.
    pub fn next_advice(&mut self) -> Option<String> {
        let record = lock(&self.log.0);
        let count = record.shortfall_count;
        let is_new = std::mem::replace(&mut self.seen_count, count) < count;
        let (wanted, granted) = record.last_sizes;
        if !is_new || wanted.0 < 2 * self.advised_size.0 {
            return None;
        }
        self.advised_size = wanted;
        Some(format!(
            "UDP datagrams were dropped: net.core.rmem_max limits the receive buffer to {granted}; \
             `sysctl -w net.core.rmem_max={}` allows the size needed",
            wanted.0
        ))
    }
}

/// Receive buffer of a UDP socket with its statistics.
#[derive(Debug)]
pub struct UdpReceiveBuffer {
    rrda: Rrda,
    min: Bytes,
    epoch_start: Instant,
    /// Bytes received in this epoch.
    received_bytes: u64,
    /// Datagrams received in this epoch.
    datagrams: u64,
    /// Peak fill level in this epoch, in bytes.
    peak_used: u64,
    /// Bytes queued at the start of the epoch.
    queued: u64,
    /// Bytes dropped in this epoch, as sampled last.
    seen_discarded: Bytes,
    /// Samples taken so far.
    sample_count: u64,
    /// Mean datagram size in the last epoch with traffic.
    mean_datagram_bytes: u64,
    /// Datagrams dropped by the kernel, at the start of the epoch.
    dropped: u32,
    /// Fraction of memory in use, and when it was read.
    memory: (Instant, f64),
    log: ReceiveBufferLog,
    reason: Reason,
}

impl UdpReceiveBuffer {
    /// Sets the buffer of a socket to `min` bytes of data; `limit` caps it above that.
    ///
    /// `None` if the kernel does not report the fill level.
    #[must_use]
    pub fn new(
        socket: &UdpSocket,
        log: ReceiveBufferLog,
        min: Bytes,
        limit: Option<Bytes>,
    ) -> Option<Self> {
        let dropped = bankfull_sys::receive_buffer(socket).ok()?.dropped;
        let memory = bankfull_sys::memory().ok();
        let max = memory
            .map_or(MAX_BUFFER, |memory| MAX_BUFFER.min(Bytes(memory.total / MEMORY_DIVISOR)));
        let max = limit.map_or(max, |limit| max.min(limit));
        let mut rrda = Rrda::new(Bounds { min, max }, None);
        if let Ok(granted) = bankfull_sys::set_receive_buffer(socket, min.0) {
            rrda.on_granted(Bytes(granted));
        }
        let now = Instant::now();
        Some(Self {
            rrda,
            min,
            epoch_start: now,
            received_bytes: 0,
            datagrams: 0,
            queued: 0,
            peak_used: 0,
            seen_discarded: Bytes(0),
            sample_count: 0,
            mean_datagram_bytes: DEFAULT_DATAGRAM_BYTES,
            dropped,
            memory: (now, memory.map_or(0.0, |memory| memory.used_fraction())),
            log,
            reason: Reason::Kept,
        })
    }

    /// Returns the buffer size, in bytes of data.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.rrda.size()
    }

    /// Reads the fill level and enlarges the buffer at once if it is too full.
    ///
    /// Call it before each receive, and periodically while the reader is busy. Returns the queued
    /// bytes.
    pub fn sample(&mut self, socket: &UdpSocket) -> Bytes {
        self.sample_count += 1;
        let Ok(buffer) = bankfull_sys::receive_buffer(socket) else { return Bytes(0) };
        let queued = Bytes(buffer.used);
        let discarded = self.discarded(buffer);
        if buffer.used <= self.peak_used && discarded <= self.seen_discarded {
            return queued;
        }
        self.peak_used = self.peak_used.max(buffer.used);
        self.seen_discarded = self.seen_discarded.max(discarded);
        let before = self.rrda.size();
        let (wanted, reason) = self.rrda.on_sample(Bytes(buffer.used), discarded, self.memory.1);
        self.reason = reason;
        self.request_size(socket, (before, wanted), discarded);
        queued
    }

    /// Returns the reason for the present size.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the number of samples taken.
    #[must_use]
    pub fn sample_count(&self) -> u64 {
        self.sample_count
    }

    /// Estimates the bytes dropped in this epoch.
    fn discarded(&self, buffer: ReceiveBuffer) -> Bytes {
        let mean_datagram_bytes =
            self.received_bytes.checked_div(self.datagrams).unwrap_or(self.mean_datagram_bytes);
        Bytes(u64::from(buffer.dropped.wrapping_sub(self.dropped)) * mean_datagram_bytes)
    }

    /// Requests a new size from the kernel and records a shortfall.
    fn request_size(
        &mut self,
        socket: &UdpSocket,
        (before, wanted): (Bytes, Bytes),
        discarded: Bytes,
    ) {
        if wanted == before {
            return;
        }
        let Ok(granted) = bankfull_sys::set_receive_buffer(socket, wanted.0) else { return };
        let granted = Bytes(granted);
        self.rrda.on_granted(granted);
        let mut record = lock(&self.log.0);
        let (at, size, reason) = (Instant::now(), self.rrda.size(), self.reason);
        record.last_change = Some(BufferChange { at, size, reason });
        if granted < wanted && discarded > Bytes(0) {
            record.shortfall_count += 1;
            record.last_sizes = (wanted, granted);
        }
    }

    /// Counts a received datagram of `bytes`.
    pub fn on_received(&mut self, bytes: usize) {
        self.received_bytes += bytes as u64;
        self.datagrams += 1;
    }

    /// True if the buffer exceeds its minimum. It must then be advanced even without traffic.
    #[must_use]
    pub fn is_above_min(&self) -> bool {
        self.rrda.size() > self.min
    }

    /// Updates the size at the end of an epoch.
    pub fn advance(&mut self, socket: &UdpSocket, now: Instant) {
        let elapsed = now.saturating_duration_since(self.epoch_start);
        if elapsed < EPOCH_INTERVAL {
            return;
        }
        self.epoch_start = now;
        let Ok(buffer) = bankfull_sys::receive_buffer(socket) else { return };
        let discarded = self.discarded(buffer);
        self.dropped = buffer.dropped;
        self.mean_datagram_bytes =
            self.received_bytes.checked_div(self.datagrams).unwrap_or(self.mean_datagram_bytes);
        // Bytes queued now have arrived in this epoch, or remain from the one before.
        let scale = EPOCH_INTERVAL.as_secs_f64() / elapsed.as_secs_f64();
        let per_epoch = |bytes: u64| Bytes((bytes as f64 * scale) as u64);
        let epoch = Epoch {
            arrived: per_epoch(self.received_bytes + discarded.0 + buffer.used),
            processed: per_epoch(self.received_bytes + self.queued),
            discarded,
            used: Bytes(self.peak_used.max(buffer.used)),
            memory: self.memory_used(now),
        };
        (self.received_bytes, self.datagrams, self.peak_used, self.seen_discarded) =
            (0, 0, 0, Bytes(0));
        self.queued = buffer.used;
        let before = self.rrda.size();
        let (wanted, reason) = self.rrda.on_epoch(&epoch);
        self.reason = reason;
        self.request_size(socket, (before, wanted), discarded);
    }

    /// Returns the fraction of memory in use.
    fn memory_used(&mut self, now: Instant) -> f64 {
        if now.saturating_duration_since(self.memory.0) > MEMORY_SAMPLE_INTERVAL
            && let Ok(memory) = bankfull_sys::memory()
        {
            self.memory = (now, memory.used_fraction());
        }
        self.memory.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_enlarges_buffer_within_the_epoch() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let log = ReceiveBufferLog::default();
        let mut advice = log.advice();
        let mut buffer = UdpReceiveBuffer::new(&socket, log.clone(), MIN_BUFFER, None).unwrap();
        let min = buffer.size();
        buffer.sample(&socket);
        assert_eq!(buffer.size(), min);
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(socket.local_addr().unwrap()).unwrap();
        (0..4000).for_each(|_| drop(client.send(&[0; 1000])));
        buffer.sample(&socket);
        let grown = buffer.size();
        assert!(grown > min || advice.next_advice().is_some(), "{grown}");
        buffer.sample(&socket);
        assert_eq!(buffer.size(), grown, "no further drops");
    }

    #[test]
    fn growing_queue_is_surplus_and_draining_queue_is_not() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut buffer =
            UdpReceiveBuffer::new(&socket, ReceiveBufferLog::default(), MIN_BUFFER, None).unwrap();
        if buffer.size() < MIN_BUFFER {
            eprintln!("skipped: net.core.rmem_max grants a buffer of {} only", buffer.size());
            return;
        }
        buffer.memory.1 = 0.4;
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(socket.local_addr().unwrap()).unwrap();
        let (mut now, mut reasons) = (buffer.epoch_start, Vec::new());
        for _ in 0..3 {
            (0..200).for_each(|_| assert_eq!(client.send(&[0; 1000]).unwrap(), 1000));
            now += EPOCH_INTERVAL;
            buffer.advance(&socket, now);
            reasons.push(buffer.reason());
        }
        assert_eq!(reasons, [Reason::Kept, Reason::Kept, Reason::Surplus]);
        let grown = buffer.size();
        assert!(grown > MIN_BUFFER, "{grown}");
        // The kernel frees memory in batches, or when the queue is empty.
        (0..600).for_each(|_| buffer.on_received(socket.recv(&mut [0; 2000]).unwrap()));
        for _ in 0..3 {
            now += EPOCH_INTERVAL;
            buffer.advance(&socket, now);
        }
        assert_eq!(buffer.reason(), Reason::Draining);
        assert!(buffer.size() < grown, "{} of {grown}", buffer.size());
    }

    #[test]
    fn size_stays_within_limit() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(socket.local_addr().unwrap()).unwrap();
        for (limit, max_size) in [(Bytes(1), MIN_BUFFER), (Bytes::mib(2), Bytes::mib(2))] {
            let limit = Some(limit);
            let mut buffer =
                UdpReceiveBuffer::new(&socket, ReceiveBufferLog::default(), MIN_BUFFER, limit)
                    .unwrap();
            for _ in 0..4 {
                (0..4000).for_each(|_| drop(client.send(&[0; 1000])));
                buffer.sample(&socket);
            }
            assert!(buffer.size() <= max_size, "{} of {max_size}", buffer.size());
        }
    }

    #[test]
    fn buffer_grows_on_drops_and_shrinks_after_load() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let log = ReceiveBufferLog::default();
        let mut advice = log.advice();
        let mut buffer = UdpReceiveBuffer::new(&socket, log.clone(), MIN_BUFFER, None).unwrap();
        let (min, mut max_size) = (buffer.rrda.size(), Bytes(0));
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(socket.local_addr().unwrap()).unwrap();
        let mut now = buffer.epoch_start;
        for epoch in 0..100 {
            // A burst of 4 MB per second, for three seconds.
            if epoch % 10 == 0 && epoch < 30 {
                (0..4000).for_each(|_| drop(client.send(&[0; 1000])));
            }
            buffer.sample(&socket);
            let mut buf = [0; 2000];
            while let Ok(bytes) = socket.recv(&mut buf) {
                buffer.on_received(bytes);
            }
            now += EPOCH_INTERVAL;
            buffer.advance(&socket, now);
            max_size = max_size.max(buffer.rrda.size());
        }
        match advice.next_advice() {
            // The kernel grants no more.
            Some(advice) => assert!(advice.contains("sysctl -w net.core.rmem_max="), "{advice}"),
            None => assert!(max_size.0 >= min.0 * 4, "{max_size} after {min}"),
        }
        assert!(!buffer.is_above_min() && advice.next_advice().is_none(), "{}", buffer.rrda.size());
    }
}
