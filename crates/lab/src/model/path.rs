//! Settings of a path, for scenarios and `bankfull-lab path`: a preset, and overrides.

use crate::base::error::{LabError, Result};
use crate::model::background::BackgroundWord;
use crate::model::link_words::{self, LinkWord};
use crate::model::units::{
    Buffer, Cut, field, format_time, parse_cross, parse_cut, parse_loss, parse_time,
};
use bankfull_control::{Bytes, Rate};
use bankfull_sim::{CrossTraffic, LinkConfig, Loss, PathConfig, presets};
use clap::Args;
use serde::Deserialize;
use std::time::Duration;

/// Smallest buffer of a queue: one Ethernet packet; a smaller one passes no full segment. (RFC 894)
const MIN_BUFFER: Bytes = Bytes(1500);

/// Longest RTT: connections must be established within 10 s. (chosen: to the moon and back takes
/// 2.6 s)
pub(crate) const MAX_RTT: Duration = Duration::from_secs(5);

/// Settings of a path, as flags and in scenarios.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PathSettings {
    /// Name in results, in place of the values of a sweep.
    #[arg(skip)]
    #[serde(deserialize_with = "field::some")]
    pub name: Option<String>,

    /// Named path instead of rate, RTT and buffer; other flags override it: lan, continental,
    /// transatlantic, lossy, antipodes, research, incast
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,

    /// Rate of the bottleneck, IP and TCP headers included: 100mbit, 1gbit
    #[arg(long)]
    #[serde(deserialize_with = "field::some")]
    pub rate: Option<Rate>,

    /// RTT without queueing: 20ms
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    #[serde(deserialize_with = "field::some_time")]
    pub rtt: Option<Duration>,

    /// Buffer of the bottleneck's queue: 300kB, or 0.5bdp for half a BDP; at least 1500 bytes
    /// [default: 1bdp]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "field::some")]
    pub buffer: Option<Buffer>,

    /// Random loss towards the receiver: 0.1%, or 0.1%/20 for the same share in clusters of 20
    #[arg(long, value_name = "SHARE", value_parser = parse_loss)]
    #[serde(deserialize_with = "field::some_loss")]
    pub loss: Option<Loss>,

    /// Random loss on the reverse path
    #[arg(long, value_name = "SHARE", value_parser = parse_loss)]
    #[serde(deserialize_with = "field::some_loss")]
    pub loss_back: Option<Loss>,

    /// Unresponsive cross traffic: RATE (Poisson), constant:RATE, or on-off:RATE,TIME,TIME for
    /// bursts and pauses
    #[arg(long, value_name = "RATE", value_parser = parse_cross)]
    #[serde(deserialize_with = "field::some_cross")]
    pub cross: Option<CrossTraffic>,

    /// Queueing discipline, variation of the rate and impairments towards the receiver, repeatable:
    /// codel, ecn, square:120mbit,3s, jitter:8ms (docs/lab.md has all words)
    #[arg(long, value_name = "WORD")]
    #[serde(deserialize_with = "field::words")]
    pub link: Vec<LinkWord>,

    /// The same of the reverse path, repeatable: rate:2mbit, buffer:64kB, thin-acks
    #[arg(long, value_name = "WORD")]
    #[serde(deserialize_with = "field::words")]
    pub back: Vec<LinkWord>,

    /// The same of a first bottleneck at the sender, repeatable: rate:200mbit, buffer:100kB
    #[arg(long, value_name = "WORD")]
    #[serde(deserialize_with = "field::words")]
    pub first_hop: Vec<LinkWord>,

    /// Simulated cross traffic in the same queue, repeatable: web:30mbit, video:8mbit, cubic*4
    #[arg(long, value_name = "WORD")]
    #[serde(deserialize_with = "field::words")]
    pub beside: Vec<BackgroundWord>,

    /// ECN of the hosts: the sysctl tcp_ecn, 1 to request it, 3 for AccECN [default: the machine's]
    #[arg(long, value_name = "NUMBER")]
    pub tcp_ecn: Option<u8>,

    /// Cut the path for a time, after a time: 5s@10s
    #[arg(long, value_name = "TIME@TIME", value_parser = parse_cut)]
    #[serde(deserialize_with = "field::some_cut")]
    pub cut: Option<Cut>,
}

