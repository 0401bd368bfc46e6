//! Outstanding files and directories: a daemon announces no more of them at a time than its client
//! allows, and accepts no more.

use super::super::harness::{
    Daemon, Peer, Scratch, assert_same, base, below, open_push_of, run, write_file,
};
use super::clients::Scene;
use bankfull_proto::limits::{MAX_DIRECTORY_DEPTH, MAX_XATTRS_BYTES, XATTR_BYTES_PER_ENTRY};
use bankfull_proto::wire::control::{
    Cause, Direction, Entry, EntryKind, Failed, Failure, Message, Open, PathBytes, Source, Verdict,
    Want,
};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::symlink;

const FILES: usize = 90;
const LINKS: usize = 10;

/// Connects a client of a tree with this limit of outstanding files.
fn taking(scene: &Scene, max_outstanding_files: Option<u32>) -> Peer {
    for i in 0..FILES {
        write_file(&scene.scratch.join(format!("root/tree/{}/{i}", i % 7)), b"small");
    }
    for i in 0..LINKS {
        symlink("nowhere", scene.scratch.join(format!("root/tree/3/link-{i}"))).unwrap();
    }
    asking(scene, max_outstanding_files)
}

/// Connects another client of that tree.
fn asking(scene: &Scene, max_outstanding_files: Option<u32>) -> Peer {
    let mut peer = Peer::welcomed(scene.daemon.port);
    peer.send(&Message::Open(Open {
        direction: Direction::Pull,
        paths: vec![PathBytes(b"tree".to_vec())],
        streams: 1,
        timeout_ms: 60_000,
        max_outstanding_files,
        ..Open::default()
    }));
    assert!(matches!(peer.receive(), Some(Message::Opened(_))));
    peer
}

/// Completes a file in one of the possible ways.
fn settle(peer: &mut Peer, entry: &Entry) {
    let gives_up = entry.kind == EntryKind::File && entry.id.is_multiple_of(2);
    let verdict = if gives_up { Verdict::Send } else { Verdict::Skip };
    let (have, file) = (Vec::new(), entry.id);
    peer.send(&Message::Wants(vec![Want {
        file,
        verdict,
        have,
        hash: None,
        failure: None,
        accepts_early_digest: None,
    }]));
    if gives_up {
        let failure = Failure::new(Cause::NoSpace, "the disk is full");
        peer.send(&Message::Failed(Failed { file, failure }));
    }
}

/// Completes files only when the limit is reached. Returns the maximum number of outstanding files.
fn complete_all(peer: &mut Peer, most: usize) -> usize {
    let mut unsettled: Vec<Entry> = Vec::new();
    let (mut announced, mut highest) = (0, 0);
    loop {
        match peer.receive() {
            Some(Message::Entries(entries)) => {
                unsettled.extend(entries.into_iter().filter(|e| e.kind != EntryKind::Dir));
                highest = highest.max(unsettled.len());
                if unsettled.len() >= most {
                    announced += unsettled.len();
                    unsettled.drain(..).for_each(|entry| settle(peer, &entry));
                }
            }
            Some(Message::EntriesEnd(totals)) => {
                assert_eq!((totals.files, totals.symlinks), (FILES as u64, LINKS as u64));
                assert_eq!(announced + unsettled.len(), FILES + LINKS);
                unsettled.drain(..).for_each(|entry| settle(peer, &entry));
                return highest;
            }
            other => panic!("expected entries, got {other:?}"),
        }
    }
}

#[test]
fn outstanding_files_respect_the_client_limit() {
    for most in [0, 1, 2, 8, 99] {
        let scene = Scene::new(&[]);
        let mut peer = taking(&scene, Some(most));
        let most = most.max(1) as usize;
        assert_eq!(complete_all(&mut peer, most), most);
        assert!(matches!(peer.receive(), Some(Message::Finish(_))));
        peer.send(&Message::Done(Default::default()));
    }
}

#[test]
fn client_without_limit_gets_all_files_at_once() {
    let scene = Scene::new(&[]);
    let mut peer = taking(&scene, None);
    assert_eq!(complete_all(&mut peer, usize::MAX), FILES + LINKS);
}

#[test]
fn client_gone_with_outstanding_files_blocks_no_other() {
    let scene = Scene::new(&[]);
    let mut peer = taking(&scene, Some(4));
    assert!(matches!(peer.receive(), Some(Message::Entries(_))));
    drop(peer);
    let mut other = asking(&scene, Some(4));
    assert_eq!(complete_all(&mut other, 4), 4);
}

/// Limit of a daemon's memory, and of the outstanding files of its first client then.
const MAX_MEMORY: &str = "16MiB";
const MAX_FILES: u64 = 1024;

/// Entries that a client announces at a time.
const ANNOUNCED_AT_ONCE: u64 = 100;

#[test]
fn client_that_completes_no_file_is_refused() {
    let scene = Scene::new(&["--max-memory", MAX_MEMORY]);
    let mut peer = scene.pushing_contents();
    // A new directory, whose files are not looked for.
    let dir = Entry { kind: EntryKind::Dir, ..below(2, b"new", 0) };
    peer.send(&Message::Entries(vec![dir]));
    let mut next = 3;
    let failure = loop {
        let ids = next..next + ANNOUNCED_AT_ONCE;
        next = ids.end;
        let file = |id: u64| Entry { parent: 2, ..below(id, format!("f{id}").as_bytes(), 1) };
        peer.send(&Message::Entries(ids.map(file).collect()));
        let mut answered = 0;
        let refused = loop {
            match peer.receive() {
                Some(Message::Wants(wants)) => answered += wants.len() as u64,
                Some(Message::Error(failure)) => break Some(failure),
                None => panic!("closed without a reason"),
                _ => {}
            }
            if answered == ANNOUNCED_AT_ONCE {
                break None;
            }
        };
        if let Some(failure) = refused {
            break failure;
        }
        assert!(next < 4 * MAX_FILES, "{next} files are not too many");
    };
    assert!(next > 2 * MAX_FILES, "refused after {next} files");
    assert_eq!(failure.cause(), Cause::Protocol);
    assert!(failure.text.contains("announced and not completed"), "{}", failure.text);
    scene.check();
}

