//! Where the stages of an app can run, as the nodes tell: who has what they run in, and how far each is with the app.
//!
//! A cluster is as far as the farthest of its nodes that take work: its gateways hand calls to that one. A cluster without a node that runs the
//! function's kind, or whose nodes all failed to make it ready, is barred. One that is still making it ready is barred to clients that are
//! served elsewhere, and to new ones as long as any other cluster serves it: nobody is sent where calls would wait for an artifact. One whose nodes have
//! not the GPU memory that an instance takes, used or not, is barred for that before any of them has tried. Of a cluster
//! only those nodes count as room that run the function's kind and have not failed to make it ready.

pub mod readiness;

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::api::Candidate;
use fdn_core::device::GpuRequest;
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::message::{AppPhase, NodeStatus};
use fdn_core::serving::Served;
use fdn_core::{AppName, ClusterId, FormName, MebiBytes, Resources, Revision, StageName};
use fdn_scheduling::dag::Holding;
use fdn_scheduling::place::{Bars, ClusterIndex, Exclusion};
use fdn_scheduling::workflow::Profile;

/// Letters of a node's reason that an explanation repeats.
const REASON_MAX: usize = 200;

/// How far an app is in a cluster.
#[derive(Clone, Debug)]
struct Seen {
    /// Nodes that said anything of it.
    told: usize,
    /// The oldest that they are at.
    revision: Revision,
    best: Served,
    /// Whether one of them has the artifact.
    is_fetched: bool,
    /// Instances that are up.
    instances: u32,
    /// The slots of those that failed, by what they run.
    failed: [f64; 2],
    /// Why one of them failed.
    reason: Option<String>,
    /// The nodes that serve each form, of functions that have several: of the app itself, or of a stage.
    forms: BTreeMap<(Option<StageName>, FormName), usize>,
}

/// What all clusters can run, and how far all apps are there.
#[derive(Clone, Debug, Default)]
pub struct Phases {
    clusters: Vec<ClusterId>,
    /// Of each cluster: the nodes that take work.
    nodes: Vec<usize>,
    /// Of each cluster: the slots of these nodes.
    slots: Vec<f64>,
    /// Of each cluster: whether a node runs components, and whether one runs containers.
    forms: Vec<[bool; 2]>,
    /// Of each cluster: the slots of the nodes that do.
    open: Vec<[f64; 2]>,
    /// Of each cluster: the most GPU memory of one of them.
    gpu: Vec<MebiBytes>,
    /// Of each cluster: what each of its nodes has.
    haves: Vec<Vec<Have>>,
    apps: BTreeMap<AppName, BTreeMap<usize, Seen>>,
}

/// What a node has.
#[derive(Clone, Debug)]
struct Have {
    runs: [bool; 2],
    capacity: Resources,
    /// The models and memories of its devices that slices are given out of.
    devices: Vec<(String, MebiBytes)>,
}

/// What an instance needs of a node.
#[derive(Clone, Debug)]
pub struct Need<'a> {
    kind: RuntimeKind,
    resources: Resources,
    gpu: Option<&'a GpuRequest>,
}

impl<'a> Need<'a> {
    /// Of a function.
    #[must_use]
    pub fn of(manifest: &'a Manifest) -> Self {
        Self {
            kind: manifest.runtime,
            resources: manifest.resources(),
            gpu: manifest.gpu.as_ref(),
        }
    }
}

