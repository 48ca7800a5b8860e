//! From usage sums to statement lines: each line is priced once.

use std::collections::BTreeMap;

use super::{BillingError, Currency, Day, Meter, Money, Month, PriceListName, Quantities, Segment};
use crate::id::{AppName, ClusterId, FunctionName, RegionName};

/// The dimensions of a line; `None` where one is not known or does not apply.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dimensions {
    /// The app.
    pub app: Option<AppName>,
    /// The function.
    pub function: Option<FunctionName>,
    /// The region.
    pub region: Option<RegionName>,
    /// The cluster.
    pub cluster: Option<ClusterId>,
}

/// Usage with the same dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageEntry {
    /// The app, function, region and cluster of the usage.
    pub place: Dimensions,
    /// How much of each meter.
    pub quantities: Quantities,
}

/// The kind of a statement line.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
#[schema(as = StatementLineKind)]
pub enum Kind {
    /// Usage at its full price.
    Usage,
    /// The credit for free usage; its quantity and amount are negative.
    FreeTier,
}

/// The key of a line. Lines appear on a statement in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The month in which it was used.
    pub month: Month,
    /// Whether the line is usage or the credit for free usage.
    pub kind: Kind,
    /// The app, function, region and cluster of the usage.
    pub place: Dimensions,
    /// The meter.
    pub meter: Meter,
    /// The first day of the part of the month with this price list.
    pub from: Day,
    /// The day after its last one.
    pub to: Day,
    /// The price list; `None` for usage that has no price.
    pub list: Option<PriceListName>,
}

/// A line's quantity and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// In smallest units of the meter.
    pub quantity: i128,
    /// In micro-units of the currency.
    pub micros: i64,
}

impl Amount {
    /// The sum of two amounts.
    ///
    /// # Errors
    /// When it overflows.
    pub fn plus(self, other: Self) -> Result<Self, BillingError> {
        let quantity = self.quantity.checked_add(other.quantity);
        let micros = self.micros.checked_add(other.micros);
        quantity
            .zip(micros)
            .map(|(quantity, micros)| Self { quantity, micros })
            .ok_or(BillingError::Overflow("a sum of lines"))
    }

    fn minus(self, other: Self) -> Result<Self, BillingError> {
        let quantity = self.quantity.checked_sub(other.quantity);
        let micros = self.micros.checked_sub(other.micros);
        quantity
            .zip(micros)
            .map(|(quantity, micros)| Self { quantity, micros })
            .ok_or(BillingError::Overflow("a difference of lines"))
    }
}

/// Priced lines by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PricedLines(pub BTreeMap<Key, Amount>);

impl PricedLines {
    /// The sum of all lines.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn total(&self, currency: Currency) -> Result<Money, BillingError> {
        let micros = self
            .0
            .values()
            .try_fold(0i64, |sum, line| sum.checked_add(line.micros));
        let micros = micros.ok_or(BillingError::Overflow("a sum of money"))?;
        Ok(Money::new(micros, currency))
    }

    /// Adds the lines of another set to these.
    ///
    /// # Errors
    /// When a sum overflows.
    pub fn append(&mut self, other: Self) -> Result<(), BillingError> {
        for (key, amount) in other.0 {
            let line = self.0.entry(key).or_default();
            *line = line.plus(amount)?;
        }
        Ok(())
    }
}

