//! Looks that go on all the time: what nodes hold, which revisions DNS servers and controllers have, what processes take, and that they run.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use fdn_e2e::endurance::judge::Rule;
use fdn_e2e::endurance::processes::{MEMORY_MIB, Processes, all};
use fdn_e2e::endurance::schedule::Part;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::world::{HELLO, SMALLEST_MIB, World, lock, metric};

/// Between two looks of a kind.
const LOOKS: Duration = Duration::from_millis(700);
const TAKEN: Duration = Duration::from_secs(2);

/// Begins all of them; they end with `stop`.
pub(crate) fn begin(world: &Arc<World>, stop: &CancellationToken, tasks: &mut JoinSet<()>) {
    for part in all() {
        let (world, stop) = (Arc::clone(world), stop.clone());
        tasks.spawn(async move {
            while !stop.is_cancelled() {
                // One that is away says nothing.
                drop(look(&world, part).await);
                tokio::time::sleep(LOOKS).await;
            }
        });
    }
    let (world, stop) = (Arc::clone(world), stop.clone());
    tasks.spawn(async move {
        while !stop.is_cancelled() {
            taken(&world).await;
            tokio::time::sleep(TAKEN).await;
        }
    });
}

async fn look(world: &World, part: Part) -> Result<()> {
    let life = world.life(part);
    let (who, before) = {
        let who = match part {
            Part::Controller(_) => format!("{part}'s plans"),
            part => part.to_string(),
        };
        let before = world.judge().newest(&who, life);
        (who, before)
    };
    let revision = match part {
        Part::Node(..) => return holds(world, part).await,
        Part::Dns(n) => {
            let text = world.metrics(world.dns_admin[n]).await?;
            metric(&text, "fdn_dns_revision", "").context("no revision")? as u64
        }
        Part::Controller(n) => planned(world, n).await?,
        Part::Rabbit | Part::Postgres => return Ok(()),
    };
    if world.life(part) == life {
        let now = world.now();
        world.judge().revision(&who, life, now, before, revision);
    }
    Ok(())
}

/// The revision of the newest plan of the function.
async fn planned(world: &World, n: usize) -> Result<u64> {
    let url = format!("http://{}/v1/apps/{HELLO}", world.apis[n]);
    let answer = world.http.get(url).bearer_auth(&world.token).send().await?;
    let text = answer.error_for_status()?.text().await?;
    let app: serde_json::Value = serde_json::from_str(&text)?;
    let bindings = app["bindings"].as_array().context("no bindings")?;
    let plans = bindings.iter().map(|bound| bound["revision"].as_u64());
    let plans = plans.chain([app["revision"].as_u64()]);
    plans.flatten().max().context("no revision")
}

/// The calls that a node says it runs hold no more than it has, each at least what the smallest function takes.
async fn holds(world: &World, part: Part) -> Result<()> {
    let machine = Processes::address(part).context("no address")?;
    let text = world.metrics(world.admin(machine)).await?;
    let now = world.now();
    let busy = metric(&text, "fdn_agent_calls_busy", "").context("no calls")?;
    let held = busy * SMALLEST_MIB;
    world
        .judge()
        .held(part, now, "MiB of memory", held, MEMORY_MIB);
    Ok(())
}

/// Memory and descriptors of each process, and that none has ended by itself.
async fn taken(world: &World) {
    let (run, ended) = world.processes.lock().await.look();
    let now = world.now();
    for (part, status) in ended {
        world.violated(Rule::Ended, format!("{part}: {status}"));
    }
    let mut samples = lock(&world.samples);
    for (part, id) in run {
        let samples = samples.entry((part, id)).or_default();
        if let Some(bytes) = resident(id) {
            samples.memory.push((now, bytes));
        }
        if let Ok(open) = std::fs::read_dir(format!("/proc/{id}/fd")) {
            samples.descriptors.push((now, open.count() as f64));
        }
    }
}

/// Bytes of memory that a process has in RAM.
fn resident(id: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0)
}
