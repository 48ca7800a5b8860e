//! Tenants and their members.

use fdn_core::account::{MemberInfo, Membership, TenantInfo, TenantRef};
use fdn_core::repository::{StorageLimit, StorageUse};
use fdn_core::{ByteSize, TenantId, TenantName, TenantRole, Timestamp, UserName};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{number, parsed, stored, time_or_none};

/// A query for the columns that [`tenant`] reads, with the rest of the statement.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT t.id, t.name, t.created_at, t.suspended_at, t.generation, t.storage_octets, t.storage_versions, ",
            "t.signature_policy, t.deleted_at, ",
            "(SELECT COUNT(*) FROM versions v WHERE v.tenant = t.id) AS versions, ",
            "(SELECT CAST(COALESCE(SUM(v.size), 0) AS BIGINT) FROM versions v WHERE v.tenant = t.id) + ",
            "(SELECT CAST(COALESCE(SUM(f.size), 0) AS BIGINT) FROM form_artifacts f WHERE f.tenant = t.id) AS bytes, ",
            "(SELECT COUNT(*) FROM members m WHERE m.tenant = t.id) AS members, ",
            "(SELECT COUNT(*) FROM apps a WHERE a.tenant = t.id) AS apps FROM tenants t ",
            $rest
        )
    };
}

/// Reads the limits set for the tenant itself.
fn limit(row: &AnyRow) -> Result<StorageLimit, StoreError> {
    let own = |column| {
        let value: Option<i64> = row.try_get(column)?;
        let value = value.map(u64::try_from).transpose();
        value.map_err(|e| StoreError::corrupt(column, e))
    };
    Ok(StorageLimit {
        bytes: own("storage_octets")?.map(ByteSize::from_bytes),
        versions: own("storage_versions")?,
    })
}

/// Reads a tenant; a limit that is not set for the tenant itself becomes the largest number.
fn tenant(row: &AnyRow) -> Result<TenantInfo, StoreError> {
    let limit = limit(row)?;
    Ok(TenantInfo {
        storage: StorageUse {
            bytes: number(row, "bytes")?,
            bytes_limit: limit.bytes.map_or(u64::MAX, ByteSize::as_bytes),
            versions: number(row, "versions")?,
            versions_limit: limit.versions.unwrap_or(u64::MAX),
            own_limit: !limit.is_empty(),
        },
        signature_policy: parsed(row, "signature_policy")?,
        deleted_at: time_or_none(row, "deleted_at")?,
        id: parsed(row, "id")?,
        name: parsed(row, "name")?,
        created_at: Timestamp(number(row, "created_at")?),
        suspended_at: time_or_none(row, "suspended_at")?,
        members: number(row, "members")?,
        apps: number(row, "apps")?,
        generation: number(row, "generation")?,
    })
}

/// The tenant with this id or name, even if it is deleted.
///
/// # Errors
/// When the database fails.
pub async fn tenant_get(
    connection: &mut AnyConnection,
    tenant: &TenantRef,
) -> Result<Option<TenantInfo>, StoreError> {
    let (id, name) = match tenant {
        TenantRef::Id(id) => (id.to_string(), String::new()),
        TenantRef::Name(name) => (String::new(), name.to_string()),
    };
    let row = sqlx::query(select!("WHERE t.id = $1 OR t.name = $2"))
        .bind(id)
        .bind(name)
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(self::tenant).transpose()
}

/// A page of tenants that are not deleted, by name, beginning after `after`, at most `limit`: those of `member`, or all.
///
/// # Errors
/// When the database fails.
pub async fn tenant_list(
    connection: &mut AnyConnection,
    member: Option<&str>,
    after: &str,
    limit: u32,
) -> Result<Vec<TenantInfo>, StoreError> {
    let rows = sqlx::query(select!(
        "WHERE t.name > $1 AND t.deleted_at IS NULL AND ($2 = '' OR t.id IN (SELECT m.tenant FROM members m WHERE m.user_name = $2)) \
         ORDER BY t.name LIMIT $3"
    ))
    .bind(after)
    .bind(member.unwrap_or_default())
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(tenant).collect()
}

/// Inserts a tenant; `false` if the name is taken.
///
/// # Errors
/// When the database fails.
pub async fn tenant_insert(
    connection: &mut AnyConnection,
    id: TenantId,
    name: &TenantName,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO tenants (id, name, created_at) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING",
    )
    .bind(id.to_string())
    .bind(name.as_str())
    .bind(stored(now.get()))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Updates a tenant's name and suspension, unless it was changed since `tenant.generation`; `false` if it was.
///
/// # Errors
/// When the database fails or the name is taken.
pub async fn tenant_update(
    connection: &mut AnyConnection,
    tenant: &TenantInfo,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE tenants SET name = $2, suspended_at = $3, generation = generation + 1 WHERE id = $1 AND generation = $4",
    )
    .bind(tenant.id.to_string())
    .bind(tenant.name.as_str())
    .bind(tenant.suspended_at.map(|at| stored(at.get())))
    .bind(stored(tenant.generation))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The storage limits of the tenant itself; `None` where the network's limit applies.
///
/// # Errors
/// When the database fails or there is no such tenant.
pub async fn tenant_limit_get(
    connection: &mut AnyConnection,
    tenant: TenantId,
) -> Result<StorageLimit, StoreError> {
    let row = sqlx::query("SELECT storage_octets, storage_versions FROM tenants WHERE id = $1")
        .bind(tenant.to_string())
        .fetch_one(connection)
        .await?;
    limit(&row)
}

