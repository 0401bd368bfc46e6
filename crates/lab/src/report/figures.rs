//! Target figures for results on kinds of path, and those missed.

use crate::base::error::Result;
use crate::model::settings::Settings;
use crate::report::regret::{MIN_SHARING, Regret, median};
use bankfull_control::pacing::DEFAULT_MTU;
use bankfull_sim::link::queue::QueueConfig;
use bankfull_sim::{CrossTraffic, LinkConfig, Loss};
use std::collections::BTreeMap;

/// Contenders with figures, and their largest median and single regret. (chosen: the aims of
/// docs/kinds.md)
const MAX_REGRETS: [(&str, f64, f64); 2] = [("bankfull", 0.03, 0.10), ("quic", 0.05, 0.15)];

/// Contender that the others are compared with: untuned TCP.
const UNTUNED: &str = "off";

/// Largest share of the capacity below [`UNTUNED`]. (chosen: more than the chance of a single run)
const MAX_SHORTFALL: f64 = 0.03;

/// Own losses that do not count: a number, a share, and a share with a policer. (chosen: a burst at
/// the start, and the loss of a good link; a policer shows its rate by drops only)
const MAX_LOST_SEGMENTS: f64 = 8.0;

const MAX_LOST_SHARE: f64 = 1e-4;

const MAX_POLICED_SHARE: f64 = 0.01;

/// Queue that does not count, as a time and in segments. (chosen: the target of CoDel, RFC 8289,
/// and what pacing needs on a slow line)
const MAX_QUEUE_MS: f64 = 5.0;

const MAX_QUEUE_SEGMENTS: f64 = 4.0;

/// Share of the queue of [`UNTUNED`] that does not count. (chosen: a reduction worth the effort)
const MAX_QUEUE_SHARE: f64 = 0.25;

/// Rate of a slow reverse path, as a share of that forward. (chosen: `back-2mbit`)
const SLOW_BACK: f64 = 1.0 / 150.0;

/// Share of the best choice on such a path. (chosen: the aim of docs/kinds.md)
const MIN_SLOW_BACK_SHARE: f64 = 0.93;

/// Properties of a path by which its results are judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathTraits {
    /// Full segments that the path carries in the time of a run.
    pub segments: f64,
    /// Time of a full packet on the line, in ms.
    pub packet_ms: f64,
    /// True if segments are lost whatever the sender does, or by other flows.
    pub loses: bool,
    /// True with a policer.
    pub has_policer: bool,
    /// True if the rate back is `SLOW_BACK` of that forward, or less.
    pub is_slow_back: bool,
}

impl PathTraits {
    /// Properties of the path of settings.
    ///
    /// A silence and a smaller MTU lose what is sent meanwhile; traces, squares, walks and steps
    /// count as paths that lose nothing.
    ///
    /// # Errors
    /// If the settings describe no path.
    pub fn of(settings: &Settings) -> Result<Self> {
        let path = settings.path_config()?;
        let rate = settings.rate()?.bits_per_sec() as f64;
        let packet_seconds = DEFAULT_MTU.0 as f64 * 8.0 / rate;
        let marks = settings.path.tcp_ecn.is_some_and(|ecn| ecn > 0);
        let links = || [Some(&path.forward), path.first_hop.as_ref()].into_iter().flatten();
        let is_shared = !(path.background.is_empty() && settings.cross_tcp.is_empty());
        Ok(Self {
            segments: settings.run.duration.as_secs_f64() / packet_seconds,
            packet_ms: packet_seconds * 1e3,
            loses: is_shared || links().any(|link| loses(link, marks)),
            has_policer: links().any(|link| link.policer.is_some()),
            is_slow_back: path
                .reverse
                .rate
                .is_some_and(|back| back.bits_per_sec() as f64 <= rate * SLOW_BACK),
        })
    }
}

