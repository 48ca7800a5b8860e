//! A tenant as files: reads the declarations ([`read`]), compares them with the present state ([`diff_state`], [`texts`]), and applies them
//! ([`execute`]).
//!
//! Nothing is changed before every file was read without an error and everything was compared. What the files do not mention stays as it is; what
//! they declared when they were last applied under the same set name, and no longer do, is deleted if that is requested.

pub mod app_parts;
pub mod diff;
pub mod diff_state;
pub mod execute;
pub mod read;
pub mod texts;

use std::collections::BTreeMap;
use std::path::PathBuf;

use fdn_core::app::PutAppDns;
pub use fdn_core::applied::{Item, SetName};
use fdn_core::billing::{BudgetName, SetBudget};
use fdn_core::job::PutSchedule;
use fdn_core::label::Labels;
use fdn_core::policy::{Policy, Traffic};
use fdn_core::rollout::Objective;
use fdn_core::txt::SetTxt;
use fdn_core::workflow::Declaration;
use fdn_core::{AppName, HostName, RecordName, ScheduleName, SecretName, TenantRole, UserName};
use fdn_service::secret::Secret;
use serde::Serialize;

use crate::output::Report;

/// A step of applying the declarations.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Upload a component or an image.
    Deploy {
        /// The app.
        app: AppName,
        /// The file, or the image's name.
        artifact: PathBuf,
        /// The manifest, if it is not beside the file.
        manifest: Option<PathBuf>,
        /// Values of secrets to be sent along: those without which a new app cannot be deployed.
        secrets: BTreeMap<SecretName, Secret>,
    },
    /// Set the definition of a workflow.
    Workflow(AppName, Declaration),
    /// Set a policy.
    Policy(AppName, Box<Policy>),
    /// Set the traffic split between versions.
    Traffic(AppName, Traffic),
    /// Set the objective of new versions, or remove it.
    Objective(AppName, Option<Objective>),
    /// Replace the labels of an app's function.
    Labels(AppName, Labels),
    /// Replace the labels of the version that is current at that time.
    VersionLabels(AppName, Labels),
    /// Set a secret.
    Secret(AppName, SecretName, Secret),
    /// Set the TTL of DNS answers.
    Dns(AppName, PutAppDns),
    /// Set a schedule.
    Schedule(AppName, ScheduleName, Box<PutSchedule>),
    /// Request a domain.
    Domain(AppName, HostName),
    /// Set the text records of a name, replacing all of them.
    Txt(RecordName, SetTxt),
    /// Set a budget.
    Budget(BudgetName, SetBudget),
    /// Add a member or change a role.
    Member(UserName, TenantRole),
    /// Delete something.
    Delete(Item),
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is created.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
}

/// A difference between the present and the declared state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The kind of the change.
    pub action: Action,
    /// What is changed: `app/hello`, `policy/hello`, `budget/all`.
    pub item: String,
    /// The differing lines: `+` for added, `-` for removed ones.
    pub diff: Vec<String>,
    /// The step that makes the change.
    #[serde(skip)]
    pub step: Step,
}

/// All differences.
#[derive(Clone, Debug, Serialize)]
pub struct Changes {
    /// Whether this was a dry run.
    pub dry_run: bool,
    /// The changes, in the order in which they are made.
    pub changes: Vec<Change>,
    /// Items that were applied before under the same set name and are no longer declared; they stay because pruning was not requested.
    pub left: Vec<Item>,
    /// Secrets that were applied before and are no longer declared; they stay because kept versions refer to them.
    pub named: Vec<Item>,
}

impl Report for Changes {
    fn text(&self, _: bool) -> String {
        let mut text = String::new();
        for change in &self.changes {
            let sign = match change.action {
                Action::Create => "+",
                Action::Update => "~",
                Action::Delete => "-",
            };
            text.push_str(&format!("{sign} {}\n", change.item));
            for line in &change.diff {
                text.push_str(&format!("    {line}\n"));
            }
        }
        for item in &self.left {
            text.push_str(&format!(
                "  {item} is no longer declared; --prune takes it away\n"
            ));
        }
        for item in &self.named {
            text.push_str(&format!(
                "  {item} is no longer declared; it stays as long as there is a version that names it\n"
            ));
        }
        let count = self.changes.len();
        text.push_str(&match (count, self.dry_run) {
            (0, _) => "nothing to change\n".to_owned(),
            (1, true) => "1 change would be made\n".to_owned(),
            (_, true) => format!("{count} changes would be made\n"),
            (1, false) => "1 change made\n".to_owned(),
            (_, false) => format!("{count} changes made\n"),
        });
        text
    }

    fn names(&self) -> Vec<String> {
        self.changes
            .iter()
            .map(|change| change.item.clone())
            .collect()
    }
}
