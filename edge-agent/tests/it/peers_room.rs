//! Too little room: idle instances give way, wherever they are, and calls that still come are served.

use fdn_core::manifest::Manifest;
use fdn_core::{ByteSize, MilliCpu};
use fdn_instances::fake::FakeProgram;
use fdn_testkit::components;

use crate::bursts::{burst, container};
use crate::peers::{cordon, deployed};
use crate::support::Network;
use crate::support::peers::{Meeting, Member, address, cluster, is_whole, settings, until_status};

#[tokio::test(flavor = "multi_thread")]
async fn idle_instances_of_others_give_way_to_calls_in_sandboxes() {
    let network = Network::start().await;
    let meeting = Meeting::of(2);
    let first = Member::start(
        &network,
        settings(&network, "n-1", 0, None),
        "met",
        &meeting,
    )
    .await;
    let seed = address(&first.agent);
    let mut small = settings(&network, "n-2", 2, Some(seed));
    small.capacity.memory = ByteSize::from_mib(256);
    let small = Member::start(&network, small, "met", &meeting).await;
    for member in [&first, &small] {
        until_status(&member.agent, |status| is_whole(status, 2)).await;
    }
    let manifest = |memory| Manifest {
        memory: ByteSize::from_mib(memory),
        ..Manifest::default()
    };
    let container = Manifest {
        memory: ByteSize::from_mib(100),
        ..container()
    };
    deployed(&network, "met", container, 2).await;
    network
        .deploy("hello", 1, &components::hello("hi"), manifest(200))
        .await;
    let (good, others) = burst(&network, &first.agent, "met", 2).await;
    assert_eq!((good, others), (2, Vec::new()));
    assert_eq!(small.engine.alive().len(), 2, "and 56 MiB are left");
    network.until_text(&small.agent, "hello", "hi").await;
    let status = network
        .until_status(|status| status.node.as_str() == "n-1")
        .await;
    assert!(
        status.apps.iter().all(|app| app.degraded.is_none()),
        "{status:?}"
    );
    first.agent.stop().await;
    small.agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_instances_give_way_where_room_is_in_pieces() {
    let network = Network::start().await;
    let meeting = Meeting::of(2);
    let mut members: Vec<Member> = Vec::new();
    for node in ["n-1", "n-2", "n-3"] {
        let seed = members.first().map(|first| address(&first.agent));
        let mut settings = settings(&network, node, 1, seed);
        // Half, or one and a half, of what one instance needs: halves on several nodes do not add up to room for one.
        settings.capacity.cpu_milli = MilliCpu(if node == "n-1" { 5 } else { 15 });
        let member = Member::start(&network, settings, "met", &meeting).await;
        member.engine.add_image("other", FakeProgram::text("other"));
        members.push(member);
    }
    for member in &members {
        until_status(&member.agent, |status| is_whole(status, 3)).await;
    }
    deployed(&network, "met", container(), 3).await;
    deployed(&network, "other", container(), 3).await;
    let gateway = &members[0].agent;
    let (good, others) = burst(&network, gateway, "met", 2).await;
    assert_eq!((good, others), (2, Vec::new()));
    assert_eq!(network.text(gateway, "other").await, "other");
    let evicted = network.metric(
        gateway,
        r#"fdn_agent_instance_stops_total{node="n-1",why="shrunk"}"#,
    );
    assert!(evicted.await.is_some_and(|n| n >= 1.0));
    for member in members {
        member.agent.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_that_is_alone_serves_who_still_comes() {
    let network = Network::start().await;
    let members = cluster(&network, &[2], "met", &Meeting::of(0)).await;
    deployed(&network, "met", container(), 1).await;
    cordon(&network, &["n-1"]).await;
    until_status(&members[0].agent, |status| status.members[0].draining).await;
    assert_eq!(network.text(&members[0].agent, "met").await, "met");
    for member in members {
        member.agent.stop().await;
    }
}
