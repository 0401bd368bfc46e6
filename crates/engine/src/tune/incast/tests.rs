//! Real sessions over the loopback, which has a port as soon as somebody says what it carries.

use super::PORTS;
use crate::cancel::Cancel;
use crate::event::{Event, EventSink, NoEvents};
use crate::location::Location;
use crate::net::control::lock;
use crate::options::{DaemonOptions, ServeOptions};
use crate::server::Server;
use crate::transfer::Transfer;
use bankfull_control::Rate;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Sessions of other tests would count, too.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Default)]
struct Kept(Mutex<Vec<Event>>);

impl EventSink for Kept {
    fn event(&self, event: Event) {
        lock(&self.0).push(event);
    }
}

impl Kept {
    /// Whether its connections were steered with others.
    fn has_shared(&self) -> bool {
        let is_shared = |event: &Event| matches!(event, Event::Tuning(t) if t.state == "shared");
        lock(&self.0).iter().any(is_shared)
    }

    /// The widest window that was held in the second half of the samples.
    fn widest(&self) -> Option<u64> {
        let events = lock(&self.0);
        let samples = events.iter().filter_map(|event| match event {
            Event::Sample(sample) => Some(sample.window.map(|window| window.0)),
            _ => None,
        });
        let samples: Vec<_> = samples.collect();
        samples[samples.len() / 2..].iter().copied().max().flatten()
    }
}

/// A daemon on the loopback, for as long as `work` takes.
fn served<T>(root: &Path, link_rate: Option<Rate>, work: impl FnOnce(&Place) -> T) -> T {
    let state = tempfile::tempdir().unwrap();
    let mut options = ServeOptions::new(root.to_owned(), "127.0.0.1:0".parse().unwrap());
    options.state_dir = Some(state.path().to_owned());
    options.link_rate = link_rate;
    let server = Server::bind(options).unwrap();
    let daemon = DaemonOptions {
        fingerprint: Some(server.fingerprint()),
        state_dir: Some(state.path().to_owned()),
        ..DaemonOptions::default()
    };
    let place = Place { port: server.local_addr().port(), daemon };
    let stop = Cancel::new();
    thread::scope(|scope| {
        scope.spawn(|| server.run(&NoEvents, &stop, &stop).unwrap());
        let done = work(&place);
        stop.cancel();
        done
    })
}

struct Place {
    port: u16,
    daemon: DaemonOptions,
}

impl Place {
    fn at(&self, path: &str) -> Location {
        let place = format!("bankfull://127.0.0.1:{}/{path}", self.port);
        Location::parse(place.as_ref()).unwrap()
    }

    fn copy(&self, from: Location, to: Location) -> Transfer {
        Transfer::new(vec![from], to).daemon(self.daemon.clone()).streams(1)
    }
}

/// Bytes that differ from file to file.
fn content(seed: usize, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut content);
    content
}

#[test]
fn copies_that_come_in_together_share_what_the_link_carries_and_arrive_whole() {
    let _alone = lock(&ALONE);
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
    let company = Arc::new(AtomicUsize::new(sizes.len()));
    let kept: Vec<Kept> = sizes.iter().map(|_| Kept::default()).collect();
    served(&root, None, |place| {
        thread::scope(|scope| {
            for (n, kept) in kept.iter().enumerate() {
                let to = Location::Local(into.clone());
                let mut copy = place.copy(place.at(&n.to_string()), to);
                copy = copy.link_rate(Rate::from_bits_per_sec(1e9));
                copy.concurrent_receivers = Some(Arc::clone(&company));
                let company = &company;
                scope.spawn(move || {
                    copy.run(kept, &Cancel::new()).unwrap();
                    company.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
    });
    for (n, &bytes) in sizes.iter().enumerate() {
        let tree = into.join(n.to_string());
        assert!(fs::read(tree.join("large")).unwrap() == content(n, bytes), "{n}");
        assert!((0..20).all(|i| fs::read(tree.join(i.to_string())).unwrap() == content(i, i * 99)));
    }
    assert!(kept[5].has_shared());
}

#[test]
fn uploads_that_come_together_are_steered_together_and_those_alone_are_not() {
    let _alone = lock(&ALONE);
    let dir = tempfile::tempdir().unwrap();
    let (from, root) = (dir.path().join("from"), dir.path().join("root"));
    [&from, &root].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
    fs::write(from.join("f"), content(7, 64 << 20)).unwrap();
    let kept: Vec<Kept> = (0..4).map(|_| Kept::default()).collect();
    let lone = Kept::default();
    let gigabit = Rate::from_bits_per_sec(1e9);
    served(&root, Some(gigabit), |place| {
        let upload = |name: &str, kept: &Kept| {
            let copy = place.copy(Location::Local(from.join("f")), place.at(name));
            copy.run(kept, &Cancel::new()).unwrap();
        };
        thread::scope(|scope| {
            for (n, kept) in kept.iter().enumerate() {
                let upload = &upload;
                scope.spawn(move || upload(&n.to_string(), kept));
            }
        });
        // The port ends at its next look.
        while lock(&PORTS).iter().any(|(_, port)| port.strong_count() > 0) {
            thread::sleep(Duration::from_millis(1));
        }
        upload("lone", &lone);
    });
    for name in ["0", "1", "2", "3", "lone"] {
        assert!(fs::read(root.join(name)).unwrap() == content(7, 64 << 20), "{name}");
    }
    // At most the queue that is allowed, and what the line holds in a millisecond or so.
    let widest: Vec<_> = kept.iter().map(Kept::widest).collect();
    assert!(widest.iter().flatten().all(|&window| window < 1 << 20), "{widest:?}");
    assert!(widest.iter().flatten().count() >= 2, "{widest:?}");
    assert!(kept.iter().filter(|kept| kept.has_shared()).count() >= 2);
    assert!(!lone.has_shared());
}
