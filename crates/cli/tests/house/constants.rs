//! Number of constants of the controllers: each is to be justified, so there may be few.

use super::files::{Fallible, TextFile, rust_files};
use super::graph::{attributes, is_test};
use syn::visit::{self, Visit};
use syn::{ImplItem, Item, Lit};

/// Most constants with a number of their own. (docs/decisions/0028-each-literal-counts.md)
const MAX_CONSTANTS: usize = 80;

/// Numbers that need no reason: counts, halves, and factors of time and prefixes.
const PLAIN_NUMBERS: [f64; 10] = [0.0, 0.5, 1.0, 2.0, 24.0, 60.0, 1e-9, 1e3, 1e6, 1e9];

/// Bits per byte, which need no reason in formulas.
const BITS: f64 = 8.0;

/// Files of tests, and of units.
const NOT_CONTROL: [&str; 3] = ["tests.rs", "test_rng.rs", "/units.rs"];

#[test]
fn controllers_have_few_constants() -> Fallible<()> {
    let mut found = Vec::new();
    let is_controller = |file: &TextFile| {
        file.name.starts_with("crates/control/src/")
            && !NOT_CONTROL.iter().any(|name| file.name.ends_with(name))
    };
    for file in rust_files()?.into_iter().filter(is_controller) {
        let mut numbers = Numbers::default();
        numbers.visit_file(&syn::parse_file(&file.text)?);
        found.extend(numbers.found.into_iter().map(|place| format!("{}: {place}", file.name)));
    }
    if found.len() <= MAX_CONSTANTS {
        return Ok(());
    }
    Err(format!("{} constants, at most {MAX_CONSTANTS}:\n{}", found.len(), found.join("\n")).into())
}

/// Constants and other code outside tests that have a number of their own.
#[derive(Debug, Default)]
struct Numbers {
    found: Vec<String>,
    constant: Option<String>,
}

impl<'ast> Visit<'ast> for Numbers {
    fn visit_item(&mut self, item: &'ast Item) {
        if attributes(item).iter().any(is_test) {
            return;
        }
        self.constant = match item {
            Item::Const(item) => Some(item.ident.to_string()),
            _ => None,
        };
        visit::visit_item(self, item);
        self.constant = None;
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if let ImplItem::Const(item) = item {
            self.constant = Some(item.ident.to_string());
        }
        visit::visit_impl_item(self, item);
        self.constant = None;
    }

    // Lengths of arrays.
    fn visit_type(&mut self, _: &'ast syn::Type) {}

    fn visit_lit(&mut self, literal: &'ast Lit) {
        let number = match literal {
            Lit::Int(number) => number.base10_parse::<u64>().map(|n| n as f64),
            Lit::Float(number) => number.base10_parse(),
            _ => return,
        };
        let Ok(number) = number else { return };
        let is_factor = self.constant.is_none() && number == BITS;
        if is_factor || PLAIN_NUMBERS.contains(&number) {
            return;
        }
        match &self.constant {
            Some(name) => self.found.push(name.clone()),
            None => self.found.push(format!("{number} at line {}", literal.span().start().line)),
        }
    }
}
