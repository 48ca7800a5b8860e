//! The resolver against a DNS server made of two sockets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fdn_cli::commands::dns::DsRecord;
use fdn_cli::resolver::{ResolveError, Resolver};
use fdn_core::api::edns::REVISION;
use fdn_core::{HostName, Revision};
use hickory_proto::dnssec::rdata::{CDS, DNSSECRData};
use hickory_proto::dnssec::{Algorithm, DigestType};
use hickory_proto::op::{Edns, Message, ResponseCode};
use hickory_proto::rr::rdata::opt::{ClientSubnet, EdnsCode, EdnsOption};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{RData, Record, RecordType};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};

/// The server's answer to a question; `None` means no answer. The number counts the questions over UDP from 0.
type Answer = Arc<dyn Fn(&Message, u32, bool) -> Option<Message> + Send + Sync>;

/// A DNS server on 127.0.0.1.
pub(crate) async fn serve(
    answer: impl Fn(&Message, u32, bool) -> Option<Message> + Send + Sync + 'static,
) -> SocketAddr {
    let answer: Answer = Arc::new(answer);
    let port = fdn_testkit::ports::local();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let udp = UdpSocket::bind(address).await.expect("free port");
    let tcp = TcpListener::bind(address).await.expect("free port");
    let by_udp = Arc::clone(&answer);
    tokio::spawn(async move {
        let (mut buffer, count) = (vec![0; 4096], AtomicU32::new(0));
        while let Ok((length, from)) = udp.recv_from(&mut buffer).await {
            let question = Message::from_vec(&buffer[..length]).expect("a question");
            if let Some(reply) = by_udp(&question, count.fetch_add(1, Ordering::Relaxed), false) {
                udp.send_to(&reply.to_vec().expect("bytes"), from)
                    .await
                    .expect("sent");
            }
        }
    });
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = tcp.accept().await {
            let length = stream.read_u16().await.expect("length");
            let mut buffer = vec![0; usize::from(length)];
            stream.read_exact(&mut buffer).await.expect("question");
            let question = Message::from_vec(&buffer).expect("a question");
            if let Some(reply) = answer(&question, 0, true) {
                let bytes = reply.to_vec().expect("bytes");
                stream
                    .write_u16(bytes.len().try_into().expect("short"))
                    .await
                    .expect("sent");
                stream.write_all(&bytes).await.expect("sent");
            }
        }
    });
    address
}

/// The answer with those of these addresses that have the queried type.
pub(crate) fn with_addresses(question: &Message, addresses: &[IpAddr]) -> Message {
    let mut reply = question.clone().into_response();
    let asked = question.queries[0].clone();
    for address in addresses {
        let data = match address {
            IpAddr::V4(a) => RData::A(A(*a)),
            IpAddr::V6(a) => RData::AAAA(AAAA(*a)),
        };
        if data.record_type() == asked.query_type() {
            reply.add_answer(Record::from_rdata(asked.name().clone(), 10, data));
        }
    }
    reply
}

fn host() -> HostName {
    "hello.fn.test".parse().expect("host")
}

/// A resolver with a timeout long enough for a busy machine.
fn patient(server: SocketAddr) -> Resolver {
    Resolver::new(server).with_timeout(fdn_testkit::wait::PATIENCE)
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 3, 1));

#[tokio::test]
async fn an_answer_by_udp_is_taken_with_ttl_and_scope() {
    let server = serve(|question, _, _| {
        let mut reply = with_addresses(question, &[V4, IpAddr::V4(Ipv4Addr::new(127, 0, 3, 2))]);
        let edns = question.edns.as_ref().expect("EDNS");
        if let Some(EdnsOption::Subnet(subnet)) = edns.option(EdnsCode::Subnet) {
            let mut own = Edns::new();
            let scoped = ClientSubnet::new(subnet.addr(), subnet.source_prefix(), 20);
            own.options_mut().insert(EdnsOption::Subnet(scoped));
            reply.set_edns(own);
        }
        Some(reply)
    })
    .await;
    let client = "203.0.113.0/24".parse().expect("prefix");
    let found = patient(server)
        .lookup(&host(), Some(client))
        .await
        .expect("found");
    assert_eq!(
        (found.addresses.len(), found.addresses[0], found.ttl_s),
        (2, V4, 10)
    );
    assert_eq!((found.scope, found.by_tcp), (Some(20), false));
}

