//! Price lists and their validity.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{BillingError, Currency, Day, Meter, Month, money};
use crate::error::ParseError;
pub use crate::id::PriceListName;

/// The highest price, in micro-units: protects against typing errors and keeps bills from overflowing.
const PRICE_MAX: i64 = 1_000_000 * 1_000_000;

/// A price: an amount of money for a number of a meter's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenPrice", into = "WrittenPrice")]
pub struct Price {
    micros: i64,
    per: u64,
}

/// A price as it is written: `{ price = "0.20", per = 1000000 }`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Price)]
struct WrittenPrice {
    /// The amount, as a decimal number up to 1000000 with at most six decimals. For a lower price, increase `per`.
    price: String,
    /// The number of the meter's units that the amount is for; 1 if absent.
    #[serde(default = "one")]
    #[schema(minimum = 1)]
    per: u64,
}

const fn one() -> u64 {
    1
}

impl TryFrom<WrittenPrice> for Price {
    type Error = ParseError;

    fn try_from(written: WrittenPrice) -> Result<Self, ParseError> {
        let expected = "an amount up to 1000000 with at most six decimals, for 1 unit or more, such as { price = \"0.20\", per = 1000000 }";
        money::parse_decimal(&written.price)
            .filter(|micros| *micros <= PRICE_MAX && written.per > 0)
            .map(|micros| Self {
                micros,
                per: written.per,
            })
            .ok_or_else(|| ParseError::new("price", written.price, expected))
    }
}

impl From<Price> for WrittenPrice {
    fn from(price: Price) -> Self {
        Self {
            price: money::decimal(price.micros),
            per: price.per,
        }
    }
}

impl Price {
    /// A price of `micros` micro-units for `per` units; `per` is at least 1.
    #[must_use]
    pub fn new(micros: u32, per: u32) -> Self {
        Self {
            micros: i64::from(micros),
            per: u64::from(per.max(1)),
        }
    }

    /// The cost of a quantity (in smallest units), in micro-units of the currency. This is the only place where money is rounded: to
    /// the nearest micro-unit, halves away from zero.
    ///
    /// # Errors
    /// When the amount overflows.
    pub fn of(self, meter: Meter, quantity: i128) -> Result<i64, BillingError> {
        let exact = || {
            let all = quantity.checked_mul(i128::from(self.micros))?;
            let parts = meter.scale().checked_mul(i128::from(self.per))?;
            let half = if all < 0 { -(parts / 2) } else { parts / 2 };
            i64::try_from(all.checked_add(half)? / parts).ok()
        };
        exact().ok_or(BillingError::Overflow("an amount of money"))
    }
}

/// A price list: the prices of all meters for a period. Days are in UTC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceList {
    /// The name of the price list, which never changes.
    pub name: PriceListName,
    /// The currency of all its prices.
    pub currency: Currency,
    /// The first day on which the list is valid.
    pub from: Day,
    /// The first day on which the list is no longer valid; absent if it is valid until another list follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Day>,
    /// By meter: the price. Usage of a meter without a price is free.
    #[schema(value_type = BTreeMap<Meter, WrittenPrice>)]
    pub prices: BTreeMap<Meter, Price>,
    /// By meter: the number of units that each tenant has free per month. The first list that is valid in a month determines it for the
    /// whole month.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub free: BTreeMap<Meter, u64>,
}

impl PriceList {
    /// Checks what the types alone cannot guarantee.
    ///
    /// # Errors
    /// When the list is valid on no day, or is in another currency.
    pub fn check(&self, currency: Currency) -> Result<(), BillingError> {
        if self.to.is_some_and(|to| to <= self.from) {
            return Err(BillingError::PriceList(format!(
                "{} would be valid on no day: `to` is the day after its last one",
                self.name
            )));
        }
        if self.currency != currency {
            return Err(BillingError::Currencies(self.currency, currency));
        }
        Ok(())
    }

    /// Whether the list is valid on a day.
    #[must_use]
    pub fn covers(&self, day: Day) -> bool {
        self.from <= day && self.to.is_none_or(|to| day < to)
    }

    /// The first day on which both lists are valid; `None` if there is none.
    #[must_use]
    pub fn overlap(&self, other: &Self) -> Option<Day> {
        let day = self.from.max(other.from);
        (self.covers(day) && other.covers(day)).then_some(day)
    }
}

/// A part of a month that has one price list, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The first day of the part.
    pub from: Day,
    /// The day after the last one.
    pub to: Day,
    /// The price list; usage on days without one costs nothing, and the statement says so.
    pub list: Option<&'a PriceList>,
}

/// All price lists: at most one valid at a time, all in one currency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices {
    lists: Vec<PriceList>,
    currency: Currency,
}

impl Prices {
    /// The price lists of a network that bills in `currency`.
    ///
    /// # Errors
    /// When one is not valid, or two are valid at the same time.
    pub fn new(mut lists: Vec<PriceList>, currency: Currency) -> Result<Self, BillingError> {
        lists.sort_by_key(|list| list.from);
        lists.iter().try_for_each(|list| list.check(currency))?;
        for pair in lists.windows(2) {
            if let Some(day) = pair[0].overlap(&pair[1]) {
                return Err(BillingError::Overlap {
                    new: pair[1].name.clone(),
                    old: pair[0].name.clone(),
                    day,
                });
            }
        }
        Ok(Self { lists, currency })
    }

    /// The currency of all amounts.
    #[must_use]
    pub const fn currency(&self) -> Currency {
        self.currency
    }

    /// The lists, in order of validity.
    #[must_use]
    pub fn lists(&self) -> &[PriceList] {
        &self.lists
    }

    /// The parts of a month, which together cover it.
    #[must_use]
    pub fn segments(&self, month: Month) -> Vec<Segment<'_>> {
        let (mut day, end) = (month.first_day(), month.next().first_day());
        let mut segments = Vec::new();
        let gap = |from, to| Segment {
            from,
            to,
            list: None,
        };
        for list in &self.lists {
            let from = list.from.max(day);
            let to = list.to.map_or(end, |to| to.min(end));
            if from >= to {
                continue;
            }
            if day < from {
                segments.push(gap(day, from));
            }
            segments.push(Segment {
                from,
                to,
                list: Some(list),
            });
            day = to;
        }
        if day < end {
            segments.push(gap(day, end));
        }
        segments
    }
}
