mod revision;
mod wildcard;

use std::net::Ipv6Addr;
use std::str::FromStr;

use fdn_core::message::{AppBindings, ClusterSpec, NetworkDesired};
use fdn_core::{GeoPoint, Revision};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, Name};
use prometheus::{Encoder, Registry, TextEncoder};

use super::*;
use crate::policy::WhenAllDead;
use crate::policy::fleet::Network;
use crate::policy::zone::{AppTable, Names, ZoneData};

struct Bench {
    responder: Responder,
    registry: Registry,
    demand: Arc<Demand>,
}

fn cluster(name: &str, gateways: u8, third: u8) -> ClusterSpec {
    ClusterSpec {
        cluster: name.parse().expect("cluster"),
        region: name.parse().expect("region"),
        location: GeoPoint::new(53.0, -6.0).expect("point"),
        gateways: (1..=gateways)
            .map(|last| SocketAddr::from(([127, 0, third, last], 8080)))
            .collect(),
        health: vec![],
        weights: vec![],
    }
}

fn zone() -> ZoneData {
    ZoneData {
        name: "fn.test".parse().expect("zone"),
        servers: vec![(
            "ns1.fn.test".parse().expect("name"),
            vec![[127, 0, 0, 1].into(), "::1".parse().expect("v6")],
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

/// An app `hello` bound for 192.0.2.0/24 to a cluster of `gateways` gateways; all other clients are sent to a cluster with one gateway.
fn bench(gateways: u8) -> Bench {
    let bindings = vec![(
        "192.0.2.0/24".parse().expect("prefix"),
        "eu-west".parse().expect("cluster"),
    )];
    let state = AppBindings {
        holders: fdn_core::message::Holders::EVERYWHERE,
        host: "hello.fn.test".parse().expect("host"),
        ttl_s: 20,
        bindings,
    };
    let table = Arc::new(AppTable::of(
        "hello".parse().expect("app"),
        Revision(2),
        &state,
    ));
    let network = NetworkDesired {
        revision: Revision(1),
        clusters: vec![cluster("ap-south", 1, 9), cluster("eu-west", gateways, 1)],
        locations: vec![],
        measured: vec![],
    };
    let registry = Registry::new();
    let metrics = Arc::new(Metrics::new(&registry).expect("metrics"));
    let names = Names::new(&zone(), &[table], Revision(2), true).expect("names");
    let published = Arc::new(Published::new(names, None, Arc::clone(&metrics)));
    published.set_network(Arc::new(Network::new(&network)));
    let demand = Arc::new(Demand::new(100, Arc::clone(&metrics)));
    let policy = Policy {
        when_all_dead: WhenAllDead::ServeAll,
        max_addresses: 255,
    };
    Bench {
        responder: Responder::new(published, policy, Arc::clone(&demand), metrics, 1232),
        registry,
        demand,
    }
}

fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).expect("name"), kind));
    message
}

fn with_edns(mut message: Message, payload: u16, subnet: Option<&[u8]>) -> Message {
    let mut edns = Edns::new();
    edns.set_max_payload(payload).set_dnssec_ok(true);
    if let Some(bytes) = subnet {
        edns.options_mut()
            .insert(EdnsOption::Unknown(8, bytes.to_vec()));
    }
    message.edns = Some(edns);
    message
}

impl Bench {
    fn raw(&self, message: &Message, transport: Transport) -> Vec<u8> {
        let from = SocketAddr::from(([192, 0, 2, 53], 4053));
        self.responder
            .respond(&message.to_vec().expect("encoded"), from, transport)
            .expect("an answer")
    }

    fn ask(&self, message: &Message) -> Message {
        Message::from_vec(&self.raw(message, Transport::Udp)).expect("decoded")
    }

    fn metrics(&self) -> String {
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut text)
            .expect("metrics");
        String::from_utf8(text).expect("text")
    }
}

fn subnet_of(message: &Message) -> Option<Vec<u8>> {
    let code = hickory_proto::rr::rdata::opt::EdnsCode::Subnet;
    match message.edns.as_ref()?.option(code)? {
        EdnsOption::Subnet(subnet) => Some(Vec::<u8>::try_from(subnet).expect("bytes")),
        _ => None,
    }
}

