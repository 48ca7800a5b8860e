//! `fdn apply`: a tenant as files.
//!
//! What will be created is remembered under the set's name before the first change, and only if nobody else has changed the set since it was read. So
//! whatever happens on the way, a later apply knows what this one has made; and of two that begin at the same time and change what the set consists
//! of, one changes nothing. What the controller refuses to create is no longer remembered then.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fdn_core::ErrorCode;
use fdn_core::account::TenantRef;
use fdn_core::applied::ITEMS_MAX;

use super::client;
use crate::apply::app_parts::is_referenced;
use crate::apply::diff_state::{Scope, changes, items, orphans};
use crate::apply::execute::execute;
use crate::apply::read::{Declarations, Source, files, read_declarations};
use crate::apply::{Action, Change, Changes, Item, SetName, Step, texts};
use crate::args::ApplyArgs;
use crate::client::Client;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::Format;

/// The largest file in bytes.
const FILE_MAX: u64 = 4 << 20;

/// Runs the command.
///
/// # Errors
/// When a file is not valid (then nothing is requested), the set is changed by somebody else meanwhile, or the controller refuses or cannot be reached.
/// Changes that were already made stay, and running the command again continues from there.
pub async fn run(
    args: &ApplyArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let declared = read(&args.files, env)?;
    let client = client(&args.connect, env)?;
    let scope = scope(&client, args, &declared).await?;
    let (known, tag) = client.applied(&scope.set, &scope.tenant).await?;
    let mut left = orphans(&client, &scope, &declared, &known.items).await?;
    let there = left.clone();
    let named = take_referenced(&client, &mut left).await?;
    let going = if args.prune { left.as_slice() } else { &[] };
    texts::check(&client, &scope, &declared, going).await?;
    let mut found = changes(&client, &scope, &declared).await?;
    if args.prune {
        found.extend(pruned(std::mem::take(&mut left)));
    }
    let report = Changes {
        dry_run: args.dry_run,
        changes: found,
        left,
        named,
    };
    let mut remembered = items(&declared);
    let mut first: BTreeSet<Item> = known.items.intersection(&remembered).cloned().collect();
    first.extend(there.into_iter().chain(created(&report.changes)));
    remembered.extend(report.left.iter().chain(&report.named).cloned());
    bounded(remembered.len(), first.len())?;
    if args.dry_run {
        return console.report(args.output.output, &report);
    }
    let tag = remember(
        &client,
        &scope,
        (&first, tag),
        console,
        "nothing was changed",
    )
    .await?;
    let people = matches!(args.output.output, Format::Table | Format::Wide);
    let (done, made) = make(
        &client,
        (&scope, &declared),
        &report.changes,
        (&mut *console, people),
    )
    .await;
    if let Err(error) = made {
        let missing = not_created(&report.changes, done, &error);
        if !missing.is_empty() {
            let kept: BTreeSet<Item> = first.difference(&missing).cloned().collect();
            let made = "not all changes were made";
            // Whether this succeeds or not, the command ends with the refusal.
            drop(remember(&client, &scope, (&kept, tag), console, made).await);
        }
        return Err(error);
    }
    if remembered != first {
        let made = "all changes were made";
        remember(&client, &scope, (&remembered, tag), console, made).await?;
    }
    console.report(args.output.output, &report)
}

/// The items that these changes create.
fn created(changes: &[Change]) -> impl Iterator<Item = Item> {
    let new = changes
        .iter()
        .filter(|change| change.action == Action::Create);
    // Rules of apps are no items of their own.
    new.filter_map(|change| change.item.parse().ok())
}

/// The items that the refused change after the first `done`, and those that follow it, would have created. None if it is not known what became of
/// that change, as without an answer: whatever may be there is remembered.
fn not_created(changes: &[Change], done: usize, error: &CliError) -> BTreeSet<Item> {
    if !matches!(error, CliError::Problem(problem) if problem.status < 500) {
        return BTreeSet::new();
    }
    let (made, left) = changes.split_at(done);
    let mut missing: BTreeSet<Item> = created(left).collect();
    for change in made {
        // These were sent along with a new app, before their own change.
        if let Step::Deploy { app, secrets, .. } = &change.step {
            missing.retain(|item| match item {
                Item::Secret(of, name) => of != app || !secrets.contains_key(name),
                _ => true,
            });
        }
    }
    missing
}

