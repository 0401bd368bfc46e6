//! Looks at the first sender's TCP connections while a run lasts, and cuts the path when a scenario
//! wants that.

use crate::network::Network;
use crate::results::rounded;
use crate::text::Cut;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often it looks. (ours: `ss` takes some 3 ms)
const SAMPLE: Duration = Duration::from_millis(100);

/// How exactly the path is cut. (ours: a cut lasts seconds)
const LOOK: Duration = Duration::from_millis(5);

/// What was seen of connections; times are seconds since the network began.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) at: Vec<f64>,
    pub(crate) rtt_seconds: Vec<f64>,
    pub(crate) window_bytes: Vec<f64>,
}

/// Looks until it is told to stop.
#[derive(Debug)]
pub(crate) struct Observer<'n> {
    network: &'n Network,
    cut: Option<Cut>,
    stop: AtomicBool,
}

/// Ends an observation.
#[derive(Debug)]
pub(crate) struct Stop<'o>(&'o AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<'n> Observer<'n> {
    pub(crate) fn new(network: &'n Network, cut: Option<Cut>) -> Self {
        Self { network, cut, stop: AtomicBool::new(false) }
    }

    /// It stops when the value is dropped.
    pub(crate) fn stop_when_dropped(&self) -> Stop<'_> {
        Stop(&self.stop)
    }

    pub(crate) fn observe(&self) -> Seen {
        let mut seen = Seen::default();
        let began = Instant::now();
        let mut next = began;
        while !self.stop.load(Ordering::SeqCst) {
            if let Some(cut) = self.cut {
                self.network.set_cut(cut.holds_at(began.elapsed()));
            }
            if Instant::now() >= next {
                next += SAMPLE;
                self.sample(&mut seen);
            }
            thread::sleep(LOOK);
        }
        self.network.set_cut(false);
        seen
    }

    fn sample(&self, seen: &mut Seen) {
        let mut ss = Command::new("ss");
        // Of its own group: a Ctrl-C at the terminal is not for it.
        ss.process_group(0);
        ss.args(["-tinHO", "state", "established"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let at = self.network.age();
        let Ok(child) = self.network.hosts().spawn(0, ss.stderr(Stdio::null())) else { return };
        let Ok(done) = child.wait_with_output() else { return };
        if let Some((rtt, window)) = understand(&String::from_utf8_lossy(&done.stdout)) {
            seen.at.push(rounded(at));
            seen.rtt_seconds.push(rtt);
            seen.window_bytes.push(window);
        }
    }
}

/// Mean round trip in seconds and sum of windows in bytes, of the connections with data in flight.
fn understand(lines: &str) -> Option<(f64, f64)> {
    let figure = |line: &str, name: &str| {
        let words = line.split_whitespace();
        let text = words.filter_map(|word| word.strip_prefix(name)).next()?;
        text.split('/').next()?.parse::<f64>().ok()
    };
    let busy: Vec<&str> = lines.lines().filter(|line| figure(line, "unacked:").is_some()).collect();
    let rtts: Vec<f64> = busy.iter().filter_map(|line| figure(line, "rtt:")).collect();
    let windows =
        busy.iter().filter_map(|line| Some(figure(line, "cwnd:")? * figure(line, "mss:")?));
    let mean = rtts.iter().sum::<f64>() / rtts.len() as f64;
    (!rtts.is_empty()).then(|| (mean / 1e3, windows.sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_with_data_in_flight_are_understood() {
        let lines = "0 2 10.77.0.1:5 10.77.0.2:6 cubic rto:220 rtt:20.5/0.1 mss:1448 cwnd:10 unacked:3\n\
                     0 0 10.77.0.1:7 10.77.0.2:6 cubic rto:220 rtt:99/0.1 mss:1448 cwnd:99\n\
                     0 2 10.77.0.1:8 10.77.0.2:6 cubic rtt:21.5/0.1 mss:1000 cwnd:2 unacked:1";
        let (rtt, window) = understand(lines).unwrap();
        assert!((rtt - 0.021).abs() < 1e-9, "{rtt}");
        assert!((window - 16_480.0).abs() < 1e-9, "{window}");
        assert_eq!(understand(""), None);
    }
}
