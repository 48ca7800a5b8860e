//! Round-trip times that gateways measured, smoothed; bounded, the longest unmeasured go first.

use fdn_core::{ClientPrefix, ClusterId, Millis, Timestamp};
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, stored};

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct RttRow {
    /// The clients.
    pub prefix: ClientPrefix,
    /// The cluster that measured.
    pub cluster: ClusterId,
    /// The smoothed round trip.
    pub rtt: Millis,
    /// Connections that went into it.
    pub samples: u64,
    /// When it changed last.
    pub updated_at: Timestamp,
}

/// All measurements, by prefix and cluster.
///
/// # Errors
/// When the database fails.
pub async fn rtt_list(connection: &mut AnyConnection) -> Result<Vec<RttRow>, StoreError> {
    let rows = sqlx::query("SELECT * FROM rtt ORDER BY prefix, cluster")
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(RttRow {
                prefix: parsed(row, "prefix")?,
                cluster: parsed(row, "cluster")?,
                rtt: Millis::new(row.try_get("rtt_ms")?),
                samples: number(row, "samples")?,
                updated_at: Timestamp(number(row, "updated_at")?),
            })
        })
        .collect()
}

/// Writes a measurement over the one of the same prefix and cluster.
///
/// # Errors
/// When the database fails.
pub async fn rtt_upsert(connection: &mut AnyConnection, rtt: &RttRow) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO rtt (prefix, cluster, rtt_ms, samples, updated_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (prefix, cluster) DO UPDATE SET rtt_ms = excluded.rtt_ms, samples = excluded.samples, \
         updated_at = excluded.updated_at",
    )
    .bind(rtt.prefix.to_string())
    .bind(rtt.cluster.as_str())
    .bind(rtt.rtt.get())
    .bind(stored(rtt.samples))
    .bind(stored(rtt.updated_at.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Removes a measurement.
///
/// # Errors
/// When the database fails.
pub async fn rtt_delete(
    connection: &mut AnyConnection,
    prefix: ClientPrefix,
    cluster: &ClusterId,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM rtt WHERE prefix = $1 AND cluster = $2")
        .bind(prefix.to_string())
        .bind(cluster.as_str())
        .execute(connection)
        .await?;
    Ok(())
}
