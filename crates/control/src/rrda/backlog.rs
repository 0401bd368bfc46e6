//! When what waits to be processed may become more: while processing stands still, and not while it
//! runs. Where whoever takes in is the quicker of the two, as when a processor is what limits, all
//! the room that there is would be full after the first halt, for nothing, and what is processed
//! late has left the processor's caches.
//!
//! What stood when processing went on may be there again for as long as it lasts: so nobody is kept
//! out who is slower than processing, and catches up.

use super::{EPOCH, TREND};
use crate::units::Bytes;
use std::time::Duration;

/// Processing stands still where nothing was done for so long. (ours: a disk that writes 50 MB/s
/// takes as long for a piece of 256 KiB)
const HALTED: Duration = Duration::from_millis(5);

/// What stood last may be more by so much: who takes in and who processes do so by turns. (ours:
/// what a connection has in any case)
const SLACK: Bytes = Bytes(6 * (256 << 10));

/// What stands before one that processes. Times count from any one moment.
#[derive(Debug, Clone)]
pub struct Backlog {
    ceiling: Bytes,
    /// When something was processed last, or came to where nothing stood.
    done: Duration,
    /// In this epoch: when it began, and whether somebody was kept out though processing ran.
    began: Duration,
    is_pressed: bool,
    /// So many epochs before it in a row somebody was.
    pressed: usize,
}

impl Backlog {
    /// Nothing stands there.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self { ceiling: Bytes(0), done: now, began: now, is_pressed: false, pressed: 0 }
    }

    /// Something comes to where nothing stood.
    pub fn on_first(&mut self, now: Duration) {
        self.done = now;
    }

    /// Something was processed; so much beyond what may stand in any case is left.
    pub fn on_done(&mut self, now: Duration, beyond: Bytes) {
        self.advance(now);
        self.done = now;
        self.ceiling = self.ceiling.min(beyond + SLACK);
    }

    /// Whether so much may stand beyond what may in any case.
    pub fn admits(&mut self, now: Duration, beyond: Bytes) -> bool {
        self.advance(now);
        if self.halts_in(now).is_zero() {
            self.ceiling = self.ceiling.max(beyond);
        }
        let admits = beyond <= self.ceiling;
        self.is_pressed |= !admits;
        admits
    }

    /// When processing would stand still, if nothing is done until then.
    #[must_use]
    pub fn halts_in(&self, now: Duration) -> Duration {
        (self.done + HALTED).saturating_sub(now)
    }

    /// Where somebody is kept out for several epochs, processing is the slower one, and less does
    /// as well.
    fn advance(&mut self, now: Duration) {
        let epochs = (now.saturating_sub(self.began).as_nanos() / EPOCH.as_nanos()) as u32;
        if epochs == 0 {
            return;
        }
        self.began += EPOCH * epochs;
        let goes_on = self.is_pressed && epochs == 1;
        self.pressed = if goes_on { self.pressed + 1 } else { 0 };
        self.is_pressed = false;
        if self.pressed >= TREND {
            self.ceiling = Bytes(self.ceiling.0 / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: u64 = 256 << 10;
    /// What stands in any case.
    const OWN: u64 = 6 * PIECE;

    /// A network and a disk, in steps of a tenth of a millisecond.
    struct Run {
        backlog: Backlog,
        stands: u64,
        /// Since the last count.
        kept_out: u32,
        starved: u32,
        most: u64,
    }

    impl Run {
        fn new() -> Self {
            let backlog = Backlog::new(Duration::ZERO);
            Self { backlog, stands: 0, kept_out: 0, starved: 0, most: 0 }
        }

        /// Bytes that come and are done in each step; counts anew.
        fn run(&mut self, steps: std::ops::Range<u64>, comes: u64, goes: impl Fn(u64) -> u64) {
            (self.kept_out, self.starved, self.most) = (0, 0, 0);
            let (mut came, mut done) = (0, 0);
            for step in steps {
                let now = Duration::from_micros(100) * step as u32;
                came = (came + comes).min(4 * PIECE);
                while came >= PIECE {
                    let after = self.stands + PIECE;
                    let beyond = after.saturating_sub(OWN);
                    if beyond > 0 && !self.backlog.admits(now, Bytes(beyond)) {
                        self.kept_out += 1;
                        break;
                    }
                    if self.stands == 0 {
                        self.backlog.on_first(now);
                    }
                    (self.stands, came) = (after, came - PIECE);
                }
                self.most = self.most.max(self.stands);
                done = (done + goes(step)).min(PIECE);
                if goes(step) > 0 && self.stands == 0 {
                    self.starved += 1;
                } else if done == PIECE && self.stands > 0 {
                    (self.stands, done) = (self.stands - PIECE, 0);
                    self.backlog.on_done(now, Bytes(self.stands.saturating_sub(OWN)));
                }
            }
        }
    }

    /// 1 Gbit/s.
    const PATH: u64 = 12_500;
    const SECOND: u64 = 10_000;

    /// Nothing is done in the first half second of three.
    fn stalling(rate: u64) -> impl Fn(u64) -> u64 {
        move |step| if step % (3 * SECOND) < SECOND / 2 { 0 } else { rate }
    }

    #[test]
    fn what_is_slower_all_the_time_has_no_more_than_in_any_case() {
        let mut run = Run::new();
        run.run(0..3 * SECOND, 2 * PATH, |_| PATH);
        assert_eq!((run.most, run.starved < 100), (OWN, true), "{}", run.starved);
    }

    #[test]
    fn a_halt_has_room_and_what_takes_in_faster_afterwards_gives_it_back() {
        let mut run = Run::new();
        // 200 ms; then as quick as before, and slower than what comes.
        run.run(0..SECOND, 4 * PATH, |step| if step < SECOND / 5 { 0 } else { 3 * PATH });
        assert!(run.most > 4 * PATH * SECOND / 6, "{}", run.most);
        run.run(SECOND..4 * SECOND, 4 * PATH, |_| 3 * PATH);
        assert_eq!(run.starved, 0, "less has cost nothing");
        run.run(4 * SECOND..5 * SECOND, 4 * PATH, |_| 3 * PATH);
        assert!(run.most <= OWN + PIECE, "{}", run.most);
    }

    #[test]
    fn what_catches_up_after_a_halt_keeps_nobody_out() {
        for disk in [2 * PATH, PATH * 5 / 4, PATH * 11 / 10] {
            let mut run = Run::new();
            run.run(0..30 * SECOND, PATH, stalling(disk));
            // The first five milliseconds of each halt may be.
            assert!(run.kept_out < 10 * 60, "{disk}: {}", run.kept_out);
        }
    }
}
