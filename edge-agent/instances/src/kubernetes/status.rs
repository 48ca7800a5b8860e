//! Interprets a pod's status. Pure.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStateWaiting, Pod};

use super::pod::CONTAINER;
use crate::error::{RuntimeError, StartError};
use crate::runtime::Kind;
use crate::state::{Exit, ExitReason};

/// The relevant facts about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodView {
    /// The API server's id of exactly this pod.
    pub(super) uid: String,
    /// Whether its deletion was requested, which is never undone.
    pub(super) deleting: bool,
    /// How long it then has to end.
    pub(super) grace: Duration,
    pub(super) stage: Stage,
}

/// The progress of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its container is not running yet.
    Waiting(String),
    /// Its container will not run as things are.
    Blocked(Blocked),
    /// Its container is running and has this address.
    Running(IpAddr),
    /// It has ended. The second value is present if it never had the chance to run.
    Ended(Exit, Option<Blocked>),
}

/// Why a container does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Blocked {
    /// The image cannot be pulled.
    Missing(String),
    /// The image was pulled but cannot be run.
    Invalid(String),
    /// The node does not accept the pod.
    NoRoom(String),
    /// Something that the pod refers to does not exist.
    Unsupported(String),
    /// The container engine failed.
    Failed(String),
}

impl Blocked {
    pub(super) fn error(self, image: &str) -> StartError {
        let image = image.to_owned();
        match self {
            Self::Missing(reason) => StartError::ImageMissing { image, reason },
            Self::Invalid(reason) => StartError::ImageInvalid { image, reason },
            Self::NoRoom(reason) => StartError::NoRoom { reason },
            Self::Unsupported(reason) => StartError::Unsupported { reason },
            Self::Failed(reason) => StartError::Engine(RuntimeError::Refused {
                kind: Kind::Kubernetes,
                operation: "run the container",
                reason,
            }),
        }
    }
}

/// Extracts the facts about a pod; `None` for one that was never stored, which has no uid.
pub(super) fn view(pod: &Pod) -> Option<PodView> {
    let grace = pod.metadata.deletion_grace_period_seconds;
    let grace = grace.and_then(|seconds| u64::try_from(seconds).ok());
    Some(PodView {
        uid: pod.metadata.uid.clone()?,
        deleting: pod.metadata.deletion_timestamp.is_some(),
        grace: Duration::from_secs(grace.unwrap_or_default()),
        stage: stage(pod),
    })
}

fn stage(pod: &Pod) -> Stage {
    let Some(status) = &pod.status else {
        return Stage::Waiting("no kubelet has taken it".to_owned());
    };
    let reason = status.reason.as_deref().unwrap_or_default();
    let words = || {
        let message = status.message.as_deref().unwrap_or_default();
        format!("{reason}: {message}")
    };
    let phase = status.phase.as_deref().unwrap_or_default();
    // A kubelet that is gone reports nothing any more; the cluster reports this in its place.
    if reason == "NodeLost" || phase == "Unknown" {
        return Stage::Ended(Exit::lost(), None);
    }
    // The cluster may have added other containers, such as a mesh's.
    let mut containers = status.container_statuses.iter().flatten();
    let container = containers.find(|container| container.name == CONTAINER);
    let state = container.and_then(|container| container.state.as_ref());
    if let Some(ended) = state.and_then(|state| state.terminated.as_ref()) {
        return terminated(ended, reason);
    }
    if matches!(phase, "Failed" | "Succeeded") {
        // The kubelet refused or evicted it: `OutOfmemory`, `Evicted`, `NodeAffinity`, `UnexpectedAdmissionError`, …
        let refused = (!reason.is_empty()).then(|| Blocked::NoRoom(words()));
        return Stage::Ended(Exit::lost(), refused);
    }
    if state.is_some_and(|state| state.running.is_some()) {
        return match status.pod_ip.as_deref().map(str::parse) {
            Some(Ok(address)) => Stage::Running(address),
            _ => Stage::Waiting("it has no address yet".to_owned()),
        };
    }
    if let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) {
        return self::waiting(waiting);
    }
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let unscheduled = conditions.iter().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    });
    match unscheduled {
        Some(condition) => {
            let message = condition.message.clone().unwrap_or_default();
            Stage::Blocked(Blocked::NoRoom(message))
        }
        None => Stage::Waiting("its container is not made yet".to_owned()),
    }
}

fn terminated(ended: &ContainerStateTerminated, pod_reason: &str) -> Stage {
    let reason = ended.reason.as_deref().unwrap_or_default();
    let message = ended.message.clone().unwrap_or_default();
    let code = Some(i64::from(ended.exit_code));
    match reason {
        "OOMKilled" => {
            let reason = ExitReason::OutOfMemory;
            Stage::Ended(Exit { code, reason }, None)
        }
        // It was created but could not be started: no such executable, wrong architecture, …
        "StartError" | "ContainerCannotRun" => Stage::Ended(
            Exit::ended(i64::from(ended.exit_code)),
            Some(Blocked::Invalid(format!("{reason}: {message}"))),
        ),
        // The kubelet lost track of it.
        "ContainerStatusUnknown" => Stage::Ended(Exit::lost(), None),
        _ if pod_reason == "Evicted" => Stage::Ended(
            Exit {
                code,
                reason: ExitReason::Lost,
            },
            None,
        ),
        _ => Stage::Ended(Exit::ended(i64::from(ended.exit_code)), None),
    }
}

fn waiting(waiting: &ContainerStateWaiting) -> Stage {
    let reason = waiting.reason.as_deref().unwrap_or("it waits");
    let message = waiting.message.as_deref().unwrap_or_default();
    let words = if message.is_empty() {
        reason.to_owned()
    } else {
        format!("{reason}: {message}")
    };
    match reason {
        "ErrImagePull"
        | "ImagePullBackOff"
        | "RegistryUnavailable"
        | "ErrImageNeverPull"
        | "SignatureValidationFailed" => Stage::Blocked(Blocked::Missing(words)),
        "InvalidImageName" | "ImageInspectError" => Stage::Blocked(Blocked::Invalid(words)),
        // The secret is created just after the pod that owns it; a kubelet that is faster retries.
        "CreateContainerConfigError" if message.contains("secret") => Stage::Waiting(words),
        "CreateContainerConfigError" if message.contains("runAsNonRoot") => {
            Stage::Blocked(Blocked::Invalid(format!(
                "{words}; give the image a user that is not root (by number), or set kubernetes.user"
            )))
        }
        "CreateContainerConfigError" => Stage::Blocked(Blocked::Unsupported(words)),
        "CreateContainerError" | "RunContainerError" => {
            let image = ["no such file", "executable", "exec format", "no command"];
            let blocked = if image.iter().any(|part| message.contains(part)) {
                Blocked::Invalid
            } else {
                Blocked::Failed
            };
            Stage::Blocked(blocked(words))
        }
        _ => Stage::Waiting(words),
    }
}
