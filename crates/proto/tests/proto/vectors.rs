//! The golden vectors in `spec/vectors`: every file is built here from its value, compared byte for
//! byte, decoded, and encoded again. `BANKFULL_WRITE_VECTORS=1` writes the files anew.

mod control;
mod data;
mod disk;
pub(crate) mod notation;

use notation::{hex, unhex};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Once;

/// What a vector's bytes are decoded to and encoded from again; panics where the value differs.
type Check = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// One file of `spec/vectors`.
pub(crate) struct Vector {
    /// Name of the file without `.hex`.
    name: &'static str,
    /// What it holds, for people: the comment lines of the file.
    about: String,
    pub(crate) bytes: Vec<u8>,
    check: Check,
}

impl Vector {
    fn new(
        name: &'static str,
        about: impl Into<String>,
        bytes: impl Into<Vec<u8>>,
        check: impl Fn(&[u8]) -> Vec<u8> + 'static,
    ) -> Self {
        Self { name, about: about.into(), bytes: bytes.into(), check: Box::new(check) }
    }

    fn text(&self) -> String {
        let mut text: String = self.about.lines().map(|line| format!("# {line}\n")).collect();
        for line in self.bytes.chunks(32) {
            text.push_str(&hex(line));
            text.push('\n');
        }
        text
    }
}

/// All vectors, in the order of the specification.
pub(crate) fn all() -> Vec<Vector> {
    [control::vectors(), data::vectors(), disk::vectors()].into_iter().flatten().collect()
}

fn dir() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/vectors"))
}

/// Writes the files anew where that was asked for; once, whichever test comes first.
#[expect(clippy::disallowed_methods, reason = "the crate does no I/O, its vectors are files")]
fn write_if_asked() {
    static WRITTEN: Once = Once::new();
    WRITTEN.call_once(|| {
        if std::env::var("BANKFULL_WRITE_VECTORS").is_ok_and(|value| value == "1") {
            for vector in all() {
                fs::write(dir().join(format!("{}.hex", vector.name)), vector.text()).unwrap();
            }
        }
    });
}

#[test]
fn every_vector_is_what_this_implementation_writes_and_reads() {
    write_if_asked();
    for vector in all() {
        let name = vector.name;
        let text = fs::read_to_string(dir().join(format!("{name}.hex"))).unwrap_or_default();
        let bytes = unhex(&text);
        assert_eq!(hex(&bytes), hex(&vector.bytes), "{name}: the bytes differ");
        assert_eq!(text, vector.text(), "{name}: the text around the bytes differs");
        assert_eq!(hex(&(vector.check)(&bytes)), hex(&bytes), "{name}: not the same again");
    }
}

#[test]
fn every_vector_file_has_a_test_and_every_test_a_file_and_a_line_in_the_readme() {
    write_if_asked();
    let entries = fs::read_dir(dir()).unwrap().map(|entry| entry.unwrap().file_name());
    let files: BTreeSet<String> = entries
        .filter_map(|name| name.to_str().unwrap().strip_suffix(".hex").map(str::to_owned))
        .collect();
    let tested: BTreeSet<String> = all().iter().map(|vector| vector.name.to_owned()).collect();
    assert_eq!(tested.len(), all().len(), "two vectors of one name");
    assert_eq!(files, tested);
    let readme = fs::read_to_string(dir().join("README.md")).unwrap();
    for vector in all() {
        let row = format!("| `{}` | {} |", vector.name, vector.bytes.len());
        assert!(readme.contains(&row), "the README has no row that begins with {row}");
    }
}
