use super::*;

const MS: Duration = Duration::from_millis(1);
const RTT: Duration = Duration::from_micros(100);
const MSS: u64 = DEFAULT_MSS.0;

fn gigabit() -> Config {
    Config { capacity: Some(Rate::from_bits_per_sec(965e6)), ..Config::default() }
}

fn new_connection() -> NewConnection {
    NewConnection {
        mss: DEFAULT_MSS,
        rtt: Some(RTT),
        offered_window: Bytes(10 * MSS),
        grant_driven: true,
        lost_segments: 0,
    }
}

/// Controller with grant-driven connections.
fn control_with(config: Config, count: u64) -> Ictcp {
    let mut control = Ictcp::new(config);
    (0..count).for_each(|id| control.join(Duration::ZERO, id, &new_connection()));
    control
}

fn poll(control: &mut Ictcp, now: Duration) -> Vec<Action> {
    control.poll_actions(now).collect()
}

fn granted(actions: &[Action]) -> Vec<(ConnectionId, u64)> {
    let grants = actions.iter().filter_map(|order| match order {
        Action::Grant(id, bytes) => Some((*id, bytes.0)),
        _ => None,
    });
    grants.collect()
}

fn set_windows(actions: &[Action]) -> Vec<(ConnectionId, u64, Reason)> {
    let windows = actions.iter().filter_map(|order| match order {
        Action::SetWindow(id, window, reason) => Some((*id, window.0 / MSS, *reason)),
        _ => None,
    });
    windows.collect()
}

/// Delivers data at constant rates in Mbit/s for some milliseconds, with ticks. Returns the
/// actions.
fn deliver(
    control: &mut Ictcp,
    from: Duration,
    time: u32,
    rates: &[(ConnectionId, f64)],
    rtt: Duration,
) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut received: Vec<u64> = rates.iter().map(|(id, _)| control.received_on(*id)).collect();
    for ms in 1..=time {
        let now = from + MS * ms;
        for ((id, mbit), received) in rates.iter().zip(&mut received) {
            *received += (mbit * 1e6 / 8.0 / 1e3) as u64;
            control.on_received(now, *id, Bytes(*received));
        }
        if ms % 10 == 0 {
            let samples = rates.iter().zip(&received).map(|(&(id, _), &received)| Sample {
                rtt: Some(rtt),
                ..Sample::new(id, Bytes(received))
            });
            let samples: Vec<Sample> = samples.collect();
            control.tick(now, &samples);
        }
        actions.extend(control.poll_actions(now));
    }
    actions
}

#[test]
fn few_senders_start_with_their_fair_share() {
    let mut control = control_with(gigabit(), 4);
    (0..4).for_each(|id| control.add_demand(id, Bytes::kib(64)));
    let actions = poll(&mut control, MS);
    // 40 kB of queue and 12 kB of BDP among four, in whole segments.
    assert!(
        set_windows(&actions).iter().all(|w| (w.1, w.2) == (8, Reason::Initial)),
        "{actions:?}"
    );
    // Two segments each, after which the kernel can clamp the window.
    assert_eq!(granted(&actions), [0, 1, 2, 3].map(|id| (id, 2 * MSS)));
    (0..4).for_each(|id| control.on_received(MS * 2, id, Bytes(2 * MSS)));
    // The initial offer exceeds the window, so grants are limited to the window.
    assert_eq!(granted(&poll(&mut control, MS * 2)), [3, 2, 1, 0].map(|id| (id, 8 * MSS)));
    control.on_received(MS * 3, 0, Bytes(10 * MSS));
    assert_eq!(granted(&poll(&mut control, MS * 3)), [(0, (64 << 10) - 10 * MSS)]);
    assert_eq!(control.connection_counts(), (4, 0));
    control.on_received(MS * 3, 0, Bytes::kib(64));
    assert_eq!(
        (granted(&poll(&mut control, MS * 3)), control.connection_counts()),
        (vec![], (3, 0))
    );
}

