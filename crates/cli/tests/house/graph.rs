//! Use-graph of each crate: no circle between folders, no arrow upward, none but parent and child.
//!
//! An edge leads from the file that names an item to the file that defines it: `use` declarations
//! and inline paths count, and re-exports are followed to the definition. Test code is left out.

use super::files::{Fallible, none, read, rust_files};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// Module path within its crate; empty for the crate root.
type Module = Vec<String>;

/// Crates to check, with their folders from the bottom up if an order is set.
const CRATES: [(&str, &[&str]); 8] = [
    ("chart", &[]),
    ("cli", &[]),
    ("control", &[]),
    (
        "engine",
        &[
            "base",
            "model",
            "stats",
            "file_io",
            "transport",
            "session",
            "tuning",
            "transfer",
            "run",
            "routes",
            "api",
        ],
    ),
    ("lab", &["base", "model", "topology", "tools", "scenario", "run", "report", "commands"]),
    ("proto", &[]),
    ("sim", &[]),
    ("sys", &[]),
];

/// Files of one circle: a parent and its children. (chosen: what a reader can hold in mind)
const MAX_CIRCLE_FILES: usize = 6;

/// One source file.
struct File {
    path: String,
    syntax: syn::File,
}

/// Modules of a crate and what they import.
struct Crate {
    files: BTreeMap<Module, File>,
    definitions: BTreeMap<Module, BTreeSet<String>>,
    imports: BTreeMap<Module, BTreeMap<String, Module>>,
}

/// Edges by module, each with one item that causes it.
type Edges = BTreeMap<Module, BTreeMap<Module, String>>;

#[test]
fn use_graph_has_one_direction() -> Fallible<()> {
    let mut findings = Vec::new();
    for (name, order) in CRATES {
        let krate = Crate::load(&format!("crates/{name}/src"))?;
        if krate.files.is_empty() {
            findings.push(format!("crates/{name}/src has no file"));
        }
        let edges = krate.edges();
        findings.extend(krate.circles_of_files(&edges));
        findings.extend(krate.circles_of_folders(name, &edges));
        findings.extend(krate.upward(name, order, &edges));
    }
    none(&findings)
}

#[test]
fn use_graph_order_names_every_folder() -> Fallible<()> {
    let mut findings = Vec::new();
    for (name, order) in CRATES.iter().filter(|(_, order)| !order.is_empty()) {
        let krate = Crate::load(&format!("crates/{name}/src"))?;
        let units: BTreeSet<&str> = krate.files.keys().filter_map(|m| unit(m)).collect();
        let listed: BTreeSet<&str> = order.iter().copied().collect();
        let differing = units.symmetric_difference(&listed);
        findings.extend(differing.map(|unit| format!("crates/{name}/src: {unit} is not in both")));
    }
    none(&findings)
}

impl Crate {
    fn load(root: &str) -> Fallible<Self> {
        let mut files = BTreeMap::new();
        for file in rust_files()?.into_iter().filter(|file| file.name.starts_with(root)) {
            let inside = file.name[root.len()..].trim_start_matches('/');
            let syntax = syn::parse_file(&file.text).map_err(|e| format!("{}: {e}", file.name))?;
            files.insert(module_of(inside), File { path: file.name, syntax });
        }
        files.retain(|module, _| module.last().is_none_or(|last| last != "tests"));
        let mut krate = Self { files, definitions: BTreeMap::new(), imports: BTreeMap::new() };
        krate.follow_path_attributes(root)?;
        for (module, file) in &krate.files {
            let names = file.syntax.items.iter().filter_map(defined_name).collect();
            krate.definitions.insert(module.clone(), names);
        }
        for module in krate.files.keys().cloned().collect::<Vec<_>>() {
            let imports = krate.imports_of(&module);
            krate.imports.insert(module, imports);
        }
        Ok(krate)
    }

    /// Adds modules whose file is named by `#[path = "…"]`.
    fn follow_path_attributes(&mut self, root: &str) -> Fallible<()> {
        let mut found = Vec::new();
        for (module, file) in &self.files {
            for item in &file.syntax.items {
                let Item::Mod(item) = item else { continue };
                let Some(name) = item.attrs.iter().find_map(path_attribute) else { continue };
                let dir = Path::new(&file.path).parent().unwrap_or(Path::new(root));
                let path = dir.join(name).display().to_string();
                let syntax = syn::parse_file(&read(&path)?)?;
                found.push((child(module, &item.ident.to_string()), File { path, syntax }));
            }
        }
        self.files.extend(found);
        Ok(())
    }

