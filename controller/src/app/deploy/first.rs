//! The initial state of a new app: its first plan, and the clusters that hold it.

use std::collections::BTreeSet;

use fdn_core::message::Holders;
use fdn_core::workflow::Workflow;
use fdn_core::{AppName, ClusterId, Timestamp};
use sqlx::AnyConnection;

use super::Candidate;
use crate::Error;
use crate::reconcile::desired::{announce_to_dns, announce_to_nodes};
use crate::reconcile::difference::binding_rows;
use crate::reconcile::holders;
use crate::reconcile::place::{AppPlacement, PreviousPlans, place};
use crate::reconcile::profile_of;
use crate::reconcile::write::plan_rows;
use crate::state::{State, lock};
use crate::store::app::{AppRow, app_upsert};
use crate::store::binding::binding_upsert;
use crate::store::cluster::cluster_list;
use crate::store::plan::plan_upsert;

/// The first plan, so that nodes are told at once where it matters, and the clusters that cannot hold the app.
pub(super) fn first_plan(
    state: &State,
    candidate: &Candidate,
    workflow: &Workflow,
    now: Timestamp,
) -> Result<(AppPlacement, BTreeSet<ClusterId>), Error> {
    let world = state.world(now);
    let profiles = world.profiles(&candidate.app, workflow, |_| {
        let forms = candidate.forms.iter().map(|form| &form.manifest);
        profile_of(&candidate.manifest, forms)
    });
    let limit = state.settings.planner.bindings_per_app as usize;
    let placed = place(
        &world,
        workflow,
        &profiles,
        &PreviousPlans::default(),
        [],
        limit,
    )?;
    Ok((placed, holders::unfit(&world, workflow, &profiles)))
}

/// The clusters that are to hold a new app, out of those known and not `unfit`. The planner adds clusters that join later.
///
/// # Errors
/// When the store fails.
pub(in crate::app) async fn first_holders(
    state: &State,
    connection: &mut AnyConnection,
    app: &AppName,
    (placed, unfit): (&AppPlacement, &BTreeSet<ClusterId>),
) -> Result<Holders, Error> {
    let live: BTreeSet<ClusterId> = lock(&state.live).clusters().into_keys().collect();
    let spread = state.settings.planner.spread;
    let made = cluster_list(connection).await?;
    let clusters = holders::known(live, made.into_iter().map(|row| row.id), spread);
    let (before, needed) = (Holders::only(BTreeSet::new()), placed.primaries());
    let fit = &clusters - unfit;
    Ok(holders::choose(app, &before, &needed, &fit, spread))
}

/// Writes a new app with its first plan, and announces it to nodes and DNS servers.
pub(in crate::app) async fn first_write(
    connection: &mut AnyConnection,
    row: &AppRow,
    placed: &AppPlacement,
    ttl_s: u32,
    now: Timestamp,
) -> Result<(), Error> {
    let revision = row.revision;
    app_upsert(connection, row).await?;
    for plan in plan_rows(&row.name, placed, revision, now)? {
        plan_upsert(connection, &plan).await?;
    }
    let bindings = binding_rows(&row.name, &PreviousPlans::default(), placed, revision);
    for binding in &bindings {
        binding_upsert(connection, binding).await?;
    }
    announce_to_nodes(connection, row, now).await?;
    announce_to_dns(connection, row, &bindings, ttl_s, now).await?;
    Ok(())
}
