//! One data stream inside the control channel, for hosts whose data port cannot be reached.
//!
//! A socket pair stands in for the connection: the session uses one end like any data stream, and a
//! thread moves bytes between the other end and control messages.

use super::control::{ControlReader, Outbox};
use bankfull_proto::wire::control::{Bytes, Message};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;

/// Payload of a message, at most. (chosen: short, so that acknowledgements do not wait long behind
/// one)
const MAX_PAYLOAD_BYTES: usize = 64 << 10;

/// Opens this side's end of the tunnel; the peer must do the same.
pub(crate) fn open(reader: &mut ControlReader, outbox: &Outbox) -> io::Result<UnixStream> {
    let (local, relayed) = UnixStream::pair()?;
    let mut sink = relayed.try_clone()?;
    reader.set_tunnel(Box::new(move |bytes| match bytes {
        [] => sink.shutdown(Shutdown::Write),
        bytes => sink.write_all(bytes),
    }));
    let outbox = outbox.clone();
    // The thread ends once the session closes the local end.
    thread::Builder::new().name("tunnel".to_owned()).spawn(move || relay(relayed, &outbox))?;
    Ok(local)
}

/// Posts the bytes of `source` as messages until its end, which an empty message marks.
fn relay(mut source: UnixStream, outbox: &Outbox) {
    let mut buffer = vec![0; MAX_PAYLOAD_BYTES];
    let mut has_started = false;
    loop {
        let n = source.read(&mut buffer).unwrap_or(0);
        if n > 0 && !has_started {
            outbox.on_tunnel_start();
            has_started = true;
        }
        if n == 0 && !has_started {
            // The peer does not know of this tunnel, so there is no end to mark.
            return;
        }
        outbox.wait_for_room();
        outbox.post(&Message::Tunnel(Bytes(buffer[..n].to_vec())));
        if n == 0 {
            return outbox.on_tunnel_end();
        }
    }
}
