//! Local time of day, by the host's time zone.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds of a minute.
const MINUTE_SECS: i64 = 60;

/// Minutes of a day.
const DAY_MINUTES: i64 = 24 * 60;

/// Returns the minute of the local day, 0 to 1439.
///
/// The zone is `TZ`, else that of `/etc/localtime`, with its summer time; the C library reads it
/// once per process. A time that it cannot convert, as in the far future, is returned as UTC.
#[must_use]
pub fn local_minute() -> usize {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let secs = i64::try_from(now.as_secs()).unwrap_or_default();
    let minute = local_minute_at(secs).unwrap_or(secs / MINUTE_SECS % DAY_MINUTES);
    usize::try_from(minute).unwrap_or_default()
}

/// Returns the minute of the local day at a time in seconds since 1970.
fn local_minute_at(secs: libc::time_t) -> Option<i64> {
    // SAFETY: all fields of the structure may be zero; its pointer to a name may be null.
    let mut broken_down: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values that outlive the call, which keeps neither.
    let found = unsafe { libc::localtime_r(&raw const secs, &raw mut broken_down) };
    (!found.is_null()).then(|| i64::from(broken_down.tm_hour) * 60 + i64::from(broken_down.tm_min))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_minute_advances_with_the_time() {
        let at = |secs| local_minute_at(secs).unwrap();
        // A day in winter, without a change of the zone's offset anywhere.
        let noon = 1_737_028_800;
        for hours in 0..24 {
            let later = at(noon + hours * 3_600);
            assert_eq!(later, (at(noon) + hours * 60) % DAY_MINUTES, "{hours}");
        }
        assert_eq!(at(noon + 59), at(noon));
        assert_eq!(at(noon + 61), (at(noon) + 1) % DAY_MINUTES);
        assert!(local_minute() < 1440);
    }

    #[test]
    fn local_minute_beyond_the_calendar_is_absent() {
        assert_eq!(local_minute_at(libc::time_t::MAX), None);
    }
}
