use super::*;

const TICK: Duration = Duration::from_millis(10);

/// A transfer whose rate follows from the number of its connections, in Mbit/s.
struct Transfer {
    tuner: Tuner,
    seen: Seen,
    bits: f64,
    /// How many connections were tried, in order.
    tried: Vec<u32>,
    last: Option<Decision>,
}

impl Transfer {
    fn new(streams: u32, most: u32) -> Self {
        let seen = Seen {
            now: Duration::ZERO,
            carrying: 0,
            received: Bytes(0),
            rtt: Duration::from_millis(20),
            state: State::StartBounded,
            is_short: false,
            is_crowded: false,
            is_lossy: false,
            offers_bbr: false,
            retransmits: 0,
            segment: pacing::SEGMENT_DATA,
            capacity: None,
            rate_max: None,
            least: 1,
            samples: [Looks::default(); 2],
            max_inflight_bytes: Bytes::mib(64),
            busy: [Duration::ZERO; 2],
            cpus: 8,
        };
        let tuner = Tuner::new(streams, most);
        Self { tuner, seen, bits: 0.0, tried: Vec::new(), last: None }
    }

    /// Goes on for so long. `held` is the share of the looks at which the source has nothing to
    /// send, `busy` what each connection has of a processor.
    fn run(&mut self, seconds: f64, mbit: impl Fn(f64) -> f64, held: f64, busy: f64) {
        for tick in 0..(seconds / TICK.as_secs_f64()) as u64 {
            self.seen.now += TICK;
            self.seen.carrying = self.tuner.streams();
            self.bits += mbit(self.tuner.streams().into()) * 1e6 * TICK.as_secs_f64();
            self.seen.received = Bytes((self.bits / 8.0) as u64);
            self.seen.samples[1].add(false);
            self.seen.samples[0].add((tick as f64 * held).fract() + held >= 1.0);
            self.seen.busy[0] += TICK.mul_f64(busy * f64::from(self.tuner.streams()));
            if let Some(decision) = self.tuner.observe(&self.seen) {
                self.tried.push(decision.streams);
                self.last = Some(decision);
            }
        }
    }

    fn on_path(&mut self, state: State, seconds: f64, mbit: impl Fn(f64) -> f64) {
        self.seen.state = state;
        self.run(seconds, mbit, 0.0, 0.1);
    }
}

fn full(_: f64) -> f64 {
    900.0
}

#[test]
fn on_a_full_path_nothing_is_tried() {
    let mut copy = Transfer::new(16, 64);
    copy.on_path(State::StartBounded, 1.0, full);
    copy.on_path(State::Limited, 120.0, full);
    assert_eq!(copy.tried, [0; 0]);
}

#[test]
fn where_the_user_wants_no_more_nothing_is_tried_though_turns_hold_the_source() {
    let tried = |rate_max| {
        let mut copy = Transfer::new(4, 64);
        (copy.seen.rate_max, copy.seen.capacity) = (rate_max, rate_max);
        (copy.seen.state, copy.seen.is_short) = (State::Disabled, true);
        copy.run(20.0, |_| 40.0, 1.0, 0.1);
        copy.tried
    };
    assert_eq!(tried(Some(Rate::from_bits_per_sec(40e6))), [0; 0]);
    assert_ne!(tried(None), [0; 0], "then it is the source that is slow");
}

#[test]
fn on_a_fast_line_no_more_are_kept_than_fill_it_in_whole_bursts() {
    let begins = |mbit: f64, least| {
        let mut copy = Transfer::new(16, 64);
        (copy.seen.capacity, copy.seen.least) = (Some(Rate::from_bits_per_sec(mbit * 1e6)), least);
        copy.on_path(State::StartBounded, 1.0, |_| 0.0);
        copy.tuner.streams()
    };
    assert_eq!([1e3, 2e3, 2.5e3, 4.8e3, 8e3].map(|mbit| begins(mbit, 1)), [16, 16, 8, 8, 14]);
    assert_eq!((begins(4.8e3, 12), begins(2e4, 1)), (12, 16));
    // Whoever begins with more has found them before.
    let mut copy = Transfer::new(64, 64);
    copy.seen.capacity = Some(Rate::from_bits_per_sec(4.8e9));
    copy.on_path(State::StartBounded, 1.0, |_| 0.0);
    assert_eq!(copy.tried, [0; 0]);
    // Once only: what was found since counts for more.
    let mut copy = Transfer::new(16, 64);
    copy.seen.capacity = Some(Rate::from_bits_per_sec(4.8e9));
    copy.on_path(State::Disabled, 15.0, |n| n * 10.0);
    assert_eq!((copy.tried[..2].to_vec(), copy.tuner.streams()), (vec![8, 16], 64));
}

