//! Filter rules: the text of a list of rules means the same as the list.

#![no_main]

use bankfull_proto::filter::{FilterOptions, FilterScope, Given, GivenKind, RuleError, Side};
use libfuzzer_sys::fuzz_target;

fn parse(rules: &[Vec<u8>]) -> Result<FilterScope, RuleError> {
    let given = |text: &Vec<u8>| Given { kind: GivenKind::Rule, text: text.clone() };
    let given: Vec<_> = rules.iter().map(given).collect();
    // Each file has a rule and names another one.
    let mut read = |_: &[u8]| Ok(Some(b"- *.o\n: .rules\n".to_vec()));
    FilterScope::parse(&given, FilterOptions::default(), &mut read)
}

// Lines of rules, an empty line, and paths.
fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec);
    let rules: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let Ok(scope) = parse(&rules) else { return };
    let texts = scope.to_texts();
    let again = parse(&texts).expect("a list's own text parses");
    assert_eq!(again.to_texts(), texts);
    let mut read = |_: &[u8]| Ok(Some(b"+ /a\n- b/\n!\n- c*\n".to_vec()));
    // Split at blanks, the lines of a file may be no rules.
    let inside = scope.enter(b"dir", &mut read).unwrap_or_default();
    for path in lines {
        for is_dir in [false, true] {
            for side in [Side::Sender, Side::Receiver] {
                let excluded = scope.excludes(&path, is_dir, side);
                assert_eq!(again.excludes(&path, is_dir, side), excluded);
                let _ = inside.excludes(&path, is_dir, side);
            }
            if scope.surely_excludes(&path, is_dir) {
                assert!(scope.excludes(&path, is_dir, Side::Sender));
            }
        }
    }
});
