//! Where a better number of connections is to be looked for, if anywhere: the rule between SOBAS
//! and the number of streams.
//!
//! What it does not do: look, or remember what was found.

use crate::holder::Holder;
use crate::sobas::State;
use std::fmt;

/// A connection whose threads are on a processor for this share of the time cannot carry more.
/// (ours: the rest is what waiting for each other takes)
const BUSY: f64 = 0.7;

/// On a full path two connections are kept: while one repairs a loss, the other has its share.
/// [issue: one or two on clean paths]
const SPARE: u32 = 2;

/// What is seen of a transfer, as far as it bears on the number of its connections.
#[derive(Debug, Clone, Copy)]
pub struct Situation {
    /// How many connections it has.
    pub streams: u32,
    /// The fewest whose windows cover the path.
    pub least: u32,
    /// The most that are allowed.
    pub most: u32,
    /// Where the controller of window and pacing stands.
    pub state: State,
    /// Even the first windows of so many do not fit the path.
    pub is_crowded: bool,
    /// Who holds the transfer up.
    pub holder: Holder,
    /// The share of the time, 0 to 1, for which a connection keeps a processor busy, on the side
    /// where it is more.
    pub busy: f64,
    /// Processors of the side that has fewer.
    pub processors: u32,
}

/// Where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// Fewer may do, down to so many.
    Fewer(u32),
    /// More may bring more, up to so many.
    More(u32),
    /// Another number would change nothing.
    Stay,
}

/// Why there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ground {
    /// The path is full.
    PathFull,
    /// The first windows of so many do not fit.
    Crowded,
    /// Others congest the path, or it loses at random.
    Congested,
    /// Each connection has a processor of its own busy, and there are others.
    OneProcessor,
    /// A host, not the path, is what limits.
    Host(Holder),
    /// Nothing is known yet.
    Unknown,
}

impl Situation {
    /// Where a better number is to be looked for, and why.
    ///
    /// A path that is full and loses nothing carries no more for more connections: they cost
    /// processors and bunch their packets. One that others congest, or that loses at random, gives
    /// each connection its part, so that more of them have more. Where a host is the limit, more
    /// connections help only if each is bound to a processor and others are free; a disk reads one
    /// file faster than eight at a time.
    #[must_use]
    pub fn course(&self) -> (Course, Ground) {
        let ground = self.ground();
        let course = match ground {
            Ground::PathFull | Ground::Crowded => self.fewer(SPARE),
            Ground::Host(_) => self.fewer(1),
            Ground::OneProcessor => self.more(self.processors),
            Ground::Congested => self.more(self.most),
            Ground::Unknown => Course::Stay,
        };
        (course, ground)
    }

    fn ground(&self) -> Ground {
        if self.is_crowded {
            return Ground::Crowded;
        }
        if self.holder != Holder::Path {
            let is_bound = self.busy >= BUSY && self.streams < self.processors;
            return if is_bound { Ground::OneProcessor } else { Ground::Host(self.holder) };
        }
        match self.state {
            State::Limited | State::Growing | State::Reprobing => Ground::PathFull,
            State::Avoidance | State::Disabled => Ground::Congested,
            State::Probing | State::StartBounded | State::StartOpen => Ground::Unknown,
        }
    }

    fn fewer(&self, least: u32) -> Course {
        let least = least.max(self.least).min(self.most);
        if self.streams > least { Course::Fewer(least) } else { Course::Stay }
    }

    fn more(&self, most: u32) -> Course {
        let most = most.min(self.most);
        if self.streams < most { Course::More(most) } else { Course::Stay }
    }
}

impl Ground {
    /// Whether a host is what limits.
    pub(super) fn is_host(self) -> bool {
        matches!(self, Self::Host(_) | Self::OneProcessor)
    }
}

/// One clause, for a trace or a report.
impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PathFull => "the path is full",
            Self::Crowded => "even their first windows do not fit the path",
            Self::Congested => "the path is congested by others, or loses at random",
            Self::OneProcessor => "each keeps a processor busy, and there are others",
            Self::Host(Holder::Source) => "the source does not come to send",
            Self::Host(_) => "the receiver does not come to read",
            Self::Unknown => "nothing is known of the path yet",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIXTEEN: Situation = Situation {
        streams: 16,
        least: 1,
        most: 64,
        state: State::Limited,
        is_crowded: false,
        holder: Holder::Path,
        busy: 0.2,
        processors: 8,
    };

    #[test]
    fn a_full_path_asks_for_fewer_and_a_congested_one_for_more() {
        let of = |state| Situation { state, ..SIXTEEN }.course();
        for state in [State::Limited, State::Growing, State::Reprobing] {
            assert_eq!(of(state), (Course::Fewer(2), Ground::PathFull));
        }
        for state in [State::Avoidance, State::Disabled] {
            assert_eq!(of(state), (Course::More(64), Ground::Congested));
        }
        for state in [State::Probing, State::StartBounded, State::StartOpen] {
            assert_eq!(of(state), (Course::Stay, Ground::Unknown));
        }
        let crowded = Situation { is_crowded: true, state: State::Disabled, ..SIXTEEN };
        assert_eq!(crowded.course(), (Course::Fewer(2), Ground::Crowded));
    }

    #[test]
    fn bounds_are_kept() {
        let least = Situation { least: 7, ..SIXTEEN };
        assert_eq!(least.course().0, Course::Fewer(7));
        assert_eq!(Situation { streams: 7, ..least }.course().0, Course::Stay);
        let most = Situation { streams: 64, state: State::Disabled, ..SIXTEEN };
        assert_eq!(most.course().0, Course::Stay);
        let fixed = Situation { streams: 4, most: 4, least: 9, ..SIXTEEN };
        assert_eq!(fixed.course().0, Course::Stay);
    }

    #[test]
    fn where_a_host_is_the_limit_only_a_free_processor_makes_more_worth_it() {
        let host = |holder, streams, busy| Situation { holder, streams, busy, ..SIXTEEN }.course();
        let bound = (Course::More(8), Ground::OneProcessor);
        assert_eq!(host(Holder::Source, 1, 0.9), bound);
        assert_eq!(host(Holder::Receiver, 4, 0.9), bound);
        // All processors are taken, or it is a disk that is slow.
        let source = Ground::Host(Holder::Source);
        assert_eq!(host(Holder::Source, 16, 0.9), (Course::Fewer(1), source));
        assert_eq!(host(Holder::Source, 4, 0.1), (Course::Fewer(1), source));
        assert_eq!(host(Holder::Source, 1, 0.1), (Course::Stay, source));
    }
}
