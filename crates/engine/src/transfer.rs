//! The public entry: what to copy, how, and run.

use crate::anchor::PathRoot;
use crate::block_io::Engine;
use crate::cancel::Cancel;
use crate::client::{self, Request, path_bytes};
use crate::error::{Error, ErrorKind};
use crate::event::{EventSink, Summary};
use crate::gather::claims::Claimant;
use crate::local;
use crate::location::Location;
use crate::net::staging::BufferPool;
use crate::options::{
    DEFAULT_STREAMS, DEFAULT_TIMEOUT, DaemonOptions, Direct, Fsync, MEMORY_LEAST, SshOptions,
    Transport, Tune,
};
use crate::overrides::Overrides;
use crate::paths::PathMemory;
use crate::tune::{BarrierSeat, Sharing, is_receiving};
use bankfull_control::{Bytes, Rate};
use bankfull_proto::limits::MAX_STREAMS;
use bankfull_proto::wire::control::{Direction, PathBytes};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A copy to be made. Build it, then [`run`](Self::run) it.
#[derive(Debug, Clone)]
pub struct Transfer {
    pub(crate) sources: Vec<Location>,
    pub(crate) destination: Location,
    /// `None`: as the path asks for.
    pub(crate) streams: Option<u32>,
    pub(crate) encryption: bool,
    pub(crate) fsync: Fsync,
    pub(crate) checksum: bool,
    pub(crate) dry_run: bool,
    pub(crate) timeout: Duration,
    pub(crate) tune: Tune,
    pub(crate) overrides: Overrides,
    /// Nothing is copied: filler goes over the path for so long.
    pub(crate) probe: Option<Duration>,
    /// What the link carries by which this host receives.
    pub(crate) link_rate: Option<Rate>,
    /// Where what is received waits until it is written, and its limit.
    pub(crate) staging: Arc<BufferPool>,
    pub(crate) memory_max: Option<Bytes>,
    /// How many transfers, this one included, are to receive at the same time.
    pub(crate) company: Option<Arc<AtomicUsize>>,
    /// Its place among those that send in rounds.
    pub(crate) seat: Option<BarrierSeat>,
    /// The directory of the destination will be there, though a dry run may not find it yet.
    pub(crate) parent_is_planned: bool,
    /// What says what it may put in place, where it is merged with others.
    pub(crate) claimant: Option<Claimant>,
    pub(crate) ssh: SshOptions,
    pub(crate) daemon: DaemonOptions,
}

impl Transfer {
    /// A copy of `sources` to `destination` with the defaults: streams as the path asks for,
    /// encrypted, unchanged files skipped by size and time, one flush to the disk at the end, 60 s
    /// timeout.
    #[must_use]
    pub fn new(sources: Vec<Location>, destination: Location) -> Self {
        Self {
            sources,
            destination,
            streams: None,
            encryption: true,
            fsync: Fsync::default(),
            checksum: false,
            dry_run: false,
            timeout: DEFAULT_TIMEOUT,
            tune: Tune::default(),
            overrides: Overrides::default(),
            probe: None,
            link_rate: None,
            staging: Arc::default(),
            memory_max: None,
            company: None,
            seat: None,
            parent_is_planned: false,
            claimant: None,
            ssh: SshOptions::default(),
            daemon: DaemonOptions::default(),
        }
    }

    /// Number of data connections, 1 to 64. Without this call it begins as the round trip asks for:
    /// 4 up to 20 ms, 16 above 40 ms, 8 between; and then, unless [`Tune`] says otherwise, it is
    /// what the path is found to need. 4 threads for a copy within a host.
    #[must_use]
    pub fn streams(mut self, streams: u32) -> Self {
        self.streams = Some(streams);
        self
    }

    /// Whether data is encrypted on its way. Without, it is still authenticated and verified.
    #[must_use]
    pub fn encryption(mut self, encryption: bool) -> Self {
        self.encryption = encryption;
        self
    }

