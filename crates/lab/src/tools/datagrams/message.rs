//! Messages of the service, each in one datagram: who sent it, its number, the sum of what follows,
//! and that.

/// Most bytes of a datagram over IPv4. (RFC 791, RFC 768: 65 535 without both headers)
pub(super) const BYTES_MAX: usize = 65_507;

/// Bytes of a sum. (BLAKE3)
const SUM_BYTES: usize = blake3::OUT_LEN;

/// Fewest bytes of a message: its head, and something of which the sum is. (ours)
pub(super) const BYTES_MIN: usize = 64;

/// Who sent a message, and which of them it is. An answer is this alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heading {
    /// Number of the client.
    pub(super) client: u32,
    /// Number of the message, from 1.
    pub(super) number: u64,
}

impl Heading {
    /// Bytes that it takes.
    pub(super) const BYTES: usize = 12;

    /// Of a message or an answer; `None` when it is too short.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (client, rest) = bytes.split_first_chunk()?;
        let (number, _) = rest.split_first_chunk()?;
        Some(Self { client: u32::from_le_bytes(*client), number: u64::from_le_bytes(*number) })
    }
}

/// A message of a client, to be numbered and sent.
#[derive(Debug)]
pub(super) struct Draft {
    bytes: Vec<u8>,
}

impl Draft {
    /// Of so many bytes; what is in it depends on the seed alone.
    pub(super) fn new(client: u32, bytes: usize, seed: u64) -> Self {
        let mut bytes = vec![0; bytes.clamp(BYTES_MIN, BYTES_MAX)];
        let content = &mut bytes[Heading::BYTES + SUM_BYTES..];
        fastrand::Rng::with_seed(seed.wrapping_add(client.into())).fill(content);
        let sum = blake3::hash(content);
        bytes[..4].copy_from_slice(&client.to_le_bytes());
        bytes[Heading::BYTES..][..SUM_BYTES].copy_from_slice(sum.as_bytes());
        Self { bytes }
    }

    /// As the message of a number.
    pub(super) fn number(&mut self, number: u64) -> &[u8] {
        self.bytes[4..Heading::BYTES].copy_from_slice(&number.to_le_bytes());
        &self.bytes
    }

    /// Bytes of each message.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// What the service does with a message: whether its content has the sum that it says. (BLAKE3, as
/// bankfull verifies blocks)
pub(super) fn is_whole(message: &[u8]) -> bool {
    let split = message.split_at_checked(Heading::BYTES).and_then(|(_, rest)| {
        let (sum, content) = rest.split_first_chunk::<SUM_BYTES>()?;
        Some((*sum, content))
    });
    split.is_some_and(|(sum, content)| blake3::hash(content) == sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_tells_its_client_and_number_and_what_was_changed_is_not_whole() {
        let mut draft = Draft::new(7, 3000, 1);
        let mut message = draft.number(258).to_vec();
        assert_eq!((message.len(), draft.bytes()), (3000, 3000));
        assert_eq!(Heading::read(&message), Some(Heading { client: 7, number: 258 }));
        assert!(is_whole(&message), "the number is not in the sum");
        assert!(!is_whole(&message[..2999]) && !is_whole(&message[..20]));
        message[2000] ^= 1;
        assert!(!is_whole(&message));
        assert_eq!(Heading::read(&message[..11]), None);
        assert_ne!(Draft::new(8, 3000, 1).number(258)[44..], draft.number(258)[44..]);
    }
}
