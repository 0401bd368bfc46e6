use super::*;

const MS: Duration = Duration::from_millis(1);
const RTT: Duration = Duration::from_micros(100);
const MSS: u64 = DEFAULT_MSS.0;

fn gigabit() -> Config {
    Config { capacity: Some(Rate::from_bits_per_sec(965e6)), ..Config::default() }
}

fn joining() -> Joining {
    Joining { segment: DEFAULT_MSS, rtt: Some(RTT), offered: Bytes(10 * MSS), obeys: true, lost: 0 }
}

/// So many connections that obey.
fn joined(config: Config, count: u64) -> Ictcp {
    let mut control = Ictcp::new(config);
    (0..count).for_each(|id| control.join(Duration::ZERO, id, &joining()));
    control
}

fn orders(control: &mut Ictcp, now: Duration) -> Vec<Order> {
    control.take_orders(now).collect()
}

fn asked(orders: &[Order]) -> Vec<(Id, u64)> {
    let asks = orders.iter().filter_map(|order| match order {
        Order::Ask(id, bytes) => Some((*id, bytes.0)),
        _ => None,
    });
    asks.collect()
}

fn windows(orders: &[Order]) -> Vec<(Id, u64, Reason)> {
    let windows = orders.iter().filter_map(|order| match order {
        Order::Window(id, window, reason) => Some((*id, window.0 / MSS, *reason)),
        _ => None,
    });
    windows.collect()
}

/// Connections bring so many Mbit/s for so many milliseconds, with ticks in between; what was
/// ordered meanwhile.
fn bring(
    control: &mut Ictcp,
    from: Duration,
    time: u32,
    rates: &[(Id, f64)],
    rtt: Duration,
) -> Vec<Order> {
    let mut told = Vec::new();
    let mut had: Vec<u64> = rates.iter().map(|(id, _)| control.received_on(*id)).collect();
    for ms in 1..=time {
        let now = from + MS * ms;
        for ((id, mbit), had) in rates.iter().zip(&mut had) {
            *had += (mbit * 1e6 / 8.0 / 1e3) as u64;
            control.on_received(now, *id, Bytes(*had));
        }
        if ms % 10 == 0 {
            let seen = rates
                .iter()
                .zip(&had)
                .map(|(&(id, _), &had)| Seen { rtt: Some(rtt), ..Seen::new(id, Bytes(had)) });
            let seen: Vec<Seen> = seen.collect();
            control.tick(now, &seen);
        }
        told.extend(control.take_orders(now));
    }
    told
}

#[test]
fn few_senders_are_asked_at_once_and_begin_with_their_share_of_the_line_and_the_queue() {
    let mut control = joined(gigabit(), 4);
    (0..4).for_each(|id| control.want(id, Bytes::kib(64)));
    let told = orders(&mut control, MS);
    // 40 kB and 12 kB among four, in whole segments.
    assert!(windows(&told).iter().all(|w| (w.1, w.2) == (8, Reason::Began)), "{told:?}");
    // Two segments of each, so that its window can be held.
    assert_eq!(asked(&told), [0, 1, 2, 3].map(|id| (id, 2 * MSS)));
    (0..4).for_each(|id| control.on_received(MS * 2, id, Bytes(2 * MSS)));
    // What was offered in the beginning is more than the window: as long as it is, no more than
    // that is asked for.
    assert_eq!(asked(&orders(&mut control, MS * 2)), [3, 2, 1, 0].map(|id| (id, 8 * MSS)));
    control.on_received(MS * 3, 0, Bytes(10 * MSS));
    assert_eq!(asked(&orders(&mut control, MS * 3)), [(0, (64 << 10) - 10 * MSS)]);
    assert_eq!(control.turns(), (4, 0));
    control.on_received(MS * 3, 0, Bytes::kib(64));
    assert_eq!((asked(&orders(&mut control, MS * 3)), control.turns()), (vec![], (3, 0)));
}

#[test]
fn what_is_offered_is_held_by_requests_until_it_has_come() {
    let asked_next = |offered: Option<Bytes>| {
        let mut control = joined(gigabit(), 4);
        (0..4).for_each(|id| control.want(id, Bytes::kib(64)));
        orders(&mut control, MS);
        control.on_received(MS * 2, 0, Bytes(2 * MSS));
        if let Some(offered) = offered {
            control.on_offered(0, offered);
        }
        orders(&mut control, MS * 2);
        control.on_received(MS * 3, 0, Bytes(10 * MSS));
        asked(&orders(&mut control, MS * 3))
    };
    // Ten segments were at first; more when the first had come.
    assert_eq!(asked_next(None), [(0, (64 << 10) - 10 * MSS)]);
    assert_eq!(asked_next(Some(Bytes(30 * MSS))), [(0, 8 * MSS)]);
}

