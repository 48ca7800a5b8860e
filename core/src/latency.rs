//! The latency map: how far each cluster is from a client, as far as is known.
//!
//! Three sources, best first: round-trip times that gateways measured on real connections from the client's prefix; the distance between
//! the client's location and the cluster; and, for unknown clients, the same default for all. Controller and DNS hold the same map, so
//! that the default answer for an unknown prefix is the one from which a plan would start.
//!
//! `d(u,p)` of the placement algorithm is the one-way latency, half of a round trip.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::geo::GeoPoint;
use crate::id::ClusterId;
use crate::prefix::{ClientPrefix, PrefixMap};
use crate::unit::Millis;

/// The round-trip time assumed between a client and a cluster when nothing is known.
pub const UNKNOWN_RTT: Millis = Millis::new(100.0);

/// The source of a latency estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LatencySource {
    /// Measured: for clients by the cluster's gateways, between clusters by nodes.
    Measured,
    /// Estimated from the geographic distance.
    Located,
    /// A default, because nothing is known.
    Unknown,
}

impl LatencySource {
    /// The name used in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Located => "located",
            Self::Unknown => "unknown",
        }
    }
}

/// The estimated round trip between a client and a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LatencyEstimate {
    /// The round-trip time.
    pub rtt: Millis,
    /// The source of the estimate.
    pub source: LatencySource,
}

impl LatencyEstimate {
    /// The one-way latency `d(u,p)`: half the round trip.
    #[must_use]
    pub fn one_way(&self) -> Millis {
        self.rtt * 0.5
    }
}

/// Client locations, cluster positions and measured round trips.
#[derive(Clone, Debug, Default)]
pub struct LatencyMap {
    clusters: BTreeMap<ClusterId, GeoPoint>,
    locations: PrefixMap<GeoPoint>,
    measured: PrefixMap<BTreeMap<ClusterId, Millis>>,
}

/// The latency estimates for one client.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientView {
    /// The estimate for every cluster.
    pub estimates: BTreeMap<ClusterId, LatencyEstimate>,
    /// The estimates hold for every client that shares this many leading bits.
    pub scope: u8,
}

impl LatencyMap {
    /// A map of clusters and client locations, with nothing measured yet.
    #[must_use]
    pub fn new(
        clusters: BTreeMap<ClusterId, GeoPoint>,
        locations: impl IntoIterator<Item = (ClientPrefix, GeoPoint)>,
    ) -> Self {
        Self {
            clusters,
            locations: locations.into_iter().collect(),
            measured: PrefixMap::default(),
        }
    }

    /// Replaces the clusters.
    pub fn set_clusters(&mut self, clusters: BTreeMap<ClusterId, GeoPoint>) {
        self.clusters = clusters;
    }

    /// Replaces the client locations.
    pub fn set_locations(&mut self, locations: impl IntoIterator<Item = (ClientPrefix, GeoPoint)>) {
        self.locations = locations.into_iter().collect();
    }

    /// Replaces the measured round-trip times.
    pub fn set_measured(
        &mut self,
        measured: impl IntoIterator<Item = (ClientPrefix, ClusterId, Millis)>,
    ) {
        let mut by_prefix: BTreeMap<ClientPrefix, BTreeMap<ClusterId, Millis>> = BTreeMap::new();
        for (prefix, cluster, rtt) in measured {
            by_prefix.entry(prefix).or_default().insert(cluster, rtt);
        }
        self.measured = by_prefix.into_iter().collect();
    }

    /// The clusters and their positions.
    #[must_use]
    pub const fn clusters(&self) -> &BTreeMap<ClusterId, GeoPoint> {
        &self.clusters
    }

