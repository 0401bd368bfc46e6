//! Guards an interface and prints each event:
//!
//!     watch INTERFACE [hold] [LINK-RATE-IN-BITS] [MIN-SEGMENTS]
//!
//! Ends with its standard input.

use bankfull_control::Rate;
use bankfull_guard::{Config, Error, Event, Guard, Mode};
use std::env;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

fn main() -> Result<(), Error> {
    let words: Vec<String> = env::args().skip(1).collect();
    let numbers: Vec<f64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let mut guard = Guard::start(Config {
        interface: words.first().cloned().unwrap_or_default(),
        cgroup: None,
        guests: Vec::new(),
        link_rate: numbers.first().map(|&bits| Rate::from_bits_per_sec(bits)),
        mode: if words.iter().any(|word| word == "hold") { Mode::Hold } else { Mode::Observe },
        min_window_segments: numbers.get(1).map_or(2, |&segments| segments as u64),
        max_rtt: Duration::from_millis(2),
        reports_rates: false,
    })?;
    let stop = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&stop);
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        end.store(true, Ordering::Relaxed);
    });
    let mut out = io::stdout();
    let result = guard.run(&stop, &mut |event| {
        let _ = match event {
            Event::Window(connection, window, reason) => {
                writeln!(out, "window {} {window:?} {reason}", connection.remote)
            }
            event => writeln!(out, "{event:?}"),
        };
    });
    result.and(guard.end())
}
