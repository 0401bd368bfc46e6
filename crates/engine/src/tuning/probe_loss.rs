//! Probe loss from the numbers of the echoes, which may arrive reordered or duplicated.

/// Distance in numbers after which a missing echo counts as lost. (RFC 5681 §3.2: three duplicate
/// ACKs mean loss, fewer may be reordering)
const REORDERING_THRESHOLD: u64 = 3;

/// Length of the echo history in probes, one bit each.
const ECHO_HISTORY_LEN: u64 = u64::BITS as u64;

/// Counts lost probes. Probe numbers start at zero and rise by one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProbeLoss {
    /// Highest echoed number plus one.
    next: u64,
    /// Echo history: bit n is set if the echo of `next` - 1 - n arrived.
    received: u64,
    lost: u64,
}

impl ProbeLoss {
    /// Records the echo of a probe; returns false for a duplicate, or one that is too late to tell.
    pub(crate) fn on_echo(&mut self, number: u64) -> bool {
        let jump = number.saturating_add(1).saturating_sub(self.next);
        for _ in 0..jump.min(ECHO_HISTORY_LEN) {
            self.received <<= 1;
            self.next += 1;
            let is_missing = self.received >> REORDERING_THRESHOLD & 1 == 0;
            self.lost += u64::from(self.next > REORDERING_THRESHOLD && is_missing);
        }
        let rest = jump.saturating_sub(ECHO_HISTORY_LEN);
        self.next += rest;
        self.lost += rest;
        let back = (self.next - 1).saturating_sub(number);
        if back >= ECHO_HISTORY_LEN {
            return false;
        }
        let is_new = self.received >> back & 1 == 0;
        self.received |= 1 << back;
        is_new
    }

    /// Returns the number of probes sent up to the highest echo.
    pub(crate) fn sent(&self) -> u64 {
        self.next
    }

    /// Returns the number of lost probes.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(numbers: &[u64]) -> (u64, u64) {
        let mut probe_loss = ProbeLoss::default();
        for &number in numbers {
            probe_loss.on_echo(number);
        }
        (probe_loss.sent(), probe_loss.lost())
    }

    #[test]
    fn probe_loss_counts_missing_echoes() {
        assert_eq!(after(&[]), (0, 0));
        assert_eq!(after(&[0, 1, 2, 3, 4]), (5, 0));
        assert_eq!(after(&[0, 2, 3]), (4, 0), "may be reordered");
        assert_eq!(after(&[0, 2, 3, 4]), (5, 1));
        assert_eq!(after(&[3]), (4, 1), "the first was lost");
        assert_eq!(after(&[0, 100]), (101, 97));
        assert_eq!(after(&[0, 100, 101, 102, 103, 104]), (105, 99));
    }

    #[test]
    fn probe_loss_ignores_reordering_and_duplicates() {
        assert_eq!(after(&[0, 2, 1, 3, 5, 4, 6, 7, 8]), (9, 0));
        assert_eq!(after(&[0, 0, 0, 2, 2, 3, 4, 5, 5]), (6, 1));
        assert_eq!(after(&[0, 1, 2, 0, 7, 1, 2]), (8, 2));
    }

    #[test]
    fn only_the_first_echo_of_a_probe_counts() {
        let mut probe_loss = ProbeLoss::default();
        let is_new = [0, 0, 2, 1, 2, 1, 100, 36, 37, 37].map(|number| probe_loss.on_echo(number));
        let expected = [true, false, true, true, false, false, true, false, true, false];
        assert_eq!(is_new, expected);
    }

    #[test]
    fn probe_loss_highest_number_does_not_overflow() {
        assert_eq!(after(&[u64::MAX]).0, u64::MAX);
        assert_eq!(after(&[u64::MAX, 0, u64::MAX]).0, u64::MAX);
    }
}
