//! Bindings: which cluster DNS answers with, by app and client prefix.

use fdn_core::{AppName, ClientPrefix, ClusterId, Revision};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, stored};

/// One binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingRow {
    /// The app.
    pub app: AppName,
    /// The clients' prefix.
    pub prefix: ClientPrefix,
    /// The cluster they are sent to.
    pub cluster: ClusterId,
    /// The client group that was planned.
    pub group: String,
    /// The revision at which they were first sent there.
    pub revision: Revision,
}

/// A query for all columns of a binding, with the rest of the statement.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT app, prefix, cluster, client_group, revision FROM bindings ",
            $rest
        )
    };
}

pub(super) fn binding_row(row: &AnyRow) -> Result<BindingRow, StoreError> {
    Ok(BindingRow {
        app: parsed(row, "app")?,
        prefix: parsed(row, "prefix")?,
        cluster: parsed(row, "cluster")?,
        group: row.try_get("client_group")?,
        revision: Revision(number(row, "revision")?),
    })
}

/// The bindings of an app, by their prefix as text.
///
/// # Errors
/// When the database fails.
pub async fn binding_list(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<Vec<BindingRow>, StoreError> {
    let rows = sqlx::query(select!("WHERE app = $1 ORDER BY prefix"))
        .bind(app.as_str())
        .fetch_all(connection)
        .await?;
    rows.iter().map(binding_row).collect()
}

/// All bindings, by app and their prefix as text.
///
/// # Errors
/// When the database fails.
pub async fn binding_list_all(
    connection: &mut AnyConnection,
) -> Result<Vec<BindingRow>, StoreError> {
    let rows = sqlx::query(select!("ORDER BY app, prefix"))
        .fetch_all(connection)
        .await?;
    rows.iter().map(binding_row).collect()
}

/// Inserts a binding, or replaces the one of the same app and prefix.
///
/// # Errors
/// When the database fails.
pub async fn binding_upsert(
    connection: &mut AnyConnection,
    binding: &BindingRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO bindings (app, prefix, cluster, client_group, revision) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (app, prefix) DO UPDATE SET cluster = excluded.cluster, client_group = excluded.client_group, \
         revision = excluded.revision",
    )
    .bind(binding.app.as_str())
    .bind(binding.prefix.to_string())
    .bind(binding.cluster.as_str())
    .bind(&binding.group)
    .bind(stored(binding.revision.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Removes a binding.
///
/// # Errors
/// When the database fails.
pub async fn binding_delete(
    connection: &mut AnyConnection,
    app: &AppName,
    prefix: ClientPrefix,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM bindings WHERE app = $1 AND prefix = $2")
        .bind(app.as_str())
        .bind(prefix.to_string())
        .execute(connection)
        .await?;
    Ok(())
}
