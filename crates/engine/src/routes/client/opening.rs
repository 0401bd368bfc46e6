//! The request of a transfer as sent, and the destination of a pull.

use super::{Request, path_bytes};
use crate::base::error::Error;
use crate::base::event::EventSink;
use crate::base::location::Location;
use crate::file_io::ordered_output::check_is_file;
use crate::file_io::path_root::{ReceiveOptions, relative_names};
use crate::file_io::root::PathRoot;
use crate::file_io::roots::{ChangeReader, MetadataTarget, ReceiveTarget, sources_of};
use crate::model::metadata::Permits;
use crate::model::options::Fsync;
use crate::run::driver::report_destinations;
use bankfull_control::ControllerKind;
use bankfull_proto::names::NameList;
use bankfull_proto::sources::{check_contents, check_sources};
use bankfull_proto::wire::control::{self, Direction, MetadataRules, Open, Source};
use std::sync::Arc;

impl Request<'_> {
    /// The request as sent.
    pub(super) fn open(&self, streams: u32) -> Open {
        let options = self.options;
        let mut open = Open {
            direction: self.direction,
            paths: self.remote_paths.clone(),
            sources: sources_of(&self.items),
            fsync: match options.rules.fsync {
                Fsync::None => control::Fsync::None,
                Fsync::File => control::Fsync::File,
                Fsync::End => control::Fsync::End,
            },
            checksum: options.rules.comparison.by_content,
            dry_run: options.dry_run,
            unencrypted: !options.encryption && !options.uses_quic(),
            streams,
            timeout_ms: u64::try_from(options.timeout.as_millis()).unwrap_or(u64::MAX),
            autotune_off: (!options.is_tuned()).then_some(true),
            tune_sobas: (options.is_tuned() && options.controller() == ControllerKind::Sobas)
                .then_some(true),
            throughput_test_ms: options.purpose.test_time().map(|time| time.as_millis() as u32),
            max_streams: options.max_streams(),
            credit: self.may_use_credit().then_some(true),
            trust_journal: options.rules.trust_journal.then_some(true),
            max_outstanding_files: match &self.context.merge_handle {
                // A merging receiver answers only after everything is announced.
                Some(_) => Some(u32::MAX),
                None => self.entry_quota.as_ref().and_then(|quota| quota.announced()),
            },
            ..Open::default()
        };
        options.overrides.write_to(&mut open);
        open.metadata = Some(options.rules.metadata.rules).filter(|rules| !rules.is_empty());
        if self.direction == Direction::Pull {
            open.walk = options.rules.walk.to_wire();
            open.remove_sources = options.rules.removes_sources.then_some(true);
        }
        open.delete = options.rules.delete;
        // Rules for attributes protect those at the destination.
        let keeps_xattrs = options.rules.metadata.rules.has(MetadataRules::XATTRS);
        if self.direction == Direction::Pull || open.delete.is_some() || keeps_xattrs {
            let rules = options.rules.filters.to_texts().into_iter().map(control::Bytes);
            open.filters = (!options.rules.filters.is_empty()).then(|| rules.collect());
        }
        if self.direction == Direction::Push {
            open.itemize = options.rules.itemizes.then_some(true);
            open.earlier = options.rules.earlier.to_wire();
            open.comparison = options.rules.comparison.to_wire();
            open.walk = options.rules.walk.to_receiver();
            open.cached_path = self.earlier.sustained.map(|seen| {
                [seen.rate.bytes_per_sec(), u64::try_from(seen.rtt.as_micros()).unwrap_or(u64::MAX)]
            });
        }
        open
    }
}

/// Opens the destination of a pull.
pub(super) fn receive_target(
    request: &Request<'_>,
    sources: &[Source],
    events: &dyn EventSink,
) -> Result<ReceiveTarget, Error> {
    let (options, context) = (request.options, request.context);
    // Nothing else may be written, whatever the peer announces.
    let names = requested_names(request)?;
    match options.rules.walk.has_names() {
        true => check_contents(sources)?,
        false => check_sources(&request.remote_paths, sources)?,
    }
    if context.output.is_some() {
        check_is_file(sources)?;
    }
    let receive = ReceiveOptions {
        fsync: options.rules.fsync,
        comparison: options.rules.comparison,
        earlier: options.rules.earlier.clone(),
        dry_run: options.dry_run,
        parent_is_planned: context.parent_is_planned,
        resume_policy: options.rules.resume_policy(),
        quota: None,
    };
    let typed = path_bytes(options.destination.path());
    let (mut target, destinations) = PathRoot::Host.open_destination(&typed.0, sources, receive)?;
    target.merge_handle.clone_from(&context.merge_handle);
    target.output.clone_from(&context.output);
    target.requested.filters = options.rules.filters.clone();
    target.requested.walk = options.rules.walk.clone();
    target.requested.delete = options.rules.delete;
    let keep = options.rules.metadata.clone();
    // A daemon is trusted with set-id bits only if the user asks for its owners.
    let is_daemon = matches!(options.sources.first(), Some(Location::Daemon { .. }));
    let set_id = !is_daemon || keep.rules.has(MetadataRules::OWNER);
    let (permits, filters) = (Permits { set_id, ..Permits::ALL }, options.rules.filters.clone());
    target.metadata = MetadataTarget { keep, filters, permits, sender_maps_accounts: false };
    target.requested.names = names;
    target.requested.changes = options.rules.itemizes.then_some(ChangeReader::Here);
    if context.output.is_none() {
        report_destinations(events, options, &destinations);
    }
    Ok(target)
}

/// Returns the names that are requested; none if whole sources are.
fn requested_names(request: &Request<'_>) -> Result<Vec<Arc<NameList>>, Error> {
    let rules = &request.options.rules;
    if let Some(list) = &rules.list {
        return Ok(vec![Arc::clone(list)]);
    }
    match rules.walk.relative {
        true => {
            let bases = relative_names(&request.remote_paths)?.into_iter();
            Ok(bases.map(|(_, names)| Arc::new(names)).collect())
        }
        false => Ok(Vec::new()),
    }
}
