//! BPF programs and maps: loading, attaching, and the state that both sides share.

use crate::cgroups;
use crate::error::Error;
use crate::namespaces;
use crate::slot::{self, SLOT_WORDS};
use aya::maps::{HashMap, Map, MapData, Queue, RingBuf};
use aya::programs::iter::IterLink;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{CgroupAttachMode, Iter, LinkOrder, SchedClassifier, SockOps, TcAttachType};
use aya::{Btf, Ebpf, EbpfLoader};
use bankfull_control::{Bytes, Rate};
use bankfull_sys::SharedWords;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Compiled programs; `scripts/build-bpf` makes them.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../bpf/guard.bpf.o");

/// Directory of the pinned links and maps, which outlive the guard.
const PIN_DIRECTORY: &str = "/sys/fs/bpf/bankfull-guard";

/// Version of the layout of pinned maps, in their names.
const LAYOUT: u32 = 3;

/// First kernel on which a window may be lifted while it is closed. (`tcp_set_window_clamp`)
const LIFTS_CLOSED_KERNEL: (u32, u32) = (6, 8);

/// Time for closed windows to open, before their connections are left to the program. (chosen: as
/// the program itself takes to lift the windows of a dead guard)
const OPENING_TIME: Duration = Duration::from_secs(2);

/// Interval at which closed windows are tried again. (chosen: a twentieth of that)
const OPENING_INTERVAL: Duration = Duration::from_millis(100);

/// Connections at a time. (`MAX_CONNECTIONS` in `bpf/state.h`)
pub(crate) const MAX_CONNECTIONS: u32 = 1 << 16;

/// Words of the control structure. (`struct control` in `bpf/state.h`)
mod word {
    pub(super) const HEARTBEAT: usize = 0;
    pub(super) const RATE: usize = 1;
    pub(super) const QUEUE: usize = 2;
    pub(super) const TAKEN: usize = 3;
    pub(super) const MIN_SEGMENTS: usize = 4;
    pub(super) const IS_ASLEEP: usize = 5;
    pub(super) const STARTS: usize = 6;
    pub(super) const START_TIME: usize = 7;
    pub(super) const WITHOUT_SLOT: usize = 9;
    pub(super) const LOST_EVENTS: usize = 10;
    pub(super) const UNFOLLOWED: usize = 11;
    pub(super) const LIFTED: usize = 12;
    pub(super) const CLOSED: usize = 13;
    pub(super) const REFUSED: usize = 14;
    pub(super) const LIFTS_CLOSED: usize = 15;
    pub(super) const IS_FILTERED: usize = 16;
    pub(super) const COUNT: usize = 17;
}

/// Bytes of an event. (`struct event` in `bpf/state.h`)
const EVENT_BYTES: usize = 24;

/// Kinds of event. (`enum event_kind` in `bpf/state.h`)
const OPENED: u32 = 1;
const CLOSED: u32 = 2;

/// Networks of near peers.
pub(crate) type NetworkMap = HashMap<MapData, u32, u32>;

/// Services with held connections, and the first windows of new ones in segments.
pub(crate) type ServiceMap = HashMap<MapData, [u16; 4], u32>;

/// Limits of connections that start to receive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StartLimits {
    /// Capacity of the port in payload; `None`: starts are not limited.
    pub(crate) capacity: Option<Rate>,
    /// Bytes that may wait at the port.
    pub(crate) queue: Bytes,
    /// Bytes of the windows in use.
    pub(crate) taken: Bytes,
    pub(crate) min_segments: u64,
    /// Time until the guard has judged them.
    pub(crate) duration: Duration,
}

/// Event of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketEvent {
    /// A slot was given to a connection that had received so many bytes.
    Opened { slot: u32, cookie: u64, received: u64 },
    /// A connection has ended.
    Closed { slot: u32, cookie: u64 },
}

