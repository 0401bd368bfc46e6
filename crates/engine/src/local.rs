//! Copies within this host.
use crate::cancel::Cancel;
use crate::error::Error;
use crate::event::{EventSink, Summary};
use crate::transfer::Transfer;
use std::time::Instant;

pub(crate) fn run(
    transfer: &Transfer,
    events: &dyn EventSink,
    cancel: &Cancel,
    started: Instant,
) -> Result<Summary, Error> {
    let _ = (transfer, events, cancel, started);
    Ok(Summary::default())
}
