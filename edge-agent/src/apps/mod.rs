//! The apps on this node: their desired state, their progress, and what answers their calls.
//!
//! [`state`] decides; this module is its shell. One task owns the state, takes commands from a bounded queue, performs the actions and publishes
//! two views: the gateway's route table, and the list of [`Observed`] apps for status reports. Preparations run concurrently, a few at a time,
//! and report back.

mod deployed;
mod image;
mod prepare;
mod shell;
mod staged;
pub mod state;
pub mod store;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fdn_core::api::AppsSnapshot;
use fdn_core::message::{AppDesired, AppPhase};
use fdn_core::policy::quota::AppQuotaUsage;
use fdn_core::{AppName, ByteSize, ClusterId, Digest, Millis, NodeId, Revision};
use fdn_service::address_policy::AddressPolicy;
use fdn_service::health::Readiness;
use fdn_service::seal::SealKey;
use fdn_service::{CancellationToken, ServiceError};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

pub use deployed::{Deployed, DeployedParts, Sandboxes, Server};
pub use staged::{Serving, StageServing, StageStats, Staged};

use crate::artifacts::ArtifactCache;
use crate::error::Error;
use crate::gateway::routes::Routes;
use crate::invocations::{Instances, Ledger};
use crate::logs::LogHub;
use crate::metrics::{AppMetrics, Metrics};
use crate::policy::Guards;
use crate::settings::{AppsSettings, LogsSettings, PolicySettings};

/// The readiness condition that holds once the desired state is known.
pub const CONDITION_STATE: &str = "desired_state";
/// The readiness condition that holds once every app known at startup is ready or has failed.
pub const CONDITION_APPS: &str = "apps";

/// The capacity of the shell's command queue.
const QUEUE: usize = 256;

/// What the apps part is made of.
pub struct AppsParts {
    /// The settings of preparations.
    pub settings: AppsSettings,
    /// The limits of functions' output.
    pub logs: LogsSettings,
    /// The node's limit for request bodies.
    pub body_limit: ByteSize,
    /// The node.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// The folder that contains the state file.
    pub folder: PathBuf,
    /// The key that opens secrets.
    pub key: SealKey,
    /// The artifact cache.
    pub cache: ArtifactCache,
    /// The engine that runs functions.
    pub engine: fdn_runtime::Engine,
    /// The node's resources.
    pub ledger: Arc<Ledger>,
    /// The instances in containers or pods, if this node runs any.
    pub instances: Option<Instances>,
    /// The apps' logs.
    pub hub: Arc<LogHub>,
    /// The node's metrics.
    pub metrics: Metrics,
    /// The gateway's route table.
    pub routes: Arc<Routes>,
    /// Notified when a phase changes.
    pub phase_changed: Arc<Notify>,
    /// The readiness of the agent.
    pub readiness: Readiness,
    /// The limits of policies.
    pub policy: PolicySettings,
    /// Restricts where identity providers' keys may be fetched from.
    pub reach: AddressPolicy,
}

impl AppsParts {
    fn guards(&self, stop: CancellationToken) -> Result<Guards, ServiceError> {
        Guards::new(
            self.policy.clone(),
            self.metrics.policy.clone(),
            self.reach.clone(),
            self.folder.clone(),
            stop,
        )
    }
}

/// The observed state of an app, for status reports.
#[derive(Clone)]
pub struct Observed {
    /// The app.
    pub app: AppName,
    /// The desired revision.
    pub revision: Revision,
    /// The app's phase.
    pub phase: AppPhase,
    /// Its counters.
    pub metrics: Arc<AppMetrics>,
    /// What answers its calls, if anything does.
    pub deployed: Option<Arc<Deployed>>,
    /// Whether its calls are split between several versions.
    pub split: bool,
    /// Its stages, if it is a workflow.
    pub staged: Option<Arc<Staged>>,
}

impl Observed {
    /// The versions that answer its calls: one, or one per stage that runs here.
    pub fn versions(&self) -> impl Iterator<Item = &Arc<Deployed>> {
        let stages = self.staged.iter().flat_map(|staged| &staged.stages);
        let stages = stages.filter_map(|stage| stage.deployed.as_ref());
        let single = self.deployed.as_ref().filter(|_| self.staged.is_none());
        stages.chain(single)
    }

    /// Whether the app runs a single function, so that measurements of its calls apply to that function.
    #[must_use]
    pub fn is_of_one_function(&self) -> bool {
        let staged = self.staged.as_ref();
        staged.is_none_or(|staged| staged.stages.len() == 1)
    }

