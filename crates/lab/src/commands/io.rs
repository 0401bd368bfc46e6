//! `bankfull-lab io`: from file to socket and back, by each block engine.

mod beside;

use crate::data::Sources;
use crate::engines::{Bench, Cell, Direction, Took, Way};
use crate::error::{LabError, Result};
use crate::hosts::{Hosts, Setup};
use crate::results::Spread;
use crate::scenario::Data;
use crate::signals::Signals;
use crate::{machine, say, tables};
use bankfull_chart::{Axis, LineChart, Series, Unit};
use bankfull_control::{Bytes, Rate};
use clap::Args;
use serde::Serialize;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Stands for the kernel's own tuning of a socket's buffers.
const TUNED: &str = "auto";

/// Less time of processors than this tells nothing. (ours: ten ticks of the clock that counts it,
/// 10 ms each)
const CPU_SECONDS_MIN: f64 = 0.1;

/// Flags of `bankfull-lab io`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Engines: stream, buffered, mmap, sendfile, zerobuffer, splice, io_uring, zerocopy; auto: the
    /// engine and the block that copies have by themselves, without encryption
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    engine: Vec<Way>,

    /// Bytes that an engine moves at once
    #[arg(
        long,
        value_name = "SIZE",
        value_delimiter = ',',
        default_value = "1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB"
    )]
    block: Vec<Bytes>,

    /// Buffers of the sockets at both ends; `auto` leaves them to the kernel
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "64KiB,256KiB,1MiB",
          value_parser = socket_buffer)]
    socket_buffer: Vec<SocketBuffer>,

    /// Sizes of the file
    #[arg(
        long,
        value_name = "SIZE",
        value_delimiter = ',',
        default_value = "256KiB,4MiB,64MiB,1GiB,4GiB"
    )]
    size: Vec<Bytes>,

    /// Measures engines that receive, and not those that send
    #[arg(long)]
    receive: bool,

    /// Runs of each, in turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Writes all figures to a file
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,

    /// Writes each picture to a file of its own in this directory, as SVG
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// Where the files are; in memory unless said otherwise, so that no disk is measured
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    work: PathBuf,
}

/// Bytes, or the kernel's own tuning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SocketBuffer(Option<Bytes>);

fn socket_buffer(text: &str) -> std::result::Result<SocketBuffer, String> {
    if text == TUNED {
        return Ok(SocketBuffer(None));
    }
    let bytes: Bytes = text.parse().map_err(|e| format!("{e}, or {TUNED}"))?;
    Ok(SocketBuffer(Some(bytes)))
}

/// What became of a cell.
#[derive(Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    cell: Cell,
    /// By turn; nothing where a run failed.
    runs: Vec<Option<Took>>,
}

impl Measured {
    /// Those of its runs that did not fail.
    fn took(&self) -> impl Iterator<Item = &Took> {
        self.runs.iter().flatten()
    }

    /// Bits per second in the middle of its runs.
    fn rate(&self) -> Option<f64> {
        let seconds = Spread::of(self.took().map(|took| took.seconds).collect())?.median;
        Some(self.cell.size.0 as f64 * 8.0 / seconds)
    }

    /// Seconds of processors for each GiB, of all runs together; nothing where that is too little
    /// for the kernel's clock.
    fn cpu_per_gib(&self) -> Option<f64> {
        let seconds: f64 = self.took().map(|took| took.cpu_seconds).sum();
        let moved = self.cell.size.0 as f64 * self.took().count() as f64 / (1u64 << 30) as f64;
        (seconds >= CPU_SECONDS_MIN).then(|| seconds / moved)
    }

    /// Both, for a table.
    fn words(&self) -> Option<String> {
        let rate = Rate::from_bits_per_sec(self.rate()?);
        Some(match self.cpu_per_gib() {
            Some(cpu) => format!("{rate} ({cpu:.2})"),
            None => rate.to_string(),
        })
    }
}

/// All that is written to a file.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    version: &'static str,
    machine: crate::results::Machine,
    cells: Vec<Measured>,
}

