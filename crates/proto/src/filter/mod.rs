//! Filter rules: rsync's syntax and meaning.
//!
//! Rules are tried in order, and the first that matches decides. The caller resolves and
//! reads merge files.

mod pattern;
mod rule;

pub use pattern::Pattern;
pub use rule::{MatchRule, MergeFile, RuleError, Side, Sides};

use crate::limits::MAX_FILTER_RULES_BYTES;
use rule::{Defaults, Parsed, Syntax, lines, parse};
use std::sync::Arc;

/// Maximum nesting depth of merge files. (rsync's MAX_MERGE_DEPTH)
const MAX_MERGE_DEPTH: usize = 32;

/// Maximum number of merge files per directory. (chosen: far more than users name)
const MAX_DIR_MERGES: usize = 64;

/// Names that CVS ignores, and those of other version control. (rsync(1), --cvs-exclude)
const CVS_NAMES: &[u8] = b"RCS SCCS CVS CVS.adm RCSLOG cvslog.* tags TAGS .make.state \
    .nse_depinfo *~ #* .#* ,* _$* *$ *.old *.bak *.BAK *.orig *.rej .del-* *.a *.olb *.o *.obj \
    *.so *.exe *.Z *.elc *.ln core .svn/ .git/ .hg/ .bzr/";

/// A rule as the user gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Kind of the text.
    pub kind: GivenKind,
    /// Text of the rule, or name of a file.
    pub text: Vec<u8>,
}

/// Kind of a rule that the user gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenKind {
    /// Rule with its name, as of `--filter`.
    Rule,
    /// Pattern as of `--include` (true) or `--exclude`.
    Pattern(bool),
    /// File of such patterns.
    File(bool),
}

/// Content of a file of rules; `None` if it does not exist.
pub type ReadFile<'r> = &'r mut dyn FnMut(&[u8]) -> Result<Option<Vec<u8>>, String>;

/// Element of a list of rules.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Match(Arc<MatchRule>),
    /// Rules of the file of this index in the current directory.
    DirMerge(usize),
}

/// A file that is read in each directory.
#[derive(Debug, Clone)]
struct DirMerge {
    file: Arc<MergeFile>,
    rules: Option<Arc<DirRules>>,
}

/// Rules of a file in a directory, before those of the directories above.
#[derive(Debug)]
struct DirRules {
    items: Vec<Item>,
    outer: Option<Arc<DirRules>>,
    /// Size of the files of these rules and the outer ones.
    bytes: usize,
}

/// Rules that are in force in a directory.
#[derive(Debug, Clone, Default)]
pub struct FilterScope {
    items: Arc<Vec<Item>>,
    merges: Vec<DirMerge>,
    /// Absolute path of the root, without its first slash, with one at its end.
    root: Arc<Vec<u8>>,
    options: FilterOptions,
}

/// Options of parsing.
#[derive(Debug, Clone, Copy, Default)]
pub struct FilterOptions {
    /// Rules without a side hold for the sender only (`--delete-excluded`).
    pub deletes_excluded: bool,
}

/// Parser of a list of rules, and of the files that it names.
struct Parser<'p> {
    read: ReadFile<'p>,
    merges: &'p mut Vec<DirMerge>,
    /// Index of the first merge file that this list names.
    first_merge: usize,
    options: FilterOptions,
    /// Directory of the rules, relative to the root.
    base: &'p [u8],
    /// Bytes that may still be read from files, since a file may include itself repeatedly.
    budget: usize,
}

/// Result of parsing a file.
#[derive(Debug, Default)]
struct ParsedList {
    items: Vec<Item>,
    /// True if the file has a clear rule: the rules of the parent directories are void.
    is_cleared: bool,
}

