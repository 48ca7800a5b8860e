mod properties;
mod texts;
mod weights;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use fdn_core::message::{AppBindings, ClusterSpec, NetworkDesired};
use fdn_core::{ClusterId, GeoPoint, Revision};

use super::fleet::Network;
use super::steer::Reason;
use super::zone::ZoneData;
use super::*;

const CLUSTERS: [(&str, f64, f64); 3] = [
    ("ap-south", 19.08, 72.88),
    ("eu-west", 53.35, -6.26),
    ("us-east", 39.04, -77.49),
];

fn id(name: &str) -> ClusterId {
    name.parse().expect("cluster")
}

fn prefix(text: &str) -> ClientPrefix {
    text.parse().expect("prefix")
}

fn point(lat: f64, lon: f64) -> GeoPoint {
    GeoPoint::new(lat, lon).expect("point")
}

/// Cluster `i` with gateways 127.0.i.1 and 127.0.i.2, and ::i if `v6` is true.
fn cluster(i: usize, v6: bool) -> ClusterSpec {
    let (name, lat, lon) = CLUSTERS[i];
    let mut gateways: Vec<SocketAddr> = [1, 2]
        .map(|last| SocketAddr::from(([127, 0, u8::try_from(i).expect("small"), last], 8080)))
        .to_vec();
    if v6 {
        let last = u16::try_from(i).expect("small") + 1;
        gateways.push(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, last], 8080)));
    }
    ClusterSpec {
        cluster: id(name),
        region: name.parse().expect("region"),
        location: point(lat, lon),
        gateways,
        health: vec![],
        weights: vec![],
    }
}

fn network() -> NetworkDesired {
    NetworkDesired {
        revision: Revision(1),
        clusters: (0..3).map(|i| cluster(i, i == 1)).collect(),
        locations: vec![
            (prefix("192.0.2.0/24"), point(48.86, 2.35)),
            (prefix("198.51.100.0/24"), point(40.71, -74.0)),
            (prefix("203.0.113.0/24"), point(1.35, 103.8)),
        ],
        measured: vec![],
    }
}

fn fleet(network: &NetworkDesired, down: &[&str]) -> Fleet {
    let down = down
        .iter()
        .map(|text| text.parse().expect("gateway"))
        .collect();
    Fleet::new(Arc::new(Network::new(network)), &down)
}

fn table(app: &str, host: &str, bindings: &[(&str, &str)]) -> Arc<AppTable> {
    let bindings = bindings.iter().map(|(p, c)| (prefix(p), id(c))).collect();
    let state = AppBindings {
        holders: fdn_core::message::Holders::EVERYWHERE,
        host: host.parse().expect("host"),
        ttl_s: 20,
        bindings,
    };
    Arc::new(AppTable::of(app.parse().expect("app"), Revision(2), &state))
}

fn zone() -> ZoneData {
    ZoneData {
        name: "fn.test".parse().expect("zone"),
        servers: vec![
            (
                "ns1.fn.test".parse().expect("name"),
                vec![[127, 0, 0, 1].into()],
            ),
            ("ns.elsewhere.test".parse().expect("name"), vec![]),
        ],
        contact: "hostmaster.fn.test".parse().expect("name"),
        ttl: 3600,
        negative_ttl: 30,
        serial: 0,
        timers: [1, 2, 3],
        records: vec![],
        app_service: None,
    }
}

fn names(tables: &[Arc<AppTable>]) -> Names {
    Names::new(&zone(), tables, Revision(7), true).expect("names")
}

const POLICY: Policy = Policy {
    when_all_dead: WhenAllDead::ServeAll,
    max_addresses: 16,
};

fn ask<'a>(
    policy: Policy,
    names: &'a Names,
    fleet: &'a Fleet,
    name: &str,
    kind: RecordType,
    client: &str,
) -> Verdict<'a> {
    let name = LowerName::new(&zone::name_of(&name.parse().expect("name")));
    let question = Question {
        name: &name,
        kind,
        class: DNSClass::IN,
    };
    policy.answer(question, prefix(client), 0, names, fleet, None)
}

