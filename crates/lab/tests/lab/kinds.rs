//! Kinds of path: the words of scenarios on the live emulator, with real TCP.

use super::{MACHINE, start};
use bankfull_control::Bytes;
use bankfull_lab::base::deadline::Deadline;
use bankfull_lab::base::signals::Signals;
use bankfull_lab::model::path::PathSettings;
use bankfull_lab::model::plan::{FlowSpec, Plan};
use bankfull_lab::topology::emulator::Recording;
use bankfull_lab::topology::flows::Flows;
use std::thread;
use std::time::Duration;

const PORT: u16 = 7000;

/// Goodput of a CUBIC flow in Mbit/s on a path in TOML, and the recording.
fn run(path: &str, seconds: u64, change: impl FnOnce(&mut Plan)) -> Option<(f64, Recording)> {
    let _busy = MACHINE.share();
    let settings: PathSettings = toml::from_str(path).unwrap();
    let mut plan = Plan::path(&settings.config().unwrap());
    plan.congestion = Some("cubic".to_owned());
    plan.tcp_buffer_bytes = Some(16 << 20);
    change(&mut plan);
    let network = start(&plan)?;
    let signals = Signals::unwatched();
    let deadline = Deadline::new(&signals, Duration::from_secs(60));
    let kind = FlowSpec { count: 1, window: None, congestion: None };
    let mut flows = Flows::connect(&network, 0, PORT, &kind, &deadline).unwrap();
    flows.start().unwrap();
    thread::sleep(Duration::from_secs(seconds));
    let mbit = flows.received().0 as f64 * 8e-6 / seconds as f64;
    drop(flows);
    Some((mbit, network.stop().unwrap().recording))
}

#[test]
fn codel_marks_what_requests_ecn_and_drops_others() {
    let path = "rate = '20mbit'\nrtt = '20ms'\nbuffer = '1MB'\nlink = ['codel', 'ecn']";
    for tcp_ecn in [1, 0] {
        let Some((mbit, found)) = run(path, 4, |plan| plan.tcp_ecn = Some(tcp_ecn)) else { return };
        let totals = found.totals[1];
        assert!(mbit > 10.0, "{mbit} Mbit/s, {totals:?}");
        match tcp_ecn {
            1 => assert!(totals.marked > 0 && totals.early_dropped == 0, "{totals:?}"),
            _ => assert!(totals.marked == 0 && totals.early_dropped > 0, "{totals:?}"),
        }
    }
}

#[test]
fn queues_drop_early_and_policers_drop_above_their_rate() {
    for words in ["'pie'", "'fq-codel'", "'policer:10mbit,30kB'"] {
        let path = format!("rate = '20mbit'\nrtt = '20ms'\nbuffer = '1MB'\nlink = [{words}]");
        let Some((mbit, found)) = run(&path, 4, |_| {}) else { return };
        let totals = found.totals[1];
        match words.contains("policer") {
            true => assert!(mbit < 11.0 && totals.policed > 0, "{mbit} {totals:?}"),
            false => assert!(mbit > 10.0 && totals.early_dropped > 0, "{words} {mbit} {totals:?}"),
        }
    }
}

/// Bounds are of the rate in the mean of the run, in Mbit/s; the upper one is what passes at most.
#[test]
fn rates_that_vary_limit_real_tcp() {
    for (words, least, most) in [
        ("'steps:5mbit@2s'", 4.0, 13.5),
        ("'square:4mbit,500ms'", 4.0, 13.0),
        ("'walk:5mbit,200ms'", 2.0, 41.0),
        ("'burst:256kB'", 10.0, 21.0),
        ("'silence:1s@1s'", 2.0, 16.0),
        ("'rtt:120ms@1s'", 4.0, 20.0),
        ("'trace:cellular'", 0.5, 41.0),
    ] {
        let path = format!("rate = '20mbit'\nrtt = '20ms'\nbuffer = '100kB'\nlink = [{words}]");
        let Some((mbit, found)) = run(&path, 4, |_| {}) else { return };
        assert!((least..most).contains(&mbit), "{words}: {mbit} Mbit/s, {:?}", found.totals[1]);
    }
}

#[test]
fn connection_survives_path_whose_mtu_falls() {
    let path = "rate = '20mbit'\nrtt = '20ms'\nbuffer = '100kB'\nlink = ['mtu:1300@2s']";
    let Some((mbit, found)) = run(path, 4, |_| {}) else { return };
    assert!(found.totals[1].too_long > 0, "{:?}", found.totals[1]);
    assert!(mbit > 10.0, "the sender adopted the new MTU: {mbit} Mbit/s");
}

#[test]
fn slow_reverse_path_thins_acknowledgements() {
    let path = "rate = '50mbit'\nrtt = '20ms'\nbuffer = '200kB'\n\
                back = ['rate:200kbit', 'buffer:20kB', 'thin-acks']";
    let Some((_, found)) = run(path, 4, |_| {}) else { return };
    assert!(found.totals[0].thinned_acks > 20, "{:?}", found.totals[0]);
}

#[test]
fn reordered_and_duplicated_packets_reach_the_receiver_intact() {
    let path = "rate = '50mbit'\nrtt = '10ms'\nbuffer = '100kB'\n\
                link = ['reorder:2%,3ms', 'duplicate:2%', 'jitter:2ms,20ms', 'frames:2ms']";
    let Some((mbit, found)) = run(path, 3, |_| {}) else { return };
    assert!(found.totals[1].duplicated > 20 && mbit > 2.0, "{mbit} {:?}", found.totals[1]);
}

#[test]
fn simulated_cross_traffic_shares_queue_with_real_packets() {
    let path = "rate = '40mbit'\nrtt = '20ms'\nbuffer = '100kB'\n\
                beside = ['cubic*3', 'web:4mbit', 'video:2mbit']\n\
                first-hop = ['rate:60mbit', 'buffer:100kB']";
    let Some((mbit, found)) = run(path, 6, |_| {}) else { return };
    let beside: Vec<Bytes> = found.background.iter().map(|one| one.delivered).collect();
    assert!(mbit > 2.0 && mbit < 30.0, "{mbit} {beside:?}");
    assert!(beside.iter().all(|bytes| *bytes > Bytes(500_000)), "{beside:?}");
    assert!(found.background[1].completion_times.len() > 20);
    let seconds = found.background_time.as_secs_f64();
    let all = beside.iter().map(|bytes| bytes.0 as f64 * 8e-6).sum::<f64>() / seconds;
    assert!((30.0..41.0).contains(&(all + mbit)), "the line is full: {all} + {mbit}");
}