/// Extent to which windows were lifted at the end of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifted {
    All,
    /// All but closed windows, which may stay closed.
    AllButClosed,
    /// All but this many, in namespaces without processes or that cannot be entered.
    AllButElsewhere(usize),
}

impl Lifted {
    /// Returns the reason why some are not lifted.
    pub(crate) fn remainder(self) -> Option<String> {
        match self {
            Self::All => None,
            Self::AllButClosed => Some("some windows are closed".to_owned()),
            Self::AllButElsewhere(count) => Some(format!(
                "windows are not lifted in network namespaces without processes, or that cannot be \
                 entered without CAP_SYS_ADMIN and CAP_SYS_PTRACE: {count}"
            )),
        }
    }
}

/// Counters of the BPF program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Connections for which no slot was free.
    pub(crate) without_slot: u64,
    /// Events for which the ring had no room.
    pub(crate) lost_events: u64,
    /// Connections whose callbacks the kernel could not enable.
    pub(crate) unfollowed: u64,
    /// Windows lifted at the end.
    pub(crate) lifted: u64,
    /// Windows that could not be lifted, as they were closed.
    pub(crate) closed: u64,
    /// Windows that the kernel refused to set.
    pub(crate) refused: u64,
}

/// Lock that one guard of a host holds.
#[derive(Debug)]
pub(crate) struct Lock {
    _directory: File,
}

/// Takes the lock.
///
/// # Errors
///
/// Another guard runs, or the directory cannot be made.
pub(crate) fn lock() -> Result<Lock, Error> {
    let mut builder = fs::DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(PIN_DIRECTORY)
        .map_err(|error| Error::of(format_args!("create {PIN_DIRECTORY}"), error))?;
    let directory = File::open(PIN_DIRECTORY)
        .map_err(|error| Error::of(format_args!("open {PIN_DIRECTORY}"), error))?;
    let metadata = directory
        .metadata()
        .map_err(|error| Error::of(format_args!("examine {PIN_DIRECTORY}"), error))?;
    // Another owner could plant programs, or block the guard by holding the lock.
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::new(format!("{PIN_DIRECTORY} belongs to another user: remove it")));
    }
    fs::set_permissions(PIN_DIRECTORY, Permissions::from_mode(0o700))
        .map_err(|error| Error::of(format_args!("close {PIN_DIRECTORY} to others"), error))?;
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock { _directory: directory }),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::new(
            "another guard runs on this host: end it first; a host has one, for one interface",
        )),
        Err(error) => Err(Error::of(format_args!("lock {PIN_DIRECTORY}"), error)),
    }
}

/// True if an earlier guard has left its programs.
pub(crate) fn has_remains() -> bool {
    fs::read_dir(PIN_DIRECTORY).is_ok_and(|mut entries| entries.next().is_some())
}

/// Removes the pins, which detaches the programs.
pub(crate) fn remove_pins() {
    for entry in fs::read_dir(PIN_DIRECTORY).into_iter().flatten().flatten() {
        // The next guard replaces pins that cannot be removed.
        let _ = fs::remove_file(entry.path());
    }
}

fn pin_path(name: &str) -> PathBuf {
    Path::new(PIN_DIRECTORY).join(name)
}

/// Returns the path of a pinned map in the present layout.
fn map_path(name: &str) -> PathBuf {
    pin_path(&format!("{name}-{LAYOUT}"))
}

/// True if what an earlier guard has left has the present layout.
pub(crate) fn has_known_remains() -> bool {
    map_path("control").exists()
}

