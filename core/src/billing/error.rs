//! Errors of billing.

use super::{Currency, Day, PriceListName};
use crate::error::{Coded, ErrorCode};

/// An error of the billing arithmetic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BillingError {
    /// A sum or an amount overflows; the text names it.
    #[error("{0} is larger than can be counted")]
    Overflow(&'static str),
    /// A record claims more than a single call can use; the text names the quantity.
    #[error("a usage record says more {0} than a call can use")]
    OutOfRange(&'static str),
    /// Amounts in two currencies cannot be added.
    #[error("amounts in {0} and {1} cannot be added")]
    Currencies(Currency, Currency),
    /// A price list is not valid.
    #[error("price list: {0}")]
    PriceList(String),
    /// Two price lists would be valid at the same time.
    #[error("price list {new} would be valid together with {old} on {day}")]
    Overlap {
        /// The new one.
        new: PriceListName,
        /// The existing list.
        old: PriceListName,
        /// The first day on which both would be valid.
        day: Day,
    },
    /// A price list that was used for a statement cannot be changed.
    #[error(
        "price list {0} has been used; it stays as it is, make another one with a later first day"
    )]
    InUse(PriceListName),
    /// A budget is not valid.
    #[error("budget: {0}")]
    Budget(String),
}

impl Coded for BillingError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Overflow(_) => ErrorCode::BillOverflow,
            Self::OutOfRange(_) => ErrorCode::UsageOutOfRange,
            Self::Currencies(..) | Self::PriceList(_) => ErrorCode::PriceListInvalid,
            Self::Overlap { .. } => ErrorCode::PriceListOverlaps,
            Self::InUse(_) => ErrorCode::PriceListInUse,
            Self::Budget(_) => ErrorCode::BudgetInvalid,
        }
    }
}
