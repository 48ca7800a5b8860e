//! Failures of calls before the response head, and whether such a call may be retried; and when an abandoned call is over.

use fdn_core::{Coded, ErrorCode};
use tokio::sync::watch;

use crate::body::Request;

/// Why a call has no response.
///
/// The variant decides whether the gateway may pass the request to another instance without asking whether the function
/// is idempotent, so an implementation returns [`CallFailure::NotSent`] only when it can prove it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// No byte of the request was passed to the instance: it is not there, refused the connection, or is paused. The
    /// request is returned complete and may be passed to another instance.
    #[error("the request was not handed to the instance: {reason}")]
    NotSent {
        /// The request, with its body untouched.
        request: Box<Request>,
        /// The cause.
        reason: String,
    },
    /// The instance may have seen the request, in whole or in part. Only an idempotent function may be called again.
    #[error("the call was interrupted: {reason}")]
    Interrupted {
        /// The cause.
        reason: String,
        /// The error code for the caller: the instance ended, or the function exceeded one of its limits.
        code: ErrorCode,
    },
}

impl CallFailure {
    /// The failure of a call whose request was not passed on.
    #[must_use]
    pub fn not_sent(request: Request, reason: impl Into<String>) -> Self {
        Self::NotSent {
            request: Box::new(request),
            reason: reason.into(),
        }
    }

    /// The failure of a call that was cut short by the end of its instance.
    #[must_use]
    pub fn interrupted(reason: impl Into<String>) -> Self {
        Self::Interrupted {
            reason: reason.into(),
            code: ErrorCode::InstanceLost,
        }
    }

    /// The request, if it may be passed to another instance as it is.
    #[must_use]
    pub fn into_request(self) -> Option<Request> {
        match self {
            Self::NotSent { request, .. } => Some(*request),
            Self::Interrupted { .. } => None,
        }
    }
}

/// Held by a runtime for as long as an instance may be working on a request. A caller that wants to know when that ends puts it into the
/// request's extensions.
///
/// A call that is abandoned need not be over: many servers continue working after their client has left. A runtime that can observe how long
/// takes the guard out of the request and drops it then; with other runtimes it is dropped with the request.
#[derive(Clone, Debug)]
pub struct CallGuard(watch::Sender<()>);

/// The observing side of a [`CallGuard`].
#[derive(Debug)]
pub struct CallOver(watch::Receiver<()>);

impl CallGuard {
    /// A guard for one request, and its observing side.
    #[must_use]
    pub fn new() -> (Self, CallOver) {
        let (sender, receiver) = watch::channel(());
        (Self(sender), CallOver(receiver))
    }

    /// Waits until the observing side is gone.
    pub(crate) async fn given_up(&self) {
        self.0.closed().await;
    }
}

impl CallOver {
    /// Whether the instance no longer works on the request.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.has_changed().is_err()
    }

    /// Waits until the instance no longer works on the request.
    pub async fn wait(mut self) {
        while self.0.changed().await.is_ok() {}
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
