//! The sending side of the simulated world: does with its books what the engine does with them.

use super::FilePlan;
use super::world::{End, Frame, World, decoded};
use crate::support::hash_of;
use bankfull_proto::hash::FileHash;
use bankfull_proto::send::{Next, Work};
use bankfull_proto::wire::control::{
    Aborted, Cause, Failure, Message, Sealed, SideReport, Totals, Verdict, Want,
};
use bankfull_proto::wire::data::Header;

/// What the content of an unchanged file hashes to, on both sides.
pub(super) const SAME: [u8; 32] = [1; 32];

impl World {
    /// Announces a few more files, or says that these were all.
    pub(super) fn announce_some(&mut self) {
        let left = self.plans.len() - self.announced;
        if left == 0 {
            self.entries_ended = true;
            self.post_to_receiver(&Message::EntriesEnd(Totals::default()));
            self.send.end_of_entries();
            return;
        }
        let count = 1 + self.random.below(left);
        self.announce(count);
    }

    fn announce(&mut self, count: usize) {
        let ids = self.announced..self.announced + count;
        let entries: Vec<_> = ids.map(|at| self.plans[at].entry(at as u64 + 1)).collect();
        for entry in &entries {
            self.send.announce(entry).unwrap();
        }
        self.announced += count;
        self.post_to_receiver(&Message::Entries(entries));
    }

    pub(super) fn sender_reads(&mut self) {
        let Some(frame) = self.to_sender.pop_front() else { return };
        let message = decoded(&frame);
        self.sender_guard.admit(&message).unwrap();
        match message {
            Message::Wants(wants) => wants.iter().for_each(|want| self.on_want(want)),
            Message::Have(have) => self.send.on_have(&have).unwrap(),
            Message::Acks(acks) => {
                for ack in acks {
                    if self.send.on_acks(&ack).unwrap() == Next::Seal {
                        self.seal(ack.file);
                    }
                }
            }
            Message::Nack(nack) => {
                match self.send.on_nack(nack.file, nack.index).unwrap() {
                    Next::GiveUp => self.abort(nack.file, Cause::Verification, false),
                    // Not sealed any more, if it was.
                    Next::Work => drop(self.sending.insert(nack.file)),
                    _ => {}
                }
            }
            Message::Finished(files) => {
                for id in files {
                    self.send.on_finished(id).unwrap();
                    self.sending.remove(&id);
                }
            }
            Message::Failed(failed) => {
                self.send.drop_file(failed.file);
                self.sending.remove(&failed.file);
            }
            Message::StreamEnded(number) => self.on_stream_ended(number),
            Message::Done(_) => self.done_seen = true,
            other => panic!("the sender got {other:?}"),
        }
    }

    fn on_want(&mut self, want: &Want) {
        if matches!(want.verdict, Verdict::Send | Verdict::IfDiffers) {
            self.sending.insert(want.file);
            let holes = self.plan(want.file).holes.clone();
            if !holes.is_empty() {
                let holes = FilePlan::listed(want.file, &holes);
                self.send.on_holes(&holes).unwrap();
                self.post_to_receiver(&Message::Holes(holes));
            }
        }
        if self.send.on_want(want).unwrap() == Next::Seal {
            self.seal(want.file);
        }
    }

    /// A connection is closed on the far side. One that is not in use yet never will be.
    fn on_stream_ended(&mut self, number: u32) {
        self.send.stream_ended(number);
        if let Some(link) = self.links.iter_mut().find(|link| link.number == number) {
            link.cut = true;
            if link.sender == End::Waiting {
                link.sender = End::Closed;
            }
        }
    }

    fn seal(&mut self, id: u64) {
        if self.give_ups > 0 && self.random.percent(10) {
            self.give_ups -= 1;
            return self.abort(id, Cause::Changed, true);
        }
        self.sending.remove(&id);
        let hash = self.send.whole_hash(id).map(|hash| hash.0);
        self.post_to_receiver(&Message::Sealed(Sealed { file: id, hash }));
    }

