//! What earlier copies saw of paths: a starting point where nothing else tells, and no more. One
//! small file for each path and direction. It is replaced as a whole, so that many processes may
//! read and write at once; what is old, damaged or missing tells nothing.

use crate::location::Location;
use crate::net::identity::create_private_dir;
use crate::options::default_state_dir;
use crate::transfer::Transfer;
use bankfull_control::sobas::CachedPath;
use bankfull_control::{LossSample, Rate};
use bankfull_proto::wire::control::Direction;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Older than this it tells nothing. (ours: lines are changed within weeks)
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// A path is one for QUIC where so much is lost without a queue (measured:
/// docs/algorithms/quic.md: at 0.1 % TCP is as good, at 1 % it is not), and so many segments (ours:
/// fewer are chance).
const LOST_SHARE: f64 = 0.005;
const LOST_LEAST: u64 = 20;

/// What QUIC came to is a reason for so long; then it is tried again. (ours: what does not get
/// through may be mended, and a copy may have failed for another reason)
const TRIED: Duration = Duration::from_secs(24 * 3600);

/// So many looks tell whether a queue stands. (ours: two seconds)
const LOOKS_LEAST: u32 = 10;

/// A number of connections that was kept for so long is no trial. (docs/algorithms/streams.md: a
/// sample waits for 4 s and 10 T at most, and takes 4 T; 200 ms each)
const COUNT_KEPT: Duration = Duration::from_secs(7);

/// First line of a file.
const MAGIC: &str = "bankfull path 4";

/// Counts what this process writes.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// What a copy saw of a path.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Seen {
    /// The rate at which it was held last, and its shortest round trip.
    pub(crate) held: Option<CachedPath>,
    /// How many connections it took, where these were more than a copy begins with.
    pub(crate) streams: Option<u32>,
    /// What copies came to, where it loses segments at random.
    pub(crate) lossy: Option<Lossy>,
}

/// What copies came to over a path that loses segments while no queue stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lossy {
    /// The last by TCP, and the last by QUIC.
    tcp: Figure,
    quic: Option<Figure>,
}

/// What a copy came to, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figure {
    goodput: Rate,
    /// Seconds since 1970.
    at: u64,
}

impl Figure {
    fn now(goodput: Rate) -> Self {
        Self { goodput, at: seconds(SystemTime::now()) }
    }

    /// Where it is not older than that.
    fn within(self, kept: Duration, now: SystemTime) -> Option<Self> {
        let age = seconds(now).checked_sub(self.at)?;
        (age <= kept.as_secs()).then_some(self)
    }
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What a copy tells of the transport that carried it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carried {
    pub(crate) by_quic: bool,
    pub(crate) goodput: Rate,
    pub(crate) losses: LossSample,
    /// A queue stood most of the time, where somebody has looked.
    pub(crate) is_queued: Option<bool>,
}

impl Lossy {
    /// Whether QUIC is the better road, as far as is known.
    pub(crate) fn is_for_quic(self) -> bool {
        self.quic.is_none_or(|quic| quic.goodput > self.tcp.goodput)
    }

    /// QUIC has not got through.
    pub(crate) fn without_quic(self) -> Self {
        Self { quic: Some(Figure::now(Rate::from_bits_per_sec(1.0))), ..self }
    }

    /// What is known after another copy that the path limited.
    pub(crate) fn after(before: Option<Self>, copy: &Carried) -> Option<Self> {
        let LossSample { retransmits, segments } = copy.losses;
        if (segments as f64) < LOST_LEAST as f64 / LOST_SHARE {
            return before;
        }
        let loses = retransmits >= LOST_LEAST && copy.losses.loss_rate() >= LOST_SHARE;
        if copy.by_quic {
            // Where it loses no more, what TCP came to when it did tells nothing.
            let known = before.filter(|_| loses);
            return known.map(|known| Self { quic: Some(Figure::now(copy.goodput)), ..known });
        }
        let Some(is_queued) = copy.is_queued else { return before };
        let is_lossy = loses && !is_queued;
        let quic = before.and_then(|known| known.quic);
        is_lossy.then_some(Self { tcp: Figure::now(copy.goodput), quic })
    }
}

/// What is seen of a path while a copy runs; moments are times since it began.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    held: Option<CachedPath>,
    /// How many connections were asked for last, and since when.
    count: Option<(u32, Duration)>,
    /// What had been carried at the last look, and when that was more than before.
    carried: (u64, Duration),
    /// Looks at which a queue stood, and all.
    queued: (u32, u32),
}

