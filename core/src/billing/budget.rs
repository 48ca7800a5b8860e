//! Budgets: a monthly limit, and the shares of it at which alerts are sent.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{BillingError, Currency, Money, Month, money};
pub use crate::id::BudgetName;
use crate::unit::Timestamp;

/// The most thresholds of a budget.
const THRESHOLDS_MAX: usize = 10;

/// A request to set a budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetBudget {
    /// The monthly limit in the network's currency, as a positive decimal number with at most six decimals, such as `100` or `99.50`.
    pub limit: String,
    /// From 1 to 10 percentages of the limit, each from 1 to 1000, at which an alert is given; 50, 80 and 100 if absent.
    #[serde(default = "default_thresholds")]
    pub thresholds: BTreeSet<u16>,
    /// The URL to which alerts are sent by signed requests; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
}

fn default_thresholds() -> BTreeSet<u16> {
    BTreeSet::from([50, 80, 100])
}

/// A budget: a monthly limit, and the shares of it at which alerts are given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Budget {
    /// The budget's name.
    pub name: BudgetName,
    /// The monthly limit.
    pub limit: Money,
    /// The percentages of the limit at which an alert is given.
    pub thresholds: BTreeSet<u16>,
    /// The URL to which alerts are sent by signed requests; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
}

/// The answer to a request that sets a budget: the budget, and the secret of its webhook.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BudgetSet {
    /// The budget.
    #[serde(flatten)]
    pub budget: Budget,
    /// The key with which webhook requests are signed, the same for all budgets of the tenant; absent if the budget has no webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_secret: Option<String>,
}

impl Budget {
    /// Validates a budget; whether the webhook's address is allowed is checked by the controller.
    ///
    /// # Errors
    /// When the limit is not positive, or a threshold is out of its range.
    pub fn new(
        name: BudgetName,
        set: &SetBudget,
        currency: Currency,
    ) -> Result<Self, BillingError> {
        let bad = |text: String| BillingError::Budget(text);
        let micros = money::parse_decimal(&set.limit)
            .filter(|micros| *micros > 0)
            .ok_or_else(|| {
                bad(format!(
                    "limit {:?}: a positive amount with at most six decimals",
                    set.limit
                ))
            })?;
        if set.thresholds.is_empty() || set.thresholds.len() > THRESHOLDS_MAX {
            return Err(bad(format!(
                "from 1 to {THRESHOLDS_MAX} thresholds are possible"
            )));
        }
        if let Some(threshold) = set.thresholds.iter().find(|t| !(1..=1000).contains(*t)) {
            return Err(bad(format!(
                "threshold {threshold}: from 1 to 1000 percent"
            )));
        }
        Ok(Self {
            name,
            limit: Money::new(micros, currency),
            thresholds: set.thresholds.clone(),
            webhook: set.webhook.clone(),
        })
    }

    /// The thresholds, in percent, that this spending has reached, in ascending order.
    #[must_use]
    pub fn reached(&self, spent: Money) -> Vec<u16> {
        let share = |threshold: &u16| {
            i128::from(spent.micros) * 100 >= i128::from(self.limit.micros) * i128::from(*threshold)
        };
        let same = spent.currency == self.limit.currency;
        self.thresholds
            .iter()
            .copied()
            .filter(|t| same && share(t))
            .collect()
    }
}

/// An alert: spending reached a threshold of a budget. There is at most one per budget, threshold and month.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BudgetAlert {
    /// The budget's name.
    pub budget: BudgetName,
    /// The month of the spending.
    pub month: Month,
    /// The threshold that was reached, in percent of the limit.
    pub threshold: u16,
    /// The spending when the alert was given.
    pub spent: Money,
    /// The budget's limit at that time.
    pub limit: Money,
    /// When the alert was given.
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_reached_at_their_share_and_not_before() {
        let set = SetBudget {
            limit: "10".to_owned(),
            thresholds: default_thresholds(),
            webhook: None,
        };
        let budget = Budget::new("b".parse().expect("name"), &set, Currency::EUR).expect("valid");
        let at = |micros| budget.reached(Money::new(micros, Currency::EUR));
        assert!(at(4_999_999).is_empty());
        assert_eq!(at(5_000_000), [50]);
        assert_eq!(at(9_999_999), [50, 80]);
        assert_eq!(at(i64::MAX), [50, 80, 100]);
        assert!(at(-1).is_empty());
    }

    #[test]
    fn budgets_that_make_no_sense_are_refused() {
        for (limit, thresholds) in [
            ("0", vec![50]),
            ("x", vec![50]),
            ("1", vec![]),
            ("1", vec![0]),
        ] {
            let set = SetBudget {
                limit: limit.to_owned(),
                thresholds: thresholds.into_iter().collect(),
                webhook: None,
            };
            let made = Budget::new("b".parse().expect("name"), &set, Currency::EUR);
            assert!(matches!(made, Err(BillingError::Budget(_))), "{limit}");
        }
    }
}
