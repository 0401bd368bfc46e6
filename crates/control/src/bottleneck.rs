//! The current bottleneck of a transfer: the path, the sending application or the receiving one.
//!
//! Controllers use it to distinguish a slow disk from a full path. Both sides sample their sockets
//! at equal intervals; [`LimitSamples`] counts the limited ones. [`crate::StageMeter`] gives the
//! same answer for a completed transfer.

/// Socket samples of one side over some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitSamples {
    /// All samples.
    pub count: u64,
    /// App-limited samples (sender: nothing left to send) or receiver-limited samples (receiver:
    /// more unread data than half of its window).
    pub limited: u64,
}

impl LimitSamples {
    /// Adds one sample.
    pub fn add(&mut self, is_limited: bool) {
        self.count += 1;
        self.limited += u64::from(is_limited);
    }

    /// Returns the samples taken since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            limited: self.limited.saturating_sub(earlier.limited),
        }
    }

    /// Returns the share of limited samples, 0 to 1; 0 without samples.
    #[must_use]
    pub fn share(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.limited as f64 / self.count as f64 }
    }
}

/// The stage that limits the transfer now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Bottleneck {
    /// The path, or the window and pacing rate set for it.
    #[default]
    Path,
    /// The sending application: reading, hashing, encrypting, or nothing to send.
    Sender,
    /// The receiving application: decrypting, hashing, writing.
    Receiver,
}

/// Minimum share of limited samples that makes a side the bottleneck. (chosen: one in five may
/// occur by chance between two blocks; one in two would be detected too late)
const MIN_LIMITED_SHARE: f64 = 0.25;

/// Returns the bottleneck, from the samples of both sides.
///
/// The receiver takes precedence: if it does not read, the sender's buffer fills and never empties.
#[must_use]
pub fn bottleneck(sender: LimitSamples, receiver: LimitSamples) -> Bottleneck {
    if receiver.share() >= MIN_LIMITED_SHARE {
        Bottleneck::Receiver
    } else if sender.share() >= MIN_LIMITED_SHARE {
        Bottleneck::Sender
    } else {
        Bottleneck::Path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(count: u64, limited: u64) -> LimitSamples {
        LimitSamples { count, limited }
    }

    #[test]
    fn bottleneck_names_the_limiting_side() {
        assert_eq!(bottleneck(samples(100, 3), samples(100, 2)), Bottleneck::Path);
        assert_eq!(bottleneck(samples(100, 60), samples(100, 2)), Bottleneck::Sender);
        // One in five may occur by chance between two blocks; one in three does not.
        assert_eq!(bottleneck(samples(100, 20), samples(100, 20)), Bottleneck::Path);
        assert_eq!(bottleneck(samples(100, 33), samples(100, 20)), Bottleneck::Sender);
        assert_eq!(bottleneck(samples(100, 33), samples(100, 33)), Bottleneck::Receiver);
        assert_eq!(bottleneck(samples(100, 3), samples(100, 90)), Bottleneck::Receiver);
        assert_eq!(bottleneck(samples(100, 60), samples(100, 90)), Bottleneck::Receiver);
        assert_eq!(bottleneck(LimitSamples::default(), LimitSamples::default()), Bottleneck::Path);
    }

    #[test]
    fn samples_since_counts_only_new_ones() {
        let mut all = samples(10, 10);
        let then = all;
        (0..8).for_each(|n| all.add(n % 2 == 0));
        assert_eq!(all.since(then), samples(8, 4));
    }
}
