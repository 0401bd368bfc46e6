//! Vectors of metadata beyond modes and times.

use super::Vector;
use super::control::{file, message, path};
use bankfull_proto::wire::control::{
    Account, AccountKind, Bytes, Change, ChangeAction, ChangedKind, DeleteRules, Differences,
    Direction, Entry, EntryKind, ExtraMetadata, FileEnd, Fsync, LeftOut, Message, MetadataRules,
    Open, Opened, Source, Special, SpecialKind, Xattr,
};

pub(super) fn vectors() -> Vec<Vector> {
    vec![
        message(
            "open-metadata",
            "Open: push with owners and groups by number, devices, specials, hard links, attributes, ACLs.",
            open(),
        ),
        message(
            "open-delete",
            "Open: push that deletes at most ten entries, and excluded ones, too.",
            open_delete(),
        ),
        message(
            "entries-metadata",
            "Entries: a file with two names and attributes (7), its second name (8), a device (9).",
            entries(file(7, 1, b"first")),
        ),
        message(
            "left-out",
            "LeftOut: a name in the directory 2, and the directory 7, which is not listed.",
            left_out(),
        ),
        message("deleted", "Deleted: a file and its directory.", deleted()),
        message(
            "changes",
            "Changes: time of the destination, a new file, a symlink, a hard link, a deleted file.",
            changes(),
        ),
        message(
            "open-input",
            "Open: a push of an open-ended source, standard input.",
            open_input(),
        ),
        message("opened-input", "Opened: the receiver takes it.", opened_input()),
        message(
            "entries-open-ended",
            "Entries: a file of unknown size.",
            open_ended(file(1, 0, b"-")),
        ),
        message(
            "file-end",
            "FileEnd: the size of file 1.",
            Message::FileEnd(FileEnd { file: 1, size: 20_000_000 }),
        ),
        message("accounts", "Accounts: two users, one of them required, a group.", accounts()),
    ]
}

/// A push that keeps all but access times.
fn open() -> Message {
    let rules = MetadataRules::OWNER | MetadataRules::GROUP | MetadataRules::NUMERIC_IDS;
    let rules = rules | MetadataRules::DEVICES | MetadataRules::SPECIALS;
    let rules = rules | MetadataRules::HARD_LINKS | MetadataRules::XATTRS | MetadataRules::ACLS;
    Message::Open(Open {
        direction: Direction::Push,
        paths: vec![path(b"backup/")],
        fsync: Fsync::End,
        streams: 2,
        timeout_ms: 60_000,
        metadata: Some(rules),
        ..Open::default()
    })
}

/// A file with two names, attributes and an access time, its other name, a device.
fn entries(file: Entry) -> Message {
    let acl = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff".to_vec();
    let attributes = ExtraMetadata {
        link_group: Some(1),
        atime_secs: Some(-2),
        atime_nanos: Some(5),
        xattrs: Some(vec![
            Xattr { name: b"system.posix_acl_access".to_vec(), value: acl },
            Xattr { name: b"user.caf\xe9".to_vec(), value: b"\0x".to_vec() },
        ]),
        ..ExtraMetadata::default()
    };
    let first = Entry { extra: Some(Box::new(attributes)), ..file.clone() };
    let group = ExtraMetadata { link_group: Some(1), ..ExtraMetadata::default() };
    let second = Entry {
        kind: EntryKind::HardLink,
        size: 0,
        extra: Some(Box::new(group)),
        id: 8,
        name: b"second".to_vec(),
        ..file.clone()
    };
    let special = Special { kind: SpecialKind::BlockDevice, major: 8, minor: 17 };
    let special = ExtraMetadata { special: Some(special), ..ExtraMetadata::default() };
    let device = Entry {
        kind: EntryKind::Special,
        size: 0,
        extra: Some(Box::new(special)),
        id: 9,
        name: b"sdb1".to_vec(),
        ..file
    };
    Message::Entries(vec![first, second, device])
}

/// Users and a group.
fn accounts() -> Message {
    let account = |kind, id| Account { kind, id, name: None, mapped: None, required: None };
    let name = |name: &[u8]| Some(Bytes(name.to_vec()));
    Message::Accounts(vec![
        Account { name: name(b"alice"), ..account(AccountKind::User, 1000) },
        Account { name: name(b"www"), required: Some(true), ..account(AccountKind::User, 33) },
        Account { mapped: Some(7), ..account(AccountKind::Group, 100) },
    ])
}

/// A push that deletes at most ten entries, and excluded ones, too.
fn open_delete() -> Message {
    let delete = DeleteRules { excluded: Some(true), max: Some(10), ..DeleteRules::default() };
    Message::Open(Open {
        direction: Direction::Push,
        paths: vec![path(b"mirror/")],
        fsync: Fsync::End,
        streams: 2,
        timeout_ms: 60_000,
        filters: Some(vec![Bytes(b"-s *.o".to_vec())]),
        delete: Some(delete),
        ..Open::default()
    })
}

/// A name, and a directory that is not listed.
fn left_out() -> Message {
    let name = LeftOut { dir: 2, name: b"pipe".to_vec() };
    Message::LeftOut(vec![name, LeftOut { dir: 7, name: Vec::new() }])
}

/// A file, and its directory after it.
fn deleted() -> Message {
    Message::Deleted(vec![path(b"mirror/old/f"), path(b"mirror/old")])
}

/// A push of standard input.
fn open_input() -> Message {
    let name = b"-".to_vec();
    let source = Source { name, is_dir: false, contents: false, open_ended: Some(true) };
    Message::Open(Open {
        direction: Direction::Push,
        paths: vec![path(b"dump.sql")],
        sources: vec![source],
        fsync: Fsync::End,
        streams: 4,
        timeout_ms: 60_000,
        ..Open::default()
    })
}

fn opened_input() -> Message {
    let destinations = vec![path(b"dump.sql")];
    Message::Opened(Opened { destinations, open_ended: Some(true), ..Opened::default() })
}

/// The entry of standard input.
fn open_ended(file: Entry) -> Message {
    let extra = ExtraMetadata { open_ended: Some(true), ..ExtraMetadata::default() };
    let (size, block_bytes) = (1 << 46, 1 << 20);
    Message::Entries(vec![Entry { size, block_bytes, extra: Some(Box::new(extra)), ..file }])
}

/// Changes of every action.
fn changes() -> Message {
    let change = |name: &[u8], kind, action, differences| Change {
        path: path(name),
        kind,
        action,
        differences,
        other: None,
    };
    let time = Differences::TIME;
    let link = Differences::CONTENT.with(time, true);
    Message::Changes(vec![
        change(b"", ChangedKind::Dir, ChangeAction::Update, time),
        change(b"f", ChangedKind::File, ChangeAction::Transfer, Differences::NEW),
        Change {
            other: Some(path(b"target")),
            ..change(b"l", ChangedKind::Symlink, ChangeAction::Create, link)
        },
        Change {
            other: Some(path(b"f")),
            ..change(b"g", ChangedKind::File, ChangeAction::Link, Differences::NEW)
        },
        change(b"old", ChangedKind::File, ChangeAction::Delete, Differences::default()),
    ])
}
