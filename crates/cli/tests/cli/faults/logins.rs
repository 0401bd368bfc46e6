//! Remote hosts that are unreachable or cannot start bankfull, and shells that print text.

use super::super::harness::{
    Scratch, SshServer, assert_same, cp, remote_host, run, set_mode, write_file,
};
use std::process::Command;

/// Sends a file with a command that lacks only the operands.
fn send(here: &Scratch, command: &mut Command) -> super::super::harness::Done {
    write_file(&here.join("file"), b"file");
    run(command.arg(here.join("file")).arg(SshServer::place(&here.join("out"))))
}

#[test]
fn missing_remote_program_is_one_line_with_the_ways_out() {
    let Some(ssh) = SshServer::start() else { return };
    let here = Scratch::new();
    let mut command = ssh.cp_without_program();
    let done = send(&here, command.args(["--remote-bankfull", "/no/such/bankfull"])).expect(14);
    let no_program = format!("{} has no /no/such/bankfull", remote_host());
    done.says(&[&no_program, "correct --remote-bankfull", "--deploy"]);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    assert!(!here.join("out").exists());
}

#[test]
fn failed_login_shows_the_error_of_ssh() {
    let Some(ssh) = SshServer::start() else { return };
    let here = Scratch::new();
    let mut command = cp();
    command.args(["-F", "none", "-o", "BatchMode=yes", "-o", "IdentityFile=none", "-P"]);
    command.arg(ssh.port.to_string()).args(["-o", "UserKnownHostsFile=/dev/null"]);
    let done = send(&here, command.args(["-o", "StrictHostKeyChecking=no"])).expect(14);
    let line = format!(
        "try `ssh -p {} -F none -o BatchMode=yes -o IdentityFile=none -o \
         UserKnownHostsFile=/dev/null -o StrictHostKeyChecking=no {} true`",
        ssh.port,
        remote_host()
    );
    done.says(&[&format!("could not log in to {}", remote_host()), &line]);
}

#[test]
fn missing_ssh_program_is_named() {
    let here = Scratch::new();
    let mut command = cp();
    let done = send(&here, command.args(["--ssh-command", "/no/such/ssh -4"])).expect(14);
    done.says(&["cannot run /no/such/ssh", "no such file"]);
}

/// Creates an ssh that closes its output and exits one second later with this code.
fn slow_ssh(here: &Scratch, code: i32) -> String {
    let script = here.join("ssh");
    write_file(&script, format!("exec >&-; sleep 1; exit {code}"));
    format!("sh {}", script.display())
}

#[test]
fn slow_ssh_exit_keeps_its_message() {
    let here = Scratch::new();
    for (code, words) in [(127, "has no bankfull"), (255, "could not log in")] {
        let mut command = cp();
        let done = send(&here, command.arg("--ssh-command").arg(slow_ssh(&here, code)));
        done.expect(14).says(&[words]);
    }
    let mut command = cp();
    command.arg("--deploy").arg("--ssh-command").arg(slow_ssh(&here, 127));
    let done = send(&here, &mut command).expect(14);
    // The result depends on the build of this program; only the start matters here.
    let began = ["dynamically linked", "cannot deploy"];
    assert!(began.iter().any(|words| done.err.contains(words)), "{}", done.err);
}

#[test]
fn other_remote_program_is_detected() {
    let here = Scratch::new();
    let mut command = cp();
    // Any command prints this and succeeds.
    let done = send(&here, command.args(["--ssh-command", "echo hello"])).expect(12);
    done.says(&[
        &format!("bankfull on {} did not start as a bankfull agent", remote_host()),
        "--remote-bankfull",
    ]);
    let Some(ssh) = SshServer::start() else { return };
    let mut command = ssh.cp_without_program();
    let done = send(&here, command.args(["--remote-bankfull", "/bin/ls"])).expect(12);
    done.says(&[&format!("/bin/ls on {} did not start as a bankfull agent", remote_host())]);
}

#[test]
fn remote_error_is_reported_once() {
    let Some(ssh) = SshServer::start() else { return };
    let here = Scratch::new();
    write_file(&here.join("file"), b"file");
    for (source, destination, words) in [
        (SshServer::place(&here.join("missing")), "in", "cannot read"),
        ("file".to_owned(), &*SshServer::place(&here.join("no/such/place")), "create it first"),
        ("file".to_owned(), &*SshServer::place(&here.join("file/")), "is not a directory"),
    ] {
        let mut command = ssh.cp();
        let done = run(command.current_dir(here.path()).arg(source).arg(destination));
        done.says(&[" reported: ", words]);
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    }
}

#[test]
fn shell_greetings_are_ignored() {
    let config = "ForceCommand echo 'Welcome! BKFL'; sh -c \"$SSH_ORIGINAL_COMMAND\"";
    let Some(ssh) = SshServer::with(config) else { return };
    let here = Scratch::new();
    send(&here, &mut ssh.cp()).expect(0);
    assert_same(&here.join("file"), &here.join("out"));
}

#[test]
fn shell_that_lets_no_command_run_is_explained() {
    for (command, code, words) in [
        ("exit 3", 12, "what the shell there writes"),
        ("echo 'This account is not available.'; exit 1", 12, "does not let commands run"),
        ("yes noise | head -c 1000000; sh -c \"$SSH_ORIGINAL_COMMAND\"", 12, "did not start as"),
        ("sleep 100", 30, "do the start files of the shell there end"),
    ] {
        let Some(ssh) = SshServer::with(&format!("ForceCommand {command}")) else { return };
        let here = Scratch::new();
        let done = send(&here, ssh.cp().args(["--timeout", "5"])).expect(code);
        done.says(&[words, " true`"]);
    }
}

#[test]
fn remote_program_name_is_quoted() {
    let Some(ssh) = SshServer::start() else { return };
    let here = Scratch::new();
    let odd = here.join("it's a $(place)");
    write_file(&odd, format!("#!/bin/sh\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_bankfull")));
    set_mode(&odd, 0o755);
    let mut command = ssh.cp_without_program();
    send(&here, command.arg("--remote-bankfull").arg(&odd)).expect(0);
    assert_same(&here.join("file"), &here.join("out"));
}

#[test]
fn deploy_copies_only_a_portable_program() {
    let home = Scratch::new();
    let config = format!(
        "ForceCommand env -u XDG_CACHE_HOME HOME='{}' PATH=/usr/bin:/bin sh -c \
         \"$SSH_ORIGINAL_COMMAND\"",
        home.path().display()
    );
    let Some(ssh) = SshServer::with(&config) else { return };
    let here = Scratch::new();
    let done = send(&here, ssh.cp_without_program().arg("--deploy"));
    let cached = home.join(".cache/bankfull").join(env!("CARGO_PKG_VERSION")).join("bankfull");
    if done.code == Some(0) {
        assert_same(&here.join("file"), &here.join("out"));
        assert!(cached.exists());
        // It is now found without another deployment.
        send(&here, &mut ssh.cp_without_program()).expect(0);
    } else {
        // The usual build of tests.
        done.expect(14).says(&["dynamically linked", "make release"]);
        assert!(!cached.exists());
    }
}

#[test]
fn missing_remote_sources_are_named() {
    let Some(ssh) = SshServer::start() else { return };
    let here = Scratch::new();
    let mut command = ssh.cp();
    command.arg(SshServer::place(&here.join("missing"))).arg(here.join("in"));
    run(&mut command).expect(3).says(&["missing", "no such file"]);
}
