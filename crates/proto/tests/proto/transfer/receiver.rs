//! The receiving side of the simulated world: does with its books what the engine does with them.

use super::sender::SAME;
use super::world::{Damage, End, Frame, World, decoded};
use super::{FilePlan, Planned};
use crate::support::{hash_of, want};
use bankfull_proto::hash::{FileHash, merge};
use bankfull_proto::receive::{Claim, Seal};
use bankfull_proto::wire::control::{
    self, Cause, Entry, Failed, Failure, Message, Nack, Sealed, SideReport, Verdict, Want,
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
                let fresh = self.receive.holes(&holes).unwrap();
                let here = &self.plan(holes.file).here;
                assert!(
                    fresh
                        .iter()
                        .flat_map(|run| run.first..run.first + run.count)
                        .all(|i| !here.contains(&i))
                );
            }
            Message::Sealed(Sealed { file, hash }) => {
                let seal = self.receive.seal(file, hash.map(FileHash)).unwrap();
                assert!(seal != Seal::Ignore || self.given_up.contains(&file));
                self.take_seal(file, seal);
            }
            Message::SealedAhead(Sealed { file, hash }) => {
                let seal = self.receive.seal_ahead(file, hash.map(FileHash)).unwrap();
                self.take_seal(file, seal);
            }
            Message::Aborted(aborted) => {
                self.receive.aborted(aborted.file).unwrap();
                self.receiving.remove(&aborted.file);
            }
            Message::Unchanged(files) => {
                for id in files {
                    let open = self.receive.open_ids().any(|of| of == id);
                    self.receive.finish(id);
                    self.receiving.remove(&id);
                    if open {
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
            Some(layout) => self.receive.expect_blocks(id, layout, &plan.here(id)),
            None => self.receive.expect_packed(id, plan.size),
        }
        self.receiving.insert(id);
        let have = FilePlan::listed(id, &plan.here);
        let ahead = self.random.percent(80).then_some(true);
        let same = matches!(plan.planned, Planned::Compare { equal: true });
        let hash = (verdict == Verdict::IfDiffers).then_some(if same { SAME } else { [2; 32] });
        if !have.runs.is_empty() && self.random.percent(50) {
            self.outbox.messages.push(Message::Have(have));
            return Want { hash, ahead, ..want(id, verdict) };
        }
        Want { have: have.runs, hash, ahead, ..want(id, verdict) }
    }

    fn take_seal(&mut self, id: u64, seal: Seal) {
        match seal {
            Seal::Complete(hash) => {
                if let (Some(hash), Some(layout)) = (hash, self.plan(id).layout()) {
                    let blocks: Vec<_> = (0..layout.count()).map(|at| hash_of(id, at)).collect();
                    assert_eq!(Some(hash), merge(&layout, &blocks));
                }
                self.receive.finish(id);
                self.receiving.remove(&id);
                assert!(self.complete.insert(id), "file {id} is put in place twice");
                self.outbox.finished.push(id);
            }
            Seal::Mismatch => panic!("the hashes of file {id} differ"),
            Seal::Ignore | Seal::Later => {}
        }
    }

    /// A connection that is closed already, or not in use yet, is reported at once; one in use is
    /// when its thread has let go of it.
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

    /// Writes what is to be said, acknowledgements first.
    pub(super) fn receiver_writes(&mut self) {
        let acks = std::mem::take(&mut self.outbox.acks);
        let mut messages = Vec::new();
        if !acks.is_empty() {
            let listed = acks.into_iter().map(|(id, indices)| {
                let indices: Vec<u64> = indices.into_iter().collect();
                FilePlan::listed(id, &indices)
            });
            messages.push(Message::Acks(listed.collect()));
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

    /// More of a frame arrives: the header of a block, then the rest; a pack as a whole.
    pub(super) fn arrive(&mut self, at: usize) {
        if let Some((file, index, damaged)) = self.links[at].arriving.take() {
            return self.block_arrived(file, index, damaged);
        }
        match self.links[at].frames.pop_front() {
            Some(Frame::Block { header, damaged }) => {
                let Ok(Header::Block { file, offset, len }) = Header::decode(&header) else {
                    panic!("a header did not survive the wire")
                };
                match self.receive.claim_block(file, offset, len).unwrap() {
                    Claim::Take(index) => {
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
            self.receive.damaged(file, index);
            self.outbox.messages.push(Message::Nack(Nack { file, index }));
        } else if self.receive.verified(file, index, hash_of(file, index)) {
            assert!(self.verified.insert((file, index)), "block {index} of {file} accepted twice");
            self.outbox.acks.entry(file).or_default().insert(index);
            if let Some(seal) = self.receive.seal_now(file) {
                self.take_seal(file, seal);
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

    /// The thread of a broken connection lets go of what it was receiving, and says so.
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
        self.outbox.messages.push(Message::Done(SideReport::default()));
    }
}
