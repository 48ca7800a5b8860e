//! What happens, done to the network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fdn_e2e::endurance::judge::Rule;
use fdn_e2e::endurance::lives::State;
use fdn_e2e::endurance::processes::Processes;
use fdn_e2e::endurance::schedule::{Event, Part, Planned};
use fdn_testkit::wait;

use super::world::{HELLO, World, lock, metric};

/// How long a process may take until it says that it is well, and a machine until all is handed over.
const SOON: Duration = Duration::from_secs(90);
/// How long joining is tried while the centre is away.
const JOINED: Duration = Duration::from_secs(150);
/// For so long a machine must have nothing left: calls come to it that were sent before it was drained.
const LATE: Duration = Duration::from_secs(6);
const AGAIN: Duration = Duration::from_secs(1);

/// Lets the events of a lane happen, in their order. What came late moves all that comes after it.
pub(crate) async fn follow(world: Arc<World>, events: Vec<Planned>) {
    let mut late = Duration::ZERO;
    for Planned { at, event, .. } in events {
        tokio::time::sleep((at + late).saturating_sub(world.now())).await;
        let begun = world.now();
        late = late.max(begun.saturating_sub(at));
        world.judge().event(begun, event);
        let done = happens(&world, event).await;
        if let Err(error) = done {
            world.violated(Rule::Stuck, format!("{event}: {error:#}"));
        }
    }
}

async fn happens(world: &Arc<World>, event: Event) -> Result<()> {
    match event {
        Event::Kill(part) => {
            let mut processes = world.processes.lock().await;
            world.becomes(part, State::Between);
            processes.kill(part);
            world.becomes(part, State::Gone);
        }
        Event::Start(part) => {
            let mut processes = world.processes.lock().await;
            world.becomes(part, State::Between);
            processes.start_part(part).await?;
            drop(processes);
            well(world, part).await?;
        }
        Event::Cut(part) => world.processes.lock().await.cut(part, true),
        Event::Mend(part) => world.processes.lock().await.cut(part, false),
        Event::Freeze(part) => {
            let mut processes = world.processes.lock().await;
            world.becomes(part, State::Between);
            processes.freeze(part, true)?;
            world.becomes(part, State::Gone);
        }
        Event::Thaw(part) => {
            let mut processes = world.processes.lock().await;
            world.becomes(part, State::Between);
            processes.freeze(part, false)?;
            drop(processes);
            well(world, part).await?;
        }
        Event::Drain(part) => {
            let drain = ["node", "drain", &part.to_string(), "--no-wait"];
            world.typed(&drain, &[]).await?;
        }
        Event::Uncordon(part) => {
            let uncordon = ["node", "uncordon", &part.to_string()];
            world.typed(&uncordon, &[]).await?;
        }
        Event::Remove(part) => remove(world, part).await?,
        Event::Join(part) => join(world, part).await?,
        Event::Deploy => world.next_version(&["--no-wait"]).await.map(drop)?,
        Event::Rollback => roll_back(world).await?,
        Event::Workflow => {
            // Alternately, so that each is another version than the one before.
            let seconds = 30 + world.now().as_secs() % 60;
            world.deploy_workflow(seconds, "--no-wait").await?;
        }
    }
    Ok(())
}

/// Waits until a process that was started, or goes on, says that it runs. From then on it is to do what it is there for.
async fn well(world: &World, part: Part) -> Result<()> {
    let address = match part {
        Part::Controller(n) => world.apis[n],
        Part::Dns(n) => world.dns_admin[n],
        Part::Node(..) => world.admin(Processes::address(part).context("no address")?),
        Part::Rabbit | Part::Postgres => {
            world.becomes(part, State::Well);
            return Ok(());
        }
    };
    let well = wait::try_within(SOON, async || {
        let asked = world.http.get(format!("http://{address}/healthz"));
        let status = asked.send().await?.status();
        ensure!(status == 200, "it says {status}");
        Ok::<_, anyhow::Error>(())
    });
    let well = well.await;
    well.with_context(|| format!("{part} is not well after {SOON:?}"))?;
    world.becomes(part, State::Well);
    Ok(())
}

/// As docs/operations.md has it: drained, everything handed over, removed, switched off.
async fn remove(world: &Arc<World>, part: Part) -> Result<()> {
    let name = part.to_string();
    let drain = ["node", "drain", &name, "--timeout", "60s"];
    world.typed(&drain, &["FDN-2003"]).await?;
    let machine = world.admin(Processes::address(part).context("no address")?);
    let mut since = Instant::now();
    wait::try_within(SOON, async || {
        let text = world.metrics(machine).await.unwrap_or_default();
        let left = metric(&text, "fdn_agent_usage_spool_bytes", "");
        if left != Some(0.0) {
            since = Instant::now();
        }
        ensure!(since.elapsed() >= LATE, "{name} has usage left: {left:?}");
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    world.becomes(part, State::Between);
    let remove = ["node", "remove", &name, "--yes"];
    world.typed(&remove, &["FDN-2003"]).await?;
    let mut processes = world.processes.lock().await;
    processes.kill(part);
    world.becomes(part, State::Gone);
    Ok(())
}

async fn join(world: &Arc<World>, part: Part) -> Result<()> {
    let Part::Node(region, n) = part else {
        return Ok(());
    };
    let end = Instant::now() + JOINED;
    world.becomes(part, State::Between);
    loop {
        let mut processes = world.processes.lock().await;
        match processes.join((region, n)).await {
            Ok(()) => break,
            Err(error) => {
                world.judge().count("commands that the centre refused");
                ensure!(Instant::now() < end, "{error:#}");
            }
        }
        drop(processes);
        tokio::time::sleep(AGAIN).await;
    }
    well(world, part).await
}

/// Makes the version before the current one current; where there is none, the next one is deployed.
async fn roll_back(world: &Arc<World>) -> Result<()> {
    let current = lock(&world.versions).1;
    if current < 2 {
        return world.next_version(&["--no-wait"]).await.map(drop);
    }
    let version = (current - 1).to_string();
    let rollback = ["rollback", HELLO, &version, "--no-wait"];
    world.typed(&rollback, &[]).await?;
    lock(&world.versions).1 = current - 1;
    Ok(())
}
