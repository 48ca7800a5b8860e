//! The desired plans and bindings of all apps at one moment: a pure function of the world and of the previous ones.
//!
//! Clients that see the clusters alike form a group and share a plan. A plan is made for every configured client location, so that an app
//! that nobody has called yet is loaded where its first clients will be sent, and for every prefix with demand. With neither there is one
//! plan for a client of whom nothing is known, and no binding.
//!
//! Groups of all apps compete for the capacity of the clusters ([`fdn_scheduling::compete`]): an app's calls are divided among its groups
//! according to the recent demand of their prefixes. Members of a group that were sent to different clusters before (because they came
//! from different groups) are steered separately, so that nobody moves without the gain that a move requires.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use fdn_core::workflow::Workflow;
use fdn_core::{ClientPrefix, ClusterId, Millis, StageName};
use fdn_scheduling::compete::{GroupDemand, Moves, Outcome, Rate, Verdict};
use fdn_scheduling::dag::Dag;
use fdn_scheduling::place::{ClusterIndex, Constraints, Problem};

use super::actual::Factors;
use super::dwell::{Mover, RecentMoves};
use super::groups::{Group, Groups};
use super::pass_recorder::PassRecorder;
use super::prefixes::DemandedPrefixes;
use super::preload::{self, Gains};
use super::reason;
pub use super::reason::PlanExplanation;
use super::serving::Serving;
use super::world::{ClusterLoad, Profiles, World};
use crate::store::binding::BindingRow;
use crate::store::plan::PlanRow;

mod single;
pub use single::place;

/// The plan of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupPlan {
    /// The cluster of each stage.
    pub stages: BTreeMap<StageName, ClusterId>,
    /// The explanation; `None` if the plan is unchanged, so that the stored explanation remains valid.
    pub explanation: Option<PlanExplanation>,
    /// The latency of a call from the client and back; `None` if no cluster can take the group any more and it stays where it was.
    pub latency: Option<Millis>,
}

/// The desired plans and bindings of an app.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AppPlacement {
    /// The plans by group name.
    pub plans: BTreeMap<String, GroupPlan>,
    /// By prefix: the entry cluster, and the name of the plan.
    pub bindings: BTreeMap<ClientPrefix, (ClusterId, String)>,
    /// Why groups could not be placed, one text each; they stay as they were.
    pub unplaced: Vec<String>,
    /// Clusters that would serve some of its clients better once they are ready.
    pub preload: BTreeSet<ClusterId>,
}

impl AppPlacement {
    /// The clusters that any plan uses.
    #[must_use]
    pub fn primaries(&self) -> BTreeSet<ClusterId> {
        self.plans
            .values()
            .flat_map(|plan| plan.stages.values().cloned())
            .collect()
    }
}

/// The previous plans and bindings of an app.
#[derive(Clone, Debug, Default)]
pub struct PreviousPlans<'a> {
    pub(super) plans: BTreeMap<&'a str, &'a PlanRow>,
    pub(super) bindings: BTreeMap<ClientPrefix, &'a BindingRow>,
}

impl<'a> PreviousPlans<'a> {
    /// Indexes the rows of one app.
    #[must_use]
    pub fn new(plans: &'a [PlanRow], bindings: &'a [BindingRow]) -> Self {
        Self {
            plans: plans
                .iter()
                .map(|plan| (plan.group.as_str(), plan))
                .collect(),
            bindings: bindings
                .iter()
                .map(|binding| (binding.prefix, binding))
                .collect(),
        }
    }

