//! Workflows: validated, deployed as new versions, and shown.
//!
//! Deploying the workflow that is current already changes nothing. A deploy is written in one transaction, as with functions.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use fdn_core::api::{StagePlace, WorkflowDetail};
use fdn_core::manifest::Manifest;
use fdn_core::workflow::{Declaration, Definition, FunctionLookup, VersionSelector};
use fdn_core::{
    AppName, ClusterId, Digest, FunctionName, HostName, StageName, TenantId, Timestamp,
    VersionNumber,
};
use sqlx::AnyConnection;
use tracing::info;

use super::actor::Actor;
use super::change::app_tag;
use super::deploy::{audit, first_holders, first_write};
use super::precondition::Precondition;
use super::repository::check_storage;
use crate::Error;
use crate::reconcile::desired::{announce_to_nodes, node_plan_of, versions_of_workflow};
use crate::reconcile::expected;
use crate::reconcile::place::{AppPlacement, PreviousPlans, place};
use crate::settings::RepositorySettings;
use crate::state::State;
use crate::store::app::{AppRow, app_get, app_upsert};
use crate::store::audit::audit_insert;
use crate::store::revision::revision_next;
use crate::store::version::{
    VersionRow, function_version_next, version_get, version_insert, version_list,
};
use crate::store::workflow::workflow_insert;
use crate::store::{StoreError, in_transaction};

/// A workflow to be validated or deployed.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The tenant of the app.
    pub tenant: TenantId,
    /// Who sends it.
    pub actor: &'a Actor,
    /// The app.
    pub app: &'a AppName,
    /// The declaration, in YAML or JSON.
    pub text: &'a str,
}

/// Validates a workflow, and makes it the app's current version unless it is a `dry_run`. Also returns the app's ETag afterwards; `None` if there
/// is no app.
///
/// # Errors
/// When it is not valid, the app is a plain function, the tenant's storage is used up, the precondition fails, or the store fails. Nothing is stored
/// then.
pub async fn deploy(
    state: &State,
    request: &Request<'_>,
    (dry_run, expected): (bool, &Precondition),
) -> Result<(WorkflowDetail, Option<String>), Error> {
    let host = HostName::of_app(request.app, &state.settings.zone)?;
    let declared = Declaration::parse(request.text)?;
    let _alone = state.changes.lock().await;
    let mut connection = state.store.read().await?;
    let definition = resolve(&mut connection, request.tenant, &declared).await?;
    let old = current(&mut connection, request.tenant, request.app).await?;
    holds(expected, old.as_ref())?;
    let versions =
        versions_of_workflow(&mut connection, request.tenant, &definition.workflow).await?;
    drop(connection);
    let unchanged = old
        .as_ref()
        .is_some_and(|old| old.definition.as_ref() == Some(&definition));
    let placed = first_plan(state, request.app, &definition, &versions)?;
    let next = old.as_ref().map_or(VersionNumber::FIRST, |old| old.version);
    let mut detail = WorkflowDetail {
        app: request.app.clone(),
        host: host.clone(),
        version: next,
        revision: old.as_ref().filter(|_| unchanged).map(|old| old.revision),
        unchanged,
        placement: shown(&definition, placed.stage_maps(&definition.workflow)),
        definition,
    };
    if dry_run || unchanged {
        return Ok((detail, old.as_ref().map(tag_of_app)));
    }
    let options = (&detail.definition, expected);
    let row = store(state, request, &host, options, &placed).await?;
    (detail.version, detail.revision) = (row.version, Some(row.revision));
    Ok((detail, Some(tag_of_app(&row))))
}

fn tag_of_app(row: &AppRow) -> String {
    app_tag(row.version, row.deployed_at)
}

/// Checks the precondition against the present app.
fn holds(expected: &Precondition, present: Option<&AppRow>) -> Result<(), Error> {
    match present {
        Some(row) => expected.holds(&tag_of_app(row)),
        None => expected.holds_for_nothing(),
    }
}

/// The present app, if it is a workflow; `None` if there is none.
async fn current(
    connection: &mut AnyConnection,
    tenant: TenantId,
    app: &AppName,
) -> Result<Option<AppRow>, Error> {
    let old = app_get(connection, app).await?;
    match old {
        Some(old) if old.tenant != tenant => Err(Error::name_taken(app)),
        Some(old) if old.definition.is_none() => Err(Error::Conflict(format!(
            "app {app} is a function; give the workflow another name, or delete the app first"
        ))),
        old => Ok(old),
    }
}

