//! `bankfull gather`: builds a gathering from flags and lists, runs it, and shows its progress.

use crate::config::{self, Remotes};
use crate::cp::{self, Reached};
use crate::environment::Environment;
use crate::exit::Exit;
use crate::flags::{DaemonFlags, GatherFlags, SshFlags, TuneHow};
use crate::notify::{self, Notification};
use crate::output::{self, Beginning, Ending, Output, Reporter, Shown};
use crate::report::Recorder;
use crate::{file_list, log};
use bankfull::{
    Cancel, Error, ErrorKind, Filters, Gather, GatherSink, GatherSummary, Layout, Location,
};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

/// Maximum size of a list of sources, in bytes. (chosen: some 200 000 sources; a larger file is not
/// a list)
const MAX_LIST_BYTES: u64 = 16 << 20;

/// Gathers the sources that the flags name.
pub(crate) fn run(mut flags: GatherFlags, remotes: &Remotes) -> Exit {
    let (typed, destination) = flags.operands();
    let listed = flags.from_file.as_deref().map_or(Ok(Vec::new()), read_list);
    let mut sources = typed.to_vec();
    sources.extend(listed.iter().flatten().cloned());
    let resolved = listed.and_then(|_| {
        let notes = remotes.resolve(sources.iter_mut(), &mut flags.daemon);
        notes.map_err(|problem| Error::new(ErrorKind::Usage, problem))
    });
    if flags.from_file.is_some() && remotes.has_defaults() {
        drop_idle(&mut flags, &sources);
    }
    let flags = &flags;
    config::show_notes(resolved.as_deref().unwrap_or_default(), &flags.show);
    let mut render =
        output::render(Output::standard(), &flags.show, Shown::of_dry_run(flags.dry_run));
    render.begin(&Beginning::Gather {
        sources: sources.clone(),
        destination: destination.clone(),
        dry_run: flags.dry_run,
    });
    let reporter = match Reporter::start(render) {
        Ok(reporter) => reporter,
        Err(exit) => return exit,
    };
    let started = Instant::now();
    let cancel = cp::cancel_on_signals(&reporter);
    let result = resolved.and_then(|_| {
        gather(flags, (&sources, &destination), &reporter, cancel.as_ref().map_err(Error::clone)?)
    });
    let render = reporter.finish();
    let exit = match &result {
        Ok(summary) => output::end(render, &Ending::Gathered(summary)),
        Err(error) => output::end(render, &Ending::Failed(error)),
    };
    if let (Some(receiver), Ok(cancel)) = (&flags.notify, &cancel) {
        let end = (exit, started.elapsed());
        let ended = Notification::of_gather((&sources, &destination), &result, end);
        notify::send(&ended, receiver, cancel);
    }
    exit
}

/// Drops flags for routes that no source takes.
///
/// The configuration file sets them, as it is read before the list of sources.
fn drop_idle(flags: &mut GatherFlags, sources: &[OsString]) {
    let places: Vec<Location> = sources.iter().filter_map(|s| Location::parse(s).ok()).collect();
    if !places.iter().any(|place| matches!(place, Location::Daemon { .. })) {
        let state_dir = flags.daemon.state_dir.take();
        flags.daemon = DaemonFlags { state_dir, ..DaemonFlags::default() };
    }
    if !places.iter().any(|place| matches!(place, Location::Ssh { .. })) {
        flags.ssh = SshFlags::default();
    }
}

