//! Where a better number of connections is to be looked for, if anywhere: the rule between SOBAS
//! and the number of streams.
//!
//! What it does not do: look, or remember what was found.

use crate::holder::Holder;
use crate::sobas::State;
use std::fmt;
use std::time::Duration;

/// A connection whose threads are on a processor for this share of the time cannot carry more.
/// (ours: the rest is what waiting for each other takes)
const BUSY: f64 = 0.7;

/// Two connections are kept: while one repairs a loss or waits for its disk, the other has its
/// share. [issue: one or two on clean paths]
const SPARE: u32 = 2;

/// On longer paths fewer are not tried: what each that stays needs to widen its window costs more
/// than they bring. [measured, docs/algorithms/streams.md: 15 % more at 50 ms, 27 % less at 150 ms]
const FEWER_RTT: Duration = Duration::from_millis(60);

/// What is seen of a transfer, as far as it bears on the number of its connections.
#[derive(Debug, Clone, Copy)]
pub struct Situation {
    /// How many connections it has.
    pub streams: u32,
    /// The fewest whose windows cover the path.
    pub least: u32,
    /// As many as carry what comes in whole super-packets.
    pub whole_bursts: u32,
    /// The most that are allowed.
    pub most: u32,
    /// The round trip without a queue.
    pub rtt: Duration,
    /// Where the controller of window and pacing stands.
    pub state: State,
    /// The path is too short to be held: on a local network.
    pub is_short: bool,
    /// Even the first windows of so many do not fit the path.
    pub is_crowded: bool,
    /// Nearly all comes that the line carries, or that the user wants.
    pub is_full: bool,
    /// Nearly all comes that the user wants.
    pub is_all_wanted: bool,
    /// About all that the windows of so many allow is in flight, and nothing else tells what the
    /// path holds.
    pub is_window_bound: bool,
    /// Losses go on without a queue.
    pub is_lossy: bool,
    /// The sender's connections may use BBR, and it was not tried yet.
    pub offers_bbr: bool,
    /// Who holds the transfer up.
    pub holder: Holder,
    /// The share of the time, 0 to 1, for which a connection keeps a processor busy, on the side
    /// where it is more.
    pub busy: f64,
    /// Processors of the side that has fewer.
    pub cpus: u32,
}

/// Where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// Fewer may do, down to so many.
    Fewer(u32),
    /// So many fit, without a look: what comes tells nothing yet.
    Take(u32),
    /// More may bring more, up to so many.
    More(u32),
    /// So many under BBR may bring more.
    Bbr,
    /// Another number would change nothing.
    Stay,
}

/// Why there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ground {
    /// The path is full.
    PathFull,
    /// All comes that the user wants.
    AllWanted,
    /// The first windows of so many do not fit.
    Crowded,
    /// Others congest the path, or it loses at random.
    Congested,
    /// The same, without a queue, and BBR may tell which.
    Lossy,
    /// The windows that the hosts allow are full.
    Windows,
    /// Each connection has a processor of its own busy, and there are others.
    OneProcessor,
    /// A host, not the path, is what limits.
    Host(Holder),
    /// The path is short: what limits it is not seen.
    Short,
    /// Nothing is known yet.
    Unknown,
}

impl Situation {
    /// Where a better number is to be looked for, and why.
    ///
    /// A path that is full and loses nothing carries no more for more connections, nor for fewer,
    /// and to try them costs: each that stays has to widen its window first. One that others
    /// congest, or that loses at random, gives each connection its part, so that more of them have
    /// more; where it loses without a queue, BBR first, if the sender has it: it does not take such
    /// losses for congestion, and needs no more connections. Where a host is the limit, more help
    /// only if each is bound to a processor and others are free; a disk reads one file faster than
    /// eight at a time.
    #[must_use]
    pub fn course(&self) -> (Course, Ground) {
        let ground = self.ground();
        let course = match ground {
            // Fewer than these save next to nothing of the processors.
            Ground::Host(_) if self.rtt <= FEWER_RTT => self.fewer(self.whole_bursts),
            Ground::Host(_) => Course::Stay,
            Ground::Crowded => match self.fewer(1) {
                Course::Fewer(least) => Course::Take(least),
                other => other,
            },
            Ground::OneProcessor => self.more(self.cpus),
            Ground::Congested | Ground::Windows => self.more(self.most),
            Ground::Lossy => Course::Bbr,
            Ground::PathFull | Ground::AllWanted | Ground::Short | Ground::Unknown => Course::Stay,
        };
        (course, ground)
    }

    fn ground(&self) -> Ground {
        // As few as there may be do not crowd it themselves.
        if self.is_crowded && self.fewer(1) != Course::Stay {
            return Ground::Crowded;
        }
        // The turns at that rate keep the source from sending: it is not to be blamed.
        if self.is_all_wanted {
            return Ground::AllWanted;
        }
        if self.is_full && !self.is_short {
            return Ground::PathFull;
        }
        if self.is_window_bound && !self.is_short {
            return Ground::Windows;
        }
        if self.holder != Holder::Path {
            let is_bound = self.busy >= BUSY && self.streams < self.cpus;
            return if is_bound { Ground::OneProcessor } else { Ground::Host(self.holder) };
        }
        if self.is_short {
            return Ground::Short;
        }
        match self.state {
            State::Limited | State::Growing | State::Reprobing => Ground::PathFull,
            State::Avoidance | State::Disabled if self.is_lossy && self.offers_bbr => Ground::Lossy,
            State::Avoidance | State::Disabled => Ground::Congested,
            State::Probing | State::StartBounded | State::StartOpen => Ground::Unknown,
        }
    }

