//! Order of messages: a guard that each side applies to received messages before handling them.

use crate::error::WireError;
use crate::limits::{MAX_ACCOUNTS, MAX_DIRECTORY_DEPTH};
use crate::wire::control::{Aborted, Entry, EntryKind, Message};
use std::collections::HashMap;

/// Role of this side in a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends files.
    Sender,
    /// Receives files.
    Receiver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before `Finish`.
    Running,
    /// After `Finish` (sender only).
    Finishing,
    /// After the last message of the peer.
    Over,
}

/// Checks the order of the messages of a transfer. The handshake is a fixed sequence and needs no
/// guard.
#[derive(Debug)]
pub struct Guard {
    role: Role,
    phase: Phase,
    announced: Announced,
    list: ListState,
    /// The peer is a client that may change the rate limit.
    follows_rate: bool,
}

/// State of a list of names, which the sender requests in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListState {
    /// No part is requested.
    Idle,
    /// A part is requested.
    Requested,
    /// The last part was empty.
    Ended,
}

/// Announcements of the sender, as far as they restrict its next messages. Outstanding files are
/// counted here; the receive ledger knows which they are.
#[derive(Debug, Default)]
struct Announced {
    /// Depth of the contents of each directory, by its number.
    dirs: HashMap<u64, usize>,
    last_id: u64,
    /// Files without a final message of the sender.
    outstanding_files: u64,
    /// Files that were aborted and may be announced again.
    retries: u64,
    /// Accounts, repeated ones included, since the receiver looks up the name of each.
    accounts: usize,
    ended: bool,
}

impl Announced {
    fn on_entry(&mut self, entry: &Entry) -> Result<(), WireError> {
        if self.ended {
            let has_content = !matches!(entry.kind, EntryKind::Dir | EntryKind::HardLink);
            let is_retry = has_content && self.retries > 0;
            if !is_retry {
                return Err(WireError::Unexpected("an entry after EntriesEnd"));
            }
            self.retries -= 1;
        }
        let depth = match entry.parent {
            0 => 0,
            parent => *self.dirs.get(&parent).ok_or(WireError::BadFileId(parent))?,
        };
        if depth > MAX_DIRECTORY_DEPTH {
            return Err(WireError::OverLimit {
                what: "the nesting of directories",
                max: MAX_DIRECTORY_DEPTH,
            });
        }
        self.last_id = self.last_id.max(entry.id);
        match entry.kind {
            EntryKind::Dir => drop(self.dirs.insert(entry.id, depth + 1)),
            // A further name may be withdrawn, and announced with its content.
            EntryKind::File | EntryKind::HardLink => self.outstanding_files += 1,
            EntryKind::Symlink | EntryKind::Special => {}
        }
        Ok(())
    }

    fn on_accounts(&mut self, count: usize) -> Result<(), WireError> {
        self.accounts += count;
        match self.accounts > MAX_ACCOUNTS {
            true => Err(WireError::OverLimit { what: "the number of accounts", max: MAX_ACCOUNTS }),
            false => Ok(()),
        }
    }

    fn on_completed_dirs(&mut self, dirs: &[u64]) -> Result<(), WireError> {
        let mut known = dirs.iter().map(|dir| self.dirs.remove(dir).ok_or(*dir));
        known.try_for_each(|known| known.map(drop)).map_err(WireError::BadFileId)
    }

    /// Counts files that got their final message.
    fn on_final(&mut self, files: usize) -> Result<(), WireError> {
        let left = self.outstanding_files.checked_sub(files as u64);
        self.outstanding_files =
            left.ok_or(WireError::Unexpected("more files ended than were announced"))?;
        Ok(())
    }

    fn on_aborted(&mut self, aborted: &Aborted) -> Result<(), WireError> {
        if aborted.file == 0 || aborted.file > self.last_id {
            return Err(WireError::BadFileId(aborted.file));
        }
        self.on_final(1)?;
        self.retries += u64::from(aborted.will_retry);
        Ok(())
    }
}

impl Guard {
    /// Creates the guard of a side with this role.
    #[must_use]
    pub fn new(role: Role) -> Self {
        let (phase, list) = (Phase::Running, ListState::Idle);
        Self { role, phase, announced: Announced::default(), list, follows_rate: false }
    }

