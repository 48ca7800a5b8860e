//! What can go wrong in a controller.

use std::time::Duration;

use fdn_core::manifest::ManifestError;
use fdn_core::{Coded, ErrorCode, Fault, ParseError, Retry};
use fdn_runtime::validate::ValidateError;
use fdn_service::ServiceError;

use crate::app::enrol::EnrolError;
use crate::artifacts::ArtifactError;
use crate::store::{MaybeContended, StoreError};
use crate::upload::UploadError;
use crate::upload::image::ImageError;

/// An error of the controller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The metadata store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The artifact store.
    #[error(transparent)]
    Artifacts(#[from] ArtifactError),
    /// The shell of the process.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The broker.
    #[error(transparent)]
    Broker(#[from] fdn_bus::BusError),
    /// The WebAssembly engine that judges uploads.
    #[error(transparent)]
    Engine(#[from] fdn_runtime::EngineError),
    /// An upload did not arrive.
    #[error(transparent)]
    Upload(#[from] UploadError),
    /// An upload was judged and refused.
    #[error(transparent)]
    Validate(#[from] ValidateError),
    /// An uploaded image was refused.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A manifest is not valid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A name or number of a request is not valid.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// Placement.
    #[error(transparent)]
    Placement(#[from] fdn_scheduling::Error),
    /// A machine cannot be let in, or a node not be changed.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// A setting is not valid.
    #[error("configuration: {0}")]
    Config(String),
    /// What was asked for does not exist.
    #[error("{what} does not exist; {hint}")]
    NotFound {
        /// What.
        what: String,
        /// What to do.
        hint: &'static str,
    },
    /// The present state stands against it.
    #[error("{0}")]
    Conflict(String),
    /// The request cannot be understood.
    #[error("{0}")]
    BadRequest(String),
    /// The body of a request is larger than allowed.
    #[error("the request body is larger than {0}; send less")]
    BodyTooLarge(fdn_core::ByteSize),
    /// No credentials, or wrong ones.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// Credentials without the right.
    #[error("{who} may not do this: it needs the right to {right}")]
    Forbidden {
        /// Whose credentials they are.
        who: String,
        /// The right.
        right: &'static str,
    },
    /// Too many requests of a kind.
    #[error("{what}; try again in {} s", .after.as_secs().max(1))]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How long to wait.
        after: Duration,
    },
    /// We have a bug.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// A setting that is not valid.
    pub(crate) fn config(text: impl Into<String>) -> Self {
        Self::Config(text.into())
    }

    /// A cluster that does not exist.
    pub(crate) fn no_cluster(cluster: &fdn_core::ClusterId) -> Self {
        Self::NotFound {
            what: format!("cluster {cluster}"),
            hint: "`fdn cluster list` shows what exists, `fdn cluster create` makes one",
        }
    }

    /// A node that does not exist.
    pub(crate) fn no_node(node: &fdn_core::NodeId) -> Self {
        Self::NotFound {
            what: format!("node {node}"),
            hint: "`fdn node list` shows what exists",
        }
    }

    /// An app that does not exist.
    pub(crate) fn no_app(app: &fdn_core::AppName) -> Self {
        Self::NotFound {
            what: format!("app {app}"),
            hint: "`fdn list` shows what exists",
        }
    }
}

impl Coded for Error {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Store(error) => error.code(),
            Self::Artifacts(error) => error.code(),
            Self::Service(error) => error.code(),
            Self::Broker(error) => error.code(),
            Self::Engine(error) => error.code(),
            Self::Upload(error) => error.code(),
            Self::Validate(error) => error.code(),
            Self::Image(error) => error.code(),
            Self::Manifest(error) => error.code(),
            Self::Parse(error) => error.code(),
            Self::Placement(error) => error.code(),
            Self::Enrol(error) => error.code(),
            Self::Config(_) => ErrorCode::ConfigInvalid,
            Self::NotFound { .. } => ErrorCode::NotFound,
            Self::Conflict(_) => ErrorCode::Conflict,
            Self::BadRequest(_) => ErrorCode::BadRequest,
            Self::BodyTooLarge(_) => ErrorCode::BodyTooLarge,
            Self::Unauthenticated(_) => ErrorCode::Unauthenticated,
            Self::Forbidden { .. } => ErrorCode::Forbidden,
            Self::TooMany { .. } => ErrorCode::TooManyRequests,
            Self::Internal(_) => ErrorCode::Internal,
        }
    }

    fn fault(&self) -> Fault {
        self.code().fault()
    }

    fn retry(&self) -> Retry {
        self.code().retry()
    }
}

impl From<Error> for MaybeContended<Error> {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(StoreError::Contended(_)) => Self::Yes(error),
            _ => Self::No(error),
        }
    }
}

/// The error and all its causes, for the log.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let line = next.to_string();
        if !text.ends_with(&line) {
            text.push_str(": ");
            text.push_str(&line);
        }
        cause = next.source();
    }
    text
}
