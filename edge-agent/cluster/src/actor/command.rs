//! What the host says to the node's task, and the answers.

use fdn_core::{NodeId, Resources};
use fdn_scheduling::instance::TaskId;
use tokio::sync::{mpsc, oneshot};

use crate::host::{Outcome, ScalingTask};
use crate::status::ClusterStatus;

/// The host's words.
#[derive(Debug)]
pub(crate) enum Command {
    /// More instances are wanted; outcomes go there, one per task.
    Scale(Vec<ScalingTask>, mpsc::UnboundedSender<Outcome>),
    /// Room for an instance that runs already.
    Hold(Resources, oneshot::Sender<Option<TaskId>>),
    /// Take no more instances, or take some again.
    Drain(bool),
    /// That node is dead, whatever the members think.
    Forget(NodeId),
    /// Cut this node off from these, for tests.
    Cut(Vec<NodeId>),
    /// How does it stand?
    Status(oneshot::Sender<ClusterStatus>),
    /// Leave the cluster.
    Leave(oneshot::Sender<()>),
}

/// An instance has ended, or could not be started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) task: TaskId,
    pub(crate) failed: bool,
}
