//! Messages between the schedulers, and the actions for the shell that carries them.

use std::fmt;

use fdn_core::Millis;

pub use crate::node::NodeIndex;

/// A task's id, unique in the cluster for as long as any scheduler remembers the task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}", self.0)
    }
}

/// The term of a global scheduler: each successor has a larger one than all before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u32);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "term {}", self.0)
    }
}

/// A scale-out task: a request for one more instance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task<D> {
    /// The task's id.
    pub id: TaskId,
    /// The attempt, from 1; a later one begins only when no earlier one can start any more.
    pub attempt: u32,
    /// How often the task has passed from one holder to the next in this attempt.
    pub leg: u32,
    /// `q(x)`: the resources of the instance.
    pub demand: D,
    /// `s(x)`: the expected execution time of the instance's request; shorter tasks go first.
    pub remaining: Millis,
    /// When the task is no longer wanted: nobody starts it later, and everybody may forget it some time after.
    pub deadline: Millis,
}

impl<D: Copy> Task<D> {
    /// The task as it is sent to the next holder.
    #[must_use]
    pub(super) const fn passed_on(mut self, leg: u32) -> Self {
        self.leg = leg.saturating_add(1);
        self
    }
}

/// A request to reserve resources for a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe<D> {
    /// The task's id.
    pub id: TaskId,
    /// The attempt.
    pub attempt: u32,
    /// The leg on which the sender holds it.
    pub leg: u32,
    /// The resources to reserve.
    pub demand: D,
    /// When the task is no longer wanted.
    pub deadline: Millis,
    /// The node that asks.
    pub home: NodeIndex,
    /// Whether the receiver keeps the probe until the demand fits, instead of answering no (late binding).
    pub wait: bool,
}

/// A node's report to the global scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeReport<D> {
    /// The reporting node.
    pub node: NodeIndex,
    /// Increases with every change of `free`; a smaller one is outdated.
    pub version: u64,
    /// What is neither used nor reserved.
    pub free: D,
    /// The term of the global scheduler that the node follows.
    pub term: Term,
    /// The largest serial number of that scheduler's placements that has arrived on the node.
    pub seen: u64,
}

/// Messages to a node's scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ToNode<D> {
    /// A task from its submitter.
    Submit(Task<D>),
    /// A task forwarded by a node whose snapshot shows this one as the best, with the number of hops so far.
    Hint(Task<D>, u8),
    /// A request to reserve resources.
    Probe(Probe<D>),
    /// The answer of a probed node.
    Reply {
        /// The task's id.
        id: TaskId,
        /// The attempt.
        attempt: u32,
        /// The node that answers.
        from: NodeIndex,
        /// Whether it has reserved the resources.
        yes: bool,
    },
    /// Cancels a reservation that is no longer needed.
    Release {
        /// The task's id.
        id: TaskId,
        /// The attempt.
        attempt: u32,
    },
    /// The task for which this node has reserved resources.
    Assign(Task<D>),
    /// A placement by the global scheduler of this term, with its serial number among that scheduler's placements on this node.
    Place(Task<D>, Term, u64),
    /// From now on nothing may start this attempt or an earlier one; asks whether it was started.
    Fence(Fence),
}

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fence {
    /// The task's id.
    pub id: TaskId,
    /// The last attempt that must not start any more.
    pub attempt: u32,
    /// Until when the fence must be remembered.
    pub deadline: Millis,
}

/// Messages to the global scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ToGlobal<D> {
    /// A task for which no node was found otherwise, addressed to the global scheduler of this term only.
    Forward(Task<D>, Term),
    /// A placed task returned by a node on which it does not fit.
    Bounce(Task<D>, NodeReport<D>),
    /// A node's periodic report.
    Notice(NodeReport<D>),
    /// As [`ToNode::Fence`].
    Fence(Fence),
}

/// Messages to the submitter of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToSubmitter {
    /// The task's instance was started.
    Started {
        /// The task's id.
        id: TaskId,
        /// The attempt.
        attempt: u32,
        /// The node on which it runs.
        by: NodeIndex,
    },
    /// The task will not be started.
    Refused {
        /// The task's id.
        id: TaskId,
        /// The attempt.
        attempt: u32,
        /// The reason.
        refusal: Refusal,
    },
    /// The task was passed on to a scheduler that is lost, so its state is unknown.
    Broken {
        /// The task's id.
        id: TaskId,
        /// The attempt.
        attempt: u32,
    },
    /// The answer to a fence: from now on the attempt cannot start here.
    Fenced {
        /// The task's id.
        id: TaskId,
        /// The last attempt that is fenced.
        attempt: u32,
        /// The scheduler that answers; `None` is the global scheduler.
        by: Option<NodeIndex>,
        /// Whether the attempt had been started here before.
        started: bool,
    },
}

/// Why a task will not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// The queue of the global scheduler is at its limit.
    #[error("the queue of the global scheduler is full")]
    QueueFull,
    /// The memory of recent tasks is at its limit: if one more were accepted, a duplicate could start twice.
    #[error("the memory of recent tasks is full")]
    MemoryFull,
    /// No probed node had room, in as many rounds as the settings allow.
    #[error("no node asked had room")]
    NoRoom,
    /// The demand exceeds the capacity of every node.
    #[error("no node is large enough")]
    TooLarge,
    /// The deadline passed while it waited.
    #[error("no room before the deadline")]
    Expired,
}

/// The stage of the protocol that found the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The local check on the first node.
    Local,
    /// A probe of other nodes.
    Probe,
    /// A hint from the snapshot.
    Hint,
    /// The global scheduler.
    Global,
}

/// The handle of a running instance on its node, which the shell returns when the instance ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    pub(super) slot: u32,
    pub(super) number: u64,
}

/// What the shell of a scheduler must do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action<D> {
    /// Start the task's instance on this node; report its end by the handle.
    Start {
        /// The node whose scheduler emits this action.
        node: NodeIndex,
        /// The task.
        task: Task<D>,
        /// The stage that found the node.
        stage: Stage,
        /// The handle for [`super::Node::ended`].
        running: Running,
    },
    /// Send a message to a node.
    Node(NodeIndex, ToNode<D>),
    /// Send a message to the global scheduler.
    Global(ToGlobal<D>),
    /// Send a message to the submitter of the task.
    Submitter(ToSubmitter),
}
