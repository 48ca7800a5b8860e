//! Predicted and actual: what calls really took in each cluster, beside what plans count with, and the corrections that come of it
//! ([`fdn_scheduling::residual`]).
//!
//! A place is a stage of an app in a cluster. What clients add to it, the way, is measured by itself (round trips) and needs no correction. Nodes tell
//! what calls typically take in each phase; work over speed is what a plan counts with for start and execution.

use std::collections::BTreeMap;

use fdn_core::message::NodeStatus;
use fdn_core::phases::PhaseTimes;
use fdn_core::workflow::Workflow;
use fdn_core::{AppName, ClusterId, Millis, StageName, Timestamp};
use fdn_scheduling::residual::{Residual, Residuals, Sample, Terms};

use super::world::{Profiles, World};

/// A correction that changes by more than this share is drift.
const DRIFT: f64 = 0.1;

/// A stage in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The app.
    pub app: AppName,
    /// The stage.
    pub stage: StageName,
    /// Where it runs.
    pub cluster: ClusterId,
}

/// What the nodes of a cluster saw of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Actual {
    /// Calls since their agents started.
    pub calls: u64,
    /// What these took: means over the nodes, by their slots.
    pub times: PhaseTimes,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: u64,
    weight: f64,
    times: [f64; 3],
}

impl Sum {
    fn add(&mut self, calls: u64, times: &PhaseTimes, weight: f64) {
        let all = [times.queue, times.start, times.execution].map(Millis::get);
        if calls == 0 || !all.iter().all(|time| time.is_finite() && *time >= 0.0) {
            return;
        }
        self.calls = self.calls.saturating_add(calls);
        self.weight += weight;
        for (sum, time) in self.times.iter_mut().zip(all) {
            *sum += time * weight;
        }
    }

    fn mean(&self) -> Option<Actual> {
        let [queue, start, execution] = self.times.map(|sum| Millis::new(sum / self.weight));
        (self.calls > 0 && self.weight > 0.0).then_some(Actual {
            calls: self.calls,
            times: PhaseTimes {
                queue,
                start,
                execution,
            },
        })
    }
}

/// What was seen of an app: of itself, and of its stages.
#[derive(Clone, Debug, Default)]
struct OfApp {
    whole: BTreeMap<usize, Sum>,
    stages: BTreeMap<StageName, BTreeMap<usize, Sum>>,
}

/// What was seen of all apps everywhere.
#[derive(Clone, Debug, Default)]
pub struct Actuals(BTreeMap<AppName, OfApp>);

impl Actuals {
    /// From what living nodes said; `clusters` are in order.
    #[must_use]
    pub fn new(clusters: &[&ClusterId], alive: &[&NodeStatus]) -> Self {
        let mut all = BTreeMap::<AppName, OfApp>::new();
        for node in alive {
            let Ok(at) = clusters.binary_search(&&node.cluster) else {
                continue;
            };
            let weight = f64::from(node.slots.max(1));
            for app in &node.apps {
                let stages = app.stages.iter();
                let stages = stages.filter_map(|stage| Some((stage, stage.phases.as_ref()?)));
                if app.phases.is_none() && stages.clone().next().is_none() {
                    continue;
                }
                // Names are looked for before one is copied: there are as many as nodes times apps.
                if !all.contains_key(&app.app) {
                    all.insert(app.app.clone(), OfApp::default());
                }
                let Some(seen) = all.get_mut(&app.app) else {
                    continue;
                };
                if let Some(times) = &app.phases {
                    let sum = seen.whole.entry(at).or_default();
                    sum.add(app.invocations, times, weight);
                }
                for (stage, times) in stages {
                    let of = seen.stages.entry(stage.stage.clone()).or_default();
                    of.entry(at).or_default().add(stage.runs, times, weight);
                }
            }
        }
        Self(all)
    }

    /// What was seen of one stage of an app, by cluster: of a plain function, of the app as a whole.
    fn of(
        &self,
        app: &AppName,
        workflow: &Workflow,
        stage: &StageName,
    ) -> Option<&BTreeMap<usize, Sum>> {
        let seen = self.0.get(app)?;
        match workflow.stages().len() {
            1 => Some(&seen.whole),
            _ => seen.stages.get(stage),
        }
    }

    /// What was seen of a stage in a cluster.
    #[must_use]
    pub fn get(
        &self,
        app: &AppName,
        workflow: &Workflow,
        stage: &StageName,
        at: usize,
    ) -> Option<Actual> {
        self.of(app, workflow, stage)?.get(&at)?.mean()
    }
}

