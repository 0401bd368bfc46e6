//! `bankfull probe`: measures the path to a host and shows the result.

use crate::cp::{self, Reached};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::flags::{ProbeFlags, StreamCount, TuneHow};
use crate::log;
use crate::output::{self, Beginning, Ending, Output, Reporter, Shown};
use crate::report::Recorder;
use bankfull::{Error, ErrorKind, EventSink, Location, Probe, ProbeResult};
use std::ffi::{OsStr, OsString};

/// Measures the path that the flags describe.
pub(crate) fn run(flags: &ProbeFlags) -> Exit {
    let mut render = output::render(Output::standard(), &flags.show, Shown::default());
    render.begin(&Beginning::Probe {
        host: flags.host.clone(),
        reverse: flags.reverse,
        time: flags.time,
    });
    let reporter = match Reporter::start(render) {
        Ok(reporter) => reporter,
        Err(exit) => return exit,
    };
    let result = measure(flags, &reporter);
    let render = reporter.finish();
    match &result {
        Ok(result) => output::end(render, &Ending::Probed(result)),
        Err(error) => output::end(render, &Ending::Failed(error)),
    }
}

fn measure(flags: &ProbeFlags, reporter: &Reporter) -> Result<ProbeResult, Error> {
    let cancel = cp::cancel_on_signals(reporter)?;
    let environment = Environment::read();
    log::start(&flags.show, &environment, log::Role::Client)?;
    let host = location(&flags.host)?;
    cp::refuse_unused(&flags.daemon, &flags.ssh, [&host].into_iter())?;
    cp::refuse_over_quic(
        &flags.daemon,
        &[(flags.no_encryption, "--no-encryption"), (flags.tune != TuneHow::Auto, "--tune")],
    )?;
    let Reached { daemon, ssh, warning } = cp::reached(&flags.daemon, &flags.ssh, &environment)?;
    warning.into_iter().for_each(|message| reporter.warn(message));
    let probe = Probe::new(host)
        .duration(flags.time)
        .reverse(flags.reverse)
        .tune(flags.tune.into())
        .encryption(!flags.no_encryption)
        .timeout(flags.timeout)
        .ssh(ssh)
        .daemon(daemon);
    let probe = match flags.streams {
        StreamCount::Fixed(streams) => probe.streams(streams),
        StreamCount::Auto => probe,
    };
    let run = |events: &dyn EventSink| {
        probe.run(events, &cancel).map_err(|error| match cancel.is_cancelled() {
            true => Error::new(ErrorKind::Interrupted, "interrupted before a result was available"),
            false => error,
        })
    };
    let Some(path) = &flags.report else { return run(reporter) };
    let recorder = Recorder::<dyn EventSink>::start(path, reporter, 1)?;
    let result = run(&recorder);
    let way = if flags.reverse { "from" } else { "to" };
    let title = format!("Path {way} {}", output::printable(flags.host.as_ref()));
    let written = recorder.finish_probe(&title, &result);
    let result = result?;
    if written.is_err() {
        // The error that follows concerns the report alone.
        result.messages.iter().for_each(|message| reporter.warn(message.clone()));
    }
    written.map(|()| result)
}

/// Parses the host as a location: `host` means `host:`.
fn location(host: &OsStr) -> Result<Location, Error> {
    let text = host.to_string_lossy();
    if text.contains('/') && !text.contains("://") {
        let text = format!("{text:?} is a path: specify a host, as host or bankfull://host");
        return Err(Error::new(ErrorKind::Usage, text));
    }
    if text.contains("://") || text.ends_with(':') {
        return Location::parse(host);
    }
    let mut with_colon = OsString::from(host);
    with_colon.push(":");
    Location::parse(&with_colon)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_parsed_as_ssh_or_daemon() {
        let read = |text: &str| location(text.as_ref()).map(|location| location.to_string());
        for (typed, location) in [
            ("host", "host:."),
            ("me@host", "me@host:."),
            ("host:", "host:."),
            ("bankfull://host", "bankfull://host:7440/"),
        ] {
            assert_eq!(read(typed).unwrap(), location);
        }
        for bad in ["./file", "/srv", "http://host", ""] {
            assert_eq!(read(bad).unwrap_err().kind(), ErrorKind::Usage, "{bad}");
        }
    }
}
