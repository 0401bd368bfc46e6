//! `-` as the source: content of unknown size, sent while it is read.

use crate::harness::{
    Daemon, Disk, Peer, Proxy, Rng, Running, Scratch, SshServer, below, cp, fill, gather, litter,
    open_push_of, run, script, wait_until, write_file,
};
use bankfull_proto::wire::control::{
    Cause, Entry, ExtraMetadata, FileEnd, Message, Open, PathBytes, Source, Verdict,
};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// Returns a script with the input in the variable `INPUT`.
fn fed(text: &str, command: &Command, input: &Path) -> Command {
    let mut shell = script(text, command);
    shell.env("INPUT", input);
    shell
}

/// Copies inputs of several sizes, and compares them.
fn check(cp: impl Fn() -> Command, place: impl Fn(&str) -> String, landed: &Path) {
    let here = Scratch::bulk();
    // Known size: up to 16 MiB; more: whole blocks, and a block that is padded.
    for (size, flags) in [
        (0, &[][..]),
        (5, &[]),
        (300_000, &["--checksum"]),
        (16 * MIB, &[]),
        (17 * MIB, &[]),
        (20 * MIB + 1, &["--max-size", "1MB"]),
        (40 * MIB - 1, &["--block-size", "16MiB"]),
    ] {
        fill(&here.join("input"), size, &mut Rng::new(size));
        let mut command = cp();
        let is_local = !place("x").contains(':');
        let flags = if is_local && flags.contains(&"--block-size") { &[] } else { flags };
        command.args(flags).args(["-", &place("landed")]);
        let done = run(&mut fed("cat \"$INPUT\" | \"$@\"", &command, &here.join("input")));
        let done = done.expect(0);
        assert_eq!(done.figures(["files", "bytes"]), [1, size], "{}", done.out);
        let file = landed.join("landed");
        assert!(fs::read(&file).unwrap() == fs::read(here.join("input")).unwrap(), "{size}");
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(landed).unwrap().count(), 1, "{:?}", litter(landed));
    }
    for text in ["\"$@\" <(cat \"$INPUT\") \"$OUT\"", "cat \"$INPUT\" | \"$@\" /dev/stdin \"$OUT\""]
    {
        fs::remove_file(landed.join("landed")).unwrap();
        let mut command = fed(text, &cp(), &here.join("input"));
        run(command.env("OUT", place("landed"))).expect(0);
        let file = fs::read(landed.join("landed")).unwrap();
        assert!(file == fs::read(here.join("input")).unwrap());
    }
    let mut command = cp();
    command.args(["/dev/stdin", &place("landed")]);
    run(&mut fed("\"$@\" <\"$INPUT\"", &command, &here.join("input"))).expect(0);
    let mut command = cp();
    command.args(["-", &place(".")]);
    let done = run(&mut fed("\"$@\" <\"$INPUT\"", &command, &here.join("input")));
    done.expect(1).says(&["the source has no name of its own: name a file in this directory"]);
}

#[test]
fn standard_input_becomes_a_file_on_each_route() {
    let there = Scratch::bulk();
    let local = |name: &str| there.join(name).to_str().unwrap().to_owned();
    check(cp, local, there.path());
    let there = Scratch::bulk();
    let daemon = Daemon::start(there.path(), &[]);
    check(|| daemon.cp(), |name| daemon.url(name), there.path());
    let there = Scratch::bulk();
    let daemon = Daemon::start(there.path(), &[]);
    let quic = || {
        let mut command = daemon.cp();
        command.args(["--transport", "quic"]);
        command
    };
    check(quic, |name| daemon.url(name), there.path());
    if let Some(server) = SshServer::start() {
        let there = Scratch::bulk();
        check(|| server.cp(), |name| SshServer::place(&there.join(name)), there.path());
    }
}

