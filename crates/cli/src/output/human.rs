//! Text for people: a progress line on a terminal, messages above it, a summary at the end.
//! Everything goes to standard error, except the plan of a dry run, itemized changes and the result
//! of a probe, which are data.

use super::changes::change_line;
use super::decisions::{buffer_line, tuning_line};
use super::progress::{self, Rates};
use super::quiet::{failed_line, rest_of_failed, source_failed_line};
use super::sources::Sources;
use super::text::{self, duration, printable, printable_text};
use super::{Beginning, Ending, Output, Render, Shown, probe_result, summary};
use bankfull::{
    Bytes, Error, Event, FailureFold, GatherSummary, ItemizedChange, Location, Outcome, Progress,
    Round, Route, Summary,
};
use indicatif::ProgressBar;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Different warnings of sources shown without `-v`. (chosen: one screen)
const MAX_WARNINGS_SHOWN: usize = 20;

/// Output without `--json` and `--quiet`.
pub(super) struct Human {
    output: Output,
    bar: ProgressBar,
    rates: Rates,
    verbosity: u8,
    shown: Shown,
    failed: FailureFold,
    shows_all_failed: bool,
    /// A copy within this host.
    is_local: bool,
    /// Duration of a probe.
    probing: Option<Duration>,
    gathering: Option<Gathering>,
    /// Connection that is being opened.
    connecting: Connecting,
    /// Destination of the only source, as reported.
    destination: Option<String>,
    has_one_source: bool,
    /// Durations of the rounds of a gathering.
    rounds: Vec<Duration>,
    stopping: bool,
}

/// Connection that is being opened.
#[derive(Debug, Default)]
struct Connecting {
    /// Daemon of the first connection.
    first: Option<String>,
    /// Beginning of an outage, until a session is connected again.
    lost_since: Option<Instant>,
}

/// Time before the progress line shows that a connection is being opened. (chosen: most connections
/// open sooner)
const CONNECTING_DELAY: Duration = Duration::from_secs(1);

/// State of a gathering.
struct Gathering {
    sources: Sources,
    /// Announcement, held back until the first event: command-line errors come before it.
    plan: Option<String>,
    /// Warnings shown; many sources may send the same one.
    warned: HashSet<String>,
    /// Number of warnings not shown.
    warnings_hidden: u64,
    /// Daemons that were refused because they are unknown, with their fingerprints.
    unknown: Vec<(String, String)>,
}

impl Gathering {
    /// True if a warning is to be shown: each text once, and a limited number of texts.
    fn shows(&mut self, message: &str) -> bool {
        if self.warned.contains(message) {
            return false;
        }
        let has_room = self.warned.len() < MAX_WARNINGS_SHOWN;
        match has_room {
            true => drop(self.warned.insert(message.to_owned())),
            false => self.warnings_hidden += 1,
        }
        has_room
    }
}

impl Human {
    /// Creates the output. `bar` draws the progress; `verbosity` counts `-v`.
    pub(super) fn new(output: Output, bar: ProgressBar, verbosity: u8, shown: Shown) -> Self {
        Self {
            output,
            bar,
            rates: Rates::new(),
            verbosity,
            shown,
            failed: FailureFold::default(),
            shows_all_failed: verbosity > 0,
            is_local: false,
            probing: None,
            gathering: None,
            connecting: Connecting::default(),
            destination: None,
            has_one_source: false,
            rounds: Vec::new(),
            stopping: false,
        }
    }

    /// Shows the loss of a session, once per outage.
    fn reconnecting(&mut self, message: &str, left: Duration) {
        let line =
            format!("{}; reconnecting for up to {}", printable_text(message), duration(left));
        match self.connecting.lost_since {
            None => self.show(&line),
            Some(_) => self.show_if_verbose(&line),
        }
        self.connecting.lost_since.get_or_insert_with(Instant::now);
    }

    /// Shows a line above the progress line.
    fn show(&mut self, line: &str) {
        self.bar.suspend(|| self.output.message(line));
    }

    fn show_if_verbose(&mut self, line: &str) {
        if self.verbosity > 0 {
            self.show(line);
        }
    }

