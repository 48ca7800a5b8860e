//! Compares both paths on the same state and the same queries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fdn_core::message::{AppBindings, ClusterSpec, NetworkDesired};
use fdn_core::{ClusterId, GatewayWeight, GeoPoint, Revision};
use prometheus::{Encoder, Registry, TextEncoder};
use proptest::prelude::*;

use super::*;
use crate::handler::Guard;
use crate::metrics::Metrics;
use crate::policy::fleet::Network;
use crate::policy::zone::{AppTable, Names, ZoneData};
use crate::policy::{Policy, WhenAllDead};
use crate::published::Published;
use crate::sync::demand::Demand;

/// The state of both responders.
#[derive(Clone, Debug)]
struct State {
    /// The number of gateways of each of three clusters, every third of them IPv6.
    gateways: [u8; 3],
    /// The dead clusters, as bits.
    dead: u8,
    shed: [u16; 3],
    bindings: Vec<(ClientPrefix, usize)>,
    max_addresses: usize,
    udp_size: u16,
    amplification: u16,
}

fn state() -> impl Strategy<Value = State> {
    let prefix = prop_oneof![
        (any::<u32>(), 0u8..=32)
            .prop_map(|(a, len)| ClientPrefix::new(Ipv4Addr::from_bits(a).into(), len)),
        (any::<u128>(), 0u8..=128)
            .prop_map(|(a, len)| ClientPrefix::new(Ipv6Addr::from_bits(a).into(), len)),
        (0u32..8, 1u8..=3)
            .prop_map(|(a, len)| ClientPrefix::new(Ipv4Addr::from_bits(a << 29).into(), len)),
    ];
    let bindings = proptest::collection::vec((prefix, 0usize..3), 0..6);
    let few = prop_oneof![Just(1u8), 2u8..6, 20u8..90];
    let udp_size = prop_oneof![Just(1232u16), 512u16..4096];
    (
        [few.clone(), few.clone(), few],
        0u8..8,
        [0u16..3, 0u16..3, 0u16..3],
        bindings,
        1usize..40,
        udp_size,
        prop_oneof![Just(0u16), 2u16..12],
    )
        .prop_map(
            |(gateways, dead, shed, bindings, max_addresses, udp_size, amplification)| State {
                gateways,
                dead: if dead == 7 { 0 } else { dead },
                shed: shed.map(|part| part * 20_000),
                bindings,
                max_addresses,
                udp_size,
                amplification,
            },
        )
}

fn id(cluster: usize) -> ClusterId {
    format!("c{cluster}").parse().expect("cluster")
}

fn zone() -> ZoneData {
    ZoneData {
        name: "fn.test".parse().expect("zone"),
        servers: vec![(
            "ns1.fn.test".parse().expect("name"),
            vec![[127, 0, 0, 1].into()],
        )],
        contact: "hostmaster.fn.test".parse().expect("name"),
        ttl: 3600,
        negative_ttl: 30,
        serial: 0,
        timers: [1, 2, 3],
        records: vec![],
        app_service: None,
    }
}

/// One of the two responders, with its own counters.
struct Side {
    responder: Responder,
    registry: Registry,
    demand: Arc<Demand>,
}

impl State {
    fn network(&self) -> NetworkDesired {
        let gateway = |cluster: usize, n: u8| -> SocketAddr {
            let c = u8::try_from(cluster).expect("small");
            match n % 3 {
                2 => {
                    SocketAddr::from(([0x2001, 0xdb8, u16::from(c), 0, 0, 0, 0, u16::from(n)], 80))
                }
                _ => SocketAddr::from(([10, c, 0, n], 80)),
            }
        };
        let cluster = |(i, count): (usize, &u8)| ClusterSpec {
            cluster: id(i),
            region: "r".parse().expect("region"),
            location: GeoPoint::new(10.0 * f64::from(u8::try_from(i).expect("small")), 5.0)
                .expect("point"),
            gateways: (0..*count).map(|n| gateway(i, n)).collect(),
            health: vec![],
            // The default weights in the first cluster; in the others they differ, and the last gateways have none.
            weights: (1..u16::from(*count))
                .filter(|_| i > 0)
                .map(|n| GatewayWeight::new(n * 131 % 1000 + 1).expect("a weight"))
                .collect(),
        };
        NetworkDesired {
            revision: Revision(1),
            clusters: self.gateways.iter().enumerate().map(cluster).collect(),
            locations: vec![(
                "128.0.0.0/2".parse().expect("prefix"),
                GeoPoint::new(20.0, 5.0).expect("point"),
            )],
            measured: vec![],
        }
    }