#[test]
fn excess_offer_is_limited_by_grants() {
    let asked_next = |offered_window: Option<Bytes>| {
        let mut control = control_with(gigabit(), 4);
        (0..4).for_each(|id| control.add_demand(id, Bytes::kib(64)));
        poll(&mut control, MS);
        control.on_received(MS * 2, 0, Bytes(2 * MSS));
        if let Some(offered_window) = offered_window {
            control.on_window_offered(0, offered_window);
        }
        poll(&mut control, MS * 2);
        control.on_received(MS * 3, 0, Bytes(10 * MSS));
        granted(&poll(&mut control, MS * 3))
    };
    // Ten segments at first; more once the first data has arrived.
    assert_eq!(asked_next(None), [(0, (64 << 10) - 10 * MSS)]);
    assert_eq!(asked_next(Some(Bytes(30 * MSS))), [(0, 8 * MSS)]);
}

#[test]
fn last_sender_of_round_gets_lent_window() {
    let mut control = control_with(gigabit(), 4);
    let deliver = |control: &mut Ictcp, now, who: std::ops::Range<u64>, bytes| {
        who.for_each(|id| control.on_received(now, id, Bytes(bytes)));
        poll(control, now)
    };
    (0..4).for_each(|id| control.add_demand(id, Bytes::kib(64)));
    poll(&mut control, MS);
    deliver(&mut control, MS * 2, 0..4, 2 * MSS);
    deliver(&mut control, MS * 3, 0..4, 10 * MSS);
    // All but one are done: the last gets the whole BDP and queue.
    let actions = deliver(&mut control, MS * 4, 0..3, 64 << 10);
    assert_eq!(set_windows(&actions), [(3, 35, Reason::BelowShare)]);
    assert_eq!(deliver(&mut control, MS * 5, 3..4, 64 << 10), []);
    for last in [true, false] {
        (0..4).for_each(|id| control.add_demand(id, Bytes::kib(64)));
        let actions = poll(&mut control, MS * 6);
        assert_eq!(granted(&actions).len(), 4, "no connection waits: {actions:?}");
        let back = if last { vec![(3, 8, Reason::FairShare)] } else { vec![] };
        assert_eq!(set_windows(&actions), back);
        deliver(&mut control, MS * 7, 0..4, 128 << 10);
    }
}

#[test]
fn unscheduled_senders_start_with_fair_share() {
    let mut control = Ictcp::new(gigabit());
    (0..4).for_each(|id| {
        control.join(MS, id, &NewConnection { grant_driven: false, ..new_connection() })
    });
    let actions = poll(&mut control, MS);
    assert!(set_windows(&actions).iter().all(|w| w.1 == 8), "{actions:?}");
    // New connections take their share from the others.
    (4..8).for_each(|id| {
        control.join(MS, id, &NewConnection { grant_driven: false, ..new_connection() })
    });
    poll(&mut control, MS * 2);
    let windows: Vec<u64> = (0..8).map(|id| control.window(id).unwrap().0 / MSS).collect();
    assert_eq!(windows, [4; 8]);
}

#[test]
fn unclampable_windows_get_pacing_only() {
    let mut control = Ictcp::new(Config { can_clamp_windows: false, ..gigabit() });
    let far = NewConnection { rtt: Some(MS * 20), ..new_connection() };
    (0..4).for_each(|id| control.join(MS, id, &far));
    (4..6).for_each(|id| control.join(MS, id, &NewConnection { grant_driven: false, ..far }));
    (0..4).for_each(|id| control.add_demand(id, Bytes(u64::MAX)));
    let mut actions = poll(&mut control, MS);
    for tick in 1..50 {
        let samples = |id| Sample { lost_segments: tick, ..Sample::new(id, Bytes(tick * 100_000)) };
        let samples: Vec<Sample> = (0..6).map(samples).collect();
        control.tick(MS * 10 * tick as u32, &samples);
        actions.extend(poll(&mut control, MS * 10 * tick as u32));
    }
    assert_eq!(set_windows(&actions), []);
    assert!(actions.iter().any(|order| matches!(order, Action::SetPacing(..))), "{actions:?}");
}

