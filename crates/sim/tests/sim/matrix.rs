//! Goodput over buffers and loss, as a snapshot for review.
//!
//! To update it after an intended change: `BANKFULL_SIM_BLESS=1 cargo test -p bankfull-sim matrix`.

use crate::snapshot::assert_snapshot;
use crate::{MS, SEC, alone, mbit};
use bankfull_control::Bytes;
use bankfull_sim::tcp::Algorithm;
use bankfull_sim::{Loss, PathConfig};
use std::fmt::Write as _;

/// Buffers in percent of the bandwidth-delay product.
const BUFFERS: [u64; 6] = [2, 5, 12, 25, 50, 100];

/// Lost segments per million.
const LOSSES: [u32; 5] = [0, 10, 100, 1000, 10_000];

/// Name, congestion control, pacing rate in Mbit/s.
const SENDERS: [(&str, Algorithm, Option<f64>); 4] = [
    ("NewReno", Algorithm::NewReno, None),
    ("CUBIC", Algorithm::Cubic, None),
    ("CUBIC, paced at 99 % of capacity", Algorithm::Cubic, Some(956.0)),
    ("CUBIC, paced at 103 % of capacity", Algorithm::Cubic, Some(994.0)),
];

/// Returns Mbit/s of payload and percent of retransmitted segments of one flow over 20 s.
fn cell(buffer: u64, loss: u32, algorithm: Algorithm, pacing: Option<f64>) -> String {
    let mut path = PathConfig::new(mbit(1000.0), MS * 20, Bytes(2_500_000 * buffer / 100));
    path.forward.loss = Loss::Random { probability: f64::from(loss) / 1e6 };
    let report = alone(&path, SEC * 20, |flow| {
        flow.algorithm = algorithm;
        flow.pacing = pacing.map(mbit);
    });
    let sender = report.stats.sender;
    let retransmitted = 100.0 * sender.retransmits as f64 / sender.segments as f64;
    format!("{} ({retransmitted:.2})", report.goodput.bits_per_sec() / 1_000_000)
}

fn table() -> Result<String, std::fmt::Error> {
    let mut text = String::from(
        "Goodput in Mbit/s (and retransmitted segments, in percent) of one flow over 20 s.\n\
         1 Gbit/s, RTT 20 ms, capacity for data 965 Mbit/s, buffer in percent of the BDP.\n",
    );
    for (name, algorithm, pacing) in SENDERS {
        write!(text, "\n{name}\n{:>9}", "loss")?;
        for buffer in BUFFERS {
            write!(text, "{:>13}", format!("{buffer} %"))?;
        }
        for loss in LOSSES {
            write!(text, "\n{:>9}", format!("{} %", f64::from(loss) / 10_000.0))?;
            for buffer in BUFFERS {
                write!(text, "{:>13}", cell(buffer, loss, algorithm, pacing))?;
            }
        }
        text.push('\n');
    }
    Ok(text)
}

#[test]
fn buffer_loss_matrix_matches_snapshot() {
    let found = table().unwrap();
    assert_snapshot(&found, include_str!("../snapshots/matrix.txt"), "matrix.txt");
}
