//! The whole store as rows, for backups: lists the tables, and reads and writes their rows in a form that both databases understand.
//!
//! Tables are not listed here but read from the database's catalogue, so that a new one cannot be forgotten, and are ordered so that every row comes
//! after those that it refers to. The schema has no counters of its own (no identity columns, no sequences), so the rows are complete.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::{Digest, JobId};
use futures::TryStreamExt;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::any::AnyRow;
use sqlx::{Any, AnyConnection, AssertSqlSafe, Database, Executor, Row};

use super::StoreError;
use super::dialect::Dialect;
use super::row::{number, parsed};
use crate::artifacts::{JobObject, Object};

/// The table of applied migrations.
const MIGRATIONS: &str = "_sqlx_migrations";

/// The maximum number of values of one statement; the databases accept somewhat more.
const VALUES_MAX: usize = 4000;

/// The least increase of the revision in a restored store: machines that kept running have seen revisions later than the backup, and ignore older
/// ones.
/// The revision also becomes at least the time in milliseconds since 1970, which exceeds every revision, so a second restore does not reuse numbers
/// of the first.
const LEAP: i64 = 1_000_000;

/// The type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// 64-bit integers.
    Integer,
    /// Double-precision numbers, written as text, so that no bit is lost.
    Real,
    /// Text.
    Text,
}

impl Kind {
    fn of(declared: &str) -> Option<Self> {
        match declared.to_ascii_lowercase().as_str() {
            "bigint" | "integer" => Some(Self::Integer),
            "double precision" => Some(Self::Real),
            "text" => Some(Self::Text),
            _ => None,
        }
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The type of its values.
    pub kind: Kind,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<Column>,
}

impl Table {
    /// The maximum number of rows in one statement.
    #[must_use]
    pub fn rows_max(&self) -> usize {
        (VALUES_MAX / self.columns.len().max(1)).max(1)
    }
}

/// The SQL condition on the rows of a table that a backup takes; `None` for no rows. The outbox holds messages long out of date, the trash names
/// objects that are not in the backup, and a singleton's lease belongs to a process that no longer exists. Of artifacts it takes those that a
/// version uses.
fn taken(table: &str) -> Option<&'static str> {
    match table {
        "outbox" | "artifact_trash" | "singletons" => None,
        "artifacts" => Some(
            " WHERE EXISTS (SELECT 1 FROM versions v WHERE v.digest = artifacts.digest) \
                 OR EXISTS (SELECT 1 FROM form_artifacts f WHERE f.digest = artifacts.digest)",
        ),
        _ => Some(""),
    }
}

/// The SQL condition on rows that a new schema contains.
fn seeds(table: &str) -> Option<&'static str> {
    match table {
        "counters" => Some("name IN ('revision', 'enrolments')"),
        "billing_clock" => Some("id = 1"),
        "tenants" => Some("id = 'ten_00000000000000000000000000000001' AND created_at = 0"),
        _ => None,
    }
}

/// Statements that reset a restored store: they end all leases. The rows of head leases stay, since their epochs must grow.
const LEASE_RESETS: [(&str, &str); 4] = [
    ("head_leases", "UPDATE head_leases SET expires_at = 0"),
    (
        "jobs",
        "UPDATE jobs SET lease_until = 0 WHERE state = 'running'",
    ),
    ("job_webhooks", "UPDATE job_webhooks SET lease_until = 0"),
    (
        "budget_webhooks",
        "UPDATE budget_webhooks SET lease_until = 0",
    ),
];

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn is_postgres(connection: &AnyConnection) -> bool {
    connection.backend_name() == Dialect::Postgres.name()
}

/// Lifts the timeouts of ordinary queries for this transaction, since a backup may take long.
///
/// # Errors
/// When the database fails.
pub async fn lift_timeouts(connection: &mut AnyConnection) -> Result<(), StoreError> {
    if is_postgres(connection) {
        connection
            .execute(
                "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0",
            )
            .await?;
    }
    Ok(())
}