    /// When received files are flushed to the disk.
    #[must_use]
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.fsync = fsync;
        self
    }

    /// Compare content instead of size and modification time.
    #[must_use]
    pub fn checksum(mut self, checksum: bool) -> Self {
        self.checksum = checksum;
        self
    }

    /// Say what would be done; change nothing.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Silence after which the far side is given up.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether windows and pacing of the data connections are tuned while the copy runs.
    #[must_use]
    pub fn tune(mut self, tune: Tune) -> Self {
        self.tune = tune;
        self
    }

    /// The most data per second, over all data connections together, whether they are tuned or
    /// not; what is sent on the control connection does not count. Without this call: as much as
    /// the path carries.
    ///
    /// Below [`RATE_MAX_LEAST`](crate::RATE_MAX_LEAST), and for a copy within a host, the transfer
    /// is refused as [`ErrorKind::Usage`].
    #[must_use]
    pub fn max_rate(mut self, rate: Rate) -> Self {
        self.overrides.rate_max = Some(rate);
        self
    }

    /// The receive windows of all data connections together, for the whole copy, as far as the
    /// receiver's kernel allows them (`tcp_rmem`). Windows do not follow the path then, and pacing
    /// is left to TCP. Each connection has two segments at least.
    ///
    /// Below [`BUFFER_LEAST`](crate::BUFFER_LEAST), beyond [`BUFFER_MOST`](crate::BUFFER_MOST),
    /// and for a copy within a host, the transfer is refused as [`ErrorKind::Usage`].
    #[must_use]
    pub fn buffer(mut self, window: Bytes) -> Self {
        self.overrides.window = Some(window);
        self
    }

    /// The congestion control of the data connections, by the name that the sending host's kernel
    /// has for it. Without this call: that host's own.
    ///
    /// A name that no kernel could have, or that the sending host does not have or does not allow
    /// to its user, and a copy within a host, are refused as [`ErrorKind::Usage`], before anything
    /// is written.
    #[must_use]
    pub fn congestion(mut self, name: impl Into<String>) -> Self {
        self.overrides.congestion = Some(name.into());
        self
    }

    /// The engine that takes bytes from files to data connections, on the side that sends. Without
    /// this call: what suits the file and the connection.
    ///
    /// One that is only to be measured, one that stays in the kernel where data is encrypted, one
    /// that the sending host's kernel does not have, and a copy within a host, are refused as
    /// [`ErrorKind::Usage`].
    #[must_use]
    pub fn engine(mut self, engine: Engine) -> Self {
        self.overrides.engine = Some(engine);
        self
    }

    /// The blocks into which files are cut that are sent anew: what is verified, acknowledged and
    /// continued as a whole. Files that would have too many of them have larger ones. Without this
    /// call: 1 to 16 MiB, by the file's size.
    ///
    /// What is no power of two from 1 to 16 MiB, and a copy within a host, are refused as
    /// [`ErrorKind::Usage`].
    #[must_use]
    pub fn block(mut self, block: Bytes) -> Self {
        self.overrides.block = Some(block);
        self
    }

    /// Whether both sides pass their page caches by. [`Direct::On`] does so wherever a file system
    /// can; a copy within a host is refused then as [`ErrorKind::Usage`].
    #[must_use]
    pub fn direct(mut self, direct: Direct) -> Self {
        self.overrides.direct = direct;
        self
    }

    /// What the link carries by which this host receives, in packets. It counts while several
    /// transfers of this process receive by the same interface: their senders then take turns, and
    /// their windows fit that link together. Without this call: what the interface tells, else
    /// what turns out.
    #[must_use]
    pub fn link_rate(mut self, rate: Rate) -> Self {
        self.link_rate = Some(rate);
        self
    }

    /// How much of what was received may wait in memory until it is written, on the side that
    /// receives: on this host, or on one that is reached over ssh. 1 MiB at least; without this
    /// call a quarter of the memory that is free there, and no more than 1 GiB. How much of that is
    /// used follows the load: next to nothing while the disk keeps up. Each data connection has
    /// 256 KiB in any case, and QUIC has windows beside it: 4 MiB at least for each of its two
    /// connections and directions, a quarter of the limit at most where that is more.
    #[must_use]
    pub fn memory_max(mut self, most: Bytes) -> Self {
        self.staging = BufferPool::new(Some(most));
        self.memory_max = Some(most);
        self
    }

    /// How the far side is started over ssh.
    #[must_use]
    pub fn ssh(mut self, ssh: SshOptions) -> Self {
        self.ssh = ssh;
        self
    }

    /// How a daemon is trusted and told who we are.
    #[must_use]
    pub fn daemon(mut self, daemon: DaemonOptions) -> Self {
        self.daemon = daemon;
        self
    }

    /// Copies. Files that fail are reported as events and counted in the summary; the copy goes on
    /// without them.
    ///
    /// # Errors
    /// What keeps the copy as a whole from going on; see [`crate::ErrorKind`]. What is verified by
    /// then is kept, and the same call continues there.
    pub fn run(self, events: &dyn EventSink, cancel: &Cancel) -> Result<Summary, Error> {
        let started = Instant::now();
        self.check()?;
        let _ = bankfull_sys::raise_open_file_limit();
        let first = self.sources.first().cloned();
        let far = match (&first, &self.destination) {
            (Some(Location::Local(_)), Location::Local(_)) => {
                return local::run(&self, events, cancel, started);
            }
            (Some(Location::Local(_)), far) => (far.clone(), Direction::Push),
            (Some(far), _) => (far.clone(), Direction::Pull),
            (None, _) => return Err(Error::new(ErrorKind::Usage, "no source given")),
        };
        self.run_with(&far.0, far.1, events, cancel, started)
    }

    /// Runs it with a far side.
    pub(crate) fn run_with(
        &self,
        far: &Location,
        direction: Direction,
        events: &dyn EventSink,
        cancel: &Cancel,
        started: Instant,
    ) -> Result<Summary, Error> {
        let far_paths = match direction {
            _ if self.probe.is_some() => Vec::new(),
            Direction::Push => vec![far_path(&self.destination)],
            Direction::Pull => self.sources.iter().map(far_path).collect(),
        };
        let token = self.daemon.token.clone();
        let items = match direction {
            Direction::Push => {
                self.overrides.check_sender()?;
                let typed: Vec<_> = self.sources.iter().map(|s| path_bytes(s.path())).collect();
                PathRoot::Host.resolve_sources(&typed)?
            }
            Direction::Pull => Vec::new(),
        };
        let memory = PathMemory::of(self, direction).filter(|_| self.is_tuned());
        let earlier = memory.and_then(|memory| memory.recall()).unwrap_or_default();
        let request = Request { transfer: self, direction, far_paths, token, items, earlier };
        match far {
            Location::Daemon { host, port, .. } => {
                client::daemon::transfer(host, *port, request, events, cancel, started)
            }
            Location::Ssh { user, host, .. } => {
                client::ssh::transfer(user.as_deref(), host, request, events, cancel, started)
            }
            Location::Local(_) => Err(Error::new(ErrorKind::Usage, "both places are local")),
        }
    }

    /// How many data connections to make where a round trip takes `rtt`, as far as it is known.
    pub(crate) fn streams_for(&self, rtt: Option<Duration>) -> u32 {
        let chosen = || rtt.map_or(DEFAULT_STREAMS, bankfull_control::initial_streams);
        self.streams.unwrap_or_else(chosen)
    }

    /// How many data connections there may come to be; `None` where their number stays.
    pub(crate) fn max_streams(&self) -> Option<u32> {
        let is_free = self.streams.is_none() && self.tune == Tune::Auto && !self.dry_run;
        (is_free && self.is_tuned()).then_some(MAX_STREAMS)
    }

    /// Whether windows and pacing follow the path.
    pub(crate) fn is_tuned(&self) -> bool {
        // What QUIC sends has a controller of its own.
        !self.is_by_quic() && self.tune != Tune::Off && self.overrides.window.is_none()
    }

    /// Whether QUIC carries it.
    pub(crate) fn is_by_quic(&self) -> bool {
        let mut places = self.sources.iter().chain([&self.destination]);
        let is_daemon = |place: &Location| matches!(place, Location::Daemon { .. });
        self.daemon.transport == Transport::Quic && places.any(is_daemon)
    }

    /// It is one of so many that receive at the same time, as long as there are as many.
    pub(crate) fn in_company(mut self, company: Arc<AtomicUsize>) -> Self {
        self.company = Some(company);
        self
    }

    /// Whether others are to receive at the same time.
    pub(crate) fn has_company(&self) -> bool {
        self.company.as_ref().is_some_and(|company| company.load(Ordering::Relaxed) > 1)
    }

    /// How the connections share their port, as the side that receives, where the sender obeys
    /// what it is asked for, or not.
    pub(crate) fn sharing(&self, obeys: bool) -> Sharing {
        let company = self.company.clone();
        let mut sharing = Sharing::new(self.is_tuned(), obeys, self.link_rate, company);
        sharing.seat.clone_from(&self.seat);
        sharing
    }

    /// Whether the sender is to send what it is asked for, and no more: where others receive in
    /// this process, or are about to.
    pub(crate) fn wants_to_ask(&self) -> bool {
        let wants = self.seat.is_some() || self.has_company() || is_receiving();
        wants && self.is_tuned() && self.probe.is_none() && !self.dry_run
    }

    /// Whether the operands fit each other.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let usage = |text: &str| Err(Error::new(ErrorKind::Usage, text));
        if let Some(streams) = self.streams.filter(|n| !(1..=MAX_STREAMS).contains(n)) {
            return usage(&format!("{streams} streams: choose 1 to {MAX_STREAMS}"));
        }
        if self.timeout < TIMEOUT_MIN {
            return usage("the timeout must be at least 0.1 seconds");
        }
        if self.memory_max.is_some_and(|most| most < MEMORY_LEAST) {
            return usage(&format!("the memory for what is received is {MEMORY_LEAST} at least"));
        }
        if self.memory_max.is_some() && matches!(self.destination, Location::Daemon { .. }) {
            let text = "a daemon has a limit of memory of its own: give `bankfull serve` there \
                        --max-memory";
            return usage(text);
        }
        self.overrides.check()?;
        self.overrides.check_encryption(self.encryption)?;
        let mut hosts = self.sources.iter().map(host_of);
        let first = hosts.next().unwrap_or_default();
        if hosts.any(|host| host != first) {
            return usage("sources on different hosts: copy from one host at a time");
        }
        if first.is_some() && !self.destination.is_local() {
            return usage("source and destination are both remote: run bankfull on one of them");
        }
        if first.is_none() && self.destination.is_local() && !self.overrides.is_empty() {
            let text = "rate, buffer, congestion control, engine, blocks and direct input and \
                        output are for copies with another host";
            return usage(text);
        }
        Ok(())
    }
}

