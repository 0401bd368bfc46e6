//! The daemon under a service manager, and with a certificate of the administrator.

use super::command;
use super::harness::{
    Daemon, Scratch, remote_address, run, script, set_mode, wait_until, write_file,
};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::Signal;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn new(here: &Scratch) -> Self {
        let socket = UnixDatagram::bind(here.join("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(socket)
    }

    /// Reads messages until one has the line; returns those before.
    #[track_caller]
    fn until(&self, line: &str) -> Vec<String> {
        let mut before = Vec::new();
        loop {
            let mut buf = [0; 4096];
            let len = self.0.recv(&mut buf).unwrap_or_else(|e| panic!("{line}: {e}, {before:?}"));
            let message = String::from_utf8(buf[..len].to_vec()).unwrap();
            if message.lines().any(|one| one.starts_with(line)) {
                return before;
            }
            before.push(message);
        }
    }
}

fn serve(here: &Scratch) -> Command {
    let mut command = command();
    command.arg("serve").arg(here.path()).args(["--listen", &remote_address(0), "--json"]);
    command.arg("--state-dir").arg(here.join("state")).stdin(Stdio::null());
    command
}

#[test]
fn service_manager_learns_of_each_state() {
    let here = Scratch::new();
    let manager = Manager::new(&here);
    let mut daemon = serve(&here);
    daemon.env("NOTIFY_SOCKET", here.join("notify")).env("WATCHDOG_USEC", "400000");
    let mut daemon = Daemon::from_command(&mut daemon);
    manager.until("READY=1");
    (0..3).for_each(|_| drop(manager.until("WATCHDOG=1")));
    manager.until("STATUS=0 sessions");
    daemon.running().signal(Signal::HUP);
    manager.until("RELOADING=1");
    manager.until("READY=1");
    // While the daemon is stopped, it sends no watchdog notification.
    daemon.running().signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(300));
    manager.0.set_nonblocking(true).unwrap();
    while manager.0.recv(&mut [0; 4096]).is_ok() {}
    std::thread::sleep(Duration::from_millis(600));
    assert!(manager.0.recv(&mut [0; 4096]).is_err());
    manager.0.set_nonblocking(false).unwrap();
    daemon.running().signal(Signal::CONT);
    manager.until("WATCHDOG=1");
    daemon.running().signal(Signal::TERM);
    manager.until("STOPPING=1");
    wait_until("the daemon ends", || daemon.is_over());
}

