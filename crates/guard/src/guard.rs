//! The loop of the guard: events, samples, decisions, orders, and a status once a second.

use crate::cgroups::{self, Paths};
use crate::connections::{Connection, Connections, Received, Standing};
use crate::error::Error;
use crate::guests::Guests;
use crate::holder::{self, ACTIVE_TIME, Holder, Totals, WindowChange};
use crate::networks::Networks;
use crate::pace::Pace;
use crate::port::Port;
use crate::programs::{self, Lock, MAX_CONNECTIONS, Programs, SocketEvent, StartLimits};
use crate::release;
use crate::requirements;
use crate::rollback::Rollback;
use crate::services::Services;
use crate::slot::{self, Slot};
use bankfull_control::ictcp::INITIAL_QUEUE;
use bankfull_control::path_control::TICK;
use bankfull_control::{Bytes, Rate};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Interval of the status.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which routes to peers are looked up again. (chosen: a changed route is seen in time)
const ROUTE_INTERVAL: Duration = Duration::from_secs(10);

/// Interval at which interface and cgroup are looked for. (chosen: as that of the status)
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Longest interval of ticks while nothing is received, below the heartbeat's timeout of a second.
const IDLE_TICK: Duration = Duration::from_millis(100);

/// Ticks within which the guard has judged a connection that starts. (chosen: one may just have
/// begun)
const JUDGED_TICKS: u32 = 2;

/// Events of sockets that are handled for each [`TICK`] of time; the others wait. (chosen: 50 000 a
/// second, for which a tick takes a millisecond or two)
const MAX_TICK_EVENTS: usize = 512;

/// Time for the events of a tick, after which the others wait. (chosen: a tenth of the heartbeat's
/// timeout)
const MAX_EVENT_TIME: Duration = Duration::from_millis(100);

/// Silence after which a connection of a guest counts as closed. (Linux,
/// nf_conntrack_tcp_timeout_unacknowledged: 300 s)
const SILENT_TIME: Duration = Duration::from_secs(300);

/// Mode of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Connections are seen, and windows decided but not set.
    Observe,
    /// Windows are set.
    Hold,
}

/// Settings of a guard.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Name of the interface whose port is guarded.
    pub interface: String,
    /// Cgroup whose connections are seen; `None`: all of the host.
    pub cgroup: Option<PathBuf>,
    /// Interfaces of this host behind which guests are.
    pub guests: Vec<String>,
    /// Rate of the port, IP headers included; `None`: that of the device, or measured.
    pub link_rate: Option<Rate>,
    /// Mode.
    pub mode: Mode,
    /// Least window in segments: 2, or 1 by choice.
    pub min_window_segments: u64,
    /// RTT beyond which a connection is left alone.
    pub max_rtt: Duration,
    /// True if the rates of single connections are reported once a second.
    pub reports_rates: bool,
}

