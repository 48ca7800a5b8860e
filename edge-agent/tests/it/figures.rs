//! The figures that nodes report for the console: what callers saw, and how runs of workflows went.

use fdn_core::figures::Tally;
use fdn_core::manifest::Manifest;
use fdn_core::message::Message;
use fdn_core::runs::{AttemptOutcome, RunInfo, RunStatus};
use fdn_testkit::components;

use crate::support::Network;
use crate::support::workflows::{deploy, desired, settings, tell_addresses};

#[tokio::test(flavor = "multi_thread")]
async fn callers_are_counted_with_the_time_their_calls_took() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("n-1")).await;
    for (app, component) in [
        ("hello", components::hello("hi")),
        ("broken", components::status(500)),
    ] {
        network
            .deploy(app, 1, &component, Manifest::default())
            .await;
    }
    network.until_text(&agent, "hello", "hi").await;
    for _ in 0..3 {
        let answer = network.get(&agent, "broken", "/").send().await;
        assert!(answer.expect("an answer").status().is_server_error());
    }
    let tallies = async |app: &str, calls: u64| -> Tally {
        let of = |status: &fdn_core::message::NodeStatus| {
            let found = status.apps.iter().find(|known| known.app.as_str() == app);
            found.and_then(|app| app.figures.as_deref().cloned())
        };
        let status = network
            .until_status(|status| of(status).is_some_and(|tally| tally.counts.calls >= calls))
            .await;
        of(&status).expect("it was there")
    };
    let broken = tallies("broken", 3).await;
    assert_eq!(broken.counts.failures, broken.counts.calls);
    let sum: u64 = broken.counts.latency.iter().map(|(_, calls)| calls).sum();
    assert_eq!(sum, broken.counts.calls);
    let hello = tallies("hello", 1).await;
    assert!(hello.quantile(0.5).expect("calls").get() > 0.0);
    agent.stop().await;
}

/// Waits for the report of a run of this app that has ended.
async fn ended(network: &Network, app: &str) -> RunInfo {
    let run = |message| {
        let Message::RunReport(report) = message else {
            return None;
        };
        let mut runs = report.runs.into_iter();
        runs.find(|run| run.app.as_str() == app && run.ended_at.is_some())
    };
    network.controller.until_reported(run).await
}

const CHAIN: &str = "
stages:
  - { name: in, function: echo }
  - { name: bad, function: broken, needs: [in], retries: { count: 1, backoff: 1ms } }
  - { name: rescue, function: echo, needs: [bad], when: failure }
";

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_told_with_every_attempt_where_it_was() {
    let network = Network::start().await;
    let eu = network.agent(settings(&network, "n-1", "eu-west")).await;
    let us = network.agent(settings(&network, "n-2", "us-east")).await;
    let address = us.stage_address().expect("it takes stage calls");
    tell_addresses(&network, &[address], Vec::new()).await;
    let functions = [
        ("echo", components::echo(), false),
        ("broken", components::status(503), true),
    ];
    let places = [("rescue", "us-east")];
    let flow = desired(&network, "flow", CHAIN, &functions, &places);
    let revision = flow.revision;
    deploy(&network, "n-2", flow).await;
    let answer = network
        .post(&eu, "flow", "/")
        .header("x-request-id", "call-7")
        .body("x")
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 200);
    let run = ended(&network, "flow").await;
    assert_eq!((run.status, run.revision), (RunStatus::Answered, revision));
    assert_eq!((run.request.as_str(), run.node.as_str()), ("call-7", "n-1"));
    let outcomes = |stage: usize| -> Vec<AttemptOutcome> {
        let attempts = run.stages[stage].attempts.iter();
        attempts.map(|attempt| attempt.outcome).collect()
    };
    assert_eq!(outcomes(0), [AttemptOutcome::Done]);
    assert_eq!(outcomes(1), [AttemptOutcome::Answered; 2]);
    assert_eq!(outcomes(2), [AttemptOutcome::Done]);
    let reason = run.stages[1].attempts[1].reason.as_deref();
    assert!(
        reason.is_some_and(|reason| reason.contains("503")),
        "{reason:?}"
    );
    let rescue = &run.stages[2].attempts[0];
    assert_eq!(rescue.cluster.as_str(), "us-east");
    assert_eq!(rescue.node.as_ref().map(AsRef::as_ref), Some("n-2"));
    assert!(rescue.output_bytes.is_some());
    for stage in &run.stages {
        for attempt in &stage.attempts {
            assert!(attempt.started_at >= run.started_at);
            assert!(
                attempt
                    .ended_at
                    .is_some_and(|end| end >= attempt.started_at)
            );
        }
    }
    eu.stop().await;
    us.stop().await;
}
