//! Parsing and formatting of times, losses, buffers and traffic, for flags and scenarios.

use bankfull_control::{Bytes, Rate};
use bankfull_sim::{CrossTraffic, Loss};
use serde::de::{Deserialize, Deserializer, Error as _};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Parsed value, or a message that shows the expected form.
pub(crate) type ParseResult<T> = Result<T, String>;

/// Buffer of a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Buffer {
    /// Size in bytes.
    Bytes(Bytes),
    /// Multiple of the BDP.
    Bdp(f64),
}

impl Buffer {
    /// Size in bytes on a path with this BDP.
    #[must_use]
    pub fn bytes(self, in_flight: Bytes) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Bdp(times) => Bytes((in_flight.0 as f64 * times) as u64),
        }
    }
}

/// Parses `300kB`, or `0.5bdp` for half a BDP.
impl FromStr for Buffer {
    type Err = String;

    fn from_str(text: &str) -> ParseResult<Self> {
        let Some(times) = text.to_ascii_lowercase().strip_suffix("bdp").map(str::to_owned) else {
            return text.parse().map(Self::Bytes).map_err(|e| format!("{e}, or 0.5bdp"));
        };
        let times: f64 = times
            .trim()
            .parse()
            .map_err(|_| format!("invalid buffer {text:?}: write 300kB or 0.5bdp"))?;
        if times.is_finite() && times > 0.0 {
            Ok(Self::Bdp(times))
        } else {
            Err(format!("invalid buffer {text:?}: write 300kB or 0.5bdp"))
        }
    }
}

/// Parses `20ms`, `1.5s` or `100us`.
pub(crate) fn parse_time(text: &str) -> ParseResult<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let factor = match &text[end..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(format!("invalid time {text:?}: write 20ms, 1.5s, 100us")),
    };
    let number: f64 = text[..end]
        .parse()
        .map_err(|_| format!("invalid time {text:?}: write 20ms, 1.5s, 100us"))?;
    Duration::try_from_secs_f64(number * factor).map_err(|e| e.to_string())
}

/// Formats a time with three digits: `34.3 ms`, `525 us`.
pub(crate) fn format_time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (number, unit) = match seconds {
        // Values that would round to 1000 of a unit become 1 of the next.
        _ if seconds < 0.999_5e-3 => (seconds * 1e6, "us"),
        _ if seconds < 0.999_5 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    let digits = match number {
        _ if number < 9.995 => 2,
        _ if number < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{number:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

/// Parses `0.1%` or `0`. Rejects other bare numbers, which may mean a fraction or percent.
pub(crate) fn parse_share(text: &str) -> ParseResult<f64> {
    let wrong = || format!("invalid share {text:?}: write 0.1%, at most 100%");
    let bare = |number: f64| {
        let percent = (number * 1e8).round() / 1e6;
        format!("{text:?} is ambiguous: write {number}% or {percent}%")
    };
    let percent = match text.strip_suffix('%') {
        Some(number) => number.trim().parse::<f64>().map_err(|_| wrong())?,
        None => match text.trim().parse::<f64>().map_err(|_| wrong())? {
            0.0 => 0.0,
            number if number > 0.0 && number < 1.0 => return Err(bare(number)),
            _ => return Err(wrong()),
        },
    };
    if (0.0..=100.0).contains(&percent) { Ok(percent * 0.01) } else { Err(wrong()) }
}

/// Parses `0.1%`, independent losses, or `0.1%/20`, the same share in clusters. 20 is the mean
/// cluster length.
pub(crate) fn parse_loss(text: &str) -> ParseResult<Loss> {
    let Some((share, length)) = text.split_once('/') else {
        return parse_share(text).map(|probability| match probability {
            0.0 => Loss::None,
            _ => Loss::Random { probability },
        });
    };
    let (mean, length) = (parse_share(share)?, length.parse::<f64>().unwrap_or(0.0));
    if !(1.0..=1e6).contains(&length) || mean >= 1.0 {
        return Err(format!("invalid loss {text:?}: write 0.1%/20 for clusters of 20"));
    }
    // The bad state loses everything, lasts `length` segments on average, and takes the share
    // `mean`.
    let to_good = 1.0 / length;
    let to_bad = to_good * mean / (1.0 - mean);
    if to_bad > 1.0 {
        return Err(format!("{text:?}: this loss needs longer clusters"));
    }
    Ok(Loss::GilbertElliott { to_bad, to_good, loss_good: 0.0, loss_bad: 1.0 })
}

/// Parses `400mbit` (Poisson), `constant:400mbit`, or `on-off:800mbit,20ms,30ms`: bursts of 20 ms
/// and pauses of 30 ms on average.
pub(crate) fn parse_cross(text: &str) -> ParseResult<CrossTraffic> {
    let rate = |text: &str| text.parse::<Rate>().map_err(|e| e.to_string());
    match text.split_once(':') {
        None => Ok(CrossTraffic::Poisson { rate: rate(text)? }),
        Some(("constant", text)) => Ok(CrossTraffic::Constant { rate: rate(text)? }),
        Some(("on-off", text)) => {
            let mut parts = text.split(',').map(str::trim);
            let (Some(peak), Some(on), Some(off), None) =
                (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                return Err(format!("{text:?}: write on-off:800mbit,20ms,30ms"));
            };
            Ok(CrossTraffic::OnOff {
                rate: rate(peak)?,
                on: parse_time(on)?,
                off: parse_time(off)?,
            })
        }
        Some((kind, _)) => Err(format!("{kind:?} traffic: choose constant or on-off")),
    }
}

/// Interval in which the path is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Duration.
    pub length: Duration,
    /// Start, since the start of the measurement.
    pub after: Duration,
}

impl Cut {
    /// True if the path is cut at this time.
    #[must_use]
    pub fn holds_at(&self, since_start: Duration) -> bool {
        since_start >= self.after && since_start < self.after + self.length
    }
}

/// Parses `5s@10s`: cut for 5 s, after 10 s.
pub(crate) fn parse_cut(text: &str) -> ParseResult<Cut> {
    let (length, after) = text.split_once('@').ok_or_else(|| format!("{text:?}: write 5s@10s"))?;
    Ok(Cut { length: parse_time(length)?, after: parse_time(after)? })
}

/// Deserializers of scenario fields written as text.
pub(crate) mod field {
    use super::{CrossTraffic, Loss};
    use super::{Cut, Deserialize, Deserializer, Duration, FromStr, ParseResult, fmt};

    fn read<'de, D: Deserializer<'de>, T>(
        from: D,
        parse: impl Fn(&str) -> ParseResult<T>,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        parse(&text).map_err(super::custom::<D>)
    }

    pub(crate) fn of<'de, D: Deserializer<'de>, T>(from: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: fmt::Display>,
    {
        read(from, |text| text.parse().map_err(|e: T::Err| e.to_string()))
    }

    pub(crate) fn some<'de, D: Deserializer<'de>, T>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: fmt::Display>,
    {
        of(from).map(Some)
    }

    pub(crate) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        read(from, super::parse_time)
    }

    /// Time, or list of times.
    pub(crate) fn times<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Duration>, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = "write a time such as \"20ms\", or a list of times")]
        enum Times {
            One(String),
            Many(Vec<String>),
        }
        let all = match Times::deserialize(from)? {
            Times::One(time) => vec![time],
            Times::Many(times) => times,
        };
        if all.is_empty() {
            return Err(super::custom::<D>("write at least one time".to_owned()));
        }
        all.iter().map(|time| super::parse_time(time).map_err(super::custom::<D>)).collect()
    }

    pub(crate) fn some_time<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        time(from).map(Some)
    }

    pub(crate) fn some_loss<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Loss>, D::Error> {
        read(from, super::parse_loss).map(Some)
    }

    pub(crate) fn some_cross<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<CrossTraffic>, D::Error> {
        read(from, super::parse_cross).map(Some)
    }

    /// List of words.
    pub(crate) fn words<'de, D: Deserializer<'de>, T>(from: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: fmt::Display>,
    {
        let words = Vec::<String>::deserialize(from)?;
        let parse =
            |word: &String| word.parse().map_err(|e: T::Err| super::custom::<D>(e.to_string()));
        words.iter().map(parse).collect()
    }

    pub(crate) fn some_cut<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Cut>, D::Error> {
        read(from, super::parse_cut).map(Some)
    }
}

