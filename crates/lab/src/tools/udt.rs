//! UDT is a library: the lab brings a small program that moves one file with it, and compiles it.

use super::{Begun, Clients, Job, Measure, Need, Program, Tool, Way, quoted_path};
use crate::error::Result;

/// Moves one file, either way.
const SOURCE: &str = include_str!("../../peers/udt.cpp");

/// Its port. (ours)
const PORT: u16 = 7700;

pub(super) static UDT: Tool = Tool {
    name: "udt",
    about: "one file by UDT 4, with its own congestion control over UDP",
    needs: &[
        Need { what: "g++", remedy: "apt-get install g++" },
        Need { what: "/usr/include/udt/udt.h", remedy: "apt-get install libudt-dev" },
    ],
    version: &["dpkg-query", "-W", "libudt-dev"],
    takes: &[],
    refuses: |settings, _| {
        let is_one = settings.data.files == 1 && settings.senders.count == 1;
        (!is_one).then(|| "moves one file from one sender".to_owned())
    },
    way: Way::Program(Program {
        prepare: compile,
        begun: Begun::AtSender,
        clients: Clients::Many,
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
    let flags = ["-std=c++11", "-ludt", "-lpthread"];
    super::compile(&job.dir.join("udt"), "udt.cpp", SOURCE, &flags)
}