/// A server that behaves like those of the network: it reports a revision if requested, and its address shows whether it was.
#[tokio::test]
async fn the_revision_is_asked_for_where_it_is_wanted_and_read() {
    let server = serve(|question, _, _| {
        let mut reply = with_addresses(question, &[V4]);
        let edns = question.edns.as_ref().expect("EDNS");
        if let Some(EdnsOption::Unknown(_, payload)) = edns.option(REVISION.into()) {
            assert!(payload.is_empty());
            let mut own = Edns::new();
            let bytes = 0x0102_0304_0506_0708_u64.to_be_bytes();
            let option = EdnsOption::Unknown(REVISION, bytes.to_vec());
            own.options_mut().insert(option);
            reply.set_edns(own);
        }
        Some(reply)
    })
    .await;
    let ask = async |resolver: Resolver, kind| {
        let found = resolver.addresses(&host(), kind, None).await;
        let found = found.expect("an answer");
        (found.addresses, found.revision)
    };
    let asking = patient(server).asking_for_revision();
    let told = Some(Revision(0x0102_0304_0506_0708));
    assert_eq!(ask(asking, RecordType::A).await, (vec![V4], told));
    assert_eq!(ask(asking, RecordType::AAAA).await, (vec![], told));
    let unasked = ask(patient(server), RecordType::A).await;
    assert_eq!(unasked, (vec![V4], None));
}

#[tokio::test]
async fn a_cut_answer_is_fetched_by_tcp() {
    let server = serve(|question, _, tcp| {
        let mut reply = with_addresses(question, if tcp { &[V4] } else { &[] });
        reply.metadata.truncation = !tcp;
        Some(reply)
    })
    .await;
    let found = patient(server).lookup(&host(), None).await.expect("found");
    assert_eq!((found.addresses, found.by_tcp), (vec![V4], true));
}

#[tokio::test]
async fn a_failing_server_is_asked_again_with_a_new_id() {
    let ids = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&ids);
    let server = serve(move |question, count, _| {
        seen.lock()
            .expect("not poisoned")
            .push(question.metadata.id);
        if count < 2 {
            let mut reply = question.clone().into_response();
            reply.metadata.response_code = ResponseCode::ServFail;
            return Some(reply);
        }
        Some(with_addresses(question, &[V4]))
    })
    .await;
    let found = patient(server).lookup(&host(), None).await;
    assert_eq!(found.expect("found").addresses, [V4]);
    let ids = ids.lock().expect("not poisoned").clone();
    assert_eq!(ids.len(), 3);
    assert!(ids[0] != ids[1] || ids[1] != ids[2], "{ids:?}");
}

#[tokio::test]
async fn an_answer_to_another_question_is_passed_over() {
    let udp = UdpSocket::bind("127.0.0.1:0").await.expect("free port");
    let server = udp.local_addr().expect("address");
    tokio::spawn(async move {
        let mut buffer = vec![0; 4096];
        let (length, from) = udp.recv_from(&mut buffer).await.expect("a question");
        let question = Message::from_vec(&buffer[..length]).expect("a question");
        let right = with_addresses(&question, &[V4]);
        let mut wrong = with_addresses(&question, &[IpAddr::V4(Ipv4Addr::new(127, 0, 6, 6))]);
        wrong.metadata.id = wrong.metadata.id.wrapping_add(1);
        for reply in [wrong, right] {
            let bytes = reply.to_vec().expect("bytes");
            udp.send_to(&bytes, from).await.expect("sent");
        }
    });
    let found = patient(server).lookup(&host(), None).await;
    assert_eq!(found.expect("the second answer").addresses, [V4]);
}

#[tokio::test]
async fn ipv6_is_used_when_there_is_nothing_else() {
    let v6: IpAddr = "2001:db8::1".parse().expect("address");
    let server = serve(move |question, _, _| Some(with_addresses(question, &[v6]))).await;
    assert_eq!(
        patient(server)
            .lookup(&host(), None)
            .await
            .expect("found")
            .addresses,
        [v6]
    );
}

