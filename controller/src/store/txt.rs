//! TXT records that were set through the API.

use fdn_core::message::{TxtDesired, TxtRecords};
use fdn_core::txt::TxtInfo;
use fdn_core::{AppName, DurationMs, RecordName, Revision, TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::StoreError;
use super::row::{json, number, parsed, parsed_or_none, stored, time_or_none, to_json};

/// The TXT records of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxtRow {
    /// The name.
    pub name: RecordName,
    /// The app whose host name the name is below, if it is.
    pub app: Option<AppName>,
    /// The tenant of that app.
    pub tenant: Option<TenantId>,
    /// The values.
    pub values: Vec<String>,
    /// Their TTL.
    pub ttl: DurationMs,
    /// When they expire.
    pub expires_at: Option<Timestamp>,
    /// The revision for DNS servers.
    pub revision: Revision,
    /// When they were changed last.
    pub updated_at: Timestamp,
    /// The account that changed them last.
    pub updated_by: String,
}

impl TxtRow {
    /// Whether they are not expired at `now`.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| end > now)
    }

    /// The desired state for DNS servers.
    #[must_use]
    pub fn desired(&self) -> TxtDesired {
        TxtDesired {
            name: self.name.clone(),
            revision: self.revision,
            state: Some(TxtRecords {
                ttl_s: u32::try_from(self.ttl.as_millis() / 1000).unwrap_or(u32::MAX),
                values: self.values.clone(),
                expires_at: self.expires_at,
            }),
        }
    }

    /// The records as the API shows them.
    #[must_use]
    pub fn info(self) -> TxtInfo {
        TxtInfo {
            name: self.name,
            values: self.values,
            ttl: self.ttl,
            app: self.app,
            revision: self.revision,
            updated_at: self.updated_at,
            updated_by: self.updated_by,
            expires_at: self.expires_at,
        }
    }
}

/// A query for all columns of a row, with the rest of the statement.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT name, app, tenant, texts, ttl_ms, expires_at, revision, updated_at, updated_by FROM dns_txt ",
            $rest
        )
    };
}

fn txt_row(row: &AnyRow) -> Result<TxtRow, StoreError> {
    Ok(TxtRow {
        name: parsed(row, "name")?,
        app: parsed_or_none(row, "app")?,
        tenant: parsed_or_none(row, "tenant")?,
        values: json(row, "texts")?,
        ttl: DurationMs::from_millis(number(row, "ttl_ms")?),
        expires_at: time_or_none(row, "expires_at")?,
        revision: Revision(number(row, "revision")?),
        updated_at: Timestamp(number(row, "updated_at")?),
        updated_by: row.try_get("updated_by")?,
    })
}

/// The records of a name, even if they have expired.
///
/// # Errors
/// When the database fails.
pub async fn txt_get(
    connection: &mut AnyConnection,
    name: &RecordName,
) -> Result<Option<TxtRow>, StoreError> {
    let row = sqlx::query(select!("WHERE name = $1"))
        .bind(name.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(txt_row).transpose()
}

/// Which names a caller can see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxtVisibility {
    /// Names of this tenant; of all tenants if `None`.
    pub tenant: Option<TenantId>,
    /// Names of the tenants that this user is a member of; of all tenants if `None`.
    pub member: Option<String>,
}

/// A page of the visible names that have records at `now`, by name, beginning after `after`, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn txt_page(
    connection: &mut AnyConnection,
    visibility: &TxtVisibility,
    now: Timestamp,
    after: &str,
    limit: u32,
) -> Result<Vec<TxtRow>, StoreError> {
    let tenant = visibility.tenant.map(|tenant| tenant.to_string());
    let rows = sqlx::query(select!(
        "WHERE ($1 = '' OR tenant = $1) \
         AND ($2 = '' OR tenant IN (SELECT m.tenant FROM members m WHERE m.user_name = $2)) \
         AND (expires_at IS NULL OR expires_at > $3) AND name > $4 ORDER BY name LIMIT $5"
    ))
    .bind(tenant.unwrap_or_default())
    .bind(visibility.member.clone().unwrap_or_default())
    .bind(stored(now.get()))
    .bind(after)
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(txt_row).collect()
}

/// All names with records at `now`.
///
/// # Errors
/// When the database fails.
pub async fn txt_list_all(
    connection: &mut AnyConnection,
    now: Timestamp,
) -> Result<Vec<TxtRow>, StoreError> {
    txt_page(connection, &TxtVisibility::default(), now, "", u32::MAX).await
}

/// The number of names with records at `now`, of a tenant, or of the network itself if `None`.
///
/// # Errors
/// When the database fails.
pub async fn txt_count(
    connection: &mut AnyConnection,
    tenant: Option<TenantId>,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let tenant = tenant.map(|tenant| tenant.to_string());
    let row = sqlx::query(
        "SELECT COUNT(*) AS names FROM dns_txt WHERE COALESCE(tenant, '') = $1 \
         AND (expires_at IS NULL OR expires_at > $2)",
    )
    .bind(tenant.unwrap_or_default())
    .bind(stored(now.get()))
    .fetch_one(connection)
    .await?;
    number(&row, "names")
}

/// The records of an app.
///
/// # Errors
/// When the database fails.
pub async fn txt_list_of_app(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<Vec<TxtRow>, StoreError> {
    let rows = sqlx::query(select!("WHERE app = $1 ORDER BY name"))
        .bind(app.as_str())
        .fetch_all(connection)
        .await?;
    rows.iter().map(txt_row).collect()
}

/// Records that have expired at `now`, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn txt_list_over(
    connection: &mut AnyConnection,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<TxtRow>, StoreError> {
    let rows = sqlx::query(select!(
        "WHERE expires_at <= $1 ORDER BY expires_at, name LIMIT $2"
    ))
    .bind(stored(now.get()))
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    rows.iter().map(txt_row).collect()
}

/// Inserts or updates the records of a name.
///
/// # Errors
/// When the database fails.
pub async fn txt_upsert(connection: &mut AnyConnection, row: &TxtRow) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO dns_txt (name, app, tenant, texts, ttl_ms, expires_at, revision, updated_at, updated_by) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
         ON CONFLICT (name) DO UPDATE SET app = excluded.app, tenant = excluded.tenant, texts = excluded.texts, \
         ttl_ms = excluded.ttl_ms, expires_at = excluded.expires_at, revision = excluded.revision, \
         updated_at = excluded.updated_at, updated_by = excluded.updated_by",
    )
    .bind(row.name.as_str())
    .bind(row.app.as_ref().map(|app| app.as_str().to_owned()))
    .bind(row.tenant.map(|tenant| tenant.to_string()))
    .bind(to_json(&row.values, "dns_txt.texts")?)
    .bind(stored(row.ttl.as_millis()))
    .bind(row.expires_at.map(|at| stored(at.get())))
    .bind(stored(row.revision.get()))
    .bind(stored(row.updated_at.get()))
    .bind(&row.updated_by)
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes the records of a name; returns whether there were any.
///
/// # Errors
/// When the database fails.
pub async fn txt_delete(
    connection: &mut AnyConnection,
    name: &RecordName,
) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM dns_txt WHERE name = $1")
        .bind(name.as_str())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() > 0)
}
