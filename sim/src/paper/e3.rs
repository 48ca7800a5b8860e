//! Experiment E3: local check, probe of two, global stage, against bottom-up, re-probing, late binding and a centre.
//!
//! **Reading.** The published shares are those of runs of six mean lifetimes from an empty cluster, all tasks counted, and
//! the "share that fails locally" is that of bottom-up, while the share at the global scheduler is that of two probes. Both rows are
//! met within a tenth by this reading alone; no length of run, warm-up or first state gives both under two probes: the ratio of the
//! two shares says how often a probed node is full, and that is twice the published share of local failures. The published p99 of hints (0.78 ms, share 0.0001)
//! comes out of the same run. The steady state, where nodes are full twice as often, stands beside it.

use fdn_core::Millis;
use rayon::prelude::*;

use super::{Context, Effort, Experiment};
use crate::Error;
use crate::report::{Axis, Bound, Cell, Gate, Outcome, Plot, Series, Shape, Table};
use crate::scaling::{self, Scheduler, Setup, full_share, simulate, sustainable};

/// The experiment.
#[derive(Clone, Copy, Debug)]
pub(super) struct E3;

/// A run of a busy cluster, from its steady state on.
pub(super) fn steady(effort: Effort, scheduler: Scheduler, utilization: f64) -> Setup {
    Setup {
        scheduler,
        utilization,
        tasks: match effort {
            Effort::Quick => 30_000,
            Effort::Full => 300_000,
        },
        ..Setup::default()
    }
}

/// A run of six mean lifetimes of a cluster that is empty at first and fills up, as the published figures were measured on. Its
/// first half is not counted.
pub(super) fn filling(scheduler: Scheduler, utilization: f64) -> Setup {
    let setup = Setup {
        scheduler,
        utilization,
        warm_up: 0.5,
        from_empty: true,
        ..Setup::default()
    };
    Setup {
        // One lifetime sees as many tasks as there are busy slots.
        tasks: (LIFETIMES * utilization * setup.slots_in_all()) as u64,
        ..setup
    }
}

/// How long the published runs took.
const LIFETIMES: f64 = 6.0;

/// For the bisection of rates: shorter, since dozens are needed.
pub(super) fn steady_short(scheduler: Scheduler, utilization: f64) -> Setup {
    Setup {
        tasks: 120_000,
        warm_up: 0.3,
        ..steady(Effort::Full, scheduler, utilization)
    }
}

const RATES: (f64, f64) = (5_000.0, 3_000_000.0);

/// Published: utilization, share without room on arrival, share that reaches the global scheduler.
const SHARES: [(f64, f64, f64); 4] = [
    (0.8, 0.050, 0.0005),
    (0.9, 0.110, 0.0075),
    (0.95, 0.175, 0.029),
    (0.98, 0.265, 0.085),
];

/// Published: p99 in ms at 100 000/s and utilization 0.9, 0.95, 0.98.
const P99: [(Scheduler, [Option<f64>; 3]); 5] = [
    (
        Scheduler::LocalProbeGlobal,
        [Some(1.31), Some(1.31), Some(1.93)],
    ),
    (Scheduler::BottomUp, [Some(0.83), Some(1.05), Some(9.4)]),
    (Scheduler::ReProbing, [Some(1.54), Some(2.06), Some(3.62)]),
    (Scheduler::LateBinding, [Some(7.3), Some(11.2), Some(15.5)]),
    (Scheduler::Central, [None, None, None]),
];

/// Published: the rates sustained with p99 within 5 ms.
const SUSTAINED: [(f64, f64, f64); 3] = [
    (0.9, 942_000.0, 242_000.0),
    (0.95, 417_000.0, 133_000.0),
    (0.98, 166_000.0, 77_000.0),
];

impl Experiment for E3 {
    fn name(&self) -> &'static str {
        "e3"
    }

    fn title(&self) -> &'static str {
        "instances: local check, probe of two, global stage"
    }

    fn needs_data(&self) -> bool {
        false
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome, Error> {
        let mut outcome = Outcome {
            conditions: "500 nodes of 20 unit slots, exponential lifetimes L = U·N·S/λ, 0.25 ms one way, 10 µs per message at a \
                node, 25 µs per decision of the global scheduler. Steady: 300 000 tasks (120 000 per step of a bisection) on a cluster \
                that is busy at first, the first 20 % (30 %) not counted. Filling: six mean lifetimes of a cluster that is empty at first; the \
                first half is not counted, except for shares. Latency from the task's arrival, one message away from its node."
                .to_owned(),
            ..Outcome::default()
        };
        shares(context, &mut outcome)?;
        latencies(context, &mut outcome)?;
        heads(context, &mut outcome)?;
        if context.effort == Effort::Full {
            rates(context, &mut outcome)?;
            curves(context, &mut outcome)?;
        }
        outcome.notes.push(NOTES.to_owned());
        Ok(outcome)
    }
}

