//! Both ledgers with arbitrary control messages, as far as the guard admits them. No message may
//! panic, hang or allocate without bound.

#![no_main]

use bankfull_proto::blocks::{BlockSet, Layout};
use bankfull_proto::hash::FileHash;
use bankfull_proto::receive::ReceiveLedger;
use bankfull_proto::send::{SendLedger, Work};
use bankfull_proto::session::{Guard, Role};
use bankfull_proto::wire::WireError;
use bankfull_proto::wire::control::{Entry, EntryKind, Message, decode};
use bankfull_proto::wire::frame::FrameReader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|stream: &[u8]| {
    let mut reader = FrameReader::new(1 << 16);
    reader.push(stream);
    let (mut sender, mut receiver) = (Guard::new(Role::Sender), Guard::new(Role::Receiver));
    let (mut send, mut receive) = (announced(), ReceiveLedger::new());
    while let Ok(Some(frame)) = reader.next_frame() {
        let Ok(message) = decode(frame) else { return };
        if sender.admit(&message).is_ok() {
            let _ = apply_to_sender(&mut send, &message);
            assign(&mut send);
        }
        if receiver.admit(&message).is_ok() {
            let _ = apply_to_receiver(&mut receive, &message);
        }
    }
});

/// Returns a ledger with files of blocks, a packed file and a symlink. Numbered as in the vectors.
fn announced() -> SendLedger {
    let mut ledger = SendLedger::default();
    let kinds = [
        (3, EntryKind::File, 11, 0),
        (4, EntryKind::Symlink, 0, 0),
        (5, EntryKind::File, 700 << 20, 1 << 20),
        (6, EntryKind::File, 5 << 30, 8 << 20),
    ];
    for (id, kind, size, block_bytes) in kinds {
        let entry = Entry {
            id,
            parent: 0,
            name: b"x".to_vec(),
            kind,
            mode: 0,
            mtime_secs: 0,
            mtime_nanos: 0,
            size,
            version: 0,
            uid: 0,
            gid: 0,
            block_bytes,
            sparse: false,
            target: Vec::new(),
            extra: None,
        };
        let _ = ledger.announce(&entry);
    }
    ledger
}

fn apply_to_sender(ledger: &mut SendLedger, message: &Message) -> Result<(), WireError> {
    match message {
        Message::Wants(wants) => wants.iter().try_for_each(|w| ledger.on_want(w).map(|_| ())),
        Message::Have(have) => ledger.on_have(have),
        Message::Acks(acks) => acks.iter().try_for_each(|a| ledger.on_acks(a).map(|_| ())),
        Message::Nack(nack) => ledger.on_nack(nack.file, nack.index).map(|_| ()),
        Message::Finished(files) => {
            files.iter().try_for_each(|&id| ledger.on_finished(id).map(|_| ()))
        }
        Message::Failed(failed) => {
            ledger.drop_file(failed.file);
            Ok(())
        }
        Message::StreamEnded(number) => {
            ledger.on_stream_ended(*number);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Assigns work to the streams of the vectors.
fn assign(ledger: &mut SendLedger) {
    for stream in [0, 1, 2] {
        match ledger.next_work(stream) {
            Some(Work::Compare { file, hash }) => {
                ledger.on_compared(file, hash == FileHash([0; 32]));
            }
            Some(Work::Block { file, .. }) => assert!(ledger.is_outstanding(file)),
            Some(Work::Pack(files)) => assert!(files.iter().all(|&id| ledger.is_outstanding(id))),
            None => {}
        }
    }
}

fn apply_to_receiver(ledger: &mut ReceiveLedger, message: &Message) -> Result<(), WireError> {
    match message {
        Message::Entries(entries) => entries.iter().try_for_each(|entry| {
            ledger.announce(entry.id)?;
            match Layout::new(entry.size, entry.block_bytes) {
                Ok(layout) => {
                    let left = BlockSet::new(layout.count());
                    ledger.expect_blocks(entry.id, layout, &left);
                }
                Err(_) => ledger.expect_packed(entry.id, entry.size),
            }
            let len = entry.size.min(u64::from(entry.block_bytes)) as u32;
            let _ = ledger.claim_block(entry.id, 0, len);
            let _ = ledger.claim_packed(entry.id, entry.size);
            Ok(())
        }),
        Message::Holes(holes) => ledger.on_holes(holes).map(|_| ()),
        Message::FileDigest(digest) => {
            ledger.on_file_digest(digest.file, digest.hash.map(FileHash)).map(|_| ())
        }
        Message::Aborted(aborted) => {
            ledger.give_up(aborted.file);
            Ok(())
        }
        _ => Ok(()),
    }
}
