//! Words that describe a link: queueing discipline, variation of the rate, impairments.
//!
//! A word is a name with values, `jitter:8ms`. The same words serve for the link towards the
//! receiver, the one back, and the first hop.

use crate::model::units::{Buffer, ParseResult, parse_cross, parse_loss, parse_share, parse_time};
use bankfull_control::{Bytes, Rate};
use bankfull_sim::link::queue::{CodelConfig, FqCodelConfig, PieConfig, QueueConfig};
use bankfull_sim::link::rate::{Policer, RateVariation};
use bankfull_sim::link::trace::{TRACE_NAMES, Trace};
use bankfull_sim::link::{Jitter, LinkConfig, Reordering};
use bankfull_sim::{CrossTraffic, Loss};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Seed of generated traces: the same recording for all contenders and repetitions. (chosen: any
/// number does, as long as it stays)
const TRACE_SEED: u64 = 1;

/// Names of all words, for error messages.
const WORDS: &str = "rate, buffer, delay, loss, cross, drop-tail, codel, fq-codel, pie, ecn, \
                     policer, burst, thin-acks, square, walk, steps, trace, silence, rtt, mtu, \
                     jitter, jitter-reordering, reorder, duplicate, frames";

/// Word that describes a link.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkWord {
    /// `rate:2mbit`
    Rate(Rate),
    /// `buffer:64kB`, `buffer:1bdp`
    Buffer(Buffer),
    /// `delay:10ms`: one-way, in place of the path's.
    Delay(Duration),
    /// `loss:0.1%`
    Loss(Loss),
    /// `cross:100mbit`
    Cross(CrossTraffic),
    /// `drop-tail`, `codel`, `codel:5ms,100ms`, `fq-codel`, `pie`, `pie:15ms`
    Queue(QueueConfig),
    /// `ecn`
    Ecn,
    /// `policer:200mbit,256kB`
    Policer(Policer),
    /// `burst:64kB`
    Burst(Bytes),
    /// `thin-acks`
    ThinAcks,
    /// `square:120mbit,3s`, `walk:30mbit,200ms`, `steps:100mbit@5s,300mbit@10s`
    Variation(RateVariation),
    /// `trace:cellular`
    GeneratedTrace(&'static str),
    /// `silence:300ms@10s`: length and time.
    Silence(Duration, Duration),
    /// `rtt:60ms@10s`: RTT of the path and time.
    Rtt(Duration, Duration),
    /// `mtu:1300@10s`: bytes and time.
    Mtu(u32, Duration),
    /// `jitter:8ms`, `jitter:8ms,20ms`, `jitter-reordering:8ms`
    Jitter(Jitter),
    /// `reorder:0.1%,4ms`
    Reordering(Reordering),
    /// `duplicate:0.1%`
    Duplication(f64),
    /// `frames:4ms`
    Frames(Duration),
}

impl FromStr for LinkWord {
    type Err = String;

    fn from_str(text: &str) -> ParseResult<Self> {
        let (name, values) = text.split_once(':').unwrap_or((text, ""));
        let values: Vec<&str> = match values {
            "" => Vec::new(),
            _ => values.split(',').map(str::trim).collect(),
        };
        parse_queue(name, &values)
            .or_else(|| parse_rate(name, &values))
            .or_else(|| parse_impairment(name, &values))
            .unwrap_or_else(|| Err(format!("unknown word {name:?} for a link: choose {WORDS}")))
            .map_err(|error| format!("{text:?}: {error}"))
    }
}

/// Parses words of a queue; `None`: none of them.
fn parse_queue(name: &str, values: &[&str]) -> Option<ParseResult<LinkWord>> {
    let queue = |config| Ok(LinkWord::Queue(config));
    Some(match (name, values) {
        ("drop-tail", []) => queue(QueueConfig::DropTail),
        ("codel", _) => codel(values).map(|codel| LinkWord::Queue(QueueConfig::Codel(codel))),
        ("fq-codel", _) => codel(values)
            .map(|codel| LinkWord::Queue(QueueConfig::FqCodel(FqCodelConfig { codel }))),
        ("pie", []) => queue(QueueConfig::Pie(PieConfig::default())),
        ("pie", [target]) => parse_time(target).map(|target| {
            LinkWord::Queue(QueueConfig::Pie(PieConfig { target, ..PieConfig::default() }))
        }),
        ("ecn", []) => Ok(LinkWord::Ecn),
        ("thin-acks", []) => Ok(LinkWord::ThinAcks),
        ("buffer", [size]) => size.parse().map(LinkWord::Buffer),
        ("policer", [rate, burst]) => parse(rate)
            .and_then(|rate| Ok(LinkWord::Policer(Policer { rate, burst: parse(burst)? }))),
        ("policer", _) => Err("write policer:200mbit,256kB".to_owned()),
        _ => return None,
    })
}

/// Parses words of a line's rate; `None`: none of them.
fn parse_rate(name: &str, values: &[&str]) -> Option<ParseResult<LinkWord>> {
    let variation = |found: ParseResult<RateVariation>| found.map(LinkWord::Variation);
    Some(match (name, values) {
        ("rate", [rate]) => parse(rate).map(LinkWord::Rate),
        ("burst", [size]) => parse(size).map(LinkWord::Burst),
        ("square", [other, period]) => variation(
            rate_and_time(other, period)
                .map(|(other, period)| RateVariation::Square { other, period }),
        ),
        ("square", _) => Err("write square:120mbit,3s".to_owned()),
        ("walk", [least, step]) => variation(
            rate_and_time(least, step).map(|(least, step)| RateVariation::Walk { least, step }),
        ),
        ("walk", _) => Err("write walk:30mbit,200ms".to_owned()),
        ("steps", steps) => variation(parse_steps(steps)),
        ("trace", [name]) => parse_trace(name),
        ("silence", [silence]) => at_time(silence, "silence:300ms@10s")
            .and_then(|(length, at)| Ok(LinkWord::Silence(parse_time(length)?, at))),
        _ => return None,
    })
}

/// Parses words of propagation and loss; `None`: none of them.
fn parse_impairment(name: &str, values: &[&str]) -> Option<ParseResult<LinkWord>> {
    let jitter = |max: &str, period: Option<&str>, reorders| {
        let period = period.map_or(Ok(Duration::ZERO), parse_time)?;
        Ok(LinkWord::Jitter(Jitter { max: parse_time(max)?, period, reorders }))
    };
    Some(match (name, values) {
        ("delay", [delay]) => parse_time(delay).map(LinkWord::Delay),
        ("loss", [loss]) => parse_loss(loss).map(LinkWord::Loss),
        ("cross", values) => parse_cross(&values.join(",")).map(LinkWord::Cross),
        ("rtt", [change]) => at_time(change, "rtt:60ms@10s")
            .and_then(|(rtt, at)| Ok(LinkWord::Rtt(parse_time(rtt)?, at))),
        ("mtu", [change]) => at_time(change, "mtu:1300@10s").and_then(|(bytes, at)| {
            let bytes = bytes.parse().map_err(|_| "write mtu:1300@10s".to_owned())?;
            Ok(LinkWord::Mtu(bytes, at))
        }),
        ("jitter", [max]) => jitter(max, None, false),
        ("jitter", [max, period]) => jitter(max, Some(period), false),
        ("jitter-reordering", [max]) => jitter(max, None, true),
        ("reorder", [share, delay]) => parse_share(share).and_then(|share| {
            Ok(LinkWord::Reordering(Reordering { share, delay: parse_time(delay)? }))
        }),
        ("reorder", _) => Err("write reorder:0.1%,4ms".to_owned()),
        ("duplicate", [share]) => parse_share(share).map(LinkWord::Duplication),
        ("frames", [interval]) => parse_time(interval).map(LinkWord::Frames),
        _ => return None,
    })
}

fn parse<T: FromStr<Err: std::fmt::Display>>(text: &str) -> ParseResult<T> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn rate_and_time(rate: &str, time: &str) -> ParseResult<(Rate, Duration)> {
    match parse_time(time)? {
        Duration::ZERO => Err("the time must be above zero".to_owned()),
        time => Ok((parse(rate)?, time)),
    }
}

/// Splits `VALUE@TIME`.
fn at_time<'a>(text: &'a str, example: &str) -> ParseResult<(&'a str, Duration)> {
    let (value, at) = text.split_once('@').ok_or_else(|| format!("write {example}"))?;
    Ok((value, parse_time(at)?))
}