#[test]
fn the_header_and_the_spelling_of_an_answer() {
    let bench = bench(2);
    let raw = bench.raw(&query("HeLLo.fN.tesT.", RecordType::A), Transport::Udp);
    assert!(raw.len() <= 96, "{} bytes", raw.len());
    // The question is repeated as spelled (0x20), and the answers point to it.
    assert_eq!(&raw[12..27], b"\x05HeLLo\x02fN\x04tesT\x00");
    assert_eq!(&raw[31..33], &[0xc0, 12]);
    let answer = Message::from_vec(&raw).expect("decoded");
    let meta = &answer.metadata;
    assert_eq!((meta.id, meta.response_code), (7, ResponseCode::NoError));
    assert!(
        meta.authoritative
            && meta.recursion_desired
            && !meta.recursion_available
            && !meta.truncation
    );
    assert_eq!(answer.answers.len(), 2);
    assert!(answer.answers.iter().all(|r| r.ttl == 20));
    assert!(answer.edns.is_none(), "no OPT was sent, so none comes back");
}

#[test]
fn a_client_subnet_comes_back_with_its_scope() {
    let bench = bench(2);
    let with = |bytes: &[u8]| {
        bench.ask(&with_edns(
            query("hello.fn.test.", RecordType::A),
            4096,
            Some(bytes),
        ))
    };
    let answer = with(&[0, 1, 25, 0, 192, 0, 2, 0]);
    assert_eq!(
        subnet_of(&answer).expect("subnet"),
        [0, 1, 25, 24, 192, 0, 2, 0]
    );
    let edns = answer.edns.as_ref().expect("edns");
    assert_eq!(
        (edns.max_payload(), edns.version(), edns.flags().dnssec_ok),
        (1232, 0, true)
    );
    // The answer is the same for all IPv6 clients except IPv4-mapped ones: so the scope is that of 2000::/3.
    let v6 = with(&[0, 2, 32, 0, 0x20, 1, 0xd, 0xb8]);
    assert_eq!(
        subnet_of(&v6).expect("subnet"),
        [0, 2, 32, 3, 0x20, 1, 0xd, 0xb8]
    );
    // "Do not use mine" is returned unchanged.
    assert_eq!(
        subnet_of(&with(&[0, 1, 0, 0])).expect("subnet"),
        [0, 1, 0, 0]
    );
    // Answers that are the same for all clients have scope 0.
    let other = with_edns(
        query("fn.test.", RecordType::SOA),
        4096,
        Some(&[0, 1, 24, 0, 192, 0, 2]),
    );
    assert_eq!(subnet_of(&bench.ask(&other)).expect("subnet")[3], 0);
    let plain = bench.ask(&with_edns(
        query("hello.fn.test.", RecordType::A),
        4096,
        None,
    ));
    assert_eq!(subnet_of(&plain), None);
}

#[test]
fn a_subnet_of_family_0_is_answered() {
    let bench = bench(1);
    let request = with_edns(
        query("hello.fn.test.", RecordType::A),
        4096,
        Some(&[0, 0, 0, 0]),
    );
    let raw = bench.raw(&request, Transport::Udp);
    // No available decoder supports family 0; the option is at the end of the message.
    assert_eq!(&raw[raw.len() - 8..], &[0, 8, 0, 4, 0, 0, 0, 0]);
    assert_eq!(raw[3] & 15, 0);
}

