//! Price lists. The content of a list never changes; only the end of a list that was applied without one changes: it is where the next list begins.

use fdn_core::Timestamp;
use fdn_core::billing::{Currency, Day, PriceList, PriceListName, Prices};
use sqlx::{AnyConnection, Row};

use super::StoreError;
use crate::store::row::{json, stored, to_json};

/// All price lists, as prices in `currency`. One that was applied without an end ends where the next one begins at the latest, also where its row does
/// not say so: earlier releases could leave such rows.
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
    let (mut lists, mut next) = (Vec::with_capacity(rows.len()), None);
    for row in rows.iter().rev() {
        let list: PriceList = json(row, "list")?;
        let to: Option<i64> = row.try_get("valid_to")?;
        let to = to.map(|to| Day::of(Timestamp(u64::try_from(to).unwrap_or_default())));
        let to = if list.to.is_none() {
            to.into_iter().chain(next).min()
        } else {
            to
        };
        next = Some(list.from);
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

/// Sets the day on which a list ends.
///
/// # Errors
/// When the database fails.
pub async fn price_list_end(
    connection: &mut AnyConnection,
    name: &PriceListName,
    to: Day,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE price_lists SET valid_to = $2 WHERE name = $1")
        .bind(name.as_str())
        .bind(stored(to.start().get()))
        .execute(connection)
        .await?;
    Ok(())
}

/// Ends a list where the next one begins; without a next one it has no end.
///
/// # Errors
/// When the database fails.
pub async fn price_list_extend(
    connection: &mut AnyConnection,
    name: &PriceListName,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE price_lists SET valid_to = (SELECT MIN(n.valid_from) FROM price_lists n WHERE n.valid_from > price_lists.valid_from) \
         WHERE name = $1",
    )
    .bind(name.as_str())
    .execute(connection)
    .await?;
    Ok(())
}

/// A list as it was applied: without the end that another list has given it.
///
/// # Errors
/// When the database fails.
pub async fn price_list_applied(
    connection: &mut AnyConnection,
    name: &PriceListName,
) -> Result<Option<PriceList>, StoreError> {
    let row = sqlx::query("SELECT list FROM price_lists WHERE name = $1")
        .bind(name.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(|row| json(row, "list")).transpose()
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

/// Extends the list that was ended on `day` because another one began then, which is removed now, to where the next one begins.
///
/// # Errors
/// When the database fails.
pub async fn price_list_reopen(connection: &mut AnyConnection, day: Day) -> Result<(), StoreError> {
    let row = sqlx::query("SELECT list FROM price_lists WHERE valid_to = $1")
        .bind(stored(day.start().get()))
        .fetch_optional(&mut *connection)
        .await?;
    let Some(row) = row else { return Ok(()) };
    let applied: PriceList = json(&row, "list")?;
    if applied.to.is_none() {
        price_list_extend(connection, &applied.name).await?;
    }
    Ok(())
}
