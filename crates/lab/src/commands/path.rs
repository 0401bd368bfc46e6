//! `bankfull-lab path`: any command across any path.

use crate::error::{LabError, Result};
use crate::hosts::Hosts;
use crate::network::{Network, Outcome, Plan};
use crate::say;
use bankfull_control::{Bytes, Rate};
use bankfull_sim::{Loss, PathConfig, presets};
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long the command at the receiver may take until it listens.
const LISTEN_WAIT: Duration = Duration::from_secs(10);

/// How often a wait looks again.
const LOOK: Duration = Duration::from_millis(10);

/// Stands for the receiver's address in the command.
const RECEIVER: &str = "{receiver}";
/// Stands for the sender's address in the command.
const SENDER: &str = "{sender}";

/// Flags of `bankfull-lab path`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: what iperf3 reaches on 1 Gbit/s, 20 ms, with a shallow buffer

  bankfull-lab path --rate 1gbit --rtt 20ms --buffer 300kB \\
    --at-receiver 'iperf3 -s' -- iperf3 -c {receiver} -t 10")]
pub struct Flags {
    /// A named path, instead of rate, round trip and buffer: lan, continental, transatlantic,
    /// lossy, antipodes, research, incast. Flags beside it change it
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,

    /// Rate of the bottleneck, headers of IP and TCP included: 100mbit, 1gbit
    #[arg(long)]
    rate: Option<Rate>,

    /// Round trip without queues: 20ms
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    rtt: Option<Duration>,

    /// What the bottleneck's queue holds: 300kB. Default: as much as is in flight in a round trip
    #[arg(long, value_name = "SIZE")]
    buffer: Option<Bytes>,

    /// Random loss on the way to the receiver: 0.1%
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    loss: Option<f64>,

    /// Random loss on the way back
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    loss_back: Option<f64>,

    /// Cross traffic that does not react, at a mean rate, in random distances
    #[arg(long, value_name = "RATE")]
    cross: Option<Rate>,

    /// Cuts the path for a time, after a time: 5s@10s
    #[arg(long, value_name = "TIME@TIME", value_parser = parse_cut)]
    cut: Option<(Duration, Duration)>,

    /// Congestion control of all connections; `any` leaves it to the host and the programs
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,

    /// Largest TCP buffers of both hosts; 0 leaves the machine's
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    tcp_buffer: Bytes,

    /// Decides which packets are lost, and when cross traffic comes
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// A command at the receiver's side, for `sh -c`: it is started first, and ended at the end
    #[arg(long, value_name = "COMMAND")]
    at_receiver: Option<String>,