    /// The latency estimates for `client`. `looked_up` is a location from a source outside this map (a geographic database), with the
    /// prefix length for which it holds; configured locations take precedence.
    #[must_use]
    pub fn view(&self, client: ClientPrefix, looked_up: Option<(GeoPoint, u8)>) -> ClientView {
        let located = self.locations.lookup(client);
        let measured = self.measured.lookup(client);
        let mut scope = located.scope.max(measured.scope);
        let location = located.value.copied().or_else(|| {
            looked_up.map(|(point, len)| {
                scope = scope.max(len);
                point
            })
        });
        let estimate = |cluster: &ClusterId, position: &GeoPoint| {
            if let Some(rtt) = measured
                .value
                .and_then(|by_cluster| by_cluster.get(cluster))
            {
                return LatencyEstimate {
                    rtt: *rtt,
                    source: LatencySource::Measured,
                };
            }
            match location {
                Some(point) => LatencyEstimate {
                    rtt: point.rtt_estimate(position),
                    source: LatencySource::Located,
                },
                None => LatencyEstimate {
                    rtt: UNKNOWN_RTT,
                    source: LatencySource::Unknown,
                },
            }
        };
        let estimates = self
            .clusters
            .iter()
            .map(|(id, position)| (id.clone(), estimate(id, position)))
            .collect();
        ClientView { estimates, scope }
    }
}

impl ClientView {
    /// The clusters in order of round-trip time, nearest first, ties by name.
    #[must_use]
    pub fn nearest_first(&self) -> Vec<ClusterId> {
        let mut order: Vec<_> = self
            .estimates
            .iter()
            .map(|(id, e)| (e.rtt, id.clone()))
            .collect();
        order.sort();
        order.into_iter().map(|(_, id)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> LatencyMap {
        let point = |lat, lon| GeoPoint::new(lat, lon).expect("position");
        LatencyMap::new(
            [
                ("eu-west", 53.3, -6.3),
                ("us-east", 38.9, -77.0),
                ("ap-south", 19.1, 72.9),
            ]
            .map(|(id, lat, lon)| (id.parse().expect("id"), point(lat, lon)))
            .into(),
            [("192.0.2.0/24".parse().expect("prefix"), point(48.9, 2.4))],
        )
    }

    fn names(view: &ClientView) -> Vec<String> {
        view.nearest_first()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_located_client_sees_the_nearest_first() {
        let view = map().view("192.0.2.7".parse().expect("client"), None);
        assert_eq!(names(&view), ["eu-west", "us-east", "ap-south"]);
        assert_eq!(view.scope, 24);
        assert!(
            view.estimates
                .values()
                .all(|e| e.source == LatencySource::Located)
        );
    }

    #[test]
    fn an_unknown_client_gets_the_default_and_a_stable_order() {
        let view = map().view("198.51.100.7".parse().expect("client"), None);
        assert!(
            view.estimates
                .values()
                .all(|e| e.rtt == UNKNOWN_RTT && e.source == LatencySource::Unknown)
        );
        assert_eq!(names(&view), ["ap-south", "eu-west", "us-east"]);
    }

    #[test]
    fn what_was_measured_beats_distance() {
        let mut map = map();
        map.set_measured([(
            "192.0.2.0/25".parse().expect("prefix"),
            "us-east".parse().expect("id"),
            Millis::new(3.0),
        )]);
        let view = map.view("192.0.2.7".parse().expect("client"), None);
        assert_eq!(names(&view)[0], "us-east");
        assert_eq!(view.scope, 25);
        // The other half of the /24 is not touched by the measurement.
        let other = map.view("192.0.2.200".parse().expect("client"), None);
        assert_eq!(names(&other)[0], "eu-west");
        assert_eq!(other.scope, 25);
    }

    #[test]
    fn a_database_location_carries_its_prefix_length() {
        let point = GeoPoint::new(40.0, -75.0).expect("position");
        let view = map().view("198.51.100.7".parse().expect("client"), Some((point, 20)));
        assert_eq!(names(&view)[0], "us-east");
        assert_eq!(view.scope, 20);
    }
}
