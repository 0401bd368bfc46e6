//! Tells how a transfer's data connections do: to whoever runs the transfer as events, and from a
//! server that receives to its client as messages, which there become the same events.

use super::TELL_COURSE;
use crate::error::printable;
use crate::event::{Event, Sample, BufferLimit, TuningDecision};
use crate::net::control::Outbox;
use crate::net::staging::BufferStatus;
use crate::session::{SessionStats, problem_message};
use bankfull_control::delivery::is_queued;
use bankfull_control::rrda::staging::clause;
use bankfull_control::sobas::{Decision, State};
use bankfull_control::streams;
use bankfull_control::{Bytes, LimitSamples, Rate, StageTimes};
use bankfull_proto::limits::MAX_REPORT_RTTS;
use bankfull_proto::wire::control::{Cause, Failure, Message, ReceiverReport, stage_nanos};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where a session's own controller stands while its connections are steered with others.
pub(super) const SHARED: &str = "shared";

/// What is seen of the data connections at a moment, of all together. Counts are from the
/// beginning.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) streams: u32,
    /// Data carried.
    pub(super) carried: u64,
    pub(super) rtts: Vec<Duration>,
    pub(super) probes: u64,
    pub(super) probes_lost: u64,
    pub(super) capacity: Option<u64>,
    pub(super) window: Option<u64>,
    pub(super) granted: Option<u64>,
    pub(super) bytes_per_sec: Option<u64>,
    pub(super) retransmits: Option<u64>,
    /// What waited to be written on the receiving side.
    pub(super) buffered_peak: Option<BufferStatus>,
    /// What the threads of the sender and of the receiver spent their time with.
    pub(super) stages: [StageTimes; 2],
    /// Looks at which the source had nothing to send.
    pub(super) sends: LimitSamples,
    /// Looks at which the receiver had not come to read.
    pub(super) reads: LimitSamples,
}

/// Tells what is seen, now and then.
pub(crate) struct Teller<'a> {
    stats: &'a SessionStats<'a>,
    /// Whoever runs the transfer is on this side.
    is_near: bool,
    last: Duration,
    told: (LimitSamples, LimitSamples),
    /// The shortest round trip.
    rtt_min: Option<Duration>,
    /// The last change of the staging that was told.
    staging_told: Option<Instant>,
}

impl<'a> Teller<'a> {
    pub(crate) fn new(stats: &'a SessionStats<'a>, is_near: bool) -> Self {
        let (last, told, rtt_min, staging_told) = Default::default();
        Self { stats, is_near, last, told, rtt_min, staging_told }
    }

    /// Tells that no datagrams get through, where whoever runs the transfer is on this side.
    pub(super) fn unheard(&self, door: SocketAddr) {
        let message = format!(
            "nothing comes back over UDP from {door}: the path is judged by TCP alone; to have it \
             measured, let UDP through to that port, and see that no other program has it"
        );
        self.stats.warn(message);
    }

    /// Tells whoever runs the transfer something of note.
    pub(super) fn remark(&self, outbox: &Outbox, message: &str) {
        if self.is_near {
            self.stats.warn(message);
        } else {
            outbox.post(&problem_message(PathBuf::new(), Failure::new(Cause::Warning, message)));
        }
    }

    /// Whether whoever runs the transfer is on this side.
    pub(super) fn is_near(&self) -> bool {
        self.is_near
    }

    /// For how long the data connections have kept processors of this side busy.
    pub(super) fn busy(&self) -> Duration {
        self.stats.cpu_time()
    }

    /// What the threads of this side spent their time with.
    pub(super) fn stages(&self) -> StageTimes {
        self.stats.times()
    }

    /// Whether it is time to tell again.
    pub(super) fn is_due(&mut self) -> bool {
        let now = self.stats.elapsed();
        let is_due = now >= self.last + TELL_COURSE;
        if is_due {
            self.last = now;
        }
        is_due
    }

