//! Carries out the changes.

use std::collections::BTreeMap;
use std::path::Path;

use fdn_core::account::PutMember;
use fdn_core::app::SetSecret;
use fdn_core::domain::AddDomain;
use fdn_core::label::Labels;
use fdn_core::workflow::Declaration;
use fdn_core::{AppName, HostName, SecretName};
use fdn_service::secret::Secret;
use indicatif::ProgressBar;
use reqwest::multipart::Form;

use super::diff_state::{Scope, existing};
use super::{Change, Item, Step};
use crate::artifact::Artifact;
use crate::client::Client;
use crate::commands::deploy;
use crate::error::CliError;

/// Carries out one change. Returns what is left for the user to do, one line each.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn execute(
    client: &Client,
    scope: &Scope,
    change: &Change,
) -> Result<Vec<String>, CliError> {
    let done = match &change.step {
        Step::Deploy {
            app,
            artifact,
            manifest,
            secrets,
        } => {
            let files = (artifact.as_path(), manifest.as_deref());
            upload(client, scope, app, files, secrets).await
        }
        Step::Workflow(app, declaration) => {
            let text = text(declaration)?;
            client
                .put_workflow(app, Some(&scope.tenant), text, false)
                .await
                .map(drop)
        }
        Step::Policy(app, policy) => client.set_policy(app, policy).await.map(drop),
        Step::Traffic(app, traffic) => client.set_traffic(app, traffic).await.map(drop),
        Step::Objective(app, Some(objective)) => {
            client.set_objective(app, objective).await.map(drop)
        }
        Step::Objective(app, None) => client.clear_objective(app).await,
        Step::Labels(app, labels) => client.set_labels(app, None, labels, None).await.map(drop),
        Step::VersionLabels(app, labels) => label_version(client, app, labels).await,
        Step::Secret(app, name, value) => {
            let value = SetSecret {
                value: value.expose().to_owned(),
                dry_run: false,
            };
            client.set_secret(app, name, &value).await.map(drop)
        }
        Step::Schedule(app, name, schedule) => {
            client.set_schedule(app, name, schedule).await.map(drop)
        }
        Step::Dns(app, request) => client.set_app_dns(app, *request).await.map(drop),
        Step::Txt(name, request) => client
            .set_txt_of(&scope.tenant, name, request)
            .await
            .map(drop),
        Step::Domain(app, host) => return request_domain(client, app, host).await,
        Step::Budget(name, request) => client
            .set_budget(Some(&scope.tenant), name, request)
            .await
            .map(drop),
        Step::Member(user, role) => client
            .put_member(&scope.tenant, user, &PutMember { role: *role })
            .await
            .map(drop),
        // If somebody else deleted it in the meantime, the result is the same.
        Step::Delete(item) => existing(remove(client, scope, item).await).map(drop),
    };
    done.map(|()| Vec::new())
}

async fn remove(client: &Client, scope: &Scope, item: &Item) -> Result<(), CliError> {
    match item {
        Item::App(app) => client.delete(app).await,
        Item::Budget(name) => client.remove_budget(Some(&scope.tenant), name).await,
        Item::Member(user) => client.remove_member(&scope.tenant, user).await,
        Item::Secret(app, name) => client.remove_secret(app, name).await,
        Item::Schedule(app, name) => client.remove_schedule(app, name).await,
        Item::Domain(app, host) => client.remove_domain(app, host).await,
        Item::Txt(name) => client.remove_txt_of(&scope.tenant, name).await,
    }
}

/// Requests a domain. Returns the DNS records that its owner has to set, one line each.
async fn request_domain(
    client: &Client,
    app: &AppName,
    host: &HostName,
) -> Result<Vec<String>, CliError> {
    let request = AddDomain { host: host.clone() };
    let info = client.add_domain(app, &request).await?;
    let records = info.records.iter();
    let mut lines: Vec<String> = records
        .map(|record| format!("set {} {} {}", record.name, record.kind, record.value))
        .collect();
    lines.push(format!("then: fdn domain verify {app} {host}"));
    Ok(lines)
}

async fn label_version(client: &Client, app: &AppName, labels: &Labels) -> Result<(), CliError> {
    let version = client.app(app).await?.summary.version;
    let set = client.set_labels(app, Some(version), labels, None).await;
    set.map(drop)
}

async fn upload(
    client: &Client,
    scope: &Scope,
    app: &AppName,
    (path, manifest): (&Path, Option<&Path>),
    secrets: &BTreeMap<SecretName, Secret>,
) -> Result<(), CliError> {
    let artifact = Artifact::of(path)?;
    let manifest = deploy::manifest(manifest, &artifact)?;
    let bar = ProgressBar::hidden();
    let secrets = secrets.iter();
    let secrets = secrets.map(|(name, value)| (name.clone(), value.expose().to_owned()));
    let form = deploy::form(Form::new(), manifest, secrets.collect(), artifact, &bar)?;
    client
        .deploy(app, Some(&scope.tenant), form)
        .await
        .map(drop)
}

/// A workflow in the form that is sent: JSON, which is also YAML.
pub(super) fn text(declaration: &Declaration) -> Result<String, CliError> {
    serde_json::to_string(declaration).map_err(|e| CliError::Usage(e.to_string()))
}
