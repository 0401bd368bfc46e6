//! `--report`: the HTML report of each command, shown in a real browser if there is one.

use super::harness::{Daemon, Many, Proxy, Rng, Scratch, cp, fill, run, write_file};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Copies for some seconds, in either direction; returns the report.
fn report_of(pull: bool) -> (Scratch, String) {
    let (here, there) = (Scratch::new(), Scratch::new());
    let source = if pull { &there } else { &here };
    fill(&source.join("large"), 12 << 20, &mut Rng::new(5));
    let daemon = Daemon::start(there.path(), &[]);
    let proxy = Proxy::start(daemon.port);
    proxy.slow_to(1 << 20);
    let page = here.join("report <1>.html");
    let mut command = daemon.cp();
    command.arg("--report").arg(&page);
    match pull {
        true => command.arg(proxy.url("large")).arg(here.join("copy")),
        false => command.arg(here.join("large")).arg(proxy.url("copy")),
    };
    run(&mut command).expect(0);
    let html = fs::read_to_string(&page).unwrap();
    (here, html)
}

/// Checks a report of a copy over a network.
fn check(html: &str) {
    for part in [
        "was the limit.",
        "<dt>command</dt>",
        "bankfull cp ",
        " UTC",
        "Rate of the data streams",
        "RTT",
        "Receive windows",
        "Buffered for the disk",
        "Sender",
        "Receiver",
        "Numbered flags mark decisions",
        "12.0 MiB",
    ] {
        assert!(html.contains(part), "{part} is missing");
    }
    // The proxy carries TCP alone: one warning, and the RTT is that of TCP.
    assert_eq!(html.matches("no response over UDP from 127.0.0.1").count(), 1);
    assert!(!html.contains("packet trains measured"));
    for outside in ["http://", "https://", "src="] {
        let own = html.replace("http://www.w3.org/", "");
        assert!(!own.contains(outside), "the page refers to {outside}");
    }
}

#[test]
fn local_report_is_in_bytes_with_failed_files() {
    let here = Scratch::new();
    fill(&here.dir("tree").join("large"), 4 << 20, &mut Rng::new(6));
    write_file(&here.join("tree/in the way"), b"file");
    write_file(&here.join("out/tree/in the way/leaf"), b"leaf");
    let page = here.join("report.html");
    let mut command = cp();
    command.arg("--report").arg(&page).args([here.join("tree"), here.join("out")]);
    run(&mut command).expect(23);
    let html = fs::read_to_string(&page).unwrap();
    let why = html.split_once("Failed files").unwrap().1;
    assert!(why.contains("tree/in the way"), "{why}");
    assert!(html.contains("B/s") && !html.contains("bit/s"));
    assert!(!html.contains("Numbered flags"), "there are no decisions");
    assert!(html.contains(", 1 failed"));
}

#[test]
fn push_report_has_the_decisions_of_the_daemon() {
    check(&report_of(false).1);
}

#[test]
fn pull_report_is_shown_by_a_browser() {
    let (here, html) = report_of(true);
    check(&html);
    let charts = html.matches(" data-axis=\"").count();
    assert!(charts >= 6, "{charts} charts");
    let Some(dom) = shown_by_browser(&here.join("report <1>.html")) else { return };
    // The script of the page adds these to each chart.
    assert_eq!(dom.matches("class=\"tip\"").count(), charts);
}

/// Returns the page after a browser has run its script.
fn shown_by_browser(page: &Path) -> Option<String> {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let found = browsers.iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    let Some(browser) = found else {
        println!("skipped: there is no chromium to show the report");
        return None;
    };
    let profile = Scratch::new();
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    command.arg(page);
    let done = super::harness::run_for(&mut command, Duration::from_secs(120));
    Some(done.expect(0).out)
}

