//! Clients that violate the protocol: the daemon ends their session with a reason, touches nothing
//! outside its root, and serves the next client.

use super::super::harness::{
    Daemon, Peer, Scratch, Wire, base, below, entry, journals, litter, open_push, open_push_of,
    set_mode, snapshot, write_file,
};
use super::check_alive;
use bankfull_proto::blocks::{Layout, Run};
use bankfull_proto::hash::{BlockHasher, FileHash};
use bankfull_proto::limits::{MAX_CONTROL_FRAME_BYTES, MAX_DIRECTORY_DEPTH};
use bankfull_proto::wire::attach::REPLY_BYTES;
use bankfull_proto::wire::control::{
    self, Aborted, Cause, Entry, EntryKind, Failure, FileDigest, FileRuns, Message, Open,
    PathBytes, Source, Totals, Verdict,
};
use bankfull_proto::wire::data::{Header, push_packed};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// A daemon whose root has a neighbour directory that must not change.
pub(super) struct Scene {
    pub(super) scratch: Scratch,
    pub(super) daemon: Daemon,
    before: Vec<(std::path::PathBuf, u32, u64, i64, i64, i64, i64)>,
}

impl Scene {
    pub(super) fn new(flags: &[&str]) -> Self {
        let scratch = Scratch::new();
        write_file(&scratch.join("outside/file"), b"outside");
        let daemon = Daemon::start(&scratch.dir("root"), flags);
        let before = snapshot(&scratch.join("outside"));
        Self { scratch, daemon, before }
    }

    /// Connects a client with a session that receives into the root.
    fn pushing(&self) -> Peer {
        let mut peer = Peer::welcomed(self.daemon.port);
        peer.send(&open_push(false));
        assert!(matches!(peer.receive(), Some(Message::Opened(_))));
        peer
    }

    /// Connects a client that sends the contents of a directory into the root.
    pub(super) fn pushing_contents(&self) -> Peer {
        let mut peer = Peer::welcomed(self.daemon.port);
        let contents = Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None };
        peer.send(&open_push_of(vec![contents], false));
        assert!(matches!(peer.receive(), Some(Message::Opened(_))));
        peer.send(&Message::Entries(vec![base()]));
        peer
    }

    /// Connects a client that has announced files, all of them wanted.
    pub(super) fn announced(&self, entries: Vec<Entry>) -> Peer {
        let mut peer = self.pushing();
        let count = entries.len();
        peer.send(&Message::Entries(entries));
        match peer.receive() {
            Some(Message::Wants(wants)) => {
                assert_eq!(wants.len(), count);
                assert!(wants.iter().all(|want| want.verdict == Verdict::Send), "{wants:?}");
            }
            other => panic!("expected Wants, got {other:?}"),
        }
        peer
    }

    #[track_caller]
    pub(super) fn check(mut self) {
        assert_eq!(snapshot(&self.scratch.join("outside")), self.before);
        check_alive(&mut self.daemon);
    }
}

/// Returns a block as a sender writes it to an encrypted stream.
pub(super) fn block(file: u64, size: usize, index: u64, content: &[u8]) -> Vec<u8> {
    let layout = Layout::for_size(size as u64);
    let offset = index * u64::from(layout.block_bytes());
    let mut hasher = BlockHasher::new(&layout, offset);
    hasher.update(content);
    let header = Header::Block { file, offset, len: content.len() as u32 };
    [&header.encode()[..], content, &hasher.finish().0].concat()
}

fn pack(files: &[(u64, &[u8])], count: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    for (file, content) in files {
        push_packed(&mut payload, *file, &FileHash::of(content).0, content);
    }
    let header = Header::Pack { count, len: payload.len() as u32 };
    [&header.encode()[..], &payload, &FileHash::of(&payload).0].concat()
}

/// Sends bytes; the daemon may have closed the stream already, with the reason on the control
/// connection.
pub(super) fn send(stream: &mut Wire, bytes: &[u8]) {
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
}

