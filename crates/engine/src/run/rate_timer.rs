//! Rate limit of a session by the time of day: applied here, told to the peer, and reported.

use crate::base::event::{Controller, Event, TuningDecision};
use crate::model::rate_schedule::RateSchedule;
use crate::session::Session;
use crate::stats::session_stats::SessionStats;
use crate::transport::control::Outbox;
use bankfull_control::Rate;
use bankfull_proto::wire::control::{Message, RateLimit};
use std::time::{Duration, Instant};

/// Interval at which the clock is read. (chosen: a change is late by a second at most; reading
/// takes a microsecond)
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// Applies the limits of a schedule to a session.
pub(super) struct RateTimer<'s> {
    session: &'s Session,
    schedule: &'s RateSchedule,
    started: Instant,
    next: Instant,
    /// Limit that the peer knows and this side applies; `None` before the first.
    current: Option<Option<Rate>>,
}

impl<'s> RateTimer<'s> {
    /// Creates the timer of a session; `None` without a schedule.
    pub(super) fn new(session: &'s Session) -> Option<Self> {
        let schedule = session.overrides.schedule.as_ref()?;
        let now = Instant::now();
        Some(Self { session, schedule, started: now, next: now, current: None })
    }

    /// Applies a change of the limit, if there is one.
    pub(super) fn poll(&mut self, outbox: &Outbox, stats: &SessionStats<'_>) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + CLOCK_INTERVAL;
        let limit = self.session.overrides.rate_limit();
        if self.current == Some(limit) {
            return;
        }
        // The minute may have passed since the request.
        let bytes_per_sec = limit.map(Rate::bytes_per_sec);
        let message = Message::RateLimit(RateLimit { bytes_per_sec });
        if self.session.is_rate_followed && !outbox.try_post(&message) {
            return;
        }
        let shared = self.session.shared_bytes();
        stats.end_limit_interval(self.started.elapsed(), shared, self.session.rate_max());
        self.session.set_rate_max(limit);
        self.current = Some(limit);
        stats.event(Event::Tuning(self.decision(limit, stats)));
    }

    fn decision(&self, limit: Option<Rate>, stats: &SessionStats<'_>) -> TuningDecision {
        let until = self.schedule.next_change();
        let until = until.map_or(String::new(), |time| format!(" until {time}"));
        let (state, reason) = match (limit, self.session.overrides.rate_max) {
            (Some(limit), Some(max)) if limit == max => {
                ("limited", format!("--max-rate is the lower limit{until}"))
            }
            (Some(limit), _) => ("limited", format!("--schedule limits to {limit}{until}")),
            (None, _) => ("unlimited", format!("--schedule sets no limit{until}")),
        };
        TuningDecision {
            at: stats.elapsed(),
            controller: Controller::RateLimit,
            state: state.to_owned(),
            pacing: limit,
            reason,
            ..TuningDecision::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::event::EventSink;
    use crate::base::sync::lock;
    use crate::model::overrides::Overrides;
    use crate::transport::control::tests::sent;
    use bankfull_control::Schedule;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Decisions(Mutex<Vec<TuningDecision>>);

    impl EventSink for Decisions {
        fn event(&self, event: Event) {
            if let Event::Tuning(decision) = event {
                lock(&self.0).push(decision);
            }
        }
    }

    /// Returns a session under this schedule at a minute of the day.
    fn session(text: &str, minute: usize, rate_max: Option<Rate>) -> Session {
        let schedule =
            Schedule::parse(text, |rate| rate.parse().map_err(|_| rate.to_owned())).unwrap();
        let schedule = Some(RateSchedule::at(schedule, minute));
        let overrides = Overrides { schedule, rate_max, ..Overrides::default() };
        let mut session = Session::new(overrides, 1);
        session.is_rate_followed = true;
        session
    }

    fn limits(outbox: &Outbox) -> Vec<Option<u64>> {
        let limit = |message| match message {
            Message::RateLimit(limit) => limit.bytes_per_sec,
            other => panic!("{other:?}"),
        };
        sent(outbox).into_iter().map(limit).collect()
    }

    #[test]
    fn change_of_the_minute_changes_the_limit_of_both_sides() {
        let text = "08:00-18:00=50mbit,*=max";
        let mut session = session(text, 7 * 60 + 59, None);
        let (events, outbox) = (Decisions::default(), Outbox::default());
        let stats = SessionStats::new(&events, Instant::now());
        let mut timer = RateTimer::new(&session).unwrap();
        timer.poll(&outbox, &stats);
        assert_eq!((session.rate_max(), limits(&outbox)), (None, vec![None]));
        // Nothing changes within the minute.
        let mut timer = RateTimer { current: Some(None), ..RateTimer::new(&session).unwrap() };
        timer.poll(&outbox, &stats);
        assert_eq!(lock(&events.0).len(), 1);
        let schedule = Schedule::parse(text, |rate| rate.parse().map_err(|_| rate.to_owned()));
        session.overrides.schedule = schedule.ok().map(|s| RateSchedule::at(s, 8 * 60));
        let mut timer = RateTimer { current: Some(None), ..RateTimer::new(&session).unwrap() };
        timer.poll(&outbox, &stats);
        let limit = Rate::from_bits_per_sec(50e6);
        assert_eq!((session.rate_max(), limits(&outbox)), (Some(limit), vec![Some(6_250_000)]));
        let reasons: Vec<String> =
            lock(&events.0).iter().map(|decision| decision.reason.clone()).collect();
        assert_eq!(
            reasons,
            [
                "--schedule sets no limit until 08:00",
                "--schedule limits to 50.0 Mbit/s until 18:00"
            ]
        );
    }

    #[test]
    fn lower_maximum_stays_the_limit() {
        let max = Rate::from_bits_per_sec(10e6);
        let session = session("08:00-18:00=50mbit,*=max", 0, Some(max));
        let (events, outbox) = (Decisions::default(), Outbox::default());
        let stats = SessionStats::new(&events, Instant::now());
        RateTimer::new(&session).unwrap().poll(&outbox, &stats);
        assert_eq!(session.rate_max(), Some(max));
        let decision = lock(&events.0).pop().unwrap();
        assert_eq!(decision.reason, "--max-rate is the lower limit until 08:00");
        assert_eq!((decision.pacing, decision.controller.name()), (Some(max), "rate-limit"));
    }
}
