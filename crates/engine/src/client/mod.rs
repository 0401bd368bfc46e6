//! The client: reaches the far side, agrees on the transfer, and runs this side of it.

mod connector;
pub(crate) mod daemon;
mod dial;
pub(crate) mod ssh;

use crate::anchor::{PathRoot, ReceiveOptions};
use crate::cancel::Cancel;
use crate::driver::{
    CloseFn, Connect, ControlChannel, Latch, SessionRunner, SessionTask, StreamSource,
    report_destinations,
};
use crate::error::{Error, ErrorKind};
use crate::event::{Event, EventSink, Route, Summary};
use crate::location::Location;
use crate::net::control::{ControlReader, Outbox, write_now};
use crate::net::probe::ProbePort;
use crate::net::stream::DataStream;
use crate::options::Fsync;
use crate::paths::{Carried, Lossy, PathMemory, Seen};
use crate::sender::walk::SourceItem;
use crate::session::{Session, SessionStats};
use crate::transfer::Transfer;
use crate::tune::{Probing, Spread, Steer};
use bankfull_control::{Bytes, Limit, LossSample};
use bankfull_proto::wire::control::{
    self, Direction, Hello, Message, Open, Opened, PathBytes, Source, Welcome,
};
use bankfull_proto::wire::{MAX_VERSION, MIN_VERSION, WireError, common_version};
use connector::Connector;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Most bytes of a greeting with a request behind it. (ours: they fit in one segment even of IPv6's
/// least MTU, 1280 bytes, with TLS around them, so that they arrive together. A server that turns
/// the client away after the first words has read the others too: left unread, they would reset the
/// connection, and its reason would be lost.)
const GREETING_BYTES_MAX: usize = 1024;

/// Name and version of this software, for messages to people.
pub(crate) fn software() -> String {
    format!("bankfull {}", env!("CARGO_PKG_VERSION"))
}

/// A far side that was reached, before anything is agreed.
pub(crate) struct Far {
    pub(crate) reader: ControlReader,
    pub(crate) output: Box<dyn Write + Send>,
    /// Wakes whoever waits for the far side.
    pub(crate) wake: Box<dyn Fn() + Send>,
    /// Ends the connection.
    pub(crate) close: CloseFn,
    pub(crate) peer: String,
    pub(crate) route: Route,
    /// Bytes of noise allowed before the far side speaks.
    pub(crate) noise_bytes_max: usize,
}

/// What the far side is to do, and where its data connections go.
pub(crate) struct Request<'t> {
    pub(crate) transfer: &'t Transfer,
    pub(crate) direction: Direction,
    /// The far side's paths, as typed.
    pub(crate) far_paths: Vec<PathBytes>,
    pub(crate) token: Option<Vec<u8>>,
    /// The sources, where they are on this side.
    pub(crate) items: Vec<SourceItem>,
    /// What an earlier copy saw of the path; nothing where the user has set what goes.
    pub(crate) earlier: Seen,
}

impl Far {
    fn write(&mut self, message: &Message) -> Result<(), Error> {
        write_now(&mut *self.output, &control::encode(message)?, &self.peer)
    }

