//! The path of a scenario, or of `bankfull-lab path`: a preset, and what changes it.

use crate::error::{LabError, Result};
use crate::text::{Buffer, Cut, field, parse_cross, parse_cut, parse_loss, parse_time, short_time};
use bankfull_control::{Bytes, Rate};
use bankfull_sim::{Cross, Loss, PathConfig, presets};
use clap::Args;
use serde::Deserialize;
use std::time::Duration;

/// The least that a queue holds: one packet of Ethernet. A smaller one lets no full segment pass.
/// (RFC 894)
const BUFFER_MIN: Bytes = Bytes(1500);

/// The longest round trip: across it a connection is made within the 10 s that are waited for one.
/// (ours: to the moon and back it is 2.6 s)
pub(super) const RTT_MAX: Duration = Duration::from_secs(5);

/// What a path is like, as flags and in scenarios.
#[derive(Debug, Clone, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PathSettings {
    /// A named path, instead of rate, round trip and buffer: lan, continental, transatlantic,
    /// lossy, antipodes, research, incast. What stands beside it changes it
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,

    /// Rate of the bottleneck, headers of IP and TCP included: 100mbit, 1gbit
    #[arg(long)]
    #[serde(deserialize_with = "field::some")]
    pub rate: Option<Rate>,

    /// Round trip without queues: 20ms
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    #[serde(deserialize_with = "field::some_time")]
    pub rtt: Option<Duration>,

    /// What the bottleneck's queue holds: 300kB, or 0.5bdp for half of what is in flight in a
    /// round trip; 1500 bytes, a packet, at least. Default: 1bdp
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "field::some")]
    pub buffer: Option<Buffer>,

    /// Random loss on the way to the receiver: 0.1%; 0.1%/20 for the same in clusters of 20
    #[arg(long, value_name = "SHARE", value_parser = parse_loss)]
    #[serde(deserialize_with = "field::some_loss")]
    pub loss: Option<Loss>,

    /// Random loss on the way back
    #[arg(long, value_name = "SHARE", value_parser = parse_loss)]
    #[serde(deserialize_with = "field::some_loss")]
    pub loss_back: Option<Loss>,

    /// Cross traffic that does not react: a mean rate, in random distances; constant:RATE;
    /// on-off:RATE,TIME,TIME for bursts and pauses
    #[arg(long, value_name = "RATE", value_parser = parse_cross)]
    #[serde(deserialize_with = "field::some_cross")]
    pub cross: Option<Cross>,

    /// Cuts the path for a time, after a time: 5s@10s
    #[arg(long, value_name = "TIME@TIME", value_parser = parse_cut)]
    #[serde(deserialize_with = "field::some_cut")]
    pub cut: Option<Cut>,
}

impl PathSettings {
    /// The path that is meant.
    ///
    /// # Errors
    /// [`LabError::Usage`] when it is not said, or makes no sense.
    pub fn config(&self) -> Result<PathConfig> {
        self.config_behind(Duration::ZERO)
    }

    /// The path that is meant, behind lines with this delay: what is in flight in a round trip is
    /// so much more.
    ///
    /// # Errors
    /// What [`PathSettings::config`] says.
    pub fn config_behind(&self, access: Duration) -> Result<PathConfig> {
        let preset = match &self.preset {
            Some(name) => {
                let find = presets::find(name).ok_or_else(|| unknown_preset(name))?;
                Some(find.path())
            }
            None => None,
        };
        let known = preset.as_ref().map(|path| (path.forward.rate, path.rtt()));
        let (rate, rtt) = match (self.rate, self.rtt, known) {
            (rate, rtt, Some((preset_rate, preset_rtt))) => {
                (rate.or(preset_rate).unwrap_or_default(), rtt.unwrap_or(preset_rtt))
            }
            (Some(rate), Some(rtt), None) => (rate, rtt),
            (rate, rtt, None) => return Err(incomplete(rate.is_some(), rtt.is_some())),
        };
        if rtt > RTT_MAX {
            return Err(too_long(rtt));
        }
        if rate.bits_per_sec() == 0 {
            return Err(LabError::Usage("the rate of a path must be above zero".to_owned()));
        }
        let mut path = PathConfig::new(rate, rtt, Bytes(0));
        let kept = preset.as_ref().map(|path| Buffer::Bytes(path.forward.buffer));
        let buffer = self.buffer.or(kept).unwrap_or(Buffer::Bdp(1.0));
        let whole = PathConfig::new(rate, rtt.saturating_add(access), Bytes(0));
        path.forward.buffer = buffer.bytes(whole.bdp().unwrap_or_default());
        if path.forward.buffer < BUFFER_MIN {
            return Err(too_small(buffer, path.forward.buffer));
        }
        let preset_loss = preset.map(|preset| preset.forward.loss);
        path.forward.loss = self.loss.or(preset_loss).unwrap_or_default();
        path.reverse.loss = self.loss_back.unwrap_or_default();
        path.forward.cross = self.cross.unwrap_or_default();
        Ok(path)
    }
}

fn incomplete(has_rate: bool, has_rtt: bool) -> LabError {
    let missing = match (has_rate, has_rtt) {
        (true, _) => "it has no round trip (rtt)",
        (_, true) => "it has no rate",
        _ => "it has neither",
    };
    let text = format!("a path needs a rate and a round trip (rtt), or a preset: {missing}");
    LabError::Usage(text)
}

pub(super) fn too_long(rtt: Duration) -> LabError {
    let (rtt, most) = (short_time(rtt), short_time(RTT_MAX));
    LabError::Usage(format!("a round trip of {rtt} is too long: {most} at most"))
}

fn too_small(buffer: Buffer, bytes: Bytes) -> LabError {
    let times = match buffer {
        Buffer::Bdp(times) => format!(" ({times}bdp)"),
        Buffer::Bytes(_) => String::new(),
    };
    LabError::Usage(format!(
        "a queue of {} bytes{times} holds no packet of {} bytes: give the path a larger buffer, \
         such as 15kB",
        bytes.0, BUFFER_MIN.0
    ))
}

fn unknown_preset(name: &str) -> LabError {
    let known: Vec<&str> = presets::PRESETS.iter().map(|preset| preset.name).collect();
    LabError::Usage(format!("there is no preset {name:?}: choose {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Result<PathConfig> {
        toml::from_str::<PathSettings>(text).unwrap().config()
    }

    #[test]
    fn presets_can_be_changed_and_the_buffer_follows_the_round_trip() {
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
        assert_eq!(found.forward.buffer, BUFFER_MIN);
    }

    #[test]
    fn what_is_in_flight_is_that_of_the_whole_round_trip() {
        let behind = |text: &str, ms| {
            let settings = toml::from_str::<PathSettings>(text).unwrap();
            settings.config_behind(Duration::from_millis(ms)).unwrap()
        };
        let found = behind("rate = '100mbit'\nrtt = '20ms'\nbuffer = '0.5bdp'", 60);
        assert_eq!(found.forward.buffer, Bytes(500_000));
        assert_eq!(found.rtt(), Duration::from_millis(20), "the line is not the path's");
        let found = behind("preset = 'continental'", 60);
        assert_eq!(found.forward.buffer, Bytes(300_000), "it is said in bytes");
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        for (text, words) in [
            ("rate = '1gbit'", "it has no round trip (rtt)"),
            ("rtt = '1ms'", "it has no rate"),
            ("loss = '1%'", "it has neither"),
            ("rate = '1gbit'\nrtt = '30s'", "a round trip of 30 s is too long: 5 s at most"),
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
