//! curl: the same object again and again over HTTP, from nginx at each sender.

use super::nginx;
use crate::model::metrics::Metrics;
use crate::tools::fields::Field;
use crate::tools::shell::{program, quoted, quoted_flags};
use crate::tools::tool::{
    Initiator, MetricsSource, Program, Requirement, ServerScope, Tool, ToolKind,
};

/// Line of each object: its time in seconds, and its bytes. (curl(1), --write-out)
const OBJECT_LINE: &str = "%{time_total} %{size_download}\\n";

pub(crate) static CURL: Tool = Tool {
    name: "curl",
    about: "curl from nginx, one object `rounds` times over a connection, unencrypted",
    needs: &[Requirement { name: "curl", remedy: "apt-get install curl" }, nginx::REQUIREMENT],
    version: &["curl", "--version"],
    supports: &[Field::Rounds, Field::Flags, Field::Congestion],
    unsupported: |settings, _| {
        (settings.data.files > 1).then(|| "fetches one file, not a tree".to_owned())
    },
    kind: ToolKind::Program(Program {
        prepare: nginx::prepare,
        initiator: Initiator::Receiver,
        server_scope: ServerScope::PerSender,
        server: nginx::server,
        client: |job| {
            format!(
                "exec {} --disable --silent --show-error --fail --output /dev/null --write-out \
                 '{OBJECT_LINE}'{} {}",
                program("curl"),
                quoted_flags(job),
                quoted(&format!("{}?[1-{}]", nginx::url(job), job.contender.rounds())),
            )
        },
        metrics: MetricsSource::OutputOfFiles(parse_objects),
    }),
};

/// Parses the lines of all objects; each is a round.
fn parse_objects(output: &str) -> Option<Metrics> {
    let mut rounds = Vec::new();
    let mut bytes = 0.0;
    for line in output.lines() {
        let (seconds, size) = line.split_once(' ')?;
        rounds.push(seconds.parse::<f64>().ok()?);
        bytes += size.parse::<f64>().ok()?;
    }
    let seconds: f64 = rounds.iter().sum();
    (seconds > 0.0).then(|| Metrics {
        goodput_bps: Some(bytes * 8.0 / seconds),
        seconds: Some(seconds),
        rounds,
        ..Metrics::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_is_a_round() {
        let metrics = parse_objects("0.010000 65536\n0.030000 65536\n").unwrap();
        assert_eq!(metrics.rounds, [0.01, 0.03]);
        assert_eq!(metrics.goodput_bps.map(f64::round), Some(65_536.0 * 16.0 / 0.04));
        assert_eq!(parse_objects(""), None);
        assert_eq!(parse_objects("curl: (7) Failed to connect"), None);
    }
}