    fn imports_of(&self, module: &Module) -> BTreeMap<String, Module> {
        let mut imports = BTreeMap::new();
        for item in &self.files[module].syntax.items {
            let Item::Use(item) = item else { continue };
            for (path, name) in flattened(&item.tree) {
                if let Some(path) = self.absolute(module, &path) {
                    imports.insert(name, path);
                }
            }
        }
        imports
    }

    /// Path from the crate root; `None` for one that leads out of the crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module.as_slice(), rest].concat()),
            "super" => {
                let parent = module.split_last().map_or(&[][..], |(_, parent)| parent).to_vec();
                match rest.first().map(String::as_str) {
                    Some("super") => self.absolute(&parent, rest),
                    _ => Some([parent.as_slice(), rest].concat()),
                }
            }
            _ => {
                let inside = child(module, first);
                self.files.contains_key(&inside).then(|| [module.as_slice(), path].concat())
            }
        }
    }

    /// Module that defines what `path` names, following re-exports.
    fn definition(&self, path: &[String], depth: usize) -> Module {
        let is_module = |length: &usize| self.files.contains_key(&path[..*length]);
        let length = (0..=path.len()).rev().find(is_module).unwrap_or(0);
        let (module, rest) = (path[..length].to_vec(), &path[length..]);
        let Some(name) = rest.first().filter(|_| depth < 8) else { return module };
        let is_defined = self.definitions.get(&module).is_some_and(|names| names.contains(name));
        let import = self.imports.get(&module).and_then(|imports| imports.get(name));
        match import.filter(|_| !is_defined) {
            Some(import) => self.definition(&[import.as_slice(), &rest[1..]].concat(), depth + 1),
            None => module,
        }
    }

    fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (module, file) in &self.files {
            let mut paths = Paths::default();
            paths.visit_file(&file.syntax);
            for (path, nesting) in &paths.found {
                let from = [module.as_slice(), nesting].concat();
                let Some(path_from_root) = self.absolute(&from, path) else { continue };
                let to = self.definition(&path_from_root, 0);
                if to != *module {
                    edges.entry(module.clone()).or_default().insert(to, path.join("::"));
                }
            }
        }
        edges
    }

    /// Circles of files that are more than a parent with some of its children.
    fn circles_of_files(&self, edges: &Edges) -> Vec<String> {
        let graph = edges.iter().map(|(from, to)| (from.clone(), to.keys().cloned().collect()));
        let circles = circles(&graph.collect());
        let is_family = |circle: &Vec<Module>| {
            let parent = circle.iter().min_by_key(|module| module.len());
            parent.is_some_and(|parent| circle.iter().all(|module| module.starts_with(parent)))
        };
        let wrong = circles.iter().filter(|c| c.len() > MAX_CIRCLE_FILES || !is_family(c));
        let paths = |circle: &Vec<Module>| {
            circle.iter().map(|m| self.files[m].path.as_str()).collect::<Vec<_>>().join(", ")
        };
        wrong.map(|circle| format!("a circle of {}: {}", circle.len(), paths(circle))).collect()
    }

    /// Circles between folders and files directly below the crate root.
    fn circles_of_folders(&self, name: &str, edges: &Edges) -> Vec<String> {
        let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in edges.iter().flat_map(|(from, to)| to.keys().map(move |to| (from, to))) {
            if let (Some(from), Some(to)) = (unit(from), unit(to))
                && from != to
            {
                graph.entry(from.to_owned()).or_default().insert(to.to_owned());
            }
        }
        let circles = circles(&graph);
        circles
            .iter()
            .map(|circle| format!("crates/{name}: circle {}", circle.join(", ")))
            .collect()
    }

    /// Arrows from a lower folder to a higher one.
    fn upward(&self, name: &str, order: &[&str], edges: &Edges) -> Vec<String> {
        let height =
            |module: &Module| order.iter().position(|folder| Some(*folder) == unit(module));
        let mut findings = Vec::new();
        for (from, targets) in edges {
            for (to, item) in targets {
                if let (Some(low), Some(high)) = (height(from), height(to))
                    && low < high
                {
                    let path = &self.files[from].path;
                    findings.push(format!("{path}: crates/{name} must not use upward: {item}"));
                }
            }
        }
        findings
    }
}

/// Paths that a file names outside test code, with the inline modules around each.
#[derive(Default)]
struct Paths {
    found: Vec<(Vec<String>, Vec<String>)>,
    nesting: Vec<String>,
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes(item).iter().any(is_test) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.nesting.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.nesting.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let paths = flattened(&item.tree).into_iter().map(|(path, _)| path);
        self.found.extend(paths.map(|path| (path, self.nesting.clone())));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if segments.len() > 1 {
            self.found.push((segments, self.nesting.clone()));
        }
        visit::visit_path(self, path);
    }

    // `pub(super)` and `pub(in path)` name a module without using it.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