    /// Shows a connection; `prefix` names the source, if there are several.
    fn connected(&mut self, prefix: &str, route: Route, software: &str, encrypted: bool) {
        self.connecting.first = None;
        if self.connecting.lost_since.take().is_some() {
            self.show("connected again");
        }
        if route == Route::Local {
            self.is_local = true;
        }
        let how = match route {
            Route::Local => return,
            Route::Daemon => "to a daemon",
            Route::Quic => "to a daemon over QUIC",
            Route::Ssh => "over ssh, data on separate connections",
            Route::SshOnly => "over ssh, including the data, as the data port is unreachable",
            _ => "over another route",
        };
        let secrecy = if encrypted { "encrypted" } else { "not encrypted" };
        let software = printable_text(software);
        let line = format!("{prefix}connected {how}, {secrecy}; the peer is {software}");
        self.show_if_verbose(&line);
    }

    fn destination(&mut self, source: &Path, destination: &Path) {
        let line = format!("{} -> {}", printable(source), printable(destination));
        if self.shown.dry_run && !self.shown.itemizes {
            self.output.data_line(&line);
        } else if self.verbosity > 0 {
            self.show(&line);
        } else if self.has_one_source {
            self.destination = Some(line);
        }
    }

    fn completed(&mut self, path: &Path, outcome: Outcome, bytes: Bytes) {
        let path = printable(path);
        match outcome {
            Outcome::WouldCopy | Outcome::WouldDelete if self.shown.itemizes => {}
            Outcome::WouldCopy => self.output.data_line(&format!("would copy {path} ({bytes})")),
            Outcome::WouldDelete => self.output.data_line(&format!("would delete {path}")),
            Outcome::Deleted => self.show_if_verbose(&format!("deleted {path}")),
            Outcome::Unchanged | Outcome::LeftOut if self.verbosity < 2 => {}
            Outcome::LeftOut => self.show(&format!("left out {path}")),
            Outcome::Unchanged => self.show(&format!("unchanged {path}")),
            _ => self.show_if_verbose(&format!("copied {path} ({bytes})")),
        }
    }

    fn changed(&mut self, change: &ItemizedChange) {
        self.bar.suspend(|| self.output.data_line(&change_line(change)));
    }

    fn failed(&mut self, path: &Path, message: &str) {
        if self.shows_all_failed || self.failed.show_next(path, message) {
            self.show(&failed_line(path, message));
        }
    }

    /// Shows how many files failed beyond those shown.
    fn rest_of_failed(&mut self) {
        rest_of_failed(&mut self.failed).iter().for_each(|rest| self.show(rest));
    }

    fn show_plan(&mut self) {
        if let Some(plan) = self.gathering.as_mut().and_then(|gathering| gathering.plan.take()) {
            self.show(&plan);
        }
    }

    /// Returns the name of one of several sources.
    fn source_name(&self, source: usize) -> String {
        let gathering = self.gathering.as_ref();
        gathering.map_or("", |gathering| gathering.sources.name(source)).to_owned()
    }

    fn show_of_source(&mut self, source: usize, line: &str) {
        let name = self.source_name(source);
        self.show_if_verbose(&format!("{name}: {line}"));
    }

    fn source_warning(&mut self, source: usize, message: &str) {
        let is_new = self.gathering.as_mut().is_some_and(|gathering| gathering.shows(message));
        if is_new || self.verbosity > 0 {
            let (name, message) = (self.source_name(source), printable_text(message));
            self.show(&format!("warning: {name}: {message}"));
        }
    }

    fn gathered(&mut self, done: &GatherSummary) {
        let lines = summary::gathered_lines(done, &self.rounds, self.shown.dry_run);
        lines.iter().for_each(|line| self.show(line));
        for (number, (_, result)) in done.sources.iter().enumerate() {
            if let Err(error) = result {
                let name = self.source_name(number);
                let why = match error.unknown_daemon() {
                    Some((host, _)) => format!("{} is not known yet", printable_text(host)),
                    None => printable_text(&error.to_string()),
                };
                self.show(&format!("  {name}: {why}"));
            }
        }
        self.list_unknown();
    }

    /// Lists the unknown daemons with their fingerprints, each once.
    fn list_unknown(&mut self) {
        let Some(gathering) = &mut self.gathering else { return };
        let mut unknown = std::mem::take(&mut gathering.unknown);
        if unknown.is_empty() {
            return;
        }
        unknown.sort();
        unknown.dedup();
        self.show("unknown daemons and their fingerprints:");
        unknown
            .iter()
            .for_each(|(host, fingerprint)| self.show(&format!("  {host} {fingerprint}")));
        self.show("compare them with those that the servers print, then add --accept-new");
    }

