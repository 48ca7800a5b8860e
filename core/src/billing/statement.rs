//! Statements and views of usage, as returned by the API.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rate::{Amount, Key, Kind, PricedLines};
use super::{BillingError, Currency, Day, Meter, Money, Month, PriceListName, Quantity};
use crate::error::ParseError;
use crate::id::{AppName, ClusterId, FunctionName, RegionName, TenantId};
use crate::unit::Timestamp;

/// How final a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StatementState {
    /// The month is not closed: usage is still accepted.
    Open,
    /// The month is closed: no more usage is accepted, and the statement is about to be issued.
    Closed,
    /// The statement was issued and never changes.
    Issued,
}

/// A line of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = StatementLine)]
pub struct Line {
    /// The month of the usage; earlier than the statement's if the usage arrived after that month was closed.
    pub month: Month,
    /// Whether the line is usage or the credit for free usage.
    pub kind: Kind,
    /// The meter that was charged.
    pub meter: Meter,
    /// The app; absent if the line belongs to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppName>,
    /// The function; absent if the line belongs to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionName>,
    /// The region; absent if the line belongs to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
    /// The cluster; absent if the line belongs to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// The price list; absent if none was valid, in which case the usage is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_list: Option<PriceListName>,
    /// The first day of the part of the month in which this price list was valid.
    pub from: Day,
    /// The day after the last one of that part.
    pub to: Day,
    /// The quantity, in the meter's smallest unit.
    pub quantity: Quantity,
    /// The name of the smallest unit, such as `MiB*us`.
    pub unit: String,
    /// The quantity in the unit that prices refer to, as a decimal number truncated to six decimals.
    pub units: String,
    /// The cost.
    pub amount: Money,
}

impl Line {
    /// The statement line for a key and its amount.
    #[must_use]
    pub fn new(key: Key, amount: Amount, currency: Currency) -> Self {
        let quantity = Quantity(amount.quantity);
        Self {
            month: key.month,
            kind: key.kind,
            meter: key.meter,
            app: key.place.app,
            function: key.place.function,
            region: key.place.region,
            cluster: key.place.cluster,
            price_list: key.list,
            from: key.from,
            to: key.to,
            quantity,
            unit: key.meter.smallest().to_owned(),
            units: key.meter.in_units(quantity),
            amount: Money::new(amount.micros, currency),
        }
    }
}

/// The total of a meter on a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MeterTotal {
    /// The meter.
    pub meter: Meter,
    /// The usage in the meter's smallest unit; free units are not subtracted.
    pub quantity: Quantity,
    /// The same in the unit that prices refer to, as a decimal number truncated to six decimals.
    pub units: String,
    /// The cost, with credits for free units subtracted.
    pub amount: Money,
}

/// The statement of a tenant for a month.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Statement {
    /// The tenant's id.
    pub tenant: TenantId,
    /// The month.
    pub month: Month,
    /// How final the statement is.
    pub state: StatementState,
    /// When the statement was issued; if it is not issued yet, when it was computed.
    pub at: Timestamp,
    /// The sum of all lines.
    pub total: Money,
    /// The total of each meter.
    pub meters: Vec<MeterTotal>,
    /// The number of lines on all pages.
    pub line_count: u64,
    /// The lines of this page.
    pub lines: Vec<Line>,
}

impl Statement {
    /// A statement of these lines, all on one page.
    ///
    /// # Errors
    /// When a sum overflows.
    pub fn new(
        tenant: TenantId,
        month: Month,
        state: StatementState,
        at: Timestamp,
        (rated, currency): (PricedLines, Currency),
    ) -> Result<Self, BillingError> {
        let total = rated.total(currency)?;
        let mut sums: BTreeMap<Meter, Amount> = BTreeMap::new();
        for (key, line) in &rated.0 {
            let sum = sums.entry(key.meter).or_default();
            let quantity = if key.kind == Kind::Usage {
                line.quantity
            } else {
                0
            };
            *sum = sum.plus(Amount { quantity, ..*line })?;
        }
        let meters = sums.into_iter().map(|(meter, sum)| MeterTotal {
            meter,
            quantity: Quantity(sum.quantity),
            units: meter.in_units(Quantity(sum.quantity)),
            amount: Money::new(sum.micros, currency),
        });
        let lines = rated
            .0
            .into_iter()
            .map(|(key, line)| Line::new(key, line, currency));
        let lines: Vec<Line> = lines.collect();
        Ok(Self {
            tenant,
            month,
            state,
            at,
            total,
            meters: meters.collect(),
            line_count: lines.len() as u64,
            lines,
        })
    }
}

/// A statement without its lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatementSummary {
    /// The month.
    pub month: Month,
    /// How final the statement is.
    pub state: StatementState,
    /// When the statement was issued; if it is not issued yet, when it was computed.
    pub at: Timestamp,
    /// The sum of all lines.
    pub total: Money,
}

/// The kind of thing by which usage is grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = UsageBy)]
pub enum View {
    /// By app.
    App,
    /// By function.
    Function,
    /// By region.
    Region,
    /// By cluster.
    Cluster,
    /// By day.
    Day,
}

impl View {
    /// All views.
    pub const ALL: [Self; 5] = [
        Self::App,
        Self::Function,
        Self::Region,
        Self::Cluster,
        Self::Day,
    ];

    /// The name used in JSON and queries.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Function => "function",
            Self::Region => "region",
            Self::Cluster => "cluster",
            Self::Day => "day",
        }
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for View {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.into_iter().find(|view| view.as_str() == s);
        found.ok_or_else(|| ParseError::new("view", s, "app, function, region, cluster or day"))
    }
}

/// The usage of one app, function, region, cluster or day in a month.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageRow {
    /// The name of the app, function, region or cluster, or the date.
    pub name: String,
    /// By meter: the quantity in the meter's smallest unit. Meters without usage are absent.
    #[schema(value_type = BTreeMap<Meter, Quantity>)]
    pub quantities: BTreeMap<Meter, Quantity>,
    /// The cost before free units are subtracted.
    pub cost: Money,
}

/// The usage of a month, grouped. Stored artifacts are not included; they are on the statement only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageView {
    /// The month of the usage.
    pub month: Month,
    /// The kind of thing by which usage is grouped.
    pub by: View,
    /// The rows of this page, by name.
    pub rows: Vec<UsageRow>,
}
