//! Online: jobs of many users, arriving at random, served by plans and by late binding.

use fdn_core::Millis;
use fdn_scheduling::online::{Delivery, Order, Settings, Starvation};
use fdn_scheduling::place::{ClusterIndex, Hold, Network};
use rayon::prelude::*;

use super::{Context, Effort, Experiment};
use crate::Error;
use crate::generate::Sites;
use crate::online::planned::{self, Planner};
use crate::online::{self, Change, Conditions, Mix, Scenario, Schedule, check, poisson};
use crate::report::{Axis, Bound, Cell, Gate, Outcome, Plot, Series, Summary, Table, mean};
use crate::seed::Seed;

/// The experiment.
#[derive(Debug)]
pub(super) struct Online;

const SEED: Seed = Seed(7);

/// After how long a job may go first, in ms, and for which shares of the work.
const AFTER: f64 = 500.0;
const SHARES: [f64; 2] = [0.1, 0.25];

/// How often jobs arrive and on what they run, with the published means relative to Heu-Orche: insertion, late binding in order
/// of entry, least work first.
#[derive(Clone, Copy, Debug)]
struct Setting {
    load: f64,
    clusters: usize,
    slots: usize,
    published: [Option<f64>; 3],
}

const fn setting(load: f64, clusters: usize, slots: usize, published: [f64; 3]) -> Setting {
    let [insertion, fifo, least] = published;
    Setting {
        load,
        clusters,
        slots,
        published: [Some(insertion), Some(fifo), Some(least)],
    }
}

const SETTINGS: [Setting; 6] = [
    setting(0.7, 3, 8, [0.33, 0.32, 0.27]),
    setting(0.9, 3, 8, [0.26, 0.18, 0.13]),
    setting(0.9, 5, 8, [0.31, 0.23, 0.16]),
    setting(0.7, 3, 32, [0.40, 0.30, 0.28]),
    Setting {
        load: 0.9,
        clusters: 3,
        slots: 32,
        published: [None; 3],
    },
    setting(f64::INFINITY, 3, 8, [0.74, 0.95, 0.44]),
];

impl Setting {
    fn name(&self) -> String {
        let load = if self.load.is_finite() {
            format!("load {}", self.load)
        } else {
            "all at once".to_owned()
        };
        format!("{load}, {} clusters, k = {}", self.clusters, self.slots)
    }

    fn scenario(&self, jobs: usize, conditions: Conditions, seed: Seed) -> Result<Scenario, Error> {
        let sites = Sites {
            clusters: self.clusters,
            slots: self.slots,
            ..Sites::default()
        };
        let clusters = sites.draw(seed);
        let jobs = poisson(jobs, self.load, &Mix::default(), &sites, &clusters, seed)?;
        let network = Network::instant(clusters.len());
        Ok(Scenario::new(clusters, network, jobs, conditions, seed))
    }
}

/// How jobs are served.
#[derive(Clone, Copy, Debug)]
enum Way {
    Planned(Planner),
    Late(Settings),
}

/// A name, a way, and which published figure it goes with.
type Row = (String, Way, Option<usize>);

fn ways() -> Vec<Row> {
    let late = |order| {
        Way::Late(Settings {
            order,
            ..Settings::late_fifo()
        })
    };
    let row = |name: &str, way, published| (name.to_owned(), way, published);
    let mut rows = vec![
        row("Heu-Orche", Way::Planned(Planner::Append), None),
        row("insertion", Way::Planned(Planner::Insert), Some(0)),
        row("late, order of entry", late(Order::Arrival), Some(1)),
        row("late, order of jobs", late(Order::JobArrival), None),
        row(LEAST, late(Order::LeastWork), Some(2)),
    ];
    rows.extend(SHARES.map(|share| {
        let settings = Settings {
            starvation: Starvation::new(Millis::new(AFTER), share),
            ..Settings::late_least_work()
        };
        (bounded(share), Way::Late(settings), None)
    }));
    let pulled = Settings {
        delivery: Delivery::Pulled,
        ..Settings::late_least_work()
    };
    rows.push(row(
        "late, least work, data pulled",
        Way::Late(pulled),
        None,
    ));
    rows
}

const LEAST: &str = "late, least work";

fn bounded(share: f64) -> String {
    format!("late, least work, {:.0} % for the oldest", share * 100.0)
}

fn serve(scenario: &Scenario, way: Way) -> Result<Schedule, Error> {
    let schedule = match way {
        Way::Planned(planner) => planned::run(scenario, planner)?,
        Way::Late(settings) => online::run(scenario, settings)?,
    };
    check::check(scenario, &schedule, Hold::Job)?;
    Ok(schedule)
}