    fn copied(&mut self, done: &Summary) {
        if let Some(destination) = self.destination.take().filter(|_| done.dirs > 0) {
            self.show(&destination);
        }
        let lines = if self.shown.dry_run {
            summary::plan_lines(done)
        } else {
            summary::lines(done, self.is_local)
        };
        lines.iter().for_each(|line| self.show(line));
    }
}

impl Render for Human {
    fn begin(&mut self, beginning: &Beginning) {
        if let Beginning::Copy { sources, destination, .. } = beginning {
            self.has_one_source = sources.len() == 1;
            self.connecting.first =
                sources.iter().chain([destination]).find_map(|o| daemon_name(o));
        }
        if let Beginning::Probe { host, reverse, time } = beginning {
            self.connecting.first = daemon_name(host);
            let (way, host) = (if *reverse { "from" } else { "to" }, printable(host.as_ref()));
            self.probing = Some(*time);
            self.show_if_verbose(&format!(
                "measuring the path {way} {host} for {}",
                duration(*time)
            ));
        }
        if let Beginning::Gather { sources, destination, .. } = beginning {
            let names = sources.iter().map(|source| printable(source.as_ref()));
            let count = text::count(sources.len() as u64, "source", "sources");
            let into = printable(destination.as_ref());
            self.gathering = Some(Gathering {
                sources: Sources::new(names),
                plan: Some(format!("gathering from {count} into {into}")),
                warned: HashSet::new(),
                warnings_hidden: 0,
                unknown: Vec::new(),
            });
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Connected { route, software, encrypted, .. } => {
                self.connected("", *route, software, *encrypted);
            }
            Event::Destination { source, destination } => self.destination(source, destination),
            Event::Completed { path, outcome, bytes, .. } => self.completed(path, *outcome, *bytes),
            Event::Changed(change) => self.changed(change),
            Event::FileFailed { path, message, .. } => self.failed(path, message),
            Event::Deploying { software, host } => self.show(&deploying_line(software, host)),
            Event::Warning { message } => {
                self.show(&format!("warning: {}", printable_text(message)))
            }
            Event::Reconnecting { message, left, .. } => self.reconnecting(message, *left),
            Event::Tuning(decision) => self.show_if_verbose(&tuning_line(decision)),
            Event::BufferLimit(limit) => self.show_if_verbose(&buffer_line(limit)),
            // Progress is shown by `tick`; later events of the library are ignored.
            _ => {}
        }
    }

    fn tick(&mut self, progress: &Progress, now: Duration) {
        self.rates.observe(progress, now);
        if !self.stopping && !self.bar.is_hidden() {
            self.bar.set_message(match (self.probing, self.connecting.lost_since) {
                (Some(time), _) => progress::probe_line(progress, &self.rates, time),
                (_, Some(lost)) => progress::reconnecting_line(progress, lost.elapsed()),
                _ => progress::line(progress, &self.rates, now, progress::terminal_width()),
            });
        }
    }

    fn source_event(&mut self, source: usize, event: &Event) {
        self.show_plan();
        match event {
            Event::Connected { route, software, encrypted, .. } => {
                let prefix = format!("{}: ", self.source_name(source));
                self.connected(&prefix, *route, software, *encrypted);
            }
            Event::Deploying { software, host } => {
                self.show_if_verbose(&deploying_line(software, host));
            }
            Event::Warning { message } => self.source_warning(source, message),
            Event::Reconnecting { message, .. } => {
                self.source_warning(source, &format!("{message}; reconnecting"));
            }
            Event::Tuning(decision) => self.show_of_source(source, &tuning_line(decision)),
            Event::BufferLimit(limit) => self.show_of_source(source, &buffer_line(limit)),
            // The paths name the source.
            event => self.event(event),
        }
    }

    fn round(&mut self, round: &Round) {
        self.rounds.push(round.elapsed);
        let took = text::short_duration(round.elapsed);
        self.show_if_verbose(&format!("round {}: {} in {took}", round.number, round.bytes));
    }

    fn source_done(&mut self, source: usize, result: &Result<Summary, Error>) {
        self.show_plan();
        let name = self.source_name(source);
        if let Some(gathering) = &mut self.gathering {
            gathering.sources.ended(source, result);
        }
        let unknown = result.as_ref().err().and_then(Error::unknown_daemon);
        if let (Some((host, fingerprint)), Some(gathering)) = (unknown, &mut self.gathering) {
            gathering.unknown.push((printable_text(host), printable_text(fingerprint)));
        } else if let Some(line) = source_failed_line(&name, result) {
            self.show(&line);
        }
        if let Ok(done) = result {
            self.show_if_verbose(&format!("{name}: {}", summary::session_line(done)));
        }
    }

