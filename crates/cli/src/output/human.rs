//! Text for people: a progress line on a terminal, messages above it, a summary at the end. All on
//! standard error, but for the plan of a dry run, which is the data that was asked for.

use super::progress::{self, Rates};
use super::quiet::{failed_line, reason, serving_line, source_failed_line};
use super::sources::Sources;
use super::text::{self, duration, printable, printable_text};
use super::{
    Beginning, Ending, FAILED_SHOWN, FailedFiles, Output, Render, Serving, findings, summary,
};
use bankfull::{
    Bytes, Error, ErrorKind, Event, GatherSummary, Outcome, Progress, Round, Route, Summary,
};
use indicatif::ProgressBar;
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// Neither `--json` nor `--quiet`.
pub(super) struct Human {
    output: Output,
    bar: ProgressBar,
    rates: Rates,
    verbosity: u8,
    dry_run: bool,
    failed: FailedFiles,
    shows_all_failed: bool,
    local: bool,
    serving: bool,
    /// How long a path is filled, where that is all that is done.
    probing: Option<Duration>,
    gathering: Option<Gathering>,
    /// How long each round of a gathering took.
    rounds: Vec<Duration>,
    stopping: bool,
}

/// A gathering.
struct Gathering {
    sources: Sources,
    /// What is about to happen, until it was said: with the first thing that happens, so that it
    /// does not come before an error about the command line.
    plan: Option<String>,
    /// Notices that were shown: many are the same for many sources.
    noticed: HashSet<String>,
    /// How many others were not.
    notices_hidden: u64,
}

impl Gathering {
    /// Whether to show a notice: those that are told of many sources once, and of the others as
    /// many as of failed files.
    fn shows(&mut self, message: &str) -> bool {
        if self.noticed.contains(message) {
            return false;
        }
        let has_room = (self.noticed.len() as u64) < FAILED_SHOWN;
        match has_room {
            true => drop(self.noticed.insert(message.to_owned())),
            false => self.notices_hidden += 1,
        }
        has_room
    }
}

impl Human {
    /// `bar` is where progress is drawn; `verbosity` is how often `-v` was given.
    pub(super) fn new(output: Output, bar: ProgressBar, verbosity: u8, dry_run: bool) -> Self {
        Self {
            output,
            bar,
            rates: Rates::new(),
            verbosity,
            dry_run,
            failed: FailedFiles::default(),
            shows_all_failed: verbosity > 0,
            local: false,
            serving: false,
            probing: None,
            gathering: None,
            rounds: Vec::new(),
            stopping: false,
        }
    }

    /// A line above the progress line.
    fn say(&mut self, line: &str) {
        self.bar.suspend(|| self.output.message(line));
    }

    fn say_if_verbose(&mut self, line: &str) {
        if self.verbosity > 0 {
            self.say(line);
        }
    }

    fn listening(&mut self, serving: &Serving) {
        self.say(&serving_line(serving));
        self.say(&format!("fingerprint {}", serving.fingerprint));
        self.say(&format!("clients copy with: {}", serving.example));
    }

    /// Tells of a connection; `who` is the source, where there are several.
    fn connected(&mut self, who: &str, route: Route, software: &str, encrypted: bool) {
        self.local = route == Route::Local;
        let how = match route {
            Route::Local => return,
            Route::Daemon => "to a daemon",
            Route::Quic => "to a daemon, by QUIC",
            Route::Ssh => "over ssh, data on connections of its own",
            Route::SshOnly => "over ssh, data too because its own connections do not get through",
            _ => "by a route of its own",
        };
        let secrecy = if encrypted { "encrypted" } else { "not encrypted" };
        let software = printable_text(software);
        let line = format!("{who}connected {how}, {secrecy}; the far side is {software}");
        self.say_if_verbose(&line);
    }

    fn landing(&mut self, source: &Path, destination: &Path) {
        let line = format!("{} -> {}", printable(source), printable(destination));
        if self.dry_run {
            self.output.data_line(&line);
        } else {
            self.say_if_verbose(&line);
        }
    }

