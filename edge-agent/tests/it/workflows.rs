//! Workflows over agents of two clusters: the right answer wherever stages run, failures reported, a lost cluster replaced where that is safe.

use std::collections::BTreeMap;

use fdn_core::fleet::FleetDesired;
use fdn_core::manifest::Manifest;
use fdn_core::message::{AppPhase, NodeStatus};
use fdn_core::workflow::parts::{Multipart, Part, UNKNOWN};
use fdn_core::{DurationMs, ErrorCode};
use fdn_edge_agent::{Agent, Settings};
use fdn_instances::fake::FakeProgram;
use fdn_service::secret;
use fdn_testkit::{components, wait};

use crate::bursts::{container, engine, runtime};
use crate::support::workflows::{Function, deploy, desired, settings, tell_addresses};
use crate::support::{Network, http2_client, problem};

struct Two {
    network: Network,
    eu: Agent,
    us: Agent,
}

impl Two {
    async fn start() -> Self {
        Box::pin(Self::start_with(|_| ())).await
    }

    /// Two agents; the one of us-east with changed settings.
    async fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        let network = Network::start().await;
        let eu = network.agent(settings(&network, "n-1", "eu-west")).await;
        let mut theirs = settings(&network, "n-2", "us-east");
        change(&mut theirs);
        let us = network.agent(theirs).await;
        let address = us.stage_address().expect("it takes stage calls");
        tell_addresses(&network, &[address], Vec::new()).await;
        Self { network, eu, us }
    }

    async fn deploy(
        &self,
        app: &str,
        declaration: &str,
        functions: &[Function<'_>],
        places: &[(&str, &str)],
    ) {
        let desired = desired(&self.network, app, declaration, functions, places);
        deploy(&self.network, "n-2", desired).await;
    }

    async fn stop(self) {
        self.eu.stop().await;
        self.us.stop().await;
    }
}

const FIVE: &str = "
stages:
  - { name: in, function: echo }
  - { name: resize, function: path, path: '/?w=3', needs: [in] }
  - { name: sharpen, function: echo, needs: [in] }
  - { name: text, function: hello, needs: [in] }
  - { name: join, function: echo, needs: [text, resize, sharpen] }
";

fn five() -> Vec<Function<'static>> {
    vec![
        ("echo", components::echo(), false),
        ("path", components::path(), false),
        ("hello", components::hello("a text"), false),
    ]
}

/// The input of the join, which is also its answer.
fn joined(image: &[u8]) -> Vec<u8> {
    let stage = |name: &str| name.parse().expect("stage");
    let (resize, sharpen, text) = (stage("resize"), stage("sharpen"), stage("text"));
    let part = |stage, body| Part {
        stage,
        content_type: UNKNOWN,
        body,
    };
    // In the order of the stages, whatever the order of `needs`.
    let parts = [
        part(&resize, &b"/?w=3"[..]),
        part(&sharpen, image),
        part(&text, b"a text"),
    ];
    Multipart::new(&parts).body
}

