//! nginx at each sender, for tools that fetch over HTTP.

use crate::base::error::{LabError, Result};
use crate::model::job::Job;
use crate::tools::shell::{program, quoted_path};
use crate::tools::tool::Requirement;
use crate::topology::hosts::Hosts;
use std::fs;
use std::os::unix::fs::symlink;

/// Port of the server. (chosen: no result depends on it)
const PORT: u16 = 7780;

/// Server configuration. Paths are relative to the run's directory, so that none needs quoting; one
/// process suffices with `sendfile`.
const SERVER_CONFIG: &str = "user root;\ndaemon off;\nmaster_process off;\npid nginx.pid;\n\
    error_log stderr;\nevents { worker_connections 256; }\n\
    http {\n access_log off;\n sendfile on;\n default_type application/octet-stream;\n\
    client_body_temp_path body;\n proxy_temp_path proxy;\n fastcgi_temp_path fastcgi;\n\
    uwsgi_temp_path uwsgi;\n scgi_temp_path scgi;\n";

/// Program that these tools need.
pub(super) const REQUIREMENT: Requirement =
    Requirement { name: "nginx", remedy: "apt-get install nginx-light" };

/// Directory of a sender's server, in that of the run.
fn server_dir(job: &Job<'_>) -> String {
    format!("nginx{}", job.sender)
}

/// Prepares the directory of a sender's server.
pub(super) fn prepare(job: &Job<'_>) -> Result<()> {
    let dir = job.dir.join(server_dir(job));
    let source = job.source.parent().unwrap_or(job.source);
    let config = format!("{SERVER_CONFIG} server {{ listen {PORT}; root files; }}\n}}\n");
    fs::create_dir(&dir)
        .and_then(|()| symlink(source, dir.join("files")))
        .and_then(|()| fs::write(dir.join("nginx.conf"), config))
        .map_err(|e| LabError::io("cannot prepare nginx", e))
}

/// Returns the command of a sender's server.
pub(super) fn server(job: &Job<'_>) -> Option<String> {
    let (nginx, dir) = (program("nginx"), quoted_path(&job.dir.join(server_dir(job))));
    Some(format!("exec {nginx} -p {dir} -c nginx.conf"))
}

/// Returns the address of the file at a sender.
pub(super) fn url(job: &Job<'_>) -> String {
    let name = job.source.file_name().unwrap_or_default().to_string_lossy();
    format!("http://{}:{PORT}/{name}", Hosts::address(job.sender))
}
