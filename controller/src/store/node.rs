//! Clusters, their nodes, and what nodes last said of themselves.

use fdn_core::message::NodeStatus;
use fdn_core::{ClusterId, GeoPoint, NodeId, RegionName, Timestamp};
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{json, number, parsed, stored, to_json};

/// One cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterRow {
    /// The cluster.
    pub id: ClusterId,
    /// Its region.
    pub region: RegionName,
    /// Where it is.
    pub location: GeoPoint,
}

/// What a node last said, and when it was heard.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusRow {
    /// What it said.
    pub status: NodeStatus,
    /// When that was heard.
    pub seen_at: Timestamp,
}

/// All clusters, by name.
///
/// # Errors
/// When the database fails.
pub async fn cluster_list(connection: &mut AnyConnection) -> Result<Vec<ClusterRow>, StoreError> {
    let rows = sqlx::query("SELECT id, region, lat, lon FROM clusters ORDER BY id")
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            let location = GeoPoint::new(row.try_get("lat")?, row.try_get("lon")?);
            Ok(ClusterRow {
                id: parsed(row, "id")?,
                region: parsed(row, "region")?,
                location: location.map_err(|e| StoreError::corrupt("clusters.lat", e))?,
            })
        })
        .collect()
}

/// Writes what a node said: its cluster, its place in it, its status. A status that is older than the one held changes nothing.
///
/// # Errors
/// When the database fails.
pub async fn node_observe(
    connection: &mut AnyConnection,
    seen: &StatusRow,
) -> Result<(), StoreError> {
    let (status, seen_at) = (&seen.status, stored(seen.seen_at.get()));
    sqlx::query(
        "INSERT INTO clusters (id, region, lat, lon, created_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (id) DO UPDATE SET region = excluded.region, lat = excluded.lat, lon = excluded.lon",
    )
    .bind(status.cluster.as_str())
    .bind(status.region.as_str())
    .bind(status.location.lat())
    .bind(status.location.lon())
    .bind(seen_at)
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "INSERT INTO nodes (id, cluster, gateway, admin, created_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (id) DO UPDATE SET cluster = excluded.cluster, gateway = excluded.gateway, admin = excluded.admin",
    )
    .bind(status.node.as_str())
    .bind(status.cluster.as_str())
    .bind(status.gateway.to_string())
    .bind(status.admin.to_string())
    .bind(seen_at)
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "INSERT INTO node_status (node, boot, sequence, status, seen_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (node) DO UPDATE SET boot = excluded.boot, sequence = excluded.sequence, status = excluded.status, \
         seen_at = excluded.seen_at \
         WHERE node_status.seen_at <= excluded.seen_at \
         AND (node_status.boot <> excluded.boot OR node_status.sequence <= excluded.sequence)",
    )
    .bind(status.node.as_str())
    .bind(status.boot.to_string())
    .bind(stored(status.sequence))
    .bind(to_json(status, "node_status.status")?)
    .bind(seen_at)
    .execute(connection)
    .await?;
    Ok(())
}

/// What every node last said, by name.
///
/// # Errors
/// When the database fails.
pub async fn node_status_list(
    connection: &mut AnyConnection,
) -> Result<Vec<StatusRow>, StoreError> {
    let rows = sqlx::query("SELECT status, seen_at FROM node_status ORDER BY node")
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(StatusRow {
                status: json(row, "status")?,
                seen_at: Timestamp(number(row, "seen_at")?),
            })
        })
        .collect()
}

/// Forgets a node that has not been seen since `before`, and its cluster if that has none left.
///
/// # Errors
/// When the database fails.
pub async fn node_forget(
    connection: &mut AnyConnection,
    node: &NodeId,
    before: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "DELETE FROM nodes WHERE id = $1 AND id IN (SELECT node FROM node_status WHERE seen_at < $2)",
    )
    .bind(node.as_str())
    .bind(stored(before.get()))
    .execute(&mut *connection)
    .await?;
    sqlx::query("DELETE FROM clusters WHERE id NOT IN (SELECT cluster FROM nodes)")
        .execute(connection)
        .await?;
    Ok(done.rows_affected() > 0)
}