#[test]
fn oversized_and_truncated_frames_are_refused() {
    let scene = Scene::new(&[]);
    let mut peer = scene.pushing();
    let len = u32::try_from(MAX_CONTROL_FRAME_BYTES + 1).unwrap();
    peer.send_raw(&len.to_be_bytes());
    peer.expect_refusal(Cause::Protocol, "over the limit");
    let mut peer = scene.pushing();
    peer.send_raw(&[0, 0, 1, 0, 1, 2, 3]);
    drop(peer);
    let mut peer = scene.pushing();
    peer.send_raw(&[0, 0, 0, 4, 0xff, 0, 0xff, 0]);
    peer.expect_refusal(Cause::Protocol, "malformed");
    scene.check();
}

#[test]
fn paths_outside_the_root_are_refused() {
    let scene = Scene::new(&[]);
    for name in [&b".."[..], b"../outside/evil", b"/etc/evil", b"a/b", b".", b"", b"nul\0"] {
        for kind in [EntryKind::File, EntryKind::Dir, EntryKind::Symlink] {
            if kind == EntryKind::Dir && name.is_empty() {
                // This is the destination itself.
                continue;
            }
            let mut peer = scene.pushing_contents();
            peer.send(&Message::Entries(vec![Entry { kind, ..below(2, name, 0) }]));
            peer.expect_refusal(Cause::Protocol, "is not allowed");
        }
    }
    let Message::Open(open) = open_push(false) else { unreachable!() };
    for path in [&b"../outside"[..], b"x/../../outside", b".."] {
        let mut peer = Peer::welcomed(scene.daemon.port);
        let paths = vec![PathBytes(path.to_vec())];
        peer.send(&Message::Open(Open { paths, ..open.clone() }));
        peer.expect_refusal(Cause::OutsideRoot, "is not allowed");
    }
    let mut peer = Peer::welcomed(scene.daemon.port);
    let sources = vec![Source {
        name: b"../evil".to_vec(),
        is_dir: false,
        contents: false,
        open_ended: None,
    }];
    peer.send(&Message::Open(Open { sources, ..open }));
    peer.expect_refusal(Cause::Protocol, "is not allowed");
    scene.check();
}

#[test]
fn too_deep_directories_are_refused() {
    let scene = Scene::new(&[]);
    let mut peer = scene.pushing_contents();
    // The base counts as a level.
    let above = MAX_DIRECTORY_DEPTH as u64 + 1;
    let mut dirs =
        (2..=above).map(|id| Entry { kind: EntryKind::Dir, parent: id - 1, ..entry(id, b"d", 0) });
    while let Some(first) = dirs.next() {
        let batch = std::iter::once(first).chain(dirs.by_ref().take(99)).collect();
        peer.send(&Message::Entries(batch));
    }
    peer.send(&Message::Entries(vec![Entry { parent: above, ..entry(above + 1, b"f", 10) }]));
    peer.expect_refusal(Cause::Protocol, "the nesting of directories is over the limit");
    scene.check();
}

#[test]
fn part_file_names_are_refused() {
    let scene = Scene::new(&[]);
    let name = b".bankfull-0123456789abcdef.journal";
    for kind in [EntryKind::File, EntryKind::Dir, EntryKind::Symlink] {
        let mut peer = scene.pushing_contents();
        peer.send(&Message::Entries(vec![Entry { kind, ..below(2, name, 0) }]));
        let failure = peer.refusal().expect("a reason");
        assert_eq!(failure.cause(), Cause::Protocol, "{failure:?}");
    }
    for is_dir in [false, true] {
        let mut peer = Peer::welcomed(scene.daemon.port);
        let source = Source { name: name.to_vec(), is_dir, contents: false, open_ended: None };
        peer.send(&open_push_of(vec![source], false));
        peer.expect_refusal(Cause::Usage, "reserved for unfinished files");
    }
    assert!(litter(&scene.scratch.join("root")).is_empty());
    scene.check();
}

