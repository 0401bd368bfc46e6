//! House rules as tests: layering, structure, sizes, language and documents.
//!
//! CONTRIBUTING.md states the rules and their reasons. Each failure names a file and a line.

mod constants;
mod dependencies;
mod docs;
mod files;
mod graph;
mod language;
mod layers;
mod shape;
mod text;
