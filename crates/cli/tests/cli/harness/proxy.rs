//! A faulty network: a TCP proxy in front of a daemon that cuts or stalls connections after a
//! number of bytes, or limits their rate.

use super::remote::{listen_remote, remote_address, remote_url, there};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Number of bytes that is never reached.
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
struct State {
    target: String,
    /// Bytes passed on all connections, in both directions.
    passed: AtomicU64,
    cut_one_at: AtomicU64,
    /// Number of the connection to cut, where 0 is the control connection; 0 means any stream.
    cut_number: AtomicUsize,
    cut_all_at: AtomicU64,
    stall_at: AtomicU64,
    /// Rate limit of a connection per direction, in byte/s.
    pace: AtomicU64,
    cuts: AtomicUsize,
    /// True if nothing passes and no connection is accepted.
    is_down: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
}

/// A proxy on its own port.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

impl Proxy {
    /// Starts a proxy for the daemon at a port of the peer, which passes everything.
    pub(crate) fn start(to: u16) -> Self {
        let (listener, port) = listen_remote();
        let state = Arc::new(State {
            target: remote_address(to),
            passed: AtomicU64::new(0),
            cut_one_at: AtomicU64::new(NEVER),
            cut_number: AtomicUsize::new(0),
            cut_all_at: AtomicU64::new(NEVER),
            stall_at: AtomicU64::new(NEVER),
            pace: AtomicU64::new(NEVER),
            cuts: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
            sockets: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&state);
        thread::spawn(move || accepting.accept(&listener));
        Self { port, state }
    }

    /// Cuts one stream after it has carried this number of bytes. The control connection of a
    /// client, its first one, is not affected.
    pub(crate) fn cut_one_after(&self, bytes: u64) {
        self.state.cut_one_at.store(bytes, Ordering::SeqCst);
    }

    /// Cuts the stream of this number, from 1, before its first byte.
    pub(crate) fn cut_at_start(&self, number: usize) {
        self.state.cut_number.store(number, Ordering::SeqCst);
        self.cut_one_after(0);
    }

    /// Cuts everything permanently after this number of further bytes.
    pub(crate) fn cut_all_after(&self, bytes: u64) {
        let at = self.state.passed.load(Ordering::SeqCst) + bytes;
        self.state.cut_all_at.store(at, Ordering::SeqCst);
    }

    /// Stalls after this number of further bytes.
    pub(crate) fn stall_after(&self, bytes: u64) {
        let at = self.state.passed.load(Ordering::SeqCst) + bytes;
        self.state.stall_at.store(at, Ordering::SeqCst);
    }

    /// Limits each connection to this rate per direction.
    pub(crate) fn slow_to(&self, bytes_per_second: u64) {
        self.state.pace.store(bytes_per_second, Ordering::SeqCst);
    }

    /// Removes all faults.
    pub(crate) fn mend(&self) {
        let state = &self.state;
        for at in [&state.cut_one_at, &state.cut_all_at, &state.stall_at, &state.pace] {
            at.store(NEVER, Ordering::SeqCst);
        }
        self.state.is_down.store(false, Ordering::SeqCst);
    }

    /// True if everything is cut.
    pub(crate) fn is_down(&self) -> bool {
        self.state.is_down.load(Ordering::SeqCst)
    }

    /// Returns the number of connections cut individually.
    pub(crate) fn cuts(&self) -> usize {
        self.state.cuts.load(Ordering::SeqCst)
    }

    /// Returns a location at the daemon behind the proxy.
    pub(crate) fn url(&self, path: &str) -> String {
        remote_url(self.port, path)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        self.state.cut_all();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(remote_address(self.port));
    }
}

impl State {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let mut clients = 0usize;
        for client in listener.incoming().flatten() {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            if self.is_down.load(Ordering::SeqCst) {
                continue;
            }
            let Ok(server) = there(|| TcpStream::connect(&self.target)) else { continue };
            for socket in [&client, &server] {
                socket.set_nodelay(true).unwrap();
                self.sockets.lock().unwrap().push(socket.try_clone().unwrap());
            }
            let carried = Arc::new(AtomicU64::new(0));
            let number = clients;
            clients += 1;
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let (state, carried) = (Arc::clone(self), Arc::clone(&carried));
                thread::spawn(move || state.pump(from, to, &carried, number));
            }
        }
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream, carried: &AtomicU64, number: usize) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            let carried = carried.fetch_add(n as u64, Ordering::SeqCst) + n as u64;
            let passed = self.passed.fetch_add(n as u64, Ordering::SeqCst) + n as u64;
            if passed >= self.cut_all_at.load(Ordering::SeqCst) {
                self.is_down.store(true, Ordering::SeqCst);
                self.cut_all();
                return;
            }
            if self.is_to_be_cut(number, carried) {
                self.cuts.fetch_add(1, Ordering::SeqCst);
                break;
            }
            while passed >= self.stall_at.load(Ordering::SeqCst) {
                if self.is_over.load(Ordering::SeqCst) {
                    return;
                }
                thread::sleep(Duration::from_millis(10));
            }
            let pace = self.pace.load(Ordering::SeqCst);
            thread::sleep(Duration::from_secs_f64(n as f64 / pace as f64));
            if to.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        for socket in [from, to] {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// True, once, if this connection is to be cut.
    fn is_to_be_cut(&self, number: usize, carried: u64) -> bool {
        let wanted = self.cut_number.load(Ordering::SeqCst);
        let is_it = number > 0 && (wanted == 0 || wanted == number);
        is_it
            && carried >= self.cut_one_at.load(Ordering::SeqCst)
            && self.cut_one_at.swap(NEVER, Ordering::SeqCst) != NEVER
    }

    fn cut_all(&self) {
        for socket in self.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}
