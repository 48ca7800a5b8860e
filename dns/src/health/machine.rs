//! Decides when a gateway counts as alive: a state machine over the results of its health checks.
//!
//! | state | check passed | check failed |
//! | --- | --- | --- |
//! | `Up` | `Up` | `Failing(1)`; if `fall` is 1, `Down` and removed from the answers |
//! | `Failing(n)` | `Up` | `Failing(n + 1)`; at `fall`, `Down` and removed from the answers |
//! | `Down` | `Recovering(1)`; if `rise` is 1, `Up` and back in the answers | `Down` |
//! | `Recovering(n)` | `Recovering(n + 1)`; at `rise`, `Up` and back in the answers | `Down` |
//!
//! A gateway starts as `Up`: a server that has just started answers before its first check is done, and an answer that may be wrong
//! is better than none.

/// The number of consecutive results that change a gateway's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// The number of consecutive failures after which a gateway is removed from the answers.
    pub fall: u32,
    /// The number of consecutive successes after which it returns.
    pub rise: u32,
}

/// The health of a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Its last check passed, or it has not been checked yet.
    #[default]
    Up,
    /// Still in the answers, after this many consecutive failures.
    Failing(u32),
    /// Not in the answers, and its last check failed.
    Down,
    /// Not in the answers, after this many consecutive successes.
    Recovering(u32),
}

/// What the result of a check changes in the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// The gateway leaves the answers.
    Leaves,
    /// The gateway returns to the answers.
    Returns,
}

impl Health {
    /// Returns the state after a check, and what it changes in the answers.
    #[must_use]
    pub fn apply(self, passed: bool, thresholds: Thresholds) -> (Self, Change) {
        match (self, passed) {
            (Self::Up | Self::Failing(_), true) => (Self::Up, Change::None),
            (Self::Down | Self::Recovering(_), false) => (Self::Down, Change::None),
            (Self::Up, false) => Self::fail(1, thresholds.fall),
            (Self::Failing(n), false) => Self::fail(n.saturating_add(1), thresholds.fall),
            (Self::Down, true) => Self::pass(1, thresholds.rise),
            (Self::Recovering(n), true) => Self::pass(n.saturating_add(1), thresholds.rise),
        }
    }

    const fn fail(failures: u32, fall: u32) -> (Self, Change) {
        if failures >= fall {
            (Self::Down, Change::Leaves)
        } else {
            (Self::Failing(failures), Change::None)
        }
    }

    const fn pass(successes: u32, rise: u32) -> (Self, Change) {
        if successes >= rise {
            (Self::Up, Change::Returns)
        } else {
            (Self::Recovering(successes), Change::None)
        }
    }

    /// Whether the gateway is in the answers.
    #[must_use]
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Up | Self::Failing(_))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_cell_of_the_table() {
        let one = Thresholds { fall: 1, rise: 1 };
        let three = Thresholds { fall: 3, rise: 3 };
        let cells = [
            (Health::Up, true, three, Health::Up, Change::None),
            (Health::Up, false, three, Health::Failing(1), Change::None),
            (Health::Up, false, one, Health::Down, Change::Leaves),
            (Health::Failing(1), true, three, Health::Up, Change::None),
            (
                Health::Failing(1),
                false,
                three,
                Health::Failing(2),
                Change::None,
            ),
            (
                Health::Failing(2),
                false,
                three,
                Health::Down,
                Change::Leaves,
            ),
            (
                Health::Down,
                true,
                three,
                Health::Recovering(1),
                Change::None,
            ),
            (Health::Down, true, one, Health::Up, Change::Returns),
            (Health::Down, false, three, Health::Down, Change::None),
            (
                Health::Recovering(1),
                true,
                three,
                Health::Recovering(2),
                Change::None,
            ),
            (
                Health::Recovering(2),
                true,
                three,
                Health::Up,
                Change::Returns,
            ),
            (
                Health::Recovering(2),
                false,
                three,
                Health::Down,
                Change::None,
            ),
        ];
        for (state, passed, thresholds, after, change) in cells {
            assert_eq!(
                state.apply(passed, thresholds),
                (after, change),
                "{state:?} {passed}"
            );
        }
    }

    proptest! {
        #[test]
        fn it_leaves_after_fall_failures_and_returns_after_rise_successes(
            results in proptest::collection::vec(any::<bool>(), 0..60), fall in 1u32..5, rise in 1u32..5,
        ) {
            let thresholds = Thresholds { fall, rise };
            let (mut state, mut up, mut row) = (Health::default(), true, 0);
            for passed in results {
                row = if passed == up { 0 } else { row + 1 };
                let expected = match (up, row) {
                    (true, n) if n == fall => Change::Leaves,
                    (false, n) if n == rise => Change::Returns,
                    _ => Change::None,
                };
                if expected != Change::None {
                    (up, row) = (!up, 0);
                }
                let (next, change) = state.apply(passed, thresholds);
                prop_assert_eq!(change, expected);
                prop_assert_eq!(next.is_up(), up);
                state = next;
            }
        }
    }
}
