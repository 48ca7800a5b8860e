//! The wire protocol, as seen by `dig` and with hand-made messages.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use fdn_dns::settings::NameServer;
use fdn_testkit::wait;
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{Name, RecordType};

use crate::common::{Fixture, app, dig};

#[tokio::test(flavor = "multi_thread")]
async fn three_subnets_get_three_regions() {
    let fixture = Fixture::with_hello(|_| {}).await;
    // Unknown clients get the same answer as those of the third subnet: it is valid for most addresses.
    for (subnet, third, scope) in [
        ("192.0.2.0/24", 1, 24),
        ("198.51.100.0/24", 2, 24),
        ("203.0.113.0/24", 3, 5),
    ] {
        let expected = [format!("127.0.{third}.1"), format!("127.0.{third}.2")];
        fixture
            .answers("hello.fn.test", subnet, &[&expected[0], &expected[1]])
            .await;
        let full = fixture
            .dig(&["hello.fn.test", &format!("+subnet={subnet}")])
            .await;
        assert!(
            full.contains(&format!("CLIENT-SUBNET: {subnet}/{scope}")),
            "{full}"
        );
        assert!(
            full.contains("flags: qr aa;")
                && full.contains("status: NOERROR")
                && full.contains("udp: 1232"),
            "{full}"
        );
        assert!(
            full.contains("hello.fn.test.\t\t20\tIN\tA\t127.0."),
            "{full}"
        );
    }
    // A binding affects the clients of its prefix, and only them.
    fixture
        .publish(app("hello", 3, &[("192.0.2.128/25", "ap-south")]))
        .await;
    fixture
        .answers(
            "hello.fn.test",
            "192.0.2.128/25",
            &["127.0.3.1", "127.0.3.2"],
        )
        .await;
    fixture
        .answers("hello.fn.test", "192.0.2.0/25", &["127.0.1.1", "127.0.1.2"])
        .await;
    let beside = fixture
        .dig(&["hello.fn.test", "+subnet=192.0.2.0/25"])
        .await;
    assert!(
        beside.contains("CLIENT-SUBNET: 192.0.2.0/25/25"),
        "{beside}"
    );
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dig_reads_every_kind_of_answer_over_udp_and_tcp() {
    let fixture = Fixture::with_hello(|_| {}).await;
    for transport in ["+notcp", "+tcp"] {
        let ask = async |arguments: &[&str]| fixture.dig(&[arguments, &[transport]].concat()).await;
        let soa = ask(&["fn.test", "SOA", "+short"]).await;
        assert_eq!(
            soa.trim(),
            "ns1.fn.test. hostmaster.fn.test. 2 3600 600 604800 30"
        );
        assert_eq!(
            ask(&["fn.test", "NS", "+short"]).await.trim(),
            "ns1.fn.test."
        );
        assert_eq!(ask(&["ns1.fn.test", "+short"]).await.trim(), "127.0.0.1");
        let missing = ask(&["nobody.fn.test"]).await;
        assert!(
            missing.contains("NXDOMAIN") && missing.contains("fn.test.\t\t30\tIN\tSOA"),
            "{missing}"
        );
        let nodata = ask(&["hello.fn.test", "AAAA"]).await;
        assert!(
            nodata.contains("NOERROR")
                && nodata.contains("ANSWER: 0")
                && nodata.contains("IN\tSOA"),
            "{nodata}"
        );
        assert!(ask(&["example.org"]).await.contains("status: REFUSED"));
        assert!(
            ask(&["version.bind", "TXT", "CH"])
                .await
                .contains("status: REFUSED")
        );
        assert!(
            ask(&["hello.fn.test", "TYPE65280"])
                .await
                .contains("ANSWER: 0")
        );
        let any = ask(&["hello.fn.test", "ANY"]).await;
        assert!(any.contains("HINFO") && any.contains("ANSWER: 1"), "{any}");
        assert!(
            ask(&["hello.fn.test", "+opcode=4"])
                .await
                .contains("status: NOTIMP")
        );
        let version = ask(&["hello.fn.test", "+edns=3", "+noednsnegotiation"]).await;
        assert!(
            version.contains("status: BADVERS") && version.contains("EDNS: version: 0"),
            "{version}"
        );
        let plain = ask(&["hello.fn.test", "+noedns"]).await;
        assert!(
            plain.contains("ANSWER: 2") && !plain.contains("EDNS"),
            "{plain}"
        );
        let opted_out = ask(&["hello.fn.test", "+subnet=0"]).await;
        assert!(
            opted_out.contains("CLIENT-SUBNET: 0.0.0.0/0/0") && opted_out.contains("ANSWER: 2"),
            "{opted_out}"
        );
        let spelled = ask(&["HeLLo.Fn.TesT", "A"]).await;
        assert!(spelled.contains("HeLLo.Fn.TesT.\t\t20\tIN\tA"), "{spelled}");
    }
    fixture.dns.stop().await;
}

/// Sends bytes as a datagram and waits for the answer.
fn exchange(server: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("socket");
    socket
        .set_read_timeout(Some(wait::PATIENCE))
        .expect("time-out");
    socket.send_to(bytes, server).expect("sent");
    let mut buffer = [0; 4096];
    let (len, from) = socket.recv_from(&mut buffer).expect("an answer");
    assert_eq!(from, server);
    buffer[..len].to_vec()
}

fn request(subnet: &[u8]) -> Vec<u8> {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(
        Name::from_ascii("hello.fn.test.").expect("name"),
        RecordType::A,
    ));
    let mut edns = Edns::new();
    edns.set_max_payload(1400);
    edns.options_mut()
        .insert(EdnsOption::Unknown(8, subnet.to_vec()));
    message.edns = Some(edns);
    message.to_vec().expect("encoded")
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_subnets_are_refused_with_question_and_opt() {
    let fixture = Fixture::with_hello(|_| {}).await;
    let server = fixture.dns.address();
    let good = Message::from_vec(&exchange(server, &request(&[0, 1, 24, 0, 203, 0, 113])))
        .expect("decoded");
    assert_eq!(
        (good.metadata.response_code, good.answers.len()),
        (ResponseCode::NoError, 2)
    );
    let bad: [&[u8]; 6] = [
        &[0, 1, 24, 0, 203, 0, 113, 0],
        &[0, 1, 24, 0, 203, 0],
        &[0, 1, 23, 0, 203, 0, 113],
        &[0, 1, 24, 24, 203, 0, 113],
        &[0, 1, 40, 0, 203, 0, 113, 1, 1],
        &[0, 9, 8, 0, 1],
    ];
    for subnet in bad {
        let answer = Message::from_vec(&exchange(server, &request(subnet))).expect("decoded");
        assert_eq!(
            (answer.metadata.id, answer.metadata.response_code),
            (4711, ResponseCode::FormErr),
            "{subnet:?}"
        );
        assert!(
            answer.queries.len() == 1 && answer.edns.is_some() && answer.answers.is_empty(),
            "{subnet:?}"
        );
    }
    // Neither of these gets an answer, so the next answer belongs to the last one.
    let socket = UdpSocket::bind("127.0.0.1:0").expect("socket");
    let mut response = request(&[0, 1, 24, 0, 203, 0, 113]);
    response[2] |= 0x80;
    response[1] ^= 1;
    for bytes in [&response[..], b"", b"stump"] {
        socket.send_to(bytes, server).expect("sent");
    }
    socket
        .send_to(&request(&[0, 1, 24, 0, 203, 0, 113]), server)
        .expect("sent");
    socket
        .set_read_timeout(Some(wait::PATIENCE))
        .expect("time-out");
    let mut buffer = [0; 4096];
    let (len, _) = socket.recv_from(&mut buffer).expect("an answer");
    assert_eq!(
        Message::from_vec(&buffer[..len])
            .expect("decoded")
            .metadata
            .id,
        4711
    );
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_listens_on_ipv6_too() {
    let bound = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0));
    bound.expect("this test needs IPv6 on the loopback device");
    let fixture =
        Fixture::with_hello(|s| s.listen = vec![SocketAddr::from((Ipv6Addr::LOCALHOST, 0))]).await;
    for transport in ["+notcp", "+tcp"] {
        assert_eq!(
            fixture
                .dig(&["ns1.fn.test", "AAAA", "+short", transport])
                .await
                .trim(),
            "::1"
        );
    }
    fixture.dns.stop().await;
}

