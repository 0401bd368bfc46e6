//! `bankfull guard --guest`: connections of a namespace behind a veth, to which a host forwards.
//!
//! Skipped as the tests of the guard are, and on kernels before Linux 6.6.

use super::guard::{FREE_WINDOW, Flows, PORT, Scene, wait_until};
use bankfull_lab::base::notify;
use bankfull_lab::topology::hosts::Hosts;
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;

/// Interface of the host behind which the guest is.
const INTERFACE: &str = "guest0";

const IPV4: &str = "10.78.0.2";
const IPV6: &str = "fd78::2";
const TAGGED: &str = "10.79.0.2";

/// Guest of the receiving host, outside of the cgroup that is guarded.
struct Guest {
    namespace: String,
    cgroup: PathBuf,
}

impl Guest {
    fn new(scene: &Scene) -> Option<Self> {
        if bankfull_sys::kernel_version().is_some_and(|version| version < (6, 6)) {
            notify("skipped: guests need Linux 6.6");
            return None;
        }
        let (sender, host) = (scene.hosts.namespace(0), scene.hosts.namespace(1));
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.contains(" cgroup2 ")).unwrap();
        let cgroup = PathBuf::from(mount.split(' ').nth(1).unwrap()).join(&host);
        fs::create_dir(&cgroup).unwrap();
        let guest = Self { namespace: format!("{host}-guest"), cgroup };
        let namespace = &guest.namespace;
        let enable = |name: &str, value: &str| fs::write(format!("/proc/sys/net/{name}"), value);
        for at in [0, 1] {
            scene.hosts.run_on(at, || enable("ipv6/conf/all/disable_ipv6", "0")).unwrap();
        }
        scene.hosts.run_on(1, || enable("ipv4/ip_forward", "1")).unwrap();
        scene.hosts.run_on(1, || enable("ipv6/conf/all/forwarding", "1")).unwrap();
        for line in [
            format!("netns add {namespace}"),
            format!("-n {host} addr add fd77::2/64 dev lab0 nodad"),
            format!("-n {sender} addr add fd77::1/64 dev lab0 nodad"),
            format!("-n {sender} route add 10.78.0.0/15 via {} dev lab0", Hosts::address(1)),
            format!("-n {sender} route add fd78::/64 via fd77::2 dev lab0"),
        ] {
            assert!(ip(&line), "ip {line}");
        }
        guest.add_interface(&host);
        Some(guest)
    }

    /// Adds the interface between host and guest.
    fn add_interface(&self, host: &str) {
        let namespace = &self.namespace;
        for line in [
            format!("-n {host} link add {INTERFACE} type veth peer name eth0 netns {namespace}"),
            format!("-n {host} link set {INTERFACE} up"),
            format!("-n {namespace} link set eth0 up"),
            format!("-n {host} addr add 10.78.0.1/24 dev {INTERFACE}"),
            format!("-n {host} addr add fd78::1/64 dev {INTERFACE} nodad"),
            format!("-n {namespace} addr add {IPV4}/24 dev eth0"),
            format!("-n {namespace} addr add {IPV6}/64 dev eth0 nodad"),
            format!("-n {namespace} route add default via 10.78.0.1"),
            format!("-n {namespace} route add default via fd78::1"),
        ] {
            assert!(ip(&line), "ip {line}");
        }
    }

    /// Adds a tagged network between host and guest. Returns whether the kernel has such.
    fn add_vlan(&self, scene: &Scene) -> bool {
        let (host, namespace) = (scene.hosts.namespace(1), &self.namespace);
        let is_known =
            ip(&format!("-n {host} link add {INTERFACE}.7 link {INTERFACE} type vlan id 7"));
        is_known
            && [
                format!("-n {namespace} link add eth0.7 link eth0 type vlan id 7"),
                format!("-n {host} link set {INTERFACE}.7 up"),
                format!("-n {namespace} link set eth0.7 up"),
                format!("-n {host} addr add 10.79.0.1/24 dev {INTERFACE}.7"),
                format!("-n {namespace} addr add {TAGGED}/24 dev eth0.7"),
            ]
            .iter()
            .all(|line| ip(line))
    }

    /// Connects the sending host to the guest.
    fn connect(&self, scene: &Scene, to: &str, count: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
        let address = SocketAddr::new(to.parse::<IpAddr>().unwrap(), PORT);
        let listener = self.run(|| TcpListener::bind(address).unwrap());
        let pair = |_| {
            let sender = scene.hosts.run_on(0, || TcpStream::connect(address)).unwrap();
            (sender, listener.accept().unwrap().0)
        };
        (0..count).map(pair).unzip()
    }

    /// Runs `work` on a thread in the guest's namespace.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.namespace)).unwrap();
        let enter_and_work = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(enter_and_work).join().unwrap())
    }

    fn start_guard(&self, scene: &mut Scene) {
        let cgroup = self.cgroup.to_str().unwrap().to_owned();
        scene.start_guard(&["--mode", "hold", "--guest", INTERFACE, "--cgroup", &cgroup]);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.namespace));
        let _ = fs::remove_dir(&self.cgroup);
    }
}

