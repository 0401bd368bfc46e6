//! [`Transfer`]: one copy, its options, and its run.

use super::delete::{Delete, check_removal, refuse_root};
use super::earlier::{Backup, check_earlier};
use super::filters::Filters;
use super::limits::{MIN_OPEN_FILES, check_open_files};
use super::selection::{Comparison, FileList, Selection};
use super::{input, output, reconnect};
use crate::base::cancel::Cancel;
use crate::base::error::{Error, ErrorKind};
use crate::base::event::{EventSink, Summary};
use crate::base::event_log::{EventLog, Subject};
use crate::base::location::Location;
use crate::file_io::ordered_output::OrderedOutput;
use crate::model::io_method::IoMethod;
use crate::model::metadata::Metadata;
use crate::model::options::{DaemonOptions, DirectIo, Fsync, MIN_MEMORY_LIMIT, SshOptions, Tune};
use crate::model::path_cache::PathCache;
use crate::model::rate_schedule::RateSchedule;
use crate::model::transfer_options::{Purpose, TransferOptions};
use crate::routes::client;
use crate::routes::client::{Request, path_bytes};
use crate::routes::local;
use crate::run::context::RunContext;
use crate::stats::lost_sessions::LostSessions;
use crate::transport::buffer_pool::BufferPool;
use bankfull_control::{Bytes, Rate, Schedule};
use bankfull_proto::limits::{MAX_IGNORE_FILES, MAX_REQUEST_PATHS, MAX_STREAMS};
use bankfull_proto::wire::control::{self, Direction, PathBytes, WalkRules, check_name};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A copy between two locations. Build it, then [`run`](Self::run) it.
#[derive(Debug, Clone)]
pub struct Transfer {
    pub(crate) options: TransferOptions,
    pub(crate) context: RunContext,
}

impl Transfer {
    /// A copy of `sources` to `destination` with the defaults. These are: streams chosen from the
    /// path's RTT, encryption, unchanged files skipped by size and time, one flush to the disk at
    /// the end, a timeout of 60 s.
    #[must_use]
    pub fn new(sources: Vec<Location>, destination: Location) -> Self {
        Self { options: TransferOptions::new(sources, destination), context: RunContext::default() }
    }

    /// Sets the number of data streams, 1 to 64. Default: 4 up to an RTT of 20 ms, 16 above 40 ms,
    /// 8 between; then, unless [`Tune`] says otherwise, tuned while the copy runs. A copy within a
    /// host uses 4 threads.
    #[must_use]
    pub fn streams(mut self, streams: u32) -> Self {
        self.options.streams = Some(streams);
        self
    }

    /// Encrypts data in transit (default). Unencrypted data is still authenticated and verified.
    #[must_use]
    pub fn encryption(mut self, encryption: bool) -> Self {
        self.options.encryption = encryption;
        self
    }

