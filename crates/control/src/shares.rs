//! How a rate, and the window that goes with it, is shared among connections: by what each makes of
//! its share. One that repairs a loss, or has little to carry, leaves the rest to the others, so
//! that all together take what they may.
//!
//! What it does not do: set anything, or decide how much there is to share.

use crate::pacing::WINDOW_MIN;
use crate::units::{Bytes, Rate};
use std::collections::BTreeMap;
use std::time::Duration;

/// Who takes so much of its share would take more. (ours: a segment more or less in a stretch)
const TAKEN: f64 = 0.97;

/// Who takes less keeps this multiple of it. (ours: more than TCP grows by in a stretch, and so
/// little that hardly anything is left lying between this and what counts as taken)
const ROOM: f64 = 1.06;

/// And this part of an equal share at least. (ours: it may begin anew at any time)
const LEAST: f64 = 0.25;

/// What each connection has of a whole.
#[derive(Debug, Clone, Default)]
pub struct Shares {
    parts: BTreeMap<u32, Part>,
    /// When the stretch began over which it is seen what each carries.
    since: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    /// Bytes carried when the stretch began, and now.
    before: u64,
    now: u64,
    /// What it has; `None` while it carries nothing.
    share: Option<f64>,
}

impl Part {
    /// Bytes of this stretch.
    fn carried(&self) -> u64 {
        self.now.saturating_sub(self.before)
    }

    fn is_active(&self) -> bool {
        self.share.is_some() || self.carried() > 0
    }
}

impl Shares {
    /// Takes how many bytes each connection that there is has carried so far; what it had before it
    /// was seen first is its handshake. At the end of a stretch the shares of `rate` follow;
    /// without a rate they are equal.
    pub fn look(
        &mut self,
        now: Duration,
        stretch: Duration,
        rate: Option<Rate>,
        carried: &[(u32, u64)],
    ) {
        let seen = |&(number, bytes): &(u32, u64)| {
            let new = Part { before: bytes, now: bytes, share: None };
            let part = self.parts.get(&number).copied().unwrap_or(new);
            (number, Part { now: bytes, ..part })
        };
        self.parts = carried.iter().map(seen).collect();
        let took = now.saturating_sub(self.since);
        if took >= stretch {
            self.since = now;
            self.follow(rate.map_or(0.0, |rate| rate.bytes_per_sec() as f64 * took.as_secs_f64()));
        }
    }

    /// How many carry data; all of them where none does.
    #[must_use]
    pub fn count(&self) -> u32 {
        let active = self.parts.values().filter(|part| part.is_active()).count();
        if active > 0 { active as u32 } else { self.parts.len() as u32 }
    }

    /// What a connection has of the whole. One that carries nothing may have as much as the others
    /// on the average when it begins, and then all have less.
    #[must_use]
    pub fn of(&self, number: u32) -> f64 {
        let equal = 1.0 / f64::from(self.count().max(1));
        let has = |part: &Part| part.share.unwrap_or(equal);
        let active = self.parts.values().filter(|part| part.is_active());
        let whole: f64 = active.map(has).sum();
        let own = self.parts.get(&number).map_or(equal, has);
        if whole > 0.0 { own / whole } else { own }
    }

    /// What a connection has of a rate.
    #[must_use]
    pub fn rate(&self, number: u32, rate: Rate) -> Rate {
        Rate::from_bits_per_sec(rate.bits_per_sec() as f64 * self.of(number))
    }

    /// What a connection has of a window.
    #[must_use]
    pub fn window(&self, number: u32, window: Bytes) -> Bytes {
        Bytes((window.0 as f64 * self.of(number)) as u64).max(WINDOW_MIN)
    }

    /// Where all together take less than they may, nobody is held by what it took: all have equal
    /// parts of the rest.
    fn follow_loosely(&mut self, could: f64) -> bool {
        let wants = |part: &Part| part.carried() as f64 / could * ROOM;
        let active = self.parts.values().filter(|part| part.carried() > 0);
        let (count, wanted) = active.fold((0, 0.0), |(n, sum), part| (n + 1, sum + wants(part)));
        if could <= 0.0 || count == 0 || wanted >= 1.0 {
            return false;
        }
        let rest = (1.0 - wanted) / f64::from(count);
        for part in self.parts.values_mut() {
            part.share = (part.carried() > 0).then(|| wants(part) + rest);
            part.before = part.now;
        }
        true
    }

