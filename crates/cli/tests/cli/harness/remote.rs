//! Host of the peer: on the loopback interface, or across the path that `bankfull-lab path` has
//! built around the tests. Across a path, everything that clients connect to is on the receiver's
//! host: daemons, ssh servers, proxies and simulated servers. Both hosts share the files.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

/// Variable with the address of the receiver, set by `bankfull-lab path`.
const ADDRESS: &str = "RECEIVER";

/// Variable with the network namespace of the receiver, set by `bankfull-lab path`.
const NAMESPACE: &str = "RECEIVER_NAMESPACE";

/// Factor of time limits across a path. (chosen: at 150 ms and 1 % loss a handshake sometimes takes
/// one second, and a tree that is copied in 3 s over loopback takes 10 to 30 s)
const PATH_PATIENCE: u32 = 5;

/// Address and namespace of the receiver; `None` without a path.
static RECEIVER: LazyLock<Option<(String, String)>> = LazyLock::new(|| {
    let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    // Other programs may use the first name, none the second.
    variable(NAMESPACE).map(|namespace| {
        let address = variable(ADDRESS).expect("RECEIVER is set where RECEIVER_NAMESPACE is");
        (address, namespace)
    })
});

/// True if a path lies between the client and the peer.
pub(crate) fn is_over_path() -> bool {
    RECEIVER.is_some()
}

/// Returns the address of the peer.
pub(crate) fn remote_host() -> &'static str {
    RECEIVER.as_ref().map_or("127.0.0.1", |(address, _)| address)
}

/// Returns the address of the peer with a port, as in messages.
pub(crate) fn remote_address(port: u16) -> String {
    format!("{}:{port}", remote_host())
}

/// Returns a location at the daemon on a port of the peer.
pub(crate) fn remote_url(port: u16, path: &str) -> String {
    format!("bankfull://{}/{path}", remote_address(port))
}

/// Scales a time limit for the loopback interface to the path.
pub(crate) fn patience(on_loopback: Duration) -> Duration {
    if is_over_path() { on_loopback * PATH_PATIENCE } else { on_loopback }
}

/// Runs work on the host of the peer: its sockets and programs are created there.
pub(crate) fn there<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let Some((_, namespace)) = &*RECEIVER else { return work() };
    let on_its_way = || {
        bankfull_sys::tun::enter_network_namespace(&Path::new("/run/netns").join(namespace))?;
        work()
    };
    // The thread ends with the work, as it cannot leave the namespace.
    thread::scope(|scope| scope.spawn(on_its_way).join()).expect("no panic on the way")
}

/// Starts a program on the host of the peer.
pub(crate) fn spawn_remote(command: &mut Command) -> io::Result<Child> {
    there(|| command.spawn())
}

/// Listens on a free port of the host of the peer.
pub(crate) fn listen_remote() -> (TcpListener, u16) {
    let listener = there(|| TcpListener::bind((remote_host(), 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Connects to a port of the peer.
pub(crate) fn connect_remote(port: u16) -> TcpStream {
    TcpStream::connect((remote_host(), port)).unwrap()
}
