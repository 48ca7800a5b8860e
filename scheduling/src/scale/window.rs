//! The recent load of a function, in buckets of equal length.
//!
//! Means are over the observed time, not over the length of the window: a late or missing tick makes them coarser, not smaller. What is
//! observed between two ticks is spread evenly over the time between them.
//!
//! **Bound.** As many buckets as the window needs; older ones are overwritten. **Complexity.** O(buckets) per tick; no allocation.

use fdn_core::Millis;

/// The observations of one bucket.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// How much of the bucket's time was observed.
    observed_ms: f64,
    arrivals: f64,
    /// The integral of the number of requests in execution, in request-milliseconds.
    busy_ms: f64,
    /// The largest need for instances at a tick in it.
    need: u32,
    /// The smallest and the largest target size.
    size: (u32, u32),
}

/// Sums over a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    /// The observed time.
    pub(super) observed_ms: f64,
    /// The number of requests that arrived.
    pub(super) arrivals: f64,
    /// The integral of the number of requests in execution, in request-milliseconds.
    pub(super) busy_ms: f64,
}

/// The ring of buckets.
#[derive(Clone, Debug)]
pub(super) struct Window {
    length_ms: f64,
    buckets: Box<[Bucket]>,
    /// The number of the newest bucket, counted from time 0.
    newest: u64,
}

impl Window {
    /// An empty window of this length, with buckets of this length.
    #[must_use]
    pub(super) fn new(window: Millis, bucket: Millis) -> Self {
        let count = (window.get() / bucket.get()).ceil() as usize;
        Self {
            length_ms: bucket.get(),
            // One more: the newest is not full yet, and the window must still reach back its whole length.
            buckets: vec![Bucket::default(); count.max(1) + 1].into_boxed_slice(),
            newest: 0,
        }
    }

    /// Advances to a time; the target size in between is `size`.
    pub(super) fn advance(&mut self, now: Millis, size: u32) {
        let number = self.number(now.get());
        let fresh = number
            .saturating_sub(self.newest)
            .min(self.buckets.len() as u64);
        self.newest = self.newest.max(number);
        for back in 0..fresh {
            let at = self.at(self.newest - back);
            self.buckets[at] = Bucket {
                size: (size, size),
                ..Bucket::default()
            };
        }
    }

    /// Spreads an observation over the time from `from` to `to`, to which [`Self::advance`] must have moved.
    pub(super) fn record(&mut self, from: Millis, to: Millis, arrivals: f64, busy: f64) {
        let (from, to) = (from.get(), to.get());
        let span = to - from;
        if span <= 0.0 {
            let at = self.at(self.newest);
            self.buckets[at].arrivals += arrivals;
            return;
        }
        for back in 0..self.buckets.len() as u64 {
            let Some(number) = self.newest.checked_sub(back) else {
                break;
            };
            let begin = number as f64 * self.length_ms;
            let overlap = to.min(begin + self.length_ms) - from.max(begin);
            if overlap <= 0.0 && begin + self.length_ms <= from {
                break;
            }
            let at = self.at(number);
            let bucket = &mut self.buckets[at];
            let overlap = overlap.max(0.0);
            bucket.observed_ms += overlap;
            bucket.arrivals += arrivals * (overlap / span);
            bucket.busy_ms += busy * overlap;
        }
    }

    /// Records the present need for instances and the target size from now on.
    pub(super) fn note(&mut self, need: u32, size: u32) {
        let at = self.at(self.newest);
        let bucket = &mut self.buckets[at];
        bucket.need = bucket.need.max(need);
        bucket.size = (bucket.size.0.min(size), bucket.size.1.max(size));
    }

    /// The sums over the last `span`, in whole buckets.
    #[must_use]
    pub(super) fn sums(&self, span: Millis) -> Sums {
        self.last(span).fold(Sums::default(), |sums, bucket| Sums {
            observed_ms: sums.observed_ms + bucket.observed_ms,
            arrivals: sums.arrivals + bucket.arrivals,
            busy_ms: sums.busy_ms + bucket.busy_ms,
        })
    }

    /// The largest need for instances within the last `span`.
    #[must_use]
    pub(super) fn need(&self, span: Millis) -> u32 {
        self.last(span).map(|bucket| bucket.need).max().unwrap_or(0)
    }

    /// The smallest and the largest target size within the last `span`.
    #[must_use]
    pub(super) fn sizes(&self, span: Millis) -> (u32, u32) {
        self.last(span)
            .fold((u32::MAX, 0), |(least, most), bucket| {
                (least.min(bucket.size.0), most.max(bucket.size.1))
            })
    }

    /// The newest bucket, which is not full yet, and those that cover `span` before it.
    fn last(&self, span: Millis) -> impl Iterator<Item = &Bucket> {
        let count = (span.get() / self.length_ms).ceil() as u64 + 1;
        let count = count.min(self.buckets.len() as u64).min(self.newest + 1);
        (0..count).map(|back| &self.buckets[self.at(self.newest - back)])
    }

    fn number(&self, time_ms: f64) -> u64 {
        (time_ms.max(0.0) / self.length_ms) as u64
    }

    fn at(&self, number: u64) -> usize {
        (number % self.buckets.len() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: f64) -> Millis {
        Millis::new(ms)
    }

    fn window() -> Window {
        Window::new(ms(4000.0), ms(1000.0))
    }

    #[test]
    fn what_is_seen_is_spread_over_the_time_between_ticks() {
        let mut window = window();
        window.advance(ms(2500.0), 1);
        window.record(ms(500.0), ms(2500.0), 4.0, 3.0);
        let all = window.sums(ms(4000.0));
        assert_eq!(
            (all.observed_ms, all.arrivals, all.busy_ms),
            (2000.0, 4.0, 6000.0)
        );
        // The newest half bucket and the full one before it.
        let last = window.sums(ms(1000.0));
        assert_eq!((last.observed_ms, last.arrivals), (1500.0, 3.0));
    }

    #[test]
    fn what_is_old_is_forgotten_and_a_gap_is_not_observed() {
        let mut window = window();
        window.advance(ms(500.0), 1);
        window.record(ms(0.0), ms(500.0), 9.0, 1.0);
        window.note(7, 9);
        assert_eq!(
            (window.need(ms(4000.0)), window.sizes(ms(4000.0))),
            (7, (0, 9))
        );
        window.advance(ms(4500.0), 9);
        assert_eq!(window.need(ms(4000.0)), 7, "still in the window");
        window.advance(ms(5000.0), 9);
        assert_eq!(window.need(ms(4000.0)), 0);
        assert_eq!(window.sums(ms(4000.0)), Sums::default());
        assert_eq!(window.sizes(ms(4000.0)), (9, 9), "the size stayed");
        window.advance(ms(1e9), 3);
        window.record(ms(0.0), ms(1e9), 1e9, 2.0);
        let sums = window.sums(ms(4000.0));
        assert_eq!(sums.busy_ms / sums.observed_ms, 2.0);
        assert!((sums.arrivals / sums.observed_ms - 1.0).abs() < 1e-9);
    }

    #[test]
    fn two_ticks_at_one_time_lose_no_arrival() {
        let mut window = window();
        window.record(ms(0.0), ms(0.0), 2.0, 1.0);
        assert_eq!(window.sums(ms(1000.0)).arrivals, 2.0);
        assert_eq!(window.sums(ms(1000.0)).observed_ms, 0.0);
    }
}