#[test]
fn of_one_query_in_16_the_lengths_of_the_bound_prefix_and_of_the_scope_are_counted() {
    let bench = bench(1);
    let client = |bytes: [u8; 4]| Some([&[0, 1, 32, 0], bytes.as_slice()].concat());
    // On both paths, bound and not bound, without a client subnet and with an empty one, and one query that is not among the one in 16.
    for (id, subnet, dnssec_ok) in [
        (16, client([192, 0, 2, 9]), false),
        (32, client([192, 0, 2, 9]), true),
        (48, client([203, 0, 113, 9]), false),
        (64, Some(vec![0, 2, 32, 0, 0x20, 1, 0xd, 0xb8]), true),
        (65, client([192, 0, 2, 9]), false),
        (80, None, false),
        (96, None, true),
        (112, Some(vec![0, 1, 0, 0]), true),
    ] {
        let question = query("hello.fn.test.", RecordType::A);
        let mut asked = with_edns(question, 1232, subnet.as_deref());
        asked.metadata.id = id;
        let edns = asked.edns.as_mut().expect("set");
        edns.set_dnssec_ok(dnssec_ok);
        let (packet, mut out) = (asked.to_vec().expect("encoded"), Vec::new());
        let from = SocketAddr::from(([192, 0, 2, 53], 4053));
        let answered = bench
            .responder
            .datagram(&packet, from, Instant::now(), &mut out);
        assert!(answered);
    }
    let text = bench.metrics();
    for (name, family, le, count) in [
        ("matched_prefix", "ipv4", "0", 1),
        ("matched_prefix", "ipv4", "23", 1),
        ("matched_prefix", "ipv4", "24", 6),
        ("matched_prefix", "ipv6", "0", 1),
        // Of the unbound clients, 203.0.113.9 is in the /5 next to the bound prefix, and 2001:db8::/32 in the /3 next to the mapped addresses.
        ("scope", "ipv4", "0", 0),
        ("scope", "ipv4", "8", 1),
        ("scope", "ipv4", "23", 1),
        ("scope", "ipv4", "24", 3),
        ("scope", "ipv6", "0", 0),
        ("scope", "ipv6", "8", 1),
    ] {
        let labels = format!("family=\"{family}\",le=\"{le}\"");
        let line = format!("fdn_dns_{name}_length_bucket{{{labels}}} {count}\n");
        assert!(text.contains(&line), "{line}: {text}");
    }
}

#[test]
fn demand_is_counted_by_client_prefix() {
    let bench = bench(1);
    bench.ask(&query("hello.fn.test.", RecordType::A));
    bench.ask(&with_edns(
        query("hello.fn.test.", RecordType::A),
        4096,
        Some(&[0, 1, 32, 0, 203, 0, 113, 9]),
    ));
    bench.ask(&query("nobody.fn.test.", RecordType::A));
    bench.ask(&query("hello.fn.test.", RecordType::TXT));
    let taken: Vec<_> = bench
        .demand
        .take()
        .into_iter()
        .map(|(app, p, n)| (app.to_string(), p.to_string(), n))
        .collect();
    let expected =
        ["192.0.2.0/24", "203.0.113.0/24"].map(|p| ("hello".to_owned(), p.to_owned(), 1));
    assert_eq!(taken, expected);
}

#[test]
fn negative_answers_carry_the_soa() {
    let bench = bench(2);
    for (name, kind, code) in [
        ("nobody.fn.test.", RecordType::A, ResponseCode::NXDomain),
        ("hello.fn.test.", RecordType::AAAA, ResponseCode::NoError),
        ("hello.fn.test.", RecordType::MX, ResponseCode::NoError),
    ] {
        let answer = bench.ask(&query(name, kind));
        assert_eq!(answer.metadata.response_code, code);
        assert!(answer.metadata.authoritative && answer.answers.is_empty());
        assert_eq!(answer.authorities.len(), 1);
        let soa = &answer.authorities[0];
        assert_eq!(
            (soa.record_type(), soa.name.to_string(), soa.ttl),
            (RecordType::SOA, "fn.test.".to_owned(), 30)
        );
    }
}

#[test]
fn what_is_refused() {
    let bench = bench(1);
    let refused = bench.ask(&with_edns(
        query("www.example.org.", RecordType::A),
        4096,
        Some(&[0, 1, 8, 0, 10]),
    ));
    assert_eq!(refused.metadata.response_code, ResponseCode::Refused);
    assert!(
        !refused.metadata.authoritative && refused.edns.is_some() && refused.queries.len() == 1
    );
    let mut chaos = query("version.bind.", RecordType::TXT);
    chaos.queries[0].set_query_class(DNSClass::CH);
    assert_eq!(
        bench.ask(&chaos).metadata.response_code,
        ResponseCode::Refused
    );
    assert_eq!(
        bench
            .ask(&query("fn.test.", RecordType::AXFR))
            .metadata
            .response_code,
        ResponseCode::Refused
    );
    let mut two = query("hello.fn.test.", RecordType::A);
    two.add_query(Query::query(
        Name::from_str("fn.test.").expect("name"),
        RecordType::A,
    ));
    assert_eq!(
        bench.ask(&two).metadata.response_code,
        ResponseCode::FormErr
    );
    let mut notify = query("fn.test.", RecordType::SOA);
    notify.metadata.op_code = OpCode::Notify;
    assert_eq!(
        bench.ask(&notify).metadata.response_code,
        ResponseCode::NotImp
    );
}

