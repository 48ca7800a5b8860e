//! Billing arithmetic: usage becomes the lines of a statement.
//!
//! Nothing here reads a clock or a database. Usage is counted in integers of each meter's smallest unit ([`Meter::smallest`]), so that
//! sums are exact whatever the order of addition. A price is applied once per line, and that is the only place where anything is rounded
//! ([`Price::of`]). Overflow is an error, never a wrong number.
//!
//! The path of a record: [`Deltas`] determines the sums it changes, [`rate()`] prices the sums of a month as lines, [`adjustment`]
//! computes what late usage changes about a month that has been billed.

mod booking;
mod budget;
mod calendar;
mod csv;
mod error;
mod meter;
mod money;
mod price;
mod rate;
mod statement;
#[cfg(test)]
mod tests;

pub use booking::{Account, Deltas, HOUR_MS, Slot, hour_of, period_of};
pub use budget::{Budget, BudgetAlert, BudgetName, BudgetSet, SetBudget};
pub use calendar::{Day, Month};
pub use csv::{CSV_COLUMNS, csv_cell, csv_line};
pub use error::BillingError;
pub use meter::{Meter, Quantities, Quantity};
pub use money::{Currency, Money};
pub use price::{Price, PriceList, PriceListName, Prices, Segment};
pub use rate::{
    Amount, Dimensions, Key, Kind, LateUsage, PricedLines, UsageEntry, adjustment, bill, cost, rate,
};
pub use statement::{
    Line, MeterTotal, Statement, StatementState, StatementSummary, UsageRow, UsageView, View,
};
