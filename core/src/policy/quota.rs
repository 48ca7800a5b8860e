//! Quotas: calls of a day and of a month (UTC), over all nodes.
//!
//! The controller counts calls from the usage records of all nodes, each once, and tells every node the sums with its snapshots. A node
//! adds what it has let in itself since it was told. So a node knows less than the truth by what the others have let in since: at
//! most the network's rate of calls times the age of the sums (a record's way to the controller and the time between two snapshots).
//! That many calls too many may be let in at the end of a window; no call too few, because nothing is counted twice for longer than
//! that age. With the controller away, each node goes on with the last sums and what it has let in itself.

use serde::{Deserialize, Serialize};

use super::QuotaRule;
use crate::id::AppName;
use crate::unit::Timestamp;

const DAY_MS: u64 = 86_400_000;

/// A day and its month, as numbers that grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Window {
    /// Days since 1970-01-01.
    pub day: u64,
    /// Months since 1970-01.
    pub month: u64,
}

impl Window {
    /// The day and month of a moment.
    #[must_use]
    pub const fn at(now: Timestamp) -> Self {
        let day = now.0 / DAY_MS;
        let (year, month) = civil(day);
        Self {
            day,
            month: (year - 1970) * 12 + (month - 1),
        }
    }

    /// The first moment of the next day.
    #[must_use]
    pub const fn day_ends(self) -> Timestamp {
        Timestamp((self.day + 1) * DAY_MS)
    }

    /// The first day of the month.
    #[must_use]
    pub const fn month_begins(self) -> u64 {
        days(1970 + self.month / 12, self.month % 12 + 1)
    }

    /// The first moment of the next month.
    #[must_use]
    pub const fn month_ends(self) -> Timestamp {
        let next = self.month + 1;
        Timestamp(days(1970 + next / 12, next % 12 + 1) * DAY_MS)
    }
}

/// Year and month (from 1) of a day since 1970-01-01, in the Gregorian calendar: years of 400 repeat after 146097 days, and begin in March
/// so that the day that leap years add is their last.
const fn civil(day: u64) -> (u64, u64) {
    let shifted = day + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let late = if month <= 2 { 1 } else { 0 };
    (year + era * 400 + late, month)
}

/// The day since 1970-01-01 that a month begins with.
const fn days(year: u64, month: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let of_era = year % 400;
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Calls of an app in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// The window.
    pub window: Window,
    /// Calls of its day.
    pub day: u64,
    /// Calls of its month.
    pub month: u64,
}

impl Used {
    /// The same at a later moment: a day or a month that has ended is forgotten.
    #[must_use]
    pub const fn at(self, now: Window) -> Self {
        Self {
            window: now,
            day: if self.window.day == now.day {
                self.day
            } else {
                0
            },
            month: if self.window.month == now.month {
                self.month
            } else {
                0
            },
        }
    }
}

/// Calls of an app as the controller counts them, told to nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppUsed {
    /// The app.
    pub app: AppName,
    /// Its calls, on all nodes.
    pub used: Used,
}

/// What is left of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The rule bounds nothing.
    Unbounded,
    /// So many calls until the window that ends first with none left, and when it ends.
    Calls {
        /// Calls left.
        left: u64,
        /// Calls of the whole window.
        limit: u64,
        /// When the window ends.
        until: Timestamp,
    },
}

/// What is left when `used` has been used.
#[must_use]
pub fn left(rule: &QuotaRule, used: Used) -> Left {
    let day = rule.per_day.map(|limit| Left::Calls {
        left: limit.saturating_sub(used.day),
        limit,
        until: used.window.day_ends(),
    });
    let month = rule.per_month.map(|limit| Left::Calls {
        left: limit.saturating_sub(used.month),
        limit,
        until: used.window.month_ends(),
    });
    let calls = |left: &Left| match left {
        Left::Unbounded => u64::MAX,
        Left::Calls { left, .. } => *left,
    };
    // With both used up, a caller has to wait for the later end.
    match (day, month) {
        (Some(day), Some(month)) if calls(&month) <= calls(&day) => month,
        (Some(day), _) => day,
        (None, Some(month)) => month,
        (None, None) => Left::Unbounded,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn windows_are_those_of_the_calendar() {
        // Seconds since 1970, as `date -u -d … +%s` tells them; months since 1970.
        for (seconds, month, ends) in [
            (0, 0, 2_678_400),
            (951_782_399, 361, 951_868_800), // 2000-02-28T23:59:59Z
            (951_782_400, 361, 951_868_800), // 2000-02-29
            (1_709_251_199, 649, 1_709_251_200), // 2024-02-29T23:59:59Z
            (1_709_251_200, 650, 1_711_929_600), // 2024-03-01
            (1_798_761_599, 683, 1_798_761_600), // 2026-12-31T23:59:59Z
            (4_107_542_400, 1562, 4_107_542_400), // 2100-03-01
        ] {
            let window = Window::at(Timestamp(seconds * 1000));
            assert_eq!(window.day, seconds / 86_400);
            assert_eq!(window.month, month, "{seconds}");
            if seconds < ends {
                assert_eq!(window.month_ends(), Timestamp(ends * 1000), "{seconds}");
            }
        }
    }

    #[test]
    fn the_tighter_bound_counts_and_then_the_longer_wait() {
        let window = Window::at(Timestamp(1_709_251_200_000));
        let used = Used {
            window,
            day: 10,
            month: 50,
        };
        let rule = QuotaRule {
            per_day: Some(10),
            per_month: Some(100),
        };
        assert!(
            matches!(left(&rule, used), Left::Calls { left: 0, limit: 10, until } if until == window.day_ends())
        );
        let rule = QuotaRule {
            per_month: Some(50),
            ..rule
        };
        assert!(
            matches!(left(&rule, used), Left::Calls { left: 0, limit: 50, until } if until == window.month_ends())
        );
        assert_eq!(left(&QuotaRule::default(), used), Left::Unbounded);
    }

    proptest! {
        #[test]
        fn days_and_months_agree(day in 0u64..200_000) {
            let window = Window::at(Timestamp(day * DAY_MS));
            prop_assert!(window.month_begins() <= day);
            prop_assert!(day < window.month_ends().0 / DAY_MS);
            let length = window.month_ends().0 / DAY_MS - window.month_begins();
            prop_assert!((28..=31).contains(&length));
            prop_assert_eq!(Window::at(window.month_ends()).month, window.month + 1);
        }
    }
}
