//! Rows of the artifact store: which artifacts are claimed or in use, and which objects are to be removed.
//!
//! An object and its row cannot share a transaction. Removal is safe all the same:
//!
//! - An upload *claims* an artifact first ([`artifact_claim`]), which renews its time of last use, writes the object under the name that the claim
//!   returned, and *uses* it ([`artifact_use`]) in the transaction that writes the version. If it was marked in between, the use fails, nothing
//!   is written, and the upload begins again.
//! - The collector *marks* ([`artifact_mark`]) artifacts that are old and have no version, by moving the row to the trash in one transaction that
//!   locks the row first and looks for versions after that. Use and mark lock the same row, so one of them sees the other.
//! - A marked object's name is never used again. So it does not matter who removes the object, how often, or how late.

use fdn_core::{Digest, FunctionName, TenantId, Timestamp, VersionNumber};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, stored};
use super::version::digest_in_use;
use crate::artifacts::Object;

fn object(row: &AnyRow) -> Result<Object, StoreError> {
    Ok(Object {
        digest: parsed(row, "digest")?,
        name: row.try_get("object")?,
    })
}

/// Claims an artifact that is about to be stored and used; returns the object to write. `fresh` becomes its name if it has none yet.
///
/// # Errors
/// When the database fails.
pub async fn artifact_claim(
    connection: &mut AnyConnection,
    digest: &Digest,
    size: u64,
    fresh: &str,
    now: Timestamp,
) -> Result<Object, StoreError> {
    let row = sqlx::query(
        "INSERT INTO artifacts (digest, object, size, touched_at) VALUES ($1, $2, $3, $4) \
         ON CONFLICT (digest) DO UPDATE SET touched_at = \
         CASE WHEN artifacts.touched_at > excluded.touched_at THEN artifacts.touched_at ELSE excluded.touched_at END \
         RETURNING digest, object",
    )
    .bind(digest.to_string())
    .bind(fresh)
    .bind(stored(size))
    .bind(stored(now.get()))
    .fetch_one(connection)
    .await?;
    object(&row)
}

/// Renews a claimed artifact for the version that this transaction writes; `false` if it was marked since, and must be claimed again.
///
/// # Errors
/// When the database fails.
pub async fn artifact_use(
    connection: &mut AnyConnection,
    object: &Object,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE artifacts SET touched_at = CASE WHEN touched_at > $3 THEN touched_at ELSE $3 END \
         WHERE digest = $1 AND object = $2",
    )
    .bind(object.digest.to_string())
    .bind(&object.name)
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The object of an artifact. An artifact without a row was uploaded by a controller of a release before objects had names: its name is empty.
///
/// # Errors
/// When the database fails.
pub async fn artifact_find(
    connection: &mut AnyConnection,
    digest: &Digest,
) -> Result<Object, StoreError> {
    let row = sqlx::query("SELECT digest, object FROM artifacts WHERE digest = $1")
        .bind(digest.to_string())
        .fetch_optional(connection)
        .await?;
    let of_before = || Object {
        digest: *digest,
        name: String::new(),
    };
    row.as_ref().map_or_else(|| Ok(of_before()), object)
}

/// Starts the grace period of a function's artifacts, or of one version's, because they are about to be deleted.
///
/// # Errors
/// When the database fails.
pub async fn artifact_release(
    connection: &mut AnyConnection,
    tenant: TenantId,
    (function, version): (&FunctionName, Option<VersionNumber>),
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE artifacts SET touched_at = CASE WHEN touched_at > $3 THEN touched_at ELSE $3 END \
         WHERE digest IN (SELECT v.digest FROM versions v WHERE v.tenant = $1 AND v.function = $2 AND ($4 = 0 OR v.number = $4)) \
         OR digest IN (SELECT f.digest FROM form_artifacts f WHERE f.tenant = $1 AND f.function = $2 AND ($4 = 0 OR f.number = $4))",
    )
    .bind(tenant.to_string())
    .bind(function.as_str())
    .bind(stored(now.get()))
    .bind(version.map_or(0, |version| i64::from(version.get())))
    .execute(connection)
    .await?;
    Ok(())
}

