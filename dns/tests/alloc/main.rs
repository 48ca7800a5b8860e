//! Plain queries are answered without heap allocations, once there is a buffer and the demand counters know the clients' networks
//! (the counters are reset with each report).

// Shared by the test programs that count allocations, so that there is one implementation.
#[path = "../../../scheduling/tests/alloc/counting.rs"]
mod counting;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdn_core::message::{ClusterSpec, NetworkDesired};
use fdn_core::{AppName, ClientPrefix, ClusterId, GeoPoint, Revision};
use fdn_dns::Settings;
use fdn_dns::handler::Responder;
use fdn_dns::metrics::{Metrics, Transport};
use fdn_dns::policy::Policy;
use fdn_dns::policy::bindings::Bindings;
use fdn_dns::policy::fleet::Network;
use fdn_dns::policy::zone::{AppTable, Names};
use fdn_dns::published::Published;
use fdn_dns::sync::demand::Demand;
use prometheus::Registry;

use crate::counting::allocations;

const ASKER: SocketAddr = SocketAddr::new(
    std::net::IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 53)),
    4053,
);

fn cluster(name: &str, third: u8) -> ClusterSpec {
    let v4 = [1, 2].map(|last| SocketAddr::from(([192, 0, third, last], 80)));
    let v6 = SocketAddr::from(([0x2001, 0xdb8, third.into(), 0, 0, 0, 0, 1], 80));
    ClusterSpec {
        cluster: name.parse().expect("cluster"),
        region: "region".parse().expect("region"),
        location: GeoPoint::new(f64::from(third), 5.0).expect("point"),
        gateways: [&v4[..], &[v6]].concat(),
        health: vec![],
        weights: vec![],
    }
}

/// A responder with everything that is on by default, and an app `hello` with its own counter and some bound prefixes.
fn responder() -> Responder {
    let settings = Settings::default();
    let metrics = Arc::new(Metrics::new(&Registry::new()).expect("metrics"));
    let bound = (0..=255u8).map(|n| {
        let prefix = ClientPrefix::new([10, n, 0, 0].into(), 16 + n % 9);
        let cluster = if n % 2 == 0 { "eu" } else { "us" };
        (prefix, cluster.parse().expect("cluster"))
    });
    let app: AppName = "hello".parse().expect("app");
    let counter = metrics.by_app.counter(&app);
    let host = "hello.fn.test".parse().expect("host");
    let bindings = Arc::new(Bindings::new(bound).expect("few clusters"));
    let table = AppTable::new(Arc::new(app), Revision(2), &host, 20, bindings);
    let zone = settings.zone_data([192, 0, 2, 53].into()).expect("a zone");
    let tables = [Arc::new(table.counted_by(counter))];
    let names = Names::new(&zone, &tables, Revision(2), true).expect("names");
    let published = Arc::new(Published::new(names, None, Arc::clone(&metrics)));
    published.set_network(Arc::new(Network::new(&NetworkDesired {
        revision: Revision(1),
        clusters: vec![cluster("eu", 1), cluster("us", 2), cluster("zz", 3)],
        locations: vec![],
        measured: vec![],
    })));
    // With load shedding, too.
    let share: (ClusterId, _) = ("eu".parse().expect("cluster"), 20_000);
    published.set_shares([share].into());
    let demand = Demand::new(settings.demand.capacity, Arc::clone(&metrics));
    let policy = Policy {
        when_all_dead: settings.answer.when_all_dead,
        max_addresses: settings.answer.max_addresses,
    };
    let size = settings.answer.udp_size;
    let responder = Responder::new(published, policy, Arc::new(demand), metrics, size);
    responder.guarded(settings.guard().expect("the defaults"))
}

/// A query for `hello`, with the bytes of a client subnet option if there is one (RFC 7871, section 6).
fn query(id: u16, kind: u8, subnet: Option<&[u8]>) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(subnet.is_some())]);
    message.extend(b"\x05hello\x02fn\x04test\0\0");
    message.extend([kind, 0, 1]);
    if let Some(subnet) = subnet {
        let len = u8::try_from(subnet.len()).expect("short");
        message.extend([0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, len + 4, 0, 8, 0, len]);
        message.extend(subnet);
    }
    message
}

/// A and AAAA queries, from resolvers and for clients of both families, with a bound prefix, without, and with a client prefix that bindings
/// divide; some of each kind are timed, others are not.
fn queries() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for n in 0..=255u8 {
        let id = u16::from(n) + 1;
        let subnets: [Option<&[u8]>; 6] = [
            None,
            Some(&[0, 1, 24, 0, 10, n, 0]),
            Some(&[0, 1, 32, 0, 10, n, 7, n]),
            Some(&[0, 1, 8, 0, 10]),
            Some(&[0, 1, 24, 0, 203, 0, n]),
            Some(&[0, 2, 56, 0, 0x20, 1, 0xd, 0xb8, 0, 0, n]),
        ];
        all.extend(subnets.map(|subnet| query(id, 1, subnet)));
        all.extend(subnets.map(|subnet| query(id, 28, subnet)));
    }
    all
}

#[test]
fn a_plain_query_is_answered_without_memory_from_the_allocator() {
    let (responder, queries) = (responder(), queries());
    let (mut out, began) = (Vec::new(), Instant::now());
    let mut round = |late: u64| {
        let mut answered = 0;
        let asked = allocations(|| {
            for query in &queries {
                // So much later that no rate limit applies.
                let now = began + Duration::from_secs(late);
                answered += usize::from(responder.datagram(query, ASKER, now, &mut out));
                assert!(out[3] & 15 == 0 && out[7] > 0, "no address: {out:02x?}");
            }
        });
        assert_eq!(answered, queries.len());
        asked
    };
    assert!(round(0) > 0, "the first round finds nothing warm");
    assert_eq!([round(60), round(120)], [0, 0]);
    // All of these took the fast path: the other one does allocate.
    for query in &queries {
        assert!(responder.respond_fast(query, ASKER, &mut out).is_some());
    }
    let other = allocations(|| drop(responder.respond(&queries[0], ASKER, Transport::Udp)));
    assert!(other > 0);
}
