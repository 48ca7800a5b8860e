//! Later stages of a workflow whose functions have no instance: one is started before the call comes, and the call never depends on that.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use fdn_core::message::{AppDesired, AppPhase, NodeStatus};
use fdn_core::{ClusterId, DurationMs, NodeId};
use fdn_edge_agent::{Agent, Settings};
use fdn_instances::Runtime;
use fdn_instances::fake::{FakeEngine, FakeProgram};
use fdn_testkit::{components, wait};
use http_body_util::Full;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::bursts::container;
use crate::support::workflows::{deploy, desired, settings, tell_addresses};
use crate::support::{Network, http2_client};

/// The first stage waits until the test releases it.
const THREE: &str = "
stages:
  - { name: in, function: gate }
  - { name: far, function: echo, needs: [in] }
  - { name: near, function: last, needs: [far] }
";

/// Agents of eu-west and us-east with a common engine.
struct Cold {
    network: Network,
    engine: Arc<FakeEngine>,
    eu: Agent,
    us: Vec<Agent>,
    open: watch::Sender<bool>,
}

type Call = JoinHandle<reqwest::Result<reqwest::Response>>;

impl Cold {
    /// One agent of us-east for each of these changes to its settings.
    async fn start(us: &[fn(&mut Settings)]) -> Self {
        let network = Network::start().await;
        let (open, gate) = watch::channel(false);
        let engine = FakeEngine::new();
        let echo = || {
            FakeProgram::new(|_, request| async move { http::Response::new(request.into_body()) })
        };
        engine.add_image("echo", echo());
        engine.add_image("last", echo());
        let waits = FakeProgram::new(move |_, request| {
            let mut gate = gate.clone();
            async move {
                gate.wait_for(|open| *open).await.expect("the test goes on");
                http::Response::new(request.into_body())
            }
        });
        engine.add_image("gate", waits);
        let runtime = |settings: &Settings| -> Arc<dyn Runtime> {
            engine.runtime(settings.cluster.clone(), settings.node.clone())
        };
        let mut own = settings(&network, "n-1", "eu-west");
        // So that instances are started for calls only.
        own.scale.max = 1;
        let images = runtime(&own);
        let eu = Box::pin(network.agent_with(own, images)).await;
        let mut others = Vec::new();
        for (n, change) in us.iter().enumerate() {
            let mut settings = settings(&network, &format!("n-{}", n + 2), "us-east");
            settings.scale.max = 1;
            change(&mut settings);
            let images = runtime(&settings);
            others.push(Box::pin(network.agent_with(settings, images)).await);
        }
        let addresses = others.iter().filter_map(Agent::stage_address);
        let addresses: Vec<SocketAddr> = addresses.collect();
        tell_addresses(&network, &addresses, Vec::new()).await;
        Self {
            network,
            engine,
            eu,
            us: others,
            open,
        }
    }

    fn three(&self) -> AppDesired {
        let functions = ["gate", "echo", "last"].map(|name| (name, name.into(), false));
        let places = [("far", "us-east")];
        let mut wanted = desired(&self.network, "cold", THREE, &functions, &places);
        let spec = wanted.spec.as_mut().expect("an app");
        for function in &mut spec.functions {
            function.manifest = container();
        }
        wanted
    }

    /// Deploys the workflow, and waits until every agent serves it.
    async fn deploy(&self, wanted: AppDesired) {
        let revision = wanted.revision;
        deploy(&self.network, "n-1", wanted).await;
        for agent in &self.us {
            let ready = |status: &NodeStatus| {
                let mut apps = status.apps.iter();
                status.node == *agent.node()
                    && apps.any(|app| app.revision == revision && app.phase == AppPhase::Ready)
            };
            self.network.until_status(ready).await;
        }
    }

    /// A call, which continues when the gate is opened.
    fn call(&self) -> Call {
        let call = self.network.post(&self.eu, "cold", "/").body("hello");
        tokio::spawn(call.send())
    }

