//! Copies SRC to DST with the library and shows the progress. Enter stops it; the same command then
//! resumes the copy.
//!
//! ```sh
//! cargo run -p bankfull --example copy -- ./data /backup
//! ```
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use bankfull::{Cancel, Error, Event, EventSink, Location, Transfer};
use std::env;
use std::process::ExitCode;
use std::thread;

/// Clears the progress line.
const CLEAR: &str = "\r\x1b[K";

/// Shows events on standard error. A sink is called from several threads and must not block for
/// long; a program that draws more queues its events instead.
struct Show;

impl EventSink for Show {
    fn event(&self, event: Event) {
        match event {
            Event::Destination { source, destination } => {
                eprintln!("{} -> {}", source.display(), destination.display());
            }
            Event::Progress(p) => {
                let at_least = if p.total_is_final { "" } else { "at least " };
                eprint!("{CLEAR}{} of {at_least}{}", p.bytes_done, p.bytes_total);
            }
            Event::FileFailed { path, message, .. } => {
                eprintln!("{CLEAR}{}: {message}", path.display());
            }
            Event::Warning { message } => eprintln!("{CLEAR}warning: {message}"),
            _ => {}
        }
    }
}

fn main() -> ExitCode {
    let operands: Vec<_> = env::args_os().skip(1).collect();
    let [source, destination] = &operands[..] else {
        eprintln!("usage: copy SRC DST");
        return ExitCode::FAILURE;
    };
    let copied = Location::parse(source)
        .and_then(|source| Ok((source, Location::parse(destination)?)))
        .and_then(|(source, destination)| copy(source, destination));
    match copied {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{CLEAR}copy: {error} ({:?})", error.kind());
            ExitCode::FAILURE
        }
    }
}

fn copy(source: Location, destination: Location) -> Result<(), Error> {
    let cancel = Cancel::new();
    cancel_at_enter(cancel.clone());
    let summary = Transfer::new(vec![source], destination).streams(8).run(&Show, &cancel)?;
    eprint!("{CLEAR}");
    println!(
        "{} file{}, {} in {:.1} s, {}, limited by {}",
        summary.files,
        if summary.files == 1 { "" } else { "s" },
        summary.bytes,
        summary.elapsed.as_secs_f64(),
        summary.goodput(),
        summary.limited_by_text,
    );
    Ok(())
}

/// Cancels when Enter is pressed, but not at the end of the input. The thread ends with the
/// program.
fn cancel_at_enter(cancel: Cancel) {
    thread::spawn(move || {
        if std::io::stdin().read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0) {
            cancel.cancel();
        }
    });
}
