//! Samples the first sender's TCP connections during a run, and cuts the path on schedule.

use crate::model::results::round_seconds;
use crate::model::units::Cut;
use crate::topology::network::Network;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Interval between samples. (chosen: `ss` takes about 3 ms)
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Resolution of path cuts. (chosen: cuts last seconds)
const CUT_RESOLUTION: Duration = Duration::from_millis(5);

/// Samples of TCP connections; times are seconds since the network started.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSamples {
    pub(crate) time: Vec<f64>,
    pub(crate) rtt_seconds: Vec<f64>,
    pub(crate) cwnd_bytes: Vec<f64>,
}

/// Samples until stopped.
#[derive(Debug)]
pub(crate) struct Observer<'n> {
    network: &'n Network,
    cut: Option<Cut>,
    stop: AtomicBool,
}

/// Stops the observer when dropped.
#[derive(Debug)]
pub(crate) struct StopGuard<'o>(&'o AtomicBool);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<'n> Observer<'n> {
    pub(crate) fn new(network: &'n Network, cut: Option<Cut>) -> Self {
        Self { network, cut, stop: AtomicBool::new(false) }
    }

    /// Guard that stops the observer when dropped.
    pub(crate) fn stop_when_dropped(&self) -> StopGuard<'_> {
        StopGuard(&self.stop)
    }

    pub(crate) fn observe(&self) -> ConnectionSamples {
        let mut samples = ConnectionSamples::default();
        let began = Instant::now();
        let mut next = began;
        while !self.stop.load(Ordering::SeqCst) {
            if let Some(cut) = self.cut {
                self.network.set_cut(cut.holds_at(began.elapsed()));
            }
            if Instant::now() >= next {
                next += SAMPLE_INTERVAL;
                self.sample(&mut samples);
            }
            thread::sleep(CUT_RESOLUTION);
        }
        self.network.set_cut(false);
        samples
    }

    fn sample(&self, samples: &mut ConnectionSamples) {
        let mut ss = Command::new("ss");
        // In its own process group: Ctrl-C at the terminal must not reach it.
        ss.process_group(0);
        ss.args(["-tinHO", "state", "established"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let at = self.network.elapsed_since_start();
        let Ok(child) = self.network.hosts().spawn(0, ss.stderr(Stdio::null())) else { return };
        let Ok(done) = child.wait_with_output() else { return };
        if let Some((rtt, window)) = parse_ss(&String::from_utf8_lossy(&done.stdout)) {
            samples.time.push(round_seconds(at));
            samples.rtt_seconds.push(rtt);
            samples.cwnd_bytes.push(window);
        }
    }
}

/// Mean RTT in seconds and total cwnd in bytes, of connections with data in flight.
fn parse_ss(lines: &str) -> Option<(f64, f64)> {
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
    fn ss_output_of_busy_connections_is_parsed() {
        let lines = "0 2 10.77.0.1:5 10.77.0.2:6 cubic rto:220 rtt:20.5/0.1 mss:1448 cwnd:10 unacked:3\n\
                     0 0 10.77.0.1:7 10.77.0.2:6 cubic rto:220 rtt:99/0.1 mss:1448 cwnd:99\n\
                     0 2 10.77.0.1:8 10.77.0.2:6 cubic rtt:21.5/0.1 mss:1000 cwnd:2 unacked:1";
        let (rtt, window) = parse_ss(lines).unwrap();
        assert!((rtt - 0.021).abs() < 1e-9, "{rtt}");
        assert!((window - 16_480.0).abs() < 1e-9, "{window}");
        assert_eq!(parse_ss(""), None);
    }
}