#[test]
fn root_keeps_its_mode_and_time() {
    let scene = Scene::new(&[]);
    let root = scene.scratch.join("root");
    fs::create_dir(root.join("sub")).unwrap();
    std::os::unix::fs::symlink(".", root.join("way")).unwrap();
    set_mode(&root, 0o751);
    let metadata = |dir: &Path| {
        let found = fs::metadata(dir).unwrap();
        (found.mode() & 0o7777, found.mtime(), found.mtime_nsec())
    };
    let before = metadata(&root);
    let contents = Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None };
    let Message::Open(open) = open_push_of(vec![contents], false) else { unreachable!() };
    for path in ["", "/", ".", "./", "way", "way/way/", "sub"] {
        let mut peer = Peer::welcomed(scene.daemon.port);
        let paths = vec![PathBytes(path.as_bytes().to_vec())];
        peer.send(&Message::Open(Open { paths, ..open.clone() }));
        assert!(matches!(peer.receive(), Some(Message::Opened(_))), "{path:?}");
        peer.send(&Message::Entries(vec![Entry { mode: 0o710, ..base() }]));
        peer.send(&Message::EntriesEnd(Totals::default()));
        peer.send(&Message::Finish(Default::default()));
        assert!(matches!(peer.receive(), Some(Message::Done(_))), "{path:?}");
        assert_eq!(metadata(&root), before, "{path:?}");
    }
    // Other directories belong to the clients.
    assert_eq!(metadata(&root.join("sub")), (0o710, base().mtime_secs, 1));
    scene.check();
}

#[test]
fn symlink_created_first_is_not_followed() {
    let scene = Scene::new(&[]);
    let mut peer = scene.pushing_contents();
    let target = b"../outside".to_vec();
    let link = Entry { kind: EntryKind::Symlink, target, ..below(2, b"way", 0) };
    let dir = Entry { kind: EntryKind::Dir, ..below(3, b"way", 0) };
    let file = Entry { parent: 3, ..entry(4, b"evil", 4) };
    peer.send(&Message::Entries(vec![link, dir, file]));
    let mut refused = false;
    while !refused {
        match peer.receive() {
            Some(Message::Wants(wants)) => {
                refused = wants.iter().any(|w| w.file == 4 && w.verdict == Verdict::Refused);
            }
            Some(_) => {}
            None => break,
        }
    }
    assert!(refused, "a file behind a link was wanted");
    drop(peer);
    scene.check();
}

#[test]
fn duplicate_block_is_refused() {
    let scene = Scene::new(&[]);
    let mut peer = scene.announced(vec![entry(1, b"f", 3 * MIB as u64)]);
    let mut stream = peer.attach(0);
    let bytes = block(1, 3 * MIB, 0, &vec![1; MIB]);
    send(&mut stream, &bytes);
    assert!(matches!(peer.receive(), Some(Message::Acks(_))));
    send(&mut stream, &bytes);
    peer.expect_refusal(Cause::Protocol, "was received twice");
    scene.check();
}

#[test]
fn block_outside_the_file_is_refused() {
    for (offset, len) in [(3 * MIB, MIB), (MIB, 2 * MIB), (1, MIB), (2 * MIB, 1), (0, 0)] {
        let scene = Scene::new(&[]);
        let mut peer = scene.announced(vec![entry(1, b"f", 3 * MIB as u64)]);
        let mut stream = peer.attach(0);
        let header = Header::Block { file: 1, offset: offset as u64, len: len as u32 };
        send(&mut stream, &header.encode());
        send(&mut stream, &vec![0; len + 32]);
        peer.expect_refusal(Cause::Protocol, "no block at offset");
        let part_is_in_bounds = |m: fs::Metadata| m.len() <= 3 * MIB as u64;
        for path in litter(&scene.scratch.join("root")) {
            assert!(part_is_in_bounds(fs::metadata(path).unwrap()));
        }
        scene.check();
    }
}

#[test]
fn unwanted_data_is_refused() {
    let scene = Scene::new(&[]);
    let small = entry(1, b"small", 5);
    let mut peer = scene.announced(vec![small.clone()]);
    send(&mut peer.attach(0), &block(99, 3 * MIB, 0, &vec![1; MIB]));
    peer.expect_refusal(Cause::Protocol, "99");
    let mut peer = scene.announced(vec![small.clone()]);
    send(&mut peer.attach(0), &block(1, 3 * MIB, 0, &vec![1; MIB]));
    peer.expect_refusal(Cause::Protocol, "1");
    for bytes in [
        pack(&[(99, b"12345")], 1),
        pack(&[(1, b"123456")], 1),
        pack(&[(1, b"12345")], 2),
        pack(&[(1, b"12345"), (1, b"12345")], 2),
    ] {
        let mut peer = scene.announced(vec![small.clone()]);
        send(&mut peer.attach(0), &bytes);
        let failure = peer.refusal().expect("a reason");
        assert_eq!(failure.cause(), Cause::Protocol, "{failure:?}");
        let _ = fs::remove_file(scene.scratch.join("root/small"));
    }
    scene.check();
}