fn codel(values: &[&str]) -> ParseResult<CodelConfig> {
    match values {
        [] => Ok(CodelConfig::default()),
        [target, interval] => {
            Ok(CodelConfig { target: parse_time(target)?, interval: parse_time(interval)? })
        }
        _ => Err("write codel, or codel:5ms,100ms".to_owned()),
    }
}

fn parse_steps(steps: &[&str]) -> ParseResult<RateVariation> {
    let step = |text: &&str| {
        let (rate, at) = at_time(text, "steps:100mbit@5s,300mbit@10s")?;
        Ok((at, parse(rate)?))
    };
    let steps: Vec<(Duration, Rate)> = steps.iter().map(step).collect::<ParseResult<_>>()?;
    match steps.is_empty() || !steps.is_sorted_by_key(|(at, _)| *at) {
        true => Err("write steps in order: steps:100mbit@5s,300mbit@10s".to_owned()),
        false => Ok(RateVariation::Steps(steps)),
    }
}

/// Parses the name of a generated trace, or reads a file in Mahimahi's format.
fn parse_trace(name: &str) -> ParseResult<LinkWord> {
    if let Some(known) = TRACE_NAMES.iter().find(|known| **known == name) {
        return Ok(LinkWord::GeneratedTrace(known));
    }
    let text = std::fs::read_to_string(name).map_err(|error| {
        format!("{error}; a trace is a file in Mahimahi's format, or {}", TRACE_NAMES.join(", "))
    })?;
    let trace = Trace::parse_mahimahi(&text)?;
    Ok(LinkWord::Variation(RateVariation::Trace(Arc::new(trace))))
}

