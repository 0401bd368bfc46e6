//! `bankfull gather`: many sources into one destination, some of which fail.

use super::harness::{
    Daemon, Many, Proxy, Running, Scratch, assert_same, is_over_path, litter, remote_address,
    remote_host, remote_url, run, wait_until, write_file,
};
use super::output::{documented, fields};
use super::{command, err};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// Returns a source at a closed port.
fn dead() -> String {
    let listener = std::net::TcpListener::bind((remote_host(), 0));
    let port = listener.map_or(9, |listener| listener.local_addr().unwrap().port());
    remote_url(port, "data")
}

/// Returns the results of the sources, in order.
fn ended(events: &[Value]) -> Vec<Value> {
    let mut done: Vec<Value> =
        events.iter().filter(|event| event["event"] == "source_done").cloned().collect();
    done.sort_by_key(|event| event["source_index"].as_u64());
    done
}

#[test]
fn sources_arrive_under_host_names_and_repeat_is_empty() {
    let many = Many::start(3, 3 * MIB);
    let done = run(&mut many.gather(&[], &many.sources())).expect(0);
    for number in 0..3 {
        assert_same(&many.tree(number), &many.copied_to(number));
    }
    let figures = done.figures(["sources_total", "sources_failed", "files", "streams"]);
    assert_eq!(figures, [3, 0, 12, 3]);
    let again = run(&mut many.gather(&[], &many.sources())).expect(0);
    assert_eq!(again.figures(["files", "bytes", "skipped_files"]), [0, 0, 12]);
}

#[test]
fn max_rate_limits_all_sources_together() {
    for flags in [&["--max-rate", "32mbit"][..], &["--schedule", "*=32mbit", "--tune", "off"]] {
        let many = Many::start(4, 2 * MIB);
        let started = Instant::now();
        let done = run(&mut many.gather(flags, &many.sources())).expect(0);
        let (took, least) = (started.elapsed(), Duration::from_secs_f64(8.0 * 1.048 / 4.0 * 0.9));
        assert!(took >= least, "{took:?} of {least:?}");
        for (number, event) in ended(&done.events()).iter().enumerate() {
            assert_same(&many.tree(number), &many.copied_to(number));
            // On a busy machine, other work takes as long.
            if !is_over_path() && took < least * 2 {
                assert_eq!(event["limited_by"], "max-rate", "{event}");
            }
        }
    }
}

#[test]
fn stop_does_not_wait_for_the_rate_limit() {
    let many = Many::start(3, 2 * MIB);
    let client = Running::start(&mut many.gather(&["--max-rate", "300kbit"], &many.sources()));
    wait_until("data arrives from all", || client.out().matches("\"connected\"").count() == 3);
    std::thread::sleep(Duration::from_millis(500));
    client.signal(Signal::INT);
    let stopped = Instant::now();
    client.wait().expect(20);
    // The rest of the data would take three minutes.
    assert!(stopped.elapsed() < Duration::from_secs(10), "{:?}", stopped.elapsed());
}

#[test]
fn failed_sources_do_not_stop_the_others() {
    let many = Many::start(2, MIB);
    let (root, keys) = (Scratch::new(), Scratch::new());
    write_file(&root.join("data/secret"), "secret");
    write_file(&keys.join("token"), "a token");
    let token = keys.join("token");
    let locked = Daemon::start(root.path(), &["--token-file", token.to_str().unwrap()]);
    let mut sources = many.sources();
    sources.insert(0, locked.url("data"));
    sources.insert(2, dead());
    let done = run(&mut many.gather(&[], &sources)).expect(23);
    for number in 0..2 {
        assert_same(&many.tree(number), &many.copied_to(number));
    }
    assert!(!many.destination_from(locked.port).exists());
    let ended = ended(&done.events());
    let kinds: Vec<_> = ended.iter().map(|event| event["kind"].as_str()).collect();
    assert_eq!(kinds, [Some("refused"), None, Some("network"), None]);
    done.says(&[&sources[0], "token"]);
    done.says(&[&sources[2], "cannot connect"]);
    assert_eq!(done.figures(["sources_failed", "files"]), [2, 8]);

    // If all fail, the error of the first one counts.
    let ends = |order: [&String; 2], code| {
        run(&mut many.gather(&[], &order.map(Clone::clone))).expect(code);
    };
    ends([&sources[0], &sources[2]], 5);
    ends([&sources[2], &sources[0]], 10);
}

