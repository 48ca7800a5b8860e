//! Functions that misbehave: each ends with its error code and a line in its log, and no other app is affected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fdn_core::ErrorCode;
use fdn_core::api::{LogLine, LogStream};
use fdn_core::manifest::Manifest;
use fdn_edge_agent::Agent;
use fdn_testkit::{components, wait};

use crate::support::{Network, host, http2_client, problem, tight};

pub(crate) async fn log(network: &Network, agent: &Agent, app: &str) -> Vec<LogLine> {
    let request = network.ask(agent, &format!("/logs/{app}?tail=1000"));
    let text = request
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("text");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a log line"))
        .collect()
}

async fn system_line(network: &Network, agent: &Agent, app: &str, request: &str) -> LogLine {
    wait::until("the reason in the log", async || {
        let lines = log(network, agent, app).await;
        let found = lines
            .iter()
            .find(|l| l.stream == LogStream::System && l.request == request);
        found.cloned().ok_or(format!("{lines:?}"))
    })
    .await
}

/// Calls another app repeatedly; the handle returns how often, once every call was answered.
fn neighbour(
    network: &Arc<Network>,
    agent: &Arc<Agent>,
) -> (Arc<AtomicBool>, tokio::task::JoinHandle<usize>) {
    let stop = Arc::new(AtomicBool::new(false));
    let (network, agent, until) = (Arc::clone(network), Arc::clone(agent), Arc::clone(&stop));
    let calls = Arc::new(AtomicUsize::new(0));
    let task = tokio::spawn(async move {
        while !until.load(Ordering::Relaxed) {
            assert_eq!(network.text(&agent, "neighbour").await, "fine");
            calls.fetch_add(1, Ordering::Relaxed);
        }
        calls.load(Ordering::Relaxed)
    });
    (stop, task)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_ends_in_its_code_with_a_reason_while_a_neighbour_answers() {
    let network = Arc::new(Network::start().await);
    let agent = Arc::new(network.agent(network.settings("eu-west-1")).await);
    network
        .deploy(
            "neighbour",
            1,
            &components::hello("fine"),
            Manifest::default(),
        )
        .await;
    network.until_text(&agent, "neighbour", "fine").await;
    let (stop, calls) = neighbour(&network, &agent);
    let timeout = Manifest {
        timeout: fdn_core::DurationMs::from_millis(300),
        ..tight()
    };
    let cases = [
        (
            "trap",
            components::trapping(),
            tight(),
            ErrorCode::FunctionTrapped,
        ),
        (
            "loop",
            components::looping(),
            tight(),
            ErrorCode::FunctionCpuLimit,
        ),
        (
            "hog",
            components::hog(),
            tight(),
            ErrorCode::FunctionMemoryLimit,
        ),
        (
            "silent",
            components::no_response(),
            tight(),
            ErrorCode::NoResponse,
        ),
        (
            "error",
            components::answers_error(),
            tight(),
            ErrorCode::NoResponse,
        ),
        (
            "sleeper",
            components::sleeping(60_000),
            timeout,
            ErrorCode::FunctionTimeout,
        ),
    ];
    for (app, component, manifest, _) in &cases {
        network.deploy(app, 1, component, manifest.clone()).await;
    }
    for (app, _, _, code) in &cases {
        let id = format!("request-of-{app}");
        // Held until the app is ready.
        let answer = network
            .get(&agent, app, "/")
            .header("x-request-id", &id)
            .send()
            .await
            .expect("an answer");
        let problem = problem(answer).await;
        assert_eq!(
            (problem.code, problem.request_id.as_deref()),
            (*code, Some(id.as_str())),
            "{app}"
        );
        let line = system_line(&network, &agent, app, &id).await;
        assert_eq!(line.app.as_str(), *app);
        assert!(
            !problem.detail.contains(&line.text),
            "the client is told no more than the class"
        );
    }
    stop.store(true, Ordering::Relaxed);
    assert!(
        calls
            .await
            .expect("every call of the neighbour was answered")
            > 0
    );
    let errors =
        r#"fdn_agent_requests_total{app="trap",node="eu-west-1",outcome="function_ended"}"#;
    assert_eq!(network.metric(&agent, errors).await, Some(1.0));
    Arc::into_inner(agent)
        .expect("no call is left")
        .stop()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_is_cut_so_that_the_client_notices() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let apps = ["endless", "midway", "loops"];
    let http2 = http2_client(&agent, &apps);
    let components = [
        components::endless_body(),
        components::trapping_midway(),
        components::looping_midway(),
    ];
    for (app, component) in apps.iter().zip(&components) {
        network.deploy(app, 1, component, tight()).await;
        for (version, client) in [("one", &network.client), ("two", &http2)] {
            let id = format!("cut-{app}-{version}");
            let request = match version {
                "one" => network.get(&agent, app, "/"),
                _ => client.get(format!(
                    "http://{}:{}/",
                    host(app),
                    agent.gateway_address().port()
                )),
            };
            match request.header("x-request-id", &id).send().await {
                Ok(answer) if answer.status() == 200 => {
                    assert!(
                        answer.bytes().await.is_err(),
                        "{id}: a cut body looked whole"
                    );
                }
                // The guest failed before its head was sent: a proper error is as good.
                Ok(answer) => assert!(
                    answer.status().is_server_error(),
                    "{id}: {}",
                    answer.status()
                ),
                Err(error) => assert!(error.is_request(), "{id}: {error}"),
            }
            system_line(&network, &agent, app, &id).await;
        }
    }
    agent.stop().await;
}