    fn side(&self) -> Side {
        let network = self.network();
        let registry = Registry::new();
        let metrics = Arc::new(Metrics::new(&registry).expect("metrics"));
        let table = |app: &str, bindings: Vec<(ClientPrefix, ClusterId)>| {
            let state = AppBindings {
                holders: fdn_core::message::Holders::EVERYWHERE,
                host: format!("{app}.fn.test").parse().expect("host"),
                ttl_s: 25,
                bindings,
            };
            let app = app.replace('.', "-").parse().expect("app");
            let counter = metrics.by_app.counter(&app);
            Arc::new(AppTable::of(app, Revision(2), &state).counted_by(counter))
        };
        let bound = self.bindings.iter().map(|(p, c)| (*p, id(*c))).collect();
        let tables = [table("hello", bound), table("a.b", vec![])];
        let names = Names::new(&zone(), &tables, Revision(2), true).expect("names");
        let published = Arc::new(Published::new(names, None, Arc::clone(&metrics)));
        let down: BTreeSet<SocketAddr> = network
            .clusters
            .iter()
            .enumerate()
            .filter(|(i, _)| self.dead >> i & 1 == 1)
            .flat_map(|(_, spec)| spec.gateways.clone())
            .collect();
        published.set_network(Arc::new(Network::new(&network)));
        down.iter()
            .for_each(|gateway| published.set_health(*gateway, false));
        let shares: BTreeMap<_, _> = (0..3).map(|i| (id(i), self.shed[i])).collect();
        published.set_shares(shares);
        let demand = Arc::new(Demand::new(1000, Arc::clone(&metrics)));
        let policy = Policy {
            when_all_dead: WhenAllDead::ServeAll,
            max_addresses: self.max_addresses,
        };
        let guard = Guard {
            amplification: self.amplification,
            ..Guard::default()
        };
        let demanded = Arc::clone(&demand);
        let responder = Responder::new(published, policy, demanded, metrics, self.udp_size);
        Side {
            responder: responder.guarded(guard),
            registry,
            demand,
        }
    }
}

impl Side {
    /// All counters, except for times.
    fn counted(&self) -> String {
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut text)
            .expect("metrics");
        let text = String::from_utf8(text).expect("text");
        let kept: Vec<_> = text
            .lines()
            .filter(|line| !line.contains("_seconds"))
            .collect();
        format!("{}\n{:?}", kept.join("\n"), self.demand.take())
    }
}

/// A plain query, and whether it was modified afterwards.
#[derive(Clone, Debug)]
struct Asked {
    bytes: Vec<u8>,
    plain: bool,
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let text = prop::sample::select(vec![
        "hello.fn.test",
        "a.b.fn.test",
        "b.fn.test",
        "fn.test",
        "x.fn.test",
        "ns1.fn.test",
        "example.org",
        "",
    ]);
    (text, any::<u64>()).prop_map(|(text, spelling)| {
        let mut wire = Vec::new();
        for label in text.split('.').filter(|label| !label.is_empty()) {
            wire.push(u8::try_from(label.len()).expect("short"));
            wire.extend(label.bytes());
        }
        // The case of each letter is determined by `spelling`.
        for (i, byte) in wire.iter_mut().enumerate() {
            if spelling >> (i % 64) & 1 == 1 {
                byte.make_ascii_uppercase();
            }
        }
        wire.push(0);
        wire
    })
}