/// Event of a guard.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    /// A connection was established, or was found.
    Opened(&'a Connection),
    /// A connection left alone for its RTT has a short one now, and is guarded.
    Judged(&'a Connection),
    /// A connection has ended.
    Closed(&'a Connection, Received),
    /// A window was set, or in [`Mode::Observe`] would be; `None` if it was lifted.
    Window(&'a Connection, Option<Bytes>, &'static str),
    /// Payload rate of a connection that received within the last second, before the status.
    Rate(&'a Connection, Rate),
    /// An interface of guests is followed again (true) or gone (false).
    Guest(&'a str, bool),
    /// The state once a second.
    Status(Status),
}

/// State of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Connections that are seen.
    pub connections: usize,
    /// Guarded connections that have received lately.
    pub active: usize,
    /// True while windows are decided.
    pub is_engaged: bool,
    /// True while windows stay lifted, because the rate was lower with them.
    pub is_rolled_back: bool,
    /// Payload that guarded connections received since the last status.
    pub received: Bytes,
    /// Their payload rate.
    pub rate: Rate,
    /// Capacity of the port in payload, as far as it is known.
    pub capacity: Option<Rate>,
    /// Connections left alone because too many are open.
    pub without_slot: u64,
    /// Connections from before the guard that this kernel cannot follow.
    pub unfollowed: u64,
    /// Events that were lost because too many came at once.
    pub lost_events: u64,
    /// Windows that the kernel refused to set, as for kTLS before Linux 6.3.
    pub refused: u64,
}

/// Sums since the last status.
#[derive(Debug)]
struct Second {
    began: Duration,
    received: u64,
    /// Most connections that were receiving at a time.
    active: usize,
    has_losses: bool,
    /// A window was the limit of a connection.
    is_limited: bool,
}

impl Second {
    fn new(began: Duration) -> Self {
        Self { began, received: 0, active: 0, has_losses: false, is_limited: false }
    }

    fn add(&mut self, totals: Totals) {
        self.received += totals.received;
        self.active = self.active.max(totals.active);
        self.has_losses |= totals.has_losses;
        self.is_limited |= totals.is_limited;
    }
}

/// Times of the last periodic work.
#[derive(Debug)]
struct Periods {
    routes_at: Duration,
    checked_at: Duration,
    /// Starts of connections that were seen, and the time of the last ones.
    starts: (u64, Duration),
    /// Number of lost events from which the guard has recovered.
    lost_events: u64,
}

/// Running guard. Dropping it leaves its programs; [`Guard::end`] removes them.
#[derive(Debug)]
pub struct Guard {
    config: Config,
    /// Path and inode of the cgroup.
    cgroup: (PathBuf, u64),
    guests: Guests,
    programs: Programs,
    port: Port,
    connections: Connections,
    holder: Holder,
    rollback: Rollback,
    pace: Pace,
    networks: Networks,
    services: Services,
    second: Second,
    periods: Periods,
    /// Windows that an earlier guard had left.
    lifted_before: Option<u64>,
    _lock: Lock,
}

impl Guard {
    /// Starts a guard: it sees all connections from now on.
    ///
    /// # Errors
    ///
    /// A requirement that the host lacks, an unknown interface or cgroup, or another guard.
    pub fn start(config: Config) -> Result<Self, Error> {
        requirements::check(&config.guests)?;
        let port = Port::open(&config.interface, config.link_rate)?;
        let mount = match &config.cgroup {
            // Without a mount, paths are relative to the given cgroup.
            Some(cgroup) => cgroups::find_mount().unwrap_or_else(|_| cgroup.clone()),
            None => cgroups::find_mount()?,
        };
        let cgroup = config.cgroup.clone().unwrap_or_else(|| mount.clone());
        let cannot_open =
            |error| Error::of(format_args!("open the cgroup {}", cgroup.display()), error);
        let directory = File::open(&cgroup).map_err(cannot_open)?;
        let cgroup_id = directory.metadata().map_err(cannot_open)?.ino();
        let lock = programs::lock()?;
        let lifted_before = release::remove_remains(&mount)?;
        // Pins of a failed start would look like the remains of an earlier guard.
        let (mut programs, guests) = start_programs(&directory, &cgroup, &config.guests)
            .inspect_err(|_| programs::remove_pins())?;
        let mut networks = Networks::default();
        networks.add_near(&config.interface, &mut programs.networks);
        let connections = Connections::new(Paths::new(mount), config.max_rtt);
        let holder = Holder::new(config.min_window_segments, config.max_rtt);
        let now = monotonic();
        Ok(Self {
            config,
            cgroup: (cgroup, cgroup_id),
            guests,
            programs,
            port,
            connections,
            holder,
            rollback: Rollback::new(),
            pace: Pace::default(),
            networks,
            services: Services::default(),
            second: Second::new(now),
            periods: Periods { routes_at: now, checked_at: now, starts: (0, now), lost_events: 0 },
            lifted_before,
            _lock: lock,
        })
    }

    /// Returns the number of windows that an earlier guard had left; `None` if there was none.
    #[must_use]
    pub fn lifted_before(&self) -> Option<u64> {
        self.lifted_before
    }

    /// Guards until a flag is set.
    ///
    /// # Errors
    ///
    /// The interface or the cgroup is gone.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        on_event: &mut dyn FnMut(&Event<'_>),
    ) -> Result<(), Error> {
        while !stop.load(Ordering::Relaxed) {
            let now = monotonic();
            let starts = self.programs.starts();
            if starts != self.periods.starts.0 {
                self.periods.starts = (starts, now);
            }
            if now >= self.periods.checked_at + CHECK_INTERVAL {
                self.periods.checked_at = now;
                self.check_targets()?;
                for (name, is_followed) in self.guests.update(&mut self.programs) {
                    on_event(&Event::Guest(&name, is_followed));
                }
            }
            let is_receiving = self.tick(now, on_event);
            if is_receiving || now < self.periods.starts.1 + ACTIVE_TIME {
                thread::sleep(self.pace.interval());
            } else {
                self.programs.wait_for_start(starts, IDLE_TICK);
            }
        }
        Ok(())
    }

    /// Checks that the interface and the cgroup exist: without them, nothing is left to guard.
    fn check_targets(&self) -> Result<(), Error> {
        self.port.check()?;
        let (path, id) = &self.cgroup;
        // A new cgroup of the same name has another inode, and other processes.
        match path.metadata().is_ok_and(|metadata| metadata.ino() == *id) {
            true => Ok(()),
            false => Err(Error::new(format!("the cgroup {} is gone", path.display()))),
        }
    }

    /// Lifts all windows and removes the programs.
    ///
    /// # Errors
    ///
    /// A namespace that cannot be entered, or windows that stay closed: the programs stay, and lift
    /// them with the next packets.
    pub fn end(mut self) -> Result<(), Error> {
        self.programs.set_heartbeat(0);
        let remainder = match self.programs.lift(&self.cgroup.0) {
            Ok(lifted) => lifted.remainder(),
            Err(error) => Some(format!("windows are not lifted: {error}")),
        };
        match remainder {
            None => {
                programs::remove_pins();
                Ok(())
            }
            Some(why) => Err(Error::new(format!(
                "{why}; the programs stay until `bankfull guard --release`"
            ))),
        }
    }

    /// Performs a tick; returns whether a connection is receiving or held.
    fn tick(&mut self, now: Duration, on_event: &mut dyn FnMut(&Event<'_>)) -> bool {
        self.programs.set_heartbeat(now.as_nanos() as u64);
        // Bounded, as peers cause them: heartbeat and signals must not wait.
        let ticks = self.pace.interval().as_millis() / TICK.as_millis();
        for _ in 0..MAX_TICK_EVENTS * usize::try_from(ticks).unwrap_or(1) {
            let Some(event) = self.programs.next_event() else { break };
            self.on_socket_event(now, event, on_event);
            // Routes and cgroups may take long to look up.
            if monotonic() > now + MAX_EVENT_TIME {
                break;
            }
        }
        if now >= self.periods.routes_at + ROUTE_INTERVAL {
            self.periods.routes_at = now;
            self.look_again(now, on_event);
        }
        let slots = &self.programs.slots;
        let is_free = self.rollback.is_paused(now);
        let began = cpu_time();
        let updated = self.programs.take_updated();
        let (totals, changes) =
            self.holder.tick(now, (slots, &updated), &mut self.connections, &self.port, is_free);
        if self.config.mode == Mode::Hold {
            holder::apply(slots, &mut self.connections, &changes);
        }
        self.pace.on_tick(cpu_time().saturating_sub(began));
        self.limit_starts(is_free, totals);
        changes.iter().for_each(|change| self.report_change(change, on_event));
        self.second.add(totals);
        if now >= self.second.began + STATUS_INTERVAL {
            self.end_second(now, on_event);
        }
        totals.active > 0 || self.holder.is_engaged()
    }

    /// Refreshes what may have changed: routes, networks, socket owners, silent connections.
    fn look_again(&mut self, now: Duration, on_event: &mut dyn FnMut(&Event<'_>)) {
        self.port.forget_routes();
        // The map may have replaced them.
        self.networks.add_near(&self.config.interface, &mut self.programs.networks);
        // The earlier ones stay known.
        let _ = self.programs.find_owners();
        self.close_silent(now, on_event);
    }

    /// Closes forwarded connections without packets for long: their end may have been missed.
    fn close_silent(&mut self, now: Duration, on_event: &mut dyn FnMut(&Event<'_>)) {
        let since_ns = now.saturating_sub(SILENT_TIME).as_nanos() as u64;
        for (cookie, slot) in self.connections.silent_forwarded(&self.programs.slots, since_ns) {
            self.programs.free_slot(slot, cookie);
            self.forget(now, cookie, None, on_event);
        }
    }

    /// Recovers from lost events: compares the known connections with the slots.
    ///
    /// Returns false if some connections are left for the next call.
    fn make_up_for_lost_events(
        &mut self,
        now: Duration,
        on_event: &mut dyn FnMut(&Event<'_>),
    ) -> bool {
        for cookie in self.connections.vanished(&self.programs.slots) {
            self.forget(now, cookie, None, on_event);
        }
        let unknown = self.connections.unknown(&self.programs.slots, MAX_CONNECTIONS);
        for &(slot, cookie, received) in unknown.iter().take(MAX_TICK_EVENTS) {
            self.on_socket_event(now, SocketEvent::Opened { slot, cookie, received }, on_event);
        }
        unknown.len() <= MAX_TICK_EVENTS
    }

    /// Forgets a connection that has ended, with the last state of its slot.
    fn forget(
        &mut self,
        now: Duration,
        cookie: u64,
        last: Option<Slot>,
        on_event: &mut dyn FnMut(&Event<'_>),
    ) {
        self.holder.close(now, cookie);
        let Some(closed) = self.connections.close(cookie) else { return };
        let received = closed.received_until(last.as_ref());
        if self.config.reports_rates {
            let rate = Bytes(closed.unreported(received.bytes.0)).per(STATUS_INTERVAL);
            on_event(&Event::Rate(&closed.connection, rate));
        }
        if closed.connection.standing == Standing::Guarded {
            self.second.received += received.bytes.0.saturating_sub(closed.received);
        }
        on_event(&Event::Closed(&closed.connection, received));
    }

    /// Limits the connections that start before the next tick.
    fn limit_starts(&self, is_free: bool, totals: Totals) {
        let is_held = self.config.mode == Mode::Hold && !is_free;
        self.programs.limit_starts(&StartLimits {
            capacity: self.holder.capacity().or(self.port.capacity).filter(|_| is_held),
            queue: INITIAL_QUEUE,
            taken: Bytes(totals.windows),
            min_segments: self.config.min_window_segments,
            duration: self.pace.interval() * JUDGED_TICKS,
        });
    }

    /// Reports the status, and judges the windows of the last second.
    fn end_second(&mut self, now: Duration, on_event: &mut dyn FnMut(&Event<'_>)) {
        let lost_events = self.programs.counters().lost_events;
        if lost_events != self.periods.lost_events && self.make_up_for_lost_events(now, on_event) {
            self.periods.lost_events = lost_events;
        }
        if self.config.reports_rates {
            let elapsed = now.saturating_sub(self.second.began);
            for (connection, received) in self.connections.take_received(&self.programs.slots) {
                on_event(&Event::Rate(connection, Bytes(received).per(elapsed)));
            }
        }
        for cookie in self.connections.judge_long_anew(&self.programs.slots) {
            if let Some(followed) = self.connections.get_mut(cookie) {
                let peer = followed.connection.remote.ip();
                self.networks.add(peer, &mut self.programs.networks);
                on_event(&Event::Judged(&followed.connection));
            }
        }
        let status = self.status(now);
        on_event(&Event::Status(status));
        let second = std::mem::replace(&mut self.second, Second::new(now));
        if self.config.mode == Mode::Observe {
            return;
        }
        let is_held = self.holder.is_engaged();
        // Losses show that something else limits the senders.
        let may_harm = second.is_limited && !second.has_losses;
        if second.active > 0 && self.rollback.on_second(now, status.rate, is_held, may_harm) {
            let changes = self.holder.release(&mut self.connections);
            holder::apply(&self.programs.slots, &mut self.connections, &changes);
            changes.iter().for_each(|change| self.report_change(change, on_event));
        }
        match self.holder.is_engaged() {
            true => self.services.remember(&mut self.connections, &mut self.programs.services),
            false => self.services.forget(&mut self.programs.services),
        }
    }

    fn on_socket_event(
        &mut self,
        now: Duration,
        event: SocketEvent,
        on_event: &mut dyn FnMut(&Event<'_>),
    ) {
        match event {
            SocketEvent::Opened { slot, cookie, received } => {
                let slots = &self.programs.slots;
                let new = (slot, cookie, received);
                if let Some(opened) = self.connections.open(slots, new, &mut self.port) {
                    if opened.standing == Standing::Guarded {
                        self.networks.add(opened.remote.ip(), &mut self.programs.networks);
                    } else {
                        slot::leave_alone(slots, slot, cookie);
                    }
                    on_event(&Event::Opened(opened));
                }
            }
            SocketEvent::Closed { slot, cookie } => {
                let last = Slot::read(&self.programs.slots, slot);
                self.programs.free_slot(slot, cookie);
                let last = Some(last).filter(|last| last.cookie == cookie);
                self.forget(now, cookie, last, on_event);
            }
        }
    }

    fn report_change(&mut self, change: &WindowChange, on_event: &mut dyn FnMut(&Event<'_>)) {
        if let Some(followed) = self.connections.get_mut(change.cookie) {
            let reason = change.reason.map_or("lifted", |reason| reason.name());
            on_event(&Event::Window(&followed.connection, change.window, reason));
        }
    }

    fn status(&self, now: Duration) -> Status {
        let counters = self.programs.counters();
        Status {
            connections: self.connections.len(),
            active: self.second.active,
            is_engaged: self.holder.is_engaged(),
            is_rolled_back: self.rollback.is_paused(now),
            received: Bytes(self.second.received),
            rate: Bytes(self.second.received).per(now.saturating_sub(self.second.began)),
            capacity: self.holder.capacity().or(self.port.capacity),
            without_slot: counters.without_slot,
            unfollowed: counters.unfollowed,
            lost_events: counters.lost_events,
            refused: counters.refused,
        }
    }
}

/// Loads the programs, and follows the connections below a cgroup.
fn start_programs(
    directory: &File,
    cgroup: &Path,
    guests: &[String],
) -> Result<(Programs, Guests), Error> {
    let mut programs = Programs::load(!guests.is_empty())?;
    programs.set_heartbeat(monotonic().as_nanos() as u64);
    programs.attach(directory)?;
    programs.adopt(cgroup)?;
    let guests = Guests::follow(guests, &mut programs)?;
    Ok((programs, guests))
}

/// Returns the monotonic clock, by which the BPF program judges the heartbeat.
fn monotonic() -> Duration {
    time_of(ClockId::Monotonic)
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    time_of(ClockId::ThreadCPUTime)
}

fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or_default());
    seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or_default())
}
