//! Notifications at the end of a copy or a gather: commands and URLs.

use super::harness::{Daemon, Scratch, cp, run, write_file};
use super::{command, err};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread;

/// Returns a URL that answers one request, and the body of that.
fn receiver(status: &'static str) -> (String, thread::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/secret-path", listener.local_addr().unwrap());
    let thread = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(socket.try_clone().unwrap());
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let line = line.trim().to_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        write!(socket, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
        String::from_utf8(body).unwrap()
    });
    (url, thread)
}

#[test]
fn url_receives_the_result() {
    let here = Scratch::new();
    write_file(&here.join("a"), b"12345");
    let (url, body) = receiver("204 No Content");
    run(cp().arg(here.join("a")).arg(here.join("b")).args(["--notify", &url])).expect(0);
    let sent: serde_json::Value = serde_json::from_str(&body.join().unwrap()).unwrap();
    assert_eq!((&sent["event"], &sent["outcome"]), (&"copy_ended".into(), &"done".into()));
    assert_eq!((&sent["bytes"], &sent["files"]), (&5.into(), &1.into()));
    // A gather of which one source fails.
    let there = Scratch::new();
    write_file(&there.join("f"), b"123");
    let daemon = Daemon::start(there.path(), &[]);
    let (url, body) = receiver("200 OK");
    let mut gather = command();
    gather.args(["gather", "--accept-new", "--state-dir"]).arg(here.join("state"));
    gather.arg(daemon.url("f")).arg("bankfull://127.0.0.1:9/none").arg(here.join("out"));
    run(gather.args(["--notify", &url])).expect(23);
    let sent: serde_json::Value = serde_json::from_str(&body.join().unwrap()).unwrap();
    assert_eq!((&sent["event"], &sent["exit_code"]), (&"gather_ended".into(), &23.into()));
    assert_eq!((&sent["failed_sources"], &sent["files"]), (&1.into(), &1.into()));
    assert!(sent["message"].as_str().unwrap().contains("cannot connect"), "{sent}");
}

#[test]
fn failed_notification_is_a_warning() {
    let here = Scratch::new();
    write_file(&here.join("a"), b"12345");
    let copy = |receiver: &str| {
        let mut copy = cp();
        copy.arg(here.join("a")).arg(here.join("b")).args(["--notify", receiver]);
        let done = copy.output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{}", err(&done));
        err(&done)
    };
    for status in ["500 Internal Server Error", "301 Moved Permanently"] {
        let (url, body) = receiver(status);
        let says = copy(&url);
        let code = &status[..3];
        let warning = format!("warning: the notification to 127.0.0.1 failed: http status: {code}");
        assert!(says.contains(&warning), "{says}");
        assert!(!says.contains("secret-path") && !body.join().unwrap().is_empty(), "{says}");
    }
    let says = copy("cat > /dev/null; exit 3");
    assert!(says.contains("warning: the command of --notify failed, exit status: 3"), "{says}");
    let note = here.join("note");
    let says = copy(&format!("cat > {}; echo shown", note.display()));
    assert!(says.contains("shown") && !says.contains("warning"), "{says}");
    assert!(fs::read_to_string(note).unwrap().contains(r#""outcome":"done""#));
    run(cp().args(["a", "b", "--notify", "https://"])).expect(1).says(&["https://HOST/PATH"]);
}

#[test]
fn report_hides_the_url() {
    let here = Scratch::new();
    write_file(&here.join("a"), b"12345");
    let page = here.join("r.html");
    let (url, body) = receiver("200 OK");
    let mut copy = cp();
    copy.arg(here.join("a")).arg(here.join("b")).args(["--notify", &url, "--report"]).arg(&page);
    run(&mut copy).expect(0);
    body.join().unwrap();
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("--notify ...") && !page.contains("secret-path"));
}