/// Returns the daemon with an inherited socket, as a service manager starts it.
fn activated(here: &Scratch, socket: impl AsFd) -> Command {
    // The child inherits it under its number. Children of other tests may, too, which is harmless.
    fcntl_setfd(&socket, FdFlags::empty()).unwrap();
    let number = socket.as_fd().as_raw_fd();
    let text = format!("exec 3<&{number}; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"");
    script(&text, &serve(here))
}

#[test]
fn inherited_socket_is_served() {
    let here = Scratch::new();
    write_file(&here.join("f"), b"content");
    // The host of the peer is another one when tests run over a path.
    let Ok(listener) = TcpListener::bind(remote_address(0)) else { return };
    let port = listener.local_addr().unwrap().port();
    let daemon = Daemon::from_command(&mut activated(&here, &listener));
    drop(listener);
    assert_eq!(daemon.port, port);
    let there = Scratch::new();
    run(daemon.cp().arg(daemon.url("f")).arg(there.join("f"))).expect(0);
    assert_eq!(fs::read(there.join("f")).unwrap(), b"content");
}

#[test]
fn unusable_inherited_socket_is_an_error() {
    let here = Scratch::new();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let refused = run(&mut activated(&here, &datagrams));
    refused.expect(11).says(&["the socket of the service manager cannot be used"]);
}

/// Files of a certificate, in a daemon's directory.
fn place(here: &Scratch, certificate: &str, key: &str) {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/data");
    fs::copy(format!("{data}/{certificate}.pem"), here.join("c.pem")).unwrap();
    let _ = fs::remove_file(here.join("c.key"));
    fs::copy(format!("{data}/{key}.key"), here.join("c.key")).unwrap();
    set_mode(&here.join("c.key"), 0o640);
}

fn serve_certificate(here: &Scratch) -> Command {
    let mut command = serve(here);
    command.arg("--certificate").arg(here.join("c.pem"));
    command.arg("--private-key").arg(here.join("c.key"));
    command
}

/// Fingerprints of the files, by `openssl x509 -fingerprint -sha256`.
const FINGERPRINTS: [&str; 2] = [
    "sha256:cd5745d97b4f17ec875b4063711fff9be9a40e135908f2c222f7715dc7375ed1",
    "sha256:cd3dca8766446268edb969d43570d84972861ea73456ab206535b44579e50d29",
];

#[test]
fn certificate_is_read_again_at_sighup() {
    let here = Scratch::new();
    place(&here, "a", "a");
    write_file(&here.join("f"), b"content");
    let daemon = Daemon::from_command(&mut serve_certificate(&here));
    assert_eq!(daemon.fingerprint, FINGERPRINTS[0]);
    assert!(!here.join("state/identity").exists());
    let copy = |fingerprint: &str| {
        let mut copy = super::harness::cp();
        copy.args(["--fingerprint", fingerprint]).arg(daemon.url("f"));
        run(copy.arg(here.join("g")))
    };
    copy(FINGERPRINTS[0]).expect(0);
    let warned = |says: &str| {
        daemon.events().iter().any(|event| {
            event["event"] == "warning" && event["message"].as_str().unwrap().contains(says)
        })
    };
    // One that does not fit its key leaves the earlier one in force.
    place(&here, "b", "a");
    daemon.running().signal(Signal::HUP);
    wait_until("the daemon warns", || warned("the earlier certificate stays in force"));
    assert!(warned("the certificate does not belong to the private key"));
    copy(FINGERPRINTS[0]).expect(0);
    place(&here, "b", "b");
    daemon.running().signal(Signal::HUP);
    wait_until("the new one is in force", || copy(FINGERPRINTS[1]).code == Some(0));
    assert_ne!(copy(FINGERPRINTS[0]).code, Some(0));
}

#[test]
fn unusable_certificate_is_refused_at_the_start() {
    let here = Scratch::new();
    let refused = |says: &str| run(&mut serve_certificate(&here)).expect(11).says(&[says]);
    refused("cannot read the private key");
    place(&here, "a", "b");
    refused("the certificate does not belong to the private key");
    place(&here, "a", "a");
    set_mode(&here.join("c.key"), 0o644);
    refused("is open to other users (mode 0644): chmod 600 it");
    set_mode(&here.join("c.key"), 0o600);
    write_file(&here.join("c.pem"), b"text");
    refused("c.pem has no certificate in PEM");
    place(&here, "a", "a");
    write_file(&here.join("c.key"), b"text");
    refused("c.key has no private key in PEM");
    let half = run(serve(&here).arg("--certificate").arg(here.join("c.pem")));
    half.expect(1).says(&["--private-key"]);
}

#[test]
fn invite_has_the_fingerprint_of_the_certificate() {
    let here = Scratch::new();
    place(&here, "a", "a");
    let file = here.join("serve.toml");
    let text = format!(
        "[serve]\nstate-dir = \"{0}/state\"\ncertificate = \"{0}/c.pem\"\nprivate-key = \"{0}/c.key\"\n[share.data]\npath = \"{0}\"\n",
        here.path().display()
    );
    write_file(&file, text.as_bytes());
    set_mode(&file, 0o600);
    let invited =
        run(command().args(["token", "create", "x", "--invite"]).env("BANKFULL_CONFIG", file));
    let invited = invited.expect(0);
    assert!(invited.out.contains(FINGERPRINTS[0]), "{}", invited.out);
}
