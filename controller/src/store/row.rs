//! Reading columns into domain types. A value that cannot be read is an error that names the column, never a panic.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use sqlx::Row;
use sqlx::any::AnyRow;

use super::StoreError;

/// Reads a column that holds the text form of a domain type.
pub(super) fn parsed<T: FromStr<Err: Display>>(
    row: &AnyRow,
    column: &str,
) -> Result<T, StoreError> {
    let text: String = row.try_get(column)?;
    text.parse().map_err(|e| StoreError::corrupt(column, e))
}

/// Reads a column that holds JSON.
pub(super) fn json<T: DeserializeOwned>(row: &AnyRow, column: &str) -> Result<T, StoreError> {
    let text: String = row.try_get(column)?;
    serde_json::from_str(&text).map_err(|e| StoreError::corrupt(column, e))
}

/// Like [`json`], for a column that may be null.
pub(super) fn json_or_none<T: DeserializeOwned>(
    row: &AnyRow,
    column: &str,
) -> Result<Option<T>, StoreError> {
    let text: Option<String> = row.try_get(column)?;
    text.map(|text| serde_json::from_str(&text).map_err(|e| StoreError::corrupt(column, e)))
        .transpose()
}

/// Reads a number that is never negative.
pub(super) fn number(row: &AnyRow, column: &str) -> Result<u64, StoreError> {
    let value: i64 = row.try_get(column)?;
    u64::try_from(value).map_err(|e| StoreError::corrupt(column, e))
}

/// Like [`number`], for a column that may be null.
pub(super) fn number_or_none(row: &AnyRow, column: &str) -> Result<Option<u64>, StoreError> {
    row.try_get::<Option<i64>, _>(column)?
        .map(|value| u64::try_from(value).map_err(|e| StoreError::corrupt(column, e)))
        .transpose()
}

/// Reads a version number.
pub(super) fn version(row: &AnyRow, column: &str) -> Result<fdn_core::VersionNumber, StoreError> {
    version_of(row.try_get(column)?, column)
}

/// Like [`version`], for a column that may be null.
pub(super) fn version_or_none(
    row: &AnyRow,
    column: &str,
) -> Result<Option<fdn_core::VersionNumber>, StoreError> {
    row.try_get::<Option<i64>, _>(column)?
        .map(|value| version_of(value, column))
        .transpose()
}

fn version_of(value: i64, column: &str) -> Result<fdn_core::VersionNumber, StoreError> {
    u32::try_from(value)
        .map_err(|e| StoreError::corrupt(column, e))
        .and_then(|n| n.try_into().map_err(|e| StoreError::corrupt(column, e)))
}

/// Converts a number for storage. Values of 2^63 and above do not occur; they would be stored as the largest one.
pub(super) fn stored(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The JSON text of a value; `column` is for the error.
pub(super) fn to_json<T: serde::Serialize + ?Sized>(
    value: &T,
    column: &str,
) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError::corrupt(column, e))
}

/// Like [`parsed`], for a column that may be null.
pub(super) fn parsed_or_none<T: FromStr<Err: Display>>(
    row: &AnyRow,
    column: &str,
) -> Result<Option<T>, StoreError> {
    row.try_get::<Option<String>, _>(column)?
        .map(|text| text.parse().map_err(|e| StoreError::corrupt(column, e)))
        .transpose()
}

/// Reads a time that may be null.
pub(super) fn time_or_none(
    row: &AnyRow,
    column: &str,
) -> Result<Option<fdn_core::Timestamp>, StoreError> {
    row.try_get::<Option<i64>, _>(column)?
        .map(|at| {
            u64::try_from(at)
                .map(fdn_core::Timestamp)
                .map_err(|e| StoreError::corrupt(column, e))
        })
        .transpose()
}
