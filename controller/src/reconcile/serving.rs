//! Where the stages of an app can run, as reported by nodes: who has the runtime, and how far each is in serving the app.
//!
//! A cluster is as far as its most advanced node that takes work, since its gateways forward calls to that one. A cluster without a node
//! that has the function's runtime, or whose nodes all failed to make it ready, is excluded. One that is still preparing is excluded for
//! clients that are served elsewhere, and for new ones as long as any other cluster serves the app: nobody is sent where calls would wait
//! for an artifact. One whose nodes lack the GPU memory of an instance, in use or not, is excluded before any of them has tried. Within a
//! cluster, only nodes that have the runtime and have not failed to make the app ready count as capacity.

pub mod readiness;

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::api::Candidate;
use fdn_core::device::GpuRequest;
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::message::{AppPhase, NodeStatus};
use fdn_core::serving::ServingState;
use fdn_core::{AppName, ClusterId, FormName, MebiBytes, Resources, Revision, StageName};
use fdn_scheduling::dag::Holding;
use fdn_scheduling::place::{ClusterIndex, Constraints, Exclusion};
use fdn_scheduling::workflow::Profile;

/// How many characters of a node's failure reason an explanation repeats.
const REASON_MAX: usize = 200;

/// How far an app is in being served in a cluster.
#[derive(Clone, Debug)]
struct AppProgress {
    /// The number of nodes that reported on it.
    reporting: usize,
    /// The oldest revision among these nodes.
    revision: Revision,
    best: ServingState,
    /// Whether one of them has the artifact.
    is_fetched: bool,
    /// The number of running instances.
    instances: u32,
    /// The slots of the nodes that failed, by runtime.
    failed: [f64; 2],
    /// The failure reason of one of them.
    reason: Option<String>,
    /// The number of nodes that serve each form, for functions with several: of the app itself, or of a stage.
    forms: BTreeMap<(Option<StageName>, FormName), usize>,
}

/// The runtimes of all clusters, and how far all apps are in being served there.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    clusters: Vec<ClusterId>,
    /// By cluster: the number of nodes that take work.
    nodes: Vec<usize>,
    /// By cluster: the slots of these nodes.
    slots: Vec<f64>,
    /// By cluster: whether some node runs components, and whether some node runs containers.
    forms: Vec<[bool; 2]>,
    /// By cluster: the slots of the nodes that do.
    open: Vec<[f64; 2]>,
    /// By cluster: the largest GPU memory of a node.
    gpu: Vec<MebiBytes>,
    /// By cluster: the equipment of each node.
    equipment: Vec<Vec<NodeEquipment>>,
    apps: BTreeMap<AppName, BTreeMap<usize, AppProgress>>,
}

/// The equipment of a node.
#[derive(Clone, Debug)]
struct NodeEquipment {
    runs: [bool; 2],
    capacity: Resources,
    /// The models and memories of the devices from which it grants slices.
    devices: Vec<(String, MebiBytes)>,
}

/// The requirements of an instance.
#[derive(Clone, Debug)]
pub struct InstanceRequirements<'a> {
    kind: RuntimeKind,
    resources: Resources,
    gpu: Option<&'a GpuRequest>,
}

impl<'a> InstanceRequirements<'a> {
    /// The requirements of a function's instance.
    #[must_use]
    pub fn of(manifest: &'a Manifest) -> Self {
        Self {
            kind: manifest.runtime,
            resources: manifest.resources(),
            gpu: manifest.gpu.as_ref(),
        }
    }
}

impl NodeEquipment {
    /// Whether the node could hold such an instance if it were otherwise empty.
    fn holds(&self, need: &InstanceRequirements<'_>) -> bool {
        let has = |gpu: &GpuRequest| {
            let fits = |(model, memory): &&(String, MebiBytes)| {
                let is_model = gpu.model.as_ref().is_none_or(|wanted| wanted.covers(model));
                is_model && *memory >= gpu.memory.to_mebibytes()
            };
            // The devices must be of one model.
            let fitting: Vec<_> = self.devices.iter().filter(fits).collect();
            let alike = |model: &String| fitting.iter().filter(|one| one.0 == *model).count();
            fitting
                .iter()
                .any(|one| alike(&one.0) >= gpu.count as usize)
        };
        self.runs[form(need.kind)]
            && need.resources.fits(&self.capacity)
            && need.gpu.is_none_or(has)
    }
}

/// The index into [`Phases::forms`] for a kind of function.
const fn form(kind: RuntimeKind) -> usize {
    match kind {
        RuntimeKind::Wasm => 0,
        RuntimeKind::Docker => 1,
    }
}

