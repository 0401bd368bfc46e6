//! Shares of a daemon, tokens with permissions, invites, and their changes while it runs.

use super::harness::Rng;
use super::harness::{
    Daemon, Running, Scratch, cp, fill, ls, remote_address, remote_host, run, script, set_mode,
    wait_until, write_file,
};
use super::{command, err, out};
use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output, Stdio};

/// Adds settings to the share `data`, and others to the daemon.
pub(super) fn set(here: &Scratch, share: &str, daemon: &str) {
    let file = here.join("serve.toml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("[share.data]\n", &format!("{daemon}\n[share.data]\n{share}\n"));
    fs::write(&file, text).unwrap();
}

/// A daemon with the shares `data` and `logs`, the second one read-only.
pub(super) struct Shared {
    pub(super) here: Scratch,
    pub(super) daemon: Daemon,
}

impl Shared {
    fn start() -> Self {
        Self::prepared(|_| {})
    }

    /// Starts the daemon after `prepare`.
    pub(super) fn prepared(prepare: impl Fn(&Scratch)) -> Self {
        let here = Scratch::new();
        for name in ["data/alice", "logs", "state"] {
            fs::create_dir_all(here.join(name)).unwrap();
        }
        write_file(&here.join("data/alice/x"), b"alice");
        write_file(&here.join("logs/l"), b"log");
        let file = here.join("serve.toml");
        let text = format!(
            "[serve]\nlisten = \"{}\"\nstate-dir = \"{}\"\njson = true\n[share.data]\n\
             path = \"{}\"\n[share.logs]\npath = \"{}\"\nread_only = true\n",
            remote_address(0),
            here.join("state").display(),
            here.join("data").display(),
            here.join("logs").display(),
        );
        fs::write(&file, text).unwrap();
        set_mode(&file, 0o600);
        prepare(&here);
        let daemon = Daemon::from_command(serve(&here).stdin(Stdio::null()));
        Self { here, daemon }
    }

    /// Runs `bankfull token`.
    fn token(&self, words: &[&str]) -> Output {
        token(&self.here, words)
    }

    /// Copies with a token.
    fn cp(&self, token: &str) -> Command {
        let mut command = self.daemon.cp();
        command.env("BANKFULL_TOKEN", token);
        command
    }
}

fn serve(here: &Scratch) -> Command {
    let mut command = command();
    command.arg("serve").env("BANKFULL_CONFIG", here.join("serve.toml"));
    command
}

fn token(here: &Scratch, words: &[&str]) -> Output {
    let mut command = command();
    command.arg("token").args(words).env("BANKFULL_CONFIG", here.join("serve.toml"));
    command.output().unwrap()
}

/// Runs `bankfull login` of the user with this home directory.
fn login(home: &Scratch, words: &[&str], text: &str) -> Output {
    let mut command = command();
    command.arg("login").args(words).env("HOME", home.path());
    command.env_remove("BANKFULL_CONFIG").env_remove("XDG_CONFIG_HOME");
    let piped = command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.stdout(Stdio::piped()).spawn().unwrap();
    // A command that does not read its input has closed it.
    let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    child.wait_with_output().unwrap()
}

/// Returns the token that a command has created.
fn created(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", err(output));
    out(output).trim().to_owned()
}

#[test]
fn share_is_the_first_component_of_paths() {
    let shared = Shared::start();
    let (there, here) = (&shared.daemon, Scratch::new());
    run(there.cp().arg(there.url("data/alice")).arg(here.path())).expect(0);
    assert_eq!(fs::read(here.join("alice/x")).unwrap(), b"alice");
    run(there.cp().arg(there.url("logs/")).arg(here.join("l"))).expect(0);
    assert_eq!(fs::read(here.join("l/l")).unwrap(), b"log");
    let pushed = run(there.cp().arg(here.join("alice/x")).arg(there.url("data/new")));
    pushed.expect(0);
    assert_eq!(fs::read(shared.here.join("data/new")).unwrap(), b"alice");
    let listed = there.ls().arg(there.url("data")).output().unwrap();
    assert_eq!(out(&listed), "alice/\nnew\n");
    let refused = |source: String, code: i32, says: &str| {
        run(there.cp().arg(source).arg(here.join("y"))).expect(code).says(&[says]);
    };
    refused(
        there.url("none/x"),
        3,
        "there is no share \"none\" for you: begin the path with one of data",
    );
    refused(there.url(""), 3, "the path has no share");
    refused(there.url("data/../logs/l"), 5, "is not allowed");
    run(there.cp().arg(here.join("l")).arg(there.url("logs/n"))).expect(5).says(&["read-only"]);
    assert!(!shared.here.join("logs/n").exists());
}

#[test]
fn token_permits_its_directory_and_direction_alone() {
    let shared = Shared::prepared(|before| {
        let words = ["create", "reader", "--share", "data", "--prefix", "alice", "--read-only"];
        fs::write(before.join("reader"), created(&token(before, &words))).unwrap();
        let words = ["create", "writer", "--share", "data", "--write-only"];
        fs::write(before.join("writer"), created(&token(before, &words))).unwrap();
    });
    let held = |name: &str| fs::read_to_string(shared.here.join(name)).unwrap();
    let (reader, writer) = (held("reader"), held("writer"));
    let (there, here) = (&shared.daemon, Scratch::new());
    write_file(&here.join("f"), b"f");
    let copy = |token: &str, from: String, to: String| run(shared.cp(token).arg(from).arg(to));
    let local = |name: &str| here.join(name).display().to_string();
    copy(&reader, there.url("data/alice/x"), local("x")).expect(0);
    let outside = copy(&reader, there.url("data/"), local("all"));
    outside.expect(5).says(&["the token reader is limited to data/alice"]);
    copy(&reader, there.url("logs/l"), local("l")).expect(3).says(&["there is no share \"logs\""]);
    copy(&reader, local("f"), there.url("data/alice/")).expect(5).says(&["not permit uploads"]);
    copy(&writer, local("f"), there.url("data/f")).expect(0);
    copy(&writer, there.url("data/f"), local("g")).expect(5).says(&["not permit downloads"]);
    copy("bankfull-00", there.url("data/f"), local("g")).expect(5).says(&["the token is wrong"]);
    let bare = run(there.cp().arg(there.url("data/f")).arg(local("g")));
    bare.expect(5).says(&["a token is needed"]);
    // A link in the directory of the token leads nowhere else.
    std::os::unix::fs::symlink("../new", shared.here.join("data/alice/out")).unwrap();
    write_file(&shared.here.join("data/new"), b"other");
    let mut followed = shared.cp(&reader);
    run(followed.args(["-L"]).arg(there.url("data/alice/")).arg(local("b"))).expect(23);
    assert!(!here.join("b/out").exists() && here.join("b/x").exists());
    let listed = out(&shared.token(&["list"]));
    assert_eq!(listed, "reader: read in data/alice\nwriter: write in data\n");
}

#[test]
fn revoked_token_ends_its_session_and_no_other() {
    let shared = Shared::prepared(|before| {
        for name in ["one", "two"] {
            let words = ["create", name];
            fs::write(before.join(name), created(&token(before, &words))).unwrap();
        }
    });
    let here = Scratch::new();
    fill(&here.dir("d").join("f"), 64 << 20, &mut Rng::new(3));
    let start = |name: &str| {
        let token = fs::read_to_string(shared.here.join(name)).unwrap();
        let mut copy = shared.cp(&token);
        copy.args(["--max-rate", "8mbit"]).arg(here.join("d"));
        Running::start(copy.arg(shared.daemon.url(&format!("data/{name}"))))
    };
    let (mut first, mut second) = (start("one"), start("two"));
    let begun = |name: &str| fs::read_dir(shared.here.join(format!("data/{name}"))).is_ok();
    wait_until("both sessions run", || begun("one") && begun("two"));
    let revoked = shared.token(&["revoke", "one"]);
    assert!(err(&revoked).contains("ends its sessions within a second"), "{}", err(&revoked));
    wait_until("the session ends", || first.is_over());
    first.read_to_end();
    assert_eq!(first.code(), Some(5));
    let said = first.out();
    assert!(said.contains("the token one has expired or was revoked"), "{said}");
    assert!(!second.is_over());
    second.kill();
}

#[test]
fn lost_tokens_do_not_open_the_daemon() {
    let shared = Shared::prepared(|before| {
        created(&token(before, &["create", "one"]));
    });
    let here = Scratch::new();
    fs::remove_file(shared.here.join("state/tokens.toml")).unwrap();
    let warned = |says: &str| {
        let is_it = |event: &serde_json::Value| {
            event["event"] == "warning" && event["message"].as_str().unwrap().contains(says)
        };
        shared.daemon.events().iter().filter(|event| is_it(event)).count()
    };
    wait_until("the daemon warns", || warned("are gone: restore them") > 0);
    let copy = || {
        let url = shared.daemon.url("data/alice/x");
        run(shared.daemon.cp().arg(url).arg(here.join("x")))
    };
    copy().expect(5).says(&["a token is needed"]);
    // An unusable file is read again until it is usable, with a single warning.
    write_file(&shared.here.join("state/tokens.toml"), b"[token.x");
    wait_until("the daemon warns", || warned("line 1") > 0);
    copy().expect(5);
    assert_eq!(warned("line 1"), 1);
    fs::remove_file(shared.here.join("state/tokens.toml")).unwrap();
    let token = created(&shared.token(&["create", "two"]));
    let copied = || {
        let url = shared.daemon.url("data/alice/x");
        run(shared.cp(&token).arg(url).arg(here.join("x"))).code == Some(0)
    };
    wait_until("the daemon knows the new token", copied);
}

#[test]
fn absolute_link_dest_begins_with_the_share() {
    let shared = Shared::start();
    let (there, here) = (&shared.daemon, Scratch::new());
    write_file(&here.dir("d").join("f"), b"same");
    let push = |name: &str, flags: &[&str]| {
        let mut copy = there.cp();
        copy.arg("-a").args(flags).arg(format!("{}/", here.join("d").display()));
        run(copy.arg(there.url(name)))
    };
    push("data/old", &[]).expect(0);
    push("data/new", &["--link-dest", "/data/old"]).expect(0);
    let inode = |name: &str| fs::metadata(shared.here.join(name)).unwrap().ino();
    assert_eq!(inode("data/new/f"), inode("data/old/f"));
    push("data/other", &["--link-dest", "/logs"]).expect(5).says(&["not in the share data"]);
}

#[test]
fn token_expires() {
    let shared = Shared::prepared(|before| {
        let words = ["create", "short", "--expires", "4s"];
        fs::write(before.join("short"), created(&token(before, &words))).unwrap();
    });
    let held = fs::read_to_string(shared.here.join("short")).unwrap();
    let here = Scratch::new();
    let late = || {
        let url = shared.daemon.url("data/alice/x");
        run(shared.cp(&held).arg(url).arg(here.join("x")))
    };
    wait_until("the token expires", || late().code != Some(0));
    late().expect(5).says(&["the token short has expired"]);
    assert_eq!(shared.token(&["create", "late", "--expires", "2020-01-01"]).status.code(), Some(1));
}

#[test]
fn invite_is_stored_by_login() {
    let shared = Shared::prepared(|before| {
        created(&token(before, &["create", "first"]));
    });
    let address = format!("{}:{}", remote_host(), shared.daemon.port);
    let words = ["create", "laptop", "--share", "data", "--invite", "--address", &address];
    let invite = created(&shared.token(&words));
    assert!(invite.starts_with("bankfull-invite bankfull://") && !invite.contains('\n'));
    let home = Scratch::new();
    let login = |words: &[&str], text: &str| login(&home, words, text);
    let stored = login(&["store"], &invite);
    assert_eq!(stored.status.code(), Some(0), "{}", err(&stored));
    assert!(err(&stored).contains("try bankfull ls store:"), "{}", err(&stored));
    let dir = home.join(".config/bankfull");
    for name in ["config.toml", "store.token"] {
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(dir.join(name)).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let copied = || {
        let mut copy = cp();
        copy.env_remove("BANKFULL_CONFIG").env_remove("XDG_CONFIG_HOME").env("HOME", home.path());
        run(copy.arg("store:alice/x").arg(home.join("x"))).code == Some(0)
    };
    wait_until("the daemon knows the token", copied);
    assert_eq!(fs::read(home.join("x")).unwrap(), b"alice");
    // The same daemon again: its token is replaced.
    let again = login(&["store"], &invite);
    assert!(err(&again).starts_with("replaced the token of store:"), "{}", err(&again));
    let other = invite.replace("/data ", "/logs ");
    let refused = login(&["store"], &other);
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).contains("there is a remote store"), "{}", err(&refused));
    // The certificate of another daemon: the remote is replaced only if asked to, and not trusted.
    let is_fingerprint = |word: &&str| word.starts_with("sha256:");
    let own = invite.split(' ').find(is_fingerprint).unwrap();
    let foreign = invite.replace(own, &format!("sha256:{}", "0".repeat(64)));
    let refused = login(&["store"], &foreign);
    assert!(err(&refused).contains("write bankfull login --replace"), "{}", err(&refused));
    let replaced = login(&["store", "--replace"], &foreign);
    assert!(err(&replaced).starts_with("replaced store: by"), "{}", err(&replaced));
    assert!(!copied(), "the daemon has another certificate");
    created(&login(&["store", "--replace"], &invite));
    assert!(copied());
    fs::write(dir.join("taken.token"), "other").unwrap();
    let taken = login(&["taken"], &invite);
    assert!(err(&taken).contains("taken.token exists"), "{}", err(&taken));
    let broken = login(&["x"], "bankfull-invite what");
    assert!(err(&broken).contains("this is no invite"), "{}", err(&broken));
    let unused = ls().arg("x:").env("HOME", home.path()).output().unwrap();
    assert_ne!(unused.status.code(), Some(0));
}

