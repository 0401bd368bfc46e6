//! Work of one sender in a run.

use crate::model::background::BackgroundWord;
use crate::model::contender::Contender;
use crate::model::plan::FlowSpec;
use crate::model::settings::{Data, Settings};
use bankfull_control::Rate;
use bankfull_sim::PathConfig;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Values of tcp_ecn with which a host requests ECN: 3 requests AccECN, the others classic ECN.
/// (ip-sysctl.rst, Linux 6.18)
const ECN_MODES: [u8; 3] = [1, 3, 4];

/// Work of one sender in a run.
#[derive(Debug)]
pub struct Job<'a> {
    /// Contender.
    pub contender: &'a Contender,
    /// Sending time, for tools that send for a time.
    pub duration: Duration,
    /// Path.
    pub path: &'a PathConfig,
    /// Rate of the path.
    pub rate: Rate,
    /// Pinned congestion control.
    pub congestion: Option<&'a str>,
    /// Seed of the run.
    pub seed: u64,
    /// TCP cross traffic.
    pub cross: Vec<FlowSpec<'a>>,
    /// Words of simulated cross traffic.
    pub beside: &'a [BackgroundWord],
    /// True if the hosts negotiate ECN; the simulator's flows then use classic ECN.
    pub has_ecn: bool,
    /// True if programs run without CAP_NET_ADMIN.
    pub is_unprivileged: bool,
    /// True if the programs' output is kept, and may be detailed.
    pub keeps_output: bool,
    /// True with TCP cross traffic or a cut of the path.
    pub has_disturbance: bool,
    /// True if the senders have rate-limited access links.
    pub has_access_rate: bool,
    /// Index of the sender.
    pub sender: usize,
    /// Number of senders.
    pub senders: usize,
    /// Start delay after the first sender.
    pub start_delay: Duration,
    /// Address of the receiver.
    pub receiver: String,
    /// File or directory to move.
    pub source: &'a Path,
    /// Description of the data.
    pub data: &'a Data,
    /// Directory of the run.
    pub dir: &'a Path,
}

/// Properties common to the jobs of a run.
#[derive(Debug)]
pub struct RunContext {
    /// Path.
    pub path: PathConfig,
    /// Seed of the links.
    pub seed: u64,
    /// File or directory to move; empty for tools that move none.
    pub source: PathBuf,
    /// Directory of the run.
    pub dir: PathBuf,
    /// True if the programs' output is kept.
    pub keeps_output: bool,
}

impl<'a> Job<'a> {
    /// Job of one sender.
    #[must_use]
    pub fn new(
        settings: &'a Settings,
        contender: &'a Contender,
        run: &'a RunContext,
        sender: usize,
        receiver: Ipv4Addr,
    ) -> Self {
        let RunContext { path, seed, source, dir, .. } = run;
        Self {
            contender,
            duration: settings.run.duration,
            path,
            rate: path.forward.rate.unwrap_or_default(),
            congestion: settings.congestion(contender),
            seed: *seed,
            cross: settings.cross_flows().collect(),
            beside: &settings.path.beside,
            has_ecn: settings.path.tcp_ecn.is_some_and(|mode| ECN_MODES.contains(&mode)),
            is_unprivileged: settings.run.unprivileged,
            keeps_output: run.keeps_output,
            has_disturbance: !settings.cross_tcp.is_empty()
                || settings.path.cut.is_some()
                || settings.path.has_words(),
            has_access_rate: settings.senders.rate.is_some(),
            sender,
            senders: settings.senders.count,
            start_delay: settings.senders.stagger * sender as u32,
            receiver: receiver.to_string(),
            source,
            data: &settings.data,
            dir,
        }
    }

    /// Root of the receiver's files.
    #[must_use]
    pub fn target(&self) -> PathBuf {
        self.dir.join("target")
    }

    /// Destination of this sender's files.
    #[must_use]
    pub fn sender_target(&self) -> PathBuf {
        self.target().join(self.sender.to_string())
    }

    /// Sending time in whole seconds, for tools that accept no fractions.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        self.duration.as_secs()
    }

    /// Number of parallel streams, for tools without a default of their own.
    pub(crate) fn streams(&self) -> usize {
        self.contender.streams.unwrap_or(1)
    }

    /// True if a tree is moved.
    pub(crate) fn is_tree(&self) -> bool {
        self.data.files > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_request_ecn_in_three_modes() {
        let has_ecn = |mode: &str| {
            let text =
                format!("title = 'x'\npath = {{ {mode} }}\ncontender = [{{ tool = 'tcp' }}]");
            let settings: Settings = toml::from_str(&text).unwrap();
            let run = RunContext {
                path: PathConfig::default(),
                seed: 1,
                source: PathBuf::new(),
                dir: PathBuf::new(),
                keeps_output: false,
            };
            Job::new(&settings, &settings.contenders[0], &run, 0, Ipv4Addr::LOCALHOST).has_ecn
        };
        let of = [0, 1, 2, 3, 4, 5].map(|mode| has_ecn(&format!("tcp-ecn = {mode}")));
        assert_eq!(of, [false, true, false, true, true, false]);
        assert!(!has_ecn(""));
    }
}