/// All columns, by table name and position, and the foreign keys as pairs of child and parent table.
async fn described(
    connection: &mut AnyConnection,
) -> Result<(Vec<AnyRow>, Vec<AnyRow>), StoreError> {
    let (columns, references) = if is_postgres(connection) {
        (
            "SELECT CAST(table_name AS TEXT) AS table_name, CAST(column_name AS TEXT) AS column_name, CAST(data_type AS TEXT) AS kind \
             FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name) \
             WHERE table_schema = current_schema() AND t.table_type = 'BASE TABLE' AND NOT EXISTS ( \
               SELECT 1 FROM pg_depend d JOIN pg_class k ON k.oid = d.objid JOIN pg_namespace n ON n.oid = k.relnamespace \
               WHERE d.deptype = 'e' AND k.relname = table_name AND n.nspname = current_schema()) \
             ORDER BY table_name, ordinal_position",
            "SELECT CAST(c.relname AS TEXT) AS child, CAST(p.relname AS TEXT) AS parent FROM pg_constraint k \
             JOIN pg_class c ON c.oid = k.conrelid JOIN pg_class p ON p.oid = k.confrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE k.contype = 'f' AND n.nspname = current_schema()",
        )
    } else {
        (
            "SELECT m.name AS table_name, c.name AS column_name, c.type AS kind FROM sqlite_master m JOIN pragma_table_info(m.name) c \
             WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY m.name, c.cid",
            "SELECT m.name AS child, f.\"table\" AS parent FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f WHERE m.type = 'table'",
        )
    };
    let columns = sqlx::query(columns).fetch_all(&mut *connection).await?;
    let references = sqlx::query(references).fetch_all(connection).await?;
    Ok((columns, references))
}

/// The last applied migration; `None` if there is no schema.
///
/// # Errors
/// When the database fails.
pub async fn schema_version(connection: &mut AnyConnection) -> Result<Option<i64>, StoreError> {
    let (columns, _) = described(connection).await?;
    let mut noted = false;
    for row in &columns {
        noted |= row.try_get::<String, _>("table_name")? == MIGRATIONS;
    }
    if !noted {
        return Ok(None);
    }
    let row = sqlx::query("SELECT CAST(MAX(version) AS BIGINT) AS version FROM _sqlx_migrations")
        .fetch_one(connection)
        .await?;
    Ok(row.try_get("version")?)
}

/// All tables, referenced tables first.
///
/// # Errors
/// When the database fails, a column's type cannot be copied, or tables refer to each other in a circle.
pub async fn table_list(connection: &mut AnyConnection) -> Result<Vec<Table>, StoreError> {
    let (columns, references) = described(connection).await?;
    let mut tables: BTreeMap<String, Vec<Column>> = BTreeMap::new();
    for row in &columns {
        let (table, name): (String, String) =
            (row.try_get("table_name")?, row.try_get("column_name")?);
        if table == MIGRATIONS {
            continue;
        }
        let declared: String = row.try_get("kind")?;
        let kind = Kind::of(&declared).ok_or_else(|| {
            StoreError::corrupt(
                &format!("{table}.{name}"),
                format!("{declared} cannot be copied"),
            )
        })?;
        tables.entry(table).or_default().push(Column { name, kind });
    }
    let mut parents = BTreeSet::new();
    for row in &references {
        parents.insert((row.try_get("child")?, row.try_get("parent")?));
    }
    ordered(tables, &parents)
}

/// Sorts tables so that each comes after those that it refers to. `parents` holds pairs of a table and a table that it refers to.
fn ordered(
    mut tables: BTreeMap<String, Vec<Column>>,
    parents: &BTreeSet<(String, String)>,
) -> Result<Vec<Table>, StoreError> {
    let mut done: Vec<Table> = Vec::with_capacity(tables.len());
    while !tables.is_empty() {
        let waits = |name: &String| {
            parents.iter().any(|(child, parent)| {
                child == name && parent != name && tables.contains_key(parent)
            })
        };
        let Some(next) = tables.keys().find(|name| !waits(name)).cloned() else {
            return Err(StoreError::corrupt(
                "the schema",
                "tables refer to each other in a circle",
            ));
        };
        let columns = tables.remove(&next).unwrap_or_default();
        done.push(Table {
            name: next,
            columns,
        });
    }
    Ok(done)
}

