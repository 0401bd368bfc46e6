//! Hosts in network namespaces, each with one interface: TUN, or an end of a veth pair.
//!
//! Hosts and their processes end when the value is dropped. Leftovers of a killed lab are found by
//! its lock file, and removed at the next start.

use crate::base::error::{LabError, Result};
use crate::base::notify;
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

/// Directory of lock files. A lab's lock file has the prefix of its namespaces as its name.
const LOCK_DIR: &str = "/run/bankfull-lab";

/// Attempts at a free lock file name: a reused process number may find leftovers. (chosen: no
/// result depends on it)
const MAX_LOCK_ATTEMPTS: u32 = 100;

/// Next lab number in this process.
static NEXT_LAB: AtomicU32 = AtomicU32::new(1);

/// Root of the network sysctls.
const SYSCTL_DIR: &str = "/proc/sys/net";

/// Prefix of IPv6 sysctls, which a kernel without IPv6 lacks.
const IPV6_PREFIX: &str = "ipv6/";

/// Directory of `ip netns`.
const NAMESPACE_DIR: &str = "/run/netns";

/// Name of each host's interface.
pub(crate) const INTERFACE: &str = "lab0";

/// Packets queued in an interface until the emulator reads them. (chosen: 10 000 super-packets are
/// 655 MB, a burst of the largest window)
const TX_QUEUE_PACKETS: u32 = 10_000;

/// Time for killed processes of a namespace to exit. (chosen: some wait for a disk)
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// MTU of Ethernet in bytes. (RFC 894)
const MTU: u32 = 1500;

/// Largest number of hosts: 16 bits of address, without network, broadcast and black-hole address.
const MAX_HOSTS: usize = 65_533;

/// Configuration of hosts.
#[derive(Debug, Clone, Default)]
pub struct HostsConfig {
    /// Number of hosts.
    pub count: usize,
    /// Congestion control pinned by routes; `None`: chosen by host and programs.
    pub congestion: Option<String>,
    /// Host without pinned congestion control.
    pub unpinned: Option<usize>,
    /// Largest TCP send and receive buffer in bytes; `None`: the machine's.
    pub tcp_buffer_bytes: Option<u64>,
    /// ECN of the hosts (tcp_ecn, ip-sysctl.rst); `None`: the machine's.
    pub tcp_ecn: Option<u8>,
}

/// Running hosts.
#[derive(Debug)]
pub struct Hosts {
    prefix: String,
    count: usize,
    lock_path: PathBuf,
    /// Held while the hosts exist.
    _lock: File,
}

impl Hosts {
    /// Creates hosts and returns the TUN devices of their interfaces. First removes leftovers of
    /// killed labs.
    ///
    /// # Errors
    /// [`LabError::NotRoot`]; [`LabError::Missing`] without `ip` or TUN; [`LabError::Command`] if a
    /// step fails.
    pub fn create(setup: &HostsConfig) -> Result<(Self, Vec<File>)> {
        let hosts = Self::prepare(setup)?;
        if !Path::new("/dev/net/tun").exists() {
            return Err(LabError::Missing("/dev/net/tun", "run `modprobe tun`"));
        }
        // Dropping `hosts` from here on removes what exists.
        let tuns =
            (0..setup.count).map(|at| hosts.create_host(at, setup)).collect::<Result<_>>()?;
        Ok((hosts, tuns))
    }

