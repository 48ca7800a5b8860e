//! Artifacts in the artifact store: who is about to use them, and which are to be removed.
//!
//! Object and row have no common transaction. What makes removing safe all the same:
//!
//! - Whoever stores an artifact *claims* it first ([`artifact_claim`]), which makes it young, writes the object under the name that the claim
//!   says, and *uses* it ([`artifact_use`]) in the transaction that writes the version. If it was marked in between, the use fails, nothing
//!   is written, and the upload begins again.
//! - The collector *marks* ([`artifact_mark`]) what is old and has no version, by moving the row to the trash in one transaction that locks the row
//!   first and looks for versions after that. Use and mark lock the same row, so one of them sees the other.
//! - A marked object's name is never given again. So it does not matter who removes it, how often, or how late.

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

/// Says that an artifact is about to be stored and used; the object to write. `fresh` becomes its name if there is none yet.
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

/// Keeps what was claimed for the version that this transaction writes; `false` if it was marked since, so that it must be claimed again.
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

/// Where an artifact is: an upload by a controller that knows nothing of objects has the name that all had then.
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

/// Begins the grace time of a function's artifacts, or of one version's: they are about to go.
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

/// Artifacts that nobody has touched since `before` and no version uses, the oldest first, at most `limit`.
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

/// Moves an artifact to the trash, if it still is untouched since `before` and no version uses it; whether it was. To be called in a transaction.
///
/// # Errors
/// When the database fails.
pub async fn artifact_mark(
    connection: &mut AnyConnection,
    digest: &Digest,
    before: Timestamp,
    now: Timestamp,
) -> Result<bool, StoreError> {
    // Locks the row, after whoever holds it: what follows sees what that one has written.
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

/// Objects to remove, in their order, beginning after `after`, at most `limit`.
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

/// Forgets an object that was removed.
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

/// Artifacts kept and objects that wait to be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArtifactCounts {
    /// Artifacts that are kept.
    pub kept: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects to remove.
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
