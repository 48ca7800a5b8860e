//! The latency map as a table: for a client, the clusters from near to far, and for how long a prefix that order is the same.
//!
//! [`fdn_core::latency::LatencyMap`] computes an estimate for every cluster at each look-up. Between two changes of the network its
//! result can differ only at the prefixes that locations and measurements name, so the orders are computed once for each of these
//! and kept in one longest-prefix table. A client that this table cannot locate is looked up in the geographic database, if there
//! is one, and only then is an order computed during a query.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fdn_core::latency::{ClientView, LatencyMap};
use fdn_core::message::ClusterSpec;
use fdn_core::{ClientPrefix, ClusterId, GeoPoint, Millis, PrefixMap};

/// A source of client locations outside the network's own list. It answers from memory.
pub trait Locate: Send + Sync {
    /// Where the client is, if known, and how many leading bits that (or the not knowing) depends on.
    fn locate(&self, client: ClientPrefix) -> (Option<GeoPoint>, u8);
}

/// Indexes of clusters, nearest first.
type Order = Arc<[usize]>;

#[derive(Clone, Debug)]
struct Known {
    order: Order,
    /// Whether the network's own list says where the client is; then no database is asked.
    located: bool,
}

/// Where the clusters stand from a client's point of view.
#[derive(Debug, PartialEq, Eq)]
pub struct Nearest<'a> {
    /// Indexes of clusters, nearest first.
    pub order: Cow<'a, [usize]>,
    /// The order is the same for every client that shares this many leading bits.
    pub scope: u8,
}

/// Orders by client prefix.
#[derive(Debug, Default)]
pub struct Atlas {
    map: LatencyMap,
    index: BTreeMap<ClusterId, usize>,
    known: PrefixMap<Known>,
    unknown: Order,
}

impl Atlas {
    /// Computes the orders of all prefixes that locations or measurements name.
    #[must_use]
    pub fn new(
        clusters: &[ClusterSpec],
        locations: &[(ClientPrefix, GeoPoint)],
        measured: &[(ClientPrefix, ClusterId, Millis)],
    ) -> Self {
        let places = clusters
            .iter()
            .map(|spec| (spec.cluster.clone(), spec.location))
            .collect();
        let mut map = LatencyMap::new(places, locations.iter().copied());
        map.set_measured(measured.iter().cloned());
        let index: BTreeMap<_, _> = clusters
            .iter()
            .enumerate()
            .map(|(i, spec)| (spec.cluster.clone(), i))
            .collect();
        let located: PrefixMap<()> = locations.iter().map(|(prefix, _)| (*prefix, ())).collect();
        let named: BTreeSet<ClientPrefix> = locations
            .iter()
            .map(|(prefix, _)| *prefix)
            .chain(measured.iter().map(|(prefix, ..)| *prefix))
            .collect();
        // Many prefixes share few orders.
        let mut orders: BTreeSet<Order> = BTreeSet::new();
        let mut intern = |order: Vec<usize>| match orders.get(order.as_slice()) {
            Some(same) => Arc::clone(same),
            None => {
                let order: Order = order.into();
                orders.insert(Arc::clone(&order));
                order
            }
        };
        let known = named
            .into_iter()
            .map(|prefix| {
                let order = intern(ranked(&index, &map.view(prefix, None)));
                (
                    prefix,
                    Known {
                        order,
                        located: located.lookup(prefix).value.is_some(),
                    },
                )
            })
            .collect();
        // With nothing known about a client all clusters are equally far, and ties go by name: the order of `clusters`.
        let unknown = intern((0..clusters.len()).collect());
        Self {
            map,
            index,
            known,
            unknown,
        }
    }

