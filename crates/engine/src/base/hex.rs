//! 32 bytes as 64 hexadecimal digits: hashes, fingerprints and keys.

use std::fmt;

/// Writes bytes, two lower-case digits each.
pub(crate) fn write(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Parses 64 digits.
pub(crate) fn parse(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    // A sign before a digit would parse, too.
    let is_hex = text.len() == 2 * bytes.len() && text.bytes().all(|b| b.is_ascii_hexdigit());
    for (at, byte) in bytes.iter_mut().enumerate() {
        let digits = text.get(2 * at..2 * at + 2).filter(|_| is_hex)?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(bytes)
}