#[test]
fn key_proves_its_client_without_a_secret_passed_on() {
    let shared = Shared::prepared(|before| {
        created(&token(before, &["create", "other"]));
    });
    let [home, stranger] = [Scratch::new(), Scratch::new()];
    let key = created(&login(&home, &["--key"], ""));
    assert!(key.starts_with("ed25519:") && key.len() == 72, "{key}");
    assert_eq!(created(&login(&home, &["--key"], "")), key, "the key stays");
    let file = home.join(".config/bankfull/client.key");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let copy = |home: &Scratch, words: &[&str]| {
        let mut copy = cp();
        copy.env_remove("BANKFULL_CONFIG").env_remove("XDG_CONFIG_HOME").env("HOME", home.path());
        run(copy.args(words).arg("store:alice/x").arg(home.join("x")))
    };
    let address = format!("{}:{}", remote_host(), shared.daemon.port);
    let words = ["create", "laptop", "--key", &key, "--share", "data", "--invite", "--address"];
    let words: Vec<&str> = words.into_iter().chain([&*address]).collect();
    let invite = created(&shared.token(&words));
    assert!(invite.ends_with(&format!(" {key}")), "{invite}");
    // The invite of another user has no effect, with a key of one's own or without.
    for _ in 0..2 {
        let refused = login(&stranger, &["store"], &invite);
        assert_eq!(refused.status.code(), Some(1));
        assert!(err(&refused).contains("give the administrator the line"), "{}", err(&refused));
        created(&login(&stranger, &["--key"], ""));
    }
    created(&login(&home, &["store"], &invite));
    let twice = shared.token(&["create", "more", "--key", &key]);
    assert_eq!(twice.status.code(), Some(1));
    assert!(err(&twice).contains("the key is stored already, as laptop"), "{}", err(&twice));
    for transport in ["tcp", "quic"] {
        let words = ["--transport", transport];
        wait_until("the daemon knows the key", || copy(&home, &words).code == Some(0));
        assert_eq!(fs::read(home.join("x")).unwrap(), b"alice");
        fs::remove_file(home.join("x")).unwrap();
    }
    let listed = out(&shared.token(&["list"]));
    assert!(listed.contains(&format!("laptop: read-write in data, {key}\n")), "{listed}");
    // Another key at its place is unknown, and a revoked one, too.
    let own = fs::read(&file).unwrap();
    fs::copy(stranger.join(".config/bankfull/client.key"), &file).unwrap();
    copy(&home, &[]).expect(5).says(&["the key ed25519:", "is unknown here"]);
    fs::write(&file, own).unwrap();
    created(&shared.token(&["revoke", "laptop"]));
    wait_until("the key is unknown", || copy(&home, &[]).code == Some(5));
    // A daemon that is given a private key as its token does not start without one.
    let mut daemon = command();
    daemon.args(["serve", "--listen", "127.0.0.1:0", "--token-file"]).arg(&file).arg(home.path());
    daemon.arg("--state-dir").arg(home.join("state"));
    run(&mut daemon).expect(1).says(&["has the private key of a client", &key]);
}

