//! `bankfull-lab io`: measures file-to-socket throughput of each I/O method.

mod baseline;

use crate::base::error::{LabError, Result};
use crate::base::notify;
use crate::base::signals::Signals;
use crate::model::results::{Machine, Summary};
use crate::model::settings::Data;
use crate::report::tables;
use crate::run::bench_io::{Bench, Cell, Direction, Elapsed, MethodChoice};
use crate::run::work_dir::WorkDir;
use crate::topology::hosts::{Hosts, HostsConfig};
use crate::topology::machine;
use bankfull_chart::{Axis, LineChart, Series, Unit};
use bankfull_control::{Bytes, Rate};
use clap::Args;
use serde::Serialize;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Value that leaves socket buffers to the kernel's auto-tuning.
const AUTO: &str = "auto";

/// Shortest CPU time that is reported. (chosen: ten ticks of 10 ms of the clock that counts it)
const MIN_CPU_SECONDS: f64 = 0.1;

/// Flags of `bankfull-lab io`.
#[derive(Debug, Args)]
pub struct Flags {
    /// I/O methods: stream, buffered, mmap, sendfile, zerobuffer, splice, io_uring, zerocopy, or
    /// auto for the default of unencrypted copies [default: all available]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    method: Vec<MethodChoice>,

    /// Chunk sizes of the methods
    #[arg(
        long,
        value_name = "SIZE",
        value_delimiter = ',',
        default_value = "1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB"
    )]
    chunk: Vec<Bytes>,

    /// Socket buffers at both ends; `auto` leaves them to the kernel
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "64KiB,256KiB,1MiB",
          value_parser = socket_buffer)]
    socket_buffer: Vec<SocketBuffer>,

    /// File sizes
    #[arg(
        long,
        value_name = "SIZE",
        value_delimiter = ',',
        default_value = "256KiB,4MiB,64MiB,1GiB,4GiB"
    )]
    size: Vec<Bytes>,

    /// Measure receiving methods instead of sending ones
    #[arg(long)]
    receive: bool,

    /// Number of runs of each cell
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Write all results to a JSON file
    #[arg(long, value_name = "OUT")]
    json: Option<PathBuf>,

    /// Write each chart as an SVG file to this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// Directory of the test files; in memory by default, so that no disk is measured
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    work: PathBuf,
}

/// Size in bytes, or auto-tuning by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SocketBuffer(Option<Bytes>);

fn socket_buffer(text: &str) -> std::result::Result<SocketBuffer, String> {
    if text == AUTO {
        return Ok(SocketBuffer(None));
    }
    let bytes: Bytes = text.parse().map_err(|e| format!("{e}, or {AUTO}"))?;
    Ok(SocketBuffer(Some(bytes)))
}

/// Measurements of a cell.
#[derive(Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    cell: Cell,
    /// Runs by turn; `None` for a failed run.
    runs: Vec<Option<Elapsed>>,
}

impl Measured {
    /// Runs that did not fail.
    fn completed_runs(&self) -> impl Iterator<Item = &Elapsed> {
        self.runs.iter().flatten()
    }

    /// Rate of the median run in bit/s.
    fn rate(&self) -> Option<f64> {
        let seconds =
            Summary::of(self.completed_runs().map(|elapsed| elapsed.seconds).collect())?.median;
        Some(self.cell.size.0 as f64 * 8.0 / seconds)
    }

    /// CPU seconds per GiB over all runs; `None` if too short for the kernel's clock.
    fn cpu_per_gib(&self) -> Option<f64> {
        let seconds: f64 = self.completed_runs().map(|elapsed| elapsed.cpu_seconds).sum();
        let moved =
            self.cell.size.0 as f64 * self.completed_runs().count() as f64 / (1u64 << 30) as f64;
        (seconds >= MIN_CPU_SECONDS).then(|| seconds / moved)
    }

    /// Rate and CPU time for a table.
    fn words(&self) -> Option<String> {
        let rate = Rate::from_bits_per_sec(self.rate()?);
        Some(match self.cpu_per_gib() {
            Some(cpu) => format!("{rate} ({cpu:.2})"),
            None => rate.to_string(),
        })
    }
}