/// Stores the items of the set, if it still has this entity tag, and returns the new tag; `done` says what the command has changed until then.
async fn remember(
    client: &Client,
    scope: &Scope,
    (items, tag): (&BTreeSet<Item>, Option<String>),
    console: &mut Console,
    done: &str,
) -> Result<Option<String>, CliError> {
    let remembered = client.remember_applied(&scope.set, &scope.tenant, items, tag);
    remembered.await.inspect_err(|_| {
        let set = &scope.set;
        console.note(&format!(
            "fdn: {done}, and what the set {set} consists of could not be remembered; run the command again"
        ));
    })
}

/// Makes the changes, until one fails. Returns how many were made.
async fn make(
    client: &Client,
    (scope, declared): (&Scope, &Declarations),
    changes: &[Change],
    (console, people): (&mut Console, bool),
) -> (usize, Result<(), CliError>) {
    for (done, change) in changes.iter().enumerate() {
        let todo = match execute(client, scope, change).await {
            Ok(todo) => todo,
            Err(error) => {
                let count = changes.len();
                console.note(&format!(
                    "fdn: {}{} could not be changed; {done} of {count} changes were made",
                    change.item,
                    place(declared, change)
                ));
                return (done, Err(error));
            }
        };
        if people {
            console.note(&format!("fdn: {}", change.item));
            for line in todo {
                console.note(&format!("fdn:   {line}"));
            }
        }
    }
    (changes.len(), Ok(()))
}

/// Rejects more items than can be remembered, before any is created: those that the set will consist of, and, while they take the place of others,
/// both `together`.
fn bounded(count: usize, together: usize) -> Result<(), CliError> {
    let advice = if count > ITEMS_MAX {
        "apply these files in parts, each with a --set of its own"
    } else if together > ITEMS_MAX {
        "first take away old ones, with --prune and files that declare fewer new ones"
    } else {
        return Ok(());
    };
    let most = count.max(together);
    Err(CliError::Declared(format!(
        "{most} things would be remembered, more than {ITEMS_MAX} cannot be in one set; {advice}"
    )))
}

/// The position of the declaration of text records that a change is about: only the controller knows the limits on their number and length.
fn place(declared: &Declarations, change: &Change) -> String {
    match &change.step {
        Step::Txt(name, _) => declared
            .txt
            .get(name)
            .map(|txt| format!(" ({}:{})", txt.file, txt.line))
            .unwrap_or_default(),
        _ => String::new(),
    }
}

/// Removes from `left` and returns what cannot be deleted: secrets that kept versions refer to, unless the app is deleted with all of its versions.
async fn take_referenced(client: &Client, left: &mut Vec<Item>) -> Result<Vec<Item>, CliError> {
    let mut named = Vec::new();
    for item in left.clone() {
        let goes = item
            .part_of()
            .is_some_and(|app| left.contains(&Item::App(app.clone())));
        if !goes && is_referenced(client, &item).await? {
            left.retain(|other| *other != item);
            named.push(item);
        }
    }
    Ok(named)
}

/// The changes that delete these items; what belongs to a deleted app is deleted with it.
fn pruned(left: Vec<Item>) -> Vec<Change> {
    let apps: Vec<&Item> = left
        .iter()
        .filter(|item| matches!(item, Item::App(_)))
        .collect();
    let own = |item: &&Item| match item.part_of() {
        Some(app) => !apps.contains(&&Item::App(app.clone())),
        None => true,
    };
    left.iter().filter(own).cloned().map(deletion).collect()
}

fn deletion(item: Item) -> Change {
    Change {
        action: Action::Delete,
        item: item.to_string(),
        diff: Vec::new(),
        step: Step::Delete(item),
    }
}