    /// Creates two hosts joined by a veth pair, without an emulator.
    ///
    /// # Errors
    /// As [`create`](Self::create), and if `veth` is unavailable.
    pub fn create_pair(setup: &HostsConfig) -> Result<Self> {
        let hosts = Self::prepare(&HostsConfig { count: 2, ..setup.clone() })?;
        for host in 0..2 {
            let namespace = hosts.namespace(host);
            ip(&["netns", "add", &namespace], "")?;
            in_namespace(&namespace, || apply_sysctls(setup))?;
        }
        let (first, second) = (hosts.namespace(0), hosts.namespace(1));
        let cable = ["link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE];
        ip(&[&["-n", &first][..], &cable, &["netns", &second]].concat(), "")?;
        (0..2).try_for_each(|host| hosts.bring_up(host, setup))?;
        Ok(hosts)
    }

    /// Checks the requirements and takes a lock file.
    fn prepare(setup: &HostsConfig) -> Result<Self> {
        if bankfull_sys::effective_uid() != 0 {
            return Err(LabError::NotRoot);
        }
        if !(1..=MAX_HOSTS).contains(&setup.count) {
            return Err(LabError::Usage(format!("{} hosts: 1 to {MAX_HOSTS}", setup.count)));
        }
        remove_stale();
        Self::lock(setup.count)
    }

    fn lock(count: usize) -> Result<Self> {
        let failed = |e| LabError::io(format!("cannot write to {LOCK_DIR}"), e);
        fs::create_dir_all(LOCK_DIR).map_err(failed)?;
        for _ in 0..MAX_LOCK_ATTEMPTS {
            let number = NEXT_LAB.fetch_add(1, Ordering::Relaxed);
            let prefix = format!("bklab{}x{number}", std::process::id());
            let lock_path = Path::new(LOCK_DIR).join(&prefix);
            let draft = lock_path.with_extension("new");
            let lock = File::create(&draft).map_err(failed)?;
            lock.lock().map_err(failed)?;
            // Linked only once locked: an unlocked file marks a killed lab.
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

    /// IPv4 address of a host.
    #[must_use]
    pub fn address(host: usize) -> Ipv4Addr {
        let [high, low] = (host as u16 + 1).to_be_bytes();
        Ipv4Addr::new(10, 77, high, low)
    }

    /// Starts a command in a host's namespace.
    ///
    /// # Errors
    /// [`LabError::Io`] if it cannot be started.
    pub fn spawn(&self, host: usize, command: &mut Command) -> Result<Child> {
        let program = command.get_program().to_string_lossy().into_owned();
        let spawned = self.run_on(host, || Ok(command.spawn()))?;
        spawned.map_err(|e| LabError::io(format!("cannot run {program}"), e))
    }

    /// Runs `work` on a thread in a host's namespace. There it can open the host's sockets.
    ///
    /// # Errors
    /// [`LabError::Io`] if the namespace cannot be entered, or with the error of `work`.
    pub fn run_on<T: Send>(
        &self,
        host: usize,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> Result<T> {
        in_namespace(&self.namespace(host), work)
    }

    /// Number of listening TCP sockets and unconnected UDP sockets of a host.
    #[must_use]
    pub fn listening_sockets(&self, host: usize) -> usize {
        // TCP_LISTEN, and TCP_CLOSE for an unconnected UDP socket. (net/tcp_states.h)
        const LISTEN: &str = "0A";
        const OPEN: &str = "07";
        let states = |name: &str| -> Vec<String> {
            // An unreadable table counts as empty: a kernel without IPv6 lacks its tables.
            let table = self.table(host, name).unwrap_or_default();
            let rows = table.lines().skip(1).filter_map(|row| row.split_whitespace().nth(3));
            rows.map(str::to_owned).collect()
        };
        let tcp = ["tcp", "tcp6"].into_iter().flat_map(states);
        let udp = ["udp", "udp6"].into_iter().flat_map(states);
        tcp.filter(|state| state == LISTEN).count() + udp.filter(|state| state == OPEN).count()
    }

    /// TCP segments retransmitted by a host; `None` if unknown.
    #[must_use]
    pub fn retransmits(&self, host: usize) -> Option<u64> {
        counter(&self.table(host, "snmp")?, "Tcp:", "RetransSegs")
    }

    /// Datagrams dropped by a host's sockets for lack of buffer; `None` if unknown.
    #[must_use]
    pub fn socket_drops(&self, host: usize) -> Option<u64> {
        counter(&self.table(host, "snmp")?, "Udp:", "RcvbufErrors")
    }

    /// Datagrams that a host failed to reassemble; `None` if unknown.
    #[must_use]
    pub fn reassembly_failures(&self, host: usize) -> Option<u64> {
        counter(&self.table(host, "snmp")?, "Ip:", "ReasmFails")
    }

    /// Datagrams dropped at a port by its sockets because they were not read in time.
    ///
    /// # Errors
    /// [`LabError::Io`] if the counter is unavailable: unknown must not pass for zero.
    pub fn port_drops(&self, host: usize, port: u16) -> Result<u64> {
        let found = self.table(host, "udp").and_then(|table| port_drops(&table, port));
        found.ok_or_else(|| {
            let what = format!("host {host} has no drop counter for port {port}");
            LabError::io(what, io::ErrorKind::NotFound.into())
        })
    }

    /// Table of a host below `/proc/net`.
    fn table(&self, host: usize, name: &str) -> Option<String> {
        self.run_on(host, || fs::read_to_string(format!("/proc/thread-self/net/{name}"))).ok()
    }

    /// Packets dropped at a host's interface because the emulator did not read them in time.
    ///
    /// # Errors
    /// [`LabError::Io`] if the counter is unavailable: unknown must not pass for zero.
    pub fn tun_drops(&self, host: usize) -> Result<u64> {
        // After the name: eight receive columns, then the transmit columns.
        const SENT_DROPPED: usize = 8 + 3;
        let of_ours = |line: &str| {
            let metrics = line.trim().strip_prefix(INTERFACE)?.strip_prefix(':')?;
            metrics.split_whitespace().nth(SENT_DROPPED)?.parse().ok()
        };
        self.run_on(host, || {
            let table = fs::read_to_string("/proc/thread-self/net/dev")?;
            let found = table.lines().find_map(of_ours);
            found.ok_or_else(|| io::Error::other(format!("no counters for {INTERFACE}")))
        })
    }

    fn create_host(&self, host: usize, setup: &HostsConfig) -> Result<File> {
        let namespace = self.namespace(host);
        ip(&["netns", "add", &namespace], "")?;
        let tun = in_namespace(&namespace, || {
            let tun = bankfull_sys::tun::open_tun(INTERFACE)?;
            apply_sysctls(setup)?;
            Ok(tun)
        })?;
        self.bring_up(host, setup)?;
        Ok(tun)
    }

    /// Assigns the address, sets the interface up and pins the congestion control.
    fn bring_up(&self, host: usize, setup: &HostsConfig) -> Result<()> {
        let address = Self::address(host);
        let pinned = setup.congestion.as_ref().filter(|_| setup.unpinned != Some(host));
        let pinned = pinned.map_or(String::new(), |name| {
            format!("route replace 10.77.0.0/16 dev {INTERFACE} src {address} congctl {name}\n")
        });
        let steps = format!(
            "link set lo up\n\
             link set {INTERFACE} txqueuelen {TX_QUEUE_PACKETS} mtu {MTU} up\n\
             addr add {address}/16 dev {INTERFACE}\n{pinned}"
        );
        match ip(&["-n", &self.namespace(host), "-batch", "-"], &steps) {
            Err(LabError::Command(_, output)) if output.contains("congestion") => {
                Err(LabError::no_congestion(setup.congestion.as_deref().unwrap_or_default()))
            }
            done => done,
        }
    }
}

/// Counter of a protocol in `/proc/net/snmp`: a line of names, then a line of values.
fn counter(table: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix(protocol));
    let at = lines.next()?.split_whitespace().position(|one| one == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

/// Drops of the sockets at a port in `/proc/net/udp`: the last column. (net/ipv4/udp.c) `None`
/// without such a socket.
fn port_drops(table: &str, port: u16) -> Option<u64> {
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
        // Otherwise the file stays, so that the next start tries again.
        if left == 0 {
            let _ = fs::remove_file(&self.lock_path);
        }
    }
}

/// Removes namespaces of killed labs and returns their number.
pub fn remove_stale() -> usize {
    remove_stale_in(Path::new(LOCK_DIR), Path::new(NAMESPACE_DIR), remove_namespace)
}

/// Removes the namespaces of each unlocked lock file, and the file once all are gone.
fn remove_stale_in(locks: &Path, namespaces: &Path, remove: impl Fn(&str) -> bool) -> usize {
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
        let (removed_now, stuck): (Vec<_>, Vec<_>) = left.partition(|name| remove(name));
        removed += removed_now.len();
        if stuck.is_empty() {
            let _ = fs::remove_file(entry.path());
        }
    }
    removed
}

/// Kills the processes in a namespace and removes it. Returns false, with a message, on failure.
fn remove_namespace(name: &str) -> bool {
    if !Path::new(NAMESPACE_DIR).join(name).exists() {
        return true;
    }
    let until = Instant::now() + KILL_TIMEOUT;
    let mut why = String::new();
    while Instant::now() < until {
        if !Path::new(NAMESPACE_DIR).join(name).exists() {
            // Removed by another lab.
            return true;
        }
        // Processes must be found first: once the name is gone, they cannot be listed.
        match processes_in(name) {
            Ok(found) if found.is_empty() => match ip(&["netns", "del", name], "") {
                Ok(()) => return true,
                Err(error) => why = error.to_string(),
            },
            Ok(found) => {
                why = format!("{} processes do not exit", found.len());
                for id in found.into_iter().filter_map(rustix::process::Pid::from_raw) {
                    let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
                }
            }
            Err(error) => why = error.to_string(),
        }
        thread::sleep(Duration::from_millis(10));
    }
    notify(&format!(
        "cannot remove the namespace {name}: {why}; the next lab retries, or run `ip netns pids \
         {name}` and `ip netns del {name}`"
    ));
    false
}

/// Process numbers in a namespace.
fn processes_in(namespace: &str) -> Result<HashSet<i32>> {
    let arguments = ["netns", "pids", namespace];
    let done = Command::new("ip").args(arguments).process_group(0).output();
    let done = done.map_err(|e| LabError::io("cannot run ip", e))?;
    if !done.status.success() {
        let output = String::from_utf8_lossy(&done.stderr).trim().replace('\n', "; ");
        return Err(LabError::Command(format!("ip {}", arguments.join(" ")), output));
    }
    let text = String::from_utf8_lossy(&done.stdout);
    Ok(text.split_whitespace().filter_map(|id| id.parse().ok()).collect())
}

/// Writes a sysctl; skips IPv6 sysctls in a kernel without IPv6.
fn write_sysctl(beneath: &Path, name: &str, value: &str) -> io::Result<()> {
    let path = beneath.join(name);
    if name.starts_with(IPV6_PREFIX) && !path.exists() {
        return Ok(());
    }
    let failed = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    fs::write(&path, value).map_err(failed)
}

/// Applies a host's sysctls; must run in its namespace.
fn apply_sysctls(setup: &HostsConfig) -> io::Result<()> {
    let set = |(name, value): (&str, String)| write_sysctl(Path::new(SYSCTL_DIR), name, &value);
    sysctls(setup).into_iter().try_for_each(set)
}

/// Sysctls of a host, below `/proc/sys/net`.
fn sysctls(setup: &HostsConfig) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("ipv6/conf/all/disable_ipv6", "1".to_owned()),
        // Metrics of one run must not affect the next.
        ("ipv4/tcp_no_metrics_save", "1".to_owned()),
        // Allows ping without root.
        ("ipv4/ping_group_range", "0 2147483647".to_owned()),
    ];
    if let Some(max) = setup.tcp_buffer_bytes {
        // Smallest and initial size are the kernel's defaults. (ip-sysctl.rst)
        settings.push(("ipv4/tcp_rmem", format!("4096 131072 {max}")));
        settings.push(("ipv4/tcp_wmem", format!("4096 16384 {max}")));
    }
    settings.extend(setup.tcp_ecn.map(|mode| ("ipv4/tcp_ecn", mode.to_string())));
    settings
}

/// Runs `work` on a thread in a namespace.
fn in_namespace<T: Send>(
    namespace: &str,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> Result<T> {
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

/// Maps an error of starting `ip`; only a missing program counts as [`LabError::Missing`].
fn spawn_error(error: io::Error) -> LabError {
    match error.kind() {
        io::ErrorKind::NotFound => LabError::Missing("ip", "install the package iproute2"),
        _ => LabError::io("cannot run ip", error),
    }
}

/// Runs `ip` with `input` on its standard input.
fn ip(arguments: &[&str], input: &str) -> Result<()> {
    let mut child = Command::new("ip")
        .args(arguments)
        // In its own process group: Ctrl-C at the terminal must not reach it.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(spawn_error)?;
    let fed = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
    let done = child.wait_with_output();
    let failed = |e| LabError::io("cannot run ip", e);
    let done = fed.and(done).map_err(failed)?;
    if done.status.success() {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&done.stderr).trim().replace('\n', "; ");
    Err(LabError::Command(format!("ip {}", arguments.join(" ")), output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_sysctls_are_skipped_without_ipv6() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("ipv4")).unwrap();
        write_sysctl(dir.path(), "ipv6/conf/all/disable_ipv6", "1").unwrap();
        write_sysctl(dir.path(), "ipv4/one", "1").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("ipv4/one")).unwrap(), "1");
        let error = write_sysctl(dir.path(), "other/one", "1").unwrap_err().to_string();
        assert!(error.contains("other/one"), "{error}");
    }

    #[test]
    fn program_is_missing_only_if_not_found() {
        let error = |kind: io::ErrorKind| spawn_error(kind.into()).to_string();
        assert!(error(io::ErrorKind::NotFound).contains("ip is missing"));
        let other = error(io::ErrorKind::WouldBlock);
        assert!(other.contains("cannot run ip") && !other.contains("missing"), "{other}");
    }

    #[test]
    fn missing_counter_is_none_not_zero() {
        let table = "Tcp: RtoMin ActiveOpens RetransSegs\nTcp: 200 3 17\nUdp: In\nUdp: 4\n";
        let sent_again = |table: &str| counter(table, "Tcp:", "RetransSegs");
        assert_eq!(sent_again(table), Some(17));
        assert_eq!(counter(table, "Udp:", "In"), Some(4));
        assert_eq!(sent_again("Tcp: RtoMin\nTcp: 200\n"), None);
        assert_eq!(sent_again("Tcp: RetransSegs\n"), None);
        assert_eq!(sent_again(""), None);
    }

    #[test]
    fn port_drops_are_counted_per_port() {
        let row = |port: &str, drops: u64| {
            format!("  9: 024D4D0A:{port} 00000000:0000 07 0:0 00:0 0  0  0 7 2 0 {drops}   \n")
        };
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr inode drops\n";
        let table = format!("{head}{}{}{}", row("1E15", 40), row("1E16", 5), row("1E15", 2));
        assert_eq!(port_drops(&table, 7701), Some(42));
        assert_eq!(port_drops(&table, 7700), None);
        assert_eq!(port_drops(head, 7701), None);
    }

    #[test]
    fn failed_removal_is_retried_at_next_start() {
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
        assert_eq!(remove_stale_in(&locks, &namespaces, but_a), 1);
        assert!(locks.join("a").exists() && !locks.join("b").exists());
        let held = File::open(locks.join("a")).unwrap();
        held.lock().unwrap();
        assert_eq!(remove_stale_in(&locks, &namespaces, remove), 0, "it is in use");
        drop(held);
        assert_eq!(remove_stale_in(&locks, &namespaces, remove), 1);
        assert!(!locks.join("a").exists() && namespaces.join("others-0").exists());
    }
}
