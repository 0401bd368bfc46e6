//! Reproducible pseudo-random numbers for tests.

/// A generator (xorshift64*, Vigna 2016).
pub(super) struct TestRng(u64);

impl TestRng {
    pub(super) fn new() -> Self {
        Self(1)
    }

    /// Returns a number from `low`, inclusive, to `high`, exclusive.
    pub(super) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        low + (high - low) * bits as f64 / (1_u64 << 53) as f64
    }

    /// Returns an integer from `low` to `high`, both inclusive.
    pub(super) fn uniform_int(&mut self, low: u32, high: u32) -> u32 {
        self.uniform(low.into(), f64::from(high) + 1.0) as u32
    }
}
