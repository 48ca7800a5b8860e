//! `fdn audit`: shows who changed what.

use fdn_core::Timestamp;
use fdn_core::account::AuditRecord;

use super::client;
use super::owner::Names;
use super::tenant::list;
use crate::args::AuditArgs;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Row, time};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn run(
    args: &AuditArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let mut query = vec![("limit", args.limit.to_string())];
    let filters = [
        ("tenant", args.tenant.as_ref().map(ToString::to_string)),
        ("actor", args.actor.clone()),
        ("action", args.action.clone()),
        ("subject", args.subject.clone()),
        ("since", args.since.map(|span| began(span.as_millis()))),
    ];
    query.extend(
        filters
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?))),
    );
    let client = client(&args.connect, env)?;
    let entries = client.audit(&query).await?;
    let names = Names::of(&client, args.output.output).await;
    let rows: Vec<_> = entries
        .iter()
        .map(|entry| names.row(entry, entry.tenant))
        .collect();
    list(args.output, &rows, "nothing was changed", console)
}

/// The beginning, in ms since 1970, of a period of this length that ends now.
fn began(millis: u64) -> String {
    fdn_service::now().get().saturating_sub(millis).to_string()
}

impl Row for AuditRecord {
    const COLUMNS: &'static [&'static str] = &[
        "TIME", "ACTOR", "ACTION", "SUBJECT", "FROM", "BEFORE", "AFTER", "TENANT", "TOKEN",
        "REQUEST",
    ];
    const NARROW: usize = 5;

    fn cells(&self, _: Timestamp) -> Vec<String> {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let json =
            |state: &Option<serde_json::Value>| or_dash(state.as_ref().map(ToString::to_string));
        vec![
            time(self.at),
            self.actor.clone(),
            self.action.clone(),
            self.subject.clone(),
            or_dash(self.address.clone()),
            json(&self.before),
            json(&self.after),
            or_dash(self.tenant.map(|tenant| tenant.to_string())),
            or_dash(self.token.map(|token| token.to_string())),
            or_dash(self.request.clone()),
        ]
    }

    fn name(&self) -> String {
        self.id.clone()
    }
}