#[test]
fn served_invite_is_all_that_a_client_needs() {
    let (here, home) = (Scratch::new(), Scratch::new());
    let root = here.dir("root");
    let start = || {
        let mut command = command();
        command.arg("serve").arg(&root).args(["--listen", &remote_address(0), "--json"]);
        command.args(["--invite", "laptop", "--state-dir"]).arg(here.join("state"));
        command
    };
    let daemon = Daemon::from_command(&mut start());
    let invite = daemon.events()[0]["invite"].as_str().unwrap().to_owned();
    write_file(&home.join("invite"), invite.as_bytes());
    let client = |command: Command, text: &str| {
        let mut script = script(text, &command);
        script.env_remove("BANKFULL_CONFIG").env_remove("XDG_CONFIG_HOME").env("HOME", home.path());
        run(&mut script)
    };
    let mut login = command();
    login.args(["login", "store"]);
    client(login, &format!("\"$@\" < {}", home.join("invite").display())).expect(0);
    let mut copy = cp();
    copy.arg(home.join("invite")).arg("store:");
    client(copy, "\"$@\"").expect(0);
    assert_eq!(fs::read_to_string(root.join("invite")).unwrap(), invite);
    // Without the token, there is no service; a name is given once.
    run(daemon.cp().arg(daemon.url("invite")).arg(home.join("x"))).expect(5);
    run(&mut start()).expect(1).says(&["there is a token laptop"]);
    // Where the daemon does not start, no token stays.
    let mut blocked = start();
    blocked.args(["--listen", &remote_address(daemon.port), "--invite", "other"]);
    run(&mut blocked).expect(10).says(&["choose another port"]);
    let listed = command().args(["token", "list", "--state-dir"]).arg(here.join("state")).output();
    assert_eq!(out(&listed.unwrap()), "laptop: read-write\n");
}

