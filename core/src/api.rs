//! Bodies of the controller's HTTP API, shared by controller, CLI, agents and DNS, and documented by OpenAPI.
//!
//! Paths under `/v1/` are for people and their tools (session token in `Authorization: Bearer`); paths under `/agent/v1/`, `/internal/v1/`
//! and `/dns/v1/` are for the network's own processes (network token or a node's own, same header). A machine that joins brings its join
//! token in the body, one that renews its certificate a signature. Errors are [`crate::Problem`]s.
//!
//! [`CreateCluster`]: crate::fleet::CreateCluster
//! [`ClusterDetail`]: crate::fleet::ClusterDetail
//! [`NodeDetail`]: crate::fleet::NodeDetail
//! [`CreateJoinToken`]: crate::fleet::CreateJoinToken
//! [`CreatedJoinToken`]: crate::fleet::CreatedJoinToken
//! [`JoinTokenInfo`]: crate::fleet::JoinTokenInfo
//! [`EnrolRequest`]: crate::enrol::EnrolRequest
//! [`EnrolResponse`]: crate::enrol::EnrolResponse
//! [`RenewRequest`]: crate::enrol::RenewRequest
//! [`RenewResponse`]: crate::enrol::RenewResponse
//! [`LeaseRequest`]: crate::enrol::LeaseRequest
//! [`LeaseResponse`]: crate::enrol::LeaseResponse
//!
//! | call | body | answer |
//! | --- | --- | --- |
//! | `POST /v1/login` | [`LoginRequest`] | [`LoginResponse`] |
//! | `GET /v1/network` | | [`NetworkInfo`] |
//! | `GET /v1/clusters`, `GET /v1/nodes` | | [`ClusterInfo`]s, [`NodeInfo`]s |
//! | `POST /v1/clusters` | [`CreateCluster`] | [`ClusterInfo`] |
//! | `GET /v1/clusters/{cluster}` | | [`ClusterDetail`] |
//! | `GET /v1/nodes/{node}` | | [`NodeDetail`] |
//! | `POST /v1/nodes/{node}/drain`, `POST /v1/nodes/{node}/uncordon` | | [`NodeDetail`] |
//! | `DELETE /v1/nodes/{node}?force=BOOL` | | 204 |
//! | `POST /v1/join-tokens` | [`CreateJoinToken`] | [`CreatedJoinToken`] |
//! | `GET /v1/join-tokens` | | [`JoinTokenInfo`]s |
//! | `DELETE /v1/join-tokens/{token}` | | 204 |
//! | `POST /v1/nodes/enrol` | [`EnrolRequest`] | [`EnrolResponse`] |
//! | `POST /v1/nodes/renew` | [`RenewRequest`] | [`RenewResponse`] |
//! | `POST /internal/v1/clusters/{cluster}/head-lease` | [`LeaseRequest`] | [`LeaseResponse`] |
//! | `GET /v1/apps` | | [`AppSummary`]s |
//! | `POST /v1/apps/{app}/versions` | multipart: `manifest` (TOML, optional), `secrets` (JSON object, optional), `component` | [`DeployResponse`] |
//! | `GET /v1/apps/{app}` | | [`AppDetail`] |
//! | `POST /v1/apps/{app}/rollback` | [`RollbackRequest`] | [`AppDetail`] |
//! | `DELETE /v1/apps/{app}` | | 204 |
//! | `GET /v1/apps/{app}/explain?client=ADDR` | | [`Explanation`] |
//! | `GET /v1/apps/{app}/logs?follow=BOOL&tail=N` | | [`LogLine`]s, one JSON object a line (`application/x-ndjson`) |
//! | `GET /agent/v1/apps` | | [`AppsSnapshot`] |
//! | `GET /agent/v1/artifacts/{digest}` | | octets, with `Range` |
//! | `POST /agent/v1/usage` | [`UsageBatch`](crate::usage::UsageBatch) | [`UsageReceipt`](crate::usage::UsageReceipt) |
//! | `GET /dns/v1/snapshot` | | [`DnsSnapshot`] |
//!
//! An agent's admin listener answers `GET /logs/{app}?follow=BOOL&tail=N` the same way, besides `/healthz`, `/readyz`, `/metrics`.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::digest::Digest;
use crate::fleet::{FleetDesired, NodeState};
use crate::geo::GeoPoint;
use crate::id::{
    AppName, ClusterId, FunctionName, HostName, InstanceId, NodeId, RegionName, VersionNumber,
};
use crate::latency::LatencyEstimate;
use crate::manifest::Manifest;
use crate::message::{AppDesired, AppObserved, BindingsDesired, NetworkDesired};
use crate::prefix::ClientPrefix;
use crate::resources::Resources;
use crate::unit::{Millis, Revision, Timestamp};
use crate::workflow::Workflow;

