//! The summary for people: only lines that have something to say. Rates are in bit/s where a
//! network was crossed, and in byte/s within a host.

use super::text::{byte_rate, count, duration, files, grouped};
use bankfull::{Bytes, Summary};

/// The lines of a transfer that came to its end. `local` says that no network was crossed.
pub(super) fn lines(summary: &Summary, local: bool) -> Vec<String> {
    let mut lines = vec![copied(summary, local)];
    lines.extend(rest(summary));
    let limited = summary.limited_by != "nothing" && !summary.limited_by_text.is_empty();
    if summary.files > 0 && limited {
        lines.push(format!("limited by: {}", summary.limited_by_text));
    }
    lines
}

/// The lines of a dry run that found `entries` to copy, of `bytes` in all.
pub(super) fn plan_lines(summary: &Summary, entries: u64, bytes: Bytes) -> Vec<String> {
    let mut lines = vec![match entries {
        0 => "nothing to copy".to_owned(),
        _ => format!("would copy {}, {bytes}", count(entries, "entry", "entries")),
    }];
    lines.extend(rest(summary));
    lines
}

/// What a client's session did, in one line for the daemon's log.
pub(super) fn session_line(summary: &Summary) -> String {
    let mut line = format!(
        "{}, {} in {} ({})",
        files(summary.files),
        summary.bytes,
        duration(summary.elapsed),
        summary.goodput()
    );
    if summary.failed_files > 0 {
        line.push_str(&format!(", {} failed", files(summary.failed_files)));
    }
    line
}

fn copied(summary: &Summary, local: bool) -> String {
    if summary.files == 0 {
        return match summary.links_made {
            0 => "nothing to copy".to_owned(),
            made => format!("made {}", count(made, "symlink", "symlinks")),
        };
    }
    let took = duration(summary.elapsed);
    let what = format!("copied {}, {} in {took}", files(summary.files), summary.bytes);
    if local {
        return format!("{what}: {}", byte_rate(summary.goodput()));
    }
    format!(
        "{what}: {} goodput over {}, {}",
        summary.goodput(),
        count(summary.streams.into(), "stream", "streams"),
        count(summary.retransmits, "retransmit", "retransmits")
    )
}

fn rest(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    if summary.skipped_files > 0 {
        lines.push(format!(
            "skipped {} ({})",
            count(summary.skipped_files, "unchanged file", "unchanged files"),
            summary.skipped_bytes
        ));
    }
    if summary.resumed_bytes > Bytes(0) {
        let verb = if summary.resumed_bytes == Bytes(1) { "was" } else { "were" };
        lines.push(format!("resumed: {} {verb} there already", summary.resumed_bytes));
    }
    if summary.specials > 0 {
        let what = count(summary.specials, "special file", "special files");
        lines.push(format!("left out {what} (sockets, devices, FIFOs)"));
    }
    if summary.failed_files > 0 {
        let vanished = match summary.vanished_files {
            0 => String::new(),
            n => format!(" ({} vanished from the source)", grouped(n)),
        };
        lines.push(format!("failed: {}{vanished}", files(summary.failed_files)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn summary() -> Summary {
        let mut summary = Summary::default();
        summary.files = 53_363;
        summary.bytes = Bytes(696_357_683);
        summary.elapsed = Duration::from_millis(3200);
        summary.streams = 4;
        summary
    }

    #[test]
    fn a_plain_copy_is_one_line() {
        assert_eq!(
            lines(&summary(), false),
            ["copied 53 363 files, 664.1 MiB in 3.2 s: 1.74 Gbit/s goodput over 4 streams, \
                 0 retransmits"]
        );
    }

    #[test]
    fn a_copy_within_the_host_is_in_bytes_per_second() {
        assert_eq!(
            lines(&summary(), true),
            ["copied 53 363 files, 664.1 MiB in 3.2 s: 217.6 MB/s"]
        );
    }

    #[test]
    fn everything_that_happened_has_its_line() {
        let mut summary = summary();
        (summary.files, summary.streams, summary.retransmits) = (1, 1, 1);
        (summary.skipped_files, summary.skipped_bytes) = (12, Bytes::mib(3));
        summary.resumed_bytes = Bytes(1_288_490_189);
        summary.specials = 1;
        (summary.failed_files, summary.vanished_files) = (3, 1);
        summary.limited_by_text = "writing the destination".to_owned();
        assert_eq!(
            lines(&summary, false),
            [
                "copied 1 file, 664.1 MiB in 3.2 s: 1.74 Gbit/s goodput over 1 stream, 1 retransmit",
                "skipped 12 unchanged files (3.0 MiB)",
                "resumed: 1.2 GiB were there already",
                "left out 1 special file (sockets, devices, FIFOs)",
                "failed: 3 files (1 vanished from the source)",
                "limited by: writing the destination",
            ]
        );
    }

    #[test]
    fn nothing_to_do_says_so_and_names_no_limit() {
        let mut summary = Summary::default();
        (summary.skipped_files, summary.skipped_bytes) = (1, Bytes(10));
        summary.limited_by_text = "the network".to_owned();
        assert_eq!(lines(&summary, false), ["nothing to copy", "skipped 1 unchanged file (10 B)"]);
    }

    #[test]
    fn a_plan_counts_entries() {
        let summary = Summary::default();
        assert_eq!(plan_lines(&summary, 0, Bytes(0)), ["nothing to copy"]);
        assert_eq!(plan_lines(&summary, 1, Bytes(5)), ["would copy 1 entry, 5 B"]);
        assert_eq!(plan_lines(&summary, 2000, Bytes(5)), ["would copy 2 000 entries, 5 B"]);
    }
}