    /// The groups that had a plan.
    pub fn groups(&self) -> impl Iterator<Item = &'a str> {
        self.plans.keys().copied()
    }

    /// Where a group's stages ran; `None` if it had no plan.
    #[must_use]
    pub fn stages_of(&self, group: &str) -> Option<&'a BTreeMap<StageName, ClusterId>> {
        self.plans.get(group).map(|plan| &plan.stages)
    }

    /// Whether there were no plans yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// The name of the plan that clients follow: that of their prefix, or of the group of unknown clients.
    fn plan_name<'b>(&'b self, prefix: Option<&ClientPrefix>, group: &'b str) -> &'b str {
        let plan = prefix.and_then(|prefix| self.plan(*prefix));
        plan.map_or(group, |(_, plan)| plan.group.as_str())
    }

    /// The binding and plan of a prefix, if it had one.
    fn plan(&self, prefix: ClientPrefix) -> Option<(&'a BindingRow, &'a PlanRow)> {
        let binding = self.bindings.get(&prefix)?;
        Some((binding, self.plans.get(binding.group.as_str())?))
    }

    /// The clusters that any plan used.
    #[must_use]
    pub fn primaries(&self) -> BTreeSet<ClusterId> {
        let plans = self.plans.values();
        plans
            .flat_map(|plan| plan.stages.values().cloned())
            .collect()
    }

    /// Where the stages of a prefix's clients ran; `None` unless it is known for every stage.
    #[must_use]
    pub fn stages(&self, workflow: &Workflow, prefix: ClientPrefix) -> Option<Vec<ClusterId>> {
        let (binding, plan) = self.plan(prefix)?;
        let entry = &workflow.entry().name;
        workflow
            .stages()
            .iter()
            .map(|stage| {
                if stage.name == *entry {
                    Some(binding.cluster.clone())
                } else {
                    plan.stages.get(&stage.name).cloned()
                }
            })
            .collect()
    }

    /// Whether a group had this plan, under its plain or a numbered name.
    fn has(&self, group: &str, stages: &BTreeMap<StageName, ClusterId>) -> bool {
        let same = |name: &str| {
            name == group || name.strip_prefix(group).is_some_and(|n| n.starts_with('#'))
        };
        self.plans
            .range(group..)
            .take_while(|(name, _)| name.starts_with(group))
            .any(|(name, plan)| same(name) && plan.stages == *stages)
    }

    /// As [`Self::stages`], for clients of whom nothing is known.
    fn stages_of_group(&self, workflow: &Workflow, group: &str) -> Option<Vec<ClusterId>> {
        let plan = self.plans.get(group)?;
        workflow
            .stages()
            .iter()
            .map(|stage| plan.stages.get(&stage.name).cloned())
            .collect()
    }
}

/// The address that stands for a client of whom nothing is known.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// An app to be planned.
pub struct PlanInput<'a> {
    /// The workflow that it runs.
    pub workflow: &'a Workflow,
    /// The run-time profiles of its stages.
    pub profiles: &'a Profiles,
    /// Where its stages can run.
    pub serving: &'a Serving,
    /// The corrections of run times.
    pub factors: &'a Factors,
    /// Clients that were moved for a gain recently.
    pub dwelling: Option<&'a RecentMoves>,
    /// Its plans that were made for a failover.
    pub failovers: Option<&'a reason::AppFailovers>,
    /// The previous plans and bindings.
    pub before: &'a PreviousPlans<'a>,
    /// The prefixes with demand.
    pub demand: DemandedPrefixes,
    /// The call rate of all its clients.
    pub rate: Rate,
    /// Whether its plans stay as they are; then only its load counts.
    pub fixed: bool,
}

/// The desired plans of the whole network.
#[derive(Debug, Default)]
pub struct NetworkPlacement {
    /// By app, in the given order; `None` for those that stay as they are.
    pub apps: Vec<Option<AppPlacement>>,
    /// The load and memory need of each cluster under the plans.
    pub loads: BTreeMap<ClusterId, ClusterLoad>,
    /// The number of groups that no cluster can take.
    pub unplaced: usize,
    /// The number of groups whose move for a gain was deferred by the bound on moves.
    pub deferred: usize,
    /// The apps that cannot be planned, by index, and why; they stay as they are.
    pub failed: Vec<(usize, fdn_scheduling::Error)>,
    /// The clients that move for a gain: index of the app, who, and entry cluster.
    pub gained: Vec<(usize, Mover, ClusterId)>,
}

/// Clients of one app with the same previous clusters and the same group.
struct ClientSet<'a> {
    app: usize,
    /// The number of their group.
    group: usize,
    dag: &'a Dag,
    members: Vec<ClientPrefix>,
    previous: Option<Vec<ClusterIndex>>,
    constraints: Option<&'a Constraints>,
    factors: Option<&'a [f64]>,
    dwells: bool,
    rate: Rate,
    fixed: bool,
}

