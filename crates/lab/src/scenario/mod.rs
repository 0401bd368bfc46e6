//! Scenarios: what is compared, under which conditions, as small TOML files. `docs/lab.md` lists
//! their fields.

mod file;
mod path;

pub use file::read;
pub use path::PathSettings;

use crate::error::Result;
use crate::flows::Kind;
use crate::network::Plan;
use crate::text::field;
use bankfull_control::{Bytes, Rate};
use bankfull_sim::{LinkConfig, PathConfig};
use serde::Deserialize;
use std::time::Duration;

/// What is compared, under one or more conditions.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The file's name, without its ending.
    pub name: String,
    /// What it shows, in one line.
    pub title: String,
    /// What varies between the conditions; nothing when there is one only.
    pub axes: Vec<Axis>,
    /// The conditions, in the order of the axes, the last of which varies first.
    pub conditions: Vec<Condition>,
}

/// Something that varies.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// What varies, as it is called in the file: `path.buffer`.
    pub key: String,
    /// The values that it takes.
    pub values: Vec<toml::Value>,
}

/// One of the conditions of a scenario.
#[derive(Debug, Clone)]
pub struct Condition {
    /// The value of each axis, as text.
    pub values: Vec<String>,
    /// All that is said for it.
    pub settings: Settings,
}

/// What a file says, for one condition.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Settings {
    /// What it shows, in one line.
    pub title: String,
    /// The path towards the receiver and back.
    #[serde(default)]
    pub path: PathSettings,
    /// Those who send; without it there is one, with nothing before the path.
    #[serde(default)]
    pub senders: Senders,
    /// TCP flows that run beside what is measured.
    #[serde(default, rename = "cross-tcp")]
    pub cross_tcp: Vec<CrossTcp>,
    /// What is moved by tools that move files.
    #[serde(default)]
    pub data: Data,
    /// How it is run.
    #[serde(default)]
    pub run: Runs,
    /// What is compared.
    #[serde(rename = "contender")]
    pub contenders: Vec<Contender>,
}

impl Settings {
    /// Number of the receiver: behind the senders, and the host of the flows beside.
    #[must_use]
    pub fn receiver(&self) -> usize {
        self.senders.count + usize::from(!self.cross_tcp.is_empty())
    }

    /// The path; buffers that are said in what is in flight count the senders' own lines, too.
    ///
    /// # Errors
    /// What [`PathSettings::config`] says.
    pub fn path_config(&self) -> Result<PathConfig> {
        self.path.config_behind(self.senders.longest_delay())
    }

    /// What the path takes from all senders together: no more than their own lines bring.
    ///
    /// # Errors
    /// What [`PathSettings::config`] says.
    pub fn rate(&self) -> Result<Rate> {
        let path = self.path_config()?.forward.rate.unwrap_or_default();
        let Some(access) = self.senders.rate else { return Ok(path) };
        let all = access.bits_per_sec().saturating_mul(self.senders.count as u64);
        Ok(path.min(Rate::from_bits_per_sec(all as f64)))
    }

    /// Congestion control that is pinned for a contender.
    #[must_use]
    pub fn congestion<'a>(&'a self, contender: &'a Contender) -> Option<&'a str> {
        let name = contender.congestion.as_deref().unwrap_or(&self.run.congestion);
        (name != ANY).then_some(name)
    }

    /// Congestion control of flows beside what is measured: the same for all contenders.
    #[must_use]
    pub fn cross_congestion<'a>(&'a self, cross: &'a CrossTcp) -> Option<&'a str> {
        let name = cross.congestion.as_deref().unwrap_or(&self.run.congestion);
        (name != ANY).then_some(name)
    }

    /// The flows beside what is measured.
    pub fn cross_kinds(&self) -> impl Iterator<Item = Kind<'_>> {
        self.cross_tcp.iter().map(|cross| Kind {
            count: cross.flows,
            window: cross.window,
            congestion: self.cross_congestion(cross),
        })
    }

    /// The network for a contender's run. Connections of the host of the flows beside are not
    /// pinned there: each has what [`Settings::cross_congestion`] says.
    ///
    /// # Errors
    /// What [`PathSettings::config`] says.
    pub fn plan(&self, contender: &Contender, seed: u64) -> Result<Plan> {
        let path = self.path_config()?;
        let access = |delay: &Duration| LinkConfig {
            rate: self.senders.rate,
            delay: *delay,
            quantum: ACCESS_QUANTUM,
            ..LinkConfig::default()
        };
        let delays = self.senders.delays.iter().cycle().take(self.senders.count);
        let mut plan = Plan::fan_in(&delays.map(access).collect::<Vec<_>>(), &path);
        if !self.cross_tcp.is_empty() {
            plan = plan.with_cross_host(&path);
        }
        plan.congestion = self.congestion(contender).map(str::to_owned);
        plan.tcp_buffer_bytes = (self.run.tcp_buffer.0 > 0).then_some(self.run.tcp_buffer.0);
        plan.seed = seed;
        plan.interval = self.run.record;
        Ok(plan)
    }
}

