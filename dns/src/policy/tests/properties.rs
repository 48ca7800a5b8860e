//! Properties that hold in any world: scopes are sound, and the dead are not named while others live.

use std::net::Ipv4Addr;

use fdn_core::Millis;
use proptest::prelude::*;

use super::*;

/// A world in a narrow address space, where prefixes nest and touch.
#[derive(Debug, Clone)]
struct World {
    bindings: Vec<(ClientPrefix, usize)>,
    locations: Vec<(ClientPrefix, (f64, f64))>,
    measured: Vec<(ClientPrefix, usize, f64)>,
    /// Which of the nine gateways (three of each cluster, the third IPv6) are down.
    down: u16,
    when_all_dead: WhenAllDead,
}

fn narrow() -> impl Strategy<Value = ClientPrefix> {
    (0u32..256, 0u8..=8)
        .prop_map(|(a, len)| ClientPrefix::new(IpAddr::V4(Ipv4Addr::from_bits(a << 24)), len))
}

fn world() -> impl Strategy<Value = World> {
    let bindings = proptest::collection::vec((narrow(), 0usize..4), 0..6);
    let locations = proptest::collection::vec((narrow(), (-80.0..80.0f64, -179.0..179.0f64)), 0..5);
    let measured = proptest::collection::vec((narrow(), 0usize..3, 1.0..200.0f64), 0..4);
    let dead = prop_oneof![
        Just(WhenAllDead::ServeAll),
        Just(WhenAllDead::ServeChosen),
        Just(WhenAllDead::Refuse)
    ];
    // Whole clusters die in most cases: single dead gateways hardly ever empty one.
    let down = prop_oneof![
        0u16..512,
        prop::sample::select(vec![0, 0o700, 0o070, 0o007, 0o770, 0o707, 0o077, 0o777])
    ];
    (bindings, locations, measured, down, dead).prop_map(
        |(bindings, locations, measured, down, when_all_dead)| World {
            bindings,
            locations,
            measured,
            down,
            when_all_dead,
        },
    )
}

impl World {
    fn build(&self) -> (Names, Fleet, Policy) {
        let clusters: Vec<ClusterSpec> = (0..3).map(|i| cluster(i, true)).collect();
        let gateways: Vec<SocketAddr> = clusters.iter().flat_map(|c| c.gateways.clone()).collect();
        let down = gateways
            .iter()
            .enumerate()
            .filter(|(i, _)| self.down >> i & 1 == 1)
            .map(|(_, g)| *g)
            .collect();
        let bindings = self
            .bindings
            .iter()
            .map(|(p, i)| (*p, CLUSTERS.get(*i).map_or(id("gone"), |c| id(c.0))))
            .collect();
        let state = AppBindings {
            host: "hello.fn.test".parse().expect("host"),
            ttl_s: 20,
            bindings,
        };
        let table = Arc::new(AppTable::new(
            "hello".parse().expect("app"),
            Revision(1),
            &state,
        ));
        let network = NetworkDesired {
            revision: Revision(1),
            locations: self
                .locations
                .iter()
                .map(|(p, (lat, lon))| (*p, point(*lat, *lon)))
                .collect(),
            measured: self
                .measured
                .iter()
                .map(|(p, i, ms)| (*p, clusters[*i].cluster.clone(), Millis::new(*ms)))
                .collect(),
            clusters,
        };
        let fleet = Fleet::new(Arc::new(Network::new(&network)), &down);
        let policy = Policy {
            when_all_dead: self.when_all_dead,
            max_addresses: 16,
        };
        (names(&[table]), fleet, policy)
    }
}

/// What the whole answer says, for comparing.
fn said(verdict: &Verdict<'_>) -> String {
    match &verdict.body {
        Body::Addresses { addresses, .. } => format!("{addresses:?}"),
        other => format!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Every client that shares the scope's bits gets the same answer, whether binding, nearest or fallback decided.
    #[test]
    fn the_scope_is_sound(world in world(), asked in 0u32..256, len in 1u8..=8, v6 in any::<bool>()) {
        let (names, fleet, policy) = world.build();
        let kind = if v6 { RecordType::AAAA } else { RecordType::A };
        let client = |a: u32| ClientPrefix::new(IpAddr::V4(Ipv4Addr::from_bits(a << 24)), len).to_string();
        let verdict = ask(policy, &names, &fleet, "hello.fn.test", kind, &client(asked));
        let shared = u32::from(verdict.scope.min(len));
        for other in 0..256u32 {
            if (asked ^ other) >> (8 - shared) == 0 {
                let again = ask(policy, &names, &fleet, "hello.fn.test", kind, &client(other));
                prop_assert_eq!(said(&again), said(&verdict), "client {} scope {}", client(other), verdict.scope);
            }
        }
        // A negative answer may be used for everybody, so it must be everybody's.
        if matches!(verdict.body, Body::NoData) {
            prop_assert_eq!(verdict.scope, 0);
        }
    }

    #[test]
    fn no_dead_gateway_is_named_while_one_lives(world in world(), asked in 0u32..256, v6 in any::<bool>()) {
        let (names, fleet, policy) = world.build();
        let (kind, family) = if v6 { (RecordType::AAAA, Family::V6) } else { (RecordType::A, Family::V4) };
        let client = ClientPrefix::host(IpAddr::V4(Ipv4Addr::from_bits(asked << 24))).to_string();
        let verdict = ask(policy, &names, &fleet, "hello.fn.test", kind, &client);
        let live: Vec<IpAddr> = (0..fleet.len()).flat_map(|i| fleet.cluster(i).live(family).to_vec()).collect();
        match &verdict.body {
            Body::Addresses { addresses, .. } => {
                prop_assert!(!addresses.is_empty());
                prop_assert!(live.is_empty() || addresses.iter().all(|a| live.contains(a)));
                prop_assert!(!live.is_empty() || !fleet.has_any_live());
            }
            Body::NoData => prop_assert!(live.is_empty() && fleet.has_any_live()),
            Body::Failure => prop_assert!(!fleet.has_any_live() && policy.when_all_dead == WhenAllDead::Refuse),
            other => prop_assert!(false, "unexpected {:?}", other),
        }
    }
}
