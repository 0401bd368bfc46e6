//! `bankfull gather`: many sources into one place, some of which fail.

use super::harness::{
    Daemon, Many, Proxy, Running, Scratch, assert_same, far_address, far_host, far_url,
    is_over_path, litter, run, wait_until, write_file,
};
use super::output::{documented, fields};
use super::{command, err};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

const MIB: u64 = 1 << 20;

/// A source at a port that nobody listens on.
fn dead() -> String {
    let listener = std::net::TcpListener::bind((far_host(), 0));
    let port = listener.map_or(9, |listener| listener.local_addr().unwrap().port());
    far_url(port, "data")
}

/// How each source ended, in the order of the sources.
fn ended(events: &[Value]) -> Vec<Value> {
    let mut done: Vec<Value> =
        events.iter().filter(|event| event["event"] == "source_done").cloned().collect();
    done.sort_by_key(|event| event["source_index"].as_u64());
    done
}

#[test]
fn all_arrive_under_their_hosts_names_and_a_second_run_has_nothing_to_do() {
    let many = Many::start(3, 3 * MIB);
    let done = run(&mut many.gather(&[], &many.sources())).expect(0);
    for number in 0..3 {
        assert_same(&many.tree(number), &many.landed(number));
    }
    let figures = done.figures(["sources_total", "sources_failed", "files", "streams"]);
    assert_eq!(figures, [3, 0, 12, 3]);
    let again = run(&mut many.gather(&[], &many.sources())).expect(0);
    assert_eq!(again.figures(["files", "bytes", "skipped_files"]), [0, 0, 12]);
}

#[test]
fn one_that_refuses_and_one_that_is_dead_do_not_keep_the_others() {
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
        assert_same(&many.tree(number), &many.landed(number));
    }
    assert!(!many.landed_from(locked.port).exists());
    let ended = ended(&done.events());
    let kinds: Vec<_> = ended.iter().map(|event| event["kind"].as_str()).collect();
    assert_eq!(kinds, [Some("refused"), None, Some("network"), None]);
    done.says(&[&sources[0], "token"]);
    done.says(&[&sources[2], "cannot connect"]);
    assert_eq!(done.figures(["sources_failed", "files"]), [2, 8]);

    // Where none is left, it is the first one's error that counts.
    let ends = |order: [&String; 2], code| {
        run(&mut many.gather(&[], &order.map(Clone::clone))).expect(code);
    };
    ends([&sources[0], &sources[2]], 5);
    ends([&sources[2], &sources[0]], 10);
}

#[test]
fn one_that_breaks_off_is_continued_by_the_same_command() {
    let many = Many::start(3, 24 * MIB);
    let proxy = Proxy::start(many.daemons[1].port);
    let mut sources = many.sources();
    sources[1] = proxy.url("data");
    proxy.cut_all_after(12 * MIB);
    let done = run(&mut many.gather(&[], &sources)).expect(23);
    assert_eq!(done.figure("sources_failed"), 1);
    assert_eq!(ended(&done.events())[1]["kind"], "network");
    for number in [0, 2] {
        assert_same(&many.tree(number), &many.landed(number));
    }
    proxy.mend();
    let done = run(&mut many.gather(&[], &sources)).expect(0);
    assert!(done.figure("resumed_bytes") > 0, "{}", done.out);
    let landed = many.landed_from(proxy.port);
    assert_same(&many.tree(1), &landed);
    assert!(litter(&landed).is_empty());
}

#[test]
fn a_daemon_that_comes_back_is_fetched_from_by_the_next_run() {
    let mut many = Many::start(2, MIB);
    many.daemons[0].kill();
    run(&mut many.gather(&[], &many.sources())).expect(23);
    assert_same(&many.tree(1), &many.landed(1));
    many.daemons[0].restart();
    run(&mut many.gather(&[], &many.sources())).expect(0);
    assert_same(&many.tree(0), &many.landed(0));
}

