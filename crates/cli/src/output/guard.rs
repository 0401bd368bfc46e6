//! Output of the guard: a line a second, a table, or JSON lines.

use super::guard_table::Table;
use super::handles::failure_text;
use super::queued::{Backlog, QueuedWriter};
use super::text::{printable_json, printable_text};
use super::{Output, SCHEMA};
use crate::exit::Exit;
use crate::flags::GuardFlags;
use bankfull::Error;
use bankfull_guard::{Config, Event, Mode, Status};
use serde_json::{Value, json};
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Longest time for which the end waits for a reader of the output. (chosen: a terminal that was
/// stopped must not keep the command)
const END_TIME: Duration = Duration::from_secs(1);

/// Output of the guard, which never waits for its reader: windows would be lifted meanwhile.
pub(crate) struct GuardOutput {
    output: Output,
    /// Output that is not yet written to standard output and standard error.
    backlogs: [Backlog; 2],
    is_json: bool,
    /// Present if the table is shown.
    table: Option<Table>,
}

impl GuardOutput {
    /// Creates the output that the flags select, to the standard streams.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub(crate) fn standard(flags: &GuardFlags) -> Result<Self, Error> {
        let queued = |stream: Box<dyn Write + Send>| {
            QueuedWriter::start(stream).map_err(|error| Error::thread_start(&error))
        };
        let (out, waiting_out) = queued(Box::new(io::stdout()))?;
        let (err, waiting_err) = queued(Box::new(io::stderr()))?;
        let output = Output::new(Box::new(out), Box::new(err));
        let table = flags.top.then(Table::default);
        Ok(Self { output, backlogs: [waiting_out, waiting_err], is_json: flags.json, table })
    }

    /// Shows that the guard has started.
    pub(crate) fn started(
        &mut self,
        config: &Config,
        lifted: Option<u64>,
        metrics: Option<SocketAddr>,
    ) {
        if self.is_json {
            let cgroup = config.cgroup.as_deref().map(Path::to_string_lossy);
            self.put(&json!({
                "event": "start", "schema": SCHEMA, "version": env!("CARGO_PKG_VERSION"),
                "interface": config.interface, "cgroup": cgroup, "mode": mode_name(config.mode),
                "guests": config.guests, "lifted_windows": lifted, "metrics": metrics,
            }));
            return;
        }
        let what = match config.mode {
            Mode::Hold => "holding windows",
            Mode::Observe => "observing: no window is changed without --mode hold",
        };
        self.output.message(&format!("guarding {}, {what}", printable_text(&config.interface)));
        if let Some(lifted) = lifted {
            let text = format!("an earlier guard had left its programs: {lifted} windows lifted");
            self.output.message(&text);
        }
        if let Some(address) = metrics {
            self.output.message(&format!("metrics at http://{address}/metrics"));
        }
    }

    /// Shows the result of `--release`.
    pub(crate) fn released(&mut self, lifted: Option<u64>) {
        match lifted {
            _ if self.is_json => self.put(&json!({ "event": "released", "windows": lifted })),
            Some(windows) => self.output.message(&format!("{windows} windows lifted")),
            None => self.output.message("no guard has left anything"),
        }
    }

    /// Shows an event.
    pub(crate) fn event(&mut self, event: &Event<'_>) {
        let lost = self.backlogs.iter().map(Backlog::lost).sum();
        if self.is_json {
            self.put(&event_json(event, lost));
            return;
        }
        let Some(table) = &mut self.table else {
            match event {
                Event::Status(status) if status.active > 0 => {
                    self.output.message(&status_line(status, lost));
                }
                Event::Guest(name, is_followed) => {
                    self.output.message(&guest_line(name, *is_followed));
                }
                _ => {}
            }
            return;
        };
        table.update(event);
        if let Event::Status(status) = event {
            let text = table.text(&status_line(status, lost));
            self.output.data(text.as_bytes());
        }
    }

    /// Shows how the command ends, and waits a while until all is shown.
    pub(crate) fn end(self, result: &Result<(), Error>) -> Exit {
        let Self { mut output, backlogs: [waiting_out, waiting_err], .. } = self;
        if let Err(error) = result {
            output.error(&error.to_string());
        }
        let failure = output.failure();
        // The threads end with their streams.
        drop(output);
        let late = waiting_out.wait(END_TIME).filter(|error| error.kind() != ErrorKind::BrokenPipe);
        waiting_err.wait(END_TIME);
        match (result, failure.or_else(|| late.as_ref().map(failure_text))) {
            (Err(error), _) => error.kind().into(),
            (Ok(()), Some(failure)) => {
                Output::standard().error(&failure);
                Exit::Local
            }
            (Ok(()), None) => Exit::Done,
        }
    }

    fn put(&mut self, value: &Value) {
        self.output.data_line(&printable_json(&value.to_string()));
    }
}

