//! Asks: a daemon sends no more than its client has asked for, where they have agreed on that.

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

/// Long enough for what is sent unasked to be here.
const WAIT: Duration = Duration::from_millis(300);

/// A client that wants a file of two blocks, and will ask for it or not.
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
fn no_payload_comes_that_was_not_asked_for_and_all_that_was() {
    let scene = Scene::new(&[]);
    let mut peer = wanting(&scene, Some(true));
    // An ask that comes before its connection counts.
    ask(&mut peer, 100_000);
    let mut stream = peer.attach(0);
    let (told, came) = mpsc::channel();
    let reading = thread::spawn(move || {
        let mut bytes = vec![0; MIB];
        while let Ok(n @ 1..) = stream.read(&mut bytes) {
            told.send(n).unwrap();
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
    // Less than before takes nothing back; a block's tag needs no ask, nor begins another block.
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
    assert_eq!(came.iter().sum::<usize>(), HEADER_BYTES, "the connection ends unasked");
}

#[test]
fn whoever_does_not_agree_on_asks_gets_all_at_once() {
    let scene = Scene::new(&[]);
    let peer = wanting(&scene, None);
    let mut stream = peer.attach(0);
    let mut frames = vec![0; 2 * (HEADER_BYTES + MIB + TAG_BYTES)];
    stream.read_exact(&mut frames).unwrap();
}

#[test]
fn a_client_that_goes_away_without_asking_does_not_keep_others_waiting() {
    let scene = Scene::new(&[]);
    let peer = wanting(&scene, Some(true));
    let stream = peer.attach(0);
    thread::sleep(WAIT);
    drop((peer, stream));
    // The daemon goes on serving others, and ends when it is told to.
    let other = wanting(&scene, None);
    let mut stream = other.attach(0);
    stream.read_exact(&mut [0; HEADER_BYTES]).unwrap();
}

#[test]
fn a_connection_that_is_given_up_before_it_was_asked_does_not_hold_the_session_up() {
    let scene = Scene::new(&[]);
    let mut peer = wanting(&scene, Some(true));
    let lost = peer.attach(0);
    // The daemon's thread waits to be asked, and for ever now.
    thread::sleep(WAIT);
    peer.send(&Message::StreamEnded(0));
    drop(lost);
    let mut stream = peer.attach(1);
    peer.send(&Message::Credits(vec![Credit { stream: 1, bytes: u64::MAX }]));
    let mut frames = vec![0; 2 * (HEADER_BYTES + MIB + TAG_BYTES)];
    stream.read_exact(&mut frames).unwrap();
    peer.send(&Message::Acks(vec![FileRuns { file: 1, runs: vec![Run { first: 0, count: 2 }] }]));
    // It says as well that it has lost the first connection.
    let mut told = std::iter::from_fn(|| peer.receive());
    assert!(told.any(|message| matches!(message, Message::FileDigest(_))));
    peer.send(&Message::Finished(vec![1]));
    // All of its threads have ended.
    let mut told = std::iter::from_fn(|| peer.receive());
    assert!(told.any(|message| matches!(message, Message::Finish(_))));
    peer.send(&Message::Done(Default::default()));
}