    /// The shares follow what was carried, of what could be in all.
    fn follow(&mut self, could: f64) {
        if self.follow_loosely(could) {
            return;
        }
        let equal = 1.0 / f64::from(self.count().max(1));
        let mut wants = BTreeMap::new();
        for (&number, part) in self.parts.iter().filter(|(_, part)| part.carried() > 0) {
            let has = part.share.unwrap_or(equal);
            let taken = if could > 0.0 { part.carried() as f64 / could } else { 1.0 };
            let wanted = (taken * ROOM).min(has).max(equal * LEAST);
            wants.insert(number, (taken < has * TAKEN).then_some(wanted));
        }
        let kept: f64 = wants.values().flatten().sum();
        let open = wants.values().filter(|wanted| wanted.is_none()).count();
        // What is left goes to those that would take more, or, if none would, to all.
        let among = if open > 0 { open } else { wants.len() };
        let rest = (1.0 - kept).max(0.0) / among.max(1) as f64;
        for (number, part) in &mut self.parts {
            part.before = part.now;
            part.share = wants.get(number).map(|wanted| match wanted {
                Some(wanted) if open > 0 => *wanted,
                Some(wanted) => wanted + rest,
                None => rest.max(equal * LEAST),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRETCH: Duration = Duration::from_millis(100);

    /// Connections over a path that carries 1 MB in a stretch.
    #[derive(Default)]
    struct Connections {
        shares: Shares,
        now: Duration,
        carried: Vec<u64>,
    }

    impl Connections {
        /// A stretch in which each takes no more of the rate than so much.
        fn pass(&mut self, could_take: &[f64]) {
            self.carried.resize(could_take.len(), 0);
            let all = |carried: &[u64]| -> Vec<(u32, u64)> {
                (0..).zip(carried.iter().copied()).collect()
            };
            if self.now.is_zero() {
                self.shares.look(self.now, STRETCH, None, &all(&self.carried));
            }
            for (number, could) in could_take.iter().enumerate() {
                let takes = could.min(self.shares.of(number as u32));
                self.carried[number] += (takes * 1e6) as u64;
            }
            self.now += STRETCH;
            let rate = Rate::from_bytes_per_sec(10_000_000);
            self.shares.look(self.now, STRETCH, Some(rate), &all(&self.carried));
        }

        fn all(&self) -> Vec<f64> {
            let of = |number| (self.shares.of(number) * 1000.0).round() / 1000.0;
            (0..self.carried.len() as u32).map(of).collect()
        }
    }

    #[test]
    fn connections_that_take_all_they_may_have_equal_shares() {
        let mut four = Connections::default();
        (0..5).for_each(|_| four.pass(&[1.0; 4]));
        assert_eq!((four.all(), four.shares.count()), (vec![0.25; 4], 4));
        let window = four.shares.window(0, Bytes(1_000_000));
        assert_eq!((window, four.shares.window(0, Bytes(4_000))), (Bytes(250_000), Bytes(2_896)));
    }

    #[test]
    fn what_one_leaves_the_others_take_until_it_takes_more_itself() {
        let mut four = Connections::default();
        (0..3).for_each(|_| four.pass(&[0.1, 1.0, 1.0, 1.0]));
        assert_eq!(four.all(), [0.106, 0.298, 0.298, 0.298]);
        // It recovers, step by step, and then all are equal again.
        four.pass(&[0.12, 1.0, 1.0, 1.0]);
        assert!(four.all()[0] > 0.2, "{:?}", four.all());
        (0..3).for_each(|_| four.pass(&[1.0; 4]));
        assert_eq!(four.all(), [0.25; 4]);
    }

    #[test]
    fn where_none_takes_its_share_none_is_held_below_what_it_takes() {
        let mut two = Connections::default();
        for _ in 0..4 {
            two.pass(&[0.1, 0.3]);
            let all = two.all();
            assert!(
                all[0] > 0.2 && all[1] > 0.5 && (all[0] + all[1] - 1.0).abs() < 0.01,
                "{all:?}"
            );
        }
    }

    #[test]
    fn connections_that_carry_nothing_have_no_part_and_begin_with_an_equal_one() {
        let mut three = Connections::default();
        three.pass(&[1.0; 3]);
        (0..2).for_each(|_| three.pass(&[1.0, 0.0, 0.0]));
        assert_eq!((three.all()[0], three.shares.count()), (1.0, 1));
        // As soon as one begins, the other has less.
        three.carried[1] += 1;
        let carried: Vec<(u32, u64)> = (0..).zip(three.carried.iter().copied()).collect();
        three.shares.look(three.now, STRETCH, None, &carried);
        assert_eq!((three.shares.count(), three.all()[..2].iter().sum()), (2, 1.0));
        // One that is gone is forgotten, and where all are silent all may begin.
        three.shares.look(three.now + STRETCH, STRETCH, None, &carried[..2]);
        three.shares.look(three.now + STRETCH * 2, STRETCH, None, &carried[..2]);
        assert_eq!((three.shares.count(), three.all()[0]), (2, 0.5));
        assert_eq!(Shares::default().of(7), 1.0);
    }
}
