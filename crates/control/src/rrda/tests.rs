use super::*;

const BOUNDS: Bounds = Bounds { min: Bytes(100_000), max: Bytes(10_000_000) };

/// An epoch in which so much arrived and was processed, and so much stood in the buffer.
fn epoch(arrived: u64, processed: u64, used: u64) -> Epoch {
    Epoch {
        arrived: Bytes(arrived),
        processed: Bytes(processed),
        discarded: Bytes(0),
        used: Bytes(used),
        memory: 0.5,
    }
}

fn sizes(control: &mut Rrda, epochs: &[Epoch]) -> Vec<(u64, Reason)> {
    epochs.iter().map(|epoch| control.on_epoch(epoch)).map(|(size, why)| (size.0, why)).collect()
}

#[test]
fn three_epochs_of_surplus_make_room_for_sixteen_more() {
    let mut control = Rrda::new(BOUNDS, None);
    let epochs = [epoch(50_000, 10_000, 40_000), epoch(50_000, 10_000, 80_000)];
    assert_eq!(sizes(&mut control, &epochs), [(100_000, Reason::Kept); 2]);
    // 40 kB smoothed are 35 kB by now; half of the memory is free.
    let grown = sizes(&mut control, &[epoch(50_000, 10_000, 90_000)]);
    assert_eq!(grown, [(90_000 + 8 * 35_000, Reason::Surplus)]);
}

#[test]
fn what_is_discarded_needs_no_trend() {
    let mut control = Rrda::new(BOUNDS, None);
    let full = Epoch { discarded: Bytes(20_000), ..epoch(120_000, 100_000, 100_000) };
    assert_eq!(sizes(&mut control, &[full]), [(100_000 + 8 * 20_000, Reason::Discarded)]);
    // Nothing is taken from a host that has nothing left.
    let mut control = Rrda::new(BOUNDS, None);
    let short = Epoch { memory: 1.0, ..full };
    assert_eq!(sizes(&mut control, &[short]), [(100_000, Reason::Kept)]);
}

#[test]
fn what_is_discarded_within_an_epoch_has_room_at_once() {
    let mut control = Rrda::new(BOUNDS, None);
    let mut look = |used, discarded, memory| {
        let (size, why) = control.on_look(Bytes(used), Bytes(discarded), memory);
        (size.0, why)
    };
    assert_eq!(look(50_000, 0, 0.5), (100_000, Reason::Kept));
    assert_eq!(look(100_000, 20_000, 1.0), (100_000, Reason::Kept), "no memory is left");
    assert_eq!(look(100_000, 20_000, 0.5), (100_000 + 8 * 20_000, Reason::Discarded));
    assert_eq!(look(100_000, 20_000, 0.5), (260_000, Reason::Kept), "it has room for that");
    // The end of the epoch counts the same, and not once more on top.
    let full = Epoch { discarded: Bytes(20_000), ..epoch(120_000, 100_000, 100_000) };
    assert_eq!(control.on_epoch(&full), (Bytes(260_000), Reason::Kept));
    let most = control.on_look(Bytes(100_000), Bytes(u64::MAX), f64::NAN);
    assert_eq!(most, (Bytes(10_000_000), Reason::Discarded), "its bounds hold");
}

#[test]
fn what_is_more_than_half_full_has_room_for_as_much_again() {
    let mut control = Rrda::new(BOUNDS, None);
    let mut look = |used, memory| control.on_look(Bytes(used), Bytes(0), memory);
    assert_eq!(look(90_000, 1.0), (Bytes(100_000), Reason::Kept), "no memory is left");
    assert_eq!(look(90_000, 0.0), (Bytes(180_000), Reason::Surplus));
    assert_eq!(look(90_000, 0.0), (Bytes(180_000), Reason::Kept));
    assert_eq!(look(150_000, 0.5), (Bytes(225_000), Reason::Surplus));
    // What the rule has made room for it does not take back as too much.
    let steady = epoch(10_000, 10_000, 150_000);
    let told = sizes(&mut control, &[steady; REMEMBERED + 1]);
    assert!(told.iter().all(|one| *one == (225_000, Reason::Kept)), "{told:?}");
}

