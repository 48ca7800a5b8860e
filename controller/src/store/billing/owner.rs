//! To which tenant and place usage is booked: who owned an app at a time, and where a node is.

use std::collections::BTreeMap;

use fdn_core::{AppName, ClusterId, NodeId, RegionName, TenantId, Timestamp};
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::StoreError;
use crate::store::row::{number, parsed, stored};

/// The tenant for usage of an app without a known owner: none.
pub const NOBODY: TenantId = TenantId::from_uuid(uuid::Uuid::nil());

/// The name of the cluster and region of an unknown node.
const UNKNOWN: &str = "unknown";

/// Records the owner of an app, as its row has it, if it differs from the last recorded one.
///
/// # Errors
/// When the database fails.
pub async fn owner_note(connection: &mut AnyConnection, app: &AppName) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO app_owners (app, since, tenant) SELECT a.name, a.deployed_at, a.tenant FROM apps a \
         WHERE a.name = $1 AND NOT EXISTS (SELECT 1 FROM app_owners o WHERE o.app = a.name AND o.tenant = a.tenant \
         AND o.since = (SELECT MAX(last.since) FROM app_owners last WHERE last.app = a.name)) \
         ON CONFLICT (app, since) DO UPDATE SET tenant = excluded.tenant",
    )
    .bind(app.as_str())
    .execute(connection)
    .await?;
    Ok(())
}

/// The owners of apps over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners(BTreeMap<AppName, BTreeMap<Timestamp, TenantId>>);

impl Owners {
    /// Since when the present owner has owned an app; the time 0 if it is unknown.
    #[must_use]
    pub fn since(&self, app: &AppName) -> Timestamp {
        let owners = self.0.get(app);
        let last = owners.and_then(BTreeMap::last_key_value);
        last.map_or(Timestamp(0), |(since, _)| *since)
    }

    /// The tenant that owned an app at `at`. Times before the first owner count as the first owner's, since a node's clock may be slow.
    #[must_use]
    pub fn at(&self, app: &AppName, at: Timestamp) -> TenantId {
        let owners = self.0.get(app);
        let found = owners.and_then(|owners| {
            let before = owners.range(..=at).next_back();
            before.or_else(|| owners.first_key_value())
        });
        found.map_or(NOBODY, |(_, tenant)| *tenant)
    }

    /// Whether what an app did at `at` was its present owner's, and not that of another tenant who had the name before.
    #[must_use]
    pub fn is_present(&self, app: &AppName, at: Timestamp) -> bool {
        self.at(app, at) == self.at(app, Timestamp(u64::MAX))
    }
}

/// The owners of these apps.
///
/// # Errors
/// When the database fails.
pub async fn owner_list(
    connection: &mut AnyConnection,
    apps: impl IntoIterator<Item = &AppName>,
) -> Result<Owners, StoreError> {
    let apps: Vec<&AppName> = apps.into_iter().collect();
    let mut owners = Owners::default();
    for apps in apps.chunks(super::super::usage::ROWS) {
        let text = format!(
            "SELECT app, since, tenant FROM app_owners WHERE app IN ({})",
            super::super::usage::places(apps.len())
        );
        // The text contains only placeholders; values are bound.
        let query = apps
            .iter()
            .fold(sqlx::query(AssertSqlSafe(text)), |query, app| {
                query.bind(app.as_str().to_owned())
            });
        for row in query.fetch_all(&mut *connection).await? {
            let since = Timestamp(number(&row, "since")?);
            let of_app = owners.0.entry(parsed(&row, "app")?).or_default();
            of_app.insert(since, parsed(&row, "tenant")?);
        }
    }
    Ok(owners)
}

/// The cluster and region of a node, or those it was enrolled in; `unknown` if it has neither.
///
/// # Errors
/// When the database fails.
pub async fn node_place(
    connection: &mut AnyConnection,
    node: &NodeId,
) -> Result<(ClusterId, RegionName), StoreError> {
    let row = sqlx::query(
        "SELECT c.id, c.region FROM clusters c WHERE c.id = COALESCE((SELECT n.cluster FROM nodes n WHERE n.id = $1), \
         (SELECT e.cluster FROM enrolments e WHERE e.node = $1))",
    )
    .bind(node.as_str())
    .fetch_optional(connection)
    .await?;
    let unknown = |e: fdn_core::ParseError| StoreError::corrupt("clusters.id", e);
    match row {
        Some(row) => Ok((parsed(&row, "id")?, parsed(&row, "region")?)),
        None => Ok((
            UNKNOWN.parse().map_err(unknown)?,
            UNKNOWN.parse().map_err(unknown)?,
        )),
    }
}

/// Tenants that used or stored something in a month, or have late usage on its statement.
///
/// # Errors
/// When the database fails.
pub async fn tenant_list_billed(
    connection: &mut AnyConnection,
    month: fdn_core::billing::Month,
) -> Result<Vec<TenantId>, StoreError> {
    let rows = sqlx::query(
        "SELECT t.id FROM tenants t WHERE EXISTS (SELECT 1 FROM usage_days d WHERE d.tenant = t.id AND d.period = $1) \
         OR EXISTS (SELECT 1 FROM stored_artifacts s WHERE s.tenant = t.id AND s.stored_at < $3 \
         AND (s.gone_at IS NULL OR s.gone_at > $2)) ORDER BY t.id",
    )
    .bind(i64::from(month.index()))
    .bind(stored(month.start().get()))
    .bind(stored(month.end().get()))
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            let id: String = row.try_get("id")?;
            id.parse().map_err(|e| StoreError::corrupt("tenants.id", e))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_owned_the_app_when_it_was_called_pays() {
        let tenant = |n| TenantId::from_uuid(uuid::Uuid::from_u128(n));
        let app: AppName = "a".parse().expect("app");
        let of_app = BTreeMap::from([(Timestamp(10), tenant(1)), (Timestamp(20), tenant(2))]);
        let owners = Owners(BTreeMap::from([(app.clone(), of_app)]));
        for (at, owner) in [(0, 1), (10, 1), (19, 1), (20, 2), (99, 2)] {
            assert_eq!(owners.at(&app, Timestamp(at)), tenant(owner), "{at}");
            assert_eq!(owners.is_present(&app, Timestamp(at)), owner == 2, "{at}");
        }
        assert_eq!(owners.since(&app), Timestamp(20));
        let unknown = "b".parse().expect("app");
        assert_eq!(owners.at(&unknown, Timestamp(10)), NOBODY);
        assert!(owners.is_present(&unknown, Timestamp(10)));
    }
}
