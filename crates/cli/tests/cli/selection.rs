//! Comparison with the real rsync(1): the same selection flags leave the same destination.
//!
//! `BANKFULL_SEED` replays one case, `BANKFULL_CASES` sets their number.

use super::harness::{
    Daemon, Done, FakeServer, Rng, Scratch, below, cp, run, run_for, welcome, write_file,
};
use super::rsync::{each_case, has_rsync, pick};
use bankfull_proto::wire::control::{Entry, EntryKind, Message, Opened, Source};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Default number of generated cases.
const CASES: u64 = 180;

const NAMES: [&str; 8] = ["a", "b", "c", "d.o", "e.txt", "f", "g", "h"];

/// Seconds since 1970 of files; some are one second apart.
const TIMES: [u64; 5] = [1_000_000_000, 1_000_000_001, 1_500_000_000, 1_600_000_000, 1_600_000_003];

const SIZES: [usize; 5] = [0, 1, 10, 1000, 5000];

/// Targets of symlinks, some of which form loops.
const TARGETS: [&str; 16] = [
    "a",
    "b",
    "c",
    "../a",
    "../b",
    "a/b",
    "../../f",
    "../../../x",
    "/etc/hostname",
    "gone",
    "a/../b",
    "./f",
    "../../../../../h",
    "g/",
    "../..",
    ".././a",
];

/// Targets beside the source, without loops.
const REFERENTS: [&str; 7] = ["d", "f", "to-f", "to-d", "d/e/..", "d/e/g", "gone"];

/// Makes what the symlinks of a source lead to if they are followed.
fn make_referents(dir: &Path) {
    fs::create_dir_all(dir.join("d/e")).unwrap();
    for (name, size) in [("f", 3000), ("d/h", 7), ("d/e/g", 900)] {
        write_file(&dir.join(name), vec![b'r'; size]);
        touch(&dir.join(name), 1_400_000_000);
    }
    symlink("f", dir.join("to-f")).unwrap();
    symlink("d/e/../", dir.join("to-d")).unwrap();
}

/// Returns the target of a symlink at a depth.
fn target(rng: &mut Rng, depth: usize, is_followed: bool) -> String {
    match is_followed {
        true => format!("{}ref/{}", "../".repeat(depth), pick(rng, &REFERENTS)),
        false => pick(rng, &TARGETS).to_owned(),
    }
}

