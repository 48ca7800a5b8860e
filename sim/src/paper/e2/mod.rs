//! E2: orders and keep-alive policies on recorded invocations.

mod gates;
mod rows;
mod tables;

use rayon::prelude::*;

use self::gates::{gates, interrupting_gates};
use self::rows::{PUBLISHED, Row};
use self::tables::{beyond, interrupting_table, means, plot, ranges, savings, tails};
use super::azure::SPAN;
use super::{Context, Effort, Experiment};
use crate::Error;
use crate::invocations::{
    KeepAliveName::Lru,
    Policy,
    PolicyName::{self, Rr, Srtf},
    Run,
};
use crate::report::Outcome;

/// The experiment.
#[derive(Clone, Copy, Debug)]
pub(super) struct E2;

/// Published means of round robin and shortest remaining time first, rare 0.7.
const INTERRUPTING: [(PolicyName, f64); 2] = [(Rr, 1206.0), (Srtf, 41.4)];

impl Experiment for E2 {
    fn name(&self) -> &'static str {
        "e2"
    }

    fn title(&self) -> &'static str {
        "FuncSched against other orders, on recorded invocations"
    }

    fn needs_data(&self) -> bool {
        true
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome, Error> {
        let (count, shifts) = match context.effort {
            Effort::Quick => (2, 1),
            Effort::Full => (PUBLISHED.len(), 8),
        };
        let part = context.progress.begin("e2", count as u64);
        let rows = PUBLISHED[..count]
            .iter()
            .map(|&published| {
                let row = Row::measure(published, shifts, context);
                part.advance(1);
                row
            })
            .collect::<Result<Vec<Row>, Error>>()?;
        let interrupting = interrupting(context)?;
        let mut gates = gates(&rows);
        gates.extend(interrupting_gates(&rows, &interrupting));
        Ok(Outcome {
            conditions: format!(
                "8 workers of 2048 MiB (rare) or 16 384 MiB; load rho over {:.0} s; each mean also with all arrivals moved \
                 {shifts} times by less than the 0.1 ms to which they are written",
                SPAN.get() / 1e3
            ),
            tables: vec![
                means(&rows),
                ranges(&rows),
                tails(&rows),
                savings(&rows),
                interrupting_table(&interrupting),
                beyond(&rows),
            ],
            gates,
            notes: vec![
                "Where two means are compared, both come from the trace as it is written."
                    .to_owned(),
            ],
            plots: ["rare", "representative", "random"]
                .into_iter()
                .filter_map(|trace| plot(&rows, trace))
                .collect(),
        })
    }
}

fn interrupting(context: &Context<'_>) -> Result<Vec<(PolicyName, f64, Run)>, Error> {
    let setting = PUBLISHED[1].setting;
    let workload = setting.read(context)?;
    INTERRUPTING
        .par_iter()
        .map(|&(name, published)| {
            let run = setting.run(&workload, &Policy::new(name, Lru))?;
            Ok((name, published, run))
        })
        .collect()
}
