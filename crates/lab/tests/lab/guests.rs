//! `bankfull guard --guest`: connections of a namespace behind a veth, to which a host forwards.
//!
//! Skipped as the tests of the guard are, and on kernels before Linux 6.6.

use super::guard::{FREE_WINDOW, Flows, PORT, Scene, wait_until};
use bankfull_lab::base::notify;
use bankfull_lab::topology::hosts::Hosts;
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

/// Interface of the host behind which the guest is.
const INTERFACE: &str = "guest0";

/// Bridge in which that interface may be.
const BRIDGE: &str = "guests0";

const IPV4: &str = "10.78.0.2";
const IPV6: &str = "fd78::2";
/// Address in the network of the senders.
const BRIDGED: &str = "fd77::9";
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
        guest.add_interface(&host, INTERFACE);
        Some(guest)
    }

    /// Adds the interface between host and guest, and the host's addresses at an interface.
    fn add_interface(&self, host: &str, at: &str) {
        let namespace = &self.namespace;
        for line in [
            format!("-n {host} link add {INTERFACE} type veth peer name eth0 netns {namespace}"),
            format!("-n {host} link set {INTERFACE} up"),
            format!("-n {namespace} link set eth0 up"),
            format!("-n {host} addr add 10.78.0.1/24 dev {at}"),
            format!("-n {host} addr add fd78::1/64 dev {at} nodad"),
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

    /// Puts the interface to the guest into a bridge, which gets the host's addresses.
    fn add_bridge(&self, scene: &Scene) {
        let host = scene.hosts.namespace(1);
        for line in [
            format!("-n {host} link del {INTERFACE}"),
            format!("-n {host} link add {BRIDGE} type bridge"),
            format!("-n {host} link set {BRIDGE} up"),
        ] {
            assert!(ip(&line), "ip {line}");
        }
        self.add_interface(&host, BRIDGE);
        assert!(ip(&format!("-n {host} link set {INTERFACE} master {BRIDGE}")));
    }

    /// Puts the guest into the network of the senders, by a bridge; returns its address.
    fn join_bridge(&self, scene: &Scene) -> &'static str {
        let (host, namespace) = (scene.hosts.namespace(1), &self.namespace);
        for line in [
            format!("-n {host} addr flush dev lab0"),
            format!("-n {host} link add {BRIDGE} type bridge"),
            format!("-n {host} link set {BRIDGE} up"),
            format!("-n {host} link set lab0 master {BRIDGE}"),
            format!("-n {host} link set {INTERFACE} master {BRIDGE}"),
            format!("-n {host} addr add fd77::2/64 dev {BRIDGE} nodad"),
            format!("-n {namespace} addr add {BRIDGED}/64 dev eth0 nodad"),
        ] {
            assert!(ip(&line), "ip {line}");
        }
        BRIDGED
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
        self.start_guard_at(scene, INTERFACE, "hold");
    }

    fn start_guard_at(&self, scene: &mut Scene, interface: &str, mode: &str) {
        let cgroup = self.cgroup.to_str().unwrap().to_owned();
        scene.start_guard(&["--mode", mode, "--guest", interface, "--cgroup", &cgroup]);
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

    /// Waits until windows were set, and fit the port.
    fn wait_until_held(&self, scene: &Scene) {
        wait_until("windows fit the port", || {
            !scene.events("window").is_empty()
                && self.windows().iter().all(|&window| window < FREE_WINDOW / 2)
        });
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
    flows.wait_until_held(&scene);
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
    guest.add_interface(&host, INTERFACE);
    scene.wait_for("guest", |event| event["followed"] == true);
    let flows = Sending::start(&scene, guest.connect(&scene, IPV4, 4));
    flows.wait_until_held(&scene);
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
    flows.wait_until_held(&scene);
    flows.wait_for_data();
}

#[test]
fn guests_behind_a_bridge_are_followed() {
    let Some(mut scene) = Scene::new() else { return };
    let Some(guest) = Guest::new(&scene) else { return };
    guest.add_bridge(&scene);
    guest.start_guard_at(&mut scene, BRIDGE, "hold");
    let flows = [IPV4, IPV6].map(|to| Sending::start(&scene, guest.connect(&scene, to, 2)));
    wait_until("windows fit the port", || {
        !scene.events("window").is_empty()
            && flows.iter().flat_map(Sending::windows).all(|window| window < FREE_WINDOW / 2)
    });
    flows.iter().for_each(Sending::wait_for_data);
}

/// The name of a pinned link has no dot.
#[test]
fn interfaces_with_a_dot_are_followed() {
    let Some(mut scene) = Scene::new() else { return };
    let Some(guest) = Guest::new(&scene) else { return };
    let host = scene.hosts.namespace(1);
    let dotted = "guest.0";
    for change in
        [format!("{INTERFACE} down"), format!("{INTERFACE} name {dotted}"), format!("{dotted} up")]
    {
        assert!(ip(&format!("-n {host} link set {change}")), "{change}");
    }
    guest.start_guard_at(&mut scene, dotted, "hold");
    let flows = Sending::start(&scene, guest.connect(&scene, IPV4, 4));
    flows.wait_until_held(&scene);
    assert!(scene.end_guard(Signal::TERM));
}

/// The windows are in super-packets with data and timestamps then.
#[test]
fn windows_of_guests_that_also_send_fit_the_port() {
    let Some(mut scene) = Scene::new() else { return };
    let Some(guest) = Guest::new(&scene) else { return };
    guest.start_guard(&mut scene);
    for to in [IPV4, IPV6] {
        let (senders, receivers) = guest.connect(&scene, to, 4);
        let both = |streams: &[TcpStream]| -> Vec<TcpStream> {
            streams.iter().map(|one| one.try_clone().unwrap()).collect()
        };
        let back = scene.send((both(&receivers), both(&senders)));
        let flows = Sending::start(&scene, (senders, receivers));
        let local = SocketAddr::new(to.parse().unwrap(), PORT).to_string();
        let opened = scene.wait_for("connection", |event| event["local"] == local.as_str());
        scene.wait_for("window", |event| event["id"] == opened["id"]);
        wait_until("windows fit the port", || {
            flows.windows().iter().all(|&window| window < FREE_WINDOW / 2)
        });
        flows.wait_for_data();
        let sent = || back.received.load(Ordering::Relaxed);
        let before = sent();
        wait_until("data goes on", || sent() > before + (10 << 20));
    }
}

/// Returns the bytes and packets that an interface of a namespace has sent.
fn sent(namespace: &str, interface: &str) -> [u64; 2] {
    let words = ["-n", namespace, "-j", "-s", "link", "show", interface];
    let output = Command::new("ip").args(words).output().unwrap().stdout;
    let links: Value = serde_json::from_slice(&output).unwrap();
    ["bytes", "packets"].map(|name| links[0]["stats64"]["tx"][name].as_u64().unwrap())
}

/// Packets beyond 64 KiB, whose IP header has no length. (Linux: BIG TCP, which is not routed)
#[test]
fn largest_super_packets_to_guests_are_counted() {
    let Some(mut scene) = Scene::new() else { return };
    let Some(guest) = Guest::new(&scene) else { return };
    let (sender, host) = (scene.hosts.namespace(0), scene.hosts.namespace(1));
    let to = guest.join_bridge(&scene);
    let devices =
        [(&sender, "lab0"), (&host, "lab0"), (&host, INTERFACE), (&guest.namespace, "eth0")];
    let enable = |(name, device): &(&String, &str)| {
        ip(&format!("-n {name} link set {device} gso_max_size 190000 gro_max_size 190000"))
    };
    if !devices.iter().all(enable) {
        notify("skipped: this kernel or iproute2 has no BIG TCP");
        return;
    }
    let cgroup = guest.cgroup.to_str().unwrap().to_owned();
    scene.start_guard_at(BRIDGE, &["--guest", INTERFACE, "--cgroup", &cgroup]);
    let flows = Sending::start(&scene, guest.connect(&scene, to, 1));
    wait_until("packets beyond 64 KiB", || {
        let before = sent(&host, INTERFACE);
        thread::sleep(Duration::from_millis(50));
        let [bytes, packets] = sent(&host, INTERFACE);
        bytes - before[0] > 65_536 * (packets - before[1])
    });
    drop(flows);
    let closed = scene.wait_for("closed", |_| true);
    assert!(closed["bytes"].as_u64() > Some(1 << 20), "{closed}");
    // Packets that are left alone would be gaps; a busy host may reorder a few.
    let packets = sent(&host, INTERFACE)[1];
    assert!(closed["out_of_order"].as_u64() < Some(packets / 20), "{closed} of {packets}");
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
