//! Nodes and DNS servers that were enrolled with a join token, and their certificates.

use std::collections::BTreeSet;

use fdn_core::enrol::{Machine, NodeAddresses, Role};
use fdn_core::fleet::Revoked;
use fdn_core::{ClusterId, EnrolmentId, JoinTokenId, NodeId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::dialect::lock_shared;
use super::row::{json, number, parsed, stored, to_json};

/// An enrolled node or DNS server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnrolmentRow {
    /// The machine's name.
    pub node: NodeId,
    /// The id of this enrolment of it.
    pub id: EnrolmentId,
    /// Its role.
    pub role: Role,
    /// Its cluster.
    pub cluster: ClusterId,
    /// The token that it joined with.
    pub token: JoinTokenId,
    /// The addresses at which others reach it.
    pub addresses: NodeAddresses,
    /// When it was enrolled.
    pub enrolled_at: Timestamp,
    /// When it was removed; `None` if it was not.
    pub removed_at: Option<Timestamp>,
}

impl EnrolmentRow {
    /// Whether this is a node that was not removed.
    #[must_use]
    pub fn is_node(&self) -> bool {
        self.role == Role::Node && self.removed_at.is_none()
    }

    /// The identity in its certificate.
    #[must_use]
    pub fn machine(&self) -> Machine {
        Machine {
            role: self.role,
            cluster: self.cluster.clone(),
            name: self.node.clone(),
        }
    }
}

/// An issued certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRow {
    /// Its serial number in hexadecimal digits.
    pub serial: String,
    /// The machine that it belongs to.
    pub node: NodeId,
    /// The machine's public key.
    pub public_key: String,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it was revoked; `None` if it was not.
    pub revoked_at: Option<Timestamp>,
}

fn optional_time(row: &AnyRow, column: &str) -> Result<Option<Timestamp>, StoreError> {
    let at: Option<i64> = row.try_get(column)?;
    Ok(at.map(|at| Timestamp(u64::try_from(at).unwrap_or_default())))
}

fn enrolment(row: &AnyRow) -> Result<EnrolmentRow, StoreError> {
    Ok(EnrolmentRow {
        node: parsed(row, "node")?,
        id: parsed(row, "id")?,
        role: parsed(row, "role")?,
        cluster: parsed(row, "cluster")?,
        token: parsed(row, "token")?,
        addresses: json(row, "addresses")?,
        enrolled_at: Timestamp(number(row, "enrolled_at")?),
        removed_at: optional_time(row, "removed_at")?,
    })
}

fn certificate(row: &AnyRow) -> Result<CertificateRow, StoreError> {
    Ok(CertificateRow {
        serial: row.try_get("serial")?,
        node: parsed(row, "node")?,
        public_key: row.try_get("public_key")?,
        issued_at: Timestamp(number(row, "issued_at")?),
        expires_at: Timestamp(number(row, "expires_at")?),
        revoked_at: optional_time(row, "revoked_at")?,
    })
}

/// The last enrolment of a node, even if the node was removed.
///
/// # Errors
/// When the database fails.
pub async fn enrolment_get(
    connection: &mut AnyConnection,
    node: &NodeId,
) -> Result<Option<EnrolmentRow>, StoreError> {
    let row = sqlx::query(
        "SELECT node, id, role, cluster, token, addresses, enrolled_at, removed_at FROM enrolments WHERE node = $1",
    )
    .bind(node.as_str())
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(enrolment).transpose()
}

/// When a node was removed; `None` if it was not. Locks the row, so that nobody removes the node before the transaction ends and writes about
/// a node never follow its removal.
///
/// # Errors
/// When the database fails.
pub async fn enrolment_lock(
    connection: &mut AnyConnection,
    node: &NodeId,
) -> Result<Option<Timestamp>, StoreError> {
    let query = "SELECT removed_at FROM enrolments WHERE node = $1";
    let query = lock_shared(query, connection);
    let row = sqlx::query(sqlx::AssertSqlSafe(query))
        .bind(node.as_str())
        .fetch_optional(connection)
        .await?;
    let removed_at: Option<i64> = match row {
        Some(row) => row.try_get("removed_at")?,
        None => None,
    };
    Ok(removed_at.map(|at| Timestamp(at.unsigned_abs())))
}

