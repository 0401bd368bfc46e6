//! Types of tools: external programs, built-in generators and simulations.

use crate::base::deadline::Deadline;
use crate::base::error::Result;
use crate::model::contender::Contender;
use crate::model::job::Job;
use crate::model::metrics::Metrics;
use crate::model::results::RunResult;
use crate::model::settings::Settings;
use crate::tools::fields::Field;
use crate::tools::shell::program_path;
use crate::topology::network::Network;
use std::path::Path;
use std::process::Command;

/// Tool that can be measured.
#[derive(Debug)]
pub struct Tool {
    /// Name in scenarios.
    pub name: &'static str,
    /// Short description.
    pub about: &'static str,
    /// Required programs and files.
    pub needs: &'static [Requirement],
    /// Command that prints its version, if any; the first line is kept.
    pub version: &'static [&'static str],
    /// Contender fields that it supports.
    pub supports: &'static [Field],
    /// Reason why it cannot run a contender, as a predicate; `None` if it can.
    pub unsupported: fn(&Settings, &Contender) -> Option<String>,
    /// Kind of tool, with its functions.
    pub kind: ToolKind,
}

/// Required program or file.
#[derive(Debug, Clone, Copy)]
pub struct Requirement {
    /// Name of the program, or path of the file.
    pub name: &'static str,
    /// Command that installs it.
    pub remedy: &'static str,
}

/// Kind of tool.
#[derive(Debug)]
pub enum ToolKind {
    /// Shell commands on the hosts.
    Program(Program),
    /// Built-in traffic generator, for all senders.
    Generator(fn(&Network, &Job<'_>, &Deadline<'_>) -> Result<Metrics>),
    /// Simulation in virtual time, without a network.
    Simulation(fn(&Job<'_>, &Deadline<'_>) -> Result<RunResult>),
}

/// Commands for `sh -c`.
#[derive(Debug)]
pub struct Program {
    /// Prepares the run's directory.
    pub prepare: fn(&Job<'_>) -> Result<()>,
    /// Side of the client; the server is at the other.
    pub initiator: Initiator,
    /// Number of servers.
    pub server_scope: ServerScope,
    /// Server command; `None` if the client needs no server.
    pub server: fn(&Job<'_>) -> Option<String>,
    /// Client command; the run lasts until it exits.
    pub client: fn(&Job<'_>) -> String,
    /// Source of the metrics.
    pub metrics: MetricsSource,
}

/// Side that starts a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initiator {
    /// The sender pushes.
    Sender,
    /// The receiver pulls.
    Receiver,
}

/// Number of servers for several senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerScope {
    /// One server for all clients.
    Shared,
    /// One server per sender, each at its own port.
    PerSender,
}

/// Source of a program's metrics.
#[derive(Debug, Clone, Copy)]
pub enum MetricsSource {
    /// Moved files, over the duration of the whole command.
    Files,
    /// Output of the client; the function returns `None` if it cannot be parsed.
    Output(fn(&str) -> Option<Metrics>),
    /// Output of the client, as above, which is sent the files.
    OutputOfFiles(fn(&str) -> Option<Metrics>),
}

impl Tool {
    /// Missing requirement and its remedy; `None` if all are met.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let missing = self.needs.iter().find(|need| !need.is_there())?;
        Some(format!("{} is missing: {}", missing.name, missing.remedy))
    }

    /// First line of the version output.
    #[must_use]
    pub fn version_line(&self) -> Option<String> {
        let (program, arguments) = self.version.split_first()?;
        let program = program_path(program)?;
        let done = Command::new(program).args(arguments).output().ok()?;
        if !done.status.success() {
            return None;
        }
        let both = [done.stdout, done.stderr].concat();
        let text = String::from_utf8_lossy(&both).into_owned();
        text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    }
}

impl Requirement {
    /// True if it exists.
    #[must_use]
    pub fn is_there(&self) -> bool {
        match self.name.starts_with('/') {
            true => Path::new(self.name).exists(),
            false => program_path(self.name).is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::external::programs;

    #[test]
    fn missing_requirement_is_named_with_remedy() {
        const NEEDS: [Requirement; 2] = [
            Requirement { name: "sh", remedy: "none" },
            Requirement { name: "no-such-program", remedy: "make it" },
        ];
        let tool = Tool { needs: &NEEDS, version: &[], ..copy_of(&programs::PING) };
        assert_eq!(tool.missing().as_deref(), Some("no-such-program is missing: make it"));
        assert_eq!(tool.version_line(), None);
    }

    #[test]
    fn failed_version_command_yields_none() {
        let tool = Tool { version: &["sh", "-c", "echo 1.0"], ..copy_of(&programs::PING) };
        assert_eq!(tool.version_line().as_deref(), Some("1.0"));
        let tool =
            Tool { version: &["sh", "-c", "echo usage; exit 1"], ..copy_of(&programs::PING) };
        assert_eq!(tool.version_line(), None);
    }

    fn copy_of(tool: &Tool) -> Tool {
        let kind = ToolKind::Generator(|_, _, _| Ok(Metrics::default()));
        let unsupported = tool.unsupported;
        Tool {
            name: tool.name,
            about: "",
            needs: &[],
            version: &[],
            supports: &[],
            unsupported,
            kind,
        }
    }
}
