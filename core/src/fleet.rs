//! Bodies for operators about the network's machines: clusters, join tokens, nodes and their state.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::api::{ClusterInfo, NodeInfo};
use crate::enrol::{NodeAddresses, Role};
use crate::geo::GeoPoint;
use crate::id::{ClusterId, DeviceId, JoinTokenId, NodeId, RegionName};
use crate::latency::LatencySource;
use crate::message::{NodeStatus, StageCounts};
use crate::unit::{DurationMs, Millis, Revision, Timestamp};

/// The desired state of the network's machines, for nodes: which are cordoned, which certificates are revoked, and which authorities to trust.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetDesired {
    /// The version of this desired state.
    pub revision: Revision,
    /// The cordoned nodes, which accept no new work.
    pub cordoned: BTreeSet<NodeId>,
    /// Certificates that are revoked and not expired yet.
    pub revoked: Vec<Revoked>,
    /// The authorities (PEM) by which nodes verify each other's certificates.
    pub authorities: Vec<String>,
    /// By cluster: the addresses on which its nodes accept stage calls of workflows from other clusters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stage_calls: BTreeMap<ClusterId, Vec<SocketAddr>>,
    /// By node: devices that an operator put back into service, with the revision of the last such request; each request takes effect once.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub restored: BTreeMap<NodeId, BTreeMap<DeviceId, Revision>>,
}

/// A request to put a device of a node back into service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreDevice {
    /// The device's id.
    pub device: DeviceId,
}

/// A revoked certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Revoked {
    /// Its serial number in hexadecimal digits.
    pub serial: String,
    /// The node to which it was issued.
    pub node: NodeId,
    /// When it expires, after which it need not be listed.
    pub expires_at: Timestamp,
}

/// A request to create a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateCluster {
    /// The cluster's name, which must not be taken.
    pub cluster: ClusterId,
    /// The cluster's region, which is created if it does not exist.
    pub region: RegionName,
    /// The cluster's position; the region's if absent. Required for a new region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<GeoPoint>,
}

/// A request to create a join token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateJoinToken {
    /// The role of the machines that can join with the token.
    #[serde(default)]
    pub role: Role,
    /// The cluster that they join.
    pub cluster: ClusterId,
    /// The token's lifetime, from `1s` to the network's limit.
    pub ttl: DurationMs,
    /// The number of machines that can join with the token, from 1 to the network's limit.
    pub uses: u32,
}

/// A created join token. The token itself is shown here and never again.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedJoinToken {
    /// The token, which machines present to join.
    pub token: String,
    /// The token's properties.
    pub info: JoinTokenInfo,
}

/// The properties of a join token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinTokenInfo {
    /// The token's id, which is not secret.
    pub id: JoinTokenId,
    /// The role of the machines that can join with the token.
    #[serde(default)]
    pub role: Role,
    /// The cluster that they join.
    pub cluster: ClusterId,
    /// The cluster's region.
    pub region: RegionName,
    /// The number of machines for which the token was created.
    pub uses: u32,
    /// The number of machines that can still join with it.
    pub uses_left: u32,
    /// When the token was created.
    pub created_at: Timestamp,
    /// Who created the token.
    pub created_by: String,
    /// When the token expires.
    pub expires_at: Timestamp,
    /// When the token was revoked; null if it was not.
    pub revoked_at: Option<Timestamp>,
}

impl JoinTokenInfo {
    /// Whether the token still admits another machine at `now`.
    #[must_use]
    pub const fn is_open(&self, now: Timestamp) -> bool {
        self.uses_left > 0 && self.revoked_at.is_none() && now.0 < self.expires_at.0
    }
}

/// A DNS server that has joined the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DnsServerInfo {
    /// The server's name.
    pub server: NodeId,
    /// The cluster to which it belongs.
    pub cluster: ClusterId,
    /// The addresses at which it answers queries (`gateway`) and serves health checks and metrics (`admin`).
    pub addresses: NodeAddresses,
    /// When it joined.
    pub enrolled_at: Timestamp,
    /// Its newest certificate; null if it has none.
    pub certificate: Option<CertificateInfo>,
    /// Whether it is connected to the controller that answers this request.
    pub connected: bool,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// The node has joined, and has not reported yet.
    Joined,
    /// The node accepts work.
    Alive,
    /// The node accepts no new work and finishes what it has.
    Draining,
    /// The node accepts no new work and has none left.
    Drained,
    /// The node has not reported within the last 10 s.
    Lost,
}