    fn tick_sources(&mut self, sources: &[Option<Progress>], now: Duration) {
        self.show_plan();
        let Some(gathering) = &mut self.gathering else {
            let peer = self.connecting.first.as_ref().filter(|_| now >= CONNECTING_DELAY);
            if let Some(peer) = peer.filter(|_| !self.stopping && !self.bar.is_hidden()) {
                self.bar.set_message(progress::connecting_line(peer, now));
            }
            return;
        };
        let total = gathering.sources.observe(sources, now);
        if !self.stopping && !self.bar.is_hidden() {
            self.bar.set_message(gathering.sources.line(&total, now, progress::terminal_width()));
        }
    }

    fn stopping(&mut self) {
        // A second signal may end the program at any time: leave the terminal clean.
        self.bar.finish_and_clear();
        self.show("stopping; a second signal ends the program at once");
        self.stopping = true;
    }

    fn end(&mut self, ending: &Ending<'_>) {
        self.bar.finish_and_clear();
        self.rest_of_failed();
        let hidden = self.gathering.as_ref().map_or(0, |gathering| gathering.warnings_hidden);
        if hidden > 0 && self.verbosity == 0 {
            self.show(&format!(
                "and {}; -v shows all",
                text::count(hidden, "more warning", "more warnings")
            ));
        }
        match ending {
            Ending::Copied(done) => self.copied(done),
            Ending::Gathered(done) => self.gathered(done),
            Ending::Probed(result) => {
                probe_result::lines(result).iter().for_each(|line| self.output.data_line(line));
            }
            Ending::Stopped => {}
            Ending::Failed(error) => {
                let kept = self.gathering.as_ref().and_then(|all| all.sources.kept_line());
                kept.iter().for_each(|line| self.show(line));
                self.output.error(&error.to_string());
            }
        }
    }

    fn wants_completed(&self) -> bool {
        self.shown.dry_run || self.verbosity > 0
    }

    fn output(&mut self) -> &mut Output {
        &mut self.output
    }
}

fn deploying_line(software: &str, host: &str) -> String {
    format!("copying {} to {}", printable_text(software), printable_text(host))
}

