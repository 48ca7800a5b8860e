//! How far from the best the heuristics are: small jobs beside the proven optimum, larger ones beside Heu-Orche and a lower bound.

use fdn_core::Millis;
use fdn_scheduling::checker::check;
use fdn_scheduling::place::{
    Best, Budget, Detail, Exact, Heft, HeuOrche, Options, Placer, Plan, Policy, Portfolio, Problem,
};
use rayon::prelude::*;

use super::{Context, Effort, Experiment};
use crate::Error;
use crate::generate::{Sites, World};
use crate::place::{NetworkModel, REFERENCE, Workflow, run};
use crate::report::{Axis, Bound, Cell, Gate, Outcome, Plot, Series, Shape, Table, mean};
use crate::seed::Seed;

/// Jobs of each setting.
const SEEDS: u64 = 30;
const QUICK_SEEDS: u64 = 2;

/// Steps of a refinement.
const STEPS: u64 = 3_000;

/// The published figures: tasks, and the mean of Heu-Orche's latency over the optimum at CCR 1.
const SMALL: [(usize, f64); 3] = [(8, 1.09), (10, 1.11), (12, 1.11)];
const CCRS: [f64; 2] = [1.0, 5.0];

/// The most nodes that were published for jobs of 12 tasks.
const NODES: f64 = 440_000.0;

/// Steps at which the way of a refinement is shown.
const WAY: [u64; 7] = [0, 30, 100, 300, 1_000, 3_000, 10_000];

/// The experiment.
#[derive(Debug)]
pub(super) struct Optimum;

impl Experiment for Optimum {
    fn name(&self) -> &'static str {
        "optimum"
    }

    fn title(&self) -> &'static str {
        "heuristics and refinement beside the proven optimum, and beside Heu-Orche on larger jobs"
    }

    fn needs_data(&self) -> bool {
        false
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome, Error> {
        let small = small(context)?;
        let large = large(context)?;
        let mut outcome = Outcome {
            conditions: format!(
                "Random jobs of the experiments' family on three clusters with speeds of 1 to 5, {} of each setting. Up to 12 tasks: \
                 one slot each; larger: four. The user is as near to all. Refinement: {STEPS} steps. The optimum is proven by \
                 branch and bound. Nothing here depends on the machine.",
                seeds(context)
            ),
            ..Outcome::default()
        };
        outcome.tables.push(small_table(&small));
        outcome.tables.push(large_table(&large));
        outcome.gates = small_gates(&small);
        outcome.gates.extend(large_gates(&large));
        outcome.plots = vec![small_plot(&small), way_plot(context)?];
        if context.data.is_some() {
            let rows = workflows(context)?;
            outcome.tables.push(workflows_table(&rows));
            outcome.gates.extend(workflows_gates(&rows));
        } else {
            let note = "Recorded workflows are left out: there are no recorded traces.";
            outcome.notes.push(note.to_owned());
        }
        Ok(outcome)
    }
}

fn seeds(context: &Context<'_>) -> u64 {
    match context.effort {
        Effort::Quick => QUICK_SEEDS,
        Effort::Full => SEEDS,
    }
}

/// What the search made of one job.
struct Small {
    /// Latency over the optimum: Heu-Orche, insertion, portfolio, refinement.
    ratios: [f64; 4],
    nodes: u64,
    proven: bool,
}

const COMPARED: [&str; 4] = ["heu-orche", "heft", "portfolio", "refined"];

/// The jobs of one setting.
struct SmallSetting {
    tasks: usize,
    ccr: f64,
    published: Option<f64>,
    jobs: Vec<Small>,
}

impl SmallSetting {
    fn ratio(&self, which: usize) -> f64 {
        mean(
            &self
                .jobs
                .iter()
                .map(|job| job.ratios[which])
                .collect::<Vec<_>>(),
        )
    }

    fn worst(&self, which: usize) -> f64 {
        self.jobs
            .iter()
            .map(|job| job.ratios[which])
            .fold(0.0, f64::max)
    }

    fn nodes(&self) -> (f64, f64) {
        let nodes: Vec<f64> = self.jobs.iter().map(|job| job.nodes as f64).collect();
        (mean(&nodes), nodes.iter().copied().fold(0.0, f64::max))
    }
}

