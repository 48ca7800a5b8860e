//! Experiment "hints": the task itself sent by a snapshot, against the probe of two.

use fdn_core::Millis;
use fdn_scheduling::instance::Spread;
use rayon::prelude::*;

use super::e3::{curve, filling, steady, steady_short};
use super::{Context, Effort, Experiment};
use crate::Error;
use crate::report::{Bound, Cell, Gate, Outcome, Table};
use crate::scaling::{Scheduler, Setup, simulate, sustainable};

/// The experiment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hints;

/// Which scheduler, snapshots how old, and which node a hint names.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Way {
    scheduler: Scheduler,
    age_ms: f64,
    spread: Spread,
}

const WAYS: [Way; 10] = [
    Way {
        scheduler: Scheduler::LocalProbeGlobal,
        age_ms: 0.0,
        spread: Spread::Dealt,
    },
    way(2.0, Spread::Dealt),
    way(5.0, Spread::Dealt),
    way(20.0, Spread::Dealt),
    way(2.0, Spread::Even),
    way(5.0, Spread::Even),
    way(20.0, Spread::Even),
    way(2.0, Spread::Best),
    way(5.0, Spread::Best),
    way(20.0, Spread::Best),
];

const fn way(age_ms: f64, spread: Spread) -> Way {
    Way {
        scheduler: Scheduler::Hints,
        age_ms,
        spread,
    }
}

impl Way {
    fn name(self) -> String {
        let spread = match self.spread {
            _ if self.scheduler != Scheduler::Hints => return "local-probe-global".to_owned(),
            Spread::Best => "best of 8",
            Spread::Even => "even",
            Spread::Dealt => "dealt",
        };
        format!("hints, {spread}, {} ms", self.age_ms)
    }

    fn on(self, setup: Setup) -> Setup {
        Setup {
            scheduler: self.scheduler,
            snapshot_age: Millis::new(self.age_ms),
            hint_spread: self.spread,
            ..setup
        }
    }
}

/// Tasks per second, and the p99 in ms that was published for the probe of two and for hints.
const RATES: [(f64, Option<f64>, f64); 3] = [
    (100_000.0, Some(1.31), 0.78),
    (400_000.0, Some(28.9), 1.3),
    (800_000.0, None, 1.3),
];

impl Experiment for Hints {
    fn name(&self) -> &'static str {
        "hints"
    }

    fn title(&self) -> &'static str {
        "instances: hints instead of probes"
    }

    fn needs_data(&self) -> bool {
        false
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome, Error> {
        let mut outcome = Outcome {
            conditions: "As E3, utilization 0.95, steady state, 300 000 tasks. A snapshot of all nodes is at most so many ms old when the \
                next one arrives. Best of 8: the node with the most room of eight random ones. Even: one of the eight, so that all \
                are filled to one level by what is sent until the next snapshot. Dealt: the slots that the snapshot shows free are \
                dealt to all nodes, each uses its own first, then as even. Filling: six mean lifetimes from an empty cluster, all \
                tasks counted, as published."
                .to_owned(),
            ..Outcome::default()
        };
        latencies(context, &mut outcome)?;
        if context.effort == Effort::Full {
            rates(context, &mut outcome)?;
            outcome.plots.push(curve(
                context,
                (
                    "hints-p99",
                    "p99 by rate, utilization 0.95: probes and hints",
                ),
                &[Scheduler::LocalProbeGlobal, Scheduler::Hints],
                &[2.5e4, 5e4, 1e5, 2e5, 4e5, 6e5, 8e5, 1.2e6],
            )?);
        }
        outcome.notes.push(
            "At 100 000/s a free slot is taken after 5 ms in the mean, at 400 000/s after 1.25 ms: a snapshot of 5 ms says little of single \
             slots then, and its best nodes are overrun by everybody's tasks; sending in proportion keeps hints better than \
             chance, and dealing the slots out keeps everybody off the others' until all are gone. Messages do not count snapshots: n nodes get 1000/age of them per second."
                .to_owned(),
        );
        Ok(outcome)
    }
}

