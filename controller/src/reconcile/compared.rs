//! Predictions of the plan for clients' stages, compared with measured calls, for explanations.

use std::collections::BTreeMap;

use fdn_core::latency::{LatencyEstimate, LatencySource};
use fdn_core::predicted::{Compared, StageCompared};
use fdn_core::workflow::Workflow;
use fdn_core::{AppName, ClusterId, Millis};
use fdn_scheduling::compete::Rate;

use super::actual::{Factors, Learner, Place, served};
use super::forms::FormDecisions;
use super::world::{Profiles, World};

/// What is known of an app.
pub struct AppContext<'a> {
    /// The app's name.
    pub app: &'a AppName,
    /// The workflow that it runs.
    pub workflow: &'a Workflow,
    /// The run-time profiles of its stages.
    pub profiles: &'a Profiles,
    /// The corrections of run times by cluster.
    pub factors: &'a Factors,
    /// The forms that clusters serve.
    pub forms: &'a FormDecisions,
}

/// Compares the stages of an app in `places` for a client with this view; stages without measurements are left out.
#[must_use]
pub fn compared(
    world: &World,
    known: &AppContext<'_>,
    learner: &Learner,
    (view, places): (&BTreeMap<ClusterId, LatencyEstimate>, &[ClusterId]),
) -> Vec<StageCompared> {
    let clusters = world.clusters().len();
    let factors = known.factors.as_slice().unwrap_or_default();
    let mut stages = Vec::new();
    for (task, (stage, cluster)) in known.workflow.stages().iter().zip(places).enumerate() {
        let at = world.index_of(cluster).get();
        let form = known.forms.form(task, at);
        let actual =
            world
                .actuals()
                .get(known.app, known.workflow, &stage.name, (at, form.clone()));
        let (Some(actual), Some(there)) = (actual, world.clusters().get(at)) else {
            continue;
        };
        let work = known.profiles.get(&stage.name).map(|profile| profile.work);
        let correction = factors.get(task * clusters + at).copied().unwrap_or(1.0);
        let time = there.speed.time(work.unwrap_or(Millis::ZERO)) * correction;
        let place = Place {
            app: known.app.clone(),
            stage: stage.name.clone(),
            cluster: cluster.clone(),
            form,
        };
        let is_entry = stage.name == known.workflow.entry().name;
        stages.push(StageCompared {
            stage: stage.name.clone(),
            cluster: cluster.clone(),
            calls: actual.calls,
            way: view.get(cluster).filter(|_| is_entry).map(way),
            queue: Compared {
                predicted: there.slots.earliest() + world.wait(at, time),
                actual: Some(actual.times.queue),
            },
            execution: Compared {
                predicted: time,
                actual: Some(served(&actual.times)),
            },
            correction,
            error: learner.error(&place),
        });
    }
    stages
}

/// The client's round trip, predicted and, if it was measured, actual.
fn way(estimate: &LatencyEstimate) -> Compared {
    let is_measured = estimate.source == LatencySource::Measured;
    Compared {
        predicted: estimate.rtt,
        actual: is_measured.then_some(estimate.rtt),
    }
}

impl World {
    /// The mean wait of a call with this run time in a cluster, under the load of all plans.
    fn wait(&self, at: usize, time: Millis) -> Millis {
        let load = &self.load_of(at).load;
        load.wait(Rate::default(), time, self.horizon())
    }
}