#[test]
fn headers_out_of_bounds_are_refused() {
    let scene = Scene::new(&[]);
    let huge = Header::Block { file: 1, offset: 0, len: u32::MAX }.encode();
    let overflow = Header::Block { file: 1, offset: u64::MAX, len: 1 }.encode();
    let packed = Header::Pack { count: u32::MAX, len: 10 }.encode();
    for header in [huge, overflow, packed] {
        let mut peer = scene.announced(vec![entry(1, b"f", 3 * MIB as u64)]);
        send(&mut peer.attach(0), &header);
        let failure = peer.refusal().expect("a reason");
        assert_eq!(failure.cause(), Cause::Protocol, "{failure:?}");
    }
    scene.check();
}

#[test]
fn damaged_header_ends_only_its_stream() {
    let scene = Scene::new(&[]);
    let mut peer = scene.announced(vec![entry(1, b"f", MIB as u64)]);
    let mut damaged = Header::Block { file: 1, offset: 0, len: MIB as u32 }.encode();
    damaged[20] ^= 1;
    send(&mut peer.attach(0), &damaged);
    assert_eq!(peer.receive(), Some(Message::StreamEnded(0)));
    send(&mut peer.attach(1), &block(1, MIB, 0, &vec![1; MIB]));
    assert!(matches!(peer.receive(), Some(Message::Acks(_))));
    drop(peer);
    scene.check();
}

#[test]
fn damaged_block_is_requested_again() {
    let scene = Scene::new(&[]);
    let mut peer = scene.announced(vec![entry(1, b"f", 2 * MIB as u64)]);
    let mut stream = peer.attach(0);
    let content = [vec![1; MIB], vec![2; MIB]];
    let mut damaged = block(1, 2 * MIB, 0, &content[0]);
    damaged[5000] ^= 1;
    send(&mut stream, &damaged);
    assert!(
        matches!(peer.receive(), Some(Message::Nack(nack)) if (nack.file, nack.index) == (1, 0))
    );
    for index in [0, 1] {
        send(&mut stream, &block(1, 2 * MIB, index, &content[index as usize]));
        let expected = FileRuns { file: 1, runs: vec![Run { first: index, count: 1 }] };
        assert_eq!(peer.receive(), Some(Message::Acks(vec![expected])));
    }
    let hash = FileHash::of(&content.concat()).0;
    peer.send(&Message::FileDigest(FileDigest { file: 1, hash: Some(hash) }));
    assert_eq!(peer.receive(), Some(Message::Finished(vec![1])));
    assert!(fs::read(scene.scratch.join("root/f")).unwrap() == content.concat());
    // A whole session without errors.
    peer.send(&Message::EntriesEnd(Totals::default()));
    send(&mut stream, &Header::End.encode());
    peer.send(&Message::Finish(Default::default()));
    assert!(matches!(peer.receive(), Some(Message::Done(_))));
    drop((peer, stream));
    scene.check();
}

#[test]
fn done_is_sent_without_finish_if_nothing_can_follow() {
    let scene = Scene::new(&[]);
    let mut peer = scene.announced(vec![entry(1, b"f", 5), entry(2, b"g", MIB as u64)]);
    let mut stream = peer.attach(0);
    peer.send(&Message::EntriesEnd(Totals::default()));
    let content = vec![1; MIB];
    send(&mut stream, &block(2, MIB, 0, &content));
    assert!(matches!(peer.receive(), Some(Message::Acks(_))));
    peer.send(&Message::FileDigest(FileDigest { file: 2, hash: Some(FileHash::of(&content).0) }));
    assert_eq!(peer.receive(), Some(Message::Finished(vec![2])));
    send(&mut stream, &pack(&[(1, b"hello")], 1));
    assert_eq!(peer.receive(), Some(Message::Finished(vec![1])));
    assert!(matches!(peer.receive(), Some(Message::Done(_))));
    assert_eq!(fs::read(scene.scratch.join("root/f")).unwrap(), b"hello");
    // The session still ends in order, with a single Done.
    send(&mut stream, &Header::End.encode());
    peer.send(&Message::Finish(Default::default()));
    drop((peer, stream));
    let mut peer = scene.pushing();
    peer.send(&Message::EntriesEnd(Totals::default()));
    assert!(matches!(peer.receive(), Some(Message::Done(_))));
    peer.send(&Message::Entries(vec![entry(1, b"late", 5)]));
    peer.expect_refusal(Cause::Protocol, "after EntriesEnd");
    scene.check();
}