/// Streams the rows of a table that a backup takes; `None` if it takes none of this table.
pub fn row_stream<'c>(
    connection: &'c mut AnyConnection,
    table: &Table,
) -> Option<BoxStream<'c, Result<Vec<Value>, StoreError>>> {
    let taken = taken(&table.name)?;
    let columns = table.columns.clone();
    let names: Vec<String> = columns.iter().map(|column| quoted(&column.name)).collect();
    let text = format!(
        "SELECT {} FROM {}{taken}",
        names.join(", "),
        quoted(&table.name)
    );
    let rows = sqlx::query(AssertSqlSafe(text)).fetch(connection);
    Some(Box::pin(rows.map_err(StoreError::from).and_then(
        move |row| {
            let values = columns.iter().enumerate();
            let values: Result<Vec<Value>, StoreError> = values
                .map(|(at, column)| value(&row, at, column.kind))
                .collect();
            std::future::ready(values)
        },
    )))
}

fn value(row: &AnyRow, at: usize, kind: Kind) -> Result<Value, StoreError> {
    Ok(match kind {
        Kind::Integer => row.try_get::<Option<i64>, _>(at)?.into(),
        Kind::Real => row
            .try_get::<Option<f64>, _>(at)?
            .map(|number| format!("{number:?}"))
            .into(),
        Kind::Text => row.try_get::<Option<String>, _>(at)?.into(),
    })
}

type Query<'q> = sqlx::query::Query<'q, Any, <Any as Database>::Arguments>;

fn bound<'q>(
    query: Query<'q>,
    column: &Column,
    value: Option<&Value>,
) -> Result<Query<'q>, StoreError> {
    let wrong = || StoreError::corrupt(&column.name, "the value is of another kind");
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(wrong);
    let value = value.filter(|value| !value.is_null());
    Ok(match column.kind {
        Kind::Integer => query.bind(
            value
                .map(|value| value.as_i64().ok_or_else(wrong))
                .transpose()?,
        ),
        Kind::Real => query.bind(
            value
                .map(|value| text(value)?.parse::<f64>().map_err(|_| wrong()))
                .transpose()?,
        ),
        Kind::Text => query.bind(value.map(text).transpose()?),
    })
}

/// Inserts rows, at most [`Table::rows_max`].
///
/// # Errors
/// When the database fails or refuses a row, or a value does not fit its column.
pub async fn row_insert(
    connection: &mut AnyConnection,
    table: &Table,
    rows: &[Vec<Value>],
) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let width = table.columns.len();
    let names: Vec<String> = table.columns.iter().map(|c| quoted(&c.name)).collect();
    let places: Vec<String> = (0..rows.len())
        .map(|row| {
            let row: Vec<String> = (1..=width)
                .map(|at| format!("${}", row * width + at))
                .collect();
            format!("({})", row.join(", "))
        })
        .collect();
    let text = format!(
        "INSERT INTO {} ({}) VALUES {}",
        quoted(&table.name),
        names.join(", "),
        places.join(", ")
    );
    let mut query: Query<'_> = sqlx::query(AssertSqlSafe(text));
    for row in rows {
        for (at, column) in table.columns.iter().enumerate() {
            query = bound(query, column, row.get(at))?;
        }
    }
    query.execute(connection).await?;
    Ok(())
}

/// The first table that holds more than a new schema does; `None` if all are as new.
///
/// # Errors
/// When the database fails.
pub async fn occupied(
    connection: &mut AnyConnection,
    tables: &[Table],
) -> Result<Option<String>, StoreError> {
    for table in tables {
        let but = seeds(&table.name)
            .map(|seed| format!(" WHERE NOT ({seed})"))
            .unwrap_or_default();
        let text = format!(
            "SELECT 1 AS found FROM {}{but} LIMIT 1",
            quoted(&table.name)
        );
        let found = sqlx::query(AssertSqlSafe(text))
            .fetch_optional(&mut *connection)
            .await?;
        if found.is_some() {
            return Ok(Some(table.name.clone()));
        }
    }
    Ok(None)
}