    /// Does something that waits for the far side. When the user gives up first, the connection is
    /// ended.
    pub(crate) fn attend<T: Send + 'static>(
        mut self,
        cancel: &Cancel,
        work: impl FnOnce(&mut Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<(Self, T), Error> {
        let close = Arc::clone(&self.close);
        let attended = cancel.attend(move || work(&mut self).map(|done| (self, done)));
        // Otherwise the work has let go of the connection by itself, and what ends with that (ssh)
        // may still say why.
        if cancel.is_cancelled() {
            close();
        }
        attended
    }

    /// Introduces the two sides to each other.
    pub(crate) fn greet(&mut self, token: Option<Vec<u8>>) -> Result<Welcome, Error> {
        let greeting = greeting(token)?;
        write_now(&mut *self.output, &greeting, &self.peer)?;
        self.hear_welcome()
    }

    /// Introduces the two sides and asks for the transfer in one go, where the request is short.
    /// True when it was sent.
    pub(crate) fn greet_and_ask(
        &mut self,
        token: Option<Vec<u8>>,
        open: &Open,
    ) -> Result<(Welcome, bool), Error> {
        let mut greeting = greeting(token)?;
        let request = control::encode(&Message::Open(open.clone()))?;
        let credit =
            MIN_VERSION == MAX_VERSION && greeting.len() + request.len() <= GREETING_BYTES_MAX;
        if credit {
            greeting.extend_from_slice(&request);
        }
        write_now(&mut *self.output, &greeting, &self.peer)?;
        Ok((self.hear_welcome()?, credit))
    }

    fn hear_welcome(&mut self) -> Result<Welcome, Error> {
        self.reader.expect_magic(self.noise_bytes_max)?;
        match self.reader.next()? {
            Message::Welcome(welcome) => {
                common_version(welcome.version, welcome.version)?;
                self.reader.set_authenticated();
                Ok(welcome)
            }
            _ => Err(WireError::Unexpected("no welcome").into()),
        }
    }

    /// Asks for the transfer, unless that was done already.
    fn agree(&mut self, open: Option<Open>) -> Result<Opened, Error> {
        if let Some(open) = open {
            self.write(&Message::Open(open))?;
        }
        match self.reader.next()? {
            Message::Opened(opened) => Ok(opened),
            _ => Err(WireError::Unexpected("no answer to the request").into()),
        }
    }
}

/// The first words to the far side.
fn greeting(token: Option<Vec<u8>>) -> Result<Vec<u8>, Error> {
    let hello =
        Hello { min_version: MIN_VERSION, max_version: MAX_VERSION, software: software(), token };
    let mut bytes = control::MAGIC.to_vec();
    bytes.extend_from_slice(&control::encode(&Message::Hello(hello))?);
    Ok(bytes)
}

/// A far side that was greeted.
pub(crate) struct Greeted {
    pub(crate) far: Far,
    pub(crate) welcome: Welcome,
    /// Round trip of the path there, where it is known.
    pub(crate) rtt: Option<Duration>,
    /// Whether it was asked for the transfer.
    pub(crate) asked: bool,
}

/// Runs a transfer with a far side that was greeted. However it ends, the connection ends with it.
pub(crate) fn run(
    greeted: Greeted,
    connector: Connector,
    request: Request<'_>,
    events: &dyn EventSink,
    cancel: &Cancel,
    started: Instant,
) -> Result<Summary, Error> {
    let close = Arc::clone(&greeted.far.close);
    run_greeted(greeted, connector, request, events, cancel, started).inspect_err(|_| close())
}

fn run_greeted(
    greeted: Greeted,
    mut connector: Connector,
    mut request: Request<'_>,
    events: &dyn EventSink,
    cancel: &Cancel,
    started: Instant,
) -> Result<Summary, Error> {
    let Greeted { mut far, welcome, rtt, asked } = greeted;
    let transfer = request.transfer;
    let wake = std::mem::replace(&mut far.wake, Box::new(|| {}));
    if !transfer.encryption && far.route != Route::Quic && !welcome.unencrypted_allowed {
        return Err(plain_refused(&far.peer));
    }
    let streams = request.streams();
    let open = (!asked).then(|| request.open(streams(rtt)));
    let items = std::mem::take(&mut request.items);
    let (mut far, opened) = far.attend(cancel, |far| far.agree(open))?;
    let credit = opened.credit == Some(true);
    if transfer.seat.is_some() && !credit {
        let text = format!("{} cannot send in rounds: install a newer bankfull there", far.peer);
        return Err(Error::new(ErrorKind::Version, text));
    }
    let part = part_of(&request, items, &opened, events)?;
    let stats = SessionStats::new(events, started);
    let outbox = Outbox::default();
    let is_daemon = matches!(far.route, Route::Daemon | Route::Quic);
    let (ready, route) = if transfer.dry_run || is_daemon {
        (Vec::new(), far.route)
    } else {
        let (made, back) = cancel.attend(move || Ok((connector.connect(), connector)))?;
        connector = back;
        connector.choose_route(made, &mut far, &outbox, &stats)?
    };
    let key = welcome.session_key;
    events.event(Event::Connected {
        route,
        software: welcome.software,
        encrypted: transfer.encryption || matches!(route, Route::SshOnly | Route::Quic),
    });
    let rtt = rtt.or_else(|| ready.first().and_then(|(_, stream)| stream.socket().rtt()));
    let count = match route {
        Route::SshOnly => 1,
        _ => streams(rtt).min(welcome.max_streams),
    };
    tell_idle(transfer, route, welcome.max_streams, &stats);
    connector.keep(count.saturating_sub(ready.len() as u32));
    let probing = || probing(&ready, &connector, route, (&welcome.session, &key), &stats);
    // Of many at a time, probes alone would be a load.
    let probes = transfer.overrides.allow_datagrams() && !transfer.has_company();
    let steering = match transfer.is_tuned() {
        true => Steer::With(probes.then(probing).flatten()),
        false => Steer::Not,
    };
    let most = transfer.max_streams().filter(|_| route != Route::SshOnly);
    let session = request.session(count, most.map(|most| most.min(welcome.max_streams)), credit);
    session.on_stop(wake);
    let drive = SessionRunner {
        session: Arc::new(session),
        stats: &stats,
        cancel,
        timeout: welcome
            .timeout_ms
            .map_or(transfer.timeout, |ms| transfer.timeout.min(Duration::from_millis(ms))),
        report_progress: true,
        ended: Latch::default(),
        autotune: Mutex::new(steering),
    };
    let channel =
        ControlChannel { reader: far.reader, output: far.output, outbox, close: far.close };
    let streams = StreamSource::Connect { connector: Arc::new(connector), count, ready };
    let result = drive.run(channel, part, streams);
    let sight = stats.path_observer();
    let segment = drive.session.mss();
    request.note(sight.seen(), (rtt, segment), &result, sight.is_queued());
    drop(sight);
    result
}

/// Says what of a user's settings has no effect on this route, or where the far side has room for
/// no more than `max_streams` data connections.
fn tell_idle(transfer: &Transfer, route: Route, max_streams: u32, stats: &SessionStats<'_>) {
    let overrides = &transfer.overrides;
    let asked = transfer.streams.filter(|_| route != Route::SshOnly && !transfer.dry_run);
    if let Some(asked) = asked.filter(|&asked| asked > max_streams) {
        stats.warn(format!(
            "{max_streams} of {asked} data connections are made: the far side has room for no more \
             (--max-connections there)"
        ));
    }
    if overrides.need_tcp() && matches!(route, Route::SshOnly | Route::Quic) {
        let by = if route == Route::Quic { "by QUIC" } else { "through ssh" };
        stats.warn(format!("{by}, a buffer and a congestion control have no effect"));
    }
    if route == Route::Quic && !transfer.encryption {
        let idle = overrides.need_plain();
        let idle =
            idle.map_or(String::new(), |engine| format!(", and engine {engine} has no effect"));
        stats.warn(format!("by QUIC all is encrypted, though that was not asked for{idle}"));
    }
}

/// What this side does.
fn part_of(
    request: &Request<'_>,
    items: Vec<SourceItem>,
    opened: &Opened,
    events: &dyn EventSink,
) -> Result<SessionTask, Error> {
    let transfer = request.transfer;
    Ok(match (request.direction, transfer.probe) {
        (Direction::Push, Some(time)) => SessionTask::SendTest(time),
        (Direction::Pull, Some(time)) => SessionTask::ReceiveTest(time),
        (Direction::Push, None) => {
            report_destinations(events, transfer, &opened.destinations);
            SessionTask::Send { items, dry_run: transfer.dry_run }
        }
        (Direction::Pull, None) => {
            SessionTask::Receive(receive_target(transfer, &opened.sources, events)?)
        }
    })
}

fn plain_refused(peer: &str) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!(
            "{peer} does not allow data without encryption: leave out --no-encryption, or start it \
             with --allow-no-encryption"
        ),
    )
}

