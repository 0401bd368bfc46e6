//! Table of `guard --top`: sums by cgroup and port, and the connections that receive most.

use super::text::printable_text;
use bankfull::{Bytes, Rate};
use bankfull_guard::{Connection, Event};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Rows of the sums, and of the connections. (chosen: all fit a terminal of 24 lines; the columns
/// fit 80)
const MAX_SUMS: usize = 4;
const MAX_CONNECTIONS: usize = 12;

/// Connections of the table.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: BTreeMap<u64, Row>,
    /// Bits of the connections that ended in this second, by cgroup and port.
    ended: BTreeMap<(String, u16), u64>,
}

#[derive(Debug)]
struct Row {
    connection: Connection,
    window: Option<Bytes>,
    reason: &'static str,
    /// Rate in the last second.
    rate: Rate,
}

/// Sums over the connections of a cgroup to a port.
#[derive(Debug, Default)]
struct Sum {
    connections: usize,
    limited: usize,
    bits_per_sec: u64,
}

impl Table {
    /// Takes an event.
    pub(super) fn update(&mut self, event: &Event<'_>) {
        match event {
            Event::Opened(connection) => {
                let reason = connection.standing.name();
                let connection = (*connection).clone();
                let rate = Rate::default();
                self.rows.insert(connection.id, Row { connection, window: None, reason, rate });
            }
            Event::Judged(connection) => {
                if let Some(row) = self.rows.get_mut(&connection.id) {
                    row.reason = connection.standing.name();
                    row.connection = (*connection).clone();
                }
            }
            Event::Closed(connection, _) => {
                if let Some(row) = self.rows.remove(&connection.id) {
                    let service = (cgroup_of(connection).to_owned(), port_of(connection));
                    *self.ended.entry(service).or_default() += row.rate.bits_per_sec();
                }
            }
            Event::Window(connection, window, reason) => {
                if let Some(row) = self.rows.get_mut(&connection.id) {
                    (row.window, row.reason) = (*window, *reason);
                }
            }
            Event::Rate(connection, rate) => {
                if let Some(row) = self.rows.get_mut(&connection.id) {
                    row.rate = *rate;
                }
            }
            // Windows that were only observed are not lifted one by one.
            Event::Status(status) if !status.is_engaged => {
                self.rows.values_mut().for_each(|row| row.window = None);
            }
            Event::Guest(..) | Event::Status(_) => {}
        }
    }

    /// Returns the table below a line, which replaces the screen. The rates of the next second
    /// begin.
    pub(super) fn text(&mut self, status: &str) -> String {
        let mut lines = vec![status.to_owned()];
        self.add_sums(&mut lines);
        lines.push(String::new());
        self.add_connections(&mut lines);
        self.rows.values_mut().for_each(|row| row.rate = Rate::default());
        self.ended.clear();
        format!("\x1b[H\x1b[J{}\n", lines.join("\n"))
    }

    fn add_sums(&self, lines: &mut Vec<String>) {
        lines.push(format!(
            "{:<36} {:>5} {:>11} {:>7} {:>9}",
            "CGROUP", "PORT", "CONNECTIONS", "LIMITED", "MBIT/S"
        ));
        let mut sums: BTreeMap<(&str, u16), Sum> = BTreeMap::new();
        for row in self.rows.values() {
            let service = (cgroup_of(&row.connection), port_of(&row.connection));
            let sum = sums.entry(service).or_default();
            sum.connections += 1;
            sum.limited += usize::from(row.window.is_some());
            sum.bits_per_sec += row.rate.bits_per_sec();
        }
        for ((cgroup, port), bits) in &self.ended {
            sums.entry((cgroup.as_str(), *port)).or_default().bits_per_sec += bits;
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, sum)| Reverse((sum.bits_per_sec, sum.connections)));
        lines.extend(sums.iter().take(MAX_SUMS).map(|((cgroup, port), sum)| {
            format!(
                "{:<36} {port:>5} {:>11} {:>7} {:>9}",
                end_of(&printable_text(cgroup), 36),
                sum.connections,
                sum.limited,
                mbit(sum.bits_per_sec)
            )
        }));
        add_rest(lines, sums.len(), MAX_SUMS);
    }

    fn add_connections(&self, lines: &mut Vec<String>) {
        lines.push(format!(
            "{:<12} {:<21} {:>5} {:>5} {:>7} {:>8}  {}",
            "COMMAND", "PEER", "PORT", "RTT", "MBIT/S", "WINDOW", "REASON"
        ));
        let mut rows: Vec<&Row> = self.rows.values().collect();
        rows.sort_by_key(|row| (Reverse((row.rate, row.window.is_some())), row.connection.id));
        lines.extend(rows.iter().take(MAX_CONNECTIONS).map(|row| row.line()));
        add_rest(lines, rows.len(), MAX_CONNECTIONS);
    }
}

