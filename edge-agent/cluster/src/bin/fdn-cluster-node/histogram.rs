//! A histogram of latencies with buckets that are 2 % wide.

use serde::Serialize;

/// Buckets per doubling.
const FINE: f64 = 35.0;

/// A histogram of times in microseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Histogram {
    /// The count of each bucket; bucket `b` begins at `2^(b/35)` microseconds.
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