/// Leaves the congestion control open.
pub const ANY: &str = "any";

/// Pieces in which packets of several senders meet at the switch: two segments at 1 Gbit/s, as
/// network cards interleave them. (ours)
const ACCESS_QUANTUM: Duration = Duration::from_micros(24);

/// Hosts that send at the same time, each with a line of its own to the switch.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Senders {
    /// How many.
    pub count: usize,
    /// Rate of each one's line; without it nothing limits it.
    #[serde(deserialize_with = "field::some")]
    pub rate: Option<Rate>,
    /// Delay of each one's line, on top of the path's: the first of the first sender, and so on,
    /// from the first again when there are more senders.
    #[serde(rename = "delay", deserialize_with = "field::times")]
    pub delays: Vec<Duration>,
    /// So much later than the one before each of them begins.
    #[serde(deserialize_with = "field::time")]
    pub apart: Duration,
}

impl Senders {
    /// The longest delay of the lines.
    #[must_use]
    pub fn longest_delay(&self) -> Duration {
        self.delays.iter().take(self.count).max().copied().unwrap_or_default()
    }
}

impl Default for Senders {
    fn default() -> Self {
        Self { count: 1, rate: None, delays: vec![Duration::ZERO], apart: Duration::ZERO }
    }
}

/// TCP flows of a host of their own, towards the same receiver.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CrossTcp {
    /// How many.
    #[serde(default = "one")]
    pub flows: usize,
    /// Largest window of each: buffer-limited flows. Without it they take what they get.
    #[serde(default, deserialize_with = "field::some")]
    pub window: Option<Bytes>,
    /// Congestion control, instead of the scenario's; a contender's does not change it.
    #[serde(default)]
    pub congestion: Option<String>,
}

/// Files that are moved, of content that cannot be compressed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Data {
    /// How many; one is a file, more are a tree of directories with 1000 each.
    pub files: u64,
    /// Size of each.
    #[serde(deserialize_with = "field::of")]
    pub size: Bytes,
    /// That is a mean: of eight files, seven have 1/64, 1/32, up to all of it, and one the rest.
    pub mixed: bool,
}

/// So many sizes follow one another where they are mixed.
pub(super) const MIXED: u64 = 8;

impl Default for Data {
    fn default() -> Self {
        Self { files: 1, size: Bytes(100_000_000), mixed: false }
    }
}

impl Data {
    /// Bytes of all files together.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        // Eight in a row have eight times the mean together.
        let even = self.files - self.files % MIXED;
        let rest = (even..self.files).map(|number| self.size_of(number).0);
        Bytes(rest.fold(even.saturating_mul(self.size.0), u64::saturating_add))
    }

    /// Size of one of them.
    #[must_use]
    pub fn size_of(&self, number: u64) -> Bytes {
        let part = |at: u64| self.size.0 >> (MIXED - 2 - at);
        match number % MIXED {
            _ if !self.mixed => self.size,
            last if last == MIXED - 1 => {
                Bytes((self.size.0.saturating_mul(MIXED)) - (0..last).map(part).sum::<u64>())
            }
            at => Bytes(part(at)),
        }
    }
}