fn addresses(verdict: &Verdict<'_>) -> Vec<String> {
    match &verdict.body {
        Body::Addresses { addresses, .. } => addresses.iter().map(ToString::to_string).collect(),
        other => panic!("expected addresses, got {other:?}"),
    }
}

#[test]
fn what_exists_and_what_does_not() {
    let tables = [
        table("hello", "hello.fn.test", &[]),
        table("deep", "a.b.fn.test", &[]),
    ];
    let (names, fleet) = (names(&tables), fleet(&network(), &[]));
    let body = |name: &str, kind| ask(POLICY, &names, &fleet, name, kind, "192.0.2.1").body;
    assert!(matches!(
        body("hello.fn.test", RecordType::A),
        Body::Addresses { ttl: 20, .. }
    ));
    assert!(matches!(
        body("hello.fn.test", RecordType::TXT),
        Body::NoData
    ));
    assert!(matches!(
        body("hello.fn.test", RecordType::Unknown(65_280)),
        Body::NoData
    ));
    assert!(matches!(
        body("hello.fn.test", RecordType::ANY),
        Body::Any(20)
    ));
    assert!(matches!(
        body("hello.fn.test", RecordType::AXFR),
        Body::Refused
    ));
    assert!(matches!(
        body("nobody.fn.test", RecordType::A),
        Body::NxDomain
    ));
    assert!(matches!(
        body("x.hello.fn.test", RecordType::A),
        Body::NxDomain
    ));
    assert!(
        matches!(body("b.fn.test", RecordType::A), Body::NoData),
        "an empty non-terminal exists"
    );
    assert!(matches!(body("c.b.fn.test", RecordType::A), Body::NxDomain));
    assert!(matches!(body("fn.test", RecordType::A), Body::NoData));
    assert!(matches!(body("other.test", RecordType::A), Body::Refused));
    assert!(matches!(body("test", RecordType::SOA), Body::Refused));
    assert!(matches!(body("xfn.test", RecordType::A), Body::Refused));
    let Body::Records(servers, glue) = body("fn.test", RecordType::NS) else {
        panic!("no name servers")
    };
    assert_eq!((servers.len(), glue.len()), (2, 1));
    let Body::Records(soa, _) = body("fn.test", RecordType::SOA) else {
        panic!("no SOA")
    };
    assert!(
        soa[0].data.to_string().contains(" 7 1 2 3 30"),
        "{}",
        soa[0].data
    );
    assert_eq!(names.negative().ttl, 30);
}

#[test]
fn before_the_apps_are_known_nothing_is_denied() {
    let names = Names::new(&zone(), [], Revision::NONE, false).expect("names");
    let fleet = Fleet::default();
    let body = |name: &str, kind| ask(POLICY, &names, &fleet, name, kind, "192.0.2.1").body;
    assert!(matches!(
        body("hello.fn.test", RecordType::A),
        Body::Failure
    ));
    assert!(matches!(
        body("fn.test", RecordType::SOA),
        Body::Records(..)
    ));
    assert!(matches!(
        body("elsewhere.test", RecordType::A),
        Body::Refused
    ));
}

#[test]
fn names_that_cannot_be_answered_are_told() {
    let tables = [
        table("far", "far.example", &[]),
        table("first", "same.fn.test", &[]),
        table("ns", "ns1.fn.test", &[]),
        table("second", "same.fn.test", &[]),
    ];
    let names = names(&tables);
    let refused: Vec<_> = names
        .refused()
        .iter()
        .map(|(app, _)| app.to_string())
        .collect();
    assert_eq!(refused, ["far", "ns", "second"]);
    assert_eq!(names.apps(), 1);
}

#[test]
fn other_classes_are_refused() {
    let (names, fleet) = (names(&[]), fleet(&network(), &[]));
    let name = LowerName::new(&zone::name_of(&"version.bind".parse().expect("name")));
    let question = Question {
        name: &name,
        kind: RecordType::TXT,
        class: DNSClass::CH,
    };
    let verdict = POLICY.answer(question, prefix("192.0.2.1"), 0, &names, &fleet, None);
    assert!(matches!(verdict.body, Body::Refused));
}

