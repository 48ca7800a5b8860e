//! The status of a cluster's node, for operators and tests.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use fdn_core::{NodeId, Resources};
use serde::Serialize;

use crate::identity::Key;
use crate::membership::Status;

/// The status of a cluster from one node's point of view.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterStatus {
    /// The node that reports this.
    pub node: NodeId,
    /// Whether it is a member.
    pub joined: bool,
    /// Whether most members grant it to act.
    pub quorum: bool,
    /// The head that it knows.
    pub head: Option<NodeId>,
    /// The head's epoch; 0 if no head is known.
    pub epoch: u32,
    /// All members, itself among them.
    pub members: Vec<MemberStatus>,
    /// Its capacity.
    pub capacity: Resources,
    /// The resources used by its instances.
    pub used: Resources,
    /// The resources reserved for instances.
    pub reserved: Resources,
    /// The number of its instances.
    pub running: usize,
    /// The number of its tasks that are not settled.
    pub open: usize,
    /// The number of instances, anywhere, that it requested.
    pub placed: usize,
    /// The number of tasks waiting at the global scheduler, if it is the head.
    pub waiting: usize,
    /// The number of its tasks that are held back until others are answered.
    pub held: usize,
    /// How many tasks it has passed on or started, by step ([`crate::Step`]).
    pub stages: BTreeMap<&'static str, u64>,
    /// The global stage, if it is the head.
    pub global: Option<GlobalStatus>,
}

/// The global stage of the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GlobalStatus {
    /// The number of its pre-schedulers; 0: it decides by itself.
    pub pre_schedulers: usize,
    /// The number of waiting tasks, including those that are handed out.
    pub waiting: usize,
    /// The number of tasks handed out to pre-schedulers.
    pub out: usize,
    /// Lists committed since the start, by the position in the list of the node that got the task, or why none did.
    pub lists: BTreeMap<&'static str, u64>,
    /// Lists whose first node had changed since the pre-scheduler made them.
    pub conflicts: u64,
}

/// A member from one node's point of view.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberStatus {
    /// Its name.
    pub node: NodeId,
    /// Its process and incarnation.
    pub key: Key,
    /// The address at which it is reached.
    pub address: SocketAddr,
    /// Its membership status.
    pub status: Status,
    /// Whether it takes no more instances.
    pub draining: bool,
    /// Whether there is a stream to it.
    pub connected: bool,
    /// Its capacity.
    pub capacity: Resources,
}
