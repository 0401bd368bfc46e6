//! Which messages may come when: a guard that each side runs over what it receives, so that the
//! handlers behind it never see a message out of place.

use crate::limits::DEPTH_MAX;
use crate::wire::WireError;
use crate::wire::control::{Aborted, Entry, EntryKind, Message};
use std::collections::HashMap;

/// Which part this side plays once the request is agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It sends files.
    Sender,
    /// It receives files.
    Receiver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Entries may still come (receiver's view) or verdicts on them (sender's view).
    Running,
    /// The sender said that it is finished.
    Finishing,
    /// Both said so.
    Over,
}

/// Admits the messages of a running transfer. The handshake before it is a fixed sequence and needs
/// no guard.
#[derive(Debug)]
pub struct Guard {
    role: Role,
    phase: Phase,
    announced: Announced,
}

/// What a sender has announced, as far as it decides what it may say next. Which files are still
/// open is the receiver's books' business; here they are counted.
#[derive(Debug, Default)]
struct Announced {
    /// How many directories are above what is in each directory.
    dirs: HashMap<u64, usize>,
    last_id: u64,
    /// Files that the sender has said nothing final of.
    open_files: u64,
    /// Files that it gave up to announce them again.
    retries: u64,
    ended: bool,
}

impl Announced {
    fn entry(&mut self, entry: &Entry) -> Result<(), WireError> {
        if self.ended {
            let again = entry.kind == EntryKind::File && self.retries > 0;
            if !again {
                return Err(WireError::Unexpected("an entry after the end of the entries"));
            }
            self.retries -= 1;
        }
        let above = match entry.parent {
            0 => 0,
            parent => *self.dirs.get(&parent).ok_or(WireError::BadFileId(parent))?,
        };
        if above > DEPTH_MAX {
            return Err(WireError::OverLimit {
                what: "the nesting of directories",
                max: DEPTH_MAX,
            });
        }
        self.last_id = self.last_id.max(entry.id);
        match entry.kind {
            EntryKind::Dir => drop(self.dirs.insert(entry.id, above + 1)),
            EntryKind::File => self.open_files += 1,
            EntryKind::Symlink => {}
        }
        Ok(())
    }

    /// The last word on some files: no more of them than there are.
    fn last_words(&mut self, files: usize) -> Result<(), WireError> {
        let left = self.open_files.checked_sub(files as u64);
        self.open_files =
            left.ok_or(WireError::Unexpected("more files end than were announced"))?;
        Ok(())
    }

    fn aborted(&mut self, aborted: &Aborted) -> Result<(), WireError> {
        if aborted.file == 0 || aborted.file > self.last_id {
            return Err(WireError::BadFileId(aborted.file));
        }
        self.retries += u64::from(aborted.again);
        self.last_words(1)
    }
}