/// Credentials.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginRequest {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: String,
}

/// A session.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct LoginResponse {
    /// Sent from now on as `Authorization: Bearer TOKEN`.
    pub token: String,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// What a client must know of the network to use it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NetworkInfo {
    /// The controller's version.
    pub version: String,
    /// The zone under which apps get their host names.
    #[schema(value_type = String)]
    pub zone: HostName,
    /// Where the Smart DNS listens, if it is not the public one.
    #[schema(value_type = Option<String>)]
    pub dns: Option<SocketAddr>,
    /// The port of the gateways.
    pub gateway_port: u16,
    /// The largest component that can be uploaded, in octets.
    pub upload_limit: u64,
}

/// How a cluster is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterInfo {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its region.
    pub region: RegionName,
    /// Where it is.
    pub location: GeoPoint,
    /// Nodes that told how they are within the last seconds.
    pub nodes_alive: u32,
    /// All its nodes.
    pub nodes_total: u32,
    /// Speed of its fastest node relative to the reference machine.
    pub speed: f64,
    /// What its living nodes have.
    pub capacity: Resources,
    /// What is free of it.
    pub free: Resources,
    /// Calls that its living nodes can run at once.
    pub slots: u32,
    /// Calls that run now.
    pub busy: u32,
    /// Its gateways.
    #[schema(value_type = Vec<String>)]
    pub gateways: Vec<SocketAddr>,
}

/// How a node is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeInfo {
    /// The node.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its gateway.
    #[schema(value_type = String)]
    pub gateway: SocketAddr,
    /// Where it serves health, metrics and logs.
    #[schema(value_type = String)]
    pub admin: SocketAddr,
    /// The agent's version.
    pub version: String,
    /// Whether it told how it is within the last seconds.
    pub alive: bool,
    /// How it is, in one word.
    pub state: NodeState,
    /// Whether it is to take no new work; `state` tells how far that is.
    pub cordoned: bool,
    /// When it last did.
    pub seen_at: Timestamp,
    /// What it has.
    pub capacity: Resources,
    /// What is free of it.
    pub free: Resources,
    /// Calls that can run at once.
    pub slots: u32,
    /// Calls that run now.
    pub busy: u32,
    /// Its apps.
    pub apps: Vec<AppObserved>,
}

/// One step of the validation of an upload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ValidationStep {
    /// What was checked: `size`, `format`, `exports`, `imports`, `compile`, `probe`.
    pub step: String,
    /// What was found.
    pub result: String,
    /// How long it took.
    pub took: Millis,
}

/// A version that was accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeployResponse {
    /// The app.
    pub app: AppName,
    /// The version's number.
    pub version: VersionNumber,
    /// The component's digest.
    pub digest: Digest,
    /// Its size in octets.
    pub size: u64,
    /// The app's host name.
    pub host: HostName,
    /// The revision of desired state that makes it current.
    pub revision: Revision,
    /// Whether this version existed before with the same component, manifest and secrets: nothing was changed.
    pub unchanged: bool,
    /// What was checked.
    pub validation: Vec<ValidationStep>,
}

/// A line of the app list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppSummary {
    /// The app.
    pub app: AppName,
    /// Its host name.
    pub host: HostName,
    /// The current version.
    pub version: VersionNumber,
    /// The current component's digest.
    pub digest: Digest,
    /// The revision of desired state.
    pub revision: Revision,
    /// When the current version was made current.
    pub deployed_at: Timestamp,
    /// Living nodes that serve the current revision.
    pub nodes_ready: u32,
    /// Living nodes.
    pub nodes_total: u32,
}

/// One immutable version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionInfo {
    /// Its number.
    pub version: VersionNumber,
    /// The component's digest.
    pub digest: Digest,
    /// Its size in octets.
    pub size: u64,
    /// When it was uploaded.
    pub created_at: Timestamp,
    /// Its manifest.
    pub manifest: Manifest,
}

