//! Where functions can run: the runtimes of a node, and how far it is in serving an app.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::manifest::RuntimeKind;
use crate::message::{AppObserved, AppPhase};

/// A runtime in which a node runs functions.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum NodeRuntime {
    /// Sandboxes for components, inside the agent.
    Wasm,
    /// Containers of a container engine on the node.
    Docker,
    /// Pods of a Kubernetes cluster.
    Kubernetes,
}

impl NodeRuntime {
    /// The name used in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wasm => "wasm",
            Self::Docker => "docker",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// Whether functions of a kind run in it; an image runs in containers and in pods alike.
    #[must_use]
    pub const fn runs(self, kind: RuntimeKind) -> bool {
        matches!(
            (self, kind),
            (Self::Wasm, RuntimeKind::Wasm)
                | (Self::Docker | Self::Kubernetes, RuntimeKind::Docker)
        )
    }
}

/// How far an app is being served. The order is ascending in benefit to its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServingState {
    /// It could not be made ready, and nothing answers; retried after a pause.
    Failed,
    /// It is being made ready, or no node has received it yet.
    Preparing,
    /// Calls are answered.
    Ready,
}

impl AppObserved {
    /// How far the node is in serving the app. A node that prepares another revision still answers by the previous one.
    #[must_use]
    pub fn served(&self) -> ServingState {
        match (self.serves, &self.phase) {
            (Some(true), _) | (_, AppPhase::Ready) => ServingState::Ready,
            (_, AppPhase::Failed { .. }) => ServingState::Failed,
            (_, AppPhase::Fetching | AppPhase::Compiling) => ServingState::Preparing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_needs_an_engine_or_pods_and_a_component_neither() {
        let fit = |kind| {
            [
                NodeRuntime::Wasm,
                NodeRuntime::Docker,
                NodeRuntime::Kubernetes,
            ]
            .map(|runtime| runtime.runs(kind))
        };
        assert_eq!(fit(RuntimeKind::Wasm), [true, false, false]);
        assert_eq!(fit(RuntimeKind::Docker), [false, true, true]);
    }

    #[test]
    fn who_answers_by_an_older_revision_is_ready() {
        let text = |phase: &str, rest: &str| {
            format!(
                r#"{{"app":"a","revision":2,"phase":{phase},"invocations":0,"errors":0,"execution_mean":0.0{rest}}}"#
            )
        };
        let served = |phase: &str, rest: &str| {
            let observed: AppObserved = serde_json::from_str(&text(phase, rest)).expect("json");
            observed.served()
        };
        let failed = r#"{"phase":"failed","reason":"no artifact"}"#;
        let ready = r#"{"phase":"ready"}"#;
        let fetching = r#"{"phase":"fetching"}"#;
        assert_eq!(served(failed, r#","serves":true"#), ServingState::Ready);
        assert_eq!(served(failed, r#","serves":false"#), ServingState::Failed);
        assert_eq!(served(failed, ""), ServingState::Failed);
        assert_eq!(served(fetching, ""), ServingState::Preparing);
        assert_eq!(served(ready, ""), ServingState::Ready, "of an older agent");
        assert!(
            ServingState::Ready > ServingState::Preparing
                && ServingState::Preparing > ServingState::Failed
        );
    }
}