#[test]
fn report_is_written_for_failed_and_local_copies() {
    let here = Scratch::new();
    fill(&here.join("file"), 3 << 20, &mut Rng::new(6));
    let page = here.join("r.html");
    let report = |source: &str| {
        let mut command = cp();
        command.arg("--report").arg(&page).arg(here.join(source)).arg(here.join("copy"));
        run(&mut command)
    };
    report("file").expect(0);
    assert!(fs::read_to_string(&page).unwrap().contains("3.0 MiB"));
    report("missing").expect(3);
    assert!(fs::read_to_string(&page).unwrap().contains("The copy failed: "));
}

#[test]
fn unwritable_report_stops_the_copy_at_the_start() {
    let here = Scratch::new();
    fill(&here.join("file"), 10, &mut Rng::new(7));
    let mut command = cp();
    command.arg("--report").arg(here.join("no/r.html")).arg(here.join("file"));
    let done = run(command.arg(here.join("copy"))).expect(11);
    assert!(done.err.contains("cannot write the report"), "{}", done.err);
    assert!(!here.join("copy").exists());
    let mut command = cp();
    command.arg("--report").arg(here.join("r.html")).arg("-n").arg(here.join("file"));
    run(command.arg(here.join("copy"))).expect(1);
    assert!(!here.join("r.html").exists());
}

#[test]
fn report_never_overwrites_copied_files() {
    let here = Scratch::new();
    fs::write(here.join("a.html"), "a page of mine").unwrap();
    for [from, to] in [["a.html", "b.html"], ["b.html", "a.html"]] {
        let mut command = cp();
        command.arg("--report").arg(here.join("a.html")).arg(here.join(from));
        let done = run(command.arg(here.join(to))).expect(1);
        assert!(done.err.contains("would overwrite an operand"), "{}", done.err);
    }
    assert_eq!(fs::read_to_string(here.join("a.html")).unwrap(), "a page of mine");
    // A report in a copied tree is written after the copy.
    fs::create_dir(here.join("tree")).unwrap();
    fs::write(here.join("tree/file"), "content").unwrap();
    let mut command = cp();
    command.arg("--report").arg(here.join("tree/r.html")).arg(here.join("tree"));
    run(command.arg(here.join("copy"))).expect(0);
    assert!(here.join("tree/r.html").exists() && here.join("copy/tree/file").exists());
    assert!(!here.join("copy/tree/r.html").exists());
    // It replaces an earlier report and nothing else: neither a file in the tree
    let mut again = cp();
    again.arg("--report").arg(here.join("tree/r.html")).arg(here.join("tree"));
    run(again.arg(here.join("other"))).expect(0);
    fs::write(here.join("tree/index.html"), "a page of mine").unwrap();
    let mut command = cp();
    command.arg("--report").arg(here.join("tree/index.html")).arg(here.join("tree"));
    let done = run(command.arg(here.join("third"))).expect(11);
    assert!(done.err.contains("the file exists and is not a report"), "{}", done.err);
    assert!(!here.join("third").exists());
    // nor one that was just copied there.
    fs::create_dir(here.join("into")).unwrap();
    let mut command = cp();
    command.arg("--report").arg(here.join("into/a.html")).arg(here.join("a.html"));
    let done = run(command.arg(here.join("into"))).expect(11);
    assert!(
        done.err.contains("the command has ended, but its report cannot be written"),
        "{}",
        done.err
    );
    let reported = done.warnings().iter().any(|warning| warning.starts_with("files copied: 1, "));
    assert!(reported, "the result of the copy is missing: {}", done.out);
    assert_eq!(fs::read_to_string(here.join("into/a.html")).unwrap(), "a page of mine");
}

#[test]
fn untuned_copy_report_has_local_figures() {
    let (here, there) = (Scratch::new(), Scratch::new());
    fill(&here.join("large"), 6 << 20, &mut Rng::new(8));
    let daemon = Daemon::start(there.path(), &[]);
    let proxy = Proxy::start(daemon.port);
    proxy.slow_to(1 << 20);
    let page = here.join("r.html");
    let mut command = daemon.cp();
    command.args(["--tune", "off", "--report"]).arg(&page).arg(here.join("large"));
    run(command.arg(proxy.url("copy"))).expect(0);
    let html = fs::read_to_string(&page).unwrap();
    check_untuned(&html);
}

