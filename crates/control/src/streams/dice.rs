//! Numbers by chance for tests, the same ones in every run.

/// A generator (xorshift64*, Vigna 2016).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new() -> Self {
        Self(1)
    }

    /// From `low` up to `high`.
    pub(super) fn real(&mut self, low: f64, high: f64) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        low + (high - low) * bits as f64 / (1_u64 << 53) as f64
    }

    /// From `low` to `high`, both of them included.
    pub(super) fn whole(&mut self, low: u32, high: u32) -> u32 {
        self.real(low.into(), f64::from(high) + 1.0) as u32
    }
}
