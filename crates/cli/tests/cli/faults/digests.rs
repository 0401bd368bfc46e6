//! File digests: a file is renamed only after its digest and all its blocks, in any order.

use super::super::harness::{Peer, Wire, entry, write_file};
use super::clients::{Scene, block, send};
use bankfull_proto::blocks::Run;
use bankfull_proto::hash::FileHash;
use bankfull_proto::wire::control::{
    self, Cause, FileDigest, FileRuns, Message, Open, PathBytes, Verdict,
};
use bankfull_proto::wire::data::HEADER_BYTES;
use std::fs;
use std::io::Read;
use std::thread;
use std::time::Duration;

const MIB: usize = 1 << 20;

#[test]
fn early_digest_renames_file_with_its_last_block() {
    let scene = Scene::new(&[]);
    let size = 2 * MIB;
    let mut peer = scene.announced(vec![entry(1, b"f", size as u64), entry(2, b"g", size as u64)]);
    let mut stream = peer.attach(0);
    let content = [vec![1; MIB], vec![2; MIB]];
    let hash = Some(FileHash::of(&content.concat()).0);
    let acked = |file, index| {
        Some(Message::Acks(vec![FileRuns { file, runs: vec![Run { first: index, count: 1 }] }]))
    };
    send(&mut stream, &block(1, size, 0, &content[0]));
    assert_eq!(peer.receive(), acked(1, 0));
    peer.send(&Message::EarlyFileDigest(FileDigest { file: 1, hash }));
    send(&mut stream, &block(1, size, 1, &content[1]));
    assert_eq!(peer.receive(), acked(1, 1));
    assert_eq!(peer.receive(), Some(Message::Finished(vec![1])));
    assert!(fs::read(scene.scratch.join("root/f")).unwrap() == content.concat());
    // After a damaged block the early digest is void: the final digest follows the last block.
    let mut damaged = block(2, size, 0, &content[0]);
    damaged[5000] ^= 1;
    send(&mut stream, &damaged);
    assert!(matches!(peer.receive(), Some(Message::Nack(_))));
    peer.send(&Message::EarlyFileDigest(FileDigest { file: 2, hash }));
    for index in [0, 1] {
        send(&mut stream, &block(2, size, index, &content[index as usize]));
        assert_eq!(peer.receive(), acked(2, index));
    }
    thread::sleep(Duration::from_millis(200));
    assert!(!scene.scratch.join("root/g").exists());
    peer.send(&Message::FileDigest(FileDigest { file: 2, hash }));
    assert_eq!(peer.receive(), Some(Message::Finished(vec![2])));
    drop((peer, stream));
    scene.check();
}

/// Connects a client that fetches a file of two blocks, with or without early digests.
fn fetching(scene: &Scene, accepts_early_digest: Option<bool>) -> (Peer, Wire) {
    write_file(&scene.scratch.join("root/f"), vec![7; 2 * MIB]);
    let mut peer = Peer::welcomed(scene.daemon.port);
    peer.send(&Message::Open(Open {
        direction: control::Direction::Pull,
        paths: vec![PathBytes(b"f".to_vec())],
        streams: 1,
        timeout_ms: 60_000,
        ..Open::default()
    }));
    assert!(matches!(peer.receive(), Some(Message::Opened(_))));
    assert!(matches!(peer.receive(), Some(Message::Entries(e)) if e[0].id == 1));
    assert!(matches!(peer.receive(), Some(Message::EntriesEnd(_))));
    let have = Vec::new();
    let verdict = Verdict::Send;
    let want =
        control::Want { file: 1, verdict, have, hash: None, failure: None, accepts_early_digest };
    peer.send(&Message::Wants(vec![want]));
    let stream = peer.attach(0);
    (peer, stream)
}

/// Reads both blocks of the file.
fn read_blocks(stream: &mut Wire) {
    let mut frame = vec![0; HEADER_BYTES + MIB + 32];
    (0..2).for_each(|_| stream.read_exact(&mut frame).unwrap());
}

#[test]
fn early_digest_needs_consent_and_is_renewed() {
    let scene = Scene::new(&[]);
    let hash = Some(FileHash::of(&[7; 2 * MIB]).0);
    let acks = Message::Acks(vec![FileRuns { file: 1, runs: vec![Run { first: 0, count: 2 }] }]);
    let sealed = Some(Message::FileDigest(FileDigest { file: 1, hash }));
    let sealed_ahead = Some(Message::EarlyFileDigest(FileDigest { file: 1, hash }));
    let done = |mut peer: Peer| {
        peer.send(&Message::Finished(vec![1]));
        assert!(matches!(peer.receive(), Some(Message::Finish(_))));
        peer.send(&Message::Done(Default::default()));
    };
    // Before any acknowledgement; Finished alone completes the file.
    let (mut peer, mut stream) = fetching(&scene, Some(true));
    read_blocks(&mut stream);
    assert_eq!(peer.receive(), sealed_ahead);
    done(peer);
    let (mut peer, mut stream) = fetching(&scene, None);
    read_blocks(&mut stream);
    peer.send(&acks);
    assert_eq!(peer.receive(), sealed);
    done(peer);
    let (mut peer, mut stream) = fetching(&scene, Some(true));
    read_blocks(&mut stream);
    peer.send(&Message::Nack(control::Nack { file: 1, index: 1 }));
    assert_eq!(peer.receive(), sealed_ahead);
    stream.read_exact(&mut vec![0; HEADER_BYTES + MIB + 32]).unwrap();
    peer.send(&acks);
    assert_eq!(peer.receive(), sealed, "the early digest was ignored");
    done(peer);
    scene.check();
}

#[test]
fn block_resent_after_digest_is_of_the_same_source() {
    let scene = Scene::new(&[]);
    let (mut peer, mut stream) = fetching(&scene, Some(true));
    read_blocks(&mut stream);
    assert!(matches!(peer.receive(), Some(Message::EarlyFileDigest(_))));
    write_file(&scene.scratch.join("root/f"), vec![8; 2 * MIB]);
    // Data on this stream is lost, as after a disconnect; another stream replaces it.
    drop(stream);
    peer.send(&Message::StreamEnded(0));
    let _again = peer.attach(1);
    let aborted = loop {
        match peer.receive() {
            Some(Message::StreamLost(_)) => {}
            other => break other,
        }
    };
    assert!(
        matches!(&aborted, Some(Message::Aborted(a)) if a.file == 1 && a.will_retry),
        "{aborted:?}"
    );
    drop(peer);
    scene.check();
}

#[test]
fn digest_before_all_blocks_is_refused() {
    let scene = Scene::new(&[]);
    let mut peer = scene.announced(vec![entry(1, b"f", 2 * MIB as u64)]);
    peer.send(&Message::FileDigest(FileDigest { file: 1, hash: None }));
    let failure = peer.refusal().expect("a reason");
    assert_eq!(failure.cause(), Cause::Protocol, "{failure:?}");
    assert!(!scene.scratch.join("root/f").exists());
    scene.check();
}
