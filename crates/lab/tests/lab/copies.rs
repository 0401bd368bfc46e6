//! `bankfull` itself across a path that is long and loses segments, and that is cut for a while: a
//! tree goes both ways and arrives whole. One network serves both directions of a test at once.
//!
//! The program is the one that the workspace's tests have built; without it these are skipped with
//! a word. `scripts/over-path` runs all tests of the command across such a path, see `docs/lab.md`.

use super::{MACHINE, start};
use bankfull_control::{Bytes, Rate};
use bankfull_lab::hosts::Hosts;
use bankfull_lab::network::{Network, Plan};
use bankfull_lab::say;
use bankfull_proto::journal::{HEADER_BYTES, RECORD_BYTES};
use bankfull_sim::{Loss, PathConfig};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLockReadGuard};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: usize = 1 << 20;
const RTT: Duration = Duration::from_millis(150);
const LOSS: f64 = 0.01;

/// How long the path is cut.
const CUT: Duration = Duration::from_secs(5);

/// What takes longer hangs. (ours: the longest of these copies takes a quarter of that alone)
const LIMIT: Duration = Duration::from_secs(100);

/// What a copy may send beside content: headers, tags, announcements. (ours: a hundredth, and a
/// TLS handshake for each of the connections)
const OVERHEAD: u64 = 100;
const OVERHEAD_MIN: u64 = 64 << 10;

/// Variables that would change what the program does.
pub(crate) const OUR_VARIABLES: [&str; 3] =
    ["BANKFULL_TOKEN", "BANKFULL_STATE_DIR", "BANKFULL_SSH"];

/// A daemon on the receiver's host, which serves a directory with a tree in it.
struct Scene {
    // In this order: processes end with the network.
    network: Network,
    program: PathBuf,
    scratch: TempDir,
    tree_bytes: u64,
    address: String,
    fingerprint: String,
    _busy: RwLockReadGuard<'static, ()>,
}

impl Scene {
    /// Across a path with losses, with a large file and some small ones. `None`, with a word, where
    /// no network can be made or the program is not built.
    fn new(serve: &[&str]) -> Option<Self> {
        // Without BBR, a stream gets about 1 Mbit/s through this loss. (Mathis et al. 1997)
        // One direction may begin seconds before the other, and is not to be over by then.
        let plant = |dir: &Path, has_bbr: bool| plant(dir, if has_bbr { 80 } else { 8 });
        Self::across(RTT, Loss::Random { probability: LOSS }, plant, serve)
    }

    fn across(
        rtt: Duration,
        loss: Loss,
        plant: impl Fn(&Path, bool) -> u64,
        serve: &[&str],
    ) -> Option<Self> {
        let program = program()?;
        let busy = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
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
            assert!(daemon.child.try_wait().unwrap().is_none(), "{}", daemon.said());
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
        // Nothing of a test stays where the user's own things are.
        command.env("XDG_STATE_HOME", self.path("home"));
        command
    }

    /// Starts a program on a host, with what it writes in files of this name.
    fn spawn(&self, host: usize, command: &mut Command, name: &str) -> Running {
        Running::start(self.network.hosts(), host, command, &self.path(name))
    }

    fn url(&self, path: &str) -> String {
        format!("bankfull://{}/{path}", self.address)
    }

    /// Starts a copy on the sender's host.
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

    /// Starts copies in both directions, and waits until a block of both is verified: with losses
    /// one direction may be far ahead of the other, but not at its end.
    fn both_under_way(&self, flags: &[&str]) -> [Running; 2] {
        let mut copies = [self.push(flags), self.pull(flags)];
        for (copy, landed) in copies.iter_mut().zip(["pushed", "pulled"]) {
            wait_until("a block has arrived", || {
                assert!(copy.child.try_wait().unwrap().is_none(), "{}", copy.said());
                blocks_in(&self.path(landed).join("tree")) > 0
            });
        }
        copies
    }

    /// What landed is what was sent, and nothing of ours is left there.
    #[track_caller]
    fn assert_whole(&self, landed: &str) {
        let (tree, landed) = (self.path("tree"), self.path(landed).join("tree"));
        let diff = ["-r", "--no-dereference"].map(std::ffi::OsStr::new);
        let diff = Command::new("diff").args(diff).arg(tree).arg(&landed).output().unwrap();
        assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
        assert_eq!(litter(&landed), Vec::<PathBuf>::new());
    }

