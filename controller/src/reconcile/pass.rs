//! The computation of a pass: from the rows that were read to the desired state, and the difference. No clock, no I/O; this is what
//! `fdn-bench plan` measures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use fdn_core::form::FormChoices;
use fdn_core::workflow::Workflow;
use fdn_core::{AppName, ClientPrefix, ClusterId, DurationMs, Timestamp};
use fdn_scheduling::compete::{Moves, Rate};

use super::actual::{Factors, Learner, PredictionAccuracy};
use super::difference::{Difference, difference};
use super::dwell::Dwell;
use super::forms::{self, Variants, decide_all};
use super::holders;
use super::pass_recorder::PassRecorder;
use super::place::{AppPlacement, PlanInput, PreviousPlans, place_all};
use super::prefixes::{DemandCriteria, DemandedPrefixes};
use super::reason::Failovers;
use super::serving::Serving;
use super::world::{ClusterLoad, Profiles, World};
use super::{Versions, by_app};
use crate::state::lock;
use crate::store::app::AppRow;
use crate::store::binding::BindingRow;
use crate::store::demand::DemandRow;
use crate::store::plan::PlanRow;
use crate::store::version::VersionRow;

/// The rows of apps that a pass reads. Rows of one app are adjacent.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The apps.
    pub apps: &'a [AppRow],
    /// The versions that they run.
    pub versions: &'a [VersionRow],
    /// Their present plans.
    pub plans: &'a [PlanRow],
    /// Their present bindings.
    pub bindings: &'a [BindingRow],
    /// The demand for them.
    pub demand: &'a [DemandRow],
}

/// The parameters of a pass.
#[derive(Clone, Copy, Debug)]
pub struct PassSettings {
    /// The most bindings of one app.
    pub limit: usize,
    /// The half-life of demand.
    pub memory: DurationMs,
    /// Whether silent nodes may be considered dead; if not, apps keep their plans.
    pub settled: bool,
    /// The time of the pass.
    pub now: Timestamp,
}

/// State that is carried over from pass to pass.
#[derive(Debug)]
pub struct PassState<'a> {
    /// The bound on moves for a gain.
    pub moves: &'a mut Moves,
    /// Groups that were moved recently.
    pub dwell: &'a mut Dwell,
    /// Plans that were made for a failover.
    pub failovers: &'a Failovers,
    /// The learnt corrections; locked only to learn and to read, since requests read them too.
    pub learner: &'a Mutex<Learner>,
    /// The buffer for the record of the pass ([`fdn_scheduling::record`]); `None` if none is kept.
    pub record: Option<&'a mut Vec<u8>>,
}

/// The present and the desired state of an app.
#[derive(Debug)]
pub struct AppDecision<'a> {
    /// The app's row.
    pub app: &'a AppRow,
    /// The present plans and bindings, by group and prefix.
    pub before: PreviousPlans<'a>,
    /// The present bindings as stored.
    pub stored: &'a [BindingRow],
    /// The desired plans and bindings.
    pub placed: AppPlacement,
    /// The difference between the two.
    pub difference: Difference,
    /// The forms that clusters must serve.
    pub forms: FormChoices,
    /// The clusters that cannot hold it ([`holders::unfit`]).
    pub unfit: BTreeSet<ClusterId>,
}

/// The result of a pass.
#[derive(Debug)]
pub struct PassOutcome<'a> {
    /// The apps that were planned.
    pub apps: Vec<AppDecision<'a>>,
    /// The prefixes with demand, whether they were planned for or not.
    pub known: BTreeSet<(AppName, ClientPrefix)>,
    /// The apps that cannot be planned, and why; they stay as they are.
    pub failed: Vec<(&'a AppName, fdn_scheduling::Error)>,
    /// The load and memory need of each cluster under the plans.
    pub loads: BTreeMap<ClusterId, ClusterLoad>,
    /// Groups whose move for a gain was deferred by the bound on moves.
    pub deferred: usize,
    /// Groups that no cluster can take.
    pub unplaced: usize,
    /// The accuracy of predictions.
    pub learnt: PredictionAccuracy,
}

