//! Why the centre was not asked, or did not answer.

use fdn_core::{Coded, ErrorCode, Problem};

/// An error of the connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// No controller is connected now.
    #[error("no controller is connected")]
    Away,
    /// The connection broke, or could not be made.
    #[error("{0}")]
    Broken(String),
    /// The controller says that this machine was removed.
    #[error("this machine was removed from the network: its certificate no longer counts")]
    Removed,
    /// The answer took too long.
    #[error("no answer within {0:?}")]
    Slow(std::time::Duration),
    /// The controller answered with another status.
    #[error("status {status}: {detail}")]
    Status {
        /// The status.
        status: u16,
        /// What it says.
        detail: String,
        /// The same with its code, if it is a controller's.
        problem: Option<Box<Problem>>,
    },
    /// The answer is longer than is read.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// The answer cannot be understood.
    #[error("the answer cannot be understood: {0}")]
    Foreign(String),
    /// A setting cannot be used.
    #[error("configuration: {0}")]
    Settings(String),
    /// Certificates cannot be used.
    #[error(transparent)]
    Service(#[from] fdn_service::ServiceError),
    /// A metric was registered twice.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

impl LinkError {
    /// The status that the controller answered with, if it did.
    #[must_use]
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

impl Coded for LinkError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Settings(_) => ErrorCode::ConfigInvalid,
            Self::Service(error) => error.code(),
            Self::Metrics(_) => ErrorCode::Internal,
            Self::Removed => ErrorCode::CertificateRefused,
            Self::Away
            | Self::Broken(_)
            | Self::Slow(_)
            | Self::Status { .. }
            | Self::TooLong(_)
            | Self::Foreign(_) => ErrorCode::ControllerUnreachable,
        }
    }
}
