//! Options and rules in the request of a client.

use crate::base::error::Error;
use crate::base::event_log::Subject;
use crate::file_io::path_root::ReceiveOptions;
use crate::file_io::patterns::Expansion;
use crate::file_io::root::PathRoot;
use crate::file_io::roots::{MetadataTarget, ReceiveTarget, SendRules};
use crate::model::metadata::{Metadata, Permits};
use crate::model::options::Fsync;
use crate::model::transfer_options::ROOT_REFUSED;
use bankfull_proto::filter::{FilterOptions, FilterScope, Given, GivenKind};
use bankfull_proto::limits::{MAX_CONTROL_FRAME_BYTES, MAX_OUTSTANDING_FILES};
use bankfull_proto::part::ResumePolicy;
use bankfull_proto::wire::control::{
    self, Cause, ComparisonRules, Direction, Failure, Open, PathBytes, WalkRules,
};
use bankfull_sys::Dir;
use std::path::Path;

/// Describes a client's request for the log.
pub(super) fn subject_of(open: &Open, token: Option<&str>) -> Subject {
    let direction = match open.direction {
        _ if open.throughput_test_ms.is_some() => "probe",
        Direction::Pull => "send",
        Direction::Push => "receive",
    };
    let text = |path: &PathBytes| match path.0.as_slice() {
        [] => "/".to_owned(),
        path => String::from_utf8_lossy(path).into_owned(),
    };
    let subject = Subject::new(direction, open.paths.iter().map(text)).with_token(token);
    Subject { removes_sources: open.remove_sources == Some(true), ..subject }
}

/// Rules for sending what a client pulls.
///
/// # Errors
/// A filter rule that does not parse.
pub(super) fn send_rules(open: &Open, root: &PathRoot) -> Result<SendRules, Error> {
    Ok(SendRules {
        dry_run: open.dry_run,
        filters: requested_filters(open)?,
        walk: open.walk.clone().unwrap_or_default(),
        removes_sources: open.remove_sources == Some(true),
        metadata: kept(open),
        delete: open.delete,
        itemizes: false,
        root: root.clone(),
        destination: None,
    })
}

/// Returns the client's maximum number of outstanding files; a merge has none.
pub(super) fn outstanding_limit(open: &Open) -> u32 {
    match open.max_outstanding_files {
        Some(u32::MAX) => u32::MAX,
        limit => limit.map_or(MAX_OUTSTANDING_FILES, |limit| limit.min(MAX_OUTSTANDING_FILES)),
    }
}

/// Refuses sources whose destinations do not fit into the answer to their request.
pub(super) fn refuse_long_answer(open: &Open, destination: &[u8]) -> Result<(), Error> {
    let paths = open.sources.iter().map(|source| destination.len() + 1 + source.name.len());
    if paths.sum::<usize>() < MAX_CONTROL_FRAME_BYTES {
        return Ok(());
    }
    let text = format!(
        "{} sources are too many for this destination: copy in parts, or copy their directory",
        open.sources.len()
    );
    Err(Failure::new(Cause::Usage, text).into())
}

/// Options for receiving what a client pushes.
pub(super) fn receive_options(open: &Open) -> ReceiveOptions {
    ReceiveOptions {
        fsync: match open.fsync {
            control::Fsync::None => Fsync::None,
            control::Fsync::File => Fsync::File,
            control::Fsync::End => Fsync::End,
        },
        comparison: ComparisonRules {
            by_content: open.checksum,
            ..open.comparison.unwrap_or_default()
        },
        earlier: open.earlier.clone().unwrap_or_default(),
        dry_run: open.dry_run,
        parent_is_planned: false,
        resume_policy: match open.trust_journal {
            Some(true) => ResumePolicy::TrustJournal,
            _ => ResumePolicy::Check,
        },
        quota: None,
    }
}

/// Refuses to delete in the root of this host.
pub(super) fn refuse_delete_in_root(open: &Open, target: &ReceiveTarget) -> Result<(), Error> {
    let identity = |dir: &Dir| dir.stat_self().ok().map(|stat| (stat.dev, stat.ino));
    let own = target.base.as_ref().and_then(|base| identity(base));
    let root = Dir::open(Path::new("/")).ok().and_then(|root| identity(&root));
    match open.delete.is_some() && own.is_some() && own == root {
        true => Err(Failure::new(Cause::Usage, ROOT_REFUSED).into()),
        false => Ok(()),
    }
}

/// Returns the paths of the sources; patterns are matched here.
///
/// # Errors
/// No match, too many, an unknown user, or a client that has left.
pub(super) fn source_paths(open: &Open, expansion: Expansion<'_>) -> Result<Vec<PathBytes>, Error> {
    match open.walk.as_ref().is_some_and(WalkRules::has_names) {
        true => expansion.homes(&open.paths),
        false => expansion.paths(&open.paths),
    }
}

/// Returns the metadata that a push sets, as far as this host permits.
///
/// # Errors
/// A rule that does not parse.
pub(super) fn metadata_target(open: &Open, permits: Permits) -> Result<MetadataTarget, Error> {
    let (keep, filters) = (kept(open), requested_filters(open)?);
    Ok(MetadataTarget { keep, filters, permits, sender_maps_accounts: true })
}

fn kept(open: &Open) -> Metadata {
    Metadata { rules: open.metadata.unwrap_or_default(), ..Metadata::default() }
}

/// Returns the filter rules of a request; they name no files of this host.
fn requested_filters(open: &Open) -> Result<FilterScope, Error> {
    let given = open.filters.iter().flatten();
    let given = given.map(|rule| Given { kind: GivenKind::Rule, text: rule.0.clone() });
    let parsed =
        FilterScope::parse(&given.collect::<Vec<_>>(), FilterOptions::default(), &mut |_| {
            Err("a request cannot name a file of rules".to_owned())
        });
    let parsed = parsed.map_err(|e| Failure::new(Cause::Usage, e.to_string()))?;
    Ok(match open.delete.is_some_and(|delete| delete.deletes_excluded()) {
        true => parsed.for_delete_excluded(),
        false => parsed,
    })
}
