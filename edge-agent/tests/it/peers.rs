//! Three agents of one cluster: a burst at one gateway uses all nodes, and goes on when a node is lost, drained, or refuses.

use std::collections::BTreeSet;
use std::time::Duration;

use fdn_core::ByteSize;
use fdn_core::fleet::FleetDesired;
use fdn_core::manifest::Manifest;
use fdn_core::message::AppPhase;
use fdn_instances::fake::FakeEngine;
use fdn_testkit::{components, wait};

use crate::bursts::{burst, container};
use crate::support::Network;
use crate::support::peers::{
    Load, Meeting, Member, Mortal, cluster, is_whole, settings, until_status,
};

/// Deploys an image and waits until this many nodes have it.
pub(crate) async fn deployed(network: &Network, app: &str, manifest: Manifest, nodes: usize) {
    let revision = network.deploy(app, 1, app.as_bytes(), manifest).await;
    let ready = std::sync::Mutex::new(BTreeSet::new());
    network
        .until_status(|status| {
            let mut ready = ready.lock().expect("lock");
            let is_ready = |a: &fdn_core::message::AppObserved| {
                a.app.as_str() == app && a.revision >= revision && a.phase == AppPhase::Ready
            };
            if status.apps.iter().any(is_ready) {
                ready.insert(status.node.clone());
            }
            ready.len() >= nodes
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_at_one_gateway_is_served_by_instances_on_all_nodes() {
    let network = Network::start().await;
    let meeting = Meeting::of(16);
    let members = cluster(&network, &[4, 8, 8], "met", &meeting).await;
    deployed(&network, "met", container(), 3).await;
    // No call is answered before sixteen run at the same time: the gateway's own node has room for four.
    let (good, others) = burst(&network, &members[0].agent, "met", 50).await;
    assert_eq!((good, others), (50, Vec::new()));
    let most: Vec<usize> = members.iter().map(|one| one.load.most()).collect();
    for (most, room) in most.iter().zip([4, 8, 8]) {
        assert!(*most <= room, "no node has more than its room: {most}");
    }
    let used = most.iter().filter(|most| **most > 0).count();
    assert!(used >= 2 && most.iter().sum::<usize>() >= 16, "{most:?}");
    let gateway = &members[0].agent;
    let remote = network.metric(gateway, r#"fdn_peer_calls_total{result="answered"}"#);
    assert!(remote.await.is_some_and(|calls| calls >= 12.0));
    let status = network
        .until_status(|status| status.node.as_str() == "n-1" && status.stages.is_some())
        .await;
    let stages = status.stages.expect("there are some");
    let all = network.until_status(|status| {
        status.node.as_str() != "n-1"
            && status
                .stages
                .is_some_and(|s| s.local + s.probe + s.global > 0)
    });
    assert!(all.await.stages.is_some(), "{stages:?}");
    let scheduled = network.metric(gateway, "fdn_cluster_scheduled_seconds_count");
    assert!(scheduled.await.is_some_and(|n| n >= 16.0));
    // Every instance that the gateway was told of was started at one of the stages of one of the nodes.
    let started = network.metric(gateway, r#"fdn_cluster_settled_total{result="started"}"#);
    let started = started.await.expect("counted");
    let mut at_stages = 0.0;
    for member in &members {
        for stage in ["local", "probe", "global"] {
            let held = format!(r#"fdn_cluster_held_seconds_count{{step="{stage}"}}"#);
            at_stages += network.metric(&member.agent, &held).await.unwrap_or(0.0);
        }
    }
    assert!(
        at_stages >= started && started >= 16.0,
        "{at_stages} of {started}"
    );
    for member in members {
        member.agent.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_call_that_an_instance_was_started_for_shows_its_way() {
    let network = Network::start().await;
    let members = cluster(&network, &[0, 1], "met", &Meeting::of(0)).await;
    deployed(&network, "met", container(), 2).await;
    let answer = network
        .get(&members[0].agent, "met", "/")
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 200);
    let timing = |answer: &reqwest::Response| {
        let all = answer.headers().get_all("server-timing").iter();
        let all: Vec<String> = all
            .map(|value| value.to_str().expect("text").to_owned())
            .collect();
        all.join(", ")
    };
    let first = timing(&answer);
    assert!(
        first.contains("place;dur=") && first.contains("on n-2\""),
        "{first}"
    );
    let again = network
        .get(&members[0].agent, "met", "/")
        .send()
        .await
        .expect("an answer");
    assert!(!timing(&again).contains("place;"), "it was there already");
    for member in members {
        member.agent.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_loses_power_under_calls_costs_no_idempotent_call() {
    let network = Network::start().await;
    // The others stay busy until the third one was needed and has died.
    let meeting = Meeting::of(usize::MAX);
    let first = Member::start(
        &network,
        settings(&network, "n-1", 2, None),
        "met",
        &meeting,
    )
    .await;
    let seed = crate::support::peers::address(&first.agent);
    let second = Member::start(
        &network,
        settings(&network, "n-2", 8, Some(seed)),
        "met",
        &meeting,
    )
    .await;
    let (engine, load) = (FakeEngine::new(), Load::default());
    let hanging = Meeting::of(usize::MAX);
    engine.add_image("met", hanging.program(&load));
    let third = Mortal::start(&network, settings(&network, "n-3", 8, Some(seed)), &engine).await;
    for agent in [&first.agent, &second.agent, third.agent()] {
        until_status(agent, |status| is_whole(status, 3)).await;
    }
    deployed(&network, "met", container(), 3).await;
    let calls = burst(&network, &first.agent, "met", 60);
    let kill = async {
        // Calls hang there: they will be interrupted, not refused.
        wait::until("calls on the third node", async || match load.now() {
            0 => Err("none".to_owned()),
            _ => Ok(()),
        })
        .await;
        third.kill();
        meeting.open();
    };
    let ((good, others), ()) = tokio::join!(calls, kill);
    assert_eq!((good, others), (60, Vec::new()));
    let retries = r#"fdn_agent_call_retries_total{node="n-1",reason="interrupted"}"#;
    assert!(
        network
            .metric(&first.agent, retries)
            .await
            .is_some_and(|n| n >= 1.0)
    );
    first.agent.stop().await;
    second.agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_ledger_refuses_starts_on_another_node() {
    let network = Network::start().await;
    let meeting = Meeting::of(24);
    let first = Member::start(
        &network,
        settings(&network, "n-1", 8, None),
        "met",
        &meeting,
    )
    .await;
    let seed = crate::support::peers::address(&first.agent);
    let mut full = settings(&network, "n-2", 8, Some(seed));
    full.capacity.memory = ByteSize::from_mib(256);
    let full = Member::start(&network, full, "met", &meeting).await;
    let third = Member::start(
        &network,
        settings(&network, "n-3", 16, Some(seed)),
        "met",
        &meeting,
    )
    .await;
    for member in [&first, &full, &third] {
        until_status(&member.agent, |status| is_whole(status, 3)).await;
    }
    // A kept sandbox holds memory that the cluster does not know of.
    let kept = Manifest {
        memory: ByteSize::from_mib(200),
        reuse: 1000,
        ..Manifest::default()
    };
    network
        .deploy("hello", 1, &components::hello("hi"), kept)
        .await;
    network.until_text(&full.agent, "hello", "hi").await;
    let large = Manifest {
        memory: ByteSize::from_mib(100),
        ..container()
    };
    deployed(&network, "met", large, 3).await;
    let (good, others) = burst(&network, &first.agent, "met", 40).await;
    assert_eq!((good, others), (40, Vec::new()));
    assert_eq!(full.engine.starts(), 0, "its ledger has the last word");
    let refused = network.metric(&full.agent, r#"fdn_peer_starts_total{result="refused"}"#);
    assert!(refused.await.is_some_and(|n| n >= 1.0));
    let retried = network.metric(&first.agent, "fdn_peer_starts_retried_total");
    assert!(retried.await.is_some_and(|n| n >= 1.0));
    for member in [first, full, third] {
        member.agent.stop().await;
    }
}

pub(crate) async fn cordon(network: &Network, nodes: &[&str]) {
    let fleet = FleetDesired {
        revision: network.next_revision(),
        cordoned: nodes
            .iter()
            .map(|node| node.parse().expect("node"))
            .collect(),
        ..FleetDesired::default()
    };
    network.tell_fleet(fleet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_node_starts_nothing_and_does_again_afterwards() {
    let network = Network::start().await;
    let meeting = Meeting::of(8);
    let members = cluster(&network, &[2, 8, 8], "met", &meeting).await;
    deployed(&network, "met", container(), 3).await;
    cordon(&network, &["n-2"]).await;
    let drains = |draining: bool| {
        move |status: &fdn_cluster::ClusterStatus| {
            let second = status.members.iter().find(|one| one.node.as_str() == "n-2");
            second.is_some_and(|second| second.draining == draining)
        }
    };
    for member in &members {
        until_status(&member.agent, drains(true)).await;
    }
    let (good, others) = burst(&network, &members[0].agent, "met", 20).await;
    assert_eq!((good, others), (20, Vec::new()));
    assert_eq!(members[1].engine.starts(), 0);
    cordon(&network, &[]).await;
    for member in &members {
        until_status(&member.agent, drains(false)).await;
    }
    // When it is the gateway, it starts instances on itself as well.
    let (good, others) = burst(&network, &members[1].agent, "met", 20).await;
    assert_eq!((good, others), (20, Vec::new()));
    for member in members {
        member.agent.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_is_who_has_the_controllers_lease_and_else_who_is_elected() {
    let network = Network::start().await;
    network.controller.lease_for("n-3");
    let meeting = Meeting::of(6);
    let mut members = cluster(&network, &[2, 4, 4], "met", &meeting).await;
    let heads = |name: &'static str, members: usize| {
        move |status: &fdn_cluster::ClusterStatus| {
            let head = status.head.as_ref().map(|head| head.as_str() == name);
            head == Some(true) && status.members.len() == members
        }
    };
    for member in &members {
        until_status(&member.agent, heads("n-3", 3)).await;
    }
    assert!(network.controller.lease_requests() >= 1);
    deployed(&network, "met", container(), 3).await;
    network.controller.away(true);
    let third = members.pop().expect("three");
    third.agent.stop().await;
    network.forgets("n-3");
    for member in &members {
        until_status(&member.agent, heads("n-1", 2)).await;
    }
    let (good, others) = burst(&network, &members[0].agent, "met", 20).await;
    assert_eq!((good, others), (20, Vec::new()));
    for member in members {
        member.agent.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_hands_over_what_it_does_for_others() {
    let network = Network::start().await;
    let meeting = Meeting::of(0);
    let mut members = cluster(&network, &[0, 4, 4], "met", &meeting).await;
    deployed(&network, "met", container(), 3).await;
    let gateway = members.remove(0);
    assert_eq!(network.text(&gateway.agent, "met").await, "met");
    let user = members
        .iter()
        .position(|one| !one.engine.alive().is_empty());
    let user = members.remove(user.expect("one of the two has it"));
    let other = members.remove(0);
    let calls = async {
        for _ in 0..20 {
            let (_, others) = burst(&network, &gateway.agent, "met", 4).await;
            assert!(others.is_empty(), "{others:?}");
        }
    };
    tokio::join!(calls, user.agent.stop());
    let (good, others) = burst(&network, &gateway.agent, "met", 4).await;
    assert_eq!((good, others), (4, Vec::new()));
    assert!(
        user.engine.alive().is_empty(),
        "what it ran for others is over"
    );
    assert!(!other.engine.alive().is_empty());
    gateway.agent.stop().await;
    wait::until("what ran for the gateway to be kept", async || {
        let kept = network.metric(&other.agent, "fdn_peer_kept_total").await;
        match (kept, other.engine.alive().len()) {
            (Some(kept), alive) if kept >= 1.0 && alive >= 1 => Ok(()),
            left => Err(format!("{left:?}")),
        }
    })
    .await;
    other.agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_not_got_the_app_is_passed_over() {
    let network = Network::start().await;
    let meeting = Meeting::of(4);
    let members = cluster(&network, &[0, 8, 8], "met", &meeting).await;
    // That node cannot get the image.
    members[1].engine.set_unreachable(true);
    deployed(&network, "met", container(), 2).await;
    let (good, others) = burst(&network, &members[0].agent, "met", 12).await;
    assert_eq!((good, others), (12, Vec::new()));
    assert_eq!(members[1].engine.starts(), 0);
    members[1].engine.set_unreachable(false);
    for member in members {
        member.agent.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_that_ran_before_a_node_started_take_its_room() {
    let network = Network::start().await;
    let (engine, load) = (FakeEngine::new(), Load::default());
    engine.add_image("met", Meeting::of(0).program(&load));
    let settings = settings(&network, "n-1", 2, None);
    let start = async || {
        let runtime = crate::bursts::runtime(&engine, "n-1");
        let agent = network.agent_with(settings.clone(), runtime).await;
        until_status(&agent, |status| is_whole(status, 1)).await;
        agent
    };
    let agent = start().await;
    deployed(&network, "met", container(), 1).await;
    assert_eq!(network.text(&agent, "met").await, "met");
    agent.stop().await;
    assert_eq!(engine.alive().len(), 1);
    let agent = start().await;
    until_status(&agent, |status| status.running == 1).await;
    network.until_text(&agent, "met", "met").await;
    assert_eq!(engine.starts(), 1, "it serves on");
    engine.crash_all();
    until_status(&agent, |status| status.running == 0).await;
    tokio::time::timeout(Duration::from_secs(60), network.text(&agent, "met"))
        .await
        .expect("another one is started");
    agent.stop().await;
}
