//! What a cluster asks of the node it runs on, and what it is asked for.

use std::time::Duration;

use bytes::Bytes;
use fdn_core::{Millis, NodeId, Resources};
use fdn_scheduling::instance::{Refusal, TaskId};
use serde::Serialize;

use crate::trace::{Hop, Step};

/// One more instance is wanted, somewhere in the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScalingTask {
    /// The caller's own number for it; comes back with the outcome.
    pub label: u64,
    /// What the instance takes.
    pub demand: Resources,
    /// The expected time of its request; the shortest goes first where several wait.
    pub expected: Millis,
    /// What the instance is to be, for the host that starts it: a function and its version, in whatever form the hosts use.
    pub payload: Bytes,
    /// Whether it may be done once more when the node with its instance is lost.
    pub idempotent: bool,
}

/// What became of a scaling task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The caller's number.
    pub label: u64,
    /// The cluster's.
    pub task: u64,
    /// What became of it.
    pub result: Settlement,
    /// After which time.
    pub took: Duration,
}

/// What became of a scaling task.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Settlement {
    /// Its instance was started.
    Started {
        /// Where.
        node: NodeId,
        /// The way there.
        trace: Vec<Hop>,
    },
    /// It was not started and will not be.
    Refused(#[serde(serialize_with = "as_text")] Reason),
    /// Nobody could say before all forgot it: it may have been started. Count the instances.
    Unresolved,
}

fn as_text<S: serde::Serializer>(reason: &Reason, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(reason)
}

/// Why a scaling task was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The schedulers refused it.
    #[error(transparent)]
    Scheduler(#[from] Refusal),
    /// Too many tasks of this node are open.
    #[error("as many tasks are open as may be")]
    TooManyOpen,
    /// Its payload is too long.
    #[error("the payload is above its limit")]
    PayloadTooLong,
    /// This node is cut off from most of its cluster, and has no room itself or cannot know whether another has started it. If one
    /// has, the instance is ended when this node is back.
    #[error("this node is cut off from its cluster")]
    CutOff,
}

/// An instance is to be started here.
#[derive(Clone, Debug, PartialEq)]
pub struct StartOrder {
    /// Which task. The host says [`crate::Cluster::ended`] with it when the instance is gone, or could not be started.
    pub task: TaskId,
    /// What the instance takes: reserved until then.
    pub demand: Resources,
    /// What it is to be.
    pub payload: Bytes,
    /// Who found the room.
    pub step: Step,
}

/// What this node has asked for has changed after it was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceNews {
    /// The instance has ended.
    Ended(TaskId),
    /// It could not be started.
    Failed(TaskId),
    /// Its node is lost, and the instance with it; the task was declared idempotent and is being done again, as this one.
    Rerun(TaskId, TaskId),
    /// Its node is lost, and the instance with it.
    Lost(TaskId),
    /// Its node was thought lost, and is there again with the instance.
    Returned(TaskId, NodeId),
}

/// The node under a cluster. It is called from the cluster's own task: it must return at once, and do slow things elsewhere.
pub trait Host: Send + 'static {
    /// Start an instance. The room for it is reserved; this is decided, not asked.
    fn start(&mut self, order: StartOrder);

    /// End an instance: another one runs in its place.
    fn end(&mut self, task: TaskId);

    /// News of an instance that this node has asked for.
    fn news(&mut self, news: InstanceNews) {
        let _ = news;
    }
}
