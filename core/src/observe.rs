//! Bodies of the calls with which the console shows the network: `/v1/traffic`, `/v1/latencies`, `/v1/dns/lookup`,
//! `/v1/apps/{app}/bindings` and `/v1/apps/{app}/try`.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ErrorCode;
use crate::geo::GeoPoint;
use crate::id::{AppName, ClusterId, HostName, NodeId, RegionName, StageName, VersionNumber};
use crate::latency::LatencySource;
use crate::prefix::ClientPrefix;
use crate::unit::{DurationMs, Millis, Revision, Timestamp};

/// A map of the clusters and of the clients that DNS sends to them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrafficMap {
    /// The time of the map.
    pub at: Timestamp,
    /// All clusters, by name.
    pub clusters: Vec<TrafficCluster>,
    /// The clients by place and cluster, those with most demand first.
    pub flows: Vec<TrafficFlow>,
}

/// The health of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClusterHealth {
    /// All its nodes are alive.
    Up,
    /// Some of its nodes are alive.
    Degraded,
    /// None of its nodes is alive, or it has none.
    Down,
}

/// A cluster on the map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrafficCluster {
    /// The cluster's name.
    pub cluster: ClusterId,
    /// The region that the cluster belongs to.
    pub region: RegionName,
    /// The cluster's position.
    pub location: GeoPoint,
    /// The cluster's health.
    pub health: ClusterHealth,
    /// The number of its nodes that are alive: they have reported within the last 10 s.
    pub nodes_alive: u32,
    /// The number of all its nodes.
    pub nodes_total: u32,
    /// The number of calls that its living nodes can run at the same time.
    pub slots: u32,
    /// The number of calls that its living nodes are running.
    pub busy: u32,
    /// The calls per second, over the last minute, of the apps that the caller can see.
    pub calls_per_second: f64,
    /// The share of these that was answered with 5xx, from 0 to 1.
    pub error_rate: f64,
}

/// The clients of one place that are sent to one cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TrafficFlow {
    /// The cluster to which they are sent.
    pub cluster: ClusterId,
    /// The clients' position; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<GeoPoint>,
    /// The number of client prefixes.
    pub prefixes: u32,
    /// One of the client prefixes, as an example.
    pub example: ClientPrefix,
    /// Their share of all recent demand, from 0 to 1.
    pub share: f64,
    /// An estimate of their calls per second: the cluster's rate, divided according to demand.
    pub calls_per_second: f64,
}

/// The distances of the clusters from the clients of a prefix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatencyRow {
    /// The clients' address prefix.
    pub prefix: ClientPrefix,
    /// The clients' position; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<GeoPoint>,
    /// The clusters, nearest first.
    pub clusters: Vec<ClusterDistance>,
}

/// The distance of a cluster from a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterDistance {
    /// The cluster's name.
    pub cluster: ClusterId,
    /// The round-trip time, in milliseconds.
    pub rtt_ms: Millis,
    /// The source of the round-trip time.
    pub source: LatencySource,
    /// The number of its gateways that are alive and have an address of the requested kind; only in DNS look-ups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateways_live: Option<u32>,
    /// The number of all its gateways with an address of the requested kind; only in DNS look-ups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateways: Option<u32>,
}

/// A binding with its demand: the cluster to which DNS sends clients of a prefix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BindingDetail {
    /// The clients' address prefix.
    pub prefix: ClientPrefix,
    /// The cluster to which they are sent.
    pub cluster: ClusterId,
    /// The group of clients whose plan the binding follows.
    pub group: String,
    /// The revision at which they were first sent there.
    pub revision: Revision,
    /// The clients' position; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<GeoPoint>,
    /// The number of DNS queries for the app from there; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queries: Option<u64>,
    /// When the last of these queries was made; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
}

/// A kind of address records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum AddressKind {
    /// IPv4 addresses.
    #[default]
    A,
    /// IPv6 addresses.
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

/// Why a client is sent to a cluster.
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

/// What DNS servers answer a client, computed from the controller's view of the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DnsLookup {
    /// The host name that was looked up.
    pub name: HostName,
    /// The app that the host name belongs to.
    pub app: AppName,
    /// The client for which it was looked up.
    pub client: ClientPrefix,
    /// The kind of address records.
    pub kind: AddressKind,
    /// The addresses in the answer: those of the cluster's living gateways, or of all its gateways if no gateway is alive.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
    /// The time to live of the answer, in seconds.
    pub ttl_s: u32,
    /// The number of leading address bits that determine the answer: it holds for all clients that share them.
    pub scope: u8,
    /// The cluster to which the client is sent; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// The reason, as a code.
    pub why: SteerReason,
    /// The reason, in words.
    pub reason: String,
    /// The longest bound prefix that contains the client; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<ClientPrefix>,
    /// The cluster to which that prefix is bound; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<ClusterId>,
    /// The revision at which clients of that prefix were first sent there; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// All clusters, nearest first.
    pub clusters: Vec<ClusterDistance>,
}

/// The encoding of bytes in a JSON string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BodyEncoding {
    /// As text: the bytes are UTF-8.
    #[default]
    Text,
    /// Base64-encoded (RFC 4648, section 4).
    Base64,
}

/// A request to call an app through one of the network's gateways, to try it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TryRequest {
    /// The HTTP method; `GET` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path and query; `/` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The header fields, as pairs of name and value; at most 100.
    #[schema(value_type = Vec<Vec<String>>)]
    pub headers: Vec<(String, String)>,
    /// The body, encoded as `encoding` says.
    pub body: String,
    /// The encoding of `body`; `text` if absent.
    pub encoding: BodyEncoding,
    /// The cluster whose gateway is called; if absent, the one to which `client` would be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// The client, as an address or prefix, that determines the cluster; the caller's own address if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The time limit of the call, at least `100ms`. The network's limit (`console.try_timeout`) holds if it is shorter or this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationMs>,
}

/// The app's answer to a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TryAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The header fields, as pairs of name and value, in the order in which they were received.
    #[schema(value_type = Vec<Vec<String>>)]
    pub headers: Vec<(String, String)>,
    /// The body, encoded as `encoding` says, up to the network's limit (`console.try_answer`).
    pub body: String,
    /// The encoding of `body`.
    pub encoding: BodyEncoding,
    /// The number of bytes of the body that are returned here.
    pub body_bytes: u64,
    /// Whether the body was longer.
    pub truncated: bool,
    /// The request id of the call, which its log lines and its run of a workflow have too.
    pub request: String,
    /// The address of the gateway that was called, as `IP:PORT`.
    #[schema(value_type = String)]
    pub gateway: SocketAddr,
    /// The cluster that served the call; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// The node that served the call; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The version that served the call; absent for workflows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionNumber>,
    /// The error code, if the gateway answered instead of the app; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub error_code: Option<ErrorCode>,
    /// The time of each part: those that the gateway reports, `network` for the way there and back, and `total` for everything.
    pub timings: Vec<TryPhase>,
    /// The cluster that ran each stage; absent for a plain function.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<TryStage>,
}

/// The time of one part of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TryPhase {
    /// The name of the part.
    pub phase: String,
    /// The time, in milliseconds.
    pub ms: Millis,
}

/// The cluster that ran a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TryStage {
    /// The stage's name.
    pub stage: StageName,
    /// The cluster that ran it.
    pub cluster: ClusterId,
}