#[test]
fn many_senders_all_get_grants() {
    let mut control = control_with(gigabit(), 200);
    (0..200).for_each(|id| control.add_demand(id, Bytes::kib(16)));
    let mut received = vec![0; 200];
    let (mut now, mut most) = (MS, 0);
    while received.iter().any(|&bytes| bytes < 16 << 10) {
        for (id, bytes) in granted(&poll(&mut control, now)) {
            received[id as usize] += bytes;
        }
        most = most.max(control.connection_counts().0);
        now += MS;
        // Active connections deliver all granted bytes.
        for (id, &bytes) in received.iter().enumerate() {
            control.on_received(now, id as u64, Bytes(bytes));
        }
        assert!(now < MS * 1000, "a connection never gets a grant");
    }
    assert!((2..=30).contains(&most), "{most} at once");
    assert_eq!(control.connection_counts(), (0, 0));
}

#[test]
fn used_window_grows_only_with_free_bandwidth() {
    for (mbit, grows) in [(400.0, true), (960.0, false)] {
        let mut control = control_with(gigabit(), 1);
        control.add_demand(0, Bytes(u64::MAX));
        poll(&mut control, Duration::ZERO);
        let window = control.window(0).unwrap().0;
        // RTT at which the whole window arrives.
        let rtt = Duration::from_secs_f64(window as f64 * 8.0 / (mbit * 1e6));
        deliver(&mut control, MS, 400, &[(0, mbit)], rtt);
        assert_eq!(control.window(0).unwrap().0 > window, grows, "at {mbit} Mbit/s");
    }
}

#[test]
fn lower_capacity_lets_no_window_grow() {
    for (capacity, grows) in [(Some(965e6), true), (Some(400e6), false)] {
        let mut control = control_with(gigabit(), 2);
        (0..2).for_each(|id| control.add_demand(id, Bytes(u64::MAX)));
        poll(&mut control, Duration::ZERO);
        control.set_capacity(capacity.map(Rate::from_bits_per_sec));
        let window = control.window(0).unwrap().0;
        let rtt = Duration::from_secs_f64(window as f64 * 8.0 / 200e6);
        deliver(&mut control, MS, 400, &[(0, 200.0), (1, 200.0)], rtt);
        assert_eq!(control.window(0).unwrap().0 > window, grows, "{capacity:?}");
    }
    // What exceeds the new share shrinks at once.
    let mut control = control_with(gigabit(), 2);
    (0..2).for_each(|id| control.add_demand(id, Bytes(u64::MAX)));
    poll(&mut control, Duration::ZERO);
    deliver(&mut control, MS, 400, &[(0, 200.0), (1, 200.0)], 4 * MS);
    control.set_capacity(Some(Rate::from_bits_per_sec(10e6)));
    let shrunk = set_windows(&poll(&mut control, 500 * MS));
    assert!(shrunk.iter().all(|&(_, window, reason)| window < 20 && reason == Reason::FairShare));
    assert_eq!(shrunk.len(), 2, "{shrunk:?}");
}

#[test]
fn unused_window_shrinks_to_minimum() {
    let mut control = control_with(gigabit(), 2);
    (0..2).for_each(|id| control.add_demand(id, Bytes(u64::MAX)));
    poll(&mut control, Duration::ZERO);
    let actions = deliver(&mut control, MS, 2000, &[(0, 10.0), (1, 940.0)], RTT);
    assert_eq!(control.window(0), Some(Bytes(2 * MSS)));
    assert!(control.window(1).unwrap().0 > 2 * MSS);
    let shrunk = set_windows(&actions).into_iter().filter(|w| w.0 == 0 && w.2 == Reason::Unused);
    let shrunk: Vec<u64> = shrunk.map(|w| w.1).collect();
    assert!(shrunk.len() > 5 && shrunk.windows(2).all(|w| w[1] + 1 == w[0]), "{shrunk:?}");
}