/// Schema of `--json`.
#[derive(Debug, Serialize)]
struct IoResults {
    schema: u32,
    version: &'static str,
    machine: Machine,
    cells: Vec<Measured>,
}

/// Measures all cells, prints tables, and writes the requested files.
///
/// # Errors
/// If hosts cannot be created, or a file cannot be written.
pub fn run(flags: &Flags) -> Result<ExitCode> {
    let signals = Signals::watch()?;
    let mut sources = WorkDir::new(&flags.work)?;
    let largest = flags.size.iter().copied().max().unwrap_or_default();
    let path = sources.data_path(&Data { size: largest, ..Data::default() })?;
    let file = File::open(path).map_err(|e| LabError::io("cannot open the test file", e))?;
    let dir = sources.recreate("run")?;
    let setup =
        HostsConfig { count: 2, congestion: Some("cubic".to_owned()), ..HostsConfig::default() };
    let hosts = Hosts::create_pair(&setup)?;
    let bench = Bench { hosts: &hosts, file: &file, dir: &dir };
    let cells = flags.cells();
    let mut failed = 0;
    let mut measured: Vec<Measured> =
        cells.iter().map(|&cell| Measured { cell, runs: Vec::new() }).collect();
    for turn in 1..=flags.repeat {
        for one in shuffled(&mut measured, turn) {
            if signals.count() > 0 {
                break;
            }
            let elapsed = bench.run(&one.cell).inspect_err(|error| notify(&error.to_string()));
            failed += u32::from(elapsed.is_err());
            one.runs.push(elapsed.ok());
        }
        if signals.count() > 0 {
            break;
        }
        notify(&format!("turn {turn} of {} done", flags.repeat));
    }
    print(flags, &measured);
    if let Some(text) = baseline::report(&measured) {
        let _ = writeln!(std::io::stdout(), "\n{text}");
    }
    let report = IoResults {
        schema: 2,
        version: env!("CARGO_PKG_VERSION"),
        machine: machine::describe(),
        cells: measured,
    };
    write(flags, &report)?;
    let is_whole = failed == 0 && signals.count() == 0;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Flags {
    fn methods(&self) -> Vec<MethodChoice> {
        if self.method.is_empty() { MethodChoice::all() } else { self.method.clone() }
    }

    fn direction(&self) -> Direction {
        if self.receive { Direction::Receive } else { Direction::Send }
    }

    /// All measurable cells, those with the same conditions adjacent.
    fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &SocketBuffer(socket_buffer) in &self.socket_buffer {
            for &size in &self.size {
                for &chunk in &self.chunk {
                    let direction = self.direction();
                    let cell = |method| Cell { direction, method, chunk, socket_buffer, size };
                    let all = self.methods().into_iter().map(cell);
                    cells.extend(all.filter(|cell| cell.unsupported_reason().is_none()));
                }
            }
        }
        cells
    }
}

/// Returns the cells with those of the same conditions one after another. Each turn has a different
/// order, so that side effects on caches and queues are shared. (measured: `auto` right after
/// `zerocopy` in every turn was 4 % slower than the same method and chunk size elsewhere)
fn shuffled(measured: &mut [Measured], turn: u32) -> impl Iterator<Item = &mut Measured> {
    let mut random = fastrand::Rng::with_seed(turn.into());
    measured.chunk_by_mut(|a, b| a.cell.has_same_conditions(&b.cell)).flat_map(move |group| {
        let mut group: Vec<&mut Measured> = group.iter_mut().collect();
        random.shuffle(&mut group);
        group
    })
}

fn words(buffer: Option<Bytes>) -> String {
    buffer.map_or_else(|| AUTO.to_owned(), |bytes| bytes.to_string())
}