impl Have {
    /// Whether such an instance can be there, beside nothing else.
    fn holds(&self, need: &Need<'_>) -> bool {
        let has = |gpu: &GpuRequest| {
            let fits = |(model, memory): &&(String, MebiBytes)| {
                let is_model = gpu.model.as_ref().is_none_or(|wanted| wanted.covers(model));
                is_model && *memory >= gpu.memory.to_mebibytes()
            };
            // All of one model.
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

/// Which of [`Phases::forms`] a kind of function needs.
const fn form(kind: RuntimeKind) -> usize {
    match kind {
        RuntimeKind::Wasm => 0,
        RuntimeKind::Docker => 1,
    }
}

/// The kind of function that holds resources like this.
const fn kind_of(holding: Holding) -> RuntimeKind {
    match holding {
        Holding::Calls => RuntimeKind::Wasm,
        Holding::Instances(_) => RuntimeKind::Docker,
    }
}

/// What a stage holds that is run like this, and the GPU memory that an instance of it takes.
pub(super) fn running(profile: Option<&Profile>) -> (Holding, MebiBytes) {
    profile.map_or((Holding::Calls, MebiBytes(0)), |profile| {
        (profile.holding, profile.demand.gpu_memory_mib)
    })
}

/// The kind of function that is run like this.
pub(super) fn kind(profile: Option<&Profile>) -> RuntimeKind {
    kind_of(running(profile).0)
}

impl Phases {
    /// From what living nodes said; `clusters` are in order.
    #[must_use]
    pub fn new(clusters: &[&ClusterId], alive: &[&NodeStatus]) -> Self {
        let mut phases = Self {
            clusters: clusters.iter().map(|id| (*id).clone()).collect(),
            nodes: vec![0; clusters.len()],
            slots: vec![0.0; clusters.len()],
            forms: vec![[false; 2]; clusters.len()],
            open: vec![[0.0; 2]; clusters.len()],
            gpu: vec![MebiBytes(0); clusters.len()],
            haves: vec![Vec::new(); clusters.len()],
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
        self.haves[at].push(Have {
            runs: has,
            capacity: node.capacity,
            devices: devices
                .map(|one| (one.model.clone(), one.memory_mib))
                .collect(),
        });
        for app in &node.apps {
            // Names are looked for before one is copied: there are as many as nodes times apps.
            if !self.apps.contains_key(&app.app) {
                self.apps.insert(app.app.clone(), BTreeMap::new());
            }
            let Some(by_cluster) = self.apps.get_mut(&app.app) else {
                continue;
            };
            let served = app.served();
            let seen = by_cluster.entry(at).or_insert(Seen {
                told: 0,
                revision: app.revision,
                best: Served::Failed,
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
                *seen.forms.entry(key).or_default() += 1;
            }
            seen.told += 1;
            seen.revision = seen.revision.min(app.revision);
            if served == Served::Failed {
                seen.failed = [0, 1].map(|form| seen.failed[form] + open[form]);
            }
            seen.best = seen.best.max(served);
            seen.is_fetched |= matches!(app.phase, AppPhase::Compiling | AppPhase::Ready);
            seen.instances = seen.instances.saturating_add(app.instances);
            if let (Served::Failed, AppPhase::Failed { reason }) = (served, &app.phase) {
                seen.reason.get_or_insert_with(|| short(reason));
            }
        }
    }

    /// How far an app is in a cluster; whoever has not said anything of it may be about to make it ready.
    fn served(&self, app: Option<&AppName>, at: usize) -> Served {
        let seen = app.and_then(|app| self.apps.get(app)?.get(&at));
        match seen {
            Some(seen) if seen.told >= self.nodes[at] => seen.best,
            Some(seen) => seen.best.max(Served::Preparing),
            None => Served::Preparing,
        }
    }

    /// The share of a cluster's slots that is on nodes which can run an app of this kind, or come to.
    fn share(&self, app: Option<&AppName>, form: usize, at: usize) -> f64 {
        let failed = app.and_then(|app| self.apps.get(app)?.get(&at));
        let failed = failed.map_or(0.0, |seen| seen.failed[form]);
        if self.slots[at] > 0.0 {
            (self.open[at][form] - failed) / self.slots[at]
        } else {
            1.0
        }
    }

    /// Where the stages of an app can run that hold resources like this, and so much GPU memory.
    #[must_use]
    pub fn serving(&self, app: Option<&AppName>, stages: &[(Holding, MebiBytes)]) -> Serving {
        let kind = |task: usize, _| Some(kind_of(stages[task].0));
        self.serving_by(app, stages.len(), kind, |task| stages[task].1)
    }

    /// That no node of a cluster has so much GPU memory, used or not; nothing where one has, or none takes work.
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

    /// The clusters in which no instance can ever be that takes so much GPU memory; none, if there is no other.
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

    /// Whether all nodes of a cluster that take work failed to make a revision of an app ready, or a later one, and none answers.
    #[must_use]
    pub fn has_failed(&self, app: Option<&AppName>, revision: Revision, at: usize) -> bool {
        let seen = app.and_then(|app| self.apps.get(app)?.get(&at));
        let is_of_it = seen.is_some_and(|seen| seen.revision >= revision);
        is_of_it && self.nodes[at] > 0 && self.served(app, at) == Served::Failed
    }

    /// The form that most nodes of a cluster serve, of an app with one stage or of one of several.
    #[must_use]
    pub fn form_of(
        &self,
        app: Option<&AppName>,
        at: usize,
        stage: Option<&StageName>,
    ) -> Option<&FormName> {
        let seen = self.apps.get(app?)?.get(&at)?;
        let of = seen.forms.iter();
        let of = of.filter(|((one, _), _)| one.as_ref() == stage);
        of.max_by_key(|(_, nodes)| **nodes)
            .map(|((_, form), _)| form)
    }

    /// Whether nodes of a cluster know an app, and none answers yet.
    #[must_use]
    pub fn is_unready(&self, app: Option<&AppName>, at: usize) -> bool {
        let is_known = app.is_some_and(|app| {
            let of = self.apps.get(app);
            of.is_some_and(|of| of.contains_key(&at))
        });
        is_known && self.served(app, at) != Served::Ready
    }

    /// Whether such an instance can be on a node of a cluster that takes work.
    #[must_use]
    pub fn holds(&self, at: usize, need: &Need<'_>) -> bool {
        self.haves[at].iter().any(|have| have.holds(need))
    }

    /// The same where it depends on the cluster of what kind a task's function is: nothing where no form of it can run. `gpu` is the GPU memory that an
    /// instance of a task takes.
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
                    false => Ok(Served::Preparing),
                };
            };
            // A cluster without any node that takes work is kept out for that reason.
            if self.nodes[at] > 0 && !self.forms[at][form(kind)] {
                return Err(Exclusion::NoRuntime { kind });
            }
            if let Some(lacking) = self.lacks_gpu(at, gpu(task)) {
                return Err(lacking);
            }
            match self.served(app, at) {
                Served::Failed if self.nodes[at] > 0 => Err(Exclusion::CannotServe),
                served => Ok(served),
            }
        };
        let size = (tasks, clusters);
        let share = |task: usize, at: usize| {
            let kind = kind(task, at);
            kind.map_or(1.0, |kind| self.share(app, form(kind), at))
        };
        let lenient = Bars::from_fn(size, |task, at| cell(task, at).err()).with_shares(share);
        let strict = Bars::from_fn(size, |task, at| match cell(task, at) {
            Ok(Served::Ready) => None,
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
            strict: (!strict.is_empty()).then_some(strict),
            lenient: (!lenient.is_empty()).then_some(lenient),
            reasons: reasons
                .filter_map(|(at, seen)| Some((self.clusters[*at].clone(), seen.reason.clone()?)))
                .collect(),
        }
    }
}

/// The first line of a reason.
fn short(reason: &str) -> String {
    let line = reason.lines().next().unwrap_or_default();
    line.chars().take(REASON_MAX).collect()
}

/// Where the stages of one app can run.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    tasks: usize,
    /// Whether there is a cluster for every stage that serves it now.
    is_served: bool,
    /// The clusters that could serve every stage, and lack nothing but the time to come to it.
    lacking_time: Vec<usize>,
    /// All clusters that do not serve a stage now.
    strict: Option<Bars>,
    /// The clusters that cannot even come to.
    lenient: Option<Bars>,
    /// What nodes say of their failure.
    reasons: BTreeMap<ClusterId, String>,
}

impl Serving {
    /// What is closed to clients who are sent to `previous`, if anywhere.
    #[must_use]
    pub fn bars(&self, previous: Option<&[ClusterIndex]>) -> Option<&Bars> {
        if self.is_strict(previous) {
            self.strict.as_ref()
        } else {
            self.lenient.as_ref()
        }
    }

    /// The clusters that are closed to these clients for nothing but the time to come to serve the app.
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
        let barred = |bars: &Option<Bars>| {
            let bars = bars.as_ref();
            bars.is_some_and(|bars| places().any(|(task, p)| bars.get(task, p.get()).is_some()))
        };
        let waits = previous.is_some() && barred(&self.strict) && !barred(&self.lenient);
        self.is_served && !waits
    }

    /// Adds what nodes say to the rows of clusters where they failed.
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