impl Experiment for Online {
    fn name(&self) -> &'static str {
        "online"
    }

    fn title(&self) -> &'static str {
        "jobs of many users: plans made at arrival against late binding"
    }

    fn needs_data(&self) -> bool {
        false
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome, Error> {
        let (seeds, jobs): (u64, usize) = match context.effort {
            Effort::Quick => (2, 25),
            Effort::Full => (30, 100),
        };
        let mut outcome = Outcome {
            conditions: format!(
                "{jobs} jobs of 30, 100 and 300 tasks (50, 40, 10 %), Poisson arrivals, CCR 1, speeds U[1,5], distance U[0,100) ms, {seeds} \
                 seeds; each job has a user of its own. Load is the share of all slots that the work keeps busy. Figures relative to \
                 Heu-Orche are means over the seeds of each seed's ratio. Every schedule was checked."
            ),
            ..Outcome::default()
        };
        for setting in &SETTINGS {
            let found = figures(context, setting, seeds, jobs)?;
            outcome.tables.push(table(setting, &found));
            if setting.load.is_finite() {
                outcome.gates.extend(gates(setting, &found));
            }
        }
        by_length(context, seeds, jobs, &mut outcome)?;
        with_losses(context, seeds, jobs, &mut outcome)?;
        outcome.notes.extend(NOTES.map(str::to_owned));
        Ok(outcome)
    }
}

const NOTES: [&str; 3] = [
    "Heu-Orche reserves slots for jobs that are not there yet and never uses what lies in between, so that it falls behind at loads far \
     below 1: the longer jobs keep arriving, the smaller the ratios.",
    "The published figures do not say how many jobs arrived, and for 32 slots not at which load.",
    "Data that is pulled leaves a parent's cluster when the child is bound; all other rows count it as sent when it is made.",
];

/// Mean and p99 of one seed's latencies, in ms.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    mean: f64,
    p99: f64,
}

fn of(schedule: &Schedule) -> Figures {
    let Summary { mean, p99, .. } = Summary::of(&mut schedule.latencies());
    Figures { mean, p99 }
}

/// By way, by seed.
fn figures(
    context: &Context<'_>,
    setting: &Setting,
    seeds: u64,
    jobs: usize,
) -> Result<Vec<Vec<Figures>>, Error> {
    let part = context
        .progress
        .begin(&format!("online: {}", setting.name()), seeds);
    let seed = |n: u64| {
        let scenario = setting.scenario(jobs, Conditions::default(), SEED.nth(n))?;
        let served = ways().into_iter().map(|(_, way, _)| serve(&scenario, way));
        let found: Result<Vec<Figures>, Error> =
            served.map(|schedule| Ok(of(&schedule?))).collect();
        part.advance(1);
        found
    };
    let all: Result<Vec<Vec<Figures>>, Error> = (0..seeds).into_par_iter().map(seed).collect();
    let all = all?;
    let way = |at: usize| all.iter().map(|found| found[at]).collect();
    Ok((0..ways().len()).map(way).collect())
}

/// The mean over the seeds of a figure's ratio.
fn ratio(found: &[Figures], base: &[Figures], figure: impl Fn(&Figures) -> f64) -> f64 {
    let pairs = found.iter().zip(base);
    mean(
        &pairs
            .map(|(a, b)| figure(a) / figure(b))
            .collect::<Vec<f64>>(),
    )
}

fn table(setting: &Setting, found: &[Vec<Figures>]) -> Table {
    let columns = [
        "way",
        "mean_ms",
        "p99_ms",
        "mean / Heu-Orche",
        "published",
        "p99 / Heu-Orche",
    ];
    let mut table = Table::new(setting.name(), &columns);
    for ((name, _, published), figures) in ways().iter().zip(found) {
        let average =
            |figure: fn(&Figures) -> f64| mean(&figures.iter().map(figure).collect::<Vec<f64>>());
        let published = published.and_then(|at| setting.published[at]);
        table.row([
            Cell::from(name.as_str()),
            Cell::Number(average(|f| f.mean), 0),
            Cell::Number(average(|f| f.p99), 0),
            Cell::Number(ratio(figures, &found[0], |f| f.mean), 2),
            published.map_or(Cell::Empty, |ratio| Cell::Number(ratio, 2)),
            Cell::Number(ratio(figures, &found[0], |f| f.p99), 2),
        ]);
    }
    table
}

fn gates(setting: &Setting, found: &[Vec<Figures>]) -> Vec<Gate> {
    let at = |name: &str| ways().iter().position(|way| way.0 == name).unwrap_or(0);
    let least = &found[at(LEAST)];
    let mut gates = vec![
        Gate::new(
            format!("{LEAST}, mean / Heu-Orche: {}", setting.name()),
            ratio(least, &found[0], |f| f.mean),
            Bound::AtMost(0.35),
        ),
        Gate::new(
            format!("{LEAST}, p99 / Heu-Orche: {}", setting.name()),
            ratio(least, &found[0], |f| f.p99),
            Bound::AtMost(0.6),
        ),
    ];
    gates.extend(SHARES.map(|share| {
        let name = bounded(share);
        let what = format!("{name}, mean / without: {}", setting.name());
        let cost = ratio(&found[at(&name)], least, |f| f.mean);
        Gate::new(what, cost, Bound::AtMost(1.15))
    }));
    gates
}

