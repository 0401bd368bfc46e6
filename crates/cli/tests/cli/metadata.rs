//! Metadata as rsync(1) keeps it: after a copy, rsync with the same flags finds nothing to do.
//!
//! `BANKFULL_SEED` replays one case, `BANKFULL_CASES` sets their number.

use super::harness::{
    Daemon, Rng, Scratch, SshServer, cp, is_root, run, set_mode, unprivileged, write_file,
};
use super::rsync::{each_case, has_rsync};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Default number of generated cases.
const CASES: u64 = 60;

/// Names with and without bytes that are not UTF-8 are tested elsewhere.
const NAMES: [&str; 8] = ["a", "b", "c", "d d", "e", "f", "é", "-g"];

/// Accounts that this host has, and numbers without an account.
const IDS: [u32; 5] = [0, 1, 2, 4_000_001, 65534];

/// Runs a program on a path; false if it is missing or fails.
pub(super) fn change(program: &str, arguments: &[&str], path: &Path) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).arg(path).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

pub(super) fn below(rng: &mut Rng, end: usize) -> usize {
    rng.below(end as u64) as usize
}

/// Makes a tree with some dozen entries of every kind.
pub(super) fn make_tree(root: &Path, rng: &mut Rng) -> Vec<PathBuf> {
    let (mut dirs, mut all) = (vec![root.to_owned()], Vec::new());
    for _ in 0..30 {
        let dir = dirs[below(rng, dirs.len())].clone();
        let path = dir.join(NAMES[below(rng, NAMES.len())]);
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match rng.below(8) {
            0 | 1 if path.components().count() < 12 => {
                fs::create_dir(&path).unwrap();
                dirs.push(path.clone());
            }
            2 => symlink("a/../target", &path).unwrap(),
            3 => drop(change("mkfifo", &[], &path)),
            4 if is_root() => {
                let device = ["c", "b"][below(rng, 2)];
                let minor = rng.below(300).to_string();
                let made = Command::new("mknod").arg(&path).args([device, "7", &minor]).status();
                assert!(made.unwrap().success());
            }
            5 => {
                let linkable = |path: &&PathBuf| path.symlink_metadata().unwrap().nlink() < 4;
                let files: Vec<_> = all.iter().filter(linkable).cloned().collect();
                let files: Vec<_> = files.iter().filter(|path: &&PathBuf| !path.is_dir()).collect();
                if !files.is_empty() {
                    fs::hard_link(files[below(rng, files.len())], &path).unwrap();
                }
            }
            _ => {
                let length = [0, 5, 300_000][below(rng, 3)];
                write_file(&path, rng.bytes(length));
            }
        }
        if path.symlink_metadata().is_ok() {
            all.push(path);
        }
    }
    all.push(root.to_owned());
    all
}

/// Changes the metadata of some entries.
pub(super) fn shuffle(paths: &[PathBuf], rng: &mut Rng, owners: bool) {
    for path in paths {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        let (is_link, is_dir) = (metadata.file_type().is_symlink(), metadata.is_dir());
        let is_plain = metadata.is_file() || is_dir;
        if rng.below(3) == 0 && is_root() && owners {
            let (owner, group) = (IDS[below(rng, IDS.len())], IDS[below(rng, IDS.len())]);
            lchown(path, Some(owner), Some(group)).unwrap();
        }
        if rng.below(3) == 0 && is_plain {
            let value = rng.below(1000).to_string();
            let name = ["user.a", "user.b"][below(rng, 2)];
            change("setfattr", &["-n", name, "-v", &value], path);
        }
        if rng.below(6) == 0 && is_plain && is_root() {
            change("setfattr", &["-n", "trusted.t", "-v", "1"], path);
        }
        if rng.below(4) == 0 && is_plain {
            let entry = ["u:1:rw", "g:2:r-x", "u:4000001:rwx", "m::r"][below(rng, 4)];
            change("setfacl", &["-m", entry], path);
        }
        if rng.below(5) == 0 && is_dir {
            change("setfacl", &["-d", "-m", "g:2:rx"], path);
        }
        if rng.below(3) == 0 && !is_link {
            let modes = match owners && is_root() {
                true => [0o600, 0o755, 0o2755, 0o1777, 0o4711, 0o640],
                false => [0o600, 0o755, 0o711, 0o777, 0o700, 0o640],
            };
            set_mode(path, modes[below(rng, modes.len())] | if is_dir { 0o700 } else { 0o400 });
        }
        if rng.below(2) == 0 {
            let seconds = format!("@{}.{}", 1_000_000_000 + rng.below(500_000_000), rng.below(10));
            change("touch", &["-h", "-d", &seconds], path);
        }
    }
}