/// Checks the report of an untuned push: the rate of this side, and the buffer of the peer.
fn check_untuned(html: &str) {
    for part in ["Rate of the data streams", "RTT", "Buffered for the disk", "Sender", "Receiver"] {
        assert!(html.contains(part), "{part} is missing");
    }
    assert!(html.contains("Numbered flags mark decisions"), "the buffer limit is missing");
}

#[test]
fn quic_report_has_the_figures_of_both_sides() {
    let (here, there) = (Scratch::new(), Scratch::new());
    fill(&here.join("large"), 16 << 20, &mut Rng::new(9));
    let daemon = Daemon::start(there.path(), &[]);
    let page = here.join("r.html");
    // Two seconds, and several blocks per stream, so that there are samples.
    let quic = || {
        let mut command = daemon.cp();
        command.args(["--transport", "quic", "--max-rate", "64mbit", "--report"]).arg(&page);
        command
    };
    let done = run(quic().arg(here.join("large")).arg(daemon.url("copy"))).expect(0);
    let html = fs::read_to_string(&page).unwrap();
    check_untuned(&html);
    assert!(!html.contains("Limited by an endpoint"), "QUIC has no such samples");
    let events = done.events();
    let reported = events.iter().filter(|event| event["event"] == "buffer_limit");
    let sizes: Vec<_> = reported.map(|event| event["size_bytes"].as_u64()).collect();
    assert!(!sizes.is_empty() && sizes.iter().all(|size| size.unwrap() > 0), "{sizes:?}");
    run(quic().arg(daemon.url("copy")).arg(here.join("back"))).expect(0);
    let html = fs::read_to_string(&page).unwrap();
    for part in ["Rate of the data streams", "RTT", "Buffered for the disk"] {
        assert!(html.contains(part), "{part} is missing");
    }
    assert!(!html.contains("Retransmits so far"), "only the daemon has them");
}

#[test]
fn gather_report_has_its_sources_and_decisions() {
    // Long enough for some samples.
    let many = Many::start(3, 60 << 20);
    let here = Scratch::new();
    let page = here.join("gather.html");
    let mut sources = many.sources();
    sources.push("bankfull://127.0.0.1:9/none".to_owned());
    let flags = ["--link-rate", "100mbit", "--report", page.to_str().unwrap()];
    run(&mut many.gather(&flags, &sources)).expect(23);
    let html = fs::read_to_string(&page).unwrap();
    for part in [
        "4 sources →",
        "1 failed",
        "Rate of all data streams",
        "Rate of each source",
        "Receive windows",
        "<td>ictcp</td>",
        &sources[0],
        "cannot connect to 127.0.0.1:9",
    ] {
        assert!(html.contains(part), "{part} is missing");
    }
    let mut again = many.gather(&flags, &sources);
    run(again.arg("--dry-run")).expect(1).says(&["a dry run has no report"]);
}

#[test]
fn probe_report_has_its_figures_and_the_path() {
    let (here, root) = (Scratch::new(), Scratch::new());
    let daemon = Daemon::start(root.path(), &[]);
    let page = here.join("probe.html");
    let mut command = daemon.probe();
    command.args(["--time", "2", "--report"]).arg(&page).arg(daemon.url(""));
    run(&mut command).expect(0);
    let html = fs::read_to_string(&page).unwrap();
    for part in ["Path to bankfull://", "<dt>capacity</dt>", "<dt>goodput</dt>", "RTT", "Sender"] {
        assert!(html.contains(part), "{part} is missing");
    }
    // The page of a failed probe says why.
    let mut command = daemon.probe();
    command.arg("--report").arg(&page).arg("bankfull://127.0.0.1:9");
    assert_ne!(run(&mut command).code, Some(0));
    assert!(fs::read_to_string(&page).unwrap().contains("The probe failed: cannot connect"));
}
