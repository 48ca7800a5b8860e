//! What one app's plans and bindings should be at one moment: a pure function of the world and of what they were before.
//!
//! Clients that see the clusters alike form a group and share a plan. A plan is made for every configured client location, so that an app
//! nobody asked for yet is loaded where its first clients will be sent, and for every prefix that asked. With neither there is one
//! plan for a client nobody knows anything about, and no binding.
//!
//! Members of a group that were sent to different clusters before (they came from different groups) are steered apart, so that
//! nobody moves without the gain that a move must have.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use fdn_core::api::Candidate;
use fdn_core::workflow::Workflow;
use fdn_core::{ClientPrefix, ClusterId, Revision, StageName};
use fdn_scheduling::group::GroupKey;
use serde::{Deserialize, Serialize};

use super::world::{Profiles, World};
use crate::store::binding::BindingRow;
use crate::store::plan::PlanRow;

/// Why a plan is as it is, as it is kept with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanExplanation {
    /// Why.
    pub reason: String,
    /// Every cluster with its terms.
    pub candidates: Vec<Candidate>,
}

/// One plan.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupPlan {
    /// Where each stage runs.
    pub stages: BTreeMap<StageName, ClusterId>,
    /// Why.
    pub explanation: PlanExplanation,
}

/// What an app's plans and bindings should be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placed {
    /// Plans by group.
    pub plans: BTreeMap<String, GroupPlan>,
    /// Where each prefix is sent, and for which group that was planned.
    pub bindings: BTreeMap<ClientPrefix, (ClusterId, String)>,
    /// Groups that no cluster can take, and why; they stay as they were.
    pub unplaced: Vec<String>,
}

impl Placed {
    /// The clusters that any plan uses.
    #[must_use]
    pub fn primaries(&self) -> BTreeSet<ClusterId> {
        self.plans
            .values()
            .flat_map(|plan| plan.stages.values().cloned())
            .collect()
    }
}

/// What an app's plans and bindings were.
#[derive(Clone, Debug, Default)]
pub struct Before<'a> {
    plans: BTreeMap<&'a str, &'a PlanRow>,
    bindings: BTreeMap<ClientPrefix, &'a BindingRow>,
}

impl<'a> Before<'a> {
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

    /// Whether nothing was planned yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plans.is_empty()
    }

    /// The plan by which a prefix is sent.
    fn plan(&self, prefix: ClientPrefix) -> Option<(&'a BindingRow, &'a PlanRow)> {
        let binding = self.bindings.get(&prefix)?;
        Some((binding, self.plans.get(binding.group.as_str())?))
    }

    /// Where the stages of a prefix's clients ran, if that is known for each.
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

    /// The same for the clients nobody knows anything about.
    fn stages_of_group(&self, workflow: &Workflow, group: &str) -> Option<Vec<ClusterId>> {
        let plan = self.plans.get(group)?;
        workflow
            .stages()
            .iter()
            .map(|stage| plan.stages.get(&stage.name).cloned())
            .collect()
    }
}

