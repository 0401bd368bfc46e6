//! Far sides over ssh that cannot be reached or started, and shells that talk too much.

use super::super::harness::{
    Scratch, SshServer, assert_same, cp, far_host, run, set_mode, write_file,
};
use std::process::Command;

/// Sends a file with a command that is given everything but the operands.
fn send(here: &Scratch, command: &mut Command) -> super::super::harness::Done {
    write_file(&here.join("file"), b"file");
    run(command.arg(here.join("file")).arg(SshServer::place(&here.join("out"))))
}

#[test]
fn a_far_side_without_the_program_gets_one_line_with_every_way_out() {
    let Some(ssh) = SshServer::start() else { return };
    let here = Scratch::new();
    let mut command = ssh.cp_without_program();
    let done = send(&here, command.args(["--remote-bankfull", "/no/such/bankfull"])).expect(14);
    let no_program = format!("{} has no /no/such/bankfull", far_host());
    done.says(&[&no_program, "correct --remote-bankfull", "--deploy"]);
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    assert!(!here.join("out").exists());
}

#[test]
fn a_login_that_fails_is_left_to_ssh_to_explain() {
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
        far_host()
    );
    done.says(&[&format!("could not log in to {}", far_host()), &line]);
}

#[test]
fn an_ssh_that_is_not_there_is_named() {
    let here = Scratch::new();
    let mut command = cp();
    let done = send(&here, command.args(["--ssh-command", "/no/such/ssh -4"])).expect(14);
    done.says(&["cannot run /no/such/ssh", "no such file"]);
}

/// An ssh that ends its output at once, and itself a second later with this exit code.
fn tardy_ssh(here: &Scratch, code: i32) -> String {
    let script = here.join("ssh");
    write_file(&script, format!("exec >&-; sleep 1; exit {code}"));
    format!("sh {}", script.display())
}

#[test]
fn an_ssh_that_takes_a_moment_to_end_still_says_why() {
    let here = Scratch::new();
    for (code, words) in [(127, "has no bankfull"), (255, "could not log in")] {
        let mut command = cp();
        let done = send(&here, command.arg("--ssh-command").arg(tardy_ssh(&here, code)));
        done.expect(14).says(&[words]);
    }
    let mut command = cp();
    command.arg("--deploy").arg("--ssh-command").arg(tardy_ssh(&here, 127));
    let done = send(&here, &mut command).expect(14);
    // How far it gets depends on how this program was built; that it begins does not.
    let began = ["dynamically linked", "cannot deploy"];
    assert!(began.iter().any(|words| done.err.contains(words)), "{}", done.err);
}

#[test]
fn a_far_side_that_is_some_other_program_is_told_from_bankfull() {
    let here = Scratch::new();
    let mut command = cp();
    // Whatever it is asked to run, this prints and ends well.
    let done = send(&here, command.args(["--ssh-command", "echo hello"])).expect(12);
    done.says(&[&format!("bankfull on {} is no bankfull", far_host()), "--remote-bankfull"]);
    let Some(ssh) = SshServer::start() else { return };
    let mut command = ssh.cp_without_program();
    let done = send(&here, command.args(["--remote-bankfull", "/bin/ls"])).expect(12);
    done.says(&[&format!("/bin/ls on {} is no bankfull", far_host())]);
}

#[test]
fn what_goes_wrong_on_the_far_side_is_told_once() {
    let Some(ssh) = SshServer::start() else { return };
    let here = Scratch::new();
    write_file(&here.join("file"), b"file");
    for (source, destination, words) in [
        (SshServer::place(&here.join("missing")), "in", "cannot read"),
        ("file".to_owned(), &*SshServer::place(&here.join("no/such/place")), "create it first"),
        ("file".to_owned(), &*SshServer::place(&here.join("file/")), "is no directory"),
    ] {
        let mut command = ssh.cp();
        let done = run(command.current_dir(here.path()).arg(source).arg(destination));
        done.says(&["the far side says", words]);
        assert_eq!(done.err.lines().count(), 1, "{}", done.err);
    }
}

#[test]
fn shells_that_print_greetings_do_no_harm() {
    let config = "ForceCommand echo 'Welcome! BKFL'; sh -c \"$SSH_ORIGINAL_COMMAND\"";
    let Some(ssh) = SshServer::with(config) else { return };
    let here = Scratch::new();
    send(&here, &mut ssh.cp()).expect(0);
    assert_same(&here.join("file"), &here.join("out"));
}

#[test]
fn the_program_may_live_under_a_name_that_a_shell_would_take_apart() {
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
fn deploying_puts_a_program_that_runs_anywhere_and_no_other() {
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
        // From now on it is found without being put there again.
        send(&here, &mut ssh.cp_without_program()).expect(0);
    } else {
        // As tests are usually built.
        done.expect(14).says(&["dynamically linked", "make release"]);
        assert!(!cached.exists());
    }
}

#[test]
fn sources_on_the_far_side_that_are_missing_are_named() {
    let Some(ssh) = SshServer::start() else { return };
    let here = Scratch::new();
    let mut command = ssh.cp();
    command.arg(SshServer::place(&here.join("missing"))).arg(here.join("in"));
    run(&mut command).expect(3).says(&["missing", "no such file"]);
}
