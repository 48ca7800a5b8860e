//! Larger jobs beside Heu-Orche, and how the refinement gets there.

use fdn_scheduling::place::{HeuOrche, Options};
use fdn_scheduling::policy::{Budget, Policy};
use rayon::prelude::*;

use super::super::Context;
use super::{CCRS, STEPS, latency, near, seeds};
use crate::Error;
use crate::generate::World;
use crate::report::{Axis, Bound, Cell, Gate, Plot, Series, Shape, Table, mean};
use crate::seed::Seed;

/// Steps at which the way of a refinement is shown.
const WAY: [u64; 7] = [0, 30, 100, 300, 1_000, 3_000, 10_000];

/// Larger jobs, and what one policy makes of them beside Heu-Orche.
pub(super) struct Large {
    tasks: usize,
    ccr: f64,
    policy: &'static str,
    /// The published range, if there is one.
    published: Option<(f64, f64)>,
    ratios: Vec<f64>,
}

pub(super) fn measure(context: &Context<'_>) -> Result<Vec<Large>, Error> {
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

pub(super) fn table(settings: &[Large]) -> Table {
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
pub(super) fn gates(settings: &[Large]) -> Vec<Gate> {
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
pub(super) fn way(context: &Context<'_>) -> Result<Plot, Error> {
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