impl ClientSet<'_> {
    fn demand<'b>(&'b self, groups: &'b Groups) -> GroupDemand<'b> {
        GroupDemand {
            app: self.app,
            dag: self.dag,
            distance: &groups.get(self.group).distance,
            rate: self.rate,
            before: self.previous.as_deref(),
            constraints: self.constraints,
            factors: self.factors,
            dwells: self.dwells,
        }
    }
}

/// Plans all apps, each with at most `limit` bindings; `moves` bounds the moves for a gain. Inputs and decisions are recorded by the `recorder`.
///
/// # Errors
/// When a distance is negative or not finite. What is wrong with one app is in the result.
pub fn place_all(
    world: &World,
    apps: &[PlanInput<'_>],
    limit: usize,
    moves: &mut Moves,
    recorder: Option<&mut PassRecorder<'_>>,
) -> Result<NetworkPlacement, fdn_scheduling::Error> {
    let chosen = |app: &PlanInput<'_>| app.demand.chosen(world.located(), limit);
    let chosen: Vec<BTreeSet<ClientPrefix>> = apps.iter().map(chosen).collect();
    let nobody = ClientPrefix::new(NOBODY, 0);
    let everybody = chosen.iter().flatten().copied().chain([nobody]);
    let groups = Groups::new(world, everybody);
    // An app that cannot be planned must not keep the others from it.
    let dags: Vec<Result<Dag, _>> = apps
        .iter()
        .map(|app| world.dag(app.workflow, app.profiles))
        .collect();
    let mut sets = Vec::new();
    for (at, (app, chosen)) in apps.iter().zip(chosen).enumerate() {
        if let Ok(dag) = &dags[at] {
            let clients = client_sets_of(world, &groups, (at, app), dag, chosen, nobody);
            sets.extend(clients);
        }
    }
    let mut placed = NetworkPlacement {
        apps: apps
            .iter()
            .zip(&dags)
            .map(|(app, dag)| (!app.fixed && dag.is_ok()).then(AppPlacement::default))
            .collect(),
        ..NetworkPlacement::default()
    };
    compete(world, apps, (&groups, &sets), moves, recorder, &mut placed)?;
    let failed = dags.into_iter().enumerate();
    placed.failed = failed
        .filter_map(|(at, dag)| Some((at, dag.err()?)))
        .collect();
    placed.unplaced += placed.failed.len();
    Ok(placed)
}

/// An app's clients by group and previous clusters, in this order.
fn client_sets_of<'a>(
    world: &World,
    groups: &Groups,
    (at, app): (usize, &PlanInput<'a>),
    dag: &'a Dag,
    chosen: BTreeSet<ClientPrefix>,
    nobody: ClientPrefix,
) -> Vec<ClientSet<'a>> {
    let weights: BTreeMap<ClientPrefix, f64> = app.demand.all.iter().copied().collect();
    let whole: f64 = chosen.iter().filter_map(|prefix| weights.get(prefix)).sum();
    let known = chosen.len();
    let indices = |stages: Vec<ClusterId>| -> Vec<ClusterIndex> {
        stages.iter().map(|id| world.index_of(id)).collect()
    };
    let mut by_view: BTreeMap<(usize, Option<Vec<ClusterIndex>>), Vec<ClientPrefix>> =
        BTreeMap::new();
    for prefix in chosen {
        let previous = app.before.stages(app.workflow, prefix).map(indices);
        if let Some(group) = groups.of(prefix) {
            by_view.entry((group, previous)).or_default().push(prefix);
        }
    }
    if let (true, Some(group)) = (by_view.is_empty(), groups.of(nobody)) {
        let name = &groups.get(group).name;
        let previous = app.before.stages_of_group(app.workflow, name).map(indices);
        by_view.insert((group, previous), Vec::new());
    }
    let at_entry = app
        .workflow
        .stages()
        .iter()
        .position(|s| s == app.workflow.entry());
    let entry = |previous: Option<&[ClusterIndex]>| {
        let place = previous.and_then(|places| places.get(at_entry?));
        place.and_then(|place| world.name_of(*place))
    };
    by_view
        .into_iter()
        .map(|((group, previous), members)| {
            let part: f64 = members
                .iter()
                .filter_map(|prefix| weights.get(prefix))
                .sum();
            let share = match known {
                // Calls of clients whose prefix is not known.
                0 => 1.0,
                _ if whole > 0.0 => part / whole,
                // Nobody has asked DNS lately: prefixes count alike.
                known => members.len() as f64 / known as f64,
            };
            let recent = app.dwelling.zip(entry(previous.as_deref()));
            let name = &groups.get(group).name;
            ClientSet {
                app: at,
                group,
                dag,
                dwells: recent.is_some_and(|(moved, at)| moved.dwells(name, &members, at)),
                members,
                constraints: app.serving.constraints(previous.as_deref()),
                factors: app.factors.as_slice(),
                previous,
                rate: Rate::per_second(app.rate.get() * share),
                fixed: app.fixed,
            }
        })
        .collect()
}

