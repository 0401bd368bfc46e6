//! Messages of the service, each one datagram: client, number, hash of the content, content.

/// Name of the tool.
pub(super) const NAME: &str = "datagrams";

/// Largest UDP payload over IPv4, in bytes. (RFC 791, RFC 768: 65 535 less both headers)
pub(crate) const MAX_MESSAGE_BYTES: usize = 65_507;

/// Size of a BLAKE3 hash in bytes.
const HASH_BYTES: usize = blake3::OUT_LEN;

/// Smallest message in bytes: header, hash and some content. (chosen: no result
/// depends on it)
pub(crate) const MIN_MESSAGE_BYTES: usize = 64;

/// Header of a message. A response is the header alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Index of the client.
    pub(crate) client: u32,
    /// Number of the message, from 1.
    pub(crate) number: u64,
}

impl Header {
    /// Encoded size in bytes.
    pub(crate) const BYTES: usize = 12;

    /// Decodes the header of a message or response; `None` if too short.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (client, rest) = bytes.split_first_chunk()?;
        let (number, _) = rest.split_first_chunk()?;
        Some(Self { client: u32::from_le_bytes(*client), number: u64::from_le_bytes(*number) })
    }
}

/// Builder of a client's messages.
#[derive(Debug)]
pub(crate) struct MessageBuilder {
    bytes: Vec<u8>,
}

impl MessageBuilder {
    /// Builder of messages of this size; the content depends on the seed alone.
    pub(crate) fn new(client: u32, bytes: usize, seed: u64) -> Self {
        let mut bytes = vec![0; bytes.clamp(MIN_MESSAGE_BYTES, MAX_MESSAGE_BYTES)];
        let content = &mut bytes[Header::BYTES + HASH_BYTES..];
        fastrand::Rng::with_seed(seed.wrapping_add(client.into())).fill(content);
        let sum = blake3::hash(content);
        bytes[..4].copy_from_slice(&client.to_le_bytes());
        bytes[Header::BYTES..][..HASH_BYTES].copy_from_slice(sum.as_bytes());
        Self { bytes }
    }

    /// Message with this number.
    pub(crate) fn with_number(&mut self, number: u64) -> &[u8] {
        self.bytes[4..Header::BYTES].copy_from_slice(&number.to_le_bytes());
        &self.bytes
    }

    /// Size of each message in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// True if the content matches its hash: the work of the service per message. (BLAKE3, as in
/// bankfull)
pub(crate) fn is_intact(message: &[u8]) -> bool {
    let split = message.split_at_checked(Header::BYTES).and_then(|(_, rest)| {
        let (sum, content) = rest.split_first_chunk::<HASH_BYTES>()?;
        Some((*sum, content))
    });
    split.is_some_and(|(sum, content)| blake3::hash(content) == sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_header_is_read_and_damage_is_detected() {
        let mut builder = MessageBuilder::new(7, 3000, 1);
        let mut message = builder.with_number(258).to_vec();
        assert_eq!((message.len(), builder.bytes()), (3000, 3000));
        assert_eq!(Header::read(&message), Some(Header { client: 7, number: 258 }));
        assert!(is_intact(&message), "the number is not in the sum");
        assert!(!is_intact(&message[..2999]) && !is_intact(&message[..20]));
        message[2000] ^= 1;
        assert!(!is_intact(&message));
        assert_eq!(Header::read(&message[..11]), None);
        assert_ne!(
            MessageBuilder::new(8, 3000, 1).with_number(258)[44..],
            builder.with_number(258)[44..]
        );
    }
}
