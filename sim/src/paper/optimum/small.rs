//! Small jobs beside the proven optimum.

use fdn_scheduling::place::{Best, Exact, Heft, HeuOrche, Options, Placer, Portfolio};
use rayon::prelude::*;

use super::super::Context;
use super::{CCRS, STEPS, checked, latency, near, seeds};
use crate::Error;
use crate::generate::World;
use crate::report::{Axis, Bound, Cell, Gate, Plot, Series, Shape, Table, mean};
use crate::seed::Seed;

/// The published figures: tasks, and the mean of Heu-Orche's latency over the optimum at CCR 1.
const SMALL: [(usize, f64); 3] = [(8, 1.09), (10, 1.11), (12, 1.11)];

/// The most nodes that were published for jobs of 12 tasks.
const NODES: f64 = 440_000.0;

/// What the search made of one job.
struct Small {
    /// Latency over the optimum: Heu-Orche, insertion, portfolio, refinement.
    ratios: [f64; 4],
    nodes: u64,
    proven: bool,
}

const COMPARED: [&str; 4] = ["heu-orche", "heft", "portfolio", "refined"];

/// The jobs of one setting.
pub(super) struct Setting {
    tasks: usize,
    ccr: f64,
    published: Option<f64>,
    jobs: Vec<Small>,
}

impl Setting {
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

pub(super) fn measure(context: &Context<'_>) -> Result<Vec<Setting>, Error> {
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
            settings.push(Setting {
                tasks,
                ccr,
                published: (ccr == 1.0).then_some(published),
                jobs: jobs.collect::<Result<_, _>>()?,
            });
        }
    }
    Ok(settings)
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

pub(super) fn table(settings: &[Setting]) -> Table {
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

pub(super) fn gates(settings: &[Setting]) -> Vec<Gate> {
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

pub(super) fn plot(settings: &[Setting]) -> Plot {
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
