//! The policy between the window and the number of streams: the limiting factor, and the direction
//! of the search for a better number. Searching and remembering the result are the tuner's task.

use super::start::{MAX_INITIAL_STREAMS, MIN_INITIAL_STREAMS, SHORT_RTT};
use crate::bottleneck::Bottleneck;
use crate::path_control::{PathState, State};
use crate::tcp::FAST_RETRANSMIT_SEGMENTS;
use std::fmt;
use std::time::Duration;

/// CPU time of a stream per elapsed time from which its threads are saturated. (chosen: the rest is
/// waiting for each other)
const CPU_BOUND_SHARE: f64 = 0.7;

/// Fewest streams of a search: while one repairs a loss or waits for its disk, the other continues.
/// (chosen: one or two suffice on clean paths)
pub(super) const MIN_SEARCH_STREAMS: u32 = 2;

/// Divisor of the number of streams on an oversubscribed path.
///
/// One segment per stream becomes as many as fast retransmit needs. (measured, PIE at 10 Mbit/s in
/// virtual time: with two streams instead of four, losses of the start cost 2 % more)
const OVERSUBSCRIBED_DIVISOR: u32 = FAST_RETRANSMIT_SEGMENTS as u32;

/// RTT above which fewer streams are not tried: the remaining ones need too long to widen their
/// windows. (measured, docs/algorithms: 15 % more at 50 ms, streams-measured.md; 27 % less at 150
/// ms, streams.md, M5)
const MAX_REDUCTION_RTT: Duration =
    SHORT_RTT.saturating_mul(MAX_INITIAL_STREAMS / MIN_INITIAL_STREAMS);

/// State of a transfer, as far as it affects the number of streams.
#[derive(Debug, Clone, Copy)]
pub struct PathConditions {
    /// Number of streams.
    pub streams: u32,
    /// Fewest streams whose windows cover the path.
    pub min_streams: u32,
    /// Streams that carry the rate in full-sized super-packets.
    pub full_tso_streams: u32,
    /// Most streams allowed.
    pub max_streams: u32,
    /// Min RTT.
    pub min_rtt: Duration,
    /// State of the controller of the window.
    pub state: State,
    /// Findings of that controller about the path; it stays lossy until a window limits it again.
    pub path: PathState,
    /// True if the rate is nearly the capacity of the line or the user's maximum.
    pub is_path_full: bool,
    /// True if the rate is nearly the user's maximum.
    pub is_at_rate_max: bool,
    /// True if the windows of all streams are nearly full, and the capacity is unknown.
    pub is_window_limited: bool,
    /// True if the streams may use BBR, and losses have not led to it yet.
    pub has_bbr: bool,
    /// True if the streams may use BBR, which a long queue has not caused yet.
    pub has_bbr_for_queue: bool,
    /// Current bottleneck.
    pub bottleneck: Bottleneck,
    /// CPU time of a stream as a share of the time, 0 to 1; of the side with more.
    pub busy: f64,
    /// CPUs of the side with fewer.
    pub cpus: u32,
}

/// The direction of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchDirection {
    /// Fewer streams may suffice, down to this number.
    Fewer(u32),
    /// This number fits without a search, while the current rate is not conclusive yet.
    JumpTo(u32),
    /// More streams may carry more, up to this number.
    More(u32),
    /// The same number may carry more under BBR.
    TryBbr,
    /// Another number would change nothing.
    Keep,
}

/// The factor that limits a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitingFactor {
    /// The path is full.
    PathFull,
    /// The user's maximum rate is reached.
    RateMax,
    /// The path holds only a few segments of each stream.
    FewSegments,
    /// A queue of acknowledgements limits the rate; fewer streams need fewer of them.
    Acknowledgements,
    /// Other flows keep a queue; more streams would take their share.
    SharedQueue,
    /// Cross traffic congests the path, or it loses segments at random.
    Congestion,
    /// The same without a queue; a BBR trial can distinguish the two.
    LossWithoutQueue,
    /// TCP keeps a queue of several RTTs; BBR keeps a shorter one.
    LongQueue,
    /// The windows that the hosts allow are full.
    WindowLimit,
    /// Each stream saturates a CPU, and other CPUs are idle.
    CpuPerStream,
    /// A host is the bottleneck.
    Host(Bottleneck),
    /// The path is too short to find its limit.
    ShortPath,
    /// Nothing is known yet.
    Unknown,
}

