//! Bytes ↔ messages: what travels over a connection, and nothing about when.
//!
//! [`frame`] cuts the control stream into frames, [`control`] gives them meaning, [`attach`] opens
//! a data connection, [`data`] is the fixed header before the raw bytes of a block, [`probe`] is
//! what travels over UDP beside them. `spec/wire.md` describes the same for other languages, with
//! vectors that the tests read.

pub mod attach;
mod bounds;
pub mod control;
mod course;
pub mod data;
mod error;
mod failure;
pub mod frame;
pub mod probe;

pub use error::WireError;

/// First version of the protocol that this build speaks.
pub const VERSION_MIN: u16 = 1;
/// Last version of the protocol that this build speaks.
pub const VERSION_MAX: u16 = 1;

/// The version that two sides share: the highest both speak.
///
/// # Errors
/// [`WireError::NoCommonVersion`] when their ranges do not meet.
pub fn common_version(peer_min: u16, peer_max: u16) -> Result<u16, WireError> {
    let version = VERSION_MAX.min(peer_max);
    if version < VERSION_MIN || version < peer_min {
        return Err(WireError::NoCommonVersion { peer_min, peer_max });
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_meet_at_the_highest_both_speak() {
        assert_eq!(common_version(1, 1).unwrap(), 1);
        assert_eq!(common_version(1, 9).unwrap(), 1);
        assert!(common_version(2, 9).is_err());
        assert!(common_version(0, 0).is_err());
    }
}
