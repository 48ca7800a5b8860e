//! Bursts of calls from zero instances, after every instance was killed, and over a slow link: every call ends with 200.

use std::sync::Arc;
use std::time::Duration;

use fdn_core::DurationMs;
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_edge_agent::artifacts::Machine;
use fdn_edge_agent::{Agent, Settings};
use fdn_instances::Runtime;
use fdn_instances::fake::{FakeEngine, FakeProgram};
use fdn_testkit::{components, wait};

use crate::support::Network;
use crate::support::killable::Killable;
use crate::support::link::Far;

const BURST: usize = 50;

/// The manifest of a container.
pub(crate) fn container() -> Manifest {
    Manifest {
        runtime: RuntimeKind::Docker,
        timeout: DurationMs::from_secs(60),
        cpu_milli: fdn_core::MilliCpu(10),
        expected: DurationMs::from_millis(20),
        ..Manifest::default()
    }
}

/// A fake engine with an image of this name, whose bytes are its name.
pub(crate) fn engine(name: &str, program: FakeProgram) -> Arc<FakeEngine> {
    let engine = FakeEngine::new();
    engine.add_image(name, program);
    engine.delay_starts(Duration::from_millis(80));
    engine
}

pub(crate) fn runtime(engine: &Arc<FakeEngine>, node: &str) -> Arc<dyn Runtime> {
    engine.runtime(
        "eu-west".parse().expect("cluster"),
        node.parse().expect("node"),
    )
}

/// Makes this many calls at once; returns how many ended with 200, and what the others were.
pub(crate) async fn burst(
    network: &Network,
    agent: &Agent,
    app: &str,
    count: usize,
) -> (usize, Vec<String>) {
    burst_of(network, agent, (app, "/"), count).await
}

/// The same for a path of the app.
pub(crate) async fn burst_of(
    network: &Network,
    agent: &Agent,
    (app, path): (&str, &str),
    count: usize,
) -> (usize, Vec<String>) {
    let calls = (0..count).map(|_| async {
        let answer = network.get(agent, app, path).send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| error.to_string())?;
        if status == 200 {
            Ok(())
        } else {
            Err(format!("{status}: {text}"))
        }
    });
    let results = futures::future::join_all(calls).await;
    let (good, bad): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    (
        good.len(),
        bad.into_iter().filter_map(Result::err).collect(),
    )
}

/// The maximum of `count`, polled while the calls run.
pub(crate) async fn most_during<T>(
    calls: impl Future<Output = T>,
    mut count: impl AsyncFnMut() -> usize,
) -> (T, usize) {
    tokio::pin!(calls);
    let mut most = 0;
    loop {
        tokio::select! {
            done = &mut calls => return (done, most),
            // As often as the source answers.
            now = count() => most = most.max(now),
        }
    }
}

/// The number of calls one after another that take a function's instances from none to twenty and back. The largest number is repeated until
/// twenty were seen, since a slow machine starts instances later.
pub(crate) async fn up_and_down(mut calls: impl AsyncFnMut(usize) -> usize) {
    let mut most = 0;
    for count in [10, 40, 250, 250, 250] {
        most = most.max(calls(count).await);
    }
    for _ in 0..20 {
        if most >= 20 {
            break;
        }
        most = most.max(calls(250).await);
    }
    for count in [150, 40, 10] {
        most = most.max(calls(count).await);
    }
    assert_eq!(most, 20, "there is room for twenty, and no more");
}

/// Deploys the image and waits until the node has it.
pub(crate) async fn deployed(
    network: &Network,
    app: &str,
    image: impl AsRef<[u8]>,
    manifest: Manifest,
) {
    let revision = network.deploy(app, 1, image.as_ref(), manifest).await;
    let ready = |phase: &fdn_core::message::AppPhase| *phase == fdn_core::message::AppPhase::Ready;
    network.until_phase(app, revision, ready).await;
}

