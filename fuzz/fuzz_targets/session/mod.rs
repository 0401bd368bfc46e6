//! A hostile client of a real agent in this process.
//!
//! Greeting, request and attach request are valid; what follows is the input: control frames. Data
//! travels in them, too: the bytes of a Tunnel message stand for a data frame, which gets a valid
//! header and tag.

#![allow(dead_code, reason = "each target and the tests use a part")]

use bankfull::{Bytes, run_agent_over};
use bankfull_proto::wire::attach::{self, Attach};
use bankfull_proto::wire::control::{
    self, Direction, Hello, MAGIC, Message, Open, PathBytes, Source, Welcome,
};
use bankfull_proto::wire::data::{Header, Tagger};
use bankfull_proto::wire::frame::FrameReader;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Time limit for the greeting, and for the end after the client has left.
const PATIENCE: Duration = Duration::from_secs(10);

/// Silence after which the client leaves.
///
/// [`LONGEST_STAY`] limits its stay. (chosen: many runs a second; a message is answered in less)
const QUIET: Duration = Duration::from_millis(2);
const LONGEST_STAY: Duration = Duration::from_millis(30);

/// Largest frame of the input, in bytes.
const MAX_FRAME_BYTES: usize = 1 << 16;

/// Threads that may be left after a session: the fuzzer's own, and some that are ending.
const MAX_THREADS: usize = 16;

/// Size from which files are made smaller, in bytes: space is reserved for them.
const MAX_RESERVED_BYTES: u64 = 8 << 20;

/// Size from which no file system has the space.
const MIN_IMPOSSIBLE_BYTES: u64 = 1 << 50;

/// Plays a hostile sender to the receiving side. It writes nothing beside its destination.
pub(crate) fn receive(scratch: &Path, input: &[u8]) {
    let (target, kept) = (scratch.join("target"), scratch.join("kept"));
    let _ = fs::remove_dir_all(&target);
    fs::create_dir_all(&target).unwrap();
    if !kept.exists() {
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "kept").unwrap();
    }
    let open = Open {
        direction: Direction::Push,
        paths: vec![PathBytes(target.as_os_str().as_bytes().to_vec())],
        sources: vec![Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None }],
        ..request()
    };
    run(open, input, |message| {
        if let Message::Entries(entries) = message {
            for entry in entries {
                if (MAX_RESERVED_BYTES..MIN_IMPOSSIBLE_BYTES).contains(&entry.size) {
                    entry.size %= MAX_RESERVED_BYTES;
                    entry.block_bytes = 1 << 20;
                }
            }
        }
    });
    assert_eq!(names(scratch), ["kept", "target"]);
    assert_eq!(names(&kept), ["file"]);
    assert_eq!(fs::read(kept.join("file")).unwrap(), b"kept");
}

/// Plays a hostile receiver to the sending side. It changes nothing of its tree.
pub(crate) fn send(scratch: &Path, input: &[u8]) {
    let tree = scratch.join("tree");
    if !tree.exists() {
        make_tree(&tree);
    }
    let Some((&first, input)) = input.split_first() else { return };
    let open = Open {
        direction: Direction::Pull,
        paths: vec![PathBytes(tree.as_os_str().as_bytes().to_vec())],
        // Without data streams.
        dry_run: first >= 0x80,
        ..request()
    };
    run(open, input, |message| {
        // A train of packets is paced: it would take the time of many runs.
        if let Message::TrainRequest(packets) = message {
            *packets %= 4;
        }
    });
    assert_eq!(names(&tree), ["a", "b", "c", "d", "e", "f"]);
    assert_eq!(fs::read(tree.join("a")).unwrap(), b"small");
}