    /// The command at the sender's side. `{receiver}` and `{sender}` in it stand for the addresses,
    /// which are in the variables RECEIVER and SENDER, too
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Flags {
    /// The path that is meant.
    fn path(&self) -> Result<PathConfig> {
        let preset = match &self.preset {
            Some(name) => {
                let find = presets::find(name).ok_or_else(|| unknown_preset(name))?;
                Some(find.path())
            }
            None => None,
        };
        let given = (self.rate, self.rtt);
        let known = preset.as_ref().map(|path| (path.forward.rate, path.rtt()));
        let (rate, rtt) = match (given, known) {
            ((rate, rtt), Some((preset_rate, preset_rtt))) => {
                (rate.or(preset_rate).unwrap_or_default(), rtt.unwrap_or(preset_rtt))
            }
            ((Some(rate), Some(rtt)), None) => (rate, rtt),
            _ => return Err(LabError::Usage("give --rate and --rtt, or --preset".to_owned())),
        };
        if rate.bits_per_sec() == 0 {
            return Err(LabError::Usage("--rate must be above zero".to_owned()));
        }
        let kept = preset.as_ref().map(|path| path.forward.buffer);
        let mut path = PathConfig::new(rate, rtt, Bytes(0));
        let in_flight = path.bdp().unwrap_or_default().max(BUFFER_MIN);
        path.forward.buffer = self.buffer.or(kept).unwrap_or(in_flight);
        if let Some(preset) = preset {
            path.forward.loss = preset.forward.loss;
        }
        if let Some(probability) = self.loss {
            path.forward.loss = Loss::Random { probability };
        }
        if let Some(probability) = self.loss_back {
            path.reverse.loss = Loss::Random { probability };
        }
        if let Some(rate) = self.cross {
            path.forward.cross = bankfull_sim::Cross::Poisson { rate };
        }
        Ok(path)
    }

    fn plan(&self, path: &PathConfig) -> Plan {
        let mut plan = Plan::path(path);
        plan.congestion = (self.congestion != "any").then(|| self.congestion.clone());
        plan.tcp_buffer_bytes = (self.tcp_buffer.0 > 0).then_some(self.tcp_buffer.0);
        plan.seed = self.seed;
        plan
    }
}

/// A queue holds at least some packets, however short the path. (ours: ten of 1500 bytes)
const BUFFER_MIN: Bytes = Bytes(15_000);

/// Runs the command and returns its exit code.
///
/// # Errors
/// What keeps the network from being built, or the command from being started.
pub fn run(flags: &Flags) -> Result<ExitCode> {
    let path = flags.path()?;
    let signals = Signals::watch()?;
    let network = Network::start(&flags.plan(&path))?;
    let ran = run_on(&network, flags, &signals);
    let outcome = network.stop()?;
    let status = ran?;
    tell(&path, &outcome);
    Ok(exit_code(status))
}

fn run_on(network: &Network, flags: &Flags, signals: &Signals) -> Result<Option<ExitStatus>> {
    if let Some(command) = &flags.at_receiver {
        start_receiver(network, command, signals)?;
    }
    let (program, arguments) = flags.command.split_first().ok_or_else(no_command)?;
    let fill = |text: &String| fill(network, text);
    let mut command = command(network, &fill(program));
    command.args(arguments.iter().map(fill));
    let mut child = network.hosts().spawn(0, &mut command)?;
    wait(network, &mut child, flags.cut, signals)
}

/// Starts the command at the receiver and waits until it listens.
fn start_receiver(network: &Network, line: &str, signals: &Signals) -> Result<()> {
    let mut shell = command(network, "sh");
    // What it prints must not mix with the data of the other.
    shell.arg("-c").arg(fill(network, line)).stdout(std::io::stderr());
    let mut child = network.hosts().spawn(network.receiver(), &mut shell)?;
    let until = Instant::now() + LISTEN_WAIT;
    while !network.hosts().is_listening(network.receiver()) {
        let ended = child.try_wait().ok().flatten();
        if let Some(status) = ended.filter(|status| !status.success()) {
            let what = format!("it ended with {status}");
            return Err(LabError::Command(line.to_owned(), what));
        }
        if Instant::now() > until || signals.count() > 0 {
            // It may be no server, or one of UDP: the other command will tell.
            return Ok(());
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

fn command(network: &Network, program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("RECEIVER", Hosts::address(network.receiver()).to_string());
    command.env("SENDER", Hosts::address(0).to_string());
    command
}

fn fill(network: &Network, text: &str) -> String {
    let receiver = Hosts::address(network.receiver()).to_string();
    text.replace(RECEIVER, &receiver).replace(SENDER, &Hosts::address(0).to_string())
}

/// Waits for the command; a second signal ends it. `None` when that was needed.
fn wait(
    network: &Network,
    child: &mut Child,
    cut: Option<(Duration, Duration)>,
    signals: &Signals,
) -> Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        let ended = child.try_wait().map_err(|e| LabError::io("cannot wait for the command", e))?;
        if ended.is_some() {
            return Ok(ended);
        }
        // The terminal sends the first Ctrl-C to the command, too; it ends in its own way.
        if signals.count() > 1 || (signals.count() > 0 && !signals.is_from_terminal()) {
            let _ = child.kill();
            let _ = child.wait();
            return Ok(None);
        }
        if let Some((length, after)) = cut {
            let now = began.elapsed();
            network.set_cut(now >= after && now < after + length);
        }
        thread::sleep(LOOK);
    }
}

/// The shell's convention: 128 and the signal's number.
fn exit_code(status: Option<ExitStatus>) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let Some(status) = status else { return ExitCode::from(128 + SIGTERM as u8) };
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

/// What the emulator saw, in a few lines.
fn tell(path: &PathConfig, outcome: &Outcome) {
    let recording = &outcome.recording;
    for (name, at) in [("to the receiver", recording.ports.len() - 1), ("back", 0)] {
        let totals = &recording.totals[at];
        let samples = &recording.ports[at];
        let busiest = samples.iter().map(|sample| sample.delivered).max().unwrap_or_default();
        let backlog = samples.iter().map(|sample| sample.backlog_max).max().unwrap_or_default();
        say(&format!(
            "{name}: {} in {} segments, {} dropped at the queue, {} lost; at most {} and {} queued",
            totals.delivered_bytes,
            totals.delivered,
            totals.overflowed,
            totals.lost,
            busiest.per(recording.interval),
            backlog,
        ));
    }
    let late = &recording.lateness;
    say(&format!(
        "round trip {:?}, lateness p99 {:?}, max {:?}",
        path.rtt(),
        late.quantile(0.99),
        late.max()
    ));
    if let Some(why) = outcome.void() {
        say(&format!("VOID, do not use the result: {why}"));
    }
}

fn no_command() -> LabError {
    LabError::Usage("give a command after --".to_owned())
}

fn unknown_preset(name: &str) -> LabError {
    let known: Vec<&str> = presets::PRESETS.iter().map(|preset| preset.name).collect();
    LabError::Usage(format!("there is no preset {name:?}: choose {}", known.join(", ")))
}

/// Counts signals that ask to end; whatever was made is removed first.
struct Signals {
    all: Arc<AtomicUsize>,
    terms: Arc<AtomicUsize>,
}

impl Signals {
    fn watch() -> Result<Self> {
        let watched = Self { all: Arc::default(), terms: Arc::default() };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let (all, terms) = (Arc::clone(&watched.all), Arc::clone(&watched.terms));
            let mut signals = signal_hook::iterator::Signals::new([signal])
                .map_err(|e| LabError::io("cannot watch signals", e))?;
            thread::spawn(move || {
                for signal in signals.forever() {
                    all.fetch_add(1, Ordering::SeqCst);
                    if signal != SIGINT {
                        terms.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        Ok(watched)
    }

    fn count(&self) -> usize {
        self.all.load(Ordering::SeqCst)
    }

    fn is_from_terminal(&self) -> bool {
        self.terms.load(Ordering::SeqCst) == 0
    }
}

/// `20ms`, `1.5s`, `100us`.
fn parse_time(text: &str) -> std::result::Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let factor = match &text[end..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err(format!("{text:?} is no time: write 20ms, 1.5s, 100us")),
    };
    let number: f64 = text[..end].parse().map_err(|_| format!("{text:?} is no time"))?;
    Duration::try_from_secs_f64(number * factor).map_err(|e| e.to_string())
}

/// `0.1%` or `0.001`.
fn parse_share(text: &str) -> std::result::Result<f64, String> {
    let (number, factor) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>().map(|number| number * factor) {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("{text:?} is no share: write 0.1% or 0.001")),
    }
}

/// `5s@10s`: for how long, after how long.
fn parse_cut(text: &str) -> std::result::Result<(Duration, Duration), String> {
    let (length, after) = text.split_once('@').ok_or("write it as 5s@10s")?;
    Ok((parse_time(length)?, parse_time(after)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    fn path(line: &str) -> Result<PathConfig> {
        let words = ["path"].into_iter().chain(line.split(' ')).chain(["--", "true"]);
        Line::try_parse_from(words).unwrap().flags.path()
    }

    #[test]
    fn a_path_is_what_the_flags_say() {
        let path =
            path("--rate 1gbit --rtt 20ms --buffer 300kB --loss 0.1% --cross 100mbit").unwrap();
        assert_eq!(path.forward.rate, Some(Rate::from_bits_per_sec(1e9)));
        assert_eq!(path.rtt(), Duration::from_millis(20));
        assert_eq!(path.forward.buffer, Bytes(300_000));
        assert_eq!(path.forward.loss, Loss::Random { probability: 0.001 });
        assert_eq!(path.forward.cross.mean(), Rate::from_bits_per_sec(1e8));
    }

    #[test]
    fn a_preset_is_a_start_and_the_buffer_follows_the_path_where_nothing_is_said() {
        let found = path("--preset continental --rtt 40ms").unwrap();
        assert_eq!(
            (found.rtt(), found.forward.buffer),
            (Duration::from_millis(40), Bytes(300_000))
        );
        let found = path("--rate 100mbit --rtt 80ms").unwrap();
        assert_eq!(found.forward.buffer, Bytes(1_000_000));
        assert_eq!(path("--rate 1gbit --rtt 1us").unwrap().forward.buffer, BUFFER_MIN);
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        for (line, words) in [
            ("--rate 1gbit", "--rtt"),
            ("--preset moon", "continental"),
            ("--rate 0gbit --rtt 1ms", "above zero"),
        ] {
            let error = path(line).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(parse_time("20").is_err() && parse_share("2").is_err() && parse_cut("5s").is_err());
        assert_eq!(parse_cut("5s@1.5s"), Ok((Duration::from_secs(5), Duration::from_millis(1500))));
    }
}
