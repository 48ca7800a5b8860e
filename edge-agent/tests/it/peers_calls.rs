//! Calls to instances on another node: bodies in both directions, and the kinds of failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fdn_core::ErrorCode;
use fdn_edge_agent::Agent;
use fdn_instances::fake::{FakeEngine, FakeProgram};
use fdn_instances::{Exit, full_body};
use fdn_testkit::wait;
use http_body_util::BodyExt;

use crate::bursts::{burst, container, runtime};
use crate::forward::mirror;
use crate::peers::deployed;
use crate::support::peers::{address, is_whole, settings, until_status};
use crate::support::{Network, problem};

/// A gateway without room, and a node that runs everything.
struct Pair {
    network: Network,
    gateway: Agent,
    worker: Agent,
    engine: Arc<FakeEngine>,
}

impl Pair {
    async fn start(programs: Vec<(&str, FakeProgram)>) -> Self {
        let network = Network::start().await;
        let (none, engine) = (FakeEngine::new(), FakeEngine::new());
        let names: Vec<String> = programs
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        for (name, program) in programs {
            none.add_image(name, FakeProgram::text("on the gateway"));
            engine.add_image(name, program);
        }
        let gateway = settings(&network, "n-1", 0, None);
        let gateway = network.agent_with(gateway, runtime(&none, "n-1")).await;
        let worker = settings(&network, "n-2", 8, Some(address(&gateway)));
        let worker = network.agent_with(worker, runtime(&engine, "n-2")).await;
        for agent in [&gateway, &worker] {
            until_status(agent, |status| is_whole(status, 2)).await;
        }
        for name in names {
            deployed(&network, &name, container(), 2).await;
        }
        Self {
            network,
            gateway,
            worker,
            engine,
        }
    }

