//! Latencies by buckets that are 2 % wide.

use serde::Serialize;

/// Buckets per doubling.
const FINE: f64 = 35.0;

/// Microseconds, counted by bucket.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Histogram {
    /// How many are in each bucket: in bucket `b` from `2^(b/35)` microseconds on.
    pub(crate) buckets: Vec<u64>,
}

impl Histogram {
    pub(crate) fn add(&mut self, micros: f64) {
        let bucket = (micros.max(1.0).log2() * FINE) as usize;
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
    }
}