    /// Allows the peer to change the rate limit, if `follows` is set.
    #[must_use]
    pub fn with_rate_changes(self, follows: bool) -> Self {
        Self { follows_rate: follows, ..self }
    }

    /// Checks a message of the peer.
    ///
    /// # Errors
    /// [`WireError::Unexpected`] for a message that the peer must not send now, or
    /// [`WireError::OverLimit`] for one too many.
    pub fn admit(&mut self, message: &Message) -> Result<(), WireError> {
        if matches!(message, Message::Ping | Message::Error(_)) {
            return Ok(());
        }
        if matches!(message, Message::RateLimit(_)) {
            let refused = WireError::Unexpected("a rate limit that was not agreed on");
            return if self.follows_rate { Ok(()) } else { Err(refused) };
        }
        match self.role {
            // Feedback is allowed at any time.
            Role::Receiver if matches!(message, Message::SenderReport(_)) => Ok(()),
            Role::Sender
                if matches!(
                    message,
                    Message::RateRequest(_) | Message::TrainRequest(_) | Message::ReceiverReport(_)
                ) =>
            {
                Ok(())
            }
            Role::Receiver => self.admit_from_sender(message),
            Role::Sender => self.admit_from_receiver(message),
        }
    }

    /// Records that this side, the sender, sent `Finish`. The receiver may have sent `Done` before.
    pub fn on_finish_sent(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Finishing;
        }
    }

    /// Records that this side, the sender, requested names of a list.
    pub fn on_list_requested(&mut self) {
        if self.list == ListState::Idle {
            self.list = ListState::Requested;
        }
    }

    /// True if the transfer ended in order.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    fn admit_from_sender(&mut self, message: &Message) -> Result<(), WireError> {
        if self.phase != Phase::Running {
            return Err(WireError::Unexpected("a message after Finish"));
        }
        let announced = &mut self.announced;
        match message {
            Message::Entries(entries) => entries.iter().try_for_each(|e| announced.on_entry(e)),
            Message::FileDigest(_) => announced.on_final(1),
            Message::CompletedDirs(dirs) => announced.on_completed_dirs(dirs),
            Message::Aborted(aborted) => announced.on_aborted(aborted),
            Message::Unchanged(files) | Message::Differs(files) => announced.on_final(files.len()),
            Message::Accounts(accounts) => announced.on_accounts(accounts.len()),
            Message::ListRequest if !announced.ended => Ok(()),
            // An early digest is not final: damage voids it.
            Message::EarlyFileDigest(_)
            | Message::Problem(_)
            | Message::Holes(_)
            | Message::FileEnd(_)
            | Message::LeftOut(_)
            | Message::StreamLost(_) => Ok(()),
            Message::EntriesEnd(_) if !announced.ended => {
                announced.ended = true;
                Ok(())
            }
            Message::Finish(_) if announced.ended => {
                self.phase = Phase::Over;
                Ok(())
            }
            _ => Err(WireError::Unexpected("a message that a sender must not send now")),
        }
    }

    fn admit_from_receiver(&mut self, message: &Message) -> Result<(), WireError> {
        match (message, self.phase) {
            // Before `Finish` if the receiver knows that all files are completed.
            (Message::Done(_), Phase::Running | Phase::Finishing) => {
                self.phase = Phase::Over;
                Ok(())
            }
            // Credit may arrive after the last data.
            (Message::Credits(_), Phase::Running | Phase::Finishing) => Ok(()),
            (Message::Wants(_) | Message::Have(_), Phase::Running) => Ok(()),
            // One part for each request, so that two are in memory at most.
            (Message::ListPart(names), Phase::Running) if self.list == ListState::Requested => {
                self.list = if names.is_empty() { ListState::Ended } else { ListState::Idle };
                Ok(())
            }
            // Blocks of an aborted file may still be in flight after `Finish`; the receiver answers
            // them until it reads `Finish`.
            (
                Message::Acks(_)
                | Message::Nack(_)
                | Message::Finished(_)
                | Message::Failed(_)
                | Message::Problem(_)
                | Message::Deleted(_)
                | Message::Changes(_)
                | Message::StreamEnded(_),
                Phase::Running | Phase::Finishing,
            ) => Ok(()),
            _ => Err(WireError::Unexpected("a message that a receiver must not send now")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Run;
    use crate::limits::MAX_OWNER_NAMES;
    use crate::wire::control::{
        Account, AccountKind, Cause, Failed, Failure, FileDigest, FileRuns, Nack, PathBytes,
        RateLimit, SideSummary, Totals,
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
            extra: None,
        }
    }

    fn file(id: u64) -> Message {
        Message::Entries(vec![entry(id, 0, EntryKind::File)])
    }

    fn aborted(file: u64, will_retry: bool) -> Message {
        let failure = Failure::new(Cause::SourceChanged, "changed");
        Message::Aborted(Aborted { file, failure, will_retry })
    }

    #[test]
    fn guard_entry_over_the_depth_limit_is_refused() {
        let mut guard = Guard::new(Role::Receiver);
        let depth = MAX_DIRECTORY_DEPTH as u64;
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
    fn guard_accounts_are_counted_however_often_named() {
        let mut guard = Guard::new(Role::Receiver);
        let (kind, name, mapped, required) = (AccountKind::User, None, None, None);
        let accounts = |count| {
            Message::Accounts(vec![
                Account { kind, id: 7, name: name.clone(), mapped, required };
                count
            ])
        };
        for _ in 0..MAX_ACCOUNTS / MAX_OWNER_NAMES {
            assert_eq!(guard.admit(&accounts(MAX_OWNER_NAMES)), Ok(()));
        }
        let refused = WireError::OverLimit { what: "the number of accounts", max: MAX_ACCOUNTS };
        assert_eq!(guard.admit(&accounts(1)), Err(refused));
    }

    #[test]
    fn guard_entry_without_a_directory_is_refused() {
        let mut guard = Guard::new(Role::Receiver);
        assert!(guard.admit(&file(1)).is_ok());
        for parent in [1, 7] {
            let orphan = Message::Entries(vec![entry(2, parent, EntryKind::File)]);
            assert_eq!(guard.admit(&orphan), Err(WireError::BadFileId(parent)));
        }
    }

    #[test]
    fn guard_rate_limit_is_refused_unless_agreed_on() {
        let message = Message::RateLimit(RateLimit { bytes_per_sec: Some(1_000_000) });
        for role in [Role::Sender, Role::Receiver] {
            let admit = |guard: Guard| guard.with_rate_changes(false).admit(&message);
            assert!(matches!(admit(Guard::new(role)), Err(WireError::Unexpected(_))), "{role:?}");
            let mut guard = Guard::new(role).with_rate_changes(true);
            assert_eq!(guard.admit(&message), Ok(()), "{role:?}");
            // A rate limit may still arrive after this side has sent `Finish`.
            guard.on_finish_sent();
            assert_eq!(guard.admit(&message), Ok(()), "{role:?}");
        }
    }

    #[test]
    fn guard_directory_is_completed_once_and_then_empty() {
        let mut guard = Guard::new(Role::Receiver);
        let completed = Message::CompletedDirs(vec![1]);
        assert_eq!(guard.admit(&completed), Err(WireError::BadFileId(1)));
        let dir = Message::Entries(vec![entry(1, 0, EntryKind::Dir)]);
        assert!(guard.admit(&dir).is_ok() && guard.admit(&completed).is_ok());
        let child = Message::Entries(vec![entry(2, 1, EntryKind::File)]);
        for refused in [&completed, &child] {
            assert_eq!(guard.admit(refused), Err(WireError::BadFileId(1)));
        }
        assert!(Guard::new(Role::Sender).admit(&completed).is_err());
    }

    #[test]
    fn guard_file_ends_once_and_after_its_entry() {
        let digest = |file| Message::FileDigest(FileDigest { file, hash: None });
        let ends = [aborted(1, false), digest(1), Message::Unchanged(vec![1])];
        for (first, second) in ends.iter().flat_map(|a| ends.iter().map(move |b| (a, b))) {
            let mut guard = Guard::new(Role::Receiver);
            assert!(guard.admit(first).is_err(), "{first:?}");
            assert!(guard.admit(&file(1)).is_ok());
            assert!(guard.admit(&aborted(2, false)).is_err() && guard.admit(first).is_ok());
            assert!(guard.admit(second).is_err(), "{first:?} {second:?}");
        }
        // Directories and symlinks have no final message.
        let mut guard = Guard::new(Role::Receiver);
        let entries = vec![entry(1, 0, EntryKind::Dir), entry(2, 0, EntryKind::Symlink)];
        assert!(guard.admit(&Message::Entries(entries)).is_ok());
        assert!(guard.admit(&aborted(1, false)).is_err());
    }

    #[test]
    fn guard_after_entries_end_only_retries_are_announced() {
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
    fn guard_withdrawn_further_name_is_announced_with_its_content() {
        let mut guard = Guard::new(Role::Receiver);
        let of_kind = |id, kind| Message::Entries(vec![entry(id, 0, kind)]);
        assert!(guard.admit(&of_kind(1, EntryKind::HardLink)).is_ok());
        assert!(guard.admit(&Message::EntriesEnd(Totals::default())).is_ok());
        assert!(guard.admit(&aborted(1, true)).is_ok() && guard.admit(&aborted(1, true)).is_err());
        assert!(guard.admit(&of_kind(2, EntryKind::HardLink)).is_err());
        assert!(guard.admit(&of_kind(2, EntryKind::Symlink)).is_ok());
        assert!(guard.admit(&of_kind(3, EntryKind::Symlink)).is_err());
    }

    #[test]
    fn guard_finish_needs_entries_end_and_is_last() {
        let mut guard = Guard::new(Role::Receiver);
        let finish = Message::Finish(SideSummary::default());
        assert!(guard.admit(&finish).is_err());
        assert!(guard.admit(&Message::EntriesEnd(Totals::default())).is_ok());
        assert!(guard.admit(&Message::EntriesEnd(Totals::default())).is_err());
        assert!(guard.admit(&Message::Entries(vec![])).is_ok());
        assert!(guard.admit(&finish).is_ok());
        assert!(guard.is_over());
        assert!(guard.admit(&Message::Entries(vec![])).is_err());
    }

    #[test]
    fn guard_part_of_a_list_answers_a_request() {
        let part = Message::ListPart(vec![PathBytes(b"a".to_vec())]);
        let end = Message::ListPart(Vec::new());
        let mut guard = Guard::new(Role::Sender);
        assert!(guard.admit(&part).is_err() && guard.admit(&Message::ListRequest).is_err());
        guard.on_list_requested();
        assert!(guard.admit(&part).is_ok() && guard.admit(&part).is_err());
        guard.on_list_requested();
        assert!(guard.admit(&end).is_ok() && guard.admit(&end).is_err());
        guard.on_list_requested();
        assert!(guard.admit(&part).is_err());
        let mut guard = Guard::new(Role::Receiver);
        assert!(guard.admit(&Message::ListRequest).is_ok() && guard.admit(&part).is_err());
        assert!(guard.admit(&Message::EntriesEnd(Totals::default())).is_ok());
        assert!(guard.admit(&Message::ListRequest).is_err());
    }

    #[test]
    fn guard_messages_of_the_wrong_role_are_refused() {
        assert!(Guard::new(Role::Receiver).admit(&Message::Acks(vec![])).is_err());
        assert!(Guard::new(Role::Sender).admit(&Message::Entries(vec![])).is_err());
        for role in [Role::Sender, Role::Receiver] {
            assert!(Guard::new(role).admit(&Message::Ping).is_ok());
        }
    }

    #[test]
    fn guard_answers_for_aborted_files_follow_finish() {
        let mut guard = Guard::new(Role::Sender);
        guard.on_finish_sent();
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
        assert!(guard.admit(&Message::Done(SideSummary::default())).is_ok());
        assert!(guard.admit(&Message::Acks(vec![])).is_err());
    }

    #[test]
    fn guard_done_is_last_with_or_without_finish() {
        let done = Message::Done(SideSummary::default());
        for is_finish_sent in [true, false] {
            let mut guard = Guard::new(Role::Sender);
            if is_finish_sent {
                guard.on_finish_sent();
                assert!(guard.admit(&Message::Wants(vec![])).is_err());
            }
            assert!(guard.admit(&Message::StreamEnded(1)).is_ok());
            assert!(!guard.is_over() && guard.admit(&done).is_ok() && guard.is_over());
            // `Finish` may follow an early `Done`.
            guard.on_finish_sent();
            assert!(guard.is_over());
            for late in [&done, &Message::Wants(vec![]), &Message::Acks(vec![])] {
                assert!(guard.admit(late).is_err(), "{late:?}");
            }
        }
    }
}
