//! What a pass would plan for an app that does not exist yet or is to change: the same code over the same rows, without writing anything.
//!
//! All other apps stay where they are and load the clusters; the app in question is placed against them. If hypothetical changes of the
//! network are given, all apps are planned from their present placement, as later passes would: the bound on moves and dwell times are
//! ignored, since they delay moves but do not prevent them.

use std::collections::BTreeMap;

use fdn_core::form::{FormChoices, FormTerms};
use fdn_core::what_if::WhatIf;
use fdn_core::workflow::{Stage, Workflow};
use fdn_core::{AppName, ClientPrefix, Millis, Revision, StageName, Timestamp};
use fdn_scheduling::compete::{Moves, Rate};
use fdn_scheduling::workflow::Profile;

use super::actual::Factors;
use super::forms::{FormInput, Variants, decide, decide_all};
use super::pass::factors;
use super::place::{AppPlacement, PlanInput, PreviousPlans, place_all};
use super::prefixes::{DemandCriteria, DemandedPrefixes};
use super::serving::Serving;
use super::world::{Profiles, World};
use super::{Inputs, Versions, by_app, load};
use crate::Error;
use crate::state::{State, lock};
use crate::store::app::AppRow;

/// What is to be placed.
pub struct PreviewRequest<'a> {
    /// The app's name, if it exists: its row, measurements and demand are then used.
    pub app: Option<&'a AppName>,
    /// The workflow to run.
    pub workflow: Workflow,
    /// Whether it differs from the one that runs now.
    pub replaces: bool,
    /// The expected profile of a stage; `None` to use that of the stage's deployed version.
    pub expected: &'a dyn Fn(&Stage) -> Option<Profile>,
    /// The forms of its function; `None` to use those of the stages' deployed versions.
    pub variants: Option<Variants>,
    /// Overrides of the expected or measured profile.
    pub over: &'a dyn Fn(Profile) -> Profile,
    /// The clients; empty to use those with recent demand.
    pub clients: Vec<ClientPrefix>,
    /// The call rate per second; `None` to use the present one.
    pub rate: Option<f64>,
    /// Hypothetical changes of the network: all apps are planned as if they had happened.
    pub what_if: &'a [WhatIf],
}

/// The result of a preview.
pub struct Preview {
    /// The plans and bindings.
    pub placed: AppPlacement,
    /// The call rate that was assumed, per second.
    pub rate: f64,
    /// The profiles of the stages that were used.
    pub profiles: Profiles,
    /// The run time of a call of each stage where it would run: the mean over the clients, weighted by demand. For a stage without
    /// calls, the run time on a node of speed 1.
    pub times: BTreeMap<StageName, Millis>,
    /// The effects of the hypothetical changes; `None` if there were none.
    pub changed: Option<WhatIfEffects>,
    /// The evaluation of each form in each cluster.
    pub forms: Vec<FormTerms>,
}

/// The effects of hypothetical changes.
#[derive(Debug, Default)]
pub struct WhatIfEffects {
    /// The app's plans and bindings without them.
    pub before: AppPlacement,
    /// The number of clients of other apps that would be sent elsewhere.
    pub others_moved: usize,
    /// The number of groups of other apps that no cluster could take.
    pub others_unplaced: usize,
}

/// The rows that a preview is made from.
pub struct PreviewRows(Inputs);

impl PreviewRows {
    /// Reads them.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn read(state: &State) -> Result<Self, Error> {
        let known = lock(&state.live).stamp();
        Ok(Self(load(state, false, known).await?))
    }
}