#[test]
fn lost_source_resumes_with_the_same_command() {
    let many = Many::start(3, 24 * MIB);
    let proxy = Proxy::start(many.daemons[1].port);
    let mut sources = many.sources();
    sources[1] = proxy.url("data");
    proxy.cut_all_after(12 * MIB);
    let done = run(&mut many.gather(&[], &sources)).expect(23);
    assert_eq!(done.figure("sources_failed"), 1);
    assert_eq!(ended(&done.events())[1]["kind"], "network");
    for number in [0, 2] {
        assert_same(&many.tree(number), &many.copied_to(number));
    }
    proxy.mend();
    let done = run(&mut many.gather(&[], &sources)).expect(0);
    assert!(done.figure("resumed_bytes") > 0, "{}", done.out);
    let copied_to = many.destination_from(proxy.port);
    assert_same(&many.tree(1), &copied_to);
    assert!(litter(&copied_to).is_empty());
}

#[test]
fn returning_daemon_is_fetched_by_the_next_run() {
    let mut many = Many::start(2, MIB);
    many.daemons[0].kill();
    run(&mut many.gather(&[], &many.sources())).expect(23);
    assert_same(&many.tree(1), &many.copied_to(1));
    many.daemons[0].restart();
    run(&mut many.gather(&[], &many.sources())).expect(0);
    assert_same(&many.tree(0), &many.copied_to(0));
}

#[test]
fn max_failed_stops_the_others() {
    let many = Many::start(1, 24 * MIB);
    let proxy = Proxy::start(many.daemons[0].port);
    // This source alone would never end.
    proxy.stall_after(8 * MIB);
    let sources = [proxy.url("data"), dead()];
    let done = run(&mut many.gather(&["--max-failed", "0", "--timeout", "600"], &sources));
    let done = done.expect(10);
    done.says(&[&sources[1], "no source may fail", "run the same command again"]);
    let kinds: Vec<_> = ended(&done.events()).iter().map(|e| e["kind"].clone()).collect();
    assert_eq!(kinds, ["interrupted", "network"]);
    assert_eq!(done.events().pop().unwrap()["kind"], "network");
}

#[test]
fn signal_stops_all_sources_with_one_message() {
    let many = Many::start(2, 24 * MIB);
    let proxy = Proxy::start(many.daemons[0].port);
    proxy.stall_after(8 * MIB);
    let sources = [proxy.url("data"), many.daemons[1].url("data")];
    let running = Running::start(&mut many.gather(&["--timeout", "600"], &sources));
    wait_until("one is connected", || running.out().contains("\"connected\""));
    running.signal(Signal::INT);
    let done = running.wait().expect(20);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    done.says(&["interrupted"]);
    assert_eq!(ended(&done.events())[0]["kind"], "interrupted");
    proxy.mend();
    run(&mut many.gather(&[], &sources)).expect(0);
}

