//! Destination of a pull: resolved here, with the rules that bind this side.

use super::{Request, path_bytes};
use crate::base::error::Error;
use crate::base::event::EventSink;
use crate::base::location::Location;
use crate::file_io::path_root::{PathRoot, ReceiveOptions};
use crate::file_io::roots::{MetadataTarget, ReceiveTarget};
use crate::model::metadata::Permits;
use crate::run::driver::report_destinations;
use bankfull_proto::sources::check_sources;
use bankfull_proto::wire::control::{MetadataRules, Source};

/// Opens the destination of a pull, and checks the sources in the server's answer.
///
/// # Errors
/// Sources that were not requested, and a destination that cannot be used.
pub(super) fn receive_target(
    request: &Request<'_>,
    sources: &[Source],
    events: &dyn EventSink,
) -> Result<ReceiveTarget, Error> {
    let (options, context) = (request.options, request.context);
    // Nothing else may be written, whatever the peer announces.
    check_sources(&request.remote_paths, sources)?;
    let receive = ReceiveOptions {
        fsync: options.rules.fsync,
        checksum: options.rules.checksum,
        dry_run: options.dry_run,
        parent_is_planned: context.parent_is_planned,
        resume_policy: options.rules.resume_policy(),
    };
    let typed = path_bytes(options.destination.path());
    let (mut target, destinations) = PathRoot::Host.open_destination(&typed.0, sources, receive)?;
    target.merge_handle.clone_from(&context.merge_handle);
    target.filters = options.rules.filters.clone();
    let keep = options.rules.metadata.clone();
    // A daemon is trusted with set-id bits only if the user asks for its owners.
    let is_daemon = matches!(options.sources.first(), Some(Location::Daemon { .. }));
    let set_id = !is_daemon || keep.rules.has(MetadataRules::OWNER);
    let permits = Permits { set_id, ..Permits::ALL };
    target.metadata = MetadataTarget { keep, permits, sender_maps_accounts: false };
    report_destinations(events, options, &destinations);
    Ok(target)
}
