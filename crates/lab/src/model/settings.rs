//! Settings of a scenario for one condition, as deserialized from TOML.

use crate::base::error::Result;
use crate::model::contender::Contender;
use crate::model::path::PathSettings;
use crate::model::plan::{FlowSpec, Plan};
use crate::model::units::field;
use bankfull_control::{Bytes, Rate};
use bankfull_sim::{LinkConfig, PathConfig};
use serde::Deserialize;
use std::time::Duration;

/// Value that leaves the congestion control open.
pub const ANY: &str = "any";

/// Quantum in which packets of several senders interleave at the switch. (chosen: two segments at
/// 1 Gbit/s, as network cards interleave them)
const ACCESS_QUANTUM: Duration = Duration::from_micros(24);

/// Settings of a scenario for one condition.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// Title, one line.
    pub title: String,
    /// Path towards the receiver and back.
    #[serde(default)]
    pub path: PathSettings,
    /// Senders; by default one, without an access link.
    #[serde(default)]
    pub senders: Senders,
    /// TCP cross traffic.
    #[serde(default, rename = "cross-tcp")]
    pub cross_tcp: Vec<CrossTcp>,
    /// Data for tools that move files.
    #[serde(default)]
    pub data: Data,
    /// Settings of the runs.
    #[serde(default)]
    pub run: RunSettings,
    /// Contenders.
    #[serde(rename = "contender")]
    pub contenders: Vec<Contender>,
}

impl Settings {
    /// Index of the receiver: after the senders, and the host of the cross traffic.
    #[must_use]
    pub fn receiver(&self) -> usize {
        self.senders.count + usize::from(!self.cross_tcp.is_empty())
    }

    /// Path; a buffer in BDP includes the delay of the access links.
    ///
    /// # Errors
    /// Errors of [`PathSettings::config`].
    pub fn path_config(&self) -> Result<PathConfig> {
        self.path.config_with_access_delay(self.senders.longest_delay())
    }

    /// Capacity for all senders: that of the path, or of their access links together if less.
    ///
    /// Of a rate that varies, the mean over [`RunSettings::duration`] counts.
    ///
    /// # Errors
    /// Errors of [`PathSettings::config`].
    pub fn rate(&self) -> Result<Rate> {
        let path = self.path_config()?;
        let mean = |link: &LinkConfig| link.mean_rate(self.run.seed, self.run.duration);
        let first = path.first_hop.as_ref().and_then(mean);
        let path = [first, mean(&path.forward)].into_iter().flatten().min().unwrap_or_default();
        let Some(access) = self.senders.rate else { return Ok(path) };
        let all = access.bits_per_sec().saturating_mul(self.senders.count as u64);
        Ok(path.min(Rate::from_bits_per_sec(all as f64)))
    }

    /// Congestion control pinned for a contender.
    #[must_use]
    pub fn congestion<'a>(&'a self, contender: &'a Contender) -> Option<&'a str> {
        let name = contender.congestion.as_deref().unwrap_or(&self.run.congestion);
        (name != ANY).then_some(name)
    }

    /// Congestion control of cross traffic, the same for all contenders.
    #[must_use]
    pub fn cross_congestion<'a>(&'a self, cross: &'a CrossTcp) -> Option<&'a str> {
        let name = cross.congestion.as_deref().unwrap_or(&self.run.congestion);
        (name != ANY).then_some(name)
    }

    /// Flows of TCP cross traffic.
    pub fn cross_flows(&self) -> impl Iterator<Item = FlowSpec<'_>> {
        self.cross_tcp.iter().map(|cross| FlowSpec {
            count: cross.flows,
            window: cross.window,
            congestion: self.cross_congestion(cross),
        })
    }

    /// Network for a run of a contender. Connections of the cross-traffic host are not pinned; each
    /// sets [`Settings::cross_congestion`].
    ///
    /// # Errors
    /// Errors of [`PathSettings::config`].
    pub fn plan(&self, contender: &Contender, seed: u64) -> Result<Plan> {
        let path = self.path_config()?;
        let access = |delay: &Duration| match &path.first_hop {
            Some(first) => LinkConfig { delay: first.delay + *delay, ..first.clone() },
            None => LinkConfig {
                rate: self.senders.rate,
                delay: *delay,
                quantum: ACCESS_QUANTUM,
                ..LinkConfig::default()
            },
        };
        let delays = self.senders.delays.iter().cycle().take(self.senders.count);
        let mut plan = Plan::fan_in(&delays.map(access).collect::<Vec<_>>(), &path);
        if !self.cross_tcp.is_empty() {
            plan = plan.with_cross_host(&path);
        }
        plan.congestion = self.congestion(contender).map(str::to_owned);
        plan.tcp_buffer_bytes = (self.run.tcp_buffer.0 > 0).then_some(self.run.tcp_buffer.0);
        plan.tcp_ecn = self.path.tcp_ecn;
        plan.seed = seed;
        plan.interval = self.run.interval;
        Ok(plan)
    }
}

