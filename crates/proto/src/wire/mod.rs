//! Wire format: messages, frames, data headers, datagrams.
//!
//! [`frame`] delimits the control channel, [`control`] holds its messages, [`attach`] opens a data
//! stream, [`data`] is the header of its frames, [`probe`] the UDP datagrams. `spec/wire.md`
//! specifies all of it, with test vectors in `spec/vectors`.

pub mod attach;
mod bounds;
pub mod control;
pub mod data;
mod failure;
pub mod frame;
pub mod probe;

pub use crate::error::WireError;
pub use crate::limits::{MAX_VERSION, MIN_VERSION};

/// Returns the highest version that both sides speak.
///
/// # Errors
/// [`WireError::NoCommonVersion`] if the ranges do not overlap.
pub fn common_version(peer_min: u16, peer_max: u16) -> Result<u16, WireError> {
    let version = MAX_VERSION.min(peer_max);
    if version < MIN_VERSION || version < peer_min {
        return Err(WireError::NoCommonVersion { peer_min, peer_max });
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_version_is_the_highest_of_both() {
        assert_eq!(common_version(1, 1).unwrap(), 1);
        assert_eq!(common_version(1, 9).unwrap(), 1);
        assert!(common_version(2, 9).is_err());
        assert!(common_version(0, 0).is_err());
    }
}