#[test]
fn the_last_of_a_round_has_what_the_others_leave_and_gives_it_back_in_the_next() {
    let mut control = joined(gigabit(), 4);
    let bring = |control: &mut Ictcp, now, who: std::ops::Range<u64>, bytes| {
        who.for_each(|id| control.on_received(now, id, Bytes(bytes)));
        orders(control, now)
    };
    (0..4).for_each(|id| control.want(id, Bytes::kib(64)));
    orders(&mut control, MS);
    bring(&mut control, MS * 2, 0..4, 2 * MSS);
    bring(&mut control, MS * 3, 0..4, 10 * MSS);
    // All but one are done: the line and the queue are its own.
    let told = bring(&mut control, MS * 4, 0..3, 64 << 10);
    assert_eq!(windows(&told), [(3, 35, Reason::BelowShare)]);
    assert_eq!(bring(&mut control, MS * 5, 3..4, 64 << 10), []);
    for last in [true, false] {
        (0..4).for_each(|id| control.want(id, Bytes::kib(64)));
        let told = orders(&mut control, MS * 6);
        assert_eq!(asked(&told).len(), 4, "nobody waits for another: {told:?}");
        let back = if last { vec![(3, 8, Reason::Fair)] } else { vec![] };
        assert_eq!(windows(&told), back);
        bring(&mut control, MS * 7, 0..4, 128 << 10);
    }
}

#[test]
fn those_that_send_unasked_have_a_share_each_from_the_beginning() {
    let mut control = Ictcp::new(gigabit());
    (0..4).for_each(|id| control.join(MS, id, &Joining { obeys: false, ..joining() }));
    let told = orders(&mut control, MS);
    assert!(windows(&told).iter().all(|w| w.1 == 8), "{told:?}");
    // When more come, they make room.
    (4..8).for_each(|id| control.join(MS, id, &Joining { obeys: false, ..joining() }));
    orders(&mut control, MS * 2);
    let held: Vec<u64> = (0..8).map(|id| control.window(id).unwrap().0 / MSS).collect();
    assert_eq!(held, [4; 8]);
}

#[test]
fn windows_that_cannot_be_held_are_left_alone_whatever_happens() {
    let mut control = Ictcp::new(Config { holds_windows: false, ..gigabit() });
    let far = Joining { rtt: Some(MS * 20), ..joining() };
    (0..4).for_each(|id| control.join(MS, id, &far));
    (4..6).for_each(|id| control.join(MS, id, &Joining { obeys: false, ..far }));
    (0..4).for_each(|id| control.want(id, Bytes(u64::MAX)));
    let mut told = orders(&mut control, MS);
    for tick in 1..50 {
        let seen = |id| Seen { lost: tick, ..Seen::new(id, Bytes(tick * 100_000)) };
        let seen: Vec<Seen> = (0..6).map(seen).collect();
        control.tick(MS * 10 * tick as u32, &seen);
        told.extend(orders(&mut control, MS * 10 * tick as u32));
    }
    assert_eq!(windows(&told), []);
    assert!(told.iter().any(|order| matches!(order, Order::Pace(..))), "{told:?}");
}

#[test]
fn more_senders_than_windows_take_turns_and_each_comes_to_its_own() {
    let mut control = joined(gigabit(), 200);
    (0..200).for_each(|id| control.want(id, Bytes::kib(16)));
    let mut came = vec![0; 200];
    let (mut now, mut most) = (MS, 0);
    while came.iter().any(|&bytes| bytes < 16 << 10) {
        for (id, bytes) in asked(&orders(&mut control, now)) {
            came[id as usize] += bytes;
        }
        most = most.max(control.turns().0);
        now += MS;
        // Those that are active bring all they were asked for.
        for (id, &bytes) in came.iter().enumerate() {
            control.on_received(now, id as u64, Bytes(bytes));
        }
        assert!(now < MS * 1000, "somebody is never asked");
    }
    assert!((2..=30).contains(&most), "{most} at once");
    assert_eq!(control.turns(), (0, 0));
}

#[test]
fn a_window_that_is_used_up_grows_only_where_the_port_has_room() {
    for (mbit, grows) in [(400.0, true), (960.0, false)] {
        let mut control = joined(gigabit(), 1);
        control.want(0, Bytes(u64::MAX));
        orders(&mut control, Duration::ZERO);
        let window = control.window(0).unwrap().0;
        // A round trip in which all of the window comes.
        let rtt = Duration::from_secs_f64(window as f64 * 8.0 / (mbit * 1e6));
        bring(&mut control, MS, 400, &[(0, mbit)], rtt);
        assert_eq!(control.window(0).unwrap().0 > window, grows, "at {mbit} Mbit/s");
    }
}