fn touch(path: &Path, secs: u64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

/// Makes a tree of files of several sizes and times, with symlinks in and out.
pub(super) fn make_tree(root: &Path, rng: &mut Rng, is_followed: bool) {
    fs::create_dir_all(root).unwrap();
    let mut dirs = vec![PathBuf::new()];
    for _ in 0..30 {
        let path = dirs[rng.below(dirs.len() as u64) as usize].join(pick(rng, &NAMES));
        let full = root.join(&path);
        if full.symlink_metadata().is_ok() {
            continue;
        }
        match rng.below(10) {
            0..4 if path.components().count() < 5 => {
                fs::create_dir(full).unwrap();
                dirs.push(path);
            }
            0..6 => {
                let depth = path.components().count();
                symlink(target(rng, depth, is_followed), full).unwrap();
            }
            _ => {
                let size = SIZES[rng.below(SIZES.len() as u64) as usize];
                write_file(&full, vec![b'a' + rng.below(2) as u8; size]);
                touch(&full, TIMES[rng.below(TIMES.len() as u64) as usize]);
            }
        }
    }
}

/// Makes a destination with some entries of a source, others changed.
///
/// A symlink in the place of a directory is refused here, and replaced by rsync: there are none if
/// links are followed.
fn make_destination(root: &Path, source: &Path, rng: &mut Rng, is_followed: bool) {
    fs::create_dir_all(root).unwrap();
    let mut todo = vec![PathBuf::new()];
    while let Some(dir) = todo.pop() {
        let mut names: Vec<_> =
            fs::read_dir(source.join(&dir)).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        for path in names.into_iter().map(|name| dir.join(name)) {
            let kind = source.join(&path).symlink_metadata().unwrap();
            let to = root.join(&path);
            match rng.below(3) {
                0 => {}
                _ if kind.is_symlink() && is_followed => {}
                _ if kind.is_dir() => {
                    fs::create_dir(to).unwrap();
                    todo.push(path);
                }
                _ if kind.is_symlink() => symlink("elsewhere", to).unwrap(),
                1 => {
                    fs::copy(source.join(&path), &to).unwrap();
                    touch(&to, TIMES[rng.below(TIMES.len() as u64) as usize]);
                }
                _ => {
                    let size = SIZES[rng.below(SIZES.len() as u64) as usize];
                    write_file(&to, vec![b'z'; size]);
                    touch(&to, TIMES[rng.below(TIMES.len() as u64) as usize]);
                }
            }
        }
    }
}

/// Flags of a case for `bankfull`, and for `rsync` where they differ.
#[derive(Default)]
struct Flags {
    ours: Vec<String>,
    theirs: Vec<String>,
}

impl Flags {
    fn add(&mut self, flag: &str) {
        self.ours.push(flag.into());
        self.theirs.push(flag.into());
    }
}

fn flags(rng: &mut Rng, is_followed: bool) -> Flags {
    let mut flags = Flags::default();
    if is_followed {
        flags.add(pick(rng, &["-L", "-k", "--copy-links", "--copy-dirlinks"]));
    }
    if rng.below(3) == 0 {
        flags.add("--safe-links");
    }
    for flag in ["--min-size", "--max-size"] {
        if rng.below(5) == 0 {
            flags.add(&format!("{flag}={}", pick(rng, &["0", "1", "10", "999", "1000", "4KiB"])));
        }
    }
    for flag in ["--update", "--existing", "--ignore-existing", "--size-only"] {
        if rng.below(3) == 0 {
            flags.add(flag);
        }
    }
    if rng.below(4) == 0 {
        flags.add(&format!("--modify-window={}", rng.below(5)));
    }
    flags
}

/// Kind, content or target, and time of each entry by its path.
pub(super) fn facts(root: &Path) -> BTreeMap<PathBuf, String> {
    let (mut found, mut todo) = (BTreeMap::new(), vec![PathBuf::new()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(root.join(&dir)).unwrap() {
            let path = dir.join(entry.unwrap().file_name());
            let full = root.join(&path);
            let metadata = full.symlink_metadata().unwrap();
            let fact = if metadata.is_dir() {
                todo.push(path.clone());
                "directory".to_owned()
            } else if metadata.is_symlink() {
                format!("link to {}", fs::read_link(&full).unwrap().display())
            } else {
                let content = fs::read(&full).unwrap();
                let (first, size) = (content.first().copied().map(char::from), content.len());
                format!("file of {size} {first:?} at {}", metadata.mtime())
            };
            found.insert(path, fact);
        }
    }
    found
}

/// Compares one case by a route; returns true if the flags change the result.
fn compare(seed: u64, daemon: &Daemon, root: &Path) -> bool {
    let mut rng = Rng::new(seed);
    let here = root.join(seed.to_string());
    let source = here.join("s");
    let is_followed = rng.below(3) == 0;
    make_tree(&source, &mut rng, is_followed);
    make_referents(&here.join("ref"));
    let mut starts = rng.clone();
    // The directory itself is an entry, or its content alone is copied.
    let (slash, beneath) = if starts.below(2) == 0 { ("/", "") } else { ("", "s") };
    for name in ["ours", "theirs", "plain"] {
        make_destination(&here.join(name).join(beneath), &source, &mut starts.clone(), is_followed);
    }
    let flags = flags(&mut starts, is_followed);
    let from = format!("{}{slash}", source.display());
    let rsync = |flags: &[String], to: &str| {
        let mut rsync = Command::new("rsync");
        rsync.args(["-rlt"]).args(flags).arg(&from).arg(here.join(to)).output().unwrap()
    };
    let theirs = rsync(&flags.theirs, "theirs");
    let rsync_err = String::from_utf8_lossy(&theirs.stderr).into_owned();
    rsync(&[], "plain");
    let (url, ours) = (daemon.url(&seed.to_string()), here.join("ours"));
    let mut command = if seed.is_multiple_of(3) { cp() } else { daemon.cp() };
    command.args(["-r"]).args(&flags.ours);
    match seed % 3 {
        0 => command.arg(&from).arg(&ours),
        1 => command.arg(format!("{url}/s{slash}")).arg(&ours),
        _ => command.arg(&from).arg(format!("{url}/ours")),
    };
    let done = run(&mut command);
    let context = format!("BANKFULL_SEED={seed}: {:?}\n{}{rsync_err}", flags.ours, done.err);
    assert_eq!(done.code, theirs.status.code(), "{context}");
    let [found, expected, plain] = ["ours", "theirs", "plain"].map(|name| facts(&here.join(name)));
    let differs = |path: &&PathBuf| found.get(*path) != expected.get(*path);
    let different: Vec<_> = found.keys().chain(expected.keys()).filter(differs).collect();
    let shown = different.iter().map(|path| (path, found.get(*path), expected.get(*path)));
    assert!(different.is_empty(), "{context}{:?}", shown.collect::<Vec<_>>());
    expected != plain
}

#[test]
fn selection_flags_leave_the_same_as_in_rsync() {
    if !has_rsync() {
        return;
    }
    let root = Scratch::new();
    let daemon = Daemon::start(root.path(), &[]);
    each_case(CASES, |seed| compare(seed, &daemon, root.path()));
}

/// Copies `s` of a scratch directory by each route, with flags; returns the results.
fn by_each_route(here: &Scratch, flags: &[&str]) -> Vec<(Done, BTreeMap<PathBuf, String>)> {
    let daemon = Daemon::start(here.path(), &[]);
    let (source, url) = (here.join("s"), daemon.url(""));
    let routes = ["local", "pull", "push"].into_iter().map(|route| {
        let to = here.join(format!("to-{route}"));
        fs::create_dir(&to).unwrap();
        let mut command = if route == "local" { cp() } else { daemon.cp() };
        command.args(flags);
        match route {
            "local" => command.arg(&source).arg(&to),
            "pull" => command.arg(format!("{url}s")).arg(&to),
            _ => command.arg(&source).arg(format!("{url}to-push/")),
        };
        (run(&mut command), facts(&to))
    });
    routes.collect()
}

/// Checks which entries each route copies with flags, and its exit code.
fn expect_entries(here: &Scratch, flags: &[&str], code: i32, expected: &[&str]) -> Vec<Done> {
    let routes = by_each_route(here, flags).into_iter().map(|(done, found)| {
        let found: Vec<_> = found.keys().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(found, expected, "{flags:?}: {}", done.err);
        done.expect(code)
    });
    routes.collect()
}

#[test]
fn depth_is_counted_beneath_the_source() {
    for (depth, expected) in [
        ("0", &["s"][..]),
        ("1", &["s", "s/a", "s/f"]),
        ("2", &["s", "s/a", "s/a/b", "s/a/f", "s/f"]),
    ] {
        let here = Scratch::new();
        fs::create_dir_all(here.join("s/a/b")).unwrap();
        ["s/f", "s/a/f", "s/a/b/f"].iter().for_each(|name| write_file(&here.join(name), b"x"));
        expect_entries(&here, &["--max-depth", depth], 0, expected);
    }
}

#[test]
fn newer_than_selects_files_by_their_time() {
    let here = Scratch::new();
    fs::create_dir_all(here.join("s/d")).unwrap();
    for (name, secs) in [("s/old", 1_000_000_000), ("s/new", 1_000_000_001), ("s/d/old", 5)] {
        write_file(&here.join(name), b"x");
        touch(&here.join(name), secs);
    }
    symlink("old", here.join("s/link")).unwrap();
    let flags = ["--newer-than", "2001-09-09T01:46:40Z"];
    expect_entries(&here, &flags, 0, &["s", "s/d", "s/link", "s/new"]);
}

#[test]
fn cache_directory_keeps_its_tag_alone() {
    let here = Scratch::new();
    fs::create_dir_all(here.join("s/cache/sub")).unwrap();
    fs::create_dir_all(here.join("s/other")).unwrap();
    let tag = "Signature: 8a477f597d28d172789f06886806bc55\n# a comment";
    write_file(&here.join("s/cache/CACHEDIR.TAG"), tag);
    write_file(&here.join("s/cache/sub/f"), b"x");
    // Without the signature, it is a file as any other.
    write_file(&here.join("s/other/CACHEDIR.TAG"), &tag[1..]);
    write_file(&here.join("s/other/f"), b"x");
    let expected =
        ["s", "s/cache", "s/cache/CACHEDIR.TAG", "s/other", "s/other/CACHEDIR.TAG", "s/other/f"];
    expect_entries(&here, &["--exclude-caches"], 0, &expected);
}

#[test]
fn loop_of_links_fails_alone() {
    let here = Scratch::new();
    fs::create_dir_all(here.join("s/a")).unwrap();
    write_file(&here.join("s/f"), b"x");
    symlink("..", here.join("s/a/up")).unwrap();
    symlink("itself", here.join("s/itself")).unwrap();
    let done = expect_entries(&here, &["-L"], 23, &["s", "s/a", "s/f"]);
    done[0].fails(&["s/a/up: through symlinks it is a directory above it"]);
    done[0].fails(&["cannot follow the link", "s/itself"]);
}

#[test]
fn links_out_of_a_served_directory_are_not_followed() {
    let here = Scratch::new();
    let root = here.dir("root");
    fs::create_dir(root.join("s")).unwrap();
    write_file(&here.join("secret"), b"x");
    write_file(&root.join("open"), b"x");
    write_file(&root.join(".bankfull-0123456789abcdef.part"), b"x");
    for (name, target) in [
        ("secret", "../../secret"),
        ("absolute", "/etc/hostname"),
        ("open", "../open"),
        ("part", "../.bankfull-0123456789abcdef.part"),
        ("above", "../.."),
    ] {
        symlink(target, root.join("s").join(name)).unwrap();
    }
    let daemon = Daemon::start(&root, &[]);
    let to = here.join("to");
    let done = run(daemon.cp().arg("-L").arg(daemon.url("s")).arg(&to)).expect(23);
    assert_eq!(facts(&to.join("s")).keys().collect::<Vec<_>>(), [Path::new("open")]);
    for name in ["secret", "absolute", "above"] {
        done.fails(&[&format!("s/{name}: it leads out of the served directory")]);
    }
    done.fails(&["s/part", "are reserved for unfinished files"]);
    // As links they are copied, wherever they lead.
    let done = run(daemon.cp().arg("-k").arg(daemon.url("s")).arg(here.join("links")));
    done.expect(0);
    assert_eq!(facts(&here.join("links/s")).len(), 5);
}

#[test]
fn directory_of_another_file_system_stays_empty() {
    use std::os::unix::fs::MetadataExt;
    let (here, Some(other)) = (Scratch::new(), Scratch::in_memory(1 << 20)) else {
        return println!("skipped: /dev/shm is full");
    };
    let dev = |path: &Path| path.metadata().unwrap().dev();
    if dev(here.path()) == dev(other.path()) {
        return println!("skipped: temporary files are in memory");
    }
    fs::create_dir(here.join("s")).unwrap();
    write_file(&other.join("f"), b"x");
    symlink(other.path(), here.join("s/other")).unwrap();
    symlink(other.join("f"), here.join("s/f")).unwrap();
    let to = here.join("to");
    run(cp().arg("-Lx").arg(here.join("s")).arg(&to)).expect(0);
    let found = facts(&to);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["s", "s/f", "s/other"].map(Path::new));
    let rsync_to = here.join("rsync");
    if has_rsync() {
        let mut rsync = Command::new("rsync");
        assert!(rsync.arg("-rltLx").arg(here.join("s")).arg(&rsync_to).status().unwrap().success());
        assert_eq!(facts(&rsync_to), found);
    }
}

#[test]
fn copy_into_a_followed_directory_ends() {
    let here = Scratch::new();
    fs::create_dir_all(here.join("s/d")).unwrap();
    fs::create_dir(here.join("to")).unwrap();
    symlink("../..", here.join("s/d/all")).unwrap();
    let done = run(cp().arg("-L").arg(here.join("s")).arg(here.join("to"))).expect(23);
    done.fails(&["through symlinks it is the destination of this copy"]);
}

/// Fetches with flags from a server that announces an entry beneath the destination.
fn fetch_of(flags: &[&str], entry: Entry) -> Done {
    let server = FakeServer::greeted(move |peer, _| {
        peer.send(&welcome(1));
        let Some(Message::Open(_)) = peer.receive() else { return };
        let sources =
            vec![Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None }];
        peer.send(&Message::Opened(Opened { sources, ..Opened::default() }));
        peer.send(&Message::Entries(vec![super::harness::base(), entry.clone()]));
    });
    let here = Scratch::new();
    let mut command = cp();
    command.args(["--accept-new", "--streams", "1", "--state-dir"]).arg(here.join("state"));
    command.args(flags).arg(server.url()).arg(here.join("in"));
    run_for(&mut command, Duration::from_secs(30))
}

