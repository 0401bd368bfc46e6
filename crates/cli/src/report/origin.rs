//! Time, place and command of a report.

use crate::output::printable;
use std::ffi::OsString;
use std::time::{SystemTime, UNIX_EPOCH};

/// Time, place and command of a report.
#[derive(Debug)]
pub(super) struct Origin {
    /// Start in UTC.
    pub(super) date: String,
    pub(super) host: String,
    /// Command line as typed.
    pub(super) command: String,
}

impl Origin {
    /// Describes this process.
    pub(super) fn here() -> Self {
        let quoted = |argument: OsString| {
            let text = printable(argument.as_ref());
            let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@,+%[]~".contains(c);
            match !text.is_empty() && text.chars().all(is_plain) {
                true => text,
                false => format!("'{}'", text.replace('\'', r"'\''")),
            }
        };
        let arguments: Vec<String> = std::env::args_os().skip(1).map(quoted).collect();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            date: utc(since_epoch.as_secs()),
            host: crate::serve::host_name(),
            command: format!("bankfull {}", arguments.join(" ")),
        }
    }
}

/// Formats seconds since the epoch as a date and time in UTC.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days to the civil date, with years that start in March (H. Hinnant, chrono-compatible
    // low-level date algorithms).
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_formats_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_827_696), "2000-02-29 12:34 UTC");
        assert_eq!(utc(1_764_075_540), "2025-11-25 12:59 UTC");
    }
}
