//! Answers to flags of rsync and scp that bankfull does not have.

use super::words::{letters, longs};
use crate::flags::{HABITS, rate};

/// Flags of other programs, and the answer to them.
pub(super) const ANSWERS: &[(&[&str], &str)] = &[
    // Accepted by `cp`, not by other commands.
    (
        &["--progress", "--info", "--stats", "--human-readable", "--partial"],
        "a terminal shows progress, a summary follows, and a copy resumes: leave it out",
    ),
    (
        &["-S", "--sparse", "-W", "--whole-file", "-s", "--secluded-args"],
        "that is always done: leave it out",
    ),
    (&["-E", "--executability"], "modes are kept: leave it out"),
    // Data and connection.
    (
        &[
            "-z",
            "--compress",
            "--compress-level",
            "--compress-choice",
            "--compress-threads",
            "--zc",
            "--zl",
            "--zt",
            "--new-compress",
            "--old-compress",
            "--skip-compress",
        ],
        "bankfull does not compress: leave it out",
    ),
    (
        &["-C", "--cvs-exclude"],
        "bankfull does not compress, as -C of scp does: leave it out; for rsync's, use --exclude or \
         --ignore-file",
    ),
    (
        &["--bwlimit", "--limit-rate"],
        "write --max-rate 80mbit; 10M of rsync's is 10 MiB/s, which is --max-rate 84mbit",
    ),
    (
        &["-e", "--rsh", "--blocking-io"],
        "use --ssh-command COMMAND, or -P, -i, -F, -J and -o as in scp",
    ),
    (&["--rsync-path"], "use --remote-bankfull PATH"),
    (&["-M", "--remote-option"], "flags apply to both sides: write the flag itself"),
    (
        &["--port"],
        "use -P PORT for ssh, bankfull://HOST:PORT/ for a daemon, and serve --listen PORT",
    ),
    (&["--password-file", "--token", "--early-input"], "use --token-file FILE"),
    (
        &["--daemon", "--config", "--no-detach", "--dparam"],
        "the daemon is a command: write bankfull serve ROOT",
    ),
    (&["--no-motd"], "a daemon has no message of the day: leave it out"),
    (&["--contimeout"], "use --timeout SECONDS, which limits the connection setup, too"),
    (&["-4", "--ipv4"], "use -o AddressFamily=inet for ssh, or an IPv4 address as the host"),
    (&["-6", "--ipv6"], "use -o AddressFamily=inet6 for ssh, or an IPv6 address as the host"),
    (&["--address"], "use -o BindAddress=ADDRESS for ssh, or leave it out"),
    (&["--sockopts"], "use --buffer SIZE and --congestion NAME"),
    (&["--protocol"], "both sides agree on a version by themselves: leave it out"),
    (&["--max-alloc"], "use --max-memory SIZE"),
    (&["-3"], "one side of a copy is this host: run bankfull on one of the two hosts"),
    (
        &["-B"],
        "write --block-size 4MiB to set the block size; for scp's batch mode, -o BatchMode=yes",
    ),
    (
        &["--checksum-choice", "--cc", "--checksum-seed"],
        "blocks and files are verified with BLAKE3: leave it out",
    ),
    (
        &["--write-batch", "--only-write-batch", "--read-batch"],
        "there are no batch files: run the copy once for each destination",
    ),
    (
        &["--stop-after", "--stop-at", "--time-limit"],
        "run it under timeout(1); the same command resumes",
    ),
    // How files are written.
    (
        &["--inplace"],
        "a file is renamed into place once it is verified, and resumes by blocks: leave it out",
    ),
    (
        &["--append", "--append-verify", "--partial-dir"],
        "an interrupted copy always resumes: leave it out",
    ),
    (
        &["--no-whole-file", "--no-W", "-y", "--fuzzy"],
        "files that differ are sent whole: leave it out",
    ),
    (
        &["-T", "--temp-dir"],
        "files grow in the directory of their destination: leave it out; scp's -T is not needed",
    ),
    (&["--delay-updates"], "each file is renamed once it is complete: leave it out"),
    (&["--preallocate"], "the receiver decides on allocation: leave it out"),
    (
        &["--copy-devices", "--write-devices"],
        "devices are copied as devices with -D; use dd over ssh for their contents",
    ),
    (&["--mkpath"], "DST alone is created, not its parent: run mkdir -p first"),
    (&["--compare-dest", "--copy-dest"], "use --link-dest DIR, which links unchanged files"),
    (
        &["--force"],
        "a directory in the place of a file is replaced with --delete alone: add it, or remove the \
         directory first",
    ),
    (&["-I", "--ignore-times"], "use --checksum, which compares the content"),
    // Metadata.
    (&["-N", "--crtimes"], "creation times are not copied: leave it out"),
    (
        &["--omit-link-times"],
        "symlinks keep their times, as files do: leave it out, or use --no-times",
    ),
    (
        &["--super", "--fake-super"],
        "a receiver that is root sets owners with -a, and others do not: leave it out",
    ),
    (&["--drop-D"], "use --no-D"),
    (&["--copy-as"], "use --chown USER:GROUP, or run bankfull as that user"),
    (&["--iconv"], "names are copied byte for byte: leave it out"),
    // Selection.
    (
        &["-d", "--dirs", "--old-dirs", "--old-d", "--no-recursive", "--no-r"],
        "write --max-depth 0 for empty directories, or --max-depth 1 for what is directly in them",
    ),
    (&["-m", "--prune-empty-dirs"], "empty directories are copied: leave it out, or use --exclude"),
    (
        &["-K", "--keep-dirlinks"],
        "symlinks at the destination are not followed: name the directory itself as DST",
    ),
    (
        &["--copy-unsafe-links"],
        "use --copy-links for all symlinks, or --safe-links to leave unsafe ones out",
    ),
    (
        &["--munge-links"],
        "symlinks are kept unchanged: leave it out, or use --safe-links or --no-links",
    ),
    (
        &["--insecure-links", "--confine-root"],
        "bankfull serve ROOT confines its clients to ROOT: leave it out",
    ),
    (&["--trust-sender"], "received names are always checked: leave it out"),
    (
        &["--ignore-missing-args", "--delete-missing-args"],
        "a missing source is an error: leave it out of the command",
    ),
    (&["--old-args"], "no shell expands remote names: leave it out, and name each source"),
    (
        &["--no-implied-dirs"],
        "with --relative the directories above a source keep their metadata: leave it out",
    ),
    // Output.
    (&["--list-only"], "use bankfull ls -lR PLACE; --dry-run lists what would be copied"),
    (&["--out-format"], "use -v, or --json for a program"),
    (&["--log-file-format"], "use --log-format text or --log-format json"),
    (&["--debug"], "use -vv, or --log-file FILE -vv"),
    (
        &["--stderr", "--msgs2stderr", "--outbuf"],
        "messages go to standard error, a line at a time: leave it out",
    ),
    (&["-8", "--8-bit-output"], "use --json for names with unusual bytes, or leave it out"),
    (&["--no-progress"], "use --quiet, or --json for a program"),
    (&["--no-partial"], "an interrupted copy always keeps what it has: leave it out"),
    (&["--no-sparse", "--no-S"], "holes are kept: leave it out"),
    (&["--no-human-readable", "--no-h"], "sizes have units in any case: leave it out"),
    (
        &["--no-secluded-args", "--no-protect-args", "--no-s"],
        "no shell expands remote names: leave it out",
    ),
    (&["--no-timeout"], "a response has a time limit in any case: use --timeout SECONDS"),
];