#[test]
fn entries_that_the_request_excludes_end_the_session() {
    let link = |target: &[u8]| Entry {
        kind: EntryKind::Symlink,
        target: target.to_vec(),
        ..below(2, b"x", 0)
    };
    for (flags, entry) in [
        (&["--max-size", "9"][..], below(2, b"x", 10)),
        (&["--min-size", "11"], below(2, b"x", 10)),
        (&["--newer-than", "2026-01-01"], below(2, b"x", 10)),
        (&["--max-depth", "0"], below(2, b"x", 10)),
        (&["--safe-links"], link(b"/etc/passwd")),
        (&["-L"], link(b"f")),
        (&["--exclude", "x"], below(2, b"x", 10)),
    ] {
        fetch_of(flags, entry).expect(12).says(&["not requested", "exclude"]);
    }
}

#[test]
fn absolute_filter_rules_compare_the_path_of_the_source() {
    let here = Scratch::new();
    fs::create_dir_all(here.join("in/s/d")).unwrap();
    ["in/s/f", "in/s/d/f"].iter().for_each(|name| write_file(&here.join(name), b"x"));
    let daemon = Daemon::start(here.path(), &[]);
    let absolute = here.join("in/s/f").display().to_string();
    let remote = daemon.url("in");
    let local = here.join("in").display().to_string();
    for (number, (from, rule, expected)) in [
        // A path in the copy begins with the source, an absolute one does not.
        (format!("{local}/s"), "-/ /s/f".to_owned(), &["s", "s/d", "s/d/f", "s/f"][..]),
        (format!("{local}/s"), format!("-/ {absolute}"), &["s", "s/d", "s/d/f"]),
        (format!("{local}/s/"), format!("-/ {absolute}"), &["d", "d/f"]),
        (format!("{local}/../in/./s//"), format!("-/ {absolute}"), &["d", "d/f"]),
        (format!("{remote}/s"), "-/ /in/s/f".to_owned(), &["s", "s/d", "s/d/f"]),
        (format!("{remote}/s/"), "-/ /in/s/f".to_owned(), &["d", "d/f"]),
        (format!("{remote}/s"), "-/ /s/f".to_owned(), &["s", "s/d", "s/d/f", "s/f"]),
    ]
    .into_iter()
    .enumerate()
    {
        let to = here.dir(&format!("to-{number}"));
        let mut command = if from.starts_with('/') { cp() } else { daemon.cp() };
        run(command.arg(format!("--filter={rule}")).args([&from, to.to_str().unwrap()])).expect(0);
        let found = facts(&to);
        let found: Vec<_> = found.keys().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(found, expected, "{rule} {from}");
        if from.starts_with('/') && has_rsync() {
            let theirs = here.dir(&format!("theirs-{number}"));
            let mut rsync = Command::new("rsync");
            rsync.arg("-rlt").arg(format!("--filter={rule}")).args([&from]).arg(&theirs);
            assert!(rsync.status().unwrap().success());
            assert_eq!(facts(&theirs), facts(&to), "{rule} {from}");
        }
    }
}

