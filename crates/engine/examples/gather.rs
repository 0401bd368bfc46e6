//! Copies from many hosts into DST with the library, and shows the result of each.
//!
//! ```sh
//! cargo run -p bankfull --example gather -- one:/var/log two:/var/log ./logs
//! ```
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use bankfull::{Cancel, Error, Event, Gather, GatherSink, Location, Summary};
use std::process::ExitCode;

/// Shows failed files and the results of the sources.
struct Show {
    names: Vec<String>,
}

impl GatherSink for Show {
    fn event(&self, source: usize, event: Event) {
        if let Event::FileFailed { message, .. } = event {
            println!("{}: {message}", self.names[source]);
        }
    }

    fn source_done(&self, source: usize, result: &Result<Summary, Error>) {
        match result {
            Ok(done) => println!("{}: {} files, {}", self.names[source], done.files, done.bytes),
            Err(error) => println!("{}: {error}", self.names[source]),
        }
    }
}

fn gather() -> Result<bool, Error> {
    let mut operands: Vec<_> = std::env::args_os().skip(1).collect();
    let destination = operands.pop().unwrap_or_default().into();
    let sources = operands.iter().map(|operand| Location::parse(operand));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let show = Show { names: sources.iter().map(ToString::to_string).collect() };
    let done = Gather::new(sources, destination).run(&show, &Cancel::new())?;
    println!("{} files in all, {}", done.total.files, done.goodput());
    Ok(done.failed().next().is_none() && done.total.failed_files == 0)
}

fn main() -> ExitCode {
    match gather() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(23),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