/// How the means grow with the number of jobs.
fn by_length(
    context: &Context<'_>,
    seeds: u64,
    jobs: usize,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let lengths = [jobs / 4, jobs / 2, jobs, jobs * 2, jobs * 4];
    let setting = SETTINGS[1];
    let part = context
        .progress
        .begin("online: number of jobs", lengths.len() as u64);
    let chosen: Vec<Row> = ways().into_iter().take(5).collect();
    let mut series: Vec<Series> = chosen
        .iter()
        .map(|(name, ..)| Series {
            name: name.clone(),
            ..Series::default()
        })
        .collect();
    for length in lengths {
        let seed = |n: u64| {
            let scenario = setting.scenario(length, Conditions::default(), SEED.nth(n))?;
            let served = chosen.iter().map(|(_, way, _)| serve(&scenario, *way));
            served.map(|schedule| Ok(of(&schedule?).mean)).collect()
        };
        let some = seeds.div_ceil(3);
        let all: Result<Vec<Vec<f64>>, Error> = (0..some).into_par_iter().map(seed).collect();
        let all = all?;
        for (at, series) in series.iter_mut().enumerate() {
            let means: Vec<f64> = all.iter().map(|found| found[at]).collect();
            series.points.push((length as f64, mean(&means)));
        }
        part.advance(1);
    }
    let mut columns = vec!["jobs".to_owned()];
    columns.extend(chosen.iter().map(|(name, ..)| format!("{name}, mean_ms")));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let title = format!("Mean latency by number of jobs, {}", setting.name());
    let mut table = Table::new(title.clone(), &columns);
    for (at, length) in lengths.iter().enumerate() {
        let means = series
            .iter()
            .map(|series| Cell::Number(series.points[at].1, 0));
        table.row(std::iter::once(Cell::from(*length)).chain(means));
    }
    outcome.tables.push(table);
    outcome.plots.push(Plot {
        name: "online-jobs".to_owned(),
        title,
        x: Axis::log("jobs"),
        y: Axis::log("mean latency, ms"),
        series,
    });
    Ok(())
}

/// One seed without and with losses.
#[derive(Clone, Copy, Debug)]
struct Loss {
    calm: Figures,
    rough: Figures,
    bindings: [usize; 2],
    ended: usize,
}

/// The fastest cluster is lost for a while, again and again.
fn with_losses(
    context: &Context<'_>,
    seeds: u64,
    jobs: usize,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let setting = SETTINGS[0];
    let part = context.progress.begin("online: lost clusters", seeds);
    let seed = |n: u64| {
        let calm = setting.scenario(jobs, Conditions::default(), SEED.nth(n))?;
        let last = calm.jobs.last().map_or(0.0, |job| job.at.get());
        let fastest = (0..setting.clusters)
            .max_by(|a, b| {
                let speed = |p: &usize| calm.clusters[*p].speed.get();
                speed(a).total_cmp(&speed(b)).then(b.cmp(a))
            })
            .map_or(ClusterIndex::new(0), ClusterIndex::new);
        // Away four times, for a twentieth of the time each.
        let change = |step: f64, change| (Millis::new(last * step), fastest, change);
        let changes = [0.15, 0.4, 0.65, 0.9]
            .into_iter()
            .flat_map(|at| {
                [
                    change(at, Change::Lost),
                    change(at + 0.05, Change::Returned),
                ]
            })
            .collect();
        let conditions = Conditions {
            changes,
            ..Conditions::default()
        };
        let rough = setting.scenario(jobs, conditions, SEED.nth(n))?;
        let way = Way::Late(Settings::late_least_work());
        let (calm, rough) = (serve(&calm, way)?, serve(&rough, way)?);
        part.advance(1);
        Ok(Loss {
            calm: of(&calm),
            rough: of(&rough),
            bindings: [calm.bindings, rough.bindings],
            ended: rough.latencies().len(),
        })
    };
    let all: Result<Vec<Loss>, Error> = (0..seeds).into_par_iter().map(seed).collect();
    let all = all?;
    let average = |figure: fn(&Loss) -> f64| mean(&all.iter().map(figure).collect::<Vec<f64>>());
    let columns = ["world", "mean_ms", "p99_ms", "bindings"];
    let title = format!(
        "{LEAST}, the fastest cluster lost four times for 5 % of the time: {}",
        setting.name()
    );
    let mut table = Table::new(title, &columns);
    table.row([
        Cell::from("nothing is lost"),
        Cell::Number(average(|f| f.calm.mean), 0),
        Cell::Number(average(|f| f.calm.p99), 0),
        Cell::Number(average(|f| f.bindings[0] as f64), 1),
    ]);
    table.row([
        Cell::from("the fastest is lost"),
        Cell::Number(average(|f| f.rough.mean), 0),
        Cell::Number(average(|f| f.rough.p99), 0),
        Cell::Number(average(|f| f.bindings[1] as f64), 1),
    ]);
    outcome.tables.push(table);
    outcome.gates.push(Gate::new(
        "share of jobs that end when clusters are lost",
        average(|f| f.ended as f64) / jobs as f64,
        Bound::AtLeast(1.0),
    ));
    Ok(())
}
