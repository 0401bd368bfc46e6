//! UDT is a library: the lab brings a small program that moves one file with it, and compiles it.

use super::{Job, Measure, Need, Program, Tool, Way, quoted_path};
use crate::error::{LabError, Result};
use std::fs;
use std::process::Command;

const SOURCE: &str = include_str!("../../peers/udt.cpp");

const PORT: u16 = 7700;

pub(super) static UDT: Tool = Tool {
    name: "udt",
    about: "one file by UDT 4, with its own congestion control over UDP",
    needs: &[
        Need { what: "g++", remedy: "apt-get install g++" },
        Need { what: "/usr/include/udt/udt.h", remedy: "apt-get install libudt-dev" },
    ],
    version: &["dpkg-query", "-W", "libudt-dev"],
    way: Way::Program(Program {
        prepare: compile,
        server: |job| {
            let (program, dir) = (quoted_path(&job.dir.join("udt")), quoted_path(&job.place()));
            Some(format!("exec {program} receive {PORT} {dir}"))
        },
        client: |job| {
            let (program, source) = (quoted_path(&job.dir.join("udt")), quoted_path(job.source));
            format!("exec {program} send {} {PORT} {source}", job.receiver)
        },
        measure: Measure::Files,
    }),
};

fn compile(job: &Job<'_>) -> Result<()> {
    if job.is_tree() || job.senders > 1 {
        return Err(LabError::Usage("udt moves one file from one sender".to_owned()));
    }
    let program = job.dir.join("udt");
    let source = job.dir.join("udt.cpp");
    fs::write(&source, SOURCE).map_err(|e| LabError::io("cannot write udt.cpp", e))?;
    let done = Command::new("g++")
        .args(["-O2", "-std=c++11", "-o"])
        .args([&program, &source])
        .args(["-ludt", "-lpthread"])
        .output()
        .map_err(|e| LabError::io("cannot run g++", e))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).lines().next().unwrap_or("").to_owned();
    Err(LabError::Command("g++ udt.cpp".to_owned(), said))
}
