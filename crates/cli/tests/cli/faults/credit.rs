//! Credit: a daemon sends no more than its client has granted, if both agreed on credit.

use super::super::harness::{Peer, write_file};
use super::clients::Scene;
use bankfull_proto::blocks::Run;
use bankfull_proto::hash::FileHash;
use bankfull_proto::wire::control::{
    Credit, Direction, FileRuns, Message, Open, PathBytes, Verdict, Want,
};
use bankfull_proto::wire::data::{HEADER_BYTES, TAG_BYTES};
use std::io::Read;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const MIB: usize = 1 << 20;

/// Time for data without credit to arrive.
const WAIT: Duration = Duration::from_millis(300);

/// Returns a client that wants a file of two blocks, with or without credit.
fn wanting(scene: &Scene, credit: Option<bool>) -> Peer {
    write_file(&scene.scratch.join("root/f"), vec![7; 2 * MIB]);
    let mut peer = Peer::welcomed(scene.daemon.port);
    peer.send(&Message::Open(Open {
        direction: Direction::Pull,
        paths: vec![PathBytes(b"f".to_vec())],
        streams: 1,
        timeout_ms: 60_000,
        credit,
        ..Open::default()
    }));
    let Some(Message::Opened(opened)) = peer.receive() else { panic!("not opened") };
    assert_eq!(opened.credit, credit);
    assert!(matches!(peer.receive(), Some(Message::Entries(e)) if e[0].id == 1));
    assert!(matches!(peer.receive(), Some(Message::EntriesEnd(_))));
    let (have, verdict) = (Vec::new(), Verdict::Send);
    let want =
        Want { file: 1, verdict, have, hash: None, failure: None, accepts_early_digest: None };
    peer.send(&Message::Wants(vec![want]));
    peer
}

fn ask(peer: &mut Peer, bytes: usize) {
    peer.send(&Message::Credits(vec![Credit { stream: 0, bytes: bytes as u64 }]));
}

#[test]
fn payload_equals_the_credit() {
    let scene = Scene::new(&[]);
    let mut peer = wanting(&scene, Some(true));
    // Credit granted before its stream connects is valid.
    ask(&mut peer, 100_000);
    let mut stream = peer.attach(0);
    let (reported, came) = mpsc::channel();
    let reading = thread::spawn(move || {
        let mut bytes = vec![0; MIB];
        while let Ok(n @ 1..) = stream.read(&mut bytes) {
            reported.send(n).unwrap();
        }
    });
    let mut total = 0;
    let mut until_quiet = || {
        while let Ok(n) = came.recv_timeout(WAIT) {
            total += n;
        }
        total
    };
    assert_eq!(until_quiet(), HEADER_BYTES + 100_000);
    // Lower credit takes nothing back; a block's tag needs no credit, and starts no other block.
    ask(&mut peer, 5);
    ask(&mut peer, MIB);
    let block = HEADER_BYTES + MIB + TAG_BYTES;
    assert_eq!(until_quiet(), block);
    ask(&mut peer, 2 * MIB);
    assert_eq!(until_quiet(), 2 * block);
    peer.send(&Message::Acks(vec![FileRuns { file: 1, runs: vec![Run { first: 0, count: 2 }] }]));
    let hash = Some(FileHash::of(&[7; 2 * MIB]).0);
    assert!(matches!(peer.receive(), Some(Message::FileDigest(sealed)) if sealed.hash == hash));
    peer.send(&Message::Finished(vec![1]));
    assert!(matches!(peer.receive(), Some(Message::Finish(_))));
    peer.send(&Message::Done(Default::default()));
    reading.join().unwrap();
    assert_eq!(came.iter().sum::<usize>(), HEADER_BYTES, "the stream ends without credit");
}

#[test]
fn client_without_credit_receives_everything() {
    let scene = Scene::new(&[]);
    let peer = wanting(&scene, None);
    let mut stream = peer.attach(0);
    let mut frames = vec![0; 2 * (HEADER_BYTES + MIB + TAG_BYTES)];
    stream.read_exact(&mut frames).unwrap();
}

#[test]
fn client_gone_without_credit_blocks_no_other() {
    let scene = Scene::new(&[]);
    let peer = wanting(&scene, Some(true));
    let stream = peer.attach(0);
    thread::sleep(WAIT);
    drop((peer, stream));
    // The daemon still serves other clients, and stops on a signal.
    let other = wanting(&scene, None);
    let mut stream = other.attach(0);
    stream.read_exact(&mut [0; HEADER_BYTES]).unwrap();
}

#[test]
fn stream_closed_without_credit_ends_no_session() {
    let scene = Scene::new(&[]);
    let mut peer = wanting(&scene, Some(true));
    let lost = peer.attach(0);
    // The daemon's thread now waits for credit.
    thread::sleep(WAIT);
    peer.send(&Message::StreamEnded(0));
    drop(lost);
    let mut stream = peer.attach(1);
    peer.send(&Message::Credits(vec![Credit { stream: 1, bytes: u64::MAX }]));
    let mut frames = vec![0; 2 * (HEADER_BYTES + MIB + TAG_BYTES)];
    stream.read_exact(&mut frames).unwrap();
    peer.send(&Message::Acks(vec![FileRuns { file: 1, runs: vec![Run { first: 0, count: 2 }] }]));
    // The daemon also reports the loss of the first stream.
    let mut reported = std::iter::from_fn(|| peer.receive());
    assert!(reported.any(|message| matches!(message, Message::FileDigest(_))));
    peer.send(&Message::Finished(vec![1]));
    // All its threads have ended.
    let mut reported = std::iter::from_fn(|| peer.receive());
    assert!(reported.any(|message| matches!(message, Message::Finish(_))));
    peer.send(&Message::Done(Default::default()));
}
