//! Calls that are cut before their guest returns are billed for the time that they took.

use fdn_core::message::AppPhase;

use super::*;

/// A function that sleeps for a minute, called on a node that has served no call yet.
async fn sleeping(timeout: DurationMs) -> (Network, fdn_edge_agent::Agent) {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.apps.warm_call = false;
    let agent = network.agent(settings).await;
    let manifest = Manifest {
        timeout,
        ..Manifest::default()
    };
    let revision = network
        .deploy("sleeping", 1, &components::sleeping(60_000), manifest)
        .await;
    network
        .until_phase("sleeping", revision, |phase| *phase == AppPhase::Ready)
        .await;
    (network, agent)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_times_out_is_billed_for_its_time() {
    let (network, agent) = sleeping(DurationMs::from_secs(10)).await;
    let answer = network.get(&agent, "sleeping", "/").send().await;
    assert_eq!(answer.expect("an answer").status(), 504);
    let calls = until_billed(&network, 1).await;
    let (record, _) = calls.values().next().expect("a call");
    assert!(record.duration_us >= 1_000_000, "{record:?}");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_client_leaves_is_billed_for_its_time() {
    let (network, agent) = sleeping(DurationMs::from_secs(60)).await;
    let call = network.get(&agent, "sleeping", "/").send();
    let busy = "fdn_agent_calls_busy";
    let begun = async {
        wait::until("the call to run", async || {
            match network.metric(&agent, busy).await {
                Some(1.0) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        // The client's patience, counted from when its call runs.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    };
    tokio::select! {
        answer = call => panic!("it answered: {answer:?}"),
        () = begun => {}
    }
    let calls = until_billed(&network, 1).await;
    let (record, _) = calls.values().next().expect("a call");
    assert_eq!(record.outcome, UsageOutcome::Client);
    assert!(record.duration_us >= 500_000, "{record:?}");
    agent.stop().await;
}
