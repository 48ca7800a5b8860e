//! A call that got no response head, and whether it may be made again; and when a call that nobody waits for any more is over.

use fdn_core::{Coded, ErrorCode};
use tokio::sync::watch;

use crate::body::Request;

/// Why a call has no response.
///
/// The difference decides whether the gateway may hand the request to another instance without asking whether the function
/// is idempotent, so an implementation says [`CallFailure::NotSent`] only when it can prove it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// No byte of the request was handed to the instance: it is not there, refused the connection, or is paused. The
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

/// Held by a runtime for as long as an instance may work on a request. Whoever wants to know when that is over puts it into the
/// request's extensions.
///
/// A call that is given up need not be over: many servers work on after their client has left. A runtime that can see how long
/// takes it out of the request and drops it then; with any other it goes with the request.
#[derive(Clone, Debug)]
pub struct CallGuard(watch::Sender<()>);

/// The other side of a [`CallGuard`].
#[derive(Debug)]
pub struct CallOver(watch::Receiver<()>);

impl CallGuard {
    /// For one request.
    #[must_use]
    pub fn new() -> (Self, CallOver) {
        let (sender, receiver) = watch::channel(());
        (Self(sender), CallOver(receiver))
    }

    /// Waits until nobody wants to know any more.
    pub(crate) async fn given_up(&self) {
        self.0.closed().await;
    }
}

impl CallOver {
    /// Whether the instance works on the request no more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.has_changed().is_err()
    }

    /// Waits for that.
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
