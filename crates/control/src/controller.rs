//! The controller of window and pacing rate of a session over TCP: delay-based control or SOBAS.

use crate::delay::DelayController;
use crate::loss::LossSample;
use crate::path_control::{Config, Decision, Observation, PathState, State};
use crate::sobas::Sobas;
use crate::units::Rate;
use std::time::Duration;

/// Kind of a [`Controller`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ControllerKind {
    /// Delay-based control.
    #[default]
    Delay,
    /// SOBAS, as in its paper.
    Sobas,
}

/// A controller of window and pacing rate of a transfer.
#[derive(Debug, Clone)]
pub enum Controller {
    /// Delay-based control.
    Delay(Box<DelayController>),
    /// SOBAS.
    Sobas(Box<Sobas>),
}

impl Controller {
    /// Returns a controller that limits nothing yet.
    #[must_use]
    pub fn new(kind: ControllerKind, config: Config) -> Self {
        match kind {
            ControllerKind::Delay => Self::Delay(Box::new(DelayController::new(config))),
            ControllerKind::Sobas => Self::Sobas(Box::new(Sobas::new(config))),
        }
    }

    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> State {
        match self {
            Self::Delay(delay) => delay.state(),
            Self::Sobas(sobas) => sobas.state(),
        }
    }

    /// Returns the min RTT; zero before the first sample.
    #[must_use]
    pub fn min_rtt(&self) -> Duration {
        match self {
            Self::Delay(delay) => delay.min_rtt(),
            Self::Sobas(sobas) => sobas.min_rtt(),
        }
    }

    /// Returns the findings about the path.
    #[must_use]
    pub fn path_state(&self) -> PathState {
        match self {
            Self::Delay(delay) => delay.path_state(),
            Self::Sobas(sobas) => sobas.path_state(),
        }
    }

    /// Returns the capacity estimate, unless the transfer was faster: a payload rate.
    #[must_use]
    pub fn line_capacity(&self) -> Option<Rate> {
        match self {
            Self::Delay(delay) => delay.line_capacity(),
            Self::Sobas(sobas) => sobas.line_capacity(),
        }
    }

    /// Sets the capacity estimate: a payload rate.
    pub fn on_capacity(&mut self, now: Duration, rate: Rate) -> Option<Decision> {
        match self {
            Self::Delay(delay) => delay.on_capacity(now, rate),
            Self::Sobas(sobas) => sobas.on_capacity(now, rate),
        }
    }

    /// Returns true if every second tick suffices to sample the streams.
    #[must_use]
    pub fn allows_sparse_sampling(&self) -> bool {
        match self {
            Self::Delay(delay) => delay.allows_sparse_sampling(),
            Self::Sobas(sobas) => sobas.allows_sparse_sampling(),
        }
    }

    /// Records the delays of a probe that are not in an observation.
    ///
    /// `forward` is the delay in the direction of the data, from an arbitrary origin. SOBAS uses
    /// the RTT alone.
    pub fn on_delay_sample(&mut self, now: Duration, rtt: Duration, forward: Option<Duration>) {
        match self {
            Self::Delay(delay) => delay.on_delay_sample(now, rtt, forward),
            Self::Sobas(sobas) => sobas.on_rtt_sample(rtt),
        }
    }

    /// Returns true if all echoes of a tick count, and not only the latest.
    #[must_use]
    pub fn uses_all_echoes(&self) -> bool {
        matches!(self, Self::Delay(_))
    }

    /// Returns true if slow paths are probed less often than at every tick.
    #[must_use]
    pub fn thins_probes(&self) -> bool {
        matches!(self, Self::Delay(_))
    }

    /// Processes an observation; returns a decision if window or pacing rate change.
    pub fn observe(&mut self, latest: &Observation) -> Option<Decision> {
        match self {
            Self::Delay(delay) => delay.observe(latest),
            Self::Sobas(sobas) => sobas.observe(latest),
        }
    }

    /// Enters or leaves a loss-tolerant congestion control, such as BBR.
    ///
    /// SOBAS decides by lost probes and has no use for it; its number of streams is fixed.
    pub fn on_loss_tolerant_cc(
        &mut self,
        now: Duration,
        baseline_loss: Option<LossSample>,
    ) -> Option<Decision> {
        match self {
            Self::Delay(delay) => delay.on_loss_tolerant_cc(now, baseline_loss),
            Self::Sobas(_) => None,
        }
    }

    /// Replaces the user's maximum rate.
    pub fn on_rate_max(&mut self, now: Duration, rate_max: Option<Rate>) -> Decision {
        match self {
            Self::Delay(delay) => delay.on_rate_max(now, rate_max),
            Self::Sobas(sobas) => sobas.on_rate_max(now, rate_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    const MS: Duration = Duration::from_millis(1);

    fn controller(kind: ControllerKind) -> Controller {
        let (capacity_timeout, rate_max, cached_path) = (MS * 600, None, None);
        let window_max = Bytes::mib(1023);
        Controller::new(kind, Config { window_max, capacity_timeout, rate_max, cached_path })
    }

    #[test]
    fn each_kind_starts_at_the_capacity_from_an_rtt() {
        for kind in [ControllerKind::Delay, ControllerKind::Sobas] {
            let mut controller = controller(kind);
            let rtt = Some(MS * 20);
            controller.observe(&Observation { now: MS, rtt, ..Observation::default() });
            controller.on_delay_sample(MS * 20, MS * 18, None);
            assert_eq!((controller.state(), controller.min_rtt()), (State::Probing, MS * 18));
            let decision = controller.on_capacity(MS * 30, Rate::from_bits_per_sec(100e6));
            assert_eq!(decision.map(|decision| decision.state), Some(State::StartBounded));
            assert_eq!(controller.state(), State::StartBounded, "{kind:?}");
        }
        assert_eq!(ControllerKind::default(), ControllerKind::Delay);
    }
}