impl Parser<'_> {
    fn add(
        &mut self,
        list: &mut ParsedList,
        text: &[u8],
        (syntax, defaults): (Syntax, &Defaults),
        depth: usize,
    ) -> Result<(), RuleError> {
        match parse(text, syntax, defaults, self.base)? {
            Parsed::Match(rule) => self.push(list, rule),
            Parsed::Clear => {
                *list = ParsedList { is_cleared: true, ..ParsedList::default() };
                self.merges.truncate(self.first_merge);
            }
            Parsed::Merge(file) => {
                if depth >= MAX_MERGE_DEPTH {
                    return Err(RuleError::new("files of rules are nested too deep"));
                }
                self.exclude_itself(list, &file)?;
                let syntax = Syntax::Rule;
                self.add_file(list, &file.name, (syntax, &file.defaults), depth + 1)?;
            }
            Parsed::DirMerge(file) => {
                self.exclude_itself(list, &file)?;
                // A merge file that is named again keeps the position of its first mention.
                if self.merges.iter().all(|merge| merge.file.name != file.name) {
                    if self.merges.len() >= MAX_DIR_MERGES {
                        let text =
                            format!("more than {MAX_DIR_MERGES} files of rules per directory");
                        return Err(RuleError::new(text));
                    }
                    list.items.push(Item::DirMerge(self.merges.len()));
                    self.merges.push(DirMerge { file: Arc::new(file), rules: None });
                }
            }
            Parsed::CvsNames(words) => {
                for (_, name) in lines(CVS_NAMES, &words) {
                    self.add(list, name, (Syntax::Rule, &words), depth)?;
                }
            }
        }
        Ok(())
    }

    fn push(&self, list: &mut ParsedList, mut rule: MatchRule) {
        if self.options.deletes_excluded && rule.sides.is_empty() {
            rule.sides = Sides::SENDER;
        }
        list.items.push(Item::Match(Arc::new(rule)));
    }

    /// Adds the rule that excludes a file of rules.
    fn exclude_itself(&self, list: &mut ParsedList, file: &MergeFile) -> Result<(), RuleError> {
        if !file.excludes_itself {
            return Ok(());
        }
        let name = file.name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let parsed = parse(name, Syntax::Pattern(false), &Defaults::default(), b"")?;
        if let Parsed::Match(rule) = parsed {
            self.push(list, rule);
        }
        Ok(())
    }

    fn add_file(
        &mut self,
        list: &mut ParsedList,
        name: &[u8],
        how: (Syntax, &Defaults),
        depth: usize,
    ) -> Result<(), RuleError> {
        let content = (self.read)(name).map_err(RuleError::new)?;
        let shown = String::from_utf8_lossy(name);
        let Some(content) = content else {
            return Err(RuleError::new(format!("the file of rules {shown} does not exist")));
        };
        self.add_content(list, &content, (&shown, how), depth)
    }

    fn add_content(
        &mut self,
        list: &mut ParsedList,
        content: &[u8],
        (shown, how): (&str, (Syntax, &Defaults)),
        depth: usize,
    ) -> Result<(), RuleError> {
        self.budget = self.budget.checked_sub(content.len()).ok_or_else(|| {
            let limit = MAX_FILTER_RULES_BYTES >> 10;
            RuleError::new(format!("the rules in force exceed {limit} KiB with the file {shown}"))
        })?;
        for (number, rule) in lines(content, how.1) {
            let added = self.add(list, rule, how, depth);
            added.map_err(|e| e.from(&format!("{shown}:{number}")))?;
        }
        Ok(())
    }
}

