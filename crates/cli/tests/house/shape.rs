//! Shape of types and functions: few fields, implementations that stay together, few lines.

use super::files::{Fallible, none, rust_files};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, Field, ImplItemFn, Item, ItemFn, ItemImpl, ItemStruct, Signature, Visibility,
};

const MAX_FIELDS: usize = 15;
const MAX_IMPL_FILES: usize = 2;
const MAX_FUNCTION_LINES: usize = 70;

#[test]
fn structs_have_few_fields() -> Fallible<()> {
    let mut findings = Vec::new();
    for file in rust_files()?.iter().filter(|file| is_production(&file.name)) {
        let mut structs = Structs::default();
        structs
            .visit_file(&syn::parse_file(&file.text).map_err(|e| format!("{}: {e}", file.name))?);
        for (name, line, fields) in structs.found.iter().filter(|(.., fields)| *fields > MAX_FIELDS)
        {
            findings.push(format!("{}:{line}: {name} has {fields} fields", file.name));
        }
    }
    none(&findings)
}

#[test]
fn implementations_span_two_files() -> Fallible<()> {
    let mut places: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for file in rust_files()?.iter().filter(|file| is_production(&file.name)) {
        // Types of one name in different folders are different types.
        let folder = file.name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let folder = folder.split('/').take(4).collect::<Vec<_>>().join("/");
        for item in syn::parse_file(&file.text)?.items {
            if let Some(name) = inherent_type(&item) {
                places.entry((folder.clone(), name)).or_default().insert(file.name.clone());
            }
        }
    }
    let spread = places.iter().filter(|(_, files)| files.len() > MAX_IMPL_FILES);
    let row = |((_, name), files): (&(String, String), &BTreeSet<String>)| {
        let list: Vec<_> = files.iter().map(String::as_str).collect();
        format!("{}: impl {name} spans {} files: {}", list[0], files.len(), list.join(", "))
    };
    none(&spread.map(row).collect::<Vec<_>>())
}

#[test]
fn functions_are_short() -> Fallible<()> {
    let mut findings = Vec::new();
    for file in rust_files()?.iter().filter(|file| is_production(&file.name)) {
        let mut functions = Functions::default();
        functions.visit_file(&syn::parse_file(&file.text)?);
        for (name, first, last) in functions.0 {
            let lines = last + 1 - first;
            if lines > MAX_FUNCTION_LINES {
                findings.push(format!("{}:{first}: {name} has {lines} lines", file.name));
            }
        }
    }
    none(&findings)
}

/// Name, first and last line of each function.
#[derive(Default)]
struct Functions(Vec<(String, usize, usize)>);

impl Functions {
    fn add(&mut self, signature: &Signature, block: &Block) {
        let first = signature.fn_token.span.start().line;
        let last = block.brace_token.span.close().end().line;
        self.0.push((signature.ident.to_string(), first, last));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}

/// Sources of a crate, without tests, examples and fuzz targets.
fn is_production(name: &str) -> bool {
    name.starts_with("crates/") && name.contains("/src/") && !name.ends_with("tests.rs")
}

/// Name of the type that an inherent `impl` is for.
fn inherent_type(item: &Item) -> Option<String> {
    let Item::Impl(ItemImpl { trait_: None, self_ty, .. }) = item else { return None };
    let syn::Type::Path(path) = &**self_ty else { return None };
    path.path.segments.last().map(|segment| segment.ident.to_string())
}

/// True for records and flags, which have a field for each figure or option.
///
/// All fields of a record are public: it has no state of its own.
fn is_record(item: &ItemStruct) -> bool {
    let is_public = |field: &Field| !matches!(field.vis, Visibility::Inherited);
    let derives_args = |attribute: &Attribute| {
        let list = attribute.meta.require_list().map(|list| list.tokens.to_string());
        attribute.path().is_ident("derive")
            && list.is_ok_and(|list| list.split(", ").any(|name| name == "Args"))
    };
    item.fields.iter().all(is_public) || item.attrs.iter().any(derives_args)
}

/// Structs of a file with their line and number of fields, without records.
#[derive(Default)]
struct Structs {
    found: Vec<(String, usize, usize)>,
}

impl<'ast> Visit<'ast> for Structs {
    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        let line = item.ident.span().start().line;
        if !is_record(item) {
            self.found.push((item.ident.to_string(), line, item.fields.len()));
        }
        visit::visit_item_struct(self, item);
    }
}
