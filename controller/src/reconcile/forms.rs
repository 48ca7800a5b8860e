//! Which form of a function each cluster serves: the inputs of [`fdn_scheduling::form`] from what nodes have and what calls took and
//! cost, and the consequences of the choice for plans.
//!
//! A form is a candidate where a node that takes work has its runtime and could hold an instance of it. Its run time is what was measured
//! in the cluster, else what was measured elsewhere, scaled to this cluster's speed, else what its manifest expects. The measurements of
//! a form that a cluster no longer serves fade over a day; then it is tried again if its manifest promises enough. A form that no node of
//! a cluster could make ready is no candidate for the moment, and none is changed while it is being prepared; once another is served, the
//! failed one is retried beside it, so that calls do not wait for it. Plans use the form that nodes report to serve, if they do, not the
//! one that they were told to serve.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::billing::{Day, Meter, Money, PriceList, Quantities, Segment, cost};
use fdn_core::form::{FormChoices, FormManifest, FormTerms, cold_start};
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::usage::{UsageOutcome, UsageRecord};
use fdn_core::workflow::{Stage, Workflow};
use fdn_core::{
    AppName, FormName, InvocationId, MebiBytes, Millis, Revision, StageName, Timestamp,
    VersionNumber,
};
use fdn_scheduling::form::{FormChoice, FormEstimate, Reason, choose, cold_share};
use fdn_scheduling::place::Cluster;
use fdn_scheduling::residual::Terms;

use super::actual::{Factors, FormResiduals, Learner};
use super::serving::{InstanceRequirements, Serving, running};
use super::world::{Profiles, World};
use crate::store::app::AppRow;

/// How long nodes are assumed to keep an idle instance.
const KEPT: Millis = Millis::new(600_000.0);
/// The half-life of what is known of a form that is no longer served.
const FADES: Millis = Millis::new(86_400_000.0);
/// The number of calls for which prices are compared: for a single call they would be rounded away.
const MILLION: i128 = 1_000_000;

/// A form of a stage's function.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The form's name.
    pub name: FormName,
    /// The function's manifest in this form.
    pub manifest: Manifest,
    /// How long a call waits for an instance to start.
    pub cold_start: Millis,
}

/// By stage: the forms of functions that have several.
pub type Variants = BTreeMap<StageName, Vec<Variant>>;

/// The forms of a function, the first one first; empty if it has a single form.
#[must_use]
pub fn variants<'a>(
    manifest: &Manifest,
    forms: impl IntoIterator<Item = &'a FormManifest>,
) -> Vec<Variant> {
    let others = forms.into_iter().map(|form| Variant {
        name: form.name.clone(),
        manifest: form.over(manifest),
        cold_start: form.cold_start(),
    });
    let mut all: Vec<Variant> = others.collect();
    if !all.is_empty() {
        let first = Variant {
            name: FormName::main(),
            manifest: manifest.clone(),
            cold_start: cold_start(manifest.runtime),
        };
        all.insert(0, first);
    }
    all
}

/// The input for choosing an app's forms.
#[derive(Clone, Copy)]
pub struct FormInput<'a> {
    /// The app's name; `None` if nothing was measured of it.
    pub app: Option<&'a AppName>,
    /// The workflow that it runs.
    pub workflow: &'a Workflow,
    /// The forms of its stages.
    pub variants: &'a Variants,
    /// The forms that clusters are told to serve at present.
    pub current: &'a FormChoices,
    /// The revision at which nodes were told that.
    pub revision: Revision,
    /// The number of calls per second that a cluster gets.
    pub rate: f64,
}

/// A stage in a cluster.
#[derive(Clone, Debug, Default)]
struct Cell {
    /// The evaluation of each form; `None` for those that cannot run there.
    offered: Vec<Option<FormEstimate>>,
    measured: Vec<bool>,
    prices: Vec<Option<Money>>,
    chosen: Option<FormChoice>,
    /// The form that no node there could make ready, if any.
    failed: Option<usize>,
    /// The form that most nodes there report to serve, if any.
    served: Option<usize>,
}

