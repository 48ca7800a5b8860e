//! Properties that hold for all states: scopes are sound, and dead gateways are not named while others live.

use std::net::{Ipv4Addr, Ipv6Addr};

use fdn_core::{GatewayWeight, Millis};
use proptest::prelude::*;

use super::*;
use crate::handler::wire::scope_as_asked;

/// A world in a small address space, where prefixes are nested and adjacent.
#[derive(Debug, Clone)]
struct World {
    bindings: Vec<((u32, u8), usize)>,
    locations: Vec<((u32, u8), (f64, f64))>,
    measured: Vec<((u32, u8), usize, f64)>,
    /// Which of the nine gateways (three per cluster, the third one IPv6) are down, as bits.
    down: u16,
    when_all_dead: WhenAllDead,
    /// The share that each cluster sheds.
    shed: [u16; 3],
    /// The position of the bits that differ in the addresses.
    place: Place,
    /// For an IPv6 place: bindings of IPv4 clients, which ask as IPv4-mapped ones there.
    v4_bindings: Vec<((u32, u8), usize)>,
}

/// Eight bits of the address space, and the bits before them.
#[derive(Debug, Clone, Copy)]
struct Place {
    base: u128,
    at: u8,
    is_v4: bool,
}

const PLACES: [Place; 5] = [
    Place {
        base: 0,
        at: 0,
        is_v4: true,
    },
    // The last of the bits are those that select clients for shedding.
    Place {
        base: 10 << 120,
        at: 16,
        is_v4: true,
    },
    Place {
        base: 0,
        at: 0,
        is_v4: false,
    },
    Place {
        base: 0x2001_0db8 << 96,
        at: 48,
        is_v4: false,
    },
    // Around the IPv4-mapped IPv6 addresses.
    Place {
        base: 0,
        at: 76,
        is_v4: false,
    },
];

impl Place {
    /// The prefix of the first `len` of the eight bits.
    fn prefix(self, bits: u32, len: u8) -> ClientPrefix {
        ClientPrefix::new(self.address(bits), self.at + len)
    }

    fn address(self, bits: u32) -> IpAddr {
        self.of(self.base | u128::from(bits) << (120 - self.at))
    }

    fn of(self, top: u128) -> IpAddr {
        if self.is_v4 {
            IpAddr::V4(Ipv4Addr::from_bits(
                u32::try_from(top >> 96).expect("32 bits"),
            ))
        } else {
            IpAddr::V6(Ipv6Addr::from_bits(top))
        }
    }

    /// Representative addresses: one in each block of the eight bits, and some outside.
    fn everywhere(self) -> Vec<IpAddr> {
        let outside = [0, u128::MAX, self.base.wrapping_sub(1)];
        // And one next to each block that contains the eight bits.
        let beside = (0..self.at).map(|bit| self.base ^ 1 << (127 - bit));
        let outside = outside.into_iter().chain(beside).map(|top| self.of(top));
        let mapped = (0u128..256).filter(|_| !self.is_v4);
        (0..256)
            .map(|bits| self.address(bits))
            .chain(outside)
            .chain(mapped.map(|top| self.of(0xffff << 32 | top << 24)))
            .collect()
    }
}

fn narrow() -> impl Strategy<Value = (u32, u8)> {
    (0u32..256, 0u8..=8)
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
    // Whole clusters are dead in most cases: single dead gateways hardly ever empty one.
    let down = prop_oneof![
        0u16..512,
        prop::sample::select(vec![0, 0o700, 0o070, 0o007, 0o770, 0o707, 0o077, 0o777])
    ];
    let some = prop_oneof![Just(0u16), Just(0), Just(6_000), Just(32_768), any::<u16>()];
    let shed = prop_oneof![Just([0; 3]), [some.clone(), some.clone(), some]];
    let place = prop::sample::select(PLACES.to_vec());
    let v4_bindings = proptest::collection::vec((narrow(), 0usize..4), 0..3);
    (
        bindings,
        locations,
        measured,
        down,
        dead,
        shed,
        (place, v4_bindings),
    )
        .prop_map(
            |(bindings, locations, measured, down, when_all_dead, shed, (place, v4_bindings))| {
                World {
                    bindings,
                    locations,
                    measured,
                    down,
                    when_all_dead,
                    shed,
                    place,
                    v4_bindings: if place.is_v4 { vec![] } else { v4_bindings },
                }
            },
        )
}