/// The path as the far side is to take it. An agent starts in the user's home, so that `~/` may go.
pub(crate) fn far_path(place: &Location) -> PathBytes {
    let mut path = path_bytes(place.path());
    if matches!(place, Location::Ssh { .. }) {
        match path.0.as_slice() {
            b"~" => path.0 = b".".to_vec(),
            [b'~', b'/', ..] => drop(path.0.drain(..2)),
            _ => {}
        }
    }
    path
}

/// Shorter would end sessions that are merely busy.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// What identifies the host of a place; `None` for this one.
fn host_of(place: &Location) -> Option<String> {
    match place {
        Location::Local(_) => None,
        Location::Ssh { user, host, .. } => Some(format!("{user:?} {host}")),
        Location::Daemon { host, port, .. } => Some(format!("{host} {port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::NoEvents;

    #[test]
    fn within_a_host_there_is_no_rate_buffer_or_congestion_control_to_set() {
        let here = || Location::Local("/nonexistent".into());
        let local = Transfer::new(vec![here()], here());
        let rate = Rate::from_bits_per_sec(1e9);
        for set in [
            local.clone().max_rate(rate),
            local.clone().buffer(Bytes::mib(4)),
            local.clone().congestion("reno"),
            local.clone().engine(Engine::Mmap),
            local.clone().block(Bytes::mib(4)),
            local.clone().direct(Direct::On),
        ] {
            let error = set.run(&NoEvents, &Cancel::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains("are for copies with another host"), "{error}");
        }
        let error = local.run(&NoEvents, &Cancel::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Source);
    }
}
