//! Regions and clusters, whether created by operators or reported by nodes.

use fdn_core::{ClusterId, GeoPoint, RegionName, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{parsed, stored};

/// One cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterRow {
    /// The cluster's name.
    pub id: ClusterId,
    /// Its region.
    pub region: RegionName,
    /// Its location.
    pub location: GeoPoint,
    /// The user who created it; `None` if only its nodes reported it. Reports do not change clusters that a user created.
    pub created_by: Option<String>,
}

fn cluster(row: &AnyRow) -> Result<ClusterRow, StoreError> {
    Ok(ClusterRow {
        id: parsed(row, "id")?,
        region: parsed(row, "region")?,
        location: location(row, "clusters.lat")?,
        created_by: row.try_get("created_by")?,
    })
}

fn location(row: &AnyRow, column: &str) -> Result<GeoPoint, StoreError> {
    GeoPoint::new(row.try_get("lat")?, row.try_get("lon")?)
        .map_err(|e| StoreError::corrupt(column, e))
}

/// All clusters, by name.
///
/// # Errors
/// When the database fails.
pub async fn cluster_list(connection: &mut AnyConnection) -> Result<Vec<ClusterRow>, StoreError> {
    let rows = sqlx::query("SELECT id, region, lat, lon, created_by FROM clusters ORDER BY id")
        .fetch_all(connection)
        .await?;
    rows.iter().map(cluster).collect()
}

/// The cluster with this name.
///
/// # Errors
/// When the database fails.
pub async fn cluster_get(
    connection: &mut AnyConnection,
    id: &ClusterId,
) -> Result<Option<ClusterRow>, StoreError> {
    let row = sqlx::query("SELECT id, region, lat, lon, created_by FROM clusters WHERE id = $1")
        .bind(id.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(cluster).transpose()
}

/// Writes the cluster and region that a node reports. Clusters that a user created stay as they are.
///
/// # Errors
/// When the database fails.
pub async fn cluster_observe(
    connection: &mut AnyConnection,
    row: &ClusterRow,
    now: Timestamp,
) -> Result<(), StoreError> {
    region_insert(connection, &row.region, row.location, now).await?;
    sqlx::query(
        "INSERT INTO clusters (id, region, lat, lon, created_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (id) DO UPDATE SET region = excluded.region, lat = excluded.lat, lon = excluded.lon \
         WHERE clusters.created_by IS NULL",
    )
    .bind(row.id.as_str())
    .bind(row.region.as_str())
    .bind(row.location.lat())
    .bind(row.location.lon())
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Creates a cluster, or makes one that nodes reported permanent; `false` if a user had created it before.
///
/// # Errors
/// When the database fails.
pub async fn cluster_create(
    connection: &mut AnyConnection,
    row: &ClusterRow,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO clusters (id, region, lat, lon, created_at, created_by) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (id) DO UPDATE SET region = excluded.region, lat = excluded.lat, lon = excluded.lon, \
         created_by = excluded.created_by WHERE clusters.created_by IS NULL",
    )
    .bind(row.id.as_str())
    .bind(row.region.as_str())
    .bind(row.location.lat())
    .bind(row.location.lon())
    .bind(stored(now.get()))
    .bind(row.created_by.clone())
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes the clusters that have no node and that no user created.
///
/// # Errors
/// When the database fails.
pub async fn cluster_forget_empty(connection: &mut AnyConnection) -> Result<(), StoreError> {
    sqlx::query(
        "DELETE FROM clusters WHERE created_by IS NULL AND id NOT IN (SELECT cluster FROM nodes)",
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Inserts a region unless it exists.
///
/// # Errors
/// When the database fails.
pub async fn region_insert(
    connection: &mut AnyConnection,
    region: &RegionName,
    location: GeoPoint,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO regions (name, lat, lon, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING",
    )
    .bind(region.as_str())
    .bind(location.lat())
    .bind(location.lon())
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// The location of a region; `None` if it is unknown.
///
/// # Errors
/// When the database fails.
pub async fn region_get(
    connection: &mut AnyConnection,
    region: &RegionName,
) -> Result<Option<GeoPoint>, StoreError> {
    let row = sqlx::query("SELECT lat, lon FROM regions WHERE name = $1")
        .bind(region.as_str())
        .fetch_optional(connection)
        .await?;
    row.map(|row| location(&row, "regions.lat")).transpose()
}