    async fn stop(self) {
        self.gateway.stop().await;
        self.worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_heads_reach_the_other_node_and_come_back() {
    let pair = Pair::start(vec![("mirror", mirror())]).await;
    let large = "x".repeat(100 << 10);
    let call = pair.network.get(&pair.gateway, "mirror", "/");
    let answer = call.header("x-large", &large).send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert!(answer.headers()["x-large"] == *large, "the whole field");
    pair.stop().await;
}

/// Ends while it handles its first calls; then answers with the number of calls so far.
fn dying(times: usize) -> (FakeProgram, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let program = FakeProgram::new(move |context, _| {
        let call = seen.fetch_add(1, Ordering::Relaxed);
        async move {
            if call < times {
                context.exit(Exit::ended(137));
                std::future::pending::<()>().await;
            }
            http::Response::new(full_body(call.to_string()))
        }
    });
    (program, calls)
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_stream_both_ways_and_heads_arrive_as_they_are() {
    let echo = FakeProgram::new(|context, request| async move {
        let seen = format!(
            "{} {} {} {}",
            request.method(),
            request
                .uri()
                .path_and_query()
                .map_or("", |path| path.as_str()),
            request.headers()["host"].to_str().unwrap_or("?"),
            request.headers().contains_key("fdn-node"),
        );
        let _ = context;
        let mut response = http::Response::new(request.into_body());
        response
            .headers_mut()
            .insert("seen", seen.parse().expect("a value"));
        response
            .headers_mut()
            .insert("fdn-outcome", "forged".parse().expect("a value"));
        *response.status_mut() = http::StatusCode::CREATED;
        response
    });
    let pair = Pair::start(vec![("echo", echo)]).await;
    for size in [0, 1, 100_000, 8 << 20] {
        let body = vec![b'x'; size];
        let url = format!("http://{}/a%20b?c=d&e", pair.gateway.gateway_address());
        let request = pair.network.client.put(url).header("host", "echo.fn.test");
        let answer = request.body(body.clone()).send().await.expect("an answer");
        assert_eq!(answer.status(), 201, "{size}");
        assert_eq!(
            answer.headers()["seen"],
            "PUT /a%20b?c=d&e echo.fn.test false"
        );
        assert!(!answer.headers().contains_key("fdn-outcome"));
        assert_eq!(answer.bytes().await.expect("body"), body, "{size}");
    }
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_have_been_seen_is_made_again_only_where_that_is_safe() {
    let (once, once_calls) = dying(1);
    let (twice, _) = dying(2);
    let pair = Pair::start(vec![("once", once), ("twice", twice)]).await;
    let post = pair
        .network
        .post(&pair.gateway, "once", "/")
        .body("x")
        .send();
    let answer = post.await.expect("an answer");
    assert_eq!(problem(answer).await.code, ErrorCode::InstanceLost);
    assert_eq!(
        once_calls.load(Ordering::Relaxed),
        1,
        "a POST is not made twice"
    );
    let get = pair.network.get(&pair.gateway, "twice", "/").send();
    let answer = get.await.expect("an answer");
    assert_eq!(answer.text().await.expect("text"), "2", "a GET is");
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_that_an_instance_has_not_seen_is_handed_to_another_one() {
    let read = FakeProgram::new(|_, request| async move {
        let body = request.into_body().collect().await;
        let size = body.map_or(0, |body| body.to_bytes().len());
        http::Response::new(full_body(size.to_string()))
    });
    let pair = Pair::start(vec![("read", read)]).await;
    assert_eq!(pair.network.text(&pair.gateway, "read").await, "0");
    for round in 0..5 {
        // The gateway learns of it from the call, or a moment before.
        assert!(pair.engine.crash_all() > 0, "{round}");
        let post = pair.network.post(&pair.gateway, "read", "/");
        let answer = post
            .body(vec![b'x'; 300_000])
            .send()
            .await
            .expect("an answer");
        assert_eq!(answer.status(), 200, "{round}");
        assert_eq!(answer.text().await.expect("text"), "300000");
    }
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_on_another_node_are_killed_under_calls() {
    Box::pin(killed_under_calls(1)).await;
}

async fn killed_under_calls(times: usize) {
    let thumbs = FakeProgram::new(|_, _| async {
        tokio::task::yield_now().await;
        http::Response::new(full_body("thumb"))
    });
    let pair = Pair::start(vec![("thumbs", thumbs)]).await;
    for _ in 0..times {
        let calls = burst(&pair.network, &pair.gateway, "thumbs", 30);
        let kills = async {
            wait::until("an instance to run", async || {
                match pair.engine.alive().len() {
                    0 => Err("none"),
                    _ => Ok(()),
                }
            })
            .await;
            pair.engine.crash_all();
        };
        let ((good, others), ()) = tokio::join!(calls, kills);
        assert_eq!((good, others), (30, Vec::new()));
    }
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_an_instance_does_not_start_elsewhere_is_told_with_its_lines() {
    let broken = FakeProgram::text("never").at_start(
        fdn_instances::fake::AtStart::Exits(Exit::ended(3)),
        &["no config"],
    );
    let pair = Pair::start(vec![("broken", broken)]).await;
    let waiting = pair.network.get(&pair.gateway, "broken", "/").send();
    let told = pair.network.until_status(|status| {
        let degraded = |app: &fdn_core::message::AppObserved| app.degraded.clone();
        status.node.as_str() == "n-1" && status.apps.iter().any(|app| degraded(app).is_some())
    });
    let repaired = async {
        let status = told.await;
        let degraded = status.apps[0].degraded.clone().expect("degraded");
        assert!(
            degraded.contains("n-2") && degraded.contains("status 3"),
            "{degraded}"
        );
        assert!(degraded.ends_with("no config"), "{degraded}");
        pair.engine
            .add_image("broken", FakeProgram::text("repaired"));
    };
    let (answer, ()) = tokio::join!(waiting, repaired);
    assert_eq!(
        answer.expect("an answer").text().await.expect("text"),
        "repaired"
    );
    pair.stop().await;
}

mod soak {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn instances_on_another_node_are_killed_again_and_again_under_calls() {
        Box::pin(killed_under_calls(6)).await;
    }
}
