//! What can go wrong with the metadata store, and the one place where database codes get a meaning.

use fdn_core::billing::BillingError;
use fdn_core::{Coded, ErrorCode};

/// An error of the metadata store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database cannot be reached, or has no connection free.
    #[error("the metadata store cannot be reached")]
    Away(#[source] sqlx::Error),
    /// Two transactions stood in each other's way; the same one may succeed now.
    #[error("the metadata store is contended")]
    Contended(#[source] sqlx::Error),
    /// A row breaks a rule of the schema.
    #[error("the metadata store refused a row: {rule}")]
    Refused {
        /// The rule, in the database's words.
        rule: String,
        /// Which kind.
        constraint: Constraint,
    },
    /// A stored value is not what was written.
    #[error("the metadata store holds a value that cannot be read in {column}: {reason}")]
    Corrupt {
        /// Where.
        column: String,
        /// Why.
        reason: String,
    },
    /// The schema could not be brought up to date.
    #[error("the schema of the metadata store could not be brought up to date")]
    Migration(#[source] sqlx::migrate::MigrateError),
    /// A newer release brought the schema to what this one does not know.
    #[error(
        "a newer release has brought this metadata store to schema {found}, and this one knows up to {known}: there is no way back within a database. \
         Start the newer release, or restore a backup of before the upgrade into an empty database"
    )]
    Newer {
        /// The migration that is not known here.
        found: i64,
        /// The last one that is.
        known: i64,
    },
    /// The address of the database is not valid.
    #[error("database.url is not valid: {0}")]
    Address(String),
    /// Usage or prices do not add up.
    #[error(transparent)]
    Billing(#[from] BillingError),
    /// A query failed in another way.
    #[error("a query of the metadata store failed")]
    Query(#[source] sqlx::Error),
}

/// A kind of rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// A key is there already.
    Unique,
    /// A row refers to one that is not there, or is referred to.
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
            Self::Address(_) => ErrorCode::ConfigInvalid,
            Self::Billing(error) => error.code(),
            Self::Refused { .. } | Self::Corrupt { .. } | Self::Query(_) => ErrorCode::Internal,
        }
    }
}

impl StoreError {
    /// A value of `column` that cannot be read.
    pub(crate) fn corrupt(column: &str, reason: impl std::fmt::Display) -> Self {
        Self::Corrupt {
            column: column.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// What a database says with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Away,
    Contended,
    Refused(Constraint),
    Other,
}

/// The meaning of an SQLSTATE of PostgreSQL (its manual, appendix A) or an extended result code of SQLite (<https://sqlite.org/rescode.html>).
/// The two never look alike: an SQLSTATE has five characters, SQLite's codes are numbers below 10,000.
fn meaning(code: &str) -> Meaning {
    if code.len() == 5 {
        return match code {
            "40001" | "40P01" | "55P03" => Meaning::Contended,
            "23505" => Meaning::Refused(Constraint::Unique),
            "23503" => Meaning::Refused(Constraint::Reference),
            "23502" | "23514" => Meaning::Refused(Constraint::Check),
            // Connection exceptions, shutdowns, too many connections, a server that recovers, a standby that lost its rights.
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