#[test]
fn overflow_needs_losses_on_two_connections() {
    let lossy = |who: &[ConnectionId], mbit: f64| {
        let mut control = control_with(gigabit(), 4);
        (0..4).for_each(|id| control.add_demand(id, Bytes(u64::MAX)));
        poll(&mut control, Duration::ZERO);
        deliver(&mut control, MS, 20, &[0, 1, 2, 3].map(|id| (id, 50.0)), RTT);
        deliver(&mut control, MS * 21, 50, &[0, 1, 2, 3].map(|id| (id, mbit)), RTT);
        let samples = |id| Sample {
            lost_segments: u64::from(who.contains(&id)),
            ..Sample::new(id, Bytes(control.received_on(id)))
        };
        let samples: Vec<Sample> = (0..4).map(samples).collect();
        control.tick(MS * 72, &samples);
        let actions = poll(&mut control, MS * 72);
        set_windows(&actions).into_iter().filter(|w| w.2 == Reason::Overflowed).count()
    };
    assert_eq!((lossy(&[], 200.0), lossy(&[2], 200.0)), (0, 0));
    assert_eq!(lossy(&[1, 2], 200.0), 4);
    // Below half of the capacity, backing off tests for cross traffic.
    assert_eq!(lossy(&[1, 2], 50.0), 4);
}

/// Runs subslots with an overflow in every fifth. `part` gives the share of the port for an allowed
/// queue in kB. Returns the final queue in kB and whether cross traffic is assumed.
fn queue_with_periodic_overflow(slots: u32, part: impl Fn(f64) -> f64) -> (u64, bool) {
    let mut queue = Queue::new();
    let mut cross_traffic = CrossTraffic::new(Some(Rate::from_bits_per_sec(1e9)));
    let mut windows = 0.0;
    for slot in 1..=slots {
        let now = slots::MIN_SUBSLOT * slot;
        // Windows follow the allowed queue with a lag.
        windows += (queue.limit.0 as f64 - windows) / 2.0;
        let rate = Rate::from_bits_per_sec(part(windows / 1e3) * 1e9);
        match cross_traffic.on_rate(rate, queue.limit, true) {
            Some(Finding::Detected(bytes) | Finding::QueueAdjusted(bytes)) => {
                queue.set_limit(now, bytes)
            }
            Some(_) => queue.reset_limit(),
            None => {}
        }
        if slot % 5 == 0 && cross_traffic.on_overflow(queue.limit, Rate::default()) {
            queue.on_overflow(now);
        }
    }
    (queue.limit.0 / 1000, cross_traffic.is_present())
}

#[test]
fn cross_traffic_leaves_half_the_port() {
    let (queue_kb, is_contended) = queue_with_periodic_overflow(200, |own| own / (own + 150.0));
    assert!(is_contended && (120..=230).contains(&queue_kb), "{queue_kb} kB");
}

#[test]
fn remote_bottleneck_is_not_cross_traffic() {
    // A bottleneck elsewhere carries a third.
    let (queue_kb, is_contended) = queue_with_periodic_overflow(200, |_| 0.33);
    assert!(!is_contended && queue_kb < 40, "{queue_kb} kB");
}

#[test]
fn ended_cross_traffic_is_forgotten() {
    // Cross traffic ends after 2 s.
    let slots = Cell::new(0);
    let (queue_kb, is_contended) = queue_with_periodic_overflow(400, |own| {
        slots.set(slots.get() + 1);
        if slots.get() < 200 { own / (own + 150.0) } else { 0.9 }
    });
    assert!(!is_contended && queue_kb <= 40, "{queue_kb} kB");
}

#[test]
fn only_long_rtt_senders_are_paced() {
    let mut control = Ictcp::new(gigabit());
    let far = NewConnection { rtt: Some(MS * 100), ..new_connection() };
    control.join(Duration::ZERO, 0, &far);
    control.join(Duration::ZERO, 1, &new_connection());
    (0..2).for_each(|id| control.add_demand(id, Bytes(u64::MAX)));
    let actions = poll(&mut control, Duration::ZERO);
    let paced: Vec<(ConnectionId, Rate)> = actions
        .iter()
        .filter_map(|order| match order {
            Action::SetPacing(id, rate) => Some((*id, *rate)),
            _ => None,
        })
        .collect();
    let [(0, rate)] = paced[..] else { panic!("{actions:?}") };
    // 1.2 times half of the capacity.
    assert!((570.0..590.0).contains(&(rate.bits_per_sec() as f64 / 1e6)), "{rate}");
}

