//! Limits and settings of the data streams on the sending side.

use crate::base::error::Error;
use crate::file_io::block_io::CHUNK_BYTES;
use crate::model::io_method::IoMethod;
use crate::model::overrides::Overrides;
use crate::model::shared_limit::SharedLimit;
use crate::model::throttle::Throttle;
use crate::transport::credit::{CreditTable, StreamCredit};
use crate::transport::data_stream::DataStream;
use crate::transport::socket::BurstLimit;
use crate::transport::start_stagger::StartStagger;
use bankfull_proto::limits::MAX_OUTSTANDING_FILES;
use bankfull_proto::wire::control::Credit;
use bankfull_sys::Pipe;
use std::sync::Arc;
use std::time::Duration;

/// Outstanding files that suffice on a short path.
///
/// (measured: a million unchanged files over loopback; the client takes 4.3 s of CPU with 4096 and
/// 8.9 s with 65536, which do not fit its caches)
pub(crate) const SHORT_PATH_FILES: u32 = 4096;

/// RTT from which the maximum of outstanding files is of use. (10 Gbit/s and 200 ms, `limits.rs`)
const LONG_PATH_RTT: Duration = Duration::from_millis(200);

/// Returns the number of outstanding files that are of use at an RTT.
pub(super) fn useful_files(rtt: Duration) -> u32 {
    let share = rtt.as_secs_f64() / LONG_PATH_RTT.as_secs_f64();
    let files = share * f64::from(MAX_OUTSTANDING_FILES);
    (files as u32).clamp(SHORT_PATH_FILES, MAX_OUTSTANDING_FILES)
}

/// Limits of the data streams on the sending side.
pub(crate) struct SendSetup {
    /// Rate limit of the data streams.
    throttle: Option<Arc<Throttle>>,
    /// Rate limit of the share, which other sessions count for, too.
    pub(crate) share_limit: Option<Arc<SharedLimit>>,
    /// Longest burst of a data stream.
    pub(crate) burst_limit: Arc<BurstLimit>,
    /// Staggered start of the data streams, if they are tuned.
    pub(crate) start_stagger: Option<StartStagger>,
    /// Credit of each stream, if the receiver grants any.
    pub(crate) credit: Option<Arc<CreditTable>>,
    /// Limit of announced files and symlinks without a final outcome.
    pub(crate) max_outstanding_files: u32,
}

impl Default for SendSetup {
    fn default() -> Self {
        Self::new(None)
    }
}

impl SendSetup {
    /// Returns a setup with this rate limit.
    pub(crate) fn new(throttle: Option<Arc<Throttle>>) -> Self {
        Self {
            throttle,
            share_limit: None,
            burst_limit: Arc::default(),
            start_stagger: None,
            credit: None,
            max_outstanding_files: MAX_OUTSTANDING_FILES,
        }
    }

    /// Returns the rate limit that sending streams wait for.
    pub(crate) fn throttle(&self) -> Option<Arc<Throttle>> {
        self.throttle.clone()
    }

    /// Applies limits and user settings to a stream, then waits for its staggered start.
    ///
    /// # Errors
    /// Settings that cannot be applied.
    pub(crate) fn prepare(
        &self,
        overrides: &Overrides,
        number: u32,
        stream: &mut DataStream,
    ) -> Result<(), Error> {
        stream.set_throttle(self.throttle());
        stream.set_shared_limit(self.share_limit.clone());
        stream.set_credit(
            self.credit.as_ref().map(|credit| StreamCredit::new(Arc::clone(credit), number)),
        );
        stream.set_burst_limit(Arc::clone(&self.burst_limit));
        if overrides.io_method == Some(IoMethod::Splice) {
            // The user chose this method explicitly: no fallback.
            let pipe = Pipe::new(CHUNK_BYTES)
                .map_err(|e| Error::local("cannot create a pipe for I/O method splice", &e))?;
            stream.set_pipe(Some(pipe));
        }
        overrides.apply_to_sender(stream.socket().tcp())?;
        if let Some(stagger) = &self.start_stagger {
            stagger.wait(number, stream.socket());
        }
        Ok(())
    }

    /// Starts the streams that wait for the receiver's first request.
    pub(crate) fn release_streams(&self) {
        if let Some(stagger) = &self.start_stagger {
            stagger.release();
        }
    }

    /// Ends a stream's wait for credit; it then finds that it is closed.
    pub(crate) fn release_credit(&self, number: u32) {
        if let Some(credit) = &self.credit {
            credit.grant(&[Credit { stream: number, bytes: u64::MAX }]);
        }
    }

    /// Ends all waits: for the start, the rate limit and credit.
    pub(crate) fn close(&self) {
        self.release_streams();
        if let Some(throttle) = &self.throttle {
            throttle.close();
        }
        if let Some(limit) = &self.share_limit {
            limit.close();
        }
        if let Some(credit) = &self.credit {
            credit.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_files_are_outstanding_on_longer_paths() {
        let at = |millis| useful_files(Duration::from_millis(millis));
        assert_eq!([at(0), at(1), at(12)], [SHORT_PATH_FILES; 3]);
        assert_eq!(at(100), MAX_OUTSTANDING_FILES / 2);
        assert_eq!([at(200), at(2000)], [MAX_OUTSTANDING_FILES; 2]);
    }
}
