//! `bankfull guard`: runs the guard until a signal ends it, and shows what it sees and sets.

use crate::exit::Exit;
use crate::flags::{GuardFlags, GuardMode};
use crate::metrics::{GuardMetrics, MetricsPort};
use crate::output::{GuardOutput, Output, guard_mode_name};
use crate::signals::{self, Step};
use bankfull::{Error, ErrorKind};
use bankfull_guard::{Config, Guard, Mode, release};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Guards the port that the flags describe.
pub(crate) fn run(flags: &GuardFlags) -> Exit {
    let mut output = match GuardOutput::standard(flags) {
        Ok(output) => output,
        Err(error) => {
            Output::standard().error(&error.to_string());
            return error.kind().into();
        }
    };
    let result = match &flags.interface {
        Some(interface) => guard(interface, flags, &mut output),
        // Without an interface, clap demands --release.
        None => release().map_err(local).map(|lifted| output.released(lifted)),
    };
    output.end(&result)
}

/// Returns an error of the guard as one of the command.
fn local(error: bankfull_guard::Error) -> Error {
    Error::new(ErrorKind::Local, error.to_string())
}

fn guard(interface: &str, flags: &GuardFlags, output: &mut GuardOutput) -> Result<(), Error> {
    let stop = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&stop);
    // Before the programs are attached: from then on, a signal removes them in order.
    let step: Step = Box::new(move || end.store(true, Ordering::Relaxed));
    // A second signal, as timeout(1) sends to a group, must not leave the programs attached.
    signals::on_signals(vec![step, Box::new(|| {})])?;
    let config = Config {
        interface: interface.to_owned(),
        cgroup: flags.cgroup.clone(),
        guests: flags.guests.clone(),
        link_rate: flags.link_rate,
        mode: match flags.mode {
            GuardMode::Observe => Mode::Observe,
            GuardMode::Hold => Mode::Hold,
        },
        min_window_segments: flags.min_window_segments,
        max_rtt: flags.max_rtt,
        reports_rates: flags.top,
    };
    let port = flags.metrics.as_ref().map(MetricsPort::bind).transpose()?;
    let mut guard = Guard::start(config.clone()).map_err(local)?;
    output.started(&config, guard.lifted_before(), port.as_ref().map(MetricsPort::address));
    let metrics = port.map(|port| offer(port, &config)).transpose();
    let result = metrics.and_then(|mut metrics| {
        let run = guard.run(&stop, &mut |event| {
            metrics.iter_mut().for_each(|metrics| metrics.update(event));
            output.event(event);
        });
        run.map_err(local)
    });
    result.and(guard.end().map_err(local))
}

/// Offers the metrics of a guard at a port.
fn offer(port: MetricsPort, config: &Config) -> Result<GuardMetrics, Error> {
    let metrics = GuardMetrics::new();
    port.serve(metrics.exporter(config, guard_mode_name(config.mode)))?;
    Ok(metrics)
}
