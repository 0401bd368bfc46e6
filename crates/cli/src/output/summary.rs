//! The summary for people: only lines that have something to say. Rates are in bit/s where a
//! network was crossed, and in byte/s within a host.

use super::text::{byte_rate, count, duration, entries, files, grouped, short_duration};
use bankfull::{Bytes, GatherSummary, Summary};
use std::time::Duration;

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

/// The lines of a dry run.
pub(super) fn plan_lines(summary: &Summary) -> Vec<String> {
    let mut lines = vec![match (summary.would_copy_entries, summary.failed_files) {
        (0, 0) => "nothing to copy".to_owned(),
        (0, _) => "nothing would be copied".to_owned(),
        (n, _) => format!("would copy {}, {}", entries(n), summary.would_copy_bytes),
    }];
    lines.extend(rest(summary));
    lines
}

/// The lines of a gathering, the last one of which heads the list of the sources that have failed,
/// if any.
pub(super) fn gathered_lines(
    done: &GatherSummary,
    rounds: &[Duration],
    dry_run: bool,
) -> Vec<String> {
    let sources = |number: usize| count(number as u64, "source", "sources");
    let (all, failed) = (done.sources.len(), done.failed().count());
    let total = &done.total;
    let of =
        if failed == 0 { String::new() } else { format!("{} of ", grouped((all - failed) as u64)) };
    let (made, of) = (made(total), format!("{of}{}", sources(all)));
    let mut lines = match (dry_run, total.files) {
        _ if failed == all => vec!["nothing gathered".to_owned()],
        (true, _) => plan_lines(total),
        (false, 0) if made.is_empty() => vec![format!("gathered nothing new from {of}")],
        (false, 0) => vec![format!("gathered {made} from {of}")],
        (false, _) => vec![format!(
            "gathered {made} from {of}, {} in {}: {} goodput, {}",
            moved(total),
            duration(total.elapsed),
            total.goodput(),
            count(total.retransmits, "retransmit", "retransmits")
        )],
    };
    if !dry_run {
        lines.extend(rest(total));
    }
    lines.extend(rounds_line(rounds));
    if failed > 0 {
        lines.push(format!("{} failed:", sources(failed)));
    }
    lines
}

/// How long rounds took, if there were any.
fn rounds_line(rounds: &[Duration]) -> Option<String> {
    let mut sorted = rounds.to_vec();
    sorted.sort_unstable();
    let (median, longest) = (sorted.get(sorted.len() / 2)?, sorted.last()?);
    let number = count(rounds.len() as u64, "round", "rounds");
    Some(format!(
        "{number}: median {}, longest {}",
        short_duration(*median),
        short_duration(*longest)
    ))
}

/// What a client's session did, in one line for the daemon's log.
pub(super) fn session_line(summary: &Summary) -> String {
    let made = made(summary);
    let mut line = match (summary.files, summary.would_copy_entries) {
        (0, 0) if made.is_empty() => "nothing copied".to_owned(),
        (0, 0) => made,
        (0, planned) => format!("would copy {}", entries(planned)),
        _ => {
            let (moved, took) = (moved(summary), duration(summary.elapsed));
            format!("{made}, {moved} in {took} ({})", summary.goodput())
        }
    };
    if summary.failed_files > 0 {
        line.push_str(&format!(", {} failed", entries(summary.failed_files)));
    }
    line
}

/// What there is now that was not there before; empty for nothing.
fn made(summary: &Summary) -> String {
    let links = count(summary.symlinks_created, "symlink", "symlinks");
    let all = [(summary.files, files(summary.files)), (summary.symlinks_created, links)];
    let made: Vec<_> = all.into_iter().filter(|(n, _)| *n > 0).map(|(_, text)| text).collect();
    made.join(" and ")
}

/// How many bytes went over: more than the copied files hold, where others failed on the way.
fn moved(summary: &Summary) -> String {
    match (summary.bytes, summary.failed_files) {
        (Bytes(0), _) | (_, 0) => summary.bytes.to_string(),
        _ => format!("{} with those of failed files", summary.bytes),
    }
}

