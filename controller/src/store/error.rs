//! Errors of the metadata store, and the only place that interprets error codes of the databases.

use fdn_core::billing::BillingError;
use fdn_core::{Coded, ErrorCode};

/// An error of the metadata store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database cannot be reached, or no connection is free.
    #[error("the metadata store cannot be reached")]
    Away(#[source] sqlx::Error),
    /// Two transactions conflicted; a retry may succeed.
    #[error("the metadata store is contended")]
    Contended(#[source] sqlx::Error),
    /// A row violates a constraint of the schema.
    #[error("the metadata store refused a row: {rule}")]
    Refused {
        /// The constraint, in the database's words.
        rule: String,
        /// The kind of constraint.
        constraint: Constraint,
    },
    /// A stored value cannot be read.
    #[error("the metadata store holds a value that cannot be read in {column}: {reason}")]
    Corrupt {
        /// The column.
        column: String,
        /// The reason.
        reason: String,
    },
    /// The schema could not be brought up to date.
    #[error("the schema of the metadata store could not be brought up to date")]
    Migration(#[source] sqlx::migrate::MigrateError),
    /// A newer release has migrated the schema beyond what this release knows.
    #[error(
        "a newer release has brought this metadata store to schema {found}, and this one knows up to {known}: there is no way back within a database. \
         Start the newer release, or restore a backup of before the upgrade into an empty database"
    )]
    Newer {
        /// The unknown migration.
        found: i64,
        /// The last known migration.
        known: i64,
    },
    /// The address of the database is not valid.
    #[error("database.url is not valid: {0}")]
    Address(String),
    /// The request that makes the change was begun twice under its idempotency key, because one outlasted its lease, and the other one was carried out.
    #[error(
        "the same request was sent twice with this idempotency key, and the other one was carried out; nothing of this one was done"
    )]
    Overtaken,
    /// Usage or prices are inconsistent.
    #[error(transparent)]
    Billing(#[from] BillingError),
    /// A query failed in another way.
    #[error("a query of the metadata store failed")]
    Query(#[source] sqlx::Error),
}

/// A kind of constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// The key exists already.
    Unique,
    /// A row refers to a missing one, or is still referred to.
    Reference,
    /// A value is out of range or missing.
    Check,
}

impl Coded for StoreError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Away(_) | Self::Contended(_) | Self::Migration(_) => ErrorCode::DatabaseFailed,
            Self::Newer { .. }
            | Self::Refused {
                constraint: Constraint::Unique,
                ..
            } => ErrorCode::Conflict,
            Self::Overtaken => ErrorCode::IdempotencyRunning,
            Self::Address(_) => ErrorCode::ConfigInvalid,
            Self::Billing(error) => error.code(),
            Self::Refused { .. } | Self::Corrupt { .. } | Self::Query(_) => ErrorCode::Internal,
        }
    }
}

impl StoreError {
    /// The error for a value of `column` that cannot be read.
    pub(crate) fn corrupt(column: &str, reason: impl std::fmt::Display) -> Self {
        Self::Corrupt {
            column: column.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// What an error code of a database means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Away,
    Contended,
    Refused(Constraint),
    Other,
}

/// Interprets an SQLSTATE of PostgreSQL (its manual, appendix A) or an extended result code of SQLite (<https://sqlite.org/rescode.html>).
/// The two cannot be confused: an SQLSTATE has five characters, SQLite's codes are numbers below 10,000.
fn meaning(code: &str) -> Meaning {
    if code.len() == 5 {
        return match code {
            "40001" | "40P01" | "55P03" => Meaning::Contended,
            "23505" => Meaning::Refused(Constraint::Unique),
            "23503" => Meaning::Refused(Constraint::Reference),
            "23502" | "23514" => Meaning::Refused(Constraint::Check),
            // Connection exceptions, too many connections, shutdowns and recovery; below, 25006: a former primary that has become a read-only
            // standby.
            _ if ["08", "53", "57"]
                .iter()
                .any(|class| code.starts_with(class)) =>
            {
                Meaning::Away
            }
            "25006" => Meaning::Away,
            _ => Meaning::Other,
        };
    }
    // The low byte is the primary code.
    let number: u32 = code.parse().unwrap_or(0);
    match (number & 0xff, number) {
        (5 | 6, _) => Meaning::Contended,
        (8 | 10 | 13 | 14, _) => Meaning::Away,
        (_, 1555 | 2067) => Meaning::Refused(Constraint::Unique),
        (_, 787) => Meaning::Refused(Constraint::Reference),
        (19, _) => Meaning::Refused(Constraint::Check),
        _ => Meaning::Other,
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let found = match &error {
            sqlx::Error::Database(database) => database
                .code()
                .map_or(Meaning::Other, |code| meaning(&code)),
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed => Meaning::Away,
            _ => Meaning::Other,
        };
        match found {
            Meaning::Away => Self::Away(error),
            Meaning::Contended => Self::Contended(error),
            Meaning::Refused(constraint) => Self::Refused {
                rule: error
                    .as_database_error()
                    .map(|e| e.message().to_owned())
                    .unwrap_or_default(),
                constraint,
            },
            Meaning::Other => Self::Query(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_both_databases_mean_the_same() {
        for (postgres, sqlite, expected) in [
            ("40001", "5", Meaning::Contended),
            ("40P01", "517", Meaning::Contended),
            ("23505", "2067", Meaning::Refused(Constraint::Unique)),
            ("23503", "787", Meaning::Refused(Constraint::Reference)),
            ("23514", "275", Meaning::Refused(Constraint::Check)),
            ("57P01", "14", Meaning::Away),
            ("42601", "1", Meaning::Other),
        ] {
            assert_eq!(meaning(postgres), expected, "{postgres}");
            assert_eq!(meaning(sqlite), expected, "{sqlite}");
        }
    }

    #[test]
    fn only_a_lost_or_contended_store_may_be_asked_again() {
        use fdn_core::Retry;
        assert_eq!(
            StoreError::from(sqlx::Error::PoolTimedOut).retry(),
            Retry::Later
        );
        assert_eq!(
            StoreError::corrupt("apps.host", "empty").code(),
            ErrorCode::Internal
        );
    }
}