#[test]
fn any_is_answered_with_one_small_record() {
    let answer = bench(2).ask(&query("hello.fn.test.", RecordType::ANY));
    assert_eq!(answer.answers.len(), 1);
    assert_eq!(answer.answers[0].record_type(), RecordType::HINFO);
    assert!(answer.answers[0].data.to_string().contains("RFC8482"));
}

#[test]
fn name_servers_come_with_their_addresses() {
    let answer = bench(1).ask(&query("fn.test.", RecordType::NS));
    assert_eq!((answer.answers.len(), answer.additionals.len()), (1, 2));
    assert_eq!(
        bench(1)
            .ask(&query("ns1.fn.test.", RecordType::AAAA))
            .answers
            .len(),
        1
    );
}

#[test]
fn an_answer_too_large_is_truncated_whole_and_fits_over_tcp() {
    let bench = bench(120);
    let plain = query("hello.fn.test.", RecordType::A);
    let cases = [
        (plain.clone(), 512),
        (with_edns(plain.clone(), 100, None), 512),
        (with_edns(plain.clone(), 65_535, None), 1232),
    ];
    for (request, limit) in cases {
        let raw = bench.raw(&request, Transport::Udp);
        let answer = Message::from_vec(&raw).expect("decoded");
        assert!(raw.len() <= limit && answer.metadata.truncation && answer.answers.is_empty());
        assert_eq!(answer.edns.is_some(), request.edns.is_some());
        let whole = Message::from_vec(&bench.raw(&request, Transport::Tcp)).expect("decoded");
        assert!(!whole.metadata.truncation);
        assert_eq!(whole.answers.len(), 120);
    }
    // 60 addresses do not fit into 512 bytes, but into the size that this client accepts.
    let some = self::bench(60);
    assert!(some.ask(&plain).metadata.truncation);
    assert_eq!(some.ask(&with_edns(plain, 1232, None)).answers.len(), 60);
}