#[test]
fn the_binding_decides_and_without_one_the_nearest() {
    let tables = [table(
        "hello",
        "hello.fn.test",
        &[("192.0.2.0/24", "us-east"), ("10.0.0.0/8", "gone")],
    )];
    let (names, fleet) = (names(&tables), fleet(&network(), &[]));
    let hello = |client: &str| {
        ask(
            POLICY,
            &names,
            &fleet,
            "hello.fn.test",
            RecordType::A,
            client,
        )
    };
    let bound = hello("192.0.2.0/24");
    assert_eq!(addresses(&bound), ["127.0.2.1", "127.0.2.2"]);
    assert_eq!(
        (bound.scope, bound.steering.expect("steered").reason),
        (24, Reason::Bound)
    );
    let near = hello("203.0.113.0/24");
    assert_eq!(addresses(&near), ["127.0.0.1", "127.0.0.2"]);
    // Unknown clients are sent there too: the nearest clients with another answer differ in the fifth bit, at 198.51.100.0.
    assert_eq!(
        (near.scope, near.steering.expect("steered").reason),
        (5, Reason::Nearest)
    );
    // A cluster that is no longer in the network is treated like a dead one.
    assert_eq!(
        hello("10.1.2.3").steering.expect("steered").reason,
        Reason::BoundIsDead
    );
}

#[test]
fn a_dead_cluster_is_replaced_by_the_nearest_and_the_scope_follows() {
    let tables = [table(
        "hello",
        "hello.fn.test",
        &[("192.0.0.0/16", "eu-west")],
    )];
    let names = names(&tables);
    let alive = fleet(&network(), &[]);
    let hello = |fleet, client: &str| {
        let verdict = ask(
            POLICY,
            &names,
            fleet,
            "hello.fn.test",
            RecordType::A,
            client,
        );
        (addresses(&verdict), verdict.scope)
    };
    assert_eq!(
        hello(&alive, "192.0.2.0/24"),
        (vec!["127.0.1.1".to_owned(), "127.0.1.2".to_owned()], 16)
    );
    let half = fleet(&network(), &["127.0.1.1:8080"]);
    assert_eq!(
        hello(&half, "192.0.2.0/24"),
        (vec!["127.0.1.2".to_owned()], 16)
    );
    let dead = fleet(&network(), &["127.0.1.1:8080", "127.0.1.2:8080"]);
    // The located /24 of the latency map decides now, so the answer is valid for a /24 only.
    assert_eq!(
        hello(&dead, "192.0.2.0/24"),
        (vec!["127.0.2.1".to_owned(), "127.0.2.2".to_owned()], 24)
    );
}

#[test]
fn aaaa_is_never_denied_to_some_only() {
    let tables = [table(
        "hello",
        "hello.fn.test",
        &[("192.0.2.0/24", "us-east")],
    )];
    let names = names(&tables);
    let hello = |fleet: &Fleet| {
        let verdict = ask(
            POLICY,
            &names,
            fleet,
            "hello.fn.test",
            RecordType::AAAA,
            "192.0.2.0/24",
        );
        (matches!(verdict.body, Body::NoData), verdict.scope)
    };
    // Only eu-west has IPv6: all clients get it.
    let all = fleet(&network(), &[]);
    assert_eq!(
        addresses(&ask(
            POLICY,
            &names,
            &all,
            "hello.fn.test",
            RecordType::AAAA,
            "192.0.2.0/24"
        )),
        ["::2"]
    );
    // If it is dead, no client gets an address, and the scope is 0.
    assert_eq!(hello(&fleet(&network(), &["[::2]:8080"])), (true, 0));
    let v4_only = NetworkDesired {
        clusters: vec![cluster(0, false)],
        ..network()
    };
    assert_eq!(hello(&fleet(&v4_only, &[])), (true, 0));
}

