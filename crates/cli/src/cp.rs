//! `bankfull cp`: builds a transfer from the flags, runs it, and shows its progress.

use crate::environment::Environment;
use crate::exit::Exit;
use crate::flags::{
    CpFlags, DaemonFlags, Operands, SshCommand, SshFlags, StreamCount, TransportHow, TuneHow,
};
use crate::metrics::CopyEnd;
use crate::notify::{self, Notification};
use crate::output::{self, Beginning, Ending, Output, Reporter, Shown};
use crate::report::{self, Recorder};
use crate::standard_streams::{is_stream_destination, standard_input, standard_output};
use crate::{file_list, log, shellsplit, signals, token};
use bankfull::{
    Cancel, DaemonOptions, Error, ErrorKind, EventSink, FileList, Filters, Location, SshOptions,
    Summary, Transfer,
};
use std::time::Instant;

/// Copies the files that the flags name.
pub(crate) fn run(flags: &CpFlags) -> Exit {
    let output = match is_stream_destination(&flags.operands.destination) {
        true => Output::beside_content(),
        false => Output::standard(),
    };
    let mut render = output::render(
        output,
        &flags.show,
        Shown { dry_run: flags.dry_run, itemizes: flags.itemize_changes },
    );
    render.begin(&Beginning::Copy {
        sources: flags.operands.sources.clone(),
        destination: flags.operands.destination.clone(),
        dry_run: flags.dry_run,
    });
    let reporter = match Reporter::start(render) {
        Ok(reporter) => reporter,
        Err(exit) => return exit,
    };
    let started = Instant::now();
    let cancel = cancel_on_signals(&reporter);
    let result = cancel.clone().and_then(|cancel| copy(flags, &reporter, &cancel));
    let render = reporter.finish();
    let exit = match &result {
        Ok(summary) => output::end(render, &Ending::Copied(summary)),
        Err(error) => output::end(render, &Ending::Failed(error)),
    };
    let elapsed = started.elapsed();
    let exit = write_metrics(flags, CopyEnd { result: &result, exit, elapsed });
    if let (Some(receiver), Ok(cancel)) = (&flags.notify, &cancel) {
        let Operands { sources, destination } = &flags.operands;
        let ended = Notification::of_copy((sources, destination), &result, (exit, elapsed));
        notify::send(&ended, receiver, cancel);
    }
    exit
}

/// Writes the metrics file, if one is wanted; returns the exit code.
fn write_metrics(flags: &CpFlags, end: CopyEnd<'_>) -> Exit {
    let written = flags.metrics_file.as_ref().map_or(Ok(()), |path| end.write(path));
    match written {
        Ok(()) => end.exit,
        Err(error) => {
            Output::standard().error(&error.to_string());
            // A failed copy has its own code.
            if end.exit == Exit::Done { Exit::Local } else { end.exit }
        }
    }
}

/// Returns a token that the first signal cancels.
pub(crate) fn cancel_on_signals(reporter: &Reporter) -> Result<Cancel, Error> {
    let cancel = Cancel::new();
    signals::on_signals(vec![Box::new({
        let (cancel, show) = (cancel.clone(), reporter.stopping());
        move || {
            cancel.cancel();
            show();
        }
    })])?;
    Ok(cancel)
}

fn copy(flags: &CpFlags, reporter: &Reporter, cancel: &Cancel) -> Result<Summary, Error> {
    let environment = Environment::read();
    let (input, output) = (standard_input(flags)?, standard_output(flags)?);
    let (transfer, warning) = transfer(flags, &environment)?;
    let transfer = match output {
        Some(output) => transfer.output(output, environment.spool()),
        None => transfer,
    };
    let transfer = match input {
        Some(input) => transfer.input(input)?,
        None => transfer,
    };
    log::start(&flags.show, &environment, log::Role::Client)?;
    warning.into_iter().for_each(|message| reporter.warn(message));
    let cause = |error| cause(error, cancel);
    let Some(path) = &flags.report else {
        return transfer.run(reporter, cancel).map_err(cause);
    };
    let recorder = Recorder::<dyn EventSink>::start(path, reporter, 1)?;
    let result = transfer.run(&recorder, cancel).map_err(cause);
    let written = recorder.finish_copy(&title(flags), &result);
    let summary = result?;
    if written.is_err() {
        // The error that follows concerns the report alone.
        let (files, failed) = (summary.files, summary.failed_files);
        let bytes = summary.bytes;
        reporter.warn(format!("files copied: {files}, {bytes}; failed: {failed}"));
    }
    written.map(|()| summary)
}

