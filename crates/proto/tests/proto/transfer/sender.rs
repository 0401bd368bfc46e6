//! Sending side of the simulated world; uses its ledger like the engine.

use super::FilePlan;
use super::world::{End, Frame, World, decoded};
use crate::support::hash_of;
use bankfull_proto::hash::FileHash;
use bankfull_proto::limits::MAX_OUTSTANDING_FILES;
use bankfull_proto::send::{NextStep, Work};
use bankfull_proto::wire::control::{
    Aborted, Cause, Failure, FileDigest, Message, SideSummary, Totals, Verdict, Want,
};
use bankfull_proto::wire::data::Header;

/// Hash of an unchanged file on both sides.
pub(super) const UNCHANGED_HASH: [u8; 32] = [1; 32];

impl World {
    /// Announces some files, or the end of the entries.
    pub(super) fn announce_some(&mut self) {
        let left = self.plans.len() - self.announced;
        if left == 0 {
            self.entries_ended = true;
            self.post_to_receiver(&Message::EntriesEnd(Totals::default()));
            self.send.on_entries_end();
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
                    if self.send.on_acks(&ack).unwrap() == NextStep::SendDigest {
                        self.send_digest(ack.file);
                    }
                }
            }
            Message::Nack(nack) => {
                match self.send.on_nack(nack.file, nack.index).unwrap() {
                    NextStep::GiveUp => self.abort(nack.file, Cause::Verification, false),
                    // A damaged block voids an early digest.
                    NextStep::Work => drop(self.sending.insert(nack.file)),
                    NextStep::SendDigest => self.send_digest(nack.file),
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
                let holes = FilePlan::single_runs(want.file, &holes);
                self.send.on_holes(holes.clone(), MAX_OUTSTANDING_FILES).unwrap();
                self.post_to_receiver(&Message::Holes(holes));
            }
        }
        if self.send.on_want(want).unwrap() == NextStep::SendDigest {
            self.send_digest(want.file);
        }
    }

    /// Closes a stream that the receiver has closed. A waiting one never opens.
    fn on_stream_ended(&mut self, number: u32) {
        self.send.on_stream_ended(number);
        if let Some(link) = self.links.iter_mut().find(|link| link.number == number) {
            link.cut = true;
            if link.sender == End::Waiting {
                link.sender = End::Closed;
            }
        }
    }

    fn send_digest(&mut self, id: u64) {
        if self.give_ups > 0 && self.random.percent(10) {
            self.give_ups -= 1;
            return self.abort(id, Cause::SourceChanged, true);
        }
        self.sending.remove(&id);
        let hash = self.send.file_hash(id).map(|hash| hash.0);
        self.post_to_receiver(&Message::FileDigest(FileDigest { file: id, hash }));
    }

    /// Gives a file up. A retried file is announced again under a new number.
    fn abort(&mut self, id: u64, cause: Cause, will_retry: bool) {
        let failure = Failure::new(cause, "given up");
        self.post_to_receiver(&Message::Aborted(Aborted { file: id, failure, will_retry }));
        if will_retry {
            let plan = FilePlan { present: Vec::new(), ..self.plan(id).clone() };
            // Entry numbers ascend in the order of the plans.
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
        let will_retry = self.random.percent(50);
        self.abort(id, Cause::SourceChanged, will_retry);
    }

    /// Sends work on a stream; false if there is none.
    pub(super) fn work(&mut self, at: usize) -> bool {
        let number = self.links[at].number;
        let Some(work) = self.send.next_work(number) else {
            if !self.send.is_complete() {
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
                    files.into_iter().filter(|&id| self.send.is_outstanding(id)).collect();
                self.put(at, Frame::Pack { files, damaged: None });
            }
            Work::Compare { file, hash } => self.compare(file, hash),
        }
        true
    }

    fn send_block(&mut self, at: usize, file: u64, index: u64) {
        let plan = self.plan(file);
        let was_left =
            plan.present.contains(&index) && !self.failed_checks.contains(&(file, index));
        let is_present = was_left || plan.holes.contains(&index);
        assert!(!is_present, "block {index} of file {file} is sent though present");
        assert!(!self.verified.contains(&(file, index)), "block {index} of file {file} again");
        let range = plan.layout().unwrap().range(index).unwrap();
        let len = (range.end - range.start) as u32;
        let header = Header::Block { file, offset: range.start, len }.encode();
        // The source may have changed when a block is sent again.
        let is_resend = self.send.is_resend(file, index);
        if is_resend && self.give_ups > 0 && self.random.percent(30) {
            self.give_ups -= 1;
            self.put(at, Frame::Block { header, damaged: true });
            return self.abort(file, Cause::SourceChanged, true);
        }
        let next = self.send.on_block_sent(file, index, hash_of(file, index));
        // No early digest if the source has changed.
        let is_unchanged = next == NextStep::SendEarlyDigest && self.random.percent(90);
        if is_unchanged && self.send.record_early_digest(file) {
            self.sending.remove(&file);
            let hash = self.send.file_hash(file).map(|hash| hash.0);
            self.post_to_receiver(&Message::EarlyFileDigest(FileDigest { file, hash }));
        }
        self.blocks_sent += 1;
        self.put(at, Frame::Block { header, damaged: false });
    }

    /// Writes a frame. On a broken stream it is lost, and the sender may detect that later.
    fn put(&mut self, at: usize, frame: Frame) {
        if !self.links[at].cut {
            self.links[at].frames.push_back(frame);
        } else if self.random.percent(50) {
            self.sender_notices(at);
        }
    }

    fn compare(&mut self, file: u64, hash: FileHash) {
        if !self.send.is_outstanding(file) {
            return;
        }
        match self.send.on_compared(file, hash.0 == UNCHANGED_HASH) {
            NextStep::Completed => {
                self.sending.remove(&file);
                self.post_to_receiver(&Message::Unchanged(vec![file]));
            }
            NextStep::SendDigest => self.send_digest(file),
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
        if self.push && !self.send.is_complete() {
            self.open_link();
        }
    }

    pub(super) fn finish(&mut self) {
        self.finish_sent = true;
        self.sender_guard.on_finish_sent();
        self.post_to_receiver(&Message::Finish(SideSummary::default()));
    }
}
