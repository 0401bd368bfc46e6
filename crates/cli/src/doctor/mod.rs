//! `bankfull doctor`: what this host allows, and the settings that would help.

mod disk;
mod host;
mod kernel;
mod network;

use crate::environment::Environment;
use crate::exit::Exit;
use crate::flags::DoctorFlags;
use crate::output::{Output, printable_text};
use bankfull::{RememberedPath, default_state_dir, remembered_paths};
use host::Host;
use serde_json::json;
use std::path::Path;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing to do.
    Good,
    /// A setting might help.
    Note,
    /// A setting slows copies down.
    Problem,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    topic: &'static str,
    state: State,
    text: String,
    /// Command that changes it.
    setting: Option<String>,
    /// Effect of that command.
    effect: Option<String>,
}

impl Finding {
    fn good(topic: &'static str, text: impl Into<String>) -> Self {
        Self { topic, state: State::Good, text: text.into(), setting: None, effect: None }
    }

    fn note(topic: &'static str, text: impl Into<String>, setting: impl Into<String>) -> Self {
        Self { state: State::Note, setting: Some(setting.into()), ..Self::good(topic, text) }
    }

    fn problem(topic: &'static str, text: impl Into<String>, setting: impl Into<String>) -> Self {
        Self { state: State::Problem, ..Self::note(topic, text, setting) }
    }

    fn with_effect(self, effect: impl Into<String>) -> Self {
        Self { effect: Some(effect.into()), ..self }
    }

    fn json(&self) -> String {
        let Self { topic, state, text, setting, effect } = self;
        let state = state.name();
        json!({ "topic": topic, "state": state, "message": text, "setting": setting, "effect": effect })
            .to_string()
    }
}

/// Command of a setting that a restart of the host ends.
const SYSCTL: &str = "sysctl -w";

/// Shows the findings about this host.
pub(crate) fn run(flags: &DoctorFlags) -> Exit {
    let mut output = Output::standard();
    let environment = Environment::read();
    let state_dir = flags.state_dir.clone().or(environment.state_dir);
    let state_dir = state_dir.or_else(|| default_state_dir().ok());
    let paths = state_dir.map(|dir| remembered_paths(&dir)).unwrap_or_default();
    let findings = match examine(&Host::own(), &paths, flags.dir.as_deref()) {
        Ok(findings) => findings,
        Err(text) => {
            output.error(&text);
            return Exit::Local;
        }
    };
    for finding in &findings {
        match flags.json {
            true => output.data_line(&finding.json()),
            false => show(finding, &mut output),
        }
    }
    if !flags.json {
        let is_temporary =
            |finding: &Finding| finding.setting.as_ref().is_some_and(|text| text.contains(SYSCTL));
        if findings.iter().any(is_temporary) {
            output.data_line(
                "sysctl -w lasts until the next start: to keep a setting, write NAME = VALUE into a \
                 file of /etc/sysctl.d",
            );
        }
        output.data_line(&conclusion(&findings));
    }
    match output.failure() {
        None => Exit::Done,
        Some(why) => {
            output.error(&why);
            Exit::Local
        }
    }
}

/// Runs all checks.
///
/// # Errors
/// A directory that cannot be written.
fn examine(
    host: &Host,
    paths: &[RememberedPath],
    dir: Option<&Path>,
) -> Result<Vec<Finding>, String> {
    let mut findings = network::buffers(host, paths);
    findings.extend(network::datagrams(host, paths));
    findings.extend(network::congestion_controls(host));
    findings.extend(network::protocol(host, paths));
    findings.extend(network::mtu(host));
    findings.extend(kernel::all(host));
    findings.extend(dir.map(|dir| disk::check(dir, paths)).transpose()?);
    Ok(findings)
}