/// The client nobody knows anything about.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Plans an app for `prefixes` (those that asked, the most important first) and the configured locations, `limit` bindings at most.
#[must_use]
pub fn place(
    world: &World,
    workflow: &Workflow,
    profiles: &Profiles,
    before: &Before<'_>,
    prefixes: impl IntoIterator<Item = ClientPrefix>,
    limit: usize,
) -> Placed {
    let mut chosen = BTreeSet::new();
    for prefix in prefixes.into_iter().chain(world.located()) {
        if chosen.len() < limit {
            chosen.insert(prefix);
        }
    }
    let mut groups: BTreeMap<(GroupKey, Option<Vec<ClusterId>>), Vec<ClientPrefix>> =
        BTreeMap::new();
    for prefix in chosen {
        groups
            .entry((world.group(prefix), before.stages(workflow, prefix)))
            .or_default()
            .push(prefix);
    }
    if groups.is_empty() {
        let nobody = world.group(ClientPrefix::new(NOBODY, 0));
        let stages = before.stages_of_group(workflow, &nobody.to_string());
        groups.insert((nobody, stages), Vec::new());
    }
    let mut placed = Placed::default();
    for ((group, previous), members) in groups {
        match world.steer_group(workflow, profiles, &group, previous.as_deref()) {
            Ok(steering) => {
                let stages: BTreeMap<_, _> = workflow
                    .stages()
                    .iter()
                    .map(|stage| stage.name.clone())
                    .zip(steering.stages)
                    .collect();
                let explanation = PlanExplanation {
                    reason: steering.reason,
                    candidates: steering.candidates,
                };
                let name = placed.add_plan(
                    &group,
                    GroupPlan {
                        stages,
                        explanation,
                    },
                );
                for prefix in members {
                    placed
                        .bindings
                        .insert(prefix, (steering.entry.clone(), name.clone()));
                }
            }
            Err(error) => {
                placed.unplaced.push(error.to_string());
                placed.keep(before, &members);
            }
        }
    }
    placed
}

impl Placed {
    /// Adds a plan under its group's name; a second, different one of the same group under a numbered name.
    fn add_plan(&mut self, group: &GroupKey, plan: GroupPlan) -> String {
        let plain = group.to_string();
        let mut name = plain.clone();
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
    fn keep(&mut self, before: &Before<'_>, members: &[ClientPrefix]) {
        for prefix in members {
            let Some((binding, plan)) = before.plan(*prefix) else {
                continue;
            };
            self.plans
                .entry(plan.group.clone())
                .or_insert_with(|| GroupPlan {
                    stages: plan.stages.clone(),
                    explanation: serde_json::from_str(&plan.explanation).unwrap_or_else(|_| {
                        PlanExplanation {
                            reason: "kept".to_owned(),
                            candidates: Vec::new(),
                        }
                    }),
                });
            self.bindings
                .insert(*prefix, (binding.cluster.clone(), plan.group.clone()));
        }
    }
}

/// How two states of an app's placement differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Bindings that DNS must be told of: new, moved, gone.
    pub bindings: usize,
    /// Of these, clients that are sent elsewhere than before.
    pub moved: usize,
    /// Whether any plan runs its stages elsewhere, or there are plans for other groups.
    pub plans: bool,
}

/// How `placed` differs from what was before.
#[must_use]
pub fn difference(before: &Before<'_>, placed: &Placed) -> Difference {
    let mut difference = Difference::default();
    for (prefix, (cluster, group)) in &placed.bindings {
        match before.bindings.get(prefix) {
            Some(binding) if binding.cluster == *cluster => {
                difference.plans |= binding.group != *group
            }
            Some(_) => {
                difference.bindings += 1;
                difference.moved += 1;
            }
            None => difference.bindings += 1,
        }
    }
    difference.bindings += before
        .bindings
        .keys()
        .filter(|prefix| !placed.bindings.contains_key(prefix))
        .count();
    difference.plans |= before.plans.len() != placed.plans.len()
        || before.plans.iter().any(|(group, plan)| {
            placed
                .plans
                .get(*group)
                .is_none_or(|new| new.stages != plan.stages)
        });
    difference
}

/// The bindings as rows, each with the revision at which its clients were first sent there.
#[must_use]
pub fn binding_rows(
    app: &fdn_core::AppName,
    before: &Before<'_>,
    placed: &Placed,
    revision: Revision,
) -> Vec<BindingRow> {
    placed
        .bindings
        .iter()
        .map(|(prefix, (cluster, group))| {
            let same = before
                .bindings
                .get(prefix)
                .filter(|old| old.cluster == *cluster);
            BindingRow {
                app: app.clone(),
                prefix: *prefix,
                cluster: cluster.clone(),
                group: group.clone(),
                revision: same.map_or(revision, |old| old.revision),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
