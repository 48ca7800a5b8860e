//! How a node of a cluster stands, for operators and tests.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use fdn_core::{NodeId, Resources};
use serde::Serialize;

use crate::identity::Key;
use crate::membership::Status;

/// One node's view.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterStatus {
    /// Which node says this.
    pub node: NodeId,
    /// Whether it is a member.
    pub joined: bool,
    /// Whether most members let it act.
    pub quorum: bool,
    /// The head it knows.
    pub head: Option<NodeId>,
    /// The head's number.
    pub epoch: u32,
    /// All members, itself among them.
    pub members: Vec<MemberStatus>,
    /// What it has.
    pub capacity: Resources,
    /// What its instances take.
    pub used: Resources,
    /// What is reserved.
    pub reserved: Resources,
    /// Its instances.
    pub running: usize,
    /// Its own tasks that are not settled.
    pub open: usize,
    /// Instances anywhere that it has asked for.
    pub placed: usize,
    /// Tasks that wait at the global scheduler, if it is the head.
    pub waiting: usize,
    /// Its own tasks that are held back until others have had their answer.
    pub held: usize,
    /// How many tasks it has passed on or started, by what it did with them ([`crate::Step`]).
    pub stages: BTreeMap<&'static str, u64>,
    /// The global stage, if it is the head.
    pub global: Option<GlobalStatus>,
}

/// The global stage of the head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GlobalStatus {
    /// Its pre-schedulers; 0: it decides by itself.
    pub pre_schedulers: usize,
    /// Tasks that wait, those that are out included.
    pub waiting: usize,
    /// Tasks out with pre-schedulers.
    pub out: usize,
    /// Lists committed since the start, by the place in them of the node that got the task, or why none did.
    pub lists: BTreeMap<&'static str, u64>,
    /// Lists whose first node had changed since the pre-scheduler looked.
    pub conflicts: u64,
}

/// A member as one node sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemberStatus {
    /// Its name.
    pub node: NodeId,
    /// Its process and incarnation.
    pub key: Key,
    /// Where it is reached.
    pub address: SocketAddr,
    /// How it stands.
    pub status: Status,
    /// Whether it takes no more instances.
    pub draining: bool,
    /// Whether a stream leads there.
    pub connected: bool,
    /// What it has.
    pub capacity: Resources,
}