/// Places an app as the next pass would. That takes long if there are many apps.
///
/// # Errors
/// When a hypothetical change names a cluster that does not exist, or a time is negative or not finite.
pub fn preview(
    state: &State,
    PreviewRows(inputs): &PreviewRows,
    request: &PreviewRequest<'_>,
    now: Timestamp,
) -> Result<Preview, Error> {
    let real = state.world(now);
    // Measurements of functions stay valid when nodes are assumed away.
    let world = state
        .world_if(request.what_if, now)?
        .with_measurements_of(&real);
    let world = world.with_prices(inputs.prices.clone());
    let real = real.with_prices(inputs.prices.clone());
    let others: Vec<&AppRow> = inputs
        .apps
        .iter()
        .filter(|app| Some(&app.name) != request.app)
        .collect();
    let versions = Versions::new(&inputs.versions);
    let workflow = match request.app {
        Some(app) => real.learned(app, &request.workflow),
        None => request.workflow.clone(),
    };
    let known =
        |stage: &Stage| (request.expected)(stage).unwrap_or_else(|| versions.expected(stage));
    let profiles = profiles_of(request, &real, &workflow, known);
    let rate = request.rate.unwrap_or_else(|| match request.app {
        Some(app) => lock(&state.live).rate(app, now),
        None => 0.0,
    });
    let demand_criteria = demand_criteria(state, &real, now);
    let demand = demand_of(request, inputs, &demand_criteria);
    let weights: BTreeMap<ClientPrefix, f64> = demand.all.iter().copied().collect();
    // Corrections do not apply to another function under the name of an existing app.
    let learnt = request.app.filter(|_| !request.replaces);
    let factors_in = |world: &World| {
        learnt.map_or_else(Factors::default, |app| {
            let stages = lock(&state.learner).of(world, app);
            stages.factors(world, (&workflow, &profiles), now)
        })
    };
    let row = request.app.filter(|_| !request.replaces);
    let row = row.and_then(|app| inputs.apps.iter().find(|row| row.name == *app));
    let variants = match &request.variants {
        Some(variants) => variants.clone(),
        None => versions.variants(&workflow),
    };
    let nothing = FormChoices::new();
    let input = form_input(row, (&workflow, &variants), &nothing, rate);
    let forms_in = |world: &World| decide(world, &lock(&state.learner), &input, now);
    // Given clients are all that is asked about; otherwise known places would be planned for as well.
    let limit = match request.clients.len() {
        0 => state.settings.planner.bindings_per_app as usize,
        named => named,
    };
    let past = request
        .app
        .filter(|_| !request.replaces && !request.what_if.is_empty());
    let past = past.map_or_else(PreviousPlans::default, |app| previous_plans_of(inputs, app));
    let placed_in = |world: &World, mut moves: Moves| {
        let (forms, of) = (forms_in(world), (&workflow, &profiles));
        let own = PlanInput {
            workflow: &workflow,
            profiles: &profiles,
            serving: &world.serving_in(learnt, of, &forms),
            factors: &forms.factors(world, of, &factors_in(world)),
            dwelling: None,
            failovers: None,
            before: &past,
            demand: demand.clone(),
            rate: Rate::per_second(rate),
            fixed: false,
        };
        let stay = request.what_if.is_empty();
        let all = (world, inputs, others.as_slice());
        place_against_others(state, all, own, (limit, stay), (&mut moves, now))
    };
    let (placed, elsewhere) = placed_in(&world, Moves::unlimited())?;
    let changed = match request.what_if {
        [] => None,
        _ => {
            // At the clients' present clusters: nobody moves for a gain. Others would move even without the change, which
            // must not be attributed to it.
            let (before, _) = placed_in(&real, Moves::none())?;
            let (_, anyhow) = placed_in(&real, Moves::unlimited())?;
            let both = elsewhere.iter().zip(&anyhow);
            Some(WhatIfEffects {
                before,
                others_moved: both.map(|(then, now)| moved_clients(then, now)).sum(),
                others_unplaced: elsewhere.iter().map(|placed| placed.unplaced.len()).sum(),
            })
        }
    };
    let forms = forms_in(&world);
    let factors = forms.factors(&world, (&workflow, &profiles), &factors_in(&world));
    Ok(Preview {
        forms: forms.terms(&world, &workflow),
        times: times(&world, (&workflow, &profiles, &factors), &placed, &weights),
        placed,
        rate,
        profiles,
        changed,
    })
}

/// The clients of the request, or if it names none, those with demand for the app.
fn demand_of(
    request: &PreviewRequest<'_>,
    inputs: &Inputs,
    criteria: &DemandCriteria<'_>,
) -> DemandedPrefixes {
    match request.clients.as_slice() {
        [] => {
            let rows = by_app(&inputs.demand, |row| &row.app);
            let own = request.app.and_then(|app| rows.get(app).copied());
            DemandedPrefixes::of(own.unwrap_or_default(), criteria)
        }
        named => DemandedPrefixes::uniform(named.iter().copied(), 1.0),
    }
}

