//! What can go wrong with bills.

use super::{Currency, Day, PriceListName};
use crate::error::{Coded, ErrorCode};

/// An error of the billing centre's arithmetic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BillingError {
    /// A sum or an amount does not fit.
    #[error("{0} is larger than can be counted")]
    Overflow(&'static str),
    /// A record says more than a call can use.
    #[error("a usage record says more {0} than a call can use")]
    OutOfRange(&'static str),
    /// Two currencies meet.
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
        /// The one that is there.
        old: PriceListName,
        /// The first day of both.
        day: Day,
    },
    /// A price list has been used.
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
