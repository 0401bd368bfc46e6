//! Output of a daemon without `--json`: how clients reach it. The log has everything else.

use super::text::{printable_text, served_text};
use super::{Beginning, Ending, Output, Render, Serving};
use bankfull::{Event, Progress, ServerLimits};
use std::time::Duration;

/// Output of a daemon.
pub(super) struct Daemon {
    output: Output,
    is_quiet: bool,
    /// The log has the address, too.
    is_silent: bool,
    /// Number of signals that requested a stop.
    stop_requests: u32,
}

impl Daemon {
    /// Creates the output; `is_quiet` limits it to address, warnings and errors.
    ///
    /// `is_silent` limits it to errors.
    pub(super) fn new(output: Output, is_quiet: bool, is_silent: bool) -> Self {
        Self { output, is_quiet, is_silent, stop_requests: 0 }
    }

    fn show(&mut self, line: &str) {
        if !self.is_quiet && !self.is_silent {
            self.output.message(line);
        }
    }

    fn listening(&mut self, serving: &Serving) {
        // Clients need the port, which may have been chosen at random.
        let line = format!("serving {} on {}", served_text(&serving.served), serving.address);
        if !self.is_silent {
            self.output.message(&line);
        }
        self.show(&format!("fingerprint {}", serving.fingerprint));
        self.show(&format!("clients copy with: {}", serving.example));
        let ServerLimits { connections, unauthenticated, open_files } = serving.limits;
        self.show(&format!(
            "limits: {connections} connections of clients, {unauthenticated} that have not \
             authenticated, {open_files} open files"
        ));
        if let Some(address) = serving.metrics {
            self.show(&format!("metrics at http://{address}/metrics"));
        }
        if let Some(invite) = &serving.invite {
            self.show("give this line to bankfull login on the other side; it is shown only now:");
            self.output.data_line(invite);
        }
        // Shown to a quiet user, too.
        if !self.is_silent {
            for warning in &serving.warnings {
                self.output.message(&format!("warning: {}", printable_text(warning)));
            }
        }
    }
}

impl Render for Daemon {
    fn begin(&mut self, beginning: &Beginning) {
        if let Beginning::Serve(serving) = beginning {
            self.listening(serving);
        }
    }

    fn event(&mut self, _event: &Event) {}

    fn tick(&mut self, _progress: &Progress, _now: Duration) {}

    fn stopping(&mut self) {
        self.stop_requests += 1;
        self.show(match self.stop_requests {
            1 => "stopping after the running sessions; a second signal ends them",
            _ => "ending the running sessions; a third signal ends the program at once",
        });
    }

    fn end(&mut self, ending: &Ending<'_>) {
        match ending {
            Ending::Failed(error) => self.output.error(&error.to_string()),
            _ => self.show("stopped"),
        }
    }

    fn wants_completed(&self) -> bool {
        false
    }

    fn output(&mut self) -> &mut Output {
        &mut self.output
    }
}

#[cfg(test)]
mod tests {
    use super::super::handles::testing::buffers;
    use super::*;
    use bankfull::{Error, ErrorKind, Fingerprint, Served};

    fn serving() -> Beginning {
        Beginning::Serve(Serving {
            address: "[::]:7440".parse().unwrap(),
            fingerprint: Fingerprint([0xab; 32]),
            served: Served::Root("/srv".into()),
            example: "bankfull cp SRC bankfull://host/".to_owned(),
            limits: ServerLimits { connections: 160, unauthenticated: 512, open_files: 20_000 },
            warnings: vec!["no token is set".to_owned()],
            metrics: Some("127.0.0.1:9440".parse().unwrap()),
            invite: Some("bankfull-invite x".to_owned()),
        })
    }

    #[test]
    fn daemon_shows_how_to_reach_it_and_how_to_stop_it() {
        let (output, out, err) = buffers();
        let mut daemon = Daemon::new(output, false, false);
        daemon.begin(&serving());
        daemon.event(&Event::ClientConnected { peer: "10.0.0.1:5".to_owned() });
        daemon.stopping();
        daemon.stopping();
        daemon.end(&Ending::Stopped);
        assert_eq!(out.text(), "bankfull-invite x\n");
        assert_eq!(
            err.lines(),
            [
                "serving /srv on [::]:7440",
                &format!("fingerprint sha256:{}", "ab".repeat(32)),
                "clients copy with: bankfull cp SRC bankfull://host/",
                "limits: 160 connections of clients, 512 that have not authenticated, 20000 open \
                 files",
                "metrics at http://127.0.0.1:9440/metrics",
                "give this line to bankfull login on the other side; it is shown only now:",
                "warning: no token is set",
                "stopping after the running sessions; a second signal ends them",
                "ending the running sessions; a third signal ends the program at once",
                "stopped",
            ]
        );
    }

    #[test]
    fn quiet_daemon_shows_its_address_and_errors() {
        let (output, _, err) = buffers();
        let mut daemon = Daemon::new(output, true, false);
        daemon.begin(&serving());
        daemon.stopping();
        daemon.end(&Ending::Failed(&Error::new(ErrorKind::Network, "port lost")));
        assert_eq!(
            err.lines(),
            ["serving /srv on [::]:7440", "warning: no token is set", "bankfull: port lost"]
        );
    }
}
