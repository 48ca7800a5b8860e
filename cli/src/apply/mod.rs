//! A tenant as files: what they declare ([`read`]), how that differs from what is ([`present`], [`texts`]), and making it so ([`carry`]).
//!
//! Nothing is changed before every file was read without a mistake and everything was compared. What files do not speak of stays as it is; what
//! they spoke of when they were last applied under the same name, and no longer do, is taken away if that is asked for.

pub mod belongings;
pub mod carry;
pub mod diff;
pub mod present;
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

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Upload a component or an image.
    Deploy {
        /// The app.
        app: AppName,
        /// The file, or the image's name.
        artifact: PathBuf,
        /// The manifest, if it does not stand beside the file.
        manifest: Option<PathBuf>,
        /// Values of secrets that go with it: those that a new app cannot be without.
        secrets: BTreeMap<SecretName, Secret>,
    },
    /// Set a workflow.
    Workflow(AppName, Declaration),
    /// Set a policy.
    Policy(AppName, Box<Policy>),
    /// Set a split.
    Traffic(AppName, Traffic),
    /// Set what new versions must keep to, or nothing.
    Objective(AppName, Option<Objective>),
    /// Replace the labels of an app's function.
    Labels(AppName, Labels),
    /// Replace the labels of the version that is current then.
    VersionLabels(AppName, Labels),
    /// Set a secret.
    Secret(AppName, SecretName, Secret),
    /// Set for how long DNS answers live.
    Dns(AppName, PutAppDns),
    /// Set a schedule.
    Schedule(AppName, ScheduleName, Box<PutSchedule>),
    /// Ask for a domain.
    Domain(AppName, HostName),
    /// Set the text records of a name, whole.
    Txt(RecordName, SetTxt),
    /// Set a budget.
    Budget(BudgetName, SetBudget),
    /// Add a member or change a role.
    Member(UserName, TenantRole),
    /// Take something away.
    Delete(Item),
}

/// How something changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is made.
    Create,
    /// It becomes another.
    Update,
    /// It is taken away.
    Delete,
}

/// A difference between what is and what is declared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// How it changes.
    pub action: Action,
    /// What: `app/hello`, `policy/hello`, `budget/all`.
    pub item: String,
    /// Line by line: `+` what comes, `-` what goes.
    pub diff: Vec<String>,
    /// How it is done.
    #[serde(skip)]
    pub step: Step,
}

/// All differences.
#[derive(Clone, Debug, Serialize)]
pub struct Changes {
    /// Whether they were only looked for.
    pub dry_run: bool,
    /// One by one, in the order in which they are made.
    pub changes: Vec<Change>,
    /// What was applied before under the same name and is no longer declared, and stays because nobody asked to prune.
    pub left: Vec<Item>,
    /// Secrets that were applied before and are no longer declared, and stay because versions that are kept name them.
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
