//! Pseudocode of RFC 8289 (CoDel) and RFC 8290 (FQ-CoDel), run event by event.
//!
//! Marks replace drops of ECN-capable packets: a marked packet leaves, and no other is examined.

use super::bench::{Received, Sent};
use bankfull_sim::Ecn;
use std::collections::VecDeque;
use std::time::Duration;

/// RFC 8289 §4.2 and 4.3, in seconds.
const TARGET: f64 = 0.005;
const INTERVAL: f64 = 0.1;

/// Bytes of a full packet: the quantum of a turn, and a queue that is never too long.
const MAX_PACKET: i64 = 1500;

/// Queue of a flow, with the names of RFC 8289 §5.
#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<usize>,
    bytes: i64,
    deficit: i64,
    is_listed: bool,
    first_above_time: f64,
    dropping: bool,
    drop_next: f64,
    count: u32,
    lastcount: u32,
}

impl Queue {
    /// `dodequeue` of RFC 8289 §5.4: the next packet, and whether it may be dropped.
    fn take(&mut self, sent: &[Sent], now: f64) -> (Option<usize>, bool) {
        let Some(index) = self.packets.pop_front() else {
            self.first_above_time = 0.0;
            return (None, false);
        };
        self.bytes -= i64::from(sent[index].bytes);
        let sojourn = now - sent[index].at.as_secs_f64();
        if sojourn < TARGET || self.bytes <= MAX_PACKET {
            self.first_above_time = 0.0;
        } else if self.first_above_time == 0.0 {
            self.first_above_time = now + INTERVAL;
        } else if now >= self.first_above_time {
            return (Some(index), true);
        }
        (Some(index), false)
    }

    /// `control_law` of RFC 8289 §5.3.
    fn control_law(&self, from: f64) -> f64 {
        from + INTERVAL / f64::from(self.count).sqrt()
    }

    /// `dequeue` of RFC 8289 §5.5: the next packet, and whether it is marked.
    fn dequeue(&mut self, sent: &[Sent], now: f64) -> (Option<usize>, bool) {
        let can_mark = |found: Option<usize>| found.is_some_and(|n| sent[n].ecn == Ecn::Capable);
        let (mut found, mut may_drop) = self.take(sent, now);
        let mut marked = false;
        if self.dropping {
            self.dropping = may_drop;
            while now >= self.drop_next && self.dropping && !marked {
                marked = can_mark(found);
                self.count += 1;
                if !marked {
                    (found, may_drop) = self.take(sent, now);
                    self.dropping = may_drop;
                }
                if self.dropping {
                    self.drop_next = self.control_law(self.drop_next);
                }
            }
        } else if may_drop {
            marked = can_mark(found);
            if !marked {
                (found, _) = self.take(sent, now);
            }
            self.dropping = true;
            let delta = self.count - self.lastcount;
            let resumes = delta > 1 && now - self.drop_next < 16.0 * INTERVAL;
            self.count = if resumes { delta } else { 1 };
            self.drop_next = self.control_law(now);
            self.lastcount = self.count;
        }
        (found, marked)
    }
}

/// Queues of the flows, and the lists of RFC 8290 §4.2.
struct FairQueue {
    queues: Vec<Queue>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
}

impl FairQueue {
    fn enqueue(&mut self, sent: &[Sent], index: usize) {
        let number = sent[index].flow as usize;
        let queue = &mut self.queues[number];
        queue.packets.push_back(index);
        queue.bytes += i64::from(sent[index].bytes);
        if !queue.is_listed {
            (queue.is_listed, queue.deficit) = (true, MAX_PACKET);
            self.new.push_back(number);
        }
    }

    fn dequeue(&mut self, sent: &[Sent], now: f64) -> Option<(usize, bool)> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let number = list.pop_front()?;
            let queue = &mut self.queues[number];
            if queue.deficit <= 0 {
                queue.deficit += MAX_PACKET;
                self.old.push_back(number);
                continue;
            }
            if let (Some(index), is_marked) = queue.dequeue(sent, now) {
                queue.deficit -= i64::from(sent[index].bytes);
                list.push_front(number);
                return Some((index, is_marked));
            }
            match is_new {
                true => self.old.push_back(number),
                false => queue.is_listed = false,
            }
        }
    }
}

/// Returns the arrivals of packets behind an FQ-CoDel queue; flows are numbers below `flows`.
pub(super) fn fq_codel(sent: &[Sent], flows: usize, bits_per_sec: f64) -> Vec<Received> {
    let queues = (0..flows).map(|_| Queue::default()).collect();
    let mut fair = FairQueue { queues, new: VecDeque::new(), old: VecDeque::new() };
    let (mut now, mut entered, mut received) = (0.0, 0, Vec::new());
    loop {
        while let Some(packet) = sent.get(entered).filter(|one| one.at.as_secs_f64() <= now) {
            debug_assert!((packet.flow as usize) < flows);
            fair.enqueue(sent, entered);
            entered += 1;
        }
        if let Some((index, is_marked)) = fair.dequeue(sent, now) {
            now += f64::from(sent[index].bytes) * 8.0 / bits_per_sec;
            let at = Duration::from_secs_f64(now);
            received.push(Received { index, at, delay: at - sent[index].at, is_marked });
        } else if let Some(packet) = sent.get(entered) {
            now = packet.at.as_secs_f64();
        } else {
            return received;
        }
    }
}
