//! The progress line: its text as a function of progress and rates, and the terminal line that it
//! is drawn on. Sizes and rates are in bytes with binary prefixes.

use super::rate_meter::Meter;
use super::text;
use bankfull::{Bytes, Progress, Rate};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::sync::OnceLock;
use std::time::Duration;

/// Redraws per second.
pub(super) const DRAW_HZ: u8 = 10;

/// Time constant of the displayed rate. (chosen: through ssh and within a host, whole blocks are
/// counted)
const RATE_TIME_CONSTANT: Duration = Duration::from_secs(5);

/// Time constant of the rate behind the ETA. (chosen: long enough for a steady display)
const ETA_TIME_CONSTANT: Duration = Duration::from_secs(15);

/// Time from the first byte to the first ETA. (chosen: slow start has ended on most paths)
const ETA_DELAY: Duration = Duration::from_secs(3);

/// Width of the bar in characters, and the width that a wide terminal gives it. (chosen: readable)
const MIN_BAR_WIDTH: usize = 8;
const MAX_BAR_WIDTH: usize = 40;

/// Width of a terminal that does not report its size, as indicatif assumes.
const DEFAULT_WIDTH: usize = 79;

const SPINNER: [&str; 4] = ["|", "/", "-", "\\"];

/// Line that is drawn on standard error, if any.
static DRAWN: OnceLock<ProgressBar> = OnceLock::new();

/// Writes to standard error, above the progress line if there is one.
pub(crate) fn above_progress(text: &[u8]) {
    // Standard error may be closed; nothing else could report that.
    let write = || drop(std::io::stderr().write_all(text));
    match DRAWN.get() {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Creates a line on standard error that redraws itself. indicatif cuts it to the terminal width.
pub(super) fn on_stderr() -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(DRAW_HZ);
    let bar = ProgressBar::with_draw_target(None, target);
    let bar = match ProgressStyle::with_template("{wide_msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    };
    let _ = DRAWN.set(bar.clone());
    bar
}

/// Creates a line that is never drawn.
pub(super) fn hidden() -> ProgressBar {
    ProgressBar::hidden()
}

/// Returns the width of the terminal on standard error, in characters.
pub(super) fn terminal_width() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => size.ws_col.into(),
        _ => DEFAULT_WIDTH,
    }
}

/// Smoothed rates of a transfer.
#[derive(Debug)]
pub(super) struct Rates {
    now: Meter,
    eta: Meter,
    /// Time of the first progress with bytes.
    first_bytes: Option<Duration>,
}

impl Rates {
    pub(super) fn new() -> Self {
        Self {
            now: Meter::new(RATE_TIME_CONSTANT),
            eta: Meter::new(ETA_TIME_CONSTANT),
            first_bytes: None,
        }
    }

    /// Records the progress at time `now`.
    pub(super) fn observe(&mut self, progress: &Progress, now: Duration) {
        self.now.observe(now, progress.bytes_carried);
        self.eta.observe(now, progress.bytes_carried);
        if progress.bytes_carried > Bytes(0) {
            self.first_bytes.get_or_insert(now);
        }
    }

    /// Returns the present rate.
    pub(super) fn now(&self) -> Rate {
        self.now.rate()
    }

    /// Returns the estimated time to completion. `None`: the total is unknown, the transfer has
    /// just begun, or it stands still.
    pub(super) fn eta(&self, progress: &Progress) -> Option<Duration> {
        let observed = self.eta.last_time()?.saturating_sub(self.first_bytes?);
        // The check of what an earlier run left takes far less time than sending it.
        let left = progress.bytes_total - progress.bytes_done - progress.bytes_unchecked;
        let is_known = progress.total_is_final && observed >= ETA_DELAY;
        self.eta.rate().time_for(left).filter(|_| is_known)
    }
}

/// Returns the mean rate of the whole run.
pub(super) fn average(progress: &Progress) -> Rate {
    progress.bytes_moved.per(progress.elapsed)
}

/// Formats a rate in the units of the progress line: `95.4 MiB/s`.
pub(super) fn rate_text(rate: Rate) -> String {
    format!("{}/s", Bytes(rate.bytes_per_sec()))
}

/// Formats the line of a probe that takes `time`.
pub(super) fn probe_line(progress: &Progress, rates: &Rates, time: Duration) -> String {
    let left = text::duration(time.saturating_sub(progress.elapsed));
    format!("measuring the path: {}, {left} left", rates.now())
}

/// Formats the line while the client connects.
pub(super) fn connecting_line(peer: &str, elapsed: Duration) -> String {
    format!("connecting to {peer} … {} s", elapsed.as_secs())
}

/// Formats the line while a lost session is connected again.
pub(super) fn reconnecting_line(progress: &Progress, elapsed: Duration) -> String {
    let (done, total) = (progress.bytes_done, progress.bytes_total);
    format!("reconnecting … {} s, {done}/{total}", elapsed.as_secs())
}

