//! Rules of a client's request, as the session needs them.

use crate::base::error::Error;
use crate::file_io::path_root::ReceiveOptions;
use crate::file_io::roots::MetadataTarget;
use crate::model::metadata::{Metadata, Permits};
use crate::model::options::Fsync;
use crate::model::transfer_options::SendRules;
use bankfull_proto::filter::{FilterOptions, FilterScope, Given, GivenKind};
use bankfull_proto::part::ResumePolicy;
use bankfull_proto::wire::control::{self, Cause, Failure, Open};

/// Returns the rules of a pull.
///
/// # Errors
/// A filter rule that does not parse.
pub(crate) fn send_rules(open: &Open) -> Result<SendRules, Error> {
    Ok(SendRules { dry_run: open.dry_run, filters: filters(open)?, metadata: kept(open) })
}

/// Returns the metadata that a push sets, as far as this host permits.
pub(crate) fn metadata(open: &Open, permits: Permits) -> MetadataTarget {
    MetadataTarget { keep: kept(open), permits, sender_maps_accounts: true }
}

fn kept(open: &Open) -> Metadata {
    Metadata { rules: open.metadata.unwrap_or_default(), ..Metadata::default() }
}

/// Returns the options for receiving a push.
pub(crate) fn receive_options(open: &Open) -> ReceiveOptions {
    ReceiveOptions {
        fsync: match open.fsync {
            control::Fsync::None => Fsync::None,
            control::Fsync::File => Fsync::File,
            control::Fsync::End => Fsync::End,
        },
        checksum: open.checksum,
        dry_run: open.dry_run,
        parent_is_planned: false,
        resume_policy: match open.trust_journal {
            Some(true) => ResumePolicy::TrustJournal,
            _ => ResumePolicy::Check,
        },
    }
}

/// Returns the filter rules of a request; they name no files of this host.
fn filters(open: &Open) -> Result<FilterScope, Error> {
    let given = open.filters.iter().flatten();
    let given = given.map(|rule| Given { kind: GivenKind::Rule, text: rule.0.clone() });
    let parsed =
        FilterScope::parse(&given.collect::<Vec<_>>(), FilterOptions::default(), &mut |_| {
            Err("a request cannot name a file of rules".to_owned())
        });
    parsed.map_err(|e| Failure::new(Cause::Usage, e.to_string()).into())
}
