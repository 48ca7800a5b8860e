//! Cold starts of a whole cluster: four nodes of agents that know each other, in this process on all cores with the load, and each call is one of a function
//! that runs nowhere. How many of them a second are answered when callers do not wait, and how long they take at 70 % of that, from when they were to be
//! made.
//!
//! The first call of a function finds its machine code on the node's disk and loads it; the second finds it loaded, and no instance, since none serves
//! twice. All functions are one component under many names: what is loaded once is loaded for one of them alone.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fdn_core::manifest::Manifest;
use fdn_core::{ByteSize, MilliCpu};
use fdn_edge_agent::Settings;
use fdn_edge_agent::artifacts::Machine;
use fdn_testkit::components;
use futures::future::try_join_all;
use serde::Serialize;
use tokio::time::Instant;

use super::figures::Times;
use super::load::{Made, OPENING, Offer, Planned, offer, times};
use super::node::host;
use crate::rig::{Rig, app};
use crate::{Options, median, peers};

const NODES: usize = 4;
/// Functions of each node in one measurement.
const FUNCTIONS: usize = 250;
const CONNECTIONS: usize = 16;
const SHARE: f64 = 0.7;
/// Cold starts a second that are aimed at, and the p99 in ms.
const AIM: (f64, f64) = (10_000.0, 20.0);
/// How long apps may take to be ready on all nodes.
const READY: Duration = Duration::from_secs(300);

/// What a function's first and its second call find.
const FOUND: [&str; 2] = ["code on disk, not loaded", "code loaded, no instance"];

/// What was seen, round by round.
#[derive(Debug, Default, Serialize)]
struct Seen {
    per_second: Vec<f64>,
    at_share: Vec<Times>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "starts: {NODES} nodes of one cluster and the load on all cores, {FUNCTIONS} functions of each in a measurement, {} rounds, medians; aim {} a second, p99 {} ms",
        options.rounds, AIM.0, AIM.1
    );
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(measure(options))
}

async fn measure(options: &Options) -> Result<()> {
    let rounds = options.rounds.max(1) as usize;
    // One batch of functions for what is answered at once, and one for 70 % of it.
    let batches = 2 * rounds;
    let rigs = start(options, batches * FUNCTIONS).await?;
    let mut all = FOUND.map(|_| Seen::default());
    for round in 0..rounds {
        let mut rates = Vec::new();
        for seen in &mut all {
            let made = call(&rigs, 2 * round, None).await?;
            let last = made.iter().filter_map(|call| call.took).max();
            let rate = made.len() as f64 / last.context("no call")?.as_secs_f64();
            rates.push(rate);
            seen.per_second.push(rate);
        }
        for (seen, rate) in all.iter_mut().zip(rates) {
            let made = call(&rigs, 2 * round + 1, Some(rate * SHARE)).await?;
            let times = Times::of(made.iter().map(|call| call.took));
            seen.at_share.push(times);
        }
    }
    for rig in rigs {
        rig.stop().await;
    }
    println!(
        "{:<26} {:>10} {:>10} {:>10} {}",
        "",
        "starts/s",
        "of the aim",
        "offered/s",
        Times::header()
    );
    for (found, seen) in FOUND.iter().zip(&all) {
        let rate = median(seen.per_second.clone());
        println!(
            "{found:<26} {rate:>10.0} {:>10.3} {:>10.0} {}",
            rate / AIM.0,
            rate * SHARE,
            Times::of_rounds(&seen.at_share).row()
        );
    }
    let kinds = FOUND.iter().zip(&all).map(|(found, seen)| {
        let rate = median(seen.per_second.clone());
        serde_json::json!({
            "found": found,
            "per_second": rate,
            "of_the_aim": rate / AIM.0,
            "share": SHARE,
            "times_at_share": Times::of_rounds(&seen.at_share),
            "rounds": seen,
        })
    });
    options.write_json(serde_json::json!({
        "nodes": NODES,
        "kinds": kinds.collect::<Vec<_>>(),
    }))
}

/// The name of a node.
fn node(number: usize) -> String {
    format!("starts-{number}")
}

/// The name of a node's function.
fn name(node: usize, number: usize) -> String {
    format!("start-{node}-{number}")
}

/// Starts the nodes, each of which knows all functions: so many for each node's calls.
async fn start(options: &Options, functions: usize) -> Result<Vec<Rig>> {
    let machine = Machine::new(&Settings::default().runtime)?;
    let component = components::hello("started");
    let mut rigs: Vec<Rig> = Vec::new();
    for number in 0..NODES {
        let seed = rigs.first().map(Rig::peer_address).transpose()?;
        let mut settings = peers::settings(&node(number), seed)?;
        settings.compile.worker = Some(options.binaries.join("fdn-edge-agent"));
        let rig = Rig::open_on(machine.clone(), settings, None, &[&component[..]]).await?;
        rigs.push(rig);
    }
    let manifest = Manifest {
        memory: ByteSize::from_mib(2),
        cpu_milli: MilliCpu(10),
        reuse: 1,
        ..Manifest::default()
    };
    for rig in &rigs {
        let mut apps = Vec::with_capacity(NODES * functions);
        for node in 0..NODES {
            for number in 0..functions {
                let name = name(node, number);
                apps.push(app((&name, &host(&name)), &component, manifest.clone())?);
            }
        }
        rig.tell_all(apps).await?;
    }
    let (begin, wanted) = (Instant::now(), (NODES * functions) as f64);
    for (number, rig) in rigs.iter().enumerate() {
        let ready = format!(
            "fdn_agent_apps{{node=\"{}\",phase=\"ready\"}}",
            node(number)
        );
        while rig.metric(&ready).await? < wanted {
            ensure!(begin.elapsed() < READY, "the functions are not made ready");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(rigs)
}

/// Calls each function of a batch once at its node: at this rate, all nodes together, or as fast as they are answered.
async fn call(rigs: &[Rig], batch: usize, rate: Option<f64>) -> Result<Vec<Made>> {
    let begin = Instant::now() + OPENING;
    let nodes = rigs.iter().enumerate().map(|(node, rig)| async move {
        let numbers = batch * FUNCTIONS..(batch + 1) * FUNCTIONS;
        let hosts: Vec<String> = numbers.map(|number| host(&name(node, number))).collect();
        let to = Offer {
            address: rig.gateway_address(),
            hosts: &hosts,
            connections: CONNECTIONS,
            begin,
            awake: false,
        };
        let at: Vec<Duration> = match rate {
            // Each node has every fourth of them.
            Some(rate) => {
                let its = times(rate).skip(node).step_by(NODES);
                its.take(FUNCTIONS).collect()
            }
            None => vec![Duration::ZERO; FUNCTIONS],
        };
        let plan = at.into_iter().enumerate();
        let plan = plan.map(|(function, at)| Planned { at, function });
        offer(&to, plan.collect()).await
    });
    let made: Vec<Made> = try_join_all(nodes).await?.into_iter().flatten().collect();
    let failed = made.iter().filter(|call| call.took.is_none()).count();
    ensure!(failed == 0, "{failed} cold starts failed");
    Ok(made)
}
