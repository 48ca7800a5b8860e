//! An hour, or `FDN_ENDURANCE_MINUTES`, of calls, workflows and jobs, while what [`fdn_e2e::endurance`] draws from a seed happens to the network, and
//! somebody looks all the time at what must never be. `make soak GROUP=endurance` runs it, and prints what it reports.

#![allow(
    clippy::print_stderr,
    reason = "whoever runs it for an hour wants to see that it goes on"
)]

mod end;
mod events;
mod load;
mod watch;
mod world;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fdn_e2e::Held;
use fdn_e2e::endurance::Asked;
use fdn_e2e::endurance::judge::Rule;
use fdn_e2e::endurance::report::Report;
use fdn_e2e::endurance::schedule::{Lane, schedule};
use tokio::task::{JoinSet, LocalSet};
use tokio_util::sync::CancellationToken;
use world::World;

/// Between two lines that say how far it is.
const SAID: Duration = Duration::from_secs(60);

/// `target/test-logs`, beside the folder of this build.
fn logs() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let target = test.ancestors().nth(3).expect("target/PROFILE/deps/TEST");
    let logs = target.join("test-logs");
    std::fs::create_dir_all(&logs).expect("a folder");
    logs
}

fn asked() -> Asked {
    let variable = |name: &str| std::env::var(name).ok();
    let (minutes, seed) = (
        variable("FDN_ENDURANCE_MINUTES"),
        variable("FDN_ENDURANCE_SEED"),
    );
    let since = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    // The clock's nanoseconds are drawing enough; six digits can be typed again.
    let drawn = u64::from(since.subsec_nanos()) % 1_000_000;
    Asked::read(minutes.as_deref(), seed.as_deref(), drawn).expect("settings")
}

/// Lets all lanes of events go on beside load and looks.
async fn lived(world: &Arc<World>, asked: Asked) {
    let stop = CancellationToken::new();
    let mut beside = JoinSet::new();
    load::begin(world, &stop, &mut beside);
    watch::begin(world, &stop, &mut beside);
    let all = schedule(asked.seed, asked.length());
    let said = tokio::spawn(say(Arc::clone(world), stop.clone()));
    // On this thread: what waits for processes asks with closures that are not known to be movable.
    let lanes = async {
        let mut lanes = JoinSet::new();
        for lane in [Lane::Centre, Lane::Names, Lane::Edge, Lane::Changes] {
            let events = all.iter().copied().filter(|planned| planned.lane == lane);
            lanes.spawn_local(events::follow(Arc::clone(world), events.collect()));
        }
        while let Some(lane) = lanes.join_next().await {
            if let Err(error) = lane {
                world.violated(Rule::Stuck, format!("a lane of events broke off: {error}"));
            }
        }
    };
    LocalSet::new().run_until(lanes).await;
    // To the end of the time, when nothing happens any more.
    tokio::time::sleep(asked.length().saturating_sub(world.now())).await;
    stop.cancel();
    while let Some(task) = beside.join_next().await {
        if let Err(error) = task {
            world.violated(
                Rule::Stuck,
                format!("a caller or a look broke off: {error}"),
            );
        }
    }
    said.abort();
}

async fn say(world: Arc<World>, stop: CancellationToken) {
    while stop
        .run_until_cancelled(tokio::time::sleep(SAID))
        .await
        .is_some()
    {
        let violations = world.judge().violations().0.len();
        let minutes = world.now().as_secs() / 60;
        eprintln!("{minutes} minutes: {violations} violations");
    }
}

fn report(world: &World, asked: Asked) -> Report {
    let held = world.held(asked.length() / 4);
    for held in &held {
        if !held.growth.is_flat(held.allowed) {
            let what = format!("{}, {}: {:?}", held.who, held.what, held.growth);
            world.violated(Rule::Growth, what);
        }
    }
    let judge = world.judge();
    let (violations, left_out) = judge.violations();
    Report {
        asked,
        events: judge.events().clone(),
        counts: judge.counts().clone(),
        held,
        violations: violations.to_vec(),
        left_out,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_that_must_never_be_is_seen_while_everything_happens() {
    let asked = asked();
    eprintln!(
        "FDN_ENDURANCE_SEED={} FDN_ENDURANCE_MINUTES={}",
        asked.seed, asked.minutes
    );
    let told = Held::start().await;
    let world = World::start(&told).await.expect("the network starts");
    lived(&world, asked).await;
    end::settle(&world, &told).await;
    let report = report(&world, asked);
    let logs = logs();
    let text = report.to_string();
    std::fs::write(logs.join("endurance.txt"), &text).expect("written");
    let json = serde_json::to_vec_pretty(&report.json()).expect("JSON");
    std::fs::write(logs.join("endurance.json"), json).expect("written");
    eprintln!("{text}");
    if !report.violations.is_empty() {
        let kept = world.keep_logs(&logs.join("endurance")).await;
        panic!(
            "{} violations, first: {}; seed {}; logs of all processes in {}",
            report.violations.len(),
            report.violations[0],
            asked.seed,
            kept.display()
        );
    }
}
