//! `--itemize-changes`: the same lines as rsync(1) prints, in a dry run and in the copy.
//!
//! `BANKFULL_SEED` replays one case, `BANKFULL_CASES` sets their number.

use super::harness::{Daemon, Done, Rng, Scratch, cp, is_root, run, write_file};
use super::metadata::{Routes, below, change, flags, make_tree, shuffle};
use super::rsync::{each_case, has_rsync};
use super::{command, err, out};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Default number of generated cases.
const CASES: u64 = 60;

/// Flags that both programs have, beside those of metadata.
const MORE_FLAGS: [&str; 9] = [
    "--delete",
    "-c",
    "--size-only",
    "--no-times",
    "--no-perms",
    "-O",
    "--update",
    "--existing",
    "--ignore-existing",
];

/// Changes the content of some entries, removes some, and adds others.
fn drift(entries: &[PathBuf], rng: &mut Rng) {
    // The last one is the root.
    for path in &entries[..entries.len() - 1] {
        let Ok(found) = path.symlink_metadata() else { continue };
        let kind = found.file_type();
        match rng.below(10) {
            0 if found.is_dir() && rng.below(4) == 0 => fs::remove_dir_all(path).unwrap(),
            0 if !found.is_dir() => fs::remove_file(path).unwrap(),
            1 if found.is_file() => write_file(path, rng.bytes(found.len() as usize)),
            2 | 3 if found.is_file() => {
                let length = below(rng, 2000);
                write_file(path, rng.bytes(length));
            }
            // Another inode with the same content.
            4 if found.is_file() => {
                let content = fs::read(path).unwrap();
                fs::remove_file(path).unwrap();
                write_file(path, content);
            }
            1..=3 if kind.is_symlink() => {
                fs::remove_file(path).unwrap();
                symlink("elsewhere", path).unwrap();
            }
            1..=3 if kind.is_char_device() || kind.is_block_device() => {
                fs::remove_file(path).unwrap();
                let letter = if kind.is_char_device() { "c" } else { "b" };
                let minor = rng.below(300).to_string();
                let made = Command::new("mknod").arg(path).args([letter, "7", &minor]).status();
                assert!(made.unwrap().success());
            }
            5 if found.is_dir() => {
                write_file(&path.join("extra"), b"x");
                fs::create_dir_all(path.join("extra dir/in it")).unwrap();
            }
            _ => {}
        }
    }
}

/// Names of an inode in the source.
///
/// A whole group has all or none of them at the destination.
struct Group {
    number: usize,
    is_whole: bool,
}

/// Returns the inodes with several names, by name.
fn groups(source: &Path, copy: &Path, entries: &[PathBuf]) -> BTreeMap<String, Group> {
    let mut by_inode: BTreeMap<u64, Vec<&Path>> = BTreeMap::new();
    for path in entries {
        let found = path.symlink_metadata().unwrap();
        if found.nlink() > 1 && !found.is_dir() {
            by_inode.entry(found.ino()).or_default().push(path.strip_prefix(source).unwrap());
        }
    }
    let mut groups = BTreeMap::new();
    for (number, names) in by_inode.into_values().enumerate() {
        let inode = |name: &&Path| copy.join(name).symlink_metadata().ok().map(|found| found.ino());
        let inodes: BTreeSet<_> = names.iter().map(inode).collect();
        for name in names {
            let group = Group { number, is_whole: inodes.len() == 1 };
            groups.insert(name.to_str().unwrap().to_owned(), group);
        }
    }
    groups
}

/// Returns the names with set-id bits.
fn with_set_id(root: &Path, entries: &[PathBuf]) -> BTreeSet<String> {
    let has_bits = |path: &&PathBuf| {
        path.symlink_metadata().is_ok_and(|found| !found.is_symlink() && found.mode() & 0o6000 != 0)
    };
    let name = |path: &PathBuf| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    entries.iter().filter(has_bits).map(name).collect()
}

/// Parts of lines that are not compared.
struct Ignored {
    groups: BTreeMap<String, Group>,
    has_acls: bool,
    /// Names whose owners and modes are not compared.
    owners: BTreeSet<String>,
}