    /// Fewer, but so many at least.
    fn fewer(&self, least: u32) -> Course {
        let least = least.max(SPARE).max(self.least).min(self.most);
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
            Self::AllWanted => "all comes that is allowed",
            Self::Windows => "the windows that the hosts allow are full",
            Self::Crowded => "even their first windows do not fit the path",
            Self::Congested => "the path is congested by others, or loses at random",
            Self::Lossy => "losses go on without a queue",
            Self::OneProcessor => "each keeps a processor busy, and there are others",
            Self::Host(Holder::Source) => "the source does not come to send",
            Self::Host(_) => "the receiver does not come to read",
            Self::Short => "the path is short",
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
        whole_bursts: 1,
        most: 64,
        rtt: Duration::from_millis(20),
        state: State::Limited,
        is_short: false,
        is_crowded: false,
        is_full: false,
        is_all_wanted: false,
        is_window_bound: false,
        is_lossy: false,
        offers_bbr: false,
        holder: Holder::Path,
        busy: 0.2,
        cpus: 8,
    };

    #[test]
    fn a_full_path_is_left_alone_and_a_congested_one_asks_for_more() {
        let of = |state| Situation { state, ..SIXTEEN }.course();
        for state in [State::Limited, State::Growing, State::Reprobing] {
            assert_eq!(of(state), (Course::Stay, Ground::PathFull));
        }
        for state in [State::Avoidance, State::Disabled] {
            assert_eq!(of(state), (Course::More(64), Ground::Congested));
        }
        let lossy = |state| Situation { state, is_lossy: true, ..SIXTEEN };
        let offers = |state| Situation { offers_bbr: true, ..lossy(state) }.course();
        assert_eq!(lossy(State::Disabled).course(), (Course::More(64), Ground::Congested));
        assert_eq!(offers(State::Disabled), (Course::Bbr, Ground::Lossy));
        let full = Situation { is_full: true, offers_bbr: true, ..lossy(State::Disabled) };
        assert_eq!(full.course(), (Course::Stay, Ground::PathFull));
        assert_eq!(offers(State::Limited), (Course::Stay, Ground::PathFull));
        for state in [State::Probing, State::StartBounded, State::StartOpen] {
            assert_eq!(of(state), (Course::Stay, Ground::Unknown));
        }
        let crowded = Situation { is_crowded: true, state: State::Disabled, ..SIXTEEN };
        assert_eq!(crowded.course(), (Course::Take(2), Ground::Crowded));
        let others = Situation { streams: 2, ..crowded };
        assert_eq!(others.course(), (Course::More(64), Ground::Congested));
        let short = Situation { is_short: true, state: State::Disabled, ..SIXTEEN };
        assert_eq!(short.course(), (Course::Stay, Ground::Short));
    }

    #[test]
    fn a_full_line_is_left_alone_whoever_seems_to_hold_the_transfer_up() {
        let held = Situation { is_full: true, holder: Holder::Source, ..SIXTEEN };
        assert_eq!(held.course(), (Course::Stay, Ground::PathFull));
    }

    #[test]
    fn where_no_more_is_wanted_than_comes_the_source_is_not_blamed_for_its_turns() {
        for is_short in [false, true] {
            let held = Situation { is_full: true, is_short, holder: Holder::Source, ..SIXTEEN };
            let wanted = Situation { is_all_wanted: true, ..held };
            assert_eq!(wanted.course(), (Course::Stay, Ground::AllWanted));
        }
    }

    #[test]
    fn full_windows_ask_for_more_whoever_seems_to_hold_the_transfer_up() {
        let bound = Situation { is_window_bound: true, state: State::StartOpen, ..SIXTEEN };
        for holder in [Holder::Path, Holder::Source] {
            let course = Situation { holder, ..bound }.course();
            assert_eq!(course, (Course::More(64), Ground::Windows));
        }
        let short = Situation { is_short: true, state: State::Disabled, ..bound };
        assert_eq!(short.course(), (Course::Stay, Ground::Short));
    }

    #[test]
    fn bounds_are_kept() {
        let least = Situation { least: 7, holder: Holder::Receiver, ..SIXTEEN };
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
        assert_eq!(host(Holder::Source, 16, 0.9), (Course::Fewer(2), source));
        assert_eq!(host(Holder::Source, 4, 0.1), (Course::Fewer(2), source));
        assert_eq!(host(Holder::Source, 2, 0.1), (Course::Stay, source));
        let fast = Situation { whole_bursts: 7, holder: Holder::Source, ..SIXTEEN };
        assert_eq!(fast.course(), (Course::Fewer(7), source));
        let far = Situation { rtt: Duration::from_millis(150), holder: Holder::Source, ..SIXTEEN };
        assert_eq!(far.course(), (Course::Stay, source));
    }
}