    /// Everything was sent once: no block twice, for whatever reason.
    #[track_caller]
    fn assert_sent_once(&self, done: &Value) {
        assert_eq!(figure(done, "bytes"), self.tree_bytes, "{done}");
        let wire = figure(done, "wire_bytes");
        let most = self.tree_bytes + self.tree_bytes / OVERHEAD + OVERHEAD_MIN;
        assert!(wire <= most, "{wire} bytes for {}: {done}", self.tree_bytes);
    }
}

/// The program, where cargo puts it for the tests of the workspace.
pub(crate) fn program() -> Option<PathBuf> {
    // This is `deps/lab-…` beside it.
    let here = std::env::current_exe().unwrap();
    let program = here.parent().and_then(Path::parent).unwrap().join("bankfull");
    let is_there = program.exists();
    if !is_there {
        say("skipped: build bankfull first, with `cargo build -p bankfull-cli`");
    }
    is_there.then_some(program)
}

/// A network of 100 Mbit/s both ways, and whether it has BBR, which does not mind the loss.
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

/// Makes a tree with one large file and many small ones. Returns how many bytes there are.
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

/// Files in each of the directories at the two ends of the tree that follows, and their size.
const SMALL_FILES: u64 = 2000;
const SMALL_BYTES: u64 = 4096;

/// Symlinks between them, and the length of what they lead to: announced, they are 64 MB. The walk
/// waits while 8 MiB are on their way out (`MAX_OUTBOX_BYTES`) and the socket holds 16 MiB at most,
/// so it cannot end before 39 MB have crossed the path, which takes 3 s.
const SYMLINKS: usize = 16_000;
const TARGET_BYTES: usize = 4000;

/// Makes a tree whose walk takes long whatever the machine: small files, many symlinks that take
/// long to be announced, and small files again. Returns how many bytes there are.
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

/// Finished files of a directory: those that have their names.
pub(crate) fn finished_in(dir: &Path) -> usize {
    // In one look: files come and go.
    entries(dir).filter(|path| !is_ours(path)).count()
}

/// Bankfull's own files beneath a directory.
fn litter(dir: &Path) -> Vec<PathBuf> {
    entries(dir).filter(|path| is_ours(path)).collect()
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn is_ours(path: &Path) -> bool {
    path.to_string_lossy().contains("/.bankfull-")
}

/// Blocks that are verified and written, as the journals in a directory have it.
pub(crate) fn blocks_in(dir: &Path) -> usize {
    let journals = litter(dir).into_iter().filter(|path| path.extension().unwrap() == "journal");
    let records = |path: PathBuf| {
        let bytes = fs::metadata(path).map_or(0, |metadata| metadata.len() as usize);
        bytes.saturating_sub(HEADER_BYTES) / RECORD_BYTES
    };
    journals.map(records).sum()
}

/// A program on a host.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) out: PathBuf,
    err: PathBuf,
}

impl Running {
    /// Starts it, with what it writes in files of this name.
    pub(crate) fn start(hosts: &Hosts, host: usize, command: &mut Command, name: &Path) -> Self {
        let (out, err) = (name.with_extension("out"), name.with_extension("err"));
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        Self { child: hosts.spawn(host, command).unwrap(), out, err }
    }

