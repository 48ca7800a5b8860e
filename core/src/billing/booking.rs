//! Which sums a record changes.
//!
//! A sum has a [`Slot`]: whose usage, of what, where, in which hour, and in which month it is billed. That is the month in which it was used, or, if this
//! one is closed by the time the record comes, the first that is open. A closed month's sums never change; the hour keeps telling when the
//! usage was, and so which prices it has.

use std::collections::BTreeMap;

use super::{BillingError, Month, Quantities};
use crate::id::{AppName, ClusterId, FunctionName, RegionName, TenantId, VersionNumber};
use crate::unit::Timestamp;

/// An hour in milliseconds: what usage is summed up by.
pub const HOUR_MS: u64 = 3_600_000;

/// The hour of a call for billing. A node whose clock is ahead cannot book into the future.
#[must_use]
pub fn hour_of(started_at: Timestamp, now: Timestamp) -> Timestamp {
    let at = started_at.min(now).get();
    Timestamp(at - at % HOUR_MS)
}

/// The month in which usage of an hour is billed when all months before `open` are closed.
#[must_use]
pub fn period_of(hour: Timestamp, open: Option<Month>) -> Month {
    let month = Month::of(hour);
    open.map_or(month, |open| open.max(month))
}

/// Who pays for what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// Who owned the app.
    pub tenant: TenantId,
    /// The app.
    pub app: AppName,
    /// The function that ran.
    pub function: FunctionName,
    /// Its version.
    pub version: VersionNumber,
    /// The node's cluster.
    pub cluster: ClusterId,
    /// The cluster's region.
    pub region: RegionName,
}

/// The place of a sum.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// Who pays for what.
    pub account: Account,
    /// The month on whose statement it stands.
    pub period: Month,
    /// When it was used: the first moment of an hour, or of a day.
    pub at: Timestamp,
}

/// Changes of sums, in the order of their slots: who changes rows in one order does not lock himself out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deltas(BTreeMap<Slot, Quantities>);

impl Deltas {
    /// Adds to a sum.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn add(&mut self, slot: Slot, quantities: &Quantities) -> Result<(), BillingError> {
        self.0.entry(slot).or_default().add(quantities)
    }

    /// Takes away from a sum: what was counted while a call ran, when its end is known.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn sub(&mut self, slot: Slot, quantities: &Quantities) -> Result<(), BillingError> {
        self.0.entry(slot).or_default().sub(quantities)
    }

    /// The same by day.
    ///
    /// # Errors
    /// When a sum does not fit.
    pub fn by_day(&self) -> Result<Self, BillingError> {
        let mut days = Self::default();
        for (slot, quantities) in self.iter() {
            let at = super::Day::of(slot.at).start();
            days.add(Slot { at, ..slot.clone() }, quantities)?;
        }
        Ok(days)
    }

    /// All that change something.
    pub fn iter(&self) -> impl Iterator<Item = (&Slot, &Quantities)> {
        self.0
            .iter()
            .filter(|(_, quantities)| !quantities.is_zero())
    }
}
