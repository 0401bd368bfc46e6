//! Gather in rounds: each round requests an amount of data from every source and ends when all have
//! sent it.

use super::{Gather, GatherSink, GatherSummary, MAX_CONCURRENT_SOURCES};
use crate::base::barrier::Barrier;
use crate::base::cancel::Cancel;
use crate::base::error::{Error, ErrorKind};
use crate::base::threads::try_spawn_joinable;
use crate::model::options::Transport;
use crate::tuning::incast::request_more;
use bankfull_control::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Result of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Round {
    /// Number, from 1.
    pub number: u64,
    /// Bytes received from all sources, verified and written: content, and the metadata of small
    /// files (spec/wire.md, Pack).
    pub bytes: Bytes,
    /// Time from the request to the last answer.
    pub elapsed: Duration,
    /// Sources that have not ended.
    pub sources_left: usize,
}

/// Requests data from the sources of a gather, round by round; see [`Gather::run_in_rounds`].
#[derive(Debug)]
pub struct Rounds {
    barrier: Arc<Barrier>,
    cancel: Cancel,
    /// True if the gather has ended.
    has_ended: Arc<AtomicBool>,
    number: u64,
    received: u64,
    left: usize,
}

impl Gather {
    /// Runs the gather in rounds. Sources are listed at once, but send content only when `work`,
    /// which runs in this thread, requests it by [`Rounds::next`]. Content not requested when it
    /// returns is not fetched.
    ///
    /// ```no_run
    /// use bankfull::{Bytes, Cancel, Gather, Location, NoEvents};
    ///
    /// let sources = ["bankfull://one/part", "bankfull://two/part"];
    /// let sources = sources.map(|operand| Location::parse(operand.as_ref()));
    /// let sources = sources.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// let gather = Gather::new(sources, "/srv/parts".into());
    /// let done = gather.run_in_rounds(&NoEvents, &Cancel::new(), |rounds| {
    ///     while let Some(round) = rounds.next(Bytes::mib(4)) {
    ///         println!("{}: {} in {:?}", round.number, round.bytes, round.elapsed);
    ///     }
    /// })?;
    /// assert_eq!(done.failed().count(), 0);
    /// # Ok::<(), bankfull::Error>(())
    /// ```
    ///
    /// # Errors
    /// - Those of [`run`](Self::run).
    /// - [`ErrorKind::Usage`] for more than 256 sources, a dry run, QUIC, or without tuning, whose
    ///   controller grants the credit.
    /// - [`ErrorKind::Interrupted`] if some content was not requested.
    pub fn run_in_rounds(
        self,
        events: &dyn GatherSink,
        cancel: &Cancel,
        work: impl FnOnce(&mut Rounds),
    ) -> Result<GatherSummary, Error> {
        self.check_rounds()?;
        let count = self.sources.len();
        let (barrier, has_ended) =
            (Barrier::new(count, request_more), Arc::new(AtomicBool::new(false)));
        let cancel = cancel.child();
        let mut rounds = Rounds {
            barrier: Arc::clone(&barrier),
            cancel: cancel.clone(),
            has_ended: Arc::clone(&has_ended),
            number: 0,
            received: 0,
            left: count,
        };
        thread::scope(|scope| {
            let running = try_spawn_joinable(scope, || {
                let result = self.run_with(events, &cancel, Some(barrier));
                has_ended.store(true, Ordering::Relaxed);
                result
            })?;
            // A panic of `work` also cancels: the sources would wait forever.
            let mut stop = CancelOnDrop(Some(rounds.cancel.clone()));
            work(&mut rounds);
            if rounds.left == 0 {
                stop.0 = None;
            }
            drop(stop);
            let panicked = |_| {
                Error::new(
                    ErrorKind::Local,
                    "a thread of this program panicked: please report this bug",
                )
            };
            running.join().map_err(panicked)?
        })
    }

    fn check_rounds(&self) -> Result<(), Error> {
        let usage = |text: String| Err(Error::new(ErrorKind::Usage, text));
        let count = self.sources.len();
        if self.template.options.dry_run {
            return usage("a dry run has no rounds: nothing is sent".to_owned());
        }
        if self.template.options.daemon.transport == Transport::Quic {
            let text = "rounds need TCP: leave out --transport quic";
            return usage(text.to_owned());
        }
        if !self.template.options.is_tuned() {
            return usage("rounds need tuning, which is off: leave out --tune off".to_owned());
        }
        if count > MAX_CONCURRENT_SOURCES {
            return usage(format!(
                "{count} sources: up to {MAX_CONCURRENT_SOURCES} can send in rounds"
            ));
        }
        Ok(())
    }
}

/// Cancels on drop.
struct CancelOnDrop(Option<Cancel>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}

impl Rounds {
    /// Requests `round_size` more of every source's content and returns when all have sent it. A
    /// source completes the block or pack at the end of a round and sends that much less in the
    /// next round. Data sent is verified and written. A file gets its final name about an RTT after
    /// its last block. A source that fails or ends is not waited for.
    ///
    /// Returns `None` when no source has more, or after a cancellation.
    pub fn next(&mut self, round_size: Bytes) -> Option<Round> {
        let began = Instant::now();
        if self.left == 0 {
            return None;
        }
        self.barrier.begin_round(round_size.0);
        let is_abandoned = || self.cancel.is_cancelled() || self.has_ended.load(Ordering::Relaxed);
        let received = self.barrier.wait(is_abandoned);
        // The gather ended before any source had started.
        let Some(received) = received else {
            self.left = 0;
            return None;
        };
        self.number += 1;
        self.left = received.sources_left;
        let before = std::mem::replace(&mut self.received, received.bytes);
        Some(Round {
            number: self.number,
            bytes: Bytes(received.bytes - before),
            elapsed: began.elapsed(),
            sources_left: received.sources_left,
        })
    }
}
