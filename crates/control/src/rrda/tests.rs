use super::*;

const BOUNDS: Bounds = Bounds { min: Bytes(100_000), max: Bytes(10_000_000) };

/// Epoch with half of the memory in use and nothing discarded.
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
    epochs
        .iter()
        .map(|epoch| control.on_epoch(epoch))
        .map(|(size, reason)| (size.0, reason))
        .collect()
}

#[test]
fn surplus_trend_grows_buffer_by_lookahead() {
    let mut control = Rrda::new(BOUNDS, None);
    let epochs = [epoch(50_000, 10_000, 40_000), epoch(50_000, 10_000, 80_000)];
    assert_eq!(sizes(&mut control, &epochs), [(100_000, Reason::Kept); 2]);
    // 40 kB smoothed are 35 kB by now; half of the memory is free.
    let grown = sizes(&mut control, &[epoch(50_000, 10_000, 90_000)]);
    assert_eq!(grown, [(90_000 + 8 * 35_000, Reason::Surplus)]);
}

#[test]
fn discard_grows_buffer_without_trend() {
    let mut control = Rrda::new(BOUNDS, None);
    let full = Epoch { discarded: Bytes(20_000), ..epoch(120_000, 100_000, 100_000) };
    assert_eq!(sizes(&mut control, &[full]), [(100_000 + 8 * 20_000, Reason::Discarded)]);
    // Without free memory the buffer does not grow.
    let mut control = Rrda::new(BOUNDS, None);
    let short = Epoch { memory: 1.0, ..full };
    assert_eq!(sizes(&mut control, &[short]), [(100_000, Reason::Kept)]);
}

#[test]
fn discard_within_epoch_grows_buffer_immediately() {
    let mut control = Rrda::new(BOUNDS, None);
    let mut sample = |used, discarded, memory| {
        let (size, reason) = control.on_sample(Bytes(used), Bytes(discarded), memory);
        (size.0, reason)
    };
    assert_eq!(sample(50_000, 0, 0.5), (100_000, Reason::Kept));
    assert_eq!(sample(100_000, 20_000, 1.0), (100_000, Reason::Kept), "no free memory");
    assert_eq!(sample(100_000, 20_000, 0.5), (100_000 + 8 * 20_000, Reason::Discarded));
    assert_eq!(sample(100_000, 20_000, 0.5), (260_000, Reason::Kept), "already large enough");
    // The end of the epoch does not count the same bytes twice.
    let full = Epoch { discarded: Bytes(20_000), ..epoch(120_000, 100_000, 100_000) };
    assert_eq!(control.on_epoch(&full), (Bytes(260_000), Reason::Kept));
    let most = control.on_sample(Bytes(100_000), Bytes(u64::MAX), f64::NAN);
    assert_eq!(most, (Bytes(10_000_000), Reason::Discarded), "limited by the maximum");
}

#[test]
fn sample_above_half_full_doubles_room() {
    let mut control = Rrda::new(BOUNDS, None);
    let mut sample = |used, memory| control.on_sample(Bytes(used), Bytes(0), memory);
    assert_eq!(sample(90_000, 1.0), (Bytes(100_000), Reason::Kept), "no free memory");
    assert_eq!(sample(90_000, 0.0), (Bytes(180_000), Reason::Surplus));
    assert_eq!(sample(90_000, 0.0), (Bytes(180_000), Reason::Kept));
    assert_eq!(sample(150_000, 0.5), (Bytes(225_000), Reason::Surplus));
    // Headroom from a sample is not released as unused.
    let steady = epoch(10_000, 10_000, 150_000);
    let decisions = sizes(&mut control, &[steady; USAGE_HISTORY_EPOCHS + 1]);
    assert!(decisions.iter().all(|one| *one == (225_000, Reason::Kept)), "{decisions:?}");
}

#[test]
fn draining_shrinks_more_when_memory_is_scarce() {
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
fn unused_room_is_released_after_history() {
    let mut control = Rrda::new(BOUNDS, Some(Bytes(8_000_000)));
    let burst = epoch(500_000, 500_000, 1_000_000);
    let quiet = epoch(10_000, 10_000, 0);
    assert_eq!(sizes(&mut control, &[burst])[0], (8_000_000, Reason::Kept));
    let decisions = sizes(&mut control, &[quiet; USAGE_HISTORY_EPOCHS]);
    // The burst counts up to the last epoch of the history.
    assert_eq!(decisions[USAGE_HISTORY_EPOCHS - 2], (2_000_000, Reason::Unused));
    assert_eq!(decisions[USAGE_HISTORY_EPOCHS - 1], (100_000, Reason::Unused));
}

#[test]
fn burst_after_idle_keeps_room_next_epoch() {
    let mut control = Rrda::new(BOUNDS, None);
    sizes(&mut control, &[epoch(0, 0, 0); 2 * USAGE_HISTORY_EPOCHS]);
    let burst = Epoch { discarded: Bytes(900_000), ..epoch(1_100_000, 100_000, 100_000) };
    let grown = 100_000 + 8 * 900_000;
    assert_eq!(sizes(&mut control, &[burst]), [(grown, Reason::Discarded)]);
    // Twice the demand of the burst.
    assert_eq!(sizes(&mut control, &[epoch(0, 0, 0)]), [(2_000_000, Reason::Unused)]);
    assert_eq!(sizes(&mut control, &[epoch(0, 0, 0)]), [(2_000_000, Reason::Kept)]);
}

#[test]
fn nan_memory_counts_as_free() {
    let mut control = Rrda::new(BOUNDS, None);
    let full = Epoch { discarded: Bytes(1000), memory: f64::NAN, ..epoch(1000, 0, 0) };
    assert_eq!(sizes(&mut control, &[full])[0].0, 100_000);
    let full = Epoch { used: Bytes(100_000), ..full };
    assert_eq!(sizes(&mut control, &[full])[0], (116_000, Reason::Discarded));
}

#[test]
fn size_covers_usage_and_follows_grant() {
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
