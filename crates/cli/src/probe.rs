//! `bankfull probe`: looks at the path to a host, and shows what it carries.

use crate::cp::{self, Reached};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::flags::{ProbeFlags, StreamCount};
use crate::output::{self, Beginning, Ending, Reporter};
use bankfull::{Error, ErrorKind, Location, Probe, ProbeResult};
use std::ffi::{OsStr, OsString};

/// Looks as the flags ask for.
pub(crate) fn run(flags: &ProbeFlags) -> Exit {
    let mut render = output::render(&flags.show, false);
    render.begin(&Beginning::Probe {
        host: flags.host.clone(),
        reverse: flags.reverse,
        time: flags.time,
    });
    let reporter = match Reporter::start(render) {
        Ok(reporter) => reporter,
        Err(exit) => return exit,
    };
    let result = look(flags, &reporter);
    let render = reporter.finish();
    match &result {
        Ok(findings) => output::end(render, &Ending::Probed(findings)),
        Err(error) => output::end(render, &Ending::Failed(error)),
    }
}

fn look(flags: &ProbeFlags, reporter: &Reporter) -> Result<ProbeResult, Error> {
    let cancel = cp::cancel_on_signals(reporter)?;
    let host = place(&flags.host)?;
    cp::refuse_idle(&flags.daemon, &flags.ssh, [&host].into_iter())?;
    let Reached { daemon, ssh, warning } =
        cp::reached(&flags.daemon, &flags.ssh, &Environment::read())?;
    warning.into_iter().for_each(|message| reporter.notice(message));
    let probe = Probe::new(host)
        .duration(flags.time)
        .reverse(flags.reverse)
        .encryption(!flags.no_encryption)
        .timeout(flags.timeout)
        .ssh(ssh)
        .daemon(daemon);
    let probe = match flags.streams {
        StreamCount::Fixed(streams) => probe.streams(streams),
        StreamCount::Auto => probe,
    };
    let result = probe.run(reporter, &cancel);
    result.map_err(|error| match cancel.is_cancelled() {
        true => Error::new(ErrorKind::Interrupted, "interrupted before there was anything to tell"),
        false => error,
    })
}

/// The host as a place: `host` stands for `host:`.
fn place(host: &OsStr) -> Result<Location, Error> {
    let text = host.to_string_lossy();
    if text.contains('/') && !text.contains("://") {
        let text = format!("{text:?} is a path: name a host, as host or bankfull://host");
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
    fn a_host_may_be_written_as_for_ssh_or_as_a_daemon() {
        let read = |text: &str| place(text.as_ref()).map(|place| place.to_string());
        for (typed, place) in [
            ("host", "host:."),
            ("me@host", "me@host:."),
            ("host:", "host:."),
            ("bankfull://host", "bankfull://host:7440/"),
        ] {
            assert_eq!(read(typed).unwrap(), place);
        }
        for bad in ["./file", "/srv", "http://host", ""] {
            assert_eq!(read(bad).unwrap_err().kind(), ErrorKind::Usage, "{bad}");
        }
    }
}
