//! Tables of regrets: a row for each path, fairness on shared paths, and a summary.

use crate::report::figures::{self, PathTraits};
use crate::report::regret::{Regret, median};
use crate::report::tables::markdown;
use std::collections::BTreeMap;

/// Tables of regrets, median and worst of each contender, and the figures missed.
#[must_use]
pub fn table(regrets: &[Regret], traits: &BTreeMap<String, PathTraits>) -> String {
    let table = Table::new(regrets);
    let mut text = table.main() + "\n";
    if let Some(shared) = table.shared() {
        text += &(shared + "\n");
    }
    for name in &table.names {
        text += &summary(name, regrets);
    }
    text + "\n" + &figures::missed(regrets, traits)
}

/// Regrets by path and contender.
struct Table<'r> {
    regrets: &'r [Regret],
    /// Paths and contenders in the order of their first results.
    paths: Vec<&'r str>,
    names: Vec<&'r str>,
}

impl<'r> Table<'r> {
    fn new(regrets: &'r [Regret]) -> Self {
        let (mut paths, mut names) = (Vec::new(), Vec::new());
        for one in regrets {
            if !paths.contains(&one.path.as_str()) {
                paths.push(&one.path);
            }
            if !names.contains(&one.contender.as_str()) {
                names.push(&one.contender);
            }
        }
        Self { regrets, paths, names }
    }

    fn of(&self, path: &str, name: &str) -> Option<&'r Regret> {
        self.regrets.iter().find(|one| one.path == path && one.contender == name)
    }

    /// A cell for each contender.
    fn cells(&self, path: &str, cell: impl Fn(&Regret) -> String) -> Vec<String> {
        let cell = |name: &&str| self.of(path, name).map_or_else(|| "–".to_owned(), &cell);
        self.names.iter().map(cell).collect()
    }

    fn main(&self) -> String {
        let mut head: Vec<String> = ["path", "best choice", "its share"].map(str::to_owned).into();
        for name in &self.names {
            let columns = [&format!("{name} (regret)"), "queue (ms)", "retransmitted"];
            head.extend(columns.map(str::to_owned));
        }
        head.extend(["runs", "decisions"].map(str::to_owned));
        let row = |path: &&str| {
            let all = self.regrets.iter().filter(|one| one.path == **path);
            let first = all.clone().next();
            let best = first.map_or_else(String::new, |one| one.best.clone());
            let best_share = first.map_or(f64::NAN, |one| one.best_share);
            let mut row = vec![(*path).to_owned(), best, format!("{best_share:.3}")];
            for name in &self.names {
                let of = self.of(path, name);
                let cell = |text: fn(&Regret) -> String| of.map_or_else(|| "–".to_owned(), text);
                let queue = |one: &Regret| format!("{:.1}", one.queue_ms);
                row.extend([cell(share), cell(queue), cell(|one| optional(one.retransmits, 0))]);
            }
            row.extend([runs(all.clone()), decisions(all)]);
            row
        };
        markdown(&head, &self.paths.iter().map(row).collect::<Vec<_>>())
    }

    /// Fairness and short flows of paths with other flows; `None` without such paths.
    fn shared(&self) -> Option<String> {
        let is_shared = |path: &&&str| {
            self.regrets.iter().any(|one| one.path == ***path && one.sharing.is_some())
        };
        let mut head = vec!["path".to_owned()];
        head.extend(self.names.iter().map(|name| format!("fairness, {name}")));
        head.extend(self.names.iter().map(|name| format!("short flows, p95 (ms), {name}")));
        let row = |path: &&str| {
            let mut row = vec![(*path).to_owned()];
            row.extend(self.cells(path, |one| optional(one.sharing, 2)));
            let p95_ms = |one: &Regret| one.completion_p95.map(|seconds| seconds * 1e3);
            row.extend(self.cells(path, |one| optional(p95_ms(one), 0)));
            row
        };
        let rows: Vec<Vec<String>> = self.paths.iter().filter(is_shared).map(row).collect();
        (!rows.is_empty()).then(|| markdown(&head, &rows))
    }
}

fn optional(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.digits$}"))
}

/// Share and regret, with the interval of more than one repetition.
fn share(of: &Regret) -> String {
    let interval = match of.pairs {
        0 | 1 => String::new(),
        _ => format!("; {:.3} to {:.3}", of.interval.0, of.interval.1),
    };
    format!("{:.3} ({:.3}{interval})", of.share, of.regret)
}

