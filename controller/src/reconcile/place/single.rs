//! A single app's plans.

use fdn_core::ClientPrefix;
use fdn_core::workflow::Workflow;
use fdn_scheduling::compete::{Moves, Rate};

use super::{AppPlacement, PlanInput, PreviousPlans, place_all};
use crate::reconcile::actual::Factors;
use crate::reconcile::prefixes::DemandedPrefixes;
use crate::reconcile::world::{Profiles, World};

/// Plans a single app, with no others competing.
///
/// # Errors
/// When a profile's time or a distance is negative or not finite.
pub fn place(
    world: &World,
    workflow: &Workflow,
    profiles: &Profiles,
    before: &PreviousPlans<'_>,
    prefixes: impl IntoIterator<Item = ClientPrefix>,
    limit: usize,
) -> Result<AppPlacement, fdn_scheduling::Error> {
    let app = PlanInput {
        workflow,
        profiles,
        serving: &world.serving(None, workflow, profiles),
        factors: &Factors::default(),
        dwelling: None,
        failovers: None,
        before,
        demand: DemandedPrefixes::uniform(prefixes, 0.0),
        rate: Rate::default(),
        fixed: false,
    };
    let mut all = place_all(world, &[app], limit, &mut Moves::unlimited(), None)?;
    if let Some((_, error)) = all.failed.pop() {
        return Err(error);
    }
    Ok(all.apps.pop().flatten().unwrap_or_default())
}
