//! A workflow that is ready: its stages, each a function version that can be called here, and the data that its runs need.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fdn_core::manifest::Manifest;
use fdn_core::message::{AppSpec, StageObserved};
use fdn_core::workflow::{RunSpec, Workflow};
use fdn_core::{
    AppName, ByteSize, ClusterId, FunctionName, HostName, Millis, StageName, VersionNumber,
};
use fdn_scheduling::prewarm::smoothed_duration;

use super::Deployed;
use crate::error::PrepareError;
use crate::gateway::split::Split;
use crate::metrics::AppMetrics;

/// The weight of the newest sample in the moving mean of output sizes.
const MEAN_WEIGHT: f64 = 0.1;

/// What answers an app's calls.
#[derive(Clone)]
pub struct Serving {
    /// The function that receives the calls.
    pub entry: Arc<Deployed>,
    /// The versions that share the calls, if they are split.
    pub split: Option<Arc<Split>>,
    /// The stages, if the app is a workflow.
    pub staged: Option<Arc<Staged>>,
    /// Whether a part is served in another form than the chosen one, which cannot run now but may later.
    pub(super) stands_in: bool,
}

impl Serving {
    /// Serves a workflow.
    ///
    /// # Errors
    /// When the node cannot run the entry stage.
    pub(super) fn staged(staged: Staged, stands_in: bool) -> Result<Self, PrepareError> {
        let entry = &staged.stages[staged.entry];
        let entry = entry.deployed.clone().ok_or_else(|| {
            PrepareError::Spec(format!(
                "neither this node nor another one of its cluster runs containers and has the devices that they ask for, and stage {} is one; set docker.enabled or kubernetes.enabled, or let a node join that has them",
                entry.name
            ))
        })?;
        Ok(Self {
            entry,
            split: None,
            staged: Some(Arc::new(staged)),
            stands_in,
        })
    }

    /// The function or the stages that are served in another form than in `before`.
    pub(super) fn in_other_forms(&self, before: &Self) -> Vec<Arc<Deployed>> {
        // The first form equals a version without forms.
        let form = |of: &Deployed| of.form.clone().filter(|form| !form.is_main());
        let differs = |old: &Deployed, new: &Deployed| form(old) != form(new);
        let (Some(now), Some(before)) = (&self.staged, &before.staged) else {
            let entry = differs(&before.entry, &self.entry).then(|| Arc::clone(&self.entry));
            return entry.into_iter().collect();
        };
        let stages = now.stages.iter().filter_map(|stage| {
            let old = before.find(&stage.name)?.deployed.as_ref()?;
            let new = stage.deployed.as_ref()?;
            differs(old, new).then(|| Arc::clone(new))
        });
        stages.collect()
    }

    /// Every ready version of a plain function.
    pub(super) fn all(&self) -> Vec<Arc<Deployed>> {
        let split = self.split.iter().flat_map(|split| &split.shares);
        let others = split.map(|(_, deployed)| Arc::clone(deployed));
        std::iter::once(Arc::clone(&self.entry))
            .chain(others)
            .collect()
    }
}

/// The measurements of a stage, kept across versions.
#[derive(Debug)]
pub struct StageStats {
    /// The metrics of its calls, as those of an app.
    pub metrics: Arc<AppMetrics>,
    /// The moving mean of output sizes in bytes, as the bits of an `f64`. Concurrent updates may lose a sample, which a mean tolerates.
    output: AtomicU64,
    /// The typical time of an attempt in ms, wherever it runs, including the way there, stored like the sizes; leans towards short times.
    took: AtomicU64,
    /// When an attempt last succeeded.
    answered: Mutex<Option<Instant>>,
}

impl StageStats {
    /// Statistics without samples.
    #[must_use]
    pub fn new(metrics: Arc<AppMetrics>) -> Arc<Self> {
        Arc::new(Self {
            metrics,
            output: AtomicU64::new(f64::NAN.to_bits()),
            took: AtomicU64::new(f64::NAN.to_bits()),
            answered: Mutex::default(),
        })
    }

    /// Records an attempt that succeeded after `took`.
    pub fn took(&self, took: Duration) {
        let next = smoothed_duration(self.typical(), Millis::from(took));
        self.took.store(next.get().to_bits(), Ordering::Relaxed);
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        *answered = Some(Instant::now());
    }

