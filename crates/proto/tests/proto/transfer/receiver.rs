//! Receiving side of the simulated world; uses its ledger like the engine.

use super::sender::UNCHANGED_HASH;
use super::world::{Damage, End, Frame, World, decoded};
use super::{FilePlan, Planned};
use crate::support::{hash_of, want};
use bankfull_proto::hash::{FileHash, merge};
use bankfull_proto::receive::{Claim, DigestOutcome};
use bankfull_proto::wire::control::{
    self, Cause, Entry, Failed, Failure, FileDigest, Message, Nack, SideSummary, Verdict, Want,
};
use bankfull_proto::wire::data::Header;

impl World {
    pub(super) fn receiver_reads(&mut self) {
        let Some(frame) = self.to_receiver.pop_front() else { return };
        let message = decoded(&frame);
        self.receiver_guard.admit(&message).unwrap();
        match message {
            Message::Entries(entries) => self.on_entries(&entries),
            Message::EntriesEnd(_) => {}
            Message::Holes(holes) => {
                let fresh = self.receive.on_holes(&holes).unwrap();
                let mut fresh = fresh.iter().flat_map(|run| run.first..run.first + run.count);
                assert!(fresh.all(|index| !self.verified.contains(&(holes.file, index))));
            }
            Message::FileDigest(FileDigest { file, hash }) => {
                let outcome = self.receive.on_file_digest(file, hash.map(FileHash)).unwrap();
                assert!(outcome != DigestOutcome::Ignored || self.given_up.contains(&file));
                self.apply(file, outcome);
            }
            Message::EarlyFileDigest(FileDigest { file, hash }) => {
                let outcome = self.receive.on_early_digest(file, hash.map(FileHash)).unwrap();
                self.apply(file, outcome);
            }
            Message::Aborted(aborted) => {
                self.receive.on_aborted(aborted.file).unwrap();
                self.receiving.remove(&aborted.file);
            }
            Message::Unchanged(files) => {
                for id in files {
                    let is_outstanding = self.receive.outstanding_ids().any(|of| of == id);
                    self.receive.finish(id);
                    self.receiving.remove(&id);
                    if is_outstanding {
                        self.complete.insert(id);
                    }
                }
            }
            Message::StreamLost(number) => self.on_stream_lost(number),
            Message::Finish(_) => self.finish_seen = true,
            other => panic!("the receiver got {other:?}"),
        }
    }

    fn on_entries(&mut self, entries: &[Entry]) {
        let mut wants = Vec::new();
        for entry in entries {
            self.receive.announce(entry.id).unwrap();
            wants.push(self.answer(entry));
        }
        self.outbox.messages.push(Message::Wants(wants));
    }

    fn answer(&mut self, entry: &Entry) -> Want {
        let id = entry.id;
        let plan = self.plan(id).clone();
        let verdict = match plan.planned {
            Planned::Send => Verdict::Send,
            Planned::Compare { .. } => Verdict::IfDiffers,
            Planned::Skip => return want(id, Verdict::Skip),
            Planned::Refuse => {
                let failure = Some(Failure::new(Cause::Permission, "no"));
                return Want { failure, ..want(id, Verdict::Refused) };
            }
        };
        match plan.layout() {
            Some(layout) => {
                self.receive.expect_blocks(id, layout, &plan.left(layout.count()));
                self.unchecked.extend(plan.present.iter().map(|&index| (id, index)));
            }
            None => self.receive.expect_packed(id, plan.size),
        }
        self.receiving.insert(id);
        let have = FilePlan::single_runs(id, &plan.present);
        let accepts_early_digest = self.random.percent(80).then_some(true);
        let is_same = matches!(plan.planned, Planned::Compare { equal: true });
        let hash = (verdict == Verdict::IfDiffers).then_some(if is_same {
            UNCHANGED_HASH
        } else {
            [2; 32]
        });
        if !have.runs.is_empty() && self.random.percent(50) {
            self.outbox.messages.push(Message::Have(have));
            return Want { hash, accepts_early_digest, ..want(id, verdict) };
        }
        Want { have: have.runs, hash, accepts_early_digest, ..want(id, verdict) }
    }

    fn apply(&mut self, id: u64, outcome: DigestOutcome) {
        match outcome {
            DigestOutcome::Complete(hash) => {
                if let (Some(hash), Some(layout)) = (hash, self.plan(id).layout()) {
                    let blocks: Vec<_> = (0..layout.count()).map(|at| hash_of(id, at)).collect();
                    assert_eq!(Some(hash), merge(&layout, &blocks));
                }
                self.receive.finish(id);
                self.receiving.remove(&id);
                assert!(self.complete.insert(id), "file {id} is put in place twice");
                self.outbox.finished.push(id);
            }
            DigestOutcome::Mismatch => panic!("the hashes of file {id} differ"),
            DigestOutcome::Ignored | DigestOutcome::Pending => {}
        }
    }

    /// Handles StreamLost. A closed or waiting stream is reported at once, an open one when its
    /// thread ends.
    fn on_stream_lost(&mut self, number: u32) {
        let Some(link) = self.links.iter_mut().find(|link| link.number == number) else { return };
        link.cut = true;
        if link.receiver == End::Waiting {
            link.receiver = End::Closed;
        }
        if link.receiver == End::Closed {
            self.outbox.messages.push(Message::StreamEnded(number));
        }
    }

