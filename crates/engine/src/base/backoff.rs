//! Pauses between attempts: doubling up to a maximum, and random, so that clients do not return
//! together.

use std::time::Duration;

/// Pauses between attempts.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    /// Pauses from `first` to `max`, each shortened at random by up to a half.
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        Self { next: first, max }
    }

    /// Returns the next pause.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        let mut random = [0; 4];
        // Without random bytes, clients may return together.
        let _ = bankfull_sys::random(&mut random);
        let share = f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX);
        pause.mul_f64(1.0 - share / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(200);
    const MAX: Duration = Duration::from_secs(2);

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let mut backoff = Backoff::new(FIRST, MAX);
        for expected in [FIRST, FIRST * 2, FIRST * 4, FIRST * 8, MAX, MAX] {
            let pause = backoff.next_pause();
            assert!((expected / 2..=expected).contains(&pause), "{pause:?} of {expected:?}");
        }
    }

    #[test]
    fn pauses_differ_among_clients() {
        let pause = || Backoff::new(FIRST, MAX).next_pause();
        let first = pause();
        assert!((0..20).any(|_| pause() != first));
    }
}
