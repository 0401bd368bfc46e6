//! Encodings of control messages that must be accepted or refused. This implementation does not
//! write the accepted ones.

use crate::vectors::notation::unhex;
use bankfull_proto::wire::control::{Created, FileDigest, Message, Nack, SideSummary, decode};

/// Decodes a body given as hexadecimal digits.
fn read(body: &str) -> Option<Message> {
    decode(&unhex(body)).ok()
}

#[test]
fn decode_longer_encoding_is_the_same_message() {
    let nack = Some(Message::Nack(Nack { file: 6, index: 4 }));
    let same = [
        ("shortest form", "82 0f 81 a2 00 06 01 04"),
        ("long integers", "82 180f 81 a2 00 1b0000000000000006 01 190004"),
        ("keys in another order", "82 0f 81 a2 01 04 00 06"),
        ("a map of indefinite length", "82 0f 81 bf 00 06 01 04 ff"),
        ("a body of indefinite length", "82 0f 9f a2 00 06 01 04 ff"),
    ];
    for (what, body) in same {
        assert_eq!(read(body), nack, "{what}");
    }
    let digest = Some(Message::FileDigest(FileDigest { file: 6, hash: None }));
    assert_eq!(read("82 0b 81 a1 00 06"), digest);
    assert_eq!(read("82 0b 81 a2 00 06 01 f6"), digest, "null equals absent");
    assert_eq!(read("82 0d 81 9f 05 ff"), Some(Message::Unchanged(vec![5])));
    let report = SideSummary { stage_nanos: [1, 2, 3, 4, 5], ..SideSummary::default() };
    let body = "82 15 81 a3 00 9f 01 02 03 04 05 ff 01 00 02 00";
    assert_eq!(read(body), Some(Message::Done(report)));
    let created = Created { dirs: 2, linked_files: 1, linked_bytes: 9, ..Created::default() };
    let report = SideSummary { created: Some(created), ..report };
    let body =
        "82 15 81 a4 00 9f 01 02 03 04 05 ff 01 00 02 00 03 a5 00 02 01 00 02 00 03 01 04 09";
    assert_eq!(read(body), Some(Message::Done(report)));
}

#[test]
fn decode_additions_of_later_versions_are_skipped() {
    let nack = Some(Message::Nack(Nack { file: 6, index: 4 }));
    let more = [
        ("a number", "82 0f 81 a3 00 06 01 04 02 00"),
        ("a negative key", "82 0f 81 a3 00 06 01 04 20 00"),
        ("a large key", "82 0f 81 a3 00 06 01 04 1b 7fffffffffffffff 00"),
        ("a tagged value", "82 0f 81 a3 00 06 01 04 02 c1 00"),
        ("a float", "82 0f 81 a3 00 06 01 04 02 fb 3ff0000000000000"),
        ("a text of indefinite length", "82 0f 81 a3 00 06 01 04 02 7f 61 61 ff"),
        ("lists in lists", "82 0f 81 a3 00 06 01 04 02 81 9f 81 80 ff"),
        ("a second element of the body", "82 0f 82 a2 00 06 01 04 05"),
    ];
    for (what, body) in more {
        assert_eq!(read(body), nack, "{what}");
    }
    assert_eq!(read("82 16 81 00"), Some(Message::Ping), "a body where none is due");
    assert!(read("82 0a 81 a2 00 06 01 81 83 01 02 03").is_some(), "a run of three numbers");
}

#[test]
fn decode_invalid_encoding_is_refused() {
    let bad = [
        ("nothing", ""),
        ("an unknown message", "82 18 63 80"),
        ("no body array", "81 16"),
        ("three elements", "83 0f 81 a2 00 06 01 04 00"),
        ("an outer array of indefinite length", "9f 0f 81 a2 00 06 01 04 ff"),
        ("a key missing", "82 0f 81 a1 00 06"),
        ("a text as key", "82 0f 81 a3 00 06 01 04 61 61 00"),
        ("an unknown verdict", "82 08 81 81 a3 00 06 01 09 02 80"),
        ("six stages", "82 15 81 a3 00 86 01 02 03 04 05 06 01 00 02 00"),
        ("a text of indefinite length", "82 00 81 a3 00 01 01 01 02 7f 61 61 ff"),
        ("bytes of indefinite length", "82 17 81 5f 41 61 ff"),
        ("a tagged body", "82 0f 81 c1 a2 00 06 01 04"),
        ("undefined for absent", "82 0b 81 a2 00 06 01 f7"),
        ("a second message", "82 16 80 82 16 80"),
    ];
    for (what, body) in bad {
        assert_eq!(read(body), None, "{what}");
    }
}

#[test]
fn decode_deep_nesting_does_not_overflow_the_stack() {
    let nested = |depth: usize| {
        let mut body = unhex("82 0f 81 a3 00 06 01 04 02");
        body.resize(body.len() + depth, 0x81);
        body
    };
    assert!(decode(&nested(1 << 20)).is_err());
    let mut closed = nested(100_000);
    closed.push(0);
    assert_eq!(decode(&closed), Ok(Message::Nack(Nack { file: 6, index: 4 })));
}