/// Deletes the rows that a new schema contains, in referring tables first.
///
/// # Errors
/// When the database fails.
pub async fn clear(connection: &mut AnyConnection, tables: &[Table]) -> Result<(), StoreError> {
    for table in tables.iter().rev() {
        if let Some(seed) = seeds(&table.name) {
            let text = format!("DELETE FROM {} WHERE {seed}", quoted(&table.name));
            sqlx::query(AssertSqlSafe(text))
                .execute(&mut *connection)
                .await?;
        }
    }
    Ok(())
}

/// Deletes what was sealed with lost keys: all secrets of functions, and the network's authorities; machines then have to join again.
///
/// # Errors
/// When the database fails.
pub async fn forget_sealed(
    connection: &mut AnyConnection,
    tables: &[Table],
) -> Result<(), StoreError> {
    for table in ["secrets", "data_keys", "authorities"] {
        if tables.iter().any(|known| known.name == table) {
            let text = format!("DELETE FROM {}", quoted(table));
            sqlx::query(AssertSqlSafe(text))
                .execute(&mut *connection)
                .await?;
        }
    }
    Ok(())
}

/// Ends all leases and raises the revision by at least `LEAP`, in the transaction that wrote the rows.
///
/// # Errors
/// When the database fails.
pub async fn reset_leases(
    connection: &mut AnyConnection,
    tables: &[Table],
) -> Result<(), StoreError> {
    for (table, text) in LEASE_RESETS {
        if tables.iter().any(|known| known.name == table) {
            sqlx::query(text).execute(&mut *connection).await?;
        }
    }
    let now = i64::try_from(fdn_service::now().get()).unwrap_or(0);
    sqlx::query("UPDATE counters SET value = CASE WHEN value + $1 > $2 THEN value + $1 ELSE $2 END WHERE name = 'revision'")
        .bind(LEAP)
        .bind(now)
        .execute(connection)
        .await?;
    Ok(())
}

/// An artifact that a version uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedArtifact {
    /// Its object.
    pub object: Object,
    /// Its size in bytes.
    pub size: u64,
}

/// All artifacts that versions use, by digest. Versions of workflow definitions are left out: they have no artifact.
pub fn artifact_stream(
    connection: &mut AnyConnection,
) -> BoxStream<'_, Result<UsedArtifact, StoreError>> {
    let rows = sqlx::query(
        "SELECT v.digest AS digest, COALESCE(MIN(a.object), '') AS object, COALESCE(MIN(a.size), MIN(v.size)) AS size \
         FROM (SELECT tenant, function, number, digest, size FROM versions UNION ALL \
         SELECT tenant, function, number, digest, size FROM form_artifacts) v LEFT JOIN artifacts a ON a.digest = v.digest \
         WHERE NOT EXISTS (SELECT 1 FROM workflow_versions w WHERE w.tenant = v.tenant AND w.app = v.function AND w.number = v.number) \
         GROUP BY v.digest ORDER BY v.digest",
    )
    .fetch(connection);
    Box::pin(rows.map_err(StoreError::from).and_then(|row| {
        let used = || -> Result<UsedArtifact, StoreError> {
            let digest: Digest = parsed(&row, "digest")?;
            let name = row.try_get("object")?;
            Ok(UsedArtifact {
                object: Object { digest, name },
                size: number(&row, "size")?,
            })
        };
        std::future::ready(used())
    }))
}