    /// Writes the outbox, acknowledgements first.
    pub(super) fn receiver_writes(&mut self) {
        let acks = std::mem::take(&mut self.outbox.acks);
        let mut messages = Vec::new();
        if !acks.is_empty() {
            let runs = acks.into_iter().map(|(id, indices)| {
                let indices: Vec<u64> = indices.into_iter().collect();
                FilePlan::single_runs(id, &indices)
            });
            messages.push(Message::Acks(runs.collect()));
        }
        let finished = std::mem::take(&mut self.outbox.finished);
        if !finished.is_empty() {
            messages.push(Message::Finished(finished));
        }
        messages.append(&mut self.outbox.messages);
        for message in messages {
            self.to_sender.push_back(control::encode(&message).unwrap());
        }
    }

    /// Receives the next part of a frame: header or payload of a block, or a whole pack.
    pub(super) fn arrive(&mut self, at: usize) {
        if let Some((file, index, damaged)) = self.links[at].arriving.take() {
            return self.block_arrived(file, index, damaged);
        }
        match self.links[at].frames.pop_front() {
            Some(Frame::Block { header, damaged }) => {
                let Ok(Header::Block { file, offset, len }) = Header::decode(&header) else {
                    panic!("a header did not round-trip")
                };
                match self.receive.claim_block(file, offset, len).unwrap() {
                    Claim::Accept(index) => {
                        self.links[at].arriving = Some((file, index, damaged));
                    }
                    Claim::Ignore => assert!(self.given_up.contains(&file)),
                }
            }
            Some(Frame::Pack { files, damaged }) => self.pack_arrived(&files, damaged),
            Some(Frame::End) => self.links[at].receiver = End::Closed,
            None => {}
        }
    }

    fn block_arrived(&mut self, file: u64, index: u64, damaged: bool) {
        if damaged {
            self.receive.on_block_damaged(file, index);
            self.outbox.messages.push(Message::Nack(Nack { file, index }));
        } else if self.receive.on_block_verified(file, index, hash_of(file, index)) {
            assert!(self.verified.insert((file, index)), "block {index} of {file} accepted twice");
            self.outbox.acks.entry(file).or_default().insert(index);
            if let Some(outcome) = self.receive.apply_early_digest(file) {
                self.apply(file, outcome);
            }
        }
    }

    /// Checks a block of an earlier session; odd ones have no hash, like those of a local copy.
    pub(super) fn check(&mut self) {
        let unchecked: Vec<(u64, u64)> = self.unchecked.iter().copied().collect();
        let Some((file, index)) = self.random.pick(&unchecked) else { return };
        self.unchecked.remove(&(file, index));
        let hash = index.is_multiple_of(2).then(|| hash_of(file, index));
        if self.random.percent(30) {
            if self.receive.on_check_failed(file, index) {
                self.failed_checks.insert((file, index));
                self.outbox.messages.push(Message::Nack(Nack { file, index }));
            }
        } else if self.receive.on_block_checked(file, index, hash) {
            self.outbox.acks.entry(file).or_default().insert(index);
            if let Some(outcome) = self.receive.apply_early_digest(file) {
                self.apply(file, outcome);
            }
        }
    }

    fn pack_arrived(&mut self, files: &[u64], damaged: Option<Damage>) {
        for (at, &id) in files.iter().enumerate() {
            let size = self.plan(id).size;
            if self.receive.claim_packed(id, size).unwrap() == Claim::Ignore {
                continue;
            }
            let hit = match damaged {
                Some(Damage::One(one)) => one == at,
                Some(Damage::All) => true,
                None => false,
            };
            if hit {
                self.receive.release(id, 0);
                self.outbox.messages.push(Message::Nack(Nack { file: id, index: 0 }));
                continue;
            }
            assert!(self.verified.insert((id, 0)), "file {id} placed twice");
            self.receive.finish(id);
            self.receiving.remove(&id);
            self.complete.insert(id);
            self.outbox.finished.push(id);
        }
    }

    pub(super) fn receiver_gives_up(&mut self) {
        let ids: Vec<u64> = self.receiving.iter().copied().collect();
        let Some(id) = self.random.pick(&ids) else { return };
        self.give_ups -= 1;
        self.receive.give_up(id);
        self.receiving.remove(&id);
        self.given_up.insert(id);
        let failure = Failure::new(Cause::NoSpace, "the disk is full");
        self.outbox.messages.push(Message::Failed(Failed { file: id, failure }));
    }

    /// Ends the thread of a broken stream: releases its claim and reports the end.
    pub(super) fn receiver_notices(&mut self, at: usize) {
        let link = &mut self.links[at];
        link.receiver = End::Closed;
        link.frames.clear();
        let number = link.number;
        if let Some((file, index, _)) = link.arriving.take() {
            self.receive.release(file, index);
        }
        self.outbox.messages.push(Message::StreamEnded(number));
        if !self.push && !self.finish_seen {
            self.open_link();
        }
    }

    pub(super) fn done(&mut self) {
        self.done_sent = true;
        self.outbox.messages.push(Message::Done(SideSummary::default()));
    }
}