/// Sets the storage limits of a tenant.
///
/// # Errors
/// When the database fails.
pub async fn tenant_limit_set(
    connection: &mut AnyConnection,
    tenant: TenantId,
    limit: &StorageLimit,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE tenants SET storage_octets = $2, storage_versions = $3 WHERE id = $1")
        .bind(tenant.to_string())
        .bind(limit.bytes.map(|bytes| stored(bytes.as_bytes())))
        .bind(limit.versions.map(stored))
        .execute(connection)
        .await?;
    Ok(())
}

/// Deletes everything of a tenant except its usage and bills, and frees its name for another tenant.
///
/// # Errors
/// When the database fails.
pub async fn tenant_delete(
    connection: &mut AnyConnection,
    tenant: TenantId,
    now: Timestamp,
) -> Result<(), StoreError> {
    let id = tenant.to_string();
    for query in [
        "DELETE FROM members WHERE tenant = $1",
        "DELETE FROM budgets WHERE tenant = $1",
        "DELETE FROM budget_webhooks WHERE tenant = $1",
        "DELETE FROM signing_keys WHERE tenant = $1",
        "DELETE FROM applied WHERE tenant = $1",
        "DELETE FROM secrets WHERE tenant = $1",
        "DELETE FROM data_keys WHERE tenant = $1",
    ] {
        sqlx::query(query)
            .bind(&id)
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query("UPDATE api_tokens SET revoked_at = $2 WHERE tenant = $1 AND revoked_at IS NULL")
        .bind(&id)
        .bind(stored(now.get()))
        .execute(&mut *connection)
        .await?;
    sqlx::query(
        "UPDATE tenants SET name = $3, deleted_at = $2, suspended_at = NULL, generation = generation + 1 WHERE id = $1",
    )
    .bind(&id)
    .bind(stored(now.get()))
    .bind(format!("deleted-{}", tenant.uuid().simple()))
    .execute(connection)
    .await?;
    Ok(())
}

/// The tenants of a user, by name.
///
/// # Errors
/// When the database fails.
pub async fn membership_list(
    connection: &mut AnyConnection,
    user: &str,
) -> Result<Vec<Membership>, StoreError> {
    let rows = sqlx::query(
        "SELECT t.id, t.name, t.suspended_at, m.role FROM members m JOIN tenants t ON t.id = m.tenant \
         WHERE m.user_name = $1 ORDER BY t.name",
    )
    .bind(user)
    .fetch_all(connection)
    .await?;
    rows.iter()
        .map(|row| {
            Ok(Membership {
                id: parsed(row, "id")?,
                tenant: parsed(row, "name")?,
                role: parsed(row, "role")?,
                suspended: row.try_get::<Option<i64>, _>("suspended_at")?.is_some(),
            })
        })
        .collect()
}

fn member(row: &AnyRow) -> Result<MemberInfo, StoreError> {
    Ok(MemberInfo {
        user: parsed(row, "user_name")?,
        role: parsed(row, "role")?,
        created_at: Timestamp(number(row, "created_at")?),
        created_by: row.try_get("created_by")?,
        generation: number(row, "generation")?,
    })
}

/// A tenant's members by name, beginning after `after`, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn member_list(
    connection: &mut AnyConnection,
    tenant: TenantId,
    after: &str,
    limit: u32,
) -> Result<Vec<MemberInfo>, StoreError> {
    let rows = sqlx::query(
        "SELECT user_name, role, created_at, created_by, generation FROM members WHERE tenant = $1 AND user_name > $2 ORDER BY user_name LIMIT $3",
    )
    .bind(tenant.to_string())
    .bind(after)
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(member).collect()
}

/// A member of a tenant.
///
/// # Errors
/// When the database fails.
pub async fn member_get(
    connection: &mut AnyConnection,
    tenant: TenantId,
    user: &UserName,
) -> Result<Option<MemberInfo>, StoreError> {
    let row = sqlx::query("SELECT user_name, role, created_at, created_by, generation FROM members WHERE tenant = $1 AND user_name = $2")
        .bind(tenant.to_string())
        .bind(user.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(member).transpose()
}

/// The number of a tenant's owners who are not disabled.
///
/// # Errors
/// When the database fails.
pub async fn member_count_owners(
    connection: &mut AnyConnection,
    tenant: TenantId,
) -> Result<u64, StoreError> {
    let row = sqlx::query(
        "SELECT COUNT(*) AS n FROM members m JOIN users u ON u.name = m.user_name \
         WHERE m.tenant = $1 AND m.role = 'owner' AND u.disabled_at IS NULL",
    )
    .bind(tenant.to_string())
    .fetch_one(connection)
    .await?;
    number(&row, "n")
}

/// Inserts a member, or changes the role.
///
/// # Errors
/// When the database fails or there is no such user.
pub async fn member_upsert(
    connection: &mut AnyConnection,
    tenant: TenantId,
    user: &UserName,
    role: TenantRole,
    by: (&str, Timestamp),
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO members (tenant, user_name, role, created_at, created_by, generation) VALUES ($1, $2, $3, $4, $5, 1) \
         ON CONFLICT (tenant, user_name) DO UPDATE SET role = excluded.role, generation = members.generation + 1",
    )
    .bind(tenant.to_string())
    .bind(user.as_str())
    .bind(role.as_str())
    .bind(stored(by.1.get()))
    .bind(by.0)
    .execute(connection)
    .await?;
    Ok(())
}

/// Removes a member; `false` if there was none.
///
/// # Errors
/// When the database fails.
pub async fn member_delete(
    connection: &mut AnyConnection,
    tenant: TenantId,
    user: &UserName,
) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM members WHERE tenant = $1 AND user_name = $2")
        .bind(tenant.to_string())
        .bind(user.as_str())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() == 1)
}