/// Number of repetitions; of each contender, if they differ or some are void.
fn runs<'r>(of: impl Iterator<Item = &'r Regret> + Clone) -> String {
    let pairs = of.clone().next().map_or(0, |one| one.pairs);
    if of.clone().all(|one| one.pairs == pairs && one.voids == 0) {
        return pairs.to_string();
    }
    let void = |count: usize| match count {
        0 => String::new(),
        _ => format!(" ({count} void)"),
    };
    let each = of.map(|one| format!("{} {}{}", one.contender, one.pairs, void(one.voids)));
    each.collect::<Vec<_>>().join(", ")
}

/// Decisions of each contender that has some.
fn decisions<'r>(of: impl Iterator<Item = &'r Regret>) -> String {
    let counts = |one: &Regret| -> String {
        let counts = one.decisions.iter().map(|(state, count)| format!("{count} {state}"));
        counts.collect::<Vec<_>>().join(", ")
    };
    let deciding = of.filter(|one| !one.decisions.is_empty());
    let each = deciding.map(|one| format!("{}: {}", one.contender, counts(one)));
    each.collect::<Vec<_>>().join("; ")
}

fn summary(name: &str, regrets: &[Regret]) -> String {
    let of: Vec<&Regret> = regrets.iter().filter(|one| one.contender == name).collect();
    let middle = median(of.iter().map(|one| one.regret).collect()).unwrap_or(f64::NAN);
    let worst = of.iter().max_by(|a, b| a.regret.total_cmp(&b.regret));
    let worst =
        worst.map_or(String::new(), |one| format!(", worst {:.3} on {}", one.regret, one.path));
    let paths = if of.len() == 1 { "path" } else { "paths" };
    format!("{name}: median regret {middle:.3}{worst}, {} {paths}\n", of.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regret(path: &str, contender: &str, sharing: Option<f64>) -> Regret {
        Regret {
            path: path.to_owned(),
            best: "CUBIC x4".to_owned(),
            contender: contender.to_owned(),
            sharing,
            pairs: 1,
            ..Regret::default()
        }
    }

    #[test]
    fn shared_paths_have_fairness_of_each_contender() {
        let mut regrets = [
            regret("alone", "bankfull", None),
            regret("beside", "bankfull", Some(0.8)),
            regret("beside", "quic", Some(0.95)),
        ];
        regrets[1].decisions = BTreeMap::from([("disabled (unsteady)".to_owned(), 2)]);
        let text = table(&regrets, &BTreeMap::new());
        let row = |start: &str| {
            let rows = text.lines().filter(|line| line.starts_with(start));
            rows.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
        };
        let beside: Vec<String> = row("| beside");
        assert_eq!(beside.len(), 2, "{text}");
        assert!(beside[0].ends_with("| 1 | bankfull: 2 disabled (unsteady) |"), "{text}");
        assert_eq!(beside[1], "| beside | 0.80 | 0.95 | – | – |");
        let alone: Vec<String> = row("| alone");
        assert_eq!(
            alone,
            ["| alone | CUBIC x4 | 0.000 | 0.000 (0.000) | 0.0 | – | – | – | – | 1 | |"]
        );
        assert!(text.contains("bankfull: median regret 0.000, worst 0.000 on beside, 2 paths"));
        assert!(text.contains("quic: median regret 0.000, worst 0.000 on beside, 1 path\n"));
        assert!(!table(&regrets[..1], &BTreeMap::new()).contains("fairness"));
    }

    #[test]
    fn void_runs_and_intervals_show() {
        let mut regrets = [regret("p", "bankfull", None), regret("p", "quic", None)];
        for one in &mut regrets {
            (one.pairs, one.interval) = (5, (0.01, 0.02));
        }
        let text = table(&regrets, &BTreeMap::new());
        assert!(text.contains("0.000 (0.000; 0.010 to 0.020)") && text.contains("| 5    |"));
        (regrets[1].pairs, regrets[1].voids) = (4, 1);
        let text = table(&regrets, &BTreeMap::new());
        assert!(text.contains("| bankfull 5, quic 4 (1 void) |"), "{text}");
    }
}
