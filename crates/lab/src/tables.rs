//! Results as words and as tables, in Markdown, so that they can be read in a terminal and pasted
//! into a document.

use crate::results::{ConditionResult, ContenderResult, RunResult, ScenarioResult, Spread};
use crate::tools::Figures;
use bankfull_control::{Bytes, Rate};

/// A round that takes longer waited for a time-out: TCP's shortest (TCP_RTO_MIN, net/tcp.h).
const SLOW_ROUND_SECONDS: f64 = 0.2;

/// A column: its head, and what stands below it for a contender; nothing when it has no such
/// figure.
type Column = (&'static str, fn(&ConditionResult, &ContenderResult) -> Option<String>);

const COLUMNS: [Column; 25] = [
    ("goodput", |_, one| {
        spread(one, |run| run.figures.goodput_bps, |bps| Rate::from_bits_per_sec(bps).to_string())
    }),
    ("of capacity", |condition, one| {
        let share = one.spread(|run| run.figures.goodput_bps)?.median / condition.capacity_bps;
        Some(format!("{:.0} %", share * 100.0))
    }),
    ("beside it", |_, one| {
        let beside = |run: &RunResult| run.figures.beside_bps;
        spread(one, beside, |bps| Rate::from_bits_per_sec(bps).to_string())
    }),
    ("files/s", |_, one| spread(one, |run| run.figures.files_per_second, |n| format!("{n:.0}"))),
    ("round trip", |_, one| {
        let part = |at: usize| one.spread(|run| run.figures.rtt_seconds.map(|rtt| rtt[at] * 1e3));
        // Of all packets of all runs: the quickest and the slowest.
        let (mean, min, max) = (part(1)?.median, part(0)?.min, part(2)?.max);
        Some(format!("{mean:.2} ({min:.2}–{max:.2}) ms"))
    }),
    ("lost", |_, one| {
        spread(one, |run| run.figures.lost_share, |share| format!("{:.2} %", share * 100.0))
    }),
    ("theory", |_, one| {
        let share = one.spread(|run| run.figures.expected_lost_share)?.median;
        Some(format!("{:.2} %", share * 100.0))
    }),
    ("slow rounds", |_, one| {
        let slow = |run: &RunResult| (!run.figures.rounds.is_empty()).then(|| slow(&run.figures));
        spread(one, slow, |n| format!("{n:.0}"))
    }),
    ("discarded", |_, one| {
        let share = |run: &RunResult| Some(run.figures.service.as_ref()?.discarded_share);
        spread(one, share, |share| format!("{:.2} %", share * 100.0))
    }),
    ("later", |_, one| {
        let later = |run: &RunResult| Some(run.figures.service.as_ref()?.discarded_later as f64);
        spread(one, later, |n| format!("{n:.0}"))
    }),
    ("CPU s/Gbit", |_, one| {
        let cpu = |run: &RunResult| run.figures.service.as_ref()?.cpu_seconds_per_gbit;
        spread(one, cpu, |seconds| format!("{seconds:.3}"))
    }),
    ("room, mean", |_, one| {
        let mean = |run: &RunResult| Some(run.figures.service.as_ref()?.buffer_mean_bytes);
        spread(one, mean, |bytes| Bytes(bytes as u64).to_string())
    }),
    ("room, most", |_, one| {
        let most = |run: &RunResult| Some(run.figures.service.as_ref()?.buffer_max_bytes as f64);
        spread(one, most, |bytes| Bytes(bytes as u64).to_string())
    }),
    ("room, end", |_, one| {
        let end = |run: &RunResult| Some(run.figures.service.as_ref()?.buffer_end_bytes as f64);
        spread(one, end, |bytes| Bytes(bytes as u64).to_string())
    }),
    ("back after", |_, one| {
        let back = |run: &RunResult| run.figures.service.as_ref()?.back_seconds;
        spread(one, back, |seconds| format!("{seconds:.1} s"))
    }),
    ("fairness", |_, one| {
        let fairness = |run: &RunResult| run.network.as_ref()?.fairness;
        Some(format!("{:.2}", one.spread(fairness)?.median))
    }),
    ("sharing", |_, one| {
        let sharing = |run: &RunResult| run.network.as_ref()?.sharing;
        Some(format!("{:.2}", one.spread(sharing)?.median))
    }),
    ("after 5 s", |_, one| {
        let started = |run: &RunResult| run.network.as_ref()?.started_bps;
        spread(one, started, |bps| Rate::from_bits_per_sec(bps).to_string())
    }),
    ("after 10 s", |_, one| {
        let settled = |run: &RunResult| run.network.as_ref()?.settled_bps;
        spread(one, settled, |bps| Rate::from_bits_per_sec(bps).to_string())
    }),
    ("sent again", |_, one| {
        let again = |run: &RunResult| Some(run.network.as_ref()?.retransmitted? as f64);
        spread(one, again, |n| format!("{n:.0}"))
    }),
    ("no room", |_, one| {
        // Where datagrams were lost at the receiver's sockets, which is told only then.
        let socket_drops = |run: &RunResult| Some(run.network.as_ref()?.socket_drops? as f64);
        let is_any = one.runs.iter().any(|run| socket_drops(run).is_some_and(|count| count > 0.0));
        is_any.then(|| spread(one, socket_drops, |n| format!("{n:.0}")))?
    }),
    ("dropped", |_, one| {
        spread(one, |run| Some(run.network.as_ref()?.dropped as f64), |n| format!("{n:.0}"))
    }),
    ("after 2 s", |_, one| {
        spread(one, |run| Some(run.network.as_ref()?.dropped_later as f64), |n| format!("{n:.0}"))
    }),
    ("queue, mean", |_, one| {
        let mean = one.spread(|run| Some(run.network.as_ref()?.queue_mean_seconds))?.median;
        Some(format!("{:.1} ms", mean * 1e3))
    }),
    ("late, p99", |_, one| {
        // Of the void ones, too: that is why they are.
        let late = one.runs.iter().filter_map(|run| run.network.as_ref());
        let latest = late.map(|network| network.lateness_p99_seconds).reduce(f64::max)?;
        Some(format!("{:.2} ms", latest * 1e3))
    }),
];

fn slow(figures: &Figures) -> f64 {
    figures.rounds.iter().filter(|seconds| **seconds > SLOW_ROUND_SECONDS).count() as f64
}

/// Median, and in brackets the smallest and the largest where there is more than one.
fn spread(
    one: &ContenderResult,
    of: impl Fn(&RunResult) -> Option<f64>,
    text: impl Fn(f64) -> String,
) -> Option<String> {
    let Spread { median, min, max, count } = one.spread(of)?;
    let (low, high) = (text(min), text(max));
    Some(if count > 1 && low != high {
        format!("{} ({low}–{high})", text(median))
    } else {
        text(median)
    })
}

/// What became of the runs of a contender: how many count, and why others do not.
#[must_use]
pub fn runs(one: &ContenderResult) -> String {
    if one.skipped.is_some() {
        return "skipped".to_owned();
    }
    let good = one.believed().count();
    let void = one.runs.iter().filter(|run| run.void.is_some() && run.failed.is_none()).count();
    let failed = one.runs.iter().filter(|run| run.failed.is_some()).count();
    let mut text = good.to_string();
    for (count, word) in [(void, "void"), (failed, "failed")] {
        if count > 0 {
            text += &format!(", {count} {word}");
        }
    }
    text
}

/// Head and rows of a scenario's table.
#[must_use]
pub fn scenario(result: &ScenarioResult) -> (Vec<String>, Vec<Vec<String>>) {
    let all =
        || result.conditions.iter().flat_map(|c| c.contenders.iter().map(move |one| (c, one)));
    let used =
        |column: &&Column| all().any(|(condition, one)| (column.1)(condition, one).is_some());
    let columns: Vec<&Column> = COLUMNS.iter().filter(used).collect();
    let mut head = result.axes.clone();
    head.extend(["contender".to_owned(), "runs".to_owned()]);
    head.extend(columns.iter().map(|column| column.0.to_owned()));
    let row = |(condition, one): (&ConditionResult, &ContenderResult)| {
        let mut row = condition.values.clone();
        row.extend([one.name.clone(), runs(one)]);
        let cell = |column: &&Column| (column.1)(condition, one).unwrap_or_else(|| "–".to_owned());
        row.extend(columns.iter().map(cell));
        row
    };
    (head, all().map(row).collect())
}

/// A table in Markdown, with columns of equal width.
#[must_use]
pub fn markdown(head: &[String], rows: &[Vec<String>]) -> String {
    let width = |at: usize| {
        let cells = rows.iter().map(|row| &row[at]).chain([&head[at]]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[String]| -> String {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!(" {cell:<width$} |"));
        format!("|{}\n", padded.collect::<String>())
    };
    let rule: String = widths.iter().map(|width| format!("{}|", "-".repeat(width + 2))).collect();
    let body: String = rows.iter().map(|row| line(row)).collect();
    format!("{}|{rule}\n{body}", line(head))
}

/// What a run reached, in a few words.
#[must_use]
pub fn words(figures: &Figures) -> String {
    let mut words = Vec::new();
    if let Some(bps) = figures.goodput_bps {
        words.push(Rate::from_bits_per_sec(bps).to_string());
    }
    if let Some(files) = figures.files_per_second {
        words.push(format!("{files:.0} files/s"));
    }
    if let Some([min, mean, max]) = figures.rtt_seconds.map(|rtt| rtt.map(|s| s * 1e3)) {
        words.push(format!("round trip {mean:.2} ms ({min:.2}–{max:.2})"));
    }
    if let Some(lost) = figures.lost_share {
        words.push(format!("{:.2} % lost", lost * 100.0));
    }
    if !figures.rounds.is_empty() {
        let (slow, all) = (slow(figures), figures.rounds.len());
        words.push(format!("{slow} of {all} rounds over {SLOW_ROUND_SECONDS} s"));
    }
    if let Some(service) = &figures.service {
        let share = service.discarded_share * 100.0;
        words.push(format!("{share:.2} % of {} discarded", service.taken + service.discarded));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_straight_columns() {
        let cell = |text: &str| text.to_owned();
        let rows = [vec![cell("a"), cell("1–2")], vec![cell("longer"), cell("3")]];
        let text = markdown(&[cell("one"), cell("two")], &rows);
        let wanted = "| one    | two |\n|--------|-----|\n| a      | 1–2 |\n| longer | 3   |\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn round_trips_are_told_with_the_smallest_and_the_largest_of_all_runs_that_count() {
        let run = |rtt: [f64; 3], void: Option<&str>| RunResult {
            figures: Figures { rtt_seconds: Some(rtt), ..Figures::default() },
            void: void.map(str::to_owned),
            ..RunResult::default()
        };
        let runs = vec![
            run([0.020, 0.021, 0.022], None),
            run([0.019, 0.022, 0.030], None),
            run([0.020, 0.023, 0.024], None),
            run([0.001, 0.050, 0.900], Some("late")),
        ];
        let text = |text: &str| text.to_owned();
        let contender = ContenderResult {
            name: text("ping"),
            tool: text("ping"),
            congestion: None,
            skipped: None,
            runs,
        };
        let condition = ConditionResult {
            values: Vec::new(),
            capacity_bps: 1e9,
            rtt_seconds: 0.02,
            buffer_bytes: 1500,
            contenders: vec![contender],
        };
        let (name, title) = (text("x"), text("x"));
        let result = ScenarioResult { name, title, axes: Vec::new(), conditions: vec![condition] };
        let (head, rows) = scenario(&result);
        let at = head.iter().position(|head| head == "round trip").unwrap();
        assert_eq!(rows[0][at], "22.00 (19.00–30.00) ms");
    }

    #[test]
    fn a_run_is_told_in_a_few_words() {
        let figures = Figures {
            goodput_bps: Some(9.2e8),
            rounds: vec![0.1, 0.3, 0.25],
            lost_share: Some(0.2),
            rtt_seconds: Some([0.02, 0.0201, 0.021]),
            ..Figures::default()
        };
        let wanted = "920.0 Mbit/s, round trip 20.10 ms (20.00–21.00), 20.00 % lost, \
                      2 of 3 rounds over 0.2 s";
        assert_eq!(words(&figures), wanted);
    }
}