#[test]
fn a_window_that_is_not_needed_shrinks_by_a_segment_and_not_below_the_least() {
    let mut control = joined(gigabit(), 2);
    (0..2).for_each(|id| control.want(id, Bytes(u64::MAX)));
    orders(&mut control, Duration::ZERO);
    let told = bring(&mut control, MS, 2000, &[(0, 10.0), (1, 940.0)], RTT);
    assert_eq!(control.window(0), Some(Bytes(2 * MSS)));
    assert!(control.window(1).unwrap().0 > 2 * MSS);
    let shrunk = windows(&told).into_iter().filter(|w| w.0 == 0 && w.2 == Reason::Unused);
    let shrunk: Vec<u64> = shrunk.map(|w| w.1).collect();
    assert!(shrunk.len() > 5 && shrunk.windows(2).all(|w| w[1] + 1 == w[0]), "{shrunk:?}");
}

#[test]
fn losses_of_one_are_its_own_and_losses_of_many_are_the_ports() {
    let lossy = |who: &[Id], mbit: f64| {
        let mut control = joined(gigabit(), 4);
        (0..4).for_each(|id| control.want(id, Bytes(u64::MAX)));
        orders(&mut control, Duration::ZERO);
        bring(&mut control, MS, 20, &[0, 1, 2, 3].map(|id| (id, 50.0)), RTT);
        bring(&mut control, MS * 21, 50, &[0, 1, 2, 3].map(|id| (id, mbit)), RTT);
        let seen = |id| Seen {
            lost: u64::from(who.contains(&id)),
            ..Seen::new(id, Bytes(control.received_on(id)))
        };
        let seen: Vec<Seen> = (0..4).map(seen).collect();
        control.tick(MS * 72, &seen);
        let told = orders(&mut control, MS * 72);
        windows(&told).into_iter().filter(|w| w.2 == Reason::Overflowed).count()
    };
    assert_eq!((lossy(&[], 200.0), lossy(&[2], 200.0)), (0, 0));
    assert_eq!(lossy(&[1, 2], 200.0), 4);
    // Where it may be others who fill it, giving way is what tells.
    assert_eq!(lossy(&[1, 2], 50.0), 4);
}

/// What of the queue is ours, in kilobytes, after so many half slots in which what comes is a part
/// of the port that follows from it, and which overflows each fifth time; and whether others are
/// believed to be there.
fn ours_beside_losses(slots: u32, part: impl Fn(f64) -> f64) -> (u64, bool) {
    let mut queue = Queue::new();
    let mut crowd = Crowd::new(Some(Rate::from_bits_per_sec(1e9)));
    let mut windows = 0.0;
    for slot in 1..=slots {
        let now = slots::HALF_MIN * slot;
        // They follow.
        windows += (queue.bytes.0 as f64 - windows) / 2.0;
        let rate = Rate::from_bits_per_sec(part(windows / 1e3) * 1e9);
        match crowd.on_rate(rate, queue.bytes, true) {
            Some(Finding::Others(bytes) | Finding::Beside(bytes)) => queue.share(now, bytes),
            Some(_) => queue.have_alone(),
            None => {}
        }
        if slot % 5 == 0 && crowd.on_overflow(queue.bytes, Rate::default()) {
            queue.on_overflow(now);
        }
    }
    (queue.bytes.0 / 1000, crowd.is_there())
}

#[test]
fn beside_others_that_fill_the_queue_ours_is_half_of_it() {
    let (ours, is_crowded) = ours_beside_losses(200, |own| own / (own + 150.0));
    assert!(is_crowded && (120..=230).contains(&ours), "{ours} kB");
}

#[test]
fn where_giving_way_costs_nothing_there_are_no_others() {
    // A line elsewhere carries a third.
    let (ours, is_crowded) = ours_beside_losses(200, |_| 0.33);
    assert!(!is_crowded && ours < 40, "{ours} kB");
}

#[test]
fn others_that_have_gone_are_forgotten() {
    // They do after two seconds.
    let slots = Cell::new(0);
    let (ours, is_crowded) = ours_beside_losses(400, |own| {
        slots.set(slots.get() + 1);
        if slots.get() < 200 { own / (own + 150.0) } else { 0.9 }
    });
    assert!(!is_crowded && ours <= 40, "{ours} kB");
}