/// Returns the title of a report: the operands as typed.
fn title(flags: &CpFlags) -> String {
    let destination = output::printable(flags.operands.destination.as_ref());
    match flags.operands.sources.as_slice() {
        [one] => format!("{} → {destination}", output::printable(one.as_ref())),
        all => format!("{} sources → {destination}", all.len()),
    }
}

/// Returns the cause of an error: the interruption, if there was one.
pub(crate) fn cause(error: Error, cancel: &Cancel) -> Error {
    if cancel.is_cancelled() { interrupted(&error) } else { error }
}

/// Converts an error after a signal to an interruption: scripts then see a single exit code.
fn interrupted(error: &Error) -> Error {
    let text = match error.kind() {
        ErrorKind::Interrupted => error.to_string(),
        // The signal has ended ssh as well, which is in the same process group.
        ErrorKind::Network | ErrorKind::Timeout | ErrorKind::AgentStart => {
            "interrupted; run the same command again to continue where it stopped".to_owned()
        }
        _ => format!("interrupted: {error}"),
    };
    Error::new(ErrorKind::Interrupted, text)
}

/// Sets the rate limits that the flags describe.
fn with_rate_limits(flags: &CpFlags, transfer: Transfer) -> Transfer {
    let transfer = match flags.max_rate {
        Some(rate) => transfer.max_rate(rate),
        None => transfer,
    };
    match &flags.schedule {
        Some(schedule) => transfer.schedule(schedule.clone()),
        None => transfer,
    }
}

/// Sets the list of names: one that was read already, or that of standard input.
fn with_list(
    flags: &CpFlags,
    transfer: Transfer,
    list: Option<FileList>,
) -> Result<Transfer, Error> {
    let list = match list {
        None => file_list::read(&flags.selection)?,
        read => read,
    };
    Ok(match list {
        Some(list) => transfer.files_from(list),
        None => transfer,
    })
}

/// Builds the transfer that the flags describe, with a warning for the user.
fn transfer(
    flags: &CpFlags,
    environment: &Environment,
) -> Result<(Transfer, Option<String>), Error> {
    let sources =
        flags.operands.sources.iter().map(|s| Location::parse(s)).collect::<Result<Vec<_>, _>>()?;
    let destination = Location::parse(&flags.operands.destination)?;
    // A list on another host is no reason to miss an operand there, as a flag for it would be.
    let list = file_list::read_file(&flags.selection)?;
    refuse_unused_flags(flags, sources.iter().chain([&destination]))?;
    for output in [("--report", &flags.report), ("--log-file", &flags.show.log.log_file)] {
        let output = (output.0, output.1.as_deref());
        report::refuse_operand(output, sources.iter().chain([&destination]))?;
    }
    let Reached { daemon, ssh, warning } = reached(&flags.daemon, &flags.ssh, environment)?;
    let transfer = Transfer::new(sources, destination);
    let transfer = match flags.streams {
        StreamCount::Fixed(streams) => transfer.streams(streams),
        StreamCount::Auto => transfer,
    };
    let transfer = with_rate_limits(flags, transfer);
    let transfer = match flags.buffer {
        Some(window) => transfer.buffer(window),
        None => transfer,
    };
    let transfer = match flags.max_memory {
        Some(limit) => transfer.max_memory(limit),
        None => transfer,
    };
    let transfer = match &flags.congestion {
        Some(name) => transfer.congestion(name),
        None => transfer,
    };
    let transfer = match flags.io.io_method() {
        Some(method) => transfer.io_method(method),
        None => transfer,
    };
    let transfer = match flags.block_size {
        Some(block) => transfer.block(block),
        None => transfer,
    };
    let sources = &flags.operands.sources;
    file_list::refuse_conflicts(&flags.filters.rules, &flags.selection, sources)?;
    let filters = Filters::parse(&flags.filters.rules)?;
    let transfer = transfer
        .direct(flags.direct.into())
        .encryption(!flags.no_encryption)
        .fsync(flags.fsync.into())
        .checksum(flags.checksum)
        .trust_journal(flags.trust_journal)
        .filters(filters)
        .metadata(flags.metadata.metadata()?)
        .delete(flags.delete.delete())
        .backup(flags.earlier.backup())
        .link_dest(&flags.earlier.link_dest)
        .remove_source_files(flags.earlier.remove_source_files)
        .selection(&flags.selection.selection())
        .comparison(flags.comparison.comparison())
        .dry_run(flags.dry_run)
        .itemize_changes(flags.itemize_changes)
        .timeout(flags.timeout)
        .retry_for(flags.retry_for)
        .tune(flags.tune.into())
        .ssh(ssh)
        .daemon(daemon);
    let transfer = with_list(flags, transfer, list)?;
    Ok((transfer, warning))
}

