//! Classification of the API server's errors.

use std::time::Duration;

use kube::core::Status;

use crate::error::{RuntimeError, StartError};
use crate::link::chain;
use crate::runtime::Kind;

/// Why a request did not succeed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// The API server answered with an error.
    Status(Box<Status>),
    /// The API server could not be reached, or did not answer in time.
    Away(String),
    /// The answer cannot be decoded, or the request could not be built or authenticated.
    Strange(String),
}

impl From<kube::Error> for Fault {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Status(status),
            kube::Error::SerdeError(_)
            | kube::Error::FromUtf8(_)
            | kube::Error::BuildRequest(_)
            | kube::Error::Auth(_) => Self::Strange(chain(&error)),
            other => Self::Away(chain(&other)),
        }
    }
}

impl Fault {
    /// The HTTP status, if there was an answer.
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Status(status) => Some(status.code),
            Self::Away(_) | Self::Strange(_) => None,
        }
    }

    /// Whether the object does not exist.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Status(status) if status.is_not_found())
    }

    /// Whether an object of this name already exists.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self, Self::Status(status) if status.is_already_exists())
    }

    /// Whether the object is not the one that was meant.
    pub(super) fn is_another(&self) -> bool {
        matches!(self, Self::Status(status) if status.is_conflict())
    }

    /// Whether the resource version is older than what the API server remembers.
    pub(super) fn is_gone(&self) -> bool {
        self.code() == Some(410)
    }

    /// Whether the same request may succeed a little later.
    pub(super) fn passes(&self) -> bool {
        match self {
            Self::Status(status) => matches!(status.code, 429 | 500 | 502 | 503 | 504),
            Self::Away(_) => true,
            Self::Strange(_) => false,
        }
    }

    /// How long the API server asks to wait before a retry.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let Self::Status(status) = self else {
            return None;
        };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
    }

    /// A short, fixed label for metrics.
    pub(super) fn label(&self) -> &'static str {
        match self.code() {
            Some(409) => "conflict",
            Some(410) => "gone",
            Some(429) => "throttled",
            Some(400..500) => "refused",
            Some(_) => "failed",
            None => "unreachable",
        }
    }

    pub(super) fn words(&self) -> String {
        match self {
            Self::Status(status) if status.message.is_empty() => {
                format!("{} {}", status.code, status.reason)
            }
            Self::Status(status) => status.message.clone(),
            Self::Away(words) | Self::Strange(words) => words.clone(),
        }
    }
}

/// Converts an error that cannot be caused by a specification.
pub(super) fn engine(operation: &'static str, fault: &Fault) -> RuntimeError {
    let (kind, reason) = (Kind::Kubernetes, fault.words());
    match fault {
        Fault::Status(status) if matches!(status.code, 401 | 403) => RuntimeError::Unusable {
            kind,
            reason: format!(
                "not allowed to {operation}: {reason}; grant what deploy/kubernetes/rbac.yaml lists"
            ),
        },
        Fault::Status(_) => RuntimeError::Refused {
            kind,
            operation,
            reason,
        },
        Fault::Away(_) => RuntimeError::Unreachable {
            kind,
            reason: format!("{operation}: {reason}"),
        },
        Fault::Strange(_) => RuntimeError::Unusable {
            kind,
            reason: format!("{operation}: {reason}"),
        },
    }
}

/// Converts an error of the creation of a pod.
pub(super) fn start(operation: &'static str, fault: &Fault) -> StartError {
    let reason = fault.words();
    match fault.code() {
        Some(403) if reason.contains("exceeded quota") => StartError::NoRoom { reason },
        // A policy of the cluster, such as pod security, rejects this pod.
        Some(403) if reason.contains("violates") || reason.contains("denied the request") => {
            StartError::Unsupported { reason }
        }
        Some(422) => StartError::Unsupported { reason },
        _ => engine(operation, fault).into(),
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::{Coded, ErrorCode};

    use super::*;

    fn status(code: u16, reason: &str, message: &str) -> Fault {
        Fault::Status(Status::failure(message, reason).with_code(code).boxed())
    }

    #[test]
    fn the_servers_words_become_reasons_that_a_caller_can_act_on() {
        let quota = "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1";
        let security = "pods \"x\" is forbidden: violates PodSecurity \"restricted:latest\"";
        let rights = "pods is forbidden: User \"x\" cannot create resource \"pods\"";
        for (fault, code) in [
            (status(403, "Forbidden", quota), ErrorCode::Overloaded),
            (
                status(403, "Forbidden", security),
                ErrorCode::InstanceUnsupported,
            ),
            (status(403, "Forbidden", rights), ErrorCode::ConfigInvalid),
            (
                status(422, "Invalid", "spec: bad"),
                ErrorCode::InstanceUnsupported,
            ),
            (status(500, "InternalError", "x"), ErrorCode::EngineFailed),
            (Fault::Away("refused".to_owned()), ErrorCode::EngineFailed),
        ] {
            assert_eq!(start("create the pod", &fault).code(), code, "{fault:?}");
        }
    }

    #[test]
    fn what_passes_is_tried_again_and_conflicts_are_told_apart() {
        for code in [429, 500, 502, 503, 504] {
            assert!(status(code, "", "x").passes(), "{code}");
        }
        for code in [400, 401, 403, 404, 409, 410, 422] {
            assert!(!status(code, "", "x").passes(), "{code}");
        }
        let taken = status(409, "AlreadyExists", "x");
        assert!(taken.is_taken() && !taken.is_another());
        let another = status(409, "Conflict", "x");
        assert!(another.is_another() && !another.is_taken());
    }
}