/// The kind of function that holds resources in this way.
const fn kind_of(holding: Holding) -> RuntimeKind {
    match holding {
        Holding::Calls => RuntimeKind::Wasm,
        Holding::Instances(_) => RuntimeKind::Docker,
    }
}

/// How a stage with this profile holds resources, and the GPU memory of one of its instances.
pub(super) fn running(profile: Option<&Profile>) -> (Holding, MebiBytes) {
    profile.map_or((Holding::Calls, MebiBytes(0)), |profile| {
        (profile.holding, profile.demand.gpu_memory_mib)
    })
}

/// The kind of function with this profile.
pub(super) fn kind(profile: Option<&Profile>) -> RuntimeKind {
    kind_of(running(profile).0)
}

impl Phases {
    /// Aggregates the reports of living nodes; `clusters` gives the order of cluster indices.
    #[must_use]
    pub fn new(clusters: &[&ClusterId], alive: &[&NodeStatus]) -> Self {
        let mut phases = Self {
            clusters: clusters.iter().map(|id| (*id).clone()).collect(),
            nodes: vec![0; clusters.len()],
            slots: vec![0.0; clusters.len()],
            forms: vec![[false; 2]; clusters.len()],
            open: vec![[0.0; 2]; clusters.len()],
            gpu: vec![MebiBytes(0); clusters.len()],
            equipment: vec![Vec::new(); clusters.len()],
            apps: BTreeMap::new(),
        };
        for node in alive.iter().filter(|node| !node.draining) {
            if let Ok(at) = clusters.binary_search(&&node.cluster) {
                phases.take_in(at, node);
            }
        }
        phases
    }

    fn take_in(&mut self, at: usize, node: &NodeStatus) {
        self.nodes[at] += 1;
        self.gpu[at] = self.gpu[at].max(node.capacity.gpu_memory_mib);
        let slots = f64::from(node.slots);
        self.slots[at] += slots;
        let (mut open, mut has) = ([0.0; 2], [false; 2]);
        for kind in [RuntimeKind::Wasm, RuntimeKind::Docker] {
            let runs = node.runtimes.as_ref();
            let runs = runs.is_none_or(|all| all.iter().any(|one| one.runs(kind)));
            self.forms[at][form(kind)] |= runs;
            has[form(kind)] = runs;
            open[form(kind)] = if runs { slots } else { 0.0 };
            self.open[at][form(kind)] += open[form(kind)];
        }
        let devices = node.devices.iter().filter(|one| one.state.is_in_service());
        self.equipment[at].push(NodeEquipment {
            runs: has,
            capacity: node.capacity,
            devices: devices
                .map(|one| (one.model.clone(), one.memory_mib))
                .collect(),
        });
        for app in &node.apps {
            // Looked up before the name is cloned: this runs once per node and app.
            if !self.apps.contains_key(&app.app) {
                self.apps.insert(app.app.clone(), BTreeMap::new());
            }
            let Some(by_cluster) = self.apps.get_mut(&app.app) else {
                continue;
            };
            let served = app.served();
            let progress = by_cluster.entry(at).or_insert(AppProgress {
                reporting: 0,
                revision: app.revision,
                best: ServingState::Failed,
                is_fetched: false,
                instances: 0,
                failed: [0.0; 2],
                reason: None,
                forms: BTreeMap::new(),
            });
            let stages = app.stages.iter();
            let stages = stages.filter_map(|of| Some((Some(&of.stage), of.form.as_ref()?)));
            for (stage, form) in stages.chain(app.form.as_ref().map(|form| (None, form))) {
                let key = (stage.cloned(), form.clone());
                *progress.forms.entry(key).or_default() += 1;
            }
            progress.reporting += 1;
            progress.revision = progress.revision.min(app.revision);
            if served == ServingState::Failed {
                progress.failed = [0, 1].map(|form| progress.failed[form] + open[form]);
            }
            progress.best = progress.best.max(served);
            progress.is_fetched |= matches!(app.phase, AppPhase::Compiling | AppPhase::Ready);
            progress.instances = progress.instances.saturating_add(app.instances);
            if let (ServingState::Failed, AppPhase::Failed { reason }) = (served, &app.phase) {
                progress.reason.get_or_insert_with(|| first_line(reason));
            }
        }
    }

    /// How far an app is in a cluster; a node that has not reported on it may be about to prepare it.
    fn served(&self, app: Option<&AppName>, at: usize) -> ServingState {
        let progress = app.and_then(|app| self.apps.get(app)?.get(&at));
        match progress {
            Some(progress) if progress.reporting >= self.nodes[at] => progress.best,
            Some(progress) => progress.best.max(ServingState::Preparing),
            None => ServingState::Preparing,
        }
    }