/// Returns flags of a case that bankfull and rsync both have.
pub(super) fn flags(rng: &mut Rng) -> Vec<&'static str> {
    let mut flags = vec![["-rlpt", "-a", "-a", "-a"][below(rng, 4)]];
    for flag in ["-H", "-A", "-X", "--numeric-ids", "--no-group", "--no-owner", "--no-D"] {
        if rng.below(if flag.starts_with("--no-") { 5 } else { 2 }) == 0 {
            flags.push(flag);
        }
    }
    if flags.contains(&"-X") && rng.below(2) == 0 {
        // With a rule for attributes, rsync copies ACLs among them.
        flags.extend(["--filter=-x user.a", "--filter=-x system.*"]);
    }
    flags
}

/// Returns what rsync would do, one line each.
fn rsync_differences(flags: &[&str], from: &str, to: &Path) -> Vec<String> {
    let mut rsync = Command::new("rsync");
    let rsync = rsync.args(["-nic", "--delete"]).args(flags).arg(from).arg(to);
    let output = rsync.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Without -D, rsync names what it skips.
    let is_skip = |line: &&str| line.starts_with("skipping non-regular file");
    text.lines().filter(|line| !is_skip(line)).map(str::to_owned).collect()
}

/// Routes of the cases.
pub(super) struct Routes {
    pub(super) root: Scratch,
    daemon: Daemon,
    ssh: Option<SshServer>,
}

impl Routes {
    pub(super) fn start() -> Self {
        let root = Scratch::new();
        let permits = ["--allow-owner", "--allow-devices", "--allow-privileged-xattrs"];
        let daemon = Daemon::start(root.path(), &permits);
        Self { root, daemon, ssh: SshServer::start() }
    }

    /// Returns a copy beneath the root, by the route of a number.
    pub(super) fn copy(&self, number: u64, source: &str, copy: &str, flags: &[&str]) -> Command {
        let at = |path: &str| self.root.path().join(path).to_str().unwrap().to_owned();
        let (mut command, from, to) = match (number % 4, &self.ssh) {
            (1, _) => (self.daemon.cp(), at(source), self.daemon.url(copy)),
            (2, _) => (self.daemon.cp(), self.daemon.url(source), at(copy)),
            (3, Some(ssh)) => (ssh.cp(), at(source), SshServer::place(Path::new(&at(copy)))),
            _ => (cp(), at(source), at(copy)),
        };
        // -rl are the default here, but -l limits the rate in scp.
        let flags = flags.iter().map(|flag| if *flag == "-rlpt" { "-rpt" } else { flag });
        command.args(flags).arg(from).arg(to);
        command
    }
}

/// Copies a tree twice, with changes in between, and compares with rsync after each.
fn compare(seed: u64, routes: &Routes) {
    let mut rng = Rng::new(seed);
    let (name, copy) = (format!("{seed}/"), format!("{seed}-copy"));
    let source = routes.root.path().join(&name);
    fs::create_dir(&source).unwrap();
    let entries = make_tree(&source, &mut rng);
    let flags = flags(&mut rng);
    let keeps_owners = flags.contains(&"-a")
        && !flags.iter().any(|flag| ["--no-owner", "--no-group"].contains(flag));
    // Where owners are not kept, rsync sets set-id bits nevertheless.
    shuffle(&entries, &mut rng, keeps_owners);
    let from = source.to_str().unwrap().to_owned();
    let to = routes.root.path().join(&copy);
    for turn in ["first", "second"] {
        let done = run(&mut routes.copy(seed, &name, &copy, &flags));
        let context = format!("BANKFULL_SEED={seed}, {turn} copy: {flags:?}\n{}", done.err);
        assert_eq!(done.code, Some(0), "{context}");
        let left = rsync_differences(&flags, &from, &to);
        assert!(left.is_empty(), "{context}rsync finds {left:#?}");
        let again = run(&mut routes.copy(seed, &name, &copy, &flags));
        let figures = again.figures(["files", "failed_files"]);
        assert_eq!(figures, [0, 0], "{context}");
        // The destination drifts, too: its further names stop being the same.
        shuffle(&entries, &mut rng, keeps_owners);
        let strays: Vec<_> = entries
            .iter()
            .map(|path| to.join(path.strip_prefix(&source).unwrap()))
            .filter(|path| path.symlink_metadata().is_ok_and(|found| found.nlink() > 1))
            .filter(|path| path.is_file() && rng.below(2) == 0)
            .collect();
        for path in strays {
            let content = fs::read(&path).unwrap();
            fs::remove_file(&path).unwrap();
            write_file(&path, content);
        }
    }
}

