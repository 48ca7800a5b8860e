//! Round trips between clusters: measured between their nodes, else estimated from the distance.

use std::collections::BTreeMap;

use fdn_core::latency::{LatencyEstimate, LatencySource};
use fdn_core::{ClientPrefix, ClusterId, GeoPoint, Millis, RegionName};

use crate::geo::Links;

/// The measured round trips.
#[derive(Clone, Debug, Default)]
pub struct MeasuredRtts {
    /// Between clusters and client prefixes.
    pub clients: Vec<(ClientPrefix, ClusterId, Millis)>,
    /// Between clusters.
    pub links: Links,
}

/// The round trips between all clusters, in the order of their names: as measured by the first cluster of a pair, else by the second,
/// else estimated from the distance.
pub(super) fn links(
    places: &BTreeMap<ClusterId, (RegionName, GeoPoint)>,
    measured: &Links,
) -> Vec<Vec<LatencyEstimate>> {
    let trip =
        |from: &ClusterId, to: &ClusterId| measured.get(from).and_then(|row| row.get(to)).copied();
    let link = |(from, (_, here)): (&ClusterId, &(RegionName, GeoPoint))| {
        let others = places.iter().map(|(to, (_, there))| {
            let both = if from == to {
                None
            } else {
                trip(from, to).or_else(|| trip(to, from))
            };
            both.map_or_else(
                || LatencyEstimate {
                    rtt: here.rtt_estimate(there),
                    source: LatencySource::Located,
                },
                |rtt| LatencyEstimate {
                    rtt,
                    source: LatencySource::Measured,
                },
            )
        });
        others.collect()
    };
    places.iter().map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_counts_before_the_distance_in_either_direction() {
        let name = |name: &str| -> ClusterId { name.parse().expect("cluster") };
        let place = |id: &str, lat: f64| {
            let point = GeoPoint::new(lat, 0.0).expect("a point");
            (name(id), ("region".parse().expect("region"), point))
        };
        let places = [place("a", 0.0), place("b", 10.0), place("c", 20.0)].into();
        let row = |to: &str, rtt: f64| BTreeMap::from([(name(to), Millis::new(rtt))]);
        let measured = Links::from([
            (name("a"), row("b", 80.0)),
            (name("b"), row("a", 90.0)),
            (name("c"), row("a", 7.0)),
            // It measured itself, or is no longer there.
            (name("b"), row("b", 5.0)),
            (name("gone"), row("a", 1.0)),
        ]);
        let links = links(&places, &measured);
        let trip = |from: usize, to: usize| (links[from][to].rtt.get(), links[from][to].source);
        assert_eq!(trip(0, 1), (80.0, LatencySource::Measured));
        assert_eq!(trip(0, 2), (7.0, LatencySource::Measured));
        assert_eq!(trip(2, 0), trip(0, 2));
        assert_eq!(trip(1, 2).1, LatencySource::Located);
        assert_eq!(trip(1, 2), trip(2, 1));
        assert_eq!(trip(1, 1).1, LatencySource::Located);
    }
}