impl World {
    fn build(&self) -> (Names, Fleet, Policy) {
        let weights = [70, 1000, 1].map(|weight| GatewayWeight::new(weight).expect("a weight"));
        let weighted = |i| ClusterSpec {
            weights: weights[..=i].to_vec(),
            ..cluster(i, true)
        };
        let clusters: Vec<ClusterSpec> = (0..3).map(weighted).collect();
        let gateways: Vec<SocketAddr> = clusters.iter().flat_map(|c| c.gateways.clone()).collect();
        let down = gateways
            .iter()
            .enumerate()
            .filter(|(i, _)| self.down >> i & 1 == 1)
            .map(|(_, g)| *g)
            .collect();
        let of =
            |place: Place, bindings: &[((u32, u8), usize)]| -> Vec<(ClientPrefix, ClusterId)> {
                let cluster = |i: usize| CLUSTERS.get(i).map_or(id("gone"), |c| id(c.0));
                let bound = bindings.iter();
                bound
                    .map(|((a, len), i)| (place.prefix(*a, *len), cluster(*i)))
                    .collect()
            };
        let mut bindings = of(self.place, &self.bindings);
        bindings.extend(of(PLACES[0], &self.v4_bindings));
        let state = AppBindings {
            holders: fdn_core::message::Holders::EVERYWHERE,
            host: "hello.fn.test".parse().expect("host"),
            ttl_s: 20,
            bindings,
        };
        let table = Arc::new(AppTable::of(
            "hello".parse().expect("app"),
            Revision(1),
            &state,
        ));
        let network = NetworkDesired {
            revision: Revision(1),
            locations: self
                .locations
                .iter()
                .map(|((a, len), (lat, lon))| (self.place.prefix(*a, *len), point(*lat, *lon)))
                .collect(),
            measured: self
                .measured
                .iter()
                .map(|((a, len), i, ms)| {
                    (
                        self.place.prefix(*a, *len),
                        clusters[*i].cluster.clone(),
                        Millis::new(*ms),
                    )
                })
                .collect(),
            clusters,
        };
        let shares = CLUSTERS
            .iter()
            .zip(self.shed)
            .map(|(c, share)| (id(c.0), share))
            .collect();
        let fleet = Fleet::new(Arc::new(Network::new(&network)), &down).shedding(&shares);
        let policy = Policy {
            when_all_dead: self.when_all_dead,
            max_addresses: 16,
        };
        (names(&[table]), fleet, policy)
    }
}

/// The content of the answer, for comparison.
fn said(verdict: &Verdict<'_>) -> String {
    match &verdict.body {
        Body::Addresses { addresses, .. } => format!("{addresses:?}"),
        other => format!("{other:?}"),
    }
}

/// The scope of an answer in the family in which its client was written.
fn scope_of(verdict: &Verdict<'_>, asked: IpAddr) -> u32 {
    let family = if asked.is_ipv4() { 1 } else { 2 };
    let client = ClientPrefix::host(asked);
    u32::from(scope_as_asked(client, family, verdict.scope))
}

