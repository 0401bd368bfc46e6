//! Answers to announced files.

use bankfull_proto::wire::control::{Cause, Failure, Verdict, Want};

pub(crate) fn make_want(file: u64, verdict: Verdict) -> Want {
    let accepts_early_digest =
        matches!(verdict, Verdict::Send | Verdict::IfDiffers).then_some(true);
    Want { file, verdict, have: Vec::new(), hash: None, failure: None, accepts_early_digest }
}

/// Returns the answer to an entry that this receiver may not create.
pub(crate) fn make_omission(file: u64) -> Want {
    let failure = Some(Failure::new(Cause::Warning, "not permitted here"));
    Want { failure, ..make_want(file, Verdict::Skip) }
}

/// Returns the answer to a file that the rules for what exists leave out.
pub(crate) fn make_left_out(file: u64) -> Want {
    let failure = Some(Failure::new(Cause::Warning, "left out"));
    Want { failure, ..make_want(file, Verdict::Skip) }
}

pub(crate) fn make_refusal(file: u64, failure: Failure) -> Want {
    Want { failure: Some(failure), ..make_want(file, Verdict::Refused) }
}
