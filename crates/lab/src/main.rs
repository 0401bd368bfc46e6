//! `bankfull-lab`: the command line of the lab.

use bankfull_lab::commands::{doctor, io, list, path, predict, regret, run};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Emulate networks on this machine, and run programs and measurements on them.
///
/// Hosts are network namespaces; this program emulates the link between them and needs no kernel
/// module but `tun`. Needs root.
#[derive(Debug, Parser)]
#[command(name = "bankfull-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command across an emulated path
    Path(Box<path::Flags>),
    /// Run scenarios: compare contenders under the same conditions
    Run(run::Flags),
    /// Measure file-to-socket throughput of each I/O method
    Io(io::Flags),
    /// List scenarios
    List(list::Flags),
    /// Compare contenders with the best of fixed choices on each path of a scenario
    Regret(regret::Flags),
    /// Compare stream-count models, fitted to few samples, with measured throughput
    Predict(predict::Flags),
    /// Check this machine for requirements, and name the remedy for each missing one
    Doctor,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Command::Path(flags) => path::run(flags),
        Command::Run(flags) => run::run(flags),
        Command::Io(flags) => io::run(flags),
        Command::List(flags) => list::run(flags),
        Command::Regret(flags) => regret::run(flags),
        Command::Predict(flags) => predict::run(flags),
        Command::Doctor => Ok(doctor::run()),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            bankfull_lab::base::notify(&format!("bankfull-lab: {error}"));
            ExitCode::FAILURE
        }
    }
}