#[test]
fn rsync_finds_nothing_to_do_after_a_copy() {
    if !has_rsync() {
        return;
    }
    let routes = Routes::start();
    each_case(CASES, |seed| {
        compare(seed, &routes);
        true
    });
}

#[test]
fn ordinary_user_keeps_what_rsync_keeps() {
    if !has_rsync() || !is_root() {
        return println!("skipped: needs root and rsync");
    }
    let here = Scratch::new();
    for seed in 0..8 {
        let mut rng = Rng::new(seed);
        let (source, own) =
            (here.path().join(format!("{seed}")), here.path().join(format!("{seed}u")));
        fs::create_dir(&source).unwrap();
        fs::create_dir(&own).unwrap();
        let entries = make_tree(&source, &mut rng);
        shuffle(&entries, &mut rng, true);
        // Readable by the user; attributes of the system are not.
        for path in
            entries.iter().filter(|path| path.symlink_metadata().is_ok_and(|m| !m.is_symlink()))
        {
            let mode = path.metadata().unwrap().mode();
            set_mode(path, (mode & 0o777) | if path.is_dir() { 0o755 } else { 0o444 });
        }
        let mut command = unprivileged(&here, &own);
        command
            .args(["cp", "-aHX", "-q"])
            .arg(format!("{}/", source.display()))
            .arg(own.join("copy"));
        let done = run(&mut command);
        assert_eq!(done.code, Some(0), "{seed}: {}", done.err);
        // Run as an ordinary user, rsync ignores metadata that such a user cannot keep.
        let mut rsync = Command::new("setpriv");
        rsync.args(["--reuid=65534", "--regid=65534", "--clear-groups", "rsync", "-niaHX"]);
        let rsync =
            rsync.arg("--delete").arg(format!("{}/", source.display())).arg(own.join("copy"));
        let output = rsync.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_device = |line: &str| line.starts_with("cD") || line.starts_with("skipping");
        let left: Vec<_> = text.lines().filter(|line| !is_device(line)).collect();
        assert!(left.is_empty(), "{seed}: {left:#?}{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn daemon_without_permission_leaves_out_what_it_may_not_set() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    let (here, root) = (Scratch::new(), Scratch::new());
    let daemon = Daemon::start(root.path(), &[]);
    let source = here.path().join("source");
    fs::create_dir(&source).unwrap();
    write_file(&source.join("f"), b"x");
    chown(source.join("f"), Some(1), Some(2)).unwrap();
    set_mode(&source.join("f"), 0o4755);
    assert!(change("mkfifo", &[], &source.join("pipe")));
    let mut device = Command::new("mknod");
    assert!(device.arg(source.join("null")).args(["c", "1", "3"]).status().unwrap().success());
    fs::hard_link(source.join("null"), source.join("zero")).unwrap();
    let mut command = daemon.cp();
    let done = run(command.args(["-aH"]).arg(&source).arg(daemon.url("")));
    assert_eq!(done.code, Some(0), "{}", done.err);
    for part in [
        "owners that were not kept: 1: the daemon must be started with --allow-owner",
        "groups that were not kept: 1",
        "set-id bits that were not kept: 1",
        "devices that were not kept: 1: the daemon must be started with --allow-devices",
    ] {
        let found = done.warnings().iter().filter(|warning| warning.contains(part)).count();
        assert_eq!(found, 1, "{part}: {:?}", done.warnings());
    }
    assert_eq!(done.figures(["special_files", "special_files_skipped"]), [1, 1]);
    assert_eq!(done.figures(["special_files_created", "hard_links_created"]), [1, 0]);
    let copy = root.path().join("source");
    let file = copy.join("f").metadata().unwrap();
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (0, 0, 0o755));
    assert!(copy.join("pipe").symlink_metadata().is_ok());
    assert!(copy.join("null").symlink_metadata().is_err());
    assert!(copy.join("zero").symlink_metadata().is_err());
}

#[test]
fn owners_and_modes_are_replaced_on_every_route() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    let routes = Routes::start();
    let source = routes.root.path().join("s");
    fs::create_dir(&source).unwrap();
    for (name, owner) in [("one", 1), ("two", 2), ("odd", 4_000_001), ("super", 0)] {
        write_file(&source.join(name), b"x");
        chown(source.join(name), Some(owner), Some(owner)).unwrap();
        set_mode(&source.join(name), 0o777);
    }
    let users = "--usermap=daemon:bin,4000000-4100000:7,r??t:sys";
    let flags = [users, "--groupmap=*:adm", "--chmod=Fgo-w"];
    let group = fs::read_to_string("/etc/group").unwrap();
    let adm = group.lines().find_map(|line| line.strip_prefix("adm:x:")).unwrap();
    let adm: u32 = adm.split(':').next().unwrap().parse().unwrap();
    for route in 0..4 {
        let copy = format!("copy{route}");
        let done = run(&mut routes.copy(route, "s/", &copy, &flags));
        assert_eq!(done.code, Some(0), "{route}: {}", done.err);
        for (name, owner) in [("one", 2), ("two", 2), ("odd", 7), ("super", 3)] {
            let found = routes.root.path().join(&copy).join(name).metadata().unwrap();
            let found = (found.uid(), found.gid(), found.mode() & 0o7777);
            assert_eq!(found, (owner, adm, 0o755), "{route} {name}");
        }
        // By number, all owners count as nameless.
        let copy_by_number = format!("numbers{route}");
        let flags = ["-a", "--numeric-ids", "--usermap=daemon:bin,2:7,:9"];
        run(&mut routes.copy(route, "s/", &copy_by_number, &flags)).expect(0);
        for (name, owner) in [("one", 9), ("two", 7)] {
            let found = routes.root.path().join(&copy_by_number).join(name).metadata().unwrap();
            assert_eq!(found.uid(), owner, "{route} {name}");
        }
        let unknown = run(&mut routes.copy(route, "s/", &copy, &["--chown=no-such-user"]));
        assert_eq!(unknown.code, Some(1), "{}", unknown.err);
        let text = "the receiver has no user \"no-such-user\": create it there, or give its number";
        assert!(unknown.err.contains(text), "{route}: {}", unknown.err);
    }
}

