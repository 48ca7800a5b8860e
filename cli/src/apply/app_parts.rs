//! Compares what belongs to apps besides their code and rules: secrets, schedules, domains, objectives, labels, DNS settings.

use fdn_core::api::AppDetail;
use fdn_core::app::{PutAppDns, SetSecret};
use fdn_core::label::Labels;
use fdn_core::{AppName, ErrorCode};

use super::diff_state::{change, existing};
use super::read::App;
use super::{Action, Change, Item, Step, diff};
use crate::client::Client;
use crate::error::CliError;

/// An app and its declaration.
pub(super) type NamedApp<'a> = (&'a AppName, &'a App);

/// The changes of secrets that are missing or have a different value. Values never leave the controller, so it is asked to compare them. `there`
/// says
/// whether the app exists; without it, all secrets are missing.
pub(super) async fn secrets(
    client: &Client,
    (name, app): NamedApp<'_>,
    there: bool,
) -> Result<Vec<Change>, CliError> {
    if app.secrets.is_empty() {
        return Ok(Vec::new());
    }
    let present = match there {
        true => client.secrets(name).await?,
        false => Vec::new(),
    };
    let mut found = Vec::new();
    for (secret, given) in &app.secrets {
        let (action, line) = match present.iter().any(|info| info.name == *secret) {
            false => (Action::Create, format!("+ a value from {}", given.from)),
            true => {
                let dry_run = SetSecret {
                    value: given.value.expose().to_owned(),
                    dry_run: true,
                };
                let compared = client.set_secret(name, secret, &dry_run).await?;
                if compared.unchanged == Some(true) {
                    continue;
                }
                (
                    Action::Update,
                    format!("~ another value, from {}", given.from),
                )
            }
        };
        found.push(Change {
            action,
            item: Item::Secret(name.clone(), secret.clone()).to_string(),
            diff: vec![line],
            step: Step::Secret(name.clone(), secret.clone(), given.value.clone()),
        });
    }
    Ok(found)
}

/// All other changes of an app; `renewed` says that it will get a new version.
pub(super) async fn other_parts(
    client: &Client,
    named: NamedApp<'_>,
    detail: Option<&AppDetail>,
    renewed: bool,
) -> Result<Vec<Change>, CliError> {
    let there = detail.is_some();
    let mut found = Vec::new();
    found.extend(objective(client, named, there).await?);
    found.extend(labels(client, named, there).await?);
    found.extend(version_labels(named, detail.filter(|_| !renewed)));
    found.extend(dns(client, named, there).await?);
    found.extend(schedules(client, named, there).await?);
    found.extend(domains(client, named, there).await?);
    Ok(found)
}

async fn objective(
    client: &Client,
    (name, app): NamedApp<'_>,
    there: bool,
) -> Result<Option<Change>, CliError> {
    let Some(wanted) = &app.objective else {
        return Ok(None);
    };
    let present = match there {
        true => client.objective(name).await?.objective,
        false => None,
    };
    let item = format!("objective/{name}");
    let step = Step::Objective(name.clone(), wanted.clone());
    Ok(match (wanted, &present) {
        (Some(wanted), present) => change(item, present.as_ref(), wanted, step),
        (None, None) => None,
        (None, Some(present)) => Some(Change {
            action: Action::Delete,
            item,
            diff: diff::lines(Some(present), None::<&()>),
            step,
        }),
    })
}

fn label_change(
    item: String,
    present: Option<&Labels>,
    wanted: &Labels,
    step: Step,
) -> Option<Change> {
    let present = present.filter(|labels| !labels.is_empty());
    match (present, wanted.is_empty()) {
        (None, true) => None,
        (Some(present), true) => Some(Change {
            action: Action::Delete,
            item,
            diff: diff::lines(Some(present), None::<&()>),
            step,
        }),
        (present, false) => change(item, present, wanted, step),
    }
}

async fn labels(
    client: &Client,
    (name, app): NamedApp<'_>,
    there: bool,
) -> Result<Option<Change>, CliError> {
    let Some(wanted) = &app.labels else {
        return Ok(None);
    };
    let present = match there {
        true => Some(client.labels(name, None).await?.0),
        false => None,
    };
    let step = Step::Labels(name.clone(), wanted.clone());
    let item = format!("labels/{name}");
    Ok(label_change(item, present.as_ref(), wanted, step))
}

