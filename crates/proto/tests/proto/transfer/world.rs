//! Simulated world around the two ledgers: streams, events, faults, final checks.

use super::{FilePlan, Planned, Scenario};
use crate::support::{Random, packed, runs};
use bankfull_proto::blocks::{BlockSet, Layout};
use bankfull_proto::receive::ReceiveLedger;
use bankfull_proto::send::SendLedger;
use bankfull_proto::session::{Guard, Role};
use bankfull_proto::wire::control::{self, Entry, FileRuns, Message};
use bankfull_proto::wire::data::HEADER_BYTES;
use bankfull_proto::wire::frame::PREFIX_BYTES;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of consecutive steps without an event after which the simulation counts as stuck.
const MAX_IDLE_STEPS: u32 = 20_000;

/// State of one end of a data stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Attached, with its thread not started. Accepting side only.
    Waiting,
    Open,
    /// Ended, in order or by a fault.
    Closed,
}

/// A frame in flight.
#[derive(Debug)]
pub(super) enum Frame {
    Block {
        header: [u8; HEADER_BYTES],
        damaged: bool,
    },
    /// A pack of files.
    Pack {
        files: Vec<u64>,
        damaged: Option<Damage>,
    },
    End,
}

/// Damaged files of a pack.
#[derive(Debug, Clone, Copy)]
pub(super) enum Damage {
    One(usize),
    All,
}

/// A data stream.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: u32,
    pub(super) sender: End,
    pub(super) receiver: End,
    pub(super) frames: VecDeque<Frame>,
    /// Block that is claimed and whose payload has not arrived: file, number, damage.
    pub(super) arriving: Option<(u64, u64, bool)>,
    /// True if the stream is broken. Each side detects it at any later time.
    pub(super) cut: bool,
}

/// Unsent messages of the receiver. Acknowledgements are collected and written first.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) acks: BTreeMap<u64, BTreeSet<u64>>,
    pub(super) finished: Vec<u64>,
    pub(super) messages: Vec<Message>,
}

pub(super) struct World {
    pub(super) plans: Vec<FilePlan>,
    pub(super) push: bool,
    pub(super) random: Random,
    pub(super) send: SendLedger,
    pub(super) receive: ReceiveLedger,
    pub(super) sender_guard: Guard,
    pub(super) receiver_guard: Guard,
    pub(super) to_sender: VecDeque<Vec<u8>>,
    pub(super) to_receiver: VecDeque<Vec<u8>>,
    pub(super) outbox: Outbox,
    pub(super) links: Vec<Link>,
    next_stream: u32,
    losses: u32,
    damages: u32,
    pub(super) give_ups: u32,
    /// Number of announced plans.
    pub(super) announced: usize,
    pub(super) entries_ended: bool,
    pub(super) finish_sent: bool,
    pub(super) finish_seen: bool,
    pub(super) done_sent: bool,
    pub(super) done_seen: bool,
    /// Files that the sender may give up.
    pub(super) sending: BTreeSet<u64>,
    /// Files that the receiver may give up.
    pub(super) receiving: BTreeSet<u64>,
    /// Blocks that the receiver verified; a packed file counts as block 0.
    pub(super) verified: BTreeSet<(u64, u64)>,
    /// Blocks of an earlier session that are not checked.
    pub(super) unchecked: BTreeSet<(u64, u64)>,
    /// Blocks of an earlier session that failed the check.
    pub(super) failed_checks: BTreeSet<(u64, u64)>,
    pub(super) complete: BTreeSet<u64>,
    pub(super) given_up: BTreeSet<u64>,
    pub(super) blocks_sent: u64,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Announce,
    SenderReads,
    ReceiverReads,
    ReceiverWrites,
    Enter(usize),
    Work(usize),
    Arrive(usize),
    Check,
    SenderNotices(usize),
    ReceiverNotices(usize),
    Finish,
    Done,
}

