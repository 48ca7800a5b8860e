//! Nodes, and their last reported status.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use fdn_core::message::NodeStatus;
use fdn_core::{ClusterId, MessageId, NodeId, Timestamp};
use sqlx::AnyConnection;
use sqlx::any::AnyRow;

use super::StoreError;
use super::cluster::{ClusterRow, cluster_forget_empty, cluster_observe};
use super::enrolment::enrolment_lock;
use super::row::{json, number, parsed, stored, to_json};

/// A node's last status.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusRow {
    /// The status.
    pub status: NodeStatus,
    /// When it was received.
    pub seen_at: Timestamp,
}

/// The largest difference of controllers' clocks, in ms: what was received later than that from now was written with a wrong clock.
const CLOCKS_MS: u64 = 15_000;

/// Writes the status of a node, with its cluster and its addresses. An older status replaces nothing of what is stored of the node; a status of a
/// removed node changes nothing. Within a boot the sequence number decides, and between boots the time of receipt, unless the stored one is in the
/// future.
///
/// # Errors
/// When the database fails.
pub async fn node_observe(
    connection: &mut AnyConnection,
    seen: &StatusRow,
) -> Result<(), StoreError> {
    let (status, seen_at) = (&seen.status, stored(seen.seen_at.get()));
    if enrolment_lock(connection, &status.node).await?.is_some() {
        return Ok(());
    }
    let cluster = ClusterRow {
        id: status.cluster.clone(),
        region: status.region.clone(),
        location: status.location,
        created_by: None,
    };
    cluster_observe(connection, &cluster, seen.seen_at).await?;
    // The status refers to this row. One that is there is locked and stays as it is: what another controller writes of the node at the same time
    // is committed before it is compared below.
    sqlx::query(
        "INSERT INTO nodes (id, cluster, gateway, admin, created_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (id) DO UPDATE SET cluster = excluded.cluster WHERE 1 = 0",
    )
    .bind(status.node.as_str())
    .bind(status.cluster.as_str())
    .bind(status.gateway.to_string())
    .bind(status.admin.to_string())
    .bind(seen_at)
    .execute(&mut *connection)
    .await?;
    let newer = sqlx::query(
        "INSERT INTO node_status (node, boot, sequence, status, seen_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (node) DO UPDATE SET boot = excluded.boot, sequence = excluded.sequence, status = excluded.status, \
         seen_at = excluded.seen_at \
         WHERE (node_status.boot = excluded.boot AND node_status.sequence <= excluded.sequence) \
         OR (node_status.boot <> excluded.boot AND (node_status.seen_at <= excluded.seen_at OR node_status.seen_at > $6))",
    )
    .bind(status.node.as_str())
    .bind(status.boot.to_string())
    .bind(stored(status.sequence))
    .bind(to_json(status, "node_status.status")?)
    .bind(seen_at)
    .bind(stored(fdn_service::now().get().saturating_add(CLOCKS_MS)))
    .execute(&mut *connection)
    .await?;
    if newer.rows_affected() == 0 {
        return Ok(());
    }
    sqlx::query("UPDATE nodes SET cluster = $2, gateway = $3, admin = $4 WHERE id = $1")
        .bind(status.node.as_str())
        .bind(status.cluster.as_str())
        .bind(status.gateway.to_string())
        .bind(status.admin.to_string())
        .execute(connection)
        .await?;
    Ok(())
}

/// The last status of every node, by name.
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

/// The addresses at which the nodes of each cluster take stage calls, in the order of the nodes' names.
pub type StageCalls = BTreeMap<ClusterId, Vec<SocketAddr>>;

/// The maximum number of names in one statement.
const NAMES: usize = 500;

/// Identifies the status of a node that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    boot: MessageId,
    sequence: u64,
    seen_at: Timestamp,
}

impl Stamp {
    fn of(row: &AnyRow) -> Result<Self, StoreError> {
        Ok(Self {
            boot: parsed(row, "boot")?,
            sequence: number(row, "sequence")?,
            seen_at: Timestamp(number(row, "seen_at")?),
        })
    }
}

/// The last status of every node, for repeated reads: each read fetches and parses only what was written since the one before, since most nodes
/// report an unchanged status. Keeps a few bytes for each node, and the new statuses until they are taken.
#[derive(Debug, Default)]
pub struct Statuses {
    read: BTreeMap<NodeId, Stamp>,
    /// The addresses at which nodes take stage calls.
    stage_calls: BTreeMap<NodeId, (ClusterId, SocketAddr)>,
    new: BTreeMap<NodeId, StatusRow>,
}

impl Statuses {
    /// Reads what was written since the last time; returns the number of statuses read.
    ///
    /// # Errors
    /// When the database fails. What was read before the failure is kept.
    pub async fn read(&mut self, connection: &mut AnyConnection) -> Result<usize, StoreError> {
        let rows = sqlx::query("SELECT node, boot, sequence, seen_at FROM node_status")
            .fetch_all(&mut *connection)
            .await?;
        let (mut there, mut changed) = (BTreeSet::new(), Vec::new());
        for row in &rows {
            let node: NodeId = parsed(row, "node")?;
            if self.read.get(&node) != Some(&Stamp::of(row)?) {
                changed.push(node.clone());
            }
            there.insert(node);
        }
        drop(rows);
        self.read.retain(|node, _| there.contains(node));
        self.stage_calls.retain(|node, _| there.contains(node));
        self.new.retain(|node, _| there.contains(node));
        for names in changed.chunks(NAMES) {
            self.fetch(connection, names).await?;
        }
        Ok(changed.len())
    }

    async fn fetch(
        &mut self,
        connection: &mut AnyConnection,
        names: &[NodeId],
    ) -> Result<(), StoreError> {
        let places: Vec<String> = (1..=names.len()).map(|n| format!("${n}")).collect();
        let text = format!(
            "SELECT node, boot, sequence, seen_at, status FROM node_status WHERE node IN ({})",
            places.join(", ")
        );
        let mut query = sqlx::query(sqlx::AssertSqlSafe(text));
        for name in names {
            query = query.bind(name.as_str());
        }
        for row in &query.fetch_all(connection).await? {
            let (node, stamp): (NodeId, Stamp) = (parsed(row, "node")?, Stamp::of(row)?);
            let status: NodeStatus = json(row, "status")?;
            match status.stage_calls {
                Some(at) => self
                    .stage_calls
                    .insert(node.clone(), (status.cluster.clone(), at)),
                None => self.stage_calls.remove(&node),
            };
            self.read.insert(node.clone(), stamp);
            let seen_at = stamp.seen_at;
            self.new.insert(node, StatusRow { status, seen_at });
        }
        Ok(())
    }

    /// Takes the statuses that were read and not taken yet, by name.
    pub fn take_new(&mut self) -> impl Iterator<Item = StatusRow> + use<> {
        std::mem::take(&mut self.new).into_values()
    }

    /// The addresses at which the nodes of each cluster take stage calls, as last reported.
    #[must_use]
    pub fn stage_calls(&self) -> StageCalls {
        let mut calls = StageCalls::new();
        for (cluster, address) in self.stage_calls.values() {
            calls.entry(cluster.clone()).or_default().push(*address);
        }
        calls
    }
}

/// When a node was last heard from, according to its stored status.
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

/// Deletes a node and its status; returns whether there was one.
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

/// Deletes a node not seen since `before`, and its cluster if it has no node left and no user created it; returns whether it did.
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
