//! Running workflows: the gateway that a call comes to leads the run, whatever cluster its stages run in.
//!
//! ```text
//!  client ─▶ gateway ─▶ lead ─ Run (fdn_scheduling::run) decides
//!                        ├─ here ──▶ Gateway::stage ─▶ sandbox or instance of this cluster
//!                        └─ client ═══ HTTP/2, mutual TLS ═══▶ serve ─▶ Gateway::stage in another cluster
//! ```
//!
//! `lead` performs what the state machine says and keeps the outputs that others need; `call` is one call of one stage, wherever it
//! goes; `here` makes it in this process, `client` sends it to a gateway of another cluster, and `serve` takes it there. Each call of a
//! stage is let in, measured, recorded and logged exactly as a call of a plain function is.
//!
//! Later stages are told ahead that their call will come (`prewarm`), so that their instances start while the stages before them still run.
//!
//! Over the same connections whole calls go that this node cannot serve: `forward` hands them on to a gateway that can, `forwarded` takes them. And the
//! same listener is where `controllers` ask this node, and call its gateway.

mod answer;
pub mod call;
mod client;
mod controllers;
mod forward;
mod forwarded;
mod here;
mod inputs;
mod lead;
mod overflow;
mod prewarm;
pub mod run_changes;
mod serve;
mod server;
mod wire;

use std::sync::Arc;

use fdn_core::{ClusterId, NodeId};
use tokio::sync::Semaphore;

pub use client::StageClient;
pub use controllers::Told;
pub(crate) use controllers::{problem, told};
pub(crate) use forward::{Handed, Handing, Refusals};
pub(crate) use lead::Caller;
pub(crate) use overflow::{Asked, Loads};
pub use run_changes::RunChanges;
pub(crate) use serve::StageBody;
pub use server::{StageServer, StageServerParts};

use crate::metrics::{ForwardMetrics, WorkflowMetrics};
use crate::rtt::links::Nearness;
use crate::settings::{ForwardSettings, WorkflowSettings};

/// What all runs of a gateway share.
pub struct Workflows {
    /// This cluster.
    pub cluster: ClusterId,
    /// Settings.
    pub settings: WorkflowSettings,
    /// Reaches other clusters, if this node takes part in calls between them.
    pub client: Option<Arc<StageClient>>,
    /// Counters.
    pub metrics: WorkflowMetrics,
    /// Of calls that are handed on.
    pub forwarding: ForwardMetrics,
    /// How they are handed on.
    pub forward: ForwardSettings,
    /// How far other clusters are.
    pub nearness: Arc<Nearness>,
    /// Gateways that did not serve an app just now.
    pub(crate) refusals: Refusals,
    /// How long calls take at others, as these told.
    pub(crate) loads: Loads,
    /// Calls that may be handed on beside those that are.
    pub(crate) handing: Semaphore,
    /// This node.
    pub node: NodeId,
    /// What the controllers are to be told of runs.
    pub run_changes: Arc<RunChanges>,
    runs: Arc<Semaphore>,
    /// Of how many later stages gateways may be told beside those that they are told of.
    telling: Semaphore,
}

impl Workflows {
    /// No run yet.
    #[must_use]
    pub fn new(
        (node, cluster): (NodeId, ClusterId),
        run_changes: Arc<RunChanges>,
        settings: WorkflowSettings,
        client: Option<Arc<StageClient>>,
        metrics: WorkflowMetrics,
        (forward, forwarding, nearness): (ForwardSettings, ForwardMetrics, Arc<Nearness>),
    ) -> Self {
        Self {
            runs: Arc::new(Semaphore::new(settings.runs)),
            telling: Semaphore::new(settings.prewarm_tells.min(Semaphore::MAX_PERMITS)),
            handing: Semaphore::new(forward.calls.min(Semaphore::MAX_PERMITS)),
            cluster,
            settings,
            client,
            metrics,
            forward,
            forwarding,
            nearness,
            refusals: Refusals::default(),
            loads: Loads::default(),
            node,
            run_changes,
        }
    }
}
