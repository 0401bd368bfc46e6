//! Who holds a transfer up right now: the path, the source that has nothing to send, or the
//! receiver that does not come to read. It keeps a slow disk from looking like a full path.
//!
//! Both sides look at their sockets at equal distances; this counts what they saw. The stage meter
//! ([`crate::StageMeter`]) tells the same of a whole transfer, when it is over.

/// Looks at sockets, over some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Looks {
    /// How often a socket was looked at.
    pub count: u64,
    /// How often it had what it should not: at the sender nothing left to send, at the receiver
    /// more unread than half of its window.
    pub held: u64,
}

impl Looks {
    /// Counts one.
    pub fn add(&mut self, is_held: bool) {
        self.count += 1;
        self.held += u64::from(is_held);
    }

    /// Those since an earlier count.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            held: self.held.saturating_sub(earlier.held),
        }
    }

    /// The share of them that had what it should not, 0 to 1; 0 where there were none.
    #[must_use]
    pub fn share(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.held as f64 / self.count as f64 }
    }
}

/// Who holds it up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Holder {
    /// The path, or what we have set for it.
    #[default]
    Path,
    /// The sender's application: reading, hashing, encrypting, or nothing to do.
    Source,
    /// The receiver's: decrypting, hashing, writing.
    Receiver,
}

/// In this share of the looks something else than the path held. (ours: a look in five is chance,
/// between two blocks; one in two is too late to notice)
const HELD_LOOKS: f64 = 0.25;

/// Who holds a transfer up, by looks at the sender's sockets and at the receiver's.
///
/// A receiver that does not read fills the sender's buffer in the end, and never empties it: so it
/// comes first.
#[must_use]
pub fn holder(sender: Looks, receiver: Looks) -> Holder {
    if receiver.share() >= HELD_LOOKS {
        Holder::Receiver
    } else if sender.share() >= HELD_LOOKS {
        Holder::Source
    } else {
        Holder::Path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(count: u64, held: u64) -> Looks {
        Looks { count, held }
    }

    #[test]
    fn the_side_that_keeps_the_other_waiting_is_named() {
        assert_eq!(holder(looks(100, 3), looks(100, 2)), Holder::Path);
        assert_eq!(holder(looks(100, 60), looks(100, 2)), Holder::Source);
        assert_eq!(holder(looks(100, 3), looks(100, 90)), Holder::Receiver);
        assert_eq!(holder(looks(100, 60), looks(100, 90)), Holder::Receiver);
        assert_eq!(holder(Looks::default(), Looks::default()), Holder::Path);
    }

    #[test]
    fn only_the_looks_since_then_count() {
        let mut all = looks(10, 10);
        let then = all;
        (0..8).for_each(|n| all.add(n % 2 == 0));
        assert_eq!(all.since(then), looks(8, 4));
    }
}