/// True if a link loses segments of a sender that fills no queue.
fn loses(link: &LinkConfig, hosts_use_ecn: bool) -> bool {
    let drops_early = link.queue != QueueConfig::DropTail && !(link.ecn && hosts_use_ecn);
    link.loss != Loss::None
        || link.cross != CrossTraffic::None
        || drops_early
        || !link.silences.is_empty()
        || !link.impairments.mtu_changes.is_empty()
}

/// List of the figures missed, each with its paths and values.
#[must_use]
pub fn missed(regrets: &[Regret], traits: &BTreeMap<String, PathTraits>) -> String {
    let mut lines = Vec::new();
    for (name, max_median, max_worst) in MAX_REGRETS {
        let own: Vec<&Regret> = regrets.iter().filter(|one| one.contender == name).collect();
        let middle = median(own.iter().map(|one| one.regret).collect());
        if let Some(middle) = middle.filter(|middle| *middle > max_median) {
            lines.push(format!("{name}, median regret above {max_median}: {middle:.3}"));
        }
        let untuned =
            |path: &str| regrets.iter().find(|one| one.contender == UNTUNED && one.path == path);
        let mut list = |what: &str, value: &dyn Fn(&Regret) -> Option<String>| {
            let found = own.iter().filter_map(|one| Some(format!("{} {}", one.path, value(one)?)));
            let found: Vec<String> = found.collect();
            if !found.is_empty() {
                lines.push(format!("{name}, {what}: {}", found.join(", ")));
            }
        };
        list(&format!("regret above {max_worst:.2}"), &|one| {
            (one.regret > max_worst).then(|| format!("{:.3}", one.regret))
        });
        list(&format!("more than {MAX_SHORTFALL} of the capacity below {UNTUNED}"), &|one| {
            let lead = untuned(&one.path)?.share - one.share;
            (lead > MAX_SHORTFALL).then(|| format!("{lead:.3}"))
        });
        list("segments lost where nothing else loses", &|one| lost(one, traits.get(&one.path)?));
        list("queue", &|one| {
            let is_short = |limit: f64, quarter: f64| one.queue_ms <= limit.max(quarter);
            queue(one, untuned(&one.path)?, traits.get(&one.path)?, is_short)
        });
        list(
            &format!("queue within a quarter of that of {UNTUNED}, above the other limit"),
            &|one| {
                let is_other = |limit, quarter| one.queue_ms <= limit || one.queue_ms > quarter;
                queue(one, untuned(&one.path)?, traits.get(&one.path)?, is_other)
            },
        );
        list(&format!("share of the best choice below {MIN_SLOW_BACK_SHARE}"), &|one| {
            let share = 1.0 - one.regret;
            let is_slow_back = traits.get(&one.path)?.is_slow_back;
            (is_slow_back && share < MIN_SLOW_BACK_SHARE).then(|| format!("{share:.3}"))
        });
        list(&format!("fairness below {MIN_SHARING} and that of {UNTUNED}"), &|one| {
            let (own, other) = (one.sharing?, untuned(&one.path)?.sharing?);
            (own < MIN_SHARING && own < other).then(|| format!("{own:.2} ({other:.2})"))
        });
    }
    if lines.is_empty() {
        return "figures missed: none\n".to_owned();
    }
    format!("figures missed:\n- {}\n", lines.join("\n- "))
}

/// Own losses above the limit. Probes lost and needless retransmissions do not count.
fn lost(of: &Regret, path: &PathTraits) -> Option<String> {
    let lost = of.retransmits.map_or(of.dropped, |again| again.min(of.dropped));
    let share = if path.has_policer { MAX_POLICED_SHARE } else { MAX_LOST_SHARE };
    let limit = f64::max(MAX_LOST_SEGMENTS, share * of.share * path.segments);
    (!path.loses && lost > limit).then(|| format!("{lost:.0} (limit {limit:.0})"))
}

