//! `bankfull` across a long, lossy path with cuts: a tree is copied in both directions and arrives
//! intact. One network serves both directions at once.
//!
//! Uses the program built by the workspace's tests, and is skipped with a message without it.
//! `scripts/over-path` runs all tests of the command across such a path, see `docs/lab.md`.

use super::{MACHINE, Shares, start};
use bankfull_control::{Bytes, Rate};
use bankfull_lab::base::notify;
use bankfull_lab::model::plan::Plan;
use bankfull_lab::topology::hosts::Hosts;
use bankfull_lab::topology::network::Network;
use bankfull_proto::journal::{HEADER_BYTES, RECORD_BYTES};
use bankfull_sim::{Loss, PathConfig};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: usize = 1 << 20;
const RTT: Duration = Duration::from_millis(150);
const LOSS: f64 = 0.01;

/// Duration of a cut.
const CUT: Duration = Duration::from_secs(5);

/// Timeout of a test. (chosen: four times the longest copy alone)
const LIMIT: Duration = Duration::from_secs(100);

/// Allowed overhead besides content: headers, tags, announcements. (chosen: a hundredth, plus the
/// TLS handshakes)
const OVERHEAD: u64 = 100;
const OVERHEAD_MIN: u64 = 64 << 10;

/// Environment variables that change the program's behaviour.
pub(crate) const OUR_VARIABLES: [&str; 3] =
    ["BANKFULL_TOKEN", "BANKFULL_STATE_DIR", "BANKFULL_SSH"];

/// Daemon at the receiver that serves a directory with a tree.
struct Scene {
    // Field order is drop order: processes end with the network.
    network: Network,
    program: PathBuf,
    scratch: TempDir,
    tree_bytes: u64,
    address: String,
    fingerprint: String,
    _busy: Shares,
}

impl Scene {
    /// Scene over a lossy path, with a large file and small ones. `None`, with a message, if
    /// networks are not allowed or the program is not built.
    fn new(serve: &[&str]) -> Option<Self> {
        // Without BBR, a stream reaches about 1 Mbit/s at this loss. (Mathis et al. 1997) Either
        // direction may start seconds before the other, and must not end before that.
        let plant = |dir: &Path, has_bbr: bool| plant(dir, if has_bbr { 50 } else { 5 });
        Self::across(RTT, Loss::Random { probability: LOSS }, plant, serve)
    }