/// Sends this many concurrent queries to each address, and checks that all answers come from the address that was asked.
fn asked_at_once(servers: &[SocketAddr], times: u16) {
    let sockets: Vec<UdpSocket> = servers
        .iter()
        .map(|server| {
            let own = if server.is_ipv4() {
                "127.0.0.9:0"
            } else {
                "[::1]:0"
            };
            let socket = UdpSocket::bind(own).expect("socket");
            // A connected socket does not receive answers from other addresses.
            socket.connect(server).expect("connected");
            let patience = Some(wait::PATIENCE);
            socket.set_read_timeout(patience).expect("time-out");
            socket
        })
        .collect();
    for turn in 0..times {
        for socket in &sockets {
            let mut bytes = request(&[0, 1, 0, 0]);
            bytes[..2].copy_from_slice(&turn.to_be_bytes());
            socket.send(&bytes).expect("sent");
        }
    }
    for (socket, server) in sockets.iter().zip(servers) {
        let mut buffer = [0; 4096];
        let answered: BTreeSet<u16> = (0..times)
            .map(|_| {
                let len = socket
                    .recv(&mut buffer)
                    .unwrap_or_else(|e| panic!("no answer from {server}: {e}"));
                assert!(len > 12 && buffer[2] & 0x80 != 0);
                u16::from_be_bytes([buffer[0], buffer[1]])
            })
            .collect();
        assert_eq!(answered.len(), usize::from(times), "{server}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_all_addresses_it_answers_from_the_one_that_was_asked() {
    let servers = vec![NameServer {
        name: "ns1.fn.test".parse().expect("a name"),
        addresses: vec![[127, 0, 0, 2].into()],
    }];
    let fixture = Fixture::start(|s| {
        s.listen = vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))];
        s.zone.servers = servers.clone();
        s.udp.sockets = 1;
    })
    .await;
    let port = fixture.dns.address().port();
    for last in [1, 2, 3] {
        let server = SocketAddr::from(([127, 0, 0, last], port));
        for transport in ["+notcp", "+tcp"] {
            let asked = ["-b", "127.0.0.9", "ns1.fn.test", "A", "+short", transport];
            assert_eq!(dig(server, &asked).await.trim(), "127.0.0.2");
        }
    }
    // Many at once, so that batches contain queries to several addresses.
    let at = |last: u8| SocketAddr::from(([127, 0, 0, last], port));
    asked_at_once(&[at(1), at(2), at(77)], 60);
    fixture.dns.stop().await;

    let fixture = Fixture::start(|s| {
        s.listen = vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))];
        s.zone.servers = servers;
    })
    .await;
    let server = SocketAddr::from((Ipv6Addr::LOCALHOST, fixture.dns.address().port()));
    let asked = ["ns1.fn.test", "A", "+short", "+notcp"];
    assert_eq!(dig(server, &asked).await.trim(), "127.0.0.2");
    asked_at_once(&[server], 60);
    // IPv6 sockets do not accept IPv4.
    assert!(matches!(fixture.dns.address().ip(), IpAddr::V6(_)));
    fixture.dns.stop().await;
}
