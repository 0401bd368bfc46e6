//! aria2: one file over HTTP, from nginx at the sender, over several connections.

use crate::base::error::{LabError, Result};
use crate::model::job::Job;
use crate::tools::fields::Field;
use crate::tools::shell::{program, quoted, quoted_flags, quoted_path};
use crate::tools::tool::{
    Initiator, MetricsSource, Program, Requirement, ServerScope, Tool, ToolKind,
};
use crate::topology::hosts::Hosts;
use std::fs;
use std::os::unix::fs::symlink;

/// Port of the server. (chosen: no result depends on it)
const PORT: u16 = 7780;

/// Largest number of connections to a server. (aria2c(1), -x)
const MAX_STREAMS: usize = 16;

/// Server configuration. Paths are relative to the run's directory, so that none needs quoting; one
/// process suffices with `sendfile`.
const SERVER_CONFIG: &str = "user root;\ndaemon off;\nmaster_process off;\npid nginx.pid;\n\
    error_log stderr;\nevents { worker_connections 256; }\n\
    http {\n access_log off;\n sendfile on;\n default_type application/octet-stream;\n\
    client_body_temp_path body;\n proxy_temp_path proxy;\n fastcgi_temp_path fastcgi;\n\
    uwsgi_temp_path uwsgi;\n scgi_temp_path scgi;\n";

pub(crate) static ARIA2: Tool = Tool {
    name: "aria2",
    about: "aria2c from nginx, one file over HTTP, unencrypted",
    needs: &[
        Requirement { name: "aria2c", remedy: "apt-get install aria2" },
        Requirement { name: "nginx", remedy: "apt-get install nginx-light" },
    ],
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
        prepare,
        initiator: Initiator::Receiver,
        server_scope: ServerScope::PerSender,
        server: |job| {
            let (nginx, dir) = (program("nginx"), quoted_path(&job.dir.join(server_dir(job))));
            Some(format!("exec {nginx} -p {dir} -c nginx.conf"))
        },
        client: |job| {
            let (from, streams) = (Hosts::address(job.sender), job.streams());
            let name = job.source.file_name().unwrap_or_default().to_string_lossy();
            format!(
                "exec {} --no-conf -q -x {streams} -s {streams} -k 1M --file-allocation=none{} \
                 -d {} {}",
                program("aria2c"),
                quoted_flags(job),
                quoted_path(&job.sender_target()),
                quoted(&format!("http://{from}:{PORT}/{name}")),
            )
        },
        metrics: MetricsSource::Files,
    }),
};

/// Directory of a sender's server, in that of the run.
fn server_dir(job: &Job<'_>) -> String {
    format!("nginx{}", job.sender)
}

fn prepare(job: &Job<'_>) -> Result<()> {
    let dir = job.dir.join(server_dir(job));
    let source = job.source.parent().unwrap_or(job.source);
    let config = format!("{SERVER_CONFIG} server {{ listen {PORT}; root files; }}\n}}\n");
    fs::create_dir(&dir)
        .and_then(|()| symlink(source, dir.join("files")))
        .and_then(|()| fs::write(dir.join("nginx.conf"), config))
        .map_err(|e| LabError::io("cannot prepare nginx", e))
}