#[test]
fn listed_sources_follow_typed_ones() {
    let many = Many::start(3, 1000);
    let sources = many.sources();
    let list = many.here.join("list");
    write_file(&list, format!("# the others\n\n  {}\r\n{}", sources[1], sources[2]));
    let done = run(&mut many.gather(&["--from-file", list.to_str().unwrap()], &sources[..1]));
    assert_eq!(done.expect(0).events()[0]["sources"], Value::from(sources));
    for number in 0..3 {
        assert_same(&many.tree(number), &many.copied_to(number));
    }
    fs::remove_dir_all(many.here.join("in")).unwrap();
    let mut command = many.gather(&["--from-file", "-"], &[]);
    let output = command.stdin(File::open(&list).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_same(&many.tree(2), &many.copied_to(2));

    let missing = run(&mut many.gather(&["--from-file", "/no/such/list"], &[])).expect(11);
    missing.says(&["cannot read the list of sources /no/such/list", "no such file"]);
}

#[test]
fn equal_destinations_are_refused_at_the_start() {
    let many = Many::start(1, 1000);
    let (one, again) = (many.daemons[0].url("data"), many.daemons[0].url("data/sub/../data"));
    for (sources, words) in [
        ([one.clone(), again], "have the same destination"),
        ([one.clone(), many.daemons[0].url("data/")], "would mix with"),
    ] {
        let done = run(&mut many.gather(&[], &sources)).expect(1);
        done.says(&[&sources[0], &sources[1], words]);
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    }
    let local = run(&mut many.gather(&[], &["here".to_owned()])).expect(1);
    local.says(&["here is on this host", "use cp"]);
    assert!(!many.here.join("in").exists());
    let parent = command()
        .args(["gather", &one, "--accept-new"])
        .arg(many.here.join("no/such/place"))
        .output();
    assert!(err(&parent.unwrap()).contains("create it first"));
    // A destination that cannot be created is not a missing source.
    let unmade = command().args(["gather", &one, "--accept-new", "/proc/in"]).output().unwrap();
    assert_eq!(unmade.status.code(), Some(11), "{}", err(&unmade));
    assert!(err(&unmade).contains("cannot write to /proc/in"), "{}", err(&unmade));
}

#[test]
fn dry_run_shows_destinations_and_changes_nothing() {
    let many = Many::start(2, 1000);
    let before = fs::read_dir(many.here.path()).unwrap().count();
    let done = run(&mut many.gather(&["-n"], &many.sources())).expect(0);
    let events = done.events();
    for (number, source) in many.sources().iter().enumerate() {
        let is_it = |e: &&Value| e["event"] == "destination" && e["source_index"] == number;
        let event = events.iter().find(is_it).unwrap();
        assert_eq!(event["source"], Value::from(source.as_str()));
        assert_eq!(event["destination"], Value::from(many.copied_to(number).to_str().unwrap()));
    }
    assert_eq!(done.figures(["files", "would_copy_entries"]), [0, 8]);
    assert!(!many.here.join("in").exists());
    // Only the remembered state of the daemons is new.
    assert_eq!(fs::read_dir(many.here.path()).unwrap().count(), before + 1);
}

#[test]
fn rounds_fetch_one_chunk_per_source() {
    let many = Many::start(3, 9 * MIB);
    // One more source that ends soon, and one that is unreachable.
    write_file(&many.tree(0).join("../short/f"), vec![7; 3 << 20]);
    let mut sources = many.sources();
    sources.extend([many.daemons[0].url("short"), dead()]);
    let done = run(&mut many.gather(&["--rounds", "2MiB"], &sources)).expect(23);
    for number in 0..3 {
        assert_same(&many.tree(number), &many.copied_to(number));
    }
    let rounds: Vec<_> =
        done.events().into_iter().filter(|event| event["event"] == "round").collect();
    let bytes: Vec<u64> = rounds.iter().map(|round| round["bytes"].as_u64().unwrap()).collect();
    let content = 3 * 9 * MIB + 3 * MIB;
    let all: u64 = bytes.iter().sum();
    assert!((content..content + 1000).contains(&all), "{bytes:?}");
    // Five chunks of the longest source, and one more round if an end arrives late.
    assert!((5..=6).contains(&rounds.len()), "{bytes:?}");
    // A chunk ends with its block: a round has at most a chunk and a block per source.
    assert!(bytes.iter().all(|&bytes| bytes <= 4 * (2 + 4) * MIB), "{bytes:?}");
    assert_eq!(fields(&rounds[0]), documented("round"));
    assert_eq!(rounds.last().unwrap()["sources_left"], 0);
}

#[test]
fn rounds_report_durations_or_are_refused() {
    let many = Many::start(2, 3 * MIB);
    let people = |flags: &[&str]| {
        let mut command = command();
        command.arg("gather").args(flags).arg("--accept-new").arg("--state-dir");
        command.arg(many.here.join("state")).args(many.sources()).arg(many.here.join("in"));
        run(&mut command)
    };
    let done = people(&["--rounds", "1MiB"]).expect(0);
    assert!(done.err.contains(" rounds: median ") && done.err.contains("longest"), "{}", done.err);
    people(&["--rounds", "1MiB", "--tune", "off"]).expect(1).says(&["rounds need tuning"]);
    for (flags, why) in [
        (["--rounds=1MiB", "-n"], "with '--dry-run'"),
        (["--rounds=0", "-q"], "must be larger than 0"),
    ] {
        let done = people(&flags).expect(1);
        assert!(done.err.contains(why), "{}", done.err);
    }
}

/// Returns the fields of an event of a gathering.
fn expected(event: &Value) -> BTreeSet<String> {
    let name = event["event"].as_str().unwrap();
    let (of, more): (&str, &[&str]) = match name {
        "start" => (name, &[]),
        "progress" => (name, &["sources_done", "sources_failed", "sources_total", "slowest"]),
        "summary" => (name, &["sources_total", "sources_failed", "sources"]),
        "source_done" if event["ok"] == true => ("summary", &["source_index", "source", "ok"]),
        "source_done" => return documented_failure(),
        _ => (name, &["source_index", "source"]),
    };
    let mut expected = documented(of);
    expected.extend(more.iter().map(|&field| field.to_owned()));
    if name == "source_done" {
        expected.remove("exit_code");
    }
    expected
}

fn documented_failure() -> BTreeSet<String> {
    ["event", "source_index", "source", "ok", "kind", "message"].map(str::to_owned).into()
}

#[test]
fn json_lines_name_their_source() {
    let many = Many::start(2, 3 * MIB);
    write_file(&many.copied_to(1).join("a/in the way"), "x");
    let mut sources = many.sources();
    sources.push(dead());
    let done = run(&mut many.gather(&["-vv"], &sources)).expect(23);
    let events = done.events();
    let mut seen = BTreeSet::new();
    for event in &events {
        assert_eq!(fields(event), expected(event), "{event}");
        if let Some(number) = event["source_index"].as_u64() {
            assert_eq!(event["source"], Value::from(sources[number as usize].as_str()));
        }
        seen.insert(event["event"].as_str().unwrap());
    }
    for name in
        ["start", "destination", "connected", "file", "file_failed", "warning", "source_done"]
    {
        assert!(seen.contains(name), "no {name} in {seen:?}");
    }
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["exit_code"]), (&"summary".into(), &23.into()));
    let each = last["sources"].as_array().unwrap();
    assert_eq!([&each[0]["ok"], &each[1]["failed_files"]], [&Value::from(true), &Value::from(1)]);
    assert_eq!((&each[2]["ok"], &each[2]["kind"]), (&false.into(), &"network".into()));
    assert_eq!(ended(&events).len(), 3);
}

