//! The flows of `tcp` in ns-3, in virtual time: an independent check of the simulator's TCP. A
//! small program around the library is compiled once.

use crate::base::deadline::Deadline;
use crate::base::error::{LabError, Result};
use crate::model::contender::Contender;
use crate::model::job::Job;
use crate::model::metrics::Metrics;
use crate::model::plan::CROSS_LEAD;
use crate::model::results::RunResult;
use crate::model::settings::Settings;
use crate::tools::fields::Field;
use crate::tools::shell::{compile_program, first_line};
use crate::tools::simulated::model;
use crate::tools::tool::{Requirement, Tool, ToolKind};
use bankfull_control::Bytes;
use bankfull_sim::{CrossTraffic, LinkConfig, Loss};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Source of the program.
const SOURCE: &str = include_str!("../../../programs/ns3.cc");

/// Libraries to link.
const LIBRARIES: [&str; 5] =
    ["ns3-core", "ns3-network", "ns3-internet", "ns3-point-to-point", "ns3-traffic-control"];

/// Poll interval of the program. (chosen: no result depends on it, as its time is virtual)
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) static NS3: Tool = Tool {
    name: "ns3",
    about: "the flows of `tcp` in ns-3: cubic and reno only",
    needs: &[
        Requirement { name: "g++", remedy: "apt-get install g++" },
        Requirement { name: "pkg-config", remedy: "apt-get install pkg-config" },
        Requirement { name: "/usr/include/ns3", remedy: "apt-get install libns3-dev" },
    ],
    version: &["dpkg-query", "-W", "libns3-dev"],
    supports: &[Field::Streams, Field::Congestion, Field::Window],
    unsupported,
    kind: ToolKind::Simulation(run),
};

fn unsupported(settings: &Settings, contender: &Contender) -> Option<String> {
    let own = settings.congestion(contender);
    let mut cross = settings.cross_flows();
    let is_other = cross.next().is_some_and(|kind| kind.congestion != own);
    let is_mixed = is_other || cross.next().is_some();
    let loses = settings.path_config().is_ok_and(|path| {
        let is_lossy =
            |link: &LinkConfig| link.loss != Loss::None || link.cross != CrossTraffic::None;
        is_lossy(&path.forward) || is_lossy(&path.reverse)
    });
    let knows = |name: Option<&str>| name.is_none_or(|name| matches!(name, "cubic" | "reno"));
    model::unsupported(settings, contender)
        .or_else(|| (!knows(own)).then(|| "supports cubic and reno only".into()))
        .or_else(|| {
            is_mixed.then(|| "supports one [[cross-tcp]], with the same congestion control".into())
        })
        .or_else(|| {
            let text = "supports none of path.link, path.back, path.first-hop";
            settings.path.has_words().then(|| text.into())
        })
        .or_else(|| loses.then(|| "supports neither random loss nor path.cross".into()))
}

fn run(job: &Job<'_>, deadline: &Deadline<'_>) -> Result<RunResult> {
    let program = compiled(job.dir)?;
    let link = &job.path.forward;
    let seconds = |duration: Duration| duration.as_secs_f64().to_string();
    let cross: usize = job.cross.iter().map(|kind| kind.count).sum();
    let window = |window: Option<Bytes>| window.map_or(0, |bytes| bytes.0);
    let cross_window = job.cross.first().map_or(0, |kind| window(kind.window));
    let arguments = [
        format!("--rate={}", job.rate.bits_per_sec()),
        format!("--delay={}", seconds(job.path.rtt() / 2)),
        format!("--queue={}", link.buffer.0),
        format!("--streams={}", job.streams()),
        format!("--window={}", window(job.contender.window)),
        format!("--cross={cross}"),
        format!("--cross-window={cross_window}"),
        format!("--lead={}", seconds(CROSS_LEAD)),
        format!("--time={}", seconds(job.duration)),
        format!("--congestion={}", job.congestion.unwrap_or_default()),
        format!("--seed={}", job.seed),
    ];
    let output = output(Command::new(program).args(arguments), deadline)?;
    let mut metrics = output.split_whitespace().map(|word| word.parse::<f64>().ok());
    let (own_bps, cross_bps) = (metrics.next().flatten(), metrics.next().flatten());
    if own_bps.is_none() {
        return Err(LabError::Command("ns3".to_owned(), format!("printed no rates: {output:?}")));
    }
    let metrics = Metrics {
        goodput_bps: own_bps,
        seconds: Some(job.duration.as_secs_f64()),
        cross_bps: cross_bps.filter(|_| cross > 0),
        ..Metrics::default()
    };
    Ok(RunResult { metrics, ..RunResult::default() })
}

/// Output of a program, until the deadline.
fn output(command: &mut Command, deadline: &Deadline<'_>) -> Result<String> {
    let failed = |e| LabError::io("cannot run ns-3", e);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    while child.try_wait().map_err(failed)?.is_none() {
        if let Err(error) = deadline.check(NS3.name) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let done = child.wait_with_output().map_err(failed)?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    Err(LabError::Command("ns3".to_owned(), first_line(&done.stderr)))
}

/// Path of the program, compiled beside the run's directory for all runs.
fn compiled(run: &Path) -> Result<PathBuf> {
    let program = run.parent().unwrap_or(run).join("ns3-flows");
    if program.exists() {
        return Ok(program);
    }
    let output = Command::new("pkg-config").args(["--cflags", "--libs"]).args(LIBRARIES).output();
    let output = output.map_err(|e| LabError::io("cannot run pkg-config", e))?;
    if !output.status.success() {
        return Err(LabError::Command("pkg-config".to_owned(), first_line(&output.stderr)));
    }
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    // Debian lists libraries that ns-3 loads by itself, and that may not be installed for linking.
    let own = output.split_whitespace().filter(|flag| flag.starts_with('-'));
    let flags: Vec<&str> = std::iter::once("-std=c++17").chain(own).collect();
    compile_program(&program, "ns3.cc", SOURCE, &flags)?;
    Ok(program)
}
