//! Where the far side is: on the loopback interface, or across the path that `bankfull-lab path`
//! has built around the tests. Then all that clients connect to is on the receiver's host, daemons,
//! ssh servers, proxies and servers that the tests play, and only the client is here. Files are the
//! same on both hosts.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

/// The receiver's address, as `bankfull-lab path` tells it.
const ADDRESS: &str = "RECEIVER";

/// The receiver's network namespace, as `bankfull-lab path` tells it.
const NAMESPACE: &str = "RECEIVER_NAMESPACE";

/// How much longer a test waits where there is a path. (ours: at 150 ms and 1 % loss a handshake
/// takes a second now and then, and a tree that is copied in 3 s over loopback takes 10 to 30 s)
const PATH_PATIENCE: u32 = 5;

/// Address and namespace of the receiver; `None` without a path.
static RECEIVER: LazyLock<Option<(String, String)>> = LazyLock::new(|| {
    let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    // Other programs may have a use for the first name, none for the second.
    variable(NAMESPACE).map(|namespace| {
        let address = variable(ADDRESS).expect("RECEIVER is set where RECEIVER_NAMESPACE is");
        (address, namespace)
    })
});

/// Whether a path lies between the client and the far side.
pub(crate) fn is_over_path() -> bool {
    RECEIVER.is_some()
}

/// The far side's address.
pub(crate) fn far_host() -> &'static str {
    RECEIVER.as_ref().map_or("127.0.0.1", |(address, _)| address)
}

/// The far side's address with a port, as messages spell it.
pub(crate) fn far_address(port: u16) -> String {
    format!("{}:{port}", far_host())
}

/// A place of the daemon at a port of the far side.
pub(crate) fn far_url(port: u16, path: &str) -> String {
    format!("bankfull://{}/{path}", far_address(port))
}

/// A time that is enough on the loopback interface, or what is enough across the path.
pub(crate) fn patience(on_loopback: Duration) -> Duration {
    if is_over_path() { on_loopback * PATH_PATIENCE } else { on_loopback }
}

/// Does something on the far side's host: sockets and programs that it makes are there.
pub(crate) fn there<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let Some((_, namespace)) = &*RECEIVER else { return work() };
    let on_its_way = || {
        bankfull_sys::tun::enter_network_namespace(&Path::new("/run/netns").join(namespace))?;
        work()
    };
    // The thread ends with it: there is no way back.
    thread::scope(|scope| scope.spawn(on_its_way).join()).expect("no panic on the way")
}

/// Starts a program on the far side's host.
pub(crate) fn spawn_there(command: &mut Command) -> io::Result<Child> {
    there(|| command.spawn())
}

/// A listener on the far side's host, on a free port.
pub(crate) fn listen_there() -> (TcpListener, u16) {
    let listener = there(|| TcpListener::bind((far_host(), 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// A connection from here to a port of the far side.
pub(crate) fn connect_far(port: u16) -> TcpStream {
    TcpStream::connect((far_host(), port)).unwrap()
}
