//! Tables in Markdown, for terminals and documents.

use crate::model::results::{ConditionResult, ContenderResult, RunResult, ScenarioResult, Summary};
use bankfull_control::{Bytes, Rate};

/// Column: its header, and the cell of a contender; `None` if it has no such metric.
type Column = (&'static str, fn(&ConditionResult, &ContenderResult) -> Option<String>);

const COLUMNS: [Column; 26] = [
    ("goodput", |_, one| {
        format_summary(
            one,
            |run| run.metrics.goodput_bps,
            |bps| Rate::from_bits_per_sec(bps).to_string(),
        )
    }),
    ("utilization", |condition, one| {
        let share = one.summary(|run| run.metrics.goodput_bps)?.median / condition.capacity_bps;
        Some(format!("{:.0} %", share * 100.0))
    }),
    ("cross traffic", |_, one| {
        let cross = |run: &RunResult| run.metrics.cross_bps;
        format_summary(one, cross, |bps| Rate::from_bits_per_sec(bps).to_string())
    }),
    ("files/s", |_, one| {
        format_summary(one, |run| run.metrics.files_per_second, |n| format!("{n:.0}"))
    }),
    ("RTT", |_, one| {
        let part = |at: usize| one.summary(|run| run.metrics.rtt_seconds.map(|rtt| rtt[at] * 1e3));
        // Extremes over all packets of all runs.
        let (mean, min, max) = (part(1)?.median, part(0)?.min, part(2)?.max);
        Some(format!("{mean:.2} ({min:.2}–{max:.2}) ms"))
    }),
    ("loss", |_, one| {
        format_summary(one, |run| run.metrics.lost_share, |share| format!("{:.2} %", share * 100.0))
    }),
    ("expected loss", |_, one| {
        let share = one.summary(|run| run.metrics.expected_lost_share)?.median;
        Some(format!("{:.2} %", share * 100.0))
    }),
    ("slow rounds", |_, one| {
        let slow = |run: &RunResult| {
            (!run.metrics.rounds.is_empty()).then(|| run.metrics.slow_rounds() as f64)
        };
        format_summary(one, slow, |n| format!("{n:.0}"))
    }),
    ("round, p99", |_, one| {
        format_summary(
            one,
            |run| run.metrics.round_percentile(0.99),
            |seconds| format!("{:.1} ms", seconds * 1e3),
        )
    }),
    ("discarded", |_, one| {
        let share = |run: &RunResult| Some(run.metrics.service.as_ref()?.discarded_share);
        format_summary(one, share, |share| format!("{:.2} %", share * 100.0))
    }),
    ("discarded after 2 s", |_, one| {
        let later =
            |run: &RunResult| Some(run.metrics.service.as_ref()?.discarded_after_warmup as f64);
        format_summary(one, later, |n| format!("{n:.0}"))
    }),
    ("CPU s/Gbit", |_, one| {
        let cpu = |run: &RunResult| run.metrics.service.as_ref()?.cpu_seconds_per_gbit;
        format_summary(one, cpu, |seconds| format!("{seconds:.3}"))
    }),
    ("buffer, mean", |_, one| {
        let mean = |run: &RunResult| Some(run.metrics.service.as_ref()?.buffer_mean_bytes);
        format_summary(one, mean, |bytes| Bytes(bytes as u64).to_string())
    }),
    ("buffer, max", |_, one| {
        let most = |run: &RunResult| Some(run.metrics.service.as_ref()?.buffer_max_bytes as f64);
        format_summary(one, most, |bytes| Bytes(bytes as u64).to_string())
    }),
    ("buffer, end", |_, one| {
        let end = |run: &RunResult| Some(run.metrics.service.as_ref()?.buffer_last_bytes as f64);
        format_summary(one, end, |bytes| Bytes(bytes as u64).to_string())
    }),
    ("shrink time", |_, one| {
        let back = |run: &RunResult| run.metrics.service.as_ref()?.shrink_seconds;
        format_summary(one, back, |seconds| format!("{seconds:.1} s"))
    }),
    ("fairness", |_, one| {
        let fairness = |run: &RunResult| run.network.as_ref()?.fairness;
        Some(format!("{:.2}", one.summary(fairness)?.median))
    }),
    ("sender fairness", |_, one| {
        let sharing = |run: &RunResult| run.network.as_ref()?.sender_fairness;
        Some(format!("{:.2}", one.summary(sharing)?.median))
    }),
    ("rate after 5 s", |_, one| {
        let started = |run: &RunResult| run.network.as_ref()?.rate_after_5s_bps;
        format_summary(one, started, |bps| Rate::from_bits_per_sec(bps).to_string())
    }),
    ("rate after 10 s", |_, one| {
        let settled = |run: &RunResult| run.network.as_ref()?.rate_after_10s_bps;
        format_summary(one, settled, |bps| Rate::from_bits_per_sec(bps).to_string())
    }),
    ("retransmits", |_, one| {
        let again = |run: &RunResult| Some(run.network.as_ref()?.retransmits? as f64);
        format_summary(one, again, |n| format!("{n:.0}"))
    }),
    ("socket drops", |_, one| {
        // Shown only if datagrams were dropped.
        let socket_drops = |run: &RunResult| Some(run.network.as_ref()?.socket_drops? as f64);
        let is_any = one.runs.iter().any(|run| socket_drops(run).is_some_and(|count| count > 0.0));
        is_any.then(|| format_summary(one, socket_drops, |n| format!("{n:.0}")))?
    }),
    ("dropped", |_, one| {
        format_summary(one, |run| Some(run.network.as_ref()?.dropped as f64), |n| format!("{n:.0}"))
    }),
    ("dropped after 2 s", |_, one| {
        format_summary(
            one,
            |run| Some(run.network.as_ref()?.dropped_after_2s as f64),
            |n| format!("{n:.0}"),
        )
    }),
    ("queue delay, mean", |_, one| {
        let mean = one.summary(|run| Some(run.network.as_ref()?.queue_mean_seconds))?.median;
        Some(format!("{:.1} ms", mean * 1e3))
    }),
    ("lateness, p99", |_, one| {
        // Includes void runs: it is the reason why they are void.
        let late = one.runs.iter().filter_map(|run| run.network.as_ref());
        let latest = late.map(|network| network.lateness_p99_seconds).reduce(f64::max)?;
        Some(format!("{:.2} ms", latest * 1e3))
    }),
];

/// Median, followed by minimum and maximum in parentheses if they differ.
fn format_summary(
    one: &ContenderResult,
    of: impl Fn(&RunResult) -> Option<f64>,
    text: impl Fn(f64) -> String,
) -> Option<String> {
    let Summary { median, min, max, count } = one.summary(of)?;
    let (low, high) = (text(min), text(max));
    Some(if count > 1 && low != high {
        format!("{} ({low}–{high})", text(median))
    } else {
        text(median)
    })
}

/// Number of valid, void and failed runs.
#[must_use]
pub fn run_counts(one: &ContenderResult) -> String {
    if one.skipped.is_some() {
        return "skipped".to_owned();
    }
    let good = one.valid_runs().count();
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

/// Header and rows of a scenario's table.
#[must_use]
pub fn scenario_table(result: &ScenarioResult) -> (Vec<String>, Vec<Vec<String>>) {
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
        row.extend([one.name.clone(), run_counts(one)]);
        let cell = |column: &&Column| (column.1)(condition, one).unwrap_or_else(|| "–".to_owned());
        row.extend(columns.iter().map(cell));
        row
    };
    (head, all().map(row).collect())
}

/// Formats a Markdown table with aligned columns.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::metrics::Metrics;

    #[test]
    fn table_columns_are_aligned() {
        let cell = |text: &str| text.to_owned();
        let rows = [vec![cell("a"), cell("1–2")], vec![cell("longer"), cell("3")]];
        let text = markdown(&[cell("one"), cell("two")], &rows);
        let wanted = "| one    | two |\n|--------|-----|\n| a      | 1–2 |\n| longer | 3   |\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn rtt_column_has_extremes_of_valid_runs() {
        let run = |rtt: [f64; 3], void: Option<&str>| RunResult {
            metrics: Metrics { rtt_seconds: Some(rtt), ..Metrics::default() },
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
        let (head, rows) = scenario_table(&result);
        let at = head.iter().position(|head| head == "RTT").unwrap();
        assert_eq!(rows[0][at], "22.00 (19.00–30.00) ms");
    }
}
