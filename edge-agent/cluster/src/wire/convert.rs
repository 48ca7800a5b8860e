//! Conversion between wire messages and the types of the rest of the crate. A value that cannot be converted is an error of the sender.

use bytes::Bytes;
use fdn_core::{MebiBytes, MilliCpu, Millis, NodeId, Resources};
use fdn_scheduling::instance::{Fence, NodeIndex, NodeReport, Refusal, Task, TaskId, Term};

use super::proto;
use crate::head::{Ballot, Epoch, HeadView};
use crate::identity::{Key, Member, Tag};
use crate::membership::{Gossip, Opinions};

/// A message that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message has an unusable {0}")]
pub(crate) struct Unreadable(pub(crate) &'static str);

/// What travels with a task in addition to what schedulers use.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TaskContext {
    pub(crate) issue: u64,
    pub(crate) payload: Bytes,
    pub(crate) hops: Vec<u64>,
}

impl From<Key> for proto::Key {
    fn from(key: Key) -> Self {
        Self {
            tag: key.tag.get(),
            incarnation: key.incarnation,
        }
    }
}

impl From<proto::Key> for Key {
    fn from(key: proto::Key) -> Self {
        Self {
            tag: Tag::new(key.tag),
            incarnation: key.incarnation,
        }
    }
}

impl From<Resources> for proto::Resources {
    fn from(resources: Resources) -> Self {
        Self {
            cpu_milli: resources.cpu_milli.get(),
            memory_mib: resources.memory_mib.get(),
            gpu_memory_mib: resources.gpu_memory_mib.get(),
        }
    }
}

impl From<proto::Resources> for Resources {
    fn from(resources: proto::Resources) -> Self {
        Self {
            cpu_milli: MilliCpu(resources.cpu_milli),
            memory_mib: MebiBytes(resources.memory_mib),
            gpu_memory_mib: MebiBytes(resources.gpu_memory_mib),
        }
    }
}

impl From<&Member> for proto::Member {
    fn from(member: &Member) -> Self {
        Self {
            key: member.key.into(),
            node: member.node.to_string(),
            address: member.address.to_string(),
            capacity: member.capacity.into(),
            candidate: member.candidate,
        }
    }
}

impl TryFrom<&proto::Member> for Member {
    type Error = Unreadable;

    fn try_from(member: &proto::Member) -> Result<Self, Unreadable> {
        let node: NodeId = member.node.parse().map_err(|_| Unreadable("node name"))?;
        Ok(Self {
            key: member.key.into(),
            node,
            address: member.address.parse().map_err(|_| Unreadable("address"))?,
            capacity: member.capacity.into(),
            candidate: member.candidate,
        })
    }
}

/// Checks a time, which must be a number within reason: nothing else may reach the heaps of the schedulers.
pub(crate) fn time(ms: f64) -> Result<Millis, Unreadable> {
    if ms.is_finite() && (0.0..1e15).contains(&ms) {
        Ok(Millis::new(ms))
    } else {
        Err(Unreadable("time"))
    }
}

/// The wire message of a task.
pub(crate) fn encode_task(
    delivery: proto::TaskDelivery,
    task: &Task<Resources>,
    context: TaskContext,
    number: u64,
) -> proto::Task {
    proto::Task {
        delivery: delivery.into(),
        id: task.id.0,
        attempt: task.attempt,
        leg: task.leg,
        demand: task.demand.into(),
        remaining: task.remaining.get(),
        deadline: task.deadline.get(),
        number,
        epoch: 0,
        issue: context.issue,
        payload: context.payload,
        hops: context.hops,
        report: None,
    }
}

/// The task in a wire message, and its context.
pub(crate) fn decode_task(
    task: proto::Task,
    payload_most: usize,
) -> Result<(Task<Resources>, TaskContext), Unreadable> {
    if task.payload.len() > payload_most {
        return Err(Unreadable("payload"));
    }
    let scheduled = Task {
        id: TaskId(task.id),
        attempt: task.attempt,
        leg: task.leg,
        demand: task.demand.into(),
        remaining: time(task.remaining)?,
        deadline: time(task.deadline)?,
    };
    let context = TaskContext {
        issue: task.issue,
        payload: task.payload,
        hops: task.hops,
    };
    Ok((scheduled, context))
}

impl From<Fence> for proto::Fence {
    fn from(fence: Fence) -> Self {
        Self {
            id: fence.id.0,
            attempt: fence.attempt,
            deadline: fence.deadline.get(),
            epoch: 0,
        }
    }
}

pub(crate) fn decode_fence(fence: &proto::Fence) -> Result<Fence, Unreadable> {
    Ok(Fence {
        id: TaskId(fence.id),
        attempt: fence.attempt,
        deadline: time(fence.deadline)?,
    })
}

impl From<NodeReport<Resources>> for proto::NodeReport {
    fn from(report: NodeReport<Resources>) -> Self {
        Self {
            version: report.version,
            free: report.free.into(),
            seen: report.seen,
        }
    }
}