#[test]
fn draining_gives_back_the_more_the_less_memory_is_free() {
    let after = |memory: f64| {
        let mut control = Rrda::new(BOUNDS, Some(Bytes(1_000_000)));
        let draining = Epoch { memory, ..epoch(10_000, 30_000, 200_000) };
        sizes(&mut control, &[draining; 3])[2]
    };
    // 20 kB smoothed are 17.5 kB by the third epoch.
    assert_eq!(after(0.25), (1_000_000 - 4 * 17_500, Reason::Draining));
    assert_eq!(after(0.75), (1_000_000 - 12 * 17_500, Reason::Draining));
    assert_eq!(after(0.0), (1_000_000, Reason::Kept));
}

#[test]
fn what_was_not_used_for_seconds_is_given_back() {
    let mut control = Rrda::new(BOUNDS, Some(Bytes(8_000_000)));
    let burst = epoch(500_000, 500_000, 1_000_000);
    let quiet = epoch(10_000, 10_000, 0);
    assert_eq!(sizes(&mut control, &[burst])[0], (8_000_000, Reason::Kept));
    let told = sizes(&mut control, &[quiet; REMEMBERED]);
    // The burst is remembered up to the last, and then forgotten.
    assert_eq!(told[REMEMBERED - 2], (2_000_000, Reason::Unused));
    assert_eq!(told[REMEMBERED - 1], (100_000, Reason::Unused));
}

#[test]
fn a_burst_after_a_long_rest_has_its_room_in_the_next_epoch_still() {
    let mut control = Rrda::new(BOUNDS, None);
    sizes(&mut control, &[epoch(0, 0, 0); 2 * REMEMBERED]);
    let burst = Epoch { discarded: Bytes(900_000), ..epoch(1_100_000, 100_000, 100_000) };
    let grown = 100_000 + 8 * 900_000;
    assert_eq!(sizes(&mut control, &[burst]), [(grown, Reason::Discarded)]);
    // Twice of what the burst needed.
    assert_eq!(sizes(&mut control, &[epoch(0, 0, 0)]), [(2_000_000, Reason::Unused)]);
    assert_eq!(sizes(&mut control, &[epoch(0, 0, 0)]), [(2_000_000, Reason::Kept)]);
}

#[test]
fn memory_that_is_no_number_is_no_lack() {
    let mut control = Rrda::new(BOUNDS, None);
    let full = Epoch { discarded: Bytes(1000), memory: f64::NAN, ..epoch(1000, 0, 0) };
    assert_eq!(sizes(&mut control, &[full])[0].0, 100_000);
    let full = Epoch { used: Bytes(100_000), ..full };
    assert_eq!(sizes(&mut control, &[full])[0], (116_000, Reason::Discarded));
}

#[test]
fn a_buffer_is_not_cut_below_what_is_in_it_and_takes_what_was_granted() {
    let mut control = Rrda::new(BOUNDS, Some(Bytes(400_000)));
    let draining = Epoch { memory: 1.0, ..epoch(0, 100_000, 350_000) };
    assert_eq!(sizes(&mut control, &[draining; 3])[2], (350_000, Reason::Draining));
    control.on_granted(Bytes(212_992));
    assert_eq!(control.size(), Bytes(212_992));
    let more = epoch(0, 0, 300_000);
    assert_eq!(sizes(&mut control, &[more]), [(300_000, Reason::Bound)]);
    control.on_granted(Bytes(212_992));
    control.set_bounds(Bounds { min: Bytes(50_000), max: Bytes(10_000) });
    assert_eq!(sizes(&mut control, &[epoch(0, 0, 0)]), [(50_000, Reason::Draining)]);
}