impl PathConditions {
    /// Returns the direction in which a better number may be found, and the limiting factor.
    ///
    /// - A full path without losses carries no more with more or fewer streams, and a search costs:
    ///   remaining streams must widen their windows first.
    /// - More streams beside other flows take their share, and fewer acknowledgements queue with
    ///   fewer streams.
    /// - On a congested or randomly lossy path each stream gets its share, so more streams get
    ///   more. Without a queue, BBR is tried first: it ignores such losses and needs no more
    ///   streams.
    /// - A queue of several RTTs delays all flows and fills the path no better than BBR's.
    /// - At a host bottleneck, more streams help only if each saturates a CPU and others are idle;
    ///   a disk reads one file faster than eight.
    #[must_use]
    pub fn search_direction(&self) -> (SearchDirection, LimitingFactor) {
        let factor = self.limiting_factor();
        let direction = match factor {
            // Fewer streams than these save hardly any CPU time.
            LimitingFactor::Host(_) if self.min_rtt <= MAX_REDUCTION_RTT => {
                self.fewer(self.full_tso_streams)
            }
            LimitingFactor::Host(_) => SearchDirection::Keep,
            LimitingFactor::FewSegments | LimitingFactor::Acknowledgements => {
                match self.fewer(factor.fewest_streams(self.streams)) {
                    SearchDirection::Fewer(min_streams) => SearchDirection::JumpTo(min_streams),
                    other => other,
                }
            }
            LimitingFactor::CpuPerStream => self.more(self.cpus),
            LimitingFactor::Congestion | LimitingFactor::WindowLimit => self.more(self.max_streams),
            LimitingFactor::LossWithoutQueue | LimitingFactor::LongQueue => SearchDirection::TryBbr,
            LimitingFactor::PathFull
            | LimitingFactor::RateMax
            | LimitingFactor::ShortPath
            | LimitingFactor::SharedQueue
            | LimitingFactor::Unknown => SearchDirection::Keep,
        };
        (direction, factor)
    }

    /// Returns the limiting factor.
    fn limiting_factor(&self) -> LimitingFactor {
        // At the smallest number, the streams themselves are not the cause.
        if self.path.is_oversubscribed && self.fewer(1) != SearchDirection::Keep {
            return LimitingFactor::FewSegments;
        }
        if self.path.is_ack_limited && self.fewer(1) != SearchDirection::Keep {
            return LimitingFactor::Acknowledgements;
        }
        // The rate limiter blocks the sender, so it is not the bottleneck.
        if self.is_at_rate_max {
            return LimitingFactor::RateMax;
        }
        if self.path.has_long_queue && self.has_bbr_for_queue {
            return LimitingFactor::LongQueue;
        }
        if self.is_path_full && !self.path.is_short {
            return LimitingFactor::PathFull;
        }
        if self.is_window_limited && !self.path.is_short {
            return LimitingFactor::WindowLimit;
        }
        if self.bottleneck != Bottleneck::Path {
            let is_cpu_bound = self.busy >= CPU_BOUND_SHARE && self.streams < self.cpus;
            return if is_cpu_bound {
                LimitingFactor::CpuPerStream
            } else {
                LimitingFactor::Host(self.bottleneck)
            };
        }
        if self.path.is_short {
            return LimitingFactor::ShortPath;
        }
        match self.state {
            State::Limited | State::Growing => LimitingFactor::PathFull,
            State::Disabled if self.path.is_lossy && self.has_bbr => {
                LimitingFactor::LossWithoutQueue
            }
            State::Disabled if self.path.is_ack_limited => LimitingFactor::Acknowledgements,
            State::Disabled if self.path.has_cross_traffic_queue => LimitingFactor::SharedQueue,
            State::Disabled => LimitingFactor::Congestion,
            State::Probing | State::StartBounded | State::StartOpen => LimitingFactor::Unknown,
        }
    }

    /// Returns the direction to fewer streams, within the bounds.
    fn fewer(&self, min_streams: u32) -> SearchDirection {
        let min_streams =
            min_streams.max(MIN_SEARCH_STREAMS).max(self.min_streams).min(self.max_streams);
        if self.streams > min_streams {
            SearchDirection::Fewer(min_streams)
        } else {
            SearchDirection::Keep
        }
    }

    /// Returns the direction to more streams, within the bounds.
    fn more(&self, max_streams: u32) -> SearchDirection {
        let max_streams = max_streams.min(self.max_streams);
        if self.streams < max_streams {
            SearchDirection::More(max_streams)
        } else {
            SearchDirection::Keep
        }
    }
}

impl LimitingFactor {
    /// Returns the fewest of some streams that this factor leaves.
    pub(super) fn fewest_streams(self, streams: u32) -> u32 {
        match self {
            Self::FewSegments => (streams / OVERSUBSCRIBED_DIVISOR).max(MIN_SEARCH_STREAMS),
            _ => MIN_SEARCH_STREAMS,
        }
    }

    /// Returns true if a host limits.
    pub(super) fn is_host(self) -> bool {
        matches!(self, Self::Host(_) | Self::CpuPerStream)
    }
}

