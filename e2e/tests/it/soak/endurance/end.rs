//! The end: everything is well again, everything is handed over, and the sums are held against what was called and submitted.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fdn_core::job::JobInfo;
use fdn_e2e::Held;
use fdn_e2e::endurance::judge::{Job, Rule, Tally};
use fdn_e2e::endurance::processes::{Processes, all};
use fdn_e2e::endurance::schedule::Part;
use fdn_testkit::wait;

use super::world::{FLOW, HELLO, WORK, World, lock, metric};

/// How long the network may take for each of these on a slow and busy machine.
const LONG: Duration = Duration::from_secs(300);
/// Stages of the workflow, each a call of its own.
const STAGES: u64 = 2;

/// What there is some of in every run.
const LOOKED_AT: [&str; 6] = [
    "calls answered",
    "workflows answered",
    "jobs accepted",
    "questions answered",
    "looks at what nodes hold",
    "looks at revisions",
];

/// Waits for all of it, and hands it to the judge.
pub(crate) async fn settle(world: &Arc<World>, told: &Held) {
    for (what, done) in [
        ("a last version", last_version(world).await),
        ("all jobs to end", jobs(world, told).await),
        ("all usage to be counted", usage(world).await),
    ] {
        if let Err(error) = done {
            world.violated(Rule::Stuck, format!("waiting for {what}: {error:#}"));
        }
    }
    // What was never looked at is not well.
    for what in LOOKED_AT {
        if !world.judge().counts().contains_key(what) {
            world.violated(Rule::Stuck, format!("no {what}"));
        }
    }
    let stopped = world.processes.lock().await.stop();
    if let Err(error) = stopped {
        world.violated(Rule::Ended, format!("stopping everything: {error:#}"));
    }
}

/// What is deployed now every machine answers with.
async fn last_version(world: &Arc<World>) -> Result<()> {
    let version = world.next_version(&["--wait", "--timeout", "120s"]).await?;
    let expected = format!("version-{version}-");
    let machines: BTreeSet<_> = all().filter_map(Processes::address).collect();
    for machine in machines {
        wait::try_within(LONG, async || {
            let url = format!("http://{machine}:{}/", world.gateway_port);
            let call = world.http.get(url).header("host", "hello.fn.test");
            let answer = call.send().await?.error_for_status();
            world.tally(HELLO, |tally| match answer {
                Ok(_) => tally.answered += 1,
                Err(_) => tally.unclear += 1,
            });
            let text = answer?.text().await?;
            ensure!(text == expected, "{machine} answers {text}");
            Ok::<_, anyhow::Error>(())
        })
        .await?;
    }
    Ok(())
}

/// One page of the app's jobs, and what asks for the next one.
async fn page(world: &World, query: &str) -> Result<(Vec<JobInfo>, Option<String>)> {
    let url = format!("http://{}/v1/apps/{WORK}/jobs{query}", world.apis[0]);
    let answer = world.http.get(url).bearer_auth(&world.token).send().await?;
    let answer = answer.error_for_status()?;
    let link = answer.headers().get("link");
    let next = link.and_then(|link| {
        let target = link.to_str().ok()?.strip_prefix('<')?.split_once('>')?.0;
        Some(format!("?{}", target.split_once('?')?.1))
    });
    Ok((answer.json().await?, next))
}

async fn jobs(world: &Arc<World>, told: &Held) -> Result<()> {
    wait::try_within(LONG, async || {
        for state in ["submitted", "queued", "running"] {
            let (open, _) = page(world, &format!("?state={state}&limit=1")).await?;
            ensure!(open.is_empty(), "{state}: {:?}", open.first());
        }
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    let (mut all, mut query) = (Vec::new(), Some("?limit=1000".to_owned()));
    while let Some(asked) = query {
        let (some, next) = page(world, &asked).await?;
        all.extend(some.into_iter().map(|job| Job {
            id: job.id.to_string(),
            state: job.state.to_string(),
            attempts: u64::from(job.attempts),
        }));
        query = next;
    }
    let ended = all.iter().filter(|job| job.state == "succeeded").count() as u64;
    let attempts: u64 = all.iter().map(|job| job.attempts).sum();
    // What a job's attempt has run is known of those that ended well, and of the others is not.
    world.tally(WORK, |tally| {
        tally.answered = ended;
        tally.unclear = attempts - ended;
    });
    let ran = told.came() as u64;
    let accepted = lock(&world.jobs).clone();
    world.judge().jobs(world.now(), &accepted, &all, ran);
    Ok(())
}

/// Waits until each node has handed everything over, and compares the sums.
async fn usage(world: &Arc<World>) -> Result<()> {
    wait::try_within(LONG, async || {
        for part in all().filter(|part| matches!(part, Part::Node(..))) {
            let machine = world.admin(Processes::address(part).context("no address")?);
            let text = world.metrics(machine).await?;
            let left = metric(&text, "fdn_agent_usage_spool_bytes", "");
            ensure!(left == Some(0.0), "{part}: {left:?} bytes of usage");
        }
        Ok::<_, anyhow::Error>(())
    })
    .await?;
    let tallies = lock(&world.tallies).clone();
    for (app, count) in recorded(world).await? {
        let Some(tally) = tallies.get(app.as_str()).copied() else {
            continue;
        };
        let at = world.now();
        if app == FLOW {
            // A stage that was cut short is run again, within its run: so often at least.
            let least = Tally {
                answered: tally.answered * STAGES,
                unclear: u64::MAX / 2,
            };
            world.judge().usage(at, &app, least, count);
        } else {
            world.judge().usage(at, &app, tally, count);
        }
    }
    Ok(())
}

/// Calls of each app as they are billed.
async fn recorded(world: &Arc<World>) -> Result<Vec<(String, u64)>> {
    let text = world
        .typed(&["bill", "--by", "app", "-o", "json"], &[])
        .await?;
    let view: serde_json::Value = serde_json::from_str(&text)?;
    let rows = view["rows"].as_array().context("no rows")?;
    let count = |row: &serde_json::Value| {
        let calls = row["quantities"]["invocations"].as_str()?.parse().ok()?;
        Some((row["name"].as_str()?.to_owned(), calls))
    };
    let all: Vec<_> = rows.iter().filter_map(count).collect();
    ensure!(all.len() >= 3, "not every app has usage: {view}");
    Ok(all)
}