impl FilterScope {
    /// Parses the rules that a user gave, in order; `read` returns files that they name.
    ///
    /// An empty rule or pattern does not count, as of a variable of a shell that is not set.
    ///
    /// # Errors
    /// The first rule that cannot be parsed.
    pub fn parse(
        given: &[Given],
        options: FilterOptions,
        read: ReadFile<'_>,
    ) -> Result<Self, RuleError> {
        let (mut merges, mut list) = (Vec::new(), ParsedList::default());
        let mut parser = Parser {
            read,
            merges: &mut merges,
            first_merge: 0,
            options,
            base: b"",
            budget: MAX_FILTER_RULES_BYTES,
        };
        let none = Defaults::default();
        for Given { kind, text } in given {
            match *kind {
                GivenKind::Rule | GivenKind::Pattern(_) if text.is_empty() => {}
                GivenKind::Rule => parser.add(&mut list, text, (Syntax::Rule, &none), 0)?,
                GivenKind::Pattern(is_include) => {
                    parser.add(&mut list, text, (Syntax::Pattern(is_include), &none), 0)?;
                }
                GivenKind::File(is_include) => {
                    parser.add_file(&mut list, text, (Syntax::Pattern(is_include), &none), 0)?;
                }
            }
        }
        Ok(Self { items: Arc::new(list.items), merges, root: Arc::default(), options })
    }

    /// Sets the absolute path of the transfer's root, for rules that look at absolute paths.
    #[must_use]
    pub fn with_root(self, root: &[u8]) -> Self {
        let root = root.strip_prefix(b"/").unwrap_or(root);
        let root = if root.is_empty() { Vec::new() } else { [root, b"/"].concat() };
        Self { root: Arc::new(root), ..self }
    }

    /// Returns the rules for a transfer that deletes excluded entries.
    ///
    /// Rules without a side then hold for the sender only.
    #[must_use]
    pub fn for_delete_excluded(self) -> Self {
        let for_sender = |item: &Item| match item {
            Item::Match(rule) if rule.sides.is_empty() => {
                Item::Match(Arc::new(MatchRule { sides: Sides::SENDER, ..(**rule).clone() }))
            }
            item => item.clone(),
        };
        let items = Arc::new(self.items.iter().map(for_sender).collect());
        Self { items, options: FilterOptions { deletes_excluded: true }, ..self }
    }

    /// Returns the rules as text, one each, for another side that parses them.
    #[must_use]
    pub fn to_texts(&self) -> Vec<Vec<u8>> {
        let text = |item: &Item| match item {
            Item::Match(rule) => rule.to_text(),
            Item::DirMerge(at) => self.merges[*at].file.to_text(),
        };
        self.items.iter().map(text).collect()
    }

    /// True if there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the rules in force in a directory beneath this one; `read` returns its files.
    ///
    /// `dir` is relative to the root of the transfer; empty for the root itself.
    ///
    /// # Errors
    /// The first rule that cannot be parsed, and errors of `read`.
    pub fn enter(&self, dir: &[u8], read: ReadFile<'_>) -> Result<Self, RuleError> {
        let mut merges = self.merges.clone();
        // A file may name further ones, which are read here, too.
        let mut at = 0;
        while at < merges.len() {
            let DirMerge { file, rules } = merges[at].clone();
            let mut outer = rules.filter(|_| file.is_inherited);
            let mut list = ParsedList::default();
            let in_force = |merge: &DirMerge| merge.rules.as_ref().map_or(0, |rules| rules.bytes);
            let before = merges.iter().map(in_force).sum();
            let budget = MAX_FILTER_RULES_BYTES.saturating_sub(before);
            let mut left = budget;
            if let Some(content) = read(&file.name).map_err(RuleError::new)? {
                let (options, first_merge) = (self.options, merges.len());
                let (read, merges) = (&mut *read, &mut merges);
                let mut parser = Parser { read, merges, first_merge, options, base: dir, budget };
                let shown = String::from_utf8_lossy(&file.name);
                let shown = match dir {
                    b"" => shown.into_owned(),
                    dir => format!("{}/{shown}", String::from_utf8_lossy(dir)),
                };
                let how = (shown.as_str(), (Syntax::Rule, &file.defaults));
                parser.add_content(&mut list, &content, how, 0)?;
                left = parser.budget;
            }
            if list.is_cleared {
                outer = None;
            }
            merges[at].rules = match list.items.is_empty() {
                true => outer,
                false => {
                    let outer_bytes = outer.as_ref().map_or(0, |outer| outer.bytes);
                    let bytes = outer_bytes + (budget - left);
                    Some(Arc::new(DirRules { items: list.items, outer, bytes }))
                }
            };
            at += 1;
        }
        let (items, root) = (Arc::clone(&self.items), Arc::clone(&self.root));
        Ok(Self { items, merges, root, options: self.options })
    }

