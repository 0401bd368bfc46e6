//! `bankfull-lab path`: runs a command across an emulated path.

use crate::base::error::{LabError, Result};
use crate::base::notify;
use crate::base::signals::Signals;
use crate::model::path::PathSettings;
use crate::model::plan::Plan;
use crate::model::settings::ANY;
use crate::model::units::{Cut, format_time};
use crate::topology::hosts::Hosts;
use crate::topology::network::{Network, Outcome};
use bankfull_control::Bytes;
use bankfull_sim::PathConfig;
use clap::Args;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// Time for the receiver's command to start listening. (chosen: it may create keys first)
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Poll interval while waiting. (chosen: nothing is measured by it)
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Placeholder of the receiver's address in a command.
const RECEIVER: &str = "{receiver}";
/// Placeholder of the sender's address in a command.
const SENDER: &str = "{sender}";

/// Flags of `bankfull-lab path`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example: iperf3 over 1 Gbit/s, 20 ms, with a shallow buffer

  bankfull-lab path --rate 1gbit --rtt 20ms --buffer 300kB \\
    --at-receiver 'iperf3 -s' -- iperf3 -c {receiver} -t 10")]
pub struct Flags {
    #[command(flatten)]
    path: PathSettings,

    /// Congestion control of all connections; `any` leaves it to host and programs
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,

    /// Largest TCP buffers of both hosts; 0 keeps the machine's
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    tcp_buffer: Bytes,

    /// Seed of loss and cross traffic
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Command for `sh -c` at the receiver; starts first, ends last
    #[arg(long, value_name = "COMMAND")]
    at_receiver: Option<String>,

    /// Command at the sender; {receiver} and {sender} stand for the addresses
    ///
    /// The addresses are also in the variables RECEIVER and SENDER; RECEIVER_NAMESPACE is the name
    /// of the receiver's network namespace, for a command that starts programs there.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Flags {
    fn plan(&self, path: &PathConfig) -> Plan {
        let mut plan = Plan::path(path);
        plan.congestion = (self.congestion != ANY).then(|| self.congestion.clone());
        plan.tcp_buffer_bytes = (self.tcp_buffer.0 > 0).then_some(self.tcp_buffer.0);
        plan.tcp_ecn = self.path.tcp_ecn;
        plan.seed = self.seed;
        plan
    }
}

/// Runs the command and returns its exit code.
///
/// # Errors
/// If the network cannot be built, or the command cannot be started.
pub fn run(flags: &Flags) -> Result<ExitCode> {
    let path = flags.path.config()?;
    let signals = Signals::watch()?;
    let network = Network::start(&flags.plan(&path)).map_err(|error| match error {
        LabError::Congestion(why) => {
            LabError::Congestion(format!("{why}, or leave it to the host with --congestion any"))
        }
        other => other,
    })?;
    let ran = run_on(&network, flags, &signals);
    let outcome = network.stop()?;
    let status = ran?;
    print_summary(&path, &outcome);
    Ok(exit_code(status, &signals))
}

fn run_on(network: &Network, flags: &Flags, signals: &Signals) -> Result<Option<ExitStatus>> {
    if let Some(command) = &flags.at_receiver {
        start_receiver(network, command, signals)?;
    }
    let (program, arguments) = flags.command.split_first().ok_or_else(no_command)?;
    let fill = |text: &String| fill(network, text);
    let mut command = command(network, &fill(program));
    command.args(arguments.iter().map(fill));
    // The command did not receive a signal that arrived before it started.
    if signals.count() > 0 {
        return Ok(None);
    }
    let mut child = network.hosts().spawn(0, &mut command)?;
    if signals.count() > 0 {
        return Ok(kill(&mut child));
    }
    wait(network, &mut child, flags.path.cut, signals)
}

