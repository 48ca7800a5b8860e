//! An app whose calls hang at a slow server: it holds only an app's share of a node's places, and other apps' calls go on as before.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fdn_core::manifest::Manifest;
use fdn_core::{DurationMs, ErrorCode, TenantId};
use fdn_edge_agent::{Agent, Settings};
use fdn_service::http_client;
use fdn_testkit::{components, wait};
use futures::{StreamExt as _, stream};
use reqwest::{Client, RequestBuilder};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::support::{Network, host, problem};

/// Longer than any of these tests: nothing that hangs ends by itself.
const LONG: DurationMs = DurationMs::from_secs(600);

/// A server that accepts requests and answers none until it is released.
struct Slow {
    authority: String,
    go: watch::Sender<bool>,
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Slow {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let authority = listener.local_addr().expect("an address").to_string();
        let (go, gone) = watch::channel(false);
        let counts: [Arc<AtomicUsize>; 2] = Default::default();
        let [open, most] = counts.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let ([open, most], mut gone) = (counts.clone(), gone.clone());
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    while !request.ends_with(b"\r\n\r\n") {
                        match stream.read_buf(&mut request).await {
                            Ok(read) if read > 0 => {}
                            // The connection was only a probe.
                            _ => return,
                        }
                    }
                    most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let went = gone.wait_for(|gone| *gone).await.is_ok();
                    open.fetch_sub(1, Ordering::SeqCst);
                    if went {
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nslow";
                        // The client may be gone.
                        drop(stream.write_all(answer).await);
                    }
                });
            }
        });
        Self {
            authority,
            go,
            open,
            most,
        }
    }

    /// A component that calls this server.
    fn asked(&self) -> (Vec<u8>, Manifest) {
        let manifest = Manifest {
            allowed_hosts: [self.authority.parse().expect("a host")].into(),
            ..Manifest::default()
        };
        (components::outbound(&self.authority), manifest)
    }
}

/// A node with this many places, of which one app may take three quarters and one tenant nine tenths; functions can reach this machine.
fn settings(network: &Network, slots: u32) -> Settings {
    let mut settings = network.settings("n-1");
    settings.admission.slots = slots;
    settings.admission.waiting = 4;
    settings.runtime.max_instances = slots + slots / 2;
    settings.runtime.private_networks = vec!["127.0.0.0/8".parse().expect("a prefix")];
    settings
}

/// Deploys another app, and waits until it answers.
async fn deploy(
    network: &Network,
    agent: &Agent,
    (app, text): (&str, &str),
    (component, manifest): (Vec<u8>, Manifest),
) {
    network.deploy(app, 1, &component, manifest).await;
    network.until_text(agent, app, text).await;
}

/// Deploys the app that hangs. Its first calls are held until it is ready.
async fn deploy_hanging(network: &Network, (component, manifest): (Vec<u8>, Manifest)) {
    let patient = Manifest {
        timeout: LONG,
        ..manifest
    };
    network.deploy("hangs", 1, &component, patient).await;
}

fn hello() -> (Vec<u8>, Manifest) {
    (components::hello("hi"), Manifest::default())
}

/// Sleeps as long as its path says, which is no time for the node's warm call.
fn sleeping() -> (Vec<u8>, Manifest) {
    (components::waiting(), Manifest::default())
}

/// The calls of the app `hangs`: those that hold its places, and those that wait for these.
struct Hanging(JoinSet<reqwest::Response>);

impl Hanging {
    /// Makes calls until the app holds `share` places, has three calls waiting for them, and further ones are refused.
    async fn start(network: &Network, agent: &Agent, share: usize) -> Self {
        let client = http_client::build(LONG.as_duration()).expect("a client");
        let mut calls = JoinSet::new();
        // Three of the four calls that may wait, the same share as of the places.
        for _ in 0..share + 3 + 5 {
            let call = patient(&client, agent).send();
            calls.spawn(async move { call.await.expect("an answer") });
        }
        for _ in 0..5 {
            let refused = tokio::time::timeout(wait::PATIENCE, calls.join_next()).await;
            let refused = refused.expect("in time").expect("one of them");
            let refused = refused.expect("no panic");
            assert_eq!(refused.status(), 429);
            assert_eq!(problem(refused).await.code, ErrorCode::TooManyAtOnce);
        }
        let hanging = Self(calls);
        hanging.until_busy(network, agent, share).await;
        hanging
    }

    async fn until_busy(&self, network: &Network, agent: &Agent, calls: usize) {
        wait::until("calls to hang", async || {
            match network.metric(agent, "fdn_agent_calls_busy").await {
                Some(busy) if busy == calls as f64 => Ok(()),
                busy => Err(format!("{busy:?} of {calls}")),
            }
        })
        .await;
    }

