//! The trace of one call: what nodes have recorded of it, and the present plan and DNS binding of its client. The body of `GET
//! /v1/apps/{app}/calls/trace`.
//!
//! All revisions are from one counter, so they can be compared: that of a plan, of the bindings it led to, of the desired state by which
//! a gateway served.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::Explanation;
use crate::id::{AppName, ClusterId, NodeId};
use crate::predicted::Compared;
use crate::prefix::ClientPrefix;
use crate::runs::RunInfo;
use crate::unit::{Millis, Revision, Timestamp};
use crate::usage::{CallLine, PlanUse};

/// The trace of a call, joined from all records of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallTrace {
    /// The app's name.
    pub app: AppName,
    /// The request id of the call.
    pub request: String,
    /// The trace id (W3C Trace Context), 32 hexadecimal digits.
    pub trace: String,
    /// The address prefix of the client; absent if its address is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientPrefix>,
    /// The gateway at which the call arrived.
    pub gateway: CallPlace,
    /// The present revisions of the app.
    pub told: PresentRevisions,
    /// The calls of functions, in order of arrival; for a workflow, those of each stage.
    pub calls: Vec<TracedCall>,
    /// The workflow run that the call began; absent for a plain function, or if the run is no longer stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunInfo>,
    /// The present explanation of where DNS sends the client, by which plan, and why; absent if the client's address is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<Explanation>,
    /// How the call differs from the present state, one text per difference; absent if it would be routed the same way again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
    /// The number of calls with the same request id in other traces, since clients may reuse an id; the newest trace is shown.
    #[serde(default)]
    pub others: u32,
    /// Living nodes that did not answer in time: calls that they served are missing. Absent if all answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<NodeId>,
}

impl CallTrace {
    /// When the call arrived.
    #[must_use]
    pub fn started_at(&self) -> Timestamp {
        let calls = self.calls.iter().map(|call| call.call.started_at);
        let run = self.run.iter().map(|run| run.started_at);
        run.chain(calls).min().unwrap_or_default()
    }
}

/// A node and its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallPlace {
    /// The node's name.
    pub node: NodeId,
    /// The node's cluster; absent if the node is no longer alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
}

/// The present revisions of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Told)]
pub struct PresentRevisions {
    /// The revision of the desired state that nodes are sent.
    pub nodes: Revision,
    /// The revision of the bindings that DNS servers are sent.
    pub dns: Revision,
}

/// A call of a function, as recorded by the node that served it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TracedCall {
    /// The node's record of the call.
    #[serde(flatten)]
    pub call: CallLine,
    /// The node's cluster; absent if the node is no longer alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// The times that the plan assumes now for calls there, beside those of this call; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<CallPredicted>,
}

/// Predicted times of a call, beside the measured ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CallPredicted {
    /// The wait until the call is admitted.
    pub queue: Compared,
    /// The time until the call has an instance, plus the time from there to the head of the response.
    pub execution: Compared,
}

impl CallLine {
    /// The time after the head of the response was available: sending it, and the function's end, in microseconds.
    #[must_use]
    pub const fn rest_us(&self) -> u64 {
        let before = self
            .wait_us
            .saturating_add(self.start_us)
            .saturating_add(self.head_us);
        self.total_us.saturating_sub(before)
    }
}

/// A run that began this long before or after a call belongs to an earlier use of its request id.
const RUN_NEAR_MS: u64 = 60_000;

/// The calls of one trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceCalls {
    /// In the order of their arrival; never empty.
    calls: Vec<CallLine>,
    /// How many other calls have the same request id.
    others: u32,
}

impl TraceCalls {
    /// Of all calls with one request id, those of the trace of the newest one; `None` if there is no call.
    #[must_use]
    pub fn newest(mut calls: Vec<CallLine>) -> Option<Self> {
        calls.sort_by_key(|call| (call.started_at, call.invocation));
        let trace = calls.last()?.trace.clone();
        let all = calls.len();
        calls.retain(|call| call.trace == trace);
        let others = u32::try_from(all - calls.len()).unwrap_or(u32::MAX);
        Some(Self { calls, others })
    }

    /// The call that arrived first.
    fn first(&self) -> &CallLine {
        &self.calls[0]
    }

    /// The client prefix of the caller, if it is known.
    #[must_use]
    pub fn client(&self) -> Option<ClientPrefix> {
        self.calls.iter().find_map(|call| call.routed.client)
    }

    /// The run that the call began: of those with its request id, the one that began nearest to it in time; `None` if none is near enough.
    #[must_use]
    pub fn run(&self, runs: Vec<RunInfo>) -> Option<RunInfo> {
        let at = self.first().started_at.get();
        let far = |run: &RunInfo| run.started_at.get().abs_diff(at);
        let near = runs.into_iter().filter(|run| far(run) <= RUN_NEAR_MS);
        near.min_by_key(far)
    }
}

