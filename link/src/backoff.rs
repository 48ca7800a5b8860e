//! Pauses before another try: doubling, bounded, with jitter so that nodes do not come back in step.

use std::time::Duration;

/// The pause after `failures` failures in a row (1 or more): `first` doubled each time, `max` at most, and of that between a half and
/// the whole, by `jitter` from 0 to 1.
#[must_use]
pub fn pause(failures: u32, first: Duration, max: Duration, jitter: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(30);
    let full = first.saturating_mul(1 << doublings).min(max);
    full.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_bound() {
        let (first, max) = (Duration::from_secs(1), Duration::from_secs(60));
        let at = |failures| pause(failures, first, max, 1.0).as_secs();
        assert_eq!(
            [at(0), at(1), at(2), at(3), at(7), at(1000)],
            [1, 1, 2, 4, 60, 60]
        );
        assert_eq!(pause(3, first, max, 0.0), Duration::from_secs(2));
    }
}
