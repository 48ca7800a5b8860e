//! Policies of apps, keys of their callers, and the calls that count towards quotas.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::policy::api::KeyInfo;
use fdn_core::policy::quota::{AppQuotaUsage, QuotaUsage, Window};
use fdn_core::policy::{ApiKey, GatewaySpec, Policy};
use fdn_core::usage::{UsageBatch, UsageSums};
use fdn_core::{AppName, Digest, KeyId, Revision, TenantId, Timestamp};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use super::StoreError;
use super::billing::owner::{Owners, owner_list};
use super::domain::{domain_hosts, domain_hosts_all};
use super::row::{json, number, parsed, stored, to_json};
use super::traffic::{traffic_get, traffic_list};

/// The maximum number of invocations looked up in one statement.
const ROWS: usize = 500;

/// The policy of an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRow {
    /// The app.
    pub app: AppName,
    /// The rules.
    pub policy: Policy,
    /// The revision of desired state that introduced it.
    pub revision: Revision,
    /// When it was set.
    pub updated_at: Timestamp,
    /// The account that set it.
    pub updated_by: String,
}

/// A query for all columns of a policy, with the rest of the statement.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT app, policy, revision, updated_at, updated_by FROM app_policies ",
            $rest
        )
    };
}

fn policy_row(row: &AnyRow) -> Result<PolicyRow, StoreError> {
    Ok(PolicyRow {
        app: parsed(row, "app")?,
        policy: json(row, "policy")?,
        revision: Revision(number(row, "revision")?),
        updated_at: Timestamp(number(row, "updated_at")?),
        updated_by: row.try_get("updated_by")?,
    })
}

/// The policy of an app, if it has one.
///
/// # Errors
/// When the database fails.
pub async fn policy_get(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<Option<PolicyRow>, StoreError> {
    let row = sqlx::query(select!("WHERE app = $1"))
        .bind(app.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(policy_row).transpose()
}

/// The number of jobs that a tenant's app may run at once by its policy; `None` if the policy does not limit it.
///
/// # Errors
/// When the database fails.
pub async fn policy_jobs_at_once(
    connection: &mut AnyConnection,
    tenant: TenantId,
    app: &AppName,
) -> Result<Option<u32>, StoreError> {
    let row = sqlx::query("SELECT policy FROM app_policies WHERE app = $1 AND tenant = $2")
        .bind(app.as_str())
        .bind(tenant.to_string())
        .fetch_optional(connection)
        .await?;
    let policy: Option<Policy> = row.map(|row| json(&row, "policy")).transpose()?;
    Ok(policy.and_then(|policy| policy.jobs_at_once))
}

/// Inserts or updates a policy.
///
/// # Errors
/// When the database fails or there is no such app.
pub async fn policy_upsert(
    connection: &mut AnyConnection,
    tenant: TenantId,
    row: &PolicyRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO app_policies (app, tenant, policy, has_quota, revision, updated_at, updated_by) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (app) DO UPDATE SET policy = excluded.policy, has_quota = excluded.has_quota, \
         revision = excluded.revision, updated_at = excluded.updated_at, updated_by = excluded.updated_by",
    )
    .bind(row.app.as_str())
    .bind(tenant.to_string())
    .bind(to_json(&row.policy, "app_policies.policy")?)
    .bind(i64::from(!row.policy.quota.is_empty()))
    .bind(stored(row.revision.get()))
    .bind(stored(row.updated_at.get()))
    .bind(&row.updated_by)
    .execute(connection)
    .await?;
    Ok(())
}

/// A stored key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRow {
    /// The app.
    pub app: AppName,
    /// The part that may be shown.
    pub info: KeyInfo,
    /// The SHA-256 of the key.
    pub hash: Digest,
}

/// A query for all columns of a key, with the rest of the statement.
macro_rules! select_keys {
    ($rest:literal) => {
        concat!(
            "SELECT id, app, name, hash, created_at, created_by, expires_at, revoked_at FROM app_keys ",
            $rest
        )
    };
}

