//! Tests of the checks together with the published state.

use fdn_core::message::{ClusterSpec, NetworkDesired};
use fdn_core::{GeoPoint, Revision};
use fdn_testkit::{ports, wait};
use prometheus::Registry;

use super::client::Scheme;
use super::machine::Thresholds;
use super::*;
use crate::policy::fleet::Family;
use crate::policy::zone::{Names, ZoneData};

fn network(gateways: &[SocketAddr]) -> Arc<Network> {
    Arc::new(Network::new(&NetworkDesired {
        revision: Revision(1),
        clusters: vec![ClusterSpec {
            cluster: "eu-west".parse().expect("cluster"),
            region: "eu-west".parse().expect("region"),
            location: GeoPoint::new(53.0, -6.0).expect("point"),
            gateways: gateways.to_vec(),
            health: vec![],
            weights: vec![],
        }],
        locations: vec![],
        measured: vec![],
    }))
}

fn published(metrics: &Arc<Metrics>) -> Arc<Published> {
    let zone = ZoneData {
        name: "fn.test".parse().expect("zone"),
        servers: vec![("ns1.fn.test".parse().expect("name"), vec![])],
        contact: "hostmaster.fn.test".parse().expect("name"),
        ttl: 3600,
        negative_ttl: 30,
        serial: 0,
        timers: [1, 2, 3],
        records: vec![],
        app_service: None,
    };
    let names = Names::new(&zone, std::iter::empty(), Revision(1), true).expect("names");
    Arc::new(Published::new(names, None, Arc::clone(metrics)))
}

#[tokio::test]
async fn a_gateway_that_leaves_the_network_for_a_moment_is_dead_again_after_its_next_check() {
    let metrics = Arc::new(Metrics::new(&Registry::new()).expect("metrics"));
    let published = published(&metrics);
    // Nobody listens there.
    let gateway = SocketAddr::from(([127, 0, 0, 1], ports::local()));
    published.set_network(network(&[gateway]));
    let checks = Checks {
        schedule: CheckSchedule {
            interval: Duration::from_millis(30),
            timeout: wait::PATIENCE,
            thresholds: Thresholds { fall: 1, rise: 1 },
        },
        concurrency: 4,
    };
    let client = Client::new(wait::PATIENCE, Scheme::Http, None).expect("a client");
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(run(
        client,
        checks,
        Arc::clone(&published),
        Arc::clone(&metrics),
        shutdown.clone(),
    ));
    let answered = || published.serving().fleet.cluster(0).live(Family::V4).len();
    let dead = async |what: &str| {
        wait::until(what, async || match answered() {
            0 => Ok(()),
            _ => Err("it is in the answers"),
        })
        .await;
    };
    dead("the gateway to leave the answers").await;
    // Nothing else runs between the two: the checks see the second network only, and go on.
    published.set_network(network(&[]));
    published.set_network(network(&[gateway]));
    assert_eq!(answered(), 1, "its health was forgotten");
    dead("the gateway to leave the answers again").await;
    assert!(published.dead_gateways().contains(&gateway));
    shutdown.cancel();
    running.await.expect("no panic");
}