    /// Whether all calls are still waiting for the slow server.
    fn all_hang(&mut self) -> bool {
        self.0.try_join_next().is_none()
    }

    /// The clients disconnect.
    async fn leave(mut self, network: &Network, agent: &Agent) {
        self.0.abort_all();
        self.until_busy(network, agent, 0).await;
    }
}

/// A call that hangs.
fn patient(client: &Client, agent: &Agent) -> RequestBuilder {
    let url = format!("http://{}/600000", agent.gateway_address());
    client.get(url).header(reqwest::header::HOST, host("hangs"))
}

/// The status and the time of this many calls of an app, `at_once` at a time.
async fn called(
    network: &Network,
    agent: &Agent,
    app: &str,
    (calls, at_once): (usize, usize),
) -> Vec<(u16, std::time::Duration)> {
    let all = stream::iter(0..calls).map(|_| async {
        let began = std::time::Instant::now();
        let answer = network.get(agent, app, "/").send().await;
        let answer = answer.expect("an answer");
        let status = answer.status().as_u16();
        answer.bytes().await.expect("a body");
        (status, began.elapsed())
    });
    all.buffer_unordered(at_once).collect().await
}

#[tokio::test(flavor = "multi_thread")]
async fn others_are_answered_while_all_calls_of_an_app_hang_at_a_slow_server() {
    let network = Network::start().await;
    let agent = network.agent(settings(&network, 8)).await;
    let (slow, quick) = (Slow::start().await, Slow::start().await);
    quick.go.send_replace(true);
    deploy_hanging(&network, slow.asked()).await;
    deploy(&network, &agent, ("hello", "hi"), hello()).await;
    deploy(&network, &agent, ("asks", "slow"), quick.asked()).await;
    let mut hanging = Hanging::start(&network, &agent, 6).await;
    assert_eq!(slow.open.load(Ordering::SeqCst), 6);
    // Four at a time on the remaining places: they wait for each other, but not for the calls that hang.
    for app in ["hello", "asks"] {
        let answers = called(&network, &agent, app, (200, 4)).await;
        assert!(
            answers.iter().all(|(status, _)| *status == 200),
            "{app}: {answers:?}"
        );
    }
    assert!(hanging.all_hang(), "none of them has ended meanwhile");
    assert_eq!(slow.open.load(Ordering::SeqCst), 6);
    slow.go.send_replace(true);
    for answer in hanging.0.join_all().await {
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.text().await.expect("a body"), "slow");
    }
    assert_eq!(slow.most.load(Ordering::SeqCst), 6, "its share, never more");
    agent.stop().await;
}

/// Deploys an app of a tenant.
async fn deploy_of(
    network: &Network,
    tenant: u128,
    app: &str,
    (component, manifest): (Vec<u8>, Manifest),
) {
    network.controller.store(&component);
    let mut desired = network.desired(app, 1, &component, manifest, true);
    let spec = desired.spec.as_mut().expect("an app");
    spec.tenant = Some(TenantId::from_uuid(Uuid::from_u128(tenant)).tag());
    network.demand(desired).await;
}

