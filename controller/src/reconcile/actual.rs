//! Predicted and actual: the run times that calls really have in each cluster, compared with those that plans assume, and the resulting
//! corrections ([`fdn_scheduling::residual`]).
//!
//! A place is a stage of an app in a cluster. The client's round trip is measured separately and needs no correction. Nodes report the
//! typical time of calls per phase; for start and execution together, a plan assumes work over speed.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::message::NodeStatus;
use fdn_core::phases::PhaseTimes;
use fdn_core::workflow::Workflow;
use fdn_core::{AppName, ClusterId, FormName, Millis, NodeId, StageName, Timestamp};
use fdn_scheduling::residual::{FEW, Residual, Residuals, Sample, Terms};

use super::forms::{Variant, Variants, correction_key};
use super::world::{Profiles, World};

/// A correction that changes by more than this share counts as drift.
const DRIFT: f64 = 0.1;

/// A stage in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The app.
    pub app: AppName,
    /// The stage of its workflow.
    pub stage: StageName,
    /// The cluster in which it runs.
    pub cluster: ClusterId,
    /// The form in which it runs; `None` for the first one, or for a function with a single form.
    pub form: Option<FormName>,
}

/// The nodes' measurements of a stage in a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Actual {
    /// The number of calls since the agents started.
    pub calls: u64,
    /// The mean phase times over the nodes, weighted by their calls.
    pub times: PhaseTimes,
}

/// A node's name as a number (of its digest), since it is stored once per stage.
type NodeKey = u64;

fn key(node: &NodeId) -> NodeKey {
    let digest = fdn_core::Digest::of(node.as_str().as_bytes());
    let first = digest.as_bytes().first_chunk().copied();
    u64::from_le_bytes(first.unwrap_or_default())
}

/// The longest phase time, in ms, that is accepted: about a year.
pub(super) const LONGEST: f64 = 3.2e10;

/// The measurements of a stage by node: node, calls, phase times.
#[derive(Clone, Debug, Default)]
struct NodeMeasurements(Vec<(NodeKey, u64, PhaseTimes)>);

impl NodeMeasurements {
    fn add(&mut self, node: NodeKey, calls: u64, times: &PhaseTimes) {
        let all = [times.queue, times.start, times.execution].map(Millis::get);
        if calls > 0 && all.iter().all(|time| (0.0..=LONGEST).contains(time)) {
            self.0.push((node, calls, *times));
        }
    }

    fn mean(&self) -> Option<Actual> {
        let calls = |sum: u64, one: &(_, u64, _)| sum.saturating_add(one.1);
        let calls = self.0.iter().fold(0, calls);
        let mean = |of: fn(&PhaseTimes) -> Millis| {
            let parts = self.0.iter();
            let parts = parts.map(|(_, n, times)| of(times).get() * (*n as f64 / calls as f64));
            Millis::new(parts.sum())
        };
        (calls > 0).then(|| Actual {
            calls,
            times: PhaseTimes {
                queue: mean(|times| times.queue),
                start: mean(|times| times.start),
                execution: mean(|times| times.execution),
                mean_ratio: None,
            },
        })
    }
}

/// The highest weight of a node's new calls: the report is a typical time of recent calls, which more calls make no more reliable, and a
/// node that counts wrongly must not outweigh all others.
pub(super) const WEIGHT_MAX: u64 = 100;

/// A figure that one node reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeFigure {
    /// The figure.
    pub(super) value: f64,
    /// The new calls behind it.
    pub(super) calls: u64,
    /// All calls behind it.
    pub(super) total: u64,
}

/// A figure of several nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MeanFigure {
    /// The mean.
    pub(super) value: f64,
    /// The new calls behind it.
    pub(super) calls: u64,
    /// Of how many of these it is really a mean: each node's figure is of its last [`FEW`] calls.
    pub(super) effective: u64,
}

impl NodeFigure {
    /// A node that has just started has had few calls, and its first one says little about what is typical.
    fn weight(&self) -> f64 {
        let known = self.total.min(FEW) as f64 / FEW as f64;
        self.calls.min(WEIGHT_MAX) as f64 * known
    }
}