/// Applies words to a link; `rtt` is that of the path.
///
/// # Errors
/// A description of the word that does not fit.
pub(crate) fn apply(words: &[LinkWord], link: &mut LinkConfig, rtt: Duration) -> ParseResult<()> {
    // The rate comes first: buffers and traces depend on it.
    for word in words {
        if let LinkWord::Rate(rate) = word {
            link.rate = Some(*rate);
            link.buffer = Buffer::Bdp(1.0).bytes(bdp(*rate, rtt));
        }
    }
    words.iter().try_for_each(|word| apply_word(word, link, rtt))?;
    check(link)
}

/// Refuses combinations without a meaning.
fn check(link: &LinkConfig) -> ParseResult<()> {
    let is_drop_tail = link.queue == QueueConfig::DropTail;
    let (delays, mtus) = (&link.impairments.delay_changes, &link.impairments.mtu_changes);
    let wrong = [
        (link.rate.is_some_and(|rate| rate.bits_per_sec() == 0), "the rate must be above zero"),
        (link.thins_acks && !is_drop_tail, "thin-acks works with drop-tail only: leave out one"),
        (link.ecn && is_drop_tail, "ecn needs codel, fq-codel or pie"),
        (link.rate.is_some() && link.buffer.0 < 1500, "a buffer holds at least 1500 bytes"),
        (
            link.policer.is_some_and(|policer| policer.burst.0 < 1500),
            "the bucket of a policer holds at least 1500 bytes",
        ),
        (
            !delays.is_sorted_by(|(before, _), (at, _)| before < at),
            "write changes of the RTT in order of time: rtt:60ms@10s, then rtt:40ms@20s",
        ),
        (
            !mtus.is_sorted_by(|(before, _), (at, _)| before < at),
            "write changes of the MTU in order of time: mtu:1400@10s, then mtu:1300@20s",
        ),
    ];
    match wrong.iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, what)) => Err((*what).to_owned()),
        None => Ok(()),
    }
}

fn apply_word(word: &LinkWord, link: &mut LinkConfig, rtt: Duration) -> ParseResult<()> {
    let rate = || link.rate.ok_or("a word needs the rate of its link: write rate:10mbit");
    match word {
        LinkWord::Rate(_) => {}
        LinkWord::Buffer(buffer) => link.buffer = buffer.bytes(bdp(rate()?, rtt)),
        LinkWord::Delay(delay) => link.delay = *delay,
        LinkWord::Loss(loss) => link.loss = *loss,
        LinkWord::Cross(cross) => link.cross = *cross,
        LinkWord::Queue(queue) => link.queue = *queue,
        LinkWord::Ecn => link.ecn = true,
        LinkWord::Policer(policer) => link.policer = Some(*policer),
        LinkWord::Burst(bytes) => link.shaper_burst = *bytes,
        LinkWord::ThinAcks => link.thins_acks = true,
        LinkWord::Variation(variation) => {
            rate()?;
            link.variation = variation.clone();
        }
        LinkWord::GeneratedTrace(name) => {
            let trace = Trace::generate(name, rate()?, TRACE_SEED);
            link.variation =
                trace.map_or_else(Default::default, |trace| RateVariation::Trace(Arc::new(trace)));
        }
        LinkWord::Silence(length, at) => link.silences.push((*at, *length)),
        LinkWord::Rtt(new, at) => {
            let delay = (link.delay + *new).checked_sub(rtt);
            let delay = delay.ok_or("the new RTT is shorter than the delay of the reverse path")?;
            link.impairments.delay_changes.push((*at, delay));
        }
        LinkWord::Mtu(bytes, at) => link.impairments.mtu_changes.push((*at, *bytes)),
        LinkWord::Jitter(jitter) => link.impairments.jitter = Some(*jitter),
        LinkWord::Reordering(reordering) => link.impairments.reordering = Some(*reordering),
        LinkWord::Duplication(share) => link.impairments.duplication = *share,
        LinkWord::Frames(interval) => link.impairments.aggregation = Some(*interval),
    }
    Ok(())
}

