//! What it costs to let those who waited long go first.

use fdn_core::Millis;
use fdn_scheduling::invocation::Guard;
use rayon::prelude::*;

use super::azure::Setting;
use super::{Context, Effort, Experiment};
use crate::Error;
use crate::invocations::{KeepAliveName, Policy, PolicyName, Run};
use crate::report::{Axis, Bound, Cell, Gate, Outcome, Plot, Series, Shape, Table};

/// The experiment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Starvation;

/// The threshold of the published figures.
const AFTER: Millis = Millis::new(60_000.0);

/// Shares of the dispatched memory-time that may go to the starved; 1 is no bound, 0 no guard.
const SHARES: [f64; 6] = [0.0, 0.02, 0.05, 0.1, 0.2, 1.0];

/// The load, and the published mean without a guard and with the plain one, in s.
#[derive(Clone, Copy, Debug)]
struct Published {
    scale: f64,
    without_s: f64,
    plain_s: f64,
}

const PUBLISHED: [Published; 2] = [
    Published {
        scale: 0.4,
        without_s: 10.6,
        plain_s: 11.1,
    },
    Published {
        scale: 0.5,
        without_s: 13.5,
        plain_s: 56.0,
    },
];

const POLICIES: [PolicyName; 2] = [PolicyName::Funcsched, PolicyName::QueueOrCold];

type Measured = (Published, PolicyName, f64, Run);

impl Experiment for Starvation {
    fn name(&self) -> &'static str {
        "starvation"
    }

    fn title(&self) -> &'static str {
        "what it costs to let those who waited long go first"
    }

    fn needs_data(&self) -> bool {
        true
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome, Error> {
        let count = match context.effort {
            Effort::Quick => 1,
            Effort::Full => PUBLISHED.len(),
        };
        let part = context.progress.begin("starvation", count as u64);
        let mut measured: Vec<Measured> = Vec::new();
        for published in &PUBLISHED[..count] {
            measured.extend(measure(*published, context)?);
            part.advance(1);
        }
        Ok(Outcome {
            conditions: format!(
                "representative functions, 8 workers of 16 384 MiB, LRU; invocations starve after {:.0} s",
                AFTER.get() / 1e3
            ),
            tables: vec![table(&measured)],
            gates: gates(&measured),
            notes: Vec::new(),
            plots: plot(&measured).into_iter().collect(),
        })
    }
}

fn measure(published: Published, context: &Context<'_>) -> Result<Vec<Measured>, Error> {
    let setting = Setting {
        trace: "representative",
        memory: 16_384,
        scale: published.scale,
    };
    let workload = setting.read(context)?;
    let pairs: Vec<(PolicyName, f64)> = POLICIES
        .into_iter()
        .flat_map(|policy| SHARES.map(|share| (policy, share)))
        .collect();
    pairs
        .into_par_iter()
        .map(|(name, share)| {
            let mut policy = Policy::new(name, KeepAliveName::Lru);
            if share > 0.0 {
                let guard = Guard::new(AFTER, share);
                policy.starvation = Some(guard.map_err(|e| Error::Usage(e.to_string()))?);
            }
            let run = setting.run(&workload, &policy)?;
            Ok((published, name, share, run))
        })
        .collect()
}

fn table(measured: &[Measured]) -> Table {
    let columns = [
        "rho",
        "policy",
        "guard",
        "mean_s",
        "published",
        "p99_s",
        "max_s",
        "queueing_p99_s",
        "queueing_max_s",
    ];
    let mut table = Table::new("Completion with and without a guard", &columns);
    for (published, name, share, run) in measured {
        let guard = match *share {
            0.0 => "none".to_owned(),
            1.0 => "plain".to_owned(),
            share => format!("share {share}"),
        };
        let known = match (*name, *share) {
            (PolicyName::Funcsched, 0.0) => Cell::Number(published.without_s, 1),
            (PolicyName::Funcsched, 1.0) => Cell::Number(published.plain_s, 1),
            _ => Cell::Empty,
        };
        let seconds = |ms: f64| Cell::Number(ms / 1e3, 1);
        table.row([
            Cell::Number(run.rho, 2),
            name.as_str().into(),
            guard.into(),
            Cell::Number(run.mean_s(), 2),
            known,
            seconds(run.completion_ms.p99),
            seconds(run.completion_ms.max),
            seconds(run.queueing_ms.p99),
            seconds(run.queueing_ms.max),
        ]);
    }
    table
}

fn gates(measured: &[Measured]) -> Vec<Gate> {
    let of_order = measured
        .iter()
        .filter(|(_, name, _, _)| *name == PolicyName::Funcsched);
    let gate = |(published, _, share, run): &Measured| {
        let (what, of) = match *share {
            0.0 => ("without a guard", published.without_s),
            1.0 => ("with the plain guard", published.plain_s),
            _ => return None,
        };
        let what = format!("mean in s {what}, rho {:.2}", run.rho);
        let bound = Bound::Within { of, by: 0.05 * of };
        Some(Gate::new(what, run.mean_s(), bound))
    };
    of_order.filter_map(gate).collect()
}

/// Mean against the longest wait, one line for each load and order.
fn plot(measured: &[Measured]) -> Option<Plot> {
    let mut series: Vec<Series> = Vec::new();
    for (_, name, share, run) in measured {
        let label = format!("{}, rho {:.2}", name.as_str(), run.rho);
        if series.last().is_none_or(|last| last.name != label) {
            series.push(Series {
                name: label,
                points: Vec::new(),
                shape: Shape::Line,
            });
        }
        if let Some(last) = series.last_mut() {
            last.points.push((*share, run.mean_s()));
        }
    }
    (!series.is_empty()).then(|| Plot {
        name: "starvation".to_owned(),
        title: "Mean completion over the share of the starved".to_owned(),
        x: Axis::linear("share of memory-time for the starved at most (0: no guard)"),
        y: Axis::log("mean completion, s"),
        series,
    })
}