#[test]
fn changed_shares_apply_after_sighup() {
    let shared = Shared::start();
    let (there, here) = (&shared.daemon, Scratch::new());
    fs::create_dir(shared.here.join("more")).unwrap();
    write_file(&shared.here.join("more/m"), b"m");
    let file = shared.here.join("serve.toml");
    let earlier = fs::read_to_string(&file).unwrap();
    let share = |path: &str| {
        let path = shared.here.join(path);
        format!("{earlier}[share.more]\npath = \"{}\"\n", path.display())
    };
    let copied = || run(there.cp().arg(there.url("more/m")).arg(here.join("m"))).code == Some(0);
    assert!(!copied());
    // A share inside another one is refused, and the daemon goes on.
    fs::write(&file, share("data/alice")).unwrap();
    there.running().signal(Signal::HUP);
    let warned = || {
        there.events().iter().any(|event| {
            event["event"] == "warning"
                && event["message"]
                    .as_str()
                    .unwrap()
                    .contains("the share more is inside the share data")
        })
    };
    wait_until("the daemon warns", warned);
    run(there.cp().arg(there.url("data/alice/x")).arg(here.join("x"))).expect(0);
    fs::write(&file, share("more")).unwrap();
    there.running().signal(Signal::HUP);
    wait_until("the share is there", copied);
}