fn gather(
    flags: &GatherFlags,
    (sources, destination): (&[OsString], &OsStr),
    reporter: &Reporter,
    cancel: &Cancel,
) -> Result<GatherSummary, Error> {
    let environment = Environment::read();
    log::start(&flags.show, &environment, log::Role::Client)?;
    let sources = sources.iter().map(|s| Location::parse(s)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<String> =
        sources.iter().map(|s| output::printable_text(&s.to_string())).collect();
    let (gather, warning) = gathering(flags, sources, destination, &environment)?;
    warning.into_iter().for_each(|message| reporter.warn(message));
    let run = |events: &dyn GatherSink| {
        let result = match flags.rounds {
            None => gather.run(events, cancel),
            Some(round_size) => gather.run_in_rounds(events, cancel, |rounds| {
                while let Some(round) = rounds.next(round_size) {
                    reporter.round(round);
                }
            }),
        };
        result.map_err(|error| cp::cause(error, cancel))
    };
    let Some(path) = &flags.report else { return run(reporter) };
    let recorder = Recorder::<dyn GatherSink>::start(path, reporter, names.len())?;
    let result = run(&recorder);
    let destination = output::printable(destination.as_ref());
    let title = format!("{} sources → {destination}", names.len());
    let written = recorder.finish_gather(&title, &names, &result);
    let summary = result?;
    if written.is_err() {
        // The error that follows concerns the report alone.
        let (files, bytes) = (summary.total.files, summary.total.bytes);
        let failed = summary.failed().count();
        reporter.warn(format!("files gathered: {files}, {bytes}; sources failed: {failed}"));
    }
    written.map(|()| summary)
}

/// Refuses flags that exclude each other.
fn refuse_conflicts(flags: &GatherFlags) -> Result<(), Error> {
    let conflicts = [
        (
            flags.report.is_some() && flags.dry_run,
            "a dry run has no report: leave out --report or --dry-run",
        ),
        (
            flags.link_rate.is_some() && flags.tune == TuneHow::Off,
            "--link-rate has no effect with --tune off: leave out one of them",
        ),
        (
            flags.merge.is_some() && flags.metadata.keeps_hard_links(),
            "--hard-links has no meaning with --merge: leave out one of them",
        ),
    ];
    match conflicts.iter().find(|(is_given, _)| *is_given) {
        Some((_, text)) => Err(Error::new(ErrorKind::Usage, *text)),
        None => Ok(()),
    }
}

/// Builds the gathering that the flags describe, with a warning for the user.
fn gathering(
    flags: &GatherFlags,
    sources: Vec<Location>,
    destination: &OsStr,
    environment: &Environment,
) -> Result<(Gather, Option<String>), Error> {
    let usage = |text: String| Err(Error::new(ErrorKind::Usage, text));
    let Location::Local(destination) = Location::parse(destination)? else {
        let place = output::printable(destination.as_ref());
        return usage(format!(
            "{place} is on another host, but gather fetches to this one: end the command with a \
             local directory"
        ));
    };
    if sources.is_empty() {
        let text = match &flags.from_file {
            None => "no source given: write bankfull gather SRC... DST, or --from-file LIST DST"
                .to_owned(),
            Some(list) => format!("the list {} has no sources", output::printable(list)),
        };
        return usage(text);
    }
    refuse_conflicts(flags)?;
    cp::refuse_over_quic(
        &flags.daemon,
        &[
            (flags.no_encryption, "--no-encryption"),
            (flags.link_rate.is_some(), "--link-rate"),
            (flags.rounds.is_some(), "--rounds"),
            (flags.tune != TuneHow::Auto, "--tune"),
        ],
    )?;
    if sources.iter().all(|source| !source.is_local()) {
        cp::refuse_unused(&flags.daemon, &flags.ssh, sources.iter())?;
    }
    let Reached { daemon, ssh, warning } = cp::reached(&flags.daemon, &flags.ssh, environment)?;
    let layout = flags.merge.map_or(Layout::ByHost, |rule| Layout::Merged(rule.into()));
    file_list::refuse_conflicts(&flags.filters.rules, &flags.selection, &[])?;
    let filters = Filters::parse(&flags.filters.rules)?;
    let gather = Gather::new(sources, destination)
        .layout(layout)
        .max_failed(flags.max_failed)
        .encryption(!flags.no_encryption)
        .fsync(flags.fsync.into())
        .checksum(flags.checksum)
        .trust_journal(flags.trust_journal)
        .filters(filters)
        .metadata(flags.metadata.metadata()?)
        .selection(&flags.selection.selection())
        .comparison(flags.comparison.comparison())
        .dry_run(flags.dry_run)
        .timeout(flags.timeout)
        .retry_for(flags.retry_for)
        .tune(flags.tune.into())
        .ssh(ssh)
        .daemon(daemon);
    Ok((with_optional(flags, gather)?, warning))
}

/// Sets what flags without a default describe.
fn with_optional(flags: &GatherFlags, gather: Gather) -> Result<Gather, Error> {
    let gather = match flags.link_rate {
        Some(rate) => gather.link_rate(rate),
        None => gather,
    };
    let gather = match flags.max_rate {
        Some(rate) => gather.max_rate(rate),
        None => gather,
    };
    let gather = match &flags.schedule {
        Some(schedule) => gather.schedule(schedule.clone()),
        None => gather,
    };
    let gather = match file_list::read(&flags.selection)? {
        Some(list) => gather.files_from(list),
        None => gather,
    };
    let gather = match flags.max_memory {
        Some(most) => gather.max_memory(most),
        None => gather,
    };
    Ok(gather)
}

/// Reads a list of sources; `-` is standard input.
fn read_list(list: &Path) -> Result<Vec<OsString>, Error> {
    let mut text = Vec::new();
    let read = match list == Path::new("-") {
        true => std::io::stdin().take(MAX_LIST_BYTES + 1).read_to_end(&mut text),
        false => std::fs::File::open(list)
            .and_then(|file| file.take(MAX_LIST_BYTES + 1).read_to_end(&mut text)),
    };
    let shown = output::printable(list);
    read.map_err(|e| Error::local(format!("cannot read the list of sources {shown}"), &e))?;
    if text.len() as u64 > MAX_LIST_BYTES {
        let text = format!("{shown} is too large for a list of sources: the maximum is 16 MiB");
        return Err(Error::new(ErrorKind::Usage, text));
    }
    Ok(sources_in(&text))
}

/// Returns the sources in a list: one per line, without surrounding blanks, empty lines and
/// comments.
fn sources_in(text: &[u8]) -> Vec<OsString> {
    let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let named = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    named.map(|line| OsStr::from_bytes(line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Cli, Command};
    use clap::Parser;

    fn made(line: &str) -> Result<String, String> {
        let words = ["bankfull", "gather"].into_iter().chain(line.split(' '));
        let Command::Gather(flags) = Cli::try_parse_from(words).unwrap().command else { panic!() };
        let (typed, destination) = flags.operands();
        let sources = typed.iter().map(|s| Location::parse(s).unwrap()).collect();
        let made = gathering(&flags, sources, &destination, &Environment::default());
        made.map(|(gather, _)| format!("{gather:?}")).map_err(|e| e.to_string())
    }

    #[test]
    fn flags_reach_the_gathering() {
        let shown = made(
            "--max-failed 3 --no-encryption --fsync file -c --trust-journal -n --timeout 2.5 --retry-for 7 \
             --tune sobas -P 22 --accept-new --link-rate 1gbit --max-rate 80mbit \
             --schedule *=90mbit --merge newest h:a bankfull://i/b in",
        );
        let shown = shown.unwrap();
        for part in [
            "max_failed: Some(3)",
            "layout: Merged(Newest)",
            "encryption: false",
            "fsync: File",
            "by_content: true",
            "trust_journal: true",
            "dry_run: true",
            "timeout: 2.5s",
            "retry_for: 7s",
            "tune: Sobas",
            "link_rate: Some(",
            "rate_max: Some(Rate(80000000))",
            "schedule: Some(",
            "port: Some(22)",
            "accept_new: true",
            "streams: Some(1)",
            "destination: \"in\"",
        ] {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
    }

    #[test]
    fn remote_destination_and_unused_flags_are_refused() {
        assert!(made("h:a i:b").unwrap_err().starts_with("i:b is on another host"));
        assert!(made("in").unwrap_err().starts_with("no source given"));
        assert!(made("--from-file /nonexistent in").unwrap_err().ends_with("has no sources"));
        assert!(
            made("-P 1 bankfull://h/a in").unwrap_err().starts_with("-P needs a host:path operand")
        );
        assert!(
            made("--accept-new h:a in")
                .unwrap_err()
                .starts_with("--accept-new needs a bankfull:// operand")
        );
    }

    #[test]
    fn list_has_one_source_per_line() {
        let text = b"# today\n\n one:/a b \r\n\tbankfull://two/#1\n  # none\nthree:\xff";
        let three = OsStr::from_bytes(b"three:\xff");
        assert_eq!(sources_in(text), [OsStr::new("one:/a b"), "bankfull://two/#1".as_ref(), three]);
        assert!(sources_in(b"").is_empty());
    }
}