const NOTES: &str = "The published shares are those of six mean lifetimes from an empty cluster, and its share without room is that of \
    bottom-up, where what overflows goes to the emptiest nodes and keeps them from filling. In the steady state of two probes nodes are full as \
    often as Erlang's formula says, about twice as often. At U = 0.98 the steady number of instances exceeds all 10 000 slots now and then \
    (mean 9800, deviation 99), so tasks wait for room whoever decides. More than 100 000 placements per second over real processes are not \
    measured here.";

fn simulate_all(
    context: &Context<'_>,
    what: &str,
    setups: &[Setup],
) -> Result<Vec<scaling::Outcome>, Error> {
    let part = context.progress.begin(what, setups.len() as u64);
    setups
        .par_iter()
        .map(|setup| {
            let outcome = simulate(&match context.effort {
                Effort::Full => *setup,
                Effort::Quick => Setup {
                    tasks: setup.tasks.min(20_000),
                    ..*setup
                },
            });
            part.advance(1);
            outcome
        })
        .collect()
}

fn shares(context: &Context<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    const SEEDS: u64 = 3;
    let two = Scheduler::LocalProbeGlobal;
    let from_empty = |scheduler, u, n| {
        let setup = filling(scheduler, u);
        Setup {
            warm_up: 0.0,
            seed: setup.seed.nth(n),
            ..setup
        }
    };
    let setups: Vec<Setup> = SHARES
        .iter()
        .flat_map(|&(u, ..)| {
            let filling = [two, Scheduler::BottomUp].into_iter();
            let filling = filling.flat_map(move |s| (0..SEEDS).map(move |n| from_empty(s, u, n)));
            [steady(context.effort, two, u)].into_iter().chain(filling)
        })
        .collect();
    let found = simulate_all(context, "e3: shares", &setups)?;
    let mut table = Table::new(
        "Share of tasks by stage at 100 000/s; filling: mean of 3 seeds, all tasks counted",
        &[
            "utilization",
            "no room, two probes, steady",
            "by Erlang's formula",
            "no room, bottom-up, filling",
            "published",
            "reaches global, two probes, steady",
            "filling",
            "published",
        ],
    );
    let mean = |runs: &[scaling::Outcome]| {
        runs.iter().map(|run| run.reached_global).sum::<f64>() / runs.len() as f64
    };
    let runs = found.chunks(1 + 2 * SEEDS as usize);
    for (&(u, local, global), found) in SHARES.iter().zip(runs) {
        let [steady, filling @ ..] = found else {
            return Err(Error::Broken("a run is missing".to_owned()));
        };
        let (probes, bottom_up) = filling.split_at(SEEDS as usize);
        let (probes, bottom_up) = (mean(probes), mean(bottom_up));
        let expected = full_share(20, u);
        table.row([
            Cell::Number(u, 2),
            Cell::Number(steady.local_failed, 4),
            Cell::Number(expected, 4),
            Cell::Number(bottom_up, 4),
            Cell::Number(local, 4),
            Cell::Number(steady.reached_global, 4),
            Cell::Number(probes, 4),
            Cell::Number(global, 4),
        ]);
        let mut gate = |what: String, found, of: f64| {
            let bound = Bound::Within { of, by: of * 0.1 };
            outcome.gates.push(Gate::new(what, found, bound));
        };
        if u < 0.98 {
            let what = format!("no room on arrival at U {u}, steady, against Erlang's formula");
            gate(what, steady.local_failed, expected);
        }
        gate(
            format!("no room on arrival at U {u}, published"),
            bottom_up,
            local,
        );
        gate(
            format!("reaches global at U {u}, published"),
            probes,
            global,
        );
    }
    outcome.tables.push(table);
    Ok(())
}

