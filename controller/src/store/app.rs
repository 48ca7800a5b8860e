//! Apps: host names bound to workflows.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::form::FormChoices;
use fdn_core::label::LabelSelector;
use fdn_core::message::Holders;
use fdn_core::workflow::{Definition, Workflow};
use fdn_core::{
    AppName, ClusterId, Digest, DurationMs, HostName, Revision, TenantId, Timestamp, VersionNumber,
};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row as _};

use super::StoreError;
use super::billing::owner::owner_note;
use super::row::{
    json, json_or_none, number, parsed, stored, time_or_none, to_json, version, version_or_none,
};

/// One app.
#[derive(Clone, Debug, PartialEq)]
pub struct AppRow {
    /// The app's name.
    pub name: AppName,
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// Its host name.
    pub host: HostName,
    /// The DAG it runs.
    pub workflow: Workflow,
    /// The definition of the current version, if the app is a workflow.
    pub definition: Option<Definition>,
    /// The current version of its function, or of the workflow.
    pub version: VersionNumber,
    /// The version that was current before.
    pub previous: Option<VersionNumber>,
    /// The clusters that its plans use.
    pub primaries: BTreeSet<ClusterId>,
    /// The revision of its desired state for nodes.
    pub revision: Revision,
    /// The revision of its bindings for DNS servers.
    pub bindings_revision: Revision,
    /// When the current version was made current.
    pub deployed_at: Timestamp,
    /// How long resolvers cache the answers for its name; the network's default if `None`.
    pub ttl: Option<DurationMs>,
    /// The clusters that hold it.
    pub holders: Holders,
    /// The holders that DNS answers with.
    pub answering: Holders,
    /// The forms that clusters serve its stages in, of functions that have several.
    pub forms: FormChoices,
}

impl AppRow {
    /// The TTL of DNS answers in seconds; `otherwise`, the network's default, if the app has none of its own.
    #[must_use]
    pub fn ttl_s(&self, otherwise: u32) -> u32 {
        let own = self.ttl.map(|ttl| ttl.as_millis() / 1000);
        own.and_then(|ttl| u32::try_from(ttl).ok())
            .unwrap_or(otherwise)
    }
}

/// Selects apps, with the definitions of those that are workflows.
const APPS: &str = "SELECT a.name, a.tenant, a.host, a.workflow, a.version, a.previous_version, a.primaries, a.revision, a.bindings_revision, \
    a.deployed_at, a.ttl_ms, a.holders, a.answering, a.forms, w.definition FROM apps a \
    LEFT JOIN workflow_versions w ON w.tenant = a.tenant AND w.app = a.name AND w.number = a.version";

fn app_row(row: &AnyRow) -> Result<AppRow, StoreError> {
    Ok(AppRow {
        name: parsed(row, "name")?,
        tenant: parsed(row, "tenant")?,
        host: parsed(row, "host")?,
        workflow: json(row, "workflow")?,
        definition: json_or_none(row, "definition")?,
        version: version(row, "version")?,
        previous: version_or_none(row, "previous_version")?,
        primaries: json(row, "primaries")?,
        revision: Revision(number(row, "revision")?),
        bindings_revision: Revision(number(row, "bindings_revision")?),
        deployed_at: Timestamp(number(row, "deployed_at")?),
        ttl: time_or_none(row, "ttl_ms")?.map(|ms| DurationMs::from_millis(ms.get())),
        holders: json_or_none(row, "holders")?.map_or(Holders::EVERYWHERE, Holders::only),
        answering: json_or_none(row, "answering")?.map_or(Holders::EVERYWHERE, Holders::only),
        forms: json_or_none(row, "forms")?.unwrap_or_default(),
    })
}

/// The app with this name.
///
/// # Errors
/// When the database fails.
pub async fn app_get(
    connection: &mut AnyConnection,
    app: &AppName,
) -> Result<Option<AppRow>, StoreError> {
    let text = format!("{APPS} WHERE a.name = $1");
    let row = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(app.as_str())
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(app_row).transpose()
}

/// All apps, by name.
///
/// # Errors
/// When the database fails.
pub async fn app_list(connection: &mut AnyConnection) -> Result<Vec<AppRow>, StoreError> {
    let text = format!("{APPS} ORDER BY a.name");
    let rows = sqlx::query(sqlx::AssertSqlSafe(text))
        .fetch_all(connection)
        .await?;
    rows.iter().map(app_row).collect()
}

/// The apps whose desired state or bindings are newer than `after`, by name.
///
/// # Errors
/// When the database fails.
pub async fn app_list_after(
    connection: &mut AnyConnection,
    after: Revision,
) -> Result<Vec<AppRow>, StoreError> {
    let text = format!("{APPS} WHERE a.revision > $1 OR a.bindings_revision > $1 ORDER BY a.name");
    let rows = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(stored(after.get()))
        .fetch_all(connection)
        .await?;
    rows.iter().map(app_row).collect()
}

