//! Contender fields, and the tools that support them. Unsupported fields are rejected, since a tool
//! would silently ignore them.

use crate::model::contender::Contender;
/// Contender field that only some tools support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// Parallel streams.
    Streams,
    /// Further flags.
    Flags,
    /// Congestion control of all TCP senders.
    Congestion,
    /// Sent rate as a share of the path's.
    Load,
    /// Number of incast rounds.
    Rounds,
    /// Bytes from each sender per round.
    Block,
    /// Bytes from all senders per round.
    Total,
    /// Window of each connection.
    Window,
    /// Control of the senders by the receiver.
    IncastControl,
    /// Size of each message.
    Message,
    /// Receive buffer of the service.
    ReceiveBuffer,
    /// CPU share of the service.
    Cpu,
}

impl Field {
    pub(crate) const ALL: [Self; 12] = [
        Self::Streams,
        Self::Flags,
        Self::Congestion,
        Self::Load,
        Self::Rounds,
        Self::Block,
        Self::Total,
        Self::Window,
        Self::IncastControl,
        Self::Message,
        Self::ReceiveBuffer,
        Self::Cpu,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Flags => "flags",
            Self::Congestion => "congestion",
            Self::Load => "load",
            Self::Rounds => "rounds",
            Self::Block => "block",
            Self::Total => "total",
            Self::Window => "window",
            Self::IncastControl => "control",
            Self::Message => "message",
            Self::ReceiveBuffer => "receive-buffer",
            Self::Cpu => "cpu",
        }
    }

    pub(crate) fn is_set(self, contender: &Contender) -> bool {
        match self {
            Self::Streams => contender.streams.is_some(),
            Self::Flags => !contender.flags.is_empty(),
            Self::Congestion => contender.congestion.is_some(),
            Self::Load => contender.load.is_some(),
            Self::Rounds => contender.rounds.is_some(),
            Self::Block => contender.block.is_some(),
            Self::Total => contender.total.is_some(),
            Self::Window => contender.window.is_some(),
            Self::IncastControl => contender.control.is_some(),
            Self::Message => contender.message.is_some(),
            Self::ReceiveBuffer => contender.receive_buffer.is_some(),
            Self::Cpu => contender.cpu.is_some(),
        }
    }
}