    /// The clusters from near to far for `client`.
    #[must_use]
    pub fn nearest(&self, client: ClientPrefix, locate: Option<&dyn Locate>) -> Nearest<'_> {
        let found = self.known.lookup(client);
        let order: &Order = found.value.map_or(&self.unknown, |known| &known.order);
        let fixed = Nearest {
            order: Cow::Borrowed(order),
            scope: found.scope,
        };
        if found.value.is_some_and(|known| known.located) {
            return fixed;
        }
        let Some((point, len)) = locate.map(|source| source.locate(client)) else {
            return fixed;
        };
        let scope = found.scope.max(len);
        match point {
            None => Nearest { scope, ..fixed },
            Some(point) => {
                let view = self.map.view(client, Some((point, len)));
                Nearest {
                    order: Cow::Owned(ranked(&self.index, &view)),
                    scope: scope.max(view.scope),
                }
            }
        }
    }

    /// Every cluster's estimate, for explanations.
    #[must_use]
    pub fn view(&self, client: ClientPrefix, locate: Option<&dyn Locate>) -> ClientView {
        let looked_up = locate.and_then(|source| {
            let (point, len) = source.locate(client);
            point.map(|point| (point, len))
        });
        self.map.view(client, looked_up)
    }
}

fn ranked(index: &BTreeMap<ClusterId, usize>, view: &ClientView) -> Vec<usize> {
    view.nearest_first()
        .iter()
        .filter_map(|id| index.get(id).copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;

    fn cluster(name: &str, lat: f64, lon: f64) -> ClusterSpec {
        ClusterSpec {
            cluster: name.parse().expect("cluster"),
            region: name.parse().expect("region"),
            location: GeoPoint::new(lat, lon).expect("point"),
            gateways: vec![],
            health: vec![],
        }
    }

    fn clusters() -> Vec<ClusterSpec> {
        vec![
            cluster("ap-south", 19.1, 72.9),
            cluster("eu-west", 53.3, -6.3),
            cluster("us-east", 38.9, -77.0),
        ]
    }

    fn prefix() -> impl Strategy<Value = ClientPrefix> {
        (0u32..256, 0u8..=8)
            .prop_map(|(a, len)| ClientPrefix::new(IpAddr::V4(Ipv4Addr::from_bits(a << 24)), len))
    }

    fn point() -> impl Strategy<Value = GeoPoint> {
        (-80.0..80.0f64, -179.0..179.0f64)
            .prop_map(|(lat, lon)| GeoPoint::new(lat, lon).expect("point"))
    }

    proptest! {
        #[test]
        fn the_table_says_what_the_map_says(
            locations in proptest::collection::vec((prefix(), point()), 0..6),
            measured in proptest::collection::vec((prefix(), 0usize..3, 1.0..200.0f64), 0..6),
            client in prefix(),
        ) {
            let specs = clusters();
            let locations: BTreeMap<_, _> = locations.into_iter().collect();
            let locations: Vec<_> = locations.into_iter().collect();
            let measured: Vec<_> =
                measured.into_iter().map(|(p, i, ms)| (p, specs[i].cluster.clone(), Millis::new(ms))).collect();
            let atlas = Atlas::new(&specs, &locations, &measured);
            let view = atlas.view(client, None);
            let found = atlas.nearest(client, None);
            let names: Vec<_> = found.order.iter().map(|i| specs[*i].cluster.clone()).collect();
            prop_assert_eq!(names, view.nearest_first());
            prop_assert_eq!(found.scope, view.scope);
        }
    }

    struct Fixed(Option<GeoPoint>, u8);

    impl Locate for Fixed {
        fn locate(&self, _: ClientPrefix) -> (Option<GeoPoint>, u8) {
            (self.0, self.1)
        }
    }

    #[test]
    fn a_database_is_asked_only_for_clients_that_the_list_lacks() {
        let specs = clusters();
        let paris = GeoPoint::new(48.9, 2.4).expect("point");
        let atlas = Atlas::new(
            &specs,
            &[("192.0.2.0/24".parse().expect("prefix"), paris)],
            &[],
        );
        let mumbai = Fixed(GeoPoint::new(19.0, 72.8).ok(), 20);
        let first = |client: &str, source: &Fixed| {
            let found = atlas.nearest(client.parse().expect("client"), Some(source));
            (specs[found.order[0]].cluster.to_string(), found.scope)
        };
        assert_eq!(first("192.0.2.9", &mumbai), ("eu-west".to_owned(), 24));
        assert_eq!(first("10.0.0.9", &mumbai), ("ap-south".to_owned(), 20));
        // A database that knows nothing of a network still tells how large that network is: its neighbour may be known.
        assert_eq!(
            first("10.0.0.9", &Fixed(None, 22)),
            ("ap-south".to_owned(), 22)
        );
    }
}
