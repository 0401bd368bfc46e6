//! Which of the answers to probes came, and which were lost on their way. They may come in another
//! order, and twice.

/// An answer is lost when one came that was sent so many later. (RFC 5681 §3.2: three duplicates
/// tell a loss, fewer another order)
const LATER: u64 = 3;

/// The latest numbers that are remembered, one bit each.
const REMEMBERED: u64 = u64::BITS as u64;

/// Counts answers by their numbers, which rise by one with each from zero on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Echoes {
    /// The number after the highest that came.
    next: u64,
    /// Which of the latest came: bit n is of `next` - 1 - n.
    came: u64,
    lost: u64,
}

impl Echoes {
    /// The answer of this number has come.
    pub(super) fn take(&mut self, number: u64) {
        let jump = number.saturating_add(1).saturating_sub(self.next);
        for _ in 0..jump.min(REMEMBERED) {
            self.came <<= 1;
            self.next += 1;
            let is_missing = self.came >> LATER & 1 == 0;
            self.lost += u64::from(self.next > LATER && is_missing);
        }
        let rest = jump.saturating_sub(REMEMBERED);
        self.next += rest;
        self.lost += rest;
        let back = (self.next - 1).saturating_sub(number);
        if back < REMEMBERED {
            self.came |= 1 << back;
        }
    }

    /// How many were sent, as far as is known: whether they came or not.
    pub(super) fn count(&self) -> u64 {
        self.next
    }

    /// How many were lost.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(numbers: &[u64]) -> (u64, u64) {
        let mut echoes = Echoes::default();
        numbers.iter().for_each(|&number| echoes.take(number));
        (echoes.count(), echoes.lost())
    }

    #[test]
    fn those_that_never_come_are_lost() {
        assert_eq!(after(&[]), (0, 0));
        assert_eq!(after(&[0, 1, 2, 3, 4]), (5, 0));
        assert_eq!(after(&[0, 2, 3]), (4, 0), "it may still come");
        assert_eq!(after(&[0, 2, 3, 4]), (5, 1));
        assert_eq!(after(&[3]), (4, 1), "the first was lost");
        assert_eq!(after(&[0, 100]), (101, 97));
        assert_eq!(after(&[0, 100, 101, 102, 103, 104]), (105, 99));
    }

    #[test]
    fn another_order_is_no_loss_and_what_comes_twice_hides_none() {
        assert_eq!(after(&[0, 2, 1, 3, 5, 4, 6, 7, 8]), (9, 0));
        assert_eq!(after(&[0, 0, 0, 2, 2, 3, 4, 5, 5]), (6, 1));
        assert_eq!(after(&[0, 1, 2, 0, 7, 1, 2]), (8, 2));
    }

    #[test]
    fn no_number_is_too_high() {
        assert_eq!(after(&[u64::MAX]).0, u64::MAX);
        assert_eq!(after(&[u64::MAX, 0, u64::MAX]).0, u64::MAX);
    }
}
