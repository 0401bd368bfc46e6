//! A server in the middle, which records a session between the program and a daemon.

use super::recording::{Channel, Line, is_timed, message};
use crate::harness::{TlsServer, Wire, polled_tls_to};
use bankfull_proto::limits::MAX_CONTROL_FRAME_BYTES;
use bankfull_proto::wire::attach::CONTROL_MAGIC;
use bankfull_proto::wire::frame::{FrameReader, prefix};
use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, Mutex};

/// Lines so far.
pub(super) type Log = Arc<Mutex<Vec<Line>>>;

/// Starts to record what clients exchange with the daemon at a port.
pub(super) fn start(daemon: u16) -> (TlsServer, Log) {
    let log = Log::default();
    let own = Arc::clone(&log);
    let server = TlsServer::start(move |client, magic| {
        carry(client, polled_tls_to(daemon, &magic), magic, &own);
    });
    (server, log)
}

/// Carries both directions until one side closes.
fn carry(mut client: Wire, mut server: Wire, magic: [u8; 8], log: &Log) {
    let channel = if magic == CONTROL_MAGIC { Channel::Control } else { Channel::Data };
    let mut sides = [Side::new(true, channel), Side::new(false, channel)];
    if channel == Channel::Data {
        sides[0].log(&magic, log);
    }
    loop {
        let is_open = [
            sides[0].pass(&mut client, &mut server, log),
            sides[1].pass(&mut server, &mut client, log),
        ];
        if is_open.contains(&false) {
            // Passes on what the other side sent before it saw the end.
            sides[0].pass(&mut client, &mut server, log);
            sides[1].pass(&mut server, &mut client, log);
            return;
        }
    }
}

/// One direction of a connection.
struct Side {
    from_client: bool,
    channel: Channel,
    frames: FrameReader,
    /// Bytes of the server's magic that are still to come.
    magic_left: usize,
}

impl Side {
    fn new(from_client: bool, channel: Channel) -> Self {
        let has_magic = channel == Channel::Control && !from_client;
        let frames = FrameReader::new(MAX_CONTROL_FRAME_BYTES);
        Self { from_client, channel, frames, magic_left: if has_magic { 8 } else { 0 } }
    }

    /// Passes on the available bytes, after logging them. False at the end of the stream.
    fn pass(&mut self, from: &mut Wire, to: &mut Wire, log: &Log) -> bool {
        let mut buffer = vec![0; 256 << 10];
        match from.read(&mut buffer) {
            Ok(n @ 1..) => {
                self.log(&buffer[..n], log);
                to.write_all(&buffer[..n]).and_then(|()| to.flush()).is_ok()
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => true,
            _ => false,
        }
    }

    fn log(&mut self, bytes: &[u8], log: &Log) {
        let (from_client, channel) = (self.from_client, self.channel);
        let mut log = log.lock().unwrap();
        if channel == Channel::Data {
            match log.last_mut() {
                Some(last) if (last.from_client, last.channel) == (from_client, channel) => {
                    last.bytes.extend_from_slice(bytes);
                }
                _ => log.push(Line { from_client, channel, bytes: bytes.to_vec() }),
            }
            return;
        }
        let magic = self.magic_left.min(bytes.len());
        self.magic_left -= magic;
        self.frames.push(&bytes[magic..]);
        while let Some(body) = self.frames.next_frame().unwrap() {
            let bytes = [&prefix(body.len()).unwrap()[..], body].concat();
            if !is_timed(&message(&bytes)) {
                log.push(Line { from_client, channel, bytes });
            }
        }
    }
}