/// The change of the labels of the version that is, or will be, current; a new version has none.
fn version_labels((name, app): NamedApp<'_>, detail: Option<&AppDetail>) -> Option<Change> {
    let wanted = app.version_labels.as_ref()?;
    let present = detail.and_then(|detail| {
        let current = detail.summary.version;
        let found = detail.versions.iter().find(|v| v.version == current)?;
        Some(&found.labels)
    });
    let step = Step::VersionLabels(name.clone(), wanted.clone());
    label_change(format!("version-labels/{name}"), present, wanted, step)
}

/// The change of the TTL of DNS answers; a new app has the network's default.
async fn dns(
    client: &Client,
    (name, app): NamedApp<'_>,
    there: bool,
) -> Result<Option<Change>, CliError> {
    let Some(wanted) = app.dns else {
        return Ok(None);
    };
    let present = match there {
        true => Some(client.app_dns(name).await?),
        false => None,
    };
    let present = present
        .filter(|dns| !dns.default)
        .map(|dns| PutAppDns { ttl: Some(dns.ttl) });
    let item = format!("dns/{name}");
    let step = Step::Dns(name.clone(), wanted);
    Ok(match (present, wanted.ttl) {
        (None, None) => None,
        (Some(present), None) => Some(Change {
            action: Action::Delete,
            item,
            diff: diff::lines(Some(&present), None::<&()>),
            step,
        }),
        (present, Some(_)) => change(item, present.as_ref(), &wanted, step),
    })
}

async fn schedules(
    client: &Client,
    (name, app): NamedApp<'_>,
    there: bool,
) -> Result<Vec<Change>, CliError> {
    if app.schedules.is_empty() {
        return Ok(Vec::new());
    }
    let present = match there {
        true => client.schedules(Some(name)).await?,
        false => Vec::new(),
    };
    let changes = app.schedules.iter().filter_map(|(schedule, wanted)| {
        let old = present.iter().find(|info| info.name == *schedule);
        let item = Item::Schedule(name.clone(), schedule.clone()).to_string();
        let step = Step::Schedule(name.clone(), schedule.clone(), Box::new(wanted.clone()));
        change(item, old.map(|info| &info.schedule), wanted, step)
    });
    Ok(changes.collect())
}

async fn domains(
    client: &Client,
    (name, app): NamedApp<'_>,
    there: bool,
) -> Result<Vec<Change>, CliError> {
    if app.domains.is_empty() {
        return Ok(Vec::new());
    }
    let present = match there {
        true => client.domains(name).await?,
        false => Vec::new(),
    };
    let new = app
        .domains
        .iter()
        .filter(|host| !present.iter().any(|info| info.host == **host));
    let changes = new.map(|host| Change {
        action: Action::Create,
        item: Item::Domain(name.clone(), host.clone()).to_string(),
        diff: Vec::new(),
        step: Step::Domain(name.clone(), host.clone()),
    });
    Ok(changes.collect())
}

/// Whether something that belongs to an app still exists.
pub(super) async fn exists(client: &Client, item: &Item) -> Result<bool, CliError> {
    match item {
        Item::Secret(app, name) => {
            let secrets = match client.secrets(app).await {
                // The app has become a workflow, which has no secrets.
                Err(CliError::Problem(problem)) if problem.code == ErrorCode::Conflict => None,
                secrets => existing(secrets)?,
            };
            Ok(secrets.is_some_and(|all| all.iter().any(|info| info.name == *name)))
        }
        Item::Schedule(app, name) => {
            let schedules = existing(client.schedules(Some(app)).await)?;
            Ok(schedules.is_some_and(|all| all.iter().any(|info| info.name == *name)))
        }
        Item::Domain(app, host) => {
            let domains = existing(client.domains(app).await)?;
            Ok(domains.is_some_and(|all| all.iter().any(|info| info.host == *host)))
        }
        Item::App(_) | Item::Budget(_) | Item::Member(_) | Item::Txt(_) => Ok(false),
    }
}

/// Whether a kept version refers to a secret, which then cannot be removed.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn is_referenced(client: &Client, item: &Item) -> Result<bool, CliError> {
    let Item::Secret(app, name) = item else {
        return Ok(false);
    };
    let detail = existing(client.app(app).await)?;
    Ok(detail.is_some_and(|detail| {
        let mut versions = detail.versions.iter();
        versions.any(|version| version.manifest.secrets.contains(name))
    }))
}