fn custom<'de, D: Deserializer<'de>>(text: String) -> D::Error {
    D::Error::custom(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn text_values_are_parsed() {
        assert_eq!(parse_time("1.5s"), Ok(MS * 1500));
        assert_eq!("0.5bdp".parse(), Ok(Buffer::Bdp(0.5)));
        assert_eq!(Buffer::Bdp(0.5).bytes(Bytes(100_000)), Bytes(50_000));
        assert_eq!(Buffer::Bdp(0.1).bytes(Bytes(25_000)), Bytes(2500));
        assert_eq!("300kB".parse(), Ok(Buffer::Bytes(Bytes(300_000))));
        assert_eq!(parse_loss("1%"), Ok(Loss::Random { probability: 0.01 }));
        assert_eq!(parse_loss("0"), Ok(Loss::None));
        let clusters = parse_loss("2%/10").unwrap();
        assert!((clusters.mean() - 0.02).abs() < 1e-9, "{clusters:?}");
        let peak = Rate::from_bits_per_sec(8e8);
        let wanted = CrossTraffic::OnOff { rate: peak, on: MS * 20, off: MS * 30 };
        assert_eq!(parse_cross("on-off:800mbit,20ms,30ms"), Ok(wanted));
        assert_eq!(parse_cross("800mbit"), Ok(CrossTraffic::Poisson { rate: peak }));
        let cut = parse_cut("5s@1.5s").unwrap();
        assert!(cut.holds_at(MS * 1500) && cut.holds_at(MS * 6499));
        assert!(!cut.holds_at(MS * 1499) && !cut.holds_at(MS * 6500));
    }

    #[test]
    fn times_are_formatted_with_three_digits() {
        for (micros, text) in [
            (0, "0 us"),
            (525, "525 us"),
            (1_000, "1 ms"),
            (34_333, "34.3 ms"),
            (20_000, "20 ms"),
            (100_000, "100 ms"),
            (999_900, "1 s"),
            (1_234_567, "1.23 s"),
        ] {
            assert_eq!(format_time(Duration::from_micros(micros)), text);
        }
    }

    #[test]
    fn invalid_text_is_refused() {
        for text in ["20", "ms", "-1s", "1e9s", ""] {
            assert!(parse_time(text).is_err(), "{text}");
        }
        let bare = parse_loss("0.1").unwrap_err();
        assert_eq!(bare, "\"0.1\" is ambiguous: write 0.1% or 10%");
        for text in ["2", "0.01/20", "-1%", "101%", "x", "1%/0", "1%/x", "100%/5", "60%/1"] {
            assert!(parse_loss(text).is_err(), "{text}");
        }
        for text in ["bdp", "-1bdp", "0bdp", "much"] {
            assert!(text.parse::<Buffer>().is_err(), "{text}");
        }
        for text in ["much", "steady:1mbit", "on-off:1mbit", "on-off:1mbit,1s,1s,1s"] {
            assert!(parse_cross(text).is_err(), "{text}");
        }
        assert!(parse_cut("5s").is_err());
    }
}
