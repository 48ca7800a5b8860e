//! E1: one job on three clusters, Heu-Orche against the comparators of the article on FDN.
//!
//! Heu-Orche plans with what is expected, and its plan is carried out as it stands: cluster and order are fixed, times are as they
//! come. The comparators bind as they go. All meet the same jobs, speeds, distances and delays.

use std::sync::Arc;

use fdn_core::Millis;
use fdn_scheduling::online::{Delivery, Settings};
use fdn_scheduling::place::{Hold, Network};
use rayon::prelude::*;

use super::{Context, Effort, Experiment};
use crate::Error;
use crate::generate::{self, Sites};
use crate::online::planned::{self, Planner};
use crate::online::{self, Conditions, Job, Scenario, check};
use crate::report::{Axis, Bound, Cell, Gate, Outcome, Plot, Series, Shape, Table, mean};
use crate::seed::Seed;

/// The experiment.
#[derive(Debug)]
pub(super) struct E1;

const SEED: Seed = Seed(1);

/// Each transfer takes up to this much longer, in ms.
const JITTER: f64 = 5.0;

/// Jobs are of these sizes.
const TASKS: [usize; 3] = [100, 200, 1000];

/// What is compared with Heu-Orche.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rival {
    Late(Settings),
    Planned(Planner),
}

/// A name, what it is, and the published ratios at each size, measured and from the article.
type Row = (&'static str, Rival, [&'static str; 3], [Option<f64>; 3]);

/// A setting with its rows.
struct Setting {
    title: &'static str,
    sites: Sites,
    ccr: f64,
    rows: Vec<Row>,
}

fn rows(published: [[&'static str; 3]; 5], article: [[Option<f64>; 3]; 5]) -> Vec<Row> {
    let pulled = Settings {
        delivery: Delivery::Pulled,
        ..Settings::late_fifo()
    };
    let rivals = [
        ("fcfs", Rival::Late(Settings::fcfs())),
        ("priority", Rival::Late(Settings::priority())),
        ("lrtf", Rival::Late(Settings::lrtf())),
        ("distance", Rival::Late(Settings::distance())),
        ("inverse score", Rival::Planned(Planner::AppendInverse)),
    ];
    let beyond = [
        ("insertion", Rival::Planned(Planner::Insert)),
        ("late binding", Rival::Late(Settings::late_fifo())),
        ("late binding, data pulled", Rival::Late(pulled)),
    ];
    let known = rivals.into_iter().zip(published).zip(article);
    let known =
        known.map(|(((name, rival), published), article)| (name, rival, published, article));
    known
        .chain(beyond.map(|(name, rival)| (name, rival, [""; 3], [None; 3])))
        .collect()
}

fn settings() -> [Setting; 2] {
    let none = [None; 3];
    [
        Setting {
            title: "k = 4, CCR 1, speeds 1 to 5",
            sites: Sites::default(),
            ccr: 1.0,
            rows: rows(
                [
                    ["1.80-2.09", "1.68", "1.82-2.61"],
                    ["1.54-1.69", "1.41", "1.14"],
                    ["1.08", "1.06", "1.07-1.11"],
                    ["1.84", "2.28", "3.4"],
                    ["1.43", "1.61", "2.09"],
                ],
                [
                    [Some(2.13), None, Some(2.70)],
                    [Some(1.56), None, Some(1.18)],
                    [Some(1.06), None, Some(1.34)],
                    none,
                    none,
                ],
            ),
        },
        Setting {
            title: "k = 8, CCR 2, speeds 1 to 2",
            sites: Sites {
                slots: 8,
                speeds: 1..=2,
                ..Sites::default()
            },
            ccr: 2.0,
            rows: rows(
                [
                    ["2.42", "", "1.64"],
                    ["2.19", "", "1.38"],
                    ["1.05", "", "0.99"],
                    ["1.07", "", "1.45"],
                    ["", "", ""],
                ],
                [none; 5],
            ),
        },
    ]
}

impl Experiment for E1 {
    fn name(&self) -> &'static str {
        "e1"
    }

    fn title(&self) -> &'static str {
        "one job on several clusters: Heu-Orche against event-driven policies"
    }

    fn needs_data(&self) -> bool {
        false
    }

    fn run(&self, context: &Context<'_>) -> Result<Outcome, Error> {
        let seeds: u64 = match context.effort {
            Effort::Quick => 6,
            Effort::Full => 100,
        };
        let mut outcome = Outcome {
            conditions: format!(
                "DAGs of shape 1 on 3 clusters unless said, {seeds} seeds; work U[1,100], distance U[0,100) ms, jitter U(0,{JITTER}) ms on \
                 every transfer and both ways to the user. Ratios are means over the seeds of latency / latency of Heu-Orche; the \
                 improvement is the mean of 1 - Heu-Orche / other. Every schedule was checked."
            ),
            ..Outcome::default()
        };
        for (at, setting) in settings().iter().enumerate() {
            let found = ratios(context, setting, seeds)?;
            outcome.tables.push(table(setting, &found));
            if at == 0 {
                outcome.gates = gates(setting, &found);
                outcome.plots.push(plot(setting, &found));
            }
        }
        clusters(context, seeds, &mut outcome)?;
        users(context, seeds, &mut outcome)?;
        outcome.notes.extend(NOTES.map(str::to_owned));
        Ok(outcome)
    }
}