impl PathSettings {
    /// Path with preset and overrides applied.
    ///
    /// # Errors
    /// [`LabError::Usage`] if incomplete or invalid.
    pub fn config(&self) -> Result<PathConfig> {
        self.config_with_access_delay(Duration::ZERO)
    }

    /// True if words describe a link or cross traffic.
    #[must_use]
    pub fn has_words(&self) -> bool {
        let links = [&self.link, &self.back, &self.first_hop];
        !(links.iter().all(|words| words.is_empty()) && self.beside.is_empty())
    }

    /// Path behind access links with this delay, which is part of the BDP.
    ///
    /// # Errors
    /// Errors of [`PathSettings::config`].
    pub fn config_with_access_delay(&self, access: Duration) -> Result<PathConfig> {
        let preset = match &self.preset {
            Some(name) => {
                let find = presets::find(name).ok_or_else(|| unknown_preset(name))?;
                Some(find.path())
            }
            None => None,
        };
        let preset_values = preset.as_ref().map(|path| (path.forward.rate, path.rtt()));
        let (rate, rtt) = match (self.rate, self.rtt, preset_values) {
            (rate, rtt, Some((preset_rate, preset_rtt))) => {
                (rate.or(preset_rate).unwrap_or_default(), rtt.unwrap_or(preset_rtt))
            }
            (Some(rate), Some(rtt), None) => (rate, rtt),
            (rate, rtt, None) => return Err(incomplete(rate.is_some(), rtt.is_some())),
        };
        if rtt > MAX_RTT {
            return Err(too_long(rtt));
        }
        if rate.bits_per_sec() == 0 {
            return Err(LabError::Usage("the rate of a path must be above zero".to_owned()));
        }
        let mut path = PathConfig::new(rate, rtt, Bytes(0));
        let preset_buffer = preset.as_ref().map(|path| Buffer::Bytes(path.forward.buffer));
        let buffer = self.buffer.or(preset_buffer).unwrap_or(Buffer::Bdp(1.0));
        let whole = PathConfig::new(rate, rtt.saturating_add(access), Bytes(0));
        path.forward.buffer = buffer.bytes(whole.bdp().unwrap_or_default());
        if path.forward.buffer < MIN_BUFFER {
            return Err(too_small(buffer, path.forward.buffer));
        }
        let preset_loss = preset.map(|preset| preset.forward.loss);
        path.forward.loss = self.loss.or(preset_loss).unwrap_or_default();
        path.reverse.loss = self.loss_back.unwrap_or_default();
        path.forward.cross = self.cross.unwrap_or_default();
        let say = |name: &str| {
            let name = name.to_owned();
            move |error| LabError::Usage(format!("{name}: {error}"))
        };
        link_words::apply(&self.link, &mut path.forward, rtt).map_err(say("path.link"))?;
        link_words::apply(&self.back, &mut path.reverse, rtt).map_err(say("path.back"))?;
        if !self.first_hop.is_empty() {
            let mut first = LinkConfig::default();
            link_words::apply(&self.first_hop, &mut first, rtt).map_err(say("path.first-hop"))?;
            path.first_hop = Some(first);
        }
        path.background = self.beside.iter().map(|word| word.kind).collect();
        Ok(path)
    }
}

fn incomplete(has_rate: bool, has_rtt: bool) -> LabError {
    let missing = match (has_rate, has_rtt) {
        (true, _) => "rtt is missing",
        (_, true) => "rate is missing",
        _ => "both are missing",
    };
    let text = format!("a path needs rate and rtt, or a preset: {missing}");
    LabError::Usage(text)
}

