//! Ignore files of the directory that is walked: patterns as in `.gitignore`.
//!
//! The last pattern that matches decides, and those of an inner directory take precedence over
//! those of outer ones. Entries beneath an ignored directory are not examined.

use bankfull_proto::limits::MAX_FILTER_RULES_BYTES;
use bankfull_proto::wire::control::WalkRules;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Content of a file of the directory; `None` if it does not exist.
type ReadFile<'r> = &'r mut dyn FnMut(&[u8]) -> Result<Option<Vec<u8>>, String>;

/// Patterns in force in a directory.
#[derive(Debug, Clone, Default)]
pub(super) struct DirIgnores {
    /// Names of ignore files.
    names: Arc<Vec<Vec<u8>>>,
    innermost: Option<Arc<Patterns>>,
}

/// Patterns of a file, before those of outer directories.
#[derive(Debug)]
struct Patterns {
    patterns: Gitignore,
    /// Path of the directory in the transfer.
    dir: Vec<u8>,
    outer: Option<Arc<Patterns>>,
    /// Size of the files of these patterns and the outer ones.
    bytes: usize,
}

impl DirIgnores {
    /// Returns the patterns above all sources: none.
    pub(super) fn new(walk: &WalkRules) -> Self {
        let names = walk.ignore_files.iter().flatten().map(|name| name.0.clone()).collect();
        Self { names: Arc::new(names), innermost: None }
    }

    /// True if no directory has patterns.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// True if the patterns leave out an entry with a path in the transfer.
    pub(super) fn ignores(&self, path: &[u8], is_dir: bool) -> bool {
        let from_inside =
            std::iter::successors(self.innermost.as_ref(), |patterns| patterns.outer.as_ref());
        let decided = from_inside.map(|patterns| patterns.decide(path, is_dir));
        decided.flatten().next() == Some(true)
    }

    /// Returns the patterns in a directory with a path in the transfer; `read` returns its files.
    ///
    /// # Errors
    /// Names the file, and the line of a pattern that is invalid.
    pub(super) fn enter(&self, dir: &[u8], read: ReadFile<'_>) -> Result<Self, String> {
        let mut entered = self.clone();
        for name in self.names.iter() {
            let Some(content) = read(name)? else { continue };
            let shown = match dir {
                b"" => String::from_utf8_lossy(name).into_owned(),
                dir => format!("{}/{}", lossy(dir), lossy(name)),
            };
            let outer = entered.innermost.take();
            let bytes = content.len() + outer.as_ref().map_or(0, |outer| outer.bytes);
            if bytes > MAX_FILTER_RULES_BYTES {
                let limit = MAX_FILTER_RULES_BYTES >> 10;
                return Err(format!(
                    "the patterns in force exceed {limit} KiB with the file {shown}"
                ));
            }
            let (patterns, dir) = (parse(&content, &shown)?, dir.to_vec());
            entered.innermost = Some(Arc::new(Patterns { patterns, dir, outer, bytes }));
        }
        Ok(entered)
    }
}

impl Patterns {
    /// Returns true if the patterns leave an entry out, false if they keep it.
    fn decide(&self, path: &[u8], is_dir: bool) -> Option<bool> {
        let beneath = path.strip_prefix(&*self.dir)?;
        let beneath = beneath.strip_prefix(b"/").unwrap_or(beneath);
        match self.patterns.matched(Path::new(OsStr::from_bytes(beneath)), is_dir) {
            Match::None => None,
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Parses the patterns of a file.
fn parse(content: &[u8], shown: &str) -> Result<Gitignore, String> {
    let mut builder = GitignoreBuilder::new(".");
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    for (number, line) in content.split(|&byte| byte == b'\n').enumerate() {
        let invalid = |why: &str| format!("{shown}:{}: {why}", number + 1);
        let line = std::str::from_utf8(line).map_err(|_| invalid("the pattern is not UTF-8"))?;
        // As in git, no path has an empty component.
        if line.contains("//") {
            continue;
        }
        let line = literal_braces(line.strip_suffix('\r').unwrap_or(line));
        builder.add_line(None, &line).map_err(|e| invalid(&e.to_string()))?;
    }
    builder.build().map_err(|e| format!("{shown}: {e}"))
}

/// Escapes braces, which stand for themselves in git.
fn literal_braces(line: &str) -> String {
    let mut escaped = String::with_capacity(line.len());
    let (mut is_escaped, mut is_class) = (false, false);
    for c in line.chars() {
        if !is_escaped && !is_class && matches!(c, '{' | '}') {
            escaped.push('\\');
        }
        match c {
            '[' if !is_escaped => is_class = true,
            ']' if !is_escaped => is_class = false,
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use bankfull_proto::wire::control::PathBytes;

    fn names() -> DirIgnores {
        let names = vec![PathBytes(b".gitignore".to_vec())];
        DirIgnores::new(&WalkRules { ignore_files: Some(names), ..WalkRules::default() })
    }

    fn enter(outer: &DirIgnores, dir: &str, content: &str) -> Result<DirIgnores, String> {
        outer.enter(dir.as_bytes(), &mut |_| Ok(Some(content.as_bytes().to_vec())))
    }

    #[test]
    fn inner_file_goes_before_the_outer_one() {
        let outer = enter(&names(), "s", "*.o\n/top\nkept{1}\n").unwrap();
        let inner = enter(&outer, "s/d", "!a.o\n").unwrap();
        let ignored = |scope: &DirIgnores, path: &str| scope.ignores(path.as_bytes(), false);
        assert!(ignored(&outer, "s/a.o") && ignored(&outer, "s/top"));
        assert!(!ignored(&inner, "s/d/a.o") && ignored(&inner, "s/d/b.o"));
        assert!(!ignored(&inner, "s/d/top"));
        assert!(ignored(&outer, "s/kept{1}") && !ignored(&outer, "s/kept1"));
    }

    #[test]
    fn invalid_pattern_is_named_by_file_and_line() {
        let error = enter(&names(), "s", "a\nb\\").unwrap_err();
        assert!(error.starts_with("s/.gitignore:2: "), "{error}");
        let error = names().enter(b"", &mut |_| Ok(Some(b"\xff".to_vec()))).unwrap_err();
        assert_eq!(error, ".gitignore:1: the pattern is not UTF-8");
    }

    #[test]
    fn patterns_of_nested_directories_are_bounded() {
        let content = format!("#{}\n", "x".repeat(100 << 10));
        let mut scope = names();
        for depth in 0..5 {
            scope = enter(&scope, &format!("{depth}"), &content).unwrap();
        }
        assert!(enter(&scope, "6", &content).unwrap_err().contains("exceed 512 KiB"));
    }
}
