//! The difference between present and desired placement of an app, and the binding rows that result.

use fdn_core::Revision;

use super::place::{AppPlacement, PreviousPlans};
use crate::store::binding::BindingRow;

/// The difference between two placements of an app.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The number of bindings that DNS must be told of: new, moved or removed.
    pub bindings: usize,
    /// The number of those whose clients are sent to another cluster.
    pub moved: usize,
    /// Whether a plan runs stages elsewhere, or the set of groups with plans has changed.
    pub plans: bool,
}

/// The difference of `placed` from the previous placement.
#[must_use]
pub fn difference(before: &PreviousPlans<'_>, placed: &AppPlacement) -> Difference {
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

/// The bindings as rows, each with the revision at which its clients were first sent to the cluster.
#[must_use]
pub fn binding_rows(
    app: &fdn_core::AppName,
    before: &PreviousPlans<'_>,
    placed: &AppPlacement,
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
