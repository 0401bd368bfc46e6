//! Language of comments, documents and test names, as far as a machine can judge it.

use super::files::{Fallible, TextFile, files, none, numbered, rust_files};

/// Words that no doc comment opens with: it opens with a noun phrase or a third-person verb.
const FORBIDDEN_OPENERS: [&str; 15] = [
    "What",
    "Whether",
    "Who",
    concat!("Who", "ever"),
    "Whose",
    "How",
    "So",
    "Those",
    "Where",
    "It",
    "Of",
    "And",
    "Nor",
    "But",
    "They",
];

/// Words that stand for people, or for terms that `docs/glossary.md` replaces.
const FORBIDDEN_WORDS: [&str; 11] = [
    concat!("kno", "ck"),
    concat!("tel", "ler"),
    concat!("gla", "nce"),
    concat!("new", "comer"),
    concat!("quic", "sight"),
    concat!("who", "ever"),
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("any", "body"),
    concat!("is ou", "rs"),
    concat!("of ou", "rs"),
];

/// Files that quote: the table of old names.
const MAY_QUOTE: [&str; 1] = ["docs/decisions/0010-names.md"];

const MAX_FIRST_SENTENCE_WORDS: usize = 15;
const MAX_TEST_NAME_CHARS: usize = 60;

#[test]
fn doc_comments_open_with_a_noun_or_a_verb() -> Fallible<()> {
    let mut findings = Vec::new();
    for (file, comments) in doc_comments()? {
        for (line, text) in comments {
            let opener = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            if FORBIDDEN_OPENERS.contains(&opener) {
                findings.push(format!("{file}:{line}: opens with \"{opener}\""));
            }
        }
    }
    none(&findings)
}

#[test]
fn doc_comments_have_a_short_first_sentence() -> Fallible<()> {
    let mut findings = Vec::new();
    for (file, comments) in doc_comments()? {
        for (line, text) in comments {
            let words = first_sentence_words(&text);
            if words > MAX_FIRST_SENTENCE_WORDS {
                findings.push(format!("{file}:{line}: first sentence of {words} words"));
            }
        }
    }
    none(&findings)
}

#[test]
fn texts_have_no_forbidden_words() -> Fallible<()> {
    let mut findings = Vec::new();
    let files = files(|_| true)?;
    let is_missing = |name: &&&str| !files.iter().any(|file| file.name == **name);
    findings.extend(MAY_QUOTE.iter().filter(is_missing).map(|name| format!("{name} is missing")));
    for file in files.iter().filter(|file| !MAY_QUOTE.contains(&&*file.name)) {
        for word in FORBIDDEN_WORDS {
            let has_it = |line: &str| line.to_ascii_lowercase().contains(word);
            findings.extend(file.lines_where(has_it, word));
        }
    }
    none(&findings)
}

#[test]
fn test_names_are_short() -> Fallible<()> {
    let mut findings = Vec::new();
    for file in rust_files()? {
        let mut is_test = false;
        for (at, line) in numbered(&file.text) {
            let name = line.trim().strip_prefix("fn ").and_then(|rest| rest.split('(').next());
            match name.filter(|_| is_test) {
                Some(name) if name.chars().count() > MAX_TEST_NAME_CHARS => {
                    findings.push(format!("{}:{at}: a test name of {}", file.name, name.len()));
                }
                _ => {}
            }
            let is_attribute = line.trim().starts_with("#[");
            is_test = line.trim() == "#[test]" || (is_test && is_attribute);
        }
    }
    none(&findings)
}

/// Line and first paragraph of a doc comment.
type Comment = (usize, String);

/// Returns the doc comments of each Rust and Java file.
fn doc_comments() -> Fallible<Vec<(String, Vec<Comment>)>> {
    let rust = rust_files()?.into_iter().map(|file| {
        let comments = rust_comments(&file);
        (file.name, comments)
    });
    let java = files(|path| path.extension().is_some_and(|e| e == "java"))?;
    let java = java.into_iter().map(|file| {
        let comments = java_comments(&file);
        (file.name, comments)
    });
    Ok(rust.chain(java).collect())
}

fn rust_comments(file: &TextFile) -> Vec<Comment> {
    let mut comments: Vec<Comment> = Vec::new();
    let mut open = false;
    for (at, line) in numbered(&file.text) {
        let line = line.trim();
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        match text.map(str::trim) {
            Some("") | None => open = text.is_some() && open && !has_text(&comments),
            Some(text) if open => append(&mut comments, text),
            Some(text) => {
                // Only the first paragraph of a comment counts.
                let continues = at > 1 && is_doc(&file.text, at - 1);
                if !continues {
                    comments.push((at, text.to_owned()));
                    open = true;
                }
            }
        }
    }
    comments
}

fn has_text(comments: &[Comment]) -> bool {
    comments.last().is_some_and(|(_, text)| !text.is_empty())
}

fn append(comments: &mut [Comment], text: &str) {
    if let Some((_, paragraph)) = comments.last_mut() {
        paragraph.push(' ');
        paragraph.push_str(text);
    }
}

fn is_doc(text: &str, line: usize) -> bool {
    let line = text.lines().nth(line - 1).unwrap_or_default().trim();
    line.starts_with("///") || line.starts_with("//!")
}

fn java_comments(file: &TextFile) -> Vec<Comment> {
    let mut comments: Vec<Comment> = Vec::new();
    let mut inside = false;
    let mut in_first_paragraph = false;
    for (at, line) in numbered(&file.text) {
        let line = line.trim();
        if let Some(first) = line.strip_prefix("/**") {
            (inside, in_first_paragraph) = (true, true);
            comments.push((at, first.trim_end_matches("*/").trim().to_owned()));
        } else if inside && in_first_paragraph {
            let text = line.trim_end_matches("*/").trim_start_matches('*').trim();
            in_first_paragraph = !text.is_empty() && !text.starts_with('@') && text != "<p>";
            if in_first_paragraph {
                append(&mut comments, text);
            }
        }
        inside &= !line.ends_with("*/");
    }
    for (_, text) in &mut comments {
        *text = text.trim().to_owned();
    }
    comments
}

/// Words up to the first full stop, colon or semicolon; parentheses are not counted.
fn first_sentence_words(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut words = 0;
    for word in text.split_whitespace() {
        depth += word.matches('(').count();
        words += usize::from(depth == 0);
        let was_inside = depth > 0;
        depth = depth.saturating_sub(word.matches(')').count());
        let ends = word.ends_with(['.', ':', ';']) && !["e.g.", "i.e.", "vs."].contains(&word);
        if ends && (depth == 0 || !was_inside) {
            break;
        }
    }
    words
}

#[test]
fn first_sentences_are_measured() {
    assert_eq!(first_sentence_words("Rate of the path. More of it."), 4);
    assert_eq!(first_sentence_words("Rate (RFC 1, in bit/s) of it: more"), 3);
    let text = "/// A b\n/// c.\n///\n/// D.\nfn f() {}\n\n//! E\n".to_owned();
    let file = TextFile { name: String::new(), text };
    assert_eq!(rust_comments(&file), [(1, "A b c.".to_owned()), (7, "E".to_owned())]);
}
