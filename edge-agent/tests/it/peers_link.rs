//! Bursts over a slow link between the gateway, which runs nothing itself, and the node that runs the instances: every call ends with 200.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use fdn_testkit::link::Link;
use fdn_testkit::ports;
use tokio::time::Instant;

use crate::bursts::{burst, container};
use crate::peers::deployed;
use crate::support::Network;
use crate::support::peers::{Meeting, Member, is_whole, settings, until_status};

/// The number of concurrent calls in each of three bursts.
const BURST: usize = 50;
/// The delay in each direction.
const DELAY: Duration = Duration::from_millis(150);

#[tokio::test(flavor = "multi_thread")]
async fn bursts_over_a_link_of_150_ms_from_zero_warm_and_after_every_instance_has_crashed() {
    let network = Network::start().await;
    // Each node reaches the other over its own link only.
    let far = || SocketAddr::from((Ipv4Addr::LOCALHOST, ports::local()));
    let (host_at, gateway_at) = (far(), far());
    let to_host = Link::start(host_at, DELAY).await.expect("a link");
    let to_gateway = Link::start(gateway_at, DELAY).await.expect("a link");
    let mut host = settings(&network, "n-1", 20, None);
    host.peers.cluster.listen = host_at;
    host.peers.cluster.advertise = Some(to_host.address());
    let mut gateway = settings(&network, "n-2", 20, Some(to_host.address()));
    gateway.peers.cluster.listen = gateway_at;
    gateway.peers.cluster.advertise = Some(to_gateway.address());
    let host = Member::start(&network, host, "met", &Meeting::of(0)).await;
    let gateway = network.agent(gateway).await;
    for agent in [&host.agent, &gateway] {
        until_status(agent, |status| is_whole(status, 2)).await;
    }
    deployed(&network, "met", container(), 2).await;
    let mut all = 0;
    for round in ["from zero", "warm", "after kill -9 of every instance"] {
        if round == "after kill -9 of every instance" {
            assert!(host.engine.crash_all() > 0);
        }
        let began = Instant::now();
        let (good, others) = burst(&network, &gateway, "met", BURST).await;
        assert!(others.is_empty(), "{round}: {others:?}");
        assert!(began.elapsed() >= DELAY * 2, "{round}: it is a slow link");
        all += good;
    }
    assert_eq!(all, 150);
    let remote = r#"fdn_peer_calls_total{result="answered"}"#;
    assert_eq!(network.metric(&gateway, remote).await, Some(150.0));
    gateway.stop().await;
    host.agent.stop().await;
}
