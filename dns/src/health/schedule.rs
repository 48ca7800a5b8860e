//! When a gateway is checked next.
//!
//! While nothing is wrong, a check begins at most one interval after the previous one; a random part of up to a tenth is subtracted, so that
//! the checks of many gateways are spread out. After a failure, the next check begins as soon as this one could have timed out. So a dead gateway,
//! whether it refuses connections or is silent, has left the answers after one interval and `fall` timeouts ([`CheckSchedule::leaves_within`]).
//! While a gateway recovers, checks keep the normal interval.
//!
//! A check that gets no answer in time may say more about this machine than about the gateway: if the timer fired late, an answer would also
//! have been noticed late ([`CheckSchedule::is_inconclusive`]). Such a check is repeated at once.

use std::time::Duration;

use super::machine::{Change, Health, Thresholds};

/// How often gateways are checked, and how long a check may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckSchedule {
    /// The longest time from the beginning of one check to the beginning of the next.
    pub interval: Duration,
    /// The timeout of a check.
    pub timeout: Duration,
    /// The number of consecutive results that change a gateway's state.
    pub thresholds: Thresholds,
}

impl CheckSchedule {
    /// The longest time from a gateway's death until it has left the answers.
    #[must_use]
    pub fn leaves_within(&self) -> Duration {
        self.interval + self.timeout * self.thresholds.fall
    }

    /// Whether a check without an answer is inconclusive, because this machine noticed the timeout only after half as long again: it was busy
    /// or suspended, and would not have noticed an answer either. Of several such checks in a row (`before` is the number of earlier ones) every
    /// second one counts as failed, so that a dead gateway leaves the answers even if this machine is always late.
    #[must_use]
    pub fn is_inconclusive(&self, took: Duration, before: u32) -> bool {
        before == 0 && took > self.timeout + self.timeout / 2
    }

    /// The state after a check, what it changes, and the time from the beginning of this check to the beginning of the next. `spread` is a random
    /// number between 0 and 1.
    #[must_use]
    pub fn after(&self, state: Health, passed: bool, spread: f64) -> (Health, Change, Duration) {
        let (next, change) = state.apply(passed, self.thresholds);
        let pause = match next {
            Health::Failing(_) => self.timeout.min(self.interval),
            Health::Up | Health::Down | Health::Recovering(_) => {
                self.interval.mul_f64(1.0 - spread.clamp(0.0, 1.0) / 10.0)
            }
        };
        (next, change, pause)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_check_that_was_late_itself_says_nothing_once() {
        let schedule = CheckSchedule {
            interval: MS * 1000,
            timeout: MS * 500,
            thresholds: Thresholds { fall: 2, rise: 2 },
        };
        // Timers usually fire a little late.
        assert!(!schedule.is_inconclusive(MS * 500, 0));
        assert!(!schedule.is_inconclusive(MS * 750, 0));
        assert!(schedule.is_inconclusive(MS * 751, 0));
        assert!(schedule.is_inconclusive(MS * 60_000, 0));
        assert!(!schedule.is_inconclusive(MS * 60_000, 1), "not for ever");
    }

    /// A gateway in simulated time: it is dead at certain times, and then either refuses connections or is silent.
    struct GatewayHistory {
        schedule: CheckSchedule,
        /// The times, in ms, at which it dies and comes back, alternately.
        turns: Vec<u64>,
        silent: bool,
    }

    impl GatewayHistory {
        fn dead(&self, at: Duration) -> bool {
            let before = self
                .turns
                .iter()
                .filter(|turn| MS * u32::try_from(**turn).expect("small") <= at);
            before.count() % 2 == 1
        }

        /// When it left the answers and returned.
        fn changes(&self, spread: &[f64], until: Duration) -> Vec<(Duration, Change)> {
            let (mut now, mut state, mut changes) = (Duration::ZERO, Health::Up, Vec::new());
            for spread in spread.iter().cycle() {
                if now > until {
                    break;
                }
                let passed = !self.dead(now);
                let took = if !passed && self.silent {
                    self.schedule.timeout
                } else {
                    Duration::ZERO
                };
                let (next, change, pause) = self.schedule.after(state, passed, *spread);
                if change != Change::None {
                    changes.push((now + took, change));
                }
                state = next;
                now += pause.max(took);
            }
            changes
        }
    }

    proptest! {
        /// With timeouts of half an interval, as by default, that is two intervals for two failures.
        #[test]
        fn a_dead_gateway_has_left_in_time_and_returns_once(
            interval in 100u64..2000, share in 1u64..=100, fall in 1u32..5, rise in 1u32..5,
            dies in 1u64..10_000, silent in any::<bool>(), spread in proptest::collection::vec(0.0..=1.0f64, 1..20),
        ) {
            let interval = MS * u32::try_from(interval).expect("small");
            let timeout = interval.mul_f64(f64::from(u32::try_from(share).expect("small")) / 100.0).max(MS);
            let schedule = CheckSchedule { interval, timeout, thresholds: Thresholds { fall, rise } };
            let back = dies + 60_000;
            let history = GatewayHistory { schedule, turns: vec![dies, back], silent };
            let changes = history.changes(&spread, MS * 200_000);
            let kinds: Vec<_> = changes.iter().map(|(_, change)| *change).collect();
            prop_assert_eq!(kinds, [Change::Leaves, Change::Returns]);
            let died = MS * u32::try_from(dies).expect("small");
            prop_assert!(changes[0].0 >= died && changes[0].0 <= died + schedule.leaves_within(), "{changes:?}");
            if timeout * 2 <= interval && fall >= 2 {
                prop_assert!(changes[0].0 <= died + interval * fall);
            }
        }

        /// A gateway whose outages are too short to reach the threshold stays in the answers.
        #[test]
        fn what_is_too_short_changes_nothing(
            fall in 2u32..5, rise in 2u32..5, begin in 0u64..1000, spread in proptest::collection::vec(0.0..=1.0f64, 1..20),
        ) {
            let schedule = CheckSchedule { interval: MS * 1000, timeout: MS * 500, thresholds: Thresholds { fall, rise } };
            // Dead for less time than two failures take, every ten seconds.
            let turns = (0..10).flat_map(|n| [n * 10_000 + begin, n * 10_000 + begin + 499]).collect();
            let history = GatewayHistory { schedule, turns, silent: false };
            prop_assert!(history.changes(&spread, MS * 120_000).is_empty());
        }
    }
}