/// An exact client subnet option; one kind in three is an IPv4 address written as IPv6.
fn subnet() -> impl Strategy<Value = Vec<u8>> {
    (0..3, any::<u128>(), 1u8..=128).prop_map(|(kind, addr, len)| {
        let (family, len) = if kind == 0 {
            (1, len.min(32))
        } else {
            (2, len)
        };
        let addr = match kind {
            1 => 0xffff << 32 | addr & u128::from(u32::MAX),
            _ => addr,
        };
        let kept = addr & !u128::MAX.checked_shr(u32::from(len)).unwrap_or(0);
        let address = &kept.to_be_bytes()[..usize::from(len).div_ceil(8)];
        let data = [&[0, family, len, 0], address].concat();
        let length = u16::try_from(data.len()).expect("short").to_be_bytes();
        [&[0, 8], length.as_slice(), &data].concat()
    })
}

fn plain() -> impl Strategy<Value = Asked> {
    let payload = prop_oneof![Just(1232u16), 0u16..5000];
    let edns = proptest::option::of((payload, proptest::option::of(subnet())));
    (
        any::<[u8; 2]>(),
        any::<bool>(),
        any::<bool>(),
        name(),
        any::<bool>(),
        edns,
    )
        .prop_map(|(id, rd, ad, name, v6, edns)| {
            let mut bytes = vec![
                id[0],
                id[1],
                u8::from(rd),
                u8::from(ad) << 5,
                0,
                1,
                0,
                0,
                0,
                0,
                0,
                u8::from(edns.is_some()),
            ];
            bytes.extend(name);
            bytes.extend([0, if v6 { 28 } else { 1 }, 0, 1]);
            if let Some((payload, subnet)) = edns {
                let option = subnet.unwrap_or_default();
                let ([p0, p1], length) = (
                    payload.to_be_bytes(),
                    u16::try_from(option.len()).expect("short").to_be_bytes(),
                );
                bytes.extend([0, 0, 41, p0, p1, 0, 0, 0, 0, length[0], length[1]]);
                bytes.extend(option);
            }
            Asked { bytes, plain: true }
        })
}

#[derive(Clone, Debug)]
enum Harm {
    Set(prop::sample::Index, u8),
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Add(Vec<u8>),
}

fn asked() -> impl Strategy<Value = Asked> {
    let harm = prop_oneof![
        (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, to)| Harm::Set(at, to)),
        (any::<prop::sample::Index>(), 0u8..8).prop_map(|(at, bit)| Harm::Flip(at, bit)),
        any::<prop::sample::Index>().prop_map(Harm::Cut),
        proptest::collection::vec(any::<u8>(), 1..12).prop_map(Harm::Add),
    ];
    let harmed = (plain(), proptest::collection::vec(harm, 1..4)).prop_map(|(mut asked, harms)| {
        asked.plain = false;
        for harm in harms {
            let len = asked.bytes.len();
            match harm {
                Harm::Set(at, to) if len > 0 => asked.bytes[at.index(len)] = to,
                Harm::Flip(at, bit) if len > 0 => asked.bytes[at.index(len)] ^= 1 << bit,
                Harm::Cut(at) if len > 0 => asked.bytes.truncate(at.index(len)),
                Harm::Add(more) => asked.bytes.extend(more),
                _ => {}
            }
        }
        asked
    });
    prop_oneof![plain(), harmed]
}

/// The position of the options in a query's OPT record, which is its last record.
fn options_at(query: &[u8]) -> Option<usize> {
    let name = query[HEADER..].iter().scan(0u8, |left, byte| {
        // A zero byte inside a label does not end the name.
        let is_length = *left == 0;
        *left = if is_length { *byte } else { *left - 1 };
        Some(is_length && *byte == 0)
    });
    let question = name.take_while(|ends| !ends).count() + 5;
    (query[HEADER - 1] == 1).then_some(HEADER + question + OPT)
}

