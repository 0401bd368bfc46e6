//! Summary as text: only lines with information. Rates are in bit/s over a network, and in byte/s
//! within a host.

use super::text::{byte_rate, count, duration, entries, files, grouped, short_duration};
use bankfull::{Bytes, GatherSummary, Summary};
use std::time::Duration;

/// Formats the result of a transfer. `is_local`: no network was used.
pub(super) fn lines(summary: &Summary, is_local: bool) -> Vec<String> {
    let linked = linked_line(summary);
    let first = match summary.files {
        0 if linked.is_some() && created(summary).is_empty() => None,
        _ => Some(copied(summary, is_local)),
    };
    let mut lines: Vec<_> = first.into_iter().chain(linked).collect();
    lines.extend(rest(summary));
    let is_limited = summary.limited_by != "nothing" && !summary.limited_by_text.is_empty();
    if summary.files > 0 && is_limited && has_rate(summary) {
        lines.push(format!("limited by: {}", summary.limited_by_text));
    }
    lines
}

/// True if a copy was large and long enough for its rate to say anything. (chosen: below, the start
/// of the program and the connection dominates)
fn has_rate(summary: &Summary) -> bool {
    summary.bytes >= Bytes::mib(1) && summary.elapsed >= Duration::from_secs(1)
}

/// Formats the result of a dry run.
pub(super) fn plan_lines(summary: &Summary) -> Vec<String> {
    let mut lines = vec![match (summary.would_copy_entries, failed_entries(summary)) {
        (0, 0) => "nothing to copy".to_owned(),
        (0, _) => "nothing would be copied".to_owned(),
        (n, _) => format!("would copy {}, {}", entries(n), summary.would_copy_bytes),
    }];
    if summary.deleted > 0 {
        lines.push(format!("would delete {}", entries(summary.deleted)));
    }
    let mut others = summary.clone();
    others.deleted = 0;
    lines.extend(rest(&others));
    lines
}

