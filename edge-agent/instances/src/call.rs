//! A call that got no response head, and whether it may be made again.

use fdn_core::{Coded, ErrorCode};

use crate::body::Request;

/// Why a call has no response.
///
/// The difference decides whether the gateway may hand the request to another instance without asking whether the function
/// is idempotent, so an implementation says [`CallFailure::NotSent`] only when it can prove it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// No octet of the request was handed to the instance: it is not there, refused the connection, or is paused. The
    /// request comes back whole and may be given to another instance.
    #[error("the request was not handed to the instance: {reason}")]
    NotSent {
        /// The request, with its body untouched.
        request: Box<Request>,
        /// What happened.
        reason: String,
    },
    /// The instance may have seen the request, wholly or in part. Only an idempotent function may be called again.
    #[error("the call was interrupted: {reason}")]
    Interrupted {
        /// What happened.
        reason: String,
        /// What the caller is told: the instance ended, or the function passed one of its limits.
        code: ErrorCode,
    },
}

impl CallFailure {
    /// A request that was not handed over.
    #[must_use]
    pub fn not_sent(request: Request, reason: impl Into<String>) -> Self {
        Self::NotSent {
            request: Box::new(request),
            reason: reason.into(),
        }
    }

    /// A call that an instance's end cut short.
    #[must_use]
    pub fn interrupted(reason: impl Into<String>) -> Self {
        Self::Interrupted {
            reason: reason.into(),
            code: ErrorCode::InstanceLost,
        }
    }

    /// The request, where it may be given to another instance as it is.
    #[must_use]
    pub fn into_request(self) -> Option<Request> {
        match self {
            Self::NotSent { request, .. } => Some(*request),
            Self::Interrupted { .. } => None,
        }
    }
}

impl Coded for CallFailure {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NotSent { .. } => ErrorCode::NotReady,
            Self::Interrupted { code, .. } => *code,
        }
    }
}
