//! A secret that changes while calls run: no call fails, the new value takes effect, and nothing keeps the old one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fdn_core::InstanceId;
use fdn_core::manifest::Manifest;
use fdn_core::message::{AppDesired, AppPhase, NodeStatus};
use fdn_core::policy::{GatewaySpec, Traffic};
use fdn_edge_agent::Agent;
use fdn_instances::fake::FakeProgram;
use fdn_instances::full_body;
use fdn_testkit::{components, wait};
use tokio::task::JoinSet;

use crate::bursts::{container, deployed, engine, runtime};
use crate::support::Network;

const CLIENTS: usize = 4;
const OLD: &str = "secret of API_KEY";
const NEW: &str = "tr0ub4dor";

fn with_secret(manifest: Manifest) -> Manifest {
    Manifest {
        secrets: ["API_KEY".parse().expect("name")].into(),
        ..manifest
    }
}

/// The app's desired state with only the secret's value changed.
fn rotated(network: &Network, app: &str) -> AppDesired {
    let mut desired = network
        .controller
        .desired(app)
        .expect("an app that is deployed");
    desired.revision = network.next_revision();
    network.controller.set_secret("API_KEY", NEW);
    desired
}

/// Makes calls until it is stopped; every answer must be one of the two values.
struct Load {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    clients: JoinSet<BTreeSet<String>>,
}

impl Load {
    fn start(network: &Network, agent: &Agent, app: &str) -> Self {
        let (stop, calls) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let (stop, calls) = (Arc::clone(&stop), Arc::clone(&calls));
            let request = network.get(agent, app, "/");
            clients.spawn(async move {
                let mut seen = BTreeSet::new();
                while !stop.load(Ordering::Relaxed) {
                    let request = request.try_clone().expect("it has no body");
                    let answer = request.send().await.expect("an answer");
                    let status = answer.status();
                    let text = answer.text().await.expect("a body");
                    assert_eq!(status, 200, "{text}");
                    seen.insert(text);
                    calls.fetch_add(1, Ordering::Relaxed);
                }
                seen
            });
        }
        Self {
            stop,
            calls,
            clients,
        }
    }

    /// Waits until this many more calls have ended.
    async fn more(&self, count: u64) {
        let until = self.calls.load(Ordering::Relaxed) + count;
        wait::until("calls to end", async || {
            let now = self.calls.load(Ordering::Relaxed);
            if now >= until || self.clients.is_empty() {
                Ok(())
            } else {
                Err(format!("{now} of {until}"))
            }
        })
        .await;
    }

    /// The answers seen. Fails if a call failed.
    async fn end(self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.clients.join_all().await;
        seen.into_iter().flatten().collect()
    }
}