/// Combines a figure that nodes report: the mean weighted by new calls (at most [`WEIGHT_MAX`] each, less for a node with fewer than [`FEW`]
/// calls in all), with every figure clipped to within a factor of e of the median, so that a faulty node has little influence. `None` without any
/// calls.
pub(super) fn robust_mean(mut fresh: Vec<NodeFigure>) -> Option<MeanFigure> {
    fresh.sort_unstable_by(|a, b| a.value.total_cmp(&b.value));
    let count = |of: fn(&NodeFigure) -> u64| {
        let counts = fresh.iter().map(of);
        counts.fold(0_u64, u64::saturating_add)
    };
    let (calls, effective) = (count(|one| one.calls), count(|one| one.calls.min(FEW)));
    let all: f64 = fresh.iter().map(NodeFigure::weight).sum();
    let mut below = 0.0;
    let median = fresh.iter().find(|one| {
        below += one.weight();
        below * 2.0 >= all
    });
    let (median, e) = (median?.value, std::f64::consts::E);
    let part = |one: &NodeFigure| one.value.clamp(median / e, median * e) * (one.weight() / all);
    (all > 0.0).then(|| MeanFigure {
        value: fresh.iter().map(part).sum(),
        calls,
        effective,
    })
}

/// The measurements of a stage, by cluster index and form.
type StageMeasurements = BTreeMap<(usize, Option<FormName>), NodeMeasurements>;

/// The measurements of an app as a whole, and of its stages.
#[derive(Clone, Debug, Default)]
struct AppMeasurements {
    whole: StageMeasurements,
    stages: BTreeMap<StageName, StageMeasurements>,
}

/// The measurements of all apps in all clusters.
#[derive(Clone, Debug, Default)]
pub struct Actuals(BTreeMap<AppName, AppMeasurements>);

impl Actuals {
    /// Collects the reports of living nodes; `clusters` gives the order of cluster indices.
    #[must_use]
    pub fn new(clusters: &[&ClusterId], alive: &[&NodeStatus]) -> Self {
        let mut all = BTreeMap::<AppName, AppMeasurements>::new();
        for node in alive {
            let Ok(at) = clusters.binary_search(&&node.cluster) else {
                continue;
            };
            let key = key(&node.node);
            for app in &node.apps {
                let stages = app.stages.iter();
                let stages = stages.filter_map(|stage| Some((stage, stage.phases.as_ref()?)));
                if app.phases.is_none() && stages.clone().next().is_none() {
                    continue;
                }
                // Looked up before the name is cloned: this runs once per node and app.
                if !all.contains_key(&app.app) {
                    all.insert(app.app.clone(), AppMeasurements::default());
                }
                let Some(seen) = all.get_mut(&app.app) else {
                    continue;
                };
                if let Some(times) = &app.phases {
                    let form = correction_key(app.form.as_ref());
                    let sum = seen.whole.entry((at, form)).or_default();
                    sum.add(key, app.invocations, times);
                }
                for (stage, times) in stages {
                    let of = seen.stages.entry(stage.stage.clone()).or_default();
                    let form = correction_key(stage.form.as_ref());
                    let sum = of.entry((at, form)).or_default();
                    sum.add(key, stage.runs, times);
                }
            }
        }
        Self(all)
    }

    /// The measurements of one stage of an app, by cluster; for a plain function, those of the app as a whole.
    fn of(
        &self,
        app: &AppName,
        workflow: &Workflow,
        stage: &StageName,
    ) -> Option<&StageMeasurements> {
        let seen = self.0.get(app)?;
        match workflow.stages().len() {
            1 => Some(&seen.whole),
            _ => seen.stages.get(stage),
        }
    }

    /// The measurements of a stage in a cluster, in one of its forms; `None` if there are none.
    #[must_use]
    pub fn get(
        &self,
        app: &AppName,
        workflow: &Workflow,
        stage: &StageName,
        (at, form): (usize, Option<FormName>),
    ) -> Option<Actual> {
        self.of(app, workflow, stage)?.get(&(at, form))?.mean()
    }
}

/// The run-time corrections of one app, for a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Factors(Vec<f64>);

impl Factors {
    /// Corrections by task, then by cluster.
    pub(super) const fn of(cells: Vec<f64>) -> Self {
        Self(cells)
    }

