//! Snapshots: tables for review, compared with a committed file.

/// Returns whether `BANKFULL_SIM_` and this name is in the environment.
#[expect(clippy::disallowed_methods, reason = "the environment selects longer tests")]
pub(crate) fn env_is_set(name: &str) -> bool {
    std::env::var(format!("BANKFULL_SIM_{name}")).is_ok()
}

/// Compares a table with its snapshot.
///
/// To update it after an intended change: `BANKFULL_SIM_BLESS=1 cargo test -p bankfull-sim`.
/// With `BANKFULL_SIM_TRACE=1` and `-- --nocapture`, decisions are printed instead.
#[expect(clippy::disallowed_methods, reason = "updates the snapshot on request")]
#[expect(clippy::print_stdout, reason = "prints decisions on request")]
pub(crate) fn assert_snapshot(found: &str, committed: &str, file: &str) {
    if env_is_set("TRACE") {
        print!("{found}");
        return;
    }
    if env_is_set("BLESS") {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/");
        assert!(std::fs::write(format!("{dir}{file}"), found).is_ok(), "{file}");
        return;
    }
    for (at, (found, committed)) in found.lines().zip(committed.lines()).enumerate() {
        assert_eq!(found, committed, "{file}, line {}", at + 1);
    }
    assert_eq!(found.lines().count(), committed.lines().count(), "{file}");
}