#[test]
fn unscheduled_sender_gets_window_but_no_grant() {
    let mut control = Ictcp::new(gigabit());
    control.join(Duration::ZERO, 0, &NewConnection { grant_driven: false, ..new_connection() });
    control.add_demand(0, Bytes::kib(64));
    let actions = poll(&mut control, Duration::ZERO);
    assert_eq!((granted(&actions), set_windows(&actions).len()), (Vec::new(), 1));
    assert_eq!(control.connection_counts().0, 1);
    control.leave(MS, 0);
    assert_eq!(control.connection_counts().0, 0);
}

#[test]
fn unclampable_windows_limit_total_grants() {
    let mut control = control_with(Config { can_clamp_windows: false, ..gigabit() }, 3);
    (0..3).for_each(|id| control.add_demand(id, Bytes::kib(64)));
    let actions = poll(&mut control, Duration::ZERO);
    assert!(set_windows(&actions).is_empty());
    let all: u64 = granted(&actions).iter().map(|(_, bytes)| bytes).sum();
    assert!((20_000..=64 << 10).contains(&all), "{actions:?}");
}

#[test]
fn unscheduled_senders_do_not_block_grants() {
    for can_clamp_windows in [true, false] {
        let mut control = Ictcp::new(Config { can_clamp_windows, ..gigabit() });
        let offered_window = Bytes::kib(64);
        control.join(
            Duration::ZERO,
            0,
            &NewConnection { grant_driven: false, offered_window, ..new_connection() },
        );
        (1..4).for_each(|id| {
            control.join(Duration::ZERO, id, &NewConnection { offered_window, ..new_connection() })
        });
        (1..4).for_each(|id| control.add_demand(id, Bytes(u64::MAX)));
        // One sender always sends; the others deliver what they were granted.
        let (mut received, mut granted_bytes) = ([0; 4], [0; 4]);
        for ms in 1..=2000 {
            let now = MS * ms;
            for (id, bytes) in granted(&poll(&mut control, now)) {
                granted_bytes[id as usize] += bytes;
            }
            granted_bytes[0] += 60_000;
            for id in 0..4 {
                received[id] = granted_bytes[id].min(received[id] + 60_000);
                control.on_received(now, id as u64, Bytes(received[id]));
            }
            if ms % 10 == 0 {
                control.tick(now, &[]);
            }
        }
        assert!(received[1..].iter().all(|&bytes| bytes > 10 << 20), "{received:?}");
    }
}

#[test]
fn leaving_connection_frees_its_grant() {
    let mut control = control_with(Config { can_clamp_windows: false, ..gigabit() }, 2);
    (0..2).for_each(|id| control.add_demand(id, Bytes::kib(256)));
    poll(&mut control, Duration::ZERO);
    control.leave(MS, 0);
    control.clear_demand(1);
    assert!(poll(&mut control, MS).is_empty(), "nothing more is wanted");
    control.add_demand(1, Bytes(1));
    control.on_received(MS, 1, Bytes::kib(64));
    assert_eq!(granted(&poll(&mut control, MS)), [(1, 1)]);
}

#[test]
fn silent_senders_do_not_block_waiting_ones() {
    let mut control = control_with(gigabit(), 100);
    (0..100).for_each(|id| control.add_demand(id, Bytes(u64::MAX)));
    let first = granted(&poll(&mut control, MS)).len();
    assert!(first < 50, "{first} at once");
    // Without any data, every connection gets one grant in time.
    let mut granted_count = first;
    for ms in (10..=200).step_by(10) {
        let samples: Vec<Sample> = (0..100).map(|id| Sample::new(id, Bytes(0))).collect();
        control.tick(MS * ms, &samples);
        granted_count += granted(&poll(&mut control, MS * ms)).len();
    }
    assert_eq!((granted_count, control.connection_counts().1), (100, 0));
    // Late data makes a connection active again, and more is granted.
    control.on_received(MS * 300, 7, Bytes(2 * MSS));
    assert_eq!(granted(&poll(&mut control, MS * 300))[0].0, 7);
    assert_eq!(control.connection_counts().0, 1);
}