/// Parts of patterns of ignore files, joined without a separator.
const IGNORE_PARTS: [&str; 18] = [
    "a", "b", "c", "*", "**", "?", "/", "/", "/**/", "**/", ".o", "*.o", "[ab]", "[!a]", "d.o",
    "\\", "e.txt", "{a}",
];

/// Returns lines of an ignore file.
fn ignore_lines(rng: &mut Rng) -> String {
    let line = |rng: &mut Rng| {
        let pattern: String = (0..=rng.below(3)).map(|_| pick(rng, &IGNORE_PARTS)).collect();
        let negation = if rng.below(4) == 0 { "!" } else { "" };
        let end = ["", "", "/", "  "][rng.below(4) as usize];
        // A backslash at the end is an error here, and matches nothing in git. These differ, too.
        let pattern = pattern.trim_end_matches('\\').replace("***", "**").replace("\\/", "/");
        format!("{negation}{pattern}{end}\n")
    };
    let plain = format!("{}\n", pick(rng, &["a", "/b", "c/", "*.o", "e.*", "*/f", "**/g"]));
    plain + &(0..=rng.below(4)).map(|_| line(rng)).collect::<String>()
}

/// Compares the files that git does not ignore with those that are copied.
fn compare_with_git(seed: u64, daemon: &Daemon, root: &Path) -> bool {
    let mut rng = Rng::new(seed);
    let here = root.join(seed.to_string());
    let source = here.join("s");
    make_tree(&source, &mut rng, false);
    let all = facts(&source);
    let is_dir = |path: &&PathBuf| all[*path] == "directory";
    let mut rules = Vec::new();
    for dir in all.keys().filter(is_dir).chain([&PathBuf::new()]) {
        if dir.as_os_str().is_empty() || rng.below(3) == 0 {
            let lines = ignore_lines(&mut rng);
            write_file(&source.join(dir).join(".gitignore"), &lines);
            rules.push((dir.clone(), lines));
        }
    }
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.arg("--git-dir").arg(here.join("git")).arg("--work-tree").arg(&source);
        let output = git.current_dir(&source).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    git(&["init", "-q"]);
    let listed = git(&["ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"]);
    let mut expected: Vec<PathBuf> =
        listed.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    expected.sort();
    let (slash, beneath) = if rng.below(2) == 0 { ("/", "") } else { ("", "s") };
    let mut command = if seed.is_multiple_of(2) { cp() } else { daemon.cp() };
    command.args(["--ignore-file", ".gitignore"]);
    match seed % 2 {
        0 => command.arg(format!("{}{slash}", source.display())),
        _ => command.arg(daemon.url(&format!("{seed}/s{slash}"))),
    };
    let done = run(command.arg(here.join("to/")));
    let found = facts(&here.join("to").join(beneath));
    let mut found: Vec<_> =
        found.into_iter().filter(|(_, fact)| fact != "directory").map(|(path, _)| path).collect();
    found.sort();
    let context = format!("BANKFULL_SEED={seed}: {rules:?}\n{}", done.err);
    assert_eq!(done.code, Some(0), "{context}");
    assert_eq!(found, expected, "{context}");
    found.len() < all.keys().filter(|path| !is_dir(path)).count()
}

