//! `fdn budget`.

use fdn_core::Timestamp;
use fdn_core::billing::{Budget, BudgetAlert, BudgetSet};
use serde_json::json;

use super::{client, each};
use crate::args::{BudgetCommand, SetBudgetArgs};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Format, Listing, Row, age};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn run(
    command: &BudgetCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        BudgetCommand::Set(args) => set(args, env, console).await,
        BudgetCommand::List(args) => {
            let client = client(&args.connect, env)?;
            let rows = client.budgets(args.tenant.as_ref()).await?;
            let nothing = "there is no budget; set one: fdn budget set NAME --limit AMOUNT";
            list(args.output.output, &rows, nothing, console)
        }
        BudgetCommand::Alerts(args) => {
            let client = client(&args.connect, env)?;
            let rows = client.budget_alerts(args.tenant.as_ref()).await?;
            list(
                args.output.output,
                &rows,
                "no budget has given an alert",
                console,
            )
        }
        BudgetCommand::Remove(args) => {
            let client = client(&args.connect, env)?;
            let tenant = args.tenant.as_ref();
            each(&args.names, console, async |name| {
                let removed = client.remove_budget(tenant, name).await;
                removed.map(|()| format!("removed {name}"))
            })
            .await
        }
    }
}

fn list<T: Row + serde::Serialize>(
    format: Format,
    rows: &[T],
    nothing: &'static str,
    console: &mut Console,
) -> Result<(), CliError> {
    console.report(
        format,
        &Listing {
            rows,
            nothing,
            now: fdn_service::now(),
        },
    )
}

async fn set(
    args: &SetBudgetArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let mut request = json!({ "limit": args.limit });
    if !args.thresholds.is_empty() {
        request["thresholds"] = json!(args.thresholds);
    }
    if let Some(webhook) = &args.webhook {
        request["webhook"] = json!(webhook);
    }
    let set = client(&args.connect, env)?
        .set_budget(args.tenant.as_ref(), &args.name, &request)
        .await?;
    if args.output.output != Format::Table {
        return list(args.output.output, std::slice::from_ref(&set), "", console);
    }
    let budget = &set.budget;
    console.line(&format!(
        "{}: {} a month, alerts at {}",
        budget.name,
        budget.limit,
        percents(budget)
    ))?;
    if let (Some(webhook), Some(secret)) = (&budget.webhook, &set.webhook_secret) {
        console.line(&format!("{webhook} is told, signed with {secret}"))?;
    }
    Ok(())
}

fn percents(budget: &Budget) -> String {
    let all: Vec<String> = budget.thresholds.iter().map(|t| format!("{t}%")).collect();
    all.join(" ")
}

impl Row for Budget {
    const COLUMNS: &'static [&'static str] = &["NAME", "LIMIT", "ALERTS AT", "WEBHOOK"];
    const NARROW: usize = 3;

    fn cells(&self, _: Timestamp) -> Vec<String> {
        vec![
            self.name.to_string(),
            self.limit.to_string(),
            percents(self),
            self.webhook.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}

impl Row for BudgetSet {
    const COLUMNS: &'static [&'static str] = Budget::COLUMNS;
    const NARROW: usize = Budget::NARROW;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        self.budget.cells(now)
    }

    fn name(&self) -> String {
        self.budget.name()
    }
}

impl Row for BudgetAlert {
    const COLUMNS: &'static [&'static str] =
        &["BUDGET", "MONTH", "REACHED", "SPENT", "LIMIT", "AGE"];
    const NARROW: usize = 6;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.budget.to_string(),
            self.month.to_string(),
            format!("{}%", self.threshold),
            self.spent.to_string(),
            self.limit.to_string(),
            age(self.at, now),
        ]
    }

    fn name(&self) -> String {
        format!("{}/{}/{}", self.budget, self.month, self.threshold)
    }
}