fn show(finding: &Finding, output: &mut Output) {
    let Finding { topic, state, text, setting, effect } = finding;
    output.data_line(&format!("{:<8} {topic:<20} {}", state.name(), printable_text(text)));
    for (what, text) in [("try", setting), ("brings", effect)] {
        if let Some(text) = text {
            output.data_line(&format!("{:<29} {what}: {}", "", printable_text(text)));
        }
    }
}

fn conclusion(findings: &[Finding]) -> String {
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    match (count(State::Problem), count(State::Note)) {
        (0, 0) => "nothing slows copies down that a setting would change".to_owned(),
        (0, 1) => "no problems, 1 note".to_owned(),
        (0, notes) => format!("no problems, {notes} notes"),
        (problems, notes) => format!("problems: {problems}, notes: {notes}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull::Rate;
    use std::time::Duration;

    fn path(mbit: f64, millis: u64) -> RememberedPath {
        let rate = Rate::from_bits_per_sec(mbit * 1e6);
        RememberedPath::new(false, "store.example", rate, Duration::from_millis(millis))
    }

    /// Findings about a host with these settings.
    fn found(settings: &[(&str, &str)], paths: &[RememberedPath]) -> Vec<Finding> {
        let dir = tempfile::tempdir().unwrap();
        for (name, value) in settings {
            let file = dir.path().join("proc/sys").join(name.replace('.', "/"));
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, value).unwrap();
        }
        examine(&Host::at(dir.path()), paths, None).unwrap()
    }

    fn about<'f>(findings: &'f [Finding], topic: &str) -> &'f Finding {
        findings.iter().find(|finding| finding.topic == topic).unwrap()
    }

    #[test]
    fn each_kernel_trap_has_its_setting() {
        for (name, bad, good) in [
            ("net.ipv4.tcp_window_scaling", "0", "1"),
            ("net.ipv4.tcp_sack", "0", "1"),
            ("net.ipv4.tcp_timestamps", "0", "1"),
            ("net.ipv4.tcp_rcvbuf_low_rtt", "1000", "0"),
        ] {
            let sets = |finding: &Finding| {
                let setting = format!("sysctl -w {name}={good}");
                finding.setting.as_ref().is_some_and(|text| *text == setting)
            };
            assert!(found(&[(name, bad)], &[]).iter().any(sets), "{name}");
            assert!(!found(&[(name, good)], &[]).iter().any(sets), "{name}");
        }
    }

    #[test]
    fn datagram_buffers_are_compared_with_paths() {
        let small = [("net.core.rmem_max", "212992"), ("net.core.wmem_max", "212992")];
        let findings = found(&small, &[path(1000.0, 80)]);
        let finding = about(&findings, "UDP buffers");
        assert_eq!(finding.state, State::Note);
        assert!(finding.setting.as_ref().unwrap().contains("sysctl -w net.core.rmem_max="));
        let large = [("net.core.rmem_max", "33554432"), ("net.core.wmem_max", "33554432")];
        assert_eq!(about(&found(&large, &[]), "UDP buffers").state, State::Good);
    }

    #[test]
    fn congestion_controls_that_are_missing_or_forbidden_are_named() {
        let at = |available: &str, allowed: &str| {
            let findings = found(
                &[
                    ("net.ipv4.tcp_available_congestion_control", available),
                    ("net.ipv4.tcp_allowed_congestion_control", allowed),
                ],
                &[],
            );
            about(&findings, "congestion control").setting.clone()
        };
        assert_eq!(at("reno cubic", "reno cubic").as_deref(), Some("modprobe tcp_bbr"));
        assert_eq!(at("reno cubic bbr", "reno cubic bbr"), None);
    }

    #[test]
    fn conclusion_counts() {
        let note = Finding::note("a", "b", "c");
        assert_eq!(conclusion(std::slice::from_ref(&note)), "no problems, 1 note");
        let problem = Finding::problem("a", "b", "c").with_effect("d");
        assert_eq!(conclusion(&[note, problem]), "problems: 1, notes: 1");
        assert!(conclusion(&[Finding::good("a", "b")]).starts_with("nothing slows"));
    }
}