#[test]
fn where_hosts_have_no_processor_left_fewer_and_fewer_are_tried_until_they_carry_less() {
    let mut copy = Transfer::new(16, 64);
    copy.seen.state = State::Limited;
    copy.run(120.0, |n| 900.0 - n, 0.8, 0.1);
    assert_eq!(copy.tried, [8, 4, 2], "nothing has changed since");
    let mut copy = Transfer::new(16, 64);
    copy.seen.state = State::Limited;
    copy.run(10.0, |n| (150.0 * n).min(900.0), 0.8, 0.1);
    assert_eq!(copy.tried, [8, 4, 8]);
    assert_eq!(copy.last.unwrap().reason, Reason::Found(Why::Fewest));
}

#[test]
fn windows_that_are_too_small_ask_for_more_at_once_and_keep_them() {
    let mut copy = Transfer::new(4, 64);
    copy.seen.least = 7;
    copy.on_path(State::Probing, 0.1, |_| 0.0);
    let windows = Decision { at: TICK, streams: 7, bbr: false, reason: Reason::Windows };
    assert_eq!((copy.last, copy.tried.len()), (Some(windows), 1));
    copy.on_path(State::Limited, 20.0, full);
    assert_eq!(copy.tuner.streams(), 7);
}

#[test]
fn on_a_congested_path_more_are_tried_until_they_bring_next_to_nothing() {
    let mut copy = Transfer::new(4, 64);
    let share = |n: f64| 900.0 * n / (n + 12.0);
    copy.on_path(State::Disabled, 15.0, share);
    assert_eq!(copy.tried[..3], [8, 16, 32]);
    let found = copy.tuner.streams();
    assert!(found >= 32 && share(found.into()) > 600.0, "{:?}", copy.tried);
    // A peak is found between samples.
    let mut copy = Transfer::new(4, 64);
    let peak = |n: f64| n / (1e-6 * n * n - 8e-6 * n + 1e-4).sqrt();
    copy.on_path(State::Disabled, 15.0, peak);
    let best = (1..=64).map(|n| peak(n.into())).fold(0.0, f64::max);
    assert!(peak(copy.tuner.streams().into()) > 0.95 * best, "{:?}", copy.tried);
}

#[test]
fn where_others_come_more_are_tried_and_where_a_host_is_the_limit_then_fewer() {
    let mut copy = Transfer::new(4, 16);
    let share = |n: f64| 900.0 * n / (n + 12.0);
    copy.on_path(State::Limited, 15.0, full);
    assert_eq!(copy.tuner.streams(), 4);
    copy.on_path(State::Disabled, 15.0, share);
    assert_eq!(copy.tuner.streams(), 16);
    copy.run(30.0, full, 0.9, 0.1);
    assert_eq!(copy.tuner.streams(), 2);
    copy.on_path(State::Disabled, 40.0, share);
    assert_eq!(copy.tuner.streams(), 16);
}

#[test]
fn a_path_that_changes_its_kind_again_and_again_is_not_searched_for_ever() {
    let mut copy = Transfer::new(8, 16);
    for _ in 0..60 {
        copy.run(12.0, full, 0.9, 0.1);
        copy.on_path(State::Disabled, 12.0, full);
    }
    assert!(copy.tried.len() < 20, "{:?}", copy.tried);
}