fn key_row(row: &AnyRow) -> Result<KeyRow, StoreError> {
    let time = |column: &str| -> Result<Option<Timestamp>, StoreError> {
        let value: Option<i64> = row.try_get(column)?;
        let value = value.map(|v| u64::try_from(v).map_err(|e| StoreError::corrupt(column, e)));
        Ok(value.transpose()?.map(Timestamp))
    };
    Ok(KeyRow {
        app: parsed(row, "app")?,
        hash: parsed(row, "hash")?,
        info: KeyInfo {
            id: parsed(row, "id")?,
            name: parsed(row, "name")?,
            created_at: Timestamp(number(row, "created_at")?),
            created_by: row.try_get("created_by")?,
            expires_at: time("expires_at")?,
            revoked_at: time("revoked_at")?,
        },
    })
}

/// Inserts a key.
///
/// # Errors
/// When the database fails or there is no such app.
pub async fn key_insert(
    connection: &mut AnyConnection,
    tenant: TenantId,
    row: &KeyRow,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO app_keys (id, app, tenant, name, hash, created_at, created_by, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(row.info.id.to_string())
    .bind(row.app.as_str())
    .bind(tenant.to_string())
    .bind(row.info.name.as_str())
    .bind(row.hash.to_string())
    .bind(stored(row.info.created_at.get()))
    .bind(&row.info.created_by)
    .bind(row.info.expires_at.map(|end| stored(end.get())))
    .execute(connection)
    .await?;
    Ok(())
}

/// The keys of an app, newest first, including revoked ones.
///
/// # Errors
/// When the database fails.
pub async fn key_list(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<Vec<KeyRow>, StoreError> {
    let rows = sqlx::query(select_keys!(
        "WHERE app = $1 ORDER BY created_at DESC, id DESC"
    ))
    .bind(app.as_str())
    .fetch_all(connection)
    .await?;
    rows.iter().map(key_row).collect()
}

/// Revokes a key; `false` if there is none or it was revoked before.
///
/// # Errors
/// When the database fails.
pub async fn key_revoke(
    connection: &mut AnyConnection,
    app: &AppName,
    id: KeyId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE app_keys SET revoked_at = $1 WHERE id = $2 AND app = $3 AND revoked_at IS NULL",
    )
    .bind(stored(now.get()))
    .bind(id.to_string())
    .bind(app.as_str())
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes keys of an app that are expired or revoked, except the newest `keep` of them.
///
/// # Errors
/// When the database fails.
pub async fn key_trim(
    connection: &mut AnyConnection,
    app: &AppName,
    now: Timestamp,
    keep: usize,
) -> Result<(), StoreError> {
    let dead: Vec<KeyRow> = key_list(&mut *connection, app).await?;
    let dead = dead.into_iter().filter(|row| !row.info.counts(now));
    for row in dead.skip(keep) {
        sqlx::query("DELETE FROM app_keys WHERE id = $1")
            .bind(row.info.id.to_string())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// The settings for the gateways of an app.
///
/// # Errors
/// When the database fails.
pub async fn gateway_get(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<GatewaySpec, StoreError> {
    let policy = policy_get(&mut *connection, app).await?;
    let keys = key_list(&mut *connection, app).await?;
    let traffic = traffic_get(&mut *connection, app).await?;
    let suspended = sqlx::query("SELECT COUNT(*) AS n FROM apps a JOIN tenants t ON t.id = a.tenant WHERE a.name = $1 AND t.suspended_at IS NOT NULL")
        .bind(app.as_str())
        .fetch_one(&mut *connection)
        .await?;
    let hosts = domain_hosts(connection, app).await?;
    Ok(GatewaySpec {
        hosts,
        suspended: number(&suspended, "n")? > 0,
        policy: policy.map(|row| row.policy).unwrap_or_default(),
        keys: keys.into_iter().filter_map(pushed).collect(),
        traffic: traffic.map(|row| row.traffic).unwrap_or_default(),
    })
}

/// The settings for the gateways of all apps, where they differ from the default.
///
/// # Errors
/// When the database fails.
pub async fn gateway_list(
    connection: &mut AnyConnection,
) -> Result<BTreeMap<AppName, GatewaySpec>, StoreError> {
    let mut all: BTreeMap<AppName, GatewaySpec> = BTreeMap::new();
    let rows = sqlx::query(select!("")).fetch_all(&mut *connection).await?;
    for row in &rows {
        let row = policy_row(row)?;
        all.entry(row.app).or_default().policy = row.policy;
    }
    let rows = sqlx::query(select_keys!(
        "WHERE revoked_at IS NULL ORDER BY created_at DESC, id DESC"
    ))
    .fetch_all(&mut *connection)
    .await?;
    for row in &rows {
        let row = key_row(row)?;
        all.entry(row.app.clone())
            .or_default()
            .keys
            .extend(pushed(row));
    }
    for row in traffic_list(&mut *connection).await? {
        all.entry(row.app).or_default().traffic = row.traffic;
    }
    let rows = sqlx::query("SELECT a.name FROM apps a JOIN tenants t ON t.id = a.tenant WHERE t.suspended_at IS NOT NULL")
        .fetch_all(&mut *connection)
        .await?;
    for row in &rows {
        all.entry(parsed(row, "name")?).or_default().suspended = true;
    }
    for (app, hosts) in domain_hosts_all(connection).await? {
        all.entry(app).or_default().hosts = hosts;
    }
    Ok(all)
}

/// A key as nodes get it, unless it is revoked. Expiry is left to the nodes, which know the time.
fn pushed(row: KeyRow) -> Option<ApiKey> {
    row.info.revoked_at.is_none().then_some(ApiKey {
        id: row.info.id,
        name: row.info.name,
        hash: row.hash,
        expires_at: row.info.expires_at,
    })
}

/// Which calls count towards quotas.
struct Counted {
    apps: BTreeSet<AppName>,
    owners: Owners,
}

impl Counted {
    /// For calls of the apps `sent`.
    async fn read(
        connection: &mut AnyConnection,
        sent: BTreeSet<&AppName>,
    ) -> Result<Self, StoreError> {
        let rows = sqlx::query("SELECT app FROM app_policies WHERE has_quota = 1")
            .fetch_all(&mut *connection)
            .await?;
        let apps: Result<BTreeSet<AppName>, _> =
            rows.iter().map(|row| parsed(row, "app")).collect();
        let mut apps = apps?;
        apps.retain(|app| sent.contains(app));
        let owners = owner_list(connection, &apps).await?;
        Ok(Self { apps, owners })
    }

    /// Calls of another tenant's app that had the name before count towards no quota of this one.
    fn includes(&self, app: &AppName, at: Timestamp) -> bool {
        self.apps.contains(app) && self.owners.is_present(app, at)
    }
}

/// The calls in a batch of sums that count towards quotas, by app and day. What is added and what is subtracted for one call is on the same day, so
/// no count is below zero.
///
/// # Errors
/// When the database fails.
pub async fn quota_of(
    connection: &mut AnyConnection,
    batch: &UsageSums,
) -> Result<BTreeMap<(AppName, u64), u64>, StoreError> {
    let sent = batch.sums.iter().map(|sum| &sum.app).collect();
    let counted = Counted::read(connection, sent).await?;
    let mut calls: BTreeMap<(AppName, u64), i64> = BTreeMap::new();
    let sums = batch.sums.iter();
    for sum in sums.filter(|sum| counted.includes(&sum.app, sum.first)) {
        let day = Window::at(sum.first).day;
        let of_day = calls.entry((sum.app.clone(), day)).or_default();
        *of_day = of_day.saturating_add(sum.calls);
    }
    let new = calls.into_iter().filter_map(|(key, calls)| {
        let calls = u64::try_from(calls).ok()?;
        (calls > 0).then_some((key, calls))
    });
    Ok(new.collect())
}

/// The calls in a batch of records that count towards quotas and are not known yet, by app and day. To be called before the batch is stored, in the
/// same transaction.
///
/// # Errors
/// When the database fails.
pub async fn quota_new(
    connection: &mut AnyConnection,
    batch: &UsageBatch,
) -> Result<BTreeMap<(AppName, u64), u64>, StoreError> {
    let sent = batch.records.iter().map(|record| &record.app).collect();
    let counted = Counted::read(connection, sent).await?;
    // An invocation that occurs twice in a batch is one call.
    let calls: BTreeMap<String, (&AppName, u64)> = batch
        .records
        .iter()
        .filter(|record| counted.includes(&record.app, record.started_at))
        .map(|record| {
            let day = Window::at(record.started_at).day;
            (record.invocation.to_string(), (&record.app, day))
        })
        .collect();
    let mut known = BTreeSet::new();
    let ids: Vec<&String> = calls.keys().collect();
    for ids in ids.chunks(ROWS) {
        let places: Vec<String> = (1..=ids.len()).map(|n| format!("${n}")).collect();
        // The text contains only placeholders; values are bound.
        let text = format!(
            "SELECT invocation FROM usage_records WHERE invocation IN ({})",
            places.join(", ")
        );
        let mut query = sqlx::query(AssertSqlSafe(text));
        for id in ids {
            query = query.bind(id.as_str());
        }
        for row in query.fetch_all(&mut *connection).await? {
            known.insert(row.try_get::<String, _>("invocation")?);
        }
    }
    let mut new = BTreeMap::new();
    for (id, (app, day)) in calls {
        if !known.contains(&id) {
            *new.entry((app.clone(), day)).or_insert(0) += 1;
        }
    }
    Ok(new)
}

/// Adds calls to the daily counts of their apps.
///
/// # Errors
/// When the database fails.
pub async fn quota_add(
    connection: &mut AnyConnection,
    calls: &BTreeMap<(AppName, u64), u64>,
) -> Result<(), StoreError> {
    for ((app, day), calls) in calls {
        sqlx::query(
            "INSERT INTO quota_days (app, day, calls) VALUES ($1, $2, $3) \
             ON CONFLICT (app, day) DO UPDATE SET calls = quota_days.calls + excluded.calls",
        )
        .bind(app.as_str())
        .bind(stored(*day))
        .bind(stored(*calls))
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// The calls of all apps with a quota, in the day and the month of `now`.
///
/// # Errors
/// When the database fails.
pub async fn quota_used(
    connection: &mut AnyConnection,
    now: Timestamp,
) -> Result<Vec<AppQuotaUsage>, StoreError> {
    let window = Window::at(now);
    let rows = sqlx::query(
        "SELECT p.app AS app, q.day AS day, q.calls AS calls FROM app_policies p \
         JOIN quota_days q ON q.app = p.app WHERE p.has_quota = 1 AND q.day >= $1 ORDER BY p.app",
    )
    .bind(stored(window.month_begins()))
    .fetch_all(connection)
    .await?;
    let mut all: BTreeMap<AppName, QuotaUsage> = BTreeMap::new();
    for row in &rows {
        let used = all.entry(parsed(row, "app")?).or_insert(QuotaUsage {
            window,
            ..QuotaUsage::default()
        });
        let calls = number(row, "calls")?;
        used.month += calls;
        if number(row, "day")? == window.day {
            used.day += calls;
        }
    }
    let told = |(app, used)| AppQuotaUsage { app, used };
    Ok(all.into_iter().map(told).collect())
}

/// Deletes the counts of days before `day`.
///
/// # Errors
/// When the database fails.
pub async fn quota_trim(connection: &mut AnyConnection, day: u64) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM quota_days WHERE day < $1")
        .bind(stored(day))
        .execute(connection)
        .await?;
    Ok(())
}
