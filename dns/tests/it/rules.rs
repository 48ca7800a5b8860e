//! The rules of the protocol, each checked over UDP and TCP, IPv4 and IPv6. `docs/dns.md` lists them with their sources.

use std::net::SocketAddr;

use fdn_core::message::{Message, NetworkDesired};

use crate::common::{app, cluster, network};
use crate::endpoints::{HELLO_A, OPT, four_endpoints, head, request};

/// Asserts that the output of `dig` contains these parts.
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

fn has_not(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(!text.contains(part), "{part:?} is in\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn edns_versions_sizes_flags_and_options() {
    let (fixture, endpoints) = four_endpoints(|_| {}).await;
    for endpoint in &endpoints {
        let plain = endpoint.dig(&["hello.fn.test", "+noedns"]).await;
        has(&plain, &["NOERROR", "ANSWER: 2", "ADDITIONAL: 0"]);
        has_not(&plain, &["OPT PSEUDOSECTION"]);
        let with = endpoint.dig(&["hello.fn.test", "+bufsize=4096"]).await;
        has(&with, &["ANSWER: 2", "EDNS: version: 0, flags:; udp: 1232"]);
        let versions = ["+edns=1", "+edns=255"];
        for version in versions {
            let text = endpoint
                .dig(&["hello.fn.test", version, "+noednsnegotiation"])
                .await;
            has(
                &text,
                &[
                    "status: BADVERS",
                    "EDNS: version: 0",
                    "QUERY: 1, ANSWER: 0",
                    ";hello.fn.test.\t\t\tIN\tA",
                ],
            );
        }
        // Unknown options and flags are ignored and not returned; DO is (RFC 3225).
        let unknown = endpoint
            .dig(&[
                "hello.fn.test",
                "+ednsopt=65001:abcd",
                "+ednsopt=12:00",
                "+ednsflags=0x1234",
            ])
            .await;
        has(&unknown, &["NOERROR", "ANSWER: 2", "flags:; udp: 1232"]);
        has_not(&unknown, &["; OPT=", "MBZ", "PAD"]);
        has(
            &endpoint.dig(&["hello.fn.test", "+dnssec"]).await,
            &["flags: do; udp: 1232"],
        );
        // The option's length exceeds the record.
        let broken = [&OPT[..9], &[0, 5], &[0xfd, 0xe9, 0, 9, 1]].concat();
        let answer = endpoint
            .exchange(&request([1, 0, 0, 1], &[HELLO_A, &broken]))
            .await;
        assert_eq!(
            (head(&answer).code, head(&answer).counts),
            (1, [1, 0, 0, 1]),
            "{endpoint:?}"
        );
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_opt_record_of_the_root_in_the_additional_section() {
    let (fixture, endpoints) = four_endpoints(|_| {}).await;
    let owned = [b"\x01x".as_slice(), OPT].concat();
    for endpoint in &endpoints {
        for (counts, rest) in [
            ([1, 0, 0, 2], [HELLO_A, OPT, OPT]),
            ([1, 0, 0, 1], [HELLO_A, &owned, b""]),
        ] {
            let answer = endpoint.exchange(&request(counts, &rest)).await;
            let head = head(&answer);
            assert_eq!(
                (head.id, head.code, head.counts),
                (0x1267, 1, [1, 0, 0, 1]),
                "{endpoint:?}"
            );
            assert_eq!(
                &answer[12..],
                [HELLO_A, OPT].concat(),
                "question and OPT come back"
            );
        }
        let early = endpoint
            .exchange(&request([1, 1, 0, 0], &[HELLO_A, OPT]))
            .await;
        assert_eq!((head(&early).code, head(&early).counts), (1, [1, 0, 0, 0]));
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_subnets_are_exact_or_refused() {
    let (fixture, endpoints) = four_endpoints(|_| {}).await;
    fixture
        .publish(app(
            "hello",
            3,
            &[
                ("203.0.113.0/24", "eu-west"),
                ("127.0.0.0/8", "ap-south"),
                ("::1/128", "us-east"),
            ],
        ))
        .await;
    fixture
        .answers(
            "hello.fn.test",
            "203.0.113.0/24",
            &["127.0.1.1", "127.0.1.2"],
        )
        .await;
    for endpoint in &endpoints {
        for (option, shown) in [
            ("+subnet=203.0.113.0/24", "CLIENT-SUBNET: 203.0.113.0/24/24"),
            ("+subnet=203.0.113.7/32", "CLIENT-SUBNET: 203.0.113.7/32/24"),
            ("+subnet=2001:db8::/48", "CLIENT-SUBNET: 2001:db8::/48/"),
            ("+subnet=0.0.0.0/0", "CLIENT-SUBNET: 0.0.0.0/0/0"),
            ("+subnet=::/0", "CLIENT-SUBNET: ::/0/0"),
            ("+subnet=0", "CLIENT-SUBNET: 0.0.0.0/0/0"),
            ("+ednsopt=8:00000000", "CLIENT-SUBNET: 0/0/0"),
            // IPv4 clients written as IPv6 ones: they get what is bound for them, and the scope includes the mapped prefix.
            (
                "+subnet=::ffff:203.0.113.7/128",
                "CLIENT-SUBNET: ::ffff:203.0.113.7/128/120",
            ),
            (
                "+subnet=::ffff:203.0.113.0/120",
                "CLIENT-SUBNET: ::ffff:203.0.113.0/120/120",
            ),
        ] {
            has(
                &endpoint.dig(&["hello.fn.test", option]).await,
                &["NOERROR", "ANSWER: 2", shown],
            );
        }
        for (why, bytes) in [
            ("surplus byte", "00011800cb007100"),
            ("missing byte", "00011800cb00"),
            ("host bits", "00011700cb0071"),
            ("scope in a request", "00011818cb0071"),
            ("longer than IPv4", "00012100cb00710700"),
            (
                "longer than IPv6",
                "0002810020010db80000000000000000000000000000",
            ),
            ("unknown family", "00030800cb"),
            ("family 0 with an address", "00000800cb"),
            ("no length", "0001"),
        ] {
            let text = endpoint
                .dig(&["hello.fn.test", &format!("+ednsopt=8:{bytes}")])
                .await;
            has(
                &text,
                &["status: FORMERR", "QUERY: 1, ANSWER: 0", "EDNS: version: 0"],
            );
            has_not(&text, &["CLIENT-SUBNET"]);
            assert!(text.contains(";hello.fn.test."), "{why}: {text}");
        }
        // Without the option the resolver's address represents its clients, and no option is returned.
        let own = endpoint.dig(&["hello.fn.test"]).await;
        let third = if endpoint.server.is_ipv4() {
            "127.0.3."
        } else {
            "127.0.2."
        };
        has(&own, &[third]);
        has_not(&own, &["CLIENT-SUBNET"]);
        // Answers that are the same for all clients have scope 0.
        has(
            &endpoint
                .dig(&["fn.test", "SOA", "+subnet=203.0.113.0/24"])
                .await,
            &["CLIENT-SUBNET: 203.0.113.0/24/0"],
        );
        has_not(
            &endpoint
                .dig(&["example.org", "+subnet=203.0.113.0/24"])
                .await,
            &["CLIENT-SUBNET"],
        );
    }
    fixture.dns.stop().await;
}

/// Publishes a cluster with this many gateways, and binds `hello` to it.
async fn crowd(fixture: &crate::common::Fixture, gateways: u8) {
    let all: Vec<SocketAddr> = (1..=gateways)
        .map(|last| SocketAddr::from(([127, 0, 9, last], 8080)))
        .collect();
    let clusters = vec![cluster("us-east", 39.04, -77.49, &all)];
    let desired = NetworkDesired {
        clusters,
        ..network(9)
    };
    fixture.publish(Message::NetworkDesired(desired)).await;
    fdn_testkit::wait::until("all gateways to be answered", async || {
        let text = fixture.dig(&["hello.fn.test", "+tcp"]).await;
        if text.contains(&format!("ANSWER: {gateways}")) {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
}

fn size(text: &str) -> usize {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(";; MSG SIZE  rcvd: "));
    line.and_then(|n| n.parse().ok()).expect("a size")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_truncated_and_whole_over_tcp() {
    let (fixture, endpoints) = four_endpoints(|s| {
        s.answer.max_addresses = 255;
        s.limit.amplification = 0;
    })
    .await;
    crowd(&fixture, 100).await;
    for endpoint in &endpoints {
        for (option, limit) in [
            ("+noedns", 512),
            ("+bufsize=512", 512),
            ("+bufsize=100", 512),
            ("+bufsize=1232", 1232),
            ("+bufsize=65535", 1232),
        ] {
            let text = endpoint.dig(&["hello.fn.test", option, "+ignore"]).await;
            if endpoint.tcp {
                has(&text, &["flags: qr aa;", "ANSWER: 100"]);
            } else {
                has(
                    &text,
                    &["flags: qr aa tc;", "QUERY: 1, ANSWER: 0, AUTHORITY: 0"],
                );
                assert!(size(&text) <= limit, "{text}");
                assert_eq!(
                    text.contains("EDNS: version: 0"),
                    option != "+noedns",
                    "{text}"
                );
            }
        }
        // `dig` retries over TCP by itself.
        has(&endpoint.dig(&["hello.fn.test"]).await, &["ANSWER: 100"]);
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_come_back_as_spelled_and_compressed() {
    let (fixture, endpoints) = four_endpoints(|_| {}).await;
    for endpoint in &endpoints {
        let text = endpoint
            .dig(&["HeLLo.Fn.TesT", "+subnet=203.0.113.0/24"])
            .await;
        has(
            &text,
            &[
                ";HeLLo.Fn.TesT.\t\t\tIN\tA",
                "HeLLo.Fn.TesT.\t\t20\tIN\tA\t127.0.3.",
                "ANSWER: 2",
            ],
        );
        assert!(size(&text) <= 96, "{text}");
        has(
            &endpoint.dig(&["NoBody.Fn.TesT"]).await,
            &["NXDOMAIN", "Fn.TesT.\t\t30\tIN\tSOA"],
        );
        let answer = endpoint.exchange(&request([1, 0, 0, 0], &[HELLO_A])).await;
        // Both owner names are pointers to the question's name (RFC 1035, section 4.1.4).
        let records = &answer[12 + HELLO_A.len()..];
        assert_eq!(records.len(), 2 * 16);
        assert!(records.chunks(16).all(|record| record[..2] == [0xc0, 12]));
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_is_minimal() {
    let (fixture, endpoints) = four_endpoints(|_| {}).await;
    for endpoint in &endpoints {
        for name in ["hello.fn.test", "fn.test"] {
            let text = endpoint.dig(&[name, "ANY"]).await;
            has(&text, &["NOERROR", "ANSWER: 1", "HINFO\t\"RFC8482\" \"\""]);
        }
        has(
            &endpoint.dig(&["nobody.fn.test", "ANY"]).await,
            &["NXDOMAIN", "ANSWER: 0"],
        );
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_done_is_said() {
    let (fixture, endpoints) = four_endpoints(|_| {}).await;
    for endpoint in &endpoints {
        for opcode in ["1", "2", "3", "4", "5", "15"] {
            let text = endpoint
                .dig(&["hello.fn.test", &format!("+opcode={opcode}")])
                .await;
            has(
                &text,
                &[
                    "status: NOTIMP",
                    ";hello.fn.test.",
                    "EDNS: version: 0",
                    "ANSWER: 0",
                ],
            );
        }
        for arguments in [
            ["example.org", "A", "-c", "IN"],
            ["hello.fn.test", "A", "-c", "HS"],
            ["hello.fn.test", "A", "-c", "ANY"],
            ["hello.fn.test", "TXT", "-c", "CH"],
        ] {
            let text = endpoint.dig(&arguments).await;
            has(
                &text,
                &[
                    "status: REFUSED",
                    "flags: qr;",
                    "QUERY: 1, ANSWER: 0, AUTHORITY: 0",
                    "EDNS: version: 0",
                ],
            );
        }
        for (kind, code) in [
            ("TYPE41", "FORMERR"),
            ("TYPE128", "NOTIMP"),
            ("MAILB", "NOTIMP"),
            ("MAILA", "NOTIMP"),
            ("TYPE249", "NOTIMP"),
            ("TYPE250", "NOTIMP"),
        ] {
            let text = endpoint.dig(&["hello.fn.test", kind]).await;
            has(
                &text,
                &[
                    &format!("status: {code}"),
                    ";hello.fn.test.",
                    "EDNS: version: 0",
                ],
            );
        }
        for kind in ["TYPE65280", "MX", "URI", "DS", "DNSKEY", "SRV"] {
            has(
                &endpoint.dig(&["hello.fn.test", kind]).await,
                &["NOERROR", "ANSWER: 0, AUTHORITY: 1", "IN\tSOA"],
            );
        }
        // Zone transfers: types 252 and 251 (RFC 5936, section 2.2.1).
        for kind in [252, 251] {
            let question = [b"\x02fn\x04test\x00\x00".as_slice(), &[kind], b"\x00\x01"].concat();
            let answer = endpoint
                .exchange(&request([1, 0, 0, 0], &[&question]))
                .await;
            assert_eq!(
                (head(&answer).code, head(&answer).counts),
                (5, [1, 0, 0, 0]),
                "{endpoint:?}"
            );
        }
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_question_each() {
    let (fixture, endpoints) = four_endpoints(|_| {}).await;
    // The second question is for AAAA of the same name, by a pointer.
    let second = b"\xc0\x0c\x00\x1c\x00\x01".as_slice();
    for endpoint in &endpoints {
        let two = endpoint
            .exchange(&request([2, 0, 0, 1], &[HELLO_A, second, OPT]))
            .await;
        assert_eq!(
            (head(&two).code, head(&two).counts),
            (1, [2, 0, 0, 1]),
            "{endpoint:?}"
        );
        assert_eq!(&two[12..], [HELLO_A, second, OPT].concat());
        let none = endpoint.exchange(&request([0, 0, 0, 1], &[OPT])).await;
        assert_eq!((head(&none).code, head(&none).counts), (1, [0, 0, 0, 1]));
        let lied = endpoint
            .exchange(&request([0xffff, 0, 0, 0], &[HELLO_A]))
            .await;
        assert_eq!((head(&lied).code, head(&lied).counts), (1, [0, 0, 0, 0]));
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn negative_answers_carry_the_soa() {
    let (fixture, endpoints) = four_endpoints(|_| {}).await;
    fixture.publish(app("a-b", 3, &[])).await;
    fixture
        .answers("a-b.fn.test", "192.0.2.0/24", &["127.0.1.1", "127.0.1.2"])
        .await;
    let soa = "fn.test.\t\t30\tIN\tSOA\tns1.fn.test. hostmaster.fn.test. 3 3600 600 604800 30";
    for endpoint in &endpoints {
        let missing = endpoint.dig(&["nobody.fn.test"]).await;
        has(
            &missing,
            &[
                "status: NXDOMAIN",
                "flags: qr aa;",
                "ANSWER: 0, AUTHORITY: 1",
                soa,
            ],
        );
        has(
            &endpoint.dig(&["below.nobody.fn.test"]).await,
            &["status: NXDOMAIN", soa],
        );
        // No gateway has an IPv6 address: the name exists, but not the type.
        has(
            &endpoint.dig(&["hello.fn.test", "AAAA"]).await,
            &[
                "status: NOERROR",
                "flags: qr aa;",
                "ANSWER: 0, AUTHORITY: 1",
                soa,
            ],
        );
        // No name below an app exists (RFC 8020).
        has(
            &endpoint.dig(&["www.hello.fn.test"]).await,
            &["status: NXDOMAIN", soa],
        );
    }
    fixture.dns.stop().await;
}
