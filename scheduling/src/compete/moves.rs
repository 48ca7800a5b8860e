//! A bound on how many users are moved per unit of time: every move costs cold starts and new DNS answers, and a mistake should affect few.
//!
//! A token bucket. A move costs half the users' share of the total load plus half their share (one group) of all groups, so that neither
//! much load nor many answers change at once; the bucket holds the fraction `share` of everything and refills within `interval`. A move
//! that costs more than the bucket holds is allowed when it is full, and leaves a debt. Users whose cluster can no longer serve them, or is asked
//! for more than it can do, move in any case, and do not pay: they must not wait, nor make others wait.

use fdn_core::Millis;

/// The token bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moves {
    share: f64,
    interval: Millis,
    tokens: f64,
}

/// The cost of a move, as a fraction of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost(pub(super) f64);

impl Moves {
    /// A full bucket: `share` (above 0, at most 1) of everything per `interval` (above 0, finite). `None` outside these ranges.
    #[must_use]
    pub fn new(share: f64, interval: Millis) -> Option<Self> {
        let possible =
            share > 0.0 && share <= 1.0 && interval > Millis::ZERO && interval.is_finite();
        possible.then_some(Self {
            share,
            interval,
            tokens: share,
        })
    }

    /// A bucket that allows every move.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self {
            share: f64::INFINITY,
            interval: Millis::new(1.0),
            tokens: f64::INFINITY,
        }
    }

    /// A bucket that allows no move for a gain.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            share: 0.0,
            interval: Millis::new(1.0),
            tokens: f64::NEG_INFINITY,
        }
    }

    /// The state as numbers, for records: the share, the interval in ms, and the tokens left.
    pub(crate) const fn numbers(&self) -> [f64; 3] {
        [self.share, self.interval.get(), self.tokens]
    }

    /// Restores the state from [`Moves::numbers`].
    pub(crate) const fn from_numbers([share, interval, tokens]: [f64; 3]) -> Self {
        Self {
            share,
            interval: Millis::new(interval),
            tokens,
        }
    }

    /// Refills the bucket for the time elapsed since the last call; negative times count as zero.
    pub fn fill(&mut self, elapsed: Millis) {
        let elapsed = elapsed.max(Millis::ZERO);
        let filled = self.tokens + self.share * (elapsed.get() / self.interval.get());
        self.tokens = filled.min(self.share);
    }

    /// Pays for a move and returns true if it is allowed now; otherwise takes nothing.
    pub fn pay(&mut self, cost: Cost) -> bool {
        let may = self.tokens >= cost.0.min(self.share);
        if may {
            self.tokens -= cost.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn moves() -> Moves {
        Moves::new(0.2, Millis::new(1000.0)).unwrap()
    }

    #[test]
    fn a_share_of_everything_moves_in_each_interval() {
        let mut moves = moves();
        assert!(moves.pay(Cost(0.15)));
        assert!(!moves.pay(Cost(0.1)), "0.05 is left");
        moves.fill(Millis::new(250.0));
        assert!(moves.pay(Cost(0.1)), "0.1 is there");
        moves.fill(Millis::new(1e9));
        assert!(
            moves.pay(Cost(0.2)) && !moves.pay(Cost(0.01)),
            "not hoarded"
        );
    }

    #[test]
    fn nobody_moves_for_a_gain_where_nobody_may() {
        let mut moves = Moves::none();
        moves.fill(Millis::new(1e9));
        assert!(!moves.pay(Cost(0.0)) && !moves.pay(Cost(0.5)));
    }

    #[test]
    fn what_is_larger_than_the_bucket_goes_when_it_is_full_and_leaves_a_debt() {
        let mut moves = moves();
        assert!(moves.pay(Cost(0.9)));
        moves.fill(Millis::new(3_000.0));
        assert!(!moves.pay(Cost(0.01)), "0.1 is still owed");
        moves.fill(Millis::new(1_000.0));
        assert!(moves.pay(Cost(0.01)));
    }

    #[test]
    fn settings_that_stop_everything_are_refused() {
        for (share, interval) in [(0.0, 1.0), (1.1, 1.0), (f64::NAN, 1.0), (0.5, 0.0)] {
            assert_eq!(Moves::new(share, Millis::new(interval)), None);
        }
        let mut unlimited = Moves::unlimited();
        assert!((0..9).all(|_| unlimited.pay(Cost(1.0))));
    }

    proptest! {
        /// Over any time no more is moved than the bucket and what flowed into it, but for one debt.
        #[test]
        fn the_rate_holds(costs in prop::collection::vec((0.0f64..0.3, 0.0f64..300.0), 1..200)) {
            let mut moves = moves();
            let (mut paid, mut elapsed, mut largest) = (0.0, 0.0, 0.0f64);
            for (cost, pause) in costs {
                moves.fill(Millis::new(pause));
                elapsed += pause;
                if moves.pay(Cost(cost)) {
                    paid += cost;
                    largest = largest.max(cost);
                }
            }
            prop_assert!(paid <= 0.2 + 0.2 * elapsed / 1000.0 + (largest - 0.2).max(0.0) + 1e-9);
        }
    }
}
