//! Queries of the console across apps: visible apps, recent demand with its bindings, bindings in pages.

use std::collections::BTreeMap;

use fdn_core::{AppName, ClusterId, HostName, TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{Any, AnyConnection, Database};

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

type Query = sqlx::query::Query<'static, Any, <Any as Database>::Arguments>;

/// A query whose text contains only constants, [`SEEN`] among them, with its first three parameters bound.
fn query_seen(text: String, visibility: &AppVisibility) -> Query {
    let tenant = visibility.tenant.map(|tenant| tenant.to_string());
    let app = visibility.app.as_ref().map(ToString::to_string);
    sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(tenant.unwrap_or_default())
        .bind(visibility.member.clone().unwrap_or_default())
        .bind(app.unwrap_or_default())
}

/// The visible apps, each with the time since when its tenant has had the name; the time 0 if no other tenant had it before.
///
/// # Errors
/// When the database fails.
pub async fn apps_seen(
    connection: &mut AnyConnection,
    visibility: &AppVisibility,
) -> Result<BTreeMap<AppName, Timestamp>, StoreError> {
    let text = format!(
        "SELECT a.name, (SELECT CASE WHEN COUNT(*) > 1 THEN MAX(o.since) END FROM app_owners o WHERE o.app = a.name) AS since \
         FROM apps a WHERE {SEEN}"
    );
    let rows = query_seen(text, visibility).fetch_all(connection).await?;
    let read = |row: &AnyRow| {
        let since = number_or_none(row, "since")?.unwrap_or_default();
        Ok((parsed(row, "name")?, Timestamp(since)))
    };
    rows.iter().map(read).collect()
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
    let rows = query_seen(text, visibility)
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