fn copied(summary: &Summary, local: bool) -> String {
    let made = made(summary);
    match (summary.files, summary.failed_files) {
        (0, 0) if made.is_empty() => return "nothing to copy".to_owned(),
        (0, _) if made.is_empty() => return "nothing copied".to_owned(),
        (0, _) => return format!("made {made}"),
        _ => {}
    }
    let what = format!("copied {made}, {} in {}", moved(summary), duration(summary.elapsed));
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
    if summary.special_files_skipped > 0 {
        let what = count(summary.special_files_skipped, "special file", "special files");
        lines.push(format!("left out {what} (sockets, devices, FIFOs)"));
    }
    if summary.failed_files > 0 {
        let vanished = match summary.vanished_files {
            0 => String::new(),
            n => format!(" ({} vanished from the source)", grouped(n)),
        };
        lines.push(format!("failed: {}{vanished}", entries(summary.failed_files)));
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
        (summary.special_files_skipped, summary.symlinks_created) = (1, 2);
        (summary.failed_files, summary.vanished_files) = (3, 1);
        summary.limited_by_text = "writing the destination".to_owned();
        assert_eq!(
            lines(&summary, false),
            [
                "copied 1 file and 2 symlinks, 664.1 MiB with those of failed files in 3.2 s: \
                 1.74 Gbit/s goodput over 1 stream, 1 retransmit",
                "skipped 12 unchanged files (3.0 MiB)",
                "resumed: 1.2 GiB were there already",
                "left out 1 special file (sockets, devices, FIFOs)",
                "failed: 3 entries (1 vanished from the source)",
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
    fn where_all_failed_nothing_was_copied_and_links_alone_were_made() {
        let mut summary = Summary::default();
        (summary.failed_files, summary.bytes) = (1, Bytes(9));
        assert_eq!(lines(&summary, false), ["nothing copied", "failed: 1 entry"]);
        assert_eq!(plan_lines(&summary), ["nothing would be copied", "failed: 1 entry"]);
        summary.symlinks_created = 1;
        assert_eq!(lines(&summary, false), ["made 1 symlink", "failed: 1 entry"]);
    }

    #[test]
    fn a_session_is_one_line_with_what_there_was() {
        let mut summary = Summary::default();
        assert_eq!(session_line(&summary), "nothing copied");
        summary.symlinks_created = 1;
        assert_eq!(session_line(&summary), "1 symlink");
        summary.would_copy_entries = 2;
        assert_eq!(session_line(&summary), "would copy 2 entries");
        (summary.files, summary.bytes, summary.failed_files) = (1, Bytes(1000), 2);
        summary.elapsed = Duration::from_secs(1);
        assert_eq!(
            session_line(&summary),
            "1 file and 1 symlink, 1000 B with those of failed files in 1.0 s (8.0 kbit/s), \
             2 entries failed"
        );
    }

    /// A gathering from three sources, so many of which have failed.
    fn gathering(failed: usize, total: Summary) -> GatherSummary {
        let gone = bankfull::Error::new(bankfull::ErrorKind::Network, "gone");
        let mut done = GatherSummary::default();
        for number in 0..3 {
            let place = bankfull::Location::parse("h:x".as_ref()).unwrap();
            let result = if number < failed { Err(gone.clone()) } else { Ok(Summary::default()) };
            done.sources.push((place, result));
        }
        done.total = total;
        done
    }

    #[test]
    fn a_gathering_says_from_how_many_sources_it_came() {
        let lines = |failed, total| gathered_lines(&gathering(failed, total), &[], false);
        let copied = "gathered 53 363 files from 3 sources, 664.1 MiB in 3.2 s: 1.74 Gbit/s \
                      goodput, 0 retransmits";
        assert_eq!(lines(0, summary()), [copied]);
        let two = copied.replace("from 3", "from 2 of 3");
        assert_eq!(lines(1, summary()), [two.as_str(), "1 source failed:"]);
        assert_eq!(lines(0, Summary::default()), ["gathered nothing new from 3 sources"]);
        assert_eq!(lines(3, Summary::default()), ["nothing gathered", "3 sources failed:"]);
        let plan = gathered_lines(&gathering(1, Summary::default()), &[], true);
        assert_eq!(plan, ["nothing to copy", "1 source failed:"]);
    }

    #[test]
    fn a_plan_counts_entries() {
        let plan = |entries, bytes| {
            let mut summary = Summary::default();
            (summary.would_copy_entries, summary.would_copy_bytes) = (entries, Bytes(bytes));
            plan_lines(&summary)
        };
        assert_eq!(plan(0, 0), ["nothing to copy"]);
        assert_eq!(plan(1, 5), ["would copy 1 entry, 5 B"]);
        assert_eq!(plan(2000, 5), ["would copy 2 000 entries, 5 B"]);
    }
}