/// Looks up every function that the declaration names.
pub(super) async fn resolve(
    connection: &mut AnyConnection,
    tenant: TenantId,
    declared: &Declaration,
) -> Result<Definition, Error> {
    let mut known: BTreeMap<(FunctionName, Option<VersionNumber>), FunctionLookup> =
        BTreeMap::new();
    for stage in &declared.stages {
        let number = number(stage.version);
        let key = (stage.function.clone(), number);
        if let Entry::Vacant(place) = known.entry(key) {
            place.insert(look_up(connection, tenant, &stage.function, number).await?);
        }
    }
    Ok(declared.resolve(|function, wanted| {
        let key = (function.clone(), number(wanted));
        known
            .get(&key)
            .copied()
            .unwrap_or(FunctionLookup::NoFunction)
    })?)
}

const fn number(wanted: VersionSelector) -> Option<VersionNumber> {
    match wanted {
        VersionSelector::Current => None,
        VersionSelector::Number(number) => Some(number),
    }
}

async fn look_up(
    connection: &mut AnyConnection,
    tenant: TenantId,
    function: &FunctionName,
    number: Option<VersionNumber>,
) -> Result<FunctionLookup, StoreError> {
    let app = function.as_str().parse::<AppName>();
    let app = match app {
        // Functions of other tenants count as missing.
        Ok(app) => app_get(connection, &app)
            .await?
            .filter(|app| app.tenant == tenant),
        Err(_) => None,
    };
    Ok(match (app, number) {
        (None, _) => FunctionLookup::NoFunction,
        (Some(app), _) if app.definition.is_some() => FunctionLookup::IsWorkflow,
        (Some(app), None) => FunctionLookup::Version(app.version),
        (Some(_), Some(number)) => match version_get(connection, tenant, function, number).await? {
            Some(_) => FunctionLookup::Version(number),
            None => FunctionLookup::NoVersion,
        },
    })
}

fn first_plan(
    state: &State,
    app: &AppName,
    definition: &Definition,
    versions: &[VersionRow],
) -> Result<AppPlacement, Error> {
    let world = state.world(fdn_service::now());
    let workflow = world.learned(app, &definition.workflow);
    let profiles = world.profiles(app, &workflow, |stage| expected(stage, versions));
    let limit = state.settings.planner.bindings_per_app as usize;
    let placed = place(
        &world,
        &workflow,
        &profiles,
        &PreviousPlans::default(),
        [],
        limit,
    )?;
    Ok(placed)
}

async fn store(
    state: &State,
    request: &Request<'_>,
    host: &HostName,
    (definition, expected): (&Definition, &Precondition),
    placed: &AppPlacement,
) -> Result<AppRow, Error> {
    let (now, ttl) = (fdn_service::now(), state.ttl_s());
    let settings = &state.settings.repository;
    let row: AppRow = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let first = first_holders(state, &mut tx, request.app, (placed, &BTreeSet::new())).await?;
        // Once more: another controller may have made an app of this name since.
        let old = current(&mut tx, request.tenant, request.app).await?;
        holds(expected, old.as_ref())?;
        let version = version_write(&mut tx, settings, request, definition, now).await?;
        let previous = old.as_ref().map(|old| old.version);
        let row = AppRow {
            name: request.app.clone(),
            tenant: request.tenant,
            host: host.clone(),
            workflow: definition.workflow.clone(),
            definition: Some(definition.clone()),
            version,
            previous,
            primaries: old.as_ref().map_or_else(|| placed.primaries(), |old| old.primaries.clone()),
            revision,
            bindings_revision: old.as_ref().map_or(revision, |old| old.bindings_revision),
            deployed_at: now,
            ttl: old.as_ref().and_then(|old| old.ttl),
            holders: old.as_ref().map_or_else(|| first.clone(), |old| old.holders.clone()),
            answering: old.as_ref().map_or_else(|| first.clone(), |old| old.answering.clone()),
            forms: old.as_ref().map_or_else(Default::default, |old| old.forms.clone()),
        };
        match old {
            Some(_) => {
                app_upsert(&mut tx, &row).await?;
                announce_to_nodes(&mut tx, &row, now).await?;
            }
            None => first_write(&mut tx, &row, placed, ttl, now).await?,
        }
        audit_insert(&mut tx, &audit(request.actor, "deploy", &row, previous, Some(version), now)).await?;
        Ok::<_, Error>(row)
    })?;
    state.outbox_wake.notify_one();
    state.planner_wake.notify_one();
    info!(app = %row.name, version = %row.version, revision = %row.revision, actor = %request.actor, "a workflow was deployed");
    Ok(row)
}

