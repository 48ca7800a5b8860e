//! The desired state of the network for DNS servers, and when it must be published again.

use std::collections::BTreeMap;
use std::time::Duration;

use fdn_core::message::{ClusterSpec, NetworkDesired};
use fdn_core::{ClientPrefix, ClusterId, GatewayWeight, GeoPoint, Millis, Revision, Timestamp};

use super::node_registry::{NodeEntry, NodeRegistry};
use crate::geo::ClientTable;

/// The clusters with the gateways that DNS may answer with. A silent node is included: DNS servers check the health of gateways
/// themselves, and faster. A node that drains, or is cordoned even if it may not know yet, is left out as long as there is another one.
#[must_use]
pub fn clusters(live: &NodeRegistry) -> Vec<ClusterSpec> {
    let mut nodes: BTreeMap<ClusterId, Vec<&NodeEntry>> = BTreeMap::new();
    for seen in live.nodes() {
        nodes
            .entry(seen.status.cluster.clone())
            .or_default()
            .push(seen);
    }
    let drains = |seen: &NodeEntry| seen.status.draining || live.cordoned(&seen.status.node);
    let somebody_serves = live.nodes().any(|seen| !drains(seen));
    live.clusters()
        .into_iter()
        .map(|(cluster, (region, location))| {
            let serving: Vec<&&NodeEntry> = nodes
                .get(&cluster)
                .into_iter()
                .flatten()
                .filter(|seen| !drains(seen) || !somebody_serves)
                .collect();
            ClusterSpec {
                cluster,
                region,
                location,
                gateways: serving.iter().map(|seen| seen.status.gateway).collect(),
                health: serving.iter().map(|seen| seen.status.admin).collect(),
                weights: weights(&serving),
            }
        })
        .collect()
}

/// The weights of gateways; empty if all have the default.
fn weights(serving: &[&&NodeEntry]) -> Vec<GatewayWeight> {
    let weights = serving.iter().map(|seen| seen.status.weight);
    if weights.clone().all(|weight| weight.is_usual()) {
        return Vec::new();
    }
    weights.collect()
}

/// The state to publish; `None` if `published` is still valid. Changes of round trips alone are published no more often than every `pause`.
#[must_use]
pub fn next(
    published: Option<&NetworkDesired>,
    clusters: Vec<ClusterSpec>,
    locations: &[(ClientPrefix, GeoPoint)],
    rtt: &ClientTable,
    since_last: Duration,
    pause: Duration,
) -> Option<NetworkDesired> {
    let measured: Vec<(ClientPrefix, ClusterId, Millis)> = rtt.list();
    let due = match published {
        None => true,
        Some(published) => {
            published.clusters != clusters
                || published.locations != locations
                || (since_last >= pause && rtt.differs(&published.measured))
        }
    };
    due.then(|| NetworkDesired {
        revision: Revision::NONE,
        clusters,
        locations: locations.to_vec(),
        measured,
    })
}

/// The state of a network of which nothing has been published.
#[must_use]
pub fn unknown(locations: &[(ClientPrefix, GeoPoint)]) -> NetworkDesired {
    NetworkDesired {
        revision: Revision::NONE,
        clusters: Vec::new(),
        locations: locations.to_vec(),
        measured: Vec::new(),
    }
}

/// The time since `last`; [`Duration::MAX`] if there is none.
#[must_use]
pub fn since(last: Option<Timestamp>, now: Timestamp) -> Duration {
    last.map_or(Duration::MAX, |last| now.since(last))
}

#[cfg(test)]
mod tests {
    use fdn_core::message::NodeStatus;

    use super::super::node_registry::AdminState;
    use super::*;
    use crate::fixture;
    use crate::geo::Sample;
    use crate::settings::GeoSettings;

    fn live(nodes: &[(&str, &str, bool)]) -> NodeRegistry {
        let mut live = NodeRegistry::new(Vec::new(), 10, Timestamp(0));
        for (node, cluster, draining) in nodes {
            live.observe(
                NodeStatus {
                    draining: *draining,
                    ..fixture::status(node, cluster)
                },
                Timestamp(0),
            );
        }
        live
    }

    #[test]
    fn a_cluster_is_its_nodes_and_draining_ones_leave() {
        let specs = clusters(&live(&[
            ("a-1", "a", false),
            ("a-2", "a", true),
            ("b-1", "b", true),
        ]));
        let gateways: Vec<(&str, usize, usize)> = specs
            .iter()
            .map(|spec| {
                (
                    spec.cluster.as_str(),
                    spec.gateways.len(),
                    spec.health.len(),
                )
            })
            .collect();
        assert_eq!(gateways, [("a", 1, 1), ("b", 0, 0)]);
        let mut deaf = live(&[("a-1", "a", false), ("a-2", "a", false)]);
        deaf.set_admin_state(AdminState {
            cordoned: ["a-2".parse().expect("node")].into(),
            ..AdminState::default()
        });
        assert_eq!(
            clusters(&deaf)[0].gateways.len(),
            1,
            "whether or not the node has heard of it"
        );
        let alone = clusters(&live(&[("a-1", "a", true)]));
        assert_eq!(
            alone[0].gateways.len(),
            1,
            "better a draining gateway than none"
        );
    }

    #[test]
    fn weights_are_told_once_a_gateway_has_one() {
        let mut live = live(&[("a-1", "a", false), ("a-2", "a", false), ("a-3", "a", true)]);
        let before = clusters(&live);
        assert!(before[0].weights.is_empty());
        let text = serde_json::to_string(&before[0]).expect("json");
        assert!(
            !text.contains("weights"),
            "as earlier servers know it: {text}"
        );
        let weight = |weight| GatewayWeight::new(weight).expect("a weight");
        let heavy = NodeStatus {
            weight: weight(300),
            sequence: 100,
            ..fixture::status("a-2", "a")
        };
        live.observe(heavy, Timestamp(1));
        let after = clusters(&live);
        // In the order of the gateways, without the one that drains.
        assert_eq!(after[0].weights, [weight(100), weight(300)]);
        let rtt = ClientTable::of_clients(&GeoSettings::default());
        let (soon, pause) = (Duration::ZERO, Duration::from_secs(10));
        let published = next(None, before, &[], &rtt, soon, pause).expect("the first");
        assert!(next(Some(&published), after, &[], &rtt, soon, pause).is_some());
    }

    #[test]
    fn changes_are_told_at_once_but_round_trips_with_a_pause() {
        let mut rtt = ClientTable::of_clients(&GeoSettings::default());
        let live = live(&[("a-1", "a", false)]);
        let pause = Duration::from_secs(10);
        let published =
            next(None, clusters(&live), &[], &rtt, Duration::ZERO, pause).expect("the first");
        let again = |rtt: &ClientTable, since| {
            next(Some(&published), clusters(&live), &[], rtt, since, pause)
        };
        assert_eq!(again(&rtt, Duration::MAX), None);
        rtt.observe(
            Sample {
                key: (
                    "192.0.2.0/24".parse().expect("prefix"),
                    "a".parse().expect("cluster"),
                ),
                rtt: Millis::new(9.0),
                connections: 1,
            },
            Timestamp(1),
        );
        assert_eq!(again(&rtt, Duration::from_secs(9)), None, "too soon");
        assert_eq!(again(&rtt, pause).expect("due").measured.len(), 1);
        assert!(
            next(
                Some(&published),
                Vec::new(),
                &[],
                &rtt,
                Duration::ZERO,
                pause
            )
            .is_some(),
            "a cluster left"
        );
    }
}
