//! What a user has set that the path would else decide: the most data per second, and windows.
//!
//! Both sides of a session know it: the client from its caller, the server from the request.

use crate::throttle::Throttle;
use bankfull_control::pacing::SEGMENT_DATA;
use bankfull_control::{Bytes, Rate};
use bankfull_proto::wire::control::{Cause, Failure, Open};
use std::sync::Arc;

/// The least that may be chosen as the most data per second: at less, 64 connections that take
/// turns would look dead. (ours: a segment of each then takes 8 s)
pub const RATE_MAX_LEAST: Rate = Rate::from_bytes_per_sec(12_500);

/// The least that may be chosen for the receive windows: two segments. (RFC 5681 §4.2: with one,
/// the receiver holds back its acknowledgement)
pub const BUFFER_LEAST: Bytes = Bytes(2 * SEGMENT_DATA.0);

/// Where less is allowed per second, no datagrams measure the path: packet trains are 0.3 MB, and
/// probes 80 kbit/s. (ours: a quarter of a second, and one percent)
const DATAGRAMS_LEAST: Rate = Rate::from_bytes_per_sec(1_250_000);

/// What a user has set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Overrides {
    /// The most data per second, of all data connections together.
    pub(crate) rate_max: Option<Rate>,
    /// The receive windows of all data connections together.
    pub(crate) window: Option<Bytes>,
}

impl Overrides {
    /// What a client asks for.
    pub(crate) fn of(open: &Open) -> Self {
        Self {
            rate_max: open.rate_max.map(Rate::from_bytes_per_sec),
            window: open.window.map(Bytes),
        }
    }

    /// Writes it into a request.
    pub(crate) fn write(&self, open: &mut Open) {
        open.rate_max = self.rate_max.map(Rate::bytes_per_sec);
        open.window = self.window.map(|window| window.0);
    }

    /// Whether all is left to the path.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether there is room for datagrams beside the data.
    pub(crate) fn allow_datagrams(&self) -> bool {
        self.rate_max.is_none_or(|rate| rate >= DATAGRAMS_LEAST)
    }

    /// Whether it can be done at all.
    ///
    /// # Errors
    /// [`Cause::Usage`], with what can be chosen.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if let Some(rate) = self.rate_max.filter(|&rate| rate < RATE_MAX_LEAST) {
            let text = format!("at most {rate}: choose {RATE_MAX_LEAST} or more");
            return Err(Failure::new(Cause::Usage, text));
        }
        if let Some(window) = self.window.filter(|&window| window < BUFFER_LEAST) {
            let text = format!("a buffer of {window}: choose two segments or more, {BUFFER_LEAST}");
            return Err(Failure::new(Cause::Usage, text));
        }
        Ok(())
    }

    /// What holds the connections of a side that sends.
    pub(crate) fn throttle(&self) -> Option<Arc<Throttle>> {
        self.rate_max.map(|rate| Arc::new(Throttle::new(rate)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_proto::wire::control::{Direction, Fsync};

    fn open() -> Open {
        Open {
            direction: Direction::Pull,
            paths: Vec::new(),
            sources: Vec::new(),
            fsync: Fsync::None,
            checksum: false,
            dry_run: false,
            plain: false,
            streams: 1,
            timeout_ms: 0,
            untuned: None,
            rate_max: None,
            window: None,
            probe_ms: None,
        }
    }

    #[test]
    fn a_rate_that_is_too_low_is_refused_with_the_least_one() {
        let of = |bytes| {
            let rate_max = Some(Rate::from_bytes_per_sec(bytes));
            Overrides { rate_max, ..Overrides::default() }.check()
        };
        assert_eq!((of(12_500), Overrides::default().check()), (Ok(()), Ok(())));
        let failure = of(125).unwrap_err();
        assert_eq!(failure.cause(), Cause::Usage);
        assert_eq!(failure.text, "at most 1.0 kbit/s: choose 100.0 kbit/s or more");
    }

    #[test]
    fn a_buffer_that_holds_no_two_segments_is_refused() {
        let of = |bytes| Overrides { window: Some(Bytes(bytes)), ..Overrides::default() }.check();
        assert_eq!(of(2_896), Ok(()));
        let failure = of(2_895).unwrap_err();
        assert_eq!(failure.cause(), Cause::Usage);
        assert_eq!(failure.text, "a buffer of 2.8 KiB: choose two segments or more, 2.8 KiB");
    }

    #[test]
    fn a_request_carries_all_of_it() {
        let set = Overrides {
            rate_max: Some(Rate::from_bits_per_sec(1e9)),
            window: Some(Bytes(4_000_000)),
        };
        let mut open = open();
        assert!(Overrides::of(&open).is_empty());
        set.write(&mut open);
        assert_eq!(Overrides::of(&open), set);
    }
}