/// Loaded BPF programs with their maps.
pub(crate) struct Programs {
    ebpf: Ebpf,
    pub(crate) slots: SharedWords,
    updated: SharedWords,
    control: SharedWords,
    events: RingBuf<MapData>,
    pub(crate) networks: NetworkMap,
    pub(crate) services: ServiceMap,
    free_slots: Queue<MapData, u32>,
    cgroups: HashMap<MapData, u64, u8>,
    links: BTreeMap<String, PinnedLink>,
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

impl Programs {
    /// Loads programs and maps; maps that an earlier guard has left are used again.
    pub(crate) fn load(has_guests: bool) -> Result<Self, Error> {
        let btf = Btf::from_sys_fs()
            .map_err(|error| Error::of("read the kernel's type information", error))?;
        let mut loader = EbpfLoader::new();
        loader.btf(Some(&btf));
        for name in ["tracked_sockets", "control", "slots"] {
            loader.map_pin_path(name, map_path(name));
        }
        let mut ebpf = loader
            .load(OBJECT)
            .map_err(|error| Error::of("load the BPF programs", chain(&error)))?;
        load_sock_ops(&mut ebpf)?;
        // Without guests, a kernel that cannot load their programs is no obstacle.
        for name in ["from_guest", "to_guest"].into_iter().filter(|_| has_guests) {
            let program = classifier(&mut ebpf, name)?;
            program.load().map_err(|error| Error::of_program(name, &error))?;
        }
        for (name, kind) in [("adopt", "tcp"), ("lift", "tcp"), ("find_owners", "task_file")] {
            load_iterator(&mut ebpf, name, kind, &btf)?;
        }
        let slots = shared_words(&mut ebpf, "slots", MAX_CONNECTIONS as usize * SLOT_WORDS)?;
        let updated = shared_words(&mut ebpf, "updated", MAX_CONNECTIONS as usize / 8)?;
        let control = shared_words(&mut ebpf, "control", word::COUNT)?;
        let events = take_map(&mut ebpf, "events")?;
        let events = RingBuf::try_from(events).map_err(|error| Error::of("use the map", error))?;
        let networks = HashMap::try_from(take_map(&mut ebpf, "networks")?)
            .map_err(|error| Error::of("use the map", error))?;
        let services = HashMap::try_from(take_map(&mut ebpf, "services")?)
            .map_err(|error| Error::of("use the map", error))?;
        let free_slots = Queue::try_from(take_map(&mut ebpf, "free_slots")?)
            .map_err(|error| Error::of("use the map", error))?;
        let cgroups = HashMap::try_from(take_map(&mut ebpf, "cgroups")?)
            .map_err(|error| Error::of("use the map", error))?;
        let version = bankfull_sys::kernel_version();
        let lifts_closed = version.is_some_and(|version| version >= LIFTS_CLOSED_KERNEL);
        control.store(word::LIFTS_CLOSED, lifts_closed.into());
        Ok(Self {
            ebpf,
            slots,
            updated,
            control,
            events,
            networks,
            services,
            free_slots,
            cgroups,
            links: BTreeMap::new(),
        })
    }

    /// Follows all connections below a cgroup from now on.
    pub(crate) fn attach(&mut self, cgroup: &File) -> Result<(), Error> {
        self.fill_free_slots()?;
        let program = sock_ops(&mut self.ebpf)?;
        // Links always coexist with those of other programs; the kernel rejects the flag for that.
        let attached = program
            .attach(cgroup.as_fd(), CgroupAttachMode::Single)
            .and_then(|id| program.take_link(id));
        let link = attached.map_err(|error| Error::of("attach to the cgroup", chain(&error)))?;
        let link = FdLink::try_from(link).map_err(|error| Error::of("keep the link", error))?;
        self.pin(link, "link")
    }

    /// Follows the connections of guests behind interface number `at` from now on.
    pub(crate) fn attach_guests(&mut self, interface: &str, at: usize) -> Result<(), Error> {
        let directions =
            [("from_guest", TcAttachType::Ingress), ("to_guest", TcAttachType::Egress)];
        // Numbered, because an interface name may contain a dot, but that of a pin may not.
        let pin_name = |name: &str| format!("{name}-{at}");
        let attached = directions.into_iter().try_for_each(|(name, direction)| {
            let link = self.attach_guest_program(interface, (name, direction))?;
            self.pin(link, &pin_name(name))
        });
        if attached.is_err() {
            // The link of one direction would make the next attempt fail.
            directions.iter().for_each(|(name, _)| self.unpin(&pin_name(name)));
        }
        attached
    }

