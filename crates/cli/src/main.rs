//! The command `bankfull`: parses flags, runs the work in the library, shows progress and results,
//! and exits with a code that names the cause.
//!
//! This crate holds flags ([`flags`]), output ([`output`]), the log ([`log`]), exit codes
//! ([`exit`]), signals, the manual and completions. Everything that touches copied files or
//! connections is in the library `bankfull`.

mod address;
mod agent;
mod config;
mod cp;
mod docs;
mod doctor;
mod environment;
mod exit;
mod file_list;
mod flags;
mod foreign;
mod gather;
mod guard;
mod log;
mod ls;
mod metrics;
mod nearest;
mod notify;
mod output;
mod probe;
mod report;
mod serve;
mod shellsplit;
mod signals;
mod standard_streams;
mod token;
mod tokens;
mod usage;

use crate::config::Tables;
use crate::environment::Environment;
use crate::exit::Exit;
use crate::flags::Command;
use clap::error::ErrorKind;
use std::io::Write;
use std::process::ExitCode;

/// Waits while memory is short, and ends with one line.
#[global_allocator]
static ALLOCATOR: bankfull::RetryingAllocator = bankfull::RetryingAllocator;

fn main() -> ExitCode {
    bankfull::use_few_arenas();
    let adapted = foreign::adapted(std::env::args_os().collect());
    let applied = adapted.and_then(|typed| {
        config::applied(typed, &Environment::read()).map_err(|problem| vec![problem])
    });
    let (arguments, tables) = match applied {
        Ok(applied) => applied,
        Err(problems) => {
            let mut output = output::Output::standard();
            problems.iter().for_each(|problem| output.error(problem));
            return Exit::Usage.into();
        }
    };
    match flags::parse(arguments) {
        Ok(cli) => {
            let exit = run(cli.command, tables);
            let _ = std::io::stdout().flush();
            // Threads of a finished copy may still be connecting; do not wait for them.
            bankfull::exit_now(exit as u8)
        }
        Err(error) => {
            // A closed pipe is not an error: the reader has seen enough of the help.
            let is_help = !error.use_stderr()
                || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            if is_help {
                let _ = error.print();
            } else {
                output::Output::standard().error(&usage::line(&error, std::env::args_os()));
            }
            if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() }
        }
    }
}

fn run(mut command: Command, tables: Tables) -> Exit {
    let remotes = &tables.remotes;
    if let Err(problem) = config::resolve(&mut command, remotes) {
        output::Output::standard().error(&problem);
        return Exit::Usage;
    }
    match command {
        Command::Cp(flags) => cp::run(&flags),
        Command::Gather(flags) => gather::run(*flags, remotes),
        Command::Ls(flags) => ls::run(&flags),
        Command::Probe(flags) => probe::run(&flags),
        Command::Serve(flags) => serve::run(*flags, tables.shares),
        Command::Token(flags) => tokens::run(&flags),
        Command::Login(flags) => tokens::login(&flags),
        Command::Guard(flags) => guard::run(&flags),
        Command::Doctor(flags) => doctor::run(&flags),
        Command::Config(flags) => config::run(&flags),
        Command::Agent { max_memory, data_ports } => agent::run(max_memory, data_ports),
        Command::Completions { shell } => docs::show(Ok(docs::completions(shell))),
        Command::Man { command } => docs::show(docs::man(command.as_deref())),
    }
}
