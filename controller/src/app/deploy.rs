//! Deployment: a component becomes a new version of a function, and that version becomes the current one of its app.
//!
//! The component is validated before anything is stored. Then the artifact is claimed and written, then the rows and the messages about them in
//! one transaction. If that fails, the artifact is unused, and collected later ([`crate::store::artifact`]). The caller gets the response after
//! the commit.
//!
//! A deploy of what is current already (component, manifest, secrets) changes nothing, except that the artifact is written again, which repairs a
//! damaged one. Secrets that the manifest names and the upload lacks are taken over from the current version.

mod devices;
mod first;
mod forms;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fdn_core::api::{DeployResponse, ValidationStep};
use fdn_core::form::{FormChoices, FormSpec};
use fdn_core::label::Labels;
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::message::Holders;
use fdn_core::workflow::Workflow;
use fdn_core::{
    AppName, Coded, FormName, HostName, Revision, SecretName, TenantId, Timestamp, VersionNumber,
};
use fdn_service::secret::Secret;
use sqlx::AnyConnection;
use tracing::{info, warn};

use super::actor::Actor;
use super::precondition::Precondition;
use super::rollout::deployed;
use super::{compile_cache, label, repository, secrets, signing};

use crate::Error;
use crate::artifacts::Object;
use crate::reconcile::desired::announce_to_nodes;
use crate::reconcile::place::AppPlacement;
use crate::settings::RepositorySettings;
use crate::state::State;
use crate::store::app::{AppRow, app_get, app_upsert};
use crate::store::artifact::{artifact_claim, artifact_use};
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::label::label_set;
use crate::store::revision::revision_next;
use crate::store::version::{VersionRow, function_version_next, version_get, version_insert};
use crate::upload::signature::{Signature, Signer};
use crate::upload::{Compiled, Component, UploadPlace, ValidatedUpload};
use first::first_plan;
pub(super) use first::{first_holders, first_write};
use forms::FormCandidate;
pub use forms::FormUpload;

/// The most attempts to claim and write an artifact that is collected in between. That happens only if an upload takes longer than the grace
/// time.
const CLAIMS: u32 = 3;

/// The content of an upload.
pub struct Upload {
    /// The text of `fdn.toml`; the defaults apply if absent.
    pub manifest: Option<String>,
    /// The values of secrets.
    pub secrets: BTreeMap<SecretName, Secret>,
    /// The labels of the version. If absent, a new version has none, and an unchanged one keeps its own.
    pub labels: Option<Labels>,
    /// The signature, if the upload has one.
    pub signature: Option<Signature>,
    /// The component.
    pub component: Component,
    /// The artifacts of the other forms, by name.
    pub forms: BTreeMap<FormName, FormUpload>,
    /// The place that counts this upload among those handled at the same time.
    pub place: UploadPlace,
}

/// The current version of an app.
struct Current {
    app: AppRow,
    version: VersionRow,
    secrets: BTreeMap<SecretName, Secret>,
}

/// The validated upload that is to become the current version.
struct Candidate {
    /// The secrets whose values are to be written to the vault: those that were sent, and those that the row of the current version still holds.
    fresh: BTreeSet<SecretName>,
    /// The secrets whose values were sent.
    sent: BTreeSet<SecretName>,
    tenant: TenantId,
    app: AppName,
    host: HostName,
    manifest: Manifest,
    secrets: BTreeMap<SecretName, Secret>,
    component: Component,
    /// The machine code that the component was validated with, if nodes are to get it.
    compiled: Option<Compiled>,
    labels: Option<Labels>,
    signer: Option<Signer>,
    /// The forms other than the first. They have been split off from `manifest`.
    forms: Vec<FormCandidate>,
}

/// Deploys a component as an app of its own. Once begun, it is completed even if the caller no longer waits: artifacts and rows have no common
/// transaction that could be rolled back.
///
/// # Errors
/// When the manifest or the component is rejected, or a store fails. The app is unchanged then.
pub async fn deploy(
    state: Arc<State>,
    actor: Actor,
    tenant: TenantId,
    app: AppName,
    upload: Upload,
) -> Result<DeployResponse, Error> {
    let deploying =
        tokio::spawn(async move { deploy_counted(&state, &actor, tenant, app, upload).await });
    deploying
        .await
        .map_err(|e| Error::Internal(format!("deploying broke: {e}")))?
}

