//! Datagrams at a constant rate, and the report of `crates/lab/programs/datagrams.c` on them.

use super::cases::{Figures, START};
use bankfull_sim::world::{ExternalPackets, LinkId, World};
use bankfull_sim::{Burst, Ecn};
use std::rc::Rc;
use std::time::Duration;

/// Interval that separates groups of arrivals, in ms (datagrams.c).
const GROUP_GAP_MS: f64 = 0.2;

/// Window of the figures over time, in seconds (kernel-queues.sh).
const WINDOW_S: u32 = 5;

/// Content of a datagram: its stream and its number.
pub(super) type Content = (usize, usize);

/// Stream of datagrams at a constant rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Datagrams {
    pub(super) start: Duration,
    pub(super) per_second: f64,
    pub(super) count: usize,
    pub(super) bytes: u32,
    pub(super) ecn: Ecn,
}

/// Arrival of a datagram.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) number: usize,
    pub(super) at: Duration,
    pub(super) is_marked: bool,
}

impl Datagrams {
    pub(super) fn new(per_second: f64, count: usize, bytes: u32) -> Self {
        Self { start: START, per_second, count, bytes, ecn: Ecn::NotCapable }
    }

    fn sent(&self, number: usize) -> Duration {
        self.start + Duration::from_secs_f64(number as f64 / self.per_second)
    }

    /// Lets all datagrams enter a link at their times.
    pub(super) fn inject(&self, world: &mut World<Content>, stream: usize, link: LinkId) {
        let route: Rc<[LinkId]> = Rc::new([link]);
        for number in 0..self.count {
            let external = ExternalPackets {
                content: (stream, number),
                burst: Burst::packet(self.bytes),
                first: 0,
                // No other flow has this hash.
                flow: 1001 + stream as u64,
                ecn: self.ecn,
                is_pure_ack: false,
                max_run: u32::MAX,
                route: Rc::clone(&route),
                not_before: Duration::ZERO,
                echo_hop: None,
                echoed_at: None,
            };
            world.inject(self.sent(number), external);
        }
    }

    fn delay_ms(&self, arrival: &Arrival) -> f64 {
        (arrival.at - self.sent(arrival.number)).as_secs_f64() * 1e3
    }

    /// Returns the figures of the report.
    pub(super) fn report(&self, arrivals: &[Arrival]) -> Figures {
        let mut figures = self.totals(arrivals);
        figures.extend(self.delays(arrivals));
        if self.per_second < 5000.0 {
            figures.extend(self.windows(arrivals));
        }
        figures.extend(self.groups(arrivals));
        figures
    }

    fn totals(&self, arrivals: &[Arrival]) -> Figures {
        let mut seen = vec![false; self.count];
        let (mut distinct, mut reordered, mut highest) = (0, 0, 0);
        for arrival in arrivals {
            if !std::mem::replace(&mut seen[arrival.number], true) {
                distinct += 1;
                // RFC 4737 §3.3: one sent later arrived earlier.
                reordered += usize::from(arrival.number < highest);
            }
            highest = highest.max(arrival.number);
        }
        let marked = arrivals.iter().filter(|arrival| arrival.is_marked).count();
        let percent = |part: usize, of: usize| 100.0 * part as f64 / of as f64;
        let (first, last_sent) = (arrivals[0].at, self.sent(highest));
        let early = arrivals.iter().take_while(|arrival| arrival.at <= last_sent).count();
        let bits = early.saturating_sub(1) as f64 * f64::from(self.bytes) * 8.0;
        let rate = bits / last_sent.saturating_sub(first).as_secs_f64() / 1e6;
        [
            ("lost", percent(self.count - distinct, self.count)),
            ("duplicated", percent(arrivals.len() - distinct, self.count)),
            ("reordered", percent(reordered, distinct)),
            ("marked", percent(marked, arrivals.len())),
            ("received rate", rate),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    fn delays(&self, arrivals: &[Arrival]) -> Figures {
        let mut delays: Vec<f64> = arrivals.iter().map(|one| self.delay_ms(one)).collect();
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        delays.sort_by(f64::total_cmp);
        let quantiles = [5, 25, 50, 75, 95, 99, 100].map(|percent| {
            let name = if percent == 100 { "max".to_owned() } else { format!("p{percent}") };
            (format!("delay {name}"), delays[percent * (delays.len() - 1) / 100])
        });
        [("delay mean".to_owned(), mean)].into_iter().chain(quantiles).collect()
    }

    /// Returns losses and delays by the time at which the datagrams were due.
    fn windows(&self, arrivals: &[Arrival]) -> Figures {
        let each = self.per_second * f64::from(WINDOW_S);
        let window = |number: usize| (number as f64 / each) as usize;
        let count = window(self.count - 1) + 1;
        let mut due = vec![0.0; count];
        (0..self.count).for_each(|number| due[window(number)] += 1.0);
        let mut got = vec![(0.0, 0.0); count];
        for arrival in arrivals {
            let (number, sum) = &mut got[window(arrival.number)];
            *number += 1.0;
            *sum += self.delay_ms(arrival);
        }
        let named = |(n, (due, (got, sum))): (u32, (f64, (f64, f64)))| {
            let name = format!("{}-{} s", n * WINDOW_S, (n + 1) * WINDOW_S);
            let lost = (format!("lost {name}"), 100.0 * (1.0 - got / due));
            [lost, (format!("delay mean {name}"), sum / got)]
        };
        (0..).zip(due.into_iter().zip(got)).flat_map(named).collect()
    }

    /// Returns figures of groups of arrivals: a burst that passed at once, or a slot.
    fn groups(&self, arrivals: &[Arrival]) -> Figures {
        let gap_ms = |pair: &[Arrival]| (pair[1].at - pair[0].at).as_secs_f64() * 1e3;
        let gaps = || arrivals.windows(2).map(gap_ms).filter(|gap| *gap >= GROUP_GAP_MS);
        let first = arrivals.windows(2).position(|pair| gap_ms(pair) >= GROUP_GAP_MS);
        let first = first.map_or(arrivals.len(), |at| at + 1);
        let groups = gaps().count() + 1;
        let mut figures = vec![
            ("passed at once".to_owned(), first as f64),
            ("packets per group".to_owned(), arrivals.len() as f64 / groups as f64),
            ("gap between groups".to_owned(), gaps().sum::<f64>() / gaps().count() as f64),
        ];
        if let Some(from) = arrivals.get(first) {
            let time = arrivals[arrivals.len() - 1].at - from.at;
            let bits = (arrivals.len() - 1 - first) as f64 * f64::from(self.bytes) * 8.0;
            figures.push(("rate after burst".to_owned(), bits / time.as_secs_f64() / 1e6));
        }
        figures
    }
}
