//! Deploying: a component becomes a new version of a function, and that version the current one of its app.
//!
//! The component is judged before anything is stored. Then the artifact is written, then the rows and the messages about them in one
//! transaction; if that fails, an artifact that nobody else uses is removed again. The caller is answered after the commit.
//!
//! A deploy that brings what is current already (component, manifest, secrets) changes nothing, except that the artifact is written
//! again, which heals a damaged one. Secrets that the manifest names and the upload does not bring are taken over from the current version.

use std::collections::BTreeMap;
use std::sync::Arc;

use fdn_core::api::{DeployResponse, ValidationStep};
use fdn_core::manifest::Manifest;
use fdn_core::message::Sealed;
use fdn_core::workflow::Workflow;
use fdn_core::{AppName, Coded, HostName, Revision, SecretName, Timestamp, VersionNumber};
use fdn_service::secret::Secret;
use sqlx::AnyConnection;
use tokio::sync::OwnedSemaphorePermit;
use tracing::{info, warn};

use super::secrets;

use crate::Error;
use crate::error::chain;
use crate::reconcile::desired::{tell_dns, tell_nodes};
use crate::reconcile::place::{Before, Placed, binding_rows, place};
use crate::reconcile::profile;
use crate::reconcile::write::plan_rows;
use crate::state::State;
use crate::store::app::{AppRow, app_get, app_upsert};
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::binding::binding_upsert;
use crate::store::in_transaction;
use crate::store::plan::plan_replace;
use crate::store::revision::revision_next;
use crate::store::version::{
    VersionRow, digest_in_use, function_version_next, version_get, version_insert,
};
use crate::upload::Component;

/// What a caller sends.
pub struct Upload {
    /// The text of `fdn.toml`; the defaults if absent.
    pub manifest: Option<String>,
    /// Values of secrets.
    pub secrets: BTreeMap<SecretName, Secret>,
    /// The component.
    pub component: Component,
    /// Its place among the uploads that are handled at the same time.
    pub place: OwnedSemaphorePermit,
}

/// The current version of an app.
struct Current {
    app: AppRow,
    version: VersionRow,
    secrets: BTreeMap<SecretName, Secret>,
}

/// What is to become current.
struct Candidate {
    app: AppName,
    host: HostName,
    manifest: Manifest,
    secrets: BTreeMap<SecretName, Secret>,
    component: Component,
}

/// Deploys a component as an app of its own. Once begun it goes on to its end, even if the caller no longer waits: artifacts and rows have no
/// common transaction that could be rolled back.
///
/// # Errors
/// When manifest or component are refused, or a store fails. Nothing is stored then.
pub async fn deploy(
    state: Arc<State>,
    actor: String,
    app: AppName,
    upload: Upload,
) -> Result<DeployResponse, Error> {
    let deploying = tokio::spawn(async move { deploy_counted(&state, &actor, app, upload).await });
    deploying
        .await
        .map_err(|e| Error::Internal(format!("deploying broke: {e}")))?
}

async fn deploy_counted(
    state: &State,
    actor: &str,
    app: AppName,
    upload: Upload,
) -> Result<DeployResponse, Error> {
    let outcome = deploy_inner(state, actor, app, upload).await;
    let result = match &outcome {
        Ok(response) if response.unchanged => "unchanged",
        Ok(_) => "accepted",
        Err(error) => error.code().as_str(),
    };
    state.metrics.deploys.with_label_values(&[result]).inc();
    outcome
}

