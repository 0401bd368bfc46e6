//! UDT 4: a library, so that a small program around it is compiled for each run.

use crate::base::error::Result;
use crate::model::job::Job;
use crate::tools::shell::{compile_program, quoted_path};
use crate::tools::tool::{
    Initiator, MetricsSource, Program, Requirement, ServerScope, Tool, ToolKind,
};
/// Source of the program, which moves one file.
const SOURCE: &str = include_str!("../../../programs/udt.cpp");

/// Port of the receiver. (chosen: no result depends on it)
const PORT: u16 = 7700;

pub(crate) static UDT: Tool = Tool {
    name: "udt",
    about: "one file over UDT 4, with its own congestion control over UDP",
    needs: &[
        Requirement { name: "g++", remedy: "apt-get install g++" },
        Requirement { name: "/usr/include/udt/udt.h", remedy: "apt-get install libudt-dev" },
    ],
    version: &["dpkg-query", "-W", "libudt-dev"],
    supports: &[],
    unsupported: |settings, _| {
        let is_one = settings.data.files == 1 && settings.senders.count == 1;
        (!is_one).then(|| "moves one file from one sender".to_owned())
    },
    kind: ToolKind::Program(Program {
        prepare: compile,
        initiator: Initiator::Sender,
        server_scope: ServerScope::Shared,
        server: |job| {
            let (program, dir) =
                (quoted_path(&job.dir.join("udt")), quoted_path(&job.sender_target()));
            Some(format!("exec {program} receive {PORT} {dir}"))
        },
        client: |job| {
            let (program, source) = (quoted_path(&job.dir.join("udt")), quoted_path(job.source));
            format!("exec {program} send {} {PORT} {source}", job.receiver)
        },
        metrics: MetricsSource::Files,
    }),
};

fn compile(job: &Job<'_>) -> Result<()> {
    let flags = ["-std=c++11", "-ludt", "-lpthread"];
    compile_program(&job.dir.join("udt"), "udt.cpp", SOURCE, &flags)
}