/// Queue that is not short, with that of untuned TCP.
fn queue(
    of: &Regret,
    untuned: &Regret,
    path: &PathTraits,
    is_short: impl Fn(f64, f64) -> bool,
) -> Option<String> {
    let limit = f64::max(MAX_QUEUE_MS, MAX_QUEUE_SEGMENTS * path.packet_ms);
    let is_long = !is_short(limit, MAX_QUEUE_SHARE * untuned.queue_ms);
    is_long.then(|| format!("{:.1} ms ({UNTUNED}: {:.1})", of.queue_ms, untuned.queue_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Properties of a path in TOML with runs of 15 s.
    fn traits(rest: &str) -> PathTraits {
        let text = format!(
            "title = 'x'\nrun.duration = '15s'\ncontender = []\n\
             path = {{ rate = '100mbit', rtt = '40ms', {rest} }}"
        );
        PathTraits::of(&toml::from_str(&text).unwrap()).unwrap()
    }

    /// A contender on the path `p`, as untuned TCP would fare there.
    fn on_path(contender: &str) -> Regret {
        Regret {
            path: "p".to_owned(),
            contender: contender.to_owned(),
            share: 0.98,
            queue_ms: 30.0,
            retransmits: Some(300.0),
            dropped: 300.0,
            sharing: Some(0.85),
            ..Regret::default()
        }
    }

    /// Figures that a contender misses beside untuned TCP.
    fn of(one: Regret, path: &str) -> String {
        let one = Regret { path: "p".to_owned(), contender: "bankfull".to_owned(), ..one };
        missed(&[one, on_path(UNTUNED)], &BTreeMap::from([("p".to_owned(), traits(path))]))
    }

    fn good() -> Regret {
        let (retransmits, sharing) = (Some(12.0), Some(0.95));
        Regret { queue_ms: 4.0, retransmits, dropped: 12.0, sharing, ..on_path("bankfull") }
    }

    #[test]
    fn figures_missed_name_paths_and_values() {
        assert_eq!(of(good(), "buffer = '1bdp'"), "figures missed: none\n");
        let bad = Regret {
            regret: 0.2,
            share: 0.9,
            queue_ms: 8.0,
            retransmits: Some(50.0),
            dropped: 20.0,
            sharing: Some(0.5),
            ..good()
        };
        assert_eq!(
            of(bad.clone(), "buffer = '1bdp'"),
            "figures missed:\n\
             - bankfull, median regret above 0.03: 0.200\n\
             - bankfull, regret above 0.10: p 0.200\n\
             - bankfull, more than 0.03 of the capacity below off: p 0.080\n\
             - bankfull, segments lost where nothing else loses: p 20 (limit 11)\n\
             - bankfull, queue: p 8.0 ms (off: 30.0)\n\
             - bankfull, fairness below 0.9 and that of off: p 0.50 (0.85)\n"
        );
        let shorter = Regret { queue_ms: 7.0, ..bad };
        let found = of(shorter.clone(), "link = ['policer:50mbit,64kB']");
        assert!(!found.contains("segments lost") && !found.contains("bankfull, queue:"), "{found}");
        let within = "queue within a quarter of that of off, above the other limit: p 7.0 ms";
        assert!(found.contains(within), "{found}");
        let found = of(shorter, "back = ['rate:600kbit']");
        assert!(found.contains("share of the best choice below 0.93: p 0.800"), "{found}");
    }

    #[test]
    fn words_of_links_tell_whether_a_path_loses() {
        for word in
            ["policer:50mbit,64kB", "jitter:8ms", "steps:50mbit@6s", "rtt:60ms@6s", "trace:wifi"]
        {
            assert!(!traits(&format!("link = ['{word}']")).loses, "{word}");
        }
        for word in ["loss:1%", "codel", "silence:300ms@6s", "mtu:1300@6s"] {
            assert!(traits(&format!("link = ['{word}']")).loses, "{word}");
        }
        assert!(traits("loss = '0.1%'").loses && traits("beside = ['cubic']").loses);
        assert!(!traits("link = ['pie', 'ecn'], tcp-ecn = 1").loses);
        assert!(traits("link = ['pie', 'ecn']").loses, "the hosts do not request ECN");
        assert!((traits("buffer = '1bdp'").segments - 125_000.0).abs() < 1.0);
    }
}
