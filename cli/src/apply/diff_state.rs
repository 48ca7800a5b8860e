//! Compares the present state with the declared one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fdn_core::account::TenantRef;
use fdn_core::api::AppDetail;
use fdn_core::billing::{Budget, SetBudget};
use fdn_core::digest::DigestBuilder;
use fdn_core::manifest::Manifest;
use fdn_core::workflow::{Declaration, VersionSelector};
use fdn_core::{AppName, Digest, ErrorCode, SecretName, TenantRole, UserName};
use fdn_service::secret::Secret;
use serde::Serialize;

use super::read::{App, Declarations, Workload};
use super::{Action, Change, Item, SetName, Step, app_parts, diff, texts};
use crate::artifact::Artifact;
use crate::client::Client;
use crate::commands::deploy;
use crate::error::CliError;
use crate::function::unbounded;

/// The tenant, and the set under whose name applied items are remembered.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The tenant.
    pub tenant: TenantRef,
    /// The set.
    pub set: SetName,
}

/// The present value of something; `None` if it does not exist.
pub(super) fn existing<T>(found: Result<T, CliError>) -> Result<Option<T>, CliError> {
    match found {
        Ok(value) => Ok(Some(value)),
        Err(CliError::Problem(problem)) if problem.code == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// All declared items.
#[must_use]
pub fn items(declared: &Declarations) -> BTreeSet<Item> {
    let apps = declared.apps.keys().cloned().map(Item::App);
    let budgets = declared.budgets.keys().cloned().map(Item::Budget);
    let members = declared.members.keys().cloned().map(Item::Member);
    let parts = declared.apps.iter().flat_map(|(name, app)| {
        let secrets = app.secrets.keys().cloned();
        let schedules = app.schedules.keys().cloned();
        let domains = app.domains.iter().cloned();
        let secrets = secrets.map(|secret| Item::Secret(name.clone(), secret));
        let schedules = schedules.map(|schedule| Item::Schedule(name.clone(), schedule));
        let domains = domains.map(|host| Item::Domain(name.clone(), host));
        secrets.chain(schedules).chain(domains)
    });
    let txt = declared.txt.keys().cloned().map(Item::Txt);
    let all = apps.chain(budgets).chain(members).chain(parts).chain(txt);
    all.collect()
}

/// All differences, in an order in which they can be applied: secrets before the versions that refer to them, functions before the workflows that
/// run
/// them.
///
/// # Errors
/// When the controller refuses or cannot be reached, or a component cannot be read.
pub async fn changes(
    client: &Client,
    scope: &Scope,
    declared: &Declarations,
) -> Result<Vec<Change>, CliError> {
    let (mut functions, mut workflows, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    let mut secrets = Vec::new();
    let mut details: BTreeMap<&AppName, Option<AppDetail>> = BTreeMap::new();
    for (name, app) in &declared.apps {
        // Of the tenant that is named: its name may be another tenant's by now.
        let detail = existing(client.app_of(&scope.tenant, name).await)?;
        let own = app_parts::secrets(client, (name, app), detail.is_some()).await?;
        if detail.is_some() {
            secrets.extend(own);
        } else {
            // The secrets that a new app cannot be deployed without are sent with it; all are set after it.
            rest.extend(own);
        }
        if let Some(Workload::Function { artifact, manifest }) = &app.workload {
            let request = (artifact.as_path(), manifest.as_deref());
            functions.extend(function((name, app), request, detail.as_ref())?);
        }
        if detail.is_none() && app.workload.is_none() {
            return Err(CliError::Usage(format!(
                "app {name} does not exist; declare its component, image or workflow"
            )));
        }
        details.insert(name, detail);
    }
    let renewed: BTreeSet<&str> = functions
        .iter()
        .filter_map(|change: &Change| change.item.strip_prefix("app/"))
        .collect();
    for (name, app) in &declared.apps {
        let detail = details.get(name).and_then(Option::as_ref);
        if let Some(Workload::Workflow(declaration)) = &app.workload {
            let change = workflow(client, scope, name, declaration, (detail, &renewed)).await?;
            workflows.extend(change);
        }
        rest.extend(rules(client, name, app, detail.is_some()).await?);
        let new = renewed.contains(name.as_str());
        rest.extend(app_parts::other_parts(client, (name, app), detail, new).await?);
    }
    rest.extend(texts::changes(client, scope, declared).await?);
    rest.extend(budgets(client, scope, declared).await?);
    rest.extend(members(client, scope, declared).await?);
    secrets.extend(functions);
    secrets.extend(workflows);
    secrets.extend(rest);
    Ok(secrets)
}

/// What distinguishes one version from another.
#[derive(PartialEq, Serialize)]
struct Version {
    digest: Digest,
    manifest: Manifest,
}

fn function(
    (name, app): app_parts::NamedApp<'_>,
    (path, manifest): (&Path, Option<&Path>),
    detail: Option<&AppDetail>,
) -> Result<Option<Change>, CliError> {
    let artifact = Artifact::of(path)?;
    let text = deploy::manifest(manifest, &artifact)?;
    let unusable = |reason: String| CliError::File {
        path: path.to_owned(),
        reason,
        code: ErrorCode::BadRequest,
    };
    let wanted = Version {
        digest: digest(artifact).map_err(|e| unusable(e.to_string()))?,
        manifest: Manifest::from_toml(text.as_deref().unwrap_or_default(), &unbounded())
            .map_err(|error| unusable(error.to_string()))?,
    };
    if !wanted.manifest.forms.is_empty() {
        let why = "its manifest has [[forms]], whose artifacts no file names; deploy it with `fdn deploy --form NAME=FILE`";
        return Err(unusable(why.to_owned()));
    }
    let current = detail.and_then(|detail| {
        let current = detail.summary.version;
        let found = detail.versions.iter().find(|v| v.version == current)?;
        Some(Version {
            digest: found.digest,
            manifest: found.manifest.clone(),
        })
    });
    let step = Step::Deploy {
        app: name.clone(),
        artifact: path.to_owned(),
        manifest: manifest.map(Path::to_owned),
        secrets: match detail {
            Some(_) => BTreeMap::new(),
            None => required_secrets(app, &wanted.manifest),
        },
    };
    Ok(change(
        Item::App(name.clone()).to_string(),
        current.as_ref(),
        &wanted,
        step,
    ))
}

/// The values of secrets that an app with this manifest cannot be deployed without.
fn required_secrets(app: &App, manifest: &Manifest) -> BTreeMap<SecretName, Secret> {
    let named = app.secrets.iter();
    let named = named.filter(|(name, _)| manifest.secrets.contains(*name));
    named
        .map(|(name, given)| (name.clone(), given.value.clone()))
        .collect()
}

/// The digest of what would be uploaded.
fn digest(artifact: Artifact) -> std::io::Result<Digest> {
    match artifact {
        Artifact::Image(image) => Ok(Digest::of(image.to_string().as_bytes())),
        Artifact::File { mut file, .. } => {
            let mut builder = DigestBuilder::default();
            let mut piece = vec![0; 64 << 10];
            loop {
                match std::io::Read::read(&mut file, &mut piece)? {
                    0 => return Ok(builder.finish()),
                    n => builder.update(&piece[..n]),
                }
            }
        }
    }
}

/// A change, if the values differ.
pub(super) fn change<T: PartialEq + Serialize>(
    item: String,
    before: Option<&T>,
    after: &T,
    step: Step,
) -> Option<Change> {
    if before == Some(after) {
        return None;
    }
    Some(Change {
        action: match before {
            None => Action::Create,
            Some(_) => Action::Update,
        },
        item,
        diff: diff::lines(before, Some(after)),
        step,
    })
}

async fn workflow(
    client: &Client,
    scope: &Scope,
    name: &AppName,
    declaration: &Declaration,
    (detail, renewed): (Option<&AppDetail>, &BTreeSet<&str>),
) -> Result<Option<Change>, CliError> {
    let step = Step::Workflow(name.clone(), declaration.clone());
    let item = Item::App(name.clone()).to_string();
    let text = super::execute::text(declaration)?;
    if detail.is_none() {
        return Ok(change(item, None, declaration, step));
    }
    let present = client.workflow(name).await?.definition;
    // A stage that runs the current version will run a different one after its function is deployed again.
    let moved = declaration.stages.iter().any(|stage| {
        stage.version == VersionSelector::Current && renewed.contains(stage.function.as_str())
    });
    let validated = match moved {
        true => None,
        false => {
            let tenant = Some(&scope.tenant);
            Some(client.put_workflow(name, tenant, text, true).await?)
        }
    };
    Ok(match validated {
        Some(validated) if validated.unchanged => None,
        Some(validated) => change(item, Some(&present), &validated.definition, step),
        None => Some(Change {
            action: Action::Update,
            item,
            diff: vec!["~ stages run the new versions of their functions".to_owned()],
            step,
        }),
    })
}

async fn rules(
    client: &Client,
    name: &AppName,
    app: &App,
    there: bool,
) -> Result<Vec<Change>, CliError> {
    let mut found = Vec::new();
    if let Some(policy) = &app.policy {
        let present = match there {
            true => client.policy(name).await?.policy,
            false => Default::default(),
        };
        let step = Step::Policy(name.clone(), Box::new(policy.clone()));
        found.extend(change(
            format!("policy/{name}"),
            Some(&present),
            policy,
            step,
        ));
    }
    if let Some(traffic) = &app.traffic {
        let present = match there {
            true => client.traffic(name).await?.traffic,
            false => Default::default(),
        };
        let step = Step::Traffic(name.clone(), traffic.clone());
        found.extend(change(
            format!("traffic/{name}"),
            Some(&present),
            traffic,
            step,
        ));
    }
    Ok(found)
}

async fn budgets(
    client: &Client,
    scope: &Scope,
    declared: &Declarations,
) -> Result<Vec<Change>, CliError> {
    if declared.budgets.is_empty() {
        return Ok(Vec::new());
    }
    let present = client.budgets(Some(&scope.tenant)).await?;
    let mut found = Vec::new();
    for (name, request) in &declared.budgets {
        let old = present.iter().find(|budget| budget.name == *name);
        let same = old.is_some_and(|old| {
            Budget::new(name.clone(), request, old.limit.currency)
                .is_ok_and(|wanted| wanted == *old)
        });
        if !same {
            let before = old.map(|old| SetBudget {
                limit: old.limit.decimal(),
                thresholds: old.thresholds.clone(),
                webhook: old.webhook.clone(),
            });
            let step = Step::Budget(name.clone(), request.clone());
            let item = Item::Budget(name.clone()).to_string();
            found.extend(change(item, before.as_ref(), request, step));
        }
    }
    Ok(found)
}

async fn members(
    client: &Client,
    scope: &Scope,
    declared: &Declarations,
) -> Result<Vec<Change>, CliError> {
    if declared.members.is_empty() {
        return Ok(Vec::new());
    }
    let present: BTreeMap<UserName, TenantRole> = client
        .members(&scope.tenant)
        .await?
        .into_iter()
        .map(|member| (member.user, member.role))
        .collect();
    let changes = declared.members.iter().filter_map(|(user, role)| {
        let step = Step::Member(user.clone(), *role);
        let item = Item::Member(user.clone()).to_string();
        change(item, present.get(user), role, step)
    });
    Ok(changes.collect())
}

/// The items of `known`, which were applied under the set's name, that are no longer declared, if they still exist.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn orphans(
    client: &Client,
    scope: &Scope,
    declared: &Declarations,
    known: &BTreeSet<Item>,
) -> Result<Vec<Item>, CliError> {
    let declared = items(declared);
    let (mut workflows, mut found, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for item in known.difference(&declared) {
        let there = match item {
            Item::App(name) => {
                let detail = existing(client.app_of(&scope.tenant, name).await)?;
                // A workflow is deleted before the functions that it runs; the only stage of a function runs the function itself.
                let runs = |detail: &AppDetail| {
                    let mut stages = detail.workflow.stages().iter();
                    stages.any(|stage| stage.function.as_str() != name.as_str())
                };
                if detail.as_ref().is_some_and(runs) {
                    workflows.push(item.clone());
                    continue;
                }
                detail.is_some()
            }
            Item::Budget(name) => {
                let budgets = client.budgets(Some(&scope.tenant)).await?;
                budgets.iter().any(|budget| budget.name == *name)
            }
            Item::Member(user) => {
                let members = client.members(&scope.tenant).await?;
                members.iter().any(|member| member.user == *user)
            }
            Item::Txt(name) => {
                names.push(name);
                continue;
            }
            Item::Secret(app, _) | Item::Schedule(app, _) | Item::Domain(app, _) => {
                existing(client.app_of(&scope.tenant, app).await)?.is_some()
                    && app_parts::exists(client, item).await?
            }
        };
        if there {
            found.push(item.clone());
        }
    }
    // Text records are deleted before the apps that they would be deleted with, so that each is reported and none is missing later.
    let mut all = texts::orphans(client, scope, names).await?;
    all.extend(workflows);
    all.extend(found);
    Ok(all)
}
