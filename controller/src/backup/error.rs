//! What can go wrong with a backup.

use std::io;

use fdn_core::{Coded, ErrorCode};

/// A backup cannot be made, or an archive not be restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// A file cannot be used.
    #[error("{what} cannot be {action}")]
    File {
        /// Which.
        what: String,
        /// What was to be done with it.
        action: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The archive is not what was written.
    #[error(
        "the archive is damaged or cut short: {0}; nothing of it was restored, take another one"
    )]
    Damaged(String),
    /// The archive is none of ours, or of a release that writes another format.
    #[error(
        "the archive has format {found} and this release reads {known}: restore it with the release that made it ({product})"
    )]
    Format {
        /// Its format.
        found: u32,
        /// What is read here.
        known: u32,
        /// Who made it.
        product: String,
    },
    /// The archive is of a later schema.
    #[error(
        "the archive is of a newer release ({product}, schema {found}), and this one knows schemas up to {known}: restore it with that release. \
         There is no way back to an earlier release but a backup that it made"
    )]
    Newer {
        /// Its schema.
        found: i64,
        /// The last one known here.
        known: i64,
        /// Who made it.
        product: String,
    },
    /// The database has no schema, or an older one.
    #[error(
        "the metadata store has schema {found} and this release {known}: make the backup with the release that runs, or run `fdn-controller migrate` first"
    )]
    Older {
        /// What it has, 0 for none.
        found: i64,
        /// The last one known here.
        known: i64,
    },
    /// The place to restore to holds something.
    #[error("{0}")]
    NotEmpty(String),
    /// A key is missing or another one.
    #[error("{0}")]
    Keys(String),
    /// All is restored, and the schema is still that of the archive.
    #[error(
        "everything is restored, but the steps after it failed: run `fdn-controller migrate`, then start the controllers"
    )]
    Unfinished(#[source] Box<crate::Error>),
    /// An artifact in the store is not what its digest says.
    #[error(
        "{what} in the artifact store is not what was stored: {problem}; upload its version again"
    )]
    Spoilt {
        /// Which object.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl BackupError {
    /// A file that cannot be used.
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

    /// A part of the archive that cannot be read.
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
