//! The network state that DNS servers were last sent.

use fdn_core::message::NetworkDesired;
use sqlx::AnyConnection;

use super::StoreError;
use super::row::{json, stored, to_json};

/// The last state sent; `None` before the first.
///
/// # Errors
/// When the database fails.
pub async fn network_get(
    connection: &mut AnyConnection,
) -> Result<Option<NetworkDesired>, StoreError> {
    let row = sqlx::query("SELECT state FROM network WHERE id = 1")
        .fetch_optional(connection)
        .await?;
    row.map(|row| json(&row, "state")).transpose()
}

/// Stores the state that is sent now.
///
/// # Errors
/// When the database fails.
pub async fn network_set(
    connection: &mut AnyConnection,
    network: &NetworkDesired,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO network (id, state, revision) VALUES (1, $1, $2) \
         ON CONFLICT (id) DO UPDATE SET state = excluded.state, revision = excluded.revision",
    )
    .bind(to_json(network, "network.state")?)
    .bind(stored(network.revision.get()))
    .execute(connection)
    .await?;
    Ok(())
}
