//! Stage times and CPU time of a thread.

use bankfull_control::{Stage, StageMeter, StageTimes};
use std::time::{Duration, Instant};

/// Stage meter on this thread's clock.
pub(crate) struct ThreadMeter {
    meter: StageMeter,
    origin: Instant,
    /// CPU time of the thread at the last reading.
    cpu_time: Duration,
}

impl ThreadMeter {
    pub(crate) fn start() -> Self {
        let cpu_time = bankfull_sys::thread_cpu_time();
        Self { meter: StageMeter::new(Duration::ZERO), origin: Instant::now(), cpu_time }
    }

    /// Charges the time since the last mark to a stage.
    pub(crate) fn mark(&mut self, stage: Stage) {
        self.meter.mark(stage, self.origin.elapsed());
    }

    pub(crate) fn take(&mut self) -> StageTimes {
        self.meter.take()
    }

    /// Returns the CPU time that the thread has used since the last call.
    pub(crate) fn take_cpu_time(&mut self) -> Duration {
        let now = bankfull_sys::thread_cpu_time();
        now.saturating_sub(std::mem::replace(&mut self.cpu_time, now))
    }
}
