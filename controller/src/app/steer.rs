//! Predicts what DNS servers answer a client, from the same tables that they get. The nodes' reports to the controller stand in for the servers'
//! own health checks.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use fdn_core::latency::ClientView;
use fdn_core::message::ClusterSpec;
use fdn_core::observe::{AddressKind, ClusterDistance, SteerReason};
use fdn_core::{ClientPrefix, ClusterId, PrefixMap};

use crate::store::binding::BindingRow;

/// The gateway addresses of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateways {
    /// All addresses.
    pub all: Vec<IpAddr>,
    /// Those that are alive.
    pub live: Vec<IpAddr>,
}

/// The gateway addresses by cluster.
pub type GatewaysOf = BTreeMap<ClusterId, Gateways>;

/// Where a client is sent, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct SteeringDecision<'a> {
    /// The cluster, if there is any.
    pub cluster: Option<ClusterId>,
    /// The reason.
    pub why: SteerReason,
    /// The binding that applies to the client, whether its cluster is alive or not.
    pub binding: Option<&'a BindingRow>,
    /// The number of leading bits of the client's address that the answer depends on.
    pub scope: u8,
    /// The addresses in the answer.
    pub addresses: Vec<IpAddr>,
}

/// The gateway addresses of one kind that DNS servers get, by cluster; `alive` tells which are alive.
pub fn gateways(
    clusters: &[ClusterSpec],
    kind: AddressKind,
    alive: impl Fn(&ClusterId, SocketAddr) -> bool,
) -> GatewaysOf {
    let of = |spec: &ClusterSpec| {
        let fit = spec
            .gateways
            .iter()
            .filter(|gateway| kind.has(gateway.ip()));
        let live = fit
            .clone()
            .filter(|gateway| alive(&spec.cluster, **gateway));
        Gateways {
            live: live.map(SocketAddr::ip).collect(),
            all: fit.map(SocketAddr::ip).collect(),
        }
    };
    clusters
        .iter()
        .map(|spec| (spec.cluster.clone(), of(spec)))
        .collect()
}

/// Decides for one client: the cluster of its binding if that is alive, else the nearest live one; if none is alive, the bound one, else the
/// nearest.
#[must_use]
pub fn steer<'a>(
    bindings: &'a [BindingRow],
    client: ClientPrefix,
    view: &ClientView,
    gateways: &GatewaysOf,
) -> SteeringDecision<'a> {
    let table: PrefixMap<&BindingRow> = bindings.iter().map(|row| (row.prefix, row)).collect();
    let found = table.lookup(client);
    let binding = found.value.copied();
    let near = view.nearest_first();
    let lives = |cluster: &ClusterId| gateways.get(cluster).is_some_and(|g| !g.live.is_empty());
    let exists = |cluster: &ClusterId| gateways.get(cluster).is_some_and(|g| !g.all.is_empty());
    let both = found.scope.max(view.scope);
    let bound = binding.map(|row| &row.cluster);
    let (cluster, why, scope) = match bound {
        Some(cluster) if lives(cluster) => (Some(cluster), SteerReason::Bound, found.scope),
        _ => match (near.iter().find(|cluster| lives(cluster)), bound) {
            (Some(near), None) => (Some(near), SteerReason::Nearest, both),
            (Some(near), Some(_)) => (Some(near), SteerReason::BoundIsDead, both),
            (None, _) if !gateways.values().any(|g| !g.all.is_empty()) => {
                (None, SteerReason::NoAddress, 0)
            }
            (None, bound) => {
                let home = bound.filter(|cluster| exists(cluster));
                let any = home.or_else(|| near.iter().find(|cluster| exists(cluster)));
                (any, SteerReason::AllDead, both)
            }
        },
    };
    let answer = cluster.and_then(|cluster| gateways.get(cluster));
    let addresses = answer.map(|g| {
        if why == SteerReason::AllDead {
            &g.all
        } else {
            &g.live
        }
    });
    SteeringDecision {
        cluster: cluster.cloned(),
        why,
        binding,
        scope,
        addresses: addresses.cloned().unwrap_or_default(),
    }
}

/// The reason, in words.
#[must_use]
pub fn explanation(steered: &SteeringDecision<'_>) -> String {
    let bound = steered
        .binding
        .map(|row| format!("{} is bound to {}", row.prefix, row.cluster));
    let bound = bound.unwrap_or_else(|| "no prefix of the client is bound".to_owned());
    let cluster = steered.cluster.as_ref().map_or("none", ClusterId::as_str);
    match steered.why {
        SteerReason::Bound => format!(
            "{bound} by the plan of group {}",
            steered.binding.map_or("", |row| &row.group)
        ),
        SteerReason::Nearest => format!("{bound}; {cluster} is the nearest cluster that is alive"),
        SteerReason::BoundIsDead => {
            format!("{bound}, where no gateway is alive; {cluster} is the nearest that is")
        }
        SteerReason::AllDead => format!("no gateway is alive; {bound}"),
        SteerReason::NoAddress => "no gateway has an address of this kind".to_owned(),
    }
}

