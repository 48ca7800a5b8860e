//! Smoothed round-trip times that nodes measured, to clients and between clusters. Their number is bounded: those unmeasured for the longest go
//! first.

use fdn_core::{ClientPrefix, ClusterId, Millis, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, stored};

/// A measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct RttRow<K> {
    /// Its two ends.
    pub key: K,
    /// The smoothed round-trip time.
    pub rtt: Millis,
    /// The number of connections measured.
    pub samples: u64,
    /// When it changed last.
    pub updated_at: Timestamp,
}

/// The clients' prefix, and the cluster whose gateways measured.
pub type ClientKey = (ClientPrefix, ClusterId);
/// The cluster whose nodes measured, and the cluster measured.
pub type LinkKey = (ClusterId, ClusterId);

fn measurement<K>(row: &AnyRow, key: K) -> Result<RttRow<K>, StoreError> {
    Ok(RttRow {
        key,
        rtt: Millis::new(row.try_get("rtt_ms")?),
        samples: number(row, "samples")?,
        updated_at: Timestamp(number(row, "updated_at")?),
    })
}

/// Round-trip times to clients that changed at `since` or later, by prefix and cluster.
///
/// # Errors
/// When the database fails.
pub async fn rtt_list(
    connection: &mut AnyConnection,
    since: Timestamp,
) -> Result<Vec<RttRow<ClientKey>>, StoreError> {
    let rows = sqlx::query("SELECT prefix, cluster, rtt_ms, samples, updated_at FROM rtt WHERE updated_at >= $1 ORDER BY prefix, cluster")
        .bind(stored(since.get()))
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| measurement(row, (parsed(row, "prefix")?, parsed(row, "cluster")?)))
        .collect()
}

/// Round-trip times between clusters that changed at `since` or later, by the two clusters.
///
/// # Errors
/// When the database fails.
pub async fn link_list(
    connection: &mut AnyConnection,
    since: Timestamp,
) -> Result<Vec<RttRow<LinkKey>>, StoreError> {
    let rows =
        sqlx::query("SELECT from_cluster, to_cluster, rtt_ms, samples, updated_at FROM links WHERE updated_at >= $1 \
         ORDER BY from_cluster, to_cluster")
            .bind(stored(since.get()))
            .fetch_all(connection)
            .await?;
    rows.iter()
        .map(|row| {
            let key = (parsed(row, "from_cluster")?, parsed(row, "to_cluster")?);
            measurement(row, key)
        })
        .collect()
}

/// Inserts a measurement, or replaces the one of the same prefix and cluster unless that is newer.
///
/// # Errors
/// When the database fails.
pub async fn rtt_upsert(
    connection: &mut AnyConnection,
    rtt: &RttRow<ClientKey>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO rtt (prefix, cluster, rtt_ms, samples, updated_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (prefix, cluster) DO UPDATE SET rtt_ms = excluded.rtt_ms, samples = excluded.samples, \
         updated_at = excluded.updated_at WHERE rtt.updated_at <= excluded.updated_at",
    )
    .bind(rtt.key.0.to_string())
    .bind(rtt.key.1.as_str())
    .bind(rtt.rtt.get())
    .bind(stored(rtt.samples))
    .bind(stored(rtt.updated_at.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Inserts a measurement, or replaces the one of the same clusters unless that is newer.
///
/// # Errors
/// When the database fails.
pub async fn link_upsert(
    connection: &mut AnyConnection,
    link: &RttRow<LinkKey>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO links (from_cluster, to_cluster, rtt_ms, samples, updated_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (from_cluster, to_cluster) DO UPDATE SET rtt_ms = excluded.rtt_ms, samples = excluded.samples, \
         updated_at = excluded.updated_at WHERE links.updated_at <= excluded.updated_at",
    )
    .bind(link.key.0.as_str())
    .bind(link.key.1.as_str())
    .bind(link.rtt.get())
    .bind(stored(link.samples))
    .bind(stored(link.updated_at.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes a measurement to clients.
///
/// # Errors
/// When the database fails.
pub async fn rtt_delete(
    connection: &mut AnyConnection,
    (prefix, cluster): &ClientKey,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM rtt WHERE prefix = $1 AND cluster = $2")
        .bind(prefix.to_string())
        .bind(cluster.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

/// Deletes all measurements to clients that are older than `before`.
///
/// # Errors
/// When the database fails.
pub async fn rtt_prune(
    connection: &mut AnyConnection,
    before: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM rtt WHERE updated_at < $1")
        .bind(stored(before.get()))
        .execute(connection)
        .await?;
    Ok(())
}

/// Deletes a measurement between clusters.
///
/// # Errors
/// When the database fails.
pub async fn link_delete(
    connection: &mut AnyConnection,
    (from, to): &LinkKey,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM links WHERE from_cluster = $1 AND to_cluster = $2")
        .bind(from.as_str())
        .bind(to.as_str())
        .execute(connection)
        .await?;
    Ok(())
}
