//! Metrics of the daemon over HTTP: what sessions have carried, and its state while it drains.

use super::harness::{Daemon, Rng, Running, Scratch, cp, fill, remote_host, run, wait_until};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

/// Starts a daemon that offers metrics; returns it with their address.
fn measured(root: &Scratch) -> (Daemon, String) {
    let daemon = Daemon::start(root.path(), &["--metrics", &format!("{}:0", remote_host())]);
    let address = daemon.events()[0]["metrics"].as_str().unwrap().to_owned();
    (daemon, address)
}

/// Fetches a page.
fn page(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: daemon\r\n\r\n").as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// Returns the value of a metric of the daemon, with its labels.
fn value(address: &str, name: &str) -> f64 {
    let text = page(address, "/metrics");
    let prefix = format!("bankfull_serve_{name} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&prefix));
    value.map_or(0.0, |value| value.parse().unwrap())
}

#[test]
fn daemon_counts_what_sessions_carried() {
    let (here, there) = (Scratch::new(), Scratch::new());
    fill(&here.dir("data").join("file"), 3 << 20, &mut Rng::new(1));
    let (daemon, address) = measured(&there);
    run(daemon.cp().arg(here.join("data")).arg(daemon.url("in"))).expect(0);
    run(daemon.cp().arg(daemon.url("in/data")).arg(here.join("back"))).expect(0);
    let ended = "ended_sessions_total{outcome=\"complete\"}";
    wait_until("both sessions ended", || value(&address, ended) == 2.0);
    for direction in ["receive", "send"] {
        let carried = format!("carried_bytes_total{{direction=\"{direction}\",route=\"tcp\"}}");
        let carried = value(&address, &carried);
        assert!((3e6..4e6).contains(&carried), "{direction}: {carried}");
    }
    assert_eq!(value(&address, "files_total{outcome=\"copied\"}"), 2.0);
    assert_eq!(value(&address, "sessions{direction=\"receive\"}"), 0.0);
    assert_eq!(value(&address, "goodput_bytes_per_second_count"), 2.0);
    assert!(value(&address, "stage_seconds_total{direction=\"receive\",stage=\"network\"}") > 0.0);
}

#[test]
fn draining_daemon_is_alive_but_not_ready() {
    let (here, there) = (Scratch::new(), Scratch::new());
    fill(&here.dir("data").join("file"), 64 << 20, &mut Rng::new(2));
    let (mut daemon, address) = measured(&there);
    let state = |path: &str| page(&address, path).lines().next().unwrap().to_owned();
    assert_eq!(state("/readyz"), "HTTP/1.1 200 OK");
    let mut copy = daemon.cp();
    copy.args(["--max-rate", "1mbit"]).arg(here.join("data")).arg(daemon.url("in"));
    let mut copy = Running::start(&mut copy);
    wait_until("the session runs", || value(&address, "sessions{direction=\"receive\"}") == 1.0);
    let carried = "carried_bytes_total{direction=\"receive\",route=\"tcp\"}";
    wait_until("data arrives", || value(&address, carried) > 0.0);
    daemon.running().signal(Signal::TERM);
    wait_until("the daemon drains", || state("/readyz") == "HTTP/1.1 503 Service Unavailable");
    assert_eq!(state("/healthz"), "HTTP/1.1 200 OK");
    daemon.running().signal(Signal::TERM);
    assert_eq!(daemon.wait(), Some(0));
    copy.kill();
}

#[test]
fn copy_writes_its_metrics_for_a_collector() {
    let here = Scratch::new();
    fill(&here.dir("d").join("f"), 100_000, &mut Rng::new(1));
    let file = here.join("nightly.prom");
    let copy = |to: &str| {
        let mut command = cp();
        command.arg("--metrics-file").arg(&file).arg(here.join("d")).arg(here.join(to));
        run(&mut command)
    };
    let shown = |line: &str| {
        let text = fs::read_to_string(&file).unwrap();
        let is_it = |found: &str| found == line;
        assert!(text.lines().any(is_it), "{line}: {text}");
        text
    };
    copy("to").expect(0);
    shown("bankfull_cp_success{copy=\"nightly\"} 1.0");
    shown("bankfull_cp_transferred_bytes{copy=\"nightly\"} 100000.0");
    shown("bankfull_cp_files{copy=\"nightly\",outcome=\"copied\"} 1");
    shown("# TYPE bankfull_cp_end_timestamp_seconds gauge");
    copy("d/inside").expect(1);
    let failed = shown("bankfull_cp_success{copy=\"nightly\"} 0.0");
    assert!(failed.contains("bankfull_cp_exit_code{copy=\"nightly\"} 1.0"), "{failed}");
    assert!(!failed.contains("transferred"), "{failed}");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    // A copy that succeeded is told apart from its metrics.
    let mut lost = cp();
    lost.arg("--metrics-file").arg("/nonexistent/x.prom").arg(here.join("d"));
    run(lost.arg(here.join("b")))
        .expect(11)
        .says(&["cannot write the metrics /nonexistent/x.prom"]);
    assert!(here.join("b/d/f").exists());
}