const NOTES: [&str; 3] = [
    "Heu-Orche's plan is carried out as it stands: clusters, slots and the order in each slot are fixed, a container starts when the one before \
     it has ended and its data is there.",
    "Ratios of the round robin swing with the draw of speeds, because the slowest cluster decides how long it takes.",
    "Data that is pulled leaves a parent's cluster when the child is bound; all other rows count it as sent when it is made, as the \
     article does.",
];

/// One job of each user at once.
fn scenario(
    tasks: usize,
    ccr: f64,
    sites: &Sites,
    users: u64,
    seed: Seed,
) -> Result<Scenario, Error> {
    let clusters = sites.draw(seed);
    let speed = generate::mean_speed(&clusters);
    let job = |user: u64| {
        let own = seed.nth(user);
        Ok(Job {
            at: Millis::ZERO,
            dag: Arc::new(generate::dag(tasks, ccr, speed, own)?),
            distance: sites.draw_distance(own),
        })
    };
    let jobs = (0..users).map(job).collect::<Result<_, Error>>()?;
    let conditions = Conditions {
        jitter: Millis::new(JITTER),
        ..Conditions::default()
    };
    let network = Network::instant(clusters.len());
    Ok(Scenario::new(clusters, network, jobs, conditions, seed))
}

/// The mean latency of a scenario's jobs, in ms.
fn latency(scenario: &Scenario, rival: Rival) -> Result<f64, Error> {
    let schedule = match rival {
        Rival::Late(settings) => online::run(scenario, settings)?,
        Rival::Planned(planner) => planned::run(scenario, planner)?,
    };
    check::check(scenario, &schedule, Hold::Job)?;
    Ok(mean(&schedule.latencies()))
}

/// By size, by row: the ratio of each seed.
type Ratios = Vec<Vec<Vec<f64>>>;

fn ratios(context: &Context<'_>, setting: &Setting, seeds: u64) -> Result<Ratios, Error> {
    let part = context
        .progress
        .begin(&format!("e1: {}", setting.title), 3 * seeds);
    let size = |tasks: usize| {
        let seed = |n: u64| {
            let scenario = scenario(tasks, setting.ccr, &setting.sites, 1, SEED.nth(n))?;
            let base = latency(&scenario, Rival::Planned(Planner::Append))?;
            let rows = setting.rows.iter();
            let found: Result<Vec<f64>, Error> = rows
                .map(|row| Ok(latency(&scenario, row.1)? / base))
                .collect();
            part.advance(1);
            found
        };
        let all: Result<Vec<Vec<f64>>, Error> = (0..seeds).into_par_iter().map(seed).collect();
        let all = all?;
        let row = |at: usize| all.iter().map(|found| found[at]).collect();
        Ok((0..setting.rows.len()).map(row).collect())
    };
    TASKS.iter().map(|tasks| size(*tasks)).collect()
}

fn improvement(ratios: &[f64]) -> f64 {
    1.0 - mean(&ratios.iter().map(|ratio| 1.0 / ratio).collect::<Vec<f64>>())
}

fn table(setting: &Setting, found: &Ratios) -> Table {
    let title = format!("Latency against Heu-Orche, {}", setting.title);
    let columns = [
        "tasks",
        "policy",
        "ratio",
        "least",
        "most",
        "improvement_percent",
        "published measured",
        "article",
    ];
    let mut table = Table::new(title, &columns);
    for (size, tasks) in TASKS.iter().enumerate() {
        for (row, ratios) in setting.rows.iter().zip(&found[size]) {
            let (least, most) = ratios
                .iter()
                .fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), r| {
                    (a.min(*r), b.max(*r))
                });
            let published = row.2[size];
            table.row([
                Cell::from(*tasks),
                Cell::from(row.0),
                Cell::Number(mean(ratios), 2),
                Cell::Number(least, 2),
                Cell::Number(most, 2),
                Cell::Number(100.0 * improvement(ratios), 1),
                match published {
                    "" => Cell::Empty,
                    text => Cell::from(text),
                },
                row.3[size].map_or(Cell::Empty, |ratio| Cell::Number(ratio, 2)),
            ]);
        }
    }
    table
}

fn gates(setting: &Setting, found: &Ratios) -> Vec<Gate> {
    let of = |size: usize, name: &str| {
        let row = setting.rows.iter().position(|row| row.0 == name);
        row.map_or(&[] as &[f64], |row| &found[size][row])
    };
    let beats = |name: &str, size: usize, least: f64| {
        let what = format!("improvement on {name} at {} tasks", TASKS[size]);
        Gate::new(what, improvement(of(size, name)), Bound::AtLeast(least))
    };
    let rest = ["fcfs", "priority", "lrtf", "inverse score"];
    let worst = rest
        .map(|name| mean(of(2, name)))
        .into_iter()
        .fold(0.0, f64::max);
    vec![
        beats("fcfs", 0, 0.35),
        beats("fcfs", 2, 0.35),
        beats("priority", 0, 0.25),
        beats("priority", 2, 0.08),
        beats("lrtf", 0, 0.04),
        Gate::new(
            "distance at 1000 tasks / the worst of the others",
            mean(of(2, "distance")) / worst,
            Bound::AtLeast(1.0),
        ),
    ]
}

