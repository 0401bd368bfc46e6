//! Flags of `bankfull guard`.

use super::values::{Listen, metrics_address, milliseconds, rate, window_segments};
use super::{Example, after_help};
use bankfull::Rate;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

pub(super) const EXAMPLES: &[Example] = &[
    ("bankfull guard --interface eth0", "Show what would be held, and change nothing."),
    (
        "bankfull guard --interface eth0 --mode hold --top",
        "Hold windows, and show the connections.",
    ),
    ("bankfull guard --interface eth0 --metrics 127.0.0.1:9440", "Expose metrics to Prometheus."),
    ("bankfull guard --release", "Lift the limits that a killed guard has left."),
];

/// Modes of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GuardMode {
    /// Decides, and changes nothing.
    Observe,
    /// Sets the windows.
    Hold,
}

/// Limit the receive windows of other programs to what the last switch port can hold
///
/// Follows all TCP connections that arrive through an interface and belong to a cgroup. While
/// several of them receive, their windows together fit the last switch port, as those of `bankfull
/// gather` do. The programs need no change. Needs root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.
#[derive(Debug, Args)]
#[command(args_override_self = true, after_long_help = after_help(EXAMPLES))]
pub(crate) struct GuardFlags {
    /// Guard the port of this interface
    #[arg(long, value_name = "IF", required_unless_present = "release")]
    pub(crate) interface: Option<String>,

    /// Guard the connections of this cgroup, and of those below it
    ///
    /// PATH is a directory of cgroup version 2. Default: all connections of the host, containers
    /// included.
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,

    /// Guard the guests behind this interface too: a tap, veth or bridge; repeatable
    ///
    /// The windows of their acknowledgements are rewritten on this host. Needs Linux 6.6. Default:
    /// only the programs of this host and its containers.
    #[arg(long = "guest", value_name = "IF", requires = "interface")]
    pub(crate) guests: Vec<String>,

    /// Set the rate of the port, such as 1gbit or 10gbit
    ///
    /// Default: the rate that the interface reports, else the measured rate.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(crate) link_rate: Option<Rate>,

    /// Set windows (hold), or only show the decisions (observe)
    #[arg(long, value_name = "MODE", value_enum, default_value_t = GuardMode::Observe)]
    pub(crate) mode: GuardMode,

    /// Set the minimum window in segments, 1 or 2
    ///
    /// With one segment, twice as many senders fit the port, but each waits more often.
    #[arg(long, value_name = "N", value_parser = window_segments, default_value = "2")]
    pub(crate) min_window_segments: u64,

    /// Leave alone connections whose RTT exceeds this many milliseconds
    ///
    /// Fractions are allowed. The bottleneck of a long path is rarely the last port.
    #[arg(long, value_name = "MS", value_parser = milliseconds, default_value = "2")]
    pub(crate) max_rtt: Duration,

    /// Expose metrics to Prometheus over HTTP at this address
    ///
    /// Write ADDR:PORT, or :PORT for every address; port 0 chooses a free one. Pages: /metrics,
    /// /healthz and /readyz. They need no password. Default: no port is opened.
    #[arg(long, value_name = "ADDR:PORT", value_parser = metrics_address, requires = "interface")]
    pub(crate) metrics: Option<Listen>,

    /// Lift the limits that a killed guard has left, and exit
    ///
    /// The limits of connections that receive are lifted within two seconds anyway.
    #[arg(long, conflicts_with_all = ["interface", "top"])]
    pub(crate) release: bool,

    /// Show a table of the connections, once a second
    ///
    /// Default: a line a second while something is received.
    #[arg(long, conflicts_with = "json")]
    pub(crate) top: bool,

    /// Write one JSON object per line to standard output
    ///
    /// Default: text.
    #[arg(long)]
    pub(crate) json: bool,
}
