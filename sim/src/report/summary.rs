//! A sample in five figures.

use serde::Serialize;

/// Mean and quantiles of a sample, in the sample's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// How many values.
    pub count: usize,
    /// Their mean; 0 of nothing.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// 99 of 100 are at most this.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of these values, which are sorted on the way.
    ///
    /// A quantile is the smallest value that at least this share of the sample does not exceed (nearest rank).
    #[must_use]
    pub fn of(values: &mut [f64]) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let Some(max) = values.last().copied() else {
            return Self::default();
        };
        Self {
            count: values.len(),
            mean: mean(values),
            p50: quantile(values, 0.5),
            p99: quantile(values, 0.99),
            max,
        }
    }
}

/// The mean; 0 of nothing.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// A quantile of sorted values by nearest rank; 0 of nothing.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_sample() {
        let mut values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let summary = Summary::of(&mut values);
        assert_eq!(
            (summary.p50, summary.p99, summary.max),
            (100.0, 198.0, 200.0)
        );
        assert_eq!((summary.count, summary.mean), (200, 100.5));
        assert_eq!(Summary::of(&mut [3.0]).p99, 3.0);
        assert_eq!(Summary::of(&mut []), Summary::default());
    }
}