/// Writes a version whose artifact is the definition.
async fn version_write(
    connection: &mut AnyConnection,
    settings: &RepositorySettings,
    request: &Request<'_>,
    definition: &Definition,
    now: Timestamp,
) -> Result<VersionNumber, Error> {
    let function = request.app.clone().into();
    let bytes = serde_json::to_vec(definition)
        .map_err(|e| Error::Internal(format!("a workflow's definition: {e}")))?;
    let size = bytes.len() as u64;
    check_storage(&mut *connection, settings, request.tenant, size).await?;
    let number = function_version_next(connection, request.tenant, &function, now).await?;
    let row = VersionRow {
        tenant: request.tenant,
        function,
        number,
        digest: Digest::of(&bytes),
        size,
        manifest: Manifest::default(),
        secrets: BTreeMap::new(),
        created_at: now,
        created_by: request.actor.to_string(),
        validation: Vec::new(),
        forms: Vec::new(),
    };
    version_insert(connection, &row).await?;
    workflow_insert(connection, request.tenant, request.app, number, definition).await?;
    Ok(number)
}

/// The current workflow of an app, with the app's ETag.
///
/// # Errors
/// When there is no such app, it is a plain function, or the store fails.
pub async fn get(
    state: &State,
    tenant: TenantId,
    app: &AppName,
) -> Result<(WorkflowDetail, String), Error> {
    let mut tx = state.store.snapshot().await?;
    let row = app_get(&mut tx, app)
        .await?
        .filter(|row| row.tenant == tenant)
        .ok_or_else(|| Error::no_app(app))?;
    let tag = tag_of_app(&row);
    let placement = node_plan_of(&mut tx, &row).await?.stages;
    tx.commit().await.map_err(StoreError::from)?;
    let definition = row.definition.ok_or_else(|| Error::NotFound {
        what: format!("a workflow of app {app}"),
        hint: "the app is a plain function: `fdn describe` shows it",
    })?;
    let whole = placement.into_iter().map(|(entry, elsewhere)| {
        let stages = definition.workflow.stages().iter();
        let map = stages.map(|stage| {
            let cluster = elsewhere.get(&stage.name).unwrap_or(&entry).clone();
            (stage.name.clone(), cluster)
        });
        let map = map.collect();
        (entry, map)
    });
    let whole = whole.collect();
    let detail = WorkflowDetail {
        app: row.name,
        host: row.host,
        version: row.version,
        revision: Some(row.revision),
        unchanged: true,
        placement: shown(&definition, whole),
        definition,
    };
    Ok((detail, tag))
}

/// The clusters of the stages with functions and versions, by entry cluster, in the order of the stages.
fn shown(
    definition: &Definition,
    maps: BTreeMap<ClusterId, BTreeMap<StageName, ClusterId>>,
) -> BTreeMap<ClusterId, Vec<StagePlace>> {
    let places = |map: BTreeMap<StageName, ClusterId>| {
        let stages = definition.workflow.stages().iter();
        let place = |stage: &fdn_core::workflow::Stage| {
            Some(StagePlace {
                stage: stage.name.clone(),
                function: stage.function.clone(),
                version: stage.version,
                cluster: map.get(&stage.name)?.clone(),
            })
        };
        stages.filter_map(place).collect()
    };
    maps.into_iter()
        .map(|(entry, map)| (entry, places(map)))
        .collect()
}

/// Checks that no workflow runs a function that is to be deleted.
///
/// # Errors
/// When one does, or the store fails.
pub(super) async fn check_unused(
    connection: &mut AnyConnection,
    tenant: TenantId,
    app: &AppName,
) -> Result<(), Error> {
    let function = app.clone().into();
    let users = crate::store::workflow::workflow_list_using(connection, tenant, &function).await?;
    let Some(user) = users.first() else {
        return Ok(());
    };
    let count = version_list(connection, tenant, &user.clone().into())
        .await?
        .len();
    Err(Error::Conflict(format!(
        "function {app} is run by workflow {user} ({count} versions); delete that first"
    )))
}

/// The definition of an earlier version of an app: that of a workflow, or the function of the app's name.
///
/// # Errors
/// When the store fails.
pub(super) async fn version_of(
    connection: &mut AnyConnection,
    tenant: TenantId,
    app: &AppName,
    version: VersionNumber,
) -> Result<(fdn_core::workflow::Workflow, Option<Definition>), StoreError> {
    let found = crate::store::workflow::workflow_get(connection, tenant, app, version).await?;
    Ok(match found {
        Some(definition) => (definition.workflow.clone(), Some(definition)),
        None => (
            fdn_core::workflow::Workflow::single(app.clone().into(), version),
            None,
        ),
    })
}
