//! Price lists. The content of a list never changes; only the end of a list that had none is set when another one replaces it.

use fdn_core::Timestamp;
use fdn_core::billing::{Currency, Day, PriceList, PriceListName, Prices};
use sqlx::{AnyConnection, Row};

use super::StoreError;
use crate::store::row::{json, stored, to_json};

/// All price lists, as prices in `currency`.
///
/// # Errors
/// When the database fails, or lists are in another currency.
pub async fn price_list_all(
    connection: &mut AnyConnection,
    currency: Currency,
) -> Result<Prices, StoreError> {
    let rows = sqlx::query("SELECT list, valid_to FROM price_lists ORDER BY valid_from")
        .fetch_all(connection)
        .await?;
    let mut lists = Vec::with_capacity(rows.len());
    for row in &rows {
        let list: PriceList = json(row, "list")?;
        let to: Option<i64> = row.try_get("valid_to")?;
        let to = to.map(|to| Day::of(Timestamp(u64::try_from(to).unwrap_or_default())));
        lists.push(PriceList { to, ..list });
    }
    Ok(Prices::new(lists, currency)?)
}

/// The list in force at `at`; `None` if there is none, or if the lists are inconsistent, which the billing loop reports.
///
/// # Errors
/// When the database fails.
pub async fn price_list_at(
    connection: &mut AnyConnection,
    currency: Currency,
    at: Timestamp,
) -> Result<Option<PriceList>, StoreError> {
    let today = Day::of(at);
    match price_list_all(connection, currency).await {
        Ok(prices) => {
            let mut lists = prices.lists().iter();
            Ok(lists.find(|list| list.covers(today)).cloned())
        }
        Err(StoreError::Billing(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Adds a list.
///
/// # Errors
/// When the database fails, or a list of this name or with this first day exists.
pub async fn price_list_insert(
    connection: &mut AnyConnection,
    list: &PriceList,
    actor: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO price_lists (name, valid_from, valid_to, list, created_at, created_by) VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(list.name.as_str())
    .bind(stored(list.from.start().get()))
    .bind(list.to.map(|to| stored(to.start().get())))
    .bind(to_json(list, "price_lists.list")?)
    .bind(stored(now.get()))
    .bind(actor)
    .execute(connection)
    .await?;
    Ok(())
}

/// Sets the day on which a list ends, or none.
///
/// # Errors
/// When the database fails.
pub async fn price_list_end(
    connection: &mut AnyConnection,
    name: &PriceListName,
    to: Option<Day>,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE price_lists SET valid_to = $2 WHERE name = $1")
        .bind(name.as_str())
        .bind(to.map(|to| stored(to.start().get())))
        .execute(connection)
        .await?;
    Ok(())
}

/// Removes a list.
///
/// # Errors
/// When the database fails.
pub async fn price_list_delete(
    connection: &mut AnyConnection,
    name: &PriceListName,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM price_lists WHERE name = $1")
        .bind(name.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// Clears the end of the list that was ended on `day` because another one began then.
///
/// # Errors
/// When the database fails.
pub async fn price_list_reopen(connection: &mut AnyConnection, day: Day) -> Result<(), StoreError> {
    let row = sqlx::query("SELECT list FROM price_lists WHERE valid_to = $1")
        .bind(stored(day.start().get()))
        .fetch_optional(&mut *connection)
        .await?;
    let Some(row) = row else { return Ok(()) };
    let written: PriceList = json(&row, "list")?;
    if written.to.is_none() {
        price_list_end(connection, &written.name, None).await?;
    }
    Ok(())
}