/// Options for reaching the peer, with a warning for the user.
pub(crate) struct Reached {
    pub(crate) daemon: DaemonOptions,
    pub(crate) ssh: SshOptions,
    pub(crate) warning: Option<String>,
}

/// Builds the options for reaching the peer.
pub(crate) fn reached(
    daemon: &DaemonFlags,
    ssh: &SshFlags,
    environment: &Environment,
) -> Result<Reached, Error> {
    let (daemon, warning) = daemon_options(daemon, environment)?;
    Ok(Reached { daemon, ssh: ssh_options(ssh, environment)?, warning })
}

/// Refuses flags that would have no effect, as the user relies on them.
fn refuse_unused_flags<'l>(
    flags: &CpFlags,
    locations: impl Iterator<Item = &'l Location> + Clone,
) -> Result<(), Error> {
    if flags.report.is_some() && flags.dry_run {
        let text = "a dry run has no report: leave out --report or --dry-run";
        return Err(Error::new(ErrorKind::Usage, text));
    }
    if let Some(flag) = flags.delete.first_idle() {
        let text = format!("{flag} has no effect without --delete: leave it out");
        return Err(Error::new(ErrorKind::Usage, text));
    }
    if flags.earlier.has_idle_suffix() {
        let text = "--suffix has no effect without --backup: leave it out";
        return Err(Error::new(ErrorKind::Usage, text));
    }
    if flags.buffer.is_some() && flags.tune == TuneHow::Sobas {
        let text = "--buffer fixes the windows that --tune sobas tunes: leave out one of them";
        return Err(Error::new(ErrorKind::Usage, text));
    }
    let in_kernel = flags.io.io_method().filter(|method| method.stays_in_kernel());
    let io = in_kernel.map(|method| format!("--io {method}"));
    refuse_over_quic(
        &flags.daemon,
        &[
            (flags.no_encryption, "--no-encryption"),
            (flags.buffer.is_some(), "--buffer"),
            (flags.congestion.is_some(), "--congestion"),
            (flags.tune != TuneHow::Auto, "--tune"),
            (io.is_some(), io.as_deref().unwrap_or_default()),
        ],
    )?;
    let is_local = |location: &Location| matches!(location, Location::Local(_));
    if let Some(flag) = flags.first_for_paths().filter(|_| locations.clone().all(is_local)) {
        return unused(flag, "bankfull:// or host:path");
    }
    refuse_unused(&flags.daemon, &flags.ssh, locations)
}

/// Refuses flags that have no effect over QUIC, if QUIC alone carries the data.
pub(crate) fn refuse_over_quic(daemon: &DaemonFlags, flags: &[(bool, &str)]) -> Result<(), Error> {
    let is_quic = daemon.transport == TransportHow::Quic;
    match flags.iter().find(|(is_given, _)| *is_given && is_quic) {
        None => Ok(()),
        Some((_, flag)) => {
            let text =
                format!("{flag} has no effect over QUIC: leave out {flag} or --transport quic");
            Err(Error::new(ErrorKind::Usage, text))
        }
    }
}

fn unused(flag: &str, kind: &str) -> Result<(), Error> {
    let text = format!("{flag} needs a {kind} operand: leave it out");
    Err(Error::new(ErrorKind::Usage, text))
}

/// Returns a hint if `host:port/path` without a scheme was read as an ssh path.
fn missing_scheme(flag: &str, location: &Location) -> Option<String> {
    let Location::Ssh { user: None, host, path } = location else { return None };
    let port = path.iter().next()?.to_str()?;
    let port: u16 = port.parse().ok()?;
    let rest = path.strip_prefix(port.to_string()).ok()?.display();
    Some(format!(
        "{flag} needs a bankfull:// operand, but {host}:{} is read as a path on the ssh host \
         {host}: did you mean bankfull://{host}:{port}/{rest}?",
        path.display()
    ))
}

/// Refuses flags of a location type that no operand has: an unused fingerprint protects nothing.
pub(crate) fn refuse_unused<'l>(
    daemon: &DaemonFlags,
    ssh: &SshFlags,
    locations: impl Iterator<Item = &'l Location> + Clone,
) -> Result<(), Error> {
    let has_daemon = locations.clone().any(|location| matches!(location, Location::Daemon { .. }));
    let has_ssh = locations.clone().any(|location| matches!(location, Location::Ssh { .. }));
    match (daemon.first_given(), ssh.first_given()) {
        (Some(flag), _) if !has_daemon => {
            match locations.clone().find_map(|location| missing_scheme(flag, location)) {
                Some(hint) => Err(Error::new(ErrorKind::Usage, hint)),
                None => unused(flag, "bankfull://"),
            }
        }
        (_, Some(flag)) if !has_ssh => unused(flag, "host:path"),
        _ => Ok(()),
    }
}