/// Prices the usage of a month, part by part. The monthly free quota of a meter is applied to its earliest usage first, and a meter's
/// cost is never negative.
///
/// # Errors
/// When an amount overflows.
pub fn rate(
    month: Month,
    parts: &[(Segment<'_>, Vec<UsageEntry>)],
) -> Result<PricedLines, BillingError> {
    let mut lines = PricedLines::default();
    for (segment, used) in parts {
        for meter in Meter::ALL {
            let mut sums: BTreeMap<&Dimensions, i128> = BTreeMap::new();
            for used in used {
                let sum = sums.entry(&used.place).or_default();
                let next = sum.checked_add(used.quantities.get(meter));
                *sum = next.ok_or(BillingError::Overflow("a sum of usage"))?;
            }
            for (place, quantity) in sums.into_iter().filter(|(_, quantity)| *quantity != 0) {
                let key = key(month, Kind::Usage, place.clone(), meter, segment);
                let micros = price(segment, meter, quantity)?;
                lines.0.insert(key, Amount { quantity, micros });
            }
        }
    }
    let free = parts.iter().find_map(|(segment, _)| segment.list);
    for (meter, units) in free.iter().flat_map(|list| &list.free) {
        let mut left = i128::from(*units)
            .checked_mul(meter.scale())
            .ok_or(BillingError::Overflow("what is free"))?;
        for (segment, _) in parts.iter().filter(|(segment, _)| segment.list.is_some()) {
            left -= credit(month, *meter, segment, left, &mut lines)?;
        }
    }
    Ok(lines)
}

fn key(month: Month, kind: Kind, place: Dimensions, meter: Meter, segment: &Segment<'_>) -> Key {
    Key {
        month,
        kind,
        place,
        meter,
        from: segment.from,
        to: segment.to,
        list: segment.list.map(|list| list.name.clone()),
    }
}

fn price(segment: &Segment<'_>, meter: Meter, quantity: i128) -> Result<i64, BillingError> {
    let price = segment.list.and_then(|list| list.prices.get(&meter));
    price.map_or(Ok(0), |price| price.of(meter, quantity))
}

/// The cost of usage in a part of a month before any free quota, in micro-units.
///
/// # Errors
/// When an amount overflows.
pub fn cost(segment: &Segment<'_>, used: &Quantities) -> Result<i64, BillingError> {
    Meter::ALL.into_iter().try_fold(0i64, |sum, meter| {
        let micros = price(segment, meter, used.get(meter))?;
        sum.checked_add(micros)
            .ok_or(BillingError::Overflow("a sum of money"))
    })
}

/// Applies the free quota to the usage of a part of the month; returns the quantity covered. When all of it is free the credit equals the
/// cost of its lines, so that rounding leaves no remainder.
fn credit(
    month: Month,
    meter: Meter,
    segment: &Segment<'_>,
    left: i128,
    lines: &mut PricedLines,
) -> Result<i128, BillingError> {
    let mut used = Amount::default();
    let of_part =
        |key: &Key| key.kind == Kind::Usage && key.meter == meter && key.from == segment.from;
    for (_, line) in lines.0.iter().filter(|(key, _)| of_part(key)) {
        used = used.plus(*line)?;
    }
    let quantity = left.min(used.quantity).max(0);
    if quantity == 0 {
        return Ok(0);
    }
    let micros = if quantity == used.quantity {
        used.micros
    } else {
        price(segment, meter, quantity)?.min(used.micros)
    };
    let key = key(month, Kind::FreeTier, Dimensions::default(), meter, segment);
    lines.0.insert(
        key,
        Amount {
            quantity: -quantity,
            micros: -micros,
        },
    );
    Ok(quantity)
}

/// What late usage changes about a month that has been billed: the lines as they would be now, minus those as they were. All statements
/// together thus equal the one that would have been issued had everything arrived in time.
///
/// # Errors
/// When a difference overflows.
pub fn adjustment(before: &PricedLines, after: &PricedLines) -> Result<PricedLines, BillingError> {
    let mut changes = BTreeMap::new();
    for key in before.0.keys().chain(after.0.keys()) {
        let of = |lines: &PricedLines| lines.0.get(key).copied().unwrap_or_default();
        let change = of(after).minus(of(before))?;
        if change != Amount::default() {
            changes.insert(key.clone(), change);
        }
    }
    Ok(PricedLines(changes))
}

/// Usage of a closed month, part of which arrived after it was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateUsage<'a> {
    /// The month in which it was used.
    pub month: Month,
    /// The usage on the statements issued so far.
    pub before: Vec<(Segment<'a>, Vec<UsageEntry>)>,
    /// The usage including what arrived late.
    pub after: Vec<(Segment<'a>, Vec<UsageEntry>)>,
}

/// The lines of a month's statement: its usage, and the adjustments of earlier months for late usage.
///
/// # Errors
/// When an amount overflows.
pub fn bill(
    month: Month,
    parts: &[(Segment<'_>, Vec<UsageEntry>)],
    late: &[LateUsage<'_>],
) -> Result<PricedLines, BillingError> {
    let mut lines = rate(month, parts)?;
    for late in late {
        let (before, after) = (
            rate(late.month, &late.before)?,
            rate(late.month, &late.after)?,
        );
        lines.append(adjustment(&before, &after)?)?;
    }
    Ok(lines)
}