/// The profiles of an app's stages, with the overrides applied.
fn profiles_of(
    request: &PreviewRequest<'_>,
    real: &World,
    workflow: &Workflow,
    known: impl Fn(&Stage) -> Profile,
) -> Profiles {
    // Measurements do not apply to another function under the name of an existing app.
    let measured: Profiles = match request.app {
        Some(app) if !request.replaces => real.profiles(app, workflow, known),
        _ => {
            let stages = workflow.stages().iter();
            stages
                .map(|stage| (stage.name.clone(), known(stage)))
                .collect()
        }
    };
    measured
        .into_iter()
        .map(|(stage, profile)| (stage, (request.over)(profile)))
        .collect()
}

/// The input for choosing the app's forms: from its row, if its history is used.
fn form_input<'a>(
    row: Option<&'a AppRow>,
    (workflow, variants): (&'a Workflow, &'a Variants),
    nothing: &'a FormChoices,
    rate: f64,
) -> FormInput<'a> {
    FormInput {
        app: row.map(|row| &row.name),
        workflow,
        variants,
        current: row.map_or(nothing, |row| &row.forms),
        revision: row.map_or(Revision::NONE, |row| row.revision),
        rate: rate / row.map_or(1, |row| row.primaries.len().max(1)) as f64,
    }
}

/// The criteria by which prefixes with demand are ranked.
pub(super) fn demand_criteria<'a>(
    state: &State,
    world: &'a World,
    now: Timestamp,
) -> DemandCriteria<'a> {
    DemandCriteria {
        called: world.called(),
        limit: state.settings.planner.bindings_per_app as usize,
        memory: state.settings.planner.demand_memory,
        now,
    }
}

/// The present plans and bindings of an app.
fn previous_plans_of<'a>(inputs: &'a Inputs, app: &AppName) -> PreviousPlans<'a> {
    let (plans, bindings) = (
        by_app(&inputs.plans, |p| &p.app),
        by_app(&inputs.bindings, |b| &b.app),
    );
    PreviousPlans::new(
        plans.get(app).copied().unwrap_or_default(),
        bindings.get(app).copied().unwrap_or_default(),
    )
}

/// The number of clients that two placements of an app send to different clusters.
fn moved_clients(one: &AppPlacement, other: &AppPlacement) -> usize {
    let there = |prefix: &ClientPrefix| other.bindings.get(prefix).map(|(cluster, _)| cluster);
    let all = one.bindings.iter();
    all.filter(|(prefix, (cluster, _))| there(prefix) != Some(cluster))
        .count()
}

/// The run time of calls of each stage where they would run.
fn times(
    world: &World,
    (workflow, profiles, factors): (&Workflow, &Profiles, &Factors),
    placed: &AppPlacement,
    weights: &BTreeMap<ClientPrefix, f64>,
) -> BTreeMap<StageName, Millis> {
    let weight = |prefix: &ClientPrefix| weights.get(prefix).copied().unwrap_or(0.0);
    // Without any demand all clients have equal weight.
    let whole: f64 = placed.bindings.keys().map(weight).sum();
    let mut parts: BTreeMap<&str, f64> = BTreeMap::new();
    for (prefix, (_, group)) in &placed.bindings {
        let part = if whole > 0.0 { weight(prefix) } else { 1.0 };
        *parts.entry(group).or_default() += part;
    }
    let factors = factors.as_slice().unwrap_or_default();
    let mean = |stage: &StageName, work: Millis| {
        let task = workflow.stages().iter().position(|one| one.name == *stage);
        let factor = |at: usize| {
            let cell = task.and_then(|task| factors.get(task * world.clusters().len() + at));
            cell.copied().unwrap_or(1.0)
        };
        let (mut sum, mut whole) = (0.0, 0.0);
        for (group, plan) in &placed.plans {
            // A plan for an unknown client has no binding, and is then the only one.
            let part = parts.get(group.as_str()).copied().unwrap_or(0.0);
            let part = if parts.is_empty() { 1.0 } else { part };
            let cluster = plan.stages.get(stage).map(|id| world.index_of(id));
            let cluster = cluster.and_then(|at| Some((at, world.clusters().get(at.get())?)));
            if let Some((at, cluster)) = cluster.filter(|(_, one)| one.speed.get() > 0.0) {
                sum += part * cluster.speed.time(work).get() * factor(at.get());
                whole += part;
            }
        }
        if whole > 0.0 {
            Millis::new(sum / whole)
        } else {
            work
        }
    };
    profiles
        .iter()
        .map(|(stage, profile)| (stage.clone(), mean(stage, profile.work)))
        .collect()
}

