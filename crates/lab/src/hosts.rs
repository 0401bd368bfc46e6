//! Hosts that live in network namespaces of this machine, each with one TUN interface.
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
#[derive(Debug, Clone)]
pub struct Setup {
    /// How many.
    pub count: usize,
    /// Congestion control of all connections; `None`: what the host and the programs choose.
    pub congestion: Option<String>,
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
        if bankfull_sys::effective_uid() != 0 {
            return Err(LabError::NotRoot);
        }
        if !Path::new("/dev/net/tun").exists() {
            return Err(LabError::Missing("/dev/net/tun", "load the kernel's module `tun`"));
        }
        if !(1..=HOSTS_MAX).contains(&setup.count) {
            return Err(LabError::Usage(format!("{} hosts: 1 to {HOSTS_MAX}", setup.count)));
        }
        remove_stale();
        let hosts = Self::lock(setup.count)?;
        // From here on, dropping it removes what was made.
        let tuns = (0..setup.count).map(|at| hosts.make(at, setup)).collect::<Result<_>>()?;
        Ok((hosts, tuns))
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
            let table = self.table(host, name);
            let rows = table.lines().skip(1).filter_map(|row| row.split_whitespace().nth(3));
            rows.map(str::to_owned).collect()
        };
        let tcp = ["tcp", "tcp6"].into_iter().flat_map(states);
        let udp = ["udp", "udp6"].into_iter().flat_map(states);
        tcp.filter(|state| state == LISTEN).count() + udp.filter(|state| state == OPEN).count()
    }

    /// TCP segments that a host has sent again.
    #[must_use]
    pub fn retransmitted(&self, host: usize) -> u64 {
        let table = self.table(host, "snmp");
        // A line of names, and one of figures below it.
        let mut lines = table.lines().filter_map(|line| line.strip_prefix("Tcp:"));
        let (names, figures) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
        let at = names.split_whitespace().position(|name| name == "RetransSegs");
        at.and_then(|at| figures.split_whitespace().nth(at)?.parse().ok()).unwrap_or(0)
    }

    /// A table of a host's network, as `/proc/net` has it.
    fn table(&self, host: usize, name: &str) -> String {
        let read = || fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        self.on(host, read).unwrap_or_default()
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
            for (name, value) in settings(setup) {
                fs::write(Path::new("/proc/sys/net").join(name), value)?;
            }
            Ok(tun)
        })?;
        let address = Self::address(host);
        let pinned = setup.congestion.as_ref().map_or(String::new(), |name| {
            format!("route replace 10.77.0.0/16 dev {INTERFACE} src {address} congctl {name}\n")
        });
        let steps = format!(
            "link set lo up\n\
             link set {INTERFACE} txqueuelen {INTERFACE_QUEUE} mtu {MTU} up\n\
             addr add {address}/16 dev {INTERFACE}\n{pinned}"
        );
        match ip(&["-n", &namespace, "-batch", "-"], &steps) {
            Err(LabError::Command(_, said)) if said.contains("congestion") => {
                let name = setup.congestion.as_deref().unwrap_or_default();
                Err(LabError::Usage(format!(
                    "this kernel has no congestion control {name:?}: try `modprobe tcp_{name}`, or \
                     leave it to the host with --congestion any"
                )))
            }
            done => done.map(|()| tun),
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in 0..self.count {
            remove_namespace(&self.namespace(host));
        }
        let _ = fs::remove_file(&self.lock_path);
    }
}

/// Removes what labs have left that were killed. Returns how many namespaces there were.
pub fn remove_stale() -> usize {
    let mut removed = 0;
    for entry in fs::read_dir(LOCK_DIR).into_iter().flatten().flatten() {
        let Ok(lock) = File::open(entry.path()) else { continue };
        if lock.try_lock().is_err() {
            continue;
        }
        let prefix = format!("{}-", entry.file_name().to_string_lossy());
        for namespace in fs::read_dir(NAMESPACE_DIR).into_iter().flatten().flatten() {
            let name = namespace.file_name().to_string_lossy().into_owned();
            if name.starts_with(&prefix) {
                remove_namespace(&name);
                removed += 1;
            }
        }
        let _ = fs::remove_file(entry.path());
    }
    removed
}

/// Ends the processes in a namespace and removes it.
fn remove_namespace(name: &str) {
    if !Path::new(NAMESPACE_DIR).join(name).exists() {
        return;
    }
    let until = Instant::now() + KILL_WAIT;
    let mut why = String::new();
    while Instant::now() < until {
        if !Path::new(NAMESPACE_DIR).join(name).exists() {
            // Another lab has removed what was left.
            return;
        }
        // Without knowing who is there, nobody would end them once the name is gone.
        match processes_in(name) {
            Ok(found) if found.is_empty() => match ip(&["netns", "del", name], "") {
                Ok(()) => return,
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
        "the namespace {name} could not be removed: {why}; try `ip netns pids {name}`, and \
         `ip netns del {name}`"
    ));
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
        .map_err(|_| LabError::Missing("ip", "install the package iproute2"))?;
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