#[test]
fn text_has_plan_failures_and_summary() {
    let many = Many::start(2, MIB);
    let mut sources = many.sources();
    sources.push(dead());
    let reported = |flags: &[&str]| {
        let mut command = command();
        command.arg("gather").args(flags).arg("--accept-new").arg("--state-dir");
        command.arg(many.here.join("state")).args(&sources).arg(many.here.join("in"));
        run(&mut command).expect(23)
    };
    let done = reported(&[]);
    let lines: Vec<&str> = done.err.lines().collect();
    assert!(lines[0].starts_with("gathering from 3 sources into "), "{}", done.err);
    done.says(&[&sources[2], "cannot connect"]);
    let [.., sum, failed, which] = lines[..] else { panic!("{}", done.err) };
    assert!(sum.starts_with("gathered 8 files from 2 of 3 sources, 2.0 MiB in "), "{sum}");
    assert_eq!(failed, "1 source failed:");
    assert!(which.starts_with(&format!("  {}: cannot connect", sources[2])), "{which}");
    assert_eq!(done.out, "");
    assert_eq!(reported(&["-q"]).err.lines().count(), 1);
}

/// Creates an ssh that runs its command on this host at the peer's address.
fn fake_ssh(here: &Scratch) -> String {
    let script = here.join("ssh");
    let text = format!(
        "for last; do :; done\n\
         case \" $* \" in *\" -G \"*) echo hostname {}; exit;; *\" bad \"*) exit 255;; esac\n\
         exec sh -c \"$last\"\n",
        remote_host()
    );
    write_file(&script, text);
    format!("sh {}", script.display())
}

#[test]
fn more_hosts_than_concurrent_logins_are_fetched() {
    if is_over_path() {
        println!("skipped: this ssh does not leave the host");
        return;
    }
    let here = Scratch::new();
    let mut sources = Vec::new();
    for number in 0..12 {
        let tree = here.join(format!("far/{number}"));
        write_file(&tree.join("file"), format!("of {number}"));
        sources.push(format!("one:{}", tree.display()));
    }
    sources.push(format!("me@two:{}", here.join("far/0").display()));
    sources.push(format!("you@two:{}", here.join("far/0").display()));
    sources.push("bad:x".to_owned());
    let mut command = super::harness::gather();
    command.args(["--remote-bankfull", env!("CARGO_BIN_EXE_bankfull"), "--ssh-command"]);
    command.arg(fake_ssh(&here)).args(&sources).arg(here.join("in"));
    let done = run(&mut command).expect(23);
    done.says(&["bad:x", "could not log in"]);
    let same = |far: &str, near: &str| assert_same(&here.join(far), &here.join(near));
    for number in 0..12 {
        same(&format!("far/{number}"), &format!("in/one/{number}"));
    }
    same("far/0", "in/me@two/0");
    same("far/0", "in/you@two/0");
    assert!(!Path::new(&here.join("in/bad")).exists());
    assert_eq!(done.figure("sources_failed"), 1);
}

#[test]
fn contents_source_is_stored_in_the_host_directory() {
    let many = Many::start(1, 1000);
    run(&mut many.gather(&[], &[many.daemons[0].url("data/")])).expect(0);
    let copied_to =
        many.here.join("in").join(remote_address(many.daemons[0].port).replace(':', "_"));
    assert_same(&many.tree(0), &copied_to);
}