/// The global scheduler is lost three times; nodes notice after forty delays.
fn heads(context: &Context<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let schedulers = [
        Scheduler::LocalProbeGlobal,
        Scheduler::BottomUp,
        Scheduler::Hints,
    ];
    let setups: Vec<Setup> = schedulers
        .iter()
        .flat_map(|&scheduler| {
            [0, 3].map(|lost_heads| Setup {
                lost_heads,
                ..steady_short(scheduler, 0.95)
            })
        })
        .collect();
    let found = simulate_all(context, "e3: loss of the global scheduler", &setups)?;
    let mut table = Table::new(
        "Loss of the global scheduler, utilization 0.95, 100 000/s, steady",
        &[
            "scheduler",
            "times lost",
            "p99 ms",
            "max ms",
            "placed",
            "refused",
            "waiting",
        ],
    );
    for (setup, found) in setups.iter().zip(&found) {
        table.row([
            Cell::from(name(setup.scheduler)),
            Cell::Number(f64::from(setup.lost_heads), 0),
            Cell::Number(found.latency.p99_ms, 2),
            Cell::Number(found.latency.max_ms, 2),
            Cell::Number(found.placed as f64, 0),
            Cell::Number(found.refused as f64, 0),
            Cell::Number(found.waiting as f64, 0),
        ]);
        if setup.lost_heads > 0 {
            let what = format!(
                "not placed after losses of the global scheduler, {}",
                name(setup.scheduler)
            );
            let missing = (found.refused + found.waiting) as f64;
            outcome
                .gates
                .push(Gate::new(what, missing, Bound::AtMost(0.0)));
        }
    }
    outcome.tables.push(table);
    Ok(())
}

fn latencies(context: &Context<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    const LOADS: [f64; 3] = [0.9, 0.95, 0.98];
    let setups: Vec<Setup> = P99
        .iter()
        .flat_map(|&(scheduler, _)| LOADS.map(|u| (scheduler, u)))
        .flat_map(|(scheduler, u)| [steady(context.effort, scheduler, u), filling(scheduler, u)])
        .collect();
    let found = simulate_all(context, "e3: p99 at 100 000/s", &setups)?;
    let mut table = Table::new(
        "p99 in ms at 100 000/s",
        &[
            "scheduler",
            "utilization",
            "steady",
            "filling",
            "published",
            "messages per task, steady",
            "sustained, steady",
        ],
    );
    let mut rows = found.chunks(2);
    for (_, published) in P99 {
        for (u, published) in LOADS.into_iter().zip(published) {
            let Some([long, short]) = rows.next() else {
                return Err(Error::Broken("a run is missing".to_owned()));
            };
            table.row([
                Cell::from(name(long.scheduler)),
                Cell::Number(u, 2),
                Cell::Number(long.latency.p99_ms, 2),
                Cell::Number(short.latency.p99_ms, 2),
                published.map_or(Cell::Empty, |p99| Cell::Number(p99, 2)),
                Cell::Number(long.messages_per_task, 2),
                Cell::from(if long.sustained { "yes" } else { "no" }),
            ]);
            if long.scheduler == Scheduler::LocalProbeGlobal && u == 0.95 {
                outcome.gates.push(Gate::new(
                    "p99 in ms at 100 000/s, U 0.95, steady",
                    long.latency.p99_ms,
                    Bound::AtMost(2.0),
                ));
            }
        }
    }
    outcome.tables.push(table);
    Ok(())
}

/// As the command line has it.
pub(super) const fn name(scheduler: Scheduler) -> &'static str {
    match scheduler {
        Scheduler::LocalProbeGlobal => "local-probe-global",
        Scheduler::Hints => "hints",
        Scheduler::BottomUp => "bottom-up",
        Scheduler::ReProbing => "re-probing",
        Scheduler::LateBinding => "late-binding",
        Scheduler::Central => "central",
        Scheduler::Optimistic => "optimistic",
    }
}

/// A row of the table of rates: what is compared and which published figures belong to it.
struct Rates {
    utilization: f64,
    far: bool,
    schedulers: &'static [Scheduler],
    published: [Option<f64>; 4],
}

