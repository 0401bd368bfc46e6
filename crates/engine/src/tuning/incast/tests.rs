//! Tests with real sessions over the loopback, which is shared once its rate is set.

use super::INTERFACES;
use crate::api::server::Server;
use crate::api::transfer::Transfer;
use crate::base::cancel::Cancel;
use crate::base::event::{Event, EventSink, NoEvents};
use crate::base::location::Location;
use crate::base::sync::lock;
use crate::model::options::{DaemonOptions, ServeOptions};
use bankfull_control::Rate;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Serializes the tests, because sessions of the whole process count.
static SERIAL: Mutex<()> = Mutex::new(());

#[derive(Default)]
struct RecordedEvents(Mutex<Vec<Event>>);

impl EventSink for RecordedEvents {
    fn event(&self, event: Event) {
        lock(&self.0).push(event);
    }
}

impl RecordedEvents {
    /// True if its streams were coscheduled.
    fn was_coscheduled(&self) -> bool {
        let is_shared = |event: &Event| matches!(event, Event::Tuning(t) if t.state == "shared");
        lock(&self.0).iter().any(is_shared)
    }

    /// Returns the largest window of the second half of the samples.
    fn largest_window(&self) -> Option<u64> {
        let events = lock(&self.0);
        let samples = events.iter().filter_map(|event| match event {
            Event::Sample(sample) => Some(sample.window.map(|window| window.0)),
            _ => None,
        });
        let samples: Vec<_> = samples.collect();
        samples[samples.len() / 2..].iter().copied().max().flatten()
    }
}

/// Runs `work` with a daemon on the loopback.
fn with_daemon<T>(root: &Path, link_rate: Option<Rate>, work: impl FnOnce(&Daemon) -> T) -> T {
    let state = tempfile::tempdir().unwrap();
    let mut options = ServeOptions::new(root.to_owned(), "127.0.0.1:0".parse().unwrap());
    options.state_dir = Some(state.path().to_owned());
    options.link_rate = link_rate;
    let server = Server::bind(options).unwrap();
    let options = DaemonOptions {
        fingerprint: Some(server.fingerprint()),
        state_dir: Some(state.path().to_owned()),
        ..DaemonOptions::default()
    };
    let daemon = Daemon { port: server.local_addr().port(), options };
    let stop = Cancel::new();
    thread::scope(|scope| {
        scope.spawn(|| server.run(&NoEvents, &stop, &stop).unwrap());
        let result = work(&daemon);
        stop.cancel();
        result
    })
}

struct Daemon {
    port: u16,
    options: DaemonOptions,
}

impl Daemon {
    fn location(&self, path: &str) -> Location {
        let text = format!("bankfull://127.0.0.1:{}/{path}", self.port);
        Location::parse(text.as_ref()).unwrap()
    }

    fn copy(&self, from: Location, to: Location) -> Transfer {
        Transfer::new(vec![from], to).daemon(self.options.clone()).streams(1)
    }
}

/// Returns content that differs between seeds.
fn content(seed: usize, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut content);
    content
}

#[test]
fn downloads_together_are_coscheduled_and_complete() {
    let _serial = lock(&SERIAL);
    let dir = tempfile::tempdir().unwrap();
    let (root, into) = (dir.path().join("root"), dir.path().join("into"));
    [&root, &into].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let sizes = [0, 1, 300_000, 5 << 20, 5 << 20, 20 << 20];
    for (n, &bytes) in sizes.iter().enumerate() {
        let tree = root.join(n.to_string());
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("large"), content(n, bytes)).unwrap();
        (0..20).for_each(|i| fs::write(tree.join(i.to_string()), content(i, i * 99)).unwrap());
    }
    let expected = Arc::new(AtomicUsize::new(sizes.len()));
    let logs: Vec<RecordedEvents> = sizes.iter().map(|_| RecordedEvents::default()).collect();
    with_daemon(&root, None, |daemon| {
        thread::scope(|scope| {
            for (n, log) in logs.iter().enumerate() {
                let to = Location::Local(into.clone());
                let mut copy = daemon.copy(daemon.location(&n.to_string()), to);
                copy = copy.link_rate(Rate::from_bits_per_sec(1e9));
                copy.context.concurrent_receivers = Some(Arc::clone(&expected));
                let expected = &expected;
                scope.spawn(move || {
                    copy.run(log, &Cancel::new()).unwrap();
                    expected.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
    });
    for (n, &bytes) in sizes.iter().enumerate() {
        let tree = into.join(n.to_string());
        assert!(fs::read(tree.join("large")).unwrap() == content(n, bytes), "{n}");
        assert!((0..20).all(|i| fs::read(tree.join(i.to_string())).unwrap() == content(i, i * 99)));
    }
    assert!(logs[5].was_coscheduled());
}

#[test]
fn uploads_are_coscheduled_only_together() {
    let _serial = lock(&SERIAL);
    let dir = tempfile::tempdir().unwrap();
    let (from, root) = (dir.path().join("from"), dir.path().join("root"));
    [&from, &root].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
    fs::write(from.join("f"), content(7, 64 << 20)).unwrap();
    let logs: Vec<RecordedEvents> = (0..4).map(|_| RecordedEvents::default()).collect();
    let lone = RecordedEvents::default();
    let gigabit = Rate::from_bits_per_sec(1e9);
    with_daemon(&root, Some(gigabit), |daemon| {
        let upload = |name: &str, log: &RecordedEvents| {
            let copy = daemon.copy(Location::Local(from.join("f")), daemon.location(name));
            copy.run(log, &Cancel::new()).unwrap();
        };
        thread::scope(|scope| {
            for (n, log) in logs.iter().enumerate() {
                let upload = &upload;
                scope.spawn(move || upload(&n.to_string(), log));
            }
        });
        // The shared interface ends at its next tick.
        while lock(&INTERFACES).iter().any(|(_, shared)| shared.strong_count() > 0) {
            thread::sleep(Duration::from_millis(1));
        }
        upload("lone", &lone);
    });
    for name in ["0", "1", "2", "3", "lone"] {
        assert!(fs::read(root.join(name)).unwrap() == content(7, 64 << 20), "{name}");
    }
    // At most the allowed queue and the BDP of about a millisecond.
    let windows: Vec<_> = logs.iter().map(RecordedEvents::largest_window).collect();
    assert!(windows.iter().flatten().all(|&window| window < 1 << 20), "{windows:?}");
    assert!(windows.iter().flatten().count() >= 2, "{windows:?}");
    assert!(logs.iter().filter(|log| log.was_coscheduled()).count() >= 2);
    assert!(!lone.was_coscheduled());
}