async fn deploy_inner(
    state: &State,
    actor: &str,
    app: AppName,
    upload: Upload,
) -> Result<DeployResponse, Error> {
    let host = HostName::of_app(&app, &state.settings.zone)?;
    let manifest = Manifest::from_toml(
        upload.manifest.as_deref().unwrap_or_default(),
        &state.settings.bounds,
    )?;
    let current = current(state, &app).await?;
    let kept = current.as_ref().map(|current| &current.secrets);
    let secrets = secrets::values(&manifest, upload.secrets, kept)?;
    let candidate = Candidate {
        app,
        host,
        manifest,
        secrets,
        component: upload.component,
    };
    if current.is_some_and(|current| candidate.equals(&current)) {
        let _alone = state.changes.lock().await;
        if let Some(response) = unchanged(state, &candidate).await? {
            return Ok(response);
        }
    }
    let steps = state
        .uploads
        .judge(
            &candidate.component,
            &candidate.manifest,
            &candidate.secrets,
        )
        .await?;
    let _alone = state.changes.lock().await;
    // Somebody may have sent the same meanwhile.
    if let Some(response) = unchanged(state, &candidate).await? {
        return Ok(response);
    }
    store(state, actor, &candidate, steps).await
}

impl Candidate {
    fn equals(&self, current: &Current) -> bool {
        self.component.digest() == current.version.digest
            && self.manifest == current.version.manifest
            && self.secrets == current.secrets
    }
}

async fn current(state: &State, app: &AppName) -> Result<Option<Current>, Error> {
    let mut connection = state.store.read().await?;
    let Some(app) = app_get(&mut connection, app).await? else {
        return Ok(None);
    };
    let Some(version) = version_get(&mut connection, &app.name.clone().into(), app.version).await?
    else {
        return Ok(None);
    };
    let secrets = secrets::open(&state.key, &app.name, &version.secrets)?;
    Ok(Some(Current {
        app,
        version,
        secrets,
    }))
}

/// The answer if the candidate is what is current; its artifact is written again.
async fn unchanged(state: &State, candidate: &Candidate) -> Result<Option<DeployResponse>, Error> {
    let Some(current) = current(state, &candidate.app)
        .await?
        .filter(|current| candidate.equals(current))
    else {
        return Ok(None);
    };
    state
        .artifacts
        .put(&candidate.component.digest(), candidate.component.path())
        .await?;
    Ok(Some(response(
        candidate,
        current.app.version,
        current.app.revision,
        true,
        Vec::new(),
    )))
}

fn response(
    candidate: &Candidate,
    version: VersionNumber,
    revision: Revision,
    unchanged: bool,
    validation: Vec<ValidationStep>,
) -> DeployResponse {
    DeployResponse {
        app: candidate.app.clone(),
        version,
        digest: candidate.component.digest(),
        size: candidate.component.size(),
        host: candidate.host.clone(),
        revision,
        unchanged,
        validation,
    }
}

/// Writes artifact and rows.
async fn store(
    state: &State,
    actor: &str,
    candidate: &Candidate,
    steps: Vec<ValidationStep>,
) -> Result<DeployResponse, Error> {
    let now = fdn_service::now();
    let digest = candidate.component.digest();
    let sealed = secrets::seal(&state.key, &candidate.app, &candidate.secrets)?;
    state
        .artifacts
        .put(&digest, candidate.component.path())
        .await?;
    let workflow = |version| Workflow::single(candidate.app.clone().into(), version);
    // The first plan needs the shape of the workflow only; its version is known inside the transaction.
    let placed = first_plan(state, candidate, &workflow(VersionNumber::FIRST), now);
    let ttl = state.ttl_s();
    let written: Result<AppRow, Error> = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let version = version_write(&mut tx, candidate, &sealed, actor, now).await?;
        let change = Change { candidate, workflow: workflow(version), version, placed: &placed, revision, now };
        let row = app_write(&mut tx, change, ttl).await?;
        audit_insert(&mut tx, &audit(actor, "deploy", &candidate.app, row.previous, Some(version), now)).await?;
        Ok(row)
    });
    let row = match written {
        Ok(row) => row,
        Err(error) => {
            discard(state, candidate).await;
            return Err(error);
        }
    };
    state.outbox_wake.notify_one();
    state.planner_wake.notify_one();
    info!(app = %row.name, version = %row.version, revision = %row.revision, actor, "deployed");
    Ok(response(candidate, row.version, row.revision, false, steps))
}

