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

/// Asks what would be planned. What is absent is as it is for the app now, or as the manifest says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// The app, which need not exist.
    #[schema(value_type = String, pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    pub app: Option<AppName>,
    /// The text of `fdn.toml` of a function that it is to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<String>,
    /// The workflow that it is to run; its functions must be deployed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Declaration>,
    /// Its clients; those that asked for it lately if empty, or those whose places are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientPrefix>,
    /// Calls per second of all clients together, shared alike if clients are named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1e9)]
    pub rate: Option<f64>,
    /// The time of one call of each stage on a node of speed 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<DurationMs>,
    /// The memory that a call of each stage holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// The length of an answer, for the price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<ByteSize>,
    /// Changes of the network, 16 at most: `cluster NAME down`, `rtt NAME +50ms`, `nodes NAME 4`. All apps are then planned as if they had happened,
    /// from where their clients are now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 16)]
    pub what_if: Vec<WhatIf>,
}

/// Clients that would be sent alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannedGroup {
    /// The clients; none for a client nobody knows anything about.
    pub clients: Vec<ClientPrefix>,
    /// Where their calls would come to.
    pub cluster: ClusterId,
    /// Where each stage would run.
    pub stages: BTreeMap<StageName, ClusterId>,
    /// The time of a call as the client feels it, way back included; unknown if absent.
    pub latency: Option<Millis>,
    /// Why there.
    pub reason: String,
    /// Every cluster with its terms, best first.
    pub candidates: Vec<Candidate>,
}

/// What calls would cost at the price list of today, with nothing free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlannedPrice {
    /// The price list; if absent none is in force, and calls cost nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_list: Option<PriceListName>,
    /// A million calls.
    pub million: Money,
    /// Thirty days at the rate.
    pub month: Money,
}

/// What would be planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanPreview {
    /// The app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppName>,
    /// Calls per second that were counted with.
    pub rate: f64,
    /// Where clients would be sent.
    pub groups: Vec<PlannedGroup>,
    /// Why clients could not be placed, for each group of them.
    pub unplaced: Vec<String>,
    /// What it would cost.
    pub price: PlannedPrice,
    /// What the changes that were asked about come to; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what_if: Option<WhatIfOutcome>,
    /// What each form would come to in each cluster, of functions that have several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forms: Vec<FormTerms>,
}

/// What changes of the network come to, beside where the app's clients would be sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhatIfOutcome {
    /// Where the app's clients would be sent without them.
    pub before: Vec<PlannedGroup>,
    /// Clients of other apps that would be sent elsewhere.
    pub others_moved: u64,
    /// Client groups of other apps that no cluster could take.
    pub others_unplaced: u64,
}