    fn attach_guest_program(
        &mut self,
        interface: &str,
        (name, direction): (&str, TcAttachType),
    ) -> Result<FdLink, Error> {
        let program = classifier(&mut self.ebpf, name)?;
        // Last, after the programs of others: what they drop does not count.
        let options = TcAttachOptions::TcxOrder(LinkOrder::default());
        let link = program
            .attach_with_options(interface, direction, options)
            .and_then(|id| program.take_link(id))
            .map_err(|error| {
                Error::of(format_args!("follow the guests of {interface}"), chain(&error))
            })?;
        FdLink::try_from(link).map_err(|error| Error::of("keep the link", error))
    }

    /// Ends a link, if there is one.
    fn unpin(&mut self, name: &str) {
        let _ = fs::remove_file(pin_path(name));
        self.links.remove(name);
    }

    /// Keeps a link beyond the end of this process.
    fn pin(&mut self, link: FdLink, name: &str) -> Result<(), Error> {
        let path = pin_path(name);
        // A pin may be left from an interface that is gone.
        self.unpin(name);
        let pinned = link.pin(path).map_err(|error| Error::of("pin the link", chain(&error)))?;
        self.links.insert(name.to_owned(), pinned);
        Ok(())
    }

    fn fill_free_slots(&mut self) -> Result<(), Error> {
        for index in 0..MAX_CONNECTIONS {
            self.free_slots
                .push(index, 0)
                .map_err(|error| Error::of("fill the queue of slots", error))?;
        }
        Ok(())
    }

    /// Frees the slot of a connection that has ended, unless it is already free.
    pub(crate) fn free_slot(&mut self, slot: u32, cookie: u64) {
        if cookie != 0 && slot::cookie(&self.slots, slot) == cookie {
            slot::vacate(&self.slots, slot);
            // The queue has room for all slots.
            let _ = self.free_slots.push(slot, 0);
        }
    }

    /// Takes the slots that were updated since the last call.
    pub(crate) fn take_updated(&self) -> Vec<u32> {
        slot::take_marked(&self.updated)
    }

    /// Notes the processes of sockets that are open already.
    pub(crate) fn find_owners(&mut self) -> Result<(), Error> {
        namespaces::run_iterator(self.iterator("find_owners")?, None)
    }

    /// Adopts the connections that processes of a cgroup have already.
    pub(crate) fn adopt(&mut self, cgroup: &Path) -> Result<(), Error> {
        self.find_owners()?;
        // The root contains all cgroups, and needs no filter.
        let below = cgroups::numbers(cgroup);
        let is_filtered = !below.contains(&cgroups::ROOT);
        for number in below.into_iter().filter(|_| is_filtered) {
            let inserted = self.cgroups.insert(number, 1, 0);
            inserted.map_err(|error| Error::of("note the cgroups", error))?;
        }
        self.control.store(word::IS_FILTERED, is_filtered.into());
        // Without the right to enter other namespaces, connections from before are left alone.
        self.in_namespaces("adopt", cgroup).map(drop)
    }

    /// Lifts the windows of all connections that processes of a cgroup have.
    ///
    /// # Errors
    ///
    /// A namespace that cannot be entered.
    pub(crate) fn lift(&mut self, cgroup: &Path) -> Result<Lifted, Error> {
        let end = Instant::now() + OPENING_TIME;
        loop {
            let before = self.counters().closed;
            let (failure, entered) = self.in_namespaces("lift", cgroup)?;
            failure.map_or(Ok(()), Err)?;
            if self.counters().closed == before {
                return Ok(match slot::held_elsewhere(&self.slots, MAX_CONNECTIONS, &entered) {
                    0 => Lifted::All,
                    count => Lifted::AllButElsewhere(count),
                });
            }
            if Instant::now() >= end {
                return Ok(Lifted::AllButClosed);
            }
            thread::sleep(OPENING_INTERVAL);
        }
    }

