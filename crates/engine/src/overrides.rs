//! What a user has set that the path would else decide: the most data per second.
//!
//! Both sides of a session know it: the client from its caller, the server from the request.

use crate::throttle::Throttle;
use bankfull_control::Rate;
use bankfull_proto::wire::control::{Cause, Failure, Open};
use std::sync::Arc;

/// The least that may be chosen as the most data per second: at less, 64 connections that take
/// turns would look dead. (ours: a segment of each then takes 8 s)
pub const RATE_MAX_LEAST: Rate = Rate::from_bytes_per_sec(12_500);

/// Where less is allowed per second, no datagrams measure the path: packet trains are 0.3 MB, and
/// probes 80 kbit/s. (ours: a quarter of a second, and one percent)
const DATAGRAMS_LEAST: Rate = Rate::from_bytes_per_sec(1_250_000);

/// What a user has set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Overrides {
    /// The most data per second, of all data connections together.
    pub(crate) rate_max: Option<Rate>,
}

impl Overrides {
    /// What a client asks for.
    pub(crate) fn of(open: &Open) -> Self {
        Self { rate_max: open.rate_max.map(Rate::from_bytes_per_sec) }
    }

    /// Writes it into a request.
    pub(crate) fn write(&self, open: &mut Open) {
        open.rate_max = self.rate_max.map(Rate::bytes_per_sec);
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

    #[test]
    fn a_rate_that_is_too_low_is_refused_with_the_least_one() {
        let of = |bytes| Overrides { rate_max: Some(Rate::from_bytes_per_sec(bytes)) }.check();
        assert_eq!((of(12_500), Overrides::default().check()), (Ok(()), Ok(())));
        let failure = of(125).unwrap_err();
        assert_eq!(failure.cause(), Cause::Usage);
        assert_eq!(failure.text, "at most 1.0 kbit/s: choose 100.0 kbit/s or more");
    }
}