/// Table for each socket buffer and file size: chunk sizes down, methods across.
fn print(flags: &Flags, measured: &[Measured]) {
    let mut out = std::io::stdout().lock();
    let methods = flags.methods();
    for &SocketBuffer(buffer) in &flags.socket_buffer {
        for &size in &flags.size {
            let head: Vec<String> = std::iter::once("chunk".to_owned())
                .chain(methods.iter().map(|method| method.name().to_owned()))
                .collect();
            let row = |&chunk: &Bytes| {
                let cell = |method: &MethodChoice| {
                    let is_it = |one: &&Measured| {
                        let Cell { method: of, chunk: by, socket_buffer, size: moved, .. } =
                            one.cell;
                        (of, by, socket_buffer, moved) == (*method, chunk, buffer, size)
                    };
                    let found = measured.iter().find(is_it).and_then(Measured::words);
                    found.unwrap_or_else(|| "–".to_owned())
                };
                let cells = methods.iter().map(cell);
                std::iter::once(chunk.to_string()).chain(cells).collect::<Vec<_>>()
            };
            let rows: Vec<Vec<String>> = flags.chunk.iter().map(row).collect();
            // A closed standard output is not a failure.
            let _ = writeln!(
                out,
                "\n{size}, socket buffers {}: throughput (CPU seconds per GiB)\n\n{}",
                words(buffer),
                tables::markdown(&head, &rows)
            );
        }
    }
}

fn write(flags: &Flags, report: &IoResults) -> Result<()> {
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
    for (name, chart) in charts(flags, &report.cells) {
        let path = dir.join(name);
        fs::write(&path, chart.to_svg()).map_err(cannot(&path))?;
    }
    Ok(())
}

/// Charts of throughput over chunk size, with a line for each method.
fn charts(flags: &Flags, measured: &[Measured]) -> Vec<(String, LineChart)> {
    let mut all = Vec::new();
    for &SocketBuffer(buffer) in &flags.socket_buffer {
        for &size in &flags.size {
            let of = |method: MethodChoice| {
                let cells = measured.iter().filter(|one| {
                    (one.cell.method, one.cell.socket_buffer, one.cell.size)
                        == (method, buffer, size)
                });
                let points = cells.filter_map(|one| Some((one.cell.chunk.0 as f64, one.rate()?)));
                Series::line(method.name(), points.collect())
            };
            let series: Vec<Series> = flags.methods().into_iter().map(of).collect();
            let title = format!("{size}, socket buffers {}", words(buffer));
            let chart = LineChart {
                title: title.clone(),
                x: Axis::log("Chunk size", Unit::Bytes),
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
    fn only_supported_cells_are_measured() {
        let flags = flags_of("io --chunk 4KiB,1MiB --socket-buffer auto --size 1MiB,64MiB");
        let cells = flags.cells();
        // The byte-by-byte method runs for the small file only.
        let all = MethodChoice::all().len();
        assert_eq!(cells.len(), 2 * all + 2 * (all - 1));
        assert!(cells.iter().all(|cell| cell.unsupported_reason().is_none()));
        let received = flags_of("io --receive --method splice,mmap --size 1MiB").cells();
        assert!(
            received.iter().all(|cell| cell.method == MethodChoice::Fixed(IoMethod::Splice)),
            "{received:?}"
        );
        let wrong = Cli::try_parse_from(["io", "--method", "floppy"]).err().unwrap().to_string();
        assert!(wrong.contains("zerobuffer"), "{wrong}");
    }

    #[test]
    fn rate_is_of_median_run_and_cpu_of_all_runs() {
        let cell =
            flags_of("io --method splice --chunk 4KiB --size 1GiB --socket-buffer auto").cells()[0];
        let elapsed = |seconds, cpu_seconds| Some(Elapsed { seconds, cpu_seconds });
        let measured = Measured {
            cell,
            runs: vec![elapsed(1.0, 0.5), None, elapsed(9.0, 0.7), elapsed(2.0, 0.6)],
        };
        assert_eq!(measured.rate(), Some((1u64 << 30) as f64 * 8.0 / 2.0));
        assert!((measured.cpu_per_gib().unwrap() - 0.6).abs() < 1e-9);
        assert_eq!(Measured { cell, runs: Vec::new() }.rate(), None);
    }
}