#[test]
fn queries_are_counted_by_type_code_and_transport() {
    let bench = bench(1);
    bench.ask(&query("hello.fn.test.", RecordType::A));
    bench.ask(&query("nobody.fn.test.", RecordType::AAAA));
    bench.raw(&query("hello.fn.test.", RecordType::A), Transport::Tcp);
    let from = SocketAddr::from(([192, 0, 2, 53], 4053));
    assert_eq!(
        bench.responder.respond(b"short", from, Transport::Udp),
        None
    );
    // A code that no answer has today.
    let metrics = bench.responder.metrics();
    metrics.query(QueryKind::A, ResponseCode::YXDomain, Transport::Udp);
    let text = bench.metrics();
    for line in [
        r#"fdn_dns_queries_total{rcode="NOERROR",transport="udp",type="A"} 1"#,
        r#"fdn_dns_queries_total{rcode="NOERROR",transport="tcp",type="A"} 1"#,
        r#"fdn_dns_queries_total{rcode="NXDOMAIN",transport="udp",type="AAAA"} 1"#,
        r#"fdn_dns_queries_total{rcode="other",transport="udp",type="A"} 1"#,
        r#"fdn_dns_queries_total{rcode="SERVFAIL",transport="udp",type="A"} 0"#,
        r#"fdn_dns_answers_total{cluster="eu-west"} 2"#,
        "fdn_dns_ignored_total 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_transfer_that_is_refused_is_counted_once() {
    let bench = bench(1);
    let name = Name::from_ascii("nobody.fn.test.").expect("name");
    let key = Arc::new(tsig::Key::new(&name, tsig::Algorithm::Sha256, b"secret"));
    let request = query("fn.test.", RecordType::AXFR);
    let mut packet = request.to_vec().expect("encoded");
    Session::begin(key).sign(&mut packet, u64::from(seconds()));
    let from = SocketAddr::from(([192, 0, 2, 53], 4053));
    let replies = bench.responder.replies(&packet, from, Transport::Tcp);
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0][3] & 15, ResponseCode::NotAuth.low());
    let text = bench.metrics();
    for line in [
        r#"fdn_dns_queries_total{rcode="NOTAUTH",transport="tcp",type="other"} 1"#,
        r#"fdn_dns_signed_requests_denied_total{reason="BADKEY"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

fn backup_key(secret: &[u8]) -> Arc<tsig::Key> {
    let name = Name::from_ascii("backup.fn.test.").expect("name");
    Arc::new(tsig::Key::new(&name, tsig::Algorithm::Sha256, secret))
}

/// A responder that knows a key, and truncates what is more than one answer of a kind in a second.
fn limited(key: Arc<tsig::Key>) -> Responder {
    let limiter = Limiter::new(limit::Limits {
        names: 1,
        zone: 0,
        errors: 1,
        total: 0,
        burst: std::time::Duration::ZERO,
        slip: 1,
        ipv4_len: 24,
        ipv6_len: 56,
        exempt: vec![],
        buckets: 64,
    });
    bench(1).responder.guarded(Guard {
        limiter: Some(limiter),
        transfers: Transfers::new(tsig::Keyring::new(vec![key]), &zone()),
        ..Guard::default()
    })
}

#[test]
fn who_signs_gets_a_signed_answer_beyond_a_limit_too() {
    let key = backup_key(b"secret");
    let responder = limited(Arc::clone(&key));
    let question = query("hello.fn.test.", RecordType::A);
    let mut packet = question.to_vec().expect("encoded");
    let mut session = Session::begin(key);
    session.sign(&mut packet, u64::from(seconds()));
    let (from, now) = (SocketAddr::from(([192, 0, 2, 53], 4053)), Instant::now());
    for truncated in [false, true] {
        let mut out = Vec::new();
        assert!(responder.datagram(&packet, from, now, &mut out));
        assert_eq!(out[2] & 0x02 != 0, truncated);
        let signature = wire::signature(&out).expect("it is signed");
        let verified = session.answered_by(&signature, u64::from(seconds()));
        assert_eq!(verified, Ok(()));
    }
}

#[test]
fn whose_signature_is_refused_is_told_why_beyond_a_limit_too() {
    let question = query("hello.fn.test.", RecordType::A);
    let (from, now) = (SocketAddr::from(([192, 0, 2, 53], 4053)), Instant::now());
    let today = u64::from(seconds());
    // RFC 8945, section 5.3.2: what refuses a time is signed, what refuses a signature is not.
    let unsigned = Err(tsig::Denied::Malformed);
    for (secret, time, code, expected) in [
        (b"secret", today - 1000, 18, Ok(())),
        (b"others", today, 16, unsigned),
    ] {
        let responder = limited(backup_key(b"secret"));
        let mut packet = question.to_vec().expect("encoded");
        let mut session = Session::begin(backup_key(secret));
        session.sign(&mut packet, time);
        for slipped in [0, 1] {
            let mut out = Vec::new();
            assert!(responder.datagram(&packet, from, now, &mut out));
            assert_eq!(responder.metrics.limited_slipped.get(), slipped);
            let signature = wire::signature(&out).expect("it has a record");
            assert_eq!(signature.error, code);
            assert_eq!(session.answered_by(&signature, time), expected);
        }
    }
}

#[test]
fn a_refusal_that_is_longer_than_its_request_is_truncated_beyond_a_limit() {
    let name = format!("{0}.{0}.{0}.fn.test.", "a".repeat(60));
    let mut packet = query(&name, RecordType::A).to_vec().expect("encoded");
    // The names of the key and of the algorithm are pointers to the question's.
    packet[11] = 1;
    packet.extend_from_slice(&[0xc0, 12, 0, 250, 0, 255, 0, 0, 0, 0, 0, 34, 0xc0, 12]);
    packet.extend_from_slice(&[0, 0, 0, 0, 0, 0, 1, 44, 0, 16]);
    packet.extend_from_slice(&[7; 16]);
    packet.extend_from_slice(&[0; 6]);
    let (from, now) = (SocketAddr::from(([192, 0, 2, 53], 4053)), Instant::now());
    let responder = limited(backup_key(b"secret"));
    for is_whole in [true, false] {
        let mut out = Vec::new();
        assert!(responder.datagram(&packet, from, now, &mut out));
        let refused = wire::signature(&out).map(|tsig| tsig.error);
        assert_eq!(refused, is_whole.then_some(17));
        assert_eq!(out[2] & 0x02 != 0, !is_whole);
        assert_eq!(out.len() > packet.len(), is_whole);
    }
}

proptest::proptest! {
    /// Whatever bytes arrive, the answer can be decoded, or there is none.
    #[test]
    fn no_request_breaks_it(changes in proptest::collection::vec((0usize..80, proptest::prelude::any::<u8>()), 0..6)) {
        let bench = bench(2);
        let request = with_edns(query("hello.fn.test.", RecordType::A), 4096, Some(&[0, 1, 24, 0, 192, 0, 2]));
        let mut bytes = request.to_vec().expect("encoded");
        for (at, to) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = to;
            }
        }
        let from = SocketAddr::from(([192, 0, 2, 53], 4053));
        if let Some(reply) = bench.responder.respond(&bytes, from, Transport::Udp) {
            proptest::prop_assert_eq!(&reply[..2], &bytes[..2]);
            proptest::prop_assert!(reply.len() <= 1232 && reply[2] & 0x80 != 0);
        }
    }
}