/// Artifacts not touched since `before` that no version uses, oldest first, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn artifact_list_unused(
    connection: &mut AnyConnection,
    before: Timestamp,
    limit: u32,
) -> Result<Vec<Digest>, StoreError> {
    let rows = sqlx::query(
        "SELECT a.digest FROM artifacts a WHERE a.touched_at <= $1 \
         AND NOT EXISTS (SELECT 1 FROM versions v WHERE v.digest = a.digest) \
         AND NOT EXISTS (SELECT 1 FROM form_artifacts f WHERE f.digest = a.digest) ORDER BY a.touched_at, a.digest LIMIT $2",
    )
    .bind(stored(before.get()))
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(|row| parsed(row, "digest")).collect()
}

/// Moves an artifact to the trash if it has not been touched since `before` and no version uses it; returns whether it did. Call it in a transaction.
///
/// # Errors
/// When the database fails.
pub async fn artifact_mark(
    connection: &mut AnyConnection,
    digest: &Digest,
    before: Timestamp,
    now: Timestamp,
) -> Result<bool, StoreError> {
    // Locks the row, after waiting for its present holder: the queries below see what that one wrote.
    let locked = sqlx::query(
        "UPDATE artifacts SET touched_at = touched_at WHERE digest = $1 AND touched_at <= $2",
    )
    .bind(digest.to_string())
    .bind(stored(before.get()))
    .execute(&mut *connection)
    .await?;
    if locked.rows_affected() == 0 || digest_in_use(connection, digest).await? {
        return Ok(false);
    }
    sqlx::query(
        "INSERT INTO artifact_trash (digest, object, size, marked_at) \
         SELECT digest, object, size, $2 FROM artifacts WHERE digest = $1",
    )
    .bind(digest.to_string())
    .bind(stored(now.get()))
    .execute(&mut *connection)
    .await?;
    sqlx::query("DELETE FROM artifacts WHERE digest = $1")
        .bind(digest.to_string())
        .execute(connection)
        .await?;
    Ok(true)
}

/// A page of objects to remove, by digest and name, beginning after `after`, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn trash_list(
    connection: &mut AnyConnection,
    after: Option<&Object>,
    limit: u32,
) -> Result<Vec<Object>, StoreError> {
    let (digest, name) = after.map_or_else(Default::default, |after| {
        (after.digest.to_string(), after.name.clone())
    });
    let rows = sqlx::query(
        "SELECT digest, object FROM artifact_trash WHERE digest > $1 OR (digest = $1 AND object > $2) \
         ORDER BY digest, object LIMIT $3",
    )
    .bind(digest)
    .bind(name)
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(object).collect()
}

/// Deletes the row of an object that was removed.
///
/// # Errors
/// When the database fails.
pub async fn trash_delete(
    connection: &mut AnyConnection,
    object: &Object,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM artifact_trash WHERE digest = $1 AND object = $2")
        .bind(object.digest.to_string())
        .bind(&object.name)
        .execute(connection)
        .await?;
    Ok(())
}

/// Counts of stored artifacts and of objects to be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArtifactCounts {
    /// The number of artifacts.
    pub kept: u64,
    /// Their total size in bytes.
    pub bytes: u64,
    /// The number of objects to remove.
    pub trash: u64,
}

/// Counts artifacts.
///
/// # Errors
/// When the database fails.
pub async fn artifact_count(connection: &mut AnyConnection) -> Result<ArtifactCounts, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*) AS kept, CAST(COALESCE(SUM(size), 0) AS BIGINT) AS bytes, \
         (SELECT COUNT(*) FROM artifact_trash) AS trash FROM artifacts",
    )
    .fetch_one(connection)
    .await?;
    Ok(ArtifactCounts {
        kept: number(&row, "kept")?,
        bytes: number(&row, "bytes")?,
        trash: number(&row, "trash")?,
    })
}