impl Sight {
    /// The path is held at a rate; its shortest round trip.
    pub(crate) fn on_held(&mut self, rate: Rate, rtt: Duration) {
        self.held = Some(CachedPath { rate, rtt });
    }

    /// So many connections are to carry data from now on.
    pub(crate) fn on_count(&mut self, streams: u32, now: Duration) {
        self.count = Some((streams, now));
    }

    /// So much has been carried so far.
    pub(crate) fn on_carried(&mut self, bytes: u64, now: Duration) {
        if bytes > self.carried.0 {
            self.carried = (bytes, now);
        }
    }

    /// Somebody has looked whether a queue stands.
    pub(crate) fn on_queue(&mut self, is_standing: bool) {
        self.queued = (self.queued.0 + u32::from(is_standing), self.queued.1 + 1);
    }

    /// Whether a queue stood most of the time; `None` where nobody has looked often enough.
    pub(crate) fn is_queued(&self) -> Option<bool> {
        let (standing, all) = self.queued;
        (all >= LOOKS_LEAST).then_some(2 * standing > all)
    }

    /// How the path was held last, if it ever was, and how many connections it took in the end,
    /// where these were found while data came, for a time in which no trial ends.
    pub(crate) fn seen(&self) -> Seen {
        let is_kept = |(_, since): &(u32, Duration)| self.carried.1 >= *since + COUNT_KEPT;
        let streams = self.count.filter(is_kept).map(|(streams, _)| streams);
        Seen { held: self.held, streams, lossy: None }
    }
}

/// What is remembered of the path of a transfer.
pub(crate) struct PathMemory {
    file: PathBuf,
    name: String,
}

impl PathMemory {
    /// That of the path to or from the far side; `None` where there is no place to remember things.
    pub(crate) fn of(transfer: &Transfer, direction: Direction) -> Option<Self> {
        let far = match direction {
            Direction::Pull => transfer.sources.first().unwrap_or(&transfer.destination),
            Direction::Push => &transfer.destination,
        };
        let host = match far {
            Location::Local(_) => return None,
            Location::Ssh { host, .. } => host.clone(),
            Location::Daemon { host, port, .. } => format!("{host}:{port}"),
        };
        let dir = transfer.daemon.state_dir.clone().or_else(|| default_state_dir().ok())?;
        let way = if direction == Direction::Push { "to" } else { "from" };
        Some(Self::at(dir, &format!("{way} {host}")))
    }

    fn at(state_dir: PathBuf, name: &str) -> Self {
        let hash = blake3::hash(name.as_bytes()).to_hex();
        Self { file: state_dir.join("paths").join(&hash.as_str()[..16]), name: name.to_owned() }
    }

    /// What is remembered.
    pub(crate) fn recall(&self) -> Option<Seen> {
        self.recall_at(SystemTime::now())
    }

    fn recall_at(&self, now: SystemTime) -> Option<Seen> {
        let text = fs::read_to_string(&self.file).ok()?;
        let mut lines = text.lines();
        if lines.next()? != MAGIC || lines.next()? != self.name {
            return None;
        }
        let figures: Vec<u64> = lines.map_while(|line| line.parse().ok()).collect();
        let [rate_bps, rtt_us, streams, tcp_bps, tcp_at, quic_bps, quic_at, at] =
            figures.try_into().ok()?;
        let at = UNIX_EPOCH.checked_add(Duration::from_secs(at))?;
        let age = now.duration_since(at).ok()?;
        let rate = |bps: u64| (bps > 0).then(|| Rate::from_bits_per_sec(bps as f64));
        let rtt = Duration::from_micros(rtt_us);
        let held = rate(rate_bps).filter(|_| rtt_us > 0).map(|rate| CachedPath { rate, rtt });
        let figure =
            |bps, at, kept| rate(bps).and_then(|goodput| Figure { goodput, at }.within(kept, now));
        let lossy = figure(tcp_bps, tcp_at, KEPT)
            .map(|tcp| Lossy { tcp, quic: figure(quic_bps, quic_at, TRIED) });
        let streams = u32::try_from(streams).ok().filter(|&streams| streams > 0);
        (age <= KEPT).then_some(Seen { held, streams, lossy })
    }

