//! The same flows in ns-3, in virtual time: beside `model`, an independent check of our own TCP. It
//! is a library: the lab brings a small program, and compiles it once.

use super::{Field, Figures, Job, Need, Tool, Way, first_line, model};
use crate::deadline::Deadline;
use crate::error::{LabError, Result};
use crate::scenario::{Contender, Settings};
use bankfull_control::Bytes;
use bankfull_sim::{Cross, LinkConfig, Loss};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Flows over a path, and others beside them.
const SOURCE: &str = include_str!("../../peers/ns3.cc");

/// What it is linked with.
const LIBRARIES: [&str; 5] =
    ["ns3-core", "ns3-network", "ns3-internet", "ns3-point-to-point", "ns3-traffic-control"];

/// How often a run is looked at. (ours)
const LOOK: Duration = Duration::from_millis(20);

pub(super) static NS3: Tool = Tool {
    name: "ns3",
    about: "the flows of `tcp` in ns-3: cubic and reno only",
    needs: &[
        Need { what: "g++", remedy: "apt-get install g++" },
        Need { what: "pkg-config", remedy: "apt-get install pkg-config" },
        Need { what: "/usr/include/ns3", remedy: "apt-get install libns3-dev" },
    ],
    version: &["dpkg-query", "-W", "libns3-dev"],
    takes: &[Field::Streams, Field::Congestion, Field::Window],
    refuses,
    way: Way::Model(run),
};

fn refuses(settings: &Settings, contender: &Contender) -> Option<String> {
    let own = settings.congestion(contender);
    let mut beside = settings.cross_kinds();
    let is_other = beside.next().is_some_and(|kind| kind.congestion != own);
    let is_mixed = is_other || beside.next().is_some();
    let loses = settings.path_config().is_ok_and(|path| {
        let is_lossy = |link: &LinkConfig| link.loss != Loss::None || link.cross != Cross::None;
        is_lossy(&path.forward) || is_lossy(&path.reverse)
    });
    model::refuses(settings, contender)
        .or_else(|| is_mixed.then(|| "has one [[cross-tcp]], of its own congestion control".into()))
        .or_else(|| loses.then(|| "has no loss but the queue's, and no path.cross".into()))
}

fn run(job: &Job<'_>, deadline: &Deadline<'_>) -> Result<Figures> {
    let program = compiled(job.dir)?;
    let link = &job.path.forward;
    let seconds = |time: Duration| time.as_secs_f64().to_string();
    let beside: usize = job.cross.iter().map(|kind| kind.count).sum();
    let window = |window: Option<Bytes>| window.map_or(0, |bytes| bytes.0);
    let beside_window = job.cross.first().map_or(0, |kind| window(kind.window));
    let arguments = [
        format!("--rate={}", job.rate.bits_per_sec()),
        format!("--delay={}", seconds(job.path.rtt() / 2)),
        format!("--queue={}", link.buffer.0),
        format!("--streams={}", job.streams()),
        format!("--window={}", window(job.contender.window)),
        format!("--beside={beside}"),
        format!("--beside-window={beside_window}"),
        format!("--lead={}", seconds(crate::runner::CROSS_LEAD)),
        format!("--time={}", seconds(job.time)),
        format!("--congestion={}", job.congestion.unwrap_or_default()),
        format!("--seed={}", job.seed),
    ];
    let said = output(Command::new(program).args(arguments), deadline)?;
    let mut figures = said.split_whitespace().map(|word| word.parse::<f64>().ok());
    let (ours, theirs) = (figures.next().flatten(), figures.next().flatten());
    if ours.is_none() {
        return Err(LabError::Command("ns3".to_owned(), format!("told no figures: {said:?}")));
    }
    Ok(Figures {
        goodput_bps: ours,
        seconds: Some(job.time.as_secs_f64()),
        beside_bps: theirs.filter(|_| beside > 0),
        ..Figures::default()
    })
}

/// What a program prints, until the deadline.
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
        std::thread::sleep(LOOK);
    }
    let done = child.wait_with_output().map_err(failed)?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    Err(LabError::Command("ns3".to_owned(), first_line(&done.stderr)))
}

/// The program, compiled where the directory of the run is, for all runs.
fn compiled(run: &Path) -> Result<PathBuf> {
    let program = run.parent().unwrap_or(run).join("ns3-flows");
    if program.exists() {
        return Ok(program);
    }
    let told = Command::new("pkg-config").args(["--cflags", "--libs"]).args(LIBRARIES).output();
    let told = told.map_err(|e| LabError::io("cannot run pkg-config", e))?;
    if !told.status.success() {
        return Err(LabError::Command("pkg-config".to_owned(), first_line(&told.stderr)));
    }
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    // Debian names libraries that ns-3 finds by itself, and that may not be there to link with.
    let own = told.split_whitespace().filter(|flag| flag.starts_with('-'));
    let flags: Vec<&str> = std::iter::once("-std=c++17").chain(own).collect();
    super::compile(&program, "ns3.cc", SOURCE, &flags)?;
    Ok(program)
}
