//! Queries of the console across apps: visible names, recent demand with its bindings, bindings in pages.

use std::collections::BTreeSet;

use fdn_core::{AppName, ClusterId, HostName, TenantId, Timestamp};
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use super::StoreError;
use super::binding::{BindingRow, binding_row};
use super::demand::{DemandRow, demand_row};
use super::row::{number_or_none, parsed, parsed_or_none};

/// Which apps a caller can see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppVisibility {
    /// Apps of this tenant; of all tenants if `None`.
    pub tenant: Option<TenantId>,
    /// Apps of the tenants that this user is a member of; of all tenants if `None`.
    pub member: Option<String>,
    /// Only this app; all if `None`.
    pub app: Option<AppName>,
}

/// The SQL condition on apps `a` that uses the first three parameters.
const SEEN: &str = "($1 = '' OR a.tenant = $1) \
     AND ($2 = '' OR a.tenant IN (SELECT m.tenant FROM members m WHERE m.user_name = $2)) AND ($3 = '' OR a.name = $3)";

/// The names of the visible apps.
///
/// # Errors
/// When the database fails.
pub async fn app_names(
    connection: &mut AnyConnection,
    visibility: &AppVisibility,
) -> Result<BTreeSet<AppName>, StoreError> {
    let text = format!("SELECT a.name FROM apps a WHERE {SEEN}");
    let rows = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(
            visibility
                .tenant
                .map(|tenant| tenant.to_string())
                .unwrap_or_default(),
        )
        .bind(visibility.member.clone().unwrap_or_default())
        .bind(
            visibility
                .app
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        )
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| parsed(row, "name")).collect()
}

/// Demand for the visible apps, with the cluster that the prefix is bound to, newest first, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn demand_bound(
    connection: &mut AnyConnection,
    visibility: &AppVisibility,
    limit: u32,
) -> Result<Vec<(DemandRow, Option<ClusterId>)>, StoreError> {
    let text = format!(
        "SELECT d.app, d.prefix, d.queries, d.recent, d.last_seen, b.cluster FROM demand d JOIN apps a ON a.name = d.app \
         LEFT JOIN bindings b ON b.app = d.app AND b.prefix = d.prefix \
         WHERE {SEEN} ORDER BY d.last_seen DESC, d.app, d.prefix LIMIT $4"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(
            visibility
                .tenant
                .map(|tenant| tenant.to_string())
                .unwrap_or_default(),
        )
        .bind(visibility.member.clone().unwrap_or_default())
        .bind(
            visibility
                .app
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
        )
        .bind(i64::from(limit))
        .fetch_all(connection)
        .await?;
    let read = |row: &AnyRow| Ok((demand_row(row)?, parsed_or_none(row, "cluster")?));
    rows.iter().map(read).collect()
}

/// A binding, with the demand of its prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindingDemand {
    /// The binding.
    pub binding: BindingRow,
    /// The number of queries from the prefix, if any is known.
    pub queries: Option<u64>,
    /// The time of the last query.
    pub last_seen: Option<Timestamp>,
}

/// A page of an app's bindings by their prefix as text, beginning after `after`, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn binding_page(
    connection: &mut AnyConnection,
    app: &AppName,
    after: &str,
    limit: u32,
) -> Result<Vec<BindingDemand>, StoreError> {
    let rows = sqlx::query(
        "SELECT b.app, b.prefix, b.cluster, b.client_group, b.revision, d.queries, d.last_seen FROM bindings b LEFT JOIN demand d ON d.app = b.app \
         AND d.prefix = b.prefix \
         WHERE b.app = $1 AND b.prefix > $2 ORDER BY b.prefix LIMIT $3",
    )
    .bind(app.as_str())
    .bind(after)
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    let read = |row: &AnyRow| {
        Ok(BindingDemand {
            binding: binding_row(row)?,
            queries: number_or_none(row, "queries")?,
            last_seen: number_or_none(row, "last_seen")?.map(Timestamp),
        })
    };
    rows.iter().map(read).collect()
}

/// The app of a host name, which is its own or a verified domain of it.
///
/// # Errors
/// When the database fails.
pub async fn app_of_host(
    connection: &mut AnyConnection,
    host: &HostName,
) -> Result<Option<AppName>, StoreError> {
    let row = sqlx::query(
        "SELECT name FROM apps WHERE host = $1 UNION ALL SELECT app FROM app_domains WHERE proven = $1 LIMIT 1",
    )
    .bind(host.as_str())
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(|row| parsed(row, "name")).transpose()
}