    /// By task, then by cluster: the ratio of run time to work over speed; `None` if all are 1.
    #[must_use]
    pub fn as_slice(&self) -> Option<&[f64]> {
        (!self.0.is_empty()).then_some(&self.0)
    }
}

/// The result of a learning step, for metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PredictionAccuracy {
    /// The relative errors of corrected predictions, one per place.
    pub errors: Vec<f64>,
    /// The number of places whose correction has drifted.
    pub drifted: usize,
}

/// Learns corrections from the measured run times.
#[derive(Debug)]
pub struct Learner {
    residuals: Residuals<Place>,
    /// By corrected place: the call counts last reported by its nodes; as many as nodes that serve the place.
    counts: BTreeMap<Place, Vec<(NodeKey, u64)>>,
}

impl Learner {
    /// A learner that remembers up to `places` places.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self {
            residuals: Residuals::new(Terms::default(), places),
            counts: BTreeMap::new(),
        }
    }

    /// Learns from what was measured of an app since the last step.
    pub fn learn(
        &mut self,
        world: &World,
        app: &AppName,
        (workflow, profiles, variants): (&Workflow, &Profiles, &Variants),
        now: Timestamp,
        learnt: &mut PredictionAccuracy,
    ) {
        for stage in workflow.stages() {
            let seen = world.actuals().of(app, workflow, &stage.name);
            let variants = variants.get(&stage.name);
            for ((at, form), told) in seen.into_iter().flatten() {
                let Some(cluster) = world.clusters().get(*at) else {
                    continue;
                };
                let place = Place {
                    app: app.clone(),
                    stage: stage.name.clone(),
                    cluster: cluster.id.clone(),
                    form: form.clone(),
                };
                let Some(actual) = robust_mean(self.fresh(&place, told)) else {
                    continue;
                };
                // Forms may differ by more than a correction can express, so each is compared with the expectation of its own manifest.
                let of = variants.and_then(|all| expected(all, form.as_ref()));
                let work = of.or_else(|| Some(profiles.get(&stage.name)?.work));
                let sample = Sample {
                    predicted: cluster.speed.time(work.unwrap_or(Millis::ZERO)),
                    actual: Millis::new(actual.value),
                    calls: actual.calls,
                    effective: actual.effective,
                };
                let factor = self.residuals.factor(&place, sample.predicted, now);
                let corrected = sample.predicted * factor;
                learnt.errors.extend(error(corrected, sample.actual));
                let drifted = self.residuals.observe(&place, &sample, now, DRIFT);
                learnt.drifted += usize::from(drifted);
            }
        }
    }

    /// The run times of the nodes that have had calls since the last step.
    fn fresh(&mut self, place: &Place, told: &NodeMeasurements) -> Vec<NodeFigure> {
        let now = told.0.iter().map(|(node, calls, _)| (*node, *calls));
        let mut now: Vec<(NodeKey, u64)> = now.collect();
        now.sort_unstable();
        let before = self.counts.insert(place.clone(), now).unwrap_or_default();
        let new = told.0.iter().map(|(node, calls, times)| {
            let known = before.binary_search_by_key(node, |known| known.0);
            let known = known.map_or(0, |at| before[at].1);
            // A restarted agent's counter is lower than before: then all its calls are new.
            let known = if known > *calls { 0 } else { known };
            NodeFigure {
                value: served(times).get(),
                calls: calls - known,
                total: *calls,
            }
        });
        new.filter(|one| one.calls > 0).collect()
    }

    /// Forgets places that no longer exist.
    pub fn retain(&mut self, mut there: impl FnMut(&Place) -> bool) {
        self.residuals.retain(&mut there);
        let residuals = &self.residuals;
        self.counts
            .retain(|place, _| residuals.get(place).is_some());
    }

    /// The number of places with a correction.
    #[must_use]
    pub fn places(&self) -> usize {
        self.residuals.len()
    }

    /// The corrections of some apps, by form.
    #[must_use]
    pub(super) fn of_forms(&self, apps: &BTreeSet<&AppName>) -> BTreeMap<AppName, FormResiduals> {
        let mut all = BTreeMap::<AppName, FormResiduals>::new();
        let known = self.residuals.iter();
        for (place, residual) in known.filter(|(place, _)| apps.contains(&place.app)) {
            if !all.contains_key(&place.app) {
                all.insert(place.app.clone(), FormResiduals::new());
            }
            if let Some(known) = all.get_mut(&place.app) {
                let of = (place.stage.clone(), place.form.clone());
                let places = known.entry(of).or_default();
                places.insert(place.cluster.clone(), *residual);
            }
        }
        all
    }

    /// The corrections of one app.
    #[must_use]
    pub fn of(&self, world: &World, app: &AppName) -> StageResiduals {
        let mut stages = StageResiduals::default();
        for (place, residual) in self.residuals.iter().filter(|(place, _)| place.app == *app) {
            stages.add(world, place, *residual);
        }
        stages
    }

    /// The corrections of all apps, by name.
    #[must_use]
    pub fn all(&self, world: &World) -> BTreeMap<AppName, StageResiduals> {
        let mut all = BTreeMap::<AppName, StageResiduals>::new();
        for (place, residual) in self.residuals.iter() {
            if !all.contains_key(&place.app) {
                all.insert(place.app.clone(), StageResiduals::default());
            }
            if let Some(stages) = all.get_mut(&place.app) {
                stages.add(world, place, *residual);
            }
        }
        all
    }

    /// The recent relative error of predictions for a place; `None` if nothing is known.
    #[must_use]
    pub fn error(&self, place: &Place) -> Option<f64> {
        self.residuals.get(place).map(Residual::error)
    }
}

