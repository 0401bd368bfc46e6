//! Public entry point for listing a file or a directory, here or on another host.

use super::transfer::Transfer;
use crate::base::cancel::Cancel;
use crate::base::error::Error;
use crate::base::event::{EventSink, Summary};
use crate::base::location::Location;
use crate::model::metadata::{Metadata, MetadataKind};
use crate::model::options::{DaemonOptions, SshOptions, Tune};
use crate::model::transfer_options::Purpose;
use std::path::PathBuf;
use std::time::Duration;

/// Listing of a file or a directory. Build it, then [`run`](Self::run) it.
#[derive(Debug, Clone)]
pub struct Listing {
    transfer: Transfer,
}

impl Listing {
    /// Creates the listing of a place: of a directory, the entries directly in it.
    #[must_use]
    pub fn new(place: Location) -> Self {
        let kinds = [
            MetadataKind::Owner,
            MetadataKind::Group,
            MetadataKind::Devices,
            MetadataKind::Specials,
        ];
        let shown = kinds.into_iter().fold(Metadata::default(), |all, kind| all.keep(kind, true));
        let transfer = Transfer::new(vec![place], Location::Local(PathBuf::from(".")))
            .metadata(shown)
            .dry_run(true)
            .tune(Tune::Off)
            // A retry would list entries again that were already shown.
            .retry_for(Duration::ZERO);
        let mut listing = Self { transfer };
        listing.transfer.options.purpose = Purpose::Listing;
        listing.transfer.options.rules.walk.max_depth = Some(1);
        listing
    }

    /// Lists what is in subdirectories, too. Default: off.
    #[must_use]
    pub fn recursive(mut self, recursive: bool) -> Self {
        self.transfer.options.rules.walk.max_depth = if recursive { None } else { Some(1) };
        self
    }

    /// Sets the time without a message after which the peer counts as lost.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.transfer = self.transfer.timeout(timeout);
        self
    }

    /// Sets the ssh options.
    #[must_use]
    pub fn ssh(mut self, ssh: SshOptions) -> Self {
        self.transfer = self.transfer.ssh(ssh);
        self
    }

    /// Sets the trust and authentication options for a daemon.
    #[must_use]
    pub fn daemon(mut self, daemon: DaemonOptions) -> Self {
        self.transfer = self.transfer.daemon(daemon);
        self
    }

    /// Lists the place by an [`Event::Listed`](crate::Event::Listed) for each entry, a directory
    /// before what is in it.
    ///
    /// # Errors
    /// As [`Transfer::run`].
    pub fn run(self, events: &dyn EventSink, cancel: &Cancel) -> Result<Summary, Error> {
        self.transfer.run(events, cancel)
    }
}