/// The entry of the audit log for a change of the current version.
pub(super) fn audit(
    actor: &str,
    action: &'static str,
    app: &AppName,
    before: Option<VersionNumber>,
    after: Option<VersionNumber>,
    now: Timestamp,
) -> AuditEntry {
    let state = |version: Option<VersionNumber>| {
        version.map(|v| serde_json::json!({ "version": v }).to_string())
    };
    AuditEntry {
        at: now,
        actor: actor.to_owned(),
        action,
        subject: format!("app/{app}"),
        before: state(before),
        after: state(after),
    }
}

/// Where clients of a new app will be sent, so that nodes are told at once where it matters.
fn first_plan(state: &State, candidate: &Candidate, workflow: &Workflow, now: Timestamp) -> Placed {
    let world = state.world(now);
    let profiles = world.profiles(&candidate.app, workflow, |_| profile(&candidate.manifest));
    let limit = state.settings.planner.bindings_per_app as usize;
    place(&world, workflow, &profiles, &Before::default(), [], limit)
}

async fn version_write(
    connection: &mut AnyConnection,
    candidate: &Candidate,
    sealed: &BTreeMap<SecretName, Sealed>,
    actor: &str,
    now: Timestamp,
) -> Result<VersionNumber, Error> {
    let function = candidate.app.clone().into();
    let number = function_version_next(connection, &function, now).await?;
    let row = VersionRow {
        function,
        number,
        digest: candidate.component.digest(),
        size: candidate.component.size(),
        manifest: candidate.manifest.clone(),
        secrets: sealed.clone(),
        created_at: now,
        created_by: actor.to_owned(),
    };
    version_insert(connection, &row).await?;
    Ok(number)
}

/// A version that becomes current.
struct Change<'a> {
    candidate: &'a Candidate,
    workflow: Workflow,
    version: VersionNumber,
    placed: &'a Placed,
    revision: Revision,
    now: Timestamp,
}

async fn app_write(
    connection: &mut AnyConnection,
    change: Change<'_>,
    ttl_s: u32,
) -> Result<AppRow, Error> {
    let Change {
        candidate,
        workflow,
        version,
        placed,
        revision,
        now,
    } = change;
    if let Some(old) = app_get(connection, &candidate.app).await? {
        let row = AppRow {
            workflow,
            version,
            previous: Some(old.version),
            revision,
            deployed_at: now,
            ..old
        };
        app_upsert(connection, &row).await?;
        tell_nodes(connection, &row, now).await?;
        return Ok(row);
    }
    let row = AppRow {
        name: candidate.app.clone(),
        host: candidate.host.clone(),
        workflow,
        version,
        previous: None,
        primaries: placed.primaries(),
        revision,
        bindings_revision: revision,
        deployed_at: now,
    };
    app_upsert(connection, &row).await?;
    plan_replace(
        connection,
        &row.name,
        &plan_rows(&row.name, placed, revision, now)?,
    )
    .await?;
    let bindings = binding_rows(&row.name, &Before::default(), placed, revision);
    for binding in &bindings {
        binding_upsert(connection, binding).await?;
    }
    tell_nodes(connection, &row, now).await?;
    tell_dns(connection, &row, &bindings, ttl_s, now).await?;
    Ok(row)
}

/// Removes the artifact of a deploy that failed, if no version uses it.
async fn discard(state: &State, candidate: &Candidate) {
    let digest = candidate.component.digest();
    if let Err(error) = artifact_release(state, digest).await {
        warn!(%digest, error = chain(&error), "an artifact that nobody uses stays in the artifact store");
    }
}

/// Removes an artifact if no version uses it.
pub(super) async fn artifact_release(state: &State, digest: fdn_core::Digest) -> Result<(), Error> {
    let mut connection = state.store.read().await?;
    if !digest_in_use(&mut connection, &digest).await? {
        state.artifacts.delete(&digest).await?;
    }
    Ok(())
}
