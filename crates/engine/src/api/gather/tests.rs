use super::layout::{Layout, directories};
use super::*;
use std::path::Path;

fn locations(typed: &[&str]) -> Vec<Location> {
    typed.iter().map(|operand| Location::parse(operand.as_ref()).unwrap()).collect()
}

/// Directories of the sources beneath `d/`, or the error.
fn target_dirs(typed: &[&str]) -> Result<Vec<String>, String> {
    let found = directories(&locations(typed), Path::new("d"), Layout::ByHost);
    let name = |path: PathBuf| path.display().to_string().strip_prefix("d/").unwrap().to_owned();
    found.map(|all| all.into_iter().map(name).collect()).map_err(|e| e.to_string())
}

#[test]
fn layout_by_host_names_directories_after_hosts() {
    let found = target_dirs(&[
        "one:/var/log",
        "me@two:x",
        "me@two:y",
        "bankfull://three/x",
        "bankfull://three:99/x",
        "bankfull://[fe80::1%eth0]/x",
        "me@[::1]:x",
        "one:~/x",
    ]);
    let names = ["one/", "two/", "two/", "three/", "three_99/", "fe80::1%eth0/", "::1/", "one/"];
    assert_eq!(found.unwrap(), names);
}

#[test]
fn layout_by_host_separates_users_of_a_host() {
    let names = ["me@h/", "you@h/", "h/", "i/"];
    assert_eq!(target_dirs(&["me@h:x", "you@h:x", "h:x", "me@i:x"]).unwrap(), names);
}

#[test]
fn layout_by_host_stays_inside_the_destination() {
    let names = ["__/", "_/", "a_b/"];
    assert_eq!(target_dirs(&["..:x", "bankfull://./x", "bankfull://a\u{7}b/x"]).unwrap(), names);
}

#[test]
fn sources_with_same_destination_are_refused() {
    let refused = |typed: &[&str]| target_dirs(typed).unwrap_err();
    let text = refused(&["h:a/run", "i:a/run", "h:b/run"]);
    assert!(text.starts_with("h:a/run and h:b/run have the same destination d/h/run"), "{text}");
    // The daemon on its default port and ssh share a directory.
    let text = refused(&["h:run", "bankfull://h/run"]);
    assert!(text.contains("the same destination d/h/run"), "{text}");
    refused(&["h:run", "h:run"]);
    refused(&["h:run", "h:~/run"]);
    for pair in [["h:a/", "h:b"], ["h:b", "h:a/"], ["h:", "h:b"], ["h:b", "h:c/.."]] {
        let text = refused(&pair);
        assert!(text.contains("would mix with") && text.contains("in d/h:"), "{text}");
    }
    assert!(target_dirs(&["h:a/", "i:a/", "h_1:x", "bankfull://h:1/y"]).is_ok());
    refused(&["h_1:x", "bankfull://h:1/x"]);
}

#[test]
fn local_source_is_refused() {
    let sources = [locations(&["h:x"]), vec![Location::Local("here".into())]].concat();
    let run = Gather::new(sources, "d".into()).run(&NoEvents, &Cancel::new());
    let error = run.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().starts_with("here is on this host"), "{error}");
    let none = Gather::new(Vec::new(), "d".into()).run(&NoEvents, &Cancel::new());
    assert_eq!(none.unwrap_err().to_string(), "no source given");
}

/// Records the results of the sources.
#[derive(Default)]
struct RecordingSink(Mutex<Vec<(usize, Option<ErrorKind>)>>);

impl GatherSink for RecordingSink {
    fn event(&self, _source: usize, _event: Event) {}

    fn source_done(&self, source: usize, result: &Result<Summary, Error>) {
        let kind = result.as_ref().err().map(Error::kind);
        self.0.lock().unwrap().push((source, kind));
    }
}

/// A location on a port without listener.
fn unreachable_source() -> String {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("bankfull://127.0.0.1:{port}/x")
}

#[test]
fn sources_beyond_the_concurrent_limit_all_end() {
    let dir = tempfile::tempdir().unwrap();
    let unreachable_source = unreachable_source();
    let typed: Vec<_> =
        (0..MAX_CONCURRENT_SOURCES + 9).map(|n| format!("{unreachable_source}{n}")).collect();
    let sources = locations(&typed.iter().map(String::as_str).collect::<Vec<_>>());
    let (sink, destination) = (RecordingSink::default(), dir.path().join("in"));
    let done = Gather::new(sources, destination.clone()).run(&sink, &Cancel::new()).unwrap();
    assert_eq!(done.failed().count(), typed.len());
    assert!(done.failed().all(|(_, error)| error.kind() == ErrorKind::Network));
    let mut sink = sink.0.into_inner().unwrap();
    sink.sort_unstable_by_key(|(source, _)| *source);
    assert!(sink.iter().map(|(source, _)| *source).eq(0..typed.len()));
    // No directory is created for a failed source.
    assert_eq!(std::fs::read_dir(destination).unwrap().count(), 0);
}

#[test]
fn failure_beyond_the_limit_stops_the_gather() {
    let dir = tempfile::tempdir().unwrap();
    let unreachable_source = unreachable_source();
    let sources = locations(&[&*unreachable_source]);
    let gather = Gather::new(sources, dir.path().join("in")).max_failed(Some(0));
    let error = gather.run(&NoEvents, &Cancel::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Network);
    assert!(error.to_string().contains("no source may fail"), "{error}");
}

#[test]
fn cancel_interrupts_every_source() {
    let dir = tempfile::tempdir().unwrap();
    let (sink, cancel) = (RecordingSink::default(), Cancel::new());
    cancel.cancel();
    let gather = Gather::new(locations(&["h:x", &unreachable_source()]), dir.path().join("in"));
    assert_eq!(gather.run(&sink, &cancel).unwrap_err().kind(), ErrorKind::Interrupted);
    let sink = sink.0.into_inner().unwrap();
    assert!(sink.iter().all(|(_, kind)| *kind == Some(ErrorKind::Interrupted)) && sink.len() == 2);
}
