//! Golden vectors in `spec/vectors`. Each file is built from its value, compared byte for byte,
//! decoded, and encoded again. `BANKFULL_WRITE_VECTORS=1` rewrites the files.

mod control;
mod data;
mod disk;
mod metadata;
pub(crate) mod notation;
mod rates;

use notation::{hex, unhex};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Once;

/// Decodes a vector, checks its value, and encodes it again. Panics if the value differs.
type Check = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// A file of `spec/vectors`.
pub(crate) struct Vector {
    /// File name without `.hex`.
    name: &'static str,
    /// Description: the comment lines of the file.
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

/// Returns all vectors, in the order of the specification.
pub(crate) fn all() -> Vec<Vector> {
    let all = [
        control::vectors(),
        metadata::vectors(),
        rates::vectors(),
        data::vectors(),
        disk::vectors(),
    ];
    all.into_iter().flatten().collect()
}

fn dir() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/vectors"))
}

/// Rewrites the files once if `BANKFULL_WRITE_VECTORS` is set.
#[expect(clippy::disallowed_methods, reason = "the crate does no I/O, its vectors are files")]
fn write_if_requested() {
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
fn vectors_are_written_and_read_byte_for_byte() {
    write_if_requested();
    for vector in all() {
        let name = vector.name;
        let text = fs::read_to_string(dir().join(format!("{name}.hex"))).unwrap_or_default();
        let bytes = unhex(&text);
        assert_eq!(hex(&bytes), hex(&vector.bytes), "{name}: the bytes differ");
        assert_eq!(text, vector.text(), "{name}: the comments differ");
        assert_eq!(
            hex(&(vector.check)(&bytes)),
            hex(&bytes),
            "{name}: the bytes do not round-trip"
        );
    }
}

#[test]
fn vectors_have_a_file_a_test_and_a_readme_row() {
    write_if_requested();
    let entries = fs::read_dir(dir()).unwrap().map(|entry| entry.unwrap().file_name());
    let files: BTreeSet<String> = entries
        .filter_map(|name| name.to_str().unwrap().strip_suffix(".hex").map(str::to_owned))
        .collect();
    let tested: BTreeSet<String> = all().iter().map(|vector| vector.name.to_owned()).collect();
    assert_eq!(tested.len(), all().len(), "two vectors have the same name");
    assert_eq!(files, tested);
    let readme = fs::read_to_string(dir().join("README.md")).unwrap();
    for vector in all() {
        let row = format!("| `{}` | {} |", vector.name, vector.bytes.len());
        assert!(readme.contains(&row), "the README has no row {row}");
    }
}
