//! Hosts that live in network namespaces of this machine, each with one interface: TUN, or the end
//! of a virtual cable.
//!
//! They vanish with the value that holds them, processes in them included. What a killed lab has
//! left is found by its lock file and removed when the next one starts.

use crate::error::{LabError, Result};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Where labs keep a locked file each, whose name begins the names of their namespaces.
const LOCK_DIR: &str = "/run/bankfull-lab";

/// How often a name is tried: some may be left from a process of the same number. (ours)
const LOCK_TRIES: u32 = 100;

/// Number of the next lab of this process.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Where the kernel has the settings of a thread's network.
const SETTINGS_DIR: &str = "/proc/sys/net";

/// What there is of IPv6 beneath it; nothing in a kernel that has none.
const IPV6: &str = "ipv6/";

/// Where `ip netns` keeps namespaces.
const NAMESPACE_DIR: &str = "/run/netns";

/// Name of each host's interface.
const INTERFACE: &str = "lab0";

/// Packets that an interface holds until the emulator reads them: a burst of the largest window.
/// (ours: 10 000 super-packets are 655 MB)
const INTERFACE_QUEUE: u32 = 10_000;

/// How long processes of a namespace may take to end once killed. (ours: some wait for a disk)
const KILL_WAIT: Duration = Duration::from_secs(5);

/// Bytes of an Ethernet frame's payload. (RFC 894)
const MTU: u32 = 1500;

/// Most hosts: two bytes of the address, without the two special ones, and the one that is nowhere.
const HOSTS_MAX: usize = 65_533;

/// How hosts are set up.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// How many.
    pub count: usize,
    /// Congestion control of all connections; `None`: what the host and the programs choose.
    pub congestion: Option<String>,
    /// A host that is left out of that.
    pub unpinned: Option<usize>,
    /// Largest TCP buffers, for sending and receiving; `None`: the machine's.
    pub tcp_buffer_bytes: Option<u64>,
}

/// Hosts, as long as the value lives.
#[derive(Debug)]
pub struct Hosts {
    prefix: String,
    count: usize,
    lock_path: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

impl Hosts {
    /// Makes the hosts, and the other ends of their interfaces. First removes what a killed lab has
    /// left.
    ///
    /// # Errors
    /// [`LabError::NotRoot`], [`LabError::Missing`] without `ip` or TUN, [`LabError::Command`] when
    /// one of its steps fails.
    pub fn create(setup: &Setup) -> Result<(Self, Vec<File>)> {
        let hosts = Self::begin(setup)?;
        if !Path::new("/dev/net/tun").exists() {
            return Err(LabError::Missing("/dev/net/tun", "load the kernel's module `tun`"));
        }
        // From here on, dropping it removes what was made.
        let tuns = (0..setup.count).map(|at| hosts.make(at, setup)).collect::<Result<_>>()?;
        Ok((hosts, tuns))
    }

