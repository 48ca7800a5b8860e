//! Writes plans, bindings and the messages about them in one transaction.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::form::FormChoices;
use fdn_core::{AppName, ClusterId, Revision, Timestamp};
use sqlx::AnyConnection;

use super::desired::{announce_changes_to_dns, announce_to_nodes, left_clusters};
use super::difference::{Difference, binding_rows};
use super::holders::HolderState;
use super::place::{AppPlacement, PreviousPlans};
use crate::store::StoreError;
use crate::store::app::{AppRow, app_get, app_upsert};
use crate::store::binding::{BindingRow, binding_delete, binding_list, binding_upsert};
use crate::store::plan::{PlanRow, plan_delete, plan_upsert};
use crate::store::revision::revision_next;

/// A placement of an app to be written.
pub struct PlacementChange<'a> {
    /// The app's row as it was read.
    pub app: &'a AppRow,
    /// The plans and bindings from which it was planned.
    pub before: &'a PreviousPlans<'a>,
    /// The bindings as stored.
    pub stored: &'a [BindingRow],
    /// The desired plans and bindings.
    pub placed: &'a AppPlacement,
    /// The difference between the two.
    pub difference: Difference,
    /// The clusters that must have the app loaded: those of the plans, and those that clients are leaving.
    pub primaries: BTreeSet<ClusterId>,
    /// The clusters that must hold the app.
    pub held: HolderState,
    /// The forms that clusters must serve.
    pub forms: &'a FormChoices,
}

/// Writes a change if the app's row is unchanged since it was read; `None` if it is not.
///
/// # Errors
/// When the database fails.
pub async fn change_write(
    connection: &mut AnyConnection,
    change: &PlacementChange<'_>,
    ttl_s: u32,
    now: Timestamp,
) -> Result<Option<Revision>, StoreError> {
    let revision = revision_next(connection).await?;
    let Some(mut app) = app_get(connection, &change.app.name).await? else {
        return Ok(None);
    };
    if app != *change.app {
        return Ok(None);
    }
    placement_write(connection, &app.name, change, revision, now).await?;
    // Nodes run the stages of a workflow where the plans say.
    let stages_differ = app.definition.is_some() && change.difference.plans;
    let held = &change.held;
    // Gateways recognise clients with older answers by the clusters that the plans have left.
    let left_differs = left_clusters(&app.primaries, &change.before.primaries())
        != left_clusters(&change.primaries, &change.placed.primaries());
    let nodes_differ = change.primaries != app.primaries
        || left_differs
        || stages_differ
        || *change.forms != app.forms
        || held.holders != app.holders;
    let dns_differs = change.difference.bindings > 0 || held.answering != app.answering;
    app.holders.clone_from(&held.holders);
    app.answering.clone_from(&held.answering);
    app.forms.clone_from(change.forms);
    if nodes_differ {
        app.primaries.clone_from(&change.primaries);
        app.revision = revision;
    }
    let told = app.bindings_revision;
    if dns_differs {
        app.bindings_revision = revision;
    }
    app_upsert(connection, &app).await?;
    if nodes_differ {
        announce_to_nodes(connection, &app, now).await?;
    }
    if dns_differs {
        let rows = binding_rows(&app.name, change.before, change.placed, revision);
        announce_changes_to_dns(connection, &app, told, change.stored, &rows, ttl_s, now).await?;
    }
    Ok(Some(revision))
}

/// Writes the holders of an app if its row is unchanged since it was read; `None` if it is not.
///
/// # Errors
/// When the database fails.
pub async fn holders_write(
    connection: &mut AnyConnection,
    read: &AppRow,
    held: &HolderState,
    ttl_s: u32,
    now: Timestamp,
) -> Result<Option<Revision>, StoreError> {
    let revision = revision_next(connection).await?;
    let Some(mut app) = app_get(connection, &read.name).await? else {
        return Ok(None);
    };
    if app != *read {
        return Ok(None);
    }
    let (nodes_differ, dns_differs) =
        (held.holders != app.holders, held.answering != app.answering);
    app.holders.clone_from(&held.holders);
    app.answering.clone_from(&held.answering);
    if nodes_differ {
        app.revision = revision;
    }
    let told = app.bindings_revision;
    if dns_differs {
        app.bindings_revision = revision;
    }
    app_upsert(connection, &app).await?;
    if nodes_differ {
        announce_to_nodes(connection, &app, now).await?;
    }
    if dns_differs {
        let rows = binding_list(connection, &app.name).await?;
        announce_changes_to_dns(connection, &app, told, &rows, &rows, ttl_s, now).await?;
    }
    Ok(Some(revision))
}

/// Writes the plans, and the bindings that differ from the stored ones.
async fn placement_write(
    connection: &mut AnyConnection,
    app: &AppName,
    change: &PlacementChange<'_>,
    revision: Revision,
    now: Timestamp,
) -> Result<(), StoreError> {
    let rows = binding_rows(app, change.before, change.placed, revision);
    let stored: BTreeMap<_, _> = change.stored.iter().map(|row| (row.prefix, row)).collect();
    let wanted: BTreeSet<_> = rows.iter().map(|row| row.prefix).collect();
    for row in rows
        .iter()
        .filter(|row| stored.get(&row.prefix) != Some(row))
    {
        binding_upsert(connection, row).await?;
    }
    for prefix in stored.keys().filter(|prefix| !wanted.contains(prefix)) {
        binding_delete(connection, app, *prefix).await?;
    }
    plans_write(connection, app, change, revision, now).await
}

/// Writes the plans that differ, and deletes those that no longer exist.
async fn plans_write(
    connection: &mut AnyConnection,
    app: &AppName,
    change: &PlacementChange<'_>,
    revision: Revision,
    now: Timestamp,
) -> Result<(), StoreError> {
    for row in plan_rows(app, change.placed, revision, now)? {
        let same = change.before.stages_of(&row.group) == Some(&row.stages);
        if row.explanation.is_some() || !same {
            plan_upsert(connection, &row).await?;
        }
    }
    for group in change.before.groups() {
        if !change.placed.plans.contains_key(group) {
            plan_delete(connection, app, group).await?;
        }
    }
    Ok(())
}

/// The plans as rows.
///
/// # Errors
/// When an explanation cannot be serialized.
pub fn plan_rows(
    app: &AppName,
    placed: &AppPlacement,
    revision: Revision,
    now: Timestamp,
) -> Result<Vec<PlanRow>, StoreError> {
    placed
        .plans
        .iter()
        .map(|(group, plan)| {
            Ok(PlanRow {
                app: app.clone(),
                group: group.clone(),
                stages: plan.stages.clone(),
                explanation: plan
                    .explanation
                    .as_ref()
                    .map(serde_json::to_string)
                    .transpose()
                    .map_err(|e| StoreError::corrupt("plans.explanation", e))?,
                revision,
                planned_at: now,
            })
        })
        .collect()
}