/// Hosts that send at the same time. Each has its own access link to the switch.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Senders {
    /// Number of senders.
    pub count: usize,
    /// Rate of each access link; `None`: unlimited.
    #[serde(deserialize_with = "field::some")]
    pub rate: Option<Rate>,
    /// Delays of the access links, in addition to the path's; repeated if there are more senders.
    #[serde(rename = "delay", deserialize_with = "field::times")]
    pub delays: Vec<Duration>,
    /// Delay between the starts of consecutive senders.
    #[serde(deserialize_with = "field::time")]
    pub stagger: Duration,
}

impl Senders {
    /// Longest delay of the access links.
    #[must_use]
    pub fn longest_delay(&self) -> Duration {
        self.delays.iter().take(self.count).max().copied().unwrap_or_default()
    }
}

impl Default for Senders {
    fn default() -> Self {
        Self { count: 1, rate: None, delays: vec![Duration::ZERO], stagger: Duration::ZERO }
    }
}

/// TCP cross traffic from a host of its own to the same receiver.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CrossTcp {
    /// Number of flows.
    #[serde(default = "one")]
    pub flows: usize,
    /// Window of each flow, which limits it; `None`: unlimited.
    #[serde(default, deserialize_with = "field::some")]
    pub window: Option<Bytes>,
    /// Congestion control that replaces that of `[run]`; a contender's does not change it.
    #[serde(default)]
    pub congestion: Option<String>,
}

/// Files to move, of incompressible content.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Data {
    /// Number of files: one is a file, more are a tree with 1000 files per directory.
    pub files: u64,
    /// Size of each file in bytes.
    #[serde(deserialize_with = "field::of")]
    pub size: Bytes,
    /// Treats `size` as a mean: of eight files, seven have 1/64, 1/32 and so on up to all of it,
    /// one has the rest.
    pub mixed: bool,
}

/// Number of mixed sizes before they repeat.
pub(crate) const MIXED_SIZES: u64 = 8;

impl Default for Data {
    fn default() -> Self {
        Self { files: 1, size: Bytes(100_000_000), mixed: false }
    }
}

impl Data {
    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        // Eight consecutive files have eight times the mean.
        let even = self.files - self.files % MIXED_SIZES;
        let rest = (even..self.files).map(|number| self.size_of(number).0);
        Bytes(rest.fold(even.saturating_mul(self.size.0), u64::saturating_add))
    }

    /// Size of one file.
    #[must_use]
    pub fn size_of(&self, number: u64) -> Bytes {
        let part = |at: u64| self.size.0 >> (MIXED_SIZES - 2 - at);
        match number % MIXED_SIZES {
            _ if !self.mixed => self.size,
            last if last == MIXED_SIZES - 1 => {
                Bytes((self.size.0.saturating_mul(MIXED_SIZES)) - (0..last).map(part).sum::<u64>())
            }
            at => Bytes(part(at)),
        }
    }
}

/// Settings of the runs of a scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RunSettings {
    /// Runs of each contender.
    pub repetitions: u32,
    /// Seed of the first repetition; the next ones count up, for all contenders alike.
    pub seed: u64,
    /// Congestion control of all connections; `any` leaves it to host and programs.
    pub congestion: String,
    /// Largest TCP buffers of the hosts; zero keeps the machine's.
    #[serde(deserialize_with = "field::of")]
    pub tcp_buffer: Bytes,
    /// Sending time in RTTs, if that is longer.
    pub rtts: u32,
    /// Recording interval of the link.
    #[serde(deserialize_with = "field::time")]
    pub interval: Duration,
    /// Sending time of tools that send for a time.
    #[serde(deserialize_with = "field::time")]
    pub duration: Duration,
    /// Timeout of a run.
    #[serde(deserialize_with = "field::time")]
    pub timeout: Duration,
    /// Default streams of contenders that support them.
    pub streams: Option<usize>,
    /// Default window of contenders that support one.
    #[serde(deserialize_with = "field::some")]
    pub window: Option<Bytes>,
    /// Default CPU share of contenders that support one.
    pub cpu: Option<f64>,
    /// Runs programs without CAP_NET_ADMIN, as those of an ordinary user.
    pub unprivileged: bool,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            repetitions: 3,
            seed: 1,
            congestion: "cubic".to_owned(),
            tcp_buffer: Bytes::mib(64),
            rtts: 0,
            interval: Duration::from_millis(10),
            duration: Duration::from_secs(8),
            timeout: Duration::from_secs(60),
            streams: None,
            window: None,
            cpu: None,
            unprivileged: false,
        }
    }
}

fn one() -> usize {
    1
}