    /// Gives a file up. One that only changed is announced again under a new number.
    fn abort(&mut self, id: u64, cause: Cause, again: bool) {
        let failure = Failure::new(cause, "given up");
        self.post_to_receiver(&Message::Aborted(Aborted { file: id, failure, again }));
        if again {
            let plan = FilePlan { here: Vec::new(), ..self.plan(id).clone() };
            // Numbers ascend in the order of the plans.
            self.plans.insert(self.announced, plan);
            self.announce(1);
        }
        self.send.drop_file(id);
        self.sending.remove(&id);
        self.given_up.insert(id);
    }

    pub(super) fn sender_gives_up(&mut self) {
        let ids: Vec<u64> = self.sending.iter().copied().collect();
        let Some(id) = self.random.pick(&ids) else { return };
        self.give_ups -= 1;
        let again = self.random.percent(50);
        self.abort(id, Cause::Changed, again);
    }

    /// A stream looks for something to do. False when there is nothing yet.
    pub(super) fn work(&mut self, at: usize) -> bool {
        let number = self.links[at].number;
        let Some(work) = self.send.next_work(number) else {
            if !self.send.is_settled() {
                return false;
            }
            self.put(at, Frame::End);
            if self.links[at].cut {
                self.sender_notices(at);
            }
            self.links[at].sender = End::Closed;
            return true;
        };
        match work {
            Work::Block { file, index } => self.send_block(at, file, index),
            Work::Pack(files) => {
                for &id in &files {
                    assert!(!self.verified.contains(&(id, 0)), "file {id} is sent again");
                }
                let files: Vec<u64> =
                    files.into_iter().filter(|&id| self.send.is_open(id)).collect();
                self.put(at, Frame::Pack { files, damaged: None });
            }
            Work::Compare { file, hash } => self.compare(file, hash),
        }
        true
    }

    fn send_block(&mut self, at: usize, file: u64, index: u64) {
        let plan = self.plan(file);
        let known = plan.here.contains(&index) || plan.holes.contains(&index);
        assert!(!known, "block {index} of file {file} is sent though it is there");
        assert!(!self.verified.contains(&(file, index)), "block {index} of file {file} again");
        let range = plan.layout().unwrap().range(index).unwrap();
        let len = (range.end - range.start) as u32;
        let header = Header::Block { file, offset: range.start, len }.encode();
        // A block that is sent again may find the source changed.
        let again = self.send.is_sent_again(file, index);
        if again && self.give_ups > 0 && self.random.percent(30) {
            self.give_ups -= 1;
            self.put(at, Frame::Block { header, damaged: true });
            return self.abort(file, Cause::Changed, true);
        }
        let next = self.send.sent_block(file, index, hash_of(file, index));
        // Where the source has changed, nothing is said yet.
        let is_unchanged = next == Next::SealAhead && self.random.percent(90);
        if is_unchanged && self.send.seal_ahead(file) {
            self.sending.remove(&file);
            let hash = self.send.whole_hash(file).map(|hash| hash.0);
            self.post_to_receiver(&Message::SealedAhead(Sealed { file, hash }));
        }
        self.blocks_sent += 1;
        self.put(at, Frame::Block { header, damaged: false });
    }

    /// Writes a frame. On a broken connection it goes nowhere, and that may stay unnoticed a while.
    fn put(&mut self, at: usize, frame: Frame) {
        if !self.links[at].cut {
            self.links[at].frames.push_back(frame);
        } else if self.random.percent(50) {
            self.sender_notices(at);
        }
    }

    fn compare(&mut self, file: u64, hash: FileHash) {
        if !self.send.is_open(file) {
            return;
        }
        match self.send.compared(file, hash.0 == SAME) {
            Next::Settled => {
                self.sending.remove(&file);
                self.post_to_receiver(&Message::Unchanged(vec![file]));
            }
            Next::Seal => self.seal(file),
            _ => {}
        }
    }

    pub(super) fn sender_notices(&mut self, at: usize) {
        let link = &mut self.links[at];
        if link.sender != End::Open {
            return;
        }
        link.sender = End::Closed;
        let number = link.number;
        self.post_to_receiver(&Message::StreamLost(number));
        if self.push && !self.send.is_settled() {
            self.open_link();
        }
    }

    pub(super) fn finish(&mut self) {
        self.finish_sent = true;
        self.sender_guard.finish_sent();
        self.post_to_receiver(&Message::Finish(SideReport::default()));
    }
}
