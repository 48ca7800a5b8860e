//! The interface between a cluster and the node on which it runs.

use std::time::Duration;

use bytes::Bytes;
use fdn_core::{Millis, NodeId, Resources};
use fdn_scheduling::instance::{Refusal, TaskId};
use serde::Serialize;

use crate::trace::{Hop, Step};

/// A request for one more instance, somewhere in the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScalingTask {
    /// The caller's own number for the task; returned with the outcome.
    pub label: u64,
    /// The resources that the instance needs.
    pub demand: Resources,
    /// The expected duration of its request; the shortest goes first where several wait.
    pub expected: Millis,
    /// What to start, for the host that starts it: a function and its version, in whatever encoding the hosts use.
    pub payload: Bytes,
    /// Whether it may be started again when the node with its instance is lost.
    pub idempotent: bool,
}

/// The outcome of a scaling task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The caller's number of the task.
    pub label: u64,
    /// The cluster's number of the task.
    pub task: u64,
    /// How it was settled.
    pub result: Settlement,
    /// The time from the request to the outcome.
    pub took: Duration,
}

/// How a scaling task was settled.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Settlement {
    /// Its instance was started.
    Started {
        /// The node on which it runs.
        node: NodeId,
        /// The path of the task.
        trace: Vec<Hop>,
    },
    /// It was not started and will not be.
    Refused(#[serde(serialize_with = "as_text")] Reason),
    /// No node could tell before all had forgotten it: it may have been started. Count the instances.
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
    /// This node is cut off from most of its cluster, and either has no room itself or cannot know whether another node has started it. If one
    /// has, that instance is ended when this node is back.
    #[error("this node is cut off from its cluster")]
    CutOff,
}

/// An order to start an instance on this node.
#[derive(Clone, Debug, PartialEq)]
pub struct StartOrder {
    /// The task. The host reports [`crate::Cluster::ended`] or [`crate::Cluster::failed`] with it when the instance is gone or could not be started.
    pub task: TaskId,
    /// The resources of the instance, which stay reserved until then.
    pub demand: Resources,
    /// What to start.
    pub payload: Bytes,
    /// The step that found the room.
    pub step: Step,
}

/// News of an instance that this node requested, after its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceEvent {
    /// The instance has ended.
    Ended(TaskId),
    /// The instance could not be started.
    Failed(TaskId),
    /// Its node is lost, and the instance with it; the task was declared idempotent and is run again, as the second task.
    Rerun(TaskId, TaskId),
    /// Its node is lost, and the instance with it.
    Lost(TaskId),
    /// Its node was believed lost, and is back with the instance.
    Returned(TaskId, NodeId),
}

/// The host of a cluster node. It is called from the cluster's own task: it must return at once, and do slow work elsewhere.
pub trait Host: Send + 'static {
    /// Starts an instance. The room for it is already reserved; the host cannot refuse.
    fn start(&mut self, order: StartOrder);

    /// Ends an instance: another one runs in its place.
    fn end(&mut self, task: TaskId);

    /// Receives news of an instance that this node requested.
    fn instance_event(&mut self, event: InstanceEvent) {
        let _ = event;
    }
}
