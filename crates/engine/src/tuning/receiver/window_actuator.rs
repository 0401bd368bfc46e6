//! Division of the window among the streams, and its application to their sockets.

use crate::session::Session;
use crate::transport::socket::clamp_window_for;
use crate::tuning::socket_buffers::{BufferSide, SocketBuffers};
use crate::tuning::{MAX_TCP_WINDOW, MIN_SHARE_INTERVAL};
use bankfull_control::{Bytes, Rate, StreamShares};
use std::collections::BTreeMap;
use std::time::Duration;

/// Clamps the windows of a receiving session's streams.
pub(super) struct WindowActuator {
    /// Each stream's share of the window.
    shares: StreamShares,
    buffers: SocketBuffers,
    /// Window to which each stream was clamped last.
    clamped: BTreeMap<u32, Bytes>,
    /// Largest window that each stream advertised at the latest sample, in bytes.
    largest_windows: BTreeMap<u32, u32>,
    /// The windows are already unclamped.
    is_unclamped: bool,
}

impl WindowActuator {
    pub(super) fn new() -> Self {
        let buffers = SocketBuffers::new(BufferSide::Receive);
        Self {
            shares: StreamShares::default(),
            buffers,
            clamped: BTreeMap::new(),
            largest_windows: BTreeMap::new(),
            is_unclamped: true,
        }
    }

    /// Records the bytes received by each stream, which has a share of `rate`.
    pub(super) fn on_received(
        &mut self,
        now: Duration,
        min_rtt: Duration,
        rate: Option<Rate>,
        received: &[(u32, u64)],
    ) {
        self.shares.observe(now, MIN_SHARE_INTERVAL.max(min_rtt * 2), rate, received);
    }

    /// Forgets all clamps, as another controller may have set others.
    pub(super) fn forget_clamps(&mut self) {
        self.clamped.clear();
    }

    /// Records the largest window that each stream advertises, in bytes.
    pub(super) fn on_largest_windows(&mut self, windows: BTreeMap<u32, u32>) {
        self.largest_windows = windows;
    }

    /// Returns true if a stream was clamped to a window, and advertises no larger one.
    fn is_clamped(&self, number: u32, window: Bytes) -> bool {
        let largest = self.largest_windows.get(&number);
        self.clamped.get(&number) == Some(&window)
            && largest.is_some_and(|&largest| u64::from(largest) <= window.0)
    }

    /// Returns a stream's share of a window.
    pub(super) fn stream_window(&self, number: u32, window: Bytes) -> Bytes {
        self.shares.window(number, window)
    }

    /// Returns the number of streams that carry data.
    pub(super) fn active_streams(&self) -> u32 {
        self.shares.active_count()
    }

    /// Returns the most data that a stream can have in flight, in bytes.
    pub(super) fn max_inflight(&self) -> Bytes {
        self.buffers.max_inflight()
    }

    /// Clamps the windows to `window` for all streams together, at least to two segments each.
    ///
    /// The clamp is repeated when the kernel has raised a window by itself.
    pub(super) fn apply(&mut self, session: &Session, window: Bytes, mss: Bytes) {
        // Unclamped windows need no further calls.
        let is_unclamped = window >= MAX_TCP_WINDOW;
        if is_unclamped && self.is_unclamped {
            return;
        }
        self.is_unclamped = is_unclamped;
        let mut is_done = true;
        let windows = self.shares.windows(window, mss);
        let mss = u32::try_from(mss.0).unwrap_or(u32::MAX);
        session.for_each_stream(|number, socket| {
            let mut stream_window = window;
            if !is_unclamped {
                let known = windows.get(&number).copied();
                stream_window = known.unwrap_or_else(|| self.shares.window(number, window));
                self.buffers.ensure(number, socket, stream_window);
            }
            if self.is_clamped(number, stream_window) {
                return;
            }
            if clamp_window_for(socket, stream_window, mss) {
                self.clamped.insert(number, stream_window);
            } else {
                self.clamped.remove(&number);
                is_done = false;
            }
        });
        self.is_unclamped &= is_done;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::overrides::Overrides;
    use crate::transport::socket::Socket;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn window_is_clamped_again_once_the_kernel_raises_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Socket::Tcp(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let session = Session::new(Overrides::default(), 1);
        session.add_stream(0, &socket).unwrap();
        let (window, mss) = (Bytes(20_000), Bytes(1_000));
        let mut actuator = WindowActuator::new();
        actuator.on_received(Duration::ZERO, Duration::ZERO, None, &[(0, 0)]);
        assert!(!actuator.is_clamped(0, window));
        actuator.apply(&session, window, mss);
        let share = actuator.shares.windows(window, mss).get(&0).copied().unwrap_or(window);
        let largest = socket.tcp_info().unwrap().rcv_ssthresh;
        assert!(u64::from(largest) <= share.0, "{largest} of {share:?}");
        let mut is_clamped = |largest: u64| {
            let largest = u32::try_from(largest).unwrap();
            actuator.on_largest_windows(BTreeMap::from([(0, largest)]));
            actuator.is_clamped(0, share)
        };
        assert_eq!([is_clamped(share.0), is_clamped(share.0 + 1)], [true, false]);
        assert!(!actuator.is_clamped(0, Bytes(share.0 - 1)), "another window");
        assert!(!actuator.is_clamped(1, share), "another stream");
        actuator.forget_clamps();
        assert!(!actuator.is_clamped(0, share), "another controller");
    }
}