#[tokio::test(flavor = "multi_thread")]
async fn five_stages_over_two_clusters_answer_byte_for_byte() {
    let two = Two::start().await;
    let places = [
        ("resize", "us-east"),
        ("text", "us-east"),
        ("join", "us-east"),
    ];
    two.deploy("photo", FIVE, &five(), &places).await;
    let image: Vec<u8> = (0..200_000_u32).map(|n| (n * 7 % 251) as u8).collect();
    let answer = two.network.post(&two.eu, "photo", "/").body(image.clone());
    let answer = answer.send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let told = answer.headers()["x-fdn-stages"]
        .to_str()
        .expect("text")
        .to_owned();
    assert_eq!(
        told,
        "in=eu-west, resize=us-east, sharpen=eu-west, text=us-east, join=us-east"
    );
    assert!(
        answer.bytes().await.expect("a body") == joined(&image),
        "byte for byte"
    );
    let away = "fdn_agent_workflow_stages_total{node=\"n-1\",outcome=\"done\",where=\"away\"}";
    assert_eq!(two.network.metric(&two.eu, away).await, Some(3.0));
    let served = "fdn_agent_stage_calls_served_total{node=\"n-2\",outcome=\"answered\"}";
    assert_eq!(two.network.metric(&two.us, served).await, Some(3.0));
    let runs = "fdn_agent_workflow_runs_total{node=\"n-1\",outcome=\"answered\"}";
    assert_eq!(two.network.metric(&two.eu, runs).await, Some(1.0));
    // The measurements of stages are reported, so that plans can use them.
    let status = two.network.until_status(|status| {
        let stages = status.apps.iter().flat_map(|app| &app.stages);
        status.node.as_str() == "n-1" && stages.count() > 0
    });
    let status = status.await;
    let stage = |name: &str| {
        let stages = status.apps.iter().flat_map(|app| &app.stages);
        let found = stages
            .into_iter()
            .find(|stage| stage.stage.as_str() == name);
        found.map(|stage| (stage.runs, stage.output_mean.as_bytes()))
    };
    assert_eq!(stage("sharpen"), Some((1, 200_000)));
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_exits_answer_as_parts_and_failures_are_taken_up() {
    let two = Two::start().await;
    let functions = [
        ("echo", components::echo(), false),
        ("broken", components::status(500), false),
    ];
    let text = "
stages:
  - { name: in, function: echo }
  - { name: bad, function: broken, needs: [in] }
  - { name: rescue, function: echo, needs: [bad], when: failure }
  - { name: never, function: echo, needs: [bad] }
";
    two.deploy("many", text, &functions, &[("rescue", "us-east")])
        .await;
    let answer = two
        .network
        .post(&two.eu, "many", "/")
        .body("x")
        .send()
        .await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 200);
    let kind = answer.headers()["content-type"]
        .to_str()
        .expect("text")
        .to_owned();
    assert!(kind.starts_with("multipart/form-data"), "{kind}");
    let body = answer.text().await.expect("a body");
    assert!(
        body.contains("name=\"rescue\"") && !body.contains("never"),
        "{body}"
    );
    assert!(
        body.contains("\"stage\":\"bad\"") && body.contains("500"),
        "{body}"
    );
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_told_with_stage_attempt_and_reason() {
    let two = Two::start().await;
    let functions = [
        ("echo", components::echo(), false),
        ("broken", components::status(503), true),
        ("trap", components::trapping(), false),
    ];
    let text = "
stages:
  - { name: in, function: echo }
  - { name: bad, function: broken, needs: [in], retries: { count: 2, backoff: 1ms } }
";
    two.deploy("fails", text, &functions, &[("bad", "us-east")])
        .await;
    let answer = two
        .network
        .post(&two.eu, "fails", "/")
        .body("x")
        .send()
        .await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 502);
    let told = problem(answer).await;
    assert_eq!(told.code, ErrorCode::StageFailed);
    assert_eq!(
        (told.stage.as_deref(), told.attempt),
        (Some("bad"), Some(3))
    );
    let reason = told.reason.expect("a reason");
    assert!(reason.contains("503"), "{reason}");
    let text = "
stages:
  - { name: in, function: echo }
  - { name: bad, function: trap, needs: [in], retries: { count: 2, backoff: 1ms } }
";
    two.deploy("traps", text, &functions, &[("bad", "us-east")])
        .await;
    let answer = two
        .network
        .post(&two.eu, "traps", "/")
        .body("x")
        .send()
        .await;
    let told = problem(answer.expect("an answer")).await;
    assert_eq!(told.attempt, Some(1), "what may not run twice runs once");
    assert!(told.reason.expect("a reason").contains("FDN-3002"));
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_let_in_nowhere_may_be_asked_for_again() {
    let network = Network::start().await;
    let mut settings = network.settings("n-1");
    settings.apps.warm_call = false;
    settings.admission.slots = 1;
    settings.admission.wait = DurationMs::from_millis(100);
    let agent = network.agent(settings).await;
    let text = "{\"stages\": [{\"name\": \"in\", \"function\": \"echo\"}]}";
    let functions = [("echo", components::echo(), false)];
    let flow = desired(&network, "flow", text, &functions, &[]);
    deploy(&network, "n-1", flow).await;
    let patient = Manifest {
        timeout: DurationMs::from_secs(120),
        ..Manifest::default()
    };
    let slow = components::sleeping(60_000);
    let revision = network.deploy("slow", 1, &slow, patient).await;
    network
        .until_phase("slow", revision, |phase| *phase == AppPhase::Ready)
        .await;
    let running = tokio::spawn(network.get(&agent, "slow", "/").send());
    wait::until("the only slot to be taken", async || {
        match network.metric(&agent, "fdn_agent_calls_busy").await {
            Some(1.0) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let answer = network.post(&agent, "flow", "/").body("x").send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["retry-after"], "1");
    let told = problem(answer).await;
    assert_eq!(told.code, ErrorCode::Overloaded);
    assert_eq!((told.stage.as_deref(), told.attempt), (Some("in"), Some(1)));
    assert!(!running.is_finished(), "the slot was taken all the time");
    running.abort();
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_that_takes_too_long_is_ended() {
    let two = Two::start().await;
    let functions = [("slow", components::sleeping(600_000), false)];
    let text = "{\"timeout\": \"300ms\", \"stages\": [{\"name\": \"in\", \"function\": \"slow\"}]}";
    two.deploy("slow", text, &functions, &[]).await;
    let answer = two
        .network
        .post(&two.eu, "slow", "/")
        .body("x")
        .send()
        .await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 504);
    let told = problem(answer).await;
    assert_eq!(told.code, ErrorCode::WorkflowTimeout);
    assert_eq!(told.stage.as_deref(), Some("in"));
    two.stop().await;
}

/// A run with one stage in us-east, whose node is stopped during the stage, with `grace` for running calls.
async fn stopped_midway(
    idempotent: bool,
    (takes_ms, grace): (u32, DurationMs),
) -> (u16, Option<fdn_core::Problem>, String) {
    let two = Box::pin(Two::start_with(|settings| settings.stop.grace = grace)).await;
    let functions = [
        ("echo", components::echo(), false),
        ("slow", components::sleeping(takes_ms), idempotent),
    ];
    let text = "
stages:
  - { name: in, function: echo }
  - { name: far, function: slow, needs: [in] }
";
    two.deploy("lost", text, &functions, &[("far", "us-east")])
        .await;
    let call = two.network.post(&two.eu, "lost", "/").body("x").send();
    let call = tokio::spawn(call);
    wait::until("the stage to run in us-east", async || {
        let status = two
            .network
            .until_status(|status| status.node.as_str() == "n-2")
            .await;
        if status.busy > 0 { Ok(()) } else { Err("idle") }
    })
    .await;
    two.us.stop().await;
    let answer = call.await.expect("a task").expect("an answer");
    let status = answer.status().as_u16();
    let stages = answer.headers()["x-fdn-stages"]
        .to_str()
        .expect("text")
        .to_owned();
    let told = match status {
        200 => None,
        _ => Some(problem(answer).await),
    };
    two.eu.stop().await;
    (status, told, stages)
}

/// A node whose grace period ends before the stage: its calls are cut.
const LOST: (u32, DurationMs) = (600_000, DurationMs::from_millis(10));
/// The same for a stage that later runs to its end elsewhere.
const LOST_SOON: (u32, DurationMs) = (8_000, DurationMs::from_millis(10));

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_lets_the_stages_of_others_end() {
    let (status, told, stages) =
        Box::pin(stopped_midway(false, (6_000, DurationMs::from_secs(120)))).await;
    assert_eq!((status, told), (200, None));
    assert_eq!(stages, "in=eu-west, far=us-east");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_lost_midway_is_replaced_where_running_twice_is_safe() {
    let (status, told, stages) = Box::pin(stopped_midway(true, LOST_SOON)).await;
    assert_eq!((status, told), (200, None));
    assert_eq!(stages, "in=eu-west, far=eu-west");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_lost_midway_fails_what_may_not_run_twice() {
    let (status, told, _) = Box::pin(stopped_midway(false, LOST)).await;
    assert_eq!(status, 502);
    let told = told.expect("a problem");
    assert_eq!(
        (told.stage.as_deref(), told.attempt),
        (Some("far"), Some(1))
    );
    let reason = told.reason.expect("a reason");
    assert!(reason.contains("us-east was lost"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_not_reached_is_left_for_another() {
    let two = Two::start().await;
    let nobody = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    tell_addresses(&two.network, &[nobody], Vec::new()).await;
    let places = [("resize", "us-east"), ("join", "us-east")];
    two.deploy("photo", FIVE, &five(), &places).await;
    wait::until("the run to stay here", async || {
        let answer = two
            .network
            .post(&two.eu, "photo", "/")
            .body("x")
            .send()
            .await;
        let answer = answer.map_err(|error| error.to_string())?;
        let told = answer.headers()["x-fdn-stages"]
            .to_str()
            .expect("text")
            .to_owned();
        let body = answer.bytes().await.map_err(|error| error.to_string())?;
        if body != joined(b"x") {
            return Err("another answer".to_owned());
        }
        if told.contains("us-east") {
            Err(told)
        } else {
            Ok(())
        }
    })
    .await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_shows_no_token_calls_no_stage() {
    let two = Two::start().await;
    two.deploy("photo", FIVE, &five(), &[]).await;
    let client = http2_client(&two.us, &[]);
    let address = two.us.stage_address().expect("it takes stage calls");
    let url = format!("http://{address}/fdn.stage.v1/photo/in");
    let call = |token: &str| {
        let request = client.post(&url).timeout(wait::PATIENCE).body("x");
        request.header("fdn-call-token", token.to_owned())
    };
    let refused = call("guessed").send().await.expect("an answer");
    assert_eq!(refused.status(), 403);
    assert_eq!(refused.headers()["fdn-call-outcome"], "not_started");
    let own = secret::read(&two.network.folder.path().join("token")).expect("a token");
    let known = call(own.expose()).send().await.expect("an answer");
    assert_eq!(
        known.headers()["fdn-call-outcome"],
        "refused",
        "no whole call"
    );
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_goes_to_the_one_node_of_the_cluster_that_runs_it() {
    let network = Network::start().await;
    let first = network.agent(settings(&network, "n-1", "eu-west")).await;
    let second = network.agent(settings(&network, "n-2", "eu-west")).await;
    let program =
        FakeProgram::new(|_, request| async move { http::Response::new(request.into_body()) });
    let images = runtime(&engine("app", program), "n-3");
    let third = network
        .agent_with(settings(&network, "n-3", "eu-west"), images)
        .await;
    let calls = [&first, &second, &third].map(|agent| agent.stage_address().expect("an address"));
    let fleet = FleetDesired {
        revision: network.next_revision(),
        stage_calls: BTreeMap::from([("eu-west".parse().expect("cluster"), calls.to_vec())]),
        ..FleetDesired::default()
    };
    network.tell_fleet(fleet).await;
    let text = "
stages:
  - { name: in, function: echo }
  - { name: draw, function: image, needs: [in] }
";
    let functions = [
        ("echo", components::echo(), false),
        ("image", b"app".to_vec(), false),
    ];
    let mut wanted = desired(&network, "shop", text, &functions, &[]);
    let spec = wanted.spec.as_mut().expect("an app");
    spec.functions[1].manifest = container();
    let revision = wanted.revision;
    deploy(&network, "n-3", wanted).await;
    let ready = |status: &NodeStatus| {
        let mut apps = status.apps.iter();
        status.node.as_str() == "n-1"
            && apps.any(|app| app.revision == revision && app.phase == AppPhase::Ready)
    };
    network.until_status(ready).await;
    let called = async || {
        let call = network.post(&first, "shop", "/").body("hello");
        let answer = call.send().await.expect("an answer");
        let told = answer.headers().get("x-fdn-stages").cloned();
        let at = answer.headers().contains_key("x-fdn-served-by");
        (answer.text().await.expect("text"), at, told)
    };
    wait::until("the addresses to be known", async || {
        let found = called().await;
        if found.0 == "hello" {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
    // Whichever node's turn it is: this node itself, one without containers, or the one with them.
    for _ in 0..6 {
        let (text, elsewhere, told) = called().await;
        assert_eq!((text.as_str(), elsewhere), ("hello", false), "{told:?}");
    }
    first.stop().await;
    second.stop().await;
    third.stop().await;
}