/// Starts the receiver's command, and waits until it listens.
fn start_receiver(network: &Network, line: &str, signals: &Signals) -> Result<()> {
    let mut shell = command(network, "sh");
    // Its output must not mix with that of the command at the sender.
    shell.arg("-c").arg(fill(network, line)).stdout(std::io::stderr());
    let mut child = network.hosts().spawn(network.receiver(), &mut shell)?;
    let until = Instant::now() + LISTEN_TIMEOUT;
    while network.hosts().listening_sockets(network.receiver()) == 0 {
        if signals.count() > 0 {
            return Ok(());
        }
        let ended = child.try_wait().ok().flatten();
        if let Some(status) = ended.filter(|status| !status.success()) {
            let what = format!("it ended with {status}");
            return Err(LabError::Command(line.to_owned(), what));
        }
        if Instant::now() > until {
            // The command need not be a server; if one is missing, that at the sender fails.
            let waited = format_time(LISTEN_TIMEOUT);
            notify(&format!("no listening socket at the receiver after {waited}; continuing"));
            return Ok(());
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn command(network: &Network, program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("RECEIVER", Hosts::address(network.receiver()).to_string());
    command.env("SENDER", Hosts::address(0).to_string());
    command.env("RECEIVER_NAMESPACE", network.hosts().namespace(network.receiver()));
    command
}

fn fill(network: &Network, text: &str) -> String {
    let receiver = Hosts::address(network.receiver()).to_string();
    text.replace(RECEIVER, &receiver).replace(SENDER, &Hosts::address(0).to_string())
}

/// Waits for the command. Returns `None` if it had to be killed.
fn wait(
    network: &Network,
    child: &mut Child,
    cut: Option<Cut>,
    signals: &Signals,
) -> Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        let ended = child.try_wait().map_err(|e| LabError::io("cannot wait for the command", e))?;
        if ended.is_some() {
            return Ok(ended);
        }
        // The terminal also sends the first Ctrl-C to the command, which may end on its own.
        if signals.is_urgent() {
            return Ok(kill(child));
        }
        if let Some(cut) = cut {
            network.set_cut(cut.holds_at(began.elapsed()));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Kills the command, which has no exit code then.
fn kill(child: &mut Child) -> Option<ExitStatus> {
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// Exit code by the shell's convention: 128 plus the signal's number.
fn exit_code(status: Option<ExitStatus>, signals: &Signals) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let Some(status) = status else { return ExitCode::from(signals.exit_code()) };
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

/// Prints a summary of the emulated path, and whether the run counts.
fn print_summary(path: &PathConfig, outcome: &Outcome) {
    let recording = &outcome.recording;
    for (name, at) in [("to the receiver", recording.ports.len() - 1), ("to the sender", 0)] {
        let totals = &recording.totals[at];
        let samples = &recording.ports[at];
        let busiest = samples.iter().map(|sample| sample.delivered).max().unwrap_or_default();
        let backlog = samples.iter().map(|sample| sample.max_backlog).max().unwrap_or_default();
        notify(&format!(
            "{name}: {} in {} segments, {} dropped at the queue, {} lost; at most {} and {} queued",
            totals.delivered_bytes,
            totals.delivered,
            totals.dropped(),
            totals.lost + totals.too_long,
            busiest.per(recording.interval),
            backlog,
        ));
    }
    let marked: u64 = recording.totals.iter().map(|totals| totals.marked).sum();
    if marked > 0 {
        notify(&format!("{marked} segments marked with congestion experienced (ECN)"));
    }
    notify(&format!(
        "RTT {}, lateness p99 {}, max {}",
        format_time(path.rtt()),
        format_time(recording.lateness_quantile(0.99)),
        format_time(recording.lateness_quantile(1.0))
    ));
    if recording.stray > 0 {
        notify(&stray_message(recording.stray));
    }
    match outcome.void() {
        Some(why) => notify(&format!("the run is VOID, do not use its results: {why}")),
        None => notify("the run is valid: its results count"),
    }
}

fn stray_message(count: u64) -> String {
    format!("{count} packets reached no host: unknown address, or no complete IPv4 packet")
}

fn no_command() -> LabError {
    LabError::Usage("give a command after --".to_owned())
}
