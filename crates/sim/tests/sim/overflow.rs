//! Time until TCP overflows a queue, compared with [`bankfull_control::sobas::overflow`].
//!
//! Also checks whether the controller reacts before the overflow.

use crate::{MS, SEC, mbit};
use bankfull_control::Bytes;
use bankfull_control::sobas::overflow::{
    AckPolicy, congestion_avoidance_latency, slow_start_latency,
};
use bankfull_sim::tcp::Algorithm;
use bankfull_sim::world::{FlowConfig, World};
use bankfull_sim::{PathConfig, Trains, TunedTransfer, TunerConfig};
use std::time::Duration;

/// Returns the time from an empty queue to each overflow.
fn overflows(path: &PathConfig) -> Vec<Duration> {
    let mut world = World::new(1);
    let route = world.add_path(path);
    let mut config = FlowConfig::new(&route);
    config.algorithm = Algorithm::NewReno;
    world.add_flow(config);
    let (mut empty, mut lost, mut ratio) = (Duration::ZERO, 0, Vec::new());
    let mut has_overflowed = false;
    world.run_with(SEC * 30, MS / 4, |world| {
        let link = route.forward[0];
        if world.backlog(link) == Bytes(0) {
            (empty, has_overflowed) = (world.now(), false);
        }
        let overflowed = world.counts(link).overflowed;
        if overflowed > lost && !has_overflowed {
            has_overflowed = true;
            ratio.push(world.now() - empty);
        }
        lost = overflowed;
    });
    ratio
}

/// Returns a path in Mbit/s and ms. Its buffer is a fraction of the bandwidth-delay product.
fn path(rate: f64, rtt: u32, share: f64) -> PathConfig {
    let bdp = rate * 1e6 / 8.0 * f64::from(rtt) / 1e3;
    PathConfig::new(mbit(rate), MS * rtt, Bytes((bdp * share) as u64))
}

#[test]
fn slow_start_overflow_time_matches_formula() {
    for (rate, rtt, share) in [(100.0, 50, 0.25), (100.0, 50, 0.5), (1000.0, 20, 0.5)] {
        let path = path(rate, rtt, share);
        let predicted =
            slow_start_latency(path.forward.buffer, mbit(rate), AckPolicy::EverySegment).unwrap();
        let ratio = overflows(&path)[0].div_duration_f64(predicted);
        assert!((0.9..1.1).contains(&ratio), "{rate} {rtt} {share}: {ratio}");
    }
}

#[test]
fn congestion_avoidance_overflow_time_matches_formula() {
    for (rate, rtt, share) in [(10.0, 50, 0.5), (20.0, 40, 0.25), (20.0, 40, 0.7)] {
        let path = path(rate, rtt, share);
        let (buffer, segment) = (path.forward.buffer, Bytes(1500));
        let predicted = congestion_avoidance_latency(
            buffer,
            mbit(rate),
            MS * rtt,
            segment,
            AckPolicy::EverySegment,
        )
        .unwrap();
        let all = overflows(&path);
        let ratio = all[all.len() / 2].div_duration_f64(predicted);
        assert!((0.9..1.1).contains(&ratio), "{rate} {rtt} {share}: {ratio}");
    }
}

/// Without trains, SOBAS needs four RTTs to detect a full line: B/C has to be more than that, with
/// a buffer of B before a line of rate C.
#[test]
fn start_without_trains_ends_before_overflow() {
    let overflowed = |share: f64| {
        let path = path(100.0, 50, share);
        let mut world = World::with_external(1);
        let route = world.add_path(&path);
        let config = TunerConfig { trains: Trains::Unavailable, ..TunerConfig::default() };
        let mut tuned = TunedTransfer::new(&mut world, &path, &route, &config);
        world.run_with(SEC * 5, MS, |world| tuned.tick(world));
        world.counts(route.forward[0]).overflowed
    };
    let round_trips = |share| {
        let buffer = path(100.0, 50, share).forward.buffer;
        slow_start_latency(buffer, mbit(100.0), AckPolicy::EverySegment)
            .unwrap()
            .div_duration_f64(MS * 50)
    };
    assert!(round_trips(5.0) > 4.0 && overflowed(5.0) == 0);
    // A shorter time is not sufficient: packet trains must report the capacity before.
    assert!(round_trips(0.1) < 0.11 && overflowed(0.1) > 0);
}
