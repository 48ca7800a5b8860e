//! What the calls of many passes take, by how long each pass counted.

use std::collections::BTreeMap;

use fdn_core::Timestamp;

use super::Cost;

/// A pass counts until the next one, and no longer than this: a controller that did not record knows nothing.
const LONGEST_S: f64 = 60.0;
/// What the only pass counts.
const ALONE_S: f64 = 1.0;
/// Bits of a number that are left out when equal times are counted together: it stays exact to a 4,000th.
const ROUGH: u32 = 40;

/// Calls that take the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// So many a second.
    pub(super) rate: f64,
    /// What they take, in ms; nothing if they cannot be served.
    pub(super) latency: Option<f64>,
}

/// Sums over passes.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The last pass, until it is known how long it counts.
    last: Option<(Timestamp, Vec<Sample>, f64)>,
    last_s: f64,
    seconds: f64,
    calls: f64,
    served: f64,
    /// Times of calls that are served, summed up.
    total_ms: f64,
    /// Calls by what they take, roughly; times are not negative, so that their bits are in their order.
    times: BTreeMap<u64, f64>,
    missing: f64,
    moves: Option<(usize, f64)>,
}

impl Tally {
    /// A pass: its calls, the memory that is missing, and what was moved.
    pub(super) fn pass(
        &mut self,
        at: Timestamp,
        samples: Vec<Sample>,
        missing: f64,
        moves: Option<(usize, f64)>,
    ) {
        if let Some((last, ..)) = &self.last {
            let seconds = at.get().saturating_sub(last.get()) as f64 / 1000.0;
            self.count(seconds.min(LONGEST_S));
        }
        self.last = Some((at, samples, missing));
        if let Some((count, share)) = moves {
            let (all, sum) = self.moves.get_or_insert((0, 0.0));
            *all += count;
            *sum += share;
        }
    }

    /// The last pass counted so long.
    fn count(&mut self, seconds: f64) {
        let Some((_, samples, missing)) = self.last.take() else {
            return;
        };
        self.last_s = seconds;
        self.seconds += seconds;
        self.missing += missing * seconds;
        for sample in samples {
            let calls = sample.rate * seconds;
            self.calls += calls;
            if let Some(latency) = sample.latency.filter(|_| calls > 0.0) {
                self.served += calls;
                self.total_ms += calls * latency;
                let rough = latency.to_bits() >> ROUGH;
                *self.times.entry(rough).or_default() += calls;
            }
        }
    }

    /// The end.
    pub(super) fn cost(mut self, policy: &'static str) -> Cost {
        let last = if self.last_s > 0.0 {
            self.last_s
        } else {
            ALONE_S
        };
        self.count(last);
        let some = self.served > 0.0;
        Cost {
            policy,
            mean_ms: some.then(|| self.total_ms / self.served),
            p99_ms: some.then(|| self.quantile(0.99)),
            unserved_share: if self.calls > 0.0 {
                (1.0 - self.served / self.calls).max(0.0)
            } else {
                0.0
            },
            moves: self.moves.map(|(count, _)| count),
            moved_share: self.moves.map(|(_, share)| share),
            memory_missing_mib: if self.seconds > 0.0 {
                self.missing / self.seconds
            } else {
                0.0
            },
        }
    }

    fn quantile(&self, share: f64) -> f64 {
        let mut below = 0.0;
        for (rough, calls) in &self.times {
            below += calls;
            if below >= share * self.served {
                return f64::from_bits(rough << ROUGH);
            }
        }
        let last = self.times.last_key_value();
        last.map_or(0.0, |(rough, _)| f64::from_bits(rough << ROUGH))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(rate: f64, latency: f64) -> Sample {
        Sample {
            rate,
            latency: latency.is_finite().then_some(latency),
        }
    }

    #[test]
    fn passes_count_by_how_long_they_lasted_and_groups_by_their_calls() {
        let mut tally = Tally::default();
        // Ten seconds of 10 calls/s of 20 ms and 10 of 40 ms, then as long as the one before: 30 calls/s, of which 10 are not served.
        tally.pass(
            Timestamp(1_000),
            vec![sample(10.0, 20.0), sample(10.0, 40.0)],
            8.0,
            Some((1, 0.5)),
        );
        let after = vec![sample(20.0, 100.0), sample(10.0, f64::INFINITY)];
        tally.pass(Timestamp(11_000), after, 0.0, Some((2, 0.25)));
        let cost = tally.cost("nearest");
        assert_eq!(cost.mean_ms, Some((200.0 * 30.0 + 200.0 * 100.0) / 400.0));
        assert_eq!(cost.p99_ms, Some(100.0));
        assert!((cost.unserved_share - 0.2).abs() < 1e-12);
        assert_eq!((cost.moves, cost.moved_share), (Some(3), Some(0.75)));
        assert_eq!(cost.memory_missing_mib, 4.0);
    }

    #[test]
    fn a_long_silence_counts_a_minute_and_one_pass_alone_counts_too() {
        let mut tally = Tally::default();
        tally.pass(Timestamp(0), vec![sample(1.0, 10.0)], 0.0, None);
        tally.pass(Timestamp(3_600_000), vec![sample(1.0, 20.0)], 0.0, None);
        tally.pass(Timestamp(3_660_000), Vec::new(), 0.0, None);
        let cost = tally.cost("fcfs");
        assert_eq!((cost.mean_ms, cost.moves), (Some(15.0), None));
        let mut tally = Tally::default();
        tally.pass(Timestamp(0), vec![sample(1.0, 10.0)], 0.0, None);
        assert_eq!(tally.cost("stay").p99_ms, Some(10.0));
        let none = Tally::default().cost("stay");
        assert_eq!((none.mean_ms, none.memory_missing_mib), (None, 0.0));
    }

    #[test]
    fn one_call_in_a_hundred_takes_the_quantile_or_more() {
        let mut tally = Tally::default();
        let samples = vec![sample(980.0, 10.0), sample(15.0, 500.0), sample(5.0, 900.0)];
        tally.pass(Timestamp(0), samples, 0.0, None);
        assert_eq!(tally.cost("stay").p99_ms, Some(500.0));
    }
}