#[test]
fn access_times_are_those_before_the_copy() {
    let routes = Routes::start();
    let source = routes.root.path().join("s");
    fs::create_dir(&source).unwrap();
    let file = source.join("f");
    for route in 0..4 {
        write_file(&file, b"content");
        assert!(change("touch", &["-a", "-d", "@1000000000.5"], &file));
        let copy = format!("copy{route}");
        let done = run(&mut routes.copy(route, "s/", &copy, &["-U", "--open-noatime"]));
        assert_eq!(done.code, Some(0), "{}", done.err);
        for path in [&file, &routes.root.path().join(&copy).join("f")] {
            let found = path.metadata().unwrap();
            assert_eq!(
                (found.atime(), found.atime_nsec()),
                (1_000_000_000, 500_000_000),
                "{route}"
            );
        }
    }
}

#[test]
fn further_names_fail_with_the_first() {
    let here = Scratch::new();
    let source = here.path().join("s");
    fs::create_dir(&source).unwrap();
    write_file(&source.join("a"), b"x");
    fs::hard_link(source.join("a"), source.join("b")).unwrap();
    fs::create_dir_all(here.path().join("d/s/a")).unwrap();
    let done = run(cp().arg("-H").arg(&source).arg(here.path().join("d")));
    assert_eq!(done.code, Some(23), "{}", done.err);
    done.fails(&["b: the file that it is a hard link to was not copied"]);
    assert!(here.path().join("d/s/b").symlink_metadata().is_err());
}

/// Creates directories with names of 255 bytes beneath each other; opens the deepest.
fn open_deep(root: &Path, depth: usize) -> OwnedFd {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY;
    let mut dir = rustix::fs::open(root, flags, Mode::empty()).unwrap();
    let name = "d".repeat(255);
    for _ in 0..depth {
        rustix::fs::mkdirat(&dir, &*name, Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, &*name, flags, Mode::empty()).unwrap();
    }
    dir
}

#[test]
fn hard_links_beyond_the_memory_become_files() {
    // Paths of 64 KiB: those of some 2000 inodes fill the memory.
    const NAMES: usize = 2200;
    let here = Scratch::new();
    let (source, to) = (here.dir("source"), here.join("to"));
    let further = here.dir("source/z");
    let deep = open_deep(&here.dir("source/a"), 256);
    for number in 0..NAMES {
        let name = number.to_string();
        write_file(&further.join(&name), name.as_bytes());
        rustix::fs::linkat(CWD, further.join(&name), &deep, &*name, AtFlags::empty()).unwrap();
    }
    // The directory that is walked first has the first names.
    let done = run(cp().arg("-H").arg(source.join("")).arg(&to));
    let done = done.expect(0);
    assert_eq!(done.out.matches("copy in parts to keep them").count(), 1, "{}", done.out);
    let links = |number: &usize| {
        let path = to.join("z").join(number.to_string());
        assert_eq!(fs::read(&path).unwrap(), number.to_string().as_bytes());
        fs::metadata(path).unwrap().nlink()
    };
    let kept = (0..NAMES).filter(|number| links(number) == 2).count();
    assert!(kept > 1900 && kept < NAMES, "{kept}");
    let lost = format!("not kept: {}:", NAMES - kept);
    assert!(done.out.contains(&lost), "{lost} {}", done.out);
}