/// Five apps of a tenant, each of which may take three quarters of the places, together hold what one tenant may.
#[tokio::test(flavor = "multi_thread")]
async fn others_are_answered_while_all_calls_of_five_apps_of_a_tenant_hang() {
    let network = Network::start().await;
    let agent = network.agent(settings(&network, 10)).await;
    let slow = Slow::start().await;
    let apps = ["one", "two", "three", "four", "five"];
    for app in apps {
        let (component, manifest) = slow.asked();
        let patient = Manifest {
            timeout: LONG,
            ..manifest
        };
        deploy_of(&network, 1, app, (component, patient)).await;
    }
    deploy_of(&network, 1, "also", hello()).await;
    deploy_of(&network, 2, "hello", hello()).await;
    for app in ["also", "hello"] {
        network.until_text(&agent, app, "hi").await;
    }
    let client = http_client::build(LONG.as_duration()).expect("a client");
    let mut calls = JoinSet::new();
    for app in apps.iter().cycle().take(20) {
        let url = format!("http://{}/", agent.gateway_address());
        let call = client.get(url).header(reqwest::header::HOST, host(app));
        calls.spawn(async move { call.send().await.expect("an answer") });
    }
    // Nine of the ten places and four of the waiting calls: the maximum of one tenant.
    for _ in 0..7 {
        let refused = tokio::time::timeout(wait::PATIENCE, calls.join_next()).await;
        let refused = refused.expect("in time").expect("one of them");
        let refused = refused.expect("no panic");
        assert_eq!(refused.status(), 429);
        assert_eq!(problem(refused).await.code, ErrorCode::TooManyAtOnce);
    }
    wait::until("nine calls to hang", async || {
        match slow.open.load(Ordering::SeqCst) {
            9 => Ok(()),
            open => Err(format!("{open}")),
        }
    })
    .await;
    let waiting =
        |share| format!("fdn_agent_calls_waiting_for_share{{node=\"n-1\",share=\"{share}\"}}");
    let waits = async |share| network.metric(&agent, &waiting(share)).await;
    assert_eq!(waits("tenant").await, Some(4.0));
    assert_eq!(waits("app").await, Some(0.0));
    // The tenant's next call is refused, whatever app it is for.
    let answers = called(&network, &agent, "also", (1, 1)).await;
    assert_eq!(answers[0].0, 429);
    let refused = "fdn_agent_calls_refused_total{node=\"n-1\",reason=\"tenant_full\"}";
    assert_eq!(network.metric(&agent, refused).await, Some(8.0));
    let answers = called(&network, &agent, "hello", (200, 4)).await;
    assert!(
        answers.iter().all(|(status, _)| *status == 200),
        "{answers:?}"
    );
    assert!(calls.try_join_next().is_none(), "none of them has ended");
    assert_eq!(slow.open.load(Ordering::SeqCst), 9);
    slow.go.send_replace(true);
    for answer in calls.join_all().await {
        assert_eq!(answer.status(), 200);
    }
    assert_eq!(slow.most.load(Ordering::SeqCst), 9, "its share, never more");
    assert_eq!(waits("tenant").await, Some(0.0));
    network.until_text(&agent, "also", "hi").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn others_are_answered_while_all_calls_of_an_app_sleep() {
    let network = Network::start().await;
    let agent = network.agent(settings(&network, 8)).await;
    deploy_hanging(&network, sleeping()).await;
    deploy(&network, &agent, ("hello", "hi"), hello()).await;
    let mut hanging = Hanging::start(&network, &agent, 6).await;
    let answers = called(&network, &agent, "hello", (200, 4)).await;
    assert!(
        answers.iter().all(|(status, _)| *status == 200),
        "{answers:?}"
    );
    assert!(hanging.all_hang(), "none of them has ended meanwhile");
    hanging.leave(&network, &agent).await;
    agent.stop().await;
}

mod soak {
    #![allow(clippy::print_stdout, reason = "what was measured is told")]

    use std::time::Duration;

    use super::*;

    /// Allowed in addition to twice the time alone. Clients, node and server share a machine of few cores here, whose scheduler alone delays one
    /// call in a hundred by some milliseconds; doubling a call of one or two milliseconds leaves no room for that.
    const FLOOR: Duration = Duration::from_millis(5);

    /// The 99th percentile of the calls' times; all must have succeeded.
    fn p99(calls: Vec<(u16, Duration)>) -> Duration {
        assert!(calls.iter().all(|(status, _)| *status == 200), "{calls:?}");
        let mut times: Vec<_> = calls.into_iter().map(|(_, time)| time).collect();
        times.sort_unstable();
        times[times.len() * 99 / 100]
    }

    fn median(mut of: Vec<Duration>) -> Duration {
        of.sort_unstable();
        of[of.len() / 2]
    }

    /// The 99th percentile of an app's calls alone and beside calls that hang: the median of seven alternating rounds, so that other load on this
    /// machine affects both.
    async fn measured(network: &Network, agent: &Agent, app: &str) -> (Duration, Duration) {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        called(network, agent, app, (200, 4)).await;
        for _ in 0..7 {
            alone.push(p99(called(network, agent, app, (500, 4)).await));
            let mut hanging = Hanging::start(network, agent, 48).await;
            beside.push(p99(called(network, agent, app, (500, 4)).await));
            assert!(hanging.all_hang(), "none of them has ended meanwhile");
            hanging.leave(network, agent).await;
        }
        (median(alone), median(beside))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn others_take_at_most_twice_as_long_beside_an_app_that_hangs() {
        let network = Network::start().await;
        let agent = network.agent(settings(&network, 64)).await;
        let (slow, quick) = (Slow::start().await, Slow::start().await);
        quick.go.send_replace(true);
        deploy(&network, &agent, ("hello", "hi"), hello()).await;
        deploy(&network, &agent, ("asks", "slow"), quick.asked()).await;
        for (what, hangs) in [("a slow server", slow.asked()), ("sleeps", sleeping())] {
            deploy_hanging(&network, hangs).await;
            for app in ["hello", "asks"] {
                let (alone, beside) = measured(&network, &agent, app).await;
                println!(
                    "{app}: p99 {alone:?} alone, {beside:?} beside an app with 48 of 64 places, whose calls hang: {what}"
                );
                assert!(beside <= alone * 2 + FLOOR, "{app}, {what}");
            }
            // The next app has the same name but is another one; its first calls are held.
            network.delete("hangs").await;
        }
        agent.stop().await;
    }
}
