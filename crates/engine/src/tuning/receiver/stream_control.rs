//! Control of the stream count, with the advice to administrators that follows from it.

use crate::tuning::buffer_advice::{BufferGrowth, InflightLimits};
use bankfull_control::LossSample;
use bankfull_control::streams::{Decision, Observation, StreamTuner};

/// Controls the stream count of a receiving session.
pub(super) struct StreamControl {
    /// `None` if the count is fixed.
    tuner: Option<StreamTuner>,
    growth: BufferGrowth,
    /// The advice on larger buffers was returned.
    is_advised: bool,
}

impl StreamControl {
    /// Starts with `streams` streams; the count is fixed without `max_streams`.
    pub(super) fn new(streams: u32, max_streams: Option<u32>) -> Self {
        let tuner = max_streams.map(|max| StreamTuner::new(streams, max));
        Self { tuner, growth: BufferGrowth::read(), is_advised: false }
    }

    /// Returns the target stream count; `None` if it is fixed.
    pub(super) fn streams(&self) -> Option<u32> {
        self.tuner.as_ref().map(StreamTuner::streams)
    }

    /// Returns the random loss of the path while the streams run BBR because of it.
    pub(super) fn bbr_baseline_loss(&self) -> Option<LossSample> {
        self.tuner.as_ref().and_then(StreamTuner::bbr)
    }

    /// Passes an observation to the tuner, unless the count is fixed. Returns its decision, if any.
    pub(super) fn observe(&mut self, latest: &Observation) -> Option<Decision> {
        self.tuner.as_mut()?.observe(latest)
    }

    /// Suggests larger buffers, once, if this many streams do not cover the path.
    pub(super) fn poll_advice(&mut self, limits: &InflightLimits, streams: u32) -> Option<String> {
        let advice = if self.is_advised { None } else { limits.advice(streams, self.growth) };
        self.is_advised |= advice.is_some();
        advice
    }
}
