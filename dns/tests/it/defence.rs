//! What hostile peers get, and what they cannot take away from others.

use std::net::SocketAddr;

use fdn_core::DurationMs;
use fdn_dns::Settings;
use fdn_testkit::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::common::Fixture;
use crate::endpoints::{HELLO_A, OPT, four_endpoints, head, request};

/// Every name of the zone, with types that have short answers.
const QUESTIONS: [(&[u8], &[u16]); 5] = [
    (b"\x02fn\x04test\x00", &[6, 2, 16, 257, 48, 255]),
    (b"\x05hello\x02fn\x04test\x00", &[1, 28, 65, 16, 255]),
    (b"\x01l\x02fn\x04test\x00", &[16, 65, 255]),
    (b"\x01x\x01w\x02fn\x04test\x00", &[16, 1]),
    (b"\x01q\x02fn\x04test\x00", &[1, 16]),
];

fn rich(settings: &mut Settings) {
    let text = "x".repeat(1000);
    let zone = format!(
        "[[records]]\nname = \"fn.test\"\ntxt = [\"{text}\"]\n[[records]]\nname = \"l.fn.test\"\ntxt = [\"{text}\", \"two\"]\n\
         https = [{{ alpn = [\"h2\"], port = 1 }}]\n[[records]]\nname = \"*.w.fn.test\"\ntxt = [\"{text}\"]\n"
    );
    settings.zone = toml::from_str(&zone).expect("settings of a zone");
    settings.identity.nsid = Some("a name as long as an operator may think of".to_owned());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_is_ten_times_its_request_unless_the_address_is_shown() {
    let (fixture, endpoints) = four_endpoints(rich).await;
    let mut truncated = 0;
    for endpoint in endpoints.iter().filter(|endpoint| !endpoint.tcp) {
        for (name, kinds) in QUESTIONS {
            for kind in kinds {
                let question = [name, &kind.to_be_bytes(), &[0, 1]].concat();
                let nsid = [&OPT[..10], &[4, 0, 3, 0, 0]].concat();
                for (count, opt) in [(0, b"".as_slice()), (1, OPT), (1, &nsid)] {
                    let asked = request([1, 0, 0, count], &[&question, opt]);
                    let answer = endpoint.exchange(&asked).await;
                    assert!(
                        answer.len() < 10 * asked.len(),
                        "{} for {} bytes: {kind}",
                        answer.len(),
                        asked.len()
                    );
                    truncated += usize::from(head(&answer).truncated);
                }
            }
        }
    }
    assert!(truncated > 0, "some of these answers are long");
    // Over TCP, where addresses cannot be forged, they are complete.
    let whole = endpoints[1].dig(&["l.fn.test", "TXT"]).await;
    assert!(endpoints[1].tcp && whole.contains("ANSWER: 2"), "{whole}");
    fixture.dns.stop().await;
}

/// Sends `count` requests made by `make`, and returns the numbers of complete and of truncated answers once all requests are accounted for.
async fn flood(
    fixture: &Fixture,
    server: SocketAddr,
    count: u16,
    make: impl Fn(u16) -> Vec<u8>,
) -> (u64, u64) {
    let dropped_before = fixture.metric("fdn_dns_limited_dropped_total").await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("socket");
    socket.connect(server).await.expect("connected");
    let (mut whole, mut slipped) = (0, 0);
    let mut buffer = [0; 4096];
    for id in 0..count {
        let mut bytes = make(id);
        bytes[..2].copy_from_slice(&id.to_be_bytes());
        socket.send(&bytes).await.expect("sent");
        // One at a time, so that no buffer overflows: an answer arrives, or the metric shows that there will be none.
        wait::until("an answer or none", async || {
            if let Ok(len) = socket.try_recv(&mut buffer) {
                let head = head(&buffer[..len]);
                assert_eq!(head.id, id);
                if head.truncated {
                    assert!(
                        len <= bytes.len(),
                        "without options, what sends to TCP is no longer than the request"
                    );
                    slipped += 1;
                } else {
                    whole += 1;
                }
                return Ok(());
            }
            let dropped = fixture.metric("fdn_dns_limited_dropped_total").await - dropped_before;
            if whole + slipped + dropped > u64::from(id) {
                Ok(())
            } else {
                Err(format!(
                    "{whole} answers, {slipped} truncated, {dropped} dropped"
                ))
            }
        })
        .await;
    }
    (whole, slipped)
}

/// The requests of a flood. With a limit of one per second, a test as slow as a second per request would not be limited.
const FLOOD: u16 = 50;

fn limited(settings: &mut Settings) {
    settings.limit.exempt.clear();
    // So low that even a very slow test does not get many more than the burst.
    settings.limit.names_per_second = 1;
    settings.limit.zone_per_second = 1;
    settings.limit.errors_per_second = 1;
    settings.limit.burst = DurationMs::from_secs(3);
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_are_limited_by_network_name_and_zone() {
    let fixture = Fixture::start(|s| {
        rich(s);
        limited(s);
    })
    .await;
    fixture
        .publish(fdn_core::message::Message::NetworkDesired(
            crate::common::network(1),
        ))
        .await;
    fixture.publish(crate::common::app("hello", 2, &[])).await;
    wait::until("hello to be there", async || {
        let text = fixture.dig(&["hello.fn.test", "+tcp"]).await;
        if text.contains("ANSWER: 2") {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    let server = fixture.dns.address();
    let nobody = |id: u16| {
        let label = format!("n{id:05}");
        request(
            [1, 0, 0, 0],
            &[
                &[6],
                label.as_bytes(),
                b"\x02fn\x04test\x00\x00\x01\x00\x01",
            ],
        )
    };
    let wild = |id: u16| {
        let label = format!("n{id:05}");
        request(
            [1, 0, 0, 0],
            &[
                &[6],
                label.as_bytes(),
                b"\x01w\x02fn\x04test\x00\x00\x1c\x00\x01",
            ],
        )
    };
    let hello = |_| request([1, 0, 0, 0], &[HELLO_A]);
    let foreign = |_| request([1, 0, 0, 0], &[b"\x07example\x03org\x00\x00\x01\x00\x01"]);
    // Made-up names count together: otherwise each of them would be answered.
    let (whole, slipped) = flood(&fixture, server, FLOOD, nobody).await;
    assert!(
        whole >= 4 && slipped >= 1,
        "{whole} whole, {slipped} truncated"
    );
    assert!(whole + slipped < u64::from(FLOOD), "some get no answer");
    let (whole, _) = flood(&fixture, server, FLOOD, hello).await;
    assert!(
        (4..u64::from(FLOOD)).contains(&whole),
        "a name has a limit of its own: {whole}"
    );
    let (whole, _) = flood(&fixture, server, FLOOD, foreign).await;
    assert!(
        (4..u64::from(FLOOD)).contains(&whole),
        "so have errors: {whole}"
    );
    // Names covered by a wildcard count together with those that do not exist, whether or not there is a record of the type.
    let (whole, _) = flood(&fixture, server, FLOOD, wild).await;
    assert!(whole < u64::from(FLOOD), "{whole}");
    // There are no limits over TCP and with a cookie.
    for option in ["+tcp", "+cookie=0123456789abcdef"] {
        assert!(
            fixture
                .dig(&["hello.fn.test", option])
                .await
                .contains("ANSWER: 2"),
            "{option}"
        );
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_no_honest_length_ends_its_connection() {
    let (fixture, endpoints) = four_endpoints(|_| {}).await;
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.tcp) {
        let mut stream = TcpStream::connect(endpoint.server)
            .await
            .expect("connected");
        stream.write_all(&[0xff, 0xff, 0, 0]).await.expect("sent");
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest).await);
        assert!(rest.is_empty());
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_takes_no_answer_and_one_that_says_nothing_are_let_go() {
    let fixture = Fixture::with_hello(|s| {
        rich(s);
        // Long enough for `dig` at the end, even on a busy machine.
        s.tcp.idle = DurationMs::from_secs(3);
    })
    .await;
    let server = fixture.dns.address();
    let silent = TcpStream::connect(server).await.expect("connected");
    let deaf = TcpStream::connect(server).await.expect("connected");
    let question = request([1, 0, 0, 0], &[b"\x01l\x02fn\x04test\x00\x00\x10\x00\x01"]);
    let framed = [
        &u16::try_from(question.len()).expect("short").to_be_bytes(),
        question.as_slice(),
    ]
    .concat();
    // The client requests megabytes and reads nothing, until the server no longer accepts its requests.
    let (reader, mut writer) = deaf.into_split();
    let asking = tokio::spawn(async move { while writer.write_all(&framed).await.is_ok() {} });
    wait::until("both to be let go", async || {
        match fixture.metric("fdn_dns_tcp_open").await {
            0 => Ok(()),
            n => Err(format!("{n} are open")),
        }
    })
    .await;
    asking.await.expect("the writer ends");
    drop((silent, reader));
    assert!(
        fixture
            .dig(&["hello.fn.test", "+tcp"])
            .await
            .contains("ANSWER: 2")
    );
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_that_hold_all_connections_lose_them_to_those_who_ask() {
    let fixture = Fixture::with_hello(|s| {
        s.tcp.connections = 8;
        s.tcp.per_client = 8;
        // Nobody waits that long here: the connections are closed because they are too many.
        s.tcp.idle = DurationMs::from_secs(5);
    })
    .await;
    let server = fixture.dns.address();
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(server).await.expect("connected");
        // Half of a length, and then nothing for a long time.
        stream.write_all(&[0]).await.expect("sent");
        held.push(stream);
    }
    wait::until("a place to be free", async || {
        let mut stream = TcpStream::connect(server)
            .await
            .map_err(|e| e.to_string())?;
        let asked = request([1, 0, 0, 0], &[HELLO_A]);
        let framed = [
            &u16::try_from(asked.len()).expect("short").to_be_bytes(),
            asked.as_slice(),
        ]
        .concat();
        stream.write_all(&framed).await.map_err(|e| e.to_string())?;
        let len = stream.read_u16().await.map_err(|e| e.to_string())?;
        let mut answer = vec![0; usize::from(len)];
        stream
            .read_exact(&mut answer)
            .await
            .map_err(|e| e.to_string())?;
        assert_eq!(head(&answer).counts[1], 2);
        Ok::<_, String>(())
    })
    .await;
    // UDP was not affected at all.
    assert!(
        fixture
            .dig(&["hello.fn.test", "+notcp"])
            .await
            .contains("ANSWER: 2")
    );
    drop(held);
    fixture.dns.stop().await;
}