/// The corrections of one app, by stage and form, then by cluster.
pub(super) type FormResiduals =
    BTreeMap<(StageName, Option<FormName>), BTreeMap<ClusterId, Residual>>;

/// The corrections of one app, by stage: cluster indices with their corrections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageResiduals(BTreeMap<StageName, Vec<(usize, Residual)>>);

impl StageResiduals {
    fn add(&mut self, world: &World, place: &Place, residual: Residual) {
        let at = world.index_of(&place.cluster).get();
        // Other forms are accounted for where the form is chosen.
        if at < world.clusters().len() && place.form.is_none() {
            let stage = self.0.entry(place.stage.clone()).or_default();
            stage.push((at, residual));
        }
    }

    /// The corrections as a plan of the workflow needs them, relative to these run times.
    #[must_use]
    pub fn factors(
        &self,
        world: &World,
        (workflow, profiles): (&Workflow, &Profiles),
        now: Timestamp,
    ) -> Factors {
        let stages = workflow.stages();
        if !stages.iter().any(|stage| self.0.contains_key(&stage.name)) {
            return Factors::default();
        }
        let clusters = world.clusters();
        let mut factors = vec![1.0; stages.len() * clusters.len()];
        for (task, stage) in stages.iter().enumerate() {
            let work = profiles
                .get(&stage.name)
                .map_or(Millis::ZERO, |profile| profile.work);
            for (at, residual) in self.0.get(&stage.name).into_iter().flatten() {
                let cell = factors.get_mut(task * clusters.len() + at);
                if let (Some(cell), Some(cluster)) = (cell, clusters.get(*at)) {
                    let predicted = cluster.speed.time(work);
                    *cell = residual.factor(predicted, now, &Terms::default());
                }
            }
        }
        Factors(factors)
    }
}

/// The expected run time of a call in a form, at speed 1; `None` if there is no such form.
fn expected(variants: &[Variant], form: Option<&FormName>) -> Option<Millis> {
    let mut all = variants.iter();
    let variant = all.find(|one| correction_key(Some(&one.name)).as_ref() == form)?;
    Some(variant.manifest.expected_millis())
}

/// The run time as plans define it: the start of the sandbox plus the execution.
#[must_use]
pub fn served(times: &PhaseTimes) -> Millis {
    times.start + times.execution
}

/// The relative error of a prediction, as a share of the actual time; `None` if it is not defined.
#[must_use]
pub fn error(predicted: Millis, actual: Millis) -> Option<f64> {
    let (predicted, actual) = (predicted.get(), actual.get());
    let error = (predicted - actual).abs() / actual;
    (actual > 0.0 && error.is_finite()).then_some(error)
}

#[cfg(test)]
mod tests;
