//! The latency map as a table: for a client, the clusters from near to far, and the run of addresses with the same order.
//!
//! [`fdn_core::latency::LatencyMap`] computes an estimate for every cluster at each lookup. Between two changes of the network, the
//! result can differ only at the prefixes named by locations and measurements, so the orders are computed once for each of these
//! and stored in one longest-prefix table. A client that this table cannot locate is looked up in the geographic database, if there
//! is one; only then is an order computed during a query.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use fdn_core::latency::{ClientView, LatencyMap};
use fdn_core::message::ClusterSpec;
use fdn_core::{ClientPrefix, ClusterId, GeoPoint, Millis};

use super::ranges::{Span, Table, bits};

/// A source of client locations besides the network's own list. It answers from memory.
pub trait Locate: Send + Sync {
    /// The client's location, if known, and the number of leading bits that the result (or the lack of one) depends on.
    fn locate(&self, client: ClientPrefix) -> (Option<GeoPoint>, u8);
}

/// Indexes of clusters, nearest first.
type Order = Box<[usize]>;

/// The clusters by distance from a client.
#[derive(Debug, PartialEq, Eq)]
pub struct Nearest<'a> {
    /// Indexes of clusters, nearest first.
    pub order: Cow<'a, [usize]>,
    /// The run of addresses with the same order.
    pub span: Span,
    /// Whether the order was computed for this client, with an external source of locations.
    pub looked_up: bool,
}

/// Orders by client prefix.
#[derive(Debug, Default)]
pub struct NearestClusters {
    map: LatencyMap,
    index: BTreeMap<ClusterId, usize>,
    /// The numbers of orders. They are odd for clients whose location is listed: the database is not asked about these.
    known: Table<u32>,
    /// The distinct orders. Many prefixes share a few of them.
    orders: Vec<Order>,
    /// The order for clients about which nothing is known.
    unknown: Order,
}

impl NearestClusters {
    /// Computes the orders of all prefixes named by locations or measurements.
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
        let located: Table<u32> = locations.iter().map(|(prefix, _)| (*prefix, 0)).collect();
        let named: BTreeSet<ClientPrefix> = locations
            .iter()
            .map(|(prefix, _)| *prefix)
            .chain(measured.iter().map(|(prefix, ..)| *prefix))
            .collect();
        let mut numbers: BTreeMap<Order, u32> = BTreeMap::new();
        let mut known = Vec::with_capacity(named.len());
        for prefix in named {
            let order = ranked(&index, &map.view(prefix, None)).into_boxed_slice();
            let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
            let number = *numbers.entry(order).or_insert(next);
            let listed = u32::from(located.covering(prefix).is_some());
            // Half of the numbers suffice for all orders that fit in memory.
            known.push((prefix, number.saturating_mul(2).saturating_add(listed)));
        }
        let mut orders: Vec<(Order, u32)> = numbers.into_iter().collect();
        orders.sort_by_key(|(_, number)| *number);
        Self {
            map,
            index,
            known: known.into_iter().collect(),
            orders: orders.into_iter().map(|(order, _)| order).collect(),
            // If nothing is known about a client, all clusters are equally far, and ties are broken by name: the order of `clusters`.
            unknown: (0..clusters.len()).collect(),
        }
    }

    /// The clusters from near to far for one address, given as bits with the first at the top.
    #[must_use]
    pub fn at(&self, addr: u128, is_v4: bool, locate: Option<&dyn Locate>) -> Nearest<'_> {
        let (number, span) = self.known.piece(addr, is_v4);
        let client = || ClientPrefix::host(address(addr, is_v4));
        self.nearest(number, span, addr, locate, client)
    }

    /// The clusters from near to far for a client prefix, by what is known of the whole prefix.
    #[must_use]
    pub fn around(&self, client: ClientPrefix, locate: Option<&dyn Locate>) -> Nearest<'_> {
        let number = self.known.covering(client).map(|(number, _)| number);
        let addr = bits(client.addr()).0;
        self.nearest(number, Span::ALL, addr, locate, || client)
    }

    fn nearest(
        &self,
        number: Option<u32>,
        span: Span,
        addr: u128,
        locate: Option<&dyn Locate>,
        client: impl FnOnce() -> ClientPrefix,
    ) -> Nearest<'_> {
        let order = number
            .and_then(|number| self.orders.get(usize::try_from(number / 2).ok()?))
            .unwrap_or(&self.unknown);
        let order = Cow::Borrowed(&**order);
        let source = locate.filter(|_| number.is_none_or(|number| number.is_multiple_of(2)));
        let Some(source) = source else {
            return Nearest {
                order,
                span,
                looked_up: false,
            };
        };
        let client = client();
        let (point, len) = source.locate(client);
        let order = match point {
            None => order,
            Some(point) => Cow::Owned(ranked(
                &self.index,
                &self.map.view(client, Some((point, len))),
            )),
        };
        Nearest {
            order,
            span: span.and(Span::block(addr, len)),
            looked_up: true,
        }
    }

    /// The estimate of every cluster, for explanations.
    #[must_use]
    pub fn view(&self, client: ClientPrefix, locate: Option<&dyn Locate>) -> ClientView {
        let looked_up = locate.and_then(|source| {
            let (point, len) = source.locate(client);
            point.map(|point| (point, len))
        });
        self.map.view(client, looked_up)
    }
}

/// The address with these bits.
fn address(addr: u128, is_v4: bool) -> IpAddr {
    if is_v4 {
        let [a, b, c, d, ..] = addr.to_be_bytes();
        IpAddr::from([a, b, c, d])
    } else {
        IpAddr::from(addr.to_be_bytes())
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
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn cluster(name: &str, lat: f64, lon: f64) -> ClusterSpec {
        ClusterSpec {
            cluster: name.parse().expect("cluster"),
            region: name.parse().expect("region"),
            location: GeoPoint::new(lat, lon).expect("point"),
            gateways: vec![],
            health: vec![],
            weights: vec![],
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
            let nearest = NearestClusters::new(&specs, &locations, &measured);
            let view = nearest.view(client, None);
            let names = |found: &Nearest<'_>| found.order.iter().map(|i| specs[*i].cluster.clone()).collect::<Vec<_>>();
            prop_assert_eq!(names(&nearest.around(client, None)), view.nearest_first());
            // For a single address, the run of addresses with the same order is at least as wide as the map's scope.
            let host = ClientPrefix::host(client.addr());
            let addr = bits(host.addr()).0;
            let found = nearest.at(addr, true, None);
            let view = nearest.view(host, None);
            prop_assert_eq!(names(&found), view.nearest_first());
            prop_assert!(found.span.scope(addr) <= view.scope);
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
        let nearest = NearestClusters::new(
            &specs,
            &[("192.0.2.0/24".parse().expect("prefix"), paris)],
            &[],
        );
        let mumbai = Fixed(GeoPoint::new(19.0, 72.8).ok(), 20);
        let first = |client: &str, source: &Fixed| {
            let client: ClientPrefix = client.parse().expect("client");
            let addr = bits(client.addr()).0;
            let found = nearest.at(addr, true, Some(source));
            (
                specs[found.order[0]].cluster.to_string(),
                found.span.scope(addr),
            )
        };
        assert_eq!(first("192.0.2.9", &mumbai), ("eu-west".to_owned(), 24));
        assert_eq!(first("10.0.0.9", &mumbai), ("ap-south".to_owned(), 20));
        // A database that does not know a network still reports its size: its neighbour may be known.
        assert_eq!(
            first("10.0.0.9", &Fixed(None, 22)),
            ("ap-south".to_owned(), 22)
        );
    }
}
