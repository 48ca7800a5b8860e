//! Gateways and the nodes that run their instances: one without containers of its own, one that restarts, and one that needs the room that
//! another does not use.

use fdn_core::DurationMs;
use fdn_core::message::AppPhase;
use fdn_instances::fake::{FakeEngine, FakeProgram};
use fdn_testkit::wait;

use crate::bursts::{burst, container};
use crate::peers::deployed;
use crate::support::Network;
use crate::support::peers::{
    Load, Meeting, Member, Mortal, address, is_whole, settings, until_status,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_containers_is_a_gateway_to_those_of_its_cluster() {
    let network = Network::start().await;
    let meeting = Meeting::of(4);
    let host = settings(&network, "n-1", 4, None);
    let host = Member::start(&network, host, "met", &meeting).await;
    let seed = address(&host.agent);
    // It has room, but no engine.
    let gateway = settings(&network, "n-2", 8, Some(seed));
    let gateway = network.agent(gateway).await;
    for agent in [&host.agent, &gateway] {
        until_status(agent, |status| is_whole(status, 2)).await;
    }
    deployed(&network, "met", container(), 2).await;
    // From either of the two: none starts on the one without containers.
    for agent in [&gateway, &host.agent] {
        let (good, others) = burst(&network, agent, "met", 12).await;
        assert_eq!((good, others), (12, Vec::new()));
    }
    assert_eq!(host.load.most(), 4, "all that there is room for");
    let remote = r#"fdn_peer_calls_total{result="answered"}"#;
    assert_eq!(network.metric(&gateway, remote).await, Some(12.0));
    let asked = network.metric(&gateway, "fdn_peer_instances_here").await;
    assert_eq!(asked, Some(0.0));
    gateway.stop().await;
    host.agent.stop().await;
}

/// Nodes take part in their cluster by default, so clusters without any engine are ordinary: an app that needs containers must not be reported as
/// ready there.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_not_ready_at_gateways_before_a_node_of_their_cluster_runs_containers() {
    let network = Network::start().await;
    let first = network.agent(settings(&network, "n-1", 4, None)).await;
    let seed = Some(address(&first));
    let second = network.agent(settings(&network, "n-2", 4, seed)).await;
    for agent in [&first, &second] {
        until_status(agent, |status| is_whole(status, 2)).await;
    }
    let revision = network.deploy("met", 1, b"met", container()).await;
    let says_why = |phase: &AppPhase| matches!(phase, AppPhase::Failed { reason } if reason.contains("docker.enabled"));
    network.until_phase("met", revision, says_why).await;
    let host = settings(&network, "n-3", 4, seed);
    let host = Member::start(&network, host, "met", &Meeting::of(0)).await;
    for agent in [&first, &second, &host.agent] {
        network.until_text(agent, "met", "met").await;
    }
    for agent in [host.agent, second, first] {
        agent.stop().await;
    }
}

/// A gateway without room for instances, killed or stopped in order and then restarted, finds its warm instance again.
#[tokio::test(flavor = "multi_thread")]
async fn what_ran_for_a_node_that_is_gone_is_kept_and_serves_it_when_it_is_back() {
    let network = Network::start().await;
    let meeting = Meeting::of(0);
    let (engine, load) = (FakeEngine::new(), Load::default());
    engine.add_image("met", meeting.program(&load));
    let asker = Mortal::start(&network, settings(&network, "n-1", 0, None), &engine).await;
    let mut other = settings(&network, "n-2", 4, Some(asker.address));
    other.peers.orphan_after = DurationMs::from_secs(13);
    let other = Member::start(&network, other, "met", &meeting).await;
    // Two of three nodes can give up a third one and admit it again under its name; one of two could not.
    let third = settings(&network, "n-3", 0, Some(address(&other.agent)));
    let third = Member::start(&network, third, "met", &meeting).await;
    until_status(asker.agent(), |status| is_whole(status, 3)).await;
    until_status(&other.agent, |status| is_whole(status, 3)).await;
    deployed(&network, "met", container(), 2).await;
    let url = format!("http://{}/", asker.gateway);
    let call = network.client.get(url).header("host", "met.fn.test").send();
    assert_eq!(call.await.expect("an answer").status(), 200);
    let counted = async |line: &str, wanted: f64| {
        wait::until(line, async || {
            match network.metric(&other.agent, line).await {
                Some(value) if value >= wanted => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    };
    asker.kill();
    counted("fdn_peer_kept_total", 1.0).await;
    let idle = r#"fdn_agent_instances{node="n-2",state="idle"}"#;
    counted(idle, 1.0).await;
    for round in [1.0, 2.0] {
        let again = settings(&network, "n-1", 0, Some(address(&other.agent)));
        let again = Member::start(&network, again, "met", &meeting).await;
        until_status(&again.agent, |status| is_whole(status, 3)).await;
        network.until_text(&again.agent, "met", "met").await;
        counted("fdn_peer_lent_total", round).await;
        // This time it stops in order.
        again.agent.stop().await;
        counted("fdn_peer_kept_total", round + 1.0).await;
    }
    assert_eq!(other.engine.starts(), 1, "the same one all the time");
    assert_eq!(network.text(&other.agent, "met").await, "met");
    assert_eq!(other.engine.starts(), 1, "and its node uses it as its own");
    third.agent.stop().await;
    other.agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_here_and_do_not_use_gives_way_to_calls_here() {
    let network = Network::start().await;
    let meeting = Meeting::of(2);
    let mut host = settings(&network, "n-1", 2, None);
    host.peers.spare_after = DurationMs::from_millis(0);
    let host = Member::start(&network, host, "met", &meeting).await;
    let seed = address(&host.agent);
    let other = settings(&network, "n-2", 0, Some(seed));
    let other = Member::start(&network, other, "met", &meeting).await;
    for member in [&host, &other] {
        member.engine.add_image("mine", FakeProgram::text("mine"));
        until_status(&member.agent, |status| is_whole(status, 2)).await;
    }
    deployed(&network, "met", container(), 2).await;
    deployed(&network, "mine", container(), 2).await;
    let (good, others) = burst(&network, &other.agent, "met", 2).await;
    assert_eq!((good, others), (2, Vec::new()));
    assert_eq!(host.engine.alive().len(), 2, "there is room for no more");
    assert_eq!(network.text(&host.agent, "mine").await, "mine");
    let gave_way = network.metric(&host.agent, "fdn_peer_gave_way_total").await;
    assert!(gave_way.is_some_and(|n| n >= 1.0), "{gave_way:?}");
    other.agent.stop().await;
    host.agent.stop().await;
}
