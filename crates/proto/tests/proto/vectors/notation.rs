//! Notations of vectors: hexadecimal, and CBOR in diagnostic notation (RFC 8949 §8).

use minicbor::Decoder;
use minicbor::data::Type;

/// Returns bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the bytes of a vector file, skipping comments and white space.
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let digits: Vec<u32> = lines
        .flat_map(str::chars)
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).unwrap())
        .collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// Returns a CBOR item in diagnostic notation.
pub(crate) fn diagnostic(cbor: &[u8]) -> String {
    item(&mut Decoder::new(cbor))
}

fn item(decoder: &mut Decoder<'_>) -> String {
    match decoder.datatype().unwrap() {
        Type::Bool => decoder.bool().unwrap().to_string(),
        Type::Bytes => format!("h'{}'", hex(decoder.bytes().unwrap())),
        Type::String => format!("{:?}", decoder.str().unwrap()),
        Type::Array => {
            let count = decoder.array().unwrap().unwrap();
            let items: Vec<String> = (0..count).map(|_| item(decoder)).collect();
            format!("[{}]", items.join(", "))
        }
        Type::Map => {
            let count = decoder.map().unwrap().unwrap();
            let pair = |decoder: &mut _| format!("{}: {}", item(decoder), item(decoder));
            let pairs: Vec<String> = (0..count).map(|_| pair(decoder)).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        _ => decoder.int().unwrap().to_string(),
    }
}