fn latencies(context: &Context<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let runs: Vec<(usize, Way)> = (0..RATES.len())
        .flat_map(|rate| WAYS.map(|way| (rate, way)))
        .collect();
    let part = context.progress.begin("hints: p99", runs.len() as u64);
    let found: Result<Vec<_>, Error> = runs
        .par_iter()
        .map(|&(rate, way)| {
            let setup = steady(context.effort, way.scheduler, 0.95);
            let filling = Setup {
                warm_up: 0.0,
                ..filling(way.scheduler, 0.95)
            };
            let rate_per_s = RATES[rate].0;
            let at_rate = |setup| {
                simulate(&way.on(Setup {
                    rate_per_s,
                    ..setup
                }))
            };
            let found = at_rate(setup)?;
            let filling = at_rate(Setup {
                tasks: filling.tasks.min(setup.tasks),
                ..filling
            })?;
            part.advance(1);
            Ok((found, filling.latency.p99_ms))
        })
        .collect();
    let found = found?;
    let mut table = Table::new(
        "p99 and messages at utilization 0.95",
        &[
            "rate per s",
            "scheduler",
            "p99 ms",
            "filling",
            "published p99 ms",
            "reaches global",
            "messages per task",
            "sustained",
        ],
    );
    for ((rate, way), (found, filling)) in runs.iter().zip(&found) {
        let (rate_per_s, probes, hints) = RATES[*rate];
        let published = match (way.scheduler, way.spread, way.age_ms) {
            (Scheduler::LocalProbeGlobal, ..) => probes,
            (_, Spread::Best, 5.0) => Some(hints),
            _ => None,
        };
        table.row([
            Cell::Number(rate_per_s, 0),
            Cell::from(way.name()),
            Cell::Number(found.latency.p99_ms, 3),
            Cell::Number(*filling, 3),
            published.map_or(Cell::Empty, |p99| Cell::Number(p99, 2)),
            Cell::Number(found.reached_global, 4),
            Cell::Number(found.messages_per_task, 2),
            Cell::from(if found.sustained { "yes" } else { "no" }),
        ]);
    }
    for (runs, found) in runs.chunks(WAYS.len()).zip(found.chunks(WAYS.len())) {
        for ((rate, way), (hints, filling)) in runs.iter().zip(found).filter(|((_, way), _)| {
            way.scheduler == Scheduler::Hints
                && way.spread == Spread::Dealt
                && (way.age_ms == 5.0 || way.age_ms == 2.0)
        }) {
            let what = format!(
                "p99 over that of two probes, {} at {}/s",
                way.name(),
                RATES[*rate].0
            );
            let ratio = hints.latency.p99_ms / found[0].0.latency.p99_ms;
            let mut gate = |what, ratio| {
                outcome
                    .gates
                    .push(Gate::new(what, ratio, Bound::AtMost(0.7)));
            };
            gate(format!("{what}, steady"), ratio);
            gate(format!("{what}, filling"), filling / found[0].1);
        }
    }
    outcome.tables.push(table);
    Ok(())
}

fn rates(context: &Context<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let ways = [WAYS[0], WAYS[2], WAYS[3], WAYS[5], WAYS[8]];
    let part = context.progress.begin("hints: sustained rates", 10);
    let mut table = Table::new(
        "Rates sustained with p99 within 5 ms at utilization 0.95, tasks per second (median of 3 seeds)",
        &["scheduler", "steady", "filling"],
    );
    let mut found = Vec::new();
    for way in ways {
        let mut rates = [0.0; 2];
        let both = [
            steady_short(way.scheduler, 0.95),
            filling(way.scheduler, 0.95),
        ];
        for (rate, setup) in rates.iter_mut().zip(both) {
            *rate = sustainable(&way.on(setup), (20_000.0, 4_000_000.0), 3)?;
            part.advance(1);
        }
        table.row([
            Cell::from(way.name()),
            Cell::Number(rates[0], 0),
            Cell::Number(rates[1], 0),
        ]);
        found.push(rates);
    }
    for (at, state) in ["steady", "filling"].into_iter().enumerate() {
        let dealt = |(way, _): &(&Way, &[f64; 2])| way.spread == Spread::Dealt;
        for (way, rates) in ways.iter().zip(&found).skip(1).filter(dealt) {
            let what = format!(
                "sustained rate over that of two probes, {}, {state}",
                way.name()
            );
            let ratio = rates[at] / found[0][at];
            outcome
                .gates
                .push(Gate::new(what, ratio, Bound::AtLeast(1.8)));
        }
    }
    outcome.tables.push(table);
    Ok(())
}
