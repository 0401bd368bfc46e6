//! Formatting of counts, times, rates, and of names that are safe to print.

use bankfull::{Rate, Served, is_terminal_control};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Formats a path in one line for a terminal.
///
/// Control characters, bidirectional marks and invalid UTF-8 become escapes.
pub(crate) fn printable(path: &Path) -> String {
    let mut shown = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        shown.push_str(&printable_text(chunk.valid()));
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// Formats the directories that are served.
pub(crate) fn served_text(served: &Served) -> String {
    match served {
        Served::Root(root) => printable(root),
        Served::Shares(shares) => {
            let names: Vec<&str> = shares.iter().map(|share| &*share.name).collect();
            let shares = if names.len() == 1 { "the share" } else { "the shares" };
            format!("{shares} {}", names.join(", "))
        }
    }
}

/// Formats text in one line, with control characters and bidirectional marks as escapes.
pub(crate) fn printable_text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_terminal_control(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// Returns a line of JSON with all control characters and bidirectional marks as escapes.
///
/// `serde_json` escapes only those that JSON does not allow in strings.
pub(crate) fn printable_json(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    for c in line.chars() {
        if is_terminal_control(c) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Formats seconds since the epoch as a date and time in UTC.
pub(crate) fn utc(seconds: u64) -> String {
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

/// Formats a time since the epoch as in RFC 3339, in seconds and UTC.
pub(crate) fn rfc3339(time: Duration) -> String {
    let shown = utc(time.as_secs());
    let minutes = shown.trim_end_matches(" UTC").replace(' ', "T");
    format!("{minutes}:{:02}Z", time.as_secs() % 60)
}

/// Formats a number with digits in groups of three: `53 363`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(' ');
        }
        shown.push(digit);
    }
    shown
}

/// Formats a number of items: `1 file`, `53 363 files`.
pub(super) fn count(number: u64, singular: &str, plural: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { singular } else { plural })
}

/// Formats a number of files.
pub(super) fn files(number: u64) -> String {
    count(number, "file", "files")
}

/// Formats a number of files, directories and symlinks.
pub(super) fn entries(number: u64) -> String {
    count(number, "entry", "entries")
}

/// Formats a duration that may be short: `12 ms`, else as [`duration`].
pub(super) fn short_duration(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        _ => duration(time),
    }
}

/// Formats a duration: `3.2 s`, `4 min 05 s`, `2 h 03 min`.
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        // 59.96 would be formatted as 60.0.
        0..60 if time < Duration::from_millis(59_950) => format!("{:.1} s", time.as_secs_f64()),
        0..3600 => {
            let seconds = seconds.max(60);
            format!("{} min {:02} s", seconds / 60, seconds % 60)
        }
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// Formats a remaining time as a clock: `0:07`, `12:34`, `1:02:03`.
pub(super) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

/// Formats a rate in bytes per second with decimal prefixes, as usual for disks: `101.5 MB/s`.
pub(crate) fn byte_rate(rate: Rate) -> String {
    let bytes = rate.bytes_per_sec();
    let value = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B/s"),
        1_000..999_950 => format!("{:.1} kB/s", value / 1e3),
        999_950..999_950_000 => format!("{:.1} MB/s", value / 1e6),
        _ => format!("{:.2} GB/s", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn utc_formats_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_827_696), "2000-02-29 12:34 UTC");
        assert_eq!(utc(1_764_075_540), "2025-11-25 12:59 UTC");
    }

    #[test]
    fn printable_escapes_control_characters() {
        let shown = |bytes: &[u8]| printable(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(shown(b"a\nb\x1b[2J"), "a\\nb\\u{1b}[2J");
        assert_eq!(shown("grün\u{9b}".as_bytes()), "grün\\u{9b}");
        assert_eq!(shown(b"a\xff\xfeb"), "a\\xff\\xfeb");
        assert_eq!(shown("fdp\u{202e}exe\u{2066}".as_bytes()), "fdp\\u{202e}exe\\u{2066}");
        assert_eq!(shown("גְּדִי ‍".as_bytes()), "גְּדִי ‍", "only the marks that change the order");
    }

    #[test]
    fn printable_json_keeps_the_value() {
        let text = "a\u{9b}b\u{202e}\u{7f}\u{61c}c ü";
        let line = serde_json::Value::from(text).to_string();
        let shown = printable_json(&line);
        assert_eq!(shown, "\"a\\u009bb\\u202e\\u007f\\u061cc ü\"");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }

    #[test]
    fn digits_are_in_groups_of_three() {
        let shown = [0, 999, 1000, 53_363, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1 000", "53 363", "1 234 567"]);
    }

    #[test]
    fn one_is_singular_and_zero_is_plural() {
        assert_eq!([0, 1, 2].map(files), ["0 files", "1 file", "2 files"]);
    }

    #[test]
    fn duration_unit_fits_the_value() {
        let shown = [0.04, 3.21, 59.94, 59.96, 60.0, 245.0, 3600.0, 7399.0]
            .map(|s| duration(Duration::from_secs_f64(s)));
        assert_eq!(
            shown,
            [
                "0.0 s",
                "3.2 s",
                "59.9 s",
                "1 min 00 s",
                "1 min 00 s",
                "4 min 05 s",
                "1 h 00 min",
                "2 h 03 min"
            ]
        );
    }

    #[test]
    fn clock_omits_zero_hours() {
        let shown = [7, 754, 3723].map(|s| clock(Duration::from_secs(s)));
        assert_eq!(shown, ["0:07", "12:34", "1:02:03"]);
    }

    #[test]
    fn byte_rate_has_decimal_prefixes() {
        let shown = [7999.0, 8e3, 812e6, 1.6e10].map(|b| byte_rate(Rate::from_bits_per_sec(b)));
        assert_eq!(shown, ["999 B/s", "1.0 kB/s", "101.5 MB/s", "2.00 GB/s"]);
    }
}