/// Where the clients of a group are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BindingInfo {
    /// The clients.
    pub prefix: ClientPrefix,
    /// The cluster.
    pub cluster: ClusterId,
    /// The plan's revision.
    pub revision: Revision,
}

/// Everything about an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppDetail {
    /// The line of the list.
    #[serde(flatten)]
    pub summary: AppSummary,
    /// The DAG.
    pub workflow: Workflow,
    /// All versions, newest first.
    pub versions: Vec<VersionInfo>,
    /// Where known client prefixes are sent.
    pub bindings: Vec<BindingInfo>,
    /// How far each living node is.
    pub nodes: Vec<NodeProgress>,
}

/// How far one node is with the app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeProgress {
    /// The node.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// What it knows of the app; nothing yet if absent.
    pub observed: Option<AppObserved>,
}

/// Which version to go back to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackRequest {
    /// The version; the one before the current if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionNumber>,
}

/// Why a client's calls go where they go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The app.
    pub app: AppName,
    /// The client asked about.
    pub client: ClientPrefix,
    /// The cluster that the plan chooses now.
    pub chosen: Option<ClusterId>,
    /// Why there is none, or why the chosen one is kept although another would be a little better.
    pub reason: String,
    /// The binding that DNS has been given for the client, if any; without one DNS answers with the nearest cluster.
    pub bound: Option<BindingInfo>,
    /// Every cluster, best first.
    pub candidates: Vec<Candidate>,
}

/// One cluster's terms for the entry stage: `EFT = max(avail, d) + w`, latency = EFT + d (algorithm Heu-Orche, equations 3 to 5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Candidate {
    /// The cluster.
    pub cluster: ClusterId,
    /// The client's distance; one way, `d`, is half the round trip.
    pub latency: LatencyEstimate,
    /// `d(u,p)`: one way.
    pub distance: Millis,
    /// `avail[p]`: until a slot is free.
    pub available: Millis,
    /// `EST`: earliest start.
    pub start: Millis,
    /// `w(c,p)`: the work at this cluster's speed.
    pub work: Millis,
    /// `EFT`: earliest finish.
    pub finish: Millis,
    /// The whole call as the client feels it, way back included.
    pub total: Millis,
    /// `None`: the cluster may be chosen. Otherwise why not.
    pub excluded: Option<String>,
    /// Why it lost against the chosen one, or that it won.
    pub verdict: String,
}

/// Where a log line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// The function's standard output.
    Stdout,
    /// The function's standard error.
    Stderr,
    /// The node: why a call ended badly.
    System,
}

/// One line of a function's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// When it was captured.
    pub at: Timestamp,
    /// The app.
    pub app: AppName,
    /// The function.
    pub function: FunctionName,
    /// The version.
    pub version: VersionNumber,
    /// The node.
    pub node: NodeId,
    /// The instance that wrote it.
    pub instance: InstanceId,
    /// The call's request id.
    pub request: String,
    /// Which stream.
    pub stream: LogStream,
    /// The text, without the newline.
    pub text: String,
}

/// Desired state of all apps, for a node that may have missed messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppsSnapshot {
    /// Everything up to this revision is in it; an app that a node holds at an older revision and that is not listed is gone.
    pub revision: Revision,
    /// The apps that exist.
    pub apps: Vec<AppDesired>,
    /// The machines; absent from a controller that knows nothing of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetDesired>,
}

/// Everything a DNS server answers from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DnsSnapshot {
    /// Everything up to this revision is in it.
    pub revision: Revision,
    /// Clusters and latency map.
    pub network: NetworkDesired,
    /// Bindings of the apps that exist.
    pub apps: Vec<BindingsDesired>,
}

/// Headers by which a gateway tells where a call ran and how long each part took.
pub mod header {
    /// The request id, taken from the client if it sent a sane one.
    pub const REQUEST_ID: &str = "x-request-id";
    /// The cluster that served the call.
    pub const CLUSTER: &str = "x-fdn-cluster";
    /// The node that served the call.
    pub const NODE: &str = "x-fdn-node";
    /// The function version that served the call.
    pub const VERSION: &str = "x-fdn-version";
    /// The error code, on answers the gateway made itself.
    pub const ERROR: &str = "x-fdn-error";
    /// RFC 9110-style timing list of the Server-Timing draft: `start;dur=0.01, exec;dur=1.2`.
    pub const TIMING: &str = "server-timing";
}
