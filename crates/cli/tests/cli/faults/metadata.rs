//! Metadata and deletions of a hostile peer.

use super::super::harness::{
    Done, FakeServer, Peer, Scratch, base, below, cp, is_root, open_push_of, run, wait_until,
    welcome, write_file,
};
use super::clients::Scene;
use bankfull_proto::limits::{
    MAX_ACCOUNTS, MAX_OWNER_NAMES, MAX_XATTRS_BYTES, XATTR_OVERHEAD_BYTES,
};
use bankfull_proto::wire::control::{
    Account, AccountKind, Bytes, Cause, Change, ChangeAction, ChangedKind, Differences, Entry,
    EntryKind, ExtraMetadata, Failure, LeftOut, Message, MetadataRules, Open, Opened, PathBytes,
    Source, Special, SpecialKind, Totals, Verdict, Xattr,
};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;

fn contents() -> Source {
    Source { name: Vec::new(), is_dir: true, contents: true, open_ended: None }
}

fn linked(id: u64, name: &[u8], group: u64) -> Entry {
    let extra = ExtraMetadata { link_group: Some(group), ..ExtraMetadata::default() };
    Entry { kind: EntryKind::HardLink, extra: Some(Box::new(extra)), ..below(id, name, 0) }
}

/// Connects a client that pushes the contents of a directory, and keeps this metadata.
fn pushing(scene: &Scene, metadata: MetadataRules) -> Peer {
    let mut peer = Peer::welcomed(scene.daemon.port);
    let Message::Open(open) = open_push_of(vec![contents()], false) else { unreachable!() };
    peer.send(&Message::Open(Open { metadata: Some(metadata), ..open }));
    assert!(matches!(peer.receive(), Some(Message::Opened(_))));
    peer.send(&Message::Entries(vec![base()]));
    peer
}

#[test]
fn attributes_that_are_not_completed_use_bounded_memory() {
    let scene = Scene::new(&["--max-memory", "16MiB"]);
    let mut peer = pushing(&scene, MetadataRules::XATTRS);
    let value = vec![7; MAX_XATTRS_BYTES - XATTR_OVERHEAD_BYTES - 6];
    for id in 2..200 {
        let xattrs = Some(vec![Xattr { name: b"user.a".to_vec(), value: value.clone() }]);
        let extra = Some(Box::new(ExtraMetadata { xattrs, ..ExtraMetadata::default() }));
        let name = format!("dir-{id}").into_bytes();
        let kind = EntryKind::Dir;
        peer.send(&Message::Entries(vec![Entry { kind, extra, ..below(id, &name, 0) }]));
    }
    // The client may not receive the reason, as the daemon leaves data unread.
    let text = "directories that are announced and not completed";
    wait_until("the daemon refuses them", || {
        let ended = |event: &Value| event["message"].as_str().is_some_and(|m| m.contains(text));
        scene.daemon.events().iter().any(ended)
    });
}

#[test]
fn further_names_have_no_attributes_and_no_target() {
    let scene = Scene::new(&[]);
    let kept = MetadataRules::HARD_LINKS | MetadataRules::XATTRS;
    let xattr = Xattr { name: b"user.a".to_vec(), value: b"x".to_vec() };
    let mut attributed = linked(2, b"name", 9);
    attributed.extra.as_mut().unwrap().xattrs = Some(vec![xattr]);
    let aimed = Entry { target: b"there".to_vec(), ..linked(2, b"name", 9) };
    for (entry, reason) in [(attributed, "attributes of a hard link"), (aimed, "no symlink")] {
        let mut peer = pushing(&scene, kept);
        peer.send(&Message::Entries(vec![entry]));
        peer.expect_refusal(Cause::Protocol, reason);
    }
}

#[test]
fn further_name_of_nothing_fails_alone() {
    let scene = Scene::new(&[]);
    let mut peer = pushing(&scene, MetadataRules::HARD_LINKS);
    peer.send(&Message::Entries(vec![linked(2, b"name", 9)]));
    let Some(Message::Wants(wants)) = peer.receive() else { panic!("no answer") };
    assert_eq!(wants[0].verdict, Verdict::Refused);
}

#[test]
fn kinds_and_names_that_were_not_requested_are_refused() {
    let scene = Scene::new(&[]);
    let special = Special { kind: SpecialKind::Fifo, major: 0, minor: 0 };
    let extra = ExtraMetadata { special: Some(special), ..ExtraMetadata::default() };
    let fifo =
        Entry { kind: EntryKind::Special, extra: Some(Box::new(extra)), ..below(2, b"fifo", 0) };
    for entry in [linked(2, b"name", 9), fifo] {
        let mut peer = pushing(&scene, MetadataRules::XATTRS);
        peer.send(&Message::Entries(vec![entry]));
        peer.expect_refusal(Cause::Protocol, "of this kind");
    }
    // Without a deletion, such names are of no use, and do no harm.
    let mut peer = pushing(&scene, MetadataRules::XATTRS);
    peer.send(&Message::LeftOut(vec![LeftOut { dir: 77, name: b"x".to_vec() }]));
    peer.send(&Message::EntriesEnd(Totals::default()));
    peer.send(&Message::Finish(Default::default()));
    assert!(matches!(peer.receive(), Some(Message::Done(_))));
    assert!(!scene.scratch.join("root/fifo").exists());
}

