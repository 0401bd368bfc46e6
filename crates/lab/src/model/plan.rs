//! Descriptions of networks and of groups of TCP flows.

use bankfull_control::Bytes;
use bankfull_sim::{Background, LinkConfig, PathConfig};
use std::time::Duration;

/// Head start of cross traffic. (chosen: slow start and several reductions)
pub const CROSS_LEAD: Duration = Duration::from_secs(2);

/// Parameters of a group of flows.
#[derive(Debug, Clone, Copy)]
pub struct FlowSpec<'a> {
    /// Number of flows.
    pub count: usize,
    /// Window of each flow in bytes; `None`: unlimited.
    pub window: Option<Bytes>,
    /// Congestion control; `None`: that of the host.
    pub congestion: Option<&'a str>,
}

/// Description of a network.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Uplink of each host, and the port towards it. The first host is the usual sender, the last
    /// the receiver.
    pub hosts: Vec<(LinkConfig, LinkConfig)>,
    /// True if the uplinks are bottlenecks of the path, whose drops and queues count.
    pub has_first_hop: bool,
    /// Longest RTT without queueing.
    pub rtt: Duration,
    /// Congestion control pinned by routes; `None`: chosen by host and programs.
    pub congestion: Option<String>,
    /// Host without pinned congestion control; its sockets choose.
    pub unpinned: Option<usize>,
    /// Largest TCP buffers in bytes; `None`: the machine's.
    pub tcp_buffer_bytes: Option<u64>,
    /// ECN of the hosts (tcp_ecn, ip-sysctl.rst); `None`: the machine's.
    pub tcp_ecn: Option<u8>,
    /// Seed of loss and cross traffic.
    pub seed: u64,
    /// Recording interval.
    pub interval: Duration,
    /// Simulated cross traffic through the port of the receiver.
    pub background: Vec<Background>,
}

impl Plan {
    /// Two hosts, with a path from the first to the second.
    #[must_use]
    pub fn path(path: &PathConfig) -> Self {
        let uplink = path.first_hop.clone().unwrap_or_default();
        let sender = (uplink, path.reverse.clone());
        let receiver = (LinkConfig::default(), path.forward.clone());
        Self {
            hosts: vec![sender, receiver],
            has_first_hop: path.first_hop.is_some(),
            rtt: path.rtt(),
            congestion: None,
            unpinned: None,
            tcp_buffer_bytes: None,
            tcp_ecn: None,
            seed: 1,
            interval: Duration::from_millis(10),
            background: path.background.clone(),
        }
    }

    /// One sender for each access link, all sharing the port towards the last host; the reverse
    /// path only delays.
    #[must_use]
    pub fn fan_in(access: &[LinkConfig], path: &PathConfig) -> Self {
        let mut plan = Self::path(path);
        let receiver = (LinkConfig::default(), path.forward.clone());
        plan.hosts = access.iter().map(|line| (line.clone(), path.reverse.clone())).collect();
        plan.hosts.push(receiver);
        let longest = access.iter().map(|line| line.delay).max().unwrap_or_default();
        // The first hop of the path is part of each access link.
        let first = path.first_hop.as_ref().map_or(Duration::ZERO, |first| first.delay);
        plan.rtt = path.rtt() - first + longest;
        plan
    }

    /// Adds a sender without an access link before the receiver, not pinned, for cross traffic.
    #[must_use]
    pub fn with_cross_host(mut self, path: &PathConfig) -> Self {
        let at = self.hosts.len() - 1;
        self.hosts.insert(at, (LinkConfig::default(), path.reverse.clone()));
        self.unpinned = Some(at);
        self
    }
}