/// Plans every app. `rate` gives the call rate of an app, per second.
///
/// # Errors
/// When a distance is negative or not finite. What is wrong with one app is in the result.
pub fn pass<'a>(
    world: &World,
    rows: Rows<'a>,
    rate: impl Fn(&AppName) -> f64,
    settings: &PassSettings,
    state: PassState<'_>,
) -> Result<PassOutcome<'a>, fdn_scheduling::Error> {
    let (plans, bindings, demand) = (
        by_app(rows.plans, |p| &p.app),
        by_app(rows.bindings, |b| &b.app),
        by_app(rows.demand, |d| &d.app),
    );
    let asked = |app: &AppRow| demand.get(&app.name).copied().unwrap_or_default();
    let bound = |app: &AppRow| bindings.get(&app.name).copied().unwrap_or_default();
    let befores: Vec<PreviousPlans<'a>> = rows
        .apps
        .iter()
        .map(|app| {
            let plans = plans.get(&app.name).copied().unwrap_or_default();
            PreviousPlans::new(plans, bound(app))
        })
        .collect();
    let versions = Versions::new(rows.versions);
    let variants = rows.apps.iter().map(|app| versions.variants(&app.workflow));
    let variants: Vec<Variants> = variants.collect();
    let mut known = known_of(world, rows.apps, &versions);
    let apps = (rows.apps, variants.as_slice());
    let (factors, forms, learnt) = {
        let mut learner = lock(state.learner);
        learn(world, apps, &mut known, (&mut learner, settings.now), &rate)
    };
    let criteria = DemandCriteria {
        called: world.called(),
        limit: settings.limit,
        memory: settings.memory,
        now: settings.now,
    };
    let dwell = &*state.dwell;
    let plannings: Vec<PlanInput<'_>> = rows
        .apps
        .iter()
        .zip(&known)
        .zip(&befores)
        .zip(&factors)
        .map(
            |(((app, (workflow, profiles, serving)), before), factors)| PlanInput {
                workflow,
                profiles,
                serving,
                factors,
                dwelling: dwell.of(&app.name),
                failovers: state.failovers.of(&app.name),
                before,
                demand: DemandedPrefixes::of(asked(app), &criteria),
                rate: Rate::per_second(rate(&app.name)),
                fixed: !settings.settled && !before.is_empty(),
            },
        )
        .collect();
    let apps: Vec<&str> = rows.apps.iter().map(|row| row.name.as_str()).collect();
    let mut recorder = state
        .record
        .map(|into| PassRecorder::new(settings.now, &apps, into));
    let placed = place_all(
        world,
        &plannings,
        settings.limit,
        state.moves,
        recorder.as_mut(),
    )?;
    drop(plannings);
    for (app, who, cluster) in placed.gained {
        state
            .dwell
            .note(&rows.apps[app].name, who, cluster, settings.now);
    }
    let failed = placed.failed.into_iter();
    let failed = failed.map(|(app, error)| (&rows.apps[app].name, error));
    let forms = choices(world, (rows.apps, &known), forms, settings.settled);
    let apps = rows.apps.iter().zip(befores).zip(placed.apps).zip(forms);
    Ok(PassOutcome {
        apps: apps
            .zip(&known)
            .filter_map(|((((app, before), placed), forms), known)| {
                let placed = placed?;
                Some(AppDecision {
                    forms,
                    unfit: holders::unfit(world, &known.0, &known.1),
                    app,
                    stored: bound(app),
                    difference: difference(&before, &placed),
                    before,
                    placed,
                })
            })
            .collect(),
        known: rows
            .demand
            .iter()
            .map(|row| (row.app.clone(), row.prefix))
            .collect(),
        failed: failed.collect(),
        loads: placed.loads,
        deferred: placed.deferred,
        unplaced: placed.unplaced,
        learnt,
    })
}

/// Learns from what calls took since the last pass; the corrections and form decisions of each app that follow from it, and how accurate
/// predictions were.
fn learn(
    world: &World,
    (apps, variants): (&[AppRow], &[Variants]),
    known: &mut [(Workflow, Profiles, Serving)],
    (learner, now): (&mut Learner, Timestamp),
    rate: impl Fn(&AppName) -> f64,
) -> (
    Vec<Factors>,
    Vec<Option<forms::FormDecisions>>,
    PredictionAccuracy,
) {
    let mut accuracy = PredictionAccuracy::default();
    for ((app, known), variants) in apps.iter().zip(&*known).zip(variants) {
        let of = (&known.0, &known.1, variants);
        learner.learn(world, &app.name, of, now, &mut accuracy);
    }
    let mut factors = factors(world, apps, known, learner, now);
    let forms = decide_all(
        world,
        apps.iter().zip(variants),
        known,
        &mut factors,
        (&*learner, now),
        rate,
    );
    (factors, forms, accuracy)
}

/// The profiles of each app.
fn known_of(
    world: &World,
    apps: &[AppRow],
    versions: &Versions<'_>,
) -> Vec<(Workflow, Profiles, Serving)> {
    apps.iter()
        .map(|app| {
            let workflow = world.learned(&app.name, &app.workflow);
            let profiles = world.profiles(&app.name, &workflow, |stage| versions.expected(stage));
            let serving = world.serving(Some(&app.name), &workflow, &profiles);
            (workflow, profiles, serving)
        })
        .collect()
}

/// The forms that clusters must serve, for each app.
fn choices(
    world: &World,
    (apps, known): (&[AppRow], &[(Workflow, Profiles, Serving)]),
    decided: Vec<Option<forms::FormDecisions>>,
    settled: bool,
) -> Vec<FormChoices> {
    let all = apps.iter().zip(known).zip(decided);
    all.map(|((app, known), decided)| match decided {
        // Silent nodes may still be alive.
        Some(_) if !settled => app.forms.clone(),
        Some(decided) => decided.choices(world, &known.0, &app.forms),
        None => FormChoices::new(),
    })
    .collect()
}

/// The corrections of each app.
pub(super) fn factors<'a>(
    world: &World,
    apps: impl IntoIterator<Item = &'a AppRow>,
    known: &[(Workflow, Profiles, Serving)],
    learner: &Learner,
    now: Timestamp,
) -> Vec<Factors> {
    let all = learner.all(world);
    apps.into_iter()
        .zip(known)
        .map(|(app, (workflow, profiles, _))| {
            let of = all.get(&app.name);
            of.map_or_else(Factors::default, |stages| {
                stages.factors(world, (workflow, profiles), now)
            })
        })
        .collect()
}