/// The way for datagrams to where the data connections go, unless they go through ssh.
fn probing(
    ready: &[(u32, DataStream)],
    connector: &Connector,
    route: Route,
    (session, key): (&[u8; 16], &[u8; 32]),
    stats: &SessionStats<'_>,
) -> Option<Box<Probing>> {
    let connected = ready.first().and_then(|(_, stream)| stream.socket().peer());
    let door = connected.or(connector.address()).filter(|_| route != Route::SshOnly)?;
    let any: IpAddr = match door {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Without datagrams the transfer runs as well, with less to go by.
    let told = |e| {
        let why = crate::error::plain(&e);
        stats.warn(format!("no UDP port can be had here ({why}): the path is judged by TCP alone"));
    };
    let port = ProbePort::bind(SocketAddr::from((any, 0))).map_err(told).ok()?;
    let line = port.join(*session, *key, Some(door.ip()));
    Some(Box::new(Probing { line, door: Some(door), own: Some(port) }))
}

impl Request<'_> {
    /// What the threads of this side will share: of so many connections, and up to `most`; `credit`:
    /// the sender sends what it is asked for.
    fn session(&self, count: u32, most: Option<u32>, credit: bool) -> Session {
        let mut session = Session::new(self.transfer.overrides.clone(), count);
        session.remembered = self.earlier.held;
        session.buffer_pool = Arc::clone(&self.transfer.staging);
        session.max_streams = most;
        match self.direction {
            Direction::Push => session.credit = credit.then(Arc::default),
            Direction::Pull => session.sharing = self.transfer.sharing(credit),
        }
        session.start_stagger = self.transfer.is_tuned().then(|| Spread::new(count));
        session
    }

    /// Remembers what was seen of the path; what the user has set says nothing of it.
    fn note(
        &self,
        seen: Seen,
        (rtt, segment): (Option<Duration>, Bytes),
        result: &Result<Summary, Error>,
        is_queued: Option<bool>,
    ) {
        let earlier = self.earlier;
        let by_quic = self.transfer.is_by_quic();
        let lossy = match result {
            // A number of connections that the user has set tells of that number alone.
            Ok(done) if done.limited_by == Limit::Network.name() && self.may_choose() => {
                let losses = LossSample::new(done.retransmits, done.wire_bytes, segment);
                let goodput = done.goodput();
                Lossy::after(earlier.lossy, &Carried { by_quic, goodput, losses, is_queued })
            }
            Err(e) if by_quic && matches!(e.kind(), ErrorKind::Network | ErrorKind::Timeout) => {
                earlier.lossy.map(Lossy::without_quic)
            }
            _ => earlier.lossy,
        };
        if by_quic {
            // It tells nothing of what TCP needs.
            self.remember(&Seen { lossy, ..earlier });
            return;
        }
        let usual = self.transfer.streams_for(rtt);
        let streams = match self.transfer.max_streams() {
            // Where nothing else was decided for long, what it began with has done.
            Some(_) => seen.streams.or(self.earlier.streams).filter(|&streams| streams > usual),
            // A number that the user has set says nothing of the path, and confirms nothing.
            None => self.earlier.streams.filter(|_| seen.held.is_some()),
        };
        self.remember(&Seen { streams, lossy, ..seen });
    }

    /// Whether the number of connections is not the user's.
    fn may_choose(&self) -> bool {
        self.transfer.is_by_quic() || self.transfer.max_streams().is_some()
    }

    fn remember(&self, seen: &Seen) {
        let memory = PathMemory::of(self.transfer, self.direction);
        let is_usual = self.transfer.overrides.is_empty()
            && (self.transfer.is_tuned() || self.transfer.is_by_quic());
        if let Some(memory) = memory.filter(|_| is_usual) {
            memory.note(seen, &self.earlier);
        }
    }

    /// How many data connections to make where a round trip takes so long.
    fn streams(&self) -> impl Fn(Option<Duration>) -> u32 + Send + 'static {
        let transfer = self.transfer.clone();
        let earlier = self.earlier.streams.zip(transfer.max_streams());
        let earlier = earlier.map_or(0, |(streams, most)| streams.min(most));
        move |rtt| if transfer.dry_run { 0 } else { transfer.streams_for(rtt).max(earlier) }
    }

    /// Whether the receiver may ask for each byte: a daemon does where it has other clients, too.
    fn may_ask(&self) -> bool {
        match self.direction {
            Direction::Push => self.transfer.is_tuned() && self.transfer.probe.is_none(),
            Direction::Pull => self.transfer.wants_to_ask(),
        }
    }

    /// The request as it travels.
    fn open(&self, streams: u32) -> Open {
        let transfer = self.transfer;
        let mut open = Open {
            direction: self.direction,
            paths: self.far_paths.clone(),
            sources: self.items.iter().map(|item| item.to_source()).collect(),
            fsync: match transfer.fsync {
                Fsync::None => control::Fsync::None,
                Fsync::File => control::Fsync::File,
                Fsync::End => control::Fsync::End,
            },
            checksum: transfer.checksum,
            dry_run: transfer.dry_run,
            unencrypted: !transfer.encryption && !transfer.is_by_quic(),
            streams,
            timeout_ms: u64::try_from(transfer.timeout.as_millis()).unwrap_or(u64::MAX),
            autotune_off: (!transfer.is_tuned()).then_some(true),
            throughput_test_ms: transfer.probe.map(|time| time.as_millis() as u32),
            max_streams: transfer.max_streams(),
            credit: self.may_ask().then_some(true),
            ..Open::default()
        };
        transfer.overrides.write(&mut open);
        if self.direction == Direction::Push {
            open.remembered = self.earlier.held.map(|seen| {
                [seen.rate.bytes_per_sec(), u64::try_from(seen.rtt.as_micros()).unwrap_or(u64::MAX)]
            });
        }
        open
    }
}