/// Sending sides of some connections, and their flows.
struct Sending {
    senders: Vec<TcpStream>,
    flows: Flows,
}

impl Sending {
    fn start(scene: &Scene, streams: (Vec<TcpStream>, Vec<TcpStream>)) -> Self {
        let senders = streams.0.iter().map(|one| one.try_clone().unwrap()).collect();
        Self { senders, flows: scene.send(streams) }
    }

    /// Returns the windows that the senders see.
    fn windows(&self) -> Vec<u32> {
        let window = |one| bankfull_sys::tcp_info(one).unwrap().snd_wnd.unwrap_or_default();
        self.senders.iter().map(window).collect()
    }

    /// Waits until more arrives.
    fn wait_for_data(&self) {
        let received = || self.flows.received.load(Ordering::Relaxed);
        let before = received();
        wait_until("data goes on", || received() > before + (1 << 20));
    }
}

fn ip(line: &str) -> bool {
    Command::new("ip").args(line.split(' ')).status().is_ok_and(|status| status.success())
}

#[test]
fn windows_of_guests_fit_the_port_and_are_lifted() {
    let Some(mut scene) = Scene::new() else { return };
    let Some(guest) = Guest::new(&scene) else { return };
    guest.start_guard(&mut scene);
    let flows = [IPV4, IPV6].map(|to| Sending::start(&scene, guest.connect(&scene, to, 2)));
    let windows = || flows.iter().flat_map(Sending::windows);
    wait_until("windows fit the port", || {
        !scene.events("window").is_empty() && windows().all(|window| window < FREE_WINDOW / 2)
    });
    for (to, flows) in [IPV4, IPV6].iter().zip(&flows) {
        flows.wait_for_data();
        let local = SocketAddr::new(to.parse().unwrap(), PORT).to_string();
        let seen = scene.wait_for("connection", |event| event["local"] == local.as_str());
        assert_eq!((&seen["forwarded"], &seen["passive"]), (&true.into(), &true.into()), "{seen}");
        assert_eq!(seen["standing"], "guarded", "{seen}");
        assert!(seen["rtt_seconds"].as_f64().is_some_and(|rtt| rtt < 0.1), "{seen}");
    }
    assert!(scene.end_guard(Signal::TERM));
    wait_until("windows are free", || windows().all(|window| window > FREE_WINDOW));
}

#[test]
fn windows_of_guests_are_free_once_the_guard_was_killed() {
    let Some(mut scene) = Scene::new() else { return };
    let Some(guest) = Guest::new(&scene) else { return };
    guest.start_guard(&mut scene);
    let flows = Sending::start(&scene, guest.connect(&scene, IPV4, 4));
    wait_until("windows fit the port", || {
        !scene.events("window").is_empty()
            && flows.windows().iter().all(|&window| window < FREE_WINDOW / 2)
    });
    scene.end_guard(Signal::KILL);
    wait_until("windows are free", || flows.windows().iter().all(|&window| window > FREE_WINDOW));
}

#[test]
fn guests_are_followed_again_once_their_interface_returns() {
    let Some(mut scene) = Scene::new() else { return };
    let Some(guest) = Guest::new(&scene) else { return };
    guest.start_guard(&mut scene);
    let host = scene.hosts.namespace(1);
    assert!(ip(&format!("-n {host} link del {INTERFACE}")));
    scene.wait_for("guest", |event| event["followed"] == false);
    guest.add_interface(&host);
    scene.wait_for("guest", |event| event["followed"] == true);
    let flows = Sending::start(&scene, guest.connect(&scene, IPV4, 4));
    wait_until("windows fit the port", || {
        !scene.events("window").is_empty()
            && flows.windows().iter().all(|&window| window < FREE_WINDOW / 2)
    });
    assert!(scene.end_guard(Signal::TERM));
}

#[test]
fn tagged_connections_of_guests_are_followed() {
    let Some(mut scene) = Scene::new() else { return };
    let Some(guest) = Guest::new(&scene) else { return };
    if !guest.add_vlan(&scene) {
        notify("skipped: this kernel has no VLANs");
        return;
    }
    guest.start_guard(&mut scene);
    let flows = Sending::start(&scene, guest.connect(&scene, TAGGED, 4));
    wait_until("windows fit the port", || {
        !scene.events("window").is_empty()
            && flows.windows().iter().all(|&window| window < FREE_WINDOW / 2)
    });
    flows.wait_for_data();
}

#[test]
fn guest_connections_from_before_the_guard_are_untouched() {
    let Some(mut scene) = Scene::new() else { return };
    let Some(guest) = Guest::new(&scene) else { return };
    let before = guest.connect(&scene, IPV4, 2);
    guest.start_guard(&mut scene);
    // Their window scales are unknown.
    let old = Sending::start(&scene, before);
    let new = Sending::start(&scene, guest.connect(&scene, IPV6, 2));
    wait_until("windows fit the port", || {
        !scene.events("window").is_empty()
            && new.windows().iter().all(|&window| window < FREE_WINDOW / 2)
    });
    old.wait_for_data();
    wait_until("windows are free", || old.windows().iter().all(|&window| window > FREE_WINDOW));
    assert_eq!(scene.events("connection").len(), 2);
}
