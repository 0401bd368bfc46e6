//! `bankfull-lab path`: any command across any path.

use crate::error::{LabError, Result};
use crate::hosts::Hosts;
use crate::network::{Network, Outcome, Plan};
use crate::say;
use crate::scenario::{ANY, PathSettings};
use crate::signals::Signals;
use crate::text::{Cut, short_time};
use bankfull_control::Bytes;
use bankfull_sim::PathConfig;
use clap::Args;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

/// How long the command at the receiver may take until it listens. (ours: it may make keys first)
const LISTEN_WAIT: Duration = Duration::from_secs(10);

/// How often a wait looks again. (ours: nobody measures by it)
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
    #[command(flatten)]
    path: PathSettings,

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
    /// which are in the variables RECEIVER and SENDER, too. RECEIVER_NAMESPACE has the name of the
    /// receiver's network namespace, for a command that starts programs there
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Flags {
    fn plan(&self, path: &PathConfig) -> Plan {
        let mut plan = Plan::path(path);
        plan.congestion = (self.congestion != ANY).then(|| self.congestion.clone());
        plan.tcp_buffer_bytes = (self.tcp_buffer.0 > 0).then_some(self.tcp_buffer.0);
        plan.seed = self.seed;
        plan
    }
}

/// Runs the command and returns its exit code.
///
/// # Errors
/// What keeps the network from being built, or the command from being started.
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
    tell(&path, &outcome);
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
    // What came before the command was there is not in its hands.
    if signals.count() > 0 {
        return Ok(None);
    }
    let mut child = network.hosts().spawn(0, &mut command)?;
    if signals.count() > 0 {
        return Ok(end(&mut child));
    }
    wait(network, &mut child, flags.path.cut, signals)
}

/// Starts the command at the receiver and waits until it listens.
fn start_receiver(network: &Network, line: &str, signals: &Signals) -> Result<()> {
    let mut shell = command(network, "sh");
    // What it prints must not mix with the data of the other.
    shell.arg("-c").arg(fill(network, line)).stdout(std::io::stderr());
    let mut child = network.hosts().spawn(network.receiver(), &mut shell)?;
    let until = Instant::now() + LISTEN_WAIT;
    while network.hosts().listeners(network.receiver()) == 0 {
        if signals.count() > 0 {
            return Ok(());
        }
        let ended = child.try_wait().ok().flatten();
        if let Some(status) = ended.filter(|status| !status.success()) {
            let what = format!("it ended with {status}");
            return Err(LabError::Command(line.to_owned(), what));
        }
        if Instant::now() > until {
            // It may be no server: the other command will tell.
            let waited = short_time(LISTEN_WAIT);
            say(&format!("nobody listens at the receiver yet, after {waited}: going on"));
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
    command.env("RECEIVER_NAMESPACE", network.hosts().namespace(network.receiver()));
    command
}

fn fill(network: &Network, text: &str) -> String {
    let receiver = Hosts::address(network.receiver()).to_string();
    text.replace(RECEIVER, &receiver).replace(SENDER, &Hosts::address(0).to_string())
}

/// Waits for the command; a second signal ends it by force. `None` when that was needed.
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
        // The terminal sends the first Ctrl-C to the command, too; it ends in its own way.
        if signals.is_urgent() {
            return Ok(end(child));
        }
        if let Some(cut) = cut {
            network.set_cut(cut.holds_at(began.elapsed()));
        }
        thread::sleep(LOOK);
    }
}

/// Ends the command by force: it has no exit code of its own.
fn end(child: &mut Child) -> Option<ExitStatus> {
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// The shell's convention: 128 and the signal's number.
fn exit_code(status: Option<ExitStatus>, signals: &Signals) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let Some(status) = status else { return ExitCode::from(signals.exit_code()) };
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
    say(&format!(
        "round trip {}, lateness p99 {}, max {}",
        short_time(path.rtt()),
        short_time(recording.late(0.99)),
        short_time(recording.late(1.0))
    ));
    if recording.stray > 0 {
        say(&stray_words(recording.stray));
    }
    if let Some(why) = outcome.void() {
        say(&format!("VOID, do not use the result: {why}"));
    }
}

fn stray_words(count: u64) -> String {
    format!("{count} packets reached nobody: no host has their address, or they are no whole IPv4")
}

fn no_command() -> LabError {
    LabError::Usage("give a command after --".to_owned())
}