impl Guard {
    /// A guard for a side with this role.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self { role, phase: Phase::Running, announced: Announced::default() }
    }

    /// Checks a message that came from the peer.
    ///
    /// # Errors
    /// [`WireError::Unexpected`] for a message that a peer in its role cannot send now.
    pub fn admit(&mut self, message: &Message) -> Result<(), WireError> {
        if matches!(message, Message::Ping | Message::Error(_)) {
            return Ok(());
        }
        match self.role {
            // How the path does is nobody's last word.
            Role::Receiver if matches!(message, Message::Sight(_)) => Ok(()),
            Role::Sender
                if matches!(
                    message,
                    Message::Pace(_) | Message::Trains(_) | Message::Course(_)
                ) =>
            {
                Ok(())
            }
            Role::Receiver => self.admit_from_sender(message),
            Role::Sender => self.admit_from_receiver(message),
        }
    }

    /// Notes that this side, the sender, has sent `Finish`. The receiver may have been done before.
    pub fn finish_sent(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Finishing;
        }
    }

    /// Whether the transfer ended in order.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    fn admit_from_sender(&mut self, message: &Message) -> Result<(), WireError> {
        if self.phase != Phase::Running {
            return Err(WireError::Unexpected("the sender spoke after it had finished"));
        }
        let announced = &mut self.announced;
        match message {
            Message::Entries(entries) => entries.iter().try_for_each(|e| announced.entry(e)),
            Message::Sealed(_) => announced.last_words(1),
            Message::Aborted(aborted) => announced.aborted(aborted),
            Message::Unchanged(files) | Message::Differs(files) => {
                announced.last_words(files.len())
            }
            // It may be taken back: no last word.
            Message::SealedAhead(_)
            | Message::Problem(_)
            | Message::Holes(_)
            | Message::StreamLost(_) => Ok(()),
            Message::EntriesEnd(_) if !announced.ended => {
                announced.ended = true;
                Ok(())
            }
            Message::Finish(_) if announced.ended => {
                self.phase = Phase::Over;
                Ok(())
            }
            _ => Err(WireError::Unexpected("a message that a sender does not send here")),
        }
    }

    fn admit_from_receiver(&mut self, message: &Message) -> Result<(), WireError> {
        match (message, self.phase) {
            // Unasked, where it knows by itself that all is settled.
            (Message::Done(_), Phase::Running | Phase::Finishing) => {
                self.phase = Phase::Over;
                Ok(())
            }
            // Asked for in advance, where the sender had no more.
            (Message::Asks(_), Phase::Running | Phase::Finishing) => Ok(()),
            (Message::Wants(_) | Message::Have(_), Phase::Running) => Ok(()),
            // Blocks of a file that the sender gave up may still be on their way when it finishes,
            // and the receiver may speak of them until it reads that.
            (
                Message::Acks(_)
                | Message::Nack(_)
                | Message::Finished(_)
                | Message::Failed(_)
                | Message::Problem(_)
                | Message::StreamEnded(_),
                Phase::Running | Phase::Finishing,
            ) => Ok(()),
            _ => Err(WireError::Unexpected("a message that a receiver does not send here")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Run;
    use crate::wire::control::{
        Cause, Failed, Failure, FileRuns, Nack, Sealed, SideReport, Totals,
    };

    fn entry(id: u64, parent: u64, kind: EntryKind) -> Entry {
        Entry {
            id,
            parent,
            name: b"name".to_vec(),
            kind,
            mode: 0,
            mtime_secs: 0,
            mtime_nanos: 0,
            size: 0,
            version: 0,
            uid: 0,
            gid: 0,
            block_bytes: 0,
            sparse: false,
            target: Vec::new(),
        }
    }

    fn file(id: u64) -> Message {
        Message::Entries(vec![entry(id, 0, EntryKind::File)])
    }

    fn aborted(file: u64, again: bool) -> Message {
        let failure = Failure::new(Cause::Changed, "it changed");
        Message::Aborted(Aborted { file, failure, again })
    }

    #[test]
    fn nothing_is_announced_deeper_than_the_limit() {
        let mut guard = Guard::new(Role::Receiver);
        let depth = DEPTH_MAX as u64;
        let dirs = (1..=depth + 1).map(|id| entry(id, id - 1, EntryKind::Dir)).collect();
        assert_eq!(guard.admit(&Message::Entries(dirs)), Ok(()));
        for (id, kind) in [(depth + 2, EntryKind::File), (depth + 3, EntryKind::Dir)] {
            let deepest = |parent| Message::Entries(vec![entry(id, parent, kind)]);
            assert_eq!(guard.admit(&deepest(depth)), Ok(()), "{kind:?}");
            let refused = guard.admit(&deepest(depth + 1));
            assert!(matches!(refused, Err(WireError::OverLimit { .. })), "{kind:?}: {refused:?}");
        }
    }

    #[test]
    fn what_is_announced_in_no_directory_is_refused() {
        let mut guard = Guard::new(Role::Receiver);
        assert!(guard.admit(&file(1)).is_ok());
        for parent in [1, 7] {
            let orphan = Message::Entries(vec![entry(2, parent, EntryKind::File)]);
            assert_eq!(guard.admit(&orphan), Err(WireError::BadFileId(parent)));
        }
    }

    #[test]
    fn a_file_ends_once_and_only_after_it_was_announced() {
        let sealed = |file| Message::Sealed(Sealed { file, hash: None });
        let ends = [aborted(1, false), sealed(1), Message::Unchanged(vec![1])];
        for (first, second) in ends.iter().flat_map(|a| ends.iter().map(move |b| (a, b))) {
            let mut guard = Guard::new(Role::Receiver);
            assert!(guard.admit(first).is_err(), "{first:?}");
            assert!(guard.admit(&file(1)).is_ok());
            assert!(guard.admit(&aborted(2, false)).is_err() && guard.admit(first).is_ok());
            assert!(guard.admit(second).is_err(), "{first:?} {second:?}");
        }
        // Nor does a directory or a symlink.
        let mut guard = Guard::new(Role::Receiver);
        let others = vec![entry(1, 0, EntryKind::Dir), entry(2, 0, EntryKind::Symlink)];
        assert!(guard.admit(&Message::Entries(others)).is_ok());
        assert!(guard.admit(&aborted(1, false)).is_err());
    }

    #[test]
    fn after_the_end_of_the_entries_only_files_given_up_for_that_are_announced_again() {
        let mut guard = Guard::new(Role::Receiver);
        for id in 1..=3 {
            assert!(guard.admit(&file(id)).is_ok());
        }
        assert!(guard.admit(&Message::EntriesEnd(Totals::default())).is_ok());
        assert!(guard.admit(&file(4)).is_err());
        assert!(guard.admit(&aborted(1, false)).is_ok());
        assert!(guard.admit(&file(5)).is_err());
        assert!(guard.admit(&aborted(2, true)).is_ok());
        let dir = Message::Entries(vec![entry(6, 0, EntryKind::Dir)]);
        assert!(guard.admit(&dir).is_err());
        assert!(guard.admit(&file(7)).is_ok());
        assert!(guard.admit(&file(8)).is_err());
    }

    #[test]
    fn a_sender_may_not_finish_before_its_entries_end_nor_speak_after() {
        let mut guard = Guard::new(Role::Receiver);
        let finish = Message::Finish(SideReport::default());
        assert!(guard.admit(&finish).is_err());
        assert!(guard.admit(&Message::EntriesEnd(Totals::default())).is_ok());
        assert!(guard.admit(&Message::EntriesEnd(Totals::default())).is_err());
        assert!(guard.admit(&Message::Entries(vec![])).is_ok());
        assert!(guard.admit(&finish).is_ok());
        assert!(guard.is_over());
        assert!(guard.admit(&Message::Entries(vec![])).is_err());
    }

    #[test]
    fn roles_do_not_mix() {
        assert!(Guard::new(Role::Receiver).admit(&Message::Acks(vec![])).is_err());
        assert!(Guard::new(Role::Sender).admit(&Message::Entries(vec![])).is_err());
        for role in [Role::Sender, Role::Receiver] {
            assert!(Guard::new(role).admit(&Message::Ping).is_ok());
        }
    }

    #[test]
    fn what_a_receiver_says_of_a_file_given_up_last_may_come_after_the_finish() {
        let mut guard = Guard::new(Role::Sender);
        guard.finish_sent();
        let failure = Failure::new(Cause::NoSpace, "the disk is full");
        let late = [
            Message::Acks(vec![FileRuns { file: 1, runs: vec![Run { first: 0, count: 1 }] }]),
            Message::Nack(Nack { file: 1, index: 1 }),
            Message::Failed(Failed { file: 1, failure }),
            Message::Finished(vec![1]),
            Message::StreamEnded(1),
        ];
        for message in late {
            assert_eq!(guard.admit(&message), Ok(()), "{message:?}");
        }
        assert!(guard.admit(&Message::Done(SideReport::default())).is_ok());
        assert!(guard.admit(&Message::Acks(vec![])).is_err());
    }

    #[test]
    fn a_receiver_is_done_once_asked_or_unasked_and_speaks_no_more() {
        let done = Message::Done(SideReport::default());
        for asked in [true, false] {
            let mut guard = Guard::new(Role::Sender);
            if asked {
                guard.finish_sent();
                assert!(guard.admit(&Message::Wants(vec![])).is_err());
            }
            assert!(guard.admit(&Message::StreamEnded(1)).is_ok());
            assert!(!guard.is_over() && guard.admit(&done).is_ok() && guard.is_over());
            // The sender's own word comes after it, where that was not needed.
            guard.finish_sent();
            assert!(guard.is_over());
            for late in [&done, &Message::Wants(vec![]), &Message::Acks(vec![])] {
                assert!(guard.admit(late).is_err(), "{late:?}");
            }
        }
    }
}