async fn deploy_counted(
    state: &State,
    actor: &Actor,
    tenant: TenantId,
    app: AppName,
    upload: Upload,
) -> Result<DeployResponse, Error> {
    let outcome = deploy_inner(state, actor, tenant, app, upload).await;
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
    actor: &Actor,
    tenant: TenantId,
    app: AppName,
    upload: Upload,
) -> Result<DeployResponse, Error> {
    let host = HostName::of_app(&app, &state.settings.zone)?;
    let manifest = Manifest::from_toml(
        upload.manifest.as_deref().unwrap_or_default(),
        &state.settings.bounds,
    )?;
    let (manifest, forms) = manifest.split_forms();
    let current = current(state, tenant, &app).await?;
    if current
        .as_ref()
        .is_some_and(|current| current.app.definition.is_some())
    {
        return Err(Error::Conflict(format!(
            "app {app} is a workflow; give the function another name, or delete the app first"
        )));
    }
    let kept = current.as_ref().map(|current| &current.secrets);
    let old = current
        .iter()
        .flat_map(|current| current.version.secrets.keys());
    let sent: BTreeSet<SecretName> = upload.secrets.keys().cloned().collect();
    let fresh = sent.iter().chain(old).cloned().collect();
    secrets::check_sent(state, &app, &upload.secrets, kept)?;
    let secrets = secrets::values(&manifest, upload.secrets, kept)?;
    let mut candidate = Candidate {
        fresh,
        sent,
        labels: upload.labels,
        signer: None,
        compiled: None,
        tenant,
        app,
        host,
        manifest,
        secrets,
        component: upload.component,
        forms: forms::candidates(forms, upload.forms)?,
    };
    if current.is_some_and(|current| candidate.equals(&current)) {
        // Written again in case it was lost.
        claim_and_put(state, &candidate).await?;
        let _alone = state.changes.lock().await;
        if let Some(response) = unchanged(state, actor, &candidate).await? {
            return Ok(response);
        }
    }
    let steps = validate(state, &mut candidate, upload.signature).await?;
    // Large writes happen before the lock, so that no other change waits for them.
    let object = claim_and_put(state, &candidate).await?;
    let _alone = state.changes.lock().await;
    // Somebody may have deployed the same meanwhile.
    if let Some(response) = unchanged(state, actor, &candidate).await? {
        return Ok(response);
    }
    store(state, actor, &candidate, object, steps).await
}

/// Runs every check, the cheap ones first. Returns the results.
async fn validate(
    state: &State,
    candidate: &mut Candidate,
    signature: Option<Signature>,
) -> Result<Vec<ValidationStep>, Error> {
    let Candidate {
        tenant,
        manifest,
        secrets,
        component,
        ..
    } = &*candidate;
    // Nothing is compiled that has no room in the repository, or whose sender may not upload.
    let settings = &state.settings.repository;
    let mut connection = state.store.read().await?;
    repository::check_storage(&mut connection, settings, *tenant, candidate.bytes()).await?;
    drop(connection);
    let (signer, first) = signing::check(state, *tenant, manifest, component, signature).await?;
    let mut steps = vec![first];
    let validated = validate_artifact(state, component, manifest, secrets).await?;
    steps.extend(validated.steps);
    let Candidate {
        tenant,
        manifest,
        secrets,
        forms,
        ..
    } = &mut *candidate;
    steps.extend(forms::validate(state, *tenant, manifest, secrets, forms).await?);
    steps.extend(devices::validation_step(state, manifest));
    candidate.signer = signer;
    candidate.compiled = validated.compiled;
    Ok(steps)
}

/// Validates a single artifact. Parts that other controllers have compiled are not compiled again, and what is compiled here is stored for the
/// next one.
async fn validate_artifact(
    state: &State,
    component: &Component,
    manifest: &Manifest,
    secrets: &BTreeMap<SecretName, Secret>,
) -> Result<ValidatedUpload, Error> {
    if manifest.runtime == RuntimeKind::Wasm {
        compile_cache::fetch(state).await;
    }
    let validated = state.uploads.validate(component, manifest, secrets).await?;
    compile_cache::store(state, validated.cache.as_ref()).await;
    Ok(validated)
}

impl Candidate {
    /// The total size of all its artifacts.
    fn bytes(&self) -> u64 {
        let others = self.forms.iter().map(|form| form.component.size());
        others.fold(self.component.size(), u64::saturating_add)
    }

    fn form_specs(&self) -> Vec<FormSpec> {
        self.forms.iter().map(FormCandidate::spec).collect()
    }

    fn equals(&self, current: &Current) -> bool {
        self.component.digest() == current.version.digest
            && self.manifest == current.version.manifest
            && self.form_specs() == current.version.forms
            && self
                .secrets
                .iter()
                .all(|(name, value)| current.secrets.get(name) == Some(value))
    }
}

