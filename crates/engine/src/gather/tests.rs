use super::layout::{Layout, directories};
use super::*;
use std::path::Path;

fn places(typed: &[&str]) -> Vec<Location> {
    typed.iter().map(|place| Location::parse(place.as_ref()).unwrap()).collect()
}

/// The directories of sources beneath `d/`, or why they are refused.
fn landing(typed: &[&str]) -> Result<Vec<String>, String> {
    let found = directories(&places(typed), Path::new("d"), Layout::ByHost);
    let name = |path: PathBuf| path.display().to_string().strip_prefix("d/").unwrap().to_owned();
    found.map(|all| all.into_iter().map(name).collect()).map_err(|e| e.to_string())
}

#[test]
fn each_host_has_a_directory_of_its_name() {
    let found = landing(&[
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
fn several_users_of_a_host_have_directories_of_their_own() {
    let names = ["me@h/", "you@h/", "h/", "i/"];
    assert_eq!(landing(&["me@h:x", "you@h:x", "h:x", "me@i:x"]).unwrap(), names);
}

#[test]
fn no_host_leads_out_of_the_destination() {
    let names = ["__/", "_/", "a_b/"];
    assert_eq!(landing(&["..:x", "bankfull://./x", "bankfull://a\u{7}b/x"]).unwrap(), names);
}

#[test]
fn sources_that_would_land_on_each_other_are_refused_by_name() {
    let refused = |typed: &[&str]| landing(typed).unwrap_err();
    let text = refused(&["h:a/run", "i:a/run", "h:b/run"]);
    assert!(text.starts_with("h:a/run and h:b/run would land on each other as d/h/run"), "{text}");
    // The daemon on its own port and ssh go to the same directory.
    let text = refused(&["h:run", "bankfull://h/run"]);
    assert!(text.contains("as d/h/run"), "{text}");
    refused(&["h:run", "h:run"]);
    refused(&["h:run", "h:~/run"]);
    for pair in [["h:a/", "h:b"], ["h:b", "h:a/"], ["h:", "h:b"], ["h:b", "h:c/.."]] {
        let text = refused(&pair);
        assert!(text.contains("would mix with") && text.contains("in d/h:"), "{text}");
    }
    assert!(landing(&["h:a/", "i:a/", "h_1:x", "bankfull://h:1/y"]).is_ok());
    refused(&["h_1:x", "bankfull://h:1/x"]);
}

#[test]
fn what_is_on_this_host_is_left_to_cp() {
    let sources = [places(&["h:x"]), vec![Location::Local("here".into())]].concat();
    let run = Gather::new(sources, "d".into()).run(&NoEvents, &Cancel::new());
    let error = run.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().starts_with("here is on this host"), "{error}");
    let none = Gather::new(Vec::new(), "d".into()).run(&NoEvents, &Cancel::new());
    assert_eq!(none.unwrap_err().to_string(), "no source given");
}

/// Counts what it is told.
#[derive(Default)]
struct Told(Mutex<Vec<(usize, Option<ErrorKind>)>>);

impl GatherSink for Told {
    fn event(&self, _source: usize, _event: Event) {}

    fn source_done(&self, source: usize, result: &Result<Summary, Error>) {
        let kind = result.as_ref().err().map(Error::kind);
        self.0.lock().unwrap().push((source, kind));
    }
}

/// A port that nobody listens on.
fn dead() -> String {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("bankfull://127.0.0.1:{port}/x")
}

#[test]
fn more_sources_than_run_at_once_all_come_to_their_end() {
    let dir = tempfile::tempdir().unwrap();
    let dead = dead();
    let typed: Vec<_> = (0..RUNNING_MAX + 9).map(|n| format!("{dead}{n}")).collect();
    let sources = places(&typed.iter().map(String::as_str).collect::<Vec<_>>());
    let (told, destination) = (Told::default(), dir.path().join("in"));
    let done = Gather::new(sources, destination.clone()).run(&told, &Cancel::new()).unwrap();
    assert_eq!(done.failed().count(), typed.len());
    assert!(done.failed().all(|(_, error)| error.kind() == ErrorKind::Network));
    let mut told = told.0.into_inner().unwrap();
    told.sort_unstable_by_key(|(source, _)| *source);
    assert!(told.iter().map(|(source, _)| *source).eq(0..typed.len()));
    // Nothing is made for what does not come.
    assert_eq!(std::fs::read_dir(destination).unwrap().count(), 0);
}

#[test]
fn one_failure_too_many_stops_the_others_and_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let dead = dead();
    let sources = places(&[&*dead]);
    let gather = Gather::new(sources, dir.path().join("in")).max_failed(Some(0));
    let error = gather.run(&NoEvents, &Cancel::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Network);
    assert!(error.to_string().contains("no source may fail"), "{error}");
}

#[test]
fn a_cancel_is_an_interruption_of_every_source() {
    let dir = tempfile::tempdir().unwrap();
    let (told, cancel) = (Told::default(), Cancel::new());
    cancel.cancel();
    let gather = Gather::new(places(&["h:x", &dead()]), dir.path().join("in"));
    assert_eq!(gather.run(&told, &cancel).unwrap_err().kind(), ErrorKind::Interrupted);
    let told = told.0.into_inner().unwrap();
    assert!(told.iter().all(|(_, kind)| *kind == Some(ErrorKind::Interrupted)) && told.len() == 2);
}