fn thumbs() -> FakeProgram {
    FakeProgram::new(|_, _| async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        http::Response::new(fdn_instances::full_body("thumb"))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_from_zero_after_a_kill_and_over_a_slow_link() {
    let network = Network::start().await;
    let mut good = 0;
    let near = engine("thumbs", thumbs());
    let agent = network
        .agent_with(network.settings("near-1"), runtime(&near, "near-1"))
        .await;
    deployed(&network, "thumbs", "thumbs", container()).await;
    for round in ["from zero", "after kill -9 of every instance"] {
        if round != "from zero" {
            assert!(near.crash_all() > 0);
        }
        let (served, others) = burst(&network, &agent, "thumbs", BURST).await;
        assert!(others.is_empty(), "{round}: {others:?}");
        good += served;
    }
    agent.stop().await;
    let far = engine("thumbs", thumbs());
    let near_end = far.runtime(
        "eu-west".parse().expect("cluster"),
        "far-1".parse().expect("node"),
    );
    let link = Arc::new(Far {
        near: near_end,
        delay: Duration::from_millis(75),
    });
    let agent = network.agent_with(network.settings("far-1"), link).await;
    network.until_text(&agent, "thumbs", "thumb").await;
    assert!(far.crash_all() > 0);
    let (served, others) = burst(&network, &agent, "thumbs", BURST).await;
    assert!(others.is_empty(), "150 ms link: {others:?}");
    good += served;
    assert_eq!(good, 150);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_are_killed_under_calls() {
    Box::pin(killed_under_calls(2, 2)).await;
}

/// Enough bursts that even the last kill meets calls: each kill follows 26 answers.
async fn killed_under_calls(kills: usize, bursts: usize) {
    let network = Network::start().await;
    let answered = tokio::sync::watch::Sender::new(0_usize);
    let counted = answered.clone();
    let thumbs = FakeProgram::new(move |_, _| {
        let counted = counted.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            counted.send_modify(|answered| *answered += 1);
            http::Response::new(fdn_instances::full_body("thumb"))
        }
    });
    let engine = engine("thumbs", thumbs);
    let agent = network
        .agent_with(network.settings("eu-west-1"), runtime(&engine, "eu-west-1"))
        .await;
    deployed(&network, "thumbs", "thumbs", container()).await;
    let calls = async {
        for _ in 0..bursts {
            let (_, others) = burst(&network, &agent, "thumbs", BURST).await;
            assert!(others.is_empty(), "{others:?}");
        }
    };
    let kills = async {
        // At that moment some calls are on their way, some queued, and some just answered. Each kill waits for answers, however long they take:
        // instances that are killed before they ever answer are started less and less often.
        let mut heard = answered.subscribe();
        for kill in 1..=kills {
            let wanted = kill * 25 + kill;
            drop(heard.wait_for(|answered| *answered >= wanted).await);
            engine.crash_all();
        }
    };
    tokio::join!(calls, kills);
    agent.stop().await;
}

/// An agent, and the engine that runs its components.
async fn with_engine(network: &Network, settings: Settings) -> (Agent, fdn_runtime::Engine) {
    let machine = Machine::new(&settings.runtime).expect("an engine");
    let engine = machine.engine.clone();
    (network.start_agent(settings, machine, None).await, engine)
}

#[tokio::test(flavor = "multi_thread")]
async fn components_from_zero_after_their_sandboxes_are_gone_and_while_they_are_replaced() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.apps.warm_call = false;
    let (agent, engine) = with_engine(&network, settings).await;
    let manifest = Manifest {
        reuse: 1000,
        ..Manifest::default()
    };
    // Nothing is fetched or compiled yet: all calls are held.
    let hello = components::hello("hi");
    network
        .deploy_where("hello", 1, &hello, manifest.clone(), false)
        .await;
    wait::until("the route", async || {
        let answer = network.get(&agent, "hello", "/").send().await;
        let answer = answer.map_err(|error| error.to_string())?;
        if answer.status() == 404 {
            Err("not known yet".to_owned())
        } else {
            Ok(())
        }
    })
    .await;
    let (from_zero, others) = burst(&network, &agent, "hello", BURST).await;
    assert!(others.is_empty(), "{others:?}");
    engine.drop_idle();
    let (after, others) = burst(&network, &agent, "hello", BURST).await;
    assert!(others.is_empty(), "{others:?}");
    // A new version arrives while calls run.
    let again = components::hello("hi again");
    let replace = network.deploy_where("hello", 2, &again, manifest, true);
    let (during, _) = tokio::join!(burst(&network, &agent, "hello", BURST), replace);
    assert!(during.1.is_empty(), "{:?}", during.1);
    assert_eq!(from_zero + after + during.0, 150);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_calls_of_a_component_while_its_sandboxes_come_and_go() {
    let network = Network::start().await;
    let settings = network.settings("eu-west-1");
    let (agent, engine) = with_engine(&network, settings).await;
    network.knows("eu-west-1".parse().expect("node"));
    let manifest = Manifest {
        reuse: 1000,
        ..Manifest::default()
    };
    network
        .deploy("hello", 1, &components::hello("hi"), manifest)
        .await;
    network.until_text(&agent, "hello", "hi").await;
    let mut good = 0;
    for count in [10, 40, 250, 250, 250, 150, 40, 10] {
        assert!(engine.drop_idle() > 0, "what answered is kept");
        let (served, others) = burst(&network, &agent, "hello", count).await;
        assert!(others.is_empty(), "{count} at a time: {others:?}");
        good += served;
    }
    assert_eq!(good, 1000);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_right_after_the_agent_was_killed_and_started_again() {
    Box::pin(killed_and_started_again(2)).await;
}

/// Kills and restarts the agent's process this many times, each time with a burst of callers that retry until they are connected.
async fn killed_and_started_again(times: usize) {
    let network = Network::start().await;
    let echo = components::echo();
    network.controller.store(&echo);
    let manifest = Manifest {
        reuse: 1000,
        ..Manifest::default()
    };
    let desired = network.desired("echo", 1, &echo, manifest, true);
    network.controller.set(desired);
    let agent = Killable::new(&network);
    let mut process = agent.start().await;
    agent.until_it_answers(&network.client, "echo").await;
    for time in 1..=times {
        process.kill();
        process = agent.spawn();
        // No earlier connection is reused.
        let client = fdn_service::http_client::build(wait::PATIENCE).expect("a client");
        let calls = (0..BURST).map(|_| {
            wait::until("the agent to listen", async || {
                match agent.post(&client, "echo").body("again").send().await {
                    Err(error) if error.is_connect() => Err(error),
                    // Any outcome of a call that reached the agent counts.
                    answer => Ok(answer),
                }
            })
        });
        for answer in futures::future::join_all(calls).await {
            let answer = answer.unwrap_or_else(|error| panic!("{time}: {error:?}"));
            let status = answer.status();
            let text = answer.text().await.expect("a body");
            assert_eq!((status.as_u16(), text.as_str()), (200, "again"), "{time}");
        }
    }
    process.stop(wait::PATIENCE).expect("it ends in order");
}

mod soak {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn bursts_right_after_the_agent_was_killed_and_started_again_and_again() {
        Box::pin(killed_and_started_again(25)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn instances_are_killed_again_and_again_under_calls() {
        Box::pin(killed_under_calls(10, 6)).await;
    }
}