impl Cell {
    /// The form in service: as reported by nodes, if it can run there, else the chosen one.
    fn served(&self) -> Option<usize> {
        let can = |form: &usize| self.offered.get(*form).is_some_and(Option::is_some);
        let chosen = self.chosen.map(|chosen| chosen.form);
        self.served.filter(can).or(chosen)
    }
}

/// The chosen forms of an app in all clusters.
#[derive(Clone, Debug, Default)]
pub struct FormDecisions {
    /// By task, then by cluster; `None` for tasks with a single form.
    tasks: Vec<Option<(Vec<Variant>, Vec<Cell>)>>,
}

/// Chooses the forms for every cluster.
#[must_use]
pub fn decide(
    world: &World,
    learner: &Learner,
    input: &FormInput<'_>,
    now: Timestamp,
) -> FormDecisions {
    let apps = input.app.into_iter().collect();
    let known = learner.of_forms(&apps).into_values().next();
    decide_by(world, &known.unwrap_or_default(), input, now)
}

/// Chooses the forms from what is known of the app's forms.
fn decide_by(
    world: &World,
    known: &FormResiduals,
    input: &FormInput<'_>,
    now: Timestamp,
) -> FormDecisions {
    let prices = world.prices.as_ref();
    let share = cold_share(input.rate, KEPT);
    let is_single = input.workflow.stages().len() == 1;
    let tasks = input.workflow.stages().iter().map(|stage| {
        let variants = input.variants.get(&stage.name)?;
        let clusters = world.clusters().iter().enumerate();
        let cells = clusters.map(|(at, cluster)| {
            let current = input.current.get(&cluster.id);
            let current = current.and_then(|stages| stages.get(&stage.name));
            let place = |name: Option<&FormName>| {
                let mut all = variants.iter();
                all.position(|variant| Some(&variant.name) == name)
            };
            let current = place(current);
            let part = Some(&stage.name).filter(|_| !is_single);
            let mut cell = Cell {
                failed: current.filter(|_| world.phases.has_failed(input.app, input.revision, at)),
                served: place(world.phases.form_of(input.app, at, part)),
                ..Cell::default()
            };
            for (form, variant) in variants.iter().enumerate() {
                let manifest = &variant.manifest;
                let place = (&stage.name, cluster, current == Some(form));
                let (run, measured) = run_time(known, variant, place, now);
                let price = prices.and_then(|list| price(list, manifest, run, now));
                let offered = FormEstimate {
                    run,
                    cold: variant.cold_start * share,
                    price: price.map_or(0.0, |money| money.micros as f64),
                };
                let need = InstanceRequirements::of(manifest);
                let can = cell.failed != Some(form) && world.phases.holds(at, &need);
                cell.offered.push(can.then_some(offered));
                cell.measured.push(measured);
                cell.prices.push(price);
            }
            let is_unready = cell.failed.is_none() && world.phases.is_unready(input.app, at);
            let stays = current.filter(|form| is_unready && cell.offered[*form].is_some());
            cell.chosen = match stays {
                Some(form) => Some(FormChoice {
                    form,
                    why: Reason::Preparing,
                }),
                None => choose(&cell.offered, current, world.margin()),
            };
            cell
        });
        Some((variants.clone(), cells.collect()))
    });
    FormDecisions {
        tasks: tasks.collect(),
    }
}

/// The name under which a form's corrections are stored: `None` for the first one, so that measurements from before there were other
/// forms remain valid.
pub(super) fn correction_key(form: Option<&FormName>) -> Option<FormName> {
    form.filter(|form| !form.is_main()).cloned()
}