    /// True if an entry is excluded on a side; its path is relative to the root of the transfer.
    #[must_use]
    pub fn excludes(&self, path: &[u8], is_dir: bool, side: Side) -> bool {
        let asked = MatchTarget { path, is_dir, side, root: &self.root, in_deleted: false };
        self.decide(&self.items, &asked) == Some(false)
    }

    /// True if an extended attribute is excluded on a side.
    ///
    /// As in rsync, only rules with the modifier `x` apply, and no per-directory merge files.
    #[must_use]
    pub fn excludes_xattr(&self, name: &[u8], side: Side) -> bool {
        let decided = self.items.iter().find_map(|item| match item {
            Item::Match(rule) if rule.is_xattr && rule.sides.admits(side) => {
                (rule.pattern.matches(name, false) != rule.is_negated).then_some(rule.is_include)
            }
            _ => None,
        });
        decided == Some(false)
    }

    /// True if rules protect an entry of the receiver from deletion.
    ///
    /// Perishable rules do not count in a directory that is deleted itself.
    #[must_use]
    pub fn protects(&self, path: &[u8], is_dir: bool, in_deleted: bool) -> bool {
        let asked =
            MatchTarget { path, is_dir, side: Side::Receiver, root: &self.root, in_deleted };
        self.decide(&self.items, &asked) == Some(false)
    }

    /// Returns what the first matching rule decides: true to include.
    fn decide(&self, items: &[Item], asked: &MatchTarget<'_>) -> Option<bool> {
        items.iter().find_map(|item| match item {
            Item::Match(rule) => asked.is_matched(rule).then_some(rule.is_include),
            Item::DirMerge(at) => {
                let innermost = self.merges[*at].rules.as_ref();
                std::iter::successors(innermost, |rules| rules.outer.as_ref())
                    .find_map(|rules| self.decide(&rules.items, asked))
            }
        })
    }

    /// True if a rule that the receiver can evaluate excludes an entry.
    ///
    /// These are the rules before the first per-directory merge file or absolute rule: the receiver
    /// has neither that file nor the absolute path of the source.
    #[must_use]
    pub fn surely_excludes(&self, path: &[u8], is_dir: bool) -> bool {
        let (side, in_deleted) = (Side::Sender, false);
        let asked = MatchTarget { path, is_dir, side, root: &self.root, in_deleted };
        let is_rule = |item: &&Item| match item {
            Item::Match(rule) => !(rule.is_absolute && rule.pattern.matches_full_path()),
            Item::DirMerge(_) => false,
        };
        let before = self.items.iter().take_while(is_rule).cloned().collect::<Vec<_>>();
        self.decide(&before, &asked) == Some(false)
    }
}

/// Entry that is matched against the rules.
struct MatchTarget<'a> {
    path: &'a [u8],
    is_dir: bool,
    side: Side,
    root: &'a [u8],
    /// True in a directory that is deleted.
    in_deleted: bool,
}

