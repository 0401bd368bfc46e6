//! HTML report (`--report`): records the events of a command and writes them as one page at its
//! end.
//!
//! `bankfull-chart` draws the page. The library decides which events there are.

mod copy_page;
mod file;
mod gather_page;
mod origin;
mod probe_page;
mod record;

use crate::output::printable;
use bankfull::{
    Error, ErrorKind, Event, EventSink, GatherSink, GatherSummary, Location, ProbeResult, Summary,
};
use bankfull_chart::Page;
use file::ReportFile;
use origin::Origin;
use record::Record;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Maximum number of transfers whose events are recorded, the first of a gather. (chosen: twice as
/// many as run at a time)
const MAX_RECORDED_TRANSFERS: usize = 512;

/// Sink that records the events of a command and passes them on.
pub(crate) struct Recorder<'a, S: ?Sized> {
    next: &'a S,
    file: ReportFile,
    origin: Origin,
    started: Instant,
    /// One record for a copy or a probe, one per source for a gather.
    records: Mutex<Vec<Record>>,
}

impl<'a, S: ?Sized> Recorder<'a, S> {
    /// Checks that the file is writable, before anything is done.
    pub(crate) fn start(path: &Path, next: &'a S, transfers: usize) -> Result<Self, Error> {
        let file = ReportFile::check(path)?;
        let recorded = transfers.min(MAX_RECORDED_TRANSFERS);
        let records = (0..recorded).map(|_| Record::of_one(recorded)).collect();
        let (origin, started) = (Origin::here(), Instant::now());
        Ok(Self { next, file, origin, started, records: Mutex::new(records) })
    }

    /// Writes the page of a copy.
    pub(crate) fn finish_copy(
        self,
        title: &str,
        result: &Result<Summary, Error>,
    ) -> Result<(), Error> {
        let page = copy_page::page(title, &self.origin, &self.record(), result);
        self.write(page)
    }

    /// Writes the page of a probe.
    pub(crate) fn finish_probe(
        self,
        title: &str,
        result: &Result<ProbeResult, Error>,
    ) -> Result<(), Error> {
        let page = probe_page::page(title, &self.origin, &self.record(), result);
        self.write(page)
    }

    /// Writes the page of a gather.
    pub(crate) fn finish_gather(
        self,
        title: &str,
        sources: &[String],
        result: &Result<GatherSummary, Error>,
    ) -> Result<(), Error> {
        let records = std::mem::take(&mut *self.records());
        let page = gather_page::page(title, &self.origin, sources, &records, result);
        self.write(page)
    }

    fn write(&self, mut page: Page) -> Result<(), Error> {
        page.generator = file::GENERATOR.to_owned();
        self.file.write(&page.to_html())
    }

    fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the record of the only transfer.
    fn record(&self) -> Record {
        self.records().pop().unwrap_or_default()
    }

    fn add(&self, transfer: usize, event: &Event) {
        let now = self.started.elapsed();
        if let Some(record) = self.records().get_mut(transfer) {
            if let Event::Connected { at, .. } = event {
                record.offset = now.saturating_sub(*at);
            }
            record.add(event);
        }
    }
}

impl EventSink for Recorder<'_, dyn EventSink + '_> {
    fn event(&self, event: Event) {
        self.add(0, &event);
        self.next.event(event);
    }

    fn wants_completed(&self) -> bool {
        self.next.wants_completed()
    }
}

impl GatherSink for Recorder<'_, dyn GatherSink + '_> {
    fn event(&self, source: usize, event: Event) {
        self.add(source, &event);
        self.next.event(source, event);
    }

    fn source_done(&self, source: usize, result: &Result<Summary, Error>) {
        self.next.source_done(source, result);
    }

    fn wants_completed(&self) -> bool {
        self.next.wants_completed()
    }
}

/// Refuses an output file that is an operand, whose content would be lost.
pub(crate) fn refuse_operand<'l>(
    (flag, file): (&str, Option<&Path>),
    mut locations: impl Iterator<Item = &'l Location>,
) -> Result<(), Error> {
    let Some(file) = file else { return Ok(()) };
    // A file that does not exist yet has no other name.
    let real = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    let own = real(file);
    let is_it =
        |location: &Location| matches!(location, Location::Local(path) if real(path) == own);
    if locations.any(is_it) {
        let name = printable(file);
        let text = format!("{flag} {name} would overwrite an operand: choose another name");
        return Err(Error::new(ErrorKind::Usage, text));
    }
    Ok(())
}