    /// Runs an iterator in each namespace.
    ///
    /// Returns the first error outside this namespace, and the inodes of those without errors.
    fn in_namespaces(
        &mut self,
        name: &str,
        cgroup: &Path,
    ) -> Result<(Option<Error>, BTreeSet<u64>), Error> {
        // Sockets may be in the namespace of this process without another process in it.
        namespaces::run_iterator(self.iterator(name)?, None)?;
        let mut others = namespaces::of_processes(&cgroups::processes(cgroup));
        // This one was read above, and to enter it again takes CAP_SYS_ADMIN.
        let mut entered = BTreeSet::new();
        if let Ok(own) = fs::metadata("/proc/thread-self/ns/net") {
            others.remove(&own.ino());
            entered.insert(own.ino());
        }
        let mut failure = None;
        for (number, namespace) in others {
            match namespaces::run_iterator(self.iterator(name)?, Some(&namespace)) {
                Ok(()) => drop(entered.insert(number)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Ok((failure, entered))
    }

    fn iterator(&mut self, name: &str) -> Result<IterLink, Error> {
        let program = iterator_program(&mut self.ebpf, name)?;
        let link = program.attach().and_then(|id| program.take_link(id));
        link.map_err(|error| {
            Error::of(format_args!("attach the BPF program {name}"), chain(&error))
        })
    }

    /// Stores the heartbeat: a time of the monotonic clock, in nanoseconds.
    pub(crate) fn set_heartbeat(&self, now_ns: u64) {
        self.control.store(word::HEARTBEAT, now_ns);
    }

    /// Limits the connections that start until the next call.
    pub(crate) fn limit_starts(&self, limits: &StartLimits) {
        let rate = limits.capacity.map_or(0, |rate| rate.bytes_per_sec());
        self.control.store(word::QUEUE, limits.queue.0);
        self.control.store(word::TAKEN, limits.taken.0);
        self.control.store(word::MIN_SEGMENTS, limits.min_segments);
        self.control.store(word::START_TIME, limits.duration.as_nanos() as u64);
        self.control.store(word::RATE, rate);
    }

    /// Returns the number of starts of connections so far.
    pub(crate) fn starts(&self) -> u64 {
        self.control.load(word::STARTS)
    }

    /// Waits until the number of starts differs from `starts`, or until a timeout.
    pub(crate) fn wait_for_start(&self, starts: u64, timeout: Duration) {
        self.control.store(word::IS_ASLEEP, 1);
        // A start before the flag was set wakes nothing.
        if self.starts() == starts {
            let mut events = [PollFd::new(&self.events, PollFlags::IN)];
            let timeout = Timespec::try_from(timeout).ok();
            // A signal ends it earlier, which does no harm.
            let _ = poll(&mut events, timeout.as_ref());
        }
        self.control.store(word::IS_ASLEEP, 0);
    }

    /// Returns the counters.
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            without_slot: self.control.load(word::WITHOUT_SLOT),
            lost_events: self.control.load(word::LOST_EVENTS),
            unfollowed: self.control.load(word::UNFOLLOWED),
            lifted: self.control.load(word::LIFTED),
            closed: self.control.load(word::CLOSED),
            refused: self.control.load(word::REFUSED),
        }
    }

    /// Returns the next event.
    pub(crate) fn next_event(&mut self) -> Option<SocketEvent> {
        loop {
            let item = self.events.next()?;
            if let Some(event) = parse_event(&item) {
                return Some(event);
            }
        }
    }
}

/// Parses an event; `None` if it is of no known kind.
fn parse_event(bytes: &[u8]) -> Option<SocketEvent> {
    let bytes: &[u8; EVENT_BYTES] = bytes.try_into().ok()?;
    let half =
        |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let (_, longs) = bytes.split_at(8);
    let mut longs = longs
        .chunks_exact(8)
        .map(|word| word.try_into().map(u64::from_ne_bytes).unwrap_or_default());
    let (slot, cookie, received) = (half(4), longs.next()?, longs.next()?);
    match half(0) {
        OPENED => Some(SocketEvent::Opened { slot, cookie, received }),
        CLOSED => Some(SocketEvent::Closed { slot, cookie }),
        _ => None,
    }
}

/// Returns an error with its sources, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text.replace('\n', "; ")
}

fn take_map(ebpf: &mut Ebpf, name: &str) -> Result<Map, Error> {
    ebpf.take_map(name).ok_or_else(|| Error::new(format!("the BPF object lacks the map {name}")))
}

/// Maps an array into this process; the map itself stays loaded.
fn shared_words(ebpf: &mut Ebpf, name: &str, words: usize) -> Result<SharedWords, Error> {
    let Map::Array(array) = take_map(ebpf, name)? else {
        return Err(Error::new(format!("the map {name} is no array")));
    };
    SharedWords::map(array.fd(), words)
        .map_err(|error| Error::of(format_args!("map the array {name}"), error))
}

fn missing_program(name: &str) -> Error {
    Error::new(format!("the BPF object lacks the program {name}"))
}

fn sock_ops(ebpf: &mut Ebpf) -> Result<&mut SockOps, Error> {
    let program = ebpf.program_mut("follow").ok_or_else(|| missing_program("follow"))?;
    program.try_into().map_err(|error| Error::of_program("follow", &error))
}

fn classifier<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut SchedClassifier, Error> {
    let program = ebpf.program_mut(name).ok_or_else(|| missing_program(name))?;
    program.try_into().map_err(|error| Error::of_program(name, &error))
}

fn iterator_program<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Iter, Error> {
    let program = ebpf.program_mut(name).ok_or_else(|| missing_program(name))?;
    program.try_into().map_err(|error| Error::of_program(name, &error))
}

fn load_sock_ops(ebpf: &mut Ebpf) -> Result<(), Error> {
    sock_ops(ebpf)?.load().map_err(|error| Error::of_program("follow", &error))
}

fn load_iterator(ebpf: &mut Ebpf, name: &str, kind: &str, btf: &Btf) -> Result<(), Error> {
    iterator_program(ebpf, name)?.load(kind, btf).map_err(|error| Error::of_program(name, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Skipped on other systems than that of the object, whose compiler and headers differ.
    #[test]
    fn object_is_that_of_its_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let has = |path: &str| Path::new(path).exists();
        let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let is_ready = has("/usr/bin/clang-14") && has("/usr/include/bpf/bpf_helpers.h");
        if !is_ready || !system.contains("VERSION_CODENAME=bookworm") {
            eprintln!("skipped: needs Debian 12 with clang-14, llvm-14 and libbpf-dev");
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        let object = scratch.path().join("guard.bpf.o");
        let script = root.join("scripts/build-bpf");
        assert!(Command::new(script).arg(&object).status().unwrap().success());
        let is_equal = fs::read(&object).unwrap() == OBJECT;
        assert!(is_equal, "run scripts/build-bpf and commit crates/guard/bpf/guard.bpf.o");
    }

    #[test]
    fn events_are_parsed_or_skipped() {
        let event = |kind: u32| {
            let halves = [kind.to_ne_bytes(), 9_u32.to_ne_bytes()].concat();
            let longs = [70_u64.to_ne_bytes(), 5000_u64.to_ne_bytes()].concat();
            [halves, longs].concat()
        };
        let opened = SocketEvent::Opened { slot: 9, cookie: 70, received: 5000 };
        let closed = SocketEvent::Closed { slot: 9, cookie: 70 };
        assert_eq!(parse_event(&event(OPENED)), Some(opened));
        assert_eq!(parse_event(&event(CLOSED)), Some(closed));
        assert_eq!(parse_event(&event(3)), None);
        assert_eq!(parse_event(&event(OPENED)[..23]), None);
    }
}