/// The report of the node that sends this.
pub(crate) fn decode_report(
    report: &proto::NodeReport,
    node: NodeIndex,
    epoch: u32,
) -> NodeReport<Resources> {
    NodeReport {
        node,
        version: report.version,
        free: report.free.into(),
        term: Term(epoch),
        seen: report.seen,
    }
}

const REFUSALS: [Refusal; 5] = [
    Refusal::QueueFull,
    Refusal::MemoryFull,
    Refusal::NoRoom,
    Refusal::TooLarge,
    Refusal::Expired,
];

pub(crate) fn encode_refusal(refusal: Refusal) -> u32 {
    let at = REFUSALS.iter().position(|other| *other == refusal);
    at.and_then(|at| u32::try_from(at).ok()).unwrap_or(u32::MAX)
}

pub(crate) fn decode_refusal(refusal: u32) -> Result<Refusal, Unreadable> {
    let known = REFUSALS.get(refusal as usize).copied();
    known.ok_or(Unreadable("refusal"))
}

/// The wire message of opinions and knowledge of heads, for pings and answers.
pub(crate) fn encode_opinions(opinions: &Opinions, known: HeadView) -> proto::Opinions {
    let keys = |keys: &[Key]| keys.iter().map(|key| (*key).into()).collect();
    proto::Opinions {
        suspects: keys(&opinions.suspects),
        condemned: keys(&opinions.condemned),
        digest: opinions.digest,
        epoch: known.head.map_or(0, |(epoch, _)| epoch.0),
        head: known.head.map(|(_, key)| key.into()),
        highest: known.epoch.0,
    }
}

pub(crate) fn decode_opinions(opinions: &proto::Opinions) -> (Opinions, HeadView) {
    let keys = |keys: &[proto::Key]| keys.iter().map(|key| (*key).into()).collect();
    let known = HeadView {
        // An earlier version sends only the epoch of its head.
        epoch: Epoch(opinions.highest.max(opinions.epoch)),
        head: opinions.head.map(|key| (Epoch(opinions.epoch), key.into())),
    };
    let opinions = Opinions {
        suspects: keys(&opinions.suspects),
        condemned: keys(&opinions.condemned),
        digest: opinions.digest,
    };
    (opinions, known)
}

pub(crate) fn encode_gossip(gossip: &[Gossip]) -> proto::Members {
    let out = |gossip: &Gossip| match gossip {
        Gossip::Member {
            member,
            draining,
            counts,
        } => proto::Gossip {
            member: Some(member.into()),
            draining: *draining,
            gone: None,
            is_new: !counts,
        },
        Gossip::Gone(key) => proto::Gossip {
            member: None,
            draining: false,
            gone: Some((*key).into()),
            is_new: false,
        },
    };
    proto::Members {
        gossip: gossip.iter().map(out).collect(),
    }
}

pub(crate) fn decode_gossip(members: &proto::Members) -> Result<Vec<Gossip>, Unreadable> {
    let read = |gossip: &proto::Gossip| match (&gossip.member, &gossip.gone) {
        (Some(member), None) => Ok(Gossip::Member {
            member: member.try_into()?,
            draining: gossip.draining,
            counts: !gossip.is_new,
        }),
        (None, Some(key)) => Ok(Gossip::Gone((*key).into())),
        _ => Err(Unreadable("gossip")),
    };
    members.gossip.iter().map(read).collect()
}

pub(crate) fn encode_ballot(ballot: Ballot) -> proto::Ballot {
    let (kind, epoch, has_lease, head) = match ballot {
        Ballot::Request(epoch, has_lease) => (proto::BallotKind::Ask, epoch, has_lease, None),
        Ballot::Vote(epoch) => (proto::BallotKind::Vote, epoch, false, None),
        Ballot::Head(epoch, key) => (proto::BallotKind::Head, epoch, false, Some(key.into())),
        Ballot::Stale(epoch) => (proto::BallotKind::Stale, epoch, false, None),
    };
    proto::Ballot {
        kind: kind.into(),
        epoch: epoch.0,
        has_lease,
        head,
    }
}

pub(crate) fn decode_ballot(ballot: &proto::Ballot) -> Result<Ballot, Unreadable> {
    let epoch = Epoch(ballot.epoch);
    match proto::BallotKind::try_from(ballot.kind) {
        Ok(proto::BallotKind::Ask) => Ok(Ballot::Request(epoch, ballot.has_lease)),
        Ok(proto::BallotKind::Vote) => Ok(Ballot::Vote(epoch)),
        Ok(proto::BallotKind::Head) => {
            let head = ballot.head.ok_or(Unreadable("ballot"))?;
            Ok(Ballot::Head(epoch, head.into()))
        }
        Ok(proto::BallotKind::Stale) => Ok(Ballot::Stale(epoch)),
        Err(_) => Err(Unreadable("ballot")),
    }
}