    async fn until(&self, agent: &Agent, line: &str) {
        wait::until(line, async || {
            match self.network.metric(agent, line).await {
                Some(1.0) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// The nodes of the running instances, one entry per instance.
    fn alive(&self) -> Vec<(ClusterId, NodeId)> {
        let alive = self.engine.alive().into_iter();
        let mut alive: Vec<_> = alive
            .map(|(owner, _)| (owner.cluster, owner.node))
            .collect();
        alive.sort();
        alive
    }

    async fn answered(&self, call: Call) {
        self.open.send_replace(true);
        let answer = call.await.expect("a task").expect("an answer");
        assert_eq!(answer.status(), 200);
        let told = answer.headers()["x-fdn-stages"].to_str().expect("text");
        assert_eq!(told, "in=eu-west, far=us-east, near=eu-west");
        assert_eq!(answer.text().await.expect("text"), "hello");
    }

    async fn stop(self) {
        self.eu.stop().await;
        for agent in self.us {
            agent.stop().await;
        }
    }
}

fn told(place: &str, outcome: &str) -> String {
    format!(
        "fdn_agent_stage_prewarms_total{{node=\"n-1\",outcome=\"{outcome}\",where=\"{place}\"}}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn later_stages_have_their_instances_before_their_calls_come() {
    let cold = Cold::start(&[|_| ()]).await;
    let wanted = cold.three();
    cold.deploy(wanted).await;
    assert_eq!(cold.engine.starts(), 0);
    let call = cold.call();
    cold.until(&cold.eu, &told("away", "started")).await;
    cold.until(&cold.eu, &told("here", "started")).await;
    let served = "fdn_agent_stage_prewarms_served_total{node=\"n-2\",outcome=\"started\"}";
    cold.until(&cold.us[0], served).await;
    // The first stage has not ended; the second one has an instance in its cluster, and the third one, after it, here.
    wait::until("three instances", async || match cold.alive().len() {
        3 => Ok(()),
        other => Err(other),
    })
    .await;
    let nodes: Vec<String> = cold
        .alive()
        .iter()
        .map(|(cluster, node)| format!("{cluster}/{node}"))
        .collect();
    assert_eq!(nodes, ["eu-west/n-1", "eu-west/n-1", "us-east/n-2"]);
    let done = "fdn_agent_workflow_stages_total{node=\"n-1\",outcome=\"done\"";
    assert_eq!(cold.network.metric(&cold.eu, done).await, None);
    cold.answered(call).await;
    assert_eq!(cold.engine.starts(), 3, "no more than calls");
    cold.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_call_goes_to_the_node_that_was_told_of_it() {
    let cold = Cold::start(&[|_| (), |_| ()]).await;
    let wanted = cold.three();
    cold.deploy(wanted).await;
    let call = cold.call();
    cold.until(&cold.eu, &told("away", "started")).await;
    cold.answered(call).await;
    // Nodes take turns: without the announcement, the call would have gone to another one.
    assert_eq!(cold.engine.starts(), 3);
    cold.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_starts_nothing_ahead_serves_the_call() {
    let off: fn(&mut Settings) = |settings| settings.workflows.prewarm = DurationMs::from_secs(0);
    let cold = Cold::start(&[off]).await;
    let wanted = cold.three();
    cold.deploy(wanted).await;
    let call = cold.call();
    cold.until(&cold.eu, &told("away", "unknown")).await;
    cold.until(&cold.eu, &told("here", "started")).await;
    wait::until("two instances", async || match cold.alive().len() {
        2 => Ok(()),
        other => Err(other),
    })
    .await;
    let is_here = |(cluster, _): &(ClusterId, NodeId)| cluster.as_str() == "eu-west";
    assert!(cold.alive().iter().all(is_here), "nothing in us-east");
    cold.answered(call).await;
    assert_eq!(cold.engine.starts(), 3);
    cold.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_tells_nothing_waits_for_every_start() {
    let network = Network::start().await;
    let mut own = settings(&network, "n-1", "eu-west");
    own.workflows.prewarm = DurationMs::from_secs(0);
    let engine = FakeEngine::new();
    engine.add_image("echo", FakeProgram::text("hello"));
    let images = engine.runtime(own.cluster.clone(), own.node.clone());
    let agent = network.agent_with(own, images).await;
    let text = "
stages:
  - { name: in, function: wasm }
  - { name: end, function: echo, needs: [in] }
";
    let functions = [
        ("wasm", components::echo(), false),
        ("echo", b"echo".to_vec(), false),
    ];
    let mut wanted = desired(&network, "cold", text, &functions, &[]);
    wanted.spec.as_mut().expect("an app").functions[1].manifest = container();
    deploy(&network, "n-1", wanted).await;
    let answer = network.post(&agent, "cold", "/").body("x").send().await;
    let answer = answer.expect("an answer").text().await.expect("text");
    assert_eq!(answer, "hello");
    let told = "fdn_agent_stage_prewarms_total";
    assert_eq!(network.metric(&agent, told).await, None);
    agent.stop().await;
}

/// A gateway of an earlier release: it answers stage calls, and treats anything else under their path as an invalid call.
async fn older(told: Arc<AtomicUsize>) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let serve = tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                return;
            };
            let told = Arc::clone(&told);
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let told = Arc::clone(&told);
                async move {
                    let is_call = request.uri().path() == "/fdn.stage.v1/cold/far";
                    let answer = http::Response::builder();
                    let answer = if is_call {
                        let answer = answer.header("fdn-call-outcome", "answered");
                        answer.body(Full::new(Bytes::from_static(b"of an older one")))
                    } else {
                        told.fetch_add(1, Ordering::Relaxed);
                        let answer = answer.status(502).header("fdn-call-outcome", "refused");
                        answer.body(Full::default())
                    };
                    Ok::<_, Infallible>(answer.expect("an answer"))
                }
            });
            tokio::spawn(async move {
                let serving = Builder::new(TokioExecutor::new());
                // It ends with the test.
                drop(
                    serving
                        .serve_connection(TokioIo::new(stream), service)
                        .await,
                );
            });
        }
    });
    (address, serve)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_does_not_know_of_this_serves_the_call_and_is_not_told_again() {
    let cold = Cold::start(&[]).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let (address, serving) = older(Arc::clone(&asked)).await;
    tell_addresses(&cold.network, &[address], Vec::new()).await;
    let wanted = cold.three();
    cold.deploy(wanted).await;
    let mut calls = Vec::new();
    for tells in [1.0, 2.0] {
        calls.push(cold.call());
        wait::until("the run to have told", async || {
            let line = told("away", "unknown");
            match cold.network.metric(&cold.eu, &line).await {
                Some(found) if found == tells => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1, "the second run knows it");
    cold.open.send_replace(true);
    for call in calls {
        let answer = call.await.expect("a task").expect("an answer");
        assert_eq!(answer.status(), 200);
        let text = answer.text().await.expect("text");
        assert_eq!(text, "of an older one");
    }
    serving.abort();
    cold.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_shows_no_token_has_nothing_started() {
    let cold = Cold::start(&[|_| ()]).await;
    let wanted = cold.three();
    cold.deploy(wanted).await;
    let address = cold.us[0].stage_address().expect("it takes stage calls");
    let url = format!("http://{address}/fdn.stage.v1/cold/far/ahead");
    let client = http2_client(&cold.us[0], &[]);
    let telling = client.post(&url).timeout(wait::PATIENCE);
    let telling = telling
        .header("fdn-call-token", "guessed")
        .header("fdn-call-app-host", "cold.fn.test")
        .header("fdn-call-version", "echo@v1")
        .header("fdn-call-within", "0");
    let answer = telling.send().await.expect("an answer");
    assert_eq!(answer.status(), 403);
    assert_eq!(cold.engine.starts(), 0);
    cold.stop().await;
}
