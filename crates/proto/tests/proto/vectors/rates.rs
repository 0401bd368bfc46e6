//! Vectors of a rate limit that changes.

use super::Vector;
use super::control::{message, path};
use bankfull_proto::wire::control::{Direction, Message, Open, Opened, RateLimit, Source};

pub(super) fn vectors() -> Vec<Vector> {
    let open = Open {
        direction: Direction::Pull,
        paths: vec![path(b"logs")],
        streams: 1,
        rate_max: Some(6_250_000),
        rate_changes: Some(true),
        ..Open::default()
    };
    let source = Source { name: b"logs".to_vec(), is_dir: true, contents: false, open_ended: None };
    let sources = vec![source];
    let opened = Opened { sources, rate_changes: Some(true), ..Opened::default() };
    let limit = RateLimit { bytes_per_sec: Some(6_250_000) };
    vec![
        message(
            "open-rate-changes",
            "Open: the rate is limited to 6.25 MB/s, and will change.",
            Message::Open(open),
        ),
        message(
            "opened-rate-changes",
            "Opened, the answer to open-rate-changes.",
            Message::Opened(opened),
        ),
        message("rate-limit", "RateLimit: 6.25 MB/s from now on.", Message::RateLimit(limit)),
        message(
            "rate-limit-none",
            "RateLimit: no limit from now on.",
            Message::RateLimit(RateLimit::default()),
        ),
    ]
}