    /// The typical time of an attempt; `None` before one has succeeded.
    #[must_use]
    pub fn typical(&self) -> Option<Millis> {
        let known = f64::from_bits(self.took.load(Ordering::Relaxed));
        (!known.is_nan()).then(|| Millis::new(known))
    }

    /// Whether an attempt succeeded within the last `within`.
    #[must_use]
    pub fn has_answered(&self, within: Duration) -> bool {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.is_some_and(|at| at.elapsed() < within)
    }

    /// Records the size of an output, in bytes.
    pub fn put_out(&self, bytes: usize) {
        let mean = f64::from_bits(self.output.load(Ordering::Relaxed));
        let next = if mean.is_nan() {
            bytes as f64
        } else {
            mean + (bytes as f64 - mean) * MEAN_WEIGHT
        };
        self.output.store(next.to_bits(), Ordering::Relaxed);
    }

    fn output(&self) -> Option<ByteSize> {
        let mean = f64::from_bits(self.output.load(Ordering::Relaxed));
        (!mean.is_nan()).then(|| ByteSize::from_bytes(mean.max(0.0) as u64))
    }
}

/// A stage of a workflow that is ready.
pub struct StageServing {
    /// Its name.
    pub name: StageName,
    /// The function it runs.
    pub function: FunctionName,
    /// The function's version.
    pub version: VersionNumber,
    /// The version's manifest.
    pub manifest: Manifest,
    /// Its measurements.
    pub stats: Arc<StageStats>,
    /// What answers its calls here; `None` if this node cannot run it.
    pub deployed: Option<Arc<Deployed>>,
}

/// A workflow that is ready.
pub struct Staged {
    /// The app.
    pub app: AppName,
    /// Its host name.
    pub host: HostName,
    /// The DAG.
    pub workflow: Workflow,
    /// How the workflow is run.
    pub run: RunSpec,
    /// The stages, in the workflow's order.
    pub stages: Vec<StageServing>,
    /// The index of the entry stage.
    pub entry: usize,
    /// By stage, in the workflow's order: the indexes of its parents.
    pub parents: Vec<Vec<usize>>,
    /// The clusters that a plan of the app uses.
    pub others: Vec<ClusterId>,
}

impl Staged {
    pub(super) fn new(
        app: &AppName,
        spec: &AppSpec,
        run: &RunSpec,
        stages: Vec<StageServing>,
    ) -> Self {
        let place = |name: &StageName| stages.iter().position(|stage| stage.name == *name);
        let mut parents = vec![Vec::new(); stages.len()];
        for edge in spec.workflow.edges() {
            if let (Some(from), Some(to)) = (place(&edge.from), place(&edge.to)) {
                parents[to].push(from);
            }
        }
        for of_one in &mut parents {
            of_one.sort_unstable();
        }
        let entry = place(&spec.workflow.entry().name).unwrap_or_default();
        Self {
            app: app.clone(),
            host: spec.host.clone(),
            workflow: spec.workflow.clone(),
            run: run.clone(),
            entry,
            parents,
            stages,
            others: spec.primary.iter().cloned().collect(),
        }
    }

    /// A stage by its name.
    #[must_use]
    pub fn find(&self, name: &StageName) -> Option<&StageServing> {
        self.stages.iter().find(|stage| stage.name == *name)
    }

    /// Whether no other stage takes the stage's output.
    #[must_use]
    pub fn is_exit(&self, stage: usize) -> bool {
        !self.parents.iter().any(|parents| parents.contains(&stage))
    }

    /// The measurements of the stages that have run here.
    #[must_use]
    pub fn observed(&self) -> Vec<StageObserved> {
        let measured = self.stages.iter().filter_map(|stage| {
            Some(StageObserved {
                stage: stage.name.clone(),
                runs: stage.stats.metrics.invocations(),
                execution_mean: stage.stats.metrics.execution_mean().unwrap_or(Millis::ZERO),
                output_mean: stage.stats.output()?,
                phases: stage.stats.metrics.phases(),
                form: stage
                    .deployed
                    .as_ref()
                    .and_then(|deployed| deployed.form.clone()),
            })
        });
        measured.collect()
    }
}
