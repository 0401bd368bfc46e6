//! The commands of the guides in docs/guides, run as they stand.

use super::command;
use super::harness::{Scratch, SshServer, assert_same, run, write_file};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Hosts that the guides name; each stands for the host of the ssh server.
const HOSTS: [&str; 3] = ["host", "one", "two"];

/// Top directories of the guides.
const DIRS: [&str; 3] = ["/home", "/srv", "/backup"];

/// Returns the blocks of a page that are shell scripts, as one.
fn script_of(page: &str) -> String {
    let mut is_script = false;
    let mut script = String::new();
    for line in page.lines() {
        match line {
            "```sh" => is_script = true,
            "```" => is_script = false,
            line if is_script => script += &format!("{line}\n"),
            _ => {}
        }
    }
    script
}

/// Returns a script with its directories beneath `root`, those of each host apart.
fn beneath(root: &Path, mut script: String) -> String {
    let root = root.display();
    for host in HOSTS {
        script = script.replace(&format!("{host}:/"), &format!("{host}:{root}/hosts/{host}/"));
    }
    for dir in DIRS {
        for before in [" ", ">"] {
            script = script.replace(&format!("{before}{dir}"), &format!("{before}{root}{dir}"));
        }
    }
    script
}

/// Files of the guides.
fn world() -> Scratch {
    let root = Scratch::new();
    for dir in ["home/me/docs", "srv/data", "backup"] {
        fs::create_dir_all(root.join(dir)).unwrap();
        for host in HOSTS {
            let dir = root.join(format!("hosts/{host}")).join(dir.split('/').next().unwrap());
            fs::create_dir_all(dir).unwrap();
        }
    }
    write_file(&root.join("home/me/notes"), b"notes");
    write_file(&root.join("home/me/docs/letter"), [7; 100_000]);
    write_file(&root.join("srv/data/run"), [8; 300_000]);
    for host in ["one", "two"] {
        let log = root.join(format!("hosts/{host}/var/log"));
        fs::create_dir_all(&log).unwrap();
        write_file(&log.join("syslog"), host.as_bytes());
    }
    root
}

/// Runs the script of a page; returns its files.
fn follow(ssh: &SshServer, page: &str) -> Scratch {
    let root = world();
    let path = format!("{}/../../docs/guides/{page}.md", env!("CARGO_MANIFEST_DIR"));
    let script = script_of(&fs::read_to_string(path).unwrap());
    assert!(script.contains("bankfull "), "{page} has no commands");
    let settings = |name: &str| {
        format!("[{name}]\nremote-bankfull = \"{}\"\n", env!("CARGO_BIN_EXE_bankfull"))
    };
    let config = root.join("config.toml");
    fs::write(&config, ["cp", "gather", "probe"].map(settings).concat()).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_bankfull")).parent().unwrap();
    let paths = std::env::var("PATH").unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c"]).arg(beneath(root.path(), script));
    for (name, _) in command().get_envs().filter(|(_, value)| value.is_none()) {
        shell.env_remove(name);
    }
    shell.env("PATH", format!("{}:{paths}", program.display())).env("HOME", root.path());
    shell.env("BANKFULL_CONFIG", config).env("BANKFULL_SSH", ssh.by_any_name());
    run(&mut shell).expect(0);
    root
}

#[test]
fn home_directory_is_moved() {
    let Some(ssh) = SshServer::start() else { return };
    let root = follow(&ssh, "home-directory");
    assert_same(&root.join("home/me"), &root.join("hosts/host/home/me"));
}

#[test]
fn hosts_are_gathered() {
    let Some(ssh) = SshServer::start() else { return };
    let root = follow(&ssh, "nightly-gather");
    for host in ["one", "two"] {
        let log = root.join(format!("srv/logs/{host}/log/syslog"));
        assert_eq!(fs::read_to_string(log).unwrap(), host);
    }
    assert!(root.join("srv/logs.html").exists());
}

#[test]
fn snapshots_are_made() {
    let Some(ssh) = SshServer::start() else { return };
    let root = follow(&ssh, "snapshots");
    // Yesterday's, which is empty, and today's.
    assert_eq!(fs::read_dir(root.join("backup")).unwrap().count(), 2);
    assert_same(&root.join("home"), &root.join("hosts/host/backup/current"));
}

#[test]
fn firewalls_are_passed() {
    let Some(ssh) = SshServer::start() else { return };
    let root = follow(&ssh, "firewall");
    assert_same(&root.join("srv/data"), &root.join("hosts/host/srv/data"));
}

#[test]
fn slow_copies_are_explained() {
    let Some(ssh) = SshServer::start() else { return };
    let root = follow(&ssh, "slow");
    assert!(root.join("srv/report.html").exists());
}

/// Returns the text of all sources beneath a directory, with strings that go on joined.
fn sources(dir: &Path) -> String {
    let mut text = String::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            text += &sources(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = fs::read_to_string(path).unwrap();
            let mut lines = file.lines().map(str::trim_start);
            lines.by_ref().for_each(|line| match line.strip_suffix('\\') {
                Some(start) => text += start,
                None => text += &format!("{line}\n"),
            });
        }
    }
    text
}

#[test]
fn explained_messages_exist() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let texts = sources(&here.join("../engine/src")) + &sources(&here.join("src"));
    let page = fs::read_to_string(here.join("../../docs/guides/troubleshooting.md")).unwrap();
    let mut count = 0;
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let messages = row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2);
        // That of the kernel is not in the sources.
        for message in messages.filter(|message| *message != "no space left on device") {
            for part in message.split(['…', '(']).map(str::trim) {
                let part = part.trim_end_matches("A-B is free");
                assert!(texts.contains(part), "{message}: no {part:?} in the sources");
                count += 1;
            }
        }
    }
    assert!(count > 15, "{count}");
}