    /// The metrics of calls that use the node's resources: the app's own, or those of its stages.
    pub fn counted(&self) -> impl Iterator<Item = &Arc<AppMetrics>> {
        let stages = self.staged.iter().flat_map(|staged| &staged.stages);
        let own = Some(&self.metrics).filter(|_| self.staged.is_none());
        stages.map(|stage| &stage.stats.metrics).chain(own)
    }

    /// The number of calls that wait for the app itself to become ready.
    #[must_use]
    pub fn held(&self) -> u32 {
        if self.staged.is_some() || self.deployed.is_none() {
            self.metrics.waiting_now()
        } else {
            0
        }
    }

    /// The expected time of a call: measured, or else from the manifest.
    #[must_use]
    pub fn expected(&self) -> Millis {
        let manifest = self.deployed.as_ref().map(|d| d.manifest.expected_millis());
        self.metrics
            .execution_mean()
            .or(manifest)
            .unwrap_or(Millis::ZERO)
    }
}

enum Command {
    Desired(AppDesired, oneshot::Sender<()>),
    Snapshot(AppsSnapshot, oneshot::Sender<()>),
    Removed(oneshot::Sender<()>),
    Used(Vec<AppQuotaUsage>),
    Begun(AppName, Revision),
    Prepared(AppName, Revision, Serving),
    Failed(AppName, Revision, String),
    Broken(AppName, Revision, Digest),
}

/// The apps part has stopped.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the agent is stopping")]
pub struct Stopped;

/// A handle to the apps of this node, cheap to clone.
#[derive(Clone)]
pub struct Apps {
    commands: mpsc::Sender<Command>,
    observed: Arc<ArcSwap<Vec<Observed>>>,
}

impl Apps {
    /// Reads the state from disk and starts serving it. The task ends when `stop` is cancelled.
    ///
    /// # Errors
    /// When the state cannot be read.
    pub fn start(
        parts: AppsParts,
        stop: CancellationToken,
    ) -> Result<(Self, JoinHandle<()>), Error> {
        let store = store::Store::open(&parts.folder)?;
        let saved = store.load()?;
        if saved.is_some() {
            parts.readiness.set(CONDITION_STATE, true, "read from disk");
        }
        let (commands, queue) = mpsc::channel(QUEUE);
        let observed = Arc::new(ArcSwap::default());
        let handle = Self {
            commands: commands.clone(),
            observed: Arc::clone(&observed),
        };
        let mut shell = shell::Shell::new(parts, store, commands, observed, stop.clone())?;
        // Restored before anything is accepted: a call right after a restart must not be told that its app does not exist.
        shell.restore(saved.unwrap_or_default());
        let task = tokio::spawn(shell.run(queue, stop));
        Ok((handle, task))
    }

    /// Handles a message about one app; returns once it is on disk.
    ///
    /// # Errors
    /// When the agent is stopping; the message must be sent again.
    pub async fn desired(&self, desired: AppDesired) -> Result<(), Stopped> {
        self.send_command(|done| Command::Desired(desired, done))
            .await
    }

    /// Handles a snapshot of all apps; returns once it is on disk.
    ///
    /// # Errors
    /// When the agent is stopping.
    pub async fn snapshot(&self, snapshot: AppsSnapshot) -> Result<(), Stopped> {
        self.send_command(|done| Command::Snapshot(snapshot, done))
            .await
    }

    /// Forgets all apps, in memory and on disk, because the node was removed from the network.
    ///
    /// # Errors
    /// When the agent is stopping.
    pub async fn removed(&self) -> Result<(), Stopped> {
        self.send_command(Command::Removed).await
    }

    /// Handles the usage of quotas.
    ///
    /// # Errors
    /// When the agent is stopping.
    pub async fn used(&self, used: Vec<AppQuotaUsage>) -> Result<(), Stopped> {
        let sent = self.commands.send(Command::Used(used)).await;
        sent.map_err(|_| Stopped)
    }

    async fn send_command(
        &self,
        command: impl FnOnce(oneshot::Sender<()>) -> Command,
    ) -> Result<(), Stopped> {
        let (done, taken) = oneshot::channel();
        self.commands
            .send(command(done))
            .await
            .map_err(|_| Stopped)?;
        taken.await.map_err(|_| Stopped)
    }

    /// Reports that a served version cannot be loaded. If the queue is full, the next call will report it again.
    pub fn broken(&self, app: &AppName, revision: Revision, digest: Digest) {
        drop(
            self.commands
                .try_send(Command::Broken(app.clone(), revision, digest)),
        );
    }

    /// The observed state of all apps, by name.
    #[must_use]
    pub fn observed(&self) -> Arc<Vec<Observed>> {
        self.observed.load_full()
    }
}

/// The metrics of existing apps, kept across their versions.
type Counters = BTreeMap<AppName, Arc<AppMetrics>>;