/// Returns the name of a mode, as that of its flag.
pub(crate) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Observe => "observe",
        Mode::Hold => "hold",
    }
}

/// Returns a status in words; `lost` is the number of lines that were not shown.
fn status_line(status: &Status, lost: u64) -> String {
    let capacity = status.capacity.map_or(String::new(), |capacity| format!(" of {capacity}"));
    let state = match () {
        () if status.is_rolled_back => "windows free, as less data arrived while they were set",
        () if status.is_engaged => "windows fit the port",
        () => "windows free",
    };
    let mut line = format!(
        "{} connections, {} receive {}{capacity}; {state}",
        status.connections, status.active, status.rate
    );
    for (count, text) in [
        (status.without_slot, "without a slot"),
        (status.unfollowed, "from before the guard, which this kernel cannot follow"),
        (status.lost_events, "events lost"),
        (status.refused, "windows that the kernel did not set"),
        (lost, "lines of output lost, as they were not read"),
    ] {
        if count > 0 {
            line.push_str(&format!("; {count} {text}"));
        }
    }
    line
}

fn guest_line(name: &str, is_followed: bool) -> String {
    let name = printable_text(name);
    match is_followed {
        true => format!("the guests of {name} are followed again"),
        false => format!("the interface {name} is gone: its guests are followed once it returns"),
    }
}

/// Returns an event as JSON; `lost` is the number of lines that were not shown.
fn event_json(event: &Event<'_>, lost: u64) -> Value {
    match event {
        Event::Opened(connection) => json!({
            "event": "connection",
            "id": connection.id,
            "remote": connection.remote.to_string(),
            "local": connection.local.to_string(),
            "passive": connection.is_passive,
            "forwarded": connection.is_forwarded,
            "cgroup": connection.cgroup,
            "netns": connection.netns,
            "process": connection.process,
            "command": connection.command,
            "rtt_seconds": connection.rtt.map(|rtt| rtt.as_secs_f64()),
            "standing": connection.standing.name(),
        }),
        Event::Judged(connection) => json!({
            "event": "standing",
            "id": connection.id,
            "rtt_seconds": connection.rtt.map(|rtt| rtt.as_secs_f64()),
            "standing": connection.standing.name(),
        }),
        Event::Closed(connection, received) => json!({
            "event": "closed",
            "id": connection.id,
            "bytes": received.bytes.0,
            "out_of_order": received.out_of_order,
            "dsacks": received.dsacks,
        }),
        Event::Window(connection, window, reason) => json!({
            "event": "window",
            "id": connection.id,
            "window_bytes": window.map(|window| window.0),
            "reason": reason,
        }),
        Event::Rate(connection, rate) => {
            json!({ "event": "rate", "id": connection.id, "rate_bps": rate.bits_per_sec() })
        }
        Event::Guest(name, is_followed) => {
            json!({ "event": "guest", "interface": name, "followed": is_followed })
        }
        Event::Status(status) => json!({
            "event": "status",
            "connections": status.connections,
            "active": status.active,
            "received_bytes": status.received.0,
            "engaged": status.is_engaged,
            "rolled_back": status.is_rolled_back,
            "rate_bps": status.rate.bits_per_sec(),
            "capacity_bps": status.capacity.map(|capacity| capacity.bits_per_sec()),
            "without_slot": status.without_slot,
            "unfollowed": status.unfollowed,
            "lost_events": status.lost_events,
            "refused": status.refused,
            "lost_lines": lost,
        }),
    }
}
