//! The load and memory need that the plans put on each cluster, as last computed.

use fdn_core::{ClusterId, Timestamp};
use serde::{Deserialize, Serialize};
use sqlx::AnyConnection;

use super::StoreError;
use super::row::{json, stored, to_json};

/// The load and memory need of one cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterLoadRow {
    /// The cluster.
    pub cluster: ClusterId,
    /// Runs per second.
    pub runs: f64,
    /// The mean number of busy slots (erlangs).
    pub erlangs: f64,
    /// The mean run time of the runs in service, in milliseconds; zero in rows of a controller that does not know it.
    #[serde(default)]
    pub in_service_ms: f64,
    /// Memory needed on its nodes, in MiB.
    pub memory_mib: f64,
    /// Memory needed on their GPU devices, in MiB.
    pub gpu_memory_mib: f64,
}

/// The rows stored last; empty before the first time.
///
/// # Errors
/// When the database fails.
pub async fn cluster_load_get(
    connection: &mut AnyConnection,
) -> Result<Vec<ClusterLoadRow>, StoreError> {
    let row = sqlx::query("SELECT state FROM asked WHERE id = 1")
        .fetch_optional(connection)
        .await?;
    let read = row.map(|row| json(&row, "state")).transpose()?;
    Ok(read.unwrap_or_default())
}

/// Replaces the stored rows.
///
/// # Errors
/// When the database fails.
pub async fn cluster_load_set(
    connection: &mut AnyConnection,
    asked: &[ClusterLoadRow],
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO asked (id, state, updated_at) VALUES (1, $1, $2) \
         ON CONFLICT (id) DO UPDATE SET state = excluded.state, updated_at = excluded.updated_at",
    )
    .bind(to_json(asked, "asked.state")?)
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(())
}