/// The last enrolments of all machines, by name, including removed ones.
///
/// # Errors
/// When the database fails.
pub async fn enrolment_list(
    connection: &mut AnyConnection,
) -> Result<Vec<EnrolmentRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT node, id, role, cluster, token, addresses, enrolled_at, removed_at FROM enrolments ORDER BY node",
    )
    .fetch_all(connection)
    .await?;
    rows.iter().map(enrolment).collect()
}

/// The last enrolments written after the stamp `after`, including those of removed machines, and the last stamp. Stamps are committed in
/// their order.
///
/// # Errors
/// When the database fails.
pub async fn enrolment_list_after(
    connection: &mut AnyConnection,
    after: u64,
) -> Result<(Vec<EnrolmentRow>, u64), StoreError> {
    let rows = sqlx::query(
        "SELECT node, id, role, cluster, token, addresses, enrolled_at, removed_at, stamp FROM enrolments WHERE stamp > $1 ORDER BY stamp",
    )
    .bind(stored(after))
    .fetch_all(connection)
    .await?;
    let last = rows.last().map_or(Ok(after), |row| number(row, "stamp"))?;
    let all = rows.iter().map(enrolment).collect::<Result<_, _>>()?;
    Ok((all, last))
}

/// The nodes of a cluster without `but`, by name, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn enrolment_list_others(
    connection: &mut AnyConnection,
    cluster: &ClusterId,
    but: &NodeId,
    limit: u32,
) -> Result<Vec<EnrolmentRow>, StoreError> {
    let rows = sqlx::query(
        "SELECT node, id, role, cluster, token, addresses, enrolled_at, removed_at FROM enrolments \
         WHERE cluster = $1 AND node <> $2 AND role = 'node' AND removed_at IS NULL ORDER BY node LIMIT $3",
    )
    .bind(cluster.as_str())
    .bind(but.as_str())
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(enrolment).collect()
}

/// The next stamp for an enrolment. The counter's row stays locked until the transaction ends.
async fn stamp_next(connection: &mut AnyConnection) -> Result<i64, StoreError> {
    // Rows written before stamps existed have the stamp 1.
    let query = "INSERT INTO counters (name, value) VALUES ('enrolments', 2) \
         ON CONFLICT (name) DO UPDATE SET value = counters.value + 1 RETURNING value";
    let row = sqlx::query(query).fetch_one(connection).await?;
    number(&row, "value").map(stored)
}

/// Inserts an enrolment, or replaces the earlier one of the same machine.
///
/// # Errors
/// When the database fails or there is no such cluster.
pub async fn enrolment_upsert(
    connection: &mut AnyConnection,
    row: &EnrolmentRow,
) -> Result<(), StoreError> {
    let stamp = stamp_next(connection).await?;
    sqlx::query(
        "INSERT INTO enrolments (node, id, cluster, token, addresses, enrolled_at, removed_at, role, stamp) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
         ON CONFLICT (node) DO UPDATE SET id = excluded.id, cluster = excluded.cluster, token = excluded.token, \
         addresses = excluded.addresses, enrolled_at = excluded.enrolled_at, removed_at = excluded.removed_at, \
         role = excluded.role, stamp = excluded.stamp",
    )
    .bind(row.node.as_str())
    .bind(row.id.to_string())
    .bind(row.cluster.as_str())
    .bind(row.token.to_string())
    .bind(to_json(&row.addresses, "enrolments.addresses")?)
    .bind(stored(row.enrolled_at.get()))
    .bind(row.removed_at.map(|at| stored(at.get())))
    .bind(row.role.as_str())
    .bind(stamp)
    .execute(connection)
    .await?;
    Ok(())
}

