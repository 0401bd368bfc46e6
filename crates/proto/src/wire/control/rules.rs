//! Rules of a request: what the receiver compares with what exists.

use minicbor::{Decode, Encode};

/// Rules for what exists at the destination, which the receiving side applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct ComparisonRules {
    /// Comparison by content instead of size and time; [`super::Open::checksum`] on the wire.
    #[cbor(skip)]
    pub by_content: bool,
    /// Leave newer files as they are.
    #[n(0)]
    #[cbor(default, skip_if = "is_off")]
    pub update: bool,
    /// Create nothing: update what exists.
    #[n(1)]
    #[cbor(default, skip_if = "is_off")]
    pub existing_only: bool,
    /// Leave what exists as it is.
    #[n(2)]
    #[cbor(default, skip_if = "is_off")]
    pub ignore_existing: bool,
    /// Skip files of equal size, whatever their times.
    #[n(3)]
    #[cbor(default, skip_if = "is_off")]
    pub size_only: bool,
    /// Difference in seconds up to which times are equal; absent: times are exact.
    #[n(4)]
    pub modify_window: Option<u32>,
}

impl ComparisonRules {
    /// Returns the rules as sent; `None` if there are none.
    #[must_use]
    pub fn to_wire(self) -> Option<Self> {
        let sent = Self { by_content: false, ..self };
        (sent != Self::default()).then_some(sent)
    }

    /// True if the rules may leave entries as they are, whatever was announced.
    #[must_use]
    pub fn leaves_out(&self) -> bool {
        self.update || self.existing_only || self.ignore_existing
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by the derived encoder")]
fn is_off(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::control::{Message, Open, tests::round_trip};

    #[test]
    fn rules_that_are_off_are_absent_on_the_wire() {
        let rules =
            ComparisonRules { update: true, modify_window: Some(2), ..ComparisonRules::default() };
        let bytes = minicbor::to_vec(rules).unwrap();
        assert_eq!(bytes, [0xa2, 0x00, 0xf5, 0x04, 0x02]);
        let open = Message::Open(Open { comparison: Some(rules), ..Open::default() });
        assert_eq!(round_trip(&open), Ok(open));
    }
}
