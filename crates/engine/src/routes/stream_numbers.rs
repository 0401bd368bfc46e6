//! Numbers of the data streams of a session, each of which joins once.

use std::collections::BTreeSet;

/// Numbers of data streams beyond the lowest one that has not joined. (chosen: those of connections
/// that were given up; a replayed request has a lower one)
const STREAM_WINDOW: u64 = 1024;

/// Numbers of the streams that have joined a session: a replayed request repeats one of them.
#[derive(Debug, Default)]
pub(crate) struct StreamNumbers {
    /// Every number below has been used, or is too old to be.
    floor: u64,
    /// Numbers from `floor` on, within [`STREAM_WINDOW`].
    used: BTreeSet<u64>,
}

impl StreamNumbers {
    /// True if a stream of this number may join.
    pub(crate) fn is_new(&self, number: u32) -> bool {
        let number = u64::from(number);
        number >= self.floor && !self.used.contains(&number)
    }

    /// Records a number. Those far below it count as used, so that memory is bounded.
    pub(crate) fn insert(&mut self, number: u32) {
        let number = u64::from(number);
        self.used.insert(number);
        self.floor = self.floor.max(number.saturating_sub(STREAM_WINDOW));
        self.used = self.used.split_off(&self.floor);
        while self.used.remove(&self.floor) {
            self.floor += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_joins_once_in_bounded_memory() {
        let mut numbers = StreamNumbers::default();
        // As of a session of weeks: streams are replaced, and some connections given up.
        for number in (0..200_000).filter(|number| number % 7 != 3) {
            assert!(numbers.is_new(number));
            numbers.insert(number);
            assert!(!numbers.is_new(number));
            assert!(numbers.used.len() <= STREAM_WINDOW as usize + 1);
        }
        assert!(numbers.is_new(199_993) && !numbers.is_new(3) && !numbers.is_new(0));
        numbers.insert(u32::MAX);
        assert!(!numbers.is_new(u32::MAX) && numbers.is_new(u32::MAX - 1));
        assert_eq!(numbers.used.len(), 1);
    }
}