/// The names of all apps.
///
/// # Errors
/// When the database fails.
pub async fn app_names(connection: &mut AnyConnection) -> Result<BTreeSet<AppName>, StoreError> {
    let rows = sqlx::query("SELECT name FROM apps")
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| parsed(row, "name")).collect()
}

/// The apps of a tenant, by name.
///
/// # Errors
/// When the database fails.
pub async fn app_list_of(
    connection: &mut AnyConnection,
    tenant: TenantId,
) -> Result<Vec<AppRow>, StoreError> {
    let text = format!("{APPS} WHERE a.tenant = $1 ORDER BY a.name");
    let rows = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(tenant.to_string())
        .fetch_all(connection)
        .await?;
    rows.iter().map(app_row).collect()
}

/// Which apps to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppFilter {
    /// Apps of this tenant; of all tenants if `None`.
    pub tenant: Option<TenantId>,
    /// Apps of the tenants that this user is a member of; of all tenants if `None`.
    pub member: Option<String>,
    /// Apps with these labels, on the current version, or on the function if the version has no label with the key.
    pub labels: LabelSelector,
}

/// The SQL condition on labels. Each condition of the selector binds two parameters, numbered from `$first`: the key, and the value or an empty text.
fn labelled(selector: &LabelSelector, first: usize) -> String {
    let conditions = selector.conditions().iter().enumerate();
    let text = conditions.map(|(n, condition)| {
        let (key, value) = (first + 2 * n, first + 2 * n + 1);
        let of = condition.value.as_ref().map_or("''", |_| "l.value");
        format!(
            "AND EXISTS (SELECT 1 FROM labels l WHERE l.tenant = a.tenant AND l.function = a.name AND l.label = ${key} AND {of} = ${value} \
             AND (l.version = a.version OR (l.version = 0 AND NOT EXISTS (SELECT 1 FROM labels o WHERE o.tenant = a.tenant \
             AND o.function = a.name AND o.version = a.version AND o.label = l.label)))) "
        )
    });
    text.collect()
}

/// A page of apps by name, beginning after `after`, at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn app_page(
    connection: &mut AnyConnection,
    filter: &AppFilter,
    after: &str,
    limit: u32,
) -> Result<Vec<AppRow>, StoreError> {
    let tenant = filter.tenant.map(|tenant| tenant.to_string());
    let text = format!(
        "{APPS} WHERE a.name > $1 AND ($2 = '' OR a.tenant = $2) \
         AND ($3 = '' OR a.tenant IN (SELECT m.tenant FROM members m WHERE m.user_name = $3)) \
         {}ORDER BY a.name LIMIT $4",
        labelled(&filter.labels, 5)
    );
    let mut query = sqlx::query(sqlx::AssertSqlSafe(text))
        .bind(after)
        .bind(tenant.unwrap_or_default())
        .bind(filter.member.clone().unwrap_or_default())
        .bind(i64::from(limit));
    for condition in filter.labels.conditions() {
        let value = condition.value.clone().unwrap_or_default();
        query = query.bind(condition.key.clone()).bind(value);
    }
    let rows = query.fetch_all(connection).await?;
    rows.iter().map(app_row).collect()
}

/// Inserts or updates an app. Its tenant never changes.
///
/// # Errors
/// When the database fails.
pub async fn app_upsert(connection: &mut AnyConnection, app: &AppRow) -> Result<(), StoreError> {
    let forms = Some(&app.forms).filter(|forms| !forms.is_empty());
    sqlx::query(
        "INSERT INTO apps (name, tenant, host, workflow, version, previous_version, primaries, revision, bindings_revision, deployed_at, ttl_ms, \
         holders, answering, forms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) \
         ON CONFLICT (name) DO UPDATE SET host = excluded.host, workflow = excluded.workflow, version = excluded.version, \
         previous_version = excluded.previous_version, primaries = excluded.primaries, revision = excluded.revision, \
         bindings_revision = excluded.bindings_revision, deployed_at = excluded.deployed_at, ttl_ms = excluded.ttl_ms, \
         holders = excluded.holders, answering = excluded.answering, forms = excluded.forms",
    )
    .bind(app.name.as_str())
    .bind(app.tenant.to_string())
    .bind(app.host.as_str())
    .bind(to_json(&app.workflow, "apps.workflow")?)
    .bind(i64::from(app.version.get()))
    .bind(app.previous.map(|v| i64::from(v.get())))
    .bind(to_json(&app.primaries, "apps.primaries")?)
    .bind(stored(app.revision.get()))
    .bind(stored(app.bindings_revision.get()))
    .bind(stored(app.deployed_at.get()))
    .bind(app.ttl.map(|ttl| stored(ttl.as_millis())))
    .bind(listed(&app.holders, "apps.holders")?)
    .bind(listed(&app.answering, "apps.answering")?)
    .bind(forms.map(|forms| to_json(forms, "apps.forms")).transpose()?)
    .execute(&mut *connection)
    .await?;
    app_informed_record(connection, app).await?;
    owner_note(connection, &app.name).await
}