pub(crate) fn too_long(rtt: Duration) -> LabError {
    let (rtt, most) = (format_time(rtt), format_time(MAX_RTT));
    LabError::Usage(format!("an RTT of {rtt} is too long: at most {most}"))
}

fn too_small(buffer: Buffer, bytes: Bytes) -> LabError {
    let times = match buffer {
        Buffer::Bdp(times) => format!(" ({times}bdp)"),
        Buffer::Bytes(_) => String::new(),
    };
    LabError::Usage(format!(
        "a buffer of {} bytes{times} holds no packet of {} bytes: choose a larger one, \
         such as 15kB",
        bytes.0, MIN_BUFFER.0
    ))
}

fn unknown_preset(name: &str) -> LabError {
    let preset_values: Vec<&str> = presets::PRESETS.iter().map(|preset| preset.name).collect();
    LabError::Usage(format!("unknown preset {name:?}: choose {}", preset_values.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Result<PathConfig> {
        toml::from_str::<PathSettings>(text).unwrap().config()
    }

    #[test]
    fn preset_overrides_apply_and_bdp_follows_rtt() {
        let found = path("preset = 'continental'").unwrap();
        let rate = Some(Rate::from_bits_per_sec(1e9));
        assert_eq!((found.forward.rate, found.forward.buffer), (rate, Bytes(300_000)));
        let found = path("preset = 'continental'\nrtt = '40ms'\nloss = '1%'").unwrap();
        assert_eq!(
            (found.rtt(), found.forward.buffer),
            (Duration::from_millis(40), Bytes(300_000))
        );
        assert_eq!(found.forward.loss, Loss::Random { probability: 0.01 });
        let found = path("rate = '100mbit'\nrtt = '80ms'").unwrap();
        assert_eq!(found.forward.buffer, Bytes(1_000_000));
        let found = path("rate = '100mbit'\nrtt = '80ms'\nbuffer = '0.5bdp'").unwrap();
        assert_eq!(found.forward.buffer, Bytes(500_000));
        let found = path("rate = '10mbit'\nrtt = '20ms'\nbuffer = '0.1bdp'").unwrap();
        assert_eq!(found.forward.buffer, Bytes(2500), "nothing raises it");
        let found = path("rate = '10mbit'\nrtt = '20ms'\nbuffer = '1500B'").unwrap();
        assert_eq!(found.forward.buffer, MIN_BUFFER);
    }

    #[test]
    fn bdp_includes_access_delay() {
        let behind = |text: &str, ms| {
            let settings = toml::from_str::<PathSettings>(text).unwrap();
            settings.config_with_access_delay(Duration::from_millis(ms)).unwrap()
        };
        let found = behind("rate = '100mbit'\nrtt = '20ms'\nbuffer = '0.5bdp'", 60);
        assert_eq!(found.forward.buffer, Bytes(500_000));
        assert_eq!(found.rtt(), Duration::from_millis(20), "without the access delay");
        let found = behind("preset = 'continental'", 60);
        assert_eq!(found.forward.buffer, Bytes(300_000), "given in bytes");
    }

    #[test]
    fn incomplete_or_unknown_path_is_refused() {
        for (text, words) in [
            ("rate = '1gbit'", "rtt is missing"),
            ("rtt = '1ms'", "rate is missing"),
            ("loss = '1%'", "both are missing"),
            ("rate = '1gbit'\nrtt = '30s'", "an RTT of 30 s is too long: at most 5 s"),
            ("preset = 'moon'", "continental"),
            ("rate = '0gbit'\nrtt = '1ms'", "above zero"),
            ("rate = '1gbit'\nrtt = '1us'", "125 bytes (1bdp) holds no packet of 1500 bytes"),
            ("rate = '1gbit'\nrtt = '1ms'\nbuffer = '1499B'", "1499 bytes holds no packet"),
        ] {
            let error = path(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let unknown = toml::from_str::<PathSettings>("speed = '1gbit'").unwrap_err().to_string();
        assert!(unknown.contains("speed") && unknown.contains("rate"), "{unknown}");
    }
}