/// What was learnt of one app, for a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Factors(Vec<f64>);

impl Factors {
    /// By what run times differ from work over speed, task by task and in these cluster by cluster; nothing if they do not.
    #[must_use]
    pub fn as_slice(&self) -> Option<&[f64]> {
        (!self.0.is_empty()).then_some(&self.0)
    }
}

/// What learning came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learnt {
    /// How far corrected predictions were off, as a share of what calls took, place by place.
    pub errors: Vec<f64>,
    /// Places whose correction changed much.
    pub drifted: usize,
}

/// Learns from what calls took.
#[derive(Debug)]
pub struct Learner {
    residuals: Residuals<Place>,
    counts: BTreeMap<Place, u64>,
}

impl Learner {
    /// Remembers up to `places` of them.
    #[must_use]
    pub fn new(places: usize) -> Self {
        Self {
            residuals: Residuals::new(Terms::default(), places),
            counts: BTreeMap::new(),
        }
    }

    /// Takes in what was seen of an app since the last time.
    pub fn learn(
        &mut self,
        world: &World,
        app: &AppName,
        (workflow, profiles): (&Workflow, &Profiles),
        now: Timestamp,
        learnt: &mut Learnt,
    ) {
        for stage in workflow.stages() {
            let seen = world.actuals().of(app, workflow, &stage.name);
            for (at, sum) in seen.into_iter().flatten() {
                let (Some(actual), Some(cluster)) = (sum.mean(), world.clusters().get(*at)) else {
                    continue;
                };
                let place = Place {
                    app: app.clone(),
                    stage: stage.name.clone(),
                    cluster: cluster.id.clone(),
                };
                let before = self.counts.insert(place.clone(), actual.calls);
                // A node that is gone, or started anew, has counted less than before: what it tells now is as new as can be.
                let before = before.filter(|before| *before <= actual.calls);
                let work = profiles.get(&stage.name).map(|profile| profile.work);
                let sample = Sample {
                    predicted: cluster.speed.time(work.unwrap_or(Millis::ZERO)),
                    actual: served(&actual.times),
                    calls: actual.calls - before.unwrap_or(0),
                };
                if sample.calls == 0 {
                    continue;
                }
                let factor = self.residuals.factor(&place, sample.predicted, now);
                let corrected = sample.predicted * factor;
                learnt.errors.extend(error(corrected, sample.actual));
                let drifted = self.residuals.observe(&place, &sample, now, DRIFT);
                learnt.drifted += usize::from(drifted);
            }
        }
    }

    /// Forgets places that are there no more.
    pub fn retain(&mut self, mut there: impl FnMut(&Place) -> bool) {
        self.residuals.retain(&mut there);
        let residuals = &self.residuals;
        self.counts
            .retain(|place, _| residuals.get(place).is_some());
    }

    /// How many places are known.
    #[must_use]
    pub fn places(&self) -> usize {
        self.residuals.len()
    }

    /// What was learnt of all apps, by name.
    #[must_use]
    pub fn all(&self, world: &World) -> BTreeMap<AppName, OfStages> {
        let mut all = BTreeMap::<AppName, OfStages>::new();
        for (place, residual) in self.residuals.iter() {
            let at = world.index_of(&place.cluster).get();
            if at >= world.clusters().len() {
                continue;
            }
            let stages = all.entry(place.app.clone()).or_default();
            let stage = stages.0.entry(place.stage.clone()).or_default();
            stage.push((at, *residual));
        }
        all
    }

    /// How far predictions of a place were off lately.
    #[must_use]
    pub fn error(&self, place: &Place) -> Option<f64> {
        self.residuals.get(place).map(Residual::error)
    }
}

/// What was learnt of one app, by stage: clusters by their number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OfStages(BTreeMap<StageName, Vec<(usize, Residual)>>);

impl OfStages {
    /// The corrections, as a plan of the workflow with these run times needs them.
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

/// What a plan counts as run time: with the start of the sandbox.
#[must_use]
pub fn served(times: &PhaseTimes) -> Millis {
    times.start + times.execution
}

/// How far a prediction is off, as a share of what it really was.
#[must_use]
pub fn error(predicted: Millis, actual: Millis) -> Option<f64> {
    let (predicted, actual) = (predicted.get(), actual.get());
    let error = (predicted - actual).abs() / actual;
    (actual > 0.0 && error.is_finite()).then_some(error)
}

#[cfg(test)]
mod tests;
