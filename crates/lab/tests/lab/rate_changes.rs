//! `scripts/rate-changes` on series whose times are known.

use bankfull_lab::base::notify;
use serde_json::json;
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/rate-changes");

/// Rate of the line in bit/s: half of it from 6 s to 11 s.
const LINE: f64 = 50e6;

/// Rows of the script for a transfer whose rate is a function of the time; `None` without Python.
fn rows(rate: impl Fn(f64) -> f64) -> Option<Vec<String>> {
    let time: Vec<f64> = (1..=1700).map(|at| f64::from(at) / 100.0).collect();
    let arrived: Vec<f64> = time.iter().map(|&at| rate(at)).collect();
    let steps = json!([[6.0, LINE / 2.0], [11.0, LINE]]);
    let series = json!({ "time": time, "arrived_bps": arrived, "rate_changes": steps });
    let runs = json!([{ "repetition": 1, "series": series }]);
    let condition = json!({
        "values": ["p"],
        "rtt_seconds": 0.02,
        "contenders": [{ "name": "one", "runs": runs }],
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("results.json");
    let results = json!({ "scenarios": [{ "conditions": [condition] }] });
    std::fs::write(&file, results.to_string()).unwrap();
    let Ok(done) = Command::new("python3").args([SCRIPT.as_ref(), file.as_os_str()]).output()
    else {
        notify("skipped: no python3");
        return None;
    };
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8_lossy(&done.stdout);
    Some(text.lines().skip(2).map(str::to_owned).collect())
}

/// Transfer that carries the line until 16 s, but finds its doubling at `found`.
fn transfer(found: f64) -> impl Fn(f64) -> f64 {
    move |at| match at {
        _ if at > 16.0 => 0.0,
        _ if at > 6.0 && at <= found => LINE / 2.0,
        _ => LINE,
    }
}

#[test]
fn rise_counts_from_change_of_the_line() {
    let Some(found) = rows(transfer(12.5)) else { return };
    assert_eq!(
        found,
        [
            "| p | one | 1 | fall at 6 s | at once | at once | 0.0 | 1.0 |",
            "| p | one | 1 | rise at 11 s | 1.66 | 1.66 | 0.0 | 1.0 |",
        ]
    );
}

#[test]
fn dips_after_a_change_defer_staying() {
    let dip = |at: f64| if at > 8.0 && at <= 8.1 { 0.0 } else { transfer(11.0)(at) };
    let Some(found) = rows(dip) else { return };
    assert_eq!(
        found,
        [
            "| p | one | 1 | fall at 6 s | at once | 2.28 | 5.2 | 1.0 |",
            "| p | one | 1 | rise at 11 s | 0.16 | 0.16 | 0.0 | 1.0 |",
        ]
    );
}
