//! The rules by which the stages of a workflow are run, beside the DAG.
//!
//! Separate from [`Workflow`], whose serialized form is older: a process that does not know rules still reads the same DAG.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Workflow;
use crate::id::{ClusterId, StageName};
use crate::unit::DurationMs;

/// The default timeout of a whole workflow.
pub const TIMEOUT: DurationMs = DurationMs::from_secs(60);
/// The default pause before the first retry of a stage; it doubles with each retry.
pub const BACKOFF: DurationMs = DurationMs::from_millis(100);

/// The condition on its parents' ends under which a stage runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// All parents succeeded.
    #[default]
    Success,
    /// At least one parent failed. A skipped parent has not failed.
    Failure,
    /// All parents have ended, in whatever way.
    Always,
}

/// The rules by which a stage is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StageRules {
    /// The path and query with which the function is called; if absent, those of the caller for the entry stage, and `/` for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The time limit of one attempt; the function's own timeout applies if it is shorter or this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationMs>,
    /// The most retries, where they are safe: the function has certainly not begun, or is idempotent. 0 if absent.
    #[serde(default)]
    pub retries: u32,
    /// The pause before the first retry; it doubles with each further one. `100ms` if absent.
    #[serde(default = "backoff")]
    pub backoff: DurationMs,
    /// The condition on its parents' ends under which the stage runs; `success` if absent.
    #[serde(default)]
    pub when: Condition,
}

const fn backoff() -> DurationMs {
    BACKOFF
}

impl Default for StageRules {
    fn default() -> Self {
        Self {
            path: None,
            timeout: None,
            retries: 0,
            backoff: BACKOFF,
            when: Condition::Success,
        }
    }
}

/// A workflow as it was deployed, with all versions resolved and all rules included. It never changes; a change is a new version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Definition {
    /// The stages and the data flow between them.
    pub workflow: Workflow,
    /// The time limit of a whole run.
    pub timeout: DurationMs,
    /// By stage: the rules that differ from the defaults; stages without an entry have the defaults.
    #[serde(default)]
    pub rules: BTreeMap<StageName, StageRules>,
}

impl Definition {
    /// The rules of a stage; the defaults if it has none.
    #[must_use]
    pub fn rules_of(&self, stage: &StageName) -> StageRules {
        self.rules.get(stage).cloned().unwrap_or_default()
    }
}

/// How an app's workflow is run, for nodes; sent beside the DAG.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The time limit of a whole run.
    pub timeout: DurationMs,
    /// By stage: the rules that differ from the defaults.
    #[serde(default)]
    pub rules: BTreeMap<StageName, StageRules>,
    /// By entry cluster, then by stage: the cluster that runs the stage, for stages that do not run in the entry cluster itself. An
    /// entry cluster that is not listed runs all of them.
    #[serde(default)]
    pub placement: BTreeMap<ClusterId, BTreeMap<StageName, ClusterId>>,
}

impl RunSpec {
    /// The rules of a stage; the defaults if it has none.
    #[must_use]
    pub fn rules_of(&self, stage: &StageName) -> StageRules {
        self.rules.get(stage).cloned().unwrap_or_default()
    }

    /// The cluster that runs a stage for calls that arrived at `entry`.
    #[must_use]
    pub fn cluster_of<'a>(&'a self, stage: &StageName, entry: &'a ClusterId) -> &'a ClusterId {
        let elsewhere = self.placement.get(entry).and_then(|map| map.get(stage));
        elsewhere.unwrap_or(entry)
    }

    /// Whether any plan runs a stage in `cluster`.
    #[must_use]
    pub fn runs_in(&self, stage: &StageName, cluster: &ClusterId) -> bool {
        self.placement
            .keys()
            .any(|entry| self.cluster_of(stage, entry) == cluster)
    }
}
