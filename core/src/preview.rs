//! Previews: the plan and the cost of an app before it is deployed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::Candidate;
use crate::billing::Money;
use crate::form::FormTerms;
use crate::id::{AppName, ClusterId, PriceListName, StageName};
use crate::prefix::ClientPrefix;
use crate::unit::{ByteSize, DurationMs, Millis};
use crate::what_if::WhatIf;
use crate::workflow::Declaration;

/// The most client prefixes in one request.
pub const CLIENTS_MAX: usize = 1000;
/// The highest call rate in one request, per second.
pub const RATE_MAX: f64 = 1e9;

/// A request for the plan and cost of an app before it is deployed. Absent fields are as for the app now, or as its manifest says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// The app's name. The app need not exist if `manifest` or `workflow` is given.
    #[schema(value_type = String, pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    pub app: Option<AppName>,
    /// The `fdn.toml` text of the function that the app is to run; not together with `workflow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// The workflow that the app is to run, of deployed functions; not together with `manifest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Declaration>,
    /// The clients, at most 1000 prefixes. If empty: the prefixes with recent demand for the app, and those with a configured location.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientPrefix>,
    /// Calls per second of all clients together, from 0 to 1000000000, divided equally among `clients` if given. If absent, the app's
    /// present rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1e9)]
    pub rate: Option<f64>,
    /// The time of one call of each stage on a node of speed 1; measured or from the manifest if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<DurationMs>,
    /// The memory that a call of each stage holds; measured or from the manifest if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// The size of a response body, for the price; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<ByteSize>,
    /// Hypothetical changes of the network, at most 16: `cluster NAME down`, `rtt NAME +50ms`, `nodes NAME 4`. All apps are then planned as
    /// if the changes had happened, starting from their present placement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 16)]
    pub what_if: Vec<WhatIf>,
}

/// Clients that would be sent to the same clusters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannedGroup {
    /// The clients' prefixes; empty for the plan of a client of whom nothing is known.
    pub clients: Vec<ClientPrefix>,
    /// The cluster to which their calls would be sent.
    pub cluster: ClusterId,
    /// By stage: the cluster in which it would run.
    pub stages: BTreeMap<StageName, ClusterId>,
    /// The latency of a call for the client, way back included; null if unknown.
    pub latency: Option<Millis>,
    /// Why these clusters would be chosen, in words.
    pub reason: String,
    /// All clusters with their terms, best first.
    pub candidates: Vec<Candidate>,
}

/// The cost of calls by today's price list, without free units.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedPrice {
    /// The price list; absent if none is in force, in which case calls are free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_list: Option<PriceListName>,
    /// The cost of a million calls.
    pub million: Money,
    /// The cost of thirty days at the call rate of the plan.
    pub month: Money,
}

/// The plan and cost of an app before it is deployed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanPreview {
    /// The app's name; absent if the request named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppName>,
    /// The call rate that was assumed, in calls per second.
    pub rate: f64,
    /// The groups of clients, and where each would be sent.
    pub groups: Vec<PlannedGroup>,
    /// Why groups of clients could not be placed, one text each.
    pub unplaced: Vec<String>,
    /// The cost of the calls.
    pub price: PlannedPrice,
    /// The effects of the hypothetical changes; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what_if: Option<WhatIfOutcome>,
    /// The evaluation of each form in each cluster; absent if no function has several forms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forms: Vec<FormTerms>,
}

/// The effects of hypothetical changes of the network, besides where the app's clients would be sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhatIfOutcome {
    /// The app's groups of clients, and where each is sent, without the changes.
    pub before: Vec<PlannedGroup>,
    /// The number of client prefixes of other apps that would be sent elsewhere.
    pub others_moved: u64,
    /// The number of client groups of other apps that no cluster could take.
    pub others_unplaced: u64,
}
