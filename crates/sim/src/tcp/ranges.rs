//! Sets of byte ranges: missing data and out-of-order data.
//!
//! Ranges are nearly always added or removed at the ends, so a sorted deque is sufficient.

use std::collections::VecDeque;

/// Disjoint, non-adjacent ranges in ascending order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges {
    ranges: VecDeque<(u64, u64)>,
}

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Adds `start..end`, which may overlap existing ranges; returns the number of new bytes.
    pub(crate) fn insert(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let from = self.ranges.partition_point(|range| range.1 < start);
        let to = self.ranges.partition_point(|range| range.0 <= end);
        if from == to {
            self.ranges.insert(from, (start, end));
            return end - start;
        }
        let merged = (start.min(self.ranges[from].0), end.max(self.ranges[to - 1].1));
        let existing: u64 = self.ranges.range(from..to).map(|range| range.1 - range.0).sum();
        self.ranges[from] = merged;
        self.ranges.drain(from + 1..to);
        merged.1 - merged.0 - existing
    }

    /// Removes `start..end`, of which any part may be missing.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        let from = self.ranges.partition_point(|range| range.1 <= start);
        let to = self.ranges.partition_point(|range| range.0 < end);
        if start >= end || from >= to {
            return;
        }
        let before = (self.ranges[from].0, start);
        let after = (end, self.ranges[to - 1].1);
        self.ranges.drain(from..to);
        for rest in [after, before] {
            if rest.0 < rest.1 {
                self.ranges.insert(from, rest);
            }
        }
    }

    /// Returns whether all of `start..end` is contained.
    pub(crate) fn contains(&self, start: u64, end: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.1 <= start);
        self.ranges.get(at).is_some_and(|range| range.0 <= start && end <= range.1)
    }

    /// Removes everything below `at`.
    pub(crate) fn trim_below(&mut self, at: u64) {
        while let Some(first) = self.ranges.front_mut() {
            if first.0 >= at {
                return;
            }
            if first.1 > at {
                first.0 = at;
                return;
            }
            self.ranges.pop_front();
        }
    }

    /// Removes the first range if it starts at or below `at`; returns its end.
    pub(crate) fn take_reaching(&mut self, at: u64) -> Option<u64> {
        if self.ranges.front()?.0 > at {
            return None;
        }
        Some(self.ranges.pop_front()?.1)
    }

    /// Removes and returns the lowest range, or its first `most` bytes if it is longer.
    pub(crate) fn take_first(&mut self, most: u64) -> Option<(u64, u64)> {
        let first = self.ranges.front_mut()?;
        let (start, end) = *first;
        if end - start > most {
            first.0 = start + most;
            return Some((start, start + most));
        }
        self.ranges.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_equal_a_set_of_numbers() {
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..200 {
            let mut ranges = Ranges::default();
            let mut numbers = std::collections::BTreeSet::new();
            for _ in 0..30 {
                let (start, len) = (rng.u64(0..60), rng.u64(0..8));
                let before = numbers.len();
                numbers.extend(start..start + len);
                let added = ranges.insert(start, start + len);
                assert_eq!(added as usize, numbers.len() - before);
                if rng.u8(0..6) == 0 {
                    let at = rng.u64(0..20);
                    ranges.trim_below(at);
                    numbers.retain(|&n| n >= at);
                }
                if rng.u8(0..4) == 0 {
                    let (start, len) = (rng.u64(0..60), rng.u64(0..20));
                    ranges.remove(start, start + len);
                    numbers.retain(|&n| n < start || n >= start + len);
                    assert!(len == 0 || !ranges.contains(start, start + len));
                }
            }
            let found: Vec<u64> = ranges.ranges.iter().flat_map(|&(s, e)| s..e).collect();
            assert_eq!(found, numbers.iter().copied().collect::<Vec<_>>());
            let gaps = ranges.ranges.make_contiguous().windows(2).all(|w| w[0].1 < w[1].0);
            assert!(gaps, "neighbours are merged");
        }
    }

    #[test]
    fn first_range_is_taken_in_parts() {
        let mut ranges = Ranges::default();
        ranges.insert(20, 22);
        ranges.insert(5, 10);
        assert_eq!(ranges.take_first(3), Some((5, 8)));
        assert_eq!(ranges.take_first(3), Some((8, 10)));
        assert_eq!(ranges.take_reaching(19), None);
        assert_eq!(ranges.take_reaching(21), Some(22));
        assert!(ranges.is_empty() && ranges.take_first(1).is_none());
    }
}