    fn settled(&mut self, path: &Path, outcome: Outcome, bytes: Bytes) {
        let path = printable(path);
        match outcome {
            Outcome::WouldCopy => self.output.data_line(&format!("would copy {path} ({bytes})")),
            Outcome::Unchanged if self.verbosity < 2 => {}
            Outcome::Unchanged => self.say(&format!("unchanged {path}")),
            _ => self.say_if_verbose(&format!("copied {path} ({bytes})")),
        }
    }

    fn failed(&mut self, path: &Path, message: &str) {
        if self.shows_all_failed || self.failed.show_next(&reason(path, message)) {
            self.say(&failed_line(path, message));
        }
    }

    fn client_done(&mut self, peer: &str, result: &Result<Summary, Error>) {
        let how = match result {
            Ok(done) => summary::session_line(done),
            Err(error) => {
                let what = if error.kind() == ErrorKind::Refused { "refused" } else { "failed" };
                format!("{what}: {}", printable_text(&error.to_string()))
            }
        };
        self.say(&format!("client {}: {how}", printable_text(peer)));
    }

    fn say_plan(&mut self) {
        if let Some(plan) = self.gathering.as_mut().and_then(|gathering| gathering.plan.take()) {
            self.say(&plan);
        }
    }

    /// The name of one of several sources.
    fn source_name(&self, source: usize) -> String {
        let gathering = self.gathering.as_ref();
        gathering.map_or("", |gathering| gathering.sources.name(source)).to_owned()
    }

    fn source_notice(&mut self, source: usize, message: &str) {
        let is_new = self.gathering.as_mut().is_some_and(|gathering| gathering.shows(message));
        if is_new || self.verbosity > 0 {
            let (name, message) = (self.source_name(source), printable_text(message));
            self.say(&format!("note: {name}: {message}"));
        }
    }

    fn gathered(&mut self, done: &GatherSummary) {
        let lines = summary::gathered_lines(done, &self.rounds, self.dry_run);
        lines.iter().for_each(|line| self.say(line));
        for (number, (_, result)) in done.sources.iter().enumerate() {
            if let Err(error) = result {
                let (name, why) = (self.source_name(number), printable_text(&error.to_string()));
                self.say(&format!("  {name}: {why}"));
            }
        }
    }

    fn copied(&mut self, done: &Summary) {
        let lines =
            if self.dry_run { summary::plan_lines(done) } else { summary::lines(done, self.local) };
        lines.iter().for_each(|line| self.say(line));
    }
}

impl Render for Human {
    fn begin(&mut self, beginning: &Beginning) {
        if let Beginning::Probe { host, reverse, time } = beginning {
            let (way, host) = (if *reverse { "from" } else { "to" }, printable(host.as_ref()));
            self.probing = Some(*time);
            self.say_if_verbose(&format!(
                "looking at the path {way} {host} for {}",
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
                noticed: HashSet::new(),
                notices_hidden: 0,
            });
        }
        if let Beginning::Serve(serving) = beginning {
            // A daemon's log never ends, so there is no end to list the others at.
            self.shows_all_failed = true;
            self.serving = true;
            self.listening(serving);
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Connected { route, software, encrypted } => {
                self.connected("", *route, software, *encrypted);
            }
            Event::Destination { source, destination } => self.landing(source, destination),
            Event::Completed { path, outcome, bytes, .. } => self.settled(path, *outcome, *bytes),
            Event::FileFailed { path, message, .. } => self.failed(path, message),
            Event::Warning { message } => self.say(&format!("note: {}", printable_text(message))),
            Event::ClientConnected { peer } => {
                self.say(&format!("client {}: connected", printable_text(peer)));
            }
            Event::ClientDone { peer, result } => self.client_done(peer, result),
            // Progress comes by `tick`; what the library adds is of no interest here yet.
            _ => {}
        }
    }

