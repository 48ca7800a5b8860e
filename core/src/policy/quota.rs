//! Quotas: calls per day and per month (UTC), over all nodes.
//!
//! The controller counts calls once each, from the usage of all nodes, and sends the sums to every node with its snapshots. A node adds
//! the calls that it has admitted itself since. So a node's count lacks what the others have admitted since: at most the network's call
//! rate times the age of the sums (the delay of usage on its way to the controller plus the interval between snapshots). At the end of a
//! window that many calls too many may be admitted; no call is refused too early, because nothing is counted twice for longer than that
//! age. While no controller is available, each node continues with the last sums and its own calls.

use serde::{Deserialize, Serialize};

use super::QuotaRule;
use crate::id::AppName;
use crate::unit::Timestamp;

const DAY_MS: u64 = 86_400_000;

/// A day and its month, as increasing numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Window {
    /// The number of days since 1970-01-01.
    pub day: u64,
    /// The number of months since 1970-01.
    pub month: u64,
}

impl Window {
    /// The day and month (UTC) of a moment.
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

    /// The first day of the month, in days since 1970-01-01.
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

/// Year and month (1 to 12) of a day since 1970-01-01, in the Gregorian calendar: it repeats after 400 years of 146097 days in all; years
/// begin in March, so that the leap day is their last.
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

/// The first day of a month, in days since 1970-01-01.
const fn days(year: u64, month: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year / 400;
    let of_era = year % 400;
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The calls of an app in the present day and month.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaUsage {
    /// The day and month.
    pub window: Window,
    /// The calls of the day.
    pub day: u64,
    /// The calls of the month.
    pub month: u64,
}

impl QuotaUsage {
    /// The counts at a later moment: zero for a day or month that has ended.
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

/// The calls of an app as counted by the controller, for nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppQuotaUsage {
    /// The app.
    pub app: AppName,
    /// The calls on all nodes.
    pub used: QuotaUsage,
}

/// The remaining quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainingQuota {
    /// The rule has no limit.
    Unbounded,
    /// The window with the fewest calls left.
    Calls {
        /// The calls left.
        left: u64,
        /// The limit of the window.
        limit: u64,
        /// The end of the window.
        until: Timestamp,
    },
}

/// The remaining quota after `used`.
#[must_use]
pub fn remaining_quota(rule: &QuotaRule, used: QuotaUsage) -> RemainingQuota {
    let day = rule.per_day.map(|limit| RemainingQuota::Calls {
        left: limit.saturating_sub(used.day),
        limit,
        until: used.window.day_ends(),
    });
    let month = rule.per_month.map(|limit| RemainingQuota::Calls {
        left: limit.saturating_sub(used.month),
        limit,
        until: used.window.month_ends(),
    });
    let calls = |left: &RemainingQuota| match left {
        RemainingQuota::Unbounded => u64::MAX,
        RemainingQuota::Calls { left, .. } => *left,
    };
    // If both are used up, the caller has to wait for the later end.
    match (day, month) {
        (Some(day), Some(month)) if calls(&month) <= calls(&day) => month,
        (Some(day), _) => day,
        (None, Some(month)) => month,
        (None, None) => RemainingQuota::Unbounded,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn windows_are_those_of_the_calendar() {
        // Seconds since 1970 as printed by `date -u -d … +%s`; months since 1970.
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
        let used = QuotaUsage {
            window,
            day: 10,
            month: 50,
        };
        let rule = QuotaRule {
            per_day: Some(10),
            per_month: Some(100),
        };
        assert!(
            matches!(remaining_quota(&rule, used), RemainingQuota::Calls { left: 0, limit: 10, until } if until == window.day_ends())
        );
        let rule = QuotaRule {
            per_month: Some(50),
            ..rule
        };
        assert!(
            matches!(remaining_quota(&rule, used), RemainingQuota::Calls { left: 0, limit: 50, until } if until == window.month_ends())
        );
        assert_eq!(
            remaining_quota(&QuotaRule::default(), used),
            RemainingQuota::Unbounded
        );
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