async fn current(state: &State, tenant: TenantId, app: &AppName) -> Result<Option<Current>, Error> {
    let mut connection = state.store.read().await?;
    let Some(app) = own(app_get(&mut connection, app).await?, tenant)? else {
        return Ok(None);
    };
    let function = app.name.clone().into();
    let Some(version) = version_get(&mut connection, tenant, &function, app.version).await? else {
        return Ok(None);
    };
    let secrets = secrets::current(state, &mut connection, &version).await?;
    Ok(Some(Current {
        app,
        version,
        secrets,
    }))
}

/// The app if it is the tenant's own. Fails if another tenant has one of this name: host names are unique in the network.
fn own(app: Option<AppRow>, tenant: TenantId) -> Result<Option<AppRow>, Error> {
    match app {
        Some(app) if app.tenant != tenant => Err(Error::name_taken(&app.name)),
        app => Ok(app),
    }
}

/// The response if the candidate equals the current version; `None` if it differs. Sets the labels that were sent.
async fn unchanged(
    state: &State,
    actor: &Actor,
    candidate: &Candidate,
) -> Result<Option<DeployResponse>, Error> {
    let Some(current) = current(state, candidate.tenant, &candidate.app)
        .await?
        .filter(|current| candidate.equals(current))
    else {
        return Ok(None);
    };
    if let Some(labels) = &candidate.labels {
        let (which, version) = (
            (candidate.tenant, &candidate.app),
            Some(current.app.version),
        );
        label::set(state, actor, which, version, (labels, &Precondition::None)).await?;
    }
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

/// Claims the artifacts, which protects them from being collected, and writes them.
async fn claim_and_put(state: &State, candidate: &Candidate) -> Result<Vec<Object>, Error> {
    let first = (&candidate.component, candidate.compiled.as_ref());
    let mut objects = vec![claim_and_put_one(state, first).await?];
    for form in &candidate.forms {
        let artifact = (&form.component, form.compiled.as_ref());
        objects.push(claim_and_put_one(state, artifact).await?);
    }
    Ok(objects)
}

async fn claim_and_put_one(
    state: &State,
    (component, compiled): (&Component, Option<&Compiled>),
) -> Result<Object, Error> {
    let fresh = uuid::Uuid::now_v7().simple().to_string();
    let (digest, size) = (component.digest(), component.size());
    let object: Object = in_transaction!(state.store, tx => {
        Ok::<_, Error>(artifact_claim(&mut tx, &digest, size, &fresh, fdn_service::now()).await?)
    })?;
    let put = state.artifacts.put(&object, component.path()).await;
    put.inspect_err(|_| state.metrics.artifacts.write_failures.inc())?;
    if let Some(code) = compiled {
        super::compiled::store(state, digest, code).await;
    }
    Ok(object)
}

/// Writes the rows of the artifacts, and the artifacts again if one was collected meanwhile.
async fn store(
    state: &State,
    actor: &Actor,
    candidate: &Candidate,
    mut objects: Vec<Object>,
    steps: Vec<ValidationStep>,
) -> Result<DeployResponse, Error> {
    for _ in 0..CLAIMS {
        let Some(row) = write(state, actor, candidate, &objects, &steps).await? else {
            warn!(digest = %candidate.component.digest(), "an artifact was collected while it was uploaded; it is written again");
            objects = claim_and_put(state, candidate).await?;
            continue;
        };
        state.outbox_wake.notify_one();
        state.planner_wake.notify_one();
        info!(app = %row.name, version = %row.version, revision = %row.revision, %actor, "deployed");
        return Ok(response(candidate, row.version, row.revision, false, steps));
    }
    Err(Error::Internal(format!(
        "artifact {} was collected {CLAIMS} times while it was uploaded",
        candidate.component.digest()
    )))
}

/// Writes the rows; `None` if an artifact was collected since it was claimed.
async fn write(
    state: &State,
    actor: &Actor,
    candidate: &Candidate,
    objects: &[Object],
    steps: &[ValidationStep],
) -> Result<Option<AppRow>, Error> {
    let now = fdn_service::now();
    let workflow = |version| Workflow::single(candidate.app.clone().into(), version);
    // The first plan needs only the shape of the workflow; its version number is assigned inside the transaction.
    let (placed, unfit) = first_plan(state, candidate, &workflow(VersionNumber::FIRST), now)?;
    let (ttl, settings) = (state.ttl_s(), &state.settings.repository);
    in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        for object in objects {
            if !artifact_use(&mut tx, object, fdn_service::now()).await? {
                return Ok(None);
            }
        }
        let of = (candidate.tenant, &candidate.app);
        secrets::check_kept(&mut tx, of, &candidate.secrets, &candidate.fresh).await?;
        let new = NewVersion { candidate, steps, by: actor, now };
        let version = version_write(&mut tx, settings, new).await?;
        let values = (&candidate.secrets, &candidate.fresh, &candidate.sent);
        secrets::write_fresh(state, &mut tx, of, values, (actor, revision, now)).await?;
        let holders = first_holders(state, &mut tx, &candidate.app, (&placed, &unfit)).await?;
        let change = Change { candidate, workflow: workflow(version), version, placed: &placed, holders, actor, revision, now };
        let row = app_write(&mut tx, change, ttl).await?;
        let entry = audit(actor, "deploy", &row, row.previous, Some(version), now);
        audit_insert(&mut tx, &entry).await?;
        Ok::<_, Error>(Some(row))
    })
}

