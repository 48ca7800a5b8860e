//! All differences between PostgreSQL and SQLite.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, ConnectOptions, Executor};
use url::Url;

use super::StoreError;
use crate::settings::DatabaseSettings;

/// Takes an advisory lock, since two controllers that start at once would otherwise replace the function concurrently.
const GUARD_POSTGRES: &str = "BEGIN; \
    SELECT pg_advisory_xact_lock(6012344501); \
    CREATE OR REPLACE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS \
    $$ BEGIN RAISE EXCEPTION 'the audit log is only ever added to' USING ERRCODE = 'check_violation'; END $$; \
    CREATE OR REPLACE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit \
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only(); \
    COMMIT";

const GUARD_SQLITE: &str = "CREATE TRIGGER IF NOT EXISTS audit_no_update BEFORE UPDATE ON audit \
    BEGIN SELECT RAISE(ABORT, 'the audit log is only ever added to'); END; \
    CREATE TRIGGER IF NOT EXISTS audit_no_delete BEFORE DELETE ON audit \
    BEGIN SELECT RAISE(ABORT, 'the audit log is only ever added to'); END";

/// The database in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// SQLite, in one file.
    Sqlite,
}

impl Dialect {
    /// The database that an address names by its scheme.
    ///
    /// # Errors
    /// When the scheme is unknown.
    pub fn of(url: &str) -> Result<Self, StoreError> {
        match url.split(':').next() {
            Some("postgres" | "postgresql") => Ok(Self::Postgres),
            Some("sqlite") => Ok(Self::Sqlite),
            _ => Err(StoreError::Address(
                "expected postgres://USER@HOST/NAME or sqlite:///PATH".to_owned(),
            )),
        }
    }

    /// Its name, as sqlx spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Sqlite => "SQLite",
        }
    }

    pub(super) fn options(
        self,
        settings: &DatabaseSettings,
    ) -> Result<AnyConnectOptions, StoreError> {
        // The parser's own messages may quote the address, which may hold a password.
        let mut url = Url::parse(&settings.url).map_err(|e| StoreError::Address(e.to_string()))?;
        match self {
            Self::Postgres => {
                if let Some(path) = &settings.password_file {
                    let password = fdn_service::secret::read(path)
                        .map_err(|e| StoreError::Address(e.to_string()))?;
                    url.set_password(Some(password.expose())).map_err(|()| {
                        StoreError::Address("it must name a host to have a password".to_owned())
                    })?;
                }
            }
            Self::Sqlite => {
                create_file(&url)?;
                if !url.query_pairs().any(|(key, _)| key == "mode") {
                    url.query_pairs_mut().append_pair("mode", "rwc");
                }
            }
        }
        Ok(AnyConnectOptions::from_url(&url)?.disable_statement_logging())
    }

    pub(super) const fn connections(self, settings: &DatabaseSettings) -> u32 {
        settings.max_connections
    }

    /// Sets up each new connection.
    pub(super) async fn prepare(self, connection: &mut AnyConnection) -> sqlx::Result<()> {
        match self {
            // No query of ours takes a second; one that takes half a minute is stuck.
            Self::Postgres => connection.execute("SET statement_timeout = '30s'; SET lock_timeout = '10s'").await?,
            // With a write-ahead log readers never wait for the writer; every commit reaches the disk before it is acknowledged.
            Self::Sqlite => {
                connection.execute("PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").await?
            }
        };
        Ok(())
    }

    /// Lifts the limits of ordinary queries until the connection is closed. A migration of a large table takes long, and so does waiting for another
    /// controller that migrates.
    pub(super) async fn lift_limits(self, connection: &mut AnyConnection) -> sqlx::Result<()> {
        if matches!(self, Self::Postgres) {
            connection
                .execute("SET statement_timeout = 0; SET lock_timeout = 0")
                .await?;
        }
        Ok(())
    }

    /// Creates the triggers that refuse changes of the audit log, where they are missing. The databases have different trigger languages, so this
    /// cannot be part of a migration that both run.
    pub(super) async fn guard_audit(self, connection: &mut AnyConnection) -> sqlx::Result<()> {
        match self {
            Self::Postgres => connection.execute(GUARD_POSTGRES).await?,
            Self::Sqlite => connection.execute(GUARD_SQLITE).await?,
        };
        Ok(())
    }

    /// A writer in SQLite takes the lock at once: waiting for a lock taken in mid-transaction is impossible.
    pub(super) const fn begin_write(self) -> &'static str {
        match self {
            Self::Postgres => "BEGIN ISOLATION LEVEL READ COMMITTED",
            Self::Sqlite => "BEGIN IMMEDIATE",
        }
    }

    pub(super) const fn begin_snapshot(self) -> &'static str {
        match self {
            Self::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Self::Sqlite => "BEGIN DEFERRED",
        }
    }
}

/// Locks the query's rows against changes until the transaction ends; the lock is shared. In SQLite a write transaction is alone anyway.
pub(super) fn lock_shared(query: &str, connection: &AnyConnection) -> String {
    if connection.backend_name() == Dialect::Postgres.name() {
        format!("{query} FOR SHARE")
    } else {
        query.to_owned()
    }
}

/// Creates the database's file with mode 0600, since it holds password hashes. SQLite gives its other files the same mode.
fn create_file(url: &Url) -> Result<(), StoreError> {
    let as_file = Url::parse(&format!("file://{}", url.path())).ok();
    let Some(path) = as_file.and_then(|url| url.to_file_path().ok()) else {
        return Err(StoreError::Address(
            "expected sqlite:///PATH with an absolute path".to_owned(),
        ));
    };
    let failed =
        |e: std::io::Error| StoreError::Address(format!("{} cannot be made: {e}", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut options = OpenOptions::new();
    options
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_names_the_database() {
        assert_eq!(
            Dialect::of("postgres://u@h/n").expect("known"),
            Dialect::Postgres
        );
        assert_eq!(
            Dialect::of("sqlite:///tmp/x.db").expect("known"),
            Dialect::Sqlite
        );
        let error = Dialect::of("mysql://secret@h/n")
            .expect_err("unknown")
            .to_string();
        assert!(
            error.contains("postgres://") && !error.contains("secret"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn the_file_is_made_for_its_owner_alone_wherever_it_is() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("my data/controller.db");
        let settings = DatabaseSettings {
            url: format!("sqlite://{}", path.display()),
            ..DatabaseSettings::default()
        };
        let store = crate::store::Store::connect(&settings)
            .await
            .expect("connected");
        store.migrate().await.expect("migrated");
        let mode = std::fs::metadata(&path).expect("made").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = crate::store::Store::connect(&DatabaseSettings {
            url: "sqlite://".to_owned(),
            ..settings
        })
        .await;
        assert!(error.is_err());
    }
}
