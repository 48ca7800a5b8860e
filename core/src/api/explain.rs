//! Why calls go where they go: explanations of a client's way, and the plans that they show.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::BindingInfo;
use crate::form::FormTerms;
use crate::id::{AppName, ClusterId, FunctionName, StageName, VersionNumber};
use crate::latency::LatencyEstimate;
use crate::predicted::StageCompared;
use crate::prefix::ClientPrefix;
use crate::unit::{Millis, Revision, Timestamp};

/// An explanation of where a client's calls of an app are sent, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The app's name.
    pub app: AppName,
    /// The client for which it is explained.
    pub client: ClientPrefix,
    /// The cluster that placement chooses at this moment; null if no cluster can serve the client.
    pub chosen: Option<ClusterId>,
    /// Why there is no such cluster, or why the previous one is kept although another is slightly better, in words.
    pub reason: String,
    /// The binding by which DNS servers answer the client; null if there is none, and they answer with the nearest cluster.
    pub bound: Option<BindingInfo>,
    /// All clusters with their terms, best first.
    pub candidates: Vec<Candidate>,
    /// The cluster in which each stage of a workflow would run, in the order of the stages; absent for a plain function.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StagePlace>,
    /// The plan in force for the client, with the explanation from when it was made; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<StoredPlan>,
    /// The times that the plan assumes for each stage where the client's calls run, beside the measured ones; absent until measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actual: Vec<StageCompared>,
    /// The evaluation of each form in each cluster; absent if no function has several forms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forms: Vec<FormTerms>,
}

/// A plan in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StoredPlan {
    /// The group of clients that it was made for, named by the first of their prefixes.
    pub group: String,
    /// The revision at which it was made.
    pub revision: Revision,
    /// When the plan was made.
    pub planned_at: Timestamp,
    /// Why the plan was made as it is, in words.
    pub reason: String,
    /// All clusters with their terms at that time, best first.
    pub candidates: Vec<Candidate>,
    /// By stage: the cluster in which it runs.
    pub stages: BTreeMap<StageName, ClusterId>,
}

/// The cluster in which a stage of a workflow runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StagePlace {
    /// The stage's name.
    pub stage: StageName,
    /// The function that the stage runs.
    pub function: FunctionName,
    /// The function's version.
    pub version: VersionNumber,
    /// The cluster in which it runs.
    pub cluster: ClusterId,
}

/// A cluster as a candidate for a client, with the times of the entry stage there: `EFT = max(avail, d) + w`, latency = EFT + d (algorithm
/// Heu-Orche, equations 3 to 5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Candidate {
    /// The cluster's name.
    pub cluster: ClusterId,
    /// The round trip between client and cluster; `d` is half of it.
    pub latency: LatencyEstimate,
    /// `d(u,p)`: the one-way latency from the client to the cluster.
    pub distance: Millis,
    /// `avail[p]`: the mean wait for a slot of the cluster, of calls that come within `planner.horizon`.
    pub available: Millis,
    /// `EST`: the earliest start of the call.
    pub start: Millis,
    /// `w(c,p)`: the run time of the call at the cluster's speed, without the toll.
    pub work: Millis,
    /// The congestion toll: how much longer other calls would wait there for each call of the client. Part of no other time here.
    #[serde(default)]
    pub toll: Millis,
    /// `EFT`: the earliest finish of the call.
    pub finish: Millis,
    /// The latency of the whole call for the client, way back included.
    pub total: Millis,
    /// Why the cluster cannot be chosen; null if it can.
    pub excluded: Option<String>,
    /// Why it lost against the chosen cluster, or that it was chosen, in words.
    pub verdict: String,
}