/// The data with which a call is joined.
#[derive(Clone, Debug)]
pub struct TraceSources<F> {
    /// The app.
    pub app: AppName,
    /// The cluster of a living node, by name.
    pub cluster_of: F,
    /// The present revisions of the app.
    pub told: PresentRevisions,
    /// The run that the call began, if any.
    pub run: Option<RunInfo>,
    /// The present explanation of where its client's calls go.
    pub explained: Option<Explanation>,
    /// Living nodes that did not answer the search.
    pub silent: Vec<NodeId>,
}

/// Joins the calls of a trace with the other data.
#[must_use]
pub fn join<F: Fn(&NodeId) -> Option<ClusterId>>(
    chosen: TraceCalls,
    sources: TraceSources<F>,
) -> CallTrace {
    let first = chosen.first();
    let gateway = match &sources.run {
        Some(run) => CallPlace {
            node: run.node.clone(),
            cluster: Some(run.cluster.clone()),
        },
        None => {
            let node = first.routed.via.as_ref().unwrap_or(&first.node);
            CallPlace {
                cluster: (sources.cluster_of)(node),
                node: node.clone(),
            }
        }
    };
    let client = chosen.client();
    let (request, trace) = (first.request.clone(), first.trace.clone());
    let differs = differs(&chosen.calls, &gateway, &sources);
    let calls = chosen.calls.into_iter().map(|call| {
        let cluster = (sources.cluster_of)(&call.node);
        let explained = sources.explained.as_ref();
        TracedCall {
            predicted: explained.and_then(|why| predicted(&call, cluster.as_ref()?, why)),
            cluster,
            call,
        }
    });
    CallTrace {
        calls: calls.collect(),
        app: sources.app,
        request,
        trace,
        client,
        gateway,
        told: sources.told,
        run: sources.run,
        explained: sources.explained,
        differs,
        others: chosen.others,
        silent: sources.silent,
    }
}

/// The plan's predicted terms for a call that ran in this cluster. A plain function has one stage, whatever its name.
fn predicted(call: &CallLine, cluster: &ClusterId, why: &Explanation) -> Option<CallPredicted> {
    let mut stages = why.actual.iter();
    let place = stages.find(|place| {
        let stage = call.routed.stage.as_ref();
        place.cluster == *cluster && stage.is_none_or(|stage| *stage == place.stage)
    })?;
    let term = |of: &Compared, took_us: u64| Compared {
        predicted: of.predicted,
        actual: Some(Millis::from(std::time::Duration::from_micros(took_us))),
    };
    Some(CallPredicted {
        queue: term(&place.queue, call.wait_us),
        execution: term(&place.execution, call.start_us.saturating_add(call.head_us)),
    })
}

fn differs<F>(calls: &[CallLine], gateway: &CallPlace, sources: &TraceSources<F>) -> Vec<String> {
    let mut all = Vec::new();
    let first = &calls[0];
    let now = sources.told.nodes;
    let led = sources.run.iter().map(|run| run.revision);
    let served = calls.iter().filter_map(|call| call.routed.revision);
    let revisions: BTreeSet<Revision> = led.chain(served).collect();
    let named: Vec<String> = revisions.iter().map(ToString::to_string).collect();
    if revisions.len() > 1 {
        let list = named.join(", ");
        all.push(format!("it was served by different revisions: {list}"));
    }
    if revisions.iter().any(|revision| *revision < now) {
        let oldest = &named[0];
        all.push(format!(
            "it was served by revision {oldest}, and nodes are told {now} now"
        ));
    }
    if calls.iter().any(|call| call.routed.revision.is_none()) {
        all.push("a node of an earlier release served it and kept no revision".to_owned());
    }
    match first.routed.plan_use {
        PlanUse::Used => {}
        PlanUse::Leaving => all.push(
            "no plan sent anybody to its cluster any more: it came by an older DNS answer"
                .to_owned(),
        ),
        PlanUse::Unused => all.push(
            "no plan sent anybody to its cluster: it came by an old DNS answer, by one for clients without a plan, or past DNS".to_owned(),
        ),
    }
    let Some(why) = &sources.explained else {
        return all;
    };
    if let (Some(bound), Some(cluster)) = (&why.bound, &gateway.cluster)
        && bound.cluster != *cluster
    {
        all.push(format!(
            "it came to {cluster}, and clients in {} are sent to {} since revision {}",
            bound.prefix, bound.cluster, bound.revision
        ));
    }
    if let Some(plan) = &why.plan
        && plan.planned_at > first.started_at
    {
        let revision = plan.revision;
        all.push(format!("the plan of revision {revision} was made after it"));
    }
    all
}

#[cfg(test)]
mod tests;