/// Returns the address of a daemon operand; `None` for others. ssh may ask for a password on the
/// terminal, so nothing is drawn while it connects.
fn daemon_name(operand: &OsStr) -> Option<String> {
    match Location::parse(operand) {
        Ok(Location::Daemon { host, port, .. }) => Some(printable_text(&format!("{host}:{port}"))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::handles::testing::{Buffer, buffers};
    use super::*;
    use bankfull::{ErrorKind, Rate, TuningDecision};

    fn human(verbosity: u8, dry_run: bool) -> (Human, Buffer, Buffer) {
        let (output, out, err) = buffers();
        (Human::new(output, progress::hidden(), verbosity, Shown::of_dry_run(dry_run)), out, err)
    }

    fn tuning_decision() -> TuningDecision {
        let mut decision = TuningDecision::default();
        decision.at = Duration::from_millis(1500);
        decision.state = "limited".to_owned();
        decision.window = Some(Bytes(2_306_867));
        decision.pacing = Some(Rate::from_bits_per_sec(8e8));
        decision.reason = "the path is filled".to_owned();
        decision
    }

    fn completed(path: &str, outcome: Outcome) -> Event {
        Event::Completed { path: path.into(), outcome, bytes: Bytes::mib(3), blake3: None }
    }

    fn failure(path: String) -> Event {
        let message = "permission denied".to_owned();
        Event::FileFailed { path: path.into(), message, cause: "io", vanished: false }
    }

    fn connected(route: Route) -> Event {
        let software = "bankfull 0.1.0".to_owned();
        Event::Connected { route, software, encrypted: true, at: Duration::ZERO }
    }

    fn destination() -> Event {
        Event::Destination { source: "data".into(), destination: "/in/data".into() }
    }

    fn copied() -> Summary {
        let mut done = Summary::default();
        (done.files, done.bytes, done.streams) = (2, Bytes(1_250_000), 4);
        done.elapsed = Duration::from_secs(1);
        done
    }

    #[test]
    fn default_output_has_warnings_failures_and_summary() {
        let (mut human, out, err) = human(0, false);
        let warning = Event::Warning { message: "the clock\nis off".to_owned() };
        let events =
            [connected(Route::Ssh), destination(), completed("a", Outcome::Copied), warning];
        events.iter().for_each(|event| human.event(event));
        human.event(&failure("a\x1b[2J".to_owned()));
        human.end(&Ending::Copied(&copied()));
        assert_eq!(out.text(), "");
        assert_eq!(
            err.lines(),
            [
                "warning: the clock\\nis off",
                "bankfull: a\\u{1b}[2J: permission denied",
                "copied 2 files, 1.2 MiB in 1.0 s: 10.0 Mbit/s goodput over 4 streams, \
                 0 retransmits",
            ]
        );
    }

    #[test]
    fn deployment_is_no_warning() {
        let (mut human, _, err) = human(0, false);
        let (software, host) = ("bankfull 0.1.0".to_owned(), "h".to_owned());
        human.event(&Event::Deploying { software, host });
        assert_eq!(err.lines(), ["copying bankfull 0.1.0 to h"]);
    }

    fn gathering(verbosity: u8, count: usize) -> (Human, Buffer) {
        let (mut human, _, err) = human(verbosity, false);
        human.begin(&Beginning::Gather {
            sources: (0..count).map(|n| format!("h{n}:x").into()).collect(),
            destination: "in".into(),
            dry_run: false,
        });
        (human, err)
    }

    #[test]
    fn gathering_starts_with_plan_and_ends_with_failures() {
        let (mut human, err) = gathering(0, 2);
        assert_eq!(err.text(), "", "an error in the command line comes first");
        let gone = Err(Error::new(ErrorKind::Network, "gone\n"));
        human.source_event(0, &failure("in/h0/a".to_owned()));
        human.source_done(1, &gone);
        human.source_done(0, &Ok(copied()));
        let mut done = GatherSummary::default();
        let place = || Location::Local("x".into());
        done.sources = vec![(place(), Ok(copied())), (place(), gone)];
        done.total = copied();
        human.end(&Ending::Gathered(&done));
        assert_eq!(
            err.lines(),
            [
                "gathering from 2 sources into in",
                "bankfull: in/h0/a: permission denied",
                "bankfull: h1:x: gone\\n",
                "gathered 2 files from 1 of 2 sources, 1.2 MiB in 1.0 s: 10.0 Mbit/s goodput, \
                 0 retransmits",
                "1 source failed:",
                "  h1:x: gone\\n",
            ]
        );
    }

    #[test]
    fn equal_warnings_of_sources_are_shown_once() {
        let same = |_| Event::Warning { message: "the clock is off".to_owned() };
        let own = |n| Event::Warning { message: format!("no response from h{n}") };
        let shown = |verbosity, warning: &dyn Fn(usize) -> Event| {
            let (mut human, err) = gathering(verbosity, 30);
            (0..30).for_each(|n| human.source_event(n, &warning(n)));
            human.end(&Ending::Failed(&Error::new(ErrorKind::Network, "gone")));
            err.lines()
        };
        let lines = shown(0, &same);
        assert_eq!(lines[1..], ["warning: h0:x: the clock is off", "bankfull: gone"]);
        let lines = shown(0, &own);
        assert_eq!(lines.len(), 1 + 20 + 2);
        assert_eq!(lines[21], "and 10 more warnings; -v shows all");
        assert_eq!((shown(1, &same).len(), shown(1, &own).len()), (32, 32));
    }

    #[test]
    fn verbose_shows_connection_and_files() {
        let expected = [
            "connected over ssh, data on separate connections, encrypted; \
             the peer is bankfull 0.1.0",
            "data -> /in/data",
            "copied a (3.0 MiB)",
            "unchanged b",
        ];
        for verbosity in [1, 2] {
            let (mut human, _, err) = human(verbosity, false);
            human.event(&connected(Route::Ssh));
            human.event(&destination());
            human.event(&completed("a", Outcome::Copied));
            human.event(&completed("b", Outcome::Unchanged));
            assert_eq!(err.lines(), expected[..usize::from(verbosity) + 2]);
        }
    }

    #[test]
    fn failed_files_are_limited_unless_verbose() {
        let (mut brief, _, err) = human(0, false);
        (0..23).for_each(|n| brief.event(&failure(format!("f{n}"))));
        brief.end(&Ending::Copied(&Summary::default()));
        assert_eq!(
            err.lines()[4..6],
            [
                "bankfull: f4: permission denied",
                "and 18 more failed files with the same reason (permission denied); -v shows all"
            ]
        );

        let (mut verbose, _, err) = human(1, false);
        (0..23).for_each(|n| verbose.event(&failure(format!("f{n}"))));
        assert_eq!(err.lines().len(), 23);
    }

    #[test]
    fn destination_of_one_directory_is_shown() {
        let shown = |sources: &[&str], dirs| {
            let (mut human, _, err) = human(0, false);
            human.begin(&Beginning::Copy {
                sources: sources.iter().map(|source| source.into()).collect(),
                destination: "/in".into(),
                dry_run: false,
            });
            human.event(&destination());
            let mut done = copied();
            done.dirs = dirs;
            human.end(&Ending::Copied(&done));
            err.lines()[0].clone()
        };
        assert_eq!(shown(&["data"], 1), "data -> /in/data");
        assert!(shown(&["data"], 0).starts_with("copied"));
        assert!(shown(&["data", "more"], 1).starts_with("copied"));
    }

    #[test]
    fn unknown_daemons_are_listed_once() {
        let (mut human, err) = gathering(0, 2);
        let refused = |n| {
            let (host, fingerprint) = (format!("d{n}:7440"), format!("sha256:a{n}"));
            Err(Error::unknown_daemon_refused(&host, &fingerprint))
        };
        let mut done = GatherSummary::default();
        for n in 0..2 {
            human.source_done(n, &refused(n));
            done.sources.push((Location::Local("x".into()), refused(n)));
        }
        human.end(&Ending::Gathered(&done));
        assert_eq!(
            err.lines()[1..],
            [
                "nothing gathered",
                "2 sources failed:",
                "  h0:x: d0:7440 is not known yet",
                "  h1:x: d1:7440 is not known yet",
                "unknown daemons and their fingerprints:",
                "  d0:7440 sha256:a0",
                "  d1:7440 sha256:a1",
                "compare them with those that the servers print, then add --accept-new",
            ]
        );
    }

    #[test]
    fn daemon_operand_has_a_name_to_connect_to() {
        let name = |operand: &str| daemon_name(operand.as_ref());
        assert_eq!(name("bankfull://h/x").as_deref(), Some("h:7440"));
        assert_eq!((name("h:x"), name("x")), (None, None));
    }

    #[test]
    fn dry_run_plan_is_on_standard_output() {
        let (mut human, out, err) = human(0, true);
        assert!(human.wants_completed());
        human.event(&destination());
        human.event(&completed("data/a", Outcome::WouldCopy));
        human.event(&completed("data/b", Outcome::Unchanged));
        let mut done = Summary::default();
        (done.would_copy_entries, done.would_copy_bytes) = (1, Bytes::mib(3));
        human.end(&Ending::Copied(&done));
        assert_eq!(out.lines(), ["data -> /in/data", "would copy data/a (3.0 MiB)"]);
        assert_eq!(err.lines(), ["would copy 1 entry, 3.0 MiB"]);
    }

    #[test]
    fn local_copy_has_no_streams() {
        let (mut human, _, err) = human(0, false);
        human.event(&connected(Route::Local));
        human.end(&Ending::Copied(&copied()));
        assert_eq!(err.lines(), ["copied 2 files, 1.2 MiB in 1.0 s: 1.2 MB/s"]);
    }

    #[test]
    fn fatal_error_is_the_last_line() {
        let (mut human, _, err) = human(0, false);
        human.stopping();
        human.end(&Ending::Failed(&Error::new(ErrorKind::Interrupted, "interrupted")));
        assert_eq!(
            err.lines(),
            ["stopping; a second signal ends the program at once", "bankfull: interrupted"]
        );
    }

    #[test]
    fn verbose_shows_decisions_of_controllers() {
        let (mut human, _, err) = human(1, false);
        human.event(&Event::Tuning(tuning_decision()));
        let source = Location::parse("one:/a".as_ref()).unwrap().to_string();
        human.begin(&Beginning::Gather {
            sources: vec![source.into()],
            destination: "in".into(),
            dry_run: false,
        });
        human.source_event(0, &Event::Tuning(tuning_decision()));
        let line = "tuning at 1.5 s: sobas: limited, window 2.2 MiB, pacing 800.0 Mbit/s: the path \
                    is filled";
        let lines = err.lines();
        assert_eq!(lines[0], line);
        assert_eq!(lines.last().unwrap(), &format!("one:/a: {line}"));
    }
}
