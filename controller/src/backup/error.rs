//! Errors of backup and restore.

use std::io;

use fdn_core::{Coded, ErrorCode};

/// A backup cannot be made, or an archive cannot be restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// A file cannot be used.
    #[error("{what} cannot be {action}")]
    File {
        /// The file.
        what: String,
        /// The operation that failed.
        action: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The archive is damaged.
    #[error(
        "the archive is damaged or cut short: {0}; nothing of it was restored, take another one"
    )]
    Damaged(String),
    /// The archive is not a backup, or has another format than this release reads.
    #[error(
        "the archive has format {found} and this release reads {known}: restore it with the release that made it ({product})"
    )]
    Format {
        /// The archive's format.
        found: u32,
        /// The format that this release reads.
        known: u32,
        /// The release that made it.
        product: String,
    },
    /// The archive has a newer schema than this release.
    #[error(
        "the archive is of a newer release ({product}, schema {found}), and this one knows schemas up to {known}: restore it with that release. \
         There is no way back to an earlier release but a backup that it made"
    )]
    Newer {
        /// The archive's schema.
        found: i64,
        /// The newest schema of this release.
        known: i64,
        /// The release that made it.
        product: String,
    },
    /// The database has no schema, or an older one.
    #[error(
        "the metadata store has schema {found} and this release {known}: make the backup with the release that runs, or run `fdn-controller migrate` first"
    )]
    Older {
        /// The database's schema; 0 for none.
        found: i64,
        /// The newest schema of this release.
        known: i64,
    },
    /// The database or the artifact store to restore to is not empty.
    #[error("{0}")]
    NotEmpty(String),
    /// A key is missing or differs.
    #[error("{0}")]
    Keys(String),
    /// Everything is restored, but the schema is still that of the archive.
    #[error(
        "everything is restored, but the steps after it failed: run `fdn-controller migrate`, then start the controllers"
    )]
    Unfinished(#[source] Box<crate::Error>),
    /// An object in the artifact store does not match its digest.
    #[error(
        "{what} in the artifact store is not what was stored: {problem}; upload its version again"
    )]
    Spoilt {
        /// The object.
        what: String,
        /// How it differs.
        problem: String,
    },
}

impl BackupError {
    /// The error that a file cannot be used.
    pub(super) fn file(
        what: impl Into<String>,
        action: &'static str,
    ) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::File {
            what,
            action,
            source,
        }
    }

    /// The error that a part of the archive cannot be read.
    pub(super) fn damaged(part: &str) -> impl Fn(io::Error) -> Self {
        let part = part.to_owned();
        move |source| Self::Damaged(format!("{part}: {source}"))
    }
}

impl Coded for BackupError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::File { .. } => ErrorCode::Internal,
            Self::Damaged(_) | Self::Format { .. } => ErrorCode::BadRequest,
            Self::Newer { .. } | Self::Older { .. } | Self::NotEmpty(_) | Self::Keys(_) => {
                ErrorCode::Conflict
            }
            Self::Unfinished(error) => error.code(),
            Self::Spoilt { .. } => ErrorCode::ArtifactStoreFailed,
        }
    }
}
