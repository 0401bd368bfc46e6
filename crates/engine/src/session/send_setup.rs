//! Limits and settings of the data streams on the sending side.

use crate::base::error::Error;
use crate::file_io::block_io::CHUNK_BYTES;
use crate::model::io_method::IoMethod;
use crate::model::overrides::Overrides;
use crate::model::throttle::Throttle;
use crate::transport::credit::{CreditTable, StreamCredit};
use crate::transport::data_stream::DataStream;
use crate::transport::socket::BurstLimit;
use crate::transport::start_stagger::StartStagger;
use bankfull_proto::limits::MAX_OUTSTANDING_FILES;
use bankfull_proto::wire::control::Credit;
use bankfull_sys::Pipe;
use std::sync::Arc;

/// Limits of the data streams on the sending side.
pub(crate) struct SendSetup {
    /// Rate limit of the data streams.
    throttle: Option<Arc<Throttle>>,
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
        if let Some(spread) = &self.start_stagger {
            spread.wait(stream.socket());
        }
        Ok(())
    }

    /// Ends a stream's wait for credit; it then finds that it is closed.
    pub(crate) fn release_credit(&self, number: u32) {
        if let Some(credit) = &self.credit {
            credit.grant(&[Credit { stream: number, bytes: u64::MAX }]);
        }
    }

    /// Ends all waits for the rate limit and for credit.
    pub(crate) fn close(&self) {
        if let Some(throttle) = &self.throttle {
            throttle.close();
        }
        if let Some(credit) = &self.credit {
            credit.close();
        }
    }
}
