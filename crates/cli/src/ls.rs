//! `bankfull ls`: lists a file or a directory, here or on another host.

use crate::cp::{self, Reached};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::flags::LsFlags;
use crate::log;
use crate::output::{self, Beginning, Ending, Reporter};
use bankfull::{Error, ErrorKind, Listing, Location, Summary};

/// Lists the place that the flags name.
pub(crate) fn run(flags: &LsFlags) -> Exit {
    let mut render = output::listing_render(flags);
    render.begin(&Beginning::List { place: flags.place.clone() });
    let reporter = match Reporter::start(render) {
        Ok(reporter) => reporter,
        Err(exit) => return exit,
    };
    let result = list(flags, &reporter);
    let render = reporter.finish();
    match &result {
        Ok(summary) => output::end(render, &Ending::Copied(summary)),
        Err(error) => output::end(render, &Ending::Failed(error)),
    }
}

fn list(flags: &LsFlags, reporter: &Reporter) -> Result<Summary, Error> {
    let cancel = cp::cancel_on_signals(reporter)?;
    let environment = Environment::read();
    log::start(&flags.show, &environment, log::Role::Client)?;
    let place = Location::parse(&flags.place)?;
    cp::refuse_unused(&flags.daemon, &flags.ssh, [&place].into_iter())?;
    let Reached { daemon, ssh, warning } = cp::reached(&flags.daemon, &flags.ssh, &environment)?;
    warning.into_iter().for_each(|message| reporter.warn(message));
    let listing = Listing::new(place)
        .recursive(flags.recursive)
        .timeout(flags.timeout)
        .ssh(ssh)
        .daemon(daemon);
    listing.run(reporter, &cancel).map_err(|error| match cancel.is_cancelled() {
        true => Error::new(ErrorKind::Interrupted, "interrupted"),
        false => error,
    })
}
