//! Reproducible random numbers: seeded xorshift64*. Sufficient for sizes, times and content;
//! nothing here is secret.

use std::time::{SystemTime, UNIX_EPOCH};

/// A generator.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        // The state must never be zero.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number in `0..end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns a number in `0.0..1.0`.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns random content. The hash yields gigabytes per second, also in unoptimised tests.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let seed = self.next().to_le_bytes();
        blake3::Hasher::new().update(&seed).finalize_xof().fill(&mut out);
        out
    }
}

/// Returns the seed of randomized tests; `BANKFULL_SEED` replays one.
pub(crate) fn seed() -> u64 {
    if let Ok(text) = std::env::var("BANKFULL_SEED") {
        return text.parse().expect("BANKFULL_SEED must be a number");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
    now.as_millis() as u64
}