    fn tick(&mut self, progress: &Progress, now: Duration) {
        self.rates.observe(progress, now);
        if !self.stopping && !self.bar.is_hidden() {
            self.bar.set_message(match self.probing {
                Some(time) => progress::probe_line(progress, &self.rates, time),
                None => progress::line(progress, &self.rates, now),
            });
        }
    }

    fn source_event(&mut self, source: usize, event: &Event) {
        self.say_plan();
        match event {
            Event::Connected { route, software, encrypted } => {
                let who = format!("{}: ", self.source_name(source));
                self.connected(&who, *route, software, *encrypted);
            }
            Event::Warning { message } => self.source_notice(source, message),
            // Their paths say where they come from.
            event => self.event(event),
        }
    }

    fn round(&mut self, round: &Round) {
        self.rounds.push(round.elapsed);
        let took = text::short_duration(round.elapsed);
        self.say_if_verbose(&format!("round {}: {} in {took}", round.number, round.bytes));
    }

    fn source_done(&mut self, source: usize, result: &Result<Summary, Error>) {
        self.say_plan();
        let name = self.source_name(source);
        if let Some(gathering) = &mut self.gathering {
            gathering.sources.ended(source, result);
        }
        if let Some(line) = source_failed_line(&name, result) {
            self.say(&line);
        }
        if let Ok(done) = result {
            self.say_if_verbose(&format!("{name}: {}", summary::session_line(done)));
        }
    }

    fn tick_sources(&mut self, sources: &[Option<Progress>], now: Duration) {
        self.say_plan();
        let Some(gathering) = &mut self.gathering else { return };
        let total = gathering.sources.observe(sources, now);
        if !self.stopping && !self.bar.is_hidden() {
            self.bar.set_message(gathering.sources.line(&total, now));
        }
    }

    fn stopping(&mut self) {
        // From here on a second signal may end the program at any time: leave the terminal clean.
        self.bar.finish_and_clear();
        self.say(match (self.serving, self.stopping) {
            (false, _) => "stopping; a second signal ends the program at once",
            (true, false) => "stopping when the running sessions end; a second signal ends them",
            (true, true) => "ending the running sessions; a third signal ends the program at once",
        });
        self.stopping = true;
    }

    fn end(&mut self, ending: &Ending<'_>) {
        self.bar.finish_and_clear();
        self.failed.rest().iter().for_each(|rest| self.say(rest));
        let hidden = self.gathering.as_ref().map_or(0, |gathering| gathering.notices_hidden);
        if hidden > 0 && self.verbosity == 0 {
            self.say(&format!("and {}; -v shows all", text::count(hidden, "note", "notes")));
        }
        match ending {
            Ending::Copied(done) => self.copied(done),
            Ending::Gathered(done) => self.gathered(done),
            Ending::Probed(found) => {
                findings::lines(found).iter().for_each(|line| self.output.data_line(line));
            }
            Ending::Stopped => self.say("stopped"),
            Ending::Failed(error) => self.output.error(&error.to_string()),
        }
    }

    fn wants_settled(&self) -> bool {
        self.dry_run || self.verbosity > 0
    }

    fn output(&mut self) -> &mut Output {
        &mut self.output
    }
}

#[cfg(test)]
mod tests {
    use super::super::handles::testing::{Buffer, buffers};
    use super::*;
    use bankfull::Fingerprint;

    fn human(verbosity: u8, dry_run: bool) -> (Human, Buffer, Buffer) {
        let (output, out, err) = buffers();
        (Human::new(output, progress::hidden(), verbosity, dry_run), out, err)
    }

    fn settled(path: &str, outcome: Outcome) -> Event {
        Event::Completed { path: path.into(), outcome, bytes: Bytes::mib(3), blake3: None }
    }

    fn failure(path: String) -> Event {
        let message = "permission denied".to_owned();
        Event::FileFailed { path: path.into(), message, vanished: false }
    }

