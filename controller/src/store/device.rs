//! Requests of operators to put devices back into service.

use std::collections::BTreeMap;

use fdn_core::{DeviceId, NodeId, Revision, Timestamp};
use sqlx::AnyConnection;

use super::StoreError;
use super::row::{number, parsed, stored};

/// Records, at this revision, that a device is to be put back into service.
///
/// # Errors
/// When the database fails.
pub async fn device_restore_put(
    connection: &mut AnyConnection,
    node: &NodeId,
    device: &DeviceId,
    revision: Revision,
    actor: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO device_restores (node, device, revision, created_at, created_by) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (node, device) DO UPDATE SET revision = excluded.revision, created_at = excluded.created_at, \
         created_by = excluded.created_by",
    )
    .bind(node.as_str())
    .bind(device.as_str())
    .bind(stored(revision.0))
    .bind(stored(now.get()))
    .bind(actor)
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes the requests for a node's devices.
///
/// # Errors
/// When the database fails.
pub async fn device_restore_forget(
    connection: &mut AnyConnection,
    node: &NodeId,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM device_restores WHERE node = $1")
        .bind(node.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// By node and device, the revision of the last request.
///
/// # Errors
/// When the database fails.
pub async fn device_restore_list(
    connection: &mut AnyConnection,
) -> Result<BTreeMap<NodeId, BTreeMap<DeviceId, Revision>>, StoreError> {
    let rows = sqlx::query("SELECT node, device, revision FROM device_restores")
        .fetch_all(connection)
        .await?;
    let mut all: BTreeMap<NodeId, BTreeMap<DeviceId, Revision>> = BTreeMap::new();
    for row in &rows {
        let of = all.entry(parsed(row, "node")?).or_default();
        of.insert(parsed(row, "device")?, Revision(number(row, "revision")?));
    }
    Ok(all)
}