fn daemon_options(
    flags: &DaemonFlags,
    environment: &Environment,
) -> Result<(DaemonOptions, Option<String>), Error> {
    let token = token::read(flags.token_file.as_deref(), environment)?;
    let mut options = DaemonOptions::default();
    (options.token, options.key) = (token.bytes, token.key);
    options.fingerprint = flags.fingerprint;
    options.transport = flags.transport.into();
    options.accept_new = flags.accept_new;
    options.state_dir = flags.state_dir.clone().or_else(|| environment.state_dir.clone());
    Ok((options, token.warning))
}

fn ssh_options(flags: &SshFlags, environment: &Environment) -> Result<SshOptions, Error> {
    let mut options = SshOptions::default();
    options.command = match (&flags.ssh_command, &environment.ssh) {
        (Some(SshCommand(words)), _) => words.clone(),
        (None, Some(text)) => shellsplit::split(text)
            .map_err(|why| Error::new(ErrorKind::Usage, format!("BANKFULL_SSH: {why}")))?,
        (None, None) => Vec::new(),
    };
    options.remote_program.clone_from(&flags.remote_bankfull);
    options.data_ports.clone_from(&flags.data_ports);
    options.deploy = flags.deploy;
    options.port = flags.port;
    options.identities.clone_from(&flags.identities);
    options.config.clone_from(&flags.config);
    options.jump.clone_from(&flags.jump);
    options.options.clone_from(&flags.options);
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Cli, Command};
    use clap::Parser;

    fn flags(line: &str) -> Box<CpFlags> {
        let words = ["bankfull", "cp"].into_iter().chain(line.split(' '));
        let Command::Cp(flags) = Cli::try_parse_from(words).unwrap().command else { panic!() };
        flags
    }

    fn environment() -> Environment {
        Environment {
            token: Some("secret".into()),
            state_dir: Some("/state".into()),
            ssh: Some("env-ssh -4".into()),
            ..Environment::default()
        }
    }

    #[test]
    fn flags_reach_the_transfer() {
        let flags = flags(
            "--streams 7 --no-encryption --fsync end -c --trust-journal -n --update --modify-window 3 --timeout 2.5 --retry-for 7 --tune off \
             --max-rate 100mbit --schedule *=90mbit --buffer 4MB --congestion bbr --io mmap \
             --block-size 2MiB --direct off host:a bankfull://h/b",
        );
        let (transfer, warning) = transfer(&flags, &Environment::default()).unwrap();
        let shown = format!("{transfer:?}");
        for part in [
            "streams: Some(7)",
            "encryption: false",
            "fsync: End",
            "by_content: true",
            "trust_journal: true",
            "update: true",
            "modify_window: Some(3)",
            "dry_run: true",
            "timeout: 2.5s",
            "retry_for: 7s",
            "tune: Off",
            "rate_max: Some(Rate(100000000))",
            "schedule: Some(",
            "window: Some(Bytes(4000000))",
            "congestion: Some(\"bbr\")",
            "io_method: Some(Mmap)",
            "block: Some(Bytes(2097152))",
            "direct: Off",
            "host: \"host\"",
            "port: 7440",
        ] {
            assert!(shown.contains(part), "{part} is missing in {shown}");
        }
        assert_eq!(warning, None);
    }

    #[test]
    fn unused_flags_are_refused_by_name() {
        let pin = format!("--fingerprint sha256:{}", "ab".repeat(32));
        let daemon = ["--token-file t", &pin, "--accept-new"];
        let ssh = [
            "-P 1",
            "-i k",
            "-F c",
            "-J j",
            "-o X=1",
            "--ssh-command s",
            "--remote-bankfull b",
            "--deploy",
        ];
        let refused = |flag: &str, locations: &str, kind: &str| {
            let flags = flags(&format!("{flag} {locations}"));
            let error = transfer(&flags, &environment()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            let name = flag.split(' ').next().unwrap();
            let text = format!("{name} needs a {kind} operand: leave it out");
            assert_eq!(error.to_string(), text);
        };
        let paths = [
            "--buffer 4MB",
            "--congestion reno",
            "--io mmap",
            "--no-encryption",
            "--block-size 1MiB",
            "--direct off",
            "--tune off",
            "--state-dir s",
        ];
        for flag in paths {
            refused(flag, "a b", "bankfull:// or host:path");
            assert!(transfer(&flags(&format!("{flag} host:a b")), &environment()).is_ok());
            assert!(transfer(&flags(&format!("{flag} a bankfull://h/b")), &environment()).is_ok());
        }
        for flag in daemon {
            refused(flag, "a host:b", "bankfull://");
            refused(flag, "a b", "bankfull://");
        }
        for flag in ssh {
            refused(flag, "bankfull://h/a b", "host:path");
            refused(flag, "a b", "host:path");
            assert!(transfer(&flags(&format!("{flag} host:a b")), &environment()).is_ok());
        }
    }

    #[test]
    fn forgotten_scheme_is_suggested() {
        let flags = flags("--token-file t data localhost:18240/x");
        let error = transfer(&flags, &environment()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--token-file needs a bankfull:// operand, but localhost:18240/x is read as a path on \
             the ssh host localhost: did you mean bankfull://localhost:18240/x?"
        );
    }

    #[test]
    fn conflicting_flags_are_refused() {
        let refused = |line: &str| transfer(&flags(line), &environment()).unwrap_err().to_string();
        let text = "--buffer fixes the windows that --tune sobas tunes: leave out one of them";
        assert_eq!(refused("--tune sobas --buffer 4MB host:a b"), text);
        assert!(transfer(&flags("--tune off --buffer 4MB host:a b"), &environment()).is_ok());
        let text = "--io splice has no effect over QUIC: leave out --io splice or --transport quic";
        assert_eq!(refused("--transport quic --io splice a bankfull://h/b"), text);
        for flag in ["--buffer 4MB", "--congestion bbr", "--no-encryption", "--tune off"] {
            let name = flag.split(' ').next().unwrap();
            let text =
                format!("{name} has no effect over QUIC: leave out {name} or --transport quic");
            assert_eq!(refused(&format!("--transport quic {flag} a bankfull://h/b")), text);
        }
    }

    #[test]
    fn ssh_flags_reach_ssh() {
        let flags = flags("-P 22 -i k -F c -J j -o X=1 --remote-bankfull /b host:a b");
        let options = ssh_options(&flags.ssh, &Environment::default()).unwrap();
        assert_eq!(options.port, Some(22));
        assert_eq!(options.identities, ["k"].map(std::path::PathBuf::from));
        assert_eq!(options.config, Some("c".into()));
        assert_eq!(options.jump.as_deref(), Some("j"));
        assert_eq!(options.options, ["X=1"]);
        assert_eq!(options.remote_program.as_deref(), Some("/b"));
        assert!(!options.deploy && options.command.is_empty());
        let deploys = self::flags("--deploy host:a b");
        assert!(ssh_options(&deploys.ssh, &Environment::default()).unwrap().deploy);
    }

    #[test]
    fn environment_provides_defaults() {
        let flags = flags("a b");
        let (daemon, _) = daemon_options(&flags.daemon, &environment()).unwrap();
        assert_eq!(daemon.token.as_deref(), Some(&b"secret"[..]));
        assert_eq!(daemon.state_dir, Some("/state".into()));
        let ssh = ssh_options(&flags.ssh, &environment()).unwrap();
        assert_eq!(ssh.command, ["env-ssh", "-4"]);
    }

    #[test]
    fn flags_override_the_environment() {
        let flags = flags("--state-dir /mine --ssh-command my-ssh a b");
        let (daemon, _) = daemon_options(&flags.daemon, &environment()).unwrap();
        assert_eq!(daemon.state_dir, Some("/mine".into()));
        assert_eq!(ssh_options(&flags.ssh, &environment()).unwrap().command, ["my-ssh"]);
    }

    #[test]
    fn error_after_signal_is_an_interruption() {
        let shown = |kind| interrupted(&Error::new(kind, "stopped"));
        assert_eq!(shown(ErrorKind::Network).kind(), ErrorKind::Interrupted);
        assert!(shown(ErrorKind::Network).to_string().starts_with("interrupted; run the same"));
        assert_eq!(shown(ErrorKind::Local).to_string(), "interrupted: stopped");
        assert_eq!(shown(ErrorKind::Interrupted).to_string(), "stopped");
    }

    #[test]
    fn bad_operand_or_variable_is_a_usage_error() {
        let bad = transfer(&flags("a bankfull://h:0/"), &Environment::default()).unwrap_err();
        assert_eq!(bad.kind(), ErrorKind::Usage);
        let environment = Environment { ssh: Some("'".into()), ..Environment::default() };
        let bad = ssh_options(&flags("a b").ssh, &environment).unwrap_err();
        assert_eq!(bad.to_string(), "BANKFULL_SSH: a single quote is not closed");
    }
}