/// The run time of a call in a form and cluster, and whether it was measured there.
fn run_time(
    known: &FormResiduals,
    variant: &Variant,
    (stage, cluster, is_served): (&StageName, &Cluster, bool),
    now: Timestamp,
) -> (Millis, bool) {
    let predicted = cluster.speed.time(variant.manifest.expected_millis());
    let key = (stage.clone(), correction_key(Some(&variant.name)));
    let Some(places) = known.get(&key) else {
        return (predicted, false);
    };
    let fading = Terms {
        half_life: FADES,
        ..Terms::default()
    };
    if let Some(here) = places.get(&cluster.id) {
        let terms = if is_served { Terms::default() } else { fading };
        return (predicted * here.factor(predicted, now, &terms), true);
    }
    let logs = places
        .values()
        .map(|there| there.factor(there.base(), now, &fading).ln());
    let logs: Vec<f64> = logs.filter(|log| log.is_finite()).collect();
    let mean = match logs.len() {
        0 => 0.0,
        count => logs.iter().sum::<f64>() / count as f64,
    };
    (predicted * mean.exp(), false)
}

/// The price of a million calls with this run time; `None` if the price list has none.
fn price(list: &PriceList, manifest: &Manifest, run: Millis, now: Timestamp) -> Option<Money> {
    let resources = manifest.resources();
    let micros = (run.get() * 1e3).round().clamp(0.0, 1e12) as u64;
    let record = UsageRecord {
        invocation: InvocationId::from_uuid(uuid::Uuid::nil()),
        app: "a".parse().ok()?,
        function: "a".parse().ok()?,
        version: VersionNumber::FIRST,
        started_at: now,
        duration_us: micros,
        cpu_us: micros.saturating_mul(resources.cpu_milli.get()) / 1000,
        memory_mib: resources.memory_mib,
        gpu_memory_mib: resources.gpu_memory_mib,
        egress_bytes: 0,
        outcome: UsageOutcome::Ok,
    };
    let one = Quantities::of(&record).ok()?;
    let mut all = Quantities::default();
    for meter in Meter::ALL {
        let quantity = one.get(meter).checked_mul(MILLION)?;
        all.add(&Quantities::one(meter, quantity)).ok()?;
    }
    let today = Day::of(now);
    let segment = Segment {
        from: today,
        to: today,
        list: Some(list),
    };
    Some(Money::new(cost(&segment, &all).ok()?, list.currency))
}

impl FormDecisions {
    /// The kind of function that runs a task in a cluster, by the form in service; `None` if it has a single form, an error if no
    /// form can run there.
    fn kind(&self, task: usize, at: usize) -> Option<Result<RuntimeKind, ()>> {
        let (variants, cells) = self.tasks.get(task)?.as_ref()?;
        let chosen = cells.get(at)?.chosen;
        let kind = chosen.and_then(|chosen| Some(variants.get(chosen.form)?.manifest.runtime));
        Some(kind.ok_or(()))
    }

    /// The forms to serve by cluster; `current` is kept for clusters in which no node takes work now.
    #[must_use]
    pub fn choices(
        &self,
        world: &World,
        workflow: &Workflow,
        current: &FormChoices,
    ) -> FormChoices {
        let mut choices = FormChoices::new();
        for (stage, task) in workflow.stages().iter().zip(&self.tasks) {
            let Some((variants, cells)) = task else {
                continue;
            };
            for (cluster, cell) in world.clusters().iter().zip(cells) {
                let name = cell.chosen.and_then(|chosen| variants.get(chosen.form));
                let name = name.map(|variant| &variant.name).or_else(|| {
                    let before = current.get(&cluster.id)?.get(&stage.name)?;
                    let known = variants.iter().any(|variant| variant.name == *before);
                    known.then_some(before)
                });
                if let Some(name) = name {
                    let stages = choices.entry(cluster.id.clone()).or_default();
                    stages.insert(stage.name.clone(), name.clone());
                }
            }
        }
        choices
    }