fn listed(holders: &Holders, column: &'static str) -> Result<Option<String>, StoreError> {
    let named = holders.named();
    named.map(|named| to_json(named, column)).transpose()
}

/// The text that stands for every cluster.
const EVERYWHERE: &str = "*";

/// Records the clusters that hold an app, so that they can be told of its deletion.
async fn app_informed_record(
    connection: &mut AnyConnection,
    app: &AppRow,
) -> Result<(), StoreError> {
    let named = app.holders.named();
    let named = named.map(|named| named.iter().map(ClusterId::as_str).collect());
    let clusters: Vec<&str> = named.unwrap_or_else(|| vec![EVERYWHERE]);
    for cluster in clusters {
        sqlx::query(
            "INSERT INTO app_clusters (app, cluster) VALUES ($1, $2) ON CONFLICT (app, cluster) DO NOTHING",
        )
        .bind(app.name.as_str())
        .bind(cluster)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// The clusters that were ever told of an app.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InformedClusters {
    /// Whether all clusters were.
    pub everywhere: bool,
    /// The clusters, apart from `everywhere`.
    pub clusters: BTreeSet<ClusterId>,
}

impl InformedClusters {
    /// Whether `cluster` was told.
    #[must_use]
    pub fn has(&self, cluster: &ClusterId) -> bool {
        self.everywhere || self.clusters.contains(cluster)
    }

    /// Adds the present holders.
    pub fn add(&mut self, holders: &Holders) {
        match holders.named() {
            None => self.everywhere = true,
            Some(named) => self.clusters.extend(named.iter().cloned()),
        }
    }
}

/// By app, the clusters that were ever told of it; without existing apps whose revision is at most `after`.
///
/// # Errors
/// When the database fails.
pub async fn app_informed_list(
    connection: &mut AnyConnection,
    after: Revision,
) -> Result<BTreeMap<AppName, InformedClusters>, StoreError> {
    let rows = sqlx::query(
        "SELECT c.app, c.cluster FROM app_clusters c \
         WHERE NOT EXISTS (SELECT 1 FROM apps a WHERE a.name = c.app AND a.revision <= $1)",
    )
    .bind(stored(after.get()))
    .fetch_all(connection)
    .await?;
    let mut all: BTreeMap<AppName, InformedClusters> = BTreeMap::new();
    for row in &rows {
        let told = all.entry(parsed(row, "app")?).or_default();
        match row.try_get::<String, _>("cluster")?.as_str() {
            EVERYWHERE => told.everywhere = true,
            _ => {
                told.clusters.insert(parsed(row, "cluster")?);
            }
        }
    }
    Ok(all)
}

/// The apps that a cluster was ever told of and that use this artifact in any version of their own or of their stages: names, in order, and
/// revisions for nodes; at most `limit`.
///
/// # Errors
/// When the database fails.
pub async fn app_list_with_digest(
    connection: &mut AnyConnection,
    digest: &Digest,
    cluster: &ClusterId,
    limit: u32,
) -> Result<Vec<(AppName, Revision)>, StoreError> {
    let rows = sqlx::query(
        "WITH has AS (SELECT tenant, function, number FROM versions WHERE digest = $1 \
         UNION SELECT tenant, function, number FROM form_artifacts WHERE digest = $1), \
         users AS (SELECT tenant, function AS app FROM has \
         UNION SELECT s.tenant, s.app FROM has JOIN workflow_stages s ON s.tenant = has.tenant AND s.function = has.function AND s.version = has.number) \
         SELECT a.name, a.revision FROM users u JOIN apps a ON a.tenant = u.tenant AND a.name = u.app \
         WHERE EXISTS (SELECT 1 FROM app_clusters c WHERE c.app = a.name AND c.cluster IN ($2, $3)) ORDER BY a.name LIMIT $4",
    )
    .bind(digest.to_string())
    .bind(cluster.as_str())
    .bind(EVERYWHERE)
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    let one = |row: &AnyRow| Ok((parsed(row, "name")?, Revision(number(row, "revision")?)));
    rows.iter().map(one).collect()
}

/// Clears the previous version of an app if it is `version`.
///
/// # Errors
/// When the database fails.
pub async fn app_forget_previous(
    connection: &mut AnyConnection,
    app: &AppName,
    version: VersionNumber,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE apps SET previous_version = NULL WHERE name = $1 AND previous_version = $2",
    )
    .bind(app.as_str())
    .bind(i64::from(version.get()))
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes an app with its plans, bindings and demand.
///
/// # Errors
/// When the database fails.
pub async fn app_delete(connection: &mut AnyConnection, app: &AppName) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM apps WHERE name = $1")
        .bind(app.as_str())
        .execute(connection)
        .await?;
    Ok(())
}