/// How a scenario is run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Runs {
    /// Runs of each contender.
    pub repetitions: u32,
    /// Seed of the first repetition; each has the next one, the same for all contenders.
    pub seed: u64,
    /// Congestion control of all connections; `any` leaves it to the host and the programs.
    pub congestion: String,
    /// Largest TCP buffers of the hosts; zero leaves the machine's.
    #[serde(deserialize_with = "field::of")]
    pub tcp_buffer: Bytes,
    /// Length of the intervals that the link records.
    #[serde(deserialize_with = "field::time")]
    pub record: Duration,
    /// How long tools send that send for a time.
    #[serde(deserialize_with = "field::time")]
    pub time: Duration,
    /// After this a run is given up.
    #[serde(deserialize_with = "field::time")]
    pub limit: Duration,
    /// Parallel streams of contenders that take and do not say them.
    pub streams: Option<usize>,
    /// The window of contenders that take and do not say one.
    #[serde(deserialize_with = "field::some")]
    pub window: Option<Bytes>,
    /// The part of a processor of contenders that take and do not say one.
    pub cpu: Option<f64>,
    /// Programs may not administer the network, as those of an ordinary user.
    pub unprivileged: bool,
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            repetitions: 3,
            seed: 1,
            congestion: "cubic".to_owned(),
            tcp_buffer: Bytes::mib(64),
            record: Duration::from_millis(10),
            time: Duration::from_secs(8),
            limit: Duration::from_secs(60),
            streams: None,
            window: None,
            cpu: None,
            unprivileged: false,
        }
    }
}

/// One of those that are compared.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Contender {
    /// The program, or a source of the lab's own.
    pub tool: String,
    /// What it is called in results; the tool's name unless said otherwise.
    #[serde(default)]
    pub name: String,
    /// Parallel streams, for tools that have them. Without it bankfull chooses, others have one.
    #[serde(default)]
    pub streams: Option<usize>,
    /// More flags for the tool.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Congestion control, instead of the scenario's.
    #[serde(default)]
    pub congestion: Option<String>,
    /// `udp`, `datagrams`: what is sent, as a share of the path's rate. Without it clients of
    /// `datagrams` send the next message when the one before is answered.
    #[serde(default)]
    pub load: Option<f64>,
    /// `incast`: how often all senders are asked.
    #[serde(default)]
    pub rounds: Option<u32>,
    /// `incast`: what each one sends when asked.
    #[serde(default, deserialize_with = "field::some")]
    pub block: Option<Bytes>,
    /// `incast`: what all send together when asked, each the same part of it, instead of a block.
    #[serde(default, deserialize_with = "field::some")]
    pub total: Option<Bytes>,
    /// The most that each connection has in flight, for the lab's own flows; without it they are as
    /// wide as they get.
    #[serde(default, deserialize_with = "field::some")]
    pub window: Option<Bytes>,
    /// `incast`: who decides when and how much each sends; without it all are asked at once.
    #[serde(default)]
    pub steer: Option<Steer>,
    /// `datagrams`: size of each message.
    #[serde(default, deserialize_with = "field::some")]
    pub message: Option<Bytes>,
    /// `datagrams`: the receive buffer of the service; without it, it follows the load.
    #[serde(default, deserialize_with = "field::some")]
    pub receive_buffer: Option<Bytes>,
    /// `datagrams`: the part of a processor that the service has.
    #[serde(default)]
    pub cpu: Option<f64>,
}

/// How the receiver of many keeps them from overflowing its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steer {
    /// By windows and turns, with windows of two segments at least.
    Ictcp,
    /// The same, with windows of one segment at least.
    IctcpOne,
    /// By turns alone.
    Asking,
}

/// Enough that the queue fills soon, and a fifth is lost. (ours)
const LOAD: f64 = 1.25;

/// The rounds and the block of the measurement in `docs/sim.md`.
const ROUNDS: u32 = 57;
const BLOCK: Bytes = Bytes::kib(64);

/// A message in one datagram, near the most that those may have: so one that is dropped is one
/// message. (ours: 35 of them are twice what a buffer of 1 MB takes)
const MESSAGE: Bytes = Bytes(60_000);

impl Contender {
    /// What is sent, as a share of the path's rate.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.load.unwrap_or(LOAD)
    }

    /// Size of each message.
    #[must_use]
    pub fn message(&self) -> Bytes {
        self.message.unwrap_or(MESSAGE)
    }

    /// The part of a processor that a service has.
    #[must_use]
    pub fn cpu(&self) -> f64 {
        self.cpu.unwrap_or(1.0)
    }

    /// How often all senders are asked.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(ROUNDS)
    }

    /// What each of so many sends when asked.
    #[must_use]
    pub fn block(&self, senders: usize) -> Bytes {
        let part = |total: Bytes| Bytes(total.0 / senders.max(1) as u64);
        self.block.or(self.total.map(part)).unwrap_or(BLOCK)
    }
}

fn one() -> usize {
    1
}
