//! A file over HTTP: nginx at the sender, which hands it to the socket with `sendfile`, and aria2
//! at the receiver, which asks for its parts over several connections.

use super::{
    Begun, Clients, Field, Job, Measure, Need, Program, Tool, Way, program, quoted, quoted_path,
};
use crate::error::{LabError, Result};
use crate::hosts::Hosts;
use std::fs;
use std::os::unix::fs::symlink;

/// Port of the server. (ours)
const PORT: u16 = 7780;

/// Most connections to a server that it makes. (aria2c(1), -x)
const STREAMS_MAX: usize = 16;

/// The server's configuration. Its paths begin at the directory of the run, so that none must be
/// quoted; one process is enough for what `sendfile` leaves to do.
const SERVER: &str = "user root;\ndaemon off;\nmaster_process off;\npid nginx.pid;\n\
    error_log stderr;\nevents { worker_connections 256; }\n\
    http {\n access_log off;\n sendfile on;\n default_type application/octet-stream;\n\
    client_body_temp_path body;\n proxy_temp_path proxy;\n fastcgi_temp_path fastcgi;\n\
    uwsgi_temp_path uwsgi;\n scgi_temp_path scgi;\n";

pub(super) static ARIA2: Tool = Tool {
    name: "aria2",
    about: "aria2c from nginx, one file over HTTP, not encrypted",
    needs: &[
        Need { what: "aria2c", remedy: "apt-get install aria2" },
        Need { what: "nginx", remedy: "apt-get install nginx-light" },
    ],
    version: &["aria2c", "--version"],
    takes: &[Field::Streams, Field::Flags, Field::Congestion],
    refuses: |settings, contender| {
        let is_tree = settings.data.files > 1;
        let is_many = contender.streams.is_some_and(|streams| streams > STREAMS_MAX);
        match (is_tree, is_many) {
            (true, _) => Some("fetches one file, and no tree".to_owned()),
            (_, true) => Some(format!("has {STREAMS_MAX} streams at most")),
            _ => None,
        }
    },
    way: Way::Program(Program {
        prepare,
        begun: Begun::AtReceiver,
        clients: Clients::One,
        server: |job| {
            let (nginx, dir) = (program("nginx"), quoted_path(&job.dir.join(own(job))));
            Some(format!("exec {nginx} -p {dir} -c nginx.conf"))
        },
        client: |job| {
            let (from, streams) = (Hosts::address(job.sender), job.streams());
            let name = job.source.file_name().unwrap_or_default().to_string_lossy();
            format!(
                "exec {} --no-conf -q -x {streams} -s {streams} -k 1M --file-allocation=none{} \
                 -d {} {}",
                program("aria2c"),
                job.flags(),
                quoted_path(&job.place()),
                quoted(&format!("http://{from}:{PORT}/{name}")),
            )
        },
        measure: Measure::Files,
    }),
};

/// The directory of a sender's server, in that of the run.
fn own(job: &Job<'_>) -> String {
    format!("nginx{}", job.sender)
}

fn prepare(job: &Job<'_>) -> Result<()> {
    let dir = job.dir.join(own(job));
    let source = job.source.parent().unwrap_or(job.source);
    let config = format!("{SERVER} server {{ listen {PORT}; root files; }}\n}}\n");
    fs::create_dir(&dir)
        .and_then(|()| symlink(source, dir.join("files")))
        .and_then(|()| fs::write(dir.join("nginx.conf"), config))
        .map_err(|e| LabError::io("cannot prepare nginx", e))
}