/// Returns the strongly connected components of more than one node, by reachability.
fn circles<N: Ord + Clone>(graph: &BTreeMap<N, BTreeSet<N>>) -> Vec<Vec<N>> {
    let reachable: BTreeMap<&N, BTreeSet<&N>> =
        graph.keys().map(|node| (node, reached_from(graph, node))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for node in graph.keys() {
        let is_mutual = |other: &&&N| {
            reachable[node].contains(**other)
                && reachable.get(**other).is_some_and(|back| back.contains(node))
        };
        let circle: Vec<N> =
            reachable[node].iter().filter(is_mutual).map(|n| (*n).clone()).collect();
        if circle.len() > 1 && seen.insert(circle.clone()) {
            found.push(circle);
        }
    }
    found
}

fn reached_from<'g, N: Ord>(graph: &'g BTreeMap<N, BTreeSet<N>>, start: &N) -> BTreeSet<&'g N> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&N> = graph.get(start).into_iter().flatten().collect();
    while let Some(node) = open.pop() {
        if reached.insert(node) {
            open.extend(graph.get(node).into_iter().flatten());
        }
    }
    reached
}

/// `a/b/mod.rs` and `a/b.rs` → `[a, b]`; the crate root → `[]`.
fn module_of(path: &str) -> Module {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    match path {
        "lib" | "main" => Vec::new(),
        _ => path.split('/').map(str::to_owned).collect(),
    }
}

/// Folder or file directly below the crate root to which a module belongs.
fn unit(module: &Module) -> Option<&str> {
    module.first().map(String::as_str)
}

fn child(module: &[String], name: &str) -> Module {
    [module, &[name.to_owned()]].concat()
}

/// Leaves of a `use` tree: the path, and the name by which it is known.
fn flattened(tree: &UseTree) -> Vec<(Vec<String>, String)> {
    match tree {
        UseTree::Path(path) => {
            let first = path.ident.to_string();
            let with_first = |(mut rest, name): (Vec<String>, String)| {
                let is_self = rest.len() == 1 && rest[0] == "self";
                let name = if is_self { first.clone() } else { name };
                if is_self {
                    rest.clear();
                }
                rest.insert(0, first.clone());
                (rest, name)
            };
            flattened(&path.tree).into_iter().map(with_first).collect()
        }
        UseTree::Name(name) => vec![(vec![name.ident.to_string()], name.ident.to_string())],
        UseTree::Rename(rename) => {
            vec![(vec![rename.ident.to_string()], rename.rename.to_string())]
        }
        UseTree::Glob(_) => vec![(vec!["*".to_owned()], "*".to_owned())],
        UseTree::Group(group) => group.items.iter().flat_map(flattened).collect(),
    }
}

fn defined_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

pub(crate) fn is_test(attribute: &Attribute) -> bool {
    let is_cfg_test = |list: &syn::MetaList| list.tokens.to_string() == "test";
    attribute.path().is_ident("cfg") && attribute.meta.require_list().is_ok_and(is_cfg_test)
}

fn path_attribute(attribute: &Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(literal) = &pair.value else { return None };
    let syn::Lit::Str(text) = &literal.lit else { return None };
    pair.path.is_ident("path").then(|| text.value())
}

#[test]
fn circles_of_a_graph_are_found() {
    let graph = |edges: &[(u8, u8)]| {
        let mut graph: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
        edges.iter().for_each(|&(from, to)| {
            graph.entry(from).or_default().insert(to);
        });
        circles(&graph)
    };
    assert!(graph(&[(1, 2), (2, 3), (1, 3)]).is_empty());
    assert_eq!(graph(&[(1, 2), (2, 3), (3, 1), (3, 4)]), [[1, 2, 3]]);
}

#[test]
fn use_tree_is_flattened() -> Fallible<()> {
    let item: syn::ItemUse = syn::parse_str("use crate::a::{self, b::C as D, e::*};")?;
    let found: Vec<_> =
        flattened(&item.tree).into_iter().map(|(path, name)| (path.join("::"), name)).collect();
    let wanted = [("crate::a", "a"), ("crate::a::b::C", "D"), ("crate::a::e::*", "*")];
    assert_eq!(found, wanted.map(|(path, name)| (path.to_owned(), name.to_owned())));
    Ok(())
}