/// Formats the progress line, most important first, as a narrow terminal cuts its end.
pub(super) fn line(progress: &Progress, rates: &Rates, now: Duration, width: usize) -> String {
    let rate = rate_text(rates.now());
    let average = rate_text(average(progress));
    let (done, total) = (progress.bytes_done, progress.bytes_total);
    let files = format!("{}/{} files", progress.files_done, progress.files_total);
    if !progress.total_is_final {
        let spinner = SPINNER[(now.as_millis() / 100) as usize % SPINNER.len()];
        return format!("{spinner} {rate}, {done} of at least {total}, {files}, avg {average}");
    }
    let speed = match total > Bytes(0) && done >= total {
        // The destination is still to be flushed, or checked.
        true => "finishing".to_owned(),
        false => format!("{rate}, ETA {}", eta_text(rates, progress)),
    };
    let check = match progress.bytes_unchecked {
        Bytes(0) => String::new(),
        bytes => format!("{bytes} of an earlier run to check, "),
    };
    let text = format!("{speed}, {done}/{total}, {check}{files}, avg {average}");
    with_bar(progress, &text, width)
}

/// Formats the ETA, `-:--` if it is unknown.
pub(super) fn eta_text(rates: &Rates, progress: &Progress) -> String {
    rates.eta(progress).map_or_else(|| "-:--".to_owned(), text::clock)
}

/// Puts a bar with the percentage before a text; the bar fills the rest of the width.
pub(super) fn with_bar(progress: &Progress, text: &str, width: usize) -> String {
    let percent = percent(progress);
    let rest = format!(" {percent}% {text}");
    let free = width.saturating_sub(rest.chars().count() + "[]".len());
    let cells = free.clamp(MIN_BAR_WIDTH, MAX_BAR_WIDTH);
    format!("[{:<cells$}]{rest}", "=".repeat(cells * percent / 100))
}

/// Returns the completed share in percent, rounded down: of bytes, or of files if there are no
/// bytes.
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
        (progress.bytes_moved, progress.bytes_carried) = (Bytes::mib(200), Bytes::mib(200));
        progress.elapsed = Duration::from_secs(4);
        progress
    }

    /// Rates after four seconds of 50 MiB/s up to `progress`.
    fn rates(progress: &Progress) -> Rates {
        let mut rates = Rates::new();
        for second in 0..=4 {
            let mut at = *progress;
            at.bytes_carried = progress.bytes_carried - Bytes::mib(50 * (4 - second));
            rates.observe(&at, Duration::from_secs(second));
        }
        rates
    }

    #[test]
    fn final_total_gives_bar_and_eta() {
        let progress = progress(true);
        let line = |width| line(&progress, &rates(&progress), Duration::from_secs(4), width);
        let text = "75% 50.0 MiB/s, ETA 0:02, 300.0 MiB/400.0 MiB, 120/300 files, avg 50.0 MiB/s";
        assert_eq!(line(80), format!("[======  ] {text}"));
        assert_eq!(line(text.len() + 3 + 20), format!("[{:<20}] {text}", "=".repeat(15)));
        assert_eq!(line(300), format!("[{:<40}] {text}", "=".repeat(30)));
    }

    #[test]
    fn unfinished_walk_gives_a_lower_bound() {
        let progress = progress(false);
        assert_eq!(
            line(&progress, &rates(&progress), Duration::from_millis(4100), 80),
            "/ 50.0 MiB/s, 300.0 MiB of at least 400.0 MiB, 120/300 files, avg 50.0 MiB/s"
        );
    }

    #[test]
    fn eta_is_unknown_without_data_and_at_the_start() {
        let progress = progress(true);
        assert!(line(&progress, &Rates::new(), Duration::ZERO, 80).contains("ETA -:--"));
        let mut rates = Rates::new();
        rates.observe(&Progress::default(), Duration::ZERO);
        rates.observe(&progress, Duration::from_secs(1));
        rates.observe(&progress, Duration::from_secs(3));
        assert_eq!(rates.eta(&progress), None);
        rates.observe(&progress, Duration::from_secs(4));
        assert!(rates.eta(&progress).is_some());
    }

    #[test]
    fn burst_of_blocks_moves_the_rate_little() {
        // 16 streams of 100 Mbit/s together complete blocks of 1 MiB every 1.3 s.
        let (mut rates, mut progress) = (Rates::new(), Progress::default());
        let mut shown = Vec::new();
        for tenth in 0..600_u64 {
            progress.bytes_carried = Bytes::mib(16 * (tenth / 13));
            rates.observe(&progress, Duration::from_millis(100 * tenth));
            if tenth > 300 {
                shown.push(rates.now().bits_per_sec());
            }
        }
        let (min, max) = (shown.iter().min().unwrap(), shown.iter().max().unwrap());
        assert!(*max < min * 4 / 3, "{min} to {max}");
    }

    #[test]
    fn percent_counts_files_without_bytes_and_rounds_down() {
        let mut progress = Progress::default();
        assert_eq!(percent(&progress), 100);
        (progress.files_done, progress.files_total) = (1, 4);
        assert_eq!(percent(&progress), 25);
        (progress.bytes_done, progress.bytes_total) = (Bytes(999), Bytes(1000));
        assert_eq!(percent(&progress), 99);
    }
}