    fn connected(route: Route) -> Event {
        Event::Connected { route, software: "bankfull 0.1.0".to_owned(), encrypted: true }
    }

    fn landing() -> Event {
        Event::Destination { source: "data".into(), destination: "/in/data".into() }
    }

    fn copied() -> Summary {
        let mut done = Summary::default();
        (done.files, done.bytes, done.streams) = (2, Bytes(1_000_000), 4);
        done.elapsed = Duration::from_secs(1);
        done
    }

    #[test]
    fn without_flags_there_are_notices_failures_and_the_summary() {
        let (mut human, out, err) = human(0, false);
        let notice = Event::Warning { message: "the clock\nis off".to_owned() };
        let events = [connected(Route::Ssh), landing(), settled("a", Outcome::Copied), notice];
        events.iter().for_each(|event| human.event(event));
        human.event(&failure("a\x1b[2J".to_owned()));
        human.end(&Ending::Copied(&copied()));
        assert_eq!(out.text(), "");
        assert_eq!(
            err.lines(),
            [
                "note: the clock\\nis off",
                "bankfull: a\\u{1b}[2J: permission denied",
                "copied 2 files, 976.6 KiB in 1.0 s: 8.0 Mbit/s goodput over 4 streams, \
                 0 retransmits",
            ]
        );
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
    fn a_gathering_begins_with_its_plan_and_ends_with_the_sources_that_failed() {
        let (mut human, err) = gathering(0, 2);
        assert_eq!(err.text(), "", "an error in the command line comes first");
        let gone = Err(Error::new(ErrorKind::Network, "gone\n"));
        human.source_event(0, &failure("in/h0/a".to_owned()));
        human.source_done(1, &gone);
        human.source_done(0, &Ok(copied()));
        let mut done = GatherSummary::default();
        let place = || bankfull::Location::Local("x".into());
        done.sources = vec![(place(), Ok(copied())), (place(), gone)];
        done.total = copied();
        human.end(&Ending::Gathered(&done));
        assert_eq!(
            err.lines(),
            [
                "gathering from 2 sources into in",
                "bankfull: in/h0/a: permission denied",
                "bankfull: h1:x: gone\\n",
                "gathered 2 files from 1 of 2 sources, 976.6 KiB in 1.0 s: 8.0 Mbit/s goodput, \
                 0 retransmits",
                "1 source failed:",
                "  h1:x: gone\\n",
            ]
        );
    }

    #[test]
    fn notices_of_many_sources_do_not_flood_the_terminal() {
        let same = |_| Event::Warning { message: "the clock is off".to_owned() };
        let own = |n| Event::Warning { message: format!("nothing comes from h{n}") };
        let shown = |verbosity, notice: &dyn Fn(usize) -> Event| {
            let (mut human, err) = gathering(verbosity, 30);
            (0..30).for_each(|n| human.source_event(n, &notice(n)));
            human.end(&Ending::Failed(&Error::new(ErrorKind::Network, "gone")));
            err.lines()
        };
        let lines = shown(0, &same);
        assert_eq!(lines[1..], ["note: h0:x: the clock is off", "bankfull: gone"]);
        let lines = shown(0, &own);
        assert_eq!(lines.len(), 1 + 20 + 2);
        assert_eq!(lines[21], "and 10 notes; -v shows all");
        assert_eq!((shown(1, &same).len(), shown(1, &own).len()), (32, 32));
    }

    #[test]
    fn verbose_tells_the_connection_and_files_and_twice_the_unchanged_too() {
        let expected = [
            "connected over ssh, data on connections of its own, encrypted; \
             the far side is bankfull 0.1.0",
            "data -> /in/data",
            "copied a (3.0 MiB)",
            "unchanged b",
        ];
        for verbosity in [1, 2] {
            let (mut human, _, err) = human(verbosity, false);
            human.event(&connected(Route::Ssh));
            human.event(&landing());
            human.event(&settled("a", Outcome::Copied));
            human.event(&settled("b", Outcome::Unchanged));
            assert_eq!(err.lines(), expected[..usize::from(verbosity) + 2]);
        }
    }

    #[test]
    fn the_first_failed_files_of_a_reason_are_shown_and_verbose_shows_all() {
        let (mut brief, _, err) = human(0, false);
        (0..23).for_each(|n| brief.event(&failure(format!("f{n}"))));
        brief.end(&Ending::Copied(&Summary::default()));
        assert_eq!(
            err.lines()[4..6],
            ["bankfull: f4: permission denied", "and 18 more: permission denied; -v shows all"]
        );

        let (mut verbose, _, err) = human(1, false);
        (0..23).for_each(|n| verbose.event(&failure(format!("f{n}"))));
        assert_eq!(err.lines().len(), 23);
    }

    #[test]
    fn a_dry_run_writes_its_plan_to_standard_output() {
        let (mut human, out, err) = human(0, true);
        assert!(human.wants_settled());
        human.event(&landing());
        human.event(&settled("data/a", Outcome::WouldCopy));
        human.event(&settled("data/b", Outcome::Unchanged));
        let mut done = Summary::default();
        (done.would_copy_entries, done.would_copy_bytes) = (1, Bytes::mib(3));
        human.end(&Ending::Copied(&done));
        assert_eq!(out.lines(), ["data -> /in/data", "would copy data/a (3.0 MiB)"]);
        assert_eq!(err.lines(), ["would copy 1 entry, 3.0 MiB"]);
    }

    #[test]
    fn a_copy_within_the_host_has_no_streams() {
        let (mut human, _, err) = human(0, false);
        human.event(&connected(Route::Local));
        human.end(&Ending::Copied(&copied()));
        assert_eq!(err.lines(), ["copied 2 files, 976.6 KiB in 1.0 s: 1.0 MB/s"]);
    }

    #[test]
    fn a_fatal_error_is_the_last_line() {
        let (mut human, _, err) = human(0, false);
        human.stopping();
        human.end(&Ending::Failed(&Error::new(ErrorKind::Interrupted, "interrupted")));
        assert_eq!(
            err.lines(),
            ["stopping; a second signal ends the program at once", "bankfull: interrupted"]
        );
    }

    #[test]
    fn a_daemon_says_how_to_reach_it_and_logs_a_line_per_client_event() {
        let (mut human, out, err) = human(0, false);
        human.begin(&Beginning::Serve(Serving {
            address: "127.0.0.1:7440".parse().unwrap(),
            fingerprint: Fingerprint([0xab; 32]),
            root: "/srv/data".into(),
            example: "bankfull cp SRC bankfull://127.0.0.1:7440/".to_owned(),
        }));
        let peer = || "[::1]:999".to_owned();
        human.event(&Event::ClientConnected { peer: peer() });
        human.event(&Event::ClientDone { peer: peer(), result: Ok(copied()) });
        for kind in [ErrorKind::Refused, ErrorKind::Network] {
            let result = Err(Error::new(kind, "why"));
            human.event(&Event::ClientDone { peer: peer(), result });
        }
        human.stopping();
        human.stopping();
        human.end(&Ending::Stopped);
        assert_eq!(out.text(), "");
        assert_eq!(
            err.lines(),
            [
                "serving /srv/data on 127.0.0.1:7440".to_owned(),
                format!("fingerprint sha256:{}", "ab".repeat(32)),
                "clients copy with: bankfull cp SRC bankfull://127.0.0.1:7440/".to_owned(),
                "client [::1]:999: connected".to_owned(),
                "client [::1]:999: 2 files, 976.6 KiB in 1.0 s (8.0 Mbit/s)".to_owned(),
                "client [::1]:999: refused: why".to_owned(),
                "client [::1]:999: failed: why".to_owned(),
                "stopping when the running sessions end; a second signal ends them".to_owned(),
                "ending the running sessions; a third signal ends the program at once".to_owned(),
                "stopped".to_owned(),
            ]
        );
    }
}
