//! How far predictions are off: of the ready-made functions after a thousand calls each, and of a function that takes five times as long from one call to the
//! next. Predicted is what a plan would assume then, actual what calls took; both as `fdn explain` shows them.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fdn_core::api::Explanation;
use fdn_core::predicted::StageCompared;
use fdn_testkit::components;
use serde_json::json;

use crate::cold::{FUNCTIONS, call_path, connect};
use crate::network::Network;
use crate::{Options, median};

const CALLS: u64 = 1_000;
/// Calls after a change of speed, and times before and after it, in ms.
const CHANGED: u64 = 100;
const TIMES: (u64, u64) = (20, 100);
/// How long reports and passes of the planner take together, at most: `planner.interval` and an agent's report.
const HEARD: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "predictions: of start and execution together, after {CALLS} calls of each; fdn up with one node, nothing of the functions was measured before"
    );
    println!(
        "{:<34} {:>7} {:>12} {:>10} {:>8}",
        "", "calls", "predicted ms", "actual ms", "error"
    );
    let network = Network::start(options)?;
    let mut errors = Vec::new();
    for (name, component, manifest, _) in FUNCTIONS {
        let path = options.functions.join(component);
        if !path.is_file() {
            println!(
                "({name} left out: {} is not built; make functions)",
                path.display()
            );
            continue;
        }
        let manifest = std::fs::read_to_string(options.functions.join(manifest))?;
        network.deploy(name, &path, &manifest)?;
        calls(&network, name, "/", CALLS)?;
        errors.push(shown(&network, name, name, CALLS)?.abs());
    }
    let turn = network.folder().join("turn.wasm");
    std::fs::write(&turn, components::waiting())?;
    network.deploy("turn", &turn, "reuse = 1000\n")?;
    let (before, after) = TIMES;
    calls(&network, "turn", &format!("/{before}"), CALLS)?;
    let settled = shown(&network, "turn", "takes 20 ms", CALLS)?;
    calls(&network, "turn", &format!("/{after}"), CHANGED)?;
    let changed = shown(
        &network,
        "turn",
        "takes 100 ms since 100 calls",
        CALLS + CHANGED,
    )?;
    let middle = median(errors.clone());
    println!(
        "median error of the ready-made functions: {:.1} %",
        middle * 100.0
    );
    options.write_json(json!({
        "ready": errors, "median": middle, "before_change": settled, "after_change": changed,
    }))
}

/// Calls an app one after another.
fn calls(network: &Network, app: &str, path: &str, count: u64) -> Result<()> {
    let mut stream: TcpStream = connect(network.gateway)?;
    for _ in 0..count {
        call_path(&mut stream, &format!("{app}.fn.test"), path)?;
    }
    Ok(())
}

/// Prints what is predicted for an app once the planner has heard of so many calls; the error, as a share of the actual time.
fn shown(network: &Network, app: &str, what: &str, calls: u64) -> Result<f64> {
    let begin = Instant::now();
    while compared(network, app)?.is_none_or(|stage| stage.calls < calls) {
        ensure!(begin.elapsed() < PATIENCE, "the calls are not heard of");
        std::thread::sleep(Duration::from_millis(200));
    }
    // The pass that learns from them.
    std::thread::sleep(HEARD);
    let stage = compared(network, app)?.context("nothing was measured")?;
    let times = stage.execution;
    let (actual, error) = (times.actual, times.error().context("no time was measured")?);
    println!(
        "{what:<34} {:>7} {:>12.3} {:>10.3} {:>+6.1} %",
        stage.calls,
        times.predicted.get(),
        actual.map_or(f64::NAN, |time| time.get()),
        error * 100.0
    );
    Ok(error)
}

/// What is predicted for the app's only stage, beside what it took.
fn compared(network: &Network, app: &str) -> Result<Option<StageCompared>> {
    let text = network.fdn(&["explain", app, "--client", "127.0.0.1", "-o", "json"])?;
    let found: Explanation = serde_json::from_str(&text).context("fdn explain prints JSON")?;
    Ok(found.actual.into_iter().next())
}
