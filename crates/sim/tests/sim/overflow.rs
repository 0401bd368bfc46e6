//! How long TCP takes to overflow a queue once it has filled the line, beside the formulas of
//! [`bankfull_control::sobas::overflow`]; and whether the controller has noticed by then.

use crate::steered::{Setting, Steered};
use crate::{MS, SEC, mbit};
use bankfull_control::Bytes;
use bankfull_control::sobas::overflow::{
    AckPolicy, congestion_avoidance_latency, slow_start_latency,
};
use bankfull_sim::PathConfig;
use bankfull_sim::tcp::Algorithm;
use bankfull_sim::world::{FlowConfig, World};
use std::time::Duration;

/// For each overflow of a queue that was empty before: how long it had not been so.
fn overflows(path: &PathConfig) -> Vec<Duration> {
    let mut world = World::new(1);
    let route = world.add_path(path);
    let mut config = FlowConfig::new(&route);
    config.algorithm = Algorithm::NewReno;
    world.add_flow(config);
    let (mut empty, mut lost, mut took) = (Duration::ZERO, 0, Vec::new());
    let mut has_overflowed = false;
    world.run_with(SEC * 30, MS / 4, |world| {
        let link = route.forward[0];
        if world.backlog(link) == Bytes(0) {
            (empty, has_overflowed) = (world.now(), false);
        }
        let overflowed = world.counts(link).overflowed;
        if overflowed > lost && !has_overflowed {
            has_overflowed = true;
            took.push(world.now() - empty);
        }
        lost = overflowed;
    });
    took
}

/// A path in Mbit/s and ms, and its buffer as a share of what is in flight.
fn path(rate: f64, rtt: u32, share: f64) -> PathConfig {
    let bdp = rate * 1e6 / 8.0 * f64::from(rtt) / 1e3;
    PathConfig::new(mbit(rate), MS * rtt, Bytes((bdp * share) as u64))
}

#[test]
fn slow_start_overflows_a_queue_when_the_formula_says() {
    for (rate, rtt, share) in [(100.0, 50, 0.25), (100.0, 50, 0.5), (1000.0, 20, 0.5)] {
        let path = path(rate, rtt, share);
        let told =
            slow_start_latency(path.forward.buffer, mbit(rate), AckPolicy::EverySegment).unwrap();
        let took = overflows(&path)[0].div_duration_f64(told);
        assert!((0.9..1.1).contains(&took), "{rate} {rtt} {share}: {took}");
    }
}

#[test]
fn avoidance_overflows_a_queue_when_the_formula_says() {
    for (rate, rtt, share) in [(10.0, 50, 0.5), (20.0, 40, 0.25), (20.0, 40, 0.7)] {
        let path = path(rate, rtt, share);
        let (buffer, segment) = (path.forward.buffer, Bytes(1500));
        let told = congestion_avoidance_latency(
            buffer,
            mbit(rate),
            MS * rtt,
            segment,
            AckPolicy::EverySegment,
        )
        .unwrap();
        let all = overflows(&path);
        let took = all[all.len() / 2].div_duration_f64(told);
        assert!((0.9..1.1).contains(&took), "{rate} {rtt} {share}: {took}");
    }
}

/// With a buffer of B before a line of C there is B/C to notice that the line is full, and then as
/// much is on its way as comes in a round trip.
#[test]
fn a_start_that_nothing_tells_of_ends_in_time_where_the_formula_gives_two_round_trips() {
    let overflowed = |share: f64| {
        let path = path(100.0, 50, share);
        let mut world = World::new(1);
        let route = world.add_path(&path);
        let setting = Setting { trains: None, ..Setting::default() };
        let mut steered = Steered::new(&mut world, &path, &route, &setting);
        world.run_with(SEC * 5, MS, |world| steered.tick(world));
        world.counts(route.forward[0]).overflowed
    };
    let round_trips = |share| {
        let buffer = path(100.0, 50, share).forward.buffer;
        slow_start_latency(buffer, mbit(100.0), AckPolicy::EverySegment)
            .unwrap()
            .div_duration_f64(MS * 50)
    };
    assert!(round_trips(2.0) > 1.99 && overflowed(2.0) == 0);
    // There nobody can notice in time: packet trains have to tell before.
    assert!(round_trips(0.1) < 0.11 && overflowed(0.1) > 0);
}
