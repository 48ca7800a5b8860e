//! Commands from the host to the node's task, with channels for the answers.

use fdn_core::{NodeId, Resources};
use fdn_scheduling::instance::TaskId;
use tokio::sync::{mpsc, oneshot};

use crate::host::{Outcome, ScalingTask};
use crate::status::ClusterStatus;

/// A command from the host.
#[derive(Debug)]
pub(crate) enum Command {
    /// Requests instances; the outcomes go to this channel, one per task.
    Scale(Vec<ScalingTask>, mpsc::UnboundedSender<Outcome>),
    /// Reserves room for an instance that is already running.
    Hold(Resources, oneshot::Sender<Option<TaskId>>),
    /// Stops or resumes taking new instances.
    Drain(bool),
    /// Declares a node dead, whatever the members believe.
    Forget(NodeId),
    /// Cuts this node off from these nodes, for tests.
    Cut(Vec<NodeId>),
    /// Requests the node's status.
    Status(oneshot::Sender<ClusterStatus>),
    /// Leaves the cluster.
    Leave(oneshot::Sender<()>),
}

/// Reports that an instance has ended, or could not be started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) task: TaskId,
    pub(crate) failed: bool,
}