/// Reads all files; all mistakes are reported at once.
fn read(arguments: &[PathBuf], env: &Environment) -> Result<Declarations, CliError> {
    let mut sources = Vec::new();
    for argument in arguments {
        if argument == Path::new("-") {
            sources.push(Source {
                name: "-".to_owned(),
                folder: PathBuf::from("."),
                text: crate::input::text(argument, FILE_MAX)?,
            });
            continue;
        }
        let failed = |reason: String| CliError::File {
            path: argument.clone(),
            reason,
            code: ErrorCode::BadRequest,
        };
        for path in files(argument).map_err(failed)? {
            sources.push(Source {
                text: crate::input::text(&path, FILE_MAX)?,
                name: path.display().to_string(),
                folder: path.parent().map(Path::to_owned).unwrap_or_default(),
            });
        }
    }
    read_declarations(&sources, env).map_err(|wrong| {
        let lines: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        CliError::Declared(lines.join("\n"))
    })
}

async fn scope(
    client: &Client,
    args: &ApplyArgs,
    declared: &Declarations,
) -> Result<Scope, CliError> {
    let tenant = match args.tenant.clone().or_else(|| declared.tenant.clone()) {
        Some(named) => named,
        None => only_tenant(client).await?,
    };
    let set = args.set.clone().or_else(|| declared.set.clone());
    let set = match set {
        Some(set) => set,
        None => "default".parse::<SetName>()?,
    };
    Ok(Scope { tenant, set })
}

async fn only_tenant(client: &Client) -> Result<TenantRef, CliError> {
    let session = client.who().await?;
    match session.tenants.as_slice() {
        [only] => Ok(TenantRef::Id(only.id)),
        _ => Err(CliError::Usage(format!(
            "you are a member of {} tenants; say which one is meant: --tenant NAME, or `tenant: NAME` in a file",
            session.tenants.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fdn_core::Problem;
    use fdn_service::secret::Secret;

    use super::*;

    #[test]
    fn more_than_can_be_remembered_is_refused() {
        assert!(bounded(ITEMS_MAX, ITEMS_MAX).is_ok());
        for (count, together, advice) in [
            (ITEMS_MAX + 1, ITEMS_MAX, "--set"),
            (ITEMS_MAX, ITEMS_MAX + 1, "--prune"),
        ] {
            let told = bounded(count, together).expect_err("too many").to_string();
            assert!(
                told.contains("10001 things") && told.contains(advice),
                "{told}"
            );
        }
    }

    #[test]
    fn only_what_is_known_to_be_missing_is_forgotten() {
        let item = |text: &str| text.parse::<Item>().expect("an item");
        let secret = |name: &str| Change {
            action: Action::Create,
            item: format!("secret/a/{name}"),
            diff: Vec::new(),
            step: Step::Secret(
                "a".parse().expect("app"),
                name.parse().expect("name"),
                Secret::new("value"),
            ),
        };
        let deploy = Change {
            action: Action::Create,
            item: "app/a".to_owned(),
            diff: Vec::new(),
            step: Step::Deploy {
                app: "a".parse().expect("app"),
                artifact: "a.wasm".into(),
                manifest: None,
                secrets: BTreeMap::from([("SENT".parse().expect("name"), Secret::new("value"))]),
            },
        };
        let changes = [deploy, secret("SENT"), secret("OTHER")];
        let answered = |code| CliError::Problem(Box::new(Problem::new(code, "no")));
        let refused = answered(ErrorCode::BadRequest);
        let all = ["app/a", "secret/a/SENT", "secret/a/OTHER"].map(item);
        assert_eq!(not_created(&changes, 0, &refused), BTreeSet::from(all));
        // A secret that was sent along with its app is there.
        let other = [item("secret/a/OTHER")];
        assert_eq!(not_created(&changes, 1, &refused), BTreeSet::from(other));
        for unknown in [
            answered(ErrorCode::Internal),
            CliError::Timeout("silent".to_owned()),
        ] {
            assert!(not_created(&changes, 0, &unknown).is_empty());
        }
    }
}