fn receive_target(
    transfer: &Transfer,
    sources: &[Source],
    events: &dyn EventSink,
) -> Result<crate::receiver::ReceiveTarget, Error> {
    let options = ReceiveOptions {
        fsync: transfer.fsync,
        checksum: transfer.checksum,
        dry_run: transfer.dry_run,
        parent_is_planned: transfer.parent_is_planned,
        set_id: !matches!(transfer.sources.first(), Some(Location::Daemon { .. })),
    };
    let typed = path_bytes(transfer.destination.path());
    let (mut target, landing) = PathRoot::Host.open_destination(&typed.0, sources, options)?;
    target.claimant.clone_from(&transfer.claimant);
    report_destinations(events, transfer, &landing);
    Ok(target)
}

/// A path as it travels.
pub(crate) fn path_bytes(path: &Path) -> PathBytes {
    PathBytes(path.as_os_str().as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// Greets with a request for so many paths, and returns what the far side has before it says a
    /// word, and whether the request was sent.
    fn greet_with(paths: usize) -> (Vec<Message>, bool) {
        let (near, far) = UnixStream::pair().unwrap();
        let end = near.try_clone().unwrap();
        let mut client = Far {
            reader: ControlReader::new(Box::new(near.try_clone().unwrap()), "far".into(), ""),
            output: Box::new(near),
            wake: Box::new(|| {}),
            close: Arc::new(move || drop(end.shutdown(std::net::Shutdown::Both))),
            peer: "far".to_owned(),
            route: Route::Daemon,
            noise_bytes_max: 0,
        };
        let open = Open {
            direction: Direction::Pull,
            paths: vec![PathBytes(vec![b'p'; 100]); paths],
            sources: Vec::new(),
            fsync: control::Fsync::End,
            checksum: false,
            dry_run: false,
            unencrypted: false,
            streams: 4,
            timeout_ms: 0,
            ..Open::default()
        };
        let token = Some(b"token".to_vec());
        let greeting = std::thread::spawn(move || client.greet_and_ask(token, &open).unwrap().1);
        let mut server = ControlReader::new(Box::new(far.try_clone().unwrap()), "near".into(), "");
        server.expect_magic(0).unwrap();
        let mut heard = vec![server.next().unwrap()];
        far.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        heard.extend(server.next());
        let mut answer = control::MAGIC.to_vec();
        let welcome = Welcome { version: MAX_VERSION, ..Welcome::default() };
        answer.extend(control::encode(&Message::Welcome(welcome)).unwrap());
        (&far).write_all(&answer).unwrap();
        (heard, greeting.join().unwrap())
    }

    #[test]
    fn a_short_request_comes_with_the_greeting_and_a_long_one_waits_for_the_welcome() {
        let (heard, asked) = greet_with(1);
        assert!(matches!(heard[..], [Message::Hello(_), Message::Open(_)]) && asked);
        let (heard, asked) = greet_with(20);
        assert!(matches!(heard[..], [Message::Hello(_)]) && !asked);
    }
}