    /// Sets when received files are flushed to the disk.
    #[must_use]
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.options.rules.fsync = fsync;
        self
    }

    /// Compares content instead of size and modification time.
    #[must_use]
    pub fn checksum(mut self, checksum: bool) -> Self {
        self.options.rules.comparison.by_content = checksum;
        self
    }

    /// Sets for how long a lost session is connected again, after which it resumes. Zero: it ends
    /// the transfer. Default: [`crate::DEFAULT_RETRY_FOR`].
    #[must_use]
    pub fn retry_for(mut self, time: Duration) -> Self {
        self.options.retry_for = time;
        self
    }

    /// Trusts the blocks that an interrupted run left, without hashing them again.
    ///
    /// Damage to them on the disk since then is not detected. Default: every block is hashed again
    /// during the transfer, and sent again if it differs.
    #[must_use]
    pub fn trust_journal(mut self, trust_journal: bool) -> Self {
        self.options.rules.trust_journal = trust_journal;
        self
    }

    /// Sets which entries are copied; the sending side applies the rules. Default: all.
    #[must_use]
    pub fn filters(mut self, filters: Filters) -> Self {
        self.options.rules.filters = filters.0;
        self
    }

    /// Sets which metadata is kept. Default: modes, modification times and symlinks.
    #[must_use]
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.options.rules.metadata = metadata;
        self
    }

    /// Sets what is copied of the sources, beside filters. Default: everything.
    #[must_use]
    pub fn selection(mut self, selection: &Selection) -> Self {
        let WalkRules { listed, recursive, .. } = self.options.rules.walk;
        self.options.rules.walk = WalkRules { listed, recursive, ..selection.rules() };
        self
    }

    /// Copies names beneath the one source, a directory, instead of all that it contains.
    ///
    /// The names keep their paths at the destination.
    #[must_use]
    pub fn files_from(mut self, list: FileList) -> Self {
        let rules = &mut self.options.rules;
        (rules.walk.listed, rules.walk.recursive) = (true, list.0.is_recursive());
        rules.list = Some(list.0);
        self
    }

    /// Sets what happens to files that exist. Default: those that differ are replaced.
    #[must_use]
    pub fn comparison(mut self, comparison: Comparison) -> Self {
        let by_content = self.options.rules.comparison.by_content;
        self.options.rules.comparison = comparison.rules(by_content);
        self
    }

    /// Deletes entries of the destination that the source does not have. Default: none.
    #[must_use]
    pub fn delete(mut self, delete: Option<Delete>) -> Self {
        self.options.rules.delete = delete.map(Delete::rules);
        self
    }

    /// Keeps earlier versions of what is replaced or deleted. Default: they are lost.
    #[must_use]
    pub fn backup(mut self, backup: Option<Backup>) -> Self {
        self.options.rules.earlier.backup = backup.map(Backup::rules);
        self
    }

    /// Makes unchanged files hard links to those in directories of earlier copies.
    ///
    /// The directories are relative to the destination, and on its file system.
    #[must_use]
    pub fn link_dest(mut self, dirs: &[PathBuf]) -> Self {
        let dirs = dirs.iter().map(|dir| control::Bytes(path_bytes(dir).0)).collect::<Vec<_>>();
        self.options.rules.earlier.link_dest = (!dirs.is_empty()).then_some(dirs);
        self
    }

    /// Removes files and symlinks at the source once the destination has them.
    ///
    /// That happens at the end, and to those alone that have not changed since.
    #[must_use]
    pub fn remove_source_files(mut self, remove: bool) -> Self {
        self.options.rules.removes_sources = remove;
        self
    }

    /// Reports each change at the destination as [`Event::Changed`](crate::Event::Changed).
    #[must_use]
    pub fn itemize_changes(mut self, itemize: bool) -> Self {
        self.options.rules.itemizes = itemize;
        self
    }

    /// Reports what would be copied and changes nothing.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.options.dry_run = dry_run;
        self
    }

    /// Sets the silence after which the peer is given up.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// Sets what is tuned while the copy runs.
    #[must_use]
    pub fn tune(mut self, tune: Tune) -> Self {
        self.options.tune = tune;
        self
    }

    /// Limits the data rate of all data streams together, with or without tuning. The control
    /// connection does not count. Default: no limit.
    ///
    /// Within a host it limits all that is copied; a reflink copies nothing. A rate below
    /// [`MIN_RATE_LIMIT`](crate::MIN_RATE_LIMIT) is refused as [`ErrorKind::Usage`].
    #[must_use]
    pub fn max_rate(mut self, rate: Rate) -> Self {
        self.options.overrides.rate_max = Some(rate);
        self
    }

    /// Limits the data rate by the local time of day. Default: no limit.
    ///
    /// With [`max_rate`](Self::max_rate), the lower limit applies. The limit changes while the copy
    /// runs, at most a second after its minute begins; each change is an
    /// [`Event::Tuning`](crate::Event::Tuning). A limit below
    /// [`MIN_RATE_LIMIT`](crate::MIN_RATE_LIMIT) is refused as [`ErrorKind::Usage`], a peer that
    /// does not follow changes as [`ErrorKind::Version`].
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.options.overrides.schedule = Some(RateSchedule::new(schedule));
        self
    }

    /// Fixes the sum of the receive windows of all data streams for the whole copy. The receiver's
    /// kernel may allow less (`tcp_rmem`). Windows are then not tuned, and pacing is left to TCP.
    /// Each stream has at least two segments.
    ///
    /// A size below [`MIN_BUFFER`](crate::MIN_BUFFER) or above
    /// [`MAX_BUFFER`](crate::MAX_BUFFER) and a copy within a host are refused as
    /// [`ErrorKind::Usage`].
    #[must_use]
    pub fn buffer(mut self, window: Bytes) -> Self {
        self.options.overrides.window = Some(window);
        self
    }

    /// Sets the congestion control of the data streams. `name` is its name in the sending host's
    /// kernel. Default: that kernel's own choice.
    ///
    /// A malformed name, a name that the sending host lacks or does not permit, and a copy within a
    /// host are refused as [`ErrorKind::Usage`] before anything is written.
    #[must_use]
    pub fn congestion(mut self, name: impl Into<String>) -> Self {
        self.options.overrides.congestion = Some(name.into());
        self
    }

    /// Sets the method by which the sender moves bytes from files to data streams. Default: chosen
    /// by file and stream.
    ///
    /// Refused as [`ErrorKind::Usage`]: a method that exists only for benchmarks, one within the
    /// kernel when data is encrypted, one that the sending host's kernel lacks, and a copy within a
    /// host.
    #[must_use]
    pub fn io_method(mut self, method: IoMethod) -> Self {
        self.options.overrides.io_method = Some(method);
        self
    }

    /// Sets the block size of files that are sent anew. A block is verified, acknowledged and
    /// resumed as a whole. A file that would have too many blocks gets larger ones. Default: 1 to
    /// 16 MiB, by file size.
    ///
    /// A size other than a power of two from 1 to 16 MiB and a copy within a host are refused as
    /// [`ErrorKind::Usage`].
    #[must_use]
    pub fn block(mut self, block: Bytes) -> Self {
        self.options.overrides.block = Some(block);
        self
    }

    /// Sets when both sides bypass their page caches. [`DirectIo::On`] does so on every file system
    /// that supports it, and refuses a copy within a host as [`ErrorKind::Usage`].
    #[must_use]
    pub fn direct(mut self, direct: DirectIo) -> Self {
        self.options.overrides.direct = direct;
        self
    }

    /// Sets the packet rate of the link by which this host receives. It applies while several
    /// transfers of this process receive by the same interface: their senders then take time slots,
    /// and their windows together fit the link. Default: the interface's speed, else a measurement.
    #[must_use]
    pub fn link_rate(mut self, rate: Rate) -> Self {
        self.options.link_rate = Some(rate);
        self
    }

    /// Limits the memory for received data that waits for the disk. The limit applies to the
    /// receiving side: this host, or one reached over ssh. Minimum: 1 MiB. Default: a quarter of
    /// the free memory there, at most 1 GiB. Use follows the load and is almost zero while the disk
    /// keeps up.
    ///
    /// Not counted: 256 KiB per data stream. QUIC windows are also separate: at least 4 MiB, at
    /// most a quarter of the limit if that is more, for each of its two connections and directions.
    #[must_use]
    pub fn max_memory(mut self, limit: Bytes) -> Self {
        self.context.buffer_pool = BufferPool::new(Some(limit));
        self.options.max_memory = Some(limit);
        self
    }

    /// Sets how the agent is started over ssh.
    #[must_use]
    pub fn ssh(mut self, ssh: SshOptions) -> Self {
        self.options.ssh = ssh;
        self
    }

    /// Sets how a daemon is authenticated and how this client authenticates to it.
    #[must_use]
    pub fn daemon(mut self, daemon: DaemonOptions) -> Self {
        self.options.daemon = daemon;
        self
    }

    /// Writes the one source in order to an open file, instead of the destination.
    ///
    /// Each block is verified first. Blocks that arrive out of order wait in a file in `spool`,
    /// which takes the space of these alone. A failure midway leaves the output incomplete. Refused
    /// as [`ErrorKind::Usage`]: a directory, several sources, and options for destinations.
    #[must_use]
    pub fn output(mut self, file: File, spool: impl Into<PathBuf>) -> Self {
        self.context.output = Some(Arc::new(OrderedOutput::new(file, spool.into())));
        self
    }

    /// Sends the content of an open file, such as a pipe, instead of a source.
    ///
    /// It is read while it is sent. Content that the receiver does not have yet is kept in memory,
    /// at most 256 MiB. The destination is a file, not a directory. A lost session is reconnected
    /// only while all content read so far is in memory. [`run`](Self::run) refuses as
    /// [`ErrorKind::Usage`]: several sources, an output, a dry run, and options for trees.
    ///
    /// # Errors
    /// [`ErrorKind::Local`] for a shortage of descriptors or memory.
    pub fn input(mut self, file: File) -> Result<Self, Error> {
        self.context.input = Some(input::open(file)?);
        Ok(self)
    }

    /// Runs the copy. Files that fail are reported as events and counted in the summary; the copy
    /// goes on without them.
    ///
    /// # Errors
    /// Errors that end the whole copy; see [`crate::ErrorKind`]. Verified data is kept, and the
    /// same call resumes there.
    pub fn run(self, events: &dyn EventSink, cancel: &Cancel) -> Result<Summary, Error> {
        let subject = self.subject();
        subject.log_start();
        let log = EventLog::new(events);
        let result = self.run_unlogged(&log, cancel);
        subject.log_end(&result, &log.progress());
        result
    }

    /// Describes the transfer for the log.
    fn subject(&self) -> Subject {
        let TransferOptions { sources, destination, .. } = &self.options;
        let is_pull = sources.iter().any(|source| !source.is_local());
        match (is_pull, destination.is_local()) {
            _ if self.options.purpose == Purpose::Listing => {
                Subject::new("list", sources.iter().map(ToString::to_string))
            }
            (true, _) => Subject::new("receive", sources.iter().map(ToString::to_string)),
            (false, true) => Subject::new("copy", [destination.to_string()]),
            (false, false) => Subject::new("send", [destination.to_string()]),
        }
    }

    fn run_unlogged(mut self, events: &dyn EventSink, cancel: &Cancel) -> Result<Summary, Error> {
        let started = Instant::now();
        self.check()?;
        if self.context.input.is_some() {
            input::check(&self.options, self.context.output.is_some())?;
        }
        let Some(output) = self.context.output.clone() else {
            return self.run_checked(events, cancel, started);
        };
        let _spool = output::prepare(&mut self.options, &output)?;
        let summary = self.run_checked(events, cancel, started)?;
        output::check_written(&output, &summary).map(|()| summary)
    }

    /// Runs a transfer whose options fit each other.
    fn run_checked(
        mut self,
        events: &dyn EventSink,
        cancel: &Cancel,
        started: Instant,
    ) -> Result<Summary, Error> {
        let rules = &mut self.options.rules;
        if rules.delete.is_some_and(|delete| delete.deletes_excluded()) {
            rules.filters = std::mem::take(&mut rules.filters).for_delete_excluded();
        }
        let open_files = bankfull_sys::raise_open_file_limit().unwrap_or(MIN_OPEN_FILES);
        check_open_files(open_files, MIN_OPEN_FILES)?;
        let first = self.options.sources.first().cloned();
        let remote = match (&first, &self.options.destination) {
            (Some(Location::Local(_)), Location::Local(_)) => {
                return local::run((&self.options, &self.context), events, cancel, started);
            }
            (Some(Location::Local(_)), remote) => (remote.clone(), Direction::Push),
            (Some(remote), _) => (remote.clone(), Direction::Pull),
            (None, _) => return Err(Error::new(ErrorKind::Usage, "no source given")),
        };
        // The sources of a gather that is merged or in rounds depend on each other's sessions.
        let input = self.context.input.as_deref();
        let retry_for = || match self.context.is_alone() && input.is_none_or(|i| i.can_restart()) {
            true => self.options.retry_for,
            false => Duration::ZERO,
        };
        reconnect::run(retry_for, events, cancel, |events, lost| {
            let result = self.run_remote(&remote.0, remote.1, events, cancel, (started, lost));
            result.map_err(|error| input::explain_loss(input, error))
        })
    }

    /// Runs the transfer with a daemon or an agent.
    pub(crate) fn run_remote(
        &self,
        remote: &Location,
        direction: Direction,
        events: &dyn EventSink,
        cancel: &Cancel,
        (started, lost): (Instant, &LostSessions),
    ) -> Result<Summary, Error> {
        if direction == Direction::Pull && self.options.sources.len() > MAX_REQUEST_PATHS {
            let text = format!(
                "{} sources are too many: the limit is {MAX_REQUEST_PATHS}: copy in parts, or \
                 name them in --files-from FILE",
                self.options.sources.len()
            );
            return Err(Error::new(ErrorKind::Usage, text));
        }
        let remote_paths = match direction {
            _ if self.options.purpose.test_time().is_some() => Vec::new(),
            Direction::Push => vec![remote_path(&self.options.destination)],
            Direction::Pull => self.options.sources.iter().map(remote_path).collect(),
        };
        let items = match direction {
            Direction::Push => {
                self.options.overrides.check_sender()?;
                self.context.source_items(&self.options)?
            }
            Direction::Pull => Vec::new(),
        };
        let memory =
            PathCache::for_transfer(&self.options, direction).filter(|_| self.options.is_tuned());
        let earlier = memory.and_then(|memory| memory.load()).unwrap_or_default();
        let request = Request {
            options: &self.options,
            context: &self.context,
            direction,
            remote_paths,
            items,
            earlier,
            lost,
            entry_quota: (direction == Direction::Pull)
                .then(|| self.context.buffer_pool.entry_quota()),
        };
        match remote {
            Location::Daemon { host, port, .. } => {
                client::daemon::transfer(host, *port, request, events, cancel, started)
                    .map_err(|error| error.naming_peer(host))
            }
            Location::Ssh { user, host, .. } => {
                client::ssh::transfer(user.as_deref(), host, request, events, cancel, started)
                    .map_err(|error| error.naming_peer(host))
            }
            Location::Local(_) => {
                Err(Error::new(ErrorKind::Usage, "source and destination are both local"))
            }
        }
    }

    /// Checks the options and that the operands fit each other.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let usage = |text: &str| Err(Error::new(ErrorKind::Usage, text));
        if let Some(streams) = self.options.streams.filter(|n| !(1..=MAX_STREAMS).contains(n)) {
            return usage(&format!("{streams} streams is out of range: choose 1 to {MAX_STREAMS}"));
        }
        if self.options.timeout < MIN_TIMEOUT {
            return usage("the timeout must be at least 0.1 seconds");
        }
        if self.options.max_memory.is_some_and(|limit| limit < MIN_MEMORY_LIMIT) {
            return usage(&format!(
                "the memory limit is too small: choose {MIN_MEMORY_LIMIT} or more"
            ));
        }
        if self.options.max_memory.is_some()
            && matches!(self.options.destination, Location::Daemon { .. })
        {
            let text =
                "a daemon has its own memory limit: start `bankfull serve` there with --max-memory";
            return usage(text);
        }
        check_removal(&self.options.rules)?;
        check_earlier(&self.options.rules.earlier)?;
        if self.options.rules.delete.is_some() {
            refuse_root(&self.options.destination)?;
        }
        if self.options.rules.list.is_some() && self.options.sources.len() != 1 {
            return usage("a list of files needs one source, the directory of its names");
        }
        check_ignore_files(&self.options.rules.walk)?;
        self.options.overrides.check()?;
        self.options.overrides.check_encryption(self.options.encryption)?;
        let mut hosts = self.options.sources.iter().map(host_key);
        let first = hosts.next().unwrap_or_default();
        if hosts.any(|host| host != first) {
            return usage("the sources are on different hosts: copy from one host at a time");
        }
        if first.is_some() && !self.options.destination.is_local() {
            return usage(
                "source and destination are both remote: run bankfull on one of the two hosts",
            );
        }
        if first.is_none()
            && self.options.destination.is_local()
            && !self.options.overrides.fits_local_copy()
        {
            let text = "a copy within a host has no buffer, congestion control, I/O \
                        method, block size or direct I/O to set: leave them out";
            return usage(text);
        }
        Ok(())
    }
}

