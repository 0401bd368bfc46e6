//! Channel binding (RFC 5056): a value that the two ends of a TLS connection share, and no others.

use super::socket::Socket;
use bankfull_proto::wire::control::KEY_PROOF_LABEL;
use rustls::Connection;

/// Channel binding of a control connection.
pub(crate) type ChannelBinding = [u8; 32];

/// Exports the binding of a connection after its handshake; `None` without TLS and QUIC.
pub(crate) fn channel_binding(tls: Option<&Connection>, socket: &Socket) -> Option<ChannelBinding> {
    let mut value = [0; 32];
    match (tls, socket) {
        (Some(tls), _) => {
            tls.export_keying_material(&mut value[..], KEY_PROOF_LABEL, None).ok()?;
        }
        (None, Socket::Quic(stream)) => stream.export(&mut value, KEY_PROOF_LABEL)?,
        (None, _) => return None,
    }
    Some(value)
}
