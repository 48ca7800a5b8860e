//! Leases of the clusters' heads.

use fdn_core::{ClusterId, NodeId, Timestamp};
use sqlx::AnyConnection;

use super::StoreError;
use super::row::{number, parsed, stored};

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRow {
    /// The head.
    pub holder: NodeId,
    /// Grows with every change.
    pub epoch: u64,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// A request for a lease.
#[derive(Clone, Debug)]
pub struct LeaseClaim<'a> {
    /// The node that asks.
    pub node: &'a NodeId,
    /// The epoch to keep; `None` starts a new one.
    pub epoch: Option<u64>,
    /// The wished end of the lease.
    pub until: Timestamp,
}

/// Grants a lease if possible, in one statement, so of several concurrent requests only one succeeds. The holder may keep its epoch, or start the
/// next one; another node gets the lease only after it has ended, with the next epoch. Returns the lease as it then is.
///
/// # Errors
/// When the database fails.
pub async fn lease_acquire(
    connection: &mut AnyConnection,
    cluster: &ClusterId,
    claim: &LeaseClaim<'_>,
    now: Timestamp,
) -> Result<LeaseRow, StoreError> {
    // 0 stands for none: epochs begin at 1.
    let epoch = stored(claim.epoch.unwrap_or(0));
    sqlx::query(
        "INSERT INTO head_leases (cluster, holder, epoch, expires_at) VALUES ($1, $2, 1, $3) \
         ON CONFLICT (cluster) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at, \
         epoch = CASE WHEN head_leases.holder = excluded.holder AND head_leases.epoch = $4 \
                 THEN head_leases.epoch ELSE head_leases.epoch + 1 END \
         WHERE (head_leases.holder = excluded.holder AND (head_leases.epoch = $4 OR $4 = 0)) \
         OR head_leases.expires_at <= $5",
    )
    .bind(cluster.as_str())
    .bind(claim.node.as_str())
    .bind(stored(claim.until.get()))
    .bind(epoch)
    .bind(stored(now.get()))
    .execute(&mut *connection)
    .await?;
    let lease = lease_get(connection, cluster).await?;
    lease.ok_or_else(|| StoreError::corrupt("head_leases", "the lease just asked for is missing"))
}

/// A cluster's lease, even if it has ended.
///
/// # Errors
/// When the database fails.
pub async fn lease_get(
    connection: &mut AnyConnection,
    cluster: &ClusterId,
) -> Result<Option<LeaseRow>, StoreError> {
    let row = sqlx::query("SELECT holder, epoch, expires_at FROM head_leases WHERE cluster = $1")
        .bind(cluster.as_str())
        .fetch_optional(connection)
        .await?;
    row.map(|row| {
        Ok(LeaseRow {
            holder: parsed(&row, "holder")?,
            epoch: number(&row, "epoch")?,
            expires_at: Timestamp(number(&row, "expires_at")?),
        })
    })
    .transpose()
}

/// Ends a node's leases, so that another node can become head at once.
///
/// # Errors
/// When the database fails.
pub async fn lease_release(
    connection: &mut AnyConnection,
    node: &NodeId,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE head_leases SET expires_at = $2 WHERE holder = $1 AND expires_at > $2")
        .bind(node.as_str())
        .bind(stored(now.get()))
        .execute(connection)
        .await?;
    Ok(())
}