    /// Makes two hosts that a virtual cable joins, with nothing in between: the kernel's own
    /// Ethernet, as fast as the machine is.
    ///
    /// # Errors
    /// As [`create`](Self::create), and without `veth`.
    pub fn create_pair(setup: &Setup) -> Result<Self> {
        let hosts = Self::begin(&Setup { count: 2, ..setup.clone() })?;
        for host in 0..2 {
            let namespace = hosts.namespace(host);
            ip(&["netns", "add", &namespace], "")?;
            inside(&namespace, || configure(setup))?;
        }
        let (near, far) = (hosts.namespace(0), hosts.namespace(1));
        let cable = ["link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE];
        ip(&[&["-n", &near][..], &cable, &["netns", &far]].concat(), "")?;
        (0..2).try_for_each(|host| hosts.bring_up(host, setup))?;
        Ok(hosts)
    }

    /// What must be there before any host is made.
    fn begin(setup: &Setup) -> Result<Self> {
        if bankfull_sys::effective_uid() != 0 {
            return Err(LabError::NotRoot);
        }
        if !(1..=HOSTS_MAX).contains(&setup.count) {
            return Err(LabError::Usage(format!("{} hosts: 1 to {HOSTS_MAX}", setup.count)));
        }
        remove_stale();
        Self::lock(setup.count)
    }

    fn lock(count: usize) -> Result<Self> {
        let failed = |e| LabError::io(format!("cannot write to {LOCK_DIR}"), e);
        fs::create_dir_all(LOCK_DIR).map_err(failed)?;
        for _ in 0..LOCK_TRIES {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let prefix = format!("bklab{}x{number}", std::process::id());
            let lock_path = Path::new(LOCK_DIR).join(&prefix);
            let draft = lock_path.with_extension("new");
            let lock = File::create(&draft).map_err(failed)?;
            lock.lock().map_err(failed)?;
            // It gets its name when it is locked: until then it would be taken for a dead one's.
            let named = fs::hard_link(&draft, &lock_path);
            let _ = fs::remove_file(&draft);
            if named.is_ok() {
                return Ok(Self { prefix, count, lock_path, _lock: lock });
            }
        }
        Err(failed(io::ErrorKind::AlreadyExists.into()))
    }

    /// Name of a host's namespace.
    #[must_use]
    pub fn namespace(&self, host: usize) -> String {
        format!("{}-{host}", self.prefix)
    }

    /// Address of a host.
    #[must_use]
    pub fn address(host: usize) -> Ipv4Addr {
        let [high, low] = (host as u16 + 1).to_be_bytes();
        Ipv4Addr::new(10, 77, high, low)
    }

    /// Starts a command on a host, where it is from its first moment on.
    ///
    /// # Errors
    /// [`LabError::Io`] when it cannot be started.
    pub fn spawn(&self, host: usize, command: &mut Command) -> Result<Child> {
        let program = command.get_program().to_string_lossy().into_owned();
        let spawned = self.on(host, || Ok(command.spawn()))?;
        spawned.map_err(|e| LabError::io(format!("cannot run {program}"), e))
    }

    /// Runs something on a thread of this process that is on a host: sockets that it makes are the
    /// host's.
    ///
    /// # Errors
    /// [`LabError::Io`] when the thread cannot go there, and what `work` returns.
    pub fn on<T: Send>(
        &self,
        host: usize,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> Result<T> {
        inside(&self.namespace(host), work)
    }

    /// How many sockets of a host listen for TCP connections, or wait for datagrams.
    #[must_use]
    pub fn listeners(&self, host: usize) -> usize {
        // Of TCP_LISTEN and TCP_CLOSE; a socket of UDP with a peer of its own has another.
        // (net/tcp_states.h)
        const LISTEN: &str = "0A";
        const OPEN: &str = "07";
        let states = |name: &str| -> Vec<String> {
            // What cannot be read lists nothing: a kernel without IPv6 has no table of it.
            let table = self.table(host, name).unwrap_or_default();
            let rows = table.lines().skip(1).filter_map(|row| row.split_whitespace().nth(3));
            rows.map(str::to_owned).collect()
        };
        let tcp = ["tcp", "tcp6"].into_iter().flat_map(states);
        let udp = ["udp", "udp6"].into_iter().flat_map(states);
        tcp.filter(|state| state == LISTEN).count() + udp.filter(|state| state == OPEN).count()
    }

    /// TCP segments that a host has sent again; `None` when it does not tell.
    #[must_use]
    pub fn retransmitted(&self, host: usize) -> Option<u64> {
        counter(&self.table(host, "snmp")?, "Tcp:", "RetransSegs")
    }

    /// Datagrams that sockets of a host dropped for want of room; `None` when it does not tell.
    #[must_use]
    pub fn socket_drops(&self, host: usize) -> Option<u64> {
        counter(&self.table(host, "snmp")?, "Udp:", "RcvbufErrors")
    }

    /// Datagrams that a host could not put together of their fragments; `None` when it does not
    /// tell.
    #[must_use]
    pub fn not_reassembled(&self, host: usize) -> Option<u64> {
        counter(&self.table(host, "snmp")?, "Ip:", "ReasmFails")
    }

    /// Datagrams that arrived at a port of a host, and were dropped by its sockets since nobody
    /// read them soon enough.
    ///
    /// # Errors
    /// When the host does not tell: no word must not be taken for none.
    pub fn overrun(&self, host: usize, port: u16) -> Result<u64> {
        let found = self.table(host, "udp").and_then(|table| overrun(&table, port));
        found.ok_or_else(|| {
            let what = format!("host {host} does not tell what its port {port} has dropped");
            LabError::io(what, io::ErrorKind::NotFound.into())
        })
    }

    /// A table of a host's network, as `/proc/net` has it.
    fn table(&self, host: usize, name: &str) -> Option<String> {
        self.on(host, || fs::read_to_string(format!("/proc/thread-self/net/{name}"))).ok()
    }

    /// Packets that a host has dropped at its interface because the emulator was too slow.
    ///
    /// # Errors
    /// When the host does not tell: no word must not be taken for none.
    pub fn unread(&self, host: usize) -> Result<u64> {
        // Behind the name: eight columns of what was received, then of what was sent.
        const SENT_DROPPED: usize = 8 + 3;
        let of_ours = |line: &str| {
            let figures = line.trim().strip_prefix(INTERFACE)?.strip_prefix(':')?;
            figures.split_whitespace().nth(SENT_DROPPED)?.parse().ok()
        };
        self.on(host, || {
            let table = fs::read_to_string("/proc/thread-self/net/dev")?;
            let found = table.lines().find_map(of_ours);
            found.ok_or_else(|| io::Error::other(format!("nothing is told of {INTERFACE}")))
        })
    }

    fn make(&self, host: usize, setup: &Setup) -> Result<File> {
        let namespace = self.namespace(host);
        ip(&["netns", "add", &namespace], "")?;
        let tun = inside(&namespace, || {
            let tun = bankfull_sys::tun::open_tun(INTERFACE)?;
            configure(setup)?;
            Ok(tun)
        })?;
        self.bring_up(host, setup)?;
        Ok(tun)
    }

    /// Gives a host's interface its address, and has packets pass.
    fn bring_up(&self, host: usize, setup: &Setup) -> Result<()> {
        let address = Self::address(host);
        let pinned = setup.congestion.as_ref().filter(|_| setup.unpinned != Some(host));
        let pinned = pinned.map_or(String::new(), |name| {
            format!("route replace 10.77.0.0/16 dev {INTERFACE} src {address} congctl {name}\n")
        });
        let steps = format!(
            "link set lo up\n\
             link set {INTERFACE} txqueuelen {INTERFACE_QUEUE} mtu {MTU} up\n\
             addr add {address}/16 dev {INTERFACE}\n{pinned}"
        );
        match ip(&["-n", &self.namespace(host), "-batch", "-"], &steps) {
            Err(LabError::Command(_, said)) if said.contains("congestion") => {
                Err(LabError::no_congestion(setup.congestion.as_deref().unwrap_or_default()))
            }
            done => done,
        }
    }
}

/// A figure of a protocol, of a table `snmp`: a line of names, and one of figures below it.
fn counter(table: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix(protocol));
    let at = lines.next()?.split_whitespace().position(|one| one == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

/// Datagrams dropped by the sockets of a port, of a table `udp`: the last column (net/ipv4/udp.c).
/// `None` when there is no such socket.
fn overrun(table: &str, port: u16) -> Option<u64> {
    let local = format!(":{port:04X}");
    let dropped = |row: &str| {
        let is_there = row.split_whitespace().nth(1)?.ends_with(&local);
        row.split_whitespace().last().filter(|_| is_there)?.parse::<u64>().ok()
    };
    table.lines().skip(1).filter_map(dropped).reduce(|a, b| a + b)
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let left = (0..self.count).filter(|host| !remove_namespace(&self.namespace(*host))).count();
        // What is left is found by it: the next start tries again.
        if left == 0 {
            let _ = fs::remove_file(&self.lock_path);
        }
    }
}

/// Removes what labs have left that were killed. Returns how many namespaces there were.
pub fn remove_stale() -> usize {
    remove_left(Path::new(LOCK_DIR), Path::new(NAMESPACE_DIR), remove_namespace)
}

/// Removes the namespaces of each lock file that nobody holds, and the file when all are gone.
fn remove_left(locks: &Path, namespaces: &Path, remove: impl Fn(&str) -> bool) -> usize {
    let mut removed = 0;
    for entry in fs::read_dir(locks).into_iter().flatten().flatten() {
        let Ok(lock) = File::open(entry.path()) else { continue };
        if lock.try_lock().is_err() {
            continue;
        }
        let prefix = format!("{}-", entry.file_name().to_string_lossy());
        let names = fs::read_dir(namespaces).into_iter().flatten().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let left = names.filter(|name| name.starts_with(&prefix));
        let (gone, stuck): (Vec<_>, Vec<_>) = left.partition(|name| remove(name));
        removed += gone.len();
        if stuck.is_empty() {
            let _ = fs::remove_file(entry.path());
        }
    }
    removed
}

/// Ends the processes in a namespace and removes it. False, with a word, when it is still there.
fn remove_namespace(name: &str) -> bool {
    if !Path::new(NAMESPACE_DIR).join(name).exists() {
        return true;
    }
    let until = Instant::now() + KILL_WAIT;
    let mut why = String::new();
    while Instant::now() < until {
        if !Path::new(NAMESPACE_DIR).join(name).exists() {
            // Another lab has removed what was left.
            return true;
        }
        // Without knowing who is there, nobody would end them once the name is gone.
        match processes_in(name) {
            Ok(found) if found.is_empty() => match ip(&["netns", "del", name], "") {
                Ok(()) => return true,
                Err(error) => why = error.to_string(),
            },
            Ok(found) => {
                why = format!("{} processes do not end", found.len());
                for id in found.into_iter().filter_map(rustix::process::Pid::from_raw) {
                    let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
                }
            }
            Err(error) => why = error.to_string(),
        }
        thread::sleep(Duration::from_millis(10));
    }
    crate::say(&format!(
        "the namespace {name} could not be removed: {why}; the next lab tries again, or try `ip \
         netns pids {name}`, and `ip netns del {name}`"
    ));
    false
}

/// Numbers of the processes in a namespace.
fn processes_in(namespace: &str) -> Result<HashSet<i32>> {
    let arguments = ["netns", "pids", namespace];
    let done = Command::new("ip").args(arguments).process_group(0).output();
    let done = done.map_err(|e| LabError::io("cannot run ip", e))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).trim().replace('\n', "; ");
        return Err(LabError::Command(format!("ip {}", arguments.join(" ")), said));
    }
    let text = String::from_utf8_lossy(&done.stdout);
    Ok(text.split_whitespace().filter_map(|id| id.parse().ok()).collect())
}

/// Sets one of them. Of IPv6 there may be nothing to set.
fn set(beneath: &Path, name: &str, value: &str) -> io::Result<()> {
    let path = beneath.join(name);
    if name.starts_with(IPV6) && !path.exists() {
        return Ok(());
    }
    let failed = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    fs::write(&path, value).map_err(failed)
}

/// Sets what a host's network needs, on a thread that is there.
fn configure(setup: &Setup) -> io::Result<()> {
    let set = |(name, value): (&str, String)| set(Path::new(SETTINGS_DIR), name, &value);
    settings(setup).into_iter().try_for_each(set)
}

/// Settings of a host's network, beneath `/proc/sys/net`.
fn settings(setup: &Setup) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("ipv6/conf/all/disable_ipv6", "1".to_owned()),
        // Runs must not teach each other.
        ("ipv4/tcp_no_metrics_save", "1".to_owned()),
        // For ping as an ordinary user.
        ("ipv4/ping_group_range", "0 2147483647".to_owned()),
    ];
    if let Some(max) = setup.tcp_buffer_bytes {
        // The smallest and the first size are the kernel's own (ip-sysctl.rst).
        settings.push(("ipv4/tcp_rmem", format!("4096 131072 {max}")));
        settings.push(("ipv4/tcp_wmem", format!("4096 16384 {max}")));
    }
    settings
}

