//! The tuner on every kind of path in virtual time, beside fixed choices: a table for review.
//!
//! Runs are shorter than those of `bankfull-lab regret`, and fast lines are slower.

#![expect(clippy::unwrap_used, reason = "in a test, what cannot be arranged is a failure")]

use bankfull_control::{Bytes, Rate, initial_streams};
use bankfull_lab::base::signals::Signals;
use bankfull_lab::commands::regret::record;
use bankfull_lab::model::contender::Contender;
use bankfull_lab::model::settings::Settings;
use bankfull_lab::model::units::Buffer;
use bankfull_lab::report::regret::{Record, best_choice};
use bankfull_lab::run::runner::Runner;
use bankfull_lab::scenario::{self, Condition};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Time of a run, or so many RTTs if that is longer. (chosen: contains most changes of the paths)
const TIME: Duration = Duration::from_secs(10);
const RTTS: u32 = 60;

/// Rate of the fastest line. (chosen: the test takes less than a minute)
const MAX_RATE_BPS: u64 = 300_000_000;

const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/kinds/kinds.toml");
const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/kinds.txt");

const HEAD: &str = "path                    tuned  best             regret  queue ms      retrans \
                    sharing  streams    off: share, regret  quic: regret, queue, retrans, sharing  \
                    decisions\n";

/// Share of the line by which untuned TCP is ahead on the listed paths. (chosen: more than the
/// chance of a single run)
const MIN_LEAD: f64 = 0.03;

/// Settings of a path with a shorter time and at most the fastest rate.
fn shortened(condition: &Condition) -> Settings {
    let mut settings = condition.settings.clone();
    let path = settings.path_config().unwrap();
    let rate = path.forward.rate.unwrap_or_default().bits_per_sec();
    if rate > MAX_RATE_BPS {
        let buffer = path.forward.buffer.0 as f64 * MAX_RATE_BPS as f64 / rate as f64;
        settings.path.rate = Some(Rate::from_bits_per_sec(MAX_RATE_BPS as f64));
        settings.path.buffer = Some(Buffer::Bytes(Bytes(buffer as u64)));
    }
    settings.run.duration = TIME.max(path.rtt() * RTTS);
    settings
}

/// Contenders in virtual time: tuner, `--tune off`, controller of QUIC, and the fixed choices.
fn contenders(settings: &Settings) -> Vec<Contender> {
    let tuned = toml::from_str("tool = 'tuned-model'\nname = 'tuned'").unwrap();
    // As `--tune off` in the engine: the number of streams stays that of the start.
    let streams = initial_streams(settings.path_config().unwrap().rtt());
    let off = format!("tool = 'model'\nname = 'off'\nstreams = {streams}");
    let off = toml::from_str(&off).unwrap();
    let quic = toml::from_str("tool = 'model'\nname = 'quic'\ncongestion = 'quic'").unwrap();
    let fixed = settings.contenders.iter().filter(|one| one.fixed);
    let fixed = fixed.map(|one| Contender { tool: "model".to_owned(), ..one.clone() });
    [tuned, off, quic].into_iter().chain(fixed).collect()
}

/// Path in the table.
struct Row {
    path: String,
    line: String,
    /// Share of the line by which untuned TCP is ahead of the tuner.
    lead: f64,
}

/// Row of a path.
fn row(condition: &Condition) -> Row {
    let (settings, path) = (shortened(condition), condition.values.join(" "));
    let (signals, work) = (Signals::unwatched(), std::env::temp_dir());
    let mut runner = Runner::new(&signals, &work).unwrap();
    let mut streams = None;
    let run = |contender: &Contender| -> Record {
        let run = runner.valid_run(&settings, contender, 1).unwrap();
        streams = streams.or(run.metrics.streams);
        record(&path, &settings, contender, &run).unwrap()
    };
    let mut choices: Vec<Record> = contenders(&settings).iter().map(run).collect();
    let [tuned, off, quic] = [choices.remove(0), choices.remove(0), choices.remove(0)];
    let best = best_choice(&choices, &path).unwrap();
    let best = choices.iter().find(|one| one.contender == best).unwrap();
    let regret = |record: &Record| 1.0 - record.share / best.share;
    let sharing =
        |record: &Record| record.sharing.map_or("-".into(), |share| format!("{share:.2}"));
    let decisions: Vec<String> =
        tuned.decisions.iter().map(|(state, count)| format!("{state} {count}")).collect();
    let line = format!(
        "{path:22} {:>6.3}  {:.3} {:9} {:>7.3} {:>5.1} {:>5.1} {:>6} {:>6}  {:>4} {:>4} {:>3}  \
         {:>6.3} {:>6.3}  {:>6.3} {:>5.1} {:>6}  {:>4}  {}\n",
        tuned.share,
        best.share,
        best.contender,
        regret(&tuned),
        tuned.queue_ms,
        best.queue_ms,
        tuned.retransmits.unwrap_or_default(),
        best.retransmits.unwrap_or_default(),
        sharing(&tuned),
        sharing(best),
        streams.unwrap_or_default(),
        off.share,
        regret(&off),
        regret(&quic),
        quic.queue_ms,
        quic.retransmits.unwrap_or_default(),
        sharing(&quic),
        decisions.join(", ")
    );
    Row { path, line, lead: off.share - tuned.share }
}

/// Table of all rows, and the paths on which untuned TCP is ahead.
fn table(rows: &[Row]) -> String {
    let ahead = rows.iter().filter(|row| row.lead > MIN_LEAD);
    let ahead: Vec<String> = ahead.map(|row| format!("{} ({:.3})", row.path, row.lead)).collect();
    let lines: String = rows.iter().map(|row| row.line.as_str()).collect();
    let (count, all) = (ahead.len(), rows.len());
    let below = format!("tuned more than {MIN_LEAD} of the line below off: {count} of {all} paths");
    format!("{HEAD}{lines}{below}: {}\n", ahead.join(", "))
}

/// To update the snapshot after an intended change: `BANKFULL_LAB_BLESS=1 cargo test -p
/// bankfull-lab --test virtual_kinds`.
#[test]
fn tuner_on_all_kinds_of_path_matches_snapshot() {
    let scenario = scenario::read(Path::new(SCENARIO)).unwrap();
    let conditions = &scenario.conditions;
    let next = AtomicUsize::new(0);
    let work = || {
        let mut rows = Vec::new();
        while let at = next.fetch_add(1, Ordering::Relaxed)
            && let Some(condition) = conditions.get(at)
        {
            rows.push((at, row(condition)));
        }
        rows
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let mut rows: Vec<(usize, Row)> = thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    rows.sort_unstable_by_key(|(at, _)| *at);
    let table = table(&rows.into_iter().map(|(_, row)| row).collect::<Vec<_>>());
    if std::env::var_os("BANKFULL_LAB_BLESS").is_some() {
        return std::fs::write(SNAPSHOT, table).unwrap();
    }
    let committed = std::fs::read_to_string(SNAPSHOT).unwrap();
    for (found, committed) in table.lines().zip(committed.lines()) {
        assert_eq!(found, committed);
    }
    assert_eq!(table.lines().count(), committed.lines().count());
}
