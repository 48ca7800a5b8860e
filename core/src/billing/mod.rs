//! The billing centre's arithmetic: what was used becomes lines of a statement.
//!
//! Nothing here reads a clock or a database. Usage is counted in whole numbers of each meter's smallest unit ([`Meter::smallest`]), so
//! that sums are exact in whatever order they are made; a price turns a sum into money once for each line, and this is the only place
//! where anything is rounded ([`Price::of`]). A sum that does not fit is an error, never another number.
//!
//! The way of a record: [`Deltas`] says which sums it changes, [`rate()`] makes lines of the sums of a month, [`adjustment`] says what late
//! usage changes of a month that has been billed.

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
pub use rate::{Amount, Key, Kind, Late, Place, Rated, Used, adjustment, bill, cost, rate};
pub use statement::{
    Line, MeterTotal, Statement, StatementState, StatementSummary, UsageRow, UsageView, View,
};