#[test]
fn a_slow_disk_reads_for_fewer_and_one_processor_for_each_is_made_use_of() {
    let mut disk = Transfer::new(8, 64);
    disk.seen.state = State::Limited;
    disk.run(20.0, |n| 120.0 + 400.0 / n, 0.8, 0.1);
    assert_eq!(disk.tuner.streams(), 2, "{:?}", disk.tried);
    let mut encryption = Transfer::new(2, 64);
    encryption.seen.state = State::Limited;
    encryption.run(20.0, |n| 500.0 * n, 0.8, 0.95);
    assert_eq!(encryption.tuner.streams(), 8, "{:?}", encryption.tried);
}

#[test]
fn while_a_host_holds_it_up_nothing_is_learnt_of_the_path() {
    let mut copy = Transfer::new(4, 64);
    let share = |n: f64| 900.0 * n / (n + 12.0);
    copy.on_path(State::Disabled, 2.0, share);
    // The source stands still for a while: what comes then is no sample.
    copy.run(3.0, |_| 1.0, 0.9, 0.1);
    copy.on_path(State::Disabled, 10.0, share);
    assert!(copy.tuner.streams() >= 16, "{:?}", copy.tried);
}

#[test]
fn where_first_windows_do_not_fit_two_are_taken_at_once() {
    let mut copy = Transfer::new(16, 64);
    copy.seen.is_crowded = true;
    copy.on_path(State::Disabled, 1.0, |n| 10.0 / n);
    assert_eq!(copy.tried, [2]);
    assert_eq!(copy.last.unwrap().reason, Reason::Fit(Ground::Crowded));
}

#[test]
fn a_fixed_number_stays() {
    let mut copy = Transfer::new(4, 4);
    copy.seen.least = 9;
    copy.on_path(State::Disabled, 30.0, |n| n);
    assert_eq!(copy.tried, [0; 0]);
}

/// A path of 80 ms that loses one of a thousand whatever the rate is; or, where others congest it,
/// one of twenty as soon as BBR takes more. `mbit` is the rate, without BBR and with it.
fn lossy(copy: &mut Transfer, seconds: f64, mbit: [f64; 2], others: bool) -> Vec<(bool, Reason)> {
    let (mut told, mut lost) = (Vec::new(), copy.seen.retransmits as f64);
    copy.seen.state = State::Disabled;
    copy.seen.rtt = Duration::from_millis(80);
    (copy.seen.is_lossy, copy.seen.offers_bbr) = (true, true);
    for _ in 0..(seconds / TICK.as_secs_f64()) as u64 {
        copy.seen.now += TICK;
        copy.seen.carrying = copy.tuner.streams();
        let is_bbr = copy.tuner.bbr().is_some();
        let bits = mbit[usize::from(is_bbr)] * 1e6 * TICK.as_secs_f64();
        copy.bits += bits;
        copy.seen.received = Bytes((copy.bits / 8.0) as u64);
        lost += bits / 8.0 / 1448.0 * if is_bbr && others { 0.05 } else { 0.001 };
        copy.seen.retransmits = lost as u64;
        copy.seen.samples.iter_mut().for_each(|looks| looks.add(false));
        if let Some(decision) = copy.tuner.observe(&copy.seen) {
            assert_eq!(decision.bbr, copy.tuner.bbr().is_some());
            told.push((decision.bbr, decision.reason));
        }
    }
    told
}

#[test]
fn where_losses_are_no_congestion_bbr_is_kept_and_the_number_of_connections_too() {
    let mut copy = Transfer::new(16, 64);
    let told = lossy(&mut copy, 9.0, [200.0, 450.0], false);
    assert!(matches!(told[0], (true, Reason::TryBbr(Ground::Lossy))), "{told:?}");
    assert!(matches!(told[1], (true, Reason::Bbr(Verdict::Keeps(..)))), "{told:?}");
    assert_eq!((told.len(), copy.tuner.streams()), (2, 16));
    // Others come: what BBR loses then is congestion.
    let told = lossy(&mut copy, 2.0, [200.0, 450.0], true);
    let [(false, grew), (false, then)] = told[..] else { panic!("{told:?}") };
    assert_eq!((grew, then), (Reason::LossGrew, Reason::TryMore(Ground::Congested)));
}