#[test]
fn done_waits_if_a_file_may_be_announced_again() {
    let scene = Scene::new(&[]);
    let mut peer = scene.announced(vec![entry(1, b"f", 5)]);
    peer.send(&Message::EntriesEnd(Totals::default()));
    let failure = Failure::new(Cause::SourceChanged, "it changed");
    let aborted =
        |file, will_retry| Message::Aborted(Aborted { file, failure: failure.clone(), will_retry });
    peer.send(&aborted(1, true));
    // Time for an unexpected message.
    thread::sleep(Duration::from_millis(200));
    peer.send(&Message::Entries(vec![entry(2, b"f", 5)]));
    assert!(matches!(peer.receive(), Some(Message::Wants(_))));
    peer.send(&aborted(2, false));
    thread::sleep(Duration::from_millis(200));
    peer.send(&Message::Finish(Default::default()));
    assert!(matches!(peer.receive(), Some(Message::Done(_))));
    drop(peer);
    scene.check();
}

#[test]
fn file_with_wrong_digest_is_not_renamed() {
    let scene = Scene::new(&[]);
    let mut peer = scene.announced(vec![entry(1, b"f", MIB as u64)]);
    let mut stream = peer.attach(0);
    send(&mut stream, &block(1, MIB, 0, &vec![1; MIB]));
    assert!(matches!(peer.receive(), Some(Message::Acks(_))));
    peer.send(&Message::FileDigest(FileDigest { file: 1, hash: Some([9; 32]) }));
    assert!(matches!(peer.receive(), Some(Message::Failed(f)) if f.failure.text.contains("hash")));
    assert!(!scene.scratch.join("root/f").exists());
    drop((peer, stream));
    scene.check();
}

/// True if the daemon closes a stream without a response.
fn is_refused(mut stream: Wire) -> bool {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer.len() < REPLY_BYTES
}

#[test]
fn unauthenticated_streams_are_refused() {
    let scene = Scene::new(&[]);
    let mut peer = scene.announced(vec![entry(1, b"f", MIB as u64)]);
    assert!(is_refused(peer.attach_with(0, &[0; 32], true)), "a wrong key");
    let key = peer.welcome.session_key;
    assert!(is_refused(peer.attach_with(1, &key, false)), "without encryption");
    let stream = peer.attach(2);
    assert!(is_refused(peer.attach_with(2, &key, true)), "a replayed request");
    let session = std::mem::take(&mut peer.welcome.session);
    assert!(is_refused(peer.attach_with(3, &key, true)), "an unknown session");
    peer.welcome.session = session;
    // The session itself continues.
    let mut stream = stream;
    send(&mut stream, &block(1, MIB, 0, &vec![1; MIB]));
    assert!(matches!(peer.receive(), Some(Message::Acks(_))));
    drop((peer, stream));
    scene.check();
}

#[test]
fn unencrypted_request_is_refused() {
    let scene = Scene::new(&[]);
    let mut peer = Peer::welcomed(scene.daemon.port);
    peer.send(&open_push(true));
    let failure = peer.refusal().expect("a reason");
    assert!(failure.text.contains("without encryption"), "{failure:?}");
    scene.check();
}

