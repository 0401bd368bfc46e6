//! Division of the window among the streams, and its application to their sockets.

use crate::session::Session;
use crate::transport::socket::clamp_window_for;
use crate::tuning::socket_buffers::{BufferSide, SocketBuffers};
use crate::tuning::{MAX_TCP_WINDOW, MIN_SHARE_INTERVAL};
use bankfull_control::{Bytes, Rate, StreamShares};
use std::time::Duration;

/// Clamps the windows of a receiving session's streams.
pub(super) struct WindowActuator {
    /// Each stream's share of the window.
    shares: StreamShares,
    buffers: SocketBuffers,
    /// The windows are already unclamped.
    is_unclamped: bool,
}

impl WindowActuator {
    pub(super) fn new() -> Self {
        let buffers = SocketBuffers::new(BufferSide::Receive);
        Self { shares: StreamShares::default(), buffers, is_unclamped: true }
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
    /// The clamp is repeated at each sample because the kernel raises windows by itself.
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
        let (shares, buffers) = (&self.shares, &mut self.buffers);
        session.for_each_stream(|number, socket| {
            let mut stream_window = window;
            if !is_unclamped {
                let known = windows.get(&number).copied();
                stream_window = known.unwrap_or_else(|| shares.window(number, window));
                buffers.ensure(number, socket, stream_window);
            }
            is_done &= clamp_window_for(socket, stream_window, mss);
        });
        self.is_unclamped &= is_done;
    }
}