fn compete(
    world: &World,
    apps: &[PlanInput<'_>],
    (groups, client_sets): (&Groups, &[ClientSet<'_>]),
    moves: &mut Moves,
    mut recorder: Option<&mut PassRecorder<'_>>,
    placed: &mut NetworkPlacement,
) -> Result<(), fdn_scheduling::Error> {
    let (fixed, free): (Vec<&ClientSet<'_>>, Vec<_>) =
        client_sets.iter().partition(|clients| clients.fixed);
    let settled: Vec<GroupDemand<'_>> =
        fixed.iter().map(|clients| clients.demand(groups)).collect();
    let demands: Vec<GroupDemand<'_>> = free.iter().map(|clients| clients.demand(groups)).collect();
    let mut decisions: Vec<Option<GroupDecision>> = Vec::new();
    decisions.resize_with(free.len(), || None);
    let mut gains: BTreeMap<usize, Gains> = BTreeMap::new();
    let pass = world.pass(&settled, &demands);
    let moves_before = *moves;
    let competition = pass.run(moves, |at, problem, outcome| {
        if let Some(recorder) = &mut recorder {
            recorder.note(at, outcome);
        }
        placed.deferred += usize::from(outcome.verdict == Verdict::Deferred);
        placed.unplaced += usize::from(outcome.verdict == Verdict::Unplaced);
        let (clients, group) = (free[at], groups.get(free[at].group));
        if outcome.verdict == Verdict::Better {
            let entry = clients.dag.entry().get();
            let place = outcome.clusters.get(entry).and_then(|c| world.name_of(*c));
            if let Some(place) = place {
                let who = Mover::of(&group.name, &clients.members);
                let gained = who.map(|mover| (clients.app, mover, place.clone()));
                placed.gained.extend(gained);
            }
        }
        let come = apps[clients.app]
            .serving
            .lacking_time(clients.previous.as_deref());
        if !come.is_empty() {
            let gains = gains.entry(clients.app).or_default();
            let cost = preload::cost(problem, &outcome.clusters);
            gains.note(problem, come, (cost, clients.rate), world.margin());
        }
        let before = apps[clients.app].before;
        decisions[at] = Some(decided(
            world,
            &apps[clients.app],
            before,
            group,
            clients,
            problem,
            outcome,
        ));
    })?;
    if let Some(recorder) = recorder {
        let all = fixed.iter().chain(&free);
        let names = all.map(|clients| groups.get(clients.group).name.as_str());
        let names: Vec<&str> = names.collect();
        recorder.write(&pass, &names, (moves_before, *moves), &competition);
    }
    placed.loads = world.loads_after(&competition);
    for (app, gains) in gains {
        if let Some(app) = &mut placed.apps[app] {
            let best = gains.best().into_iter();
            app.preload = best.filter_map(|c| world.name_of(c).cloned()).collect();
        }
    }
    // In the order of groups, not of turns: names must not depend on the load.
    for (clients, decision) in free.iter().zip(decisions) {
        let group = groups.get(clients.group);
        if let (Some(decision), Some(app)) = (decision, &mut placed.apps[clients.app]) {
            app.add(apps[clients.app].before, group, clients, decision);
        }
    }
    Ok(())
}

/// The decision about a set of clients.
enum GroupDecision {
    /// Where its stages run, and why.
    Placed(GroupPlan),
    /// No cluster can take it, for this reason.
    Unplaced(String),
}

fn decided(
    world: &World,
    app: &PlanInput<'_>,
    before: &PreviousPlans<'_>,
    group: &Group,
    clients: &ClientSet<'_>,
    problem: &Problem<'_>,
    outcome: &Outcome,
) -> GroupDecision {
    let names = |clusters: &[ClusterIndex]| -> Vec<ClusterId> {
        let known = clusters.iter().filter_map(|c| world.name_of(*c));
        known.cloned().collect()
    };
    let explain = || {
        let previous = clients.previous.as_deref().map(names);
        // A previous placement with a deleted cluster cannot be named completely; the explanation is then that of a first placement.
        let previous = previous.filter(|names| names.len() == clients.dag.given());
        world.explain(problem, &group.key, app.serving, previous.as_deref())
    };
    if outcome.verdict == Verdict::Unplaced {
        let why = explain().err().map(|error| error.to_string());
        return GroupDecision::Unplaced(why.unwrap_or_else(|| "no cluster can take it".to_owned()));
    }
    let stages: BTreeMap<StageName, ClusterId> = app
        .workflow
        .stages()
        .iter()
        .map(|stage| stage.name.clone())
        .zip(names(&outcome.clusters))
        .collect();
    let kept = !outcome.verdict.moves() && before.has(&group.name, &stages);
    let verdict = outcome.verdict;
    let explanation = if kept {
        let name = before.plan_name(clients.members.first(), &group.name);
        let failover = app.failovers.and_then(|all| all.get(name));
        failover.and_then(|of| PlanExplanation::renewed(of, (verdict, problem), || explain().ok()))
    } else {
        let explained = explain().ok();
        explained.map(|steering| PlanExplanation::of(steering, verdict))
    };
    GroupDecision::Placed(GroupPlan {
        stages,
        explanation,
        latency: Some(outcome.latency),
    })
}

impl AppPlacement {
    fn add(
        &mut self,
        before: &PreviousPlans<'_>,
        group: &Group,
        clients: &ClientSet<'_>,
        decided: GroupDecision,
    ) {
        match decided {
            GroupDecision::Placed(plan) => {
                let entry = clients.dag.task(clients.dag.entry()).name.parse().ok();
                let cluster = entry.and_then(|entry: StageName| plan.stages.get(&entry).cloned());
                let name = self.add_plan(&group.name, plan);
                let Some(cluster) = cluster else { return };
                for prefix in &clients.members {
                    self.bindings
                        .insert(*prefix, (cluster.clone(), name.clone()));
                }
            }
            GroupDecision::Unplaced(why) => {
                self.unplaced.push(why);
                self.keep(before, &clients.members);
            }
        }
    }

    /// By entry cluster, the stage map of its plan; the first one if there are several plans.
    #[must_use]
    pub fn stage_maps(
        &self,
        workflow: &Workflow,
    ) -> BTreeMap<ClusterId, BTreeMap<StageName, ClusterId>> {
        let entry = &workflow.entry().name;
        let mut maps = BTreeMap::new();
        for plan in self.plans.values() {
            if let Some(cluster) = plan.stages.get(entry) {
                maps.entry(cluster.clone())
                    .or_insert_with(|| plan.stages.clone());
            }
        }
        maps
    }

    /// Adds a plan under its group's name; a second, different plan of the same group gets a numbered name.
    fn add_plan(&mut self, plain: &str, plan: GroupPlan) -> String {
        let mut name = plain.to_owned();
        let mut number = 1;
        loop {
            match self.plans.get(&name) {
                Some(there) if there.stages != plan.stages => {
                    number += 1;
                    name = format!("{plain}#{number}");
                }
                Some(_) => return name,
                None => {
                    self.plans.insert(name.clone(), plan);
                    return name;
                }
            }
        }
    }

    /// Leaves clients where they were.
    fn keep(&mut self, before: &PreviousPlans<'_>, members: &[ClientPrefix]) {
        for prefix in members {
            let Some((binding, plan)) = before.plan(*prefix) else {
                continue;
            };
            self.plans
                .entry(plan.group.clone())
                .or_insert_with(|| GroupPlan {
                    stages: plan.stages.clone(),
                    explanation: None,
                    latency: None,
                });
            self.bindings
                .insert(*prefix, (binding.cluster.clone(), plan.group.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
