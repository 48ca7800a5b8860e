//! Which sums a usage record changes.
//!
//! A sum is identified by its [`Slot`]: whose usage, of what, where, in which hour, and in which month it is billed. That is the month of
//! the usage or, if that month is closed when the record arrives, the first open one. A closed month's sums never change; the hour still
//! tells when the usage was, and thus which prices apply.

use std::collections::BTreeMap;

use super::{BillingError, Month, Quantities};
use crate::id::{AppName, ClusterId, FunctionName, RegionName, TenantId, VersionNumber};
use crate::unit::Timestamp;

/// An hour in milliseconds: the granularity of usage sums.
pub const HOUR_MS: u64 = 3_600_000;

/// The hour in which a call is billed; `now` caps it, so that a node whose clock is ahead cannot book into the future.
#[must_use]
pub fn hour_of(started_at: Timestamp, now: Timestamp) -> Timestamp {
    let at = started_at.min(now).get();
    Timestamp(at - at % HOUR_MS)
}

/// The month in which usage of an hour is billed, when all months before `open` are closed; `None` if none is closed.
#[must_use]
pub fn period_of(hour: Timestamp, open: Option<Month>) -> Month {
    let month = Month::of(hour);
    open.map_or(month, |open| open.max(month))
}

/// The dimensions of a sum: who pays, and for what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// The tenant that owned the app.
    pub tenant: TenantId,
    /// The app.
    pub app: AppName,
    /// The function that ran.
    pub function: FunctionName,
    /// Its version.
    pub version: VersionNumber,
    /// The cluster of the node.
    pub cluster: ClusterId,
    /// The cluster's region.
    pub region: RegionName,
}

/// The key of a sum.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// The account to which the usage belongs.
    pub account: Account,
    /// The month on whose statement it appears.
    pub period: Month,
    /// When the usage was: the first moment of an hour, or of a day.
    pub at: Timestamp,
}

/// Changes of sums, sorted by slot: transactions that change rows in one order cannot deadlock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deltas(BTreeMap<Slot, Quantities>);

impl Deltas {
    /// Adds to a sum.
    ///
    /// # Errors
    /// When the sum overflows.
    pub fn add(&mut self, slot: Slot, quantities: &Quantities) -> Result<(), BillingError> {
        self.0.entry(slot).or_default().add(quantities)
    }

    /// Subtracts from a sum: what was counted while a call ran, once its end is known.
    ///
    /// # Errors
    /// When the difference overflows.
    pub fn sub(&mut self, slot: Slot, quantities: &Quantities) -> Result<(), BillingError> {
        self.0.entry(slot).or_default().sub(quantities)
    }

    /// The same changes, added up by day.
    ///
    /// # Errors
    /// When a sum overflows.
    pub fn by_day(&self) -> Result<Self, BillingError> {
        let mut days = Self::default();
        for (slot, quantities) in self.iter() {
            let at = super::Day::of(slot.at).start();
            days.add(Slot { at, ..slot.clone() }, quantities)?;
        }
        Ok(days)
    }

    /// The changes that are not zero.
    pub fn iter(&self) -> impl Iterator<Item = (&Slot, &Quantities)> {
        self.0
            .iter()
            .filter(|(_, quantities)| !quantities.is_zero())
    }
}