fn rates(context: &Context<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    const NEAR: &[Scheduler] = &[
        Scheduler::LocalProbeGlobal,
        Scheduler::BottomUp,
        Scheduler::Central,
    ];
    const FAR: &[Scheduler] = &[
        Scheduler::LocalProbeGlobal,
        Scheduler::BottomUp,
        Scheduler::ReProbing,
    ];
    let near = SUSTAINED.map(|(utilization, two, one)| Rates {
        utilization,
        far: false,
        schedulers: NEAR,
        published: [Some(two), Some(one), Some(40_000.0), None],
    });
    let far = Rates {
        utilization: 0.95,
        far: true,
        schedulers: FAR,
        published: [Some(250_000.0), Some(138_000.0), None, Some(51_500.0)],
    };
    let part = context.progress.begin("e3: sustained rates", 24);
    let mut table = Table::new(
        "Rates sustained, tasks per second (median of 3 seeds)",
        &[
            "delay ms, limit ms",
            "utilization",
            "scheduler",
            "steady",
            "filling",
            "published",
        ],
    );
    for row in near.iter().chain([&far]) {
        let mut found = Vec::new();
        for &scheduler in row.schedulers {
            let both = [
                steady_short(scheduler, row.utilization),
                filling(scheduler, row.utilization),
            ];
            let mut rates = [0.0; 2];
            for (rate, setup) in rates.iter_mut().zip(both) {
                *rate = sustainable(&moved(setup, row.far), RATES, 3)?;
                part.advance(1);
            }
            found.push(rates);
            let published = match scheduler {
                Scheduler::LocalProbeGlobal => row.published[0],
                Scheduler::BottomUp => row.published[1],
                Scheduler::Central => row.published[2],
                Scheduler::ReProbing => row.published[3],
                Scheduler::Hints | Scheduler::LateBinding | Scheduler::Optimistic => None,
            };
            table.row([
                Cell::from(if row.far { "1, 10" } else { "0.25, 5" }),
                Cell::Number(row.utilization, 2),
                Cell::from(name(scheduler)),
                Cell::Number(rates[0], 0),
                Cell::Number(rates[1], 0),
                published.map_or(Cell::Empty, |rate| Cell::Number(rate, 0)),
            ]);
        }
        rate_gates(row, &found, outcome);
    }
    outcome.tables.push(table);
    Ok(())
}

fn moved(setup: Setup, far: bool) -> Setup {
    if far {
        Setup {
            delay: Millis::new(1.0),
            limit: Millis::new(10.0),
            ..setup
        }
    } else {
        setup
    }
}

fn rate_gates(row: &Rates, found: &[[f64; 2]], outcome: &mut Outcome) {
    for (state, condition) in ["steady", "filling"].into_iter().enumerate() {
        let ratio = |other: usize| found[0][state] / found[other][state];
        let gate = if row.far {
            let what = format!("sustained rate over re-probing, 1 ms, U 0.95, {condition}");
            Gate::new(what, ratio(2), Bound::AtLeast(2.6))
        } else {
            let what = format!(
                "sustained rate over bottom-up, U {}, {condition}",
                row.utilization
            );
            Gate::new(what, ratio(1), Bound::AtLeast(2.0))
        };
        outcome.gates.push(gate);
    }
}

fn curves(context: &Context<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    const RATES: [f64; 10] = [1e4, 2e4, 3.5e4, 5e4, 7.5e4, 1e5, 1.5e5, 2.5e5, 4e5, 8e5];
    let schedulers: Vec<Scheduler> = P99.iter().map(|(scheduler, _)| *scheduler).collect();
    outcome.plots.push(curve(
        context,
        (
            "e3-p99",
            "p99 by rate, utilization 0.95, 500 nodes of 20 slots",
        ),
        &schedulers,
        &RATES,
    )?);
    Ok(())
}

/// p99 by rate for some schedulers at utilization 0.95.
pub(super) fn curve(
    context: &Context<'_>,
    (file, title): (&str, &str),
    schedulers: &[Scheduler],
    rates: &[f64],
) -> Result<Plot, Error> {
    let setups: Vec<Setup> = schedulers
        .iter()
        .flat_map(|&scheduler| {
            rates.iter().map(move |&rate_per_s| Setup {
                rate_per_s,
                ..steady_short(scheduler, 0.95)
            })
        })
        .collect();
    let found = simulate_all(context, &format!("{file}: curves"), &setups)?;
    let series = schedulers.iter().zip(found.chunks(rates.len()));
    Ok(Plot {
        name: file.to_owned(),
        title: title.to_owned(),
        x: Axis::log("tasks per second"),
        y: Axis::log("p99 ms"),
        series: series
            .map(|(&scheduler, found)| Series {
                name: name(scheduler).to_owned(),
                points: found
                    .iter()
                    .map(|found| (found.rate_per_s, found.latency.p99_ms))
                    .collect(),
                shape: Shape::Line,
            })
            .collect(),
    })
}