/// The number of addresses and the scope in the answer to a client of family 2, on which both paths agree.
fn asked_as_ipv6(bench: &Bench, client: &str, len: u8) -> (usize, u8) {
    let address = Ipv6Addr::from_str(client).expect("an address").octets();
    let sent = usize::from(len.div_ceil(8));
    let subnet = [&[0, 2, len, 0], &address[..sent]].concat();
    let slow = with_edns(query("hello.fn.test.", RecordType::A), 1232, Some(&subnet));
    let mut plain = slow.clone();
    plain.edns.as_mut().expect("set").set_dnssec_ok(false);
    let plain = plain.to_vec().expect("encoded");
    let from = SocketAddr::from(([192, 0, 2, 53], 4053));
    let mut fast = Vec::new();
    let took = bench.responder.respond_fast(&plain, from, &mut fast);
    assert!(took.is_some(), "{client}/{len} is plain");
    let told = [Message::from_vec(&fast).expect("decoded"), bench.ask(&slow)]
        .map(|answer| (answer.answers.len(), subnet_of(&answer).expect("a subnet")));
    assert_eq!(told[0], told[1], "{client}/{len}");
    let (count, subnet) = &told[0];
    (*count, subnet[3])
}

/// IPv4 clients written as IPv4-mapped IPv6 addresses are IPv4 clients, and their answers are valid for no other clients.
#[test]
fn an_ipv4_mapped_client_subnet_is_one_of_ipv4() {
    let bench = bench(2);
    let asked = |client: &str, len: u8| asked_as_ipv6(&bench, client, len);
    assert_eq!(asked("::ffff:192.0.2.7", 128), (2, 96 + 24));
    assert_eq!(asked("::ffff:192.0.2.0", 96 + 24), (2, 96 + 24));
    // A subnet that the binding divides gets a scope longer than itself.
    assert_eq!(asked("::ffff:192.0.2.0", 96 + 23), (1, 96 + 24));
    assert_eq!(asked("::ffff:128.0.0.1", 128), (1, 96 + 2));
    // A subnet shorter than the mapped prefix is an IPv6 subnet. Its answer is valid for no client with the binding.
    assert_eq!(asked("::", 80), (1, 81));
    assert_eq!(asked("::1", 128), (1, 81));
    assert_eq!(asked("2001:db8::", 48), (1, 3));
}