fn small(context: &Context<'_>) -> Result<Vec<SmallSetting>, Error> {
    let count = SMALL.len() as u64 * CCRS.len() as u64 * seeds(context);
    let part = context.progress.begin("optimum: small jobs", count);
    let mut settings = Vec::new();
    for ccr in CCRS {
        for (tasks, published) in SMALL {
            let jobs = (0..seeds(context)).into_par_iter().map(|n| {
                let job = small_job(tasks, ccr, Seed(1).nth(n));
                part.advance(1);
                job
            });
            settings.push(SmallSetting {
                tasks,
                ccr,
                published: (ccr == 1.0).then_some(published),
                jobs: jobs.collect::<Result<_, _>>()?,
            });
        }
    }
    Ok(settings)
}

/// Clusters that are all at the user's side.
fn near(slots: usize) -> Sites {
    Sites {
        slots,
        distance: Millis::ZERO,
        ..Sites::default()
    }
}

fn small_job(tasks: usize, ccr: f64, seed: Seed) -> Result<Small, Error> {
    let world = World::draw(tasks, ccr, &near(1), seed)?;
    let problem = world.problem(Options::default());
    let optimum = Exact::default()
        .solve(&problem)
        .map_err(|error| Error::Infeasible(error.to_string()))?;
    let best = checked(&problem, &optimum.plan)?;
    let mut placers: [Box<dyn Placer>; 4] = [
        Box::new(HeuOrche::default()),
        Box::new(Heft::default()),
        Box::new(Portfolio::default()),
        Box::new(Best::new(STEPS, seed.0)),
    ];
    let mut ratios = [0.0; 4];
    for (ratio, placer) in ratios.iter_mut().zip(&mut placers) {
        *ratio = latency(&problem, placer.as_mut())? / best;
    }
    Ok(Small {
        ratios,
        nodes: optimum.nodes,
        proven: optimum.proven,
    })
}

/// A plan's latency in ms, if it keeps every rule.
fn checked(problem: &Problem<'_>, plan: &Plan) -> Result<f64, Error> {
    match check(problem, plan) {
        Ok(()) => Ok(plan.latency().get()),
        Err(broken) => Err(Error::Broken(broken[0].to_string())),
    }
}

fn latency(problem: &Problem<'_>, placer: &mut dyn Placer) -> Result<f64, Error> {
    let planned = placer
        .place(problem, Detail::Nothing)
        .map_err(|refused| Error::Infeasible(refused.to_string()))?;
    checked(problem, &planned.plan)
}

fn small_table(settings: &[SmallSetting]) -> Table {
    let mut table = Table::new(
        "Latency over the optimum: means, worst of Heu-Orche, nodes of the search",
        &[
            "CCR",
            "tasks",
            "heu-orche",
            "published",
            "worst",
            "heft",
            "portfolio",
            "refined",
            "nodes_mean",
            "nodes_max",
        ],
    );
    for setting in settings {
        let ratio = |which| Cell::Number(setting.ratio(which), 3);
        let (mean, most) = setting.nodes();
        table.row([
            Cell::Number(setting.ccr, 0),
            Cell::from(setting.tasks),
            ratio(0),
            setting
                .published
                .map_or(Cell::Empty, |of| Cell::Number(of, 2)),
            Cell::Number(setting.worst(0), 3),
            ratio(1),
            ratio(2),
            ratio(3),
            Cell::Number(mean, 0),
            Cell::Number(most, 0),
        ]);
    }
    let text = |text: &str| Cell::from(text);
    table.row([
        text("published"),
        Cell::Empty,
        text("CCR 1: 1.09-1.11"),
        Cell::Empty,
        text("1.27, CCR 5: 1.49"),
        text("1.085-1.12"),
        text("1.03-1.07"),
        text("1.01-1.03"),
        Cell::Empty,
        text("<= 440000"),
    ]);
    table
}

