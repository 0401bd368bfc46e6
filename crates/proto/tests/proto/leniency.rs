//! What a reader of control messages takes beyond what this implementation writes, and what it does
//! not: another implementation's CBOR may be longer than ours, and a later version's may hold more.

use crate::vectors::notation::unhex;
use bankfull_proto::wire::control::{Message, Nack, Sealed, SideReport, decode};

/// The message in a body given as hexadecimal digits.
fn read(body: &str) -> Option<Message> {
    decode(&unhex(body)).ok()
}

#[test]
fn the_same_message_may_be_written_in_longer_ways() {
    let nack = Some(Message::Nack(Nack { file: 6, index: 4 }));
    let same = [
        ("as we write it", "82 0f 81 a2 00 06 01 04"),
        ("long integers", "82 180f 81 a2 00 1b0000000000000006 01 190004"),
        ("keys in another order", "82 0f 81 a2 01 04 00 06"),
        ("a map of indefinite length", "82 0f 81 bf 00 06 01 04 ff"),
        ("a body of indefinite length", "82 0f 9f a2 00 06 01 04 ff"),
    ];
    for (what, body) in same {
        assert_eq!(read(body), nack, "{what}");
    }
    let sealed = Some(Message::Sealed(Sealed { file: 6, hash: None }));
    assert_eq!(read("82 0b 81 a1 00 06"), sealed);
    assert_eq!(read("82 0b 81 a2 00 06 01 f6"), sealed, "null is as good as absent");
    assert_eq!(read("82 0d 81 9f 05 ff"), Some(Message::Unchanged(vec![5])));
    let report = SideReport { stage_nanos: [1, 2, 3, 4, 5], ..SideReport::default() };
    let body = "82 15 81 a3 00 9f 01 02 03 04 05 ff 01 00 02 00";
    assert_eq!(read(body), Some(Message::Done(report)));
}

#[test]
fn what_a_later_version_adds_is_skipped_whatever_it_is() {
    let nack = Some(Message::Nack(Nack { file: 6, index: 4 }));
    let more = [
        ("a number", "82 0f 81 a3 00 06 01 04 02 00"),
        ("a negative key", "82 0f 81 a3 00 06 01 04 20 00"),
        ("a large key", "82 0f 81 a3 00 06 01 04 1b 7fffffffffffffff 00"),
        ("a tagged value", "82 0f 81 a3 00 06 01 04 02 c1 00"),
        ("a float", "82 0f 81 a3 00 06 01 04 02 fb 3ff0000000000000"),
        ("a text in pieces", "82 0f 81 a3 00 06 01 04 02 7f 61 61 ff"),
        ("lists in lists", "82 0f 81 a3 00 06 01 04 02 81 9f 81 80 ff"),
        ("a second element of the body", "82 0f 82 a2 00 06 01 04 05"),
    ];
    for (what, body) in more {
        assert_eq!(read(body), nack, "{what}");
    }
    assert_eq!(read("82 16 81 00"), Some(Message::Ping), "a body where there is none");
    assert!(read("82 0a 81 a2 00 06 01 81 83 01 02 03").is_some(), "a run of three numbers");
}

#[test]
fn what_is_no_message_of_this_version_is_refused() {
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
        ("a text in pieces", "82 00 81 a3 00 01 01 01 02 7f 61 61 ff"),
        ("bytes in pieces", "82 17 81 5f 41 61 ff"),
        ("a tagged body", "82 0f 81 c1 a2 00 06 01 04"),
        ("undefined for absent", "82 0b 81 a2 00 06 01 f7"),
        ("a second message", "82 16 80 82 16 80"),
    ];
    for (what, body) in bad {
        assert_eq!(read(body), None, "{what}");
    }
}

#[test]
fn lists_nested_without_end_are_refused_without_harm() {
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