/// Returns lines in their order, without what the programs show differently.
///
/// The programs choose different first names of an inode, and bankfull reports no attributes of the
/// further ones. With ACLs, the modes and ACLs that rsync shows depend on its order of work. Rsync
/// does not show changed owners and modes of entries that had set-id bits.
fn comparable(lines: &[String], ignored: &Ignored) -> BTreeSet<String> {
    let Ignored { groups, has_acls, owners } = ignored;
    let without_modes = |line: &String| {
        let (columns, rest) = line.split_at(12);
        let is_idle = |columns: &str| columns[2..11].chars().all(|c| ". ".contains(c));
        let mut columns = columns.to_owned();
        let name = rest.split(" => ").next().unwrap_or_default().trim_end_matches('/');
        let is_named = owners.contains(if name == "." { "" } else { name });
        if (*has_acls || is_named) && !columns.contains("deleting") && !columns.contains('+') {
            if *has_acls {
                columns.replace_range(5..6, ".");
                columns.replace_range(9..10, ".");
            }
            if is_named {
                columns.replace_range(5..8, "...");
            }
            if columns.starts_with('.') && is_idle(&columns) {
                return None;
            }
        }
        Some(columns + rest)
    };
    let normal = |line: String| {
        let (columns, rest) = line.split_at(12);
        let name = rest.split(" => ").next().unwrap_or_default();
        let name = name.split(" -> ").next().unwrap_or_default();
        match groups.get(name) {
            None => Some(line),
            Some(group) if group.is_whole => {
                let columns = columns[2..9].replace(' ', ".");
                columns.contains(|c| c != '.').then(|| format!("{} {columns}", group.number))
            }
            Some(_) => None,
        }
    };
    lines.iter().filter_map(without_modes).filter_map(normal).collect()
}

/// Returns the changes of `--json` as lines.
fn lines_of(done: &Done) -> Vec<String> {
    let changes = done.events().into_iter().filter(|event| event["event"] == "change");
    let line = |change: Value| {
        let text = |key: &str| change[key].as_str().unwrap_or_default().to_owned();
        let path = if text("path").is_empty() { ".".to_owned() } else { text("path") };
        let slash = if change["is_dir"] == true { "/" } else { "" };
        let other = |sign: &str, key: &str| match change[key].as_str() {
            Some(other) => format!(" {sign} {other}"),
            None => String::new(),
        };
        let others = other("->", "target") + &other("=>", "first_name");
        format!("{} {path}{slash}{others}", text("columns"))
    };
    changes.map(line).collect()
}

/// Returns the lines of rsync.
fn rsync_lines(flags: &[&str], from: &Path, to: &Path) -> Vec<String> {
    let mut rsync = Command::new("rsync");
    let rsync = rsync.args(["-i8"]).args(flags).arg(format!("{}/", from.display())).arg(to);
    let output = rsync.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let is_change = |line: &&str| {
        !line.starts_with("skipping non-regular file") && !line.starts_with("created directory")
    };
    text.lines().filter(is_change).map(str::to_owned).collect()
}