/// Marks a machine as removed; `false` if it was not enrolled.
///
/// # Errors
/// When the database fails.
pub async fn enrolment_remove(
    connection: &mut AnyConnection,
    node: &NodeId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let stamp = stamp_next(connection).await?;
    let done = sqlx::query(
        "UPDATE enrolments SET removed_at = $2, stamp = $3 WHERE node = $1 AND removed_at IS NULL",
    )
    .bind(node.as_str())
    .bind(stored(now.get()))
    .bind(stamp)
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes certificates that expired before `before`, and enrolments removed before it that have no certificate left.
///
/// # Errors
/// When the database fails.
pub async fn enrolment_trim(
    connection: &mut AnyConnection,
    before: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM certificates WHERE expires_at < $1")
        .bind(stored(before.get()))
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "DELETE FROM enrolments WHERE removed_at < $1 AND node NOT IN (SELECT node FROM certificates)",
    )
    .bind(stored(before.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Inserts a certificate unless one with its serial number exists; returns whether it is new.
///
/// # Errors
/// When the database fails or the node is not enrolled.
pub async fn certificate_insert(
    connection: &mut AnyConnection,
    row: &CertificateRow,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO certificates (serial, node, public_key, issued_at, expires_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (serial) DO NOTHING",
    )
    .bind(&row.serial)
    .bind(row.node.as_str())
    .bind(&row.public_key)
    .bind(stored(row.issued_at.get()))
    .bind(stored(row.expires_at.get()))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The certificate with this serial number.
///
/// # Errors
/// When the database fails.
pub async fn certificate_get(
    connection: &mut AnyConnection,
    serial: &str,
) -> Result<Option<CertificateRow>, StoreError> {
    let row = sqlx::query(
        "SELECT serial, node, public_key, issued_at, expires_at, revoked_at FROM certificates WHERE serial = $1",
    )
    .bind(serial)
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(certificate).transpose()
}

/// A node's newest certificate.
///
/// # Errors
/// When the database fails.
pub async fn certificate_newest(
    connection: &mut AnyConnection,
    node: &NodeId,
) -> Result<Option<CertificateRow>, StoreError> {
    let row = sqlx::query(
        "SELECT serial, node, public_key, issued_at, expires_at, revoked_at FROM certificates WHERE node = $1 \
         ORDER BY issued_at DESC, serial LIMIT 1",
    )
    .bind(node.as_str())
    .fetch_optional(connection)
    .await?;
    row.as_ref().map(certificate).transpose()
}

/// The number of a node's certificates that are valid at `now`.
///
/// # Errors
/// When the database fails.
pub async fn certificate_count(
    connection: &mut AnyConnection,
    node: &NodeId,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*) AS live FROM certificates WHERE node = $1 AND revoked_at IS NULL AND expires_at > $2",
    )
    .bind(node.as_str())
    .bind(stored(now.get()))
    .fetch_one(connection)
    .await?;
    number(&row, "live")
}

/// Revokes every certificate of a node; returns how many were revoked.
///
/// # Errors
/// When the database fails.
pub async fn certificate_revoke(
    connection: &mut AnyConnection,
    node: &NodeId,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "UPDATE certificates SET revoked_at = $2 WHERE node = $1 AND revoked_at IS NULL",
    )
    .bind(node.as_str())
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}

/// The revoked certificates that have not expired, by serial number.
///
/// # Errors
/// When the database fails.
pub async fn certificate_list_revoked(
    connection: &mut AnyConnection,
    now: Timestamp,
) -> Result<Vec<Revoked>, StoreError> {
    let rows = sqlx::query(
        "SELECT serial, node, expires_at FROM certificates WHERE revoked_at IS NOT NULL AND expires_at > $1 ORDER BY serial",
    )
    .bind(stored(now.get()))
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(Revoked {
                serial: row.try_get("serial")?,
                node: parsed(row, "node")?,
                expires_at: Timestamp(number(row, "expires_at")?),
            })
        })
        .collect()
}

/// Cordons a node, so that it takes no new work; `false` if it was cordoned already.
///
/// # Errors
/// When the database fails.
pub async fn cordon_insert(
    connection: &mut AnyConnection,
    node: &NodeId,
    actor: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO cordons (node, created_at, created_by) VALUES ($1, $2, $3) ON CONFLICT (node) DO NOTHING",
    )
    .bind(node.as_str())
    .bind(stored(now.get()))
    .bind(actor)
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Uncordons a node; `false` if it was not cordoned.
///
/// # Errors
/// When the database fails.
pub async fn cordon_delete(
    connection: &mut AnyConnection,
    node: &NodeId,
) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM cordons WHERE node = $1")
        .bind(node.as_str())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// The cordoned nodes.
///
/// # Errors
/// When the database fails.
pub async fn cordon_list(connection: &mut AnyConnection) -> Result<BTreeSet<NodeId>, StoreError> {
    let rows = sqlx::query("SELECT node FROM cordons")
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| parsed(row, "node")).collect()
}