/// All objects of jobs in the artifact store, by job.
pub fn job_object_stream(
    connection: &mut AnyConnection,
) -> BoxStream<'_, Result<(JobId, Vec<JobObject>), StoreError>> {
    let rows = sqlx::query(
        "SELECT id, CASE WHEN input IS NULL AND input_size > 0 THEN 1 ELSE 0 END AS has_input, result_attempt FROM jobs \
         WHERE (input IS NULL AND input_size > 0) OR result_attempt IS NOT NULL ORDER BY id",
    )
    .fetch(connection);
    Box::pin(rows.map_err(StoreError::from).and_then(|row| {
        let objects = || -> Result<(JobId, Vec<JobObject>), StoreError> {
            let job: JobId = parsed(&row, "id")?;
            let mut objects = Vec::new();
            if row.try_get::<i64, _>("has_input")? != 0 {
                objects.push(JobObject::Input);
            }
            if let Some(attempt) = row.try_get::<Option<i64>, _>("result_attempt")? {
                let attempt = u32::try_from(attempt)
                    .map_err(|e| StoreError::corrupt("jobs.result_attempt", e))?;
                objects.push(JobObject::Result(attempt));
            }
            Ok((job, objects))
        };
        std::future::ready(objects())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(names: &[&str]) -> BTreeMap<String, Vec<Column>> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), Vec::new()))
            .collect()
    }

    fn pair((child, parent): (&str, &str)) -> (String, String) {
        (child.to_owned(), parent.to_owned())
    }

    #[test]
    fn a_table_stands_after_those_it_refers_to() {
        let parents = [
            ("apps", "versions"),
            ("versions", "functions"),
            ("functions", "tenants"),
            ("tenants", "tenants"),
        ]
        .map(pair)
        .into();
        let order = ordered(
            tables(&["apps", "functions", "tenants", "users", "versions"]),
            &parents,
        )
        .expect("no circle");
        let names: Vec<&str> = order.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["tenants", "functions", "users", "versions", "apps"]);
    }

    #[test]
    fn a_circle_is_an_error() {
        let parents = [("a", "b"), ("b", "a")].map(pair).into();
        assert!(ordered(tables(&["a", "b"]), &parents).is_err());
    }

    #[test]
    fn nothing_in_the_schema_counts_by_itself() {
        for migration in crate::store::MIGRATOR.iter() {
            let text = migration.sql.as_str().to_ascii_uppercase();
            for word in [
                "AS IDENTITY",
                "AUTOINCREMENT",
                "NEXTVAL",
                "BIGSERIAL",
                " SERIAL PRIMARY",
            ] {
                assert!(
                    !text.contains(word),
                    "{}: a backup does not carry the state of {word}",
                    migration.version
                );
            }
        }
    }

    #[tokio::test]
    async fn every_table_can_be_copied_and_every_rule_is_about_one_that_is_there() {
        let folder = tempfile::tempdir().expect("folder");
        let settings = crate::settings::DatabaseSettings {
            url: format!("sqlite://{}", folder.path().join("c.db").display()),
            ..crate::settings::DatabaseSettings::default()
        };
        let store = crate::store::Store::connect(&settings)
            .await
            .expect("connected");
        let mut connection = store.read().await.expect("connected");
        assert_eq!(schema_version(&mut connection).await.expect("read"), None);
        store.migrate().await.expect("migrated");
        let newest = crate::store::MIGRATOR.iter().map(|m| m.version).max();
        assert_eq!(schema_version(&mut connection).await.expect("read"), newest);
        let all = table_list(&mut connection).await.expect("read");
        for name in ["outbox", "artifact_trash", "singletons", "artifacts"]
            .into_iter()
            .chain(["counters", "billing_clock", "tenants"])
            .chain(LEASE_RESETS.map(|(table, _)| table))
        {
            assert!(all.iter().any(|table| table.name == name), "{name}");
        }
        assert_eq!(occupied(&mut connection, &all).await.expect("read"), None);
    }

    #[test]
    fn no_number_loses_a_bit() {
        for number in [0.1 + 0.2, -0.0, 1e300, f64::MIN_POSITIVE, 48.86] {
            let text = format!("{number:?}");
            let back: f64 = text.parse().expect("a number");
            assert_eq!(back.to_bits(), number.to_bits(), "{text}");
        }
    }
}
