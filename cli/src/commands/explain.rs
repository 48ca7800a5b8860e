//! `fdn explain`: shows every candidate cluster with the terms of its estimate, and why it won or lost.

use fdn_core::Millis;
use fdn_core::api::{Candidate, Explanation, StagePlace};
use fdn_core::form::FormTerms;
use fdn_core::predicted::{Compared, StageCompared};
use serde::Serialize;

use super::client;
use crate::args::ExplainArgs;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Report, indented, millis, table, time};

/// Runs the command.
///
/// # Errors
/// When the controller cannot be reached, or the app does not exist.
pub async fn run(
    args: &ExplainArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let explanation = client(&args.connect, env)?
        .explain(&args.app, args.client)
        .await?;
    console.report(args.output.output, &ExplanationReport(&explanation))
}

/// An explanation in text form.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct ExplanationReport<'a>(pub &'a Explanation);

const COLUMNS: [&str; 11] = [
    "CLUSTER", "RTT", "FROM", "D", "AVAIL", "EST", "WORK", "EFT", "TOTAL", "TOLL", "VERDICT",
];

const LEGEND: &str = "\
RTT round trip, as measured, located or unknown; D one way; AVAIL mean wait for a slot, of calls that come within planner.horizon;
EST earliest start = max(AVAIL, D); WORK time of one call there; EFT earliest finish = EST + WORK; TOTAL with the way back = EFT + D;
TOLL how much longer all others would wait for each of these calls, which counts like the call's own time; all in milliseconds
of forms: RUN time of one call, COLD what calls wait for instances as a mean, MILLION what a million calls cost; * is served
";

