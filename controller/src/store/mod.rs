//! The metadata store: the only place with SQL.
//!
//! One SQL text serves PostgreSQL and SQLite; the few differences (how transactions begin, pragmas, the lock around migrations) are in [`dialect`].
//! Queries are functions named after their resource (`app_get`, `outbox_push`), one file per resource, and take a connection, so that a use case can
//! put several of them into one transaction.
//!
//! Every change of desired state takes the next revision first ([`revision::revision_next`]). That locks one row until the transaction ends, so
//! changes are committed in the order of their revisions, and a snapshot at revision `r` holds everything up to `r`.
//!
//! Queries name their columns, never `*`: while a network is upgraded, a newer release adds columns to the tables of statements that this one has
//! prepared, and PostgreSQL refuses a prepared statement whose result columns have changed.

pub mod api_token;
pub mod app;
pub mod applied;
pub mod artifact;
pub mod audit;
pub mod authority;
pub mod billing;
pub mod binding;
pub mod cluster;
pub mod cluster_load;
pub mod console;
pub mod copy;
pub mod demand;
pub mod device;
pub mod dialect;
pub mod domain;
pub mod enrolment;
mod error;
pub mod event;
pub mod idempotency;
pub mod invitation;
pub mod job;
pub mod job_queries;
pub mod job_schedule;
pub mod join_token;
pub mod label;
pub mod lease;
pub mod network;
pub mod node;
pub mod oidc;
pub mod outbox;
pub mod plan;
pub mod policy;
pub mod rehearsal;
pub mod revision;
pub mod rollout;
mod row;
pub mod rtt;
pub mod run;
mod schema;
pub mod secret;
pub mod session;
pub mod signing;
pub mod singleton;
pub mod tenant;
pub mod traffic;
pub mod txt;
pub mod usage;
pub mod usage_sums;
pub mod user;
pub mod version;
pub mod webhook;
pub mod workflow;

use std::time::Duration;

use fdn_core::TenantId;
use sqlx::any::AnyPoolOptions;
use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection, AnyPool, Connection, Transaction};
use tracing::info;

use crate::settings::DatabaseSettings;
use dialect::Dialect;
pub use error::{Constraint, StoreError};
pub use schema::{MIGRATOR, newest};

/// The tenant that exists from the beginning.
pub const DEFAULT_TENANT: TenantId = TenantId::from_uuid(uuid::Uuid::from_u128(1));

/// The maximum number of attempts of a contended transaction.
const ATTEMPTS: u32 = 6;

/// A handle on the metadata store; clones share one pool.
#[derive(Clone, Debug)]
pub struct Store {
    pool: AnyPool,
    dialect: Dialect,
}

/// The connections of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// Open connections.
    pub open: u32,
    /// Of these, the idle ones.
    pub idle: usize,
}

