//! Rate limits by the time of day.

use crate::Rate;

/// Minutes of a day.
const DAY: usize = 24 * 60;

/// Rate limits by the local time of day, with a resolution of a minute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Limit of each minute; `None`: none.
    limits: Vec<Option<Rate>>,
}

impl Schedule {
    /// Parses ranges with their limits, such as `08:00-18:00=50mbit,*=max`.
    ///
    /// The end of a range is not in it, and a range may go past midnight. `*` is the rest of the
    /// day. `max` is no limit; `parse_rate` parses any other one.
    ///
    /// # Errors
    /// The part that cannot be parsed, two ranges that overlap, or the first minute without one.
    pub fn parse(
        text: &str,
        parse_rate: impl Fn(&str) -> Result<Rate, String>,
    ) -> Result<Self, String> {
        let mut minutes: Vec<Option<Option<Rate>>> = vec![None; DAY];
        let mut rest = None;
        for part in text.split(',').map(str::trim) {
            let (range, limit) = part.split_once('=').ok_or_else(|| {
                format!("{part:?} is not a range with a rate: write 08:00-18:00=50mbit")
            })?;
            let limit = match limit.trim() {
                "max" => None,
                rate => Some(parse_rate(rate)?),
            };
            if range.trim() == "*" {
                if rest.replace(limit).is_some() {
                    return Err("* occurs twice: the rest of the day has one rate".to_owned());
                }
                continue;
            }
            for minute in minutes_of(range.trim())? {
                if minutes[minute].replace(limit).is_some() {
                    return Err(format!("{} is in two ranges", time_of(minute)));
                }
            }
        }
        let limits = minutes.into_iter().enumerate().map(|(minute, limit)| {
            limit.or(rest).ok_or_else(|| {
                format!("{} has no rate: add a range, or *=max for the rest", time_of(minute))
            })
        });
        Ok(Self { limits: limits.collect::<Result<_, _>>()? })
    }

    /// Returns the limit at a minute of the day; `None`: no limit.
    #[must_use]
    pub fn limit_at(&self, minute: usize) -> Option<Rate> {
        self.limits[minute % DAY]
    }

    /// Returns the lowest limit of the day; `None` if there is none.
    #[must_use]
    pub fn lowest_limit(&self) -> Option<Rate> {
        self.limits.iter().flatten().min().copied()
    }

    /// Returns the number of minutes until the limit changes; `None` if it never does.
    #[must_use]
    pub fn minutes_until_change(&self, minute: usize) -> Option<usize> {
        let now = self.limit_at(minute);
        (1..DAY).find(|after| self.limit_at(minute + after) != now)
    }
}

/// Returns the minutes of a range, such as `08:00-18:00`.
fn minutes_of(range: &str) -> Result<impl Iterator<Item = usize>, String> {
    let wrong = || format!("{range:?} is not a time range: write 08:00-18:00, or * for the rest");
    let (start, end) = range.split_once('-').ok_or_else(wrong)?;
    let [start, end] = [start, end].map(|time| minute_of(time.trim()));
    let (start, end) = start.filter(|start| *start < DAY).zip(end).ok_or_else(wrong)?;
    if start == end % DAY && end != DAY {
        return Err(format!("{range:?} is empty: write * for the whole day"));
    }
    let length = if end > start { end - start } else { DAY - start + end };
    Ok((start..start + length).map(|minute| minute % DAY))
}

/// Parses a time, `24:00` at most.
fn minute_of(time: &str) -> Option<usize> {
    let (hour, minute) = time.split_once(':')?;
    let is_number = |text: &str| text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(hour) || minute.len() != 2 || !is_number(minute) {
        return None;
    }
    let (hour, minute): (usize, usize) = (hour.parse().ok()?, minute.parse().ok()?);
    (minute < 60 && hour * 60 + minute <= DAY).then_some(hour * 60 + minute)
}

/// Returns a minute of the day as people write it.
#[must_use]
pub fn time_of(minute: usize) -> String {
    let minute = minute % DAY;
    format!("{:02}:{:02}", minute / 60, minute % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Schedule, String> {
        Schedule::parse(text, |rate| rate.parse().map_err(|_| format!("no rate: {rate}")))
    }

    fn limit(schedule: &Schedule, time: &str) -> Option<f64> {
        schedule.limit_at(minute_of(time).unwrap()).map(|rate| rate.bits_per_sec() as f64 / 1e6)
    }

    #[test]
    fn ranges_limit_their_minutes() {
        let day = parse("08:00-18:00=50mbit, *=max").unwrap();
        for (time, expected) in
            [("07:59", None), ("08:00", Some(50.0)), ("17:59", Some(50.0)), ("18:00", None)]
        {
            assert_eq!(limit(&day, time), expected, "{time}");
        }
        assert_eq!(day.minutes_until_change(minute_of("07:30").unwrap()), Some(30));
        assert_eq!(day.minutes_until_change(minute_of("18:00").unwrap()), Some(14 * 60));
        assert_eq!(parse("*=5mbit").unwrap().minutes_until_change(0), None);
        let lowest = |text| parse(text).unwrap().lowest_limit();
        assert_eq!(lowest("08:00-18:00=50mbit,20:00-21:00=9mbit,*=max"), "9mbit".parse().ok());
        assert_eq!(lowest("*=max"), None);
    }

    #[test]
    fn range_may_go_past_midnight() {
        let night = parse("22:00-6:00=max,6:00-22:00=10mbit").unwrap();
        assert_eq!(limit(&night, "23:30"), None);
        assert_eq!(limit(&night, "05:59"), None);
        assert_eq!(limit(&night, "06:00"), Some(10.0));
        let evening = parse("18:00-24:00=1mbit,00:00-18:00=2mbit").unwrap();
        assert_eq!((limit(&evening, "23:59"), limit(&evening, "00:00")), (Some(1.0), Some(2.0)));
        assert_eq!(limit(&parse("00:00-24:00=3mbit").unwrap(), "12:00"), Some(3.0));
    }

    #[test]
    fn bad_schedules_are_refused_by_their_part() {
        for (text, part) in [
            ("08:00-18:00=50mbit", "00:00 has no rate"),
            ("00:00-12:00=1mbit,12:30-24:00=max", "12:00 has no rate"),
            ("08:00-18:00=1mbit,17:00-19:00=2mbit,*=max", "17:00 is in two ranges"),
            ("*=1mbit,*=max", "* occurs twice"),
            ("8-18=1mbit,*=max", "\"8-18\" is not a time range"),
            ("25:00-26:00=1mbit,*=max", "is not a time range"),
            ("08:00-08:00=1mbit,*=max", "is empty"),
            ("08:00-18:60=1mbit,*=max", "is not a time range"),
            ("50mbit", "\"50mbit\" is not a range with a rate"),
            ("*=fast", "no rate: fast"),
            ("", "is not a range with a rate"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
