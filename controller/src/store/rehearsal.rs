//! Dry runs of schema upgrades: lists and tests pending migrations without applying them, for `fdn-controller migrate --dry-run`.

use std::collections::BTreeSet;

use sqlx::{Connection, Row};

use super::copy::schema_version;
use super::schema::refusal;
use super::{MIGRATOR, Store, StoreError};

/// A migration not yet applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingMigration {
    /// Its version.
    pub version: i64,
    /// Its description.
    pub description: String,
}

impl Store {
    /// The migrations that an upgrade to this build would apply.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn pending(&self) -> Result<Vec<PendingMigration>, StoreError> {
        let mut connection = self.read().await?;
        let mut applied = BTreeSet::new();
        if schema_version(&mut connection).await?.is_some() {
            let rows = sqlx::query("SELECT version FROM _sqlx_migrations")
                .fetch_all(&mut *connection)
                .await?;
            for row in &rows {
                applied.insert(row.try_get::<i64, _>("version")?);
            }
        }
        Ok(MIGRATOR
            .iter()
            .filter(|each| !applied.contains(&each.version))
            .map(|each| PendingMigration {
                version: each.version,
                description: each.description.clone().into_owned(),
            })
            .collect())
    }

    /// Applies all pending migrations in a transaction that is rolled back: what fails here would fail in the upgrade. Tables are locked meanwhile
    /// as in an upgrade.
    ///
    /// # Errors
    /// As [`Store::migrate`].
    pub async fn rehearse(&self) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await?;
        let applied = async {
            self.dialect.lift_limits(&mut connection).await?;
            let mut transaction = connection.begin_with(self.dialect.begin_write()).await?;
            let applied = MIGRATOR.run_direct(None, &mut *transaction, false).await;
            let ended = transaction.rollback().await;
            applied.map_err(refusal)?;
            Ok::<_, StoreError>(ended?)
        }
        .await;
        // It has no limits, and a migrator that fails keeps its advisory lock as long as the connection lives.
        let closed = connection.close().await;
        applied?;
        Ok(closed?)
    }
}