#[test]
fn daemon_without_usable_shares_does_not_start() {
    let here = Scratch::new();
    let refused = |text: &str, code: i32, says: &str| {
        let file = here.join("serve.toml");
        fs::write(&file, text).unwrap();
        set_mode(&file, 0o600);
        let output = serve(&here).output().unwrap();
        let line = err(&output);
        assert_eq!(output.status.code(), Some(code), "{line}");
        assert!(line.contains(says) && line.lines().count() == 1, "{line}");
    };
    let share = "[share.a]\npath = \"/\"\n";
    refused("", 1, "write bankfull serve ROOT, or shares [share.NAME]");
    refused("[share.a]\nread_only = true", 1, "[share.a] has no path");
    refused("[share.a]\npath = \"srv\"", 1, "path in [share.a] is relative");
    refused(&format!("{share}[share.b]\npath = \"/tmp\""), 1, "b is inside the share a");
    refused("[share.a]\npath = \"/nonexistent/x\"", 11, "cannot serve the share a");
    refused(&format!("{share}alow = \"::/0\""), 1, "did you mean allow?");
    refused(&format!("{share}allow = []"), 1, "allow in [share.a] is empty");
    refused(&format!("{share}allow = \"10.0.0.0/40\""), 1, "write ADDRESS/BITS");
    refused("[shares.a]\npath = \"/\"", 1, "did you mean [share]?");
}

