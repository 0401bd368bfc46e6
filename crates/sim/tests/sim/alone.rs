//! Single flow on a single path.

use crate::{DATA_SHARE, MS, SEC, alone, mbit, preset, wide};
use bankfull_control::Bytes;
use bankfull_sim::tcp::{Algorithm, MSS};
use bankfull_sim::world::{FlowConfig, World};
use bankfull_sim::{Loss, PathConfig};

#[test]
fn slow_start_doubles_delivery_each_rtt() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        let report = alone(&wide(MS * 100), MS * 850, |flow| {
            flow.algorithm = algorithm;
            flow.sample_interval = MS * 100;
        });
        let segments: Vec<f64> =
            report.samples.iter().map(|r| r.bits_per_sec() as f64 / 80.0 / MSS as f64).collect();
        // Segments sent at 0 ms arrive from 50 ms on.
        let expected = [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0];
        for (found, expected) in segments.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 0.01, "{algorithm:?}: {segments:?}");
        }
    }
}

#[test]
fn receive_window_limits_goodput_to_window_per_rtt() {
    for (window, rtt_ms) in [(64 * MSS, 20), (500 * MSS, 50), (2 * MSS, 10)] {
        let report = alone(&wide(MS * rtt_ms), SEC * 10, |f| f.receive_window = Bytes(window));
        let expected = Bytes(window).per(MS * rtt_ms).bits_per_sec() as f64;
        let found = report.goodput.bits_per_sec() as f64;
        assert!((found / expected - 1.0).abs() < 0.04, "{window} {rtt_ms}: {found} {expected}");
        assert_eq!(report.stats.sender.retransmits, 0);
    }
}

#[test]
fn receive_window_change_changes_goodput() {
    let mut world = World::new(1);
    let route = world.add_path(&wide(MS * 20));
    let mut config = FlowConfig::new(&route);
    config.receive_window = Bytes(100 * MSS);
    let flow = world.add_flow(config);
    let mut segments_per_second = Vec::new();
    let mut before = Bytes(0);
    world.run_with(SEC * 6, SEC, |world| {
        let now = world.stats(flow).delivered;
        segments_per_second.push((now - before).0 / MSS);
        before = now;
        let second = world.now().as_secs();
        if second.is_multiple_of(2) {
            world.set_receive_window(flow, Bytes(if second == 2 { 10 } else { 300 } * MSS));
        }
    });
    // Fifty rounds per second, slightly less if the transmission of a window takes time.
    assert!((4900..=5000).contains(&segments_per_second[1]), "{segments_per_second:?}");
    assert!((495..=500).contains(&segments_per_second[3]), "{segments_per_second:?}");
    assert!((14_600..=15_000).contains(&segments_per_second[5]), "{segments_per_second:?}");
}

#[test]
fn pacing_below_capacity_on_shallow_path_is_lossless() {
    let path = preset("continental");
    let report = alone(&path, SEC * 10, |flow| {
        flow.receive_window = Bytes(path.bdp().unwrap().0 * 105 / 100);
        flow.pacing = Some(mbit(955.0));
    });
    assert_eq!(report.stats.sender.retransmits, 0);
    let used = report.goodput.bits_per_sec() as f64 / (1e9 * DATA_SHARE);
    assert!(used > 0.95, "{used}");
    assert!(report.rtt_mean < MS * 22, "there is no standing queue: {:?}", report.rtt_mean);
}

#[test]
fn unpaced_cubic_on_shallow_path_is_slow() {
    let report = alone(&preset("continental"), SEC * 6, |_| ());
    let found = report.goodput.bits_per_sec() / 1_000_000;
    // Measured on Linux 6.18 over such a path: 240 to 350 Mbit/s, 400 to 640 retransmissions.
    assert!((150..450).contains(&found), "{found} {:?}", report.stats);
    assert!((100..1500).contains(&report.stats.sender.retransmits), "{:?}", report.stats);
}

#[test]
fn deep_buffer_fills_line_and_adds_delay() {
    let path = PathConfig::new(mbit(100.0), MS * 20, Bytes(1_000_000));
    let report = alone(&path, SEC * 20, |_| ());
    let used = report.goodput.bits_per_sec() as f64 / (1e8 * DATA_SHARE);
    assert!(used > 0.97, "{used}");
    assert!(report.rtt_max > MS * 90, "20 ms, and 80 ms of queue: {:?}", report.rtt_max);
    assert_eq!(report.stats.sender.timeouts, 0);
}

#[test]
fn reno_follows_square_root_law_under_random_loss() {
    // Mathis, Semke, Mahdavi, Ott 1997: MSS / RTT × sqrt(3/2) / sqrt(p).
    for (rtt_ms, probability) in [(20, 0.001), (20, 0.0001), (80, 0.001), (50, 0.0003)] {
        let mut path = wide(MS * rtt_ms);
        path.forward.loss = Loss::Random { probability };
        let report = alone(&path, SEC * 600, |flow| flow.algorithm = Algorithm::NewReno);
        let seconds = f64::from(rtt_ms) / 1000.0;
        let law = MSS as f64 * 8.0 / seconds * (1.5 / probability).sqrt();
        let found = report.goodput.bits_per_sec() as f64 / law;
        assert!((found - 1.0).abs() < 0.25, "{rtt_ms} ms, {probability}: {found} of the law");
    }
}

#[test]
fn cubic_follows_response_function_under_random_loss() {
    // RFC 9438 §5.1: window = 1.054 × (RTT / p)^¾ for C = 0.4, where it is above Reno's.
    let (rtt, probability) = (MS * 100, 0.0001_f64);
    let mut path = wide(rtt);
    path.forward.loss = Loss::Random { probability };
    let report = alone(&path, SEC * 600, |_| ());
    let window = 1.054 * (rtt.as_secs_f64() / probability).powf(0.75);
    let law = window * MSS as f64 * 8.0 / rtt.as_secs_f64();
    let found = report.goodput.bits_per_sec() as f64 / law;
    assert!((found - 1.0).abs() < 0.3, "{found} of the law");
}

#[test]
fn lost_tail_is_probed_before_timeout() {
    // The path is cut while the second half of the first window is in flight.
    let mut world = World::new(1);
    let mut path = wide(MS * 20);
    path.forward.rate = Some(mbit(10.0));
    let route = world.add_path(&path);
    let mut config = FlowConfig::new(&route);
    config.bytes = Some(Bytes(20 * MSS));
    let flow = world.add_flow(config);
    world.run_until(MS * 21);
    world.set_cut(route.forward[0], true);
    world.run_until(MS * 34);
    world.set_cut(route.forward[0], false);
    assert!(world.run_until_done(SEC * 10));
    let report = world.report(flow);
    assert_eq!((report.stats.sender.timeouts, report.stats.sender.probes), (0, 1));
    assert!(report.completion.unwrap() < MS * 200, "{:?}", report.completion);
}

#[test]
fn cut_path_backs_off_and_resumes_when_restored() {
    let mut world = World::new(1);
    let route = world.add_path(&preset("continental"));
    let mut config = FlowConfig::new(&route);
    config.bytes = Some(Bytes::mib(100));
    let flow = world.add_flow(config);
    world.run_until(MS * 500);
    world.set_cut(route.forward[0], true);
    world.run_until(MS * 8500);
    let timeouts = world.stats(flow).sender.timeouts;
    assert!((4..=6).contains(&timeouts), "doubling from 0.22 s: {timeouts}");
    world.set_cut(route.forward[0], false);
    assert!(world.run_until_done(SEC * 60));
    assert_eq!(world.stats(flow).delivered, Bytes::mib(100));
}