/// The number of leading bits that two addresses share.
fn shared(one: IpAddr, other: IpAddr) -> u32 {
    let ((one, _), (other, _)) = (ranges::bits(one), ranges::bits(other));
    (one ^ other).leading_zeros()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Every client that shares the scope's bits gets the same answer, whether binding, nearest cluster, fallback or shedding decided; with
    /// one bit less this would not hold.
    #[test]
    fn the_scope_is_sound_and_as_wide_as_the_truth(world in world(), asked in 0u32..256, v6 in any::<bool>()) {
        let (names, fleet, policy) = world.build();
        let kind = if v6 { RecordType::AAAA } else { RecordType::A };
        let answer = |client: IpAddr| {
            let client = ClientPrefix::host(client).to_string();
            ask(policy, &names, &fleet, "hello.fn.test", kind, &client)
        };
        let everywhere: Vec<_> = world.place.everywhere().into_iter().map(|client| (client, said(&answer(client)))).collect();
        let last = everywhere.len() - 1;
        for asked in [world.place.address(asked), everywhere[256].0, everywhere[257].0, everywhere[last - 256 + asked as usize].0, everywhere[last].0] {
            let verdict = answer(asked);
            let (here, scope) = (said(&verdict), scope_of(&verdict, asked));
            let differs = |len: u32| everywhere.iter().find(|(other, said)| shared(asked, *other) >= len && *said != here);
            prop_assert!(differs(scope).is_none(), "{asked}/{scope} is too wide: {:?}", differs(scope));
            // Shedding is decided per block, and there are more blocks than are examined; and answers to mapped clients are valid for
            // IPv4 clients only.
            let mapped = asked.is_ipv6() && asked.to_canonical().is_ipv4();
            if world.shed == [0; 3] && !mapped {
                prop_assert!(scope == 0 || differs(scope - 1).is_some(), "{asked}/{scope} is too narrow");
            }
            // A negative answer may be used for all clients, so it must be valid for all.
            if matches!(verdict.body, Body::NoData) {
                prop_assert_eq!(verdict.scope, 0);
            }
        }
    }

    /// A client prefix: if the scope is not longer, the whole prefix has the same answer as each of its addresses; otherwise its
    /// addresses have different answers.
    #[test]
    fn a_short_client_is_told_when_more_of_it_would_help(world in world(), asked in 0u32..256, len in 0u8..8) {
        let (names, fleet, policy) = world.build();
        let client = world.place.prefix(asked, len);
        let verdict = ask(policy, &names, &fleet, "hello.fn.test", RecordType::A, &client.to_string());
        let is_inside = |addr: &IpAddr| shared(client.addr(), *addr) >= u32::from(client.len());
        let inside: Vec<_> = world.place.everywhere().into_iter().filter(is_inside).collect();
        let each: BTreeSet<_> = inside.iter().map(|addr| {
            said(&ask(policy, &names, &fleet, "hello.fn.test", RecordType::A, &addr.to_string()))
        }).collect();
        if verdict.scope <= client.len() {
            prop_assert_eq!(each, BTreeSet::from([said(&verdict)]));
        } else if world.shed == [0; 3] {
            prop_assert!(each.len() > 1, "{} is as good as any longer prefix, but the scope is {}", client, verdict.scope);
        }
    }

    /// For any turn, also if answers name only one of several gateways: the weights choose by turn and never by client, so that
    /// answers are valid in the whole scope.
    #[test]
    fn weights_leave_scopes_sound(world in world(), asked in 0u32..256, turn in any::<u16>(), max_addresses in 1usize..4) {
        let (names, fleet, policy) = world.build();
        let policy = Policy { max_addresses, ..policy };
        let name = LowerName::new(&zone::name_of(&"hello.fn.test".parse().expect("name")));
        let question = Question { name: &name, kind: RecordType::A, class: DNSClass::IN };
        let answer = |client: IpAddr| policy.answer(question, ClientPrefix::host(client), turn, &names, &fleet, None);
        let asked = world.place.address(asked);
        let verdict = answer(asked);
        let scope = scope_of(&verdict, asked);
        for other in world.place.everywhere() {
            if shared(asked, other) >= scope {
                prop_assert_eq!(said(&verdict), said(&answer(other)), "{}/{} and {}", asked, scope, other);
            }
        }
    }

    #[test]
    fn no_dead_gateway_is_named_while_one_lives(world in world(), asked in 0u32..256, v6 in any::<bool>()) {
        let (names, fleet, policy) = world.build();
        let (kind, family) = if v6 { (RecordType::AAAA, Family::V6) } else { (RecordType::A, Family::V4) };
        let client = world.place.address(asked).to_string();
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

/// Two thousand worlds, with a thousand random addresses each, each compared with another address in its scope.
mod soak {
    use super::*;

    /// The source of an address.
    #[derive(Debug, Clone, Copy)]
    enum Source {
        /// Anywhere.
        Anywhere,
        /// Inside the block of the differing bits.
        Place,
        /// IPv4-mapped addresses, in an IPv6 world.
        Mapped,
    }

    impl Source {
        fn top(self, place: Place, bits: u128) -> u128 {
            let (kept, before) = match self {
                Self::Place => (place.base, place.at),
                Self::Mapped if !place.is_v4 => (0xffff << 32, 96),
                Self::Anywhere | Self::Mapped => (0, 0),
            };
            beside(kept, before.into(), bits)
        }
    }

    /// The first `len` bits of one address, and the remaining ones of the other.
    fn beside(one: u128, len: u32, other: u128) -> u128 {
        let behind = u128::MAX.checked_shr(len).unwrap_or(0);
        one & !behind | other & behind
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn whoever_shares_the_scope_is_answered_alike(
            world in world(), v6 in any::<bool>(),
            clients in proptest::collection::vec(
                (prop::sample::select(vec![Source::Anywhere, Source::Place, Source::Mapped]), any::<u128>(), any::<u128>()), 1000,
            ),
        ) {
            let (names, fleet, policy) = world.build();
            let kind = if v6 { RecordType::AAAA } else { RecordType::A };
            let answer = |client: IpAddr| {
                let client = ClientPrefix::host(client).to_string();
                ask(policy, &names, &fleet, "hello.fn.test", kind, &client)
            };
            for (from, bits, others) in clients {
                let top = from.top(world.place, bits);
                let asked = world.place.of(top);
                let verdict = answer(asked);
                let scope = scope_of(&verdict, asked);
                let other = world.place.of(beside(top, scope, others));
                prop_assert_eq!(said(&verdict), said(&answer(other)), "{}/{} and {}", asked, scope, other);
            }
        }
    }
}