impl NodeState {
    /// The state of a node that reported `status`. Only the node itself can tell that it has begun to drain.
    #[must_use]
    pub fn of(status: &NodeStatus, alive: bool) -> Self {
        match (alive, status.draining) {
            (false, _) => Self::Lost,
            (true, false) => Self::Alive,
            (true, true) if status.busy == 0 && status.waiting == 0 => Self::Drained,
            (true, true) => Self::Draining,
        }
    }

    /// The name used in JSON and tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Alive => "alive",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Lost => "lost",
        }
    }
}

/// A machine's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateInfo {
    /// The serial number, in hexadecimal digits.
    pub serial: String,
    /// When the certificate was issued.
    pub issued_at: Timestamp,
    /// When the certificate expires.
    pub expires_at: Timestamp,
}

/// All details of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeDetail {
    /// The node as in the list.
    pub info: NodeInfo,
    /// The region that the node belongs to.
    pub region: RegionName,
    /// When the node joined; null for a node that runs with the network's token.
    pub enrolled_at: Option<Timestamp>,
    /// The node's newest certificate; null if it has none.
    pub certificate: Option<CertificateInfo>,
    /// The node's last report, complete; null if there is none.
    pub status: Option<NodeStatus>,
}

/// The head of a cluster: the node on which its global scheduler runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeadInfo {
    /// The node's name.
    pub node: NodeId,
    /// A number that increases whenever a node acquires the lease.
    pub epoch: u64,
    /// When the lease ends unless the node renews it.
    pub expires_at: Timestamp,
}

/// All details of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterDetail {
    /// The cluster as in the list.
    pub info: ClusterInfo,
    /// The cluster's nodes, by name.
    pub nodes: Vec<NodeInfo>,
    /// The head of the cluster; null if it has none.
    pub head: Option<HeadInfo>,
    /// The number of calls that wait on its living nodes.
    pub waiting: u32,
    /// By stage of the scheduler: the number of scaling tasks that ended there, over the living nodes since they started. Null if none of
    /// them schedules instances.
    pub stages: Option<StageCounts>,
    /// By agent version: the number of living nodes that run it.
    pub versions: BTreeMap<String, u32>,
    /// The last reports of its living nodes, complete.
    pub statuses: Vec<NodeStatus>,
    /// The distances to the other clusters, nearest first.
    pub links: Vec<ClusterLink>,
}

/// The distance to another cluster, as placement assumes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterLink {
    /// The other cluster.
    pub cluster: ClusterId,
    /// The round-trip time, in milliseconds.
    pub rtt_ms: Millis,
    /// The source of the round-trip time: measured between nodes, or estimated from the geographic distance.
    pub source: LatencySource,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_open_until_it_is_used_up_ends_or_is_taken_back() {
        let open = JoinTokenInfo {
            id: JoinTokenId::from_uuid(uuid::Uuid::from_u128(1)),
            role: Role::Node,
            cluster: "eu".parse().expect("cluster"),
            region: "eu".parse().expect("region"),
            uses: 2,
            uses_left: 1,
            created_at: Timestamp(0),
            created_by: "admin".to_owned(),
            expires_at: Timestamp(10),
            revoked_at: None,
        };
        assert!(open.is_open(Timestamp(9)) && !open.is_open(Timestamp(10)));
        let used_up = JoinTokenInfo {
            uses_left: 0,
            ..open.clone()
        };
        let revoked = JoinTokenInfo {
            revoked_at: Some(Timestamp(1)),
            ..open
        };
        assert!(!used_up.is_open(Timestamp(9)) && !revoked.is_open(Timestamp(9)));
    }

    #[test]
    fn only_a_node_that_says_so_is_drained() {
        let status = |draining, busy, waiting| -> NodeStatus {
            let text = format!(
                r#"{{"node":"a","cluster":"c","region":"r","location":{{"lat":0.0,"lon":0.0}},"gateway":"127.0.0.1:1",
                "admin":"127.0.0.1:2","boot":"msg_00000000000000000000000000000001","sequence":1,"version":"0","speed":1.0,
                "capacity":{{"cpu_milli":1,"memory_mib":1}},"free":{{"cpu_milli":1,"memory_mib":1}},"slots":1,"busy":{busy},
                "waiting":{waiting},"queued_work":0.0,"draining":{draining},"apps":[]}}"#
            );
            serde_json::from_str(&text).expect("a status as an agent sends it")
        };
        for (draining, busy, waiting, alive, state) in [
            (false, 0, 0, true, NodeState::Alive),
            (true, 1, 0, true, NodeState::Draining),
            (true, 0, 1, true, NodeState::Draining),
            (true, 0, 0, true, NodeState::Drained),
            (true, 0, 0, false, NodeState::Lost),
        ] {
            let found = NodeState::of(&status(draining, busy, waiting), alive);
            assert_eq!(found, state, "{draining} {busy} {waiting} {alive}");
        }
    }
}