/// The audit log entry for a change of the current version.
pub(super) fn audit(
    actor: &Actor,
    action: &'static str,
    app: &AppRow,
    before: Option<VersionNumber>,
    after: Option<VersionNumber>,
    now: Timestamp,
) -> AuditEntry {
    let state = |version: Option<VersionNumber>| {
        version.map(|v| serde_json::json!({ "version": v }).to_string())
    };
    AuditEntry {
        at: now,
        actor: actor.clone(),
        tenant: Some(app.tenant),
        action,
        subject: format!("app/{}", app.name),
        before: state(before),
        after: state(after),
    }
}

/// A version to be written.
#[derive(Clone, Copy)]
struct NewVersion<'a> {
    candidate: &'a Candidate,
    steps: &'a [ValidationStep],
    by: &'a Actor,
    now: Timestamp,
}

async fn version_write(
    connection: &mut AnyConnection,
    settings: &RepositorySettings,
    new: NewVersion<'_>,
) -> Result<VersionNumber, Error> {
    let NewVersion { candidate, now, .. } = new;
    let (tenant, size) = (candidate.tenant, candidate.component.size());
    repository::check_storage(&mut *connection, settings, tenant, candidate.bytes()).await?;
    let others = candidate.forms.iter().map(|form| form.signer.as_ref());
    for signer in std::iter::once(candidate.signer.as_ref()).chain(others) {
        signing::recheck(&mut *connection, tenant, signer).await?;
    }
    let function = candidate.app.clone().into();
    let number = function_version_next(connection, tenant, &function, now).await?;
    let row = VersionRow {
        tenant,
        function,
        number,
        digest: candidate.component.digest(),
        size,
        manifest: candidate.manifest.clone(),
        secrets: BTreeMap::new(),
        created_at: now,
        created_by: new.by.to_string(),
        validation: new.steps.to_vec(),
        forms: candidate.form_specs(),
    };
    version_insert(connection, &row).await?;
    if let Some(labels) = &candidate.labels {
        label_set(connection, tenant, &row.function, Some(number), labels).await?;
    }
    Ok(number)
}

/// A version that is to become current.
struct Change<'a> {
    candidate: &'a Candidate,
    workflow: Workflow,
    version: VersionNumber,
    placed: &'a AppPlacement,
    holders: Holders,
    actor: &'a Actor,
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
        holders,
        actor,
        revision,
        now,
    } = change;
    if let Some(old) = own(app_get(connection, &candidate.app).await?, candidate.tenant)? {
        let by = (actor, revision, now);
        return supersede(connection, old, workflow, version, by).await;
    }
    let row = AppRow {
        name: candidate.app.clone(),
        tenant: candidate.tenant,
        host: candidate.host.clone(),
        workflow,
        definition: None,
        version,
        previous: None,
        primaries: placed.primaries(),
        revision,
        bindings_revision: revision,
        deployed_at: now,
        ttl: None,
        holders: holders.clone(),
        answering: holders,
        forms: FormChoices::new(),
    };
    first_write(connection, &row, placed, ttl_s, now).await?;
    Ok(row)
}

/// Makes another version current and announces it to nodes. An app with an objective keeps the previous version ready until the new one has met
/// it.
pub(super) async fn supersede(
    connection: &mut AnyConnection,
    old: AppRow,
    workflow: Workflow,
    version: VersionNumber,
    (actor, revision, now): (&Actor, Revision, Timestamp),
) -> Result<AppRow, Error> {
    let by = (actor.name.as_str(), revision, now);
    deployed(&mut *connection, &old, version, by).await?;
    let row = AppRow {
        workflow,
        version,
        previous: Some(old.version),
        revision,
        deployed_at: now,
        ..old
    };
    app_upsert(&mut *connection, &row).await?;
    announce_to_nodes(connection, &row, now).await?;
    Ok(row)
}