    /// The corrections of run times where each cluster serves its chosen form; `others` are those of tasks with a single form.
    #[must_use]
    pub fn factors(
        &self,
        world: &World,
        (workflow, profiles): (&Workflow, &Profiles),
        others: &Factors,
    ) -> Factors {
        if self.tasks.iter().all(Option::is_none) {
            return others.clone();
        }
        let clusters = world.clusters();
        let mut cells = vec![1.0; workflow.stages().len() * clusters.len()];
        if let Some(known) = others.as_slice() {
            cells.clone_from_slice(known);
        }
        for (task, stage) in workflow.stages().iter().enumerate() {
            let work = profiles.get(&stage.name).map(|profile| profile.work);
            for (at, cluster) in clusters.iter().enumerate() {
                let run = self.run(task, at);
                let predicted = cluster.speed.time(work.unwrap_or(Millis::ZERO));
                let factor = run.map(|run| run.get() / predicted.get());
                if let Some(factor) = factor.filter(|f| f.is_finite() && *f > 0.0) {
                    cells[task * clusters.len() + at] = factor;
                }
            }
        }
        Factors::of(cells)
    }

    /// The run time of a task's call in a cluster, in the form in service there; `None` for tasks with a single form.
    fn run(&self, task: usize, at: usize) -> Option<Millis> {
        let (_, cells) = self.tasks.get(task)?.as_ref()?;
        let cell = cells.get(at)?;
        let offered = cell.offered.get(cell.served()?).copied().flatten();
        Some(offered?.run)
    }

    /// The form in which a cluster serves a task, under the name used for corrections.
    #[must_use]
    pub fn form(&self, task: usize, at: usize) -> Option<FormName> {
        let (variants, cells) = self.tasks.get(task)?.as_ref()?;
        let served = cells.get(at)?.served()?;
        correction_key(variants.get(served).map(|variant| &variant.name))
    }

    /// The evaluation of every form in every cluster, for explanations.
    #[must_use]
    pub fn terms(&self, world: &World, workflow: &Workflow) -> Vec<FormTerms> {
        let mut rows = Vec::new();
        for (stage, task) in workflow.stages().iter().zip(&self.tasks) {
            let Some((variants, cells)) = task else {
                continue;
            };
            for (cluster, cell) in world.clusters().iter().zip(cells) {
                let forms = variants.iter().enumerate();
                rows.extend(forms.map(|(form, variant)| {
                    let mut row = row(stage, cluster, cell, form, variant);
                    let served = cell.served.filter(|other| row.chosen && *other != form);
                    if let Some(other) = served.and_then(|other| variants.get(other)) {
                        row.verdict = format!("{}; until it is ready, {}", row.verdict, other.name);
                    }
                    row
                }));
            }
        }
        rows
    }
}

fn row(stage: &Stage, cluster: &Cluster, cell: &Cell, form: usize, variant: &Variant) -> FormTerms {
    let offered = cell.offered.get(form).copied().flatten();
    let chosen = cell.chosen.filter(|chosen| chosen.form == form);
    let verdict = match (offered, chosen) {
        (None, _) if cell.failed == Some(form) => "no node there could make it ready".to_owned(),
        (None, _) => "no node there runs and holds it".to_owned(),
        (_, Some(chosen)) => chosen.why.to_string(),
        (Some(own), None) => {
            let served = cell
                .chosen
                .and_then(|chosen| *cell.offered.get(chosen.form)?);
            served.map_or_else(String::new, |served| against(&own, &served))
        }
    };
    FormTerms {
        stage: stage.name.clone(),
        cluster: cluster.id.clone(),
        form: variant.name.clone(),
        chosen: chosen.is_some(),
        run: offered.map_or(Millis::INFINITY, |offered| offered.run),
        measured: cell.measured.get(form).copied().unwrap_or(false),
        cold: offered.map_or(Millis::INFINITY, |offered| offered.cold),
        price: cell.prices.get(form).copied().flatten(),
        verdict,
    }
}