fn bdp(rate: Rate, rtt: Duration) -> Bytes {
    Bytes((rate.bytes_per_sec() as f64 * rtt.as_secs_f64()) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn link(words: &[&str]) -> ParseResult<LinkConfig> {
        let words: Vec<LinkWord> =
            words.iter().map(|word| word.parse()).collect::<Result<_, _>>()?;
        let rate = Some(Rate::from_bits_per_sec(1e8));
        let mut link = LinkConfig { rate, delay: MS * 20, ..LinkConfig::default() };
        apply(&words, &mut link, MS * 40)?;
        Ok(link)
    }

    #[test]
    fn words_describe_a_link() {
        let found = link(&["buffer:0.5bdp", "rate:2mbit", "thin-acks", "loss:1%"]).unwrap();
        assert_eq!((found.rate, found.buffer), (Some(Rate::from_bits_per_sec(2e6)), Bytes(5000)));
        assert!(found.thins_acks && found.loss.mean() == 0.01);
        let found = link(&["codel:2ms,50ms", "ecn", "burst:64kB"]).unwrap();
        let codel = CodelConfig { target: MS * 2, interval: MS * 50 };
        assert_eq!((found.queue, found.ecn), (QueueConfig::Codel(codel), true));
        assert_eq!(found.shaper_burst, Bytes(64_000));
        let found =
            link(&["silence:300ms@10s", "rtt:60ms@10s", "rtt:25ms@20s", "mtu:1300@5s"]).unwrap();
        assert_eq!(found.silences, [(MS * 10_000, MS * 300)]);
        let delays = [(MS * 10_000, MS * 40), (MS * 20_000, MS * 5)];
        assert_eq!(found.impairments.delay_changes, delays);
        assert_eq!(found.impairments.mtu_changes, [(MS * 5000, 1300)]);
        let found =
            link(&["jitter:8ms,20ms", "reorder:0.1%,4ms", "duplicate:1%", "frames:4ms"]).unwrap();
        let jitter = Jitter { max: MS * 8, period: MS * 20, reorders: false };
        assert_eq!(found.impairments.jitter, Some(jitter));
        assert_eq!(found.impairments.aggregation, Some(MS * 4));
        let found = link(&["steps:50mbit@5s,0mbit@7s", "policer:1mbit,10kB", "pie:20ms"]).unwrap();
        assert!(matches!(found.variation, RateVariation::Steps(steps) if steps.len() == 2));
        for name in TRACE_NAMES {
            let file = format!("../../experiments/traces/{name}.trace");
            for trace in [name, &file] {
                let found = link(&[&format!("trace:{trace}")]).unwrap();
                assert!(matches!(found.variation, RateVariation::Trace(_)), "{trace}");
            }
        }
    }

    #[test]
    fn wrong_words_name_what_is_wrong() {
        for (words, says) in [
            (&["rate:0mbit"][..], "the rate must be above zero"),
            (&["thin-acks", "codel"], "thin-acks works with drop-tail only"),
            (&["ecn"], "ecn needs codel, fq-codel or pie"),
            (&["rate:1mbit", "buffer:100B"], "at least 1500 bytes"),
            (&["policer:1mbit,100B"], "a policer holds at least 1500 bytes"),
            (&["rtt:60ms@20s", "rtt:50ms@10s"], "changes of the RTT in order of time"),
            (&["rtt:60ms@10s", "rtt:50ms@10s"], "changes of the RTT in order of time"),
            (&["mtu:1300@20s", "mtu:1400@10s"], "changes of the MTU in order of time"),
        ] {
            let error = link(words).unwrap_err();
            assert!(error.contains(says), "{words:?}: {error}");
        }
        for (word, says) in [
            ("bucket:1", "unknown word \"bucket\" for a link: choose rate, buffer"),
            ("codel:5ms", "write codel, or codel:5ms,100ms"),
            ("square:1mbit", "write square:120mbit,3s"),
            ("square:1mbit,0s", "above zero"),
            ("steps:5mbit@9s,6mbit@3s", "in order"),
            ("steps", "in order"),
            ("trace:nowhere.trace", "Mahimahi's format, or cellular"),
            ("silence:300ms", "write silence:300ms@10s"),
            ("rtt:10ms@1s", "shorter than the delay of the reverse path"),
            ("mtu:big@1s", "write mtu:1300@10s"),
            ("reorder:1%", "write reorder:0.1%,4ms"),
            ("ecn:yes", "unknown word"),
        ] {
            let error = link(&[word]).unwrap_err();
            assert!(error.contains(says), "{word}: {error}");
        }
    }
}