/// Measures, prints tables, and writes what was asked for.
///
/// # Errors
/// When no hosts can be made, or a file cannot be written.
pub fn run(flags: &Flags) -> Result<ExitCode> {
    let signals = Signals::watch()?;
    let mut sources = Sources::new(&flags.work)?;
    let largest = flags.size.iter().copied().max().unwrap_or_default();
    let path = sources.of(&Data { size: largest, ..Data::default() })?;
    let file = File::open(path).map_err(|e| LabError::io("cannot open what is to be moved", e))?;
    let dir = sources.fresh("run")?;
    let setup = Setup { count: 2, congestion: Some("cubic".to_owned()), ..Setup::default() };
    let hosts = Hosts::create_pair(&setup)?;
    let bench = Bench { hosts: &hosts, file: &file, dir: &dir };
    let cells = flags.cells();
    let mut failed = 0;
    let mut measured: Vec<Measured> =
        cells.iter().map(|&cell| Measured { cell, runs: Vec::new() }).collect();
    for turn in 1..=flags.repeat {
        for one in in_turn(&mut measured, turn) {
            if signals.count() > 0 {
                break;
            }
            let took = bench.run(&one.cell).inspect_err(|error| say(&error.to_string()));
            failed += u32::from(took.is_err());
            one.runs.push(took.ok());
        }
        if signals.count() > 0 {
            break;
        }
        say(&format!("turn {turn} of {} is done", flags.repeat));
    }
    print(flags, &measured);
    if let Some(text) = beside::say(&measured) {
        let _ = writeln!(std::io::stdout(), "\n{text}");
    }
    let report = Report {
        schema: 1,
        version: env!("CARGO_PKG_VERSION"),
        machine: machine::this(),
        cells: measured,
    };
    write(flags, &report)?;
    let is_whole = failed == 0 && signals.count() == 0;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Flags {
    fn engines(&self) -> Vec<Way> {
        if self.engine.is_empty() { Way::all() } else { self.engine.clone() }
    }

    fn direction(&self) -> Direction {
        if self.receive { Direction::Receive } else { Direction::Send }
    }

    /// All that is measured, engines next to each other, so that each meets the same machine.
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &SocketBuffer(socket_buffer) in &self.socket_buffer {
            for &size in &self.size {
                for &block in &self.block {
                    let direction = self.direction();
                    let cell = |engine| Cell { direction, engine, block, socket_buffer, size };
                    let all = self.engines().into_iter().map(cell);
                    cells.extend(all.filter(|cell| cell.refused().is_none()));
                }
            }
        }
        cells
    }
}

/// Those under the same conditions run next to each other, in another order in each turn: what one
/// leaves behind, in caches and queues, meets any of the others. (measured: `auto` right behind
/// `zerocopy` in every turn was 4 % slower than the same engine and block elsewhere)
fn in_turn(measured: &mut [Measured], turn: u32) -> impl Iterator<Item = &mut Measured> {
    let mut random = fastrand::Rng::with_seed(turn.into());
    measured.chunk_by_mut(|a, b| a.cell.is_beside(&b.cell)).flat_map(move |group| {
        let mut group: Vec<&mut Measured> = group.iter_mut().collect();
        random.shuffle(&mut group);
        group
    })
}

fn words(buffer: Option<Bytes>) -> String {
    buffer.map_or_else(|| TUNED.to_owned(), |bytes| bytes.to_string())
}

/// A table for each socket buffer and size: blocks down, engines across.
fn print(flags: &Flags, measured: &[Measured]) {
    let mut out = std::io::stdout().lock();
    let engines = flags.engines();
    for &SocketBuffer(buffer) in &flags.socket_buffer {
        for &size in &flags.size {
            let head: Vec<String> = std::iter::once("block".to_owned())
                .chain(engines.iter().map(|engine| engine.name().to_owned()))
                .collect();
            let row = |&block: &Bytes| {
                let cell = |engine: &Way| {
                    let is_it = |one: &&Measured| {
                        let Cell { engine: of, block: by, socket_buffer, size: moved, .. } =
                            one.cell;
                        (of, by, socket_buffer, moved) == (*engine, block, buffer, size)
                    };
                    let found = measured.iter().find(is_it).and_then(Measured::words);
                    found.unwrap_or_else(|| "–".to_owned())
                };
                let cells = engines.iter().map(cell);
                std::iter::once(block.to_string()).chain(cells).collect::<Vec<_>>()
            };
            let rows: Vec<Vec<String>> = flags.block.iter().map(row).collect();
            // Whoever closed standard output does not want to see it.
            let _ = writeln!(
                out,
                "\n{size}, socket buffers {}: throughput (processor seconds per GiB)\n\n{}",
                words(buffer),
                tables::markdown(&head, &rows)
            );
        }
    }
}