#[test]
fn share_is_offered_to_its_networks() {
    let shared = Shared::start();
    let file = shared.here.join("serve.toml");
    let text = fs::read_to_string(&file).unwrap() + "allow = [\"203.0.113.0/24\"]\n";
    fs::write(&file, text).unwrap();
    shared.daemon.running().signal(Signal::HUP);
    let (there, here) = (&shared.daemon, Scratch::new());
    let copy = || run(there.cp().arg(there.url("logs/l")).arg(here.join("l")));
    wait_until("the share is closed", || copy().code == Some(3));
    copy().expect(3).says(&["there is no share \"logs\" for you", "one of data"]);
    run(there.cp().arg(there.url("data/alice/x")).arg(here.join("x"))).expect(0);
}

#[test]
fn bad_action_on_tokens_is_one_line() {
    let here = Scratch::new();
    fs::write(here.join("serve.toml"), "").unwrap();
    set_mode(&here.join("serve.toml"), 0o600);
    let state = here.join("s");
    let refused = |words: &[&str], says: &str| {
        let mut all = words.to_vec();
        all.extend(["--state-dir", state.to_str().unwrap()]);
        let output = token(&here, &all);
        let line = err(&output);
        assert_eq!((output.status.code(), line.lines().count()), (Some(1), 1), "{line}");
        assert!(line.contains(says), "{line}");
    };
    refused(&["create"], "the name is missing: write bankfull token create NAME");
    refused(&["create", "x", "--prefix", "../y"], "name a directory beneath the share");
    refused(&["create", "x", "--prefix", "a b", "--invite"], "leave out --invite");
    refused(&["revoke", "x"], "there is no token x in ");
    created(&token(&here, &["create", "x", "--state-dir", state.to_str().unwrap()]));
    refused(&["create", "x"], "there is a token x: choose another name");
    let listed = token(&here, &["list", "--json", "--state-dir", state.to_str().unwrap()]);
    let line: serde_json::Value = serde_json::from_str(&out(&listed)).unwrap();
    assert_eq!((&line["name"], &line["rights"]), (&"x".into(), &"read-write".into()));
}

#[test]
fn session_is_a_line_of_the_audit_log() {
    let shared = Shared::prepared(|here| {
        let path = here.join("audit.jsonl");
        set(here, "", &format!("audit-log = \"{}\"", path.display()));
        fs::write(here.join("one"), created(&token(here, &["create", "one"]))).unwrap();
    });
    let held = fs::read_to_string(shared.here.join("one")).unwrap();
    let (there, here) = (&shared.daemon, Scratch::new());
    write_file(&here.join("f"), b"content");
    run(shared.cp(&held).arg(here.join("f")).arg(there.url("data/f"))).expect(0);
    run(shared.cp(&held).arg(here.join("f")).arg(there.url("logs/f"))).expect(5);
    run(there.cp().arg(there.url("data/f")).arg(here.join("g"))).expect(5);
    let lines = || -> Vec<serde_json::Value> {
        let text = fs::read_to_string(shared.here.join("audit.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    wait_until("all clients are in the log", || lines().len() >= 3);
    let [done, refused, stranger] = &lines()[..] else { panic!("{:?}", lines()) };
    assert_eq!((&done["token"], &done["direction"]), (&"one".into(), &"receive".into()));
    assert_eq!((&done["outcome"], &done["bytes"]), (&"complete".into(), &7.into()));
    assert_eq!((&done["paths"][0], &done["files"]), (&"data/f".into(), &1.into()));
    assert_eq!((&done["deleted"], &done["removes_sources"]), (&0.into(), &false.into()));
    assert_eq!((&stranger["outcome"], &stranger["token"]), (&"refused".into(), &().into()));
    assert!(stranger["reason"].as_str().unwrap().contains("a token is needed"), "{stranger}");
    assert_eq!((&refused["outcome"], &refused["bytes"]), (&"refused".into(), &0.into()));
    assert!(refused["reason"].as_str().unwrap().contains("read-only"));
}