fn small_gates(settings: &[SmallSetting]) -> Vec<Gate> {
    let mut gates = Vec::new();
    for setting in settings {
        let name = format!("{} tasks, CCR {}", setting.tasks, setting.ccr);
        if let Some(of) = setting.published {
            let what = format!("{name}: Heu-Orche / optimum");
            gates.push(Gate::new(
                what,
                setting.ratio(0),
                Bound::Within { of, by: 0.05 },
            ));
            let what = format!("{name}: portfolio / optimum");
            gates.push(Gate::new(what, setting.ratio(2), Bound::AtMost(1.07)));
        }
        let what = format!("{name}: refined / optimum");
        gates.push(Gate::new(what, setting.ratio(3), Bound::AtMost(1.03)));
    }
    let most = settings.iter().map(|setting| setting.nodes().1);
    let most = most.fold(0.0, f64::max);
    gates.push(Gate::new(
        "nodes of the search, most",
        most,
        Bound::AtMost(NODES),
    ));
    let jobs = || settings.iter().flat_map(|setting| &setting.jobs);
    let proven = jobs().filter(|job| job.proven).count() as f64 / jobs().count() as f64;
    gates.push(Gate::new(
        "share of optima proven",
        proven,
        Bound::AtLeast(1.0),
    ));
    gates
}

fn small_plot(settings: &[SmallSetting]) -> Plot {
    let series = CCRS.iter().flat_map(|ccr| {
        COMPARED
            .iter()
            .enumerate()
            .map(move |(which, name)| Series {
                name: format!("{name}, CCR {ccr}"),
                points: settings
                    .iter()
                    .filter(|setting| setting.ccr == *ccr)
                    .map(|setting| (setting.tasks as f64, setting.ratio(which)))
                    .collect(),
                shape: Shape::Line,
            })
    });
    Plot {
        name: "optimum-small".to_owned(),
        title: "Latency over the proven optimum".to_owned(),
        x: Axis::log("tasks"),
        y: Axis::log("latency / optimum"),
        series: series.collect(),
    }
}

/// Larger jobs, and what one policy makes of them beside Heu-Orche.
struct Large {
    tasks: usize,
    ccr: f64,
    policy: &'static str,
    /// The published range, if there is one.
    published: Option<(f64, f64)>,
    ratios: Vec<f64>,
}

fn large(context: &Context<'_>) -> Result<Vec<Large>, Error> {
    let settings = [
        (100, 1.0, Policy::Heft, None),
        (100, 1.0, Policy::Best, Some((0.95, 0.97))),
        (100, 5.0, Policy::Best, Some((0.88, 0.88))),
        (1_000, 1.0, Policy::Heft, Some((0.91, 0.96))),
    ];
    let count = settings.len() as u64 * seeds(context);
    let part = context.progress.begin("optimum: larger jobs", count);
    settings
        .into_iter()
        .map(|(tasks, ccr, policy, published)| {
            let ratio = |n| {
                let world = World::draw(tasks, ccr, &near(4), Seed(2).nth(n))?;
                let ratio = beside_heu_orche(&world, policy, STEPS, n);
                part.advance(1);
                ratio
            };
            let ratios = (0..seeds(context)).into_par_iter().map(ratio);
            Ok(Large {
                tasks,
                ccr,
                policy: policy.name(),
                published,
                ratios: ratios.collect::<Result<_, Error>>()?,
            })
        })
        .collect()
}

fn beside_heu_orche(world: &World, policy: Policy, steps: u64, seed: u64) -> Result<f64, Error> {
    let problem = world.problem(Options::default());
    let base = latency(&problem, &mut HeuOrche::default())?;
    let budget = Budget {
        steps,
        seed,
        ..Budget::default()
    };
    Ok(latency(&problem, policy.placer(budget).as_mut())? / base)
}

fn large_table(settings: &[Large]) -> Table {
    let mut table = Table::new(
        "Larger jobs: latency relative to Heu-Orche, means",
        &["tasks", "CCR", "policy", "relative", "published"],
    );
    for setting in settings {
        let published = setting.published.map_or(Cell::Empty, |(least, most)| {
            Cell::from(if least == most {
                format!("{least}")
            } else {
                format!("{least}-{most}")
            })
        });
        table.row([
            Cell::from(setting.tasks),
            Cell::Number(setting.ccr, 0),
            Cell::from(setting.policy),
            Cell::Number(mean(&setting.ratios), 3),
            published,
        ]);
    }
    table
}

/// As far below Heu-Orche as published, or farther.
fn large_gates(settings: &[Large]) -> Vec<Gate> {
    let gate = |setting: &Large| {
        let Large {
            tasks, ccr, policy, ..
        } = setting;
        let what = format!("{tasks} tasks, CCR {ccr}: {policy} / Heu-Orche");
        let most = setting.published?.1 + 0.01;
        Some(Gate::new(what, mean(&setting.ratios), Bound::AtMost(most)))
    };
    settings.iter().filter_map(gate).collect()
}