/// Returns a clause of `--chmod` that rsync takes.
fn clause(rng: &mut Rng) -> String {
    let mut pick = |letters: &[char], count: u64| -> String {
        let picked =
            (0..rng.below(count + 1)).map(|_| letters[rng.below(letters.len() as u64) as usize]);
        picked.collect()
    };
    let entries = pick(&['D', 'F'], 1);
    if entries.is_empty() && pick(&['0'], 5).len() == 5 {
        return "4715".to_owned();
    }
    let (classes, permissions) =
        (pick(&['u', 'g', 'o', 'a'], 2), pick(&['r', 'w', 'x', 'X', 's', 't'], 4));
    let copied = pick(&['u', 'g', 'o'], 1);
    let operator = ["+", "-", "="][pick(&['0'], 2).len()];
    let permissions = if permissions.is_empty() { copied } else { permissions };
    format!("{classes}{entries}{operator}{permissions}")
}

#[test]
fn chmod_is_that_of_rsync() {
    if !is_root() || !has_rsync() {
        return println!("skipped: needs root and rsync");
    }
    each_case(40, |seed| {
        let mut rng = Rng::new(seed);
        let here = Scratch::new();
        let source = here.dir("s");
        for name in 0..16 {
            let path = source.join(name.to_string());
            match name % 2 {
                0 => write_file(&path, b""),
                _ => fs::create_dir(&path).unwrap(),
            }
            set_mode(&path, rng.below(0o10000) as u32);
        }
        let clauses: Vec<_> = (0..1 + rng.below(3)).map(|_| clause(&mut rng)).collect();
        let flag = format!("--chmod={}", clauses.join(","));
        let from = format!("{}/", source.display());
        let mut rsync = Command::new("rsync");
        rsync.args(["-a", &flag, &from]).arg(here.join("theirs")).stderr(Stdio::null());
        assert!(rsync.status().unwrap().success(), "BANKFULL_SEED={seed}: {flag}");
        run(cp().args(["-a", &flag, &from]).arg(here.join("ours"))).expect(0);
        let mode = |copy: &str, name: i32| {
            fs::metadata(here.join(copy).join(name.to_string())).unwrap().mode() & 0o7777
        };
        for name in 0..16 {
            let (found, expected) = (mode("ours", name), mode("theirs", name));
            let before = mode("s", name);
            assert_eq!(
                found, expected,
                "BANKFULL_SEED={seed}: {flag} {before:o} {found:o} {expected:o}"
            );
        }
        (0..16).any(|name| mode("ours", name) != mode("s", name))
    });
}

#[test]
fn closed_directories_keep_their_modes_without_perms() {
    let here = Scratch::new();
    let own = here.dir("own");
    write_file(&here.join("own/s/x/f"), b"x");
    fs::create_dir_all(here.join("own/d/x")).unwrap();
    let mut command = unprivileged(&here, &own);
    for path in ["own/d/x", "own/d"] {
        if is_root() {
            chown(here.join(path), Some(65534), Some(65534)).unwrap();
        }
        set_mode(&here.join(path), 0o555);
    }
    command.args(["cp", "--no-perms"]).arg(here.join("own/s/")).arg(here.join("own/d"));
    run(&mut command).expect(0);
    let mode = |path: &str| fs::metadata(here.join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("own/d"), mode("own/d/x")), (0o555, 0o555));
    assert!(here.join("own/d/x/f").exists());
}

#[test]
fn new_directory_inherits_its_group() {
    let here = Scratch::new();
    write_file(&here.join("s/new/f"), b"x");
    fs::create_dir(here.join("copy")).unwrap();
    set_mode(&here.join("copy"), 0o2775);
    set_mode(&here.join("s/new"), 0o755);
    let from = format!("{}/", here.join("s").display());
    run(cp().arg("--no-perms").arg(&from).arg(here.join("copy"))).expect(0);
    let mode = |path: &str| fs::metadata(here.join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("copy"), mode("copy/new")), (0o2775, 0o2755));
}