/// A plain query that also asks for the revision, if it has an OPT record.
fn asking_for_revision(plain: &[u8]) -> Option<Vec<u8>> {
    let at = options_at(plain)?;
    let mut bytes = plain.to_vec();
    bytes[at - 1] += 4;
    bytes.extend([0xfe, 0x1d, 0, 0]);
    Some(bytes)
}

/// The position of the options' length in an answer of this length, which repeats all of the query's options.
fn opt_length_at(query: &[u8], answer: usize) -> usize {
    let options = options_at(query).map_or(0, |at| query.len() - at);
    answer - options - 2
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn both_paths_answer_alike(state in state(), asked in proptest::collection::vec(asked(), 1..60)) {
        let (fast, slow) = (state.side(), state.side());
        let from = SocketAddr::from(([198, 51, 100, 53], 4053));
        let mut out = b"left over".to_vec();
        for Asked { bytes, .. } in &asked {
            if fast.responder.respond_fast(bytes, from, &mut out).is_some() {
                let other = slow.responder.respond(bytes, from, Transport::Udp);
                prop_assert_eq!(Some(&out), other.as_ref(), "{:02x?}", bytes);
                prop_assert_eq!(fast.counted(), slow.counted(), "{:02x?}", bytes);
            }
        }
    }

    /// A query for the revision is left to the general path, whose answer is the same except for the option at its end (if the name is an
    /// app's and there is room), with the same counts.
    #[test]
    fn with_its_revision_an_answer_is_otherwise_the_same(state in state(), asked in plain()) {
        let state = State { amplification: 0, ..state };
        let Some(bytes) = asking_for_revision(&asked.bytes) else {
            return Ok(());
        };
        let (plain, general) = (state.side(), state.side());
        let from = SocketAddr::from(([198, 51, 100, 53], 4053));
        prop_assert_eq!(general.responder.respond_fast(&bytes, from, &mut Vec::new()), None);
        let answer = |side: &Side, bytes: &[u8]| side.responder.respond(bytes, from, Transport::Udp).expect("an answer");
        let (mut expected, got) = (answer(&plain, &asked.bytes), answer(&general, &bytes));
        prop_assert_eq!(plain.counted(), general.counted());
        let is_app = [&b"\x05hello\x02fn\x04test\0"[..], &b"\x01a\x01b\x02fn\x04test\0"[..]]
            .iter()
            .any(|app| bytes[HEADER..].to_ascii_lowercase().starts_with(app));
        if got[2] & 2 != 0 {
            // It did not fit, or would just have fitted without the option.
            prop_assert!(expected[2] & 2 != 0 || expected.len() + 12 > usize::from(UDP_MIN));
            prop_assert!(got.len() <= usize::from(state.udp_size));
            return Ok(());
        }
        if is_app {
            let at = opt_length_at(&asked.bytes, expected.len());
            expected[at + 1] += 12;
            expected.extend([0xfe, 0x1d, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2]);
        }
        prop_assert_eq!(got, expected);
    }

    /// Otherwise the paths could be equal because everything is left to the general one.
    #[test]
    fn what_is_plain_takes_the_fast_path(asked in plain(), few in 1u8..6) {
        let state = State { gateways: [few + 2; 3], dead: 0, shed: [0; 3], bindings: vec![], max_addresses: 16, udp_size: 1232, amplification: 0 };
        let side = state.side();
        let name = asked.bytes[12..].to_ascii_lowercase();
        let known = [&b"\x05hello\x02fn\x04test\0"[..], &b"\x01a\x01b\x02fn\x04test\0"[..]].iter().any(|app| name.starts_with(app));
        let from = SocketAddr::from(([198, 51, 100, 53], 4053));
        prop_assert_eq!(side.responder.respond_fast(&asked.bytes, from, &mut Vec::new()).is_some(), known);
    }
}
