//! Words of simulated cross traffic: `web:30mbit`, `video:8mbit`, `cubic*4`.

use crate::model::units::ParseResult;
use bankfull_control::Rate;
use bankfull_sim::tcp::Algorithm;
use bankfull_sim::{Background, BackgroundReport};
use serde::Serialize;
use std::str::FromStr;
use std::time::Duration;

/// Largest number of endless flows of one word. (chosen: as the senders of a crowded port)
const MAX_FLOWS: u32 = 256;

/// Cross traffic, with the word that describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct BackgroundWord {
    /// The word.
    pub word: String,
    /// Its meaning.
    pub kind: Background,
}

impl FromStr for BackgroundWord {
    type Err = String;

    fn from_str(word: &str) -> ParseResult<Self> {
        let rate = |text: &str| -> ParseResult<Rate> {
            let rate: Rate = text.parse().map_err(|error| format!("{word:?}: {error}"))?;
            match rate.bits_per_sec() {
                0 => Err(format!("{word:?}: the rate must be above zero")),
                _ => Ok(rate),
            }
        };
        let kind = match word.split_once(':') {
            Some(("web", text)) => Background::Web { rate: rate(text)? },
            Some(("video", text)) => Background::Video { rate: rate(text)? },
            Some(_) => return Err(unknown(word)),
            None => parse_bulk(word)?,
        };
        Ok(Self { word: word.to_owned(), kind })
    }
}

fn parse_bulk(word: &str) -> ParseResult<Background> {
    let (name, count) = word.split_once('*').unwrap_or((word, "1"));
    let algorithm = match name {
        "cubic" => Algorithm::Cubic,
        "reno" => Algorithm::NewReno,
        "bbr" => Algorithm::Bbr,
        "ledbat" => Algorithm::Ledbat,
        _ => return Err(unknown(word)),
    };
    let flows = count.parse().ok().filter(|flows| (1..=MAX_FLOWS).contains(flows));
    let flows = flows.ok_or_else(|| format!("{word:?}: write a number of 1 to {MAX_FLOWS}"))?;
    Ok(Background::Bulk { algorithm, flows })
}

fn unknown(word: &str) -> String {
    format!(
        "{word:?} is no cross traffic: write web:30mbit, video:8mbit, cubic*4, reno, bbr, ledbat"
    )
}

/// Results of cross traffic in a run.
#[derive(Debug, Clone, Serialize)]
pub struct BackgroundMetrics {
    /// Its word.
    pub word: String,
    /// Mean goodput in bit/s.
    pub goodput_bps: f64,
    /// Median and 95th percentile of the completion times of short flows, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_seconds: Option<(f64, f64)>,
    /// Time in which a video stood still, in seconds.
    pub stalled_seconds: f64,
}

impl BackgroundMetrics {
    /// Metrics of a report about a time.
    #[must_use]
    pub fn of(word: &str, report: &BackgroundReport, time: Duration) -> Self {
        let mut times = report.completion_times.clone();
        times.sort_unstable();
        let quantile = |share: f64| {
            let at = ((times.len().max(1) - 1) as f64 * share).round() as usize;
            times.get(at).map(Duration::as_secs_f64)
        };
        Self {
            word: word.to_owned(),
            goodput_bps: report.delivered.per(time).bits_per_sec() as f64,
            completion_seconds: quantile(0.5).zip(quantile(0.95)),
            stalled_seconds: report.stalled.as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_cross_traffic_are_parsed() {
        let parse = |word: &str| word.parse::<BackgroundWord>().map(|found| found.kind);
        let rate = Rate::from_bits_per_sec(30e6);
        assert_eq!(parse("web:30mbit"), Ok(Background::Web { rate }));
        assert_eq!(parse("video:30mbit"), Ok(Background::Video { rate }));
        let flows = |algorithm, flows| Ok(Background::Bulk { algorithm, flows });
        assert_eq!(parse("cubic*4"), flows(Algorithm::Cubic, 4));
        assert_eq!(parse("reno"), flows(Algorithm::NewReno, 1));
        for (word, says) in [
            ("torrent", "is no cross traffic: write web:30mbit"),
            ("mail:1mbit", "is no cross traffic"),
            ("cubic*0", "a number of 1 to 256"),
            ("cubic*9999", "a number of 1 to 256"),
            ("web:0mbit", "above zero"),
            ("web:fast", "\"web:fast\": "),
        ] {
            let error = parse(word).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn quantiles_of_completion_times_are_reported() {
        let report = BackgroundReport {
            delivered: bankfull_control::Bytes(1_000_000),
            completion_times: (1..=101).rev().map(Duration::from_secs).collect(),
            stalled: Duration::ZERO,
        };
        let metrics = BackgroundMetrics::of("web:1mbit", &report, Duration::from_secs(8));
        assert_eq!(metrics.goodput_bps, 1e6);
        assert_eq!(metrics.completion_seconds, Some((51.0, 96.0)));
    }
}
