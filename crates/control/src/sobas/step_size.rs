//! Step sizes of a growing target: small at first, larger after successes, smaller after a step
//! that was too large.

/// Smallest step per four RTTs, as a share of the rate. (chosen: with the window's headroom it fits
/// in a buffer of 0.1 RTT)
const MIN_STEP: f64 = 0.03;

/// Largest step; steps double with each success up to it. (chosen: less is lost if the path fills
/// up in between)
const MAX_STEP: f64 = 0.12;

/// Successful steps at a reduced maximum before that doubles again. (chosen: the path may carry
/// much more by then)
const STEPS_BEFORE_LARGER: u32 = 3;

/// Rates above the capacity in a row that do not refute it yet. (chosen: by trial)
const MAX_RATES_ABOVE_CAPACITY: u32 = 2;

/// The step size of a controller, as a share of the rate.
#[derive(Debug, Clone)]
pub(super) struct StepSize {
    next: f64,
    last: f64,
    max: f64,
    /// Steps in a row of the maximum size.
    steps_at_max: u32,
    /// Rates in a row above the capacity.
    rates_above_capacity: u32,
}

impl Default for StepSize {
    fn default() -> Self {
        Self {
            next: MIN_STEP,
            last: MIN_STEP,
            max: MAX_STEP,
            steps_at_max: 0,
            rates_above_capacity: 0,
        }
    }
}

impl StepSize {
    /// Returns the last step.
    pub(super) fn last(&self) -> f64 {
        self.last
    }

    /// Returns the next step.
    pub(super) fn next(&self) -> f64 {
        self.next
    }

    /// Records a rate above or below the capacity; returns true if the capacity is refuted.
    pub(super) fn refutes_capacity(&mut self, is_above_capacity: bool) -> bool {
        self.rates_above_capacity =
            if is_above_capacity { self.rates_above_capacity + 1 } else { 0 };
        self.rates_above_capacity > MAX_RATES_ABOVE_CAPACITY
    }

    /// Takes the next step and returns it; a small one near the capacity, as there is hardly more.
    pub(super) fn advance(&mut self, is_near_capacity: bool) -> f64 {
        self.steps_at_max = if self.next >= self.max { self.steps_at_max + 1 } else { 0 };
        if self.steps_at_max > STEPS_BEFORE_LARGER {
            (self.max, self.steps_at_max) = ((self.max * 2.0).min(MAX_STEP), 0);
        }
        self.last = if is_near_capacity { MIN_STEP } else { self.next };
        self.next = if is_near_capacity { MIN_STEP } else { (self.next * 2.0).min(self.max) };
        self.last
    }

    /// Records a step without gain; returns true if it was a small one, so the path is full.
    ///
    /// Otherwise the limit is somewhere within the step, and the following steps are smaller.
    pub(super) fn on_no_gain(&mut self) -> bool {
        let is_found = self.last <= MIN_STEP;
        self.max = if is_found { MAX_STEP } else { (self.last / 2.0).max(MIN_STEP) };
        is_found
    }

    /// Restarts with a small step.
    pub(super) fn reset(&mut self) {
        (self.next, self.steps_at_max) = (MIN_STEP, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_double_on_success_and_halve_on_failure() {
        let mut steps = StepSize::default();
        let advanced: Vec<f64> = (0..4).map(|_| steps.advance(false)).collect();
        assert_eq!(advanced, [0.03, 0.06, 0.12, 0.12]);
        assert!(!steps.on_no_gain());
        steps.reset();
        let advanced: Vec<f64> = (0..3).map(|_| steps.advance(false)).collect();
        assert_eq!(advanced, [0.03, 0.06, 0.06]);
        steps.reset();
        steps.advance(false);
        assert!(steps.on_no_gain(), "within 3 %");
    }

    #[test]
    fn steps_small_successes_restore_large_steps() {
        let mut steps = StepSize::default();
        steps.advance(false);
        steps.advance(false);
        assert!(!steps.on_no_gain());
        steps.reset();
        let advanced: Vec<f64> = (0..9).map(|_| steps.advance(false)).collect();
        assert_eq!(advanced, [0.03, 0.03, 0.03, 0.03, 0.06, 0.06, 0.06, 0.06, 0.12]);
    }

    #[test]
    fn steps_third_rate_above_capacity_refutes_it() {
        let mut steps = StepSize::default();
        assert_eq!([steps.advance(true), steps.advance(true)], [0.03, 0.03]);
        let found = [true, true, false, true, true, true]
            .map(|rates_above_capacity| steps.refutes_capacity(rates_above_capacity));
        assert_eq!(found, [false, false, false, false, false, true]);
    }
}
