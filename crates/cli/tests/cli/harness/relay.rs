//! A network that passes only UDP: a UDP port in front of that of a daemon, with no TCP listener on
//! its number.

use super::remote::{remote_address, remote_url, there};
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Interval at which threads check for the end.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A relay on its own port, on the host of the peer.
#[derive(Debug)]
pub(crate) struct Relay {
    port: u16,
    is_over: Arc<AtomicBool>,
}

impl Relay {
    /// Starts a relay for the daemon at a port of the peer.
    pub(crate) fn start(to: u16) -> Self {
        let target = remote_address(to).parse().unwrap();
        let socket = bind();
        let port = socket.local_addr().unwrap().port();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        thread::spawn(move || carry(&Arc::new(socket), target, &over));
        Self { port, is_over }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        remote_url(self.port, path)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

fn bind() -> UdpSocket {
    let socket = there(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    socket.set_read_timeout(Some(CHECK_INTERVAL)).unwrap();
    socket
}

/// Relays datagrams, with a separate socket towards the daemon per client.
fn carry(near: &Arc<UdpSocket>, target: SocketAddr, is_over: &Arc<AtomicBool>) {
    let mut clients: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut datagram = vec![0; 1 << 16];
    while !is_over.load(Ordering::SeqCst) {
        let Ok((len, client)) = near.recv_from(&mut datagram) else { continue };
        let far = clients.entry(client).or_insert_with(|| {
            let far = Arc::new(bind());
            let (near, back, over) = (Arc::clone(near), Arc::clone(&far), Arc::clone(is_over));
            thread::spawn(move || carry_back(&back, &near, client, &over));
            far
        });
        // Datagrams that cannot be sent are lost, as in any network.
        let _ = far.send_to(&datagram[..len], target);
    }
}

fn carry_back(far: &UdpSocket, near: &UdpSocket, client: SocketAddr, is_over: &AtomicBool) {
    let mut datagram = vec![0; 1 << 16];
    while !is_over.load(Ordering::SeqCst) {
        if let Ok(len) = far.recv(&mut datagram) {
            let _ = near.send_to(&datagram[..len], client);
        }
    }
}