#[test]
fn deletions_that_were_not_requested_end_the_session() {
    let server = FakeServer::greeted(|peer, _| {
        peer.send(&welcome(1));
        if matches!(peer.receive(), Some(Message::Open(_))) {
            let destinations = vec![PathBytes(b"f".to_vec())];
            peer.send(&Message::Opened(Opened { destinations, ..Opened::default() }));
            peer.send(&Message::Deleted(vec![PathBytes(b"/etc/passwd".to_vec())]));
        }
    });
    let here = Scratch::new();
    write_file(&here.join("f"), b"x");
    let mut command = cp();
    command.args(["--accept-new", "--state-dir"]).arg(here.join("state"));
    let done = run(command.arg(here.join("f")).arg(server.url()));
    done.expect(12).says(&["deletions that were not requested"]);
}

/// Copies a file to a daemon that accepts it in its own way; returns what happened.
fn push_to(opened: Opened, then: &[Message], flags: &[&str]) -> Done {
    let then = then.to_vec();
    let server = FakeServer::greeted(move |peer, _| {
        peer.send(&welcome(1));
        if matches!(peer.receive(), Some(Message::Open(_))) {
            peer.send(&Message::Opened(opened.clone()));
            then.iter().for_each(|message| peer.send(message));
            while peer.receive().is_some() {}
        }
    });
    let here = Scratch::new();
    write_file(&here.join("f"), b"x");
    let mut command = cp();
    command.args(["--accept-new", "--state-dir"]).arg(here.join("state")).args(flags);
    run(command.arg(here.join("f")).arg(server.url()))
}

#[test]
fn changes_are_requested_and_confirmed() {
    let opened = Opened { destinations: vec![PathBytes(b"f".to_vec())], ..Opened::default() };
    // An older daemon skips the request.
    let older = push_to(opened.clone(), &[], &["--itemize-changes"]);
    older.expect(2).says(&["does not support --itemize-changes: install a newer bankfull there"]);
    let change = Change {
        path: PathBytes(b"../x\n\x1b[2J".to_vec()),
        kind: ChangedKind::File,
        action: ChangeAction::Delete,
        differences: Differences::NEW,
        other: Some(PathBytes(b"/etc/passwd".to_vec())),
    };
    let changes = [Message::Changes(vec![change])];
    let unasked = push_to(opened.clone(), &changes, &[]);
    unasked.expect(12).says(&["changes that were not requested"]);
    // Requested changes are only shown as text.
    let opened = Opened { itemizes: Some(true), ..opened };
    let end = Message::Error(Failure::new(Cause::Busy, "later"));
    let shown = push_to(opened, &[changes[0].clone(), end], &["--itemize-changes"]);
    let line = shown.out.lines().find(|line| line.contains("\"change\"")).unwrap();
    assert!(line.contains("*deleting  ") && line.is_ascii(), "{line}");
    assert!(!line.contains('\x1b'), "{line}");
}

#[test]
fn daemon_cannot_replace_the_accounts_of_its_client() {
    if !is_root() {
        return println!("skipped: needs root");
    }
    let server = FakeServer::greeted(|peer, _| {
        peer.send(&welcome(1));
        if !matches!(peer.receive(), Some(Message::Open(_))) {
            return;
        }
        peer.send(&Message::Opened(Opened { sources: vec![contents()], ..Opened::default() }));
        let account = |kind| Account { kind, id: 5, name: None, mapped: Some(0), required: None };
        let name = Some(Bytes(b"no-such-user".to_vec()));
        let required =
            Account { name, mapped: None, required: Some(true), ..account(AccountKind::User) };
        let accounts = vec![account(AccountKind::User), account(AccountKind::Group), required];
        peer.send(&Message::Accounts(accounts));
        let target = b"nowhere".to_vec();
        let link = Entry { kind: EntryKind::Symlink, target, uid: 5, gid: 5, ..below(2, b"l", 0) };
        peer.send(&Message::Entries(vec![base(), link]));
        peer.send(&Message::EntriesEnd(Totals::default()));
        peer.send(&Message::Finish(Default::default()));
        while peer.receive().is_some() {}
    });
    let here = Scratch::new();
    let mut command = cp();
    command.args(["--accept-new", "--state-dir"]).arg(here.join("state"));
    command.args(["--chown", "65534:65534"]).arg(server.url()).arg(here.join("in"));
    let done = run(&mut command);
    let found = fs::symlink_metadata(here.join("in/l"));
    let found = found.unwrap_or_else(|e| panic!("{e}: {}{}", done.out, done.err));
    assert_eq!((found.uid(), found.gid()), (65534, 65534));
}

#[test]
fn account_names_are_counted_and_looked_up_if_kept() {
    let scene = Scene::new(&["--allow-owner"]);
    let named = |number: usize, required| Account {
        kind: AccountKind::User,
        id: 7,
        name: Some(Bytes(format!("no-such-user-{number}").into_bytes())),
        mapped: None,
        required,
    };
    // Without owners, nothing is looked up, not even what is required.
    let mut peer = pushing(&scene, MetadataRules::XATTRS);
    peer.send(&Message::Accounts(vec![named(0, Some(true))]));
    peer.send(&Message::EntriesEnd(Totals::default()));
    peer.send(&Message::Finish(Default::default()));
    assert!(matches!(peer.receive(), Some(Message::Done(_))));
    // One number with ever new names.
    let mut peer = pushing(&scene, MetadataRules::XATTRS);
    for batch in 0..=MAX_ACCOUNTS / MAX_OWNER_NAMES {
        let names = batch * MAX_OWNER_NAMES..(batch + 1) * MAX_OWNER_NAMES;
        peer.send(&Message::Accounts(names.map(|number| named(number, None)).collect()));
    }
    peer.expect_refusal(Cause::Protocol, "the number of accounts");
}
