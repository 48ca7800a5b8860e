//! The billing rows: sums of usage, stored artifacts, price lists, statements, budgets.

pub mod artifact;
pub mod budget;
pub mod clock;
pub mod owner;
pub mod price;
pub mod statement;
pub mod sums;

use fdn_core::billing::Month;

use super::StoreError;
use super::row::number;

/// Reads a column that holds a month.
fn month(row: &sqlx::any::AnyRow, column: &str) -> Result<Month, StoreError> {
    u32::try_from(number(row, column)?)
        .ok()
        .and_then(Month::from_index)
        .ok_or_else(|| StoreError::corrupt(column, "no month"))
}
