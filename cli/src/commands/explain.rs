//! `fdn explain`: every candidate cluster with the terms its estimate is made of, and why it won or lost.

use fdn_core::api::{Candidate, Explanation};
use fdn_core::latency::LatencySource;
use serde::Serialize;

use super::client;
use crate::args::ExplainArgs;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Report, indented, millis, table};

/// Runs the command.
///
/// # Errors
/// When the controller cannot be asked or there is no such app.
pub async fn run(
    args: &ExplainArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let explanation = client(&args.connect, env)?
        .explain(&args.app, args.client)
        .await?;
    console.report(args.output.output, &Explained(&explanation))
}

/// An explanation as a page.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct Explained<'a>(pub &'a Explanation);

const COLUMNS: [&str; 10] = [
    "CLUSTER", "RTT", "FROM", "D", "AVAIL", "EST", "WORK", "EFT", "TOTAL", "VERDICT",
];

const LEGEND: &str = "\
RTT round trip, as measured, located or unknown; D one way; AVAIL until a slot is free; EST earliest start = max(AVAIL, D);
WORK time of one call there; EFT earliest finish = EST + WORK; TOTAL with the way back = EFT + D; all in milliseconds
";

impl Report for Explained<'_> {
    fn text(&self, wide: bool) -> String {
        let Explanation {
            app,
            client,
            chosen,
            reason,
            bound,
            candidates,
        } = self.0;
        let chosen = chosen
            .as_ref()
            .map_or_else(|| "no cluster".to_owned(), ToString::to_string);
        let mut head = vec![
            vec!["app".to_owned(), app.to_string()],
            vec!["client".to_owned(), client.to_string()],
            vec!["chosen".to_owned(), format!("{chosen}: {reason}")],
        ];
        let answer = match bound {
            Some(b) => format!(
                "{} for clients in {} (revision {})",
                b.cluster, b.prefix, b.revision
            ),
            None => "the nearest living cluster, until a plan is made for this client".to_owned(),
        };
        head.push(vec!["DNS gives".to_owned(), answer]);
        let mut text = table(&[], head);
        text.push('\n');
        text.push_str(&indented(&table(&COLUMNS, candidates.iter().map(cells)), 2));
        if wide {
            text.push('\n');
            text.push_str(&indented(LEGEND, 2));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        self.0.chosen.iter().map(ToString::to_string).collect()
    }
}

fn cells(candidate: &Candidate) -> Vec<String> {
    let source = match candidate.latency.source {
        LatencySource::Measured => "measured",
        LatencySource::Located => "located",
        LatencySource::Unknown => "unknown",
    };
    let verdict = match &candidate.excluded {
        Some(why) => format!("excluded: {why}"),
        None => candidate.verdict.clone(),
    };
    vec![
        candidate.cluster.to_string(),
        millis(candidate.latency.rtt),
        source.to_owned(),
        millis(candidate.distance),
        millis(candidate.available),
        millis(candidate.start),
        millis(candidate.work),
        millis(candidate.finish),
        millis(candidate.total),
        verdict,
    ]
}