#[test]
fn client_that_completes_no_directory_is_refused() {
    let scene = Scene::new(&["--max-memory", MAX_MEMORY]);
    let mut peer = Peer::welcomed(scene.daemon.port);
    let contents = Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None };
    // In a dry run they need not be created.
    let Message::Open(open) = open_push_of(vec![contents], false) else { unreachable!() };
    peer.send(&Message::Open(Open { dry_run: true, ..open }));
    assert!(matches!(peer.receive(), Some(Message::Opened(_))));
    peer.send(&Message::Entries(vec![base()]));
    // One message beyond the limit: with more, the answer might be lost with the connection.
    // An entry with attributes counts as more than one.
    let heaviest = (MAX_XATTRS_BYTES / XATTR_BYTES_PER_ENTRY) as u64;
    let limit = 2 * MAX_FILES + heaviest + 2 * MAX_DIRECTORY_DEPTH as u64;
    for batch in 0..=limit.div_ceil(ANNOUNCED_AT_ONCE) {
        let first = 2 + batch * ANNOUNCED_AT_ONCE;
        let name = |id: u64| id.to_string().into_bytes();
        let dir = |id: u64| Entry { kind: EntryKind::Dir, ..below(id, &name(id), 0) };
        peer.send(&Message::Entries((first..first + ANNOUNCED_AT_ONCE).map(dir).collect()));
    }
    match peer.receive() {
        Some(Message::Error(failure)) => {
            assert_eq!(failure.cause(), Cause::Protocol);
            assert!(failure.text.contains("directories that are announced"), "{}", failure.text);
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
    scene.check();
}

#[test]
fn low_memory_limit_of_a_daemon_binds_its_clients() {
    let here = Scratch::new();
    let root = here.join("root");
    fs::create_dir(&root).unwrap();
    let daemon = Daemon::start(&root, &["--max-memory", "4MiB"]);
    let mut peer = Peer::welcomed(daemon.port);
    let contents = Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None };
    peer.send(&open_push_of(vec![contents], false));
    let limit = match peer.receive() {
        Some(Message::Opened(opened)) => opened.max_outstanding_files.unwrap(),
        other => panic!("expected Opened, got {other:?}"),
    };
    assert_eq!(limit, 256, "a sixteenth of the limit, 1 KiB each");
    peer.send(&Message::Entries(vec![base()]));
    let files = |first: u64| {
        let file = |id: u64| below(id, id.to_string().as_bytes(), 1);
        Message::Entries((first..first + u64::from(limit)).map(file).collect())
    };
    // Twice as many are tolerated.
    for first in [2, 1000, 2000, 3000] {
        peer.send(&files(first));
    }
    let refused = loop {
        match peer.receive() {
            Some(Message::Wants(_)) => {}
            Some(Message::Error(failure)) => break failure,
            other => panic!("expected a refusal, got {other:?}"),
        }
    };
    assert!(refused.text.contains("announced and not completed"), "{}", refused.text);

    // A real client keeps to it.
    for i in 0..2000 {
        write_file(&here.join(format!("tree/{}/{i}", i % 300)), b"small");
    }
    run(daemon.cp().arg(here.join("tree")).arg(daemon.url(""))).expect(0);
    assert_same(&here.join("tree"), &root.join("tree"));
}

/// Directories of the tree of [`directories_complete_after_their_files`]: several messages of them.
const DIRS: usize = 1000;

#[test]
fn directories_complete_after_their_files() {
    let scene = Scene::new(&[]);
    for i in 0..DIRS {
        write_file(&scene.scratch.join(format!("root/tree/{}/{i}/file", i % 7)), b"small");
    }
    let mut peer = asking(&scene, Some(8));
    let mut parents = HashMap::new();
    let (mut unsettled, mut open_dirs) = (HashSet::new(), HashSet::new());
    let mut completed = 0;
    loop {
        match peer.receive() {
            Some(Message::Entries(entries)) => {
                for entry in entries {
                    parents.insert(entry.id, entry.parent);
                    assert!(entry.parent == 0 || open_dirs.contains(&entry.parent));
                    match entry.kind {
                        EntryKind::Dir => assert!(open_dirs.insert(entry.id)),
                        _ => assert!(unsettled.insert(entry.id)),
                    }
                }
                // The walk waits for these.
                for id in unsettled.drain() {
                    settle(&mut peer, &Entry { id, ..below(id, b"file", 5) });
                }
            }
            Some(Message::CompletedDirs(dirs)) => {
                for dir in dirs {
                    assert!(open_dirs.remove(&dir));
                    let holds = |id: &u64| parents[id] == dir;
                    assert!(!open_dirs.iter().chain(&unsettled).any(holds), "{dir} holds more");
                    completed += 1;
                }
            }
            Some(Message::EntriesEnd(_)) => break,
            other => panic!("expected entries, got {other:?}"),
        }
    }
    assert!(completed > DIRS / 2, "{completed} were completed before the end");
}