    /// The share of a cluster's slots on nodes that can run an app of this kind, or may become able to.
    fn share(&self, app: Option<&AppName>, form: usize, at: usize) -> f64 {
        let failed = app.and_then(|app| self.apps.get(app)?.get(&at));
        let failed = failed.map_or(0.0, |progress| progress.failed[form]);
        if self.slots[at] > 0.0 {
            (self.open[at][form] - failed) / self.slots[at]
        } else {
            1.0
        }
    }

    /// Where the stages of an app can run, given how they hold resources and the GPU memory of their instances.
    #[must_use]
    pub fn serving(&self, app: Option<&AppName>, stages: &[(Holding, MebiBytes)]) -> Serving {
        let kind = |task: usize, _| Some(kind_of(stages[task].0));
        self.serving_by(app, stages.len(), kind, |task| stages[task].1)
    }

    /// The exclusion if no node of a cluster has this much GPU memory, in use or not; `None` if one has, or no node takes work.
    fn lacks_gpu(&self, at: usize, wanted: MebiBytes) -> Option<Exclusion> {
        let of = |gpu_memory_mib| Resources {
            gpu_memory_mib,
            ..Resources::default()
        };
        let lacks = self.nodes[at] > 0 && wanted > self.gpu[at];
        lacks.then(|| Exclusion::Shortage {
            wanted: of(wanted),
            free: of(self.gpu[at]),
        })
    }

    /// The clusters that can never hold an instance with this much GPU memory; empty if there are no others.
    #[must_use]
    pub fn without_gpu(&self, wanted: MebiBytes) -> BTreeSet<ClusterId> {
        let all = self.clusters.iter().enumerate();
        let lacking = all.filter(|(at, _)| self.lacks_gpu(*at, wanted).is_some());
        let lacking: BTreeSet<ClusterId> = lacking.map(|(_, id)| id.clone()).collect();
        match lacking.len() == self.clusters.len() {
            true => BTreeSet::new(),
            false => lacking,
        }
    }

    /// Whether all nodes of a cluster that take work failed to make this or a later revision of an app ready, and none answers.
    #[must_use]
    pub fn has_failed(&self, app: Option<&AppName>, revision: Revision, at: usize) -> bool {
        let progress = app.and_then(|app| self.apps.get(app)?.get(&at));
        let is_of_it = progress.is_some_and(|progress| progress.revision >= revision);
        is_of_it && self.nodes[at] > 0 && self.served(app, at) == ServingState::Failed
    }

    /// The form that most nodes of a cluster serve, of a single-stage app or of one stage of several; `None` if none is reported.
    #[must_use]
    pub fn form_of(
        &self,
        app: Option<&AppName>,
        at: usize,
        stage: Option<&StageName>,
    ) -> Option<&FormName> {
        let progress = self.apps.get(app?)?.get(&at)?;
        let of = progress.forms.iter();
        let of = of.filter(|((one, _), _)| one.as_ref() == stage);
        of.max_by_key(|(_, nodes)| **nodes)
            .map(|((_, form), _)| form)
    }

    /// Whether nodes of a cluster have received an app, and none answers yet.
    #[must_use]
    pub fn is_unready(&self, app: Option<&AppName>, at: usize) -> bool {
        let is_known = app.is_some_and(|app| {
            let of = self.apps.get(app);
            of.is_some_and(|of| of.contains_key(&at))
        });
        is_known && self.served(app, at) != ServingState::Ready
    }

    /// Whether some node of a cluster that takes work could hold such an instance.
    #[must_use]
    pub fn holds(&self, at: usize, need: &InstanceRequirements<'_>) -> bool {
        self.equipment[at].iter().any(|node| node.holds(need))
    }

