//! Replays one side of a recorded session against the program.

use super::recording::{Channel, DataFrames, Line, message, subjects};
use crate::harness::{TlsServer, Wire, patience, polled_tls_to};
use bankfull_proto::limits::MAX_CONTROL_FRAME_BYTES;
use bankfull_proto::wire::attach::{self, Attach, CONTROL_MAGIC, REPLY_BYTES, REQUEST_BYTES};
use bankfull_proto::wire::control::{self, Message, Welcome};
use bankfull_proto::wire::frame::FrameReader;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Time limit for what the program has to say next.
const PATIENCE: Duration = Duration::from_secs(20);

/// The side that is replayed, and what the program has said so far.
struct Side {
    is_client: bool,
    control: Option<Wire>,
    frames: FrameReader,
    data: Option<Wire>,
    data_frames: DataFrames,
    /// Bytes of the recorded attach request or reply that are still to be left out.
    skip: usize,
    /// Session in force: that of the program, or the recorded one.
    welcome: Welcome,
    seen: BTreeSet<String>,
    /// Connections of the program, if that is the client.
    accepted: Option<Receiver<(Wire, [u8; 8])>>,
    port: u16,
    /// Server's magic, of which the rest is still to come.
    magic_left: usize,
}

impl Side {
    fn new(is_client: bool, port: u16) -> Self {
        Self {
            is_client,
            control: None,
            frames: FrameReader::new(MAX_CONTROL_FRAME_BYTES),
            data: None,
            data_frames: DataFrames::of(!is_client),
            skip: if is_client { REQUEST_BYTES } else { REPLY_BYTES },
            welcome: Welcome::default(),
            seen: BTreeSet::new(),
            accepted: None,
            port,
            magic_left: if is_client { CONTROL_MAGIC.len() } else { 0 },
        }
    }

    /// Replays the lines of this side, each after the lines that it answers.
    fn replay(&mut self, lines: &[Line]) {
        let mut expected = BTreeSet::new();
        let mut recorded = DataFrames::of(!self.is_client);
        for line in lines {
            if line.from_client == self.is_client {
                self.wait_for(&expected);
                self.send(line);
            } else {
                expected.extend(match line.channel {
                    Channel::Control => subjects(&message(&line.bytes)),
                    Channel::Data => recorded.push(&line.bytes),
                });
            }
        }
        self.wait_for(&expected);
    }

    fn send(&mut self, line: &Line) {
        match line.channel {
            Channel::Control => {
                if let Message::Welcome(welcome) = message(&line.bytes) {
                    self.welcome = welcome;
                }
                let control = self.control.as_mut().expect("a control connection");
                // The program may have closed it after the last message.
                let _ = control.write_all(&line.bytes).and_then(|()| control.flush());
            }
            Channel::Data => {
                if self.data.is_none() {
                    self.attach(&line.bytes);
                }
                let skipped = self.skip.min(line.bytes.len());
                self.skip -= skipped;
                let data = self.data.as_mut().expect("a data stream");
                data.write_all(&line.bytes[skipped..]).and_then(|()| data.flush()).unwrap();
            }
        }
    }

    /// Attaches the data stream as client, or waits for it as server.
    fn attach(&mut self, recorded: &[u8]) {
        if !self.is_client {
            self.wait(|side| side.data.is_some(), || "a data stream".to_owned());
            return;
        }
        let request = recorded.first_chunk().expect("a whole attach request");
        let session = self.welcome.session;
        let attach = Attach { session, ..Attach::decode(request).unwrap() };
        let request = attach.encode(&self.welcome.session_key);
        self.data = Some(polled_tls_to(self.port, &request));
    }

    /// Waits until the program has sent all expected items.
    fn wait_for(&mut self, expected: &BTreeSet<String>) {
        self.wait(|side| expected.is_subset(&side.seen), || format!("{expected:?}"));
    }

    fn wait(&mut self, is_there: impl Fn(&Self) -> bool, what: impl Fn() -> String) {
        let started = Instant::now();
        while !is_there(self) {
            assert!(
                started.elapsed() < patience(PATIENCE),
                "the program says {:?}, and not all of {}",
                self.seen,
                what()
            );
            self.poll();
        }
    }

    /// Reads what the program has sent.
    fn poll(&mut self) {
        if let Some(accepted) = &self.accepted
            && let Ok((mut wire, magic)) = accepted.recv_timeout(Duration::from_millis(10))
        {
            if magic == CONTROL_MAGIC {
                wire.write_all(&CONTROL_MAGIC).and_then(|()| wire.flush()).unwrap();
                self.control = Some(wire);
            } else {
                self.answer_stream(wire, magic);
            }
        }
        let mut buffer = vec![0; 256 << 10];
        if let Some(n) = self.control.as_mut().and_then(|wire| read(wire, &mut buffer)) {
            self.on_control(&buffer[..n]);
        }
        if let Some(n) = self.data.as_mut().and_then(|wire| read(wire, &mut buffer)) {
            self.seen.extend(self.data_frames.push(&buffer[..n]));
        }
    }

    fn on_control(&mut self, bytes: &[u8]) {
        let magic = self.magic_left.min(bytes.len());
        self.magic_left -= magic;
        self.frames.push(&bytes[magic..]);
        while let Some(body) = self.frames.next_frame().unwrap() {
            let said = control::decode(body).unwrap();
            self.seen.extend(subjects(&said));
            if let Message::Welcome(welcome) = said {
                self.welcome = welcome;
            }
        }
    }

    /// Accepts a data stream of the program, if that sends its request.
    fn answer_stream(&mut self, mut wire: Wire, magic: [u8; 8]) {
        let mut request = [0; REQUEST_BYTES];
        request[..magic.len()].copy_from_slice(&magic);
        let mut filled = magic.len();
        let started = Instant::now();
        while filled < request.len() && started.elapsed() < patience(PATIENCE) {
            filled += read(&mut wire, &mut request[filled..]).unwrap_or(0);
        }
        assert!(attach::verify(&request, &self.welcome.session_key), "the proof of a stream");
        let nonce = Attach::decode(&request).unwrap().nonce;
        wire.write_all(&attach::reply(&self.welcome.session_key, &nonce)).unwrap();
        wire.flush().unwrap();
        self.data_frames.push(&request);
        self.data = Some(wire);
    }
}

/// Reads what is there.
fn read(wire: &mut Wire, buffer: &mut [u8]) -> Option<usize> {
    match wire.read(buffer) {
        Ok(n @ 1..) => Some(n),
        Err(e) if e.kind() == ErrorKind::WouldBlock => None,
        _ => {
            // At the end, the other connection still has to be read.
            std::thread::sleep(Duration::from_millis(1));
            None
        }
    }
}

/// Replays the client to the daemon at a port.
pub(super) fn as_client(lines: &[Line], port: u16) {
    let mut side = Side::new(true, port);
    side.control = Some(polled_tls_to(port, &CONTROL_MAGIC));
    side.replay(lines);
}

/// Replays the server to a client that `start` starts with its port and fingerprint.
pub(super) fn as_server<T>(lines: &[Line], start: impl FnOnce(&TlsServer) -> T) -> T {
    let (sender, accepted) = channel();
    let server = TlsServer::start(move |wire, magic| {
        // The replay may be over.
        let _ = sender.send((wire, magic));
    });
    let started = start(&server);
    let mut side = Side::new(false, server.port);
    side.accepted = Some(accepted);
    side.wait(|side| side.control.is_some(), || "a control connection".to_owned());
    side.replay(lines);
    started
}
