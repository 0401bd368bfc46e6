//! Ctrl-C while the client waits for the peer: it ends at once in every state.

use super::super::harness::{
    FakeServer, Rng, Running, Scratch, SshServer, cp, fill, wait_until, welcome, write_file,
};
use bankfull_proto::wire::control::Message;
use rustix::process::{Pid, Signal};
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time limit for the end of the client; its timeout is twelve times as long.
const SOON: Duration = Duration::from_secs(5);

/// Starts a client, interrupts it once `waits` holds, and checks its end.
fn interrupt(command: &mut Command, waits: impl FnMut() -> bool) {
    let client = Running::start(command);
    wait_until("the client waits for the peer", waits);
    client.signal(Signal::INT);
    let done = client.wait_for(SOON).expect(20);
    done.says(&["interrupted", "run the same command again"]);
    assert!(!done.err.contains("panicked"), "{}", done.err);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}

/// Fetches everything from a server that lets the client wait and signals that state.
fn interrupt_at(serve: impl FnOnce(Arc<AtomicBool>) -> FakeServer) {
    let here = Scratch::new();
    let waits = Arc::new(AtomicBool::new(false));
    let server = serve(Arc::clone(&waits));
    let mut command = cp();
    command.args(["--accept-new", "--state-dir"]).arg(here.join("state"));
    command.arg(server.url()).arg(here.join("in"));
    interrupt(&mut command, || waits.load(Ordering::SeqCst));
}

#[test]
fn interrupt_works_during_the_handshake() {
    interrupt_at(|waits| {
        FakeServer::raw(move |mut socket| {
            let _ = socket.read(&mut [0; 512]);
            waits.store(true, Ordering::SeqCst);
            let _ = io::copy(&mut socket, &mut io::sink());
        })
    });
}

#[test]
fn interrupt_works_before_the_welcome() {
    interrupt_at(|waits| FakeServer::greeted(move |_, _| waits.store(true, Ordering::SeqCst)));
}

#[test]
fn interrupt_works_before_the_response() {
    interrupt_at(|waits| {
        FakeServer::greeted(move |peer, _| {
            peer.send(&welcome(1));
            assert!(matches!(peer.receive(), Some(Message::Open(_))));
            waits.store(true, Ordering::SeqCst);
        })
    });
}

/// True if a process runs; a zombie does not.
fn runs(id: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(id).join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[test]
fn interrupt_ends_a_hanging_ssh() {
    for push in [true, false] {
        let here = Scratch::new();
        write_file(&here.join("file"), b"file");
        let began = here.join("began");
        let script =
            format!("echo $$ >'{0}.new'; mv '{0}.new' '{0}'; exec sleep 60", began.display());
        write_file(&here.join("ssh"), script);
        let mut command = cp();
        command.arg("--ssh-command").arg(format!("sh {}", here.join("ssh").display()));
        if push {
            command.arg(here.join("file")).arg("127.0.0.1:/nowhere");
        } else {
            command.arg("127.0.0.1:/nowhere").arg(here.join("in"));
        }
        interrupt(&mut command, || began.exists());
        let id = fs::read_to_string(&began).unwrap();
        wait_until("the ssh is gone", || !runs(id.trim()));
    }
}

#[test]
fn interrupt_works_while_ssh_resolves_a_name() {
    let here = Scratch::new();
    write_file(&here.join("file"), b"file");
    let began = here.join("began");
    // Like a hanging `Match exec` in the user's configuration.
    let script = format!(
        "case \" $* \" in *' -G '*) touch '{}'; exec sleep 60 ;; esac; exec {} agent 2>/dev/null",
        began.display(),
        env!("CARGO_BIN_EXE_bankfull")
    );
    write_file(&here.join("ssh"), script);
    let mut command = cp();
    command.arg("--ssh-command").arg(format!("sh {}", here.join("ssh").display()));
    command.arg(here.join("file")).arg("127.0.0.1:/nowhere");
    interrupt(&mut command, || began.exists());
}

#[test]
fn terminal_interrupt_of_a_copy_over_ssh_reads_as_one() {
    let Some(ssh) = SshServer::start() else { return };
    let here = Scratch::new();
    fill(&here.join("file"), 40 << 20, &mut Rng::new(9));
    let copy = here.join("copy");
    let mut command = ssh.cp();
    command.args(["--max-rate", "20mbit"]).arg(here.join("file")).arg(SshServer::place(&copy));
    // A terminal signals the whole process group, ssh included.
    let client = Running::start(command.process_group(0));
    let has_progress = || {
        let events = client.out();
        events
            .lines()
            .any(|line| line.contains("\"progress\"") && !line.contains("\"bytes_carried\":0,"))
    };
    wait_until("data flows", has_progress);
    let group = Pid::from_raw(client.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process_group(group, Signal::INT).unwrap();
    let done = client.wait_for(SOON).expect(20);
    done.says(&["interrupted", "run the same command again"]);
    assert!(!done.err.contains("broken pipe") && !done.err.contains("lost"), "{}", done.err);
}