fn write(flags: &Flags, report: &Report) -> Result<()> {
    let cannot = |path: &PathBuf| {
        let text = format!("cannot write {}", path.display());
        move |e| LabError::io(text, e)
    };
    if let Some(path) = &flags.json {
        let text = serde_json::to_string(report)
            .map_err(|e| LabError::io("cannot write JSON", e.into()))?;
        fs::write(path, text).map_err(cannot(path))?;
    }
    let Some(dir) = &flags.svg else { return Ok(()) };
    fs::create_dir_all(dir).map_err(cannot(dir))?;
    for (name, chart) in pictures(flags, &report.cells) {
        let path = dir.join(name);
        fs::write(&path, chart.to_svg()).map_err(cannot(&path))?;
    }
    Ok(())
}

/// Throughput over blocks for each socket buffer and size, a line for each engine.
fn pictures(flags: &Flags, measured: &[Measured]) -> Vec<(String, LineChart)> {
    let mut all = Vec::new();
    for &SocketBuffer(buffer) in &flags.socket_buffer {
        for &size in &flags.size {
            let of = |engine: Way| {
                let mine = measured.iter().filter(|one| {
                    (one.cell.engine, one.cell.socket_buffer, one.cell.size)
                        == (engine, buffer, size)
                });
                let points = mine.filter_map(|one| Some((one.cell.block.0 as f64, one.rate()?)));
                Series::line(engine.name(), points.collect())
            };
            let series: Vec<Series> = flags.engines().into_iter().map(of).collect();
            let title = format!("{size}, socket buffers {}", words(buffer));
            let chart = LineChart {
                title: title.clone(),
                x: Axis::log("Block", Unit::Bytes),
                y: Axis::new("Throughput", Unit::BitsPerSec),
                series,
                marks: Vec::new(),
            };
            let name = title.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            all.push((format!("{name}.svg"), chart));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull::IoMethod;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        flags: Flags,
    }

    fn flags_of(text: &str) -> Flags {
        Cli::try_parse_from(text.split(' ')).map_err(|e| e.to_string()).unwrap().flags
    }

    #[test]
    fn what_can_be_measured_is_and_nothing_else() {
        let flags = flags_of("io --block 4KiB,1MiB --socket-buffer auto --size 1MiB,64MiB");
        let cells = flags.cells();
        // Byte by byte only the small one.
        let all = Way::all().len();
        assert_eq!(cells.len(), 2 * all + 2 * (all - 1));
        assert!(cells.iter().all(|cell| cell.refused().is_none()));
        let received = flags_of("io --receive --engine splice,mmap --size 1MiB").cells();
        assert!(
            received.iter().all(|cell| cell.engine == Way::Fixed(IoMethod::Splice)),
            "{received:?}"
        );
        let wrong = Cli::try_parse_from(["io", "--engine", "floppy"]).err().unwrap().to_string();
        assert!(wrong.contains("zerobuffer"), "{wrong}");
    }

    #[test]
    fn the_middle_run_tells_the_rate_and_all_runs_the_processors() {
        let cell =
            flags_of("io --engine splice --block 4KiB --size 1GiB --socket-buffer auto").cells()[0];
        let took = |seconds, cpu_seconds| Some(Took { seconds, cpu_seconds });
        let measured =
            Measured { cell, runs: vec![took(1.0, 0.5), None, took(9.0, 0.7), took(2.0, 0.6)] };
        assert_eq!(measured.rate(), Some((1u64 << 30) as f64 * 8.0 / 2.0));
        assert!((measured.cpu_per_gib().unwrap() - 0.6).abs() < 1e-9);
        assert_eq!(Measured { cell, runs: Vec::new() }.rate(), None);
    }
}