impl Store {
    /// Connects to the database; does not touch the schema.
    ///
    /// # Errors
    /// When the address is not valid or the database cannot be reached.
    pub async fn connect(settings: &DatabaseSettings) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let dialect = Dialect::of(&settings.url)?;
        let options = dialect.options(settings)?;
        let pool = AnyPoolOptions::new()
            .max_connections(dialect.connections(settings))
            .acquire_timeout(settings.acquire_timeout.as_duration())
            .after_connect(move |connection, _| {
                Box::pin(async move { dialect.prepare(connection).await })
            })
            .connect_with(options)
            .await?;
        Ok(Self { pool, dialect })
    }

    /// Brings the schema up to date. Several controllers may call this at once: one migrates, the others wait.
    ///
    /// # Errors
    /// When a migration fails, was changed after it was applied, or is newer than this build.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.migrate_to(None).await
    }

    /// Like [`Store::migrate`], but only up to the migration `target`.
    ///
    /// # Errors
    /// As for [`Store::migrate`].
    pub async fn migrate_to(&self, target: Option<i64>) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await?;
        let migrated = self.migrate_over(&mut connection, target).await;
        // It has no limits, and a migrator that fails keeps its lock as long as the connection lives. An error on closing is dropped: the migration's
        // error matters more.
        drop(connection.close().await);
        migrated?;
        info!(database = self.dialect.name(), "the schema is up to date");
        Ok(())
    }

    async fn migrate_over(
        &self,
        connection: &mut AnyConnection,
        target: Option<i64>,
    ) -> Result<(), StoreError> {
        self.dialect.lift_limits(connection).await?;
        match self.dialect {
            // The migrator takes an advisory lock of its own.
            Dialect::Postgres => MIGRATOR
                .run_direct(target, connection, false)
                .await
                .map_err(schema::refusal)?,
            // It has none for SQLite: an exclusive transaction around the whole run does the same.
            Dialect::Sqlite => {
                let mut transaction = connection.begin_with("BEGIN EXCLUSIVE").await?;
                MIGRATOR
                    .run_direct(target, &mut *transaction, false)
                    .await
                    .map_err(schema::refusal)?;
                transaction.commit().await?;
            }
        }
        if target.is_none() {
            self.dialect.guard_audit(connection).await?;
        }
        Ok(())
    }

    /// A connection for a single read.
    ///
    /// # Errors
    /// When the database cannot be reached.
    pub async fn read(&self) -> Result<PoolConnection<Any>, StoreError> {
        Ok(self.pool.acquire().await?)
    }

    /// A read transaction in which every query sees the same snapshot.
    ///
    /// # Errors
    /// When the database cannot be reached.
    pub async fn snapshot(&self) -> Result<Transaction<'static, Any>, StoreError> {
        Ok(self.pool.begin_with(self.dialect.begin_snapshot()).await?)
    }

    /// A write transaction. Within this crate it is used through `in_transaction!`, which retries when there is contention.
    ///
    /// # Errors
    /// When the database cannot be reached, or another writer holds the lock for too long.
    pub async fn begin(&self) -> Result<Transaction<'static, Any>, StoreError> {
        Ok(self.pool.begin_with(self.dialect.begin_write()).await?)
    }

    /// Checks that the database answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn check(&self) -> Result<(), StoreError> {
        sqlx::query("SELECT 1").execute(&self.pool).await?;
        Ok(())
    }

    /// The present use of the pool.
    #[must_use]
    pub fn pool_use(&self) -> PoolUse {
        PoolUse {
            open: self.pool.size(),
            idle: self.pool.num_idle(),
        }
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Counts the attempts of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Attempts(u32);

impl Attempts {
    /// Commits a transaction whose body succeeded and rolls back one whose body failed; `None` asks for another attempt.
    pub(crate) async fn finish<T, E: From<StoreError> + Into<MaybeContended<E>>>(
        &mut self,
        transaction: Transaction<'static, Any>,
        outcome: Result<T, E>,
    ) -> Result<Option<T>, E> {
        let failure = match outcome {
            Ok(value) => match transaction.commit().await.map_err(StoreError::from) {
                Ok(()) => return Ok(Some(value)),
                Err(error) => error.into(),
            },
            Err(error) => {
                // A failed rollback means a lost connection, which rolls back as well.
                drop(transaction.rollback().await);
                error
            }
        };
        self.retry(failure.into()).await
    }

    /// Decides whether a failed transaction is tried again: `None`, after a back-off, if so, else the error.
    pub(crate) async fn retry<T, E>(&mut self, failure: MaybeContended<E>) -> Result<Option<T>, E> {
        self.0 += 1;
        match failure {
            MaybeContended::Yes(_) if self.0 < ATTEMPTS => {
                tokio::time::sleep(Duration::from_millis(u64::from(
                    rand::random_range(1..=20u32) << self.0,
                )))
                .await;
                Ok(None)
            }
            MaybeContended::Yes(error) | MaybeContended::No(error) => Err(error),
        }
    }
}

/// An error, classified by whether a retry of the same transaction may succeed.
pub(crate) enum MaybeContended<E> {
    /// A retry may succeed.
    Yes(E),
    /// A retry cannot succeed.
    No(E),
}

impl From<StoreError> for MaybeContended<StoreError> {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Contended(_) => Self::Yes(error),
            _ => Self::No(error),
        }
    }
}

/// Runs `$body`, the content of an async block with `$transaction` in scope, in one transaction: committed if it is `Ok`, rolled back if it is
/// `Err`, and retried a few times if the database reports contention.
macro_rules! in_transaction {
    ($store:expr, $transaction:ident => $body:expr) => {{
        let mut attempts = $crate::store::Attempts::default();
        loop {
            let mut $transaction = match $store.begin().await {
                Ok(transaction) => transaction,
                Err(error) => match attempts.retry::<(), _>(error.into()).await {
                    Ok(_) => continue,
                    Err(error) => break Err(error.into()),
                },
            };
            let outcome = async { $body }.await;
            match attempts.finish($transaction, outcome).await {
                Ok(Some(value)) => break Ok(value),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
        }
    }};
}
pub(crate) use in_transaction;
