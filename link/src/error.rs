//! Errors of the connection to a controller.

use fdn_core::{Coded, ErrorCode, Problem};

/// An error of the connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// No controller is connected now.
    #[error("no controller is connected")]
    NotConnected,
    /// The connection broke, or could not be made.
    #[error("{0}")]
    Broken(String),
    /// The controller says that this machine was removed from the network.
    #[error("this machine was removed from the network: its certificate no longer counts")]
    Removed,
    /// No answer came within the time limit.
    #[error("no answer within {0:?}")]
    Timeout(std::time::Duration),
    /// The controller answered with a status other than success.
    #[error("status {status}: {detail}")]
    Status {
        /// The HTTP status.
        status: u16,
        /// The error text of the answer.
        detail: String,
        /// The problem document with its error code, if the answer is one.
        problem: Option<Box<Problem>>,
    },
    /// The answer exceeds the size limit.
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
    /// The answer cannot be decoded.
    #[error("the answer cannot be understood: {0}")]
    InvalidAnswer(String),
    /// A setting is not valid.
    #[error("configuration: {0}")]
    Settings(String),
    /// Certificates or other files cannot be used.
    #[error(transparent)]
    Service(#[from] fdn_service::ServiceError),
    /// A metric was registered twice.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

impl LinkError {
    /// The HTTP status of the controller's answer, if that is the error.
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
            Self::NotConnected
            | Self::Broken(_)
            | Self::Timeout(_)
            | Self::Status { .. }
            | Self::TooLong(_)
            | Self::InvalidAnswer(_) => ErrorCode::ControllerUnreachable,
        }
    }
}