fn request() -> Open {
    Open { streams: 1, unencrypted: true, autotune_off: Some(true), ..Open::default() }
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Makes the tree of the sending side. Its entries have the numbers 2 to 8, as in the vectors.
fn make_tree(tree: &Path) {
    fs::create_dir_all(tree.join("f")).unwrap();
    fs::write(tree.join("a"), "small").unwrap();
    fs::write(tree.join("b"), "also small").unwrap();
    symlink("a", tree.join("c")).unwrap();
    fs::write(tree.join("d"), vec![7; (3 << 20) + 1]).unwrap();
    fs::File::create(tree.join("e")).unwrap().set_len(9 << 20).unwrap();
    fs::write(tree.join("f/g"), vec![8; 300 << 10]).unwrap();
}

/// Plays a side in a directory of this process, and watches the number of threads.
pub(crate) fn run_here(side: fn(&Path, &[u8]), input: &[u8]) {
    side(Path::new(&format!("/dev/shm/bankfull-fuzz-{}", std::process::id())), input);
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let deadline = Instant::now() + PATIENCE;
    while threads() > MAX_THREADS {
        assert!(Instant::now() < deadline, "{} threads are left", threads());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a session with this request and input. `edit` may change the input's messages.
fn run(open: Open, input: &[u8], edit: impl Fn(&mut Message)) {
    let (near, far) = UnixStream::pair().unwrap();
    let (from, to) = (far.try_clone().unwrap(), far);
    let agent = thread::spawn(move || {
        let _ = run_agent_over(from.into(), to.into(), Some(Bytes::mib(16)));
    });
    let mut client = Client::connect(near);
    if client.open(open) {
        client.attach();
        client.play(input, edit);
    }
    client.leave();
    let deadline = Instant::now() + PATIENCE;
    while !agent.is_finished() {
        assert!(Instant::now() < deadline, "the agent works without its client");
        thread::sleep(Duration::from_micros(200));
    }
    agent.join().unwrap();
}

/// The hostile client.
struct Client {
    wire: UnixStream,
    frames: FrameReader,
    welcome: Welcome,
    tagger: Tagger,
}

impl Client {
    fn connect(wire: UnixStream) -> Self {
        wire.set_read_timeout(Some(PATIENCE)).unwrap();
        let frames = FrameReader::new(bankfull_proto::limits::MAX_CONTROL_FRAME_BYTES);
        let welcome = Welcome::default();
        let mut client = Self { wire, frames, welcome, tagger: Tagger::unkeyed() };
        client.write(&MAGIC);
        let mut magic = [0; MAGIC.len()];
        client.wire.read_exact(&mut magic).unwrap();
        let hello =
            Hello { min_version: 1, max_version: 1, software: "fuzz".into(), ..Hello::default() };
        client.send(&Message::Hello(hello));
        match client.receive() {
            Some(Message::Welcome(welcome)) => client.welcome = welcome,
            other => panic!("expected Welcome, got {other:?}"),
        }
        client
    }

    /// Sends the request; returns false if it is refused.
    fn open(&mut self, open: Open) -> bool {
        self.send(&Message::Open(open));
        matches!(self.receive(), Some(Message::Opened(_)))
    }

    fn attach(&mut self) {
        let nonce = [9; 32];
        let request = Attach { version: 1, stream: 0, session: self.welcome.session, nonce };
        let key = self.welcome.session_key;
        self.tagger = Tagger::keyed(attach::stream_key(&key, &nonce));
        self.tunnel(request.encode(&key).to_vec());
    }

    /// Sends the input, and reads what the agent answers until it is quiet.
    fn play(&mut self, input: &[u8], edit: impl Fn(&mut Message)) {
        let mut frames = FrameReader::new(MAX_FRAME_BYTES);
        frames.push(input);
        while let Ok(Some(frame)) = frames.next_frame() {
            match control::decode(frame) {
                Ok(Message::Tunnel(bytes)) => self.send_data(&bytes.0),
                Ok(mut message) => {
                    edit(&mut message);
                    self.send(&message);
                }
                Err(_) => {
                    let mut raw = (frame.len() as u32).to_be_bytes().to_vec();
                    raw.extend_from_slice(frame);
                    self.write(&raw);
                }
            }
            self.drain(Duration::ZERO);
        }
        let until = Instant::now() + LONGEST_STAY;
        while self.drain(QUIET) && Instant::now() < until {}
    }

    /// Sends a data frame: kind, file, offset or count, then the payload.
    fn send_data(&mut self, bytes: &[u8]) {
        let Some((&[kind, file, place], payload)) = bytes.split_first_chunk() else { return };
        let (len, file) = (payload.len() as u32, u64::from(file));
        let header = match kind % 8 {
            0..4 => Header::Block { file, offset: u64::from(place) << 18, len },
            4..6 => Header::Pack { count: place.into(), len },
            6 => Header::Filler { len },
            _ => Header::End,
        }
        .encode();
        let mut frame = header.to_vec();
        if kind % 8 < 7 {
            frame.extend_from_slice(payload);
        }
        if kind % 8 < 6 {
            let mut tag = self.tagger.next(&header, blake3::hash(payload).as_bytes());
            // Sometimes damaged.
            tag[0] ^= kind >> 7;
            frame.extend_from_slice(&tag);
        }
        self.tunnel(frame);
    }

    fn tunnel(&mut self, bytes: Vec<u8>) {
        self.send(&Message::Tunnel(control::Bytes(bytes)));
    }

    fn send(&mut self, message: &Message) {
        if let Ok(frame) = control::encode(message) {
            self.write(&frame);
        }
    }

    /// Writes, unless the agent has ended the session.
    fn write(&mut self, bytes: &[u8]) {
        let _ = self.wire.write_all(bytes);
    }

    fn receive(&mut self) -> Option<Message> {
        let mut buffer = vec![0; MAX_FRAME_BYTES];
        loop {
            while let Some(frame) = self.frames.next_frame().unwrap() {
                match control::decode(frame).unwrap() {
                    Message::Ping => {}
                    message => return Some(message),
                }
            }
            match self.wire.read(&mut buffer) {
                Ok(n @ 1..) => self.frames.push(&buffer[..n]),
                // By the fuzzer's timer.
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => return None,
            }
        }
    }

    /// Discards answers; false if none came within `time`.
    fn drain(&mut self, time: Duration) -> bool {
        let mut buffer = vec![0; MAX_FRAME_BYTES];
        if time.is_zero() {
            self.wire.set_nonblocking(true).unwrap();
        } else {
            self.wire.set_nonblocking(false).unwrap();
            self.wire.set_read_timeout(Some(time)).unwrap();
        }
        let read = matches!(self.wire.read(&mut buffer), Ok(1..));
        self.wire.set_nonblocking(false).unwrap();
        read
    }

    /// Closes the connection.
    fn leave(mut self) {
        let _ = self.wire.shutdown(Shutdown::Write);
        self.wire.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = vec![0; MAX_FRAME_BYTES];
        loop {
            match self.wire.read(&mut buffer) {
                Ok(1..) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }
}