    fn across(
        rtt: Duration,
        loss: Loss,
        plant: impl Fn(&Path, bool) -> u64,
        serve: &[&str],
    ) -> Option<Self> {
        let program = program()?;
        let busy = MACHINE.share();
        let (network, has_bbr) = network(rtt, loss)?;
        let scratch = TempDir::with_prefix("bankfull-lab-").unwrap();
        let tree_bytes = plant(&scratch.path().join("tree"), has_bbr);
        let mut scene = Self {
            network,
            program,
            scratch,
            tree_bytes,
            address: String::new(),
            fingerprint: String::new(),
            _busy: busy,
        };
        scene.serve(serve);
        Some(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn serve(&mut self, flags: &[&str]) {
        let address = Hosts::address(self.network.receiver());
        let mut command = self.command("serve");
        command.arg(self.scratch.path()).arg("--listen").arg(format!("{address}:0"));
        command.args(["--json", "--state-dir"]).arg(self.path("state")).args(flags);
        let mut daemon = self.spawn(self.network.receiver(), &mut command, "daemon");
        wait_until("the daemon listens", || {
            assert!(daemon.child.try_wait().unwrap().is_none(), "{}", daemon.output());
            daemon.out().contains('\n')
        });
        let listening: Value = serde_json::from_str(daemon.out().lines().next().unwrap()).unwrap();
        self.address = format!("{address}:{}", listening["port"]);
        self.fingerprint = listening["fingerprint"].as_str().unwrap().to_owned();
    }

    fn command(&self, sub: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(sub).stdin(Stdio::null());
        for name in OUR_VARIABLES {
            command.env_remove(name);
        }
        // Keeps the test out of the user's state directory.
        command.env("XDG_STATE_HOME", self.path("home"));
        command
    }

    /// Starts a program on a host, with its output in files of this name.
    fn spawn(&self, host: usize, command: &mut Command, name: &str) -> Running {
        Running::start(self.network.hosts(), host, command, &self.path(name))
    }

    fn url(&self, path: &str) -> String {
        format!("bankfull://{}/{path}", self.address)
    }

    /// Starts a copy at the sender.
    fn cp(&self, name: &str, flags: &[&str], from: &str, to: &str) -> Running {
        let mut command = self.command("cp");
        command.args(["--json", "--fingerprint", &self.fingerprint]).args(flags);
        self.spawn(0, command.args([from, to]), name)
    }

    fn push(&self, flags: &[&str]) -> Running {
        self.cp("push", flags, self.path("tree").to_str().unwrap(), &self.url("pushed"))
    }

    fn pull(&self, flags: &[&str]) -> Running {
        self.cp("pull", flags, &self.url("tree"), self.path("pulled").to_str().unwrap())
    }

    /// Starts copies in both directions, and waits until each has verified a block.
    fn both_under_way(&self, flags: &[&str]) -> [Running; 2] {
        let mut copies = [self.push(flags), self.pull(flags)];
        for (copy, landed) in copies.iter_mut().zip(["pushed", "pulled"]) {
            wait_until("a block has arrived", || {
                assert!(copy.child.try_wait().unwrap().is_none(), "{}", copy.output());
                blocks_in(&self.path(landed).join("tree")) > 0
            });
        }
        copies
    }

    /// Checks that the destination equals the source, without part files or journals.
    #[track_caller]
    fn assert_whole(&self, landed: &str) {
        let (tree, landed) = (self.path("tree"), self.path(landed).join("tree"));
        let diff = ["-r", "--no-dereference"].map(std::ffi::OsStr::new);
        let diff = Command::new("diff").args(diff).arg(tree).arg(&landed).output().unwrap();
        assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
        assert_eq!(litter(&landed), Vec::<PathBuf>::new());
    }

    /// Checks that every block was sent once.
    #[track_caller]
    fn assert_sent_once(&self, done: &Value) {
        assert_eq!(figure(done, "bytes"), self.tree_bytes, "{done}");
        let wire = figure(done, "wire_bytes");
        let most = self.tree_bytes + self.tree_bytes / OVERHEAD + OVERHEAD_MIN;
        assert!(wire <= most, "{wire} bytes for {}: {done}", self.tree_bytes);
    }
}

/// Path of the program, in cargo's directory for the workspace's tests.
pub(crate) fn program() -> Option<PathBuf> {
    // The test executable is `deps/lab-…` beside it.
    let here = std::env::current_exe().unwrap();
    let program = here.parent().and_then(Path::parent).unwrap().join("bankfull");
    let is_there = program.exists();
    if !is_there {
        notify("skipped: bankfull is not built; run `cargo build --workspace --bin bankfull`");
    }
    is_there.then_some(program)
}

/// Network of 100 Mbit/s both ways, and whether it uses BBR, which tolerates the loss.
fn network(rtt: Duration, loss: Loss) -> Option<(Network, bool)> {
    let mut path = PathConfig::new(Rate::from_bits_per_sec(1e8), rtt, Bytes(0));
    path.forward.buffer = path.bdp().unwrap();
    path.forward.loss = loss;
    path.reverse = path.forward.clone();
    let mut plan = Plan::path(&path);
    plan.tcp_buffer_bytes = Some(16 << 20);
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let has_bbr = known.is_ok_and(|names| names.split_whitespace().any(|name| name == "bbr"));
    plan.congestion = Some(if has_bbr { "bbr" } else { "cubic" }.to_owned());
    Some((start(&plan)?, has_bbr))
}

/// Creates a tree with one large file and many small ones; returns its bytes.
pub(crate) fn plant(dir: &Path, large_mib: usize) -> u64 {
    let mut random = fastrand::Rng::with_seed(7);
    let mut write = |path: PathBuf, bytes: usize| {
        let mut content = vec![0; bytes];
        random.fill(&mut content);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        bytes as u64
    };
    let mut bytes = write(dir.join("large"), large_mib * MIB + 777);
    for n in 0..200 {
        bytes += write(dir.join(format!("{}/{n}", n % 7)), n * 41 % 5000);
    }
    bytes
}

/// Files in the first and last directory of the tree below, and their size.
const SMALL_FILES: u64 = 2000;
const SMALL_BYTES: u64 = 4096;

/// Symlinks in the directory between, and the length of their targets: 64 MB of announcements. The
/// walk stops at 8 MiB in the outbox (`MAX_OUTBOX_BYTES`) and at most 16 MiB in the socket, so that
/// it ends after 39 MB have crossed the path, which takes 3 s.
const SYMLINKS: usize = 16_000;
const TARGET_BYTES: usize = 4000;

/// Creates a tree whose walk is slow on any machine: small files, many symlinks that are slow to
/// announce, small files again. Returns its bytes.
fn plant_small(dir: &Path) -> u64 {
    for name in ["a", "b", "c"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    for at in 0..SMALL_FILES {
        let content = [at as u8; SMALL_BYTES as usize];
        fs::write(dir.join(format!("a/{at}")), content).unwrap();
        fs::write(dir.join(format!("c/{at}")), content).unwrap();
    }
    let target = "x".repeat(TARGET_BYTES);
    for at in 0..SYMLINKS {
        std::os::unix::fs::symlink(&target, dir.join(format!("b/{at}"))).unwrap();
    }
    2 * SMALL_FILES * SMALL_BYTES
}

/// Number of completed files in a directory: those with their final names.
pub(crate) fn finished_in(dir: &Path) -> usize {
    // In one pass: files come and go.
    entries(dir).filter(|path| !is_ours(path)).count()
}

/// Part files and journals of bankfull in a directory.
fn litter(dir: &Path) -> Vec<PathBuf> {
    entries(dir).filter(|path| is_ours(path)).collect()
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn is_ours(path: &Path) -> bool {
    path.to_string_lossy().contains("/.bankfull-")
}

/// Verified blocks according to the journals in a directory.
pub(crate) fn blocks_in(dir: &Path) -> usize {
    let journals = litter(dir).into_iter().filter(|path| path.extension().unwrap() == "journal");
    let records = |path: PathBuf| {
        let bytes = fs::metadata(path).map_or(0, |metadata| metadata.len() as usize);
        bytes.saturating_sub(HEADER_BYTES) / RECORD_BYTES
    };
    journals.map(records).sum()
}

/// Program running on a host.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) out: PathBuf,
    err: PathBuf,
}

impl Running {
    /// Starts a program, with its output in files of this name.
    pub(crate) fn start(hosts: &Hosts, host: usize, command: &mut Command, name: &Path) -> Self {
        let (out, err) = (name.with_extension("out"), name.with_extension("err"));
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        Self { child: hosts.spawn(host, command).unwrap(), out, err }
    }

    pub(crate) fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    pub(crate) fn output(&self) -> String {
        format!("{}\n{}", self.out(), fs::read_to_string(&self.err).unwrap())
    }

    /// Waits for the exit with this code.
    #[track_caller]
    fn wait(&mut self, code: i32) {
        let mut status = None;
        wait_until("the program ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(code), "{}", self.output());
    }

    /// Last line of output, after the exit with this code.
    #[track_caller]
    pub(crate) fn ends_with(mut self, code: i32) -> Value {
        self.wait(code);
        serde_json::from_str(self.out().lines().last().unwrap()).unwrap()
    }
}

pub(crate) fn figure(done: &Value, name: &str) -> u64 {
    done[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {done}"))
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "waited too long until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn tree_round_trip_over_lossy_path_is_identical() {
    let Some(scene) = Scene::new(&[]) else { return };
    scene.assert_sent_once(&scene.push(&[]).ends_with(0));
    scene.assert_whole("pushed");
    let (from, to) = (scene.url("pushed/tree"), scene.path("back"));
    let back = scene.cp("back", &[], &from, to.to_str().unwrap());
    scene.assert_sent_once(&back.ends_with(0));
    scene.assert_whole("back");

    let again = scene.push(&[]).ends_with(0);
    assert_eq!([figure(&again, "files"), figure(&again, "bytes")], [0, 0]);
    let totals = &scene.network.stop().unwrap().recording.totals;
    assert!(totals[0].lost > 50 && totals[1].lost > 50, "both ways had losses: {totals:?}");
}

#[test]
fn cut_path_delays_copies_without_resending() {
    let Some(scene) = Scene::new(&[]) else { return };
    let copies = scene.both_under_way(&[]);
    scene.network.set_cut(true);
    thread::sleep(CUT);
    scene.network.set_cut(false);
    for copy in copies {
        let done = copy.ends_with(0);
        let seconds = done["seconds"].as_f64().unwrap();
        assert!(seconds > CUT.as_secs_f64(), "the cut came in its middle: {done}");
        // Connections survive the cut, so that nothing needs resending.
        scene.assert_sent_once(&done);
    }
    scene.assert_whole("pushed");
    scene.assert_whole("pulled");
}

#[test]
#[ignore = "half a minute: make campaign"]
fn cut_beyond_timeout_ends_copies_and_retry_resumes() {
    let Some(scene) = Scene::new(&["--timeout", "3"]) else { return };
    let copies = scene.both_under_way(&["--timeout", "3", "--retry-for", "0"]);
    scene.network.set_cut(true);
    let since = Instant::now();
    for copy in copies {
        let error = copy.ends_with(30);
        assert_eq!((&error["event"], &error["kind"]), (&"error".into(), &"timeout".into()));
    }
    assert!(since.elapsed() < Duration::from_secs(10), "it took {:?}", since.elapsed());
    scene.network.set_cut(false);

    for (copy, landed) in [(scene.push(&[]), "pushed"), (scene.pull(&[]), "pulled")] {
        let done = copy.ends_with(0);
        let [bytes, resumed, skipped] =
            ["bytes", "resumed_bytes", "skipped_bytes"].map(|name| figure(&done, name));
        assert!(resumed > 0, "{done}");
        assert_eq!(bytes + resumed + skipped, scene.tree_bytes, "{done}");
        scene.assert_whole(landed);
    }
}

/// Route of a copy.
fn route(out: &Path) -> String {
    let out = fs::read_to_string(out).unwrap();
    let events = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let connected = events.into_iter().find(|event| event["event"] == "connected").unwrap();
    connected["route"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "half a minute: make campaign"]
fn random_loss_moves_next_copy_to_quic() {
    let Some(scene) = Scene::new(&[]) else { return };
    let flags = ["--transport", "auto"];
    let source = scene.path("tree/large");
    let mut cached_paths = Vec::new();
    for (to, expected) in [("first", "daemon"), ("second", "quic")] {
        let copy = scene.cp(to, &flags, source.to_str().unwrap(), &scene.url(to));
        let out = copy.out.clone();
        let done = copy.ends_with(0);
        assert_eq!(route(&out), expected, "{done}");
        assert_eq!(fs::read(&source).unwrap(), fs::read(scene.path(to)).unwrap());
        if to == "first" {
            let paths = fs::read_dir(scene.path("home/bankfull/paths")).unwrap();
            let paths = paths.map(|entry| entry.unwrap().path());
            cached_paths.extend(paths.map(|path| (fs::read(&path).unwrap(), path)));
        }
    }
    // An explicit TCP transport is honoured. Only the route counts from here on.
    let source = scene.path("tree/1/99");
    let other = scene.cp("other", &[], source.to_str().unwrap(), &scene.url("other"));
    let out = other.out.clone();
    other.ends_with(0);
    assert_eq!(route(&out), "daemon");
    // Without datagrams, TCP is used, and the next copy does not try QUIC again.
    let mut rule = Command::new("ip");
    rule.args(["rule", "add", "ipproto", "udp", "priority", "1", "blackhole"]);
    scene.spawn(scene.network.receiver(), &mut rule, "rule").wait(0);
    // Restored: on a busy machine QUIC may have been slower, which is not tested here.
    cached_paths.iter().for_each(|(content, path)| fs::write(path, content).unwrap());
    for (to, is_reported) in [("third", true), ("fourth", false)] {
        let copy = scene.cp(to, &flags, source.to_str().unwrap(), &scene.url(to));
        let out = copy.out.clone();
        copy.ends_with(0);
        assert_eq!(route(&out), "daemon");
        let output = fs::read_to_string(&out).unwrap();
        assert_eq!(output.contains("the data goes over TCP: "), is_reported, "{output}");
    }
}

/// Files are completed before others are found: walk, sending and writing overlap. Sequentially,
/// nothing would be at the destination before the walk ends.
#[test]
#[ignore = "half a minute: make campaign"]
fn small_files_complete_while_walk_continues() {
    let rtt = Duration::from_millis(100);
    let plant = |dir: &Path, _| plant_small(dir);
    let Some(scene) = Scene::across(rtt, Loss::None, plant, &[]) else { return };
    let mut copy = scene.push(&[]);
    let landed = scene.path("pushed").join("tree");
    wait_until("a file has its name", || {
        assert!(copy.child.try_wait().unwrap().is_none(), "{}", copy.output());
        finished_in(&landed.join("a")) > 0
    });
    // The walk goes from `a` through `b` to `c`.
    assert_eq!(finished_in(&landed.join("c")), 0, "nothing of the last directory is there");
    let out = copy.out.clone();
    let done = copy.ends_with(0);
    assert_eq!(figure(&done, "files"), 2 * SMALL_FILES, "{done}");
    assert_eq!(figure(&done, "bytes"), scene.tree_bytes, "{done}");
    scene.assert_whole("pushed");

    let out = fs::read_to_string(out).unwrap();
    let events: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let progress = events.iter().filter(|event| event["event"] == "progress");
    let walking = progress.filter(|event| event["total_is_final"] == false);
    // Done: sent, verified and renamed, as reported by the receiver.
    let most = walking.map(|event| figure(event, "files_done")).max();
    assert!(most.is_some_and(|files| files > 0), "none was sent while the walk went on:\n{out}");
}