/// One clause for traces and reports.
impl fmt::Display for LimitingFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PathFull => "the path is full",
            Self::RateMax => "the maximum rate is reached",
            Self::WindowLimit => "the windows that the hosts allow are full",
            Self::FewSegments => "the path holds only a few segments of each stream",
            Self::Acknowledgements => "acknowledgements queue on the reverse path",
            Self::SharedQueue => "other flows keep a queue",
            Self::Congestion => "the path has cross traffic or random loss",
            Self::LongQueue => "TCP keeps a queue of several RTTs",
            Self::LossWithoutQueue => "losses continue at lower rates",
            Self::CpuPerStream => "each stream saturates a CPU and others are idle",
            Self::Host(Bottleneck::Sender) => "the sender has nothing to send",
            Self::Host(_) => "the receiver does not keep up",
            Self::ShortPath => "the path is short",
            Self::Unknown => "the path is not known yet",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL_PATH: PathState = PathState {
        is_lossy: false,
        is_short: false,
        is_oversubscribed: false,
        is_ack_limited: false,
        has_cross_traffic_queue: false,
        has_long_queue: false,
        has_standing_queue: false,
    };
    const LOSSY_PATH: PathState = PathState { is_lossy: true, ..USUAL_PATH };
    const SHORT_PATH: PathState = PathState { is_short: true, ..USUAL_PATH };
    const CROWDED_PATH: PathState = PathState { is_oversubscribed: true, ..USUAL_PATH };

    const SIXTEEN_STREAMS: PathConditions = PathConditions {
        streams: 16,
        min_streams: 1,
        full_tso_streams: 1,
        max_streams: 64,
        min_rtt: Duration::from_millis(20),
        state: State::Limited,
        path: USUAL_PATH,
        is_path_full: false,
        is_at_rate_max: false,
        is_window_limited: false,
        has_bbr: false,
        has_bbr_for_queue: false,
        bottleneck: Bottleneck::Path,
        busy: 0.2,
        cpus: 8,
    };

    #[test]
    fn full_path_keeps_and_congested_path_adds_streams() {
        let of = |state| PathConditions { state, ..SIXTEEN_STREAMS }.search_direction();
        for state in [State::Limited, State::Growing] {
            assert_eq!(of(state), (SearchDirection::Keep, LimitingFactor::PathFull));
        }
        let congested = (SearchDirection::More(64), LimitingFactor::Congestion);
        assert_eq!(of(State::Disabled), congested);
        let shared = PathState { has_cross_traffic_queue: true, ..USUAL_PATH };
        let shared = PathConditions { state: State::Disabled, path: shared, ..SIXTEEN_STREAMS };
        let kept = (SearchDirection::Keep, LimitingFactor::SharedQueue);
        assert_eq!(shared.search_direction(), kept);
        let slow = PathState { is_ack_limited: true, is_lossy: true, ..USUAL_PATH };
        let slow = PathConditions { state: State::Disabled, path: slow, ..SIXTEEN_STREAMS };
        let of = |streams, has_bbr| PathConditions { streams, has_bbr, ..slow }.search_direction();
        let late = LimitingFactor::Acknowledgements;
        assert_eq!(of(16, true), (SearchDirection::JumpTo(2), late));
        assert_eq!(of(2, true), (SearchDirection::TryBbr, LimitingFactor::LossWithoutQueue));
        assert_eq!(of(2, false), (SearchDirection::Keep, late), "never more for late ACKs");
        let of = |state| PathConditions { state, ..SIXTEEN_STREAMS }.search_direction();
        let lossy = |state| PathConditions { state, path: LOSSY_PATH, ..SIXTEEN_STREAMS };
        let offers = |state| PathConditions { has_bbr: true, ..lossy(state) }.search_direction();
        assert_eq!(
            lossy(State::Disabled).search_direction(),
            (SearchDirection::More(64), LimitingFactor::Congestion)
        );
        assert_eq!(
            offers(State::Disabled),
            (SearchDirection::TryBbr, LimitingFactor::LossWithoutQueue)
        );
        let full = PathConditions { is_path_full: true, has_bbr: true, ..lossy(State::Disabled) };
        assert_eq!(full.search_direction(), (SearchDirection::Keep, LimitingFactor::PathFull));
        let path = PathState { has_long_queue: true, has_cross_traffic_queue: true, ..USUAL_PATH };
        let bloated = PathConditions { path, has_bbr_for_queue: true, has_bbr: false, ..full };
        let tried = (SearchDirection::TryBbr, LimitingFactor::LongQueue);
        assert_eq!(bloated.search_direction(), tried);
        let without = PathConditions { has_bbr_for_queue: false, is_path_full: false, ..bloated };
        assert_eq!(without.search_direction(), kept);
        assert_eq!(offers(State::Limited), (SearchDirection::Keep, LimitingFactor::PathFull));
        for state in [State::Probing, State::StartBounded, State::StartOpen] {
            assert_eq!(of(state), (SearchDirection::Keep, LimitingFactor::Unknown));
        }
        let crowded =
            PathConditions { path: CROWDED_PATH, state: State::Disabled, ..SIXTEEN_STREAMS };
        assert_eq!(
            crowded.search_direction(),
            (SearchDirection::JumpTo(4), LimitingFactor::FewSegments)
        );
        let others = PathConditions { streams: 2, ..crowded };
        assert_eq!(
            others.search_direction(),
            (SearchDirection::More(64), LimitingFactor::Congestion)
        );
        let short = PathConditions { path: SHORT_PATH, state: State::Disabled, ..SIXTEEN_STREAMS };
        assert_eq!(short.search_direction(), (SearchDirection::Keep, LimitingFactor::ShortPath));
    }

    #[test]
    fn full_line_keeps_despite_sender_bottleneck() {
        let held = PathConditions {
            is_path_full: true,
            bottleneck: Bottleneck::Sender,
            ..SIXTEEN_STREAMS
        };
        assert_eq!(held.search_direction(), (SearchDirection::Keep, LimitingFactor::PathFull));
    }

    #[test]
    fn rate_max_keeps_despite_sender_bottleneck() {
        for path in [USUAL_PATH, SHORT_PATH] {
            let held = PathConditions {
                is_path_full: true,
                path,
                bottleneck: Bottleneck::Sender,
                ..SIXTEEN_STREAMS
            };
            let wanted = PathConditions { is_at_rate_max: true, ..held };
            assert_eq!(wanted.search_direction(), (SearchDirection::Keep, LimitingFactor::RateMax));
        }
    }

    #[test]
    fn full_windows_add_streams_for_any_bottleneck() {
        let bound =
            PathConditions { is_window_limited: true, state: State::StartOpen, ..SIXTEEN_STREAMS };
        for bottleneck in [Bottleneck::Path, Bottleneck::Sender] {
            let direction = PathConditions { bottleneck, ..bound }.search_direction();
            assert_eq!(direction, (SearchDirection::More(64), LimitingFactor::WindowLimit));
        }
        let short = PathConditions { path: SHORT_PATH, state: State::Disabled, ..bound };
        assert_eq!(short.search_direction(), (SearchDirection::Keep, LimitingFactor::ShortPath));
    }

    #[test]
    fn directions_respect_bounds() {
        let min_streams =
            PathConditions { min_streams: 7, bottleneck: Bottleneck::Receiver, ..SIXTEEN_STREAMS };
        assert_eq!(min_streams.search_direction().0, SearchDirection::Fewer(7));
        assert_eq!(
            PathConditions { streams: 7, ..min_streams }.search_direction().0,
            SearchDirection::Keep
        );
        let max_streams = PathConditions { streams: 64, state: State::Disabled, ..SIXTEEN_STREAMS };
        assert_eq!(max_streams.search_direction().0, SearchDirection::Keep);
        let fixed =
            PathConditions { streams: 4, max_streams: 4, min_streams: 9, ..SIXTEEN_STREAMS };
        assert_eq!(fixed.search_direction().0, SearchDirection::Keep);
    }

    #[test]
    fn host_limit_adds_streams_only_for_idle_cpus() {
        let host = |bottleneck, streams, busy| {
            PathConditions { bottleneck, streams, busy, ..SIXTEEN_STREAMS }.search_direction()
        };
        let bound = (SearchDirection::More(8), LimitingFactor::CpuPerStream);
        assert_eq!(host(Bottleneck::Sender, 1, 0.9), bound);
        assert_eq!(host(Bottleneck::Receiver, 4, 0.9), bound);
        // A thread that waits for a third of its time is not saturated.
        assert_eq!(host(Bottleneck::Sender, 1, 0.75), bound);
        assert_ne!(host(Bottleneck::Sender, 1, 0.65), bound);
        // All CPUs are in use, or a disk is slow.
        let source = LimitingFactor::Host(Bottleneck::Sender);
        assert_eq!(host(Bottleneck::Sender, 16, 0.9), (SearchDirection::Fewer(2), source));
        assert_eq!(host(Bottleneck::Sender, 4, 0.1), (SearchDirection::Fewer(2), source));
        assert_eq!(host(Bottleneck::Sender, 2, 0.1), (SearchDirection::Keep, source));
        let fast = PathConditions {
            full_tso_streams: 7,
            bottleneck: Bottleneck::Sender,
            ..SIXTEEN_STREAMS
        };
        assert_eq!(fast.search_direction(), (SearchDirection::Fewer(7), source));
        let far = PathConditions {
            min_rtt: Duration::from_millis(150),
            bottleneck: Bottleneck::Sender,
            ..SIXTEEN_STREAMS
        };
        assert_eq!(far.search_direction(), (SearchDirection::Keep, source));
    }
}