    /// Tells it here.
    pub(super) fn sample(&mut self, seen: &Seen) {
        let since = (seen.sends.since(self.told.0), seen.reads.since(self.told.1));
        self.told = (seen.sends, seen.reads);
        self.rtt_min = seen.rtts.iter().copied().chain(self.rtt_min).min();
        self.stats.path_observer().on_carried(seen.carried, self.stats.elapsed());
        if let Some(least) = self.rtt_min {
            // Those of single connections may tell of their own repairs.
            let usual = median(&seen.rtts).unwrap_or(least);
            self.stats.path_observer().on_queue(is_queued(usual, least));
        }
        self.buffer_limit(seen.buffered_peak);
        self.stats.event(Event::Sample(Sample {
            at: self.last,
            streams: seen.streams,
            carried: Bytes(seen.carried),
            rtts: seen.rtts.clone(),
            probes: seen.probes,
            probes_lost: seen.probes_lost,
            capacity: seen.capacity.map(rate),
            window: seen.window.map(Bytes),
            granted: seen.granted.map(Bytes),
            pacing: seen.bytes_per_sec.map(rate),
            retransmits: seen.retransmits,
            buffered_peak: seen.buffered_peak.map(|buffered_peak| buffered_peak.peak),
            buffer_limit: seen.buffered_peak.map(|buffered_peak| buffered_peak.size),
            sender: seen.stages[0],
            receiver: seen.stages[1],
            app_limited_share: since.0.share(),
            receiver_limited_share: since.1.share(),
        }));
    }

    /// Tells here that another amount may wait to be written, if that is new.
    fn buffer_limit(&mut self, buffered_peak: Option<BufferStatus>) {
        let Some((buffered_peak, (at, reason))) =
            buffered_peak.and_then(|buffered_peak| Some((buffered_peak, buffered_peak.change?)))
        else {
            return;
        };
        if self.staging_told.replace(at) != Some(at) {
            self.stats.event(Event::BufferLimit(BufferLimit {
                at: self.stats.elapsed().saturating_sub(at.elapsed()),
                size: buffered_peak.size,
                reason: clause(reason).to_owned(),
            }));
        }
    }

    /// Tells a decision here.
    pub(super) fn decided(&self, decision: &Decision, window: Option<Bytes>) {
        self.settle(decision.state.name(), decision.pacing);
        self.stats.event(Event::Tuning(TuningDecision {
            at: self.stats.elapsed(),
            state: decision.state.name().to_owned(),
            window,
            pacing: decision.pacing,
            streams: None,
            reason: decision.reason.to_string(),
        }));
    }

    /// Tells here that the connections are steered with those of other sessions.
    pub(super) fn shared(&self, reason: String, window: Option<Bytes>) {
        self.stats.event(Event::Tuning(TuningDecision {
            at: self.stats.elapsed(),
            state: SHARED.to_owned(),
            window,
            pacing: None,
            streams: None,
            reason,
        }));
    }

    /// Tells here how many connections are to carry data.
    pub(super) fn counted(
        &self,
        decision: &streams::Decision,
        held: Option<&Decision>,
        window: Option<Bytes>,
    ) {
        let News { reason, streams } = News::of(decision);
        self.count(streams);
        self.stats.event(Event::Tuning(TuningDecision {
            at: self.stats.elapsed(),
            state: held.map_or_else(String::new, |held| held.state.name().to_owned()),
            window,
            pacing: held.and_then(|held| held.pacing),
            streams,
            reason,
        }));
    }

    /// Notes the rate at which the path is held, for another copy.
    fn settle(&self, state: &str, pacing: Option<Rate>) {
        if state == State::Limited.name()
            && let (Some(rate), Some(rtt)) = (pacing, self.rtt_min)
        {
            self.stats.path_observer().on_held(rate, rtt);
        }
    }