#[test]
fn an_app_whose_clusters_lack_a_family_has_no_address_of_it_and_is_not_dead() {
    // eu-west has IPv6 and does not hold the app.
    let held = |clusters: &[&str]| {
        let holders = clusters.iter().map(|name| id(name)).collect();
        let state = AppBindings {
            holders: fdn_core::message::Holders::only(holders),
            host: "hello.fn.test".parse().expect("host"),
            ttl_s: 20,
            bindings: [(prefix("192.0.2.0/24"), id("us-east"))].into(),
        };
        let app = "hello".parse().expect("app");
        names(&[Arc::new(AppTable::of(app, Revision(2), &state))])
    };
    let ask_all = |names: &Names, fleet: &Fleet, kind| {
        [
            WhenAllDead::ServeAll,
            WhenAllDead::ServeChosen,
            WhenAllDead::Refuse,
        ]
        .map(|when_all_dead| {
            let policy = Policy {
                when_all_dead,
                ..POLICY
            };
            let verdict = ask(policy, names, fleet, "hello.fn.test", kind, "192.0.2.0/24");
            match verdict.body {
                Body::NoData => format!("none /{}", verdict.scope),
                Body::Failure => "failure".to_owned(),
                Body::Addresses { addresses, .. } => format!("{} addresses", addresses.len()),
                _ => "something else".to_owned(),
            }
        })
    };
    let names = held(&["ap-south", "us-east"]);
    let alive = fleet(&network(), &[]);
    assert_eq!(
        ask_all(&names, &alive, RecordType::AAAA),
        ["none /0", "none /0", "none /0"]
    );
    assert_eq!(
        ask_all(&names, &alive, RecordType::A),
        ["2 addresses", "2 addresses", "2 addresses"]
    );
    let down: Vec<String> = network()
        .clusters
        .iter()
        .flat_map(|cluster| &cluster.gateways)
        .filter(|gateway| gateway.is_ipv4())
        .map(ToString::to_string)
        .collect();
    let down: Vec<&str> = down.iter().map(String::as_str).collect();
    let v6_only = fleet(&network(), &down);
    assert_eq!(
        ask_all(&names, &v6_only, RecordType::A),
        ["4 addresses", "2 addresses", "failure"],
        "they are dead, whatever eu-west is"
    );
    // A cluster that this server does not know yet: neither an answer nor a denial.
    let unknown = held(&["sa-east"]);
    assert_eq!(
        ask_all(&unknown, &alive, RecordType::A),
        ["failure", "failure", "failure"]
    );
}

#[test]
fn when_everything_looks_dead_the_operator_decides() {
    let tables = [table(
        "hello",
        "hello.fn.test",
        &[("192.0.2.0/24", "us-east")],
    )];
    let names = names(&tables);
    let down: BTreeSet<SocketAddr> = network()
        .clusters
        .iter()
        .flat_map(|c| c.gateways.clone())
        .collect();
    let fleet = Fleet::new(Arc::new(Network::new(&network())), &down);
    let with = |when_all_dead, max_addresses| {
        let policy = Policy {
            when_all_dead,
            max_addresses,
        };
        ask(
            policy,
            &names,
            &fleet,
            "hello.fn.test",
            RecordType::A,
            "192.0.2.0/24",
        )
    };
    // The bound cluster first, then the others from near to far.
    let all = with(WhenAllDead::ServeAll, 16);
    assert_eq!(
        addresses(&all),
        [
            "127.0.2.1",
            "127.0.2.2",
            "127.0.1.1",
            "127.0.1.2",
            "127.0.0.1",
            "127.0.0.2"
        ]
    );
    assert_eq!(all.scope, 24);
    assert_eq!(addresses(&with(WhenAllDead::ServeAll, 3)).len(), 3);
    assert_eq!(
        addresses(&with(WhenAllDead::ServeChosen, 16)),
        ["127.0.2.1", "127.0.2.2"]
    );
    assert!(matches!(with(WhenAllDead::Refuse, 16).body, Body::Failure));
}
