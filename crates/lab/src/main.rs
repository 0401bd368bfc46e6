//! `bankfull-lab`: emulated networks on this machine, and what runs on them.

use bankfull_lab::commands::{doctor, io, list, path, predict, run};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// An emulated network on one machine, for whatever runs on Linux.
///
/// Hosts are network namespaces of this machine; the link between them is emulated by this program,
/// so that no kernel module but `tun` is needed. Needs root.
#[derive(Debug, Parser)]
#[command(name = "bankfull-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a command across an emulated path
    Path(Box<path::Flags>),
    /// Runs scenarios: contenders side by side under the same conditions
    Run(run::Flags),
    /// Measures from file to socket and back, by each block engine
    Io(io::Flags),
    /// Lists scenarios
    List(list::Flags),
    /// Tells how well few samples predict throughput over the number of streams
    Predict(predict::Flags),
    /// Says what this machine lacks, and how to get it
    Doctor,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Command::Path(flags) => path::run(flags),
        Command::Run(flags) => run::run(flags),
        Command::Io(flags) => io::run(flags),
        Command::List(flags) => list::run(flags),
        Command::Predict(flags) => predict::run(flags),
        Command::Doctor => Ok(doctor::run()),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            bankfull_lab::say(&format!("bankfull-lab: {error}"));
            ExitCode::FAILURE
        }
    }
}