#[test]
fn misplaced_messages_are_refused() {
    let scene = Scene::new(&[]);
    let totals = || Message::EntriesEnd(Totals::default());
    let failure = Failure::new(Cause::SourceChanged, "it changed");
    let aborted =
        |file| Message::Aborted(Aborted { file, failure: failure.clone(), will_retry: true });
    let late = || Message::Entries(vec![entry(1, b"late", 10)]);
    let in_session: [Vec<Message>; 8] = [
        vec![totals(), late()],
        vec![aborted(1), late()],
        vec![late(), aborted(1), aborted(1)],
        vec![Message::Finish(Default::default())],
        vec![totals(), totals()],
        vec![Message::Finished(vec![1])],
        vec![Message::Done(Default::default())],
        vec![Message::Holes(FileRuns { file: 5, runs: vec![Run { first: 0, count: 1 }] })],
    ];
    for messages in in_session {
        let mut peer = scene.pushing();
        messages.iter().for_each(|message| peer.send(message));
        let failure = peer.refusal().expect("a reason");
        assert_eq!(failure.cause(), Cause::Protocol, "{messages:?}: {failure:?}");
    }
    let mut early = Peer::connect(scene.daemon.port);
    early.send(&open_push(false));
    early.expect_refusal(Cause::Protocol, "no hello");
    let mut idle = Peer::welcomed(scene.daemon.port);
    idle.send(&Message::Entries(vec![entry(1, b"f", 1)]));
    idle.expect_refusal(Cause::Protocol, "no request");
    scene.check();
}

#[test]
fn silent_client_times_out_and_its_data_is_kept() {
    let scene = Scene::new(&["--timeout", "4"]);
    let mut peer = scene.announced(vec![entry(1, b"f", 3 * MIB as u64)]);
    let mut stream = peer.attach(0);
    send(&mut stream, &block(1, 3 * MIB, 0, &vec![1; MIB]));
    assert!(matches!(peer.receive(), Some(Message::Acks(_))));
    let started = Instant::now();
    peer.refusal();
    assert!(started.elapsed() < Duration::from_secs(12), "it took {:?}", started.elapsed());
    drop((peer, stream));
    let left = journals(&scene.scratch.join("root"));
    assert_eq!(left.iter().map(|journal| journal.bytes()).sum::<u64>(), MIB as u64);
    scene.check();
}

#[test]
fn absurd_file_size_ends_only_its_session() {
    let scene = Scene::new(&[]);
    let mut peer = scene.pushing();
    peer.send(&Message::Entries(vec![Entry { size: 1 << 62, ..entry(1, b"huge", MIB as u64) }]));
    drop(peer.receive());
    drop(peer);
    scene.check();
}

/// Returns the resident memory of a process in bytes.
fn resident(id: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a figure");
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn endless_announcements_use_bounded_memory() {
    let mut scene = Scene::new(&["--timeout", "8"]);
    // Deep in the tree, a file is in the way of a directory: few bytes cause long messages.
    let deep: std::path::PathBuf = (0..10).map(|_| "d".repeat(200)).collect();
    write_file(&scene.scratch.join("root").join(&deep).join("way"), b"in the way");
    let mut peer = scene.pushing_contents();
    let mut parent = 1;
    let way = deep.iter().map(|name| {
        let name = name.as_encoded_bytes();
        let dir = Entry { kind: EntryKind::Dir, parent, ..entry(parent + 1, name, 0) };
        parent += 1;
        dir
    });
    peer.send(&Message::Entries(way.collect()));
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let flood = thread::spawn(move || {
        let mut next = parent + 1;
        while counter.load(Ordering::Relaxed) < 20 * MIB && next < 1_000_000 {
            let ids = next..next + 500;
            next = ids.end;
            let dir = |id| Entry { kind: EntryKind::Dir, parent, ..entry(id, b"way", 0) };
            let entries = ids.map(dir).collect();
            let bytes = control::encode(&Message::Entries(entries)).unwrap();
            peer.send_raw(&bytes);
            counter.fetch_add(bytes.len(), Ordering::Relaxed);
        }
    });
    let started = Instant::now();
    let mut most = 0;
    // The daemon gives up the client after the timeout.
    while scene.daemon.clients_done() == 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "the client is never given up");
        most = most.max(resident(scene.daemon.id()));
        assert!(most < 128 * MIB, "{most} bytes, after {} sent", sent.load(Ordering::Relaxed));
        thread::sleep(Duration::from_millis(20));
    }
    println!("{most} bytes at most, after {} sent", sent.load(Ordering::Relaxed));
    flood.join().unwrap();
    assert!(!scene.daemon.is_over());
    scene.check();
}