/// Formats the result of a gathering. If sources failed, the last line is the heading of their
/// list.
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
    let (created, of) = (created(total), format!("{of}{}", sources(all)));
    let mut lines = match (dry_run, total.files) {
        _ if failed == all => vec!["nothing gathered".to_owned()],
        (true, _) => plan_lines(total),
        (false, 0) if created.is_empty() => vec![format!("gathered nothing new from {of}")],
        (false, 0) => vec![format!("gathered {created} from {of}")],
        (false, _) => {
            let (moved, took) = (transferred(total), duration(total.elapsed));
            let retransmits = count(total.retransmits, "retransmit", "retransmits");
            let rate = match has_rate(total) {
                true => format!(": {} goodput, {retransmits}", total.goodput()),
                false => String::new(),
            };
            vec![format!("gathered {created} from {of}, {moved} in {took}{rate}")]
        }
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

/// Formats the durations of rounds, if there were any.
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

/// Formats the result of a client's session in one line for a daemon's log.
pub(super) fn session_line(summary: &Summary) -> String {
    let created = created(summary);
    let mut line = match (summary.files, summary.would_copy_entries) {
        (0, 0) if created.is_empty() => "nothing copied".to_owned(),
        (0, 0) => created,
        (0, planned) => format!("would copy {}", entries(planned)),
        _ => {
            let (moved, took) = (transferred(summary), duration(summary.elapsed));
            match has_rate(summary) {
                true => format!("{created}, {moved} in {took} ({})", summary.goodput()),
                false => format!("{created}, {moved} in {took}"),
            }
        }
    };
    if failed_entries(summary) > 0 {
        line.push_str(&format!(", {} failed", entries(failed_entries(summary))));
    }
    line
}

/// Formats the entries created; empty if there are none.
///
/// Directories are named only if nothing else was created: each tree has some.
fn created(summary: &Summary) -> String {
    let all = [
        (summary.files, "file", "files"),
        (summary.symlinks_created, "symlink", "symlinks"),
        (summary.hard_links_created, "hard link", "hard links"),
        (summary.special_files_created, "special file", "special files"),
    ];
    let is_made = |(number, ..): &(u64, _, _)| *number > 0;
    let text = |(number, one, many)| count(number, one, many);
    let mut created: Vec<_> = all.into_iter().filter(is_made).map(text).collect();
    if created.is_empty() && summary.dirs_created > 0 {
        created.push(count(summary.dirs_created, "directory", "directories"));
    }
    let last = created.pop().unwrap_or_default();
    if created.is_empty() { last } else { format!("{} and {last}", created.join(", ")) }
}

/// Formats the bytes transferred; they may include those of files that failed later.
fn transferred(summary: &Summary) -> String {
    match (summary.bytes, failed_entries(summary)) {
        (Bytes(0), _) | (_, 0) => summary.bytes.to_string(),
        _ => format!("{} (those of failed files included)", summary.bytes),
    }
}

/// Returns the number of failed entries, without the one that stands for the deletion limit.
fn failed_entries(summary: &Summary) -> u64 {
    summary.failed_files.saturating_sub(summary.is_delete_limited.into())
}

fn copied(summary: &Summary, is_local: bool) -> String {
    let created = created(summary);
    match (summary.files, failed_entries(summary)) {
        (0, 0) if created.is_empty() => return "nothing to copy".to_owned(),
        (0, _) if created.is_empty() => return "nothing copied".to_owned(),
        (0, _) => return format!("created {created}"),
        _ => {}
    }
    let what =
        format!("copied {created}, {} in {}", transferred(summary), duration(summary.elapsed));
    if !has_rate(summary) {
        return what;
    }
    if is_local {
        return format!("{what}: {}", byte_rate(summary.goodput()));
    }
    format!(
        "{what}: {} goodput over {}, {}",
        summary.goodput(),
        count(summary.streams.into(), "stream", "streams"),
        count(summary.retransmits, "retransmit", "retransmits")
    )
}

/// Formats the files that became hard links to earlier copies, if there are any.
fn linked_line(summary: &Summary) -> Option<String> {
    let linked = files(summary.linked_files);
    (summary.linked_files > 0)
        .then(|| format!("linked {linked} to earlier copies ({})", summary.linked_bytes))
}

fn rest(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    let skipped = summary.skipped_files.saturating_sub(summary.linked_files);
    if skipped > 0 {
        let bytes = Bytes(summary.skipped_bytes.0.saturating_sub(summary.linked_bytes.0));
        let skipped = count(skipped, "unchanged file", "unchanged files");
        lines.push(format!("skipped {skipped} ({bytes})"));
    }
    if summary.left_out_files > 0 {
        lines.push(format!(
            "left out {} ({})",
            count(summary.left_out_files, "file", "files"),
            summary.left_out_bytes
        ));
    }
    if summary.resumed_bytes > Bytes(0) {
        lines.push(format!("resumed: {} from an earlier run", summary.resumed_bytes));
    }
    if summary.damaged_bytes > Bytes(0) {
        let damaged = summary.damaged_bytes;
        lines.push(format!("damaged: {damaged} from an earlier run, sent again"));
    }
    if summary.special_files_skipped > 0 {
        let what = count(summary.special_files_skipped, "special file", "special files");
        lines.push(format!("skipped {what} (sockets, devices, FIFOs)"));
    }
    if summary.deleted > 0 {
        lines.push(format!("deleted {}", entries(summary.deleted)));
    }
    if summary.is_delete_limited {
        lines.push("nothing deleted: more entries than --max-delete allows".to_owned());
    }
    if failed_entries(summary) > 0 {
        let vanished = match summary.vanished_files {
            0 => String::new(),
            n => format!(" ({} vanished from the source)", grouped(n)),
        };
        lines.push(format!("failed: {}{vanished}", entries(failed_entries(summary))));
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
    fn plain_copy_is_one_line() {
        assert_eq!(
            lines(&summary(), false),
            ["copied 53 363 files, 664.1 MiB in 3.2 s: 1.74 Gbit/s goodput over 4 streams, \
                 0 retransmits"]
        );
    }

    #[test]
    fn short_copy_has_neither_rate_nor_limit() {
        let mut summary = summary();
        summary.limited_by_text = "reading the source".to_owned();
        (summary.files, summary.bytes) = (1, Bytes(6));
        assert_eq!(lines(&summary, false), ["copied 1 file, 6 B in 3.2 s"]);
        (summary.bytes, summary.elapsed) = (Bytes::mib(9), Duration::from_millis(300));
        assert_eq!(lines(&summary, true), ["copied 1 file, 9.0 MiB in 0.3 s"]);
    }

    #[test]
    fn local_copy_is_in_bytes_per_second() {
        assert_eq!(
            lines(&summary(), true),
            ["copied 53 363 files, 664.1 MiB in 3.2 s: 217.6 MB/s"]
        );
    }

    #[test]
    fn each_fact_has_its_line() {
        let mut summary = summary();
        (summary.files, summary.streams, summary.retransmits) = (1, 1, 1);
        (summary.skipped_files, summary.skipped_bytes) = (12, Bytes::mib(3));
        (summary.left_out_files, summary.left_out_bytes) = (2, Bytes::mib(1));
        summary.resumed_bytes = Bytes(1_288_490_189);
        summary.damaged_bytes = Bytes::mib(1);
        (summary.special_files_skipped, summary.symlinks_created) = (1, 2);
        (summary.failed_files, summary.vanished_files) = (3, 1);
        summary.limited_by_text = "writing the destination".to_owned();
        assert_eq!(
            lines(&summary, false),
            [
                "copied 1 file and 2 symlinks, 664.1 MiB (those of failed files included) in 3.2 s: \
                 1.74 Gbit/s goodput over 1 stream, 1 retransmit",
                "skipped 12 unchanged files (3.0 MiB)",
                "left out 2 files (1.0 MiB)",
                "resumed: 1.2 GiB from an earlier run",
                "damaged: 1.0 MiB from an earlier run, sent again",
                "skipped 1 special file (sockets, devices, FIFOs)",
                "failed: 3 entries (1 vanished from the source)",
                "limited by: writing the destination",
            ]
        );
    }

    #[test]
    fn nothing_to_copy_has_no_limit() {
        let mut summary = Summary::default();
        (summary.skipped_files, summary.skipped_bytes) = (1, Bytes(10));
        summary.limited_by_text = "the network".to_owned();
        assert_eq!(lines(&summary, false), ["nothing to copy", "skipped 1 unchanged file (10 B)"]);
    }

    #[test]
    fn failed_copy_without_files_has_no_rate() {
        let mut summary = Summary::default();
        (summary.failed_files, summary.bytes) = (1, Bytes(9));
        assert_eq!(lines(&summary, false), ["nothing copied", "failed: 1 entry"]);
        assert_eq!(plan_lines(&summary), ["nothing would be copied", "failed: 1 entry"]);
        summary.symlinks_created = 1;
        assert_eq!(lines(&summary, false), ["created 1 symlink", "failed: 1 entry"]);
    }

    #[test]
    fn entries_without_content_are_created() {
        let mut summary = Summary::default();
        summary.dirs_created = 2;
        assert_eq!(lines(&summary, false), ["created 2 directories"]);
        (summary.hard_links, summary.hard_links_created) = (3, 2);
        (summary.special_files, summary.special_files_created) = (2, 1);
        assert_eq!(lines(&summary, false), ["created 2 hard links and 1 special file"]);
        (summary.files, summary.bytes) = (1, Bytes(3));
        let copied = "copied 1 file, 2 hard links and 1 special file, 3 B in 0.0 s";
        assert_eq!(lines(&summary, false), [copied]);
    }

    #[test]
    fn linked_files_do_not_count_as_skipped() {
        let mut summary = Summary::default();
        (summary.skipped_files, summary.skipped_bytes) = (3, Bytes(30));
        (summary.linked_files, summary.linked_bytes) = (2, Bytes(20));
        summary.dirs_created = 1;
        assert_eq!(
            lines(&summary, false),
            [
                "created 1 directory",
                "linked 2 files to earlier copies (20 B)",
                "skipped 1 unchanged file (10 B)"
            ]
        );
        summary.dirs_created = 0;
        assert_eq!(lines(&summary, false)[0], "linked 2 files to earlier copies (20 B)");
    }

    #[test]
    fn limit_of_deletions_is_no_failed_entry() {
        let mut summary = Summary::default();
        (summary.files, summary.bytes) = (1, Bytes(3));
        (summary.failed_files, summary.is_delete_limited) = (1, true);
        let limited = "nothing deleted: more entries than --max-delete allows";
        assert_eq!(lines(&summary, false), ["copied 1 file, 3 B in 0.0 s", limited]);
        assert_eq!(plan_lines(&summary), ["nothing to copy", limited]);
        summary.failed_files = 2;
        assert_eq!(lines(&summary, false)[2], "failed: 1 entry");
    }

    #[test]
    fn session_is_one_line() {
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
            "1 file and 1 symlink, 1000 B (those of failed files included) in 1.0 s, 2 entries failed"
        );
    }

    /// Returns a gathering from three sources, `failed` of which failed.
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
    fn gathering_names_the_number_of_sources() {
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
    fn plan_counts_entries() {
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