#[test]
fn where_others_congest_the_path_bbr_is_given_up_for_good_and_more_connections_are_tried() {
    let mut copy = Transfer::new(16, 64);
    let told = lossy(&mut copy, 60.0, [200.0, 450.0], true);
    assert!(matches!(told[1], (false, Reason::Bbr(Verdict::Loses))), "{told:?}");
    assert!(told[2..].iter().all(|(bbr, _)| !bbr) && told.len() > 2, "{told:?}");
}

#[test]
fn where_the_line_was_full_before_bbr_is_tried_again_when_it_no_longer_is() {
    let mut copy = Transfer::new(16, 64);
    copy.seen.capacity = Some(Rate::from_bits_per_sec(200e6));
    let told = lossy(&mut copy, 6.0, [192.0, 150.0], false);
    assert!(matches!(told[1], (false, Reason::Bbr(Verdict::NoGain(..)))), "{told:?}");
    assert_eq!(lossy(&mut copy, 30.0, [192.0, 150.0], false), [], "nothing has changed");
    let told = lossy(&mut copy, 20.0, [120.0, 190.0], false);
    assert!(matches!(told[1], (true, Reason::Bbr(Verdict::Keeps(..)))), "{told:?}");
    assert_eq!((told.len(), copy.tuner.streams()), (2, 16));
}

#[test]
fn a_trial_is_put_off_where_the_path_turns_out_to_be_held() {
    let mut copy = Transfer::new(16, 64);
    assert_eq!(lossy(&mut copy, 1.0, [200.0, 450.0], false), [], "the first sample is taken");
    copy.on_path(State::Limited, 3.0, |_| 200.0);
    assert_eq!((copy.tried.len(), copy.tuner.bbr()), (0, None));
    let told = lossy(&mut copy, 9.0, [200.0, 450.0], false);
    assert!(matches!(told[1], (true, Reason::Bbr(Verdict::Keeps(..)))), "{told:?}");
}

#[test]
fn much_more_than_the_line_was_told_to_carry_is_no_full_line() {
    let mbit = |rate: f64| Rate::from_bits_per_sec(rate * 1e6);
    let fills = |rate| fills(mbit(rate), Some(mbit(100.0)));
    assert_eq!([80.0, 95.0, 105.0, 150.0].map(fills), [false, true, true, false]);
}

#[test]
fn what_was_found_is_kept_while_nothing_changes_whenever_the_search_ended() {
    // With the round trip, what is left of a stretch when a search ends is longer or shorter.
    for rtt in 20..=60 {
        let mut copy = Transfer::new(8, 16);
        (copy.seen.state, copy.seen.rtt) = (State::Limited, Duration::from_millis(rtt));
        copy.run(120.0, |n| (150.0 * n).min(900.0), 0.8, 0.1);
        assert_eq!(copy.tried, [4, 8], "{rtt} ms");
    }
}

#[test]
fn where_windows_are_full_and_nobody_knows_the_path_more_connections_are_tried() {
    // Four of 1 MiB are 1.7 Gbit/s over 20 ms.
    let mut copy = Transfer::new(4, 64);
    copy.seen.max_inflight_bytes = Bytes::mib(1);
    let carries = |n: f64| (n * 410.0).min(2000.0);
    copy.on_path(State::StartOpen, 15.0, carries);
    assert!(carries(copy.tuner.streams().into()) > 1900.0, "{:?}", copy.tried);
    let mut wide = Transfer::new(4, 64);
    wide.on_path(State::StartOpen, 15.0, carries);
    assert_eq!(wide.tried, [0; 0]);
}

#[test]
fn a_sample_is_of_the_connections_that_there_are() {
    let seen = |now: u64, carrying| Seen {
        now: Duration::from_millis(now),
        carrying,
        received: Bytes(now * 1000),
        ..Transfer::new(4, 64).seen
    };
    let mut sampler = Sampler::new(16, Duration::ZERO);
    let taken = (1..600).find_map(|look| sampler.look(&seen(look * 10, 9)));
    assert_eq!(taken.unwrap().0.streams, 9);
    let mut sampler = Sampler::new(16, Duration::ZERO);
    let taken = (1..200).find_map(|look| sampler.look(&seen(look * 10, 16)));
    assert_eq!(taken.unwrap().0.streams, 16);
}
