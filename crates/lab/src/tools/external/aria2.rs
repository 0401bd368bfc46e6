//! aria2: one file over HTTP, from nginx at the sender, over several connections.

use super::nginx;
use crate::tools::fields::Field;
use crate::tools::shell::{program, quoted, quoted_flags, quoted_path};
use crate::tools::tool::{
    Initiator, MetricsSource, Program, Requirement, ServerScope, Tool, ToolKind,
};

/// Largest number of connections to a server. (aria2c(1), -x)
const MAX_STREAMS: usize = 16;

pub(crate) static ARIA2: Tool = Tool {
    name: "aria2",
    about: "aria2c from nginx, one file over HTTP, unencrypted",
    needs: &[Requirement { name: "aria2c", remedy: "apt-get install aria2" }, nginx::REQUIREMENT],
    version: &["aria2c", "--version"],
    supports: &[Field::Streams, Field::Flags, Field::Congestion],
    unsupported: |settings, contender| {
        let is_tree = settings.data.files > 1;
        let is_many = contender.streams.is_some_and(|streams| streams > MAX_STREAMS);
        match (is_tree, is_many) {
            (true, _) => Some("fetches one file, not a tree".to_owned()),
            (_, true) => Some(format!("supports at most {MAX_STREAMS} streams")),
            _ => None,
        }
    },
    kind: ToolKind::Program(Program {
        prepare: nginx::prepare,
        initiator: Initiator::Receiver,
        server_scope: ServerScope::PerSender,
        server: nginx::server,
        client: |job| {
            let streams = job.streams();
            format!(
                "exec {} --no-conf -q -x {streams} -s {streams} -k 1M --file-allocation=none{} \
                 -d {} {}",
                program("aria2c"),
                quoted_flags(job),
                quoted_path(&job.sender_target()),
                quoted(&nginx::url(job)),
            )
        },
        metrics: MetricsSource::Files,
    }),
};
