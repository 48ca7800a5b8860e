//! What schedulers tell each other, and what they tell the shell that carries their messages.

use std::fmt;

use fdn_core::Millis;

pub use crate::node::NodeIndex;

/// A task, unique in the cluster for as long as anyone remembers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}", self.0)
    }
}

/// Which global scheduler: each one that takes over has a larger number than all before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u32);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "term {}", self.0)
    }
}

/// A scale-out task: one more instance is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task<D> {
    /// Which task.
    pub id: TaskId,
    /// Which attempt at it; a later one begins only when no earlier one can start any more.
    pub attempt: u32,
    /// How often the task has passed from one holder to the next in this attempt.
    pub leg: u32,
    /// q(x): what the instance takes.
    pub demand: D,
    /// s(x): the remaining time, shortest first.
    pub remaining: Millis,
    /// When the task is no longer wanted: nobody starts it later, and everybody may forget it.
    pub deadline: Millis,
}

impl<D: Copy> Task<D> {
    /// As the next holder gets it.
    #[must_use]
    pub(super) const fn passed_on(mut self, leg: u32) -> Self {
        self.leg = leg.saturating_add(1);
        self
    }
}

/// A question whether a node has room, which reserves it if so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe<D> {
    /// Which task.
    pub id: TaskId,
    /// Which attempt at it.
    pub attempt: u32,
    /// The leg on which its holder has it.
    pub leg: u32,
    /// What it asks for.
    pub demand: D,
    /// When it is no longer wanted.
    pub deadline: Millis,
    /// Who asks.
    pub home: NodeIndex,
    /// Whether the node keeps the question until it has room, rather than answering no.
    pub wait: bool,
}

/// How a node stands, as the global scheduler hears it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeReport<D> {
    /// Which node.
    pub node: NodeIndex,
    /// Grows with every change of what is free.
    pub version: u64,
    /// What is neither used nor reserved.
    pub free: D,
    /// The global scheduler that the node follows.
    pub term: Term,
    /// The largest serial number of a placement of that one that has arrived there.
    pub seen: u64,
}

/// What a node's scheduler hears.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ToNode<D> {
    /// A task arrives from its submitter.
    Submit(Task<D>),
    /// A task is sent on by a node that found this one the best by its snapshot, so many hops from its first node.
    Hint(Task<D>, u8),
    /// Is there room?
    Probe(Probe<D>),
    /// The answer of a node that was asked.
    Reply {
        /// Which task.
        id: TaskId,
        /// Which attempt at it.
        attempt: u32,
        /// Who answers.
        from: NodeIndex,
        /// Whether the room is reserved.
        yes: bool,
    },
    /// A reserved room is no longer needed.
    Release {
        /// Which task.
        id: TaskId,
        /// Which attempt at it.
        attempt: u32,
    },
    /// The task for which room was reserved.
    Assign(Task<D>),
    /// The global scheduler of this term places a task, with the serial number of its placements on this node.
    Place(Task<D>, Term, u64),
    /// Nothing may start this attempt or an earlier one from now on; was it started?
    Fence(Fence),
}

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fence {
    /// Which task.
    pub id: TaskId,
    /// The last attempt that must not start any more.
    pub attempt: u32,
    /// Until when the fence must stand.
    pub deadline: Millis,
}

/// What the global scheduler hears.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ToGlobal<D> {
    /// A task for which no room was found otherwise, for the global scheduler of this term and no other.
    Forward(Task<D>, Term),
    /// A placed task comes back from a node without room.
    Bounce(Task<D>, NodeReport<D>),
    /// How a node stands.
    Notice(NodeReport<D>),
    /// As for nodes.
    Fence(Fence),
}

/// What the submitter of tasks hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToSubmitter {
    /// The task's instance was started.
    Started {
        /// Which task.
        id: TaskId,
        /// Which attempt at it.
        attempt: u32,
        /// Where.
        by: NodeIndex,
    },
    /// The task will not be started.
    Refused {
        /// Which task.
        id: TaskId,
        /// Which attempt at it.
        attempt: u32,
        /// Why.
        refusal: Refusal,
    },
    /// The task was passed on to a node that is lost.
    Broken {
        /// Which task.
        id: TaskId,
        /// Which attempt at it.
        attempt: u32,
    },
    /// The answer to a fence: from now on the attempt cannot start here.
    Fenced {
        /// Which task.
        id: TaskId,
        /// The last attempt that is fenced.
        attempt: u32,
        /// Who answers; `None` is the global scheduler.
        by: Option<NodeIndex>,
        /// Whether it had been started here before.
        started: bool,
    },
}

/// Why a task will not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Refusal {
    /// The queue of the global scheduler is full.
    #[error("the queue of the global scheduler is full")]
    QueueFull,
    /// So many tasks are remembered that another one could be started twice.
    #[error("the memory of recent tasks is full")]
    MemoryFull,
    /// Every node asked was without room, as often as the settings allow.
    #[error("no node asked had room")]
    NoRoom,
    /// No node is large enough for it, even if nothing else ran there.
    #[error("no node is large enough")]
    TooLarge,
    /// It waited beyond its deadline.
    #[error("no room before the deadline")]
    Expired,
}

/// Who found the place of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The node where it arrived had room.
    Local,
    /// A probe.
    Probe,
    /// A hint.
    Hint,
    /// The global scheduler.
    Global,
}

/// A running instance on its node: what the shell hands back when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    pub(super) slot: u32,
    pub(super) number: u64,
}

/// What the shell of a scheduler must do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action<D> {
    /// Start the task's instance here; when it has ended, say so with the handle.
    Start {
        /// Here: the node whose scheduler says so.
        node: NodeIndex,
        /// The task.
        task: Task<D>,
        /// Who found the place.
        stage: Stage,
        /// The handle.
        running: Running,
    },
    /// Send this to a node.
    Node(NodeIndex, ToNode<D>),
    /// Send this to the global scheduler.
    Global(ToGlobal<D>),
    /// Send this to the submitter of the task.
    Submitter(ToSubmitter),
}
