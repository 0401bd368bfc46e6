//! How much more is allowed at a time, while more comes: small steps first, then larger ones, and
//! smaller ones again where a large one was too much.

/// So much more is allowed in a step of four round trips. (ours: with the headroom it fits in a
/// buffer of 0.1 round trips; the S/64 in each round trip of the design is 6 %)
const STEP: f64 = 0.03;

/// The step doubles with each success, up to this. [algorithms: 25 %; ours: less is lost where the
/// path is full in between]
const STEP_MAX: f64 = 0.12;

/// Where a large step was too much, so many smaller ones have to succeed before larger ones
/// are taken again. (ours: the path may carry much more since)
const AT_MOST: u32 = 3;

/// So often more than the trains told has to come before they are no longer believed. (ours)
const BEYOND_MAX: u32 = 2;

/// The steps of a controller, as shares of the rate.
#[derive(Debug, Clone)]
pub(super) struct Steps {
    next: f64,
    taken: f64,
    most: f64,
    /// How many in a row were as large as they may be.
    at_most: u32,
    /// How often in a row more came than the trains told.
    beyond: u32,
}

impl Default for Steps {
    fn default() -> Self {
        Self { next: STEP, taken: STEP, most: STEP_MAX, at_most: 0, beyond: 0 }
    }
}

impl Steps {
    /// The last one.
    pub(super) fn taken(&self) -> f64 {
        self.taken
    }

    /// The one that would be taken next.
    pub(super) fn next(&self) -> f64 {
        self.next
    }

    /// More came than the trains told, or not. Whether they are not to be believed any more.
    pub(super) fn refutes(&mut self, is_beyond: bool) -> bool {
        self.beyond = if is_beyond { self.beyond + 1 } else { 0 };
        self.beyond > BEYOND_MAX
    }

    /// Takes the next one; a small one near what the line is known to carry, for there is hardly
    /// more.
    pub(super) fn take(&mut self, is_near: bool) -> f64 {
        self.at_most = if self.next >= self.most { self.at_most + 1 } else { 0 };
        if self.at_most > AT_MOST {
            (self.most, self.at_most) = ((self.most * 2.0).min(STEP_MAX), 0);
        }
        self.taken = if is_near { STEP } else { self.next };
        self.next = if is_near { STEP } else { (self.next * 2.0).min(self.most) };
        self.taken
    }

    /// The last one was too much. Whether the path is full within a small step; else it is
    /// somewhere in a large one, and those that follow are smaller.
    pub(super) fn end(&mut self) -> bool {
        let is_found = self.taken <= STEP;
        self.most = if is_found { STEP_MAX } else { (self.taken / 2.0).max(STEP) };
        is_found
    }

    /// The next one is a small one again.
    pub(super) fn rewind(&mut self) {
        (self.next, self.at_most) = (STEP, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_double_while_they_succeed_and_close_in_where_one_was_too_much() {
        let mut steps = Steps::default();
        let taken: Vec<f64> = (0..4).map(|_| steps.take(false)).collect();
        assert_eq!(taken, [0.03, 0.06, 0.12, 0.12]);
        assert!(!steps.end());
        steps.rewind();
        let taken: Vec<f64> = (0..3).map(|_| steps.take(false)).collect();
        assert_eq!(taken, [0.03, 0.06, 0.06]);
        steps.rewind();
        steps.take(false);
        assert!(steps.end(), "within 3 %");
    }

    #[test]
    fn small_steps_that_go_on_to_succeed_become_large_again() {
        let mut steps = Steps::default();
        steps.take(false);
        steps.take(false);
        assert!(!steps.end());
        steps.rewind();
        let taken: Vec<f64> = (0..9).map(|_| steps.take(false)).collect();
        assert_eq!(taken, [0.03, 0.03, 0.03, 0.03, 0.06, 0.06, 0.06, 0.06, 0.12]);
    }

    #[test]
    fn near_the_line_they_are_small_and_trains_are_refuted_by_the_third_in_a_row() {
        let mut steps = Steps::default();
        assert_eq!([steps.take(true), steps.take(true)], [0.03, 0.03]);
        let found = [true, true, false, true, true, true].map(|beyond| steps.refutes(beyond));
        assert_eq!(found, [false, false, false, false, false, true]);
    }
}
