//! Statements and views of usage, as returned by the API.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rate::{Amount, Key, Kind, Rated};
use super::{BillingError, Currency, Day, Meter, Money, Month, PriceListName, Quantity};
use crate::error::ParseError;
use crate::id::{AppName, ClusterId, FunctionName, RegionName, TenantId};
use crate::unit::Timestamp;

/// How final a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StatementState {
    /// Usage still arrives.
    Open,
    /// No more usage is accepted; the statement is about to be issued.
    Closed,
    /// It was issued and never changes.
    Issued,
}

/// A line of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = StatementLine)]
pub struct Line {
    /// The month in which it was used: an earlier one than the statement's if the usage came after that month was closed.
    pub month: Month,
    /// Usage, or what of it is free.
    pub kind: Kind,
    /// The meter.
    pub meter: Meter,
    /// The app, unless the line is for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppName>,
    /// The function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionName>,
    /// The region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
    /// The cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// The price list; absent if none was valid, and then the line costs nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_list: Option<PriceListName>,
    /// The first day with this price list.
    pub from: Day,
    /// The day after the last one.
    pub to: Day,
    /// How much, in the meter's smallest unit.
    pub quantity: Quantity,
    /// The smallest unit.
    pub unit: String,
    /// How much, in the unit that prices are for, cut to six decimals.
    pub units: String,
    /// What it costs.
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

/// The lines of one meter, added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MeterTotal {
    /// The meter.
    pub meter: Meter,
    /// What was used, in smallest units; what is free is not taken off.
    pub quantity: Quantity,
    /// The same in the unit that prices are for.
    pub units: String,
    /// What it costs, with what is free taken off.
    pub amount: Money,
}

/// A month of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Statement {
    /// Whose.
    pub tenant: TenantId,
    /// The month.
    pub month: Month,
    /// How final it is.
    pub state: StatementState,
    /// When it was issued, or what it is the state of.
    pub at: Timestamp,
    /// The sum of all lines.
    pub total: Money,
    /// Sums by meter.
    pub meters: Vec<MeterTotal>,
    /// How many lines there are.
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
        (rated, currency): (Rated, Currency),
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
    /// How final it is.
    pub state: StatementState,
    /// When it was issued, or what it is the state of.
    pub at: Timestamp,
    /// The sum of all lines.
    pub total: Money,
}

/// What a view of usage has a row for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = UsageBy)]
pub enum View {
    /// An app.
    App,
    /// A function.
    Function,
    /// A region.
    Region,
    /// A cluster.
    Cluster,
    /// A day.
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

/// Usage of one thing in a month.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageRow {
    /// Which: a name or a date.
    pub name: String,
    /// How much of each meter, in its smallest unit; meters of which there was nothing are absent.
    #[schema(value_type = BTreeMap<Meter, Quantity>)]
    pub quantities: BTreeMap<Meter, Quantity>,
    /// What it costs before anything is free.
    pub cost: Money,
}

/// Usage of a month, by one kind of thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageView {
    /// The month in which it was used.
    pub month: Month,
    /// What there is a row for.
    pub by: View,
    /// The rows of this page, by name.
    pub rows: Vec<UsageRow>,
}