/// Answers of `bankfull ls` to flags of ls(1), and to those that it lacks.
const LS_ANSWERS: &[(&[&str], &str)] = &[
    (&["-d", "--directory"], "a directory is listed with its entries: list the one above it"),
    (
        &["-a", "-A", "--all", "--almost-all"],
        "names that begin with a dot are listed: leave it out",
    ),
    (&["-1"], "each entry has a line: leave it out"),
    (&["-t", "-S", "--sort"], "entries are sorted by name: leave it out"),
];

/// Returns the answer to an unknown flag, if another program has it.
///
/// `flag` is without its value.
pub(crate) fn advice(command: &clap::Command, flag: &str, value: Option<&str>) -> Option<String> {
    let name = command.get_name();
    let find = |all: &'static [(&[&str], &'static str)], flag: &str| {
        all.iter().find(|(flags, _)| flags.contains(&flag)).map(|(_, advice)| *advice)
    };
    if let Some(advice) = find(LS_ANSWERS, flag).filter(|_| name == "ls") {
        return Some(advice.to_owned());
    }
    if let Some(advice) = find(ANSWERS, flag) {
        return Some(match () {
            () if !is_about(command, advice) => {
                format!("bankfull {name} has no such flag: leave it out")
            }
            () if flag == "--bwlimit" => bandwidth(value).unwrap_or_else(|| advice.to_owned()),
            () => advice.to_owned(),
        });
    }
    let negated = flag.strip_prefix("--no-")?;
    let is_letter = negated.len() == 1;
    let positive = if is_letter { format!("-{negated}") } else { format!("--{negated}") };
    let own = command.get_arguments().find(|flag| match is_letter {
        true => letters(flag).any(|letter| negated.starts_with(letter)),
        false => longs(flag).any(|long| long == negated),
    });
    if own.is_some_and(|flag| flag.get_help_heading() == Some(HABITS)) {
        return Some(format!("what {positive} asks for is always done: leave it out"));
    }
    let is_known = own.is_some() || find(ANSWERS, &positive).is_some();
    is_known.then(|| format!("{positive} has no effect unless it is given: leave it out"))
}

/// True if a command has all flags that an answer names.
///
/// Flags of `bankfull serve` are named with it, and not looked for.
pub(super) fn is_about(command: &clap::Command, answer: &str) -> bool {
    let words: Vec<&str> = answer.split([' ', ',', ';', ':']).collect();
    let named = words.iter().zip(std::iter::once(&"").chain(&words));
    let mut ours = named
        .filter(|(_, before)| **before != "serve")
        .filter_map(|(word, _)| word.strip_prefix("--").filter(|name| !name.is_empty()));
    command.get_name() == "cp"
        || ours.all(|name| command.get_arguments().flat_map(longs).any(|known| known == name))
}

/// Returns the answer to rsync's rate, which is in KiB/s without a unit.
fn bandwidth(value: Option<&str>) -> Option<String> {
    let typed = value?;
    let end = typed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(typed.len());
    let (number, unit) = typed.split_at(end);
    let number: f64 = number.parse().ok()?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        "b" => "B",
        "" | "k" | "kib" => "KiB",
        "kb" => "kB",
        "m" | "mib" => "MiB",
        "mb" => "MB",
        "g" | "gib" => "GiB",
        "gb" => "GB",
        _ => return None,
    };
    if number == 0.0 {
        return Some("there is no limit without it: leave it out".to_owned());
    }
    let ours = format!("{number}{unit}/s");
    Some(match rate(&ours) {
        Ok(_) => format!("write --max-rate {ours} for rsync's {typed}"),
        Err(_) => format!("write --max-rate 100kbit, the minimum; rsync's {typed} is {ours}"),
    })
}
