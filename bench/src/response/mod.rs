//! What users wait for, on separate processes with emulated distances and a recorded load: the network beside the rules that placement is compared with in
//! simulation, all with the same calls in the same run.
//!
//! Functions wait instead of computing, each for as long as the recording says, over the speed of its cluster: so two cores play many slots, and calls
//! queue at nodes as they would. Clients ask the real DNS, call the real gateways, and are as far from them as the map says ([`relay`]).

pub(crate) mod drive;
pub(crate) mod figures;
pub(crate) mod fleet;
pub(crate) mod flood;
pub(crate) mod reaction;
pub(crate) mod relay;
pub(crate) mod site;
pub(crate) mod steer;
pub(crate) mod trace;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum as _};
use serde::Serialize;

use crate::Options;
use drive::Users;
use figures::{Call, Figures};
use fleet::Fleet;
use site::{PLACES, SITES};
use steer::{Policy, Rule, Steer};
use trace::Trace;

/// Of `response`, `reaction` and `flood`.
#[derive(Debug, Args)]
pub(crate) struct ResponseOptions {
    /// Loads of `response`, in hundredths of the capacity that is measured.
    #[arg(long = "load", value_delimiter = ',', default_values_t = [50, 80, 95])]
    loads: Vec<u32>,
    /// Who decides where calls go; all if none is named.
    #[arg(long = "policy", value_delimiter = ',')]
    policies: Vec<Policy>,
    /// How often each point is measured, in turns.
    #[arg(long, default_value_t = 1)]
    turns: u32,
    /// Seconds of a point that count.
    #[arg(long, default_value_t = 50)]
    point: u64,
    /// Seconds of the same load before them.
    #[arg(long, default_value_t = 10)]
    lead: u64,
    /// Seconds of the same load, with other calls, before the network is measured: in which it learns who calls what from where.
    #[arg(long, default_value_t = 90)]
    learn: u64,
    /// What happens to the network in `reaction`; all of it, one after another, if nothing is named.
    #[arg(long = "change", value_delimiter = ',')]
    changes: Vec<reaction::Change>,
}

/// A point of the table.
#[derive(Debug, Serialize)]
struct Point {
    load: u32,
    policy: Policy,
    #[serde(flatten)]
    figures: Figures,
}

/// The network with its users, and what it can do.
pub(crate) struct Stage {
    fleet: Fleet,
    users: Arc<Users>,
    trace: Trace,
    /// Slots of speed 1 that can be kept busy in each cluster.
    capacity: Vec<f64>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    println!("response: from the question to DNS until the last byte, in ms");
    block_on(measure(options))
}

pub(crate) fn block_on(measured: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(measured)
}

impl Stage {
    /// Starts the network, deploys the recorded functions and measures what it can do.
    pub(crate) async fn set(options: &Options) -> Result<Self> {
        let trace = Trace::read()?;
        let mut fleet = Fleet::start(&options.binaries, Policy::Ours.waiting()).await?;
        let mut apps = Vec::new();
        for (name, median) in &trace.apps {
            let app = format!("fn-{name}");
            fleet.deploy(&app, *median).await?;
            apps.push(app);
        }
        let users = Users::new(&fleet, &apps).await?;
        let capacity = users.capacity().await;
        println!(
            "{} places of clients, {} functions of the recording ({}), clusters:",
            PLACES.len(),
            apps.len(),
            apps.join(", ")
        );
        for (site, busy) in SITES.iter().zip(&capacity) {
            println!(
                "  {:<9} {} nodes of {} slots at speed {}: {:.1} slots of speed 1, measured {busy:.1}",
                site.name,
                site.nodes,
                site.slots,
                site.speed,
                site.capacity()
            );
            ensure!(*busy > 0.0, "{} answers nothing", site.name);
        }
        Ok(Self {
            fleet,
            users,
            trace,
            capacity,
        })
    }

    /// How many slots of speed 1 a load in hundredths keeps busy.
    pub(crate) fn busy(&self, load: u32) -> f64 {
        self.capacity.iter().sum::<f64>() * f64::from(load) / 100.0
    }
}

async fn measure(options: &Options) -> Result<()> {
    let mut stage = Stage::set(options).await?;
    let mut points = Vec::new();
    for load in &options.response.loads {
        points.extend(at_load(&mut stage, &options.response, *load).await?);
    }
    println!();
    println!("{:<6} {:<16} {}", "load", "policy", Figures::header());
    for point in &points {
        println!(
            "{:<6} {:<16} {}",
            format!("{} %", point.load),
            point.policy.name(),
            point.figures.row()
        );
    }
    let Some(file) = &options.json else {
        return Ok(());
    };
    let facts = BTreeMap::from(crate::facts::all());
    let capacity: BTreeMap<&str, &f64> = SITES
        .iter()
        .map(|site| site.name)
        .zip(&stage.capacity)
        .collect();
    let all = serde_json::json!({ "conditions": facts, "capacity": capacity, "points": points });
    std::fs::write(file, serde_json::to_vec_pretty(&all)?)
        .with_context(|| format!("writing {}", file.display()))
}

async fn at_load(stage: &mut Stage, options: &ResponseOptions, load: u32) -> Result<Vec<Point>> {
    let (lead, learn) = (
        Duration::from_secs(options.lead),
        Duration::from_secs(options.learn),
    );
    let span = lead + Duration::from_secs(options.point);
    let pace = stage.trace.pace(stage.busy(load), span);
    let calls = stage.trace.cut(0.0, span, pace);
    let before = stage.trace.cut(figures::ms(span) * pace, learn, pace);
    println!(
        "{load} %: {} calls in {span:?}, the recording {pace:.2} times as fast",
        calls.len()
    );
    let mut policies = options.policies.clone();
    if policies.is_empty() {
        policies = Policy::value_variants().to_vec();
    }
    let mut seen: BTreeMap<Policy, Vec<Call>> = BTreeMap::new();
    for turn in 0..options.turns {
        for policy in &policies {
            stage.fleet.wait_as(policy.waiting()).await?;
            if *policy == Policy::Ours {
                let steer = Steer::new(Rule::Answer)?;
                stage.users.play(&before, &steer).await?;
            }
            let steer = Steer::new((*policy).into())?;
            let made = stage.users.play(&calls, &steer).await?;
            let made: Vec<Call> = made.into_iter().filter(|call| call.at >= lead).collect();
            println!(
                "  turn {}: {:<16} {}",
                turn + 1,
                policy.name(),
                Figures::of(&made).row()
            );
            seen.entry(*policy).or_default().extend(made);
        }
        policies.reverse();
    }
    Ok(seen
        .into_iter()
        .map(|(policy, calls)| Point {
            load,
            policy,
            figures: Figures::of(&calls),
        })
        .collect())
}