fn plot(setting: &Setting, found: &Ratios) -> Plot {
    let series = setting
        .rows
        .iter()
        .enumerate()
        .map(|(row, (name, ..))| Series {
            name: (*name).to_owned(),
            points: TASKS
                .iter()
                .enumerate()
                .map(|(size, tasks)| (*tasks as f64, mean(&found[size][row])))
                .collect(),
            shape: Shape::Line,
        });
    Plot {
        name: "e1-policies".to_owned(),
        title: format!("Latency / Heu-Orche, {}", setting.title),
        x: Axis::log("tasks"),
        y: Axis::linear("latency / latency of Heu-Orche"),
        series: series.collect(),
    }
}

/// Mean latencies of some scenarios by seed, in ms.
fn latencies(
    seeds: u64,
    rival: Rival,
    scenario: impl Fn(Seed) -> Result<Scenario, Error> + Sync,
) -> Result<f64, Error> {
    let one = |n: u64| latency(&scenario(SEED.nth(n))?, rival);
    let all: Result<Vec<f64>, Error> = (0..seeds).into_par_iter().map(one).collect();
    Ok(mean(&all?))
}

fn clusters(context: &Context<'_>, seeds: u64, outcome: &mut Outcome) -> Result<(), Error> {
    const PUBLISHED: [f64; 5] = [880.0, 500.0, 384.0, 342.0, 356.0];
    let part = context.progress.begin("e1: number of clusters", 5);
    let columns = ["clusters", "latency_ms", "late_binding_ms", "published_ms"];
    let mut table = Table::new(
        "Latency of Heu-Orche by number of clusters, 100 tasks",
        &columns,
    );
    let mut series = Series {
        name: "Heu-Orche".to_owned(),
        ..Series::default()
    };
    for (clusters, published) in (1..).zip(PUBLISHED) {
        let sites = Sites {
            clusters,
            ..Sites::default()
        };
        let find = |rival| latencies(seeds, rival, |seed| scenario(100, 1.0, &sites, 1, seed));
        let latency = find(Rival::Planned(Planner::Append))?;
        table.row([
            Cell::from(clusters),
            Cell::Number(latency, 0),
            Cell::Number(find(Rival::Late(Settings::late_fifo()))?, 0),
            Cell::Number(published, 0),
        ]);
        series.points.push((clusters as f64, latency));
        part.advance(1);
    }
    let published = (1..).zip(PUBLISHED);
    outcome.tables.push(table);
    outcome.plots.push(Plot {
        name: "e1-clusters".to_owned(),
        title: "Latency by number of clusters, 100 tasks".to_owned(),
        x: Axis::linear("clusters"),
        y: Axis::linear("latency, ms"),
        series: vec![
            series,
            Series {
                name: "published".to_owned(),
                points: published.map(|(n, ms)| (f64::from(n), ms)).collect(),
                shape: Shape::Points,
            },
        ],
    });
    Ok(())
}

fn users(context: &Context<'_>, seeds: u64, outcome: &mut Outcome) -> Result<(), Error> {
    const USERS: [u64; 6] = [1, 2, 4, 8, 16, 32];
    let part = context
        .progress
        .begin("e1: number of users", USERS.len() as u64);
    let columns = ["users", "latency_ms", "per_user_ms", "late_least_work_ms"];
    let mut table = Table::new(
        "Mean latency of Heu-Orche by number of users, each with 100 tasks at once",
        &columns,
    );
    let rivals = [
        ("Heu-Orche", Rival::Planned(Planner::Append)),
        (
            "late binding, least work first",
            Rival::Late(Settings::late_least_work()),
        ),
    ];
    let mut series = rivals.map(|(name, _)| Series {
        name: name.to_owned(),
        ..Series::default()
    });
    for users in USERS {
        let mut found = [0.0; 2];
        for ((_, rival), found) in rivals.iter().zip(&mut found) {
            let many = |seed| scenario(100, 1.0, &Sites::default(), users, seed);
            *found = latencies(seeds.div_ceil(4), *rival, many)?;
        }
        for (series, found) in series.iter_mut().zip(found) {
            series.points.push((users as f64, found));
        }
        table.row([
            Cell::Number(users as f64, 0),
            Cell::Number(found[0], 0),
            Cell::Number(found[0] / users as f64, 0),
            Cell::Number(found[1], 0),
        ]);
        part.advance(1);
    }
    outcome.tables.push(table);
    outcome.plots.push(Plot {
        name: "e1-users".to_owned(),
        title: "Mean latency by number of users at once, 100 tasks each".to_owned(),
        x: Axis::linear("users"),
        y: Axis::linear("latency, ms"),
        series: series.into(),
    });
    Ok(())
}
