//! Settings of a contender: its tool, and how that is run.

use crate::model::units::field;
use bankfull_control::Bytes;
use serde::Deserialize;

/// Default load. (chosen: fills the queue soon, and loses a fifth)
const DEFAULT_LOAD: f64 = 1.25;

/// Default rounds and block. (measurement in `docs/sim.md`)
const DEFAULT_ROUNDS: u32 = 57;

const DEFAULT_BLOCK: Bytes = Bytes::kib(64);

/// Default message: one datagram near the largest, so that a dropped datagram is a dropped message.
/// (chosen: 35 of them are twice a buffer of 1 MB)
const DEFAULT_MESSAGE: Bytes = Bytes(60_000);

/// One of the compared programs with its settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Contender {
    /// Name of the tool.
    pub tool: String,
    /// Name in results; by default that of the tool.
    #[serde(default)]
    pub name: String,
    /// Choice that a user could make in advance; `regret` compares others with the best.
    #[serde(default)]
    pub fixed: bool,
    /// Parallel streams, for tools that have them. By default bankfull chooses, others use one.
    #[serde(default)]
    pub streams: Option<usize>,
    /// Further flags of the tool.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Congestion control that replaces that of `[run]`.
    #[serde(default)]
    pub congestion: Option<String>,
    /// `udp`, `datagrams`: sent rate as a share of the path's. Without it, clients of `datagrams`
    /// stop and wait.
    #[serde(default)]
    pub load: Option<f64>,
    /// `incast`: number of rounds.
    #[serde(default)]
    pub rounds: Option<u32>,
    /// `incast`: bytes from each sender per round.
    #[serde(default, deserialize_with = "field::some")]
    pub block: Option<Bytes>,
    /// `incast`: bytes from all senders together per round, in equal parts, instead of `block`.
    #[serde(default, deserialize_with = "field::some")]
    pub total: Option<Bytes>,
    /// Window of each connection of the built-in tools; `None`: unlimited.
    #[serde(default, deserialize_with = "field::some")]
    pub window: Option<Bytes>,
    /// `incast`: control of the senders by the receiver; without it, all are requested at once.
    #[serde(default)]
    pub control: Option<IncastControl>,
    /// Guard on the receiver while the tool runs; without it, none.
    #[serde(default)]
    pub guard: Option<GuardMode>,
    /// `datagrams`: size of each message.
    #[serde(default, deserialize_with = "field::some")]
    pub message: Option<Bytes>,
    /// `datagrams`: receive buffer of the service; without it, tuned by RRDA.
    #[serde(default, deserialize_with = "field::some")]
    pub receive_buffer: Option<Bytes>,
    /// `datagrams`: CPU share of the service.
    #[serde(default)]
    pub cpu: Option<f64>,
}

/// Control of many senders by their receiver, to keep its port from overflowing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IncastControl {
    /// ICTCP: windows and time slots, with windows of at least two segments.
    Ictcp,
    /// ICTCP with windows of at least one segment.
    #[serde(rename = "ictcp-1mss")]
    IctcpOneSegment,
    /// Grants in time slots, without windows.
    Grants,
}

/// Mode of `bankfull guard` on the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuardMode {
    /// Windows are decided and not set.
    Observe,
    /// Windows are set, at least two segments.
    Hold,
    /// Windows are set, at least one segment.
    #[serde(rename = "hold-1mss")]
    HoldOneSegment,
}

impl Contender {
    /// Sent rate as a share of the path's.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.load.unwrap_or(DEFAULT_LOAD)
    }

    /// Size of each message.
    #[must_use]
    pub fn message(&self) -> Bytes {
        self.message.unwrap_or(DEFAULT_MESSAGE)
    }

    /// CPU share of the service.
    #[must_use]
    pub fn cpu(&self) -> f64 {
        self.cpu.unwrap_or(1.0)
    }

    /// Number of rounds.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(DEFAULT_ROUNDS)
    }

    /// Bytes from each of `senders` senders per round.
    #[must_use]
    pub fn block(&self, senders: usize) -> Bytes {
        let part = |total: Bytes| Bytes(total.0 / senders.max(1) as u64);
        self.block.or(self.total.map(part)).unwrap_or(DEFAULT_BLOCK)
    }
}