impl MatchTarget<'_> {
    fn is_matched(&self, rule: &MatchRule) -> bool {
        if rule.is_xattr || self.in_deleted && rule.is_perishable {
            return false;
        }
        if !rule.sides.admits(self.side) {
            return false;
        }
        let matches = match rule.is_absolute && rule.pattern.matches_full_path() {
            true => rule.pattern.matches(&[self.root, self.path].concat(), self.is_dir),
            false => rule.pattern.matches(self.path, self.is_dir),
        };
        matches != rule.is_negated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(rules: &[&str]) -> Result<FilterScope, RuleError> {
        let given = |text: &&str| Given { kind: GivenKind::Rule, text: text.as_bytes().to_vec() };
        let given: Vec<_> = rules.iter().map(given).collect();
        FilterScope::parse(&given, FilterOptions::default(), &mut |name| match name {
            b"rules" => Ok(Some(b"# a comment\n\n- *.o\nwrong\n".to_vec())),
            b"loop" => Ok(Some(b"merge loop\n".to_vec())),
            _ => Ok(None),
        })
    }

    fn texts(rules: &[&str]) -> Vec<String> {
        let texts = parse(rules).unwrap().to_texts().into_iter();
        texts.map(|text| String::from_utf8(text).unwrap()).collect()
    }

    #[test]
    fn text_of_a_list_parses_to_the_same_list() {
        let rules = ["exclude *.o", "+,! /a/", "hide_x", "P y", ":en- .rules", "dir-merge,w .more"];
        let short = ["- *.o", "+! /a/", "-s x", "-r y", "- .rules", ":-n .rules", ":w .more"];
        assert_eq!(texts(&rules), short);
        assert_eq!(texts(&short), short);
        assert_eq!(texts(&["-rs x", ":rs .rules"]), ["-sr x", ":sr .rules"]);
        assert_eq!(texts(&["- a", "clear", "- b"]), ["- b"]);
        for (rule, git) in [("-C", "-p .git/"), ("-sC", "-sp .git/"), ("+C", "+p .git/")] {
            assert!(texts(&[rule]).contains(&git.to_owned()), "{rule}");
        }
    }

    #[test]
    fn empty_rules_and_patterns_do_not_count() {
        assert_eq!(texts(&["", "- a", ""]), ["- a"]);
        for kind in [GivenKind::Pattern(false), GivenKind::Pattern(true)] {
            let given = [Given { kind, text: Vec::new() }];
            let parsed = FilterScope::parse(&given, FilterOptions::default(), &mut |_| Ok(None));
            assert!(parsed.unwrap().is_empty());
        }
    }

    #[test]
    fn rules_protect_what_they_exclude_unless_it_is_deleted() {
        let rules = parse(&["-s a", "P b", "-p c", "- d", "+ e"]).unwrap();
        let protects = |rules: &FilterScope, in_deleted| {
            let of = |name: &&str| rules.protects(name.as_bytes(), false, in_deleted);
            ["a", "b", "c", "d", "e"].into_iter().filter(of).collect::<String>()
        };
        assert_eq!(protects(&rules, false), "bcd");
        assert_eq!(protects(&rules, true), "bd");
        assert_eq!(protects(&rules.for_delete_excluded(), false), "b");
    }

    #[test]
    fn rule_with_both_sides_holds_for_both_in_any_case() {
        let rules = parse(&["-sr a", "-rs b", ":sr .rules"]).unwrap().for_delete_excluded();
        let rules = rules.enter(b"", &mut |_| Ok(Some(b"- c\n".to_vec()))).unwrap();
        for name in [b"a", b"b", b"c"] {
            assert!(rules.protects(name, false, false));
            assert!(rules.excludes(name, false, Side::Sender));
        }
    }

    #[test]
    fn cleared_merge_file_is_not_read_unless_named_again() {
        let rules = [": .rules", "!", ": .rules", "- b"];
        assert_eq!(texts(&rules), rules[2..]);
        assert_eq!(texts(&[": .rules", "- b", "!"]), [""; 0]);
        let mut read = |name: &[u8]| match name {
            b".rules" => Ok(Some(b": .more\n!\n: .more\n- a\n".to_vec())),
            b".more" => Ok(Some(b"- c\n".to_vec())),
            _ => Err("a file that no rule names".to_owned()),
        };
        let scope = parse(&rules).unwrap().enter(b"", &mut read).unwrap();
        let excluded = |name: &&str| scope.excludes(name.as_bytes(), false, Side::Sender);
        assert_eq!(["a", "b", "c"].iter().copied().filter(excluded).count(), 3);
        let cleared = parse(&[": wrong", "!"]).unwrap();
        assert!(cleared.enter(b"", &mut read).is_ok());
    }

    #[test]
    fn errors_name_file_line_and_column() {
        for (rule, text) in [
            ("x *.o", "unknown filter rule \"x *.o\""),
            ("-q a", "the modifier 'q' is not valid in \"-q a\""),
            ("- ", "the rule has no pattern"),
            ("merge", "the rule names no file"),
            ("merge none", "the file of rules none does not exist"),
            ("merge rules", "rules:4:1: unknown filter rule \"wrong\""),
            ("merge loop", "nested too deep"),
            ("! x", "nothing may follow a clear rule"),
            ("Hs x", "the modifier 's' is not valid"),
            ("- a\0- b", "the rule has a NUL"),
        ] {
            let error = parse(&[rule]).unwrap_err().to_string();
            assert!(error.contains(text), "{rule}: {error}");
        }
    }

    #[test]
    fn rules_hold_for_their_side() {
        let scope = parse(&["H a", "P b", "-! *"]).unwrap();
        let excluded = |path: &str, side| scope.excludes(path.as_bytes(), false, side);
        assert!(excluded("a", Side::Sender) && !excluded("a", Side::Receiver));
        assert!(!excluded("b", Side::Sender) && excluded("b", Side::Receiver));
        assert!(!excluded("c", Side::Sender));
    }

    #[test]
    fn absolute_rules_look_above_the_root() {
        let scope = parse(&["-/ /home/me/x", "-/ y"]).unwrap().with_root(b"/home/me");
        assert!(scope.excludes(b"x", false, Side::Sender));
        assert!(scope.excludes(b"d/y", false, Side::Sender));
        assert!(!scope.excludes(b"home/me/x", false, Side::Sender));
    }

    #[test]
    fn absolute_rules_of_a_file_look_above_its_directory() {
        for (merge, rule) in
            [(": .rules", "-/ /home/me/sub/x\n"), (":/ .rules", "- /home/me/sub/x\n")]
        {
            let scope = parse(&[merge]).unwrap().with_root(b"/home/me");
            let scope = scope.enter(b"sub", &mut |_| Ok(Some(rule.as_bytes().to_vec()))).unwrap();
            assert!(scope.excludes(b"sub/x", false, Side::Sender), "{merge}");
            assert!(!scope.excludes(b"sub/y", false, Side::Sender), "{merge}");
        }
    }

    #[test]
    fn files_of_a_hostile_tree_take_bounded_memory() {
        let scope = parse(&[": .rules"]).unwrap();
        let many = (0..100).map(|number| format!(": file-{number}\n")).collect::<String>();
        let large = "- a\n".repeat(MAX_FILTER_RULES_BYTES / 10);
        for (content, text) in [
            (". .rules\n. .rules\n", "nested too deep"),
            (&*many, "more than 64 files of rules per directory"),
            (&*large.repeat(3), "the rules in force exceed 512 KiB"),
        ] {
            let mut read =
                |name: &[u8]| Ok((name == b".rules").then(|| content.as_bytes().to_vec()));
            let error = scope.enter(b"dir", &mut read).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        // Beneath each other.
        let mut read = |_: &[u8]| Ok(Some(large.as_bytes().to_vec()));
        let inner = scope.enter(b"a", &mut read).and_then(|outer| outer.enter(b"a/b", &mut read));
        let error = inner.unwrap().enter(b"a/b/c", &mut read).unwrap_err().to_string();
        assert!(error.contains("the rules in force exceed"), "{error}");
    }

    #[test]
    fn certain_exclusions_need_no_later_rules() {
        let scope = parse(&["- a", ": .rules", "- b"]).unwrap();
        assert!(scope.surely_excludes(b"a", false));
        assert!(!scope.surely_excludes(b"b", false));
    }
}