/// Adds the number of rows that are not shown.
fn add_rest(lines: &mut Vec<String>, rows: usize, max: usize) {
    if rows > max {
        lines.push(format!("and {} more", rows - max));
    }
}

impl Row {
    fn line(&self) -> String {
        let connection = &self.connection;
        let rtt =
            connection.rtt.map_or("-".to_owned(), |rtt| format!("{:.2}", rtt.as_secs_f64() * 1e3));
        let window = self.window.map_or("-".to_owned(), |window| window.0.to_string());
        let command = if connection.is_forwarded { GUEST } else { or_dash(&connection.command) };
        format!(
            "{:<12} {:<21} {:>5} {rtt:>5} {:>7} {window:>8}  {}",
            end_of(&printable_text(command), 12),
            end_of(&connection.remote.to_string(), 21),
            connection.local.port(),
            mbit(self.rate.bits_per_sec()),
            self.reason,
        )
    }
}

/// Text in place of the command, and of the cgroup, of a guest's connection.
const GUEST: &str = "(guest)";

fn cgroup_of(connection: &Connection) -> &str {
    if connection.is_forwarded { GUEST } else { or_dash(&connection.cgroup) }
}

/// Returns the port of the service: the lower one, as the other side's is ephemeral.
fn port_of(connection: &Connection) -> u16 {
    connection.local.port().min(connection.remote.port())
}

/// Returns the last characters of a text.
fn end_of(text: &str, length: usize) -> String {
    let excess = text.chars().count().saturating_sub(length);
    text.chars().skip(excess).collect()
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

fn mbit(bits_per_sec: u64) -> String {
    format!("{:.1}", bits_per_sec as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_guard::{Received, Standing};

    fn connection(id: u64, cgroup: &str, is_forwarded: bool) -> Connection {
        Connection {
            id,
            remote: format!("10.0.0.{id}:80").parse().unwrap(),
            local: "10.0.0.99:50001".parse().unwrap(),
            is_passive: false,
            is_forwarded,
            cgroup: cgroup.to_owned(),
            netns: 1,
            process: 2,
            command: "curl".to_owned(),
            rtt: None,
            standing: Standing::Guarded,
        }
    }

    /// Words of the lines, without the codes that clear the screen.
    fn words(text: &str) -> Vec<Vec<&str>> {
        let text = text.strip_prefix("\x1b[H\x1b[J").unwrap();
        text.lines().map(|line| line.split_whitespace().collect()).collect()
    }

    #[test]
    fn fastest_connections_come_first_below_the_sums() {
        let mut table = Table::default();
        let connections =
            [connection(1, "/a", false), connection(2, "/b", false), connection(3, "", true)];
        for connection in &connections {
            table.update(&Event::Opened(connection));
        }
        let rate = Rate::from_bits_per_sec;
        table.update(&Event::Rate(&connections[1], rate(3e6)));
        table.update(&Event::Rate(&connections[2], rate(9e6)));
        table.update(&Event::Window(&connections[2], Some(Bytes(2920)), "share"));
        let text = table.text("status");
        assert_eq!(
            words(&text),
            [
                vec!["status"],
                vec!["CGROUP", "PORT", "CONNECTIONS", "LIMITED", "MBIT/S"],
                vec!["(guest)", "80", "1", "1", "9.0"],
                vec!["/b", "80", "1", "0", "3.0"],
                vec!["/a", "80", "1", "0", "0.0"],
                vec![],
                vec!["COMMAND", "PEER", "PORT", "RTT", "MBIT/S", "WINDOW", "REASON"],
                vec!["(guest)", "10.0.0.3:80", "50001", "-", "9.0", "2920", "share"],
                vec!["curl", "10.0.0.2:80", "50001", "-", "3.0", "-", "guarded"],
                vec!["curl", "10.0.0.1:80", "50001", "-", "0.0", "-", "guarded"],
            ]
        );
        // A connection for each object.
        table.update(&Event::Rate(&connections[1], rate(5e6)));
        table.update(&Event::Closed(&connections[1], Received::default()));
        assert_eq!(words(&table.text("status"))[2], ["/b", "80", "0", "0", "5.0"]);
        // A second without data.
        assert_eq!(words(&table.text("status"))[2], ["(guest)", "80", "1", "1", "0.0"]);
    }

    #[test]
    fn long_tables_are_cut() {
        let mut table = Table::default();
        for id in 1..=40 {
            table.update(&Event::Opened(&connection(id, &format!("/{id}"), false)));
        }
        table.update(&Event::Closed(&connection(1, "/1", false), Received::default()));
        let text = table.text("status");
        let lines = words(&text);
        assert_eq!(lines.len(), 2 + MAX_SUMS + 3 + MAX_CONNECTIONS + 1);
        assert!(lines.len() < 24, "{text}");
        assert_eq!(lines.last().unwrap(), &["and", "27", "more"]);
    }
}
