//! A gateway that stops leaves the answers, and returns.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fdn_core::message::{Message, NetworkDesired};
use fdn_core::{DurationMs, Revision};
use fdn_dns::Settings;
use fdn_testkit::wait;

use crate::common::{Fixture, Http, app, cluster, network};

const CLIENT: &str = "192.0.2.0/24";

fn often(settings: &mut Settings) {
    settings.health.interval = DurationMs::from_millis(30);
    settings.health.timeout = DurationMs::from_secs(60);
    settings.health.fall = 2;
}

async fn gateway(address: [u8; 4], port: u16, healthy: &Arc<AtomicBool>) -> Http {
    let healthy = Arc::clone(healthy);
    Http::start(SocketAddr::from((address, port)), move |head| {
        assert!(
            head.is_empty() || head.starts_with("GET /healthz "),
            "{head}"
        );
        (
            if healthy.load(Ordering::Relaxed) {
                200
            } else {
                503
            },
            String::new(),
        )
    })
    .await
}

fn desired(eu: &[SocketAddr], us: &[SocketAddr]) -> Message {
    let clusters = vec![
        cluster("eu-west", 53.35, -6.26, eu),
        cluster("us-east", 39.04, -77.49, us),
    ];
    Message::NetworkDesired(NetworkDesired {
        clusters,
        revision: Revision(1),
        ..network(1)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_whose_gateways_stop_leaves_and_returns() {
    let fine = Arc::new(AtomicBool::new(true));
    let eu = gateway([127, 0, 1, 1], 0, &fine).await;
    let us = gateway([127, 0, 2, 1], 0, &fine).await;
    let fixture = Fixture::start(often).await;
    fixture.publish(desired(&[eu.address], &[us.address])).await;
    fixture
        .publish(app("hello", 2, &[(CLIENT, "eu-west")]))
        .await;
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1"])
        .await;

    let port = eu.address.port();
    eu.stop().await;
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.2.1"])
        .await;
    let (_, metrics) = fixture.admin("/metrics").await;
    assert!(
        metrics.contains(&format!(
            "cluster=\"eu-west\",gateway=\"127.0.1.1:{port}\"}} 0"
        )),
        "{metrics}"
    );
    let (_, told) = fixture
        .admin("/lookup?name=hello.fn.test&client=192.0.2.1")
        .await;
    assert!(told.contains("bound_is_dead"), "{told}");

    let eu = gateway([127, 0, 1, 1], port, &fine).await;
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1"])
        .await;
    fixture.dns.stop().await;
    eu.stop().await;
    us.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_listens_but_is_not_healthy_leaves_alone() {
    let (fine, sick) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicBool::new(true)),
    );
    let first = gateway([127, 0, 1, 1], 0, &fine).await;
    let second = gateway([127, 0, 1, 2], 0, &sick).await;
    let fixture = Fixture::start(often).await;
    fixture
        .publish(desired(&[first.address, second.address], &[]))
        .await;
    fixture.publish(app("hello", 2, &[])).await;
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1", "127.0.1.2"])
        .await;
    sick.store(false, Ordering::Relaxed);
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1"])
        .await;
    // With the last one gone nothing is alive, and everything is served.
    fine.store(false, Ordering::Relaxed);
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1", "127.0.1.2"])
        .await;
    sick.store(true, Ordering::Relaxed);
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.2"])
        .await;
    fixture.dns.stop().await;
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_leaves_the_network_is_no_longer_watched() {
    let fine = Arc::new(AtomicBool::new(true));
    let eu = gateway([127, 0, 1, 1], 0, &fine).await;
    let fixture = Fixture::start(often).await;
    fixture
        .publish(desired(
            &[eu.address, SocketAddr::from(([127, 0, 1, 9], 9))],
            &[],
        ))
        .await;
    fixture.publish(app("hello", 2, &[])).await;
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1"])
        .await;
    let Message::NetworkDesired(mut next) = desired(&[eu.address], &[]) else {
        panic!("a network")
    };
    next.revision = Revision(3);
    fixture.publish(Message::NetworkDesired(next)).await;
    wait::until("the metric of the gateway to go", async || {
        let (_, metrics) = fixture.admin("/metrics").await;
        if metrics.contains("127.0.1.9:9") {
            Err("it is there")
        } else {
            Ok(())
        }
    })
    .await;
    fixture.dns.stop().await;
    eu.stop().await;
}
