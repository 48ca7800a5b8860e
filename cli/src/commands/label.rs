//! `fdn label`.

use fdn_core::label::Labels;
use serde::Serialize;

use super::client;
use crate::args::{LabelArgs, LabelChange};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Report, table};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached, or the labels are changed concurrently.
pub async fn run(
    args: &LabelArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let (mut labels, tag) = client.labels(&args.app, args.version).await?;
    if !args.changes.is_empty() {
        for change in &args.changes {
            labels = match change {
                LabelChange::Set(label) => labels.with(label)?,
                LabelChange::Remove(key) => labels.without(key),
            };
        }
        labels = client
            .set_labels(&args.app, args.version, &labels, tag)
            .await?;
    }
    console.report(args.output.output, &LabelReport { labels: &labels })
}

/// Labels in text form.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
struct LabelReport<'a> {
    labels: &'a Labels,
}

impl Report for LabelReport<'_> {
    fn text(&self, _: bool) -> String {
        if self.labels.is_empty() {
            return "no labels\n".to_owned();
        }
        let rows = self.labels.iter();
        table(
            &["LABEL", "VALUE"],
            rows.map(|(k, v)| vec![k.to_owned(), v.to_owned()]),
        )
    }

    fn names(&self) -> Vec<String> {
        self.labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect()
    }
}