#[test]
fn options_for_trees_are_refused() {
    let here = Scratch::new();
    write_file(&here.join("other"), b"x");
    let source = "cannot be used with the source -: leave it out";
    for (flags, text) in [
        (&["--delete", "-", "out"][..], source),
        (&["--dry-run", "-", "out"], source),
        (&["--remove-source-files", "-", "out"], source),
        (&["--relative", "-", "out"], source),
        (&["-", "-"], "the destination - cannot be used with the source -"),
        (&["-", "other", "out"], "standard input must be the only source"),
        (&["--exclude-from=-", "-", "out"], "standard input can be read once"),
    ] {
        let done = run(cp().current_dir(here.path()).args(flags));
        done.expect(1).says(&[text]);
    }
    assert!(!here.join("out").exists());
    for (text, flags) in [("\"$@\" <&-", ["-", "out"]), ("\"$@\" >&-", ["other", "-"])] {
        let mut command = cp();
        command.args(flags);
        let done = run(script(text, &command).current_dir(here.path()));
        done.expect(11).says(&["is closed"]);
    }
    let mut null = script("\"$@\" - empty </dev/null", &cp());
    run(null.current_dir(here.path())).expect(0);
    assert_eq!(fs::read(here.join("empty")).unwrap(), b"");
    // Only what is a pipe is read as one.
    run(cp().current_dir(here.path()).args(["./-", "out"])).expect(3);
    let mut two = script("\"$@\" <(echo a) <(echo b) out", &cp());
    run(two.current_dir(here.path())).expect(1).says(&["copy a pipe as the only source"]);
    run(gather().current_dir(here.path()).args(["--into", "all", "-"])).expect(1);
}

#[test]
fn blocks_travel_before_the_input_ends() {
    let there = Scratch::bulk();
    let daemon = Daemon::start(there.path(), &[]);
    let mut command = daemon.cp();
    command.args(["-", &daemon.url("out")]);
    let text = "(head -c 20M /dev/zero; while [ ! -e \"$INPUT\" ]; do sleep 0.01; done; echo end) \
                | \"$@\"";
    let client = Running::start(&mut fed(text, &command, &there.join("go")));
    let received = || litter(there.path()).iter().any(|part| part.metadata().unwrap().len() > MIB);
    wait_until("blocks have arrived", received);
    write_file(&there.join("go"), b"");
    client.wait().expect(0);
    let out = fs::read(there.join("out")).unwrap();
    assert!(out.len() as u64 == 20 * MIB + 4 && out.ends_with(b"\0end\n"));
}

#[test]
fn existing_file_is_kept_by_flags_and_by_failures() {
    let there = Scratch::bulk();
    let daemon = Daemon::start(there.path(), &[]);
    write_file(&there.join("out"), b"old");
    let mut command = daemon.cp();
    command.args(["--ignore-existing", "-", &daemon.url("out")]);
    let done = run(&mut script("\"$@\" < <(head -c 30M /dev/zero)", &command)).expect(0);
    assert_eq!(done.figures(["left_out_files", "left_out_bytes"]), [1, 0]);
    let mut command = daemon.cp();
    command.args(["-", &daemon.url("out")]);
    run(&mut script("\"$@\" <.", &command)).expect(23).fails(&["cannot read the input: is a"]);
    assert_eq!(fs::read(there.join("out")).unwrap(), b"old");
    let mut command = daemon.cp();
    command.args(["--backup", "-", &daemon.url("out")]);
    run(&mut script("head -c 30M /dev/zero | \"$@\"", &command)).expect(0);
    assert_eq!(fs::read(there.join("out~")).unwrap(), b"old");
    assert_eq!(fs::metadata(there.join("out")).unwrap().len(), 30 * MIB);
}

#[test]
fn interrupted_copy_leaves_nothing() {
    let there = Scratch::bulk();
    let daemon = Daemon::start(there.path(), &["--timeout", "2"]);
    for place in [daemon.url("out"), there.join("out").to_str().unwrap().to_owned()] {
        let mut command = if place.contains("://") { daemon.cp() } else { cp() };
        command.args(["-", &place]);
        let text = "exec \"$@\" < <(head -c 20M /dev/zero; exec sleep 1000)";
        let client = Running::start(&mut script(text, &command));
        wait_until("a block has arrived", || {
            litter(there.path()).iter().any(|part| part.metadata().is_ok_and(|p| p.len() > MIB))
        });
        client.signal(Signal::INT);
        client.wait().expect(20);
        wait_until("it is removed", || fs::read_dir(there.path()).unwrap().count() == 0);
    }
}

