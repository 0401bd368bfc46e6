//! Progress of a gathering: the sum of all sources, the slowest one, and the progress line. Draws
//! nothing.

use super::progress::{Rates, eta_text, rate_text, with_bar};
use super::rate_meter::Meter;
use super::text;
use bankfull::{Bytes, Error, Progress, Rate, Summary};
use std::time::Duration;

/// Time constant of the rate of one source. (chosen: a slow source shows soon)
const SOURCE_TIME_CONSTANT: Duration = Duration::from_secs(1);

/// Time after which a source may be shown as the slowest. (chosen: its rate is known by then)
const MIN_SLOWEST_AGE: Duration = Duration::from_secs(1);

/// The sources of a gathering.
pub(super) struct Sources {
    all: Vec<Source>,
    pub(super) rates: Rates,
    pub(super) done: usize,
    pub(super) failed: usize,
}

struct Source {
    name: String,
    /// Last observed progress; after the end, the result.
    seen: Option<Progress>,
    ended: bool,
    meter: Meter,
    /// Time of the first observed progress.
    since: Option<Duration>,
}

impl Sources {
    /// Creates sources with these names, none of them started.
    pub(super) fn new(names: impl Iterator<Item = String>) -> Self {
        let source = |name| Source {
            name,
            seen: None,
            ended: false,
            meter: Meter::new(SOURCE_TIME_CONSTANT),
            since: None,
        };
        Self { all: names.map(source).collect(), rates: Rates::new(), done: 0, failed: 0 }
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns the name of a source; empty for an invalid number.
    pub(super) fn name(&self, number: usize) -> &str {
        self.all.get(number).map_or("", |source| &source.name)
    }

    /// Records the end of a source.
    pub(super) fn ended(&mut self, number: usize, result: &Result<Summary, Error>) {
        let Some(source) = self.all.get_mut(number) else { return };
        source.ended = true;
        match result {
            Ok(summary) => {
                self.done += 1;
                source.seen = Some(result_of(summary));
            }
            Err(_) => self.failed += 1,
        }
    }

    /// Records the progress of each source at time `now`, and returns the sum.
    pub(super) fn observe(&mut self, sources: &[Option<Progress>], now: Duration) -> Progress {
        for (source, progress) in self.all.iter_mut().zip(sources) {
            let Some(progress) = progress.filter(|_| !source.ended || source.seen.is_none()) else {
                continue;
            };
            source.since.get_or_insert(now);
            source.meter.observe(now, progress.bytes_carried);
            source.seen = Some(progress);
        }
        let mut total = Progress::default();
        (total.elapsed, total.total_is_final) = (now, true);
        for source in &self.all {
            let Some(seen) =
                source.seen.map(|seen| if source.ended { final_progress(seen) } else { seen })
            else {
                total.total_is_final &= source.ended;
                continue;
            };
            total.files_total += seen.files_total;
            total.files_done += seen.files_done;
            total.bytes_total += seen.bytes_total;
            total.bytes_done += seen.bytes_done;
            total.bytes_moved += seen.bytes_moved;
            total.bytes_carried += seen.bytes_carried;
            total.total_is_final &= seen.total_is_final;
        }
        self.rates.observe(&total, now);
        total
    }

    /// Formats what is in place after a stop; `None` if that is nothing.
    pub(super) fn kept_line(&self) -> Option<String> {
        let seen = || self.all.iter().filter_map(|source| source.seen);
        let files: u64 = seen().map(|progress| progress.files_done).sum();
        let bytes: u64 = seen().map(|progress| progress.bytes_done.0).sum();
        (files > 0 || bytes > 0).then(|| {
            let (files, bytes) = (text::files(files), Bytes(bytes));
            let sources = text::count(self.count() as u64, "source", "sources");
            format!("kept: {files}, {bytes}; {} of {sources} complete", self.done)
        })
    }

    /// Returns the running sources, with progress and rate.
    pub(super) fn running(&self) -> impl Iterator<Item = (usize, &Progress, Rate)> {
        let running = self.all.iter().enumerate().filter(|(_, source)| !source.ended);
        running.filter_map(|(number, source)| {
            Some((number, source.seen.as_ref()?, source.meter.rate()))
        })
    }

    /// Returns the slowest of the sources that have run for a while and are incomplete.
    pub(super) fn slowest(&self, now: Duration) -> Option<(usize, Rate)> {
        let is_candidate = |number: usize, progress: &Progress| {
            let since = self.all.get(number).and_then(|source| source.since).unwrap_or(now);
            let is_complete =
                progress.total_is_final && progress.bytes_done >= progress.bytes_total;
            now.saturating_sub(since) >= MIN_SLOWEST_AGE && !is_complete
        };
        let candidates =
            self.running().filter(|(number, progress, _)| is_candidate(*number, progress));
        candidates
            .map(|(number, _, rate)| (number, rate))
            .min_by_key(|(_, rate)| rate.bits_per_sec())
    }

    /// Formats the progress line, most important first, as a narrow terminal cuts its end.
    pub(super) fn line(&self, total: &Progress, now: Duration, width: usize) -> String {
        let mut line = format!("{}/{} sources, ", self.done, self.count());
        if self.failed > 0 {
            line.push_str(&format!("{} failed, ", self.failed));
        }
        line.push_str(&format!("{}, ", rate_text(self.rates.now())));
        if total.total_is_final {
            line.push_str(&format!("ETA {}, ", eta_text(&self.rates, total)));
        }
        if let Some((number, rate)) = self.slowest(now) {
            let name = self.short_name(number);
            line.push_str(&format!("slowest {name} at {}, ", rate_text(rate)));
        }
        let (done, all) = (total.bytes_done, total.bytes_total);
        match total.total_is_final {
            true => with_bar(total, &format!("{line}{done}/{all}"), width),
            false => format!("{line}{done} of at least {all}"),
        }
    }

    /// Returns the host of a source, or its full name if the host is shared.
    fn short_name(&self, number: usize) -> &str {
        let name = self.name(number);
        let host = host_of(name);
        let is_unique = self.all.iter().filter(|source| host_of(&source.name) == host).count() < 2;
        if is_unique { host } else { name }
    }
}

/// Returns the host in a name such as `bankfull://host:port/path` or `user@host:path`.
fn host_of(name: &str) -> &str {
    if let Some(place) = name.strip_prefix("bankfull://") {
        return place.split('/').next().unwrap_or(place);
    }
    // An IPv6 address is in brackets.
    let end = name.find("]:").map(|at| at + 1).or_else(|| name.find(':'));
    &name[..end.unwrap_or(name.len())]
}

/// Returns the progress of a completed source.
fn result_of(summary: &Summary) -> Progress {
    let mut progress = Progress::default();
    progress.files_done = summary.files + summary.skipped_files + summary.left_out_files;
    progress.bytes_done = summary.bytes + summary.skipped_bytes + summary.resumed_bytes;
    progress.bytes_done += summary.left_out_bytes;
    progress.bytes_moved = summary.bytes;
    progress.bytes_carried = summary.wire_bytes.max(summary.bytes);
    progress
}

/// Returns the last progress of an ended source, from which nothing more is expected.
fn final_progress(seen: Progress) -> Progress {
    let mut progress = seen;
    (progress.files_total, progress.bytes_total) = (seen.files_done, seen.bytes_done);
    progress.total_is_final = true;
    progress
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull::ErrorKind;

    fn progress(done_mib: u64, total_mib: u64) -> Option<Progress> {
        let mut progress = Progress::default();
        (progress.bytes_done, progress.bytes_total) = (Bytes::mib(done_mib), Bytes::mib(total_mib));
        progress.bytes_moved = progress.bytes_done;
        progress.bytes_carried = progress.bytes_done;
        progress.total_is_final = true;
        Some(progress)
    }

    fn sources() -> Sources {
        Sources::new(["a:x", "b:x", "c:x"].map(str::to_owned).into_iter())
    }

    fn gone() -> Result<Summary, Error> {
        Err(Error::new(ErrorKind::Network, "gone"))
    }

    #[test]
    fn total_is_final_once_all_sources_are_listed_or_ended() {
        let mut sources = sources();
        let now = Duration::from_secs;
        assert!(!sources.observe(&[], now(0)).total_is_final);
        assert!(!sources.observe(&[progress(1, 4), progress(2, 4)], now(1)).total_is_final);
        sources.ended(2, &gone());
        let total = sources.observe(&[progress(1, 4), progress(2, 4)], now(2));
        assert!(total.total_is_final);
        assert_eq!((total.bytes_done, total.bytes_total), (Bytes::mib(3), Bytes::mib(8)));
        // A failed source keeps its progress; a completed one has that of its summary.
        sources.ended(1, &gone());
        let mut summary = Summary::default();
        (summary.bytes, summary.skipped_bytes) = (Bytes::mib(3), Bytes::mib(1));
        sources.ended(0, &Ok(summary));
        let total = sources.observe(&[progress(1, 4), progress(2, 4)], now(3));
        assert_eq!((total.bytes_done, total.bytes_total), (Bytes::mib(6), Bytes::mib(6)));
        assert_eq!((sources.done, sources.failed), (1, 2));
    }

    #[test]
    fn stopped_gathering_names_what_is_kept() {
        let mut sources = sources();
        assert_eq!(sources.kept_line(), None);
        sources.observe(&[progress(1, 4), progress(2, 4)], Duration::from_secs(1));
        let mut summary = Summary::default();
        (summary.files, summary.bytes) = (2, Bytes::mib(4));
        sources.ended(0, &Ok(summary));
        sources.ended(1, &gone());
        let line = "kept: 2 files, 6.0 MiB; 1 of 3 sources complete";
        assert_eq!(sources.kept_line().as_deref(), Some(line));
    }

    #[test]
    fn line_has_sources_rate_and_slowest() {
        let mut sources = sources();
        sources.ended(2, &gone());
        let observed = |sources: &mut Sources, second: u64| {
            let seen = [progress(second, 100), progress(second * 3, 100)];
            sources.observe(&seen, Duration::from_secs(second))
        };
        let total = observed(&mut sources, 1);
        let line = sources.line(&total, Duration::from_secs(1), 80);
        let start = "[                 ] 2% 0/3 sources, 1 failed, 0 B/s, ETA -:--, ";
        assert!(line.starts_with(start), "{line}");
        for second in 2..4 {
            observed(&mut sources, second);
        }
        let total = observed(&mut sources, 4);
        assert_eq!(
            sources.line(&total, Duration::from_secs(4), 80),
            "[        ] 8% 0/3 sources, 1 failed, 4.0 MiB/s, ETA 0:46, slowest a at 1.0 MiB/s, \
             16.0 MiB/200.0 MiB"
        );
        let mut sources = self::sources();
        let total = sources.observe(&[progress(1, 4)], Duration::from_secs(1));
        let line = sources.line(&total, Duration::from_secs(1), 80);
        assert_eq!(line, "0/3 sources, 0 B/s, 1.0 MiB of at least 4.0 MiB");
    }

    #[test]
    fn short_name_is_the_host_if_unique() {
        let names =
            ["bankfull://h:7440/a", "bankfull://h:7440/b", "bankfull://i/a", "me@[::1]:/x/y"];
        let sources = Sources::new(names.map(str::to_owned).into_iter());
        let short = [0, 1, 2, 3].map(|number| sources.short_name(number));
        assert_eq!(short, [names[0], names[1], "i", "me@[::1]"]);
    }

    #[test]
    fn complete_source_is_not_the_slowest() {
        let mut sources = sources();
        for second in 0..3 {
            sources.observe(&[progress(4, 4)], Duration::from_secs(second));
        }
        assert_eq!(sources.slowest(Duration::from_secs(3)), None);
    }
}
