//! The progress line: its text as a function of the progress and rates, and the terminal line it is
//! drawn on.

use super::meter::Meter;
use super::text;
use bankfull::{Bytes, Progress, Rate};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Drawings per second.
pub(super) const DRAW_HZ: u8 = 10;

/// Memory of the rate that is shown as the present one. (ours)
pub(super) const NOW_MEMORY: Duration = Duration::from_secs(1);

/// Memory of the rate that the time to go is made of: long enough not to jump. (ours)
const ETA_MEMORY: Duration = Duration::from_secs(15);

/// Characters of the bar.
const BAR_WIDTH: usize = 8;

const SPINNER: [&str; 4] = ["|", "/", "-", "\\"];

/// A line on standard error that redraws itself. indicatif cuts it to the width of the terminal.
pub(super) fn on_stderr() -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(DRAW_HZ);
    let bar = ProgressBar::with_draw_target(None, target);
    match ProgressStyle::with_template("{wide_msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A line that is never drawn.
pub(super) fn hidden() -> ProgressBar {
    ProgressBar::hidden()
}

/// The rates of a transfer.
#[derive(Debug)]
pub(super) struct Rates {
    now: Meter,
    eta: Meter,
}

impl Rates {
    pub(super) fn new() -> Self {
        Self { now: Meter::new(NOW_MEMORY), eta: Meter::new(ETA_MEMORY) }
    }

    /// Takes the progress at time `now`.
    pub(super) fn observe(&mut self, progress: &Progress, now: Duration) {
        self.now.observe(now, progress.bytes_moved);
        self.eta.observe(now, progress.bytes_moved);
    }

    /// The rate of the last second.
    pub(super) fn now(&self) -> Rate {
        self.now.rate()
    }

    /// The time to go; `None` while the total is unknown or nothing moves.
    pub(super) fn eta(&self, progress: &Progress) -> Option<Duration> {
        let left = progress.bytes_total - progress.bytes_done;
        self.eta.rate().time_for(left).filter(|_| progress.total_is_final)
    }
}

/// The mean rate of the whole run.
pub(super) fn average(progress: &Progress) -> Rate {
    progress.bytes_moved.per(progress.elapsed)
}

/// The line of a look at a path, which takes so long.
pub(super) fn probe_line(progress: &Progress, rates: &Rates, time: Duration) -> String {
    let left = text::duration(time.saturating_sub(progress.elapsed));
    format!("looking at the path: {}, {left} to go", rates.now())
}

/// The line, most important first, because a narrow terminal cuts its end.
pub(super) fn line(progress: &Progress, rates: &Rates, now: Duration) -> String {
    let rate = format!("{} ({})", rates.now(), text::byte_rate(rates.now()));
    let average = average(progress);
    let done = progress.bytes_done;
    let files = format!("{}/{} files", progress.files_done, progress.files_total);
    if !progress.total_is_final {
        let turn = SPINNER[(now.as_millis() / 100) as usize % SPINNER.len()];
        return format!(
            "{turn} {rate}, {done} of at least {}, {files}, avg {average}",
            progress.bytes_total
        );
    }
    let percent = percent(progress);
    let filled = BAR_WIDTH * percent / 100;
    let eta = rates.eta(progress).map_or_else(|| "-:--".to_owned(), text::clock);
    format!(
        "[{:<BAR_WIDTH$}] {percent}% {rate}, ETA {eta}, {done}/{}, {files}, avg {average}",
        "=".repeat(filled),
        progress.bytes_total
    )
}

/// How much is done, by bytes, and by files where there are no bytes. Never 100 before all is done.
fn percent(progress: &Progress) -> usize {
    let (done, total) = match progress.bytes_total {
        Bytes(0) => (progress.files_done, progress.files_total),
        Bytes(total) => (progress.bytes_done.0, total),
    };
    match total {
        0 => 100,
        _ => (u128::from(done.min(total)) * 100 / u128::from(total)) as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(total_is_final: bool) -> Progress {
        let mut progress = Progress::default();
        progress.files_total = 300;
        progress.bytes_total = Bytes::mib(400);
        progress.total_is_final = total_is_final;
        progress.files_done = 120;
        progress.bytes_done = Bytes::mib(300);
        progress.bytes_moved = Bytes(200_000_000);
        progress.elapsed = Duration::from_secs(2);
        progress
    }

    /// Rates after one second of 800 Mbit/s up to what `progress` says.
    fn rates(progress: &Progress) -> Rates {
        let mut rates = Rates::new();
        let mut before = *progress;
        before.bytes_moved = progress.bytes_moved - Bytes(100_000_000);
        rates.observe(&before, Duration::from_secs(1));
        rates.observe(progress, Duration::from_secs(2));
        rates
    }

    #[test]
    fn a_final_total_gives_a_bar_and_the_time_to_go() {
        let progress = progress(true);
        assert_eq!(
            line(&progress, &rates(&progress), Duration::from_secs(2)),
            "[======  ] 75% 800.0 Mbit/s (100.0 MB/s), ETA 0:01, 300.0 MiB/400.0 MiB, \
             120/300 files, avg 800.0 Mbit/s"
        );
    }

    #[test]
    fn while_the_walk_goes_on_the_total_is_a_lower_bound() {
        let progress = progress(false);
        assert_eq!(
            line(&progress, &rates(&progress), Duration::from_millis(2100)),
            "/ 800.0 Mbit/s (100.0 MB/s), 300.0 MiB of at least 400.0 MiB, 120/300 files, \
             avg 800.0 Mbit/s"
        );
    }

    #[test]
    fn nothing_moving_has_no_time_to_go() {
        let progress = progress(true);
        assert!(line(&progress, &Rates::new(), Duration::ZERO).contains("ETA -:--"));
    }

    #[test]
    fn percent_counts_files_where_there_are_no_bytes_and_rounds_down() {
        let mut progress = Progress::default();
        assert_eq!(percent(&progress), 100);
        (progress.files_done, progress.files_total) = (1, 4);
        assert_eq!(percent(&progress), 25);
        (progress.bytes_done, progress.bytes_total) = (Bytes(999), Bytes(1000));
        assert_eq!(percent(&progress), 99);
    }
}