    /// As [`Self::serving`], where the kind of a task's function depends on the cluster; an error means that no form of it can run
    /// there. `gpu` is the GPU memory of a task's instance.
    #[must_use]
    pub fn serving_by(
        &self,
        app: Option<&AppName>,
        tasks: usize,
        kind: impl Fn(usize, usize) -> Option<RuntimeKind>,
        gpu: impl Fn(usize) -> MebiBytes,
    ) -> Serving {
        let clusters = self.clusters.len();
        let cell = |task: usize, at: usize| {
            let Some(kind) = kind(task, at) else {
                let has_nodes = self.nodes[at] > 0;
                return match has_nodes {
                    true => Err(Exclusion::CannotServe),
                    false => Ok(ServingState::Preparing),
                };
            };
            // A cluster in which no node takes work is excluded for that reason elsewhere.
            if self.nodes[at] > 0 && !self.forms[at][form(kind)] {
                return Err(Exclusion::NoRuntime { kind });
            }
            if let Some(lacking) = self.lacks_gpu(at, gpu(task)) {
                return Err(lacking);
            }
            match self.served(app, at) {
                ServingState::Failed if self.nodes[at] > 0 => Err(Exclusion::CannotServe),
                served => Ok(served),
            }
        };
        let size = (tasks, clusters);
        let share = |task: usize, at: usize| {
            let kind = kind(task, at);
            kind.map_or(1.0, |kind| self.share(app, form(kind), at))
        };
        let lenient =
            Constraints::from_fn(size, |task, at| cell(task, at).err()).with_shares(share);
        let strict = Constraints::from_fn(size, |task, at| match cell(task, at) {
            Ok(ServingState::Ready) => None,
            Ok(_) => Some(Exclusion::NotReady),
            Err(why) => Some(why),
        })
        .with_shares(share);
        let is_open = |task: usize| (0..clusters).any(|at| strict.get(task, at).is_none());
        let lacks_time = |at: &usize| {
            let all = 0..tasks;
            all.clone().all(|task| lenient.get(task, *at).is_none())
                && all.into_iter().any(|task| strict.get(task, *at).is_some())
        };
        let reasons = app.and_then(|app| self.apps.get(app)).into_iter().flatten();
        Serving {
            tasks,
            is_served: (0..tasks).all(is_open),
            lacking_time: (0..clusters).filter(lacks_time).collect(),
            takes_work: self.nodes.iter().map(|nodes| *nodes > 0).collect(),
            strict: (!strict.is_empty()).then_some(strict),
            lenient: (!lenient.is_empty()).then_some(lenient),
            reasons: reasons
                .filter_map(|(at, progress)| {
                    Some((self.clusters[*at].clone(), progress.reason.clone()?))
                })
                .collect(),
        }
    }
}

/// The first line of a reason, truncated.
fn first_line(reason: &str) -> String {
    let line = reason.lines().next().unwrap_or_default();
    line.chars().take(REASON_MAX).collect()
}

/// Where the stages of one app can run.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    tasks: usize,
    /// Whether every stage has a cluster that serves it now.
    is_served: bool,
    /// The clusters that could serve every stage and lack nothing but the time to get ready.
    lacking_time: Vec<usize>,
    /// By cluster: whether some node takes work.
    takes_work: Vec<bool>,
    /// Excludes all clusters that do not serve a stage now.
    strict: Option<Constraints>,
    /// Excludes only clusters that cannot become ready.
    lenient: Option<Constraints>,
    /// By cluster: what nodes report about their failure.
    reasons: BTreeMap<ClusterId, String>,
}

impl Serving {
    /// The exclusions for clients that are sent to `previous`, if anywhere; `None` if there are none.
    #[must_use]
    pub fn constraints(&self, previous: Option<&[ClusterIndex]>) -> Option<&Constraints> {
        if self.is_strict(previous) {
            self.strict.as_ref()
        } else {
            self.lenient.as_ref()
        }
    }

    /// The clusters that are excluded for these clients only because they are not ready yet.
    #[must_use]
    pub fn lacking_time(&self, previous: Option<&[ClusterIndex]>) -> &[usize] {
        if self.is_strict(previous) {
            &self.lacking_time
        } else {
            &[]
        }
    }

    fn is_strict(&self, previous: Option<&[ClusterIndex]>) -> bool {
        let places = || (0..self.tasks).zip(previous.unwrap_or_default());
        let barred = |constraints: &Option<Constraints>| {
            let constraints = constraints.as_ref();
            constraints.is_some_and(|constraints| {
                places().any(|(task, p)| constraints.get(task, p.get()).is_some())
            })
        };
        // Clients stay where calls wait for the app to become ready. In a cluster that is dead or drains nobody waits: they move, and then to
        // one that is ready.
        let stays = |at: ClusterIndex| self.takes_work.get(at.get()).copied().unwrap_or(false);
        let stays = places().all(|(_, p)| stays(*p));
        let waits = previous.is_some() && stays && barred(&self.strict) && !barred(&self.lenient);
        self.is_served && !waits
    }

    /// Appends to the rows of clusters in which nodes failed what these report.
    pub fn annotate(&self, rows: &mut [Candidate]) {
        let plain = Exclusion::CannotServe.to_string();
        for row in rows {
            let Some(reason) = self.reasons.get(&row.cluster) else {
                continue;
            };
            if row.excluded.as_ref() == Some(&plain) {
                let told = format!("{plain}: {reason}");
                if row.verdict == plain {
                    row.verdict.clone_from(&told);
                }
                row.excluded = Some(told);
            }
        }
    }
}

#[cfg(test)]
mod tests;