/// Runs something on a thread in a namespace.
fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> io::Result<T> + Send) -> Result<T> {
    let path = Path::new(NAMESPACE_DIR).join(namespace);
    let joined = thread::scope(|scope| {
        scope
            .spawn(|| {
                bankfull_sys::tun::enter_network_namespace(&path)?;
                work()
            })
            .join()
    });
    let done = joined.unwrap_or_else(|_| Err(io::Error::other("a thread has panicked")));
    done.map_err(|e| LabError::io(format!("a step in the namespace {namespace} failed"), e))
}

/// Why `ip` does not run: it is missing only where there is no such program.
fn not_started(error: io::Error) -> LabError {
    match error.kind() {
        io::ErrorKind::NotFound => LabError::Missing("ip", "install the package iproute2"),
        _ => LabError::io("cannot run ip", error),
    }
}

/// Runs `ip`, with `input` on its standard input.
fn ip(arguments: &[&str], input: &str) -> Result<()> {
    let mut child = Command::new("ip")
        .args(arguments)
        // Of its own group: a Ctrl-C at the terminal is not for it.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(not_started)?;
    let fed = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let done = child.wait_with_output();
    let failed = |e| LabError::io("cannot run ip", e);
    let done = fed.and(done).map_err(failed)?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().replace('\n', "; ");
    Err(LabError::Command(format!("ip {}", arguments.join(" ")), said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_ipv6_has_nothing_of_it_to_be_set() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("ipv4")).unwrap();
        set(dir.path(), "ipv6/conf/all/disable_ipv6", "1").unwrap();
        set(dir.path(), "ipv4/one", "1").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("ipv4/one")).unwrap(), "1");
        let error = set(dir.path(), "other/one", "1").unwrap_err().to_string();
        assert!(error.contains("other/one"), "{error}");
    }

    #[test]
    fn a_program_is_missing_only_where_there_is_none() {
        let error = |kind: io::ErrorKind| not_started(kind.into()).to_string();
        assert!(error(io::ErrorKind::NotFound).contains("ip is missing"));
        let other = error(io::ErrorKind::WouldBlock);
        assert!(other.contains("cannot run ip") && !other.contains("missing"), "{other}");
    }

    #[test]
    fn a_count_that_is_not_told_is_none_and_not_zero() {
        let table = "Tcp: RtoMin ActiveOpens RetransSegs\nTcp: 200 3 17\nUdp: In\nUdp: 4\n";
        let sent_again = |table: &str| counter(table, "Tcp:", "RetransSegs");
        assert_eq!(sent_again(table), Some(17));
        assert_eq!(counter(table, "Udp:", "In"), Some(4));
        assert_eq!(sent_again("Tcp: RtoMin\nTcp: 200\n"), None);
        assert_eq!(sent_again("Tcp: RetransSegs\n"), None);
        assert_eq!(sent_again(""), None);
    }

    #[test]
    fn what_a_port_has_dropped_is_told_for_it_alone() {
        let row = |port: &str, drops: u64| {
            format!("  9: 024D4D0A:{port} 00000000:0000 07 0:0 00:0 0  0  0 7 2 0 {drops}   \n")
        };
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr inode drops\n";
        let table = format!("{head}{}{}{}", row("1E15", 40), row("1E16", 5), row("1E15", 2));
        assert_eq!(overrun(&table, 7701), Some(42));
        assert_eq!(overrun(&table, 7700), None);
        assert_eq!(overrun(head, 7701), None);
    }

    #[test]
    fn what_could_not_be_removed_is_tried_again_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let (locks, namespaces) = (dir.path().join("locks"), dir.path().join("namespaces"));
        for (beneath, name) in
            [(&locks, "a"), (&locks, "b"), (&namespaces, "a-0"), (&namespaces, "b-0")]
        {
            fs::create_dir_all(beneath).unwrap();
            fs::write(beneath.join(name), "").unwrap();
        }
        fs::write(namespaces.join("others-0"), "").unwrap();
        let remove = |name: &str| fs::remove_file(namespaces.join(name)).is_ok();
        let but_a = |name: &str| name != "a-0" && remove(name);
        assert_eq!(remove_left(&locks, &namespaces, but_a), 1);
        assert!(locks.join("a").exists() && !locks.join("b").exists());
        let held = File::open(locks.join("a")).unwrap();
        held.lock().unwrap();
        assert_eq!(remove_left(&locks, &namespaces, remove), 0, "it is in use");
        drop(held);
        assert_eq!(remove_left(&locks, &namespaces, remove), 1);
        assert!(!locks.join("a").exists() && namespaces.join("others-0").exists());
    }
}
