//! Nodes, and what they last said of themselves.

use fdn_core::message::NodeStatus;
use fdn_core::{NodeId, Timestamp};
use sqlx::AnyConnection;

use super::StoreError;
use super::cluster::{ClusterRow, cluster_forget_empty, cluster_observe};
use super::enrolment::enrolment_hold;
use super::row::{json, number, stored, to_json};

/// What a node last said, and when it was heard.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusRow {
    /// What it said.
    pub status: NodeStatus,
    /// When that was heard.
    pub seen_at: Timestamp,
}

/// Writes what a node said: its cluster, its place in it, its status. A status that is older than the one held changes nothing, nor does
/// one of a node that was removed.
///
/// # Errors
/// When the database fails.
pub async fn node_observe(
    connection: &mut AnyConnection,
    seen: &StatusRow,
) -> Result<(), StoreError> {
    let (status, seen_at) = (&seen.status, stored(seen.seen_at.get()));
    if enrolment_hold(connection, &status.node).await?.is_some() {
        return Ok(());
    }
    let cluster = ClusterRow {
        id: status.cluster.clone(),
        region: status.region.clone(),
        location: status.location,
        created_by: None,
    };
    cluster_observe(connection, &cluster, seen.seen_at).await?;
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

/// When a node was last heard, as far as that was written.
///
/// # Errors
/// When the database fails.
pub async fn node_seen_at(
    connection: &mut AnyConnection,
    node: &NodeId,
) -> Result<Option<Timestamp>, StoreError> {
    let row = sqlx::query("SELECT seen_at FROM node_status WHERE node = $1")
        .bind(node.as_str())
        .fetch_optional(connection)
        .await?;
    row.map(|row| number(&row, "seen_at").map(Timestamp))
        .transpose()
}

/// Forgets a node and what it said.
///
/// # Errors
/// When the database fails.
pub async fn node_delete(
    connection: &mut AnyConnection,
    node: &NodeId,
) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM nodes WHERE id = $1")
        .bind(node.as_str())
        .execute(&mut *connection)
        .await?;
    cluster_forget_empty(connection).await?;
    Ok(done.rows_affected() > 0)
}

/// Forgets a node that has not been seen since `before`, and its cluster if that has none left and nobody made it.
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
    cluster_forget_empty(connection).await?;
    Ok(done.rows_affected() > 0)
}