impl World {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let mut world = Self {
            plans: scenario.files.clone(),
            push: scenario.push,
            random: Random(scenario.seed),
            send: SendLedger::default(),
            receive: ReceiveLedger::new(),
            sender_guard: Guard::new(Role::Sender),
            receiver_guard: Guard::new(Role::Receiver),
            to_sender: VecDeque::new(),
            to_receiver: VecDeque::new(),
            outbox: Outbox::default(),
            links: Vec::new(),
            next_stream: 0,
            losses: scenario.losses,
            damages: scenario.damages,
            give_ups: scenario.give_ups,
            announced: 0,
            entries_ended: false,
            finish_sent: false,
            finish_seen: false,
            done_sent: false,
            done_seen: false,
            sending: BTreeSet::new(),
            receiving: BTreeSet::new(),
            verified: BTreeSet::new(),
            unchecked: BTreeSet::new(),
            failed_checks: BTreeSet::new(),
            complete: BTreeSet::new(),
            given_up: BTreeSet::new(),
            blocks_sent: 0,
        };
        (0..scenario.streams).for_each(|_| world.open_link());
        world
    }

    /// Runs events until the sender has received `Done`.
    pub(super) fn run(&mut self) {
        let mut idle = 0;
        while !self.done_seen {
            if self.random.percent(6) {
                self.fault();
            }
            let events = self.possible_events();
            let event = self.random.pick(&events);
            let is_effective = event.is_some_and(|event| self.run_event(event));
            idle = if is_effective { 0 } else { idle + 1 };
            assert!(idle < MAX_IDLE_STEPS, "the simulation is stuck: {:?}", self.links);
        }
    }

    /// Checks the invariants at the end of a transfer.
    pub(super) fn check_end(&self) {
        assert!(self.send.is_complete() && self.send.outstanding_files() == 0);
        assert_eq!(self.receive.outstanding_ids().count(), 0, "the receiver has outstanding files");
        assert!(self.sender_guard.is_over() && self.receiver_guard.is_over());
        for (plan, id) in self.plans.iter().zip(1..) {
            let is_wanted = !matches!(plan.planned, Planned::Skip | Planned::Refuse);
            let given_up = self.given_up.contains(&id);
            let complete = self.complete.contains(&id);
            if !given_up {
                assert_eq!(complete, is_wanted, "file {id} {plan:?}");
            }
            // A packed file may be placed before its Aborted arrives. A file of blocks is given up
            // before its digest or not at all.
            assert!(!complete || !given_up || plan.block_bytes == 0, "file {id} {plan:?}");
            if complete && !matches!(plan.planned, Planned::Compare { .. }) {
                let sent = self.verified.range((id, 0)..(id + 1, 0)).map(|(_, index)| *index);
                let mut present: BTreeSet<u64> = sent.collect();
                present.extend(plan.present.iter().chain(&plan.holes));
                let count = plan.layout().map_or(1, |layout| layout.count());
                assert_eq!(present.len() as u64, count, "file {id} {plan:?}");
            }
        }
    }

    pub(super) fn plan(&self, id: u64) -> &FilePlan {
        &self.plans[id as usize - 1]
    }

    /// Connects a new data stream.
    pub(super) fn open_link(&mut self) {
        let (sender, receiver) =
            if self.push { (End::Open, End::Waiting) } else { (End::Waiting, End::Open) };
        // A sender that has finished accepts no stream.
        let is_refused = self.finish_sent;
        self.links.push(Link {
            number: self.next_stream,
            sender: if is_refused { End::Closed } else { sender },
            receiver,
            frames: VecDeque::new(),
            arriving: None,
            cut: is_refused,
        });
        self.next_stream += 1;
    }

    pub(super) fn post_to_receiver(&mut self, message: &Message) {
        self.to_receiver.push_back(control::encode(message).unwrap());
    }

    fn possible_events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        let mut add = |when: bool, event: Event| {
            if when {
                events.push(event);
            }
        };
        add(!self.entries_ended, Event::Announce);
        add(!self.to_sender.is_empty(), Event::SenderReads);
        add(!self.to_receiver.is_empty(), Event::ReceiverReads);
        add(!self.outbox.is_empty(), Event::ReceiverWrites);
        add(!self.unchecked.is_empty(), Event::Check);
        for (at, link) in self.links.iter().enumerate() {
            let arrives = !link.frames.is_empty() || link.arriving.is_some();
            add(link.sender == End::Waiting || link.receiver == End::Waiting, Event::Enter(at));
            add(link.sender == End::Open, Event::Work(at));
            add(link.receiver == End::Open && arrives, Event::Arrive(at));
            add(link.cut && link.sender == End::Open, Event::SenderNotices(at));
            add(link.cut && link.receiver == End::Open, Event::ReceiverNotices(at));
        }
        let sender_idle = self.links.iter().all(|link| link.sender == End::Closed);
        add(self.send.is_complete() && sender_idle && !self.finish_sent, Event::Finish);
        let receiver_idle = self.links.iter().all(|link| link.receiver == End::Closed);
        add(self.finish_seen && receiver_idle && !self.done_sent, Event::Done);
        events
    }

    /// Runs an event; false if it has no effect.
    fn run_event(&mut self, event: Event) -> bool {
        match event {
            Event::Announce => self.announce_some(),
            Event::SenderReads => self.sender_reads(),
            Event::ReceiverReads => self.receiver_reads(),
            Event::ReceiverWrites => self.receiver_writes(),
            Event::Enter(at) => self.enter(at),
            Event::Work(at) => return self.work(at),
            Event::Arrive(at) => self.arrive(at),
            Event::Check => self.check(),
            Event::SenderNotices(at) => self.sender_notices(at),
            Event::ReceiverNotices(at) => self.receiver_notices(at),
            Event::Finish => self.finish(),
            Event::Done => self.done(),
        }
        true
    }

    fn enter(&mut self, at: usize) {
        let link = &mut self.links[at];
        for end in [&mut link.sender, &mut link.receiver] {
            if *end == End::Waiting {
                *end = End::Open;
            }
        }
    }

    /// Causes a random fault.
    fn fault(&mut self) {
        match self.random.below(4) {
            0 if self.losses > 0 => self.cut_link(),
            1 if self.damages > 0 => self.damage_frame(),
            2 if self.give_ups > 0 => self.sender_gives_up(),
            3 if self.give_ups > 0 => self.receiver_gives_up(),
            _ => {}
        }
    }

    /// Breaks a stream. A random number of the frames in flight still arrives.
    fn cut_link(&mut self) {
        let whole: Vec<usize> = (0..self.links.len()).filter(|&at| !self.links[at].cut).collect();
        let Some(at) = self.random.pick(&whole) else { return };
        let in_flight = self.links[at].frames.len();
        let kept = self.random.below(in_flight + 1);
        self.links[at].frames.truncate(kept);
        self.links[at].cut = true;
        self.losses -= 1;
    }

    fn damage_frame(&mut self) {
        let at = self.random.below(self.links.len());
        let link = &mut self.links[at];
        if link.frames.is_empty() {
            return;
        }
        let which = self.random.below(link.frames.len());
        match &mut link.frames[which] {
            Frame::Block { damaged, .. } => *damaged = true,
            Frame::Pack { files, damaged } => {
                let one = Damage::One(self.random.below(files.len()));
                *damaged = Some(if self.random.percent(50) { one } else { Damage::All });
            }
            Frame::End => return,
        }
        self.damages -= 1;
    }
}

impl Outbox {
    fn is_empty(&self) -> bool {
        self.acks.is_empty() && self.finished.is_empty() && self.messages.is_empty()
    }
}

impl FilePlan {
    pub(super) fn layout(&self) -> Option<Layout> {
        Layout::new(self.size, self.block_bytes).ok()
    }

    pub(super) fn entry(&self, id: u64) -> Entry {
        let sparse = !self.holes.is_empty();
        Entry { block_bytes: self.block_bytes, sparse, ..packed(id, self.size) }
    }

    /// Returns the blocks of an earlier session as a set.
    pub(super) fn left(&self, count: u64) -> BlockSet {
        let mut set = BlockSet::new(count);
        for index in &self.present {
            set.insert(*index);
        }
        set
    }

    /// Returns block numbers as runs of one block.
    pub(super) fn single_runs(id: u64, numbers: &[u64]) -> FileRuns {
        let single: Vec<(u64, u64)> = numbers.iter().map(|&index| (index, 1)).collect();
        runs(id, &single)
    }
}

/// Decodes a frame.
pub(super) fn decoded(frame: &[u8]) -> Message {
    control::decode(&frame[PREFIX_BYTES..]).unwrap()
}