#[test]
fn one_failure_too_many_stops_the_others() {
    let many = Many::start(1, 24 * MIB);
    let proxy = Proxy::start(many.daemons[0].port);
    // By itself it would come to no end.
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
fn a_signal_stops_all_and_is_told_once() {
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
fn sources_come_from_a_list_after_those_that_are_typed() {
    let many = Many::start(3, 1000);
    let sources = many.sources();
    let list = many.here.join("list");
    write_file(&list, format!("# the others\n\n  {}\r\n{}", sources[1], sources[2]));
    let done = run(&mut many.gather(&["--from-file", list.to_str().unwrap()], &sources[..1]));
    assert_eq!(done.expect(0).events()[0]["sources"], Value::from(sources));
    for number in 0..3 {
        assert_same(&many.tree(number), &many.landed(number));
    }
    fs::remove_dir_all(many.here.join("in")).unwrap();
    let mut command = many.gather(&["--from-file", "-"], &[]);
    let output = command.stdin(File::open(&list).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_same(&many.tree(2), &many.landed(2));

    let missing = run(&mut many.gather(&["--from-file", "/no/such/list"], &[])).expect(11);
    missing.says(&["cannot read the list of sources /no/such/list", "no such file"]);
}

#[test]
fn what_would_land_on_each_other_is_refused_before_anything_is_made() {
    let many = Many::start(1, 1000);
    let (one, again) = (many.daemons[0].url("data"), many.daemons[0].url("data/sub/../data"));
    for (sources, words) in [
        ([one.clone(), again], "would land on each other"),
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
    // What cannot be made here is no source that is missing there.
    let unmade = command().args(["gather", &one, "--accept-new", "/proc/in"]).output().unwrap();
    assert_eq!(unmade.status.code(), Some(11), "{}", err(&unmade));
    assert!(err(&unmade).contains("cannot write to /proc/in"), "{}", err(&unmade));
}

#[test]
fn a_dry_run_says_where_all_lands_and_makes_nothing() {
    let many = Many::start(2, 1000);
    let before = fs::read_dir(many.here.path()).unwrap().count();
    let done = run(&mut many.gather(&["-n"], &many.sources())).expect(0);
    let events = done.events();
    for (number, source) in many.sources().iter().enumerate() {
        let is_it = |e: &&Value| e["event"] == "landing" && e["source_index"] == number;
        let landing = events.iter().find(is_it).unwrap();
        assert_eq!(landing["source"], Value::from(source.as_str()));
        assert_eq!(landing["destination"], Value::from(many.landed(number).to_str().unwrap()));
    }
    assert_eq!(done.figures(["files", "would_copy_entries"]), [0, 8]);
    assert!(!many.here.join("in").exists());
    // What is remembered of the daemons is all that is new.
    assert_eq!(fs::read_dir(many.here.path()).unwrap().count(), before + 1);
}

#[test]
fn in_rounds_every_source_sends_a_piece_before_any_sends_the_next() {
    let many = Many::start(3, 9 * MIB);
    // One more that is at its end soon, and one that nobody reaches.
    write_file(&many.tree(0).join("../short/f"), vec![7; 3 << 20]);
    let mut sources = many.sources();
    sources.extend([many.daemons[0].url("short"), dead()]);
    let done = run(&mut many.gather(&["--rounds", "2MiB"], &sources)).expect(23);
    for number in 0..3 {
        assert_same(&many.tree(number), &many.landed(number));
    }
    let rounds: Vec<_> =
        done.events().into_iter().filter(|event| event["event"] == "round").collect();
    let bytes: Vec<u64> = rounds.iter().map(|round| round["bytes"].as_u64().unwrap()).collect();
    let content = 3 * 9 * MIB + 3 * MIB;
    let all: u64 = bytes.iter().sum();
    assert!((content..content + 1000).contains(&all), "{bytes:?}");
    // Five pieces of the longest, and one more round where an end comes a little late.
    assert!((5..=6).contains(&rounds.len()), "{bytes:?}");
    // A piece ends with its block: no round has more than a piece and a block of each.
    assert!(bytes.iter().all(|&bytes| bytes <= 4 * (2 + 4) * MIB), "{bytes:?}");
    assert_eq!(fields(&rounds[0]), documented("round"));
    assert_eq!(rounds.last().unwrap()["sources_left"], 0);
}

#[test]
fn who_asks_for_rounds_is_told_how_long_they_took_and_where_there_are_none() {
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
    for (flags, why) in
        [(["--rounds=1MiB", "-n"], "with '--dry-run'"), (["--rounds=0", "-q"], "a byte at least")]
    {
        let done = people(&flags).expect(1);
        assert!(done.err.contains(why), "{}", done.err);
    }
}

/// The fields that an event of a gathering has.
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
fn every_line_of_json_says_which_source_it_is_about() {
    let many = Many::start(2, 3 * MIB);
    write_file(&many.landed(1).join("a/in the way"), "x");
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
    for name in ["start", "landing", "connected", "file", "file_failed", "notice", "source_done"] {
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
fn people_are_told_the_plan_each_failure_and_the_sum() {
    let many = Many::start(2, MIB);
    let mut sources = many.sources();
    sources.push(dead());
    let told = |flags: &[&str]| {
        let mut command = command();
        command.arg("gather").args(flags).arg("--accept-new").arg("--state-dir");
        command.arg(many.here.join("state")).args(&sources).arg(many.here.join("in"));
        run(&mut command).expect(23)
    };
    let done = told(&[]);
    let lines: Vec<&str> = done.err.lines().collect();
    assert!(lines[0].starts_with("gathering from 3 sources into "), "{}", done.err);
    done.says(&[&sources[2], "cannot connect"]);
    let [.., sum, failed, which] = lines[..] else { panic!("{}", done.err) };
    assert!(sum.starts_with("gathered 8 files from 2 of 3 sources, 2.0 MiB in "), "{sum}");
    assert_eq!(failed, "1 source failed:");
    assert!(which.starts_with(&format!("  {}: cannot connect", sources[2])), "{which}");
    assert_eq!(done.out, "");
    assert_eq!(told(&["-q"]).err.lines().count(), 1);
}

/// An ssh that runs what it is asked to on this host, at the address of the tests' far side.
fn fake_ssh(here: &Scratch) -> String {
    let script = here.join("ssh");
    let text = format!(
        "for last; do :; done\n\
         case \" $* \" in *\" -G \"*) echo hostname {}; exit;; *\" bad \"*) exit 255;; esac\n\
         exec sh -c \"$last\"\n",
        far_host()
    );
    write_file(&script, text);
    format!("sh {}", script.display())
}

#[test]
fn more_hosts_than_may_log_in_at_once_are_all_fetched_from_over_ssh() {
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
fn a_source_of_contents_lands_in_the_directory_of_its_host() {
    let many = Many::start(1, 1000);
    run(&mut many.gather(&[], &[many.daemons[0].url("data/")])).expect(0);
    let landed = many.here.join("in").join(far_address(many.daemons[0].port).replace(':', "_"));
    assert_same(&many.tree(0), &landed);
}
