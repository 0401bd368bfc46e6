//! Answers to announced files.

use bankfull_proto::wire::control::{Failure, Verdict, Want};

pub(crate) fn make_want(file: u64, verdict: Verdict) -> Want {
    let accepts_early_digest =
        matches!(verdict, Verdict::Send | Verdict::IfDiffers).then_some(true);
    Want { file, verdict, have: Vec::new(), hash: None, failure: None, accepts_early_digest }
}

pub(crate) fn make_refusal(file: u64, failure: Failure) -> Want {
    Want { failure: Some(failure), ..make_want(file, Verdict::Refused) }
}