    /// Remembers it, where there is something to remember, or to forget. What cannot be written is
    /// not missed.
    pub(crate) fn note(&self, seen: &Seen, earlier: &Seen) {
        if *seen != Seen::default() || earlier.lossy.is_some() {
            let _ = self.try_note(seen);
        }
    }

    fn try_note(&self, seen: &Seen) -> Option<()> {
        let dir = self.file.parent()?;
        create_private_dir(dir.parent()?).ok()?;
        create_private_dir(dir).ok()?;
        let at = seconds(SystemTime::now());
        let held = seen.held.map(|held| (held.rate.bits_per_sec(), held.rtt.as_micros()));
        let (rate, rtt) = held.unwrap_or_default();
        let streams = seen.streams.unwrap_or_default();
        let lines = |figure: Option<Figure>| {
            let (bps, at) = figure.map_or((0, 0), |f| (f.goodput.bits_per_sec(), f.at));
            format!("{bps}\n{at}")
        };
        let tcp = lines(seen.lossy.map(|known| known.tcp));
        let quic = lines(seen.lossy.and_then(|known| known.quic));
        // A name of its own for each: nobody writes into what another one renames.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let part = self.file.with_extension(format!("{}-{number}", std::process::id()));
        let mut file = fs::File::create(&part).ok()?;
        let figures = format!("{rate}\n{rtt}\n{streams}\n{tcp}\n{quic}\n{at}\n");
        let text = format!("{MAGIC}\n{}\n{figures}", self.name);
        let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&part, &self.file));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(mbit: f64) -> Seen {
        let rate = Rate::from_bits_per_sec(mbit * 1e6);
        let held = Some(CachedPath { rate, rtt: Duration::from_millis(20) });
        Seen { held, ..Seen::default() }
    }

    #[test]
    fn a_path_is_remembered_for_a_week_and_apart_from_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| PathMemory::at(dir.path().to_owned(), name);
        assert_eq!(path("to a:1").recall(), None);
        path("to a:1").note(&seen(900.0), &Seen::default());
        path("from a:1").note(&seen(100.0), &Seen::default());
        assert_eq!(path("to a:1").recall(), Some(seen(900.0)));
        assert_eq!(path("from a:1").recall(), Some(seen(100.0)));
        let many = Seen { streams: Some(48), ..Seen::default() };
        path("to a:1").note(&many, &Seen::default());
        path("to a:1").note(&Seen::default(), &Seen::default());
        assert_eq!(path("to a:1").recall(), Some(many));
        let later = SystemTime::now() + KEPT + Duration::from_secs(60);
        assert_eq!(path("to a:1").recall_at(later), None);
    }

    #[test]
    fn what_is_damaged_tells_nothing_and_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = PathMemory::at(dir.path().to_owned(), "to a:1");
        path.note(&seen(900.0), &Seen::default());
        let far = format!("{MAGIC}\nto a:1\n1\n1\n1\n1\n1\n1\n1\n{}\n", u64::MAX);
        let other = format!("{MAGIC}\nto b:1\n1\n1\n1\n1\n1\n1\n1\n1\n");
        for text in ["", "rubbish", &other, &far, "\u{0}\u{1}"] {
            fs::write(&path.file, text).unwrap();
            assert_eq!(path.recall(), None, "{text:?}");
        }
        path.note(&seen(800.0), &Seen::default());
        assert_eq!(path.recall(), Some(seen(800.0)));
        assert_eq!(fs::read_dir(path.file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn many_at_once_leave_a_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for n in 1..=8u32 {
                let path = PathMemory::at(dir.path().to_owned(), "to a:1");
                scope.spawn(move || {
                    let seen = seen(f64::from(n));
                    (0..50).for_each(|_| path.note(&seen, &Seen::default()));
                });
            }
        });
        let found = PathMemory::at(dir.path().to_owned(), "to a:1").recall();
        let rtt = |seen: Seen| seen.held.map(|held| held.rtt);
        assert_eq!(found.and_then(rtt), rtt(seen(1.0)));
    }

    const MANY: LossSample = LossSample { retransmits: 700, segments: 70_000 };

    fn carried(by_quic: bool, mbit: f64) -> Carried {
        let goodput = Rate::from_bits_per_sec(mbit * 1e6);
        Carried { by_quic, goodput, losses: MANY, is_queued: Some(false) }
    }

    #[test]
    fn a_path_that_loses_at_random_is_for_quic_unless_tcp_has_proved_better() {
        let lossy = Lossy::after(None, &carried(false, 100.0));
        assert!(lossy.unwrap().is_for_quic(), "it has not been tried");
        let tried = Lossy::after(lossy, &carried(true, 130.0));
        assert!(tried.unwrap().is_for_quic());
        let slower = Lossy::after(tried, &carried(true, 90.0));
        assert!(!slower.unwrap().is_for_quic());
        // The next goes by TCP, and what QUIC came to is not forgotten.
        let again = Lossy::after(slower, &carried(false, 80.0));
        assert!(again.unwrap().is_for_quic());
        assert_eq!(Lossy::after(None, &carried(true, 100.0)), None, "nobody knows what TCP does");
        let failed = lossy.unwrap().without_quic();
        assert!(!failed.is_for_quic());
        assert!(!Lossy::after(Some(failed), &carried(false, 80.0)).unwrap().is_for_quic());
        // A short copy tells nothing, and one that loses no more that the path has changed.
        let little = LossSample { retransmits: 0, segments: 80 };
        let short = Carried { losses: little, ..carried(true, 1.0) };
        assert_eq!(Lossy::after(tried, &short), tried);
        let healed =
            Carried { losses: LossSample { retransmits: 0, ..MANY }, ..carried(true, 130.0) };
        assert_eq!(Lossy::after(tried, &healed), None);
    }

    #[test]
    fn a_queue_few_losses_or_little_data_are_no_reason_for_quic() {
        let known = Lossy::after(None, &carried(false, 100.0));
        let after = |before, losses, is_queued| {
            let is_queued = Some(is_queued);
            Lossy::after(before, &Carried { losses, is_queued, ..carried(false, 100.0) })
        };
        for before in [None, known] {
            assert_eq!(after(before, MANY, true), None);
            assert_eq!(
                after(before, LossSample { retransmits: 70, segments: 70_000 }, false),
                None
            );
            let little = LossSample { retransmits: 30, segments: 1_000 };
            assert_eq!(after(before, little, false), before, "it tells nothing");
            let unseen = Carried { is_queued: None, ..carried(false, 100.0) };
            assert_eq!(Lossy::after(before, &unseen), before, "nobody has looked");
        }
    }

    #[test]
    fn what_transports_came_to_is_remembered_and_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = PathMemory::at(dir.path().to_owned(), "to a:1");
        let lossy = Lossy::after(None, &carried(false, 100.0));
        let tried = Lossy::after(lossy, &carried(true, 130.0));
        for lossy in [lossy, tried] {
            let seen = Seen { lossy, ..seen(100.0) };
            path.note(&seen, &Seen::default());
            assert_eq!(path.recall(), Some(seen));
        }
        // QUIC that was slower, or did not get through, is tried again after a day; what TCP came
        // to is forgotten after a week, however often QUIC was taken meanwhile.
        let failed = tried.map(Lossy::without_quic);
        path.note(&Seen { lossy: failed, ..Seen::default() }, &Seen::default());
        let at = |age| path.recall_at(SystemTime::now() + age).and_then(|seen| seen.lossy);
        assert!(!at(TRIED / 2).unwrap().is_for_quic());
        assert!(at(2 * TRIED).unwrap().is_for_quic());
        let tcp = tried.unwrap().tcp;
        let old = Figure { at: tcp.at - KEPT.as_secs() - 60, ..tcp };
        let lossy = tried.map(|known| Lossy { tcp: old, ..known });
        path.note(&Seen { lossy, ..Seen::default() }, &Seen::default());
        assert_eq!(at(Duration::ZERO), None);
        path.note(&Seen::default(), &Seen { lossy, ..Seen::default() });
        assert_eq!(path.recall(), Some(Seen::default()));
    }
}
