//! What gateway and scheduler add to a call of an instance that is warm, and a burst from zero, on instances that cost nothing.
//!
//! The instances are the scripted runtime of the tests, in this process: what is measured is the way through the gateway, the pool's
//! decision and back, from a client over loopback.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fdn_core::{MebiBytes, MilliCpu, Resources};
use fdn_edge_agent::Settings;
use fdn_edge_agent::invocations::Ledger;
use fdn_instances::fake::{FakeEngine, FakeProgram};

use crate::Options;
use crate::rig::{Rig, image_manifest};

/// Calls of one measurement.
const CALLS: usize = 4000;
const BURST: usize = 50;
/// What a start of a container takes here, create, start and first answer together.
const START: Duration = Duration::from_millis(90);

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "calls: through gateway and scheduler to instances that cost nothing; {CALLS} calls one after another over one connection, {} rounds",
        options.rounds
    );
    ledger();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(measure(options))
}

/// The decision on a call of a component while there is room.
fn ledger() {
    let ledger = Ledger::new(Resources::new(MilliCpu(1000), MebiBytes(1 << 20)), 1000);
    let rounds = 1_000_000u32;
    let begin = Instant::now();
    for _ in 0..rounds {
        std::hint::black_box(ledger.enter(MebiBytes(64)));
    }
    let each = begin.elapsed() / rounds;
    println!("  letting a component's call in and out again: {each:?}");
}

async fn measure(options: &Options) -> Result<()> {
    let engine = FakeEngine::new();
    engine.add_image("image", FakeProgram::text("hello"));
    engine.delay_starts(START);
    let settings = Settings::default();
    let runtime = engine.runtime(settings.cluster.clone(), settings.node.clone());
    let rig = Rig::start(settings, Some(runtime), b"image", image_manifest()).await?;
    for _ in 0..options.rounds {
        let mut took = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let begin = Instant::now();
            ensure!(rig.call("/").await? == 200, "a warm call failed");
            took.push(begin.elapsed());
        }
        print("warm, client to instance and back", took);
        engine.crash_all();
        let begin = Instant::now();
        let calls = (0..BURST).map(|_| async {
            let status = rig.call("/").await?;
            ensure!(status == 200, "a call of the burst ended {status}");
            Ok(begin.elapsed())
        });
        let took = futures::future::try_join_all(calls).await?;
        print("50 at once after a kill of all, 90 ms a start", took);
    }
    rig.stop().await;
    Ok(())
}

fn print(what: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!(
        "  {what:<46} p50 {:?}  p99 {:?}  worst {:?}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