#[tokio::test]
async fn what_is_wrong_is_told_apart() {
    let coded = |code| {
        move |question: &Message, _, _| {
            let mut reply = question.clone().into_response();
            reply.metadata.response_code = code;
            Some(reply)
        }
    };
    let lookup = async |server| {
        patient(server)
            .lookup(&host(), None)
            .await
            .expect_err("no address")
    };
    let no_name = lookup(serve(coded(ResponseCode::NXDomain)).await).await;
    assert!(
        matches!(no_name, ResolveError::NoSuchName { .. }),
        "{no_name}"
    );
    let no_data = lookup(serve(coded(ResponseCode::NoError)).await).await;
    assert!(
        matches!(no_data, ResolveError::NoAddress { .. }),
        "{no_data}"
    );
    let refused = lookup(serve(coded(ResponseCode::Refused)).await).await;
    assert!(matches!(refused, ResolveError::Refused { .. }), "{refused}");
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, fdn_testkit::ports::local()));
    let silent = Resolver::new(nobody)
        .with_timeout(Duration::from_millis(100))
        .lookup(&host(), None)
        .await;
    let silent = silent.expect_err("nobody").to_string();
    assert!(
        silent.contains("did not answer") && silent.contains("3 attempts"),
        "{silent}"
    );
}

#[tokio::test]
async fn the_zone_tells_its_authority() {
    use hickory_proto::rr::Name;
    use hickory_proto::rr::rdata::SOA;
    let server = serve(|question, _, _| {
        assert_eq!(question.queries[0].query_type(), RecordType::SOA);
        let mut reply = question.clone().into_response();
        reply.metadata.authoritative = true;
        let name = question.queries[0].name().clone();
        let ns = Name::from_ascii("ns1.fn.test.").expect("name");
        let soa = SOA::new(ns.clone(), ns, 77, 1, 1, 1, 1);
        reply.add_answer(Record::from_rdata(name, 10, RData::SOA(soa)));
        Some(reply)
    })
    .await;
    let (soa, authoritative) = patient(server)
        .zone(&"fn.test".parse().expect("zone"))
        .await
        .expect("SOA");
    assert_eq!((soa.serial, authoritative), (77, true));
}

#[tokio::test]
async fn what_the_parent_is_to_hold_is_what_the_zone_says() {
    let digest = [0xAB; 32];
    let cds = CDS::new(
        4711,
        Some(Algorithm::ECDSAP256SHA256),
        DigestType::SHA256,
        digest.to_vec(),
    );
    let answered = cds.clone();
    let server = serve(move |question, _, _| {
        let mut reply = question.clone().into_response();
        let asked = question.queries[0].clone();
        if asked.query_type() == RecordType::CDS && asked.name().to_ascii() == "fn.test." {
            let data = RData::DNSSEC(DNSSECRData::CDS(answered.clone()));
            reply.add_answer(Record::from_rdata(asked.name().clone(), 3600, data));
        }
        Some(reply)
    })
    .await;
    let zone: HostName = "fn.test".parse().expect("zone");
    let found = patient(server).delegation(&zone).await;
    let [found] = &found.expect("an answer")[..] else {
        panic!("one record")
    };
    let record = DsRecord::of(&zone, found);
    let line = format!("fn.test. IN DS 4711 13 2 {}", "AB".repeat(32));
    assert_eq!(fdn_cli::output::Row::name(&record), line);
    let unsigned: HostName = "fn.example".parse().expect("zone");
    let found = patient(server).delegation(&unsigned).await;
    assert_eq!(found.expect("an answer"), []);
}

mod soak {
    use super::*;

    /// Uses the resolver's real timeout, so it is only meaningful if answers arrive within that time.
    #[tokio::test]
    async fn a_lost_packet_is_asked_for_again() {
        let server =
            serve(|question, count, _| (count > 0).then(|| with_addresses(question, &[V4]))).await;
        let resolver = Resolver::new(server).with_timeout(Duration::from_secs(2));
        let found = resolver.lookup(&host(), None).await;
        assert_eq!(found.expect("found").addresses, [V4]);
    }
}
