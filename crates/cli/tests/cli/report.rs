//! `cp --report`: the page that it writes, in a real browser where there is one.

use super::harness::{Daemon, Proxy, Rng, Scratch, cp, fill, run, write_file};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A copy that takes some seconds, up or down, and its report.
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

/// What a report of a copy over a network has, whoever receives.
fn check(html: &str) {
    for part in [
        "What was copied",
        "Carried by the data connections",
        "Round trip",
        "Receive windows",
        "Arrived and not written yet",
        "How much may wait to be written, and why",
        "Segments sent again",
        "Who kept the other waiting",
        "Sender",
        "Receiver",
        "Flags mark what was decided",
        "What was decided, and why",
        "12.0 MiB",
    ] {
        assert!(html.contains(part), "{part} is missing");
    }
    // The proxy carries TCP alone: the user is told once, and TCP tells what a round trip takes.
    assert_eq!(html.matches("nothing comes back over UDP from 127.0.0.1").count(), 1);
    assert!(!html.contains("packet trains told"));
    for outside in ["http://", "https://", "src="] {
        let own = html.replace("http://www.w3.org/", "");
        assert!(!own.contains(outside), "the page refers to {outside}");
    }
}

#[test]
fn a_copy_within_a_host_is_reported_in_bytes_per_second_and_names_what_failed() {
    let here = Scratch::new();
    fill(&here.dir("tree").join("large"), 4 << 20, &mut Rng::new(6));
    write_file(&here.join("tree/in the way"), b"file");
    write_file(&here.join("out/tree/in the way/leaf"), b"leaf");
    let page = here.join("report.html");
    let mut command = cp();
    command.arg("--report").arg(&page).args([here.join("tree"), here.join("out")]);
    run(&mut command).expect(23);
    let html = fs::read_to_string(&page).unwrap();
    let why = html.split_once("What failed").unwrap().1;
    assert!(why.contains("tree/in the way"), "{why}");
    assert!(html.contains("B/s") && !html.contains("bit/s"));
    assert!(!html.contains("Flags mark"), "there are none");
    assert!(html.contains(", 1 failed"));
}

#[test]
fn a_push_is_reported_with_what_the_daemon_decided() {
    check(&report_of(false).1);
}

#[test]
fn a_pull_is_reported_and_a_browser_shows_it() {
    let (here, html) = report_of(true);
    check(&html);
    let charts = html.matches(" data-axis=\"").count();
    assert!(charts >= 6, "{charts} charts");
    let Some(dom) = shown_by_browser(&here.join("report <1>.html")) else { return };
    // The page's script adds these to each chart.
    assert_eq!(dom.matches("class=\"tip\"").count(), charts);
}

/// The page as a browser has it once its script has run.
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
fn a_report_is_written_of_a_copy_that_fails_and_of_one_within_the_host() {
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
    assert!(fs::read_to_string(&page).unwrap().contains("It could not go on"));
}

#[test]
fn a_report_that_cannot_be_written_ends_the_copy_before_it_begins() {
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
fn a_report_never_takes_the_place_of_what_is_copied() {
    let here = Scratch::new();
    fs::write(here.join("a.html"), "a page of mine").unwrap();
    for [from, to] in [["a.html", "b.html"], ["b.html", "a.html"]] {
        let mut command = cp();
        command.arg("--report").arg(here.join("a.html")).arg(here.join(from));
        let done = run(command.arg(here.join(to))).expect(1);
        assert!(done.err.contains("would overwrite a file to copy"), "{}", done.err);
    }
    assert_eq!(fs::read_to_string(here.join("a.html")).unwrap(), "a page of mine");
    // In a tree that is copied it is written when that is done.
    fs::create_dir(here.join("tree")).unwrap();
    fs::write(here.join("tree/file"), "content").unwrap();
    let mut command = cp();
    command.arg("--report").arg(here.join("tree/r.html")).arg(here.join("tree"));
    run(command.arg(here.join("copy"))).expect(0);
    assert!(here.join("tree/r.html").exists() && here.join("copy/tree/file").exists());
    assert!(!here.join("copy/tree/r.html").exists());
    // It takes the place of an earlier report, and of nothing else: neither of a file in the tree
    let mut again = cp();
    again.arg("--report").arg(here.join("tree/r.html")).arg(here.join("tree"));
    run(again.arg(here.join("other"))).expect(0);
    fs::write(here.join("tree/index.html"), "a page of mine").unwrap();
    let mut command = cp();
    command.arg("--report").arg(here.join("tree/index.html")).arg(here.join("tree"));
    let done = run(command.arg(here.join("third"))).expect(11);
    assert!(done.err.contains("is there already and is no report"), "{}", done.err);
    assert!(!here.join("third").exists());
    // nor of one that was just copied there.
    fs::create_dir(here.join("into")).unwrap();
    let mut command = cp();
    command.arg("--report").arg(here.join("into/a.html")).arg(here.join("a.html"));
    let done = run(command.arg(here.join("into"))).expect(11);
    assert!(done.err.contains("the copy has ended, but its report is lost"), "{}", done.err);
    let told = done.notices().iter().any(|notice| notice.starts_with("files copied: 1, "));
    assert!(told, "what came of the copy is told all the same: {}", done.out);
    assert_eq!(fs::read_to_string(here.join("into/a.html")).unwrap(), "a page of mine");
}

#[test]
fn a_copy_that_is_left_to_the_kernel_is_reported_as_far_as_this_side_sees_it() {
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
    shows_what_is_seen(&html);
    assert!(html.contains("Who kept the other waiting"));
}

/// What a report of a push has that nobody steers: what is sent is seen here, and what becomes of
/// it there.
fn shows_what_is_seen(html: &str) {
    for part in [
        "Carried by the data connections",
        "Round trip",
        "Segments sent again",
        "Arrived and not written yet",
        "How much may wait to be written, and why",
        "Sender",
        "Receiver",
    ] {
        assert!(html.contains(part), "{part} is missing");
    }
    assert!(!html.contains("What was decided, and why"), "nothing was of window and pacing");
    assert!(html.contains("Flags mark what was decided"), "how much may wait was");
}

#[test]
fn a_push_by_quic_is_reported_with_what_is_seen_on_both_sides_and_a_pull_with_its_round_trip() {
    let (here, there) = (Scratch::new(), Scratch::new());
    fill(&here.join("large"), 16 << 20, &mut Rng::new(9));
    let daemon = Daemon::start(there.path(), &[]);
    let page = here.join("r.html");
    // Two seconds, and several blocks of each stream, for something to be seen.
    let quic = || {
        let mut command = daemon.cp();
        command.args(["--transport", "quic", "--max-rate", "64mbit", "--report"]).arg(&page);
        command
    };
    let done = run(quic().arg(here.join("large")).arg(daemon.url("copy"))).expect(0);
    let html = fs::read_to_string(&page).unwrap();
    shows_what_is_seen(&html);
    assert!(!html.contains("Who kept the other waiting"), "nobody has looked");
    let events = done.events();
    let told = events.iter().filter(|event| event["event"] == "staging");
    let sizes: Vec<_> = told.map(|event| event["size_bytes"].as_u64()).collect();
    assert!(!sizes.is_empty() && sizes.iter().all(|size| size.unwrap() > 0), "{sizes:?}");
    run(quic().arg(daemon.url("copy")).arg(here.join("back"))).expect(0);
    let html = fs::read_to_string(&page).unwrap();
    for part in ["Carried by the data connections", "Round trip", "Arrived and not written yet"] {
        assert!(html.contains(part), "{part} is missing");
    }
    assert!(!html.contains("Segments sent again so far"), "only the daemon knows");
}