#[test]
fn ignore_files_leave_out_what_git_ignores() {
    let found = Command::new("git").arg("--version").output();
    if !found.is_ok_and(|output| output.status.success()) {
        return println!("skipped: git is missing");
    }
    let root = Scratch::new();
    let daemon = Daemon::start(root.path(), &[]);
    each_case(80, |seed| compare_with_git(seed, &daemon, root.path()));
}

#[test]
fn invalid_ignore_file_fails_its_directory_alone() {
    let here = Scratch::new();
    fs::create_dir_all(here.join("s/d")).unwrap();
    ["s/f", "s/d/f"].iter().for_each(|name| write_file(&here.join(name), b"x"));
    write_file(&here.join("s/d/.ignore"), b"\xff\n");
    let done = expect_entries(&here, &["--ignore-file", ".ignore"], 23, &["s", "s/d", "s/f"]);
    done[0].fails(&["s/d", ".ignore:1: the pattern is not UTF-8"]);
}

#[test]
fn files_left_out_are_counted_apart_from_unchanged_ones() {
    let here = Scratch::new();
    let daemon = Daemon::start(here.path(), &[]);
    let (source, copy) = (here.dir("s"), here.dir("copy"));
    for name in ["same", "absent", "large-absent"] {
        let content = if name == "large-absent" { vec![1; 400_000] } else { vec![2; 10] };
        write_file(&source.join(name), content);
        touch(&source.join(name), TIMES[0]);
    }
    fs::copy(source.join("same"), copy.join("same")).unwrap();
    touch(&copy.join("same"), TIMES[0]);
    let (from, to) = (format!("{}/", source.display()), copy.display().to_string());
    for (from, to, is_here) in [
        (from.clone(), to.clone(), true),
        (from, daemon.url("copy"), false),
        (daemon.url("s/"), to, false),
    ] {
        let mut command = if is_here { cp() } else { daemon.cp() };
        let done = run(command.args(["-v", "--existing"]).args([&from, &to])).expect(0);
        let names = ["files", "skipped_files", "left_out_files", "left_out_bytes"];
        assert_eq!(done.figures(names), [0, 1, 2, 400_010], "{to}");
        let shown = |text: &str| done.out.lines().filter(|line| line.contains(text)).count();
        assert_eq!(shown(r#""outcome":"left-out""#), 2, "{}", done.out);
        assert_eq!(shown(r#""outcome":"unchanged""#), 1, "{}", done.out);
    }
}