    pub(crate) fn out(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    pub(crate) fn said(&self) -> String {
        format!("{}\n{}", self.out(), fs::read_to_string(&self.err).unwrap())
    }

    /// Waits until it has ended with this exit code.
    #[track_caller]
    fn wait(&mut self, code: i32) {
        let mut status = None;
        wait_until("the program ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(code), "{}", self.said());
    }

    /// Its last line, once it has ended with this exit code.
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
fn a_tree_goes_across_a_long_path_with_loss_and_comes_back_the_same() {
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
fn a_path_that_is_cut_and_comes_back_delays_copies_and_costs_nothing_else() {
    let Some(scene) = Scene::new(&[]) else { return };
    let copies = scene.both_under_way(&[]);
    scene.network.set_cut(true);
    thread::sleep(CUT);
    scene.network.set_cut(false);
    for copy in copies {
        let done = copy.ends_with(0);
        let seconds = done["seconds"].as_f64().unwrap();
        assert!(seconds > CUT.as_secs_f64(), "the cut came in its middle: {done}");
        // Connections outlast it, so there is nothing to be sent by us again.
        scene.assert_sent_once(&done);
    }
    scene.assert_whole("pushed");
    scene.assert_whole("pulled");
}

#[test]
fn a_cut_beyond_the_timeout_ends_copies_and_the_same_command_continues() {
    let flags = ["--timeout", "3"];
    let Some(scene) = Scene::new(&flags) else { return };
    let copies = scene.both_under_way(&flags);
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

/// By which way a copy went.
fn route(out: &Path) -> String {
    let out = fs::read_to_string(out).unwrap();
    let events = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let connected = events.into_iter().find(|event| event["event"] == "connected").unwrap();
    connected["route"].as_str().unwrap().to_owned()
}

#[test]
fn where_tcp_loses_at_random_the_next_copy_goes_by_quic_if_it_may() {
    let Some(scene) = Scene::new(&[]) else { return };
    let flags = ["--transport", "auto"];
    let source = scene.path("tree/large");
    let mut remembered = Vec::new();
    for (to, expected) in [("first", "daemon"), ("second", "quic")] {
        let copy = scene.cp(to, &flags, source.to_str().unwrap(), &scene.url(to));
        let out = copy.out.clone();
        let done = copy.ends_with(0);
        assert_eq!(route(&out), expected, "{done}");
        assert_eq!(fs::read(&source).unwrap(), fs::read(scene.path(to)).unwrap());
        if to == "first" {
            let paths = fs::read_dir(scene.path("home/bankfull/paths")).unwrap();
            let paths = paths.map(|entry| entry.unwrap().path());
            remembered.extend(paths.map(|path| (fs::read(&path).unwrap(), path)));
        }
    }
    // Whoever asks for TCP has it.
    let other = scene.cp("other", &[], source.to_str().unwrap(), &scene.url("other"));
    let out = other.out.clone();
    other.ends_with(0);
    assert_eq!(route(&out), "daemon");
    // Where no datagram gets through any more, TCP is there, and the next does not try again.
    let mut rule = Command::new("ip");
    rule.args(["rule", "add", "ipproto", "udp", "priority", "1", "blackhole"]);
    scene.spawn(scene.network.receiver(), &mut rule, "rule").wait(0);
    // On a busy machine QUIC may have been the slower one, which is not what this is about.
    remembered.iter().for_each(|(content, path)| fs::write(path, content).unwrap());
    for (to, told) in [("third", true), ("fourth", false)] {
        let copy = scene.cp(to, &flags, source.to_str().unwrap(), &scene.url(to));
        let out = copy.out.clone();
        copy.ends_with(0);
        assert_eq!(route(&out), "daemon");
        let said = fs::read_to_string(&out).unwrap();
        assert_eq!(said.contains("the data goes by TCP: "), told, "{said}");
    }
}

/// Files are finished while others are not even found: the walk, the sending and the writing
/// overlap. One after another, nothing would be at the target before the walk ends.
#[test]
fn of_many_small_files_the_first_are_finished_before_the_walk_has_found_the_last() {
    let rtt = Duration::from_millis(100);
    let plant = |dir: &Path, _| plant_small(dir);
    let Some(scene) = Scene::across(rtt, Loss::None, plant, &[]) else { return };
    let mut copy = scene.push(&[]);
    let landed = scene.path("pushed").join("tree");
    wait_until("a file has its name", || {
        assert!(copy.child.try_wait().unwrap().is_none(), "{}", copy.said());
        finished_in(&landed.join("a")) > 0
    });
    // The walk goes from `a` by way of `b` to `c`.
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
    // Settled: sent, verified and named, as the receiver has told the client.
    let most = walking.map(|event| figure(event, "files_done")).max();
    assert!(most.is_some_and(|files| files > 0), "none was sent while the walk went on:\n{out}");
}
