//! One data connection inside the control channel, for hosts whose data port cannot be reached.
//!
//! A socket pair stands in for the connection: whatever works on a data connection works on its one
//! end, and the other end is pumped to and from control messages.

use crate::net::control::{ControlReader, Outbox};
use bankfull_proto::wire::control::{Bytes, Message};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;

/// Bytes per message: small enough that an acknowledgement never waits long behind one.
const PIECE_BYTES: usize = 64 << 10;

/// Opens this side's end. The far side must do the same.
pub(crate) fn open(reader: &mut ControlReader, outbox: &Outbox) -> io::Result<UnixStream> {
    let (near, far) = UnixStream::pair()?;
    let mut sink = far.try_clone()?;
    reader.set_tunnel(Box::new(move |bytes| match bytes {
        [] => sink.shutdown(Shutdown::Write),
        bytes => sink.write_all(bytes),
    }));
    let outbox = outbox.clone();
    // Ends when the near end is closed, which the session sees to.
    thread::Builder::new().name("tunnel".to_owned()).spawn(move || pump(far, &outbox))?;
    Ok(near)
}

fn pump(mut source: UnixStream, outbox: &Outbox) {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut began = false;
    loop {
        let n = source.read(&mut buffer).unwrap_or(0);
        if n > 0 && !began {
            outbox.pump_began();
            began = true;
        }
        if n == 0 && !began {
            // Nobody there knows of this tunnel.
            return;
        }
        outbox.wait_for_room();
        outbox.post(&Message::Tunnel(Bytes(buffer[..n].to_vec())));
        if n == 0 {
            return outbox.pump_ended();
        }
    }
}
