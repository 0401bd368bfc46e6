//! Rules for every text file: lengths, leftovers, paths of a machine.

use super::files::{Fallible, files, none, rust_files};

const MAX_FILE_LINES: usize = 600;
const MAX_COLUMNS: usize = 100;

#[test]
fn files_and_lines_stay_short() -> Fallible<()> {
    let mut findings = Vec::new();
    for file in rust_files()? {
        let before_tests = file.text.lines().take_while(|line| line.trim() != "#[cfg(test)]");
        let lines = before_tests.count();
        if lines > MAX_FILE_LINES {
            findings
                .push(format!("{}:{lines}: {lines} lines, {MAX_FILE_LINES} allowed", file.name));
        }
        // rustfmt wraps code and this finds comments; a literal cannot be wrapped by either.
        let too_wide = |line: &str| is_too_wide(line) && !line.contains('"');
        findings.extend(file.lines_where(too_wide, "goes beyond column 100"));
    }
    // In Java nothing wraps by itself, and a literal is cut with a plus.
    for file in files(|path| path.extension().is_some_and(|e| e == "java"))? {
        findings.extend(file.lines_where(is_too_wide, "goes beyond column 100"));
    }
    none(&findings)
}

#[test]
fn nothing_is_left_undone_in_the_code() -> Fallible<()> {
    // Cut in two, so that this file does not find itself.
    let left_behind = [concat!("to", "do!"), concat!("unim", "plemented!"), concat!("db", "g!")];
    let mut findings = Vec::new();
    for file in rust_files()? {
        for needle in left_behind {
            let has_it = |line: &str| finds_word(line, needle);
            findings.extend(file.lines_where(has_it, needle));
        }
    }
    none(&findings)
}

#[test]
fn no_text_names_a_path_of_some_machine() -> Fallible<()> {
    let places = [concat!("/wo", "rk/"), concat!("/fa", "rm/")];
    let mut findings = Vec::new();
    for file in files(|_| true)? {
        for place in places {
            let has_it = |line: &str| finds_word(line, place);
            findings.extend(file.lines_where(has_it, place));
        }
    }
    none(&findings)
}

fn is_too_wide(line: &str) -> bool {
    line.chars().count() > MAX_COLUMNS
}

/// True if a line has `needle` where no word or path goes on into it.
fn finds_word(line: &str, needle: &str) -> bool {
    line.match_indices(needle).any(|(at, _)| !joins(line, at))
}

/// True if what is before `at` belongs to the same word or path.
pub(crate) fn joins(line: &str, at: usize) -> bool {
    line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.~}*".contains(c))
}

#[test]
fn word_is_found_at_its_beginning_only() {
    assert!(finds_word("see /place/x", "/place/") && !finds_word("some/place/x", "/place/"));
}
