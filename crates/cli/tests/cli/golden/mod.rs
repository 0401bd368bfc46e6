//! Golden recordings: sessions of each kind, recorded once, whose sides are replayed against the
//! program. A change that a peer of version 1 would not understand fails here (spec/wire.md §14).
//!
//! `BANKFULL_RECORD=1` records those that do not exist; one that exists stays as it is.

mod recorder;
mod recording;
mod replay;

use super::command;
use super::harness::{Daemon, Running, Scratch, cp, run, set_mtime, wait_until, write_file};
use recording::{Line, format, parse};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of the file in blocks: two of them.
const LARGE: usize = (1 << 20) + 300_000;

/// Sources that [`fill`] makes. Each directory has one entry, since the file system decides the
/// order of several.
const SOURCES: [&str; 4] = ["a", "large", "deep", "link"];

/// A kind of session.
struct Kind {
    name: &'static str,
    about: &'static str,
    /// Fills the client's directory and the daemon's.
    prepare: fn(&Path, &Path),
    /// Returns the command in the client's directory, with the url of the daemon's.
    command: fn(&Path, &str) -> Command,
    /// True if the daemon needs a token.
    has_token: bool,
    /// Exit code of the command.
    code: i32,
    /// Checks the client's directory after it has received.
    check_pulled: fn(&Path),
    /// Checks the daemon's directory after it has received.
    check_pushed: fn(&Path),
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "push",
        about: "Push of a file in a pack, one in blocks, a directory and a symlink.",
        prepare: |client, _| fill(client),
        command: |here, url| copy(here, &SOURCES.map(str::to_owned), url),
        has_token: false,
        code: 0,
        check_pulled: |_| {},
        check_pushed: check_filled,
    },
    Kind {
        name: "pull",
        about: "Pull of a file in a pack, one in blocks, a directory and a symlink.",
        prepare: |_, daemon| fill(daemon),
        command: |here, url| copy(here, &SOURCES.map(|name| format!("{url}{name}")), "."),
        has_token: false,
        code: 0,
        check_pulled: check_filled,
        check_pushed: |_| {},
    },
    Kind {
        name: "again",
        about: "Push of a directory that exists, with a file that is there and one to delete.",
        prepare: |client, daemon| {
            file(&client.join("deep/one"), b"one");
            file(&daemon.join("deep/one"), b"one");
            file(&daemon.join("deep/two"), b"two");
        },
        command: |here, url| {
            let mut copy = copy(here, &["deep".to_owned()], url);
            copy.arg("--delete");
            copy
        },
        has_token: false,
        code: 0,
        check_pulled: |_| {},
        check_pushed: |daemon| {
            assert_eq!(fs::read(daemon.join("deep/one")).unwrap(), b"one");
            assert!(!daemon.join("deep/two").exists());
        },
    },
    Kind {
        name: "listing",
        about: "Listing of a directory.",
        prepare: |_, daemon| file(&daemon.join("deep/one"), b"one"),
        command: |_, url| {
            let mut list = command();
            list.args(["ls", "--json"]).arg(format!("{url}deep"));
            list
        },
        has_token: false,
        code: 0,
        check_pulled: |_| {},
        check_pushed: |_| {},
    },
    Kind {
        name: "refused",
        about: "Push with a wrong token.",
        prepare: |client, _| file(&client.join("a"), b"alpha\n"),
        command: |here, url| {
            let mut copy = copy(here, &["a".to_owned()], url);
            copy.env("BANKFULL_TOKEN", "wrong");
            copy
        },
        has_token: true,
        code: 5,
        check_pulled: |_| {},
        check_pushed: |daemon| assert!(!daemon.join("a").exists()),
    },
];

/// Returns a copy with one data stream, whose messages do not depend on the path.
fn copy(here: &Path, sources: &[String], destination: &str) -> Command {
    let mut copy = cp();
    copy.args(["--streams", "1", "--tune", "off"]).args(sources).arg(destination);
    copy.current_dir(here);
    copy
}

/// Writes a file with a fixed time.
fn file(path: &Path, content: &[u8]) {
    write_file(path, content);
    set_mtime(path, 1_700_000_000, 0);
}

fn fill(dir: &Path) {
    file(&dir.join("a"), b"alpha\n");
    file(&dir.join("large"), &vec![b'x'; LARGE]);
    file(&dir.join("deep/one"), b"");
    symlink("a", dir.join("link")).unwrap();
}

fn check_filled(dir: &Path) {
    assert_eq!(fs::read(dir.join("a")).unwrap(), b"alpha\n");
    assert!(fs::read(dir.join("large")).unwrap() == vec![b'x'; LARGE]);
    assert_eq!(fs::read(dir.join("deep/one")).unwrap(), b"");
    assert_eq!(fs::read_link(dir.join("link")).unwrap(), Path::new("a"));
}

/// Directories of both sides, and a daemon.
struct Place {
    client: Scratch,
    root: Scratch,
    daemon: Daemon,
}

impl Place {
    fn prepare(kind: &Kind) -> Self {
        let (client, root) = (Scratch::new(), Scratch::new());
        (kind.prepare)(client.path(), root.path());
        let token = client.join("token");
        fs::write(&token, "right").unwrap();
        let flags: &[&str] = match kind.has_token {
            true => &["--token-file", token.to_str().unwrap()],
            false => &[],
        };
        let daemon = Daemon::start(root.path(), flags);
        Self { client, root, daemon }
    }
}

/// Returns the recording of a kind.
fn recorded(kind: &Kind) -> Vec<Line> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/recordings");
    let path = PathBuf::from(dir).join(format!("{}.txt", kind.name));
    if !path.exists() && std::env::var_os("BANKFULL_RECORD").is_some() {
        let place = Place::prepare(kind);
        let (server, log) = recorder::start(place.daemon.port);
        let mut command = (kind.command)(place.client.path(), &server.url(""));
        run(command.args(server.trust())).expect(kind.code);
        wait_until("the daemon is done", || place.daemon.clients_done() == 1);
        // Waits for messages in flight.
        std::thread::sleep(std::time::Duration::from_millis(100));
        fs::create_dir_all(dir).unwrap();
        let text = format(kind.about, &log.lock().unwrap());
        fs::write(&path, text).unwrap();
    }
    let text = fs::read_to_string(&path);
    parse(&text.unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

#[test]
fn recorded_clients_are_served() {
    for kind in &KINDS {
        println!("{}", kind.name);
        let lines = recorded(kind);
        let place = Place::prepare(kind);
        replay::as_client(&lines, place.daemon.port);
        wait_until("the daemon is done", || place.daemon.clients_done() == 1);
        (kind.check_pushed)(place.root.path());
        let events = place.daemon.events();
        let done = events.iter().find(|event| event["event"] == "client_done").unwrap();
        assert_eq!(done["ok"], kind.code == 0, "{}: {done}", kind.name);
    }
}

#[test]
fn recorded_servers_serve() {
    for kind in &KINDS {
        println!("{}", kind.name);
        let lines = recorded(kind);
        let (client, unused) = (Scratch::new(), Scratch::new());
        (kind.prepare)(client.path(), unused.path());
        let copy = replay::as_server(&lines, |server| {
            let mut command = (kind.command)(client.path(), &server.url(""));
            Running::start(command.args(server.trust()))
        });
        copy.wait().expect(kind.code);
        (kind.check_pulled)(client.path());
    }
}
