//! Runs workflows: the gateway that receives a call leads its run, in whatever clusters the stages run.
//!
//! ```text
//!  client ─▶ gateway ─▶ lead ─ Run (fdn_scheduling::run) decides
//!                        ├─ here ──▶ Gateway::stage ─▶ sandbox or instance of this cluster
//!                        └─ client ═══ HTTP/2, mutual TLS ═══▶ serve ─▶ Gateway::stage in another cluster
//! ```
//!
//! `lead` performs the actions of the state machine and keeps the outputs that are still needed; `call` is one call of one stage, wherever it
//! runs; `here` makes it in this process, `client` sends it to a gateway of another cluster, and `serve` answers it there. `budget` bounds what a
//! run keeps. Each stage call is admitted, measured, recorded and logged exactly as a call of a plain function.
//!
//! Calls of later stages are announced ahead of time (`prewarm`), so that their instances start while earlier stages still run.
//!
//! Whole calls that this node cannot serve use the same connections: `forward` sends them to a gateway that can, `forwarded` serves them there.
//! On the same listener, `controllers` answers controllers and lets them call apps.

mod answer;
mod budget;
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
pub use controllers::AnswerSources;
pub(crate) use controllers::{problem, response};
pub(crate) use forward::{ForwardOutcome, ForwardedCall, Refusals};
pub(crate) use lead::Caller;
pub(crate) use overflow::{ForwardTarget, Loads};
pub use run_changes::RunChanges;
pub(crate) use serve::StageBody;
pub use server::{StageServer, StageServerParts};

use crate::metrics::{ForwardMetrics, WorkflowMetrics};
use crate::rtt::links::Nearness;
use crate::settings::{ForwardSettings, WorkflowSettings};

/// State shared by all runs of a gateway.
pub struct Workflows {
    /// This cluster.
    pub cluster: ClusterId,
    /// Settings.
    pub settings: WorkflowSettings,
    /// The client for other clusters, if this node takes part in calls between clusters.
    pub client: Option<Arc<StageClient>>,
    /// Metrics of runs and stage calls.
    pub metrics: WorkflowMetrics,
    /// Metrics of forwarded calls.
    pub forwarding: ForwardMetrics,
    /// Settings of forwarding.
    pub forward: ForwardSettings,
    /// The round-trip times to other clusters.
    pub nearness: Arc<Nearness>,
    /// Gateways that recently could not serve an app.
    pub(crate) refusals: Refusals,
    /// How long calls take at other gateways, as these reported.
    pub(crate) loads: Loads,
    /// Permits for further forwarded calls.
    pub(crate) forward_permits: Semaphore,
    /// This node.
    pub node: NodeId,
    /// Changes of runs to be reported to the controllers.
    pub run_changes: Arc<RunChanges>,
    runs: Arc<Semaphore>,
    /// Permits for further announcements in progress.
    announce_permits: Semaphore,
}

impl Workflows {
    /// The shared state before any run.
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
            announce_permits: Semaphore::new(settings.prewarm_tells.min(Semaphore::MAX_PERMITS)),
            forward_permits: Semaphore::new(forward.calls.min(Semaphore::MAX_PERMITS)),
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
