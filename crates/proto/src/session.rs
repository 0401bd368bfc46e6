//! Which messages may come when: a guard that each side runs over what it receives, so that the
//! handlers behind it never see a message out of place.

use crate::wire::WireError;
use crate::wire::control::Message;

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
    entries_ended: bool,
}

impl Guard {
    /// A guard for a side with this role.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self { role, phase: Phase::Running, entries_ended: false }
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
            Role::Receiver => self.admit_from_sender(message),
            Role::Sender => self.admit_from_receiver(message),
        }
    }

    /// Notes that this side, the sender, has sent `Finish`.
    pub fn finish_sent(&mut self) {
        self.phase = Phase::Finishing;
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
        match message {
            // After the end, only files that changed while they were read are announced again.
            Message::Entries(_)
            | Message::Problem(_)
            | Message::Holes(_)
            | Message::Sealed(_)
            | Message::Aborted(_)
            | Message::Unchanged(_)
            | Message::Differs(_)
            | Message::StreamLost(_) => Ok(()),
            Message::EntriesEnd(_) if !self.entries_ended => {
                self.entries_ended = true;
                Ok(())
            }
            Message::Finish(_) if self.entries_ended => {
                self.phase = Phase::Over;
                Ok(())
            }
            _ => Err(WireError::Unexpected("a message that a sender does not send here")),
        }
    }

    fn admit_from_receiver(&mut self, message: &Message) -> Result<(), WireError> {
        match (message, self.phase) {
            (Message::Done(_), Phase::Finishing) => {
                self.phase = Phase::Over;
                Ok(())
            }
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
    use crate::wire::control::{Cause, Failed, Failure, FileRuns, Nack, SideReport, Totals};

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
    fn a_receiver_is_done_only_after_the_sender_finished() {
        let mut guard = Guard::new(Role::Sender);
        let done = Message::Done(SideReport::default());
        assert!(guard.admit(&done).is_err());
        guard.finish_sent();
        assert!(guard.admit(&Message::Wants(vec![])).is_err());
        assert!(guard.admit(&Message::StreamEnded(1)).is_ok());
        assert!(guard.admit(&done).is_ok());
        assert!(guard.is_over());
    }
}
