//! Requirements of `bankfull guard`, and what it does without: rights, mounts, a cgroup, a reader.

use super::guard::{FREE_WINDOW, Scene, wait_until};
use bankfull_lab::base::notify;
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Returns the message of a guard that does not start after a change of mounts.
fn refusal(scene: &Scene, change: &str) -> String {
    let script = format!("{change} && exec \"$0\" guard --interface lo");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).arg(&scene.program);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    assert!(!output.status.success() && text.lines().count() == 1, "{text}");
    text
}

/// Returns the first mount point of cgroup version 2.
pub(super) fn cgroup_mount() -> PathBuf {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(" cgroup2 ")).unwrap();
    PathBuf::from(line.split(' ').nth(1).unwrap())
}

#[test]
fn missing_requirement_is_named_with_the_way_out() {
    let Some(scene) = Scene::new() else { return };
    let unmount = format!("umount -l {}", cgroup_mount().display());
    for (change, words) in [
        ("mount -t tmpfs none /sys/kernel/btf", ["no type information", "CONFIG_DEBUG_INFO_BTF"]),
        ("umount -l /sys/fs/bpf", ["no BPF file system is mounted", "mount -t bpf"]),
        (&unmount, ["no cgroup version 2 is mounted", "mount -t cgroup2"]),
    ] {
        let text = refusal(&scene, change);
        assert!(words.iter().all(|&word| text.contains(word)), "{change}: {text}");
    }
    assert!(scene.is_clean());
}

/// Returns a command that runs the guard with these capabilities only.
fn with_rights(scene: &Scene, rights: &str) -> Command {
    let guard = scene.command("lab0", &["--mode", "hold"]);
    let mut command = Command::new("setpriv");
    command.args(["--inh-caps=-all", &format!("--bounding-set=-all{rights}")]);
    command.arg(guard.get_program()).args(guard.get_args());
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

#[test]
fn missing_right_is_named() {
    let Some(scene) = Scene::new() else { return };
    for (rights, missing) in [
        ("", "CAP_BPF and CAP_PERFMON and CAP_NET_ADMIN"),
        (",+bpf,+perfmon", "CAP_NET_ADMIN"),
        (",+sys_admin", "CAP_NET_ADMIN"),
        (",+net_admin,+perfmon", "CAP_BPF"),
    ] {
        let output = with_rights(&scene, rights).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{rights}");
        assert!(text.contains(&format!("bankfull: {missing} missing: run as root")), "{text}");
    }
    assert!(scene.is_clean());
}

#[test]
fn three_rights_suffice() {
    let Some(mut scene) = Scene::new() else { return };
    let command = with_rights(&scene, ",+bpf,+perfmon,+net_admin");
    scene.start(command);
    let flows = scene.send(scene.connect(4));
    wait_until("windows fit the port", || {
        !scene.events("window").is_empty() && flows.max_window() < FREE_WINDOW / 2
    });
}

#[test]
fn guard_ends_with_its_cgroup() {
    let Some(mut scene) = Scene::new() else { return };
    let cgroup = cgroup_mount().join(format!("bankfull-lab-{}", std::process::id()));
    if let Err(error) = fs::create_dir(&cgroup) {
        notify(&format!("skipped: no cgroup can be created: {error}"));
        return;
    }
    scene.start_guard(&["--cgroup", cgroup.to_str().unwrap()]);
    fs::remove_dir(&cgroup).unwrap();
    let (is_success, text) = scene.wait_for_end();
    assert!(!is_success && text.contains("is gone"), "{text}");
    assert!(scene.is_clean());
}

#[test]
fn output_that_is_not_read_stops_nothing() {
    let Some(mut scene) = Scene::new() else { return };
    let mut command = scene.command("lab0", &["--mode", "hold"]);
    let mut guard = scene.hosts.spawn(1, command.stdout(Stdio::piped())).unwrap();
    let mut events = BufReader::new(guard.stdout.take().unwrap());
    events.read_line(&mut String::new()).unwrap();
    scene.guard = Some(guard);
    // More than a pipe of 64 KiB and the reader's buffer hold.
    for _ in 0..20 {
        drop(scene.connect(20));
    }
    let flows = scene.send(scene.connect(4));
    wait_until("windows fit the port", || flows.max_window() < FREE_WINDOW / 2);
    let lines = events.lines().map_while(Result::ok);
    let is_status = |line: &String| line.contains("\"engaged\":true");
    assert!(lines.into_iter().any(|line| is_status(&line)), "the guard has ended");
    drop(flows);
    assert!(scene.end_guard(Signal::TERM));
}