/// Places an app against all others, which either stay or are planned as well; returns its plans, and those of the others that were planned.
fn place_against_others<'a>(
    state: &State,
    (world, inputs, others): (&World, &'a Inputs, &[&'a AppRow]),
    own: PlanInput<'a>,
    (limit, stay): (usize, bool),
    (moves, now): (&mut Moves, Timestamp),
) -> Result<(AppPlacement, Vec<AppPlacement>), Error> {
    let demand_criteria = demand_criteria(state, world, now);
    let (plans, bindings, demand) = (
        by_app(&inputs.plans, |p| &p.app),
        by_app(&inputs.bindings, |b| &b.app),
        by_app(&inputs.demand, |d| &d.app),
    );
    let versions = Versions::new(&inputs.versions);
    let befores: Vec<PreviousPlans<'_>> = others
        .iter()
        .map(|app| {
            PreviousPlans::new(
                plans.get(&app.name).copied().unwrap_or_default(),
                bindings.get(&app.name).copied().unwrap_or_default(),
            )
        })
        .collect();
    let variants: Vec<Variants> = others
        .iter()
        .map(|app| versions.variants(&app.workflow))
        .collect();
    let mut known: Vec<(Workflow, Profiles, Serving)> = others
        .iter()
        .map(|app| {
            let workflow = world.learned(&app.name, &app.workflow);
            let profiles = world.profiles(&app.name, &workflow, |stage| versions.expected(stage));
            let serving = world.serving(Some(&app.name), &workflow, &profiles);
            (workflow, profiles, serving)
        })
        .collect();
    let rates = lock(&state.live).rates(now);
    let rate_of = |app: &AppName| rates.get(app).copied().unwrap_or(0.0);
    let factors = {
        let learner = lock(&state.learner);
        let apps = others.iter().copied();
        let mut factors = factors(world, apps.clone(), &known, &learner, now);
        let of = (&*learner, now);
        decide_all(
            world,
            apps.zip(&variants),
            &mut known,
            &mut factors,
            of,
            rate_of,
        );
        factors
    };
    let mut plannings: Vec<PlanInput<'_>> = others
        .iter()
        .enumerate()
        .map(|(at, app)| PlanInput {
            workflow: &known[at].0,
            profiles: &known[at].1,
            serving: &known[at].2,
            factors: &factors[at],
            dwelling: None,
            failovers: None,
            before: &befores[at],
            demand: DemandedPrefixes::of(
                demand.get(&app.name).copied().unwrap_or_default(),
                &demand_criteria,
            ),
            rate: Rate::per_second(rate_of(&app.name)),
            fixed: stay && !befores[at].is_empty(),
        })
        .collect();
    plannings.push(own);
    let mut placed = place_all(world, &plannings, limit, moves, None)?;
    // Other apps that cannot be planned say nothing of this one, which is the last.
    let failed = placed.failed.pop();
    if let Some((_, error)) = failed.filter(|(at, _)| at + 1 == plannings.len()) {
        return Err(error.into());
    }
    let own = placed.apps.pop().flatten().unwrap_or_default();
    Ok((own, placed.apps.into_iter().flatten().collect()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fdn_core::message::{AppObserved, NodeStatus};
    use fdn_core::phases::PhaseTimes;
    use fdn_core::{ClusterId, VersionNumber};
    use fdn_scheduling::place::Bandwidth;
    use fdn_scheduling::steer::Margin;

    use super::*;
    use crate::fixture;
    use crate::geo::Geo;
    use crate::reconcile::actual::{Learner, PredictionAccuracy};
    use crate::reconcile::place::GroupPlan;
    use crate::reconcile::world::{MeasuredRtts, Terms};
    use crate::settings::GeoSettings;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn app() -> AppName {
        "hello".parse().expect("app")
    }

    fn cluster(name: &str) -> ClusterId {
        name.parse().expect("cluster")
    }

    /// In `a` calls take 30 ms, in `b` there were none.
    fn world(nodes: &[&str]) -> World {
        let status = |name: &&str| {
            let calls = if *name == "a" { 10_000 } else { 0 };
            let observed = AppObserved {
                invocations: calls,
                execution_mean: Millis::new(30.0),
                serves: Some(true),
                phases: Some(PhaseTimes {
                    execution: Millis::new(30.0),
                    ..PhaseTimes::default()
                }),
                ..fixture::observed("hello")
            };
            NodeStatus {
                apps: vec![observed],
                ..fixture::status(name, name)
            }
        };
        let nodes: Vec<NodeStatus> = nodes.iter().map(status).collect();
        let alive: Vec<&NodeStatus> = nodes.iter().collect();
        let places = ["a", "b"].map(|name| {
            let node = fixture::status(name, name);
            (cluster(name), (node.region, node.location))
        });
        let terms = Terms {
            margin: Margin::default(),
            bandwidth: Bandwidth::UNLIMITED,
            horizon: Millis::new(10_000.0),
        };
        let geo = Arc::new(Geo::open(&GeoSettings::default()).expect("no locations"));
        World::of(places.into(), &alive, geo, MeasuredRtts::default(), terms)
    }

    fn workflow() -> Workflow {
        Workflow::single("hello".parse().expect("function"), VersionNumber::FIRST)
    }

    /// All clients of 192.0.2.0/24 in one cluster.
    fn placed(at: &str) -> AppPlacement {
        let stage = workflow().entry().name.clone();
        let plan = GroupPlan {
            stages: [(stage, cluster(at))].into(),
            explanation: None,
            latency: None,
        };
        let prefix = "192.0.2.0/24".parse().expect("prefix");
        AppPlacement {
            plans: [("g".to_owned(), plan)].into(),
            bindings: [(prefix, (cluster(at), "g".to_owned()))].into(),
            ..AppPlacement::default()
        }
    }

    #[test]
    fn what_was_measured_stays_known_without_the_nodes_that_did() {
        let work = |world: &World| {
            let expected =
                |_: &Stage| super::super::profile(&fdn_core::manifest::Manifest::default());
            let profiles = world.profiles(&app(), &workflow(), expected);
            profiles[&workflow().entry().name].work
        };
        let (real, down) = (world(&["a", "b"]), world(&["b"]));
        assert_ne!(work(&down), Millis::new(30.0));
        assert_eq!(work(&down.with_measurements_of(&real)), Millis::new(30.0));
    }

    #[test]
    fn a_price_counts_the_times_that_plans_do() {
        let (world, workflow) = (world(&["a", "b"]), workflow());
        let stage = workflow.entry().name.clone();
        let profile = super::super::profile(&fdn_core::manifest::Manifest::default());
        let work = Millis::new(20.0);
        let profiles: Profiles = [(stage.clone(), Profile { work, ..profile })].into();
        let mut learner = Learner::new(10);
        let of = (&workflow, &profiles);
        let none = Variants::new();
        let with = (of.0, of.1, &none);
        learner.learn(
            &world,
            &app(),
            with,
            NOW,
            &mut PredictionAccuracy::default(),
        );
        let factors = learner.of(&world, &app()).factors(&world, of, NOW);
        let time = |at: &str| {
            let known = (&workflow, &profiles, &factors);
            times(&world, known, &placed(at), &BTreeMap::new())[&stage]
        };
        assert!((time("a").get() - 30.0).abs() < 0.1, "{:?}", time("a"));
        assert_eq!(time("b"), work);
    }

    #[test]
    fn clients_that_are_sent_elsewhere_are_counted() {
        assert_eq!(moved_clients(&placed("a"), &placed("a")), 0);
        assert_eq!(moved_clients(&placed("a"), &placed("b")), 1);
        assert_eq!(moved_clients(&placed("a"), &AppPlacement::default()), 1);
    }
}
