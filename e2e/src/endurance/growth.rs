//! Whether what a process holds stays flat.
//!
//! A process is looked at once it is warm: after a quarter of the run, or of its own life where it was started later. Two thirds of what is left are
//! compared, the first and the last, by their medians, so that one peak says nothing; a line through all of it gives the slope that is told.

use std::time::Duration;

/// Fewer samples than this say nothing.
const SAMPLES: usize = 9;

/// What is held at a time after the beginning.
pub type Sample = (Duration, f64);

/// How much more than before counts as flat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowed {
    /// In the unit of the samples.
    pub more: f64,
    /// As a part of what was held before.
    pub part: f64,
}

/// Bytes of memory. A process fills bounded tables for a while (history for machines that were away, logs, records of calls, code of the versions that
/// were deployed last) and its allocator keeps some of what was given back; what leaks with each of some thousand calls, events or deploys
/// is more.
pub const MEMORY: Allowed = Allowed {
    more: (48 << 20) as f64,
    part: 0.25,
};
/// File descriptors: connections of clients come and go, one that leaks with each event is more.
pub const DESCRIPTORS: Allowed = Allowed {
    more: 32.0,
    part: 0.25,
};

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// The most at any time, before it was warm too.
    pub peak: f64,
    /// The median of the first third once it was warm.
    pub first: f64,
    /// The median of the last third.
    pub last: f64,
    /// Of the line of least squares, for an hour.
    pub slope: f64,
}

impl Growth {
    /// What is told of it: peak, first and last third, slope.
    #[must_use]
    pub const fn numbers(self) -> [f64; 4] {
        [self.peak, self.first, self.last, self.slope]
    }

    /// Of samples in the order of their times, `warm` after the beginning; nothing of too few.
    #[must_use]
    pub fn of(samples: &[Sample], warm: Duration) -> Option<Self> {
        let peak = samples.iter().map(|(_, held)| *held).fold(0.0, f64::max);
        let begin = samples.first()?.0;
        let end = samples.last()?.0;
        let from = warm.max(begin + (end - begin) / 4);
        let warm: Vec<Sample> = samples
            .iter()
            .copied()
            .filter(|(at, _)| *at >= from)
            .collect();
        if warm.len() < SAMPLES {
            return None;
        }
        let third = warm.len() / 3;
        Some(Self {
            peak,
            first: median(&warm[..third]),
            last: median(&warm[warm.len() - third..]),
            slope: slope(&warm) * 3600.0,
        })
    }

    /// Whether it grew no more than is allowed.
    #[must_use]
    pub fn is_flat(&self, allowed: Allowed) -> bool {
        self.last <= self.first * (1.0 + allowed.part) + allowed.more
    }
}

fn median(samples: &[Sample]) -> f64 {
    let mut held: Vec<f64> = samples.iter().map(|(_, held)| *held).collect();
    held.sort_by(f64::total_cmp);
    held[held.len() / 2]
}

/// Of the line of least squares, for a second.
fn slope(samples: &[Sample]) -> f64 {
    let count = samples.len() as f64;
    let mean = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let (time, held) = (mean(|s| s.0.as_secs_f64()), mean(|s| s.1));
    let apart = |sample: &Sample| sample.0.as_secs_f64() - time;
    let both: f64 = samples.iter().map(|s| apart(s) * (s.1 - held)).sum();
    let square: f64 = samples.iter().map(|s| apart(s).powi(2)).sum();
    if square > 0.0 { both / square } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Allowed = Allowed {
        more: 10.0,
        part: 0.1,
    };

    fn samples(held: impl Fn(u64) -> f64) -> Vec<Sample> {
        let at = |n| (Duration::from_secs(n * 10), held(n));
        (0..100).map(at).collect()
    }

    #[test]
    fn what_rises_while_it_warms_up_and_then_stays_is_flat() {
        let grown = samples(|n| 100.0 + (n.min(20) * 50) as f64 + (n % 3) as f64);
        let grown = Growth::of(&grown, Duration::from_secs(250)).expect("enough");
        assert!(grown.is_flat(ALLOWED), "{grown:?}");
        assert!(
            grown.slope.abs() < 10.0 && grown.peak >= 1_100.0,
            "{grown:?}"
        );
    }

    #[test]
    fn a_leak_is_none_and_its_slope_is_that_of_an_hour() {
        let grown = samples(|n| 100.0 + n as f64);
        let grown = Growth::of(&grown, Duration::from_secs(250)).expect("enough");
        assert!(!grown.is_flat(ALLOWED), "{grown:?}");
        assert!((grown.slope - 360.0).abs() < 1e-6, "{grown:?}");
    }

    #[test]
    fn one_peak_says_nothing_nor_do_few_samples() {
        let grown = samples(|n| if n == 98 { 9_000.0 } else { 100.0 });
        let grown = Growth::of(&grown, Duration::ZERO).expect("enough");
        assert!(grown.is_flat(ALLOWED) && grown.peak > 8_000.0, "{grown:?}");
        assert_eq!(Growth::of(&samples(|_| 1.0)[..8], Duration::ZERO), None);
        assert_eq!(Growth::of(&[], Duration::ZERO), None);
    }

    #[test]
    fn who_was_started_late_warms_up_on_its_own() {
        let begin = Duration::from_secs(5_000);
        let late = samples(|n| if n < 20 { 0.0 } else { 500.0 });
        let late: Vec<Sample> = late.iter().map(|(at, held)| (begin + *at, *held)).collect();
        let grown = Growth::of(&late, Duration::from_secs(900)).expect("enough");
        assert!(grown.is_flat(ALLOWED), "{grown:?}");
    }
}