/// Marks in the rows of an explanation the forms that nodes were told to serve, where a choice was made: the controller that explains may
/// know less about run times than the one that plans, or something may have changed since.
pub fn mark_announced(rows: &mut [FormTerms], announced: &FormChoices) {
    for row in rows {
        let form = announced
            .get(&row.cluster)
            .and_then(|of| of.get(&row.stage));
        let Some(is_announced) = form.map(|form| *form == row.form) else {
            continue;
        };
        if is_announced && !row.chosen {
            row.verdict = format!("served now: {}", row.verdict);
        } else if row.chosen && !is_announced {
            row.verdict = format!("not served yet: {}", row.verdict);
        }
        row.chosen = is_announced;
    }
}

/// How a form compares with the one in service, in words.
fn against(own: &FormEstimate, served: &FormEstimate) -> String {
    let (mine, theirs) = (own.response(), served.response());
    if mine > theirs {
        return format!("{:.2} ms slower", mine.get() - theirs.get());
    }
    if own.price > served.price {
        return "as fast, and dearer".to_owned();
    }
    "not better by the margin".to_owned()
}

/// Chooses the forms of all apps and applies them to `known` and `factors`, which are in the order of the apps.
pub(super) fn decide_all<'a>(
    world: &World,
    apps: impl IntoIterator<Item = (&'a AppRow, &'a Variants)>,
    known: &mut [(Workflow, Profiles, Serving)],
    factors: &mut [Factors],
    (learner, now): (&Learner, Timestamp),
    rate: impl Fn(&AppName) -> f64,
) -> Vec<Option<FormDecisions>> {
    let apps: Vec<(&AppRow, &Variants)> = apps.into_iter().collect();
    let chosen = apps.iter().filter(|(_, variants)| !variants.is_empty());
    let chosen: BTreeSet<&AppName> = chosen.map(|(app, _)| &app.name).collect();
    let learnt = match chosen.is_empty() {
        true => BTreeMap::new(),
        false => learner.of_forms(&chosen),
    };
    let nothing = FormResiduals::new();
    let apps = apps.into_iter().zip(known).zip(factors);
    apps.map(|(((app, variants), known), factors)| {
        if variants.is_empty() {
            return None;
        }
        let input = FormInput {
            app: Some(&app.name),
            workflow: &known.0,
            variants,
            current: &app.forms,
            revision: app.revision,
            rate: rate(&app.name) / app.primaries.len().max(1) as f64,
        };
        let of = learnt.get(&app.name).unwrap_or(&nothing);
        let decided = decide_by(world, of, &input, now);
        known.2 = world.serving_in(Some(&app.name), (&known.0, &known.1), &decided);
        *factors = decided.factors(world, (&known.0, &known.1), factors);
        Some(decided)
    })
    .collect()
}

impl World {
    /// Where the stages of an app can run, given the chosen form in each cluster.
    #[must_use]
    pub fn serving_in(
        &self,
        app: Option<&AppName>,
        (workflow, profiles): (&Workflow, &Profiles),
        decided: &FormDecisions,
    ) -> Serving {
        let all = workflow.stages().iter().map(|stage| {
            let profile = profiles.get(&stage.name);
            (super::serving::kind(profile), running(profile).1)
        });
        let single: Vec<(RuntimeKind, MebiBytes)> = all.collect();
        let kind = |task: usize, at: usize| match decided.kind(task, at) {
            Some(kind) => kind.ok(),
            None => single.get(task).map(|one| one.0),
        };
        let gpu = |task: usize| single.get(task).map_or(MebiBytes(0), |one| one.1);
        self.phases.serving_by(app, single.len(), kind, gpu)
    }

    /// Sets the price list; without one, prices are not compared.
    #[must_use]
    pub fn with_prices(mut self, list: Option<PriceList>) -> Self {
        self.prices = list;
        self
    }
}

#[cfg(test)]
mod tests;