    /// Notes how many connections are to carry data, where that is said.
    fn count(&self, streams: Option<u32>) {
        if let Some(streams) = streams {
            self.stats.path_observer().on_count(streams, self.stats.elapsed());
        }
    }

    /// Tells here what the far side has decided, if it has.
    pub(super) fn decided_there(&self, course: &ReceiverReport) {
        if let (Some(size), Some(reason)) = (course.buffer_limit, &course.buffer_reason) {
            self.stats.event(Event::BufferLimit(BufferLimit {
                at: self.stats.elapsed(),
                size: Bytes(size),
                reason: printable(reason),
            }));
        }
        let Some(reason) = &course.reason else { return };
        self.settle(&course.state, course.bytes_per_sec.map(Rate::from_bytes_per_sec));
        self.count(course.streams);
        self.stats.event(Event::Tuning(TuningDecision {
            at: self.stats.elapsed(),
            state: printable(&course.state),
            window: course.window.map(Bytes),
            pacing: course.bytes_per_sec.map(rate),
            streams: course.streams,
            reason: printable(reason),
        }));
    }

    /// Tells the client, where there is room for it: what is seen, and what has been decided. What
    /// is told is not told again.
    pub(super) fn post(
        &mut self,
        outbox: &Outbox,
        seen: &mut Seen,
        state: &str,
        news: Option<News>,
    ) -> bool {
        let micros = |time: &Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let change = seen.buffered_peak.and_then(|buffered_peak| buffered_peak.change);
        let is_new = |&(at, _): &(Instant, _)| self.staging_told != Some(at);
        let has_room = outbox.try_post(&Message::ReceiverReport(ReceiverReport {
            state: state.to_owned(),
            window: seen.window,
            bytes_per_sec: seen.bytes_per_sec,
            rtts_us: seen.rtts.iter().take(MAX_REPORT_RTTS).map(micros).collect(),
            capacity: seen.capacity,
            probes: seen.probes,
            probes_lost: seen.probes_lost,
            samples: seen.reads.count,
            receiver_limited: seen.reads.limited,
            stage_nanos: Some(stage_nanos(&seen.stages[1])),
            streams: news.as_ref().and_then(|news| news.streams),
            reason: news.map(|news| news.reason),
            buffered_peak: seen.buffered_peak.map(|buffered_peak| buffered_peak.peak.0),
            buffer_limit: seen.buffered_peak.map(|buffered_peak| buffered_peak.size.0),
            buffer_reason: change.filter(is_new).map(|(_, reason)| clause(reason).to_owned()),
        }));
        if has_room {
            seen.rtts.clear();
            self.staging_told = change.map(|(at, _)| at).or(self.staging_told);
        }
        has_room
    }
}

/// What has just been decided.
pub(super) struct News {
    pub(super) reason: String,
    /// Where it is how many connections are to carry data.
    pub(super) streams: Option<u32>,
}

impl News {
    pub(super) fn of(decision: &streams::Decision) -> Self {
        if decision.reason.is_bbr_related() {
            // Where a search has ended with it, there may be another number, too.
            let is_other = decision.reason == streams::Reason::LossIncreased;
            let streams = is_other.then_some(decision.streams);
            return Self { reason: decision.reason.to_string(), streams };
        }
        let connections = if decision.streams == 1 { "connection" } else { "connections" };
        let reason = format!("{} {connections}: {}", decision.streams, decision.reason);
        Self { reason, streams: Some(decision.streams) }
    }
}

/// What waits to be written at the receiver, as it has told.
pub(super) fn staged_there(course: &ReceiverReport) -> Option<BufferStatus> {
    let (most, size) = course.buffered_peak.zip(course.buffer_limit)?;
    // Why, is told as it comes.
    Some(BufferStatus { peak: Bytes(most), size: Bytes(size), change: None })
}

fn median(times: &[Duration]) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

fn rate(bytes_per_sec: u64) -> Rate {
    Rate::from_bits_per_sec(bytes_per_sec as f64 * 8.0)
}
