//! Output of the guard: a line a second, a table, or JSON lines.

use super::text::{printable_json, printable_text};
use super::{Output, SCHEMA};
use crate::exit::Exit;
use crate::flags::GuardFlags;
use bankfull::{Bytes, Error};
use bankfull_guard::{Config, Connection, Event, Mode, Status};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Rows of the table. (chosen: those of a terminal of 24 lines)
const MAX_ROWS: usize = 20;

/// Output of the guard.
pub(crate) struct GuardOutput {
    output: Output,
    is_json: bool,
    /// Present if the table is shown.
    table: Option<Table>,
}

/// Connections of the table.
#[derive(Default)]
struct Table {
    rows: BTreeMap<u64, Row>,
}

struct Row {
    connection: Connection,
    window: Option<Bytes>,
    reason: &'static str,
}

impl GuardOutput {
    /// Creates the output that the flags select.
    pub(crate) fn new(output: Output, flags: &GuardFlags) -> Self {
        let table = flags.top.then(Table::default);
        Self { output, is_json: flags.json, table }
    }

    /// Shows that the guard has started.
    pub(crate) fn started(&mut self, config: &Config, lifted: Option<u64>) {
        if self.is_json {
            let cgroup = config.cgroup.as_deref().map(Path::to_string_lossy);
            self.put(&json!({
                "event": "start", "schema": SCHEMA, "version": env!("CARGO_PKG_VERSION"),
                "interface": config.interface, "cgroup": cgroup, "mode": mode_name(config.mode),
                "guests": config.guests, "lifted_windows": lifted,
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
        if self.is_json {
            self.put(&event_json(event));
            return;
        }
        let Some(table) = &mut self.table else {
            match event {
                Event::Status(status) if status.active > 0 => {
                    self.output.message(&status_line(status));
                }
                Event::Guest(name, is_followed) => {
                    self.output.message(&guest_line(name, *is_followed));
                }
                _ => {}
            }
            return;
        };
        match event {
            Event::Opened(connection) => table.open(connection),
            Event::Closed(connection, _) => drop(table.rows.remove(&connection.id)),
            Event::Window(connection, window, reason) => table.set(connection.id, *window, reason),
            Event::Guest(..) => {}
            Event::Status(status) => {
                let text = table.text(status);
                self.output.data(text.as_bytes());
            }
        }
    }

    /// Shows how the command ends.
    pub(crate) fn end(&mut self, result: &Result<(), Error>) -> Exit {
        match (result, self.output.failure()) {
            (Err(error), _) => {
                self.output.error(&error.to_string());
                error.kind().into()
            }
            (Ok(()), Some(failure)) => {
                self.output.error(&failure);
                Exit::Local
            }
            (Ok(()), None) => Exit::Done,
        }
    }

    fn put(&mut self, value: &Value) {
        self.output.data_line(&printable_json(&value.to_string()));
    }
}

impl Table {
    fn open(&mut self, connection: &Connection) {
        let reason = connection.standing.name();
        let row = Row { connection: connection.clone(), window: None, reason };
        self.rows.insert(connection.id, row);
    }

    fn set(&mut self, id: u64, window: Option<Bytes>, reason: &'static str) {
        if let Some(row) = self.rows.get_mut(&id) {
            (row.window, row.reason) = (window, reason);
        }
    }

    /// Returns the table, which replaces the screen.
    fn text(&self, status: &Status) -> String {
        let mut lines = vec![
            status_line(status),
            format!(
                "{:<16} {:<24} {:<22} {:>5} {:>9} {:>9}  {}",
                "COMMAND", "CGROUP", "PEER", "PORT", "RTT (ms)", "WINDOW", "REASON"
            ),
        ];
        let mut rows: Vec<&Row> = self.rows.values().collect();
        rows.sort_by_key(|row| (row.window.is_none(), row.connection.id));
        lines.extend(rows.iter().take(MAX_ROWS).map(|row| row.line()));
        if rows.len() > MAX_ROWS {
            lines.push(format!("and {} more", rows.len() - MAX_ROWS));
        }
        format!("\x1b[H\x1b[J{}\n", lines.join("\n"))
    }
}

impl Row {
    fn line(&self) -> String {
        let connection = &self.connection;
        let rtt =
            connection.rtt.map_or("-".to_owned(), |rtt| format!("{:.2}", rtt.as_secs_f64() * 1e3));
        let window = self.window.map_or("-".to_owned(), |window| window.0.to_string());
        format!(
            "{:<16} {:<24} {:<22} {:>5} {rtt:>9} {window:>9}  {}",
            printable_text(command_of(connection)),
            printable_text(or_dash(&connection.cgroup)),
            connection.remote.to_string(),
            connection.local.port(),
            self.reason,
        )
    }
}

/// Returns the command of a connection, or what stands for it.
fn command_of(connection: &Connection) -> &str {
    if connection.is_forwarded { "(guest)" } else { or_dash(&connection.command) }
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Observe => "observe",
        Mode::Hold => "hold",
    }
}

fn status_line(status: &Status) -> String {
    let capacity = status.capacity.map_or(String::new(), |capacity| format!(" of {capacity}"));
    let state = match () {
        () if status.is_rolled_back => "windows free, as less arrived with them",
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

fn event_json(event: &Event<'_>) -> Value {
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
        Event::Closed(connection, bytes) => {
            json!({ "event": "closed", "id": connection.id, "bytes": bytes.0 })
        }
        Event::Window(connection, window, reason) => json!({
            "event": "window",
            "id": connection.id,
            "window_bytes": window.map(|window| window.0),
            "reason": reason,
        }),
        Event::Guest(name, is_followed) => {
            json!({ "event": "guest", "interface": name, "followed": is_followed })
        }
        Event::Status(status) => json!({
            "event": "status",
            "connections": status.connections,
            "active": status.active,
            "engaged": status.is_engaged,
            "rolled_back": status.is_rolled_back,
            "rate_bps": status.rate.bits_per_sec(),
            "capacity_bps": status.capacity.map(|capacity| capacity.bits_per_sec()),
            "without_slot": status.without_slot,
            "unfollowed": status.unfollowed,
            "lost_events": status.lost_events,
        }),
    }
}