/// Compares one case; returns true if something was changed.
fn compare(seed: u64, routes: &Routes) -> bool {
    let mut rng = Rng::new(seed);
    let at = |name: String| routes.root.path().join(name);
    let (name, ours_name) = (format!("{seed}/"), format!("{seed}o"));
    let (source, ours, theirs) =
        (at(seed.to_string()), at(ours_name.clone()), at(format!("{seed}t")));
    fs::create_dir(&source).unwrap();
    let entries = make_tree(&source, &mut rng);
    let mut flags = flags(&mut rng);
    let keeps_owners = flags.contains(&"-a")
        && !flags.iter().any(|flag| ["--no-owner", "--no-group"].contains(flag));
    shuffle(&entries, &mut rng, keeps_owners);
    let there = |path: &PathBuf| theirs.join(path.strip_prefix(&source).unwrap());
    let copies: Vec<_> = entries.iter().map(there).collect();
    if rng.below(8) != 0 {
        // Names of one inode would change together, in the order of their work.
        let links = if flags.contains(&"-H") { "-aHAX" } else { "-aAX" };
        rsync_lines(&[links], &source, &theirs);
        drift(&copies, &mut rng);
        shuffle(&copies, &mut rng, keeps_owners);
        let mut clone = Command::new("cp");
        assert!(clone.arg("-a").arg(&theirs).arg(&ours).status().unwrap().success());
    }
    for flag in MORE_FLAGS {
        if rng.below(5) == 0 {
            flags.push(flag);
        }
    }
    // As rsync does by default, times are compared by seconds.
    flags.push("--modify-window=0");
    let groups = match flags.contains(&"-H") {
        true => groups(&source, &theirs, &entries),
        false => BTreeMap::new(),
    };
    let has_acls = flags.contains(&"-A");
    let mut ignored = Ignored { groups, has_acls, owners: BTreeSet::new() };
    let set_id = with_set_id(&theirs, &copies);
    let is_push = [1, 3].contains(&(seed % 4));
    let mut is_effective = false;
    for dry_run in [&["-n"][..], &[]] {
        let all = [&flags[..], &["--itemize-changes"], dry_run].concat();
        let done = run(&mut routes.copy(seed, &name, &ours_name, &all));
        let context = format!("BANKFULL_SEED={seed} {flags:?} {dry_run:?}\n{}", done.err);
        assert_eq!(done.code, Some(0), "{context}");
        let found = lines_of(&done);
        let is_received = found.iter().any(|line| line.starts_with('>'));
        assert!(!(is_push && is_received), "{context}");
        let found: Vec<_> = found.iter().map(|line| line.replacen('<', ">", 1)).collect();
        let expected = rsync_lines(&[&flags[..], dry_run].concat(), &source, &theirs);
        let [found, expected] = [found, expected].map(|lines| comparable(&lines, &ignored));
        let missing: Vec<_> = expected.difference(&found).collect();
        let extra: Vec<_> = found.difference(&expected).collect();
        assert!(
            missing.is_empty() && extra.is_empty(),
            "{context}missing {missing:#?}, extra {extra:#?}"
        );
        is_effective |= !expected.is_empty();
        ignored.owners.clone_from(&set_id);
    }
    is_effective
}

#[test]
fn changes_are_those_that_rsync_itemizes() {
    if !has_rsync() || !is_root() {
        return println!("skipped: needs root and rsync");
    }
    let routes = Routes::start();
    each_case(CASES, |seed| compare(seed, &routes));
}

#[test]
fn lines_are_on_standard_output_alone() {
    let here = Scratch::new();
    let (source, copy) = (here.path().join("s"), here.path().join("d"));
    fs::create_dir_all(source.join("dir")).unwrap();
    write_file(&source.join("dir/f"), b"content");
    write_file(&source.join("new\nline"), b"x");
    symlink("f", source.join("dir/l")).unwrap();
    fs::create_dir(&copy).unwrap();
    write_file(&copy.join("stray"), b"x");
    assert!(change("touch", &["-d", "@1000000000"], &copy));
    let from = format!("{}/", source.display());
    let list = |flags: &[&str]| {
        let mut command = command();
        command.args(["cp", "--itemize-changes", "--delete"]).args(flags);
        let done = command.arg(&from).arg(&copy).output().unwrap();
        assert!(done.status.success(), "{}", err(&done));
        out(&done)
    };
    let expected = "\
.d..t...... ./
cd+++++++++ dir/
>f+++++++++ new\\nline
>f+++++++++ dir/f
cL+++++++++ dir/l -> f
*deleting   stray
";
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    for flags in [&["-n"][..], &["-n", "-q"], &["-n", "-v"], &["-q"]] {
        assert_eq!(sorted(&list(flags)), sorted(expected), "{flags:?}");
    }
    assert_eq!(list(&[]), "");
}

#[test]
fn single_file_has_the_name_of_its_source() {
    let root = Scratch::new();
    let daemon = Daemon::start(root.path(), &[]);
    write_file(&root.path().join("a"), b"content");
    for (number, (from, to)) in [
        (root.path().join("a").to_str().unwrap().to_owned(), daemon.url("b")),
        (daemon.url("a"), root.path().join("c").to_str().unwrap().to_owned()),
    ]
    .into_iter()
    .enumerate()
    {
        let done = run(daemon.cp().arg("--itemize-changes").arg(from).arg(to)).expect(0);
        let sign = if number == 0 { "<" } else { ">" };
        assert_eq!(lines_of(&done), [format!("{sign}f+++++++++ a")]);
    }
    let again =
        run(cp().arg("--itemize-changes").arg(root.path().join("a")).arg(root.path().join("c")));
    assert_eq!(lines_of(&again.expect(0)), Vec::<String>::new());
}