fn both() -> BTreeSet<String> {
    [OLD.to_owned(), NEW.to_owned()].into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_has_the_new_value_for_the_next_call() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let manifest = with_secret(Manifest {
        reuse: 100,
        ..Manifest::default()
    });
    let component = components::env_dump("API_KEY");
    network.deploy("vault", 1, &component, manifest).await;
    network.until_text(&agent, "vault", OLD).await;
    let load = Load::start(&network, &agent, "vault");
    load.more(20).await;
    network.demand(rotated(&network, "vault")).await;
    network.until_text(&agent, "vault", NEW).await;
    // Sandboxes kept for reuse hold no old value: every call from now on answers with the new one.
    for _ in 0..50 {
        assert_eq!(network.text(&agent, "vault").await, NEW);
    }
    load.more(20).await;
    assert_eq!(load.end().await, both());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_with_the_old_value_make_room_for_those_with_the_new() {
    let network = Network::start().await;
    let held: Arc<Mutex<BTreeSet<InstanceId>>> = Arc::default();
    let old = Arc::clone(&held);
    let program = FakeProgram::new(move |context, _| {
        let value = context.environment()["API_KEY"].clone();
        if value == OLD {
            let mut old = old.lock().expect("not poisoned");
            old.insert(context.description().id);
        }
        async move { http::Response::new(full_body(value)) }
    });
    let engine = engine("vault", program);
    let agent = network
        .agent_with(network.settings("eu-west-1"), runtime(&engine, "eu-west-1"))
        .await;
    deployed(&network, "vault", "vault", with_secret(container())).await;
    network.until_text(&agent, "vault", OLD).await;
    let load = Load::start(&network, &agent, "vault");
    load.more(20).await;
    network.demand(rotated(&network, "vault")).await;
    network.until_text(&agent, "vault", NEW).await;
    load.more(20).await;
    wait::until("instances with the old value to be gone", async || {
        let alive: Vec<InstanceId> = engine.alive().into_iter().map(|(_, id)| id).collect();
        let held = held.lock().expect("not poisoned");
        let left = alive.iter().filter(|id| held.contains(id)).count();
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
    assert!(!engine.alive().is_empty(), "one with the new value serves");
    for _ in 0..20 {
        assert_eq!(network.text(&agent, "vault").await, NEW);
    }
    assert_eq!(load.end().await, both());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_waits_for_an_instance_because_of_a_rotation() {
    let network = Network::start().await;
    let program = FakeProgram::new(|context, _| {
        let value = context.environment()["API_KEY"].clone();
        async move { http::Response::new(full_body(value)) }
    });
    let engine = engine("vault", program);
    let agent = network
        .agent_with(network.settings("eu-west-1"), runtime(&engine, "eu-west-1"))
        .await;
    let manifest = Manifest {
        concurrency: 50,
        ..with_secret(container())
    };
    deployed(&network, "vault", "vault", manifest).await;
    network.until_text(&agent, "vault", OLD).await;
    engine.hold_starts();
    let starts = engine.starts();
    network.demand(rotated(&network, "vault")).await;
    wait::until("an instance with the new value to start", async || {
        let now = engine.starts();
        if now > starts { Ok(()) } else { Err(now) }
    })
    .await;
    // As long as the new instance starts, the old one answers.
    for _ in 0..50 {
        assert_eq!(network.text(&agent, "vault").await, OLD);
    }
    let waits = "fdn_agent_instance_wait_seconds_count";
    let waited = network.metric(&agent, waits).await;
    engine.release_starts();
    network.until_text(&agent, "vault", NEW).await;
    for _ in 0..50 {
        assert_eq!(network.text(&agent, "vault").await, NEW);
    }
    assert_eq!(network.metric(&agent, waits).await, waited, "nobody waited");
    assert_eq!(engine.starts(), starts + 1);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_value_with_which_nothing_starts_is_taken_all_the_same() {
    let network = Network::start().await;
    let engine = engine("vault", FakeProgram::text("hi"));
    let agent = network
        .agent_with(network.settings("eu-west-1"), runtime(&engine, "eu-west-1"))
        .await;
    deployed(&network, "vault", "vault", with_secret(container())).await;
    network.until_text(&agent, "vault", "hi").await;
    let refused = fdn_instances::StartError::ImageMissing {
        image: "vault".to_owned(),
        reason: "the script says so".to_owned(),
    };
    engine.fail_starts([refused]);
    let desired = rotated(&network, "vault");
    let revision = desired.revision;
    network.demand(desired).await;
    let is_ready = |status: &NodeStatus| {
        let app = status.apps.iter().find(|app| app.app.as_str() == "vault");
        app.is_some_and(|app| app.revision == revision && app.phase == AppPhase::Ready)
    };
    network.until_status(is_ready).await;
    network.until_text(&agent, "vault", "hi").await;
    agent.stop().await;
}

/// The versions of a split are counted separately; further host names of the app work too.
#[tokio::test(flavor = "multi_thread")]
async fn versions_of_a_split_are_reported_and_domains_answered() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let component = components::hello("hi");
    let manifest = Manifest::default();
    network.deploy("shop", 2, &component, manifest).await;
    network.until_text(&agent, "shop", "hi").await;
    let share = fdn_core::policy::traffic::Share {
        version: 2.try_into().expect("a number"),
        weight: 1,
    };
    let gateway = GatewaySpec {
        traffic: Traffic {
            split: vec![share],
            ..Traffic::default()
        },
        hosts: ["shop.example.org".parse().expect("host")].into(),
        ..GatewaySpec::default()
    };
    network.regulate("shop", gateway).await;
    let call = |host: &'static str| {
        let url = format!("http://{}/", agent.gateway_address());
        network.client.get(url).header("host", host)
    };
    for host in ["shop.example.org", "SHOP.example.org:8080"] {
        let answer = call(host).send().await.expect("an answer");
        assert_eq!(answer.text().await.expect("text"), "hi", "{host}");
    }
    let other = call("other.example.org").send().await.expect("an answer");
    assert_eq!(other.status(), 404);
    let versions = |status: &NodeStatus| {
        let app = status.apps.iter().find(|app| app.app.as_str() == "shop");
        app.map(|app| app.versions.clone()).unwrap_or_default()
    };
    let told = |status: &NodeStatus| versions(status).iter().any(|v| v.counts.calls >= 2);
    let counts = versions(&network.until_status(told).await).remove(0);
    assert_eq!((counts.version.get(), counts.counts.failures), (2, 0));
    let timed: u64 = counts.counts.latency.iter().map(|(_, calls)| calls).sum();
    assert_eq!(timed, counts.counts.calls);
    agent.stop().await;
}