impl Report for ExplanationReport<'_> {
    fn text(&self, wide: bool) -> String {
        let Explanation {
            app,
            client,
            chosen,
            reason,
            bound,
            candidates,
            stages,
            plan,
            actual,
            forms,
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
        if let Some(plan) = plan {
            let (at, revision) = (time(plan.planned_at), plan.revision);
            let when = format!("{at} (revision {revision}): {}", plan.reason);
            head.push(vec!["planned".to_owned(), when]);
        }
        let mut text = table(&[], head);
        text.push('\n');
        text.push_str(&indented(&table(&COLUMNS, candidates.iter().map(cells)), 2));
        if !stages.is_empty() {
            text.push('\n');
            text.push_str(&indented(&table(&STAGES, stages.iter().map(stage)), 2));
        }
        text.push_str(&self::forms(forms));
        if !actual.is_empty() {
            text.push_str("\npredicted and actual\n\n");
            let rows = actual.iter().flat_map(compared);
            text.push_str(&indented(&table(&COMPARED, rows), 2));
        }
        let then = plan.iter().flat_map(|plan| &plan.candidates);
        let mut then = then.map(planned).peekable();
        if then.peek().is_some() {
            text.push_str("\nwhen it was planned\n\n");
            text.push_str(&indented(&table(&PLANNED, then), 2));
        }
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

const STAGES: [&str; 4] = ["STAGE", "FUNCTION", "VERSION", "CLUSTER"];

fn stage(place: &StagePlace) -> Vec<String> {
    vec![
        place.stage.to_string(),
        place.function.to_string(),
        place.version.to_string(),
        place.cluster.to_string(),
    ]
}

const FORMS: [&str; 8] = [
    "STAGE", "CLUSTER", "FORM", "RUN", "FROM", "COLD", "MILLION", "VERDICT",
];

/// The estimates of each form in each cluster, with a star at the one that is served, for functions with several forms; empty if there are none.
pub(super) fn forms(forms: &[FormTerms]) -> String {
    if forms.is_empty() {
        return String::new();
    }
    let rows = forms.iter().map(|terms| {
        let star = if terms.chosen { " *" } else { "" };
        let from = match (terms.run.is_finite(), terms.measured) {
            (false, _) => "-",
            (true, true) => "measured",
            (true, false) => "expected",
        };
        let time = |time: Millis| match time.is_finite() {
            true => millis(time),
            false => "-".to_owned(),
        };
        let price = terms.price.filter(|_| terms.run.is_finite());
        vec![
            terms.stage.to_string(),
            terms.cluster.to_string(),
            format!("{}{star}", terms.form),
            time(terms.run),
            from.to_owned(),
            time(terms.cold),
            price.map_or_else(|| "-".to_owned(), |price| price.to_string()),
            terms.verdict.clone(),
        ]
    });
    format!("\nforms\n\n{}", indented(&table(&FORMS, rows), 2))
}

const COMPARED: [&str; 7] = [
    "STAGE",
    "CLUSTER",
    "CALLS",
    "PHASE",
    "PREDICTED",
    "ACTUAL",
    "ERROR",
];

/// The phases of a stage: the plan's estimate and the measured time.
fn compared(stage: &StageCompared) -> Vec<Vec<String>> {
    let row = |phase: &str, term: &Compared| {
        let error = term.error();
        vec![
            stage.stage.to_string(),
            stage.cluster.to_string(),
            stage.calls.to_string(),
            phase.to_owned(),
            millis(term.predicted),
            term.actual.map_or_else(|| "-".to_owned(), millis),
            error.map_or_else(
                || "-".to_owned(),
                |error| format!("{:+.1} %", error * 100.0),
            ),
        ]
    };
    let way = stage.way.iter().map(|way| row("way", way));
    way.chain([
        row("queue", &stage.queue),
        row("execution", &stage.execution),
    ])
    .collect()
}

/// The columns for clusters as they were at the time of planning.
pub(super) const PLANNED: [&str; 7] = ["CLUSTER", "D", "AVAIL", "WORK", "TOTAL", "TOLL", "VERDICT"];

/// A cluster as it was at the time of planning.
pub(super) fn planned(candidate: &Candidate) -> Vec<String> {
    vec![
        candidate.cluster.to_string(),
        millis(candidate.distance),
        millis(candidate.available),
        millis(candidate.work),
        millis(candidate.total),
        millis(candidate.toll),
        verdict(candidate),
    ]
}

fn verdict(candidate: &Candidate) -> String {
    match &candidate.excluded {
        Some(why) => format!("excluded: {why}"),
        None => candidate.verdict.clone(),
    }
}

fn cells(candidate: &Candidate) -> Vec<String> {
    vec![
        candidate.cluster.to_string(),
        millis(candidate.latency.rtt),
        candidate.latency.source.as_str().to_owned(),
        millis(candidate.distance),
        millis(candidate.available),
        millis(candidate.start),
        millis(candidate.work),
        millis(candidate.finish),
        millis(candidate.total),
        millis(candidate.toll),
        verdict(candidate),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(form: &str, chosen: bool, run: f64, price: Option<&str>) -> FormTerms {
        let price = price.map(|price| {
            serde_json::from_str(&format!(r#"{{"micros":{price},"currency":"EUR"}}"#))
                .expect("an amount")
        });
        FormTerms {
            stage: "thumbs".parse().expect("stage"),
            cluster: "eu-west".parse().expect("cluster"),
            form: form.parse().expect("form"),
            chosen,
            run: Millis::new(run),
            measured: chosen,
            cold: Millis::new(if run.is_finite() { 0.0 } else { run }),
            price,
            verdict: if chosen { "the fastest" } else { "slower" }.to_owned(),
        }
    }

    #[test]
    fn forms_are_shown_with_what_they_come_to() {
        assert_eq!(forms(&[]), "");
        let all = [
            terms("main", false, 40.0, Some("2040000")),
            terms("gpu", true, 4.1, Some("1640000")),
            terms("big", false, f64::INFINITY, Some("0")),
        ];
        let text = forms(&all);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .filter(|cells: &Vec<&str>| cells.first() == Some(&"thumbs"))
            .collect();
        let expected = [
            "thumbs eu-west main 40.00 expected 0.00 2.040000 EUR slower",
            "thumbs eu-west gpu * 4.10 measured 0.00 1.640000 EUR the fastest",
            "thumbs eu-west big - - - - slower",
        ];
        let rows: Vec<String> = rows.iter().map(|cells| cells.join(" ")).collect();
        assert_eq!(rows, expected, "{text}");
    }
}
