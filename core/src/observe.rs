//! The console's views of the network: bodies of `/v1/traffic`, `/v1/latencies`, `/v1/dns/lookup`, `/v1/apps/{app}/bindings` and
//! `/v1/apps/{app}/try`.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ErrorCode;
use crate::geo::GeoPoint;
use crate::id::{AppName, ClusterId, HostName, NodeId, RegionName, StageName, VersionNumber};
use crate::latency::LatencySource;
use crate::prefix::ClientPrefix;
use crate::unit::{DurationMs, Millis, Revision, Timestamp};

/// Clusters, and where the clients are that DNS sends to them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrafficMap {
    /// As of when.
    pub at: Timestamp,
    /// All clusters, by name.
    pub clusters: Vec<TrafficCluster>,
    /// Where clients are sent to, those with most demand first.
    pub flows: Vec<TrafficFlow>,
}

/// How a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClusterHealth {
    /// All its nodes are alive.
    Up,
    /// Some of its nodes are alive.
    Degraded,
    /// None of its nodes is alive.
    Down,
}

/// A cluster on the map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrafficCluster {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its region.
    pub region: RegionName,
    /// Where it is.
    pub location: GeoPoint,
    /// How it is.
    pub health: ClusterHealth,
    /// Nodes that told how they are within the last seconds.
    pub nodes_alive: u32,
    /// All its nodes.
    pub nodes_total: u32,
    /// Calls that its living nodes can run at once.
    pub slots: u32,
    /// Calls that run now.
    pub busy: u32,
    /// Calls per second of the apps that the caller sees, over the last minute.
    pub calls_per_second: f64,
    /// The part of them that was answered 5xx, from 0 to 1.
    pub error_rate: f64,
}

/// Clients of one place who are sent to one cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrafficFlow {
    /// The cluster.
    pub cluster: ClusterId,
    /// Where the clients are; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<GeoPoint>,
    /// How many client prefixes.
    pub prefixes: u32,
    /// One of them.
    pub example: ClientPrefix,
    /// Their part of all recent demand, from 0 to 1.
    pub share: f64,
    /// The cluster's calls per second split by demand: an estimate.
    pub calls_per_second: f64,
}

/// How far the clusters are from clients of a prefix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatencyRow {
    /// The clients.
    pub prefix: ClientPrefix,
    /// Where they are; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<GeoPoint>,
    /// The clusters, nearest first.
    pub clusters: Vec<ClusterDistance>,
}

/// How far a cluster is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterDistance {
    /// The cluster.
    pub cluster: ClusterId,
    /// The round-trip time, in milliseconds.
    pub rtt_ms: Millis,
    /// Where it comes from.
    pub source: LatencySource,
    /// Gateways of it that are alive, of the kind of address asked for; of look-ups only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateways_live: Option<u32>,
    /// All its gateways of that kind; of look-ups only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateways: Option<u32>,
}

/// Where DNS sends clients of a prefix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BindingDetail {
    /// The clients.
    pub prefix: ClientPrefix,
    /// The cluster.
    pub cluster: ClusterId,
    /// The group of clients that was planned for.
    pub group: String,
    /// The revision at which they were first sent there.
    pub revision: Revision,
    /// Where the clients are; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<GeoPoint>,
    /// How often the name was asked for from there; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queries: Option<u64>,
    /// When last; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
}

/// The kinds of addresses that DNS answers with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum AddressKind {
    /// IPv4.
    #[default]
    A,
    /// IPv6.
    #[serde(rename = "AAAA")]
    Aaaa,
}

impl AddressKind {
    /// Whether an address is of this kind.
    #[must_use]
    pub const fn has(self, address: IpAddr) -> bool {
        match self {
            Self::A => address.is_ipv4(),
            Self::Aaaa => address.is_ipv6(),
        }
    }
}

/// Why a client is sent where it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SteerReason {
    /// A plan binds the client's prefix to this cluster.
    Bound,
    /// No binding matches the client: this is the nearest cluster.
    Nearest,
    /// The bound cluster has no living gateway: this is the nearest cluster that has one.
    BoundIsDead,
    /// No cluster has a living gateway.
    AllDead,
    /// No gateway has an address of the requested kind.
    NoAddress,
}

/// What DNS servers answer a client, as the controller knows the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DnsLookup {
    /// The name that was looked up.
    pub name: HostName,
    /// Its app.
    pub app: AppName,
    /// The client.
    pub client: ClientPrefix,
    /// The kind of addresses.
    pub kind: AddressKind,
    /// The answer: living gateways of the cluster, or all of them if nothing is alive.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
    /// For how long it may be cached, in seconds.
    pub ttl_s: u32,
    /// The answer holds for all clients that share this many leading bits.
    pub scope: u8,
    /// The cluster; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// Why, in one word.
    pub why: SteerReason,
    /// Why, in words.
    pub reason: String,
    /// The longest bound prefix that holds the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<ClientPrefix>,
    /// The cluster that this prefix is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<ClusterId>,
    /// The revision of that binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// Every cluster, nearest first.
    pub clusters: Vec<ClusterDistance>,
}

/// How bytes stand in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BodyEncoding {
    /// As text: the bytes are UTF-8.
    #[default]
    Text,
    /// Base64-encoded (RFC 4648, section 4).
    Base64,
}

/// A call to try an app with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TryRequest {
    /// The method; GET if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Path and query; `/` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Names and values of header fields.
    #[schema(value_type = Vec<Vec<String>>)]
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
    /// How the body stands here.
    pub encoding: BodyEncoding,
    /// By a gateway of this cluster; of the one that the client would be sent to if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// Whose cluster is taken: an address or prefix; the caller's own if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// How long it may take; `console.try_timeout` if absent, and at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationMs>,
}

/// What the app answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TryAnswer {
    /// The status.
    pub status: u16,
    /// Names and values of header fields, in the order in which they came.
    #[schema(value_type = Vec<Vec<String>>)]
    pub headers: Vec<(String, String)>,
    /// The body, as far as it is kept.
    pub body: String,
    /// How the body stands here.
    pub encoding: BodyEncoding,
    /// Bytes of the body that were read.
    pub body_bytes: u64,
    /// Whether there was more of it.
    pub truncated: bool,
    /// The id of the call: lines of its log and its run of a workflow have the same.
    pub request: String,
    /// The gateway that was called.
    #[schema(value_type = String)]
    pub gateway: SocketAddr,
    /// The cluster that served it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// The node that served it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The version that served it; absent of workflows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionNumber>,
    /// Why the gateway answered in the app's place, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub error_code: Option<ErrorCode>,
    /// How long each part took: what the gateway tells, `network` for the way there and back, `total` for everything.
    pub timings: Vec<TryPhase>,
    /// Which cluster ran which stage, if it is a workflow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<TryStage>,
}

/// How long a part of a call took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TryPhase {
    /// Which part.
    pub phase: String,
    /// Milliseconds.
    pub ms: Millis,
}

/// Where a stage ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TryStage {
    /// The stage.
    pub stage: StageName,
    /// The cluster.
    pub cluster: ClusterId,
}