/// The clusters with their latencies, nearest first.
#[must_use]
pub fn distances(view: &ClientView, gateways: Option<&GatewaysOf>) -> Vec<ClusterDistance> {
    let near = view.nearest_first();
    let near = near.into_iter().filter_map(|cluster| {
        let estimate = view.estimates.get(&cluster)?;
        let own = gateways.map(|gateways| gateways.get(&cluster).cloned().unwrap_or_default());
        let count = |list: fn(&Gateways) -> &Vec<IpAddr>| {
            let own = own.as_ref()?;
            Some(u32::try_from(list(own).len()).unwrap_or(u32::MAX))
        };
        Some(ClusterDistance {
            rtt_ms: estimate.rtt,
            source: estimate.source,
            gateways_live: count(|own| &own.live),
            gateways: count(|own| &own.all),
            cluster,
        })
    });
    near.collect()
}

#[cfg(test)]
mod tests {
    use fdn_core::latency::LatencyMap;
    use fdn_core::{GeoPoint, Revision};

    use super::*;

    fn view(client: ClientPrefix) -> ClientView {
        let point = |lat, lon| GeoPoint::new(lat, lon).expect("position");
        let clusters = [("eu", 53.3, -6.3), ("us", 38.9, -77.0)];
        let clusters = clusters.map(|(id, lat, lon)| (id.parse().expect("id"), point(lat, lon)));
        let map = LatencyMap::new(
            clusters.into(),
            [("192.0.2.0/24".parse().expect("prefix"), point(48.9, 2.4))],
        );
        map.view(client, None)
    }

    fn binding(prefix: &str, cluster: &str) -> BindingRow {
        BindingRow {
            app: "a".parse().expect("app"),
            prefix: prefix.parse().expect("prefix"),
            cluster: cluster.parse().expect("cluster"),
            group: "g".to_owned(),
            revision: Revision(7),
        }
    }

    fn alive(eu: bool, us: bool) -> GatewaysOf {
        let of = |last: u8, alive: bool| {
            let all = vec![IpAddr::from([127, 0, last, 1])];
            let live = if alive { all.clone() } else { Vec::new() };
            Gateways { all, live }
        };
        [("eu", of(1, eu)), ("us", of(2, us))]
            .map(|(id, g)| (id.parse().expect("id"), g))
            .into()
    }

    #[test]
    fn the_binding_decides_then_nearness_and_then_hope() {
        let bindings = [binding("192.0.2.0/24", "us")];
        let client: ClientPrefix = "192.0.2.7".parse().expect("client");
        let other: ClientPrefix = "192.0.3.7".parse().expect("client");
        let decide = |client, gateways: &GatewaysOf| {
            let steered = steer(&bindings, client, &view(client), gateways);
            (
                steered.cluster.map(|c| c.to_string()).unwrap_or_default(),
                steered.why,
                steered.scope,
                steered.addresses.len(),
            )
        };
        let all = alive(true, true);
        assert_eq!(
            decide(client, &all),
            ("us".into(), SteerReason::Bound, 24, 1)
        );
        let (cluster, why, ..) = decide(client, &alive(true, false));
        assert_eq!((cluster.as_str(), why), ("eu", SteerReason::BoundIsDead));
        let (_, why, scope, _) = decide(other, &all);
        assert_eq!(why, SteerReason::Nearest);
        assert!(
            (24..=32).contains(&scope),
            "its neighbour is bound and located: {scope}"
        );
        assert_eq!(
            decide(client, &alive(false, false)),
            ("us".into(), SteerReason::AllDead, 24, 1)
        );
        assert_eq!(
            decide(client, &GatewaysOf::new()),
            (String::new(), SteerReason::NoAddress, 0, 0)
        );
    }

    #[test]
    fn only_addresses_of_the_kind_asked_for_count() {
        let spec = ClusterSpec {
            cluster: "eu".parse().expect("id"),
            region: "eu".parse().expect("region"),
            location: GeoPoint::new(0.0, 0.0).expect("position"),
            gateways: vec![
                "127.0.0.1:80".parse().expect("v4"),
                "[::1]:80".parse().expect("v6"),
                "127.0.0.2:80".parse().expect("v4"),
            ],
            health: Vec::new(),
            weights: vec![],
        };
        let of = |kind| {
            gateways(std::slice::from_ref(&spec), kind, |_, gateway| {
                gateway.ip() != IpAddr::from([127, 0, 0, 2])
            })
        };
        let eu: ClusterId = "eu".parse().expect("id");
        assert_eq!(
            (
                of(AddressKind::A)[&eu].all.len(),
                of(AddressKind::A)[&eu].live.len()
            ),
            (2, 1)
        );
        assert_eq!(of(AddressKind::Aaaa)[&eu].all.len(), 1);
    }
}
