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

/// Puts a device of a node back into service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreDevice {
    /// Which.
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

/// Makes a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateCluster {
    /// Its name.
    pub cluster: ClusterId,
    /// Its region; made if it is new.
    pub region: RegionName,
    /// Where it is; the region's position if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<GeoPoint>,
}

/// Makes a join token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateJoinToken {
    /// What it lets machines in as.
    #[serde(default)]
    pub role: Role,
    /// The cluster that it lets machines into.
    pub cluster: ClusterId,
    /// For how long.
    pub ttl: DurationMs,
    /// How many machines.
    pub uses: u32,
}

/// A join token that was made. The token is shown here and never again.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedJoinToken {
    /// The token.
    pub token: String,
    /// What it is good for.
    pub info: JoinTokenInfo,
}

/// What is known of a join token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinTokenInfo {
    /// Its id.
    pub id: JoinTokenId,
    /// What it lets machines in as.
    #[serde(default)]
    pub role: Role,
    /// The cluster that it lets machines into.
    pub cluster: ClusterId,
    /// The cluster's region.
    pub region: RegionName,
    /// How many machines it was made for.
    pub uses: u32,
    /// How many it still lets in.
    pub uses_left: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: String,
    /// When it ends.
    pub expires_at: Timestamp,
    /// When it was taken back, if it was.
    pub revoked_at: Option<Timestamp>,
}

impl JoinTokenInfo {
    /// Whether the token still admits another machine at `now`.
    #[must_use]
    pub const fn is_open(&self, now: Timestamp) -> bool {
        self.uses_left > 0 && self.revoked_at.is_none() && now.0 < self.expires_at.0
    }
}

/// A DNS server that was let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DnsServerInfo {
    /// Its name.
    pub server: NodeId,
    /// The cluster that it stands in.
    pub cluster: ClusterId,
    /// Where it answers (`gateway`), and where it serves health and metrics (`admin`).
    pub addresses: NodeAddresses,
    /// When it was let in.
    pub enrolled_at: Timestamp,
    /// Its newest certificate.
    pub certificate: Option<CertificateInfo>,
    /// Whether it is connected to the controller that was asked.
    pub connected: bool,
}

/// How a node is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It was admitted and has not reported yet.
    Joined,
    /// It accepts work.
    Alive,
    /// It accepts no new work; present work completes.
    Draining,
    /// It accepts no new work and has none left.
    Drained,
    /// No report has arrived within the status lifetime.
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

/// A certificate of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateInfo {
    /// Its serial number in hexadecimal digits.
    pub serial: String,
    /// When it was made.
    pub issued_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// Everything about a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeDetail {
    /// The line of the list.
    pub info: NodeInfo,
    /// Its region.
    pub region: RegionName,
    /// When it was let in; absent for a node that runs with the network's token.
    pub enrolled_at: Option<Timestamp>,
    /// Its newest certificate.
    pub certificate: Option<CertificateInfo>,
    /// What it last said, whole.
    pub status: Option<NodeStatus>,
}

/// The head of a cluster: where its global scheduler runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeadInfo {
    /// The node.
    pub node: NodeId,
    /// Grows with every change.
    pub epoch: u64,
    /// When its lease ends unless it is renewed.
    pub expires_at: Timestamp,
}

/// Everything about a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterDetail {
    /// The line of the list.
    pub info: ClusterInfo,
    /// Its nodes, by name.
    pub nodes: Vec<NodeInfo>,
    /// Its head, if it has one.
    pub head: Option<HeadInfo>,
    /// Calls that wait on its living nodes.
    pub waiting: u32,
    /// How many scaling tasks ended at each stage, over its living nodes since they started; absent if none of them schedules instances.
    pub stages: Option<StageCounts>,
    /// How many of its nodes run each version of the agent.
    pub versions: BTreeMap<String, u32>,
    /// What its living nodes last said, whole.
    pub statuses: Vec<NodeStatus>,
    /// How far it is from the other clusters, nearest first.
    pub links: Vec<ClusterLink>,
}

/// How far another cluster is, as placement counts it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterLink {
    /// The other cluster.
    pub cluster: ClusterId,
    /// The round-trip time, in milliseconds.
    pub rtt_ms: Millis,
    /// Where it comes from: measured between nodes, or from the distance.
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
