//! Which fields of a contender a tool has a use for: what it would ignore is refused, so that
//! nobody counts on it in vain.

use super::{TOOLS, Way, find};
use crate::scenario::{Contender, Settings};
use crate::text::Parsed;

/// A field of a contender that only some tools have a use for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// Parallel streams.
    Streams,
    /// More flags.
    Flags,
    /// Congestion control: of all that send by TCP.
    Congestion,
    /// Share of the path's rate.
    Load,
    /// Rounds of questions.
    Rounds,
    /// What is sent when asked.
    Block,
    /// What all send together when asked.
    Total,
    /// The most that each connection has in flight.
    Window,
    /// Who decides when and how much each sends.
    Steer,
    /// Size of each message.
    Message,
    /// Size of a socket's receive buffer.
    ReceiveBuffer,
    /// Part of a processor.
    Cpu,
}

impl Field {
    const ALL: [Self; 12] = [
        Self::Streams,
        Self::Flags,
        Self::Congestion,
        Self::Load,
        Self::Rounds,
        Self::Block,
        Self::Total,
        Self::Window,
        Self::Steer,
        Self::Message,
        Self::ReceiveBuffer,
        Self::Cpu,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Flags => "flags",
            Self::Congestion => "congestion",
            Self::Load => "load",
            Self::Rounds => "rounds",
            Self::Block => "block",
            Self::Total => "total",
            Self::Window => "window",
            Self::Steer => "steer",
            Self::Message => "message",
            Self::ReceiveBuffer => "receive-buffer",
            Self::Cpu => "cpu",
        }
    }

    fn is_said(self, contender: &Contender) -> bool {
        match self {
            Self::Streams => contender.streams.is_some(),
            Self::Flags => !contender.flags.is_empty(),
            Self::Congestion => contender.congestion.is_some(),
            Self::Load => contender.load.is_some(),
            Self::Rounds => contender.rounds.is_some(),
            Self::Block => contender.block.is_some(),
            Self::Total => contender.total.is_some(),
            Self::Window => contender.window.is_some(),
            Self::Steer => contender.steer.is_some(),
            Self::Message => contender.message.is_some(),
            Self::ReceiveBuffer => contender.receive_buffer.is_some(),
            Self::Cpu => contender.cpu.is_some(),
        }
    }
}

/// Whether a contender's tool can do what the scenario wants, and has a use for all that it says.
pub(crate) fn check(settings: &Settings, contender: &Contender) -> Parsed<()> {
    let tool = find(&contender.tool).map_err(|e| e.to_string())?;
    let is_useless = |field: &Field| field.is_said(contender) && !tool.takes.contains(field);
    if let Some(field) = Field::ALL.into_iter().find(is_useless) {
        let takers = TOOLS.iter().filter(|tool| tool.takes.contains(&field));
        let takers: Vec<&str> = takers.map(|tool| tool.name).collect();
        return Err(format!(
            "contender {:?}: the tool {} has no use for {}, a field of {}",
            contender.name,
            tool.name,
            field.name(),
            takers.join(", ")
        ));
    }
    if !settings.senders.apart.is_zero() && !matches!(tool.way, Way::Program(_)) {
        return Err(format!(
            "contender {:?}: the tool {} begins at all senders at once, and not senders.apart",
            contender.name, tool.name
        ));
    }
    match (tool.refuses)(settings, contender) {
        None => Ok(()),
        Some(why) => Err(format!("contender {:?}: the tool {} {why}", contender.name, tool.name)),
    }
}
