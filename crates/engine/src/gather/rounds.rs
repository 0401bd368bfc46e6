//! A gathering in rounds: every source is asked for a piece, and for the next one only when all
//! are there.

use super::{Gather, GatherSink, GatherSummary, RUNNING_MAX};
use crate::cancel::Cancel;
use crate::error::{Error, ErrorKind};
use crate::options::Transport;
use crate::threads::try_spawn_joinable;
use crate::tune::Barrier;
use bankfull_control::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A round that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Round {
    /// Its number, from 1 on.
    pub number: u64,
    /// What came in it from all sources, verified and written: content, and what is
    /// told of small files (spec/wire.md, Pack).
    pub bytes: Bytes,
    /// From the question to the last answer.
    pub elapsed: Duration,
    /// Sources that have not come to their end.
    pub sources_left: usize,
}

/// Asks the sources of a gathering for what they have, piece by piece: see
/// [`Gather::run_in_rounds`].
#[derive(Debug)]
pub struct Rounds {
    barrier: Arc<Barrier>,
    cancel: Cancel,
    /// The gathering has ended.
    is_over: Arc<AtomicBool>,
    number: u64,
    came: u64,
    left: usize,
}

impl Gather {
    /// Gathers in rounds: sources are reached and listed, but send nothing of their content before
    /// `work`, which runs in this thread, asks for it by [`Rounds::next`]. What it has not asked
    /// for when it returns is not fetched.
    ///
    /// ```no_run
    /// use bankfull::{Bytes, Cancel, Gather, Location, NoEvents};
    ///
    /// let sources = ["bankfull://one/part", "bankfull://two/part"];
    /// let sources = sources.map(|place| Location::parse(place.as_ref()));
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
    /// As [`run`](Self::run). [`ErrorKind::Usage`], too, where there are more than 256 sources, for
    /// a dry run, and where nothing may be tuned: what tunes the senders is what asks them.
    /// [`ErrorKind::Interrupted`] where not all was asked for.
    pub fn run_in_rounds(
        self,
        events: &dyn GatherSink,
        cancel: &Cancel,
        work: impl FnOnce(&mut Rounds),
    ) -> Result<GatherSummary, Error> {
        self.check_rounds()?;
        let count = self.sources.len();
        let (barrier, is_over) = (Barrier::new(count), Arc::new(AtomicBool::new(false)));
        let cancel = cancel.beneath();
        let mut rounds = Rounds {
            barrier: Arc::clone(&barrier),
            cancel: cancel.clone(),
            is_over: Arc::clone(&is_over),
            number: 0,
            came: 0,
            left: count,
        };
        thread::scope(|scope| {
            let running = try_spawn_joinable(scope, || {
                let result = self.run_with(events, &cancel, Some(barrier));
                is_over.store(true, Ordering::Relaxed);
                result
            })?;
            // Also where it panics: whoever waits to be asked would wait for ever.
            let mut stop = Stop(Some(rounds.cancel.clone()));
            work(&mut rounds);
            if rounds.left == 0 {
                stop.0 = None;
            }
            drop(stop);
            let panicked = |_| Error::new(ErrorKind::Local, "a thread of this program panicked");
            running.join().map_err(panicked)?
        })
    }

    fn check_rounds(&self) -> Result<(), Error> {
        let usage = |text: String| Err(Error::new(ErrorKind::Usage, text));
        let count = self.sources.len();
        if self.each.dry_run {
            return usage("a dry run has no rounds: nothing is sent".to_owned());
        }
        if self.each.daemon.transport == Transport::Quic {
            let text = "rounds are for sources that are asked by TCP: leave out --transport quic";
            return usage(text.to_owned());
        }
        if !self.each.is_tuned() {
            return usage(
                "rounds need tuning, which is off: it is what asks the sources".to_owned(),
            );
        }
        if count > RUNNING_MAX {
            return usage(format!("{count} sources: up to {RUNNING_MAX} can send in rounds"));
        }
        Ok(())
    }
}

/// Cancels when it is dropped.
struct Stop(Option<Cancel>);

impl Drop for Stop {
    fn drop(&mut self) {
        if let Some(cancel) = &self.0 {
            cancel.cancel();
        }
    }
}

impl Rounds {
    /// Asks every source for so much more of its content, and returns when all are there. A source
    /// sends the block or the pack of files in which that ends as a whole, and so much less in the
    /// next round; whatever it has sent is verified and written. A file gets its name about a round
    /// trip after its last block. A source that fails or comes to its end is not waited for.
    ///
    /// `None` when no source has more, or after a cancel.
    pub fn next(&mut self, bytes: Bytes) -> Option<Round> {
        let began = Instant::now();
        if self.left == 0 {
            return None;
        }
        self.barrier.open(bytes.0);
        let is_needless = || self.cancel.is_cancelled() || self.is_over.load(Ordering::Relaxed);
        let came = self.barrier.wait(is_needless);
        // A gathering that ended before anything was begun waits for nobody.
        let Some(came) = came else {
            self.left = 0;
            return None;
        };
        self.number += 1;
        self.left = came.left;
        let before = std::mem::replace(&mut self.came, came.bytes);
        Some(Round {
            number: self.number,
            bytes: Bytes(came.bytes - before),
            elapsed: began.elapsed(),
            sources_left: came.left,
        })
    }
}