#[test]
fn far_senders_are_paced_and_near_ones_are_not() {
    let mut control = Ictcp::new(gigabit());
    let far = Joining { rtt: Some(MS * 100), ..joining() };
    control.join(Duration::ZERO, 0, &far);
    control.join(Duration::ZERO, 1, &joining());
    (0..2).for_each(|id| control.want(id, Bytes(u64::MAX)));
    let told = orders(&mut control, Duration::ZERO);
    let paced: Vec<(Id, Rate)> = told
        .iter()
        .filter_map(|order| match order {
            Order::Pace(id, rate) => Some((*id, *rate)),
            _ => None,
        })
        .collect();
    let [(0, rate)] = paced[..] else { panic!("{told:?}") };
    // A fifth above its half of the port.
    assert!((570.0..590.0).contains(&(rate.bits_per_sec() as f64 / 1e6)), "{rate}");
}

#[test]
fn who_sends_unasked_is_steered_by_its_window_alone() {
    let mut control = Ictcp::new(gigabit());
    control.join(Duration::ZERO, 0, &Joining { obeys: false, ..joining() });
    control.want(0, Bytes::kib(64));
    let told = orders(&mut control, Duration::ZERO);
    assert_eq!((asked(&told), windows(&told).len()), (Vec::new(), 1));
    assert_eq!(control.turns().0, 1);
    control.leave(MS, 0);
    assert_eq!(control.turns().0, 0);
}

#[test]
fn without_windows_less_is_asked_for_at_once() {
    let mut control = joined(Config { holds_windows: false, ..gigabit() }, 3);
    (0..3).for_each(|id| control.want(id, Bytes::kib(64)));
    let told = orders(&mut control, Duration::ZERO);
    assert!(windows(&told).is_empty());
    let all: u64 = asked(&told).iter().map(|(_, bytes)| bytes).sum();
    assert!((20_000..=64 << 10).contains(&all), "{told:?}");
}

#[test]
fn those_that_send_unasked_keep_nobody_from_taking_turns() {
    for holds_windows in [true, false] {
        let mut control = Ictcp::new(Config { holds_windows, ..gigabit() });
        let offered = Bytes::kib(64);
        control.join(Duration::ZERO, 0, &Joining { obeys: false, offered, ..joining() });
        (1..4).for_each(|id| control.join(Duration::ZERO, id, &Joining { offered, ..joining() }));
        (1..4).for_each(|id| control.want(id, Bytes(u64::MAX)));
        // One sends all the time, the others bring what they are asked for.
        let (mut came, mut due) = ([0; 4], [0; 4]);
        for ms in 1..=2000 {
            let now = MS * ms;
            for (id, bytes) in asked(&orders(&mut control, now)) {
                due[id as usize] += bytes;
            }
            due[0] += 60_000;
            for id in 0..4 {
                came[id] = due[id].min(came[id] + 60_000);
                control.on_received(now, id as u64, Bytes(came[id]));
            }
            if ms % 10 == 0 {
                control.tick(now, &[]);
            }
        }
        assert!(came[1..].iter().all(|&bytes| bytes > 10 << 20), "{came:?}");
    }
}

#[test]
fn one_that_leaves_makes_room_for_others() {
    let mut control = joined(Config { holds_windows: false, ..gigabit() }, 2);
    (0..2).for_each(|id| control.want(id, Bytes::kib(256)));
    orders(&mut control, Duration::ZERO);
    control.leave(MS, 0);
    control.unwant(1);
    assert!(orders(&mut control, MS).is_empty(), "nothing more is wanted");
    control.want(1, Bytes(1));
    control.on_received(MS, 1, Bytes::kib(64));
    assert_eq!(asked(&orders(&mut control, MS)), [(1, 1)]);
}

#[test]
fn senders_that_have_nothing_to_send_keep_nobody_waiting() {
    let mut control = joined(gigabit(), 100);
    (0..100).for_each(|id| control.want(id, Bytes(u64::MAX)));
    let first = asked(&orders(&mut control, MS)).len();
    assert!(first < 50, "{first} at once");
    // Nobody brings anything: all others are asked in time, and nobody twice.
    let mut told = first;
    for ms in (10..=200).step_by(10) {
        let seen: Vec<Seen> = (0..100).map(|id| Seen::new(id, Bytes(0))).collect();
        control.tick(MS * ms, &seen);
        told += asked(&orders(&mut control, MS * ms)).len();
    }
    assert_eq!((told, control.turns().1), (100, 0));
    // One that brings something after all is on its way again, and is asked for more.
    control.on_received(MS * 300, 7, Bytes(2 * MSS));
    assert_eq!(asked(&orders(&mut control, MS * 300))[0].0, 7);
    assert_eq!(control.turns().0, 1);
}
