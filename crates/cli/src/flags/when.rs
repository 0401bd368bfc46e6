//! Points in time: dates and times of RFC 3339, and ages.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: i64 = 86_400;

/// Parses a date, a date and time, or an age such as `7d`.
pub(super) fn when(text: &str) -> Result<SystemTime, String> {
    let found = match age(text) {
        Some(age) => SystemTime::now().checked_sub(age),
        None => seconds_since_1970(text).and_then(at),
    };
    found.ok_or_else(|| {
        format!(
            "{text:?} is no time: write 2026-01-31, 2026-01-31T18:00:00Z, or an age such as 7d or \
             36h"
        )
    })
}

/// Parses a date, a date and time, or a time from now such as `7d`.
pub(crate) fn until(text: &str) -> Result<SystemTime, String> {
    let found = match age(text) {
        Some(age) => SystemTime::now().checked_add(age),
        None => seconds_since_1970(text).and_then(at),
    };
    found.ok_or_else(|| {
        format!(
            "{text:?} is no time: write 2027-01-31, 2027-01-31T18:00:00Z, or a time from now such \
             as 90d or 36h"
        )
    })
}

/// Parses a date, or a date and time, of RFC 3339.
pub(crate) fn instant(text: &str) -> Option<SystemTime> {
    seconds_since_1970(text).and_then(at)
}

/// Returns the age of a number with a unit.
fn age(text: &str) -> Option<Duration> {
    let unit = match text.as_bytes().last()? {
        b's' => 1,
        b'm' => 60,
        b'h' => 3600,
        b'd' => 86_400,
        b'w' => 7 * 86_400,
        _ => return None,
    };
    let number = &text[..text.len() - 1];
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let count: u64 = number.parse().ok().filter(|_| is_number)?;
    count.checked_mul(unit).map(Duration::from_secs)
}

fn at(secs: i64) -> Option<SystemTime> {
    let distance = Duration::from_secs(secs.unsigned_abs());
    if secs < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
}

/// Returns the seconds of a date, or of a date and time, of RFC 3339.
fn seconds_since_1970(text: &str) -> Option<i64> {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (text.get(..at)?, text.get(at + 1..)?),
        None => (text, "00:00:00Z"),
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let is_zulu = time.ends_with(['Z', 'z']);
    let (clock, offset) = match time.rfind(['+', '-']) {
        _ if is_zulu => (time.get(..time.len() - 1)?, 0),
        Some(at) => {
            let [hours, minutes] = numbers(time.get(at + 1..)?, ':', [2, 2])?;
            let sign = if time.as_bytes()[at] == b'-' { -1 } else { 1 };
            if hours > 23 || minutes > 59 {
                return None;
            }
            (time.get(..at)?, sign * (hours * 3600 + minutes * 60))
        }
        None => return None,
    };
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    // A leap second is the last one of its minute.
    let is_time = hour <= 23 && minute <= 59 && second <= 60;
    let is_date = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    let seconds = hour * 3600 + minute * 60 + second.min(59);
    (is_date && is_time)
        .then(|| days_since_1970(year, month, day) * SECONDS_PER_DAY + seconds - offset)
}

/// Returns numbers of given digits between separators.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[i64; N]> {
    let parts: Vec<&str> = text.split(separator).collect();
    let is_written = |(part, digits): (&&str, &usize)| {
        part.len() == *digits && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    if parts.len() != N || !parts.iter().zip(&digits).all(is_written) {
        return None;
    }
    let mut found = [0; N];
    for (number, part) in found.iter_mut().zip(parts) {
        *number = part.parse().ok()?;
    }
    Some(found)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Returns the days from 1970-01-01 to a date of the Gregorian calendar.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let leap_days = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let before = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
    before + (1..month).map(|month| days_in(year, month)).sum::<i64>() + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_and_time_are_seconds_since_1970() {
        for (text, secs) in [
            ("1970-01-01", 0),
            ("2000-03-01", 951_868_800),
            ("2024-02-29", 1_709_164_800),
            ("2026-01-31T18:00:00Z", 1_769_882_400),
            ("2026-01-31t18:00:00+01:00", 1_769_878_800),
            ("2026-01-31 18:00:00-00:30", 1_769_884_200),
            ("2016-12-31T23:59:60Z", 1_483_228_799),
            ("1969-12-31", -86_400),
            ("0001-01-01", -62_135_596_800),
        ] {
            assert_eq!(seconds_since_1970(text), Some(secs), "{text}");
            assert_eq!(when(text), Ok(at(secs).unwrap()), "{text}");
        }
    }

    #[test]
    fn age_is_subtracted_from_now() {
        for (text, secs) in [("7d", 604_800), ("36h", 129_600), ("90m", 5400), ("2w", 1_209_600)] {
            let then = when(text).unwrap();
            let age = SystemTime::now().duration_since(then).unwrap();
            assert!((secs..secs + 60).contains(&age.as_secs()), "{text}: {age:?}");
        }
    }

    #[test]
    fn text_that_is_no_time_is_refused() {
        for text in [
            "",
            "d",
            "7",
            "7x",
            "-7d",
            "7.5d",
            "yesterday",
            "2026-1-31",
            "2026-02-29",
            "2026-13-01",
            "2026-01-31T18:00:00",
            "2026-01-31T25:00:00Z",
            "2026-01-31T18:00Z",
            "2026-01-31T18:00:00+24:00",
            "2026-01-31T",
            "99999999999999999999d",
            "é",
            "2026-01-31Té",
        ] {
            assert!(when(text).unwrap_err().contains("is no time"), "{text}");
        }
    }
}