/// How the refinement nears its end with the steps that it may make.
fn way_plot(context: &Context<'_>) -> Result<Plot, Error> {
    let part = context
        .progress
        .begin("optimum: steps", (CCRS.len() * WAY.len()) as u64);
    let jobs = seeds(context).min(10);
    let mut series = Vec::new();
    for ccr in CCRS {
        let mut points = Vec::new();
        for steps in WAY {
            let ratio = |n| {
                let world = World::draw(100, ccr, &near(4), Seed(2).nth(n))?;
                beside_heu_orche(&world, Policy::Best, steps, n)
            };
            let ratios: Vec<f64> = (0..jobs)
                .into_par_iter()
                .map(ratio)
                .collect::<Result<_, _>>()?;
            // A logarithmic axis has no 0.
            points.push((steps.max(10) as f64, mean(&ratios)));
            part.advance(1);
        }
        series.push(Series {
            name: format!("CCR {ccr}"),
            points,
            shape: Shape::Line,
        });
    }
    Ok(Plot {
        name: "optimum-steps".to_owned(),
        title: "Refinement of 100 tasks (10: no step)".to_owned(),
        x: Axis::log("steps"),
        y: Axis::linear("latency / Heu-Orche's"),
        series,
    })
}

/// One recorded workflow on edge5, relative to Heu-Orche.
struct Recorded {
    name: &'static str,
    tasks: usize,
    refined: f64,
    bound: f64,
}

fn workflows(context: &Context<'_>) -> Result<Vec<Recorded>, Error> {
    let instances = match context.effort {
        Effort::Quick => &REFERENCE[..4],
        Effort::Full => &REFERENCE[..],
    };
    let part = context
        .progress
        .begin("optimum: workflows", instances.len() as u64);
    let network = NetworkModel::edge5();
    let place = |instance: &'static crate::place::Reference| {
        let path = context.data(&format!("workflows/{}.json.gz", instance.name))?;
        let workflow = Workflow::read(&path)?;
        let place = |policy| run(&workflow, &network, None, policy, Budget::default());
        let (base, refined) = (place(Policy::HeuOrche)?, place(Policy::Best)?);
        part.advance(1);
        let relative = |time: Millis| time.get() / base.plan.latency().get();
        Ok(Recorded {
            name: instance.name,
            tasks: workflow.dag().given(),
            refined: relative(refined.plan.latency()),
            bound: relative(refined.lower_bound),
        })
    };
    instances.par_iter().map(place).collect()
}

fn geometric(rows: &[Recorded], value: impl Fn(&Recorded) -> f64) -> f64 {
    let logarithms: Vec<f64> = rows.iter().map(|row| value(row).ln()).collect();
    mean(&logarithms).exp()
}

fn workflows_table(rows: &[Recorded]) -> Table {
    let mut table = Table::new(
        "Recorded workflows on edge5: makespan relative to Heu-Orche",
        &["workflow", "tasks", "refined", "lower_bound"],
    );
    for row in rows {
        table.row([
            Cell::from(row.name),
            Cell::from(row.tasks),
            Cell::Number(row.refined, 3),
            Cell::Number(row.bound, 3),
        ]);
    }
    table.row([
        Cell::from("geometric mean"),
        Cell::Empty,
        Cell::Number(geometric(rows, |row| row.refined), 3),
        Cell::Number(geometric(rows, |row| row.bound), 3),
    ]);
    table.row([
        Cell::from("published"),
        Cell::Empty,
        Cell::Number(0.988, 3),
        Cell::Number(0.90, 3),
    ]);
    table
}

fn workflows_gates(rows: &[Recorded]) -> Vec<Gate> {
    vec![
        Gate::new(
            "edge5: refined / Heu-Orche, geometric mean",
            geometric(rows, |row| row.refined),
            Bound::Within {
                of: 0.988,
                by: 0.01,
            },
        ),
        Gate::new(
            "edge5: lower bound / Heu-Orche, geometric mean",
            geometric(rows, |row| row.bound),
            Bound::Within { of: 0.90, by: 0.05 },
        ),
    ]
}
