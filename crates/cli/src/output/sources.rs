//! How several sources do that are fetched at once: the progress of all of them together, who is
//! slow, and the line about it. Draws nothing.

use super::meter::Meter;
use super::progress::{NOW_MEMORY, Rates};
use super::text;
use bankfull::{Error, Progress, Rate, Summary};
use std::time::Duration;

/// The sources of a gathering.
pub(super) struct Sources {
    all: Vec<Source>,
    pub(super) rates: Rates,
    pub(super) done: usize,
    pub(super) failed: usize,
}

struct Source {
    name: String,
    /// Its progress as it was seen last; what it came to, once it has ended.
    seen: Option<Progress>,
    ended: bool,
    meter: Meter,
    /// When it was seen first.
    since: Option<Duration>,
}

impl Sources {
    /// Sources of these names, none of which has begun.
    pub(super) fn new(names: impl Iterator<Item = String>) -> Self {
        let source = |name| Source {
            name,
            seen: None,
            ended: false,
            meter: Meter::new(NOW_MEMORY),
            since: None,
        };
        Self { all: names.map(source).collect(), rates: Rates::new(), done: 0, failed: 0 }
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// The name of a source; empty for one that there is not.
    pub(super) fn name(&self, number: usize) -> &str {
        self.all.get(number).map_or("", |source| &source.name)
    }

    /// A source has ended.
    pub(super) fn ended(&mut self, number: usize, result: &Result<Summary, Error>) {
        let Some(source) = self.all.get_mut(number) else { return };
        source.ended = true;
        match result {
            Ok(summary) => {
                self.done += 1;
                source.seen = Some(came_to(summary));
            }
            Err(_) => self.failed += 1,
        }
    }

    /// Takes the progress of each source at time `now`. Where all of them together are.
    pub(super) fn observe(&mut self, sources: &[Option<Progress>], now: Duration) -> Progress {
        for (source, progress) in self.all.iter_mut().zip(sources) {
            let Some(progress) = progress.filter(|_| !source.ended || source.seen.is_none()) else {
                continue;
            };
            source.since.get_or_insert(now);
            source.meter.observe(now, progress.bytes_moved);
            source.seen = Some(progress);
        }
        let mut total = Progress::default();
        (total.elapsed, total.total_is_final) = (now, true);
        for source in &self.all {
            let Some(seen) =
                source.seen.map(|seen| if source.ended { left_at(seen) } else { seen })
            else {
                total.total_is_final &= source.ended;
                continue;
            };
            total.files_total += seen.files_total;
            total.files_done += seen.files_done;
            total.bytes_total += seen.bytes_total;
            total.bytes_done += seen.bytes_done;
            total.bytes_moved += seen.bytes_moved;
            total.total_is_final &= seen.total_is_final;
        }
        self.rates.observe(&total, now);
        total
    }

    /// The sources that are being fetched, with their progress and rate.
    pub(super) fn running(&self) -> impl Iterator<Item = (usize, &Progress, Rate)> {
        let running = self.all.iter().enumerate().filter(|(_, source)| !source.ended);
        running.filter_map(|(number, source)| {
            Some((number, source.seen.as_ref()?, source.meter.rate()))
        })
    }

    /// The slowest of those that have been fetched for a while and have more to come.
    pub(super) fn slowest(&self, now: Duration) -> Option<(usize, Rate)> {
        let is_meant = |number: usize, progress: &Progress| {
            let since = self.all.get(number).and_then(|source| source.since).unwrap_or(now);
            let is_whole = progress.total_is_final && progress.bytes_done >= progress.bytes_total;
            now.saturating_sub(since) >= NOW_MEMORY && !is_whole
        };
        let meant = self.running().filter(|(number, progress, _)| is_meant(*number, progress));
        meant.map(|(number, _, rate)| (number, rate)).min_by_key(|(_, rate)| rate.bits_per_sec())
    }

    /// The progress line, most important first, because a narrow terminal cuts its end.
    pub(super) fn line(&self, total: &Progress, now: Duration) -> String {
        let rate = self.rates.now();
        let mut line = format!("{}/{} sources, ", self.done, self.count());
        if self.failed > 0 {
            line.push_str(&format!("{} failed, ", self.failed));
        }
        line.push_str(&format!("{rate}, "));
        if total.total_is_final {
            let eta = self.rates.eta(total).map_or_else(|| "-:--".to_owned(), text::clock);
            line.push_str(&format!("ETA {eta}, "));
        }
        if let Some((number, rate)) = self.slowest(now) {
            line.push_str(&format!("slowest {} at {rate}, ", self.short_name(number)));
        }
        let (done, all) = (total.bytes_done, total.bytes_total);
        line.push_str(&match total.total_is_final {
            true => format!("{done}/{all}"),
            false => format!("{done} of at least {all}"),
        });
        line
    }

    /// The host of a source, or all of its name where another source is of that host, too.
    fn short_name(&self, number: usize) -> &str {
        let name = self.name(number);
        let host = host_of(name);
        let is_its_only =
            self.all.iter().filter(|source| host_of(&source.name) == host).count() < 2;
        if is_its_only { host } else { name }
    }
}

/// The host in a name such as `bankfull://host:port/path` or `user@host:path`.
fn host_of(name: &str) -> &str {
    if let Some(place) = name.strip_prefix("bankfull://") {
        return place.split('/').next().unwrap_or(place);
    }
    // An IPv6 address stands in brackets.
    let end = name.find("]:").map(|at| at + 1).or_else(|| name.find(':'));
    &name[..end.unwrap_or(name.len())]
}

/// What a source came to.
fn came_to(summary: &Summary) -> Progress {
    let mut progress = Progress::default();
    progress.files_done = summary.files + summary.skipped_files;
    progress.bytes_done = summary.bytes + summary.skipped_bytes + summary.resumed_bytes;
    progress.bytes_moved = summary.bytes;
    progress
}

/// Where a source was left that has ended: nothing more comes of it.
fn left_at(seen: Progress) -> Progress {
    let mut progress = seen;
    (progress.files_total, progress.bytes_total) = (seen.files_done, seen.bytes_done);
    progress.total_is_final = true;
    progress
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull::{Bytes, ErrorKind};

    fn progress(done_mib: u64, total_mib: u64) -> Option<Progress> {
        let mut progress = Progress::default();
        (progress.bytes_done, progress.bytes_total) = (Bytes::mib(done_mib), Bytes::mib(total_mib));
        progress.bytes_moved = progress.bytes_done;
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
    fn the_total_is_final_once_every_source_is_listed_or_has_ended() {
        let mut sources = sources();
        let now = Duration::from_secs;
        assert!(!sources.observe(&[], now(0)).total_is_final);
        assert!(!sources.observe(&[progress(1, 4), progress(2, 4)], now(1)).total_is_final);
        sources.ended(2, &gone());
        let total = sources.observe(&[progress(1, 4), progress(2, 4)], now(2));
        assert!(total.total_is_final);
        assert_eq!((total.bytes_done, total.bytes_total), (Bytes::mib(3), Bytes::mib(8)));
        // Nothing more comes of one that failed, and what ended well came to its summary.
        sources.ended(1, &gone());
        let mut summary = Summary::default();
        (summary.bytes, summary.skipped_bytes) = (Bytes::mib(3), Bytes::mib(1));
        sources.ended(0, &Ok(summary));
        let total = sources.observe(&[progress(1, 4), progress(2, 4)], now(3));
        assert_eq!((total.bytes_done, total.bytes_total), (Bytes::mib(6), Bytes::mib(6)));
        assert_eq!((sources.done, sources.failed), (1, 2));
    }

    #[test]
    fn the_line_has_the_sources_the_rate_and_who_is_slow() {
        let mut sources = sources();
        sources.ended(2, &gone());
        let observed = |sources: &mut Sources, second: u64| {
            let seen = [progress(second, 100), progress(second * 3, 100)];
            sources.observe(&seen, Duration::from_secs(second))
        };
        let total = observed(&mut sources, 1);
        let line = sources.line(&total, Duration::from_secs(1));
        assert!(line.starts_with("0/3 sources, 1 failed, ") && !line.contains("slowest"), "{line}");
        observed(&mut sources, 2);
        let total = observed(&mut sources, 3);
        assert_eq!(
            sources.line(&total, Duration::from_secs(3)),
            "0/3 sources, 1 failed, 33.6 Mbit/s, ETA 0:47, slowest a at 8.4 Mbit/s, \
             12.0 MiB/200.0 MiB"
        );
    }

    #[test]
    fn a_source_is_called_by_its_host_where_that_says_which() {
        let names =
            ["bankfull://h:7440/a", "bankfull://h:7440/b", "bankfull://i/a", "me@[::1]:/x/y"];
        let sources = Sources::new(names.map(str::to_owned).into_iter());
        let short = [0, 1, 2, 3].map(|number| sources.short_name(number));
        assert_eq!(short, [names[0], names[1], "i", "me@[::1]"]);
    }

    #[test]
    fn one_that_has_all_is_not_called_slow() {
        let mut sources = sources();
        for second in 0..3 {
            sources.observe(&[progress(4, 4)], Duration::from_secs(second));
        }
        assert_eq!(sources.slowest(Duration::from_secs(3)), None);
    }
}