#[test]
fn lost_session_continues_while_all_of_the_input_is_here() {
    let there = Scratch::bulk();
    let daemon = Daemon::start(there.path(), &["--timeout", "2"]);
    for (bytes, is_released) in [(10 * MIB, false), (40 * MIB, true)] {
        let proxy = Proxy::start(daemon.port);
        proxy.cut_all_after(bytes - 5 * MIB);
        let mut command = daemon.cp();
        command.args(["--retry-for", "60", "--timeout", "3", "-", &proxy.url("out")]);
        let text = format!("head -c {bytes} /dev/zero | exec \"$@\"");
        let client = Running::start(&mut script(&text, &command));
        wait_until("the path is cut", || proxy.is_down());
        proxy.mend();
        match is_released {
            false => drop(client.wait().expect(0)),
            true => client.wait().expect(10).says(&["the input cannot be read again"]),
        }
        let landed = fs::metadata(there.join("out")).map_or(0, |out| out.len());
        assert_eq!(landed, 10 * MIB);
    }
}

#[test]
fn full_destination_ends_the_copy_before_the_input() {
    let here = Scratch::bulk();
    let Some(disk) = Disk::new(&here, 64) else { return };
    let mut command = cp();
    command.arg("-").arg(disk.path().join("out"));
    let done = run(&mut script("\"$@\" < <(cat /dev/zero)", &command)).expect(23);
    done.fails(&["no space left"]);
    assert!(litter(disk.path()).is_empty());
}

fn input() -> Source {
    let name = b"-".to_vec();
    Source { name, is_dir: false, contents: false, open_ended: Some(true) }
}

fn open_ended(id: u64) -> Entry {
    let extra = ExtraMetadata { open_ended: Some(true), ..ExtraMetadata::default() };
    Entry { parent: 0, extra: Some(Box::new(extra)), ..below(id, b"-", 8 << 40) }
}

#[test]
fn hostile_ends_are_refused() {
    let there = Scratch::new();
    let daemon = Daemon::start(there.path(), &[]);
    let pushing = |source: Source| {
        let mut peer = Peer::welcomed(daemon.port);
        let Message::Open(open) = open_push_of(vec![source], false) else { unreachable!() };
        let paths = vec![PathBytes(b"out".to_vec())];
        peer.send(&Message::Open(Open { paths, ..open }));
        assert!(matches!(peer.receive(), Some(Message::Opened(_))));
        peer
    };
    let mut peer = pushing(Source { open_ended: None, ..input() });
    peer.send(&Message::Entries(vec![open_ended(1)]));
    peer.expect_refusal(Cause::Protocol, "the entry \"-\"");
    for (size, words) in [(9 << 40, "a file of 9895"), (u64::MAX, "a file of 1844")] {
        let mut peer = pushing(input());
        peer.send(&Message::Entries(vec![open_ended(1)]));
        assert!(matches!(peer.receive(), Some(Message::Wants(w)) if w[0].verdict == Verdict::Send));
        peer.send(&Message::FileEnd(FileEnd { file: 1, size }));
        peer.expect_refusal(Cause::Protocol, words);
    }
    let mut peer = pushing(input());
    peer.send(&Message::Entries(vec![open_ended(1)]));
    peer.send(&Message::FileEnd(FileEnd { file: 1, size: 0 }));
    peer.send(&Message::FileEnd(FileEnd { file: 1, size: 0 }));
    peer.expect_refusal(Cause::Protocol, "whose size is known");
    let mut peer = pushing(input());
    peer.send(&Message::FileEnd(FileEnd { file: 1, size: 0 }));
    peer.expect_refusal(Cause::Protocol, "");
}
