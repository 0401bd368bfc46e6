//! The tuner on every kind of path in virtual time, beside fixed choices: a table for review.
//!
//! Runs are shorter than those of `bankfull-lab regret`, and fast lines are slower.

#![expect(clippy::unwrap_used, reason = "in a test, what cannot be arranged is a failure")]

use bankfull_control::{Bytes, Rate};
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

const HEAD: &str = "path                    tuned  best             regret  queue ms   sent again \
                    sharing  streams    quic: regret, queue, again, sharing  decisions\n";

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

/// Contenders in virtual time: the tuner, the controller of QUIC senders, and the fixed choices of
/// the scenario.
fn contenders(settings: &Settings) -> Vec<Contender> {
    let tuned = toml::from_str("tool = 'tuned-model'\nname = 'tuned'").unwrap();
    let fixed = settings.contenders.iter().filter(|one| one.fixed);
    let fixed = fixed.map(|one| Contender { tool: "model".to_owned(), ..one.clone() });
    let quic = toml::from_str("tool = 'model'\nname = 'quic'\ncongestion = 'quic'").unwrap();
    [tuned, quic].into_iter().chain(fixed).collect()
}

/// Row of a path.
fn row(condition: &Condition) -> String {
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
    let (tuned, quic) = (choices.remove(0), choices.remove(0));
    let best = best_choice(&choices, &path).unwrap();
    let best = choices.iter().find(|one| one.contender == best).unwrap();
    let sharing =
        |record: &Record| record.sharing.map_or("-".into(), |share| format!("{share:.2}"));
    let decisions: Vec<String> =
        tuned.decisions.iter().map(|(state, count)| format!("{state} {count}")).collect();
    let line = format!(
        "{path:22} {:>6.3}  {:.3} {:9} {:>7.3} {:>5.1} {:>5.1} {:>6} {:>6}  {:>4} {:>4} {:>3}  \
         {:>6.3} {:>5.1} {:>6}  {:>4}  {}",
        tuned.share,
        best.share,
        best.contender,
        1.0 - tuned.share / best.share,
        tuned.queue_ms,
        best.queue_ms,
        tuned.retransmits.unwrap_or_default(),
        best.retransmits.unwrap_or_default(),
        sharing(&tuned),
        sharing(best),
        streams.unwrap_or_default(),
        1.0 - quic.share / best.share,
        quic.queue_ms,
        quic.retransmits.unwrap_or_default(),
        sharing(&quic),
        decisions.join(", ")
    );
    line + "\n"
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
    let mut rows: Vec<(usize, String)> = thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|one| one.join().unwrap()).collect()
    });
    rows.sort_unstable();
    let table = HEAD.to_owned() + &rows.into_iter().map(|(_, row)| row).collect::<String>();
    if std::env::var_os("BANKFULL_LAB_BLESS").is_some() {
        return std::fs::write(SNAPSHOT, table).unwrap();
    }
    let committed = std::fs::read_to_string(SNAPSHOT).unwrap();
    for (found, committed) in table.lines().zip(committed.lines()) {
        assert_eq!(found, committed);
    }
    assert_eq!(table.lines().count(), committed.lines().count());
}