/// Checks the names of ignore files.
fn check_ignore_files(rules: &WalkRules) -> Result<(), Error> {
    let usage = |text| Err(Error::new(ErrorKind::Usage, text));
    let names = rules.ignore_files.as_deref().unwrap_or_default();
    if names.len() > MAX_IGNORE_FILES {
        return usage(format!(
            "{} ignore files are too many: name {MAX_IGNORE_FILES}",
            names.len()
        ));
    }
    match names.iter().find(|name| check_name(&name.0).is_err()) {
        None => Ok(()),
        Some(name) => {
            let shown = String::from_utf8_lossy(&name.0);
            usage(format!("the ignore file {shown:?} must be a name without directories"))
        }
    }
}

/// Path of a location as its host resolves it. An agent starts in the user's home directory, so a
/// leading `~/` is removed.
pub(crate) fn remote_path(location: &Location) -> PathBytes {
    let mut path = path_bytes(location.path());
    if matches!(location, Location::Ssh { .. }) {
        match path.0.as_slice() {
            b"~" => path.0 = b".".to_vec(),
            [b'~', b'/', ..] => drop(path.0.drain(..2)),
            // The contents of another user's home directory, as of the own one.
            [b'~', ..] if !path.0.contains(&b'/') => path.0.push(b'/'),
            _ => {}
        }
    }
    path
}

/// Shortest timeout. (chosen: a shorter one would end sessions that are merely busy)
const MIN_TIMEOUT: Duration = Duration::from_millis(100);

/// Identity of a location's host; `None` for this host.
fn host_key(location: &Location) -> Option<String> {
    match location {
        Location::Local(_) => None,
        Location::Ssh { user, host, .. } => Some(format!("{user:?} {host}")),
        Location::Daemon { host, port, .. } => Some(format!("{host} {port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::event::NoEvents;

    #[test]
    fn local_copy_with_network_options_is_refused() {
        let local_path = || Location::Local("/nonexistent".into());
        let local = Transfer::new(vec![local_path()], local_path());
        for set in [
            local.clone().buffer(Bytes::mib(4)),
            local.clone().congestion("reno"),
            local.clone().io_method(IoMethod::Mmap),
            local.clone().block(Bytes::mib(4)),
            local.clone().direct(DirectIo::On),
        ] {
            let error = set.run(&NoEvents, &Cancel::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains("a copy within a host has no"), "{error}");
        }
        let error = local.run(&NoEvents, &Cancel::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Source);
    }
}
