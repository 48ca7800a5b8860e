//! A signed zone, as seen by an independent validator (`delv`, from Debian's bind9-dnsutils).

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use fdn_core::Timestamp;
use fdn_testkit::wait;
use serde_json::Value;

use crate::endpoints::{Endpoint, HELLO_A, OPT, OPT_CO, OPT_DO, four_endpoints, head, request};
use crate::keys::Keys;
use crate::relay::Relay;
use crate::texts;

/// The output of `delv` for an answer.
async fn delv(endpoint: &Endpoint, anchor: &Path, name: &str, kind: &str) -> String {
    let mut command = tokio::process::Command::new("delv");
    if endpoint.server.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST) {
        // From the server's own address it might get the server's port, and receive its own query.
        command.args(["-b", "127.0.0.2"]);
    }
    let output = command
        .arg(format!("@{}", endpoint.server.ip()))
        .args(["-p", &endpoint.server.port().to_string(), "-a"])
        .arg(anchor)
        .args(["+root=fn.test", "+multiline"])
        .args(endpoint.tcp.then_some("+tcp"))
        .args([name, kind])
        .output()
        .await
        .expect("these tests need the validator `delv` (Debian package bind9-dnsutils)");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn validated(text: &str) -> bool {
    text.starts_with("; fully validated")
}

fn denied(text: &str) -> bool {
    text.contains("; negative response, fully validated")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exists_validates() {
    let keys = Keys::new(&[(100, None)]);
    let (fixture, endpoints) = four_endpoints(|s| keys.set(s)).await;
    let anchor = keys.anchor(0);
    let acme = "_acme-challenge.hello.fn.test";
    fixture.publish(texts::told(acme, 10, &["one"])).await;
    texts::values(&fixture, acme, &["one"]).await;
    assert!(validated(&delv(&endpoints[0], &anchor, acme, "TXT").await));
    // A changed record set is signed again.
    fixture
        .publish(texts::told(acme, 11, &["one", "two"]))
        .await;
    texts::values(&fixture, acme, &["one", "two"]).await;
    for endpoint in &endpoints {
        for (name, kind, expected) in [
            (acme, "TXT", "\"two\""),
            ("hello.fn.test", "A", "127.0."),
            ("HELLO.fn.TEST", "A", "127.0."),
            ("hello.fn.test", "HTTPS", "alpn=\"h2\""),
            ("fn.test", "SOA", "ns1.fn.test."),
            ("fn.test", "NS", "ns1.fn.test."),
            ("fn.test", "TXT", "v=spf1 -all"),
            ("fn.test", "CAA", "ca.example.org"),
            ("fn.test", "DNSKEY", "257 3 13"),
            ("fn.test", "CDS", " 13 2"),
            ("fn.test", "CDNSKEY", "257 3 13"),
            ("ns1.fn.test", "A", "127.0.0.1"),
            ("long.fn.test", "TXT", "0123456789"),
            ("long.fn.test", "HTTPS", "alpn=\"h2,h3\""),
            ("long.fn.test", "A", "192.0.2.80"),
            ("long.fn.test", "AAAA", "2001:db8::80"),
            ("any.wild.fn.test", "TXT", "from a wildcard"),
            ("a.b.wild.fn.test", "A", "192.0.2.81"),
            ("*.wild.fn.test", "TXT", "from a wildcard"),
            ("leaf.branch.wild.fn.test", "TXT", "exact"),
        ] {
            let text = delv(endpoint, &anchor, name, kind).await;
            assert!(
                validated(&text) && text.contains(expected),
                "{endpoint:?} {name} {kind}: {text}"
            );
        }
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_is_denied_validly() {
    let keys = Keys::new(&[(100, None)]);
    let (fixture, endpoints) = four_endpoints(|s| keys.set(s)).await;
    let anchor = keys.anchor(0);
    let long = [
        ["x".repeat(63).as_str(); 3].join(".").as_str(),
        &"y".repeat(53),
        "fn.test",
    ]
    .join(".");
    for endpoint in &endpoints {
        for (name, kind) in [
            // Types that do not exist: at an app, a name server, the apex, a wildcard, an empty non-terminal.
            ("hello.fn.test", "AAAA"),
            ("hello.fn.test", "TXT"),
            ("ns1.fn.test", "AAAA"),
            ("fn.test", "A"),
            ("any.wild.fn.test", "MX"),
            ("any.wild.fn.test", "AAAA"),
            ("branch.wild.fn.test", "A"),
            ("wild.fn.test", "TXT"),
            // Names that do not exist.
            ("nobody.fn.test", "A"),
            ("NoBody.fn.test", "AAAA"),
            ("deep.below.nobody.fn.test", "TXT"),
            ("x.hello.fn.test", "A"),
            (&long, "A"),
        ] {
            let text = delv(endpoint, &anchor, name, kind).await;
            assert!(denied(&text), "{endpoint:?} {name} {kind}: {text}");
        }
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn denials_are_compact() {
    let keys = Keys::new(&[(100, None)]);
    let (fixture, endpoints) = four_endpoints(|s| keys.set(s)).await;
    for endpoint in &endpoints {
        let nobody = endpoint.dig(&["nobody.fn.test", "A", "+dnssec"]).await;
        assert!(
            nobody.contains("status: NOERROR") && nobody.contains("AUTHORITY: 4"),
            "{nobody}"
        );
        assert!(
            nobody.contains("NSEC\t\\000.nobody.fn.test. RRSIG NSEC TYPE128"),
            "{nobody}"
        );
        // A client that supports compact denial gets NXDOMAIN; a client that does not ask for proofs gets it anyway.
        let question = b"\x06nobody\x02fn\x04test\x00\x00\x01\x00\x01";
        let knows = endpoint
            .exchange(&request([1, 0, 0, 1], &[question, OPT_CO]))
            .await;
        assert_eq!((head(&knows).code, head(&knows).counts[2]), (3, 4));
        let plain = endpoint.dig(&["nobody.fn.test", "A", "+nodnssec"]).await;
        assert!(
            plain.contains("status: NXDOMAIN") && plain.contains("AUTHORITY: 1"),
            "{plain}"
        );
        // An empty non-terminal and an app have exactly their own types.
        let empty = endpoint.dig(&["wild.fn.test", "A", "+dnssec"]).await;
        assert!(
            empty.contains("NSEC\t\\000.wild.fn.test. RRSIG NSEC\n"),
            "{empty}"
        );
        let app = endpoint.dig(&["hello.fn.test", "AAAA", "+dnssec"]).await;
        assert!(
            app.contains("\\000.hello.fn.test. A RRSIG NSEC TYPE65\n")
                || app.contains("\\000.hello.fn.test. A RRSIG NSEC HTTPS\n"),
            "{app}"
        );
        let apex = endpoint.dig(&["fn.test", "MX", "+dnssec"]).await;
        assert!(
            apex.contains("NS SOA TXT RRSIG NSEC DNSKEY CDS CDNSKEY CAA\n"),
            "{apex}"
        );
        // NSEC can be queried directly; NXNAME, the type that stands for nonexistence, cannot.
        let proof = endpoint.dig(&["hello.fn.test", "NSEC", "+dnssec"]).await;
        assert!(
            proof.contains("ANSWER: 2") && proof.contains("A RRSIG NSEC"),
            "{proof}"
        );
        let signature = endpoint.dig(&["hello.fn.test", "RRSIG"]).await;
        assert!(
            signature.contains("ANSWER: 1") && signature.contains("RRSIG\tNSEC 13 3"),
            "{signature}"
        );
        let nxname = endpoint.dig(&["hello.fn.test", "TYPE128"]).await;
        assert!(nxname.contains("status: FORMERR"), "{nxname}");
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_and_signatures_are_as_asked() {
    let keys = Keys::new(&[(100, None)]);
    let (fixture, endpoints) = four_endpoints(|s| keys.set(s)).await;
    for endpoint in &endpoints {
        let text = endpoint
            .dig(&["hello.fn.test", "A", "+dnssec", "+adflag", "+cdflag"])
            .await;
        assert!(
            text.contains("flags: qr aa cd; QUERY: 1, ANSWER: 3"),
            "{text}"
        );
        assert!(text.contains("flags: do;"), "{text}");
        let any = endpoint.dig(&["hello.fn.test", "ANY", "+dnssec"]).await;
        assert!(any.contains("RRSIG\tHINFO 13 3"), "{any}");
        let ns = endpoint.dig(&["fn.test", "NS", "+dnssec"]).await;
        assert!(
            ns.contains("ANSWER: 2") && ns.contains("RRSIG\tNS 13 2"),
            "{ns}"
        );
        let glue = ns.split("ADDITIONAL SECTION").nth(1).expect("glue");
        assert!(
            glue.contains("ns1.fn.test.") && !glue.contains("RRSIG"),
            "{ns}"
        );
        // Errors and answers about other zones have no signatures.
        let refused = endpoint.dig(&["example.org", "A", "+dnssec"]).await;
        assert!(
            refused.contains("status: REFUSED") && !refused.contains("RRSIG"),
            "{refused}"
        );
    }
    fixture.dns.stop().await;
}

/// Questions of all kinds: names and types.
const QUESTIONS: [(&[u8], &[u16]); 6] = [
    (b"\x02fn\x04test\x00", &[1, 2, 6, 16, 257, 43, 255]),
    (b"\x05hello\x02fn\x04test\x00", &[1, 28, 65, 16, 255]),
    (b"\x04long\x02fn\x04test\x00", &[1, 16, 65]),
    (b"\x01x\x04wild\x02fn\x04test\x00", &[1, 15, 16]),
    (b"\x04wild\x02fn\x04test\x00", &[1]),
    (b"\x06nobody\x02fn\x04test\x00", &[1, 28]),
];

#[tokio::test(flavor = "multi_thread")]
async fn without_the_bit_answers_are_those_of_an_unsigned_zone() {
    let keys = Keys::new(&[(100, None)]);
    let (signed, signed_endpoints) = four_endpoints(|s| keys.set(s)).await;
    let (plain, plain_endpoints) = four_endpoints(|s| {
        keys.set(s);
        s.zone.dnssec.key_file = None;
    })
    .await;
    for (endpoint, other) in signed_endpoints.iter().zip(&plain_endpoints) {
        for (name, kinds) in QUESTIONS {
            for kind in kinds {
                let question = [name, &kind.to_be_bytes(), &[0, 1]].concat();
                for (count, opt) in [(0, b"".as_slice()), (1, OPT)] {
                    let asked = request([1, 0, 0, count], &[&question, opt]);
                    assert_eq!(
                        endpoint.exchange(&asked).await,
                        other.exchange(&asked).await,
                        "{asked:?}"
                    );
                }
            }
        }
    }
    let (status, text) = plain.admin("/dnssec").await;
    assert_eq!(
        (status, text.as_str()),
        (200, r#"{"signed":false,"keys":[]}"#)
    );
    signed.dns.stop().await;
    plain.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_answers_keep_to_the_sizes() {
    let keys = Keys::new(&[(100, None), (5, None)]);
    let (fixture, endpoints) = four_endpoints(|s| keys.set(s)).await;
    let mut truncated = 0;
    for endpoint in endpoints.iter().filter(|endpoint| !endpoint.tcp) {
        for (name, kinds) in QUESTIONS {
            for kind in kinds.iter().chain(&[48, 59, 60, 47, 46]) {
                let question = [name, &kind.to_be_bytes(), &[0, 1]].concat();
                let asked = request([1, 0, 0, 1], &[&question, OPT_DO]);
                let answer = endpoint.exchange(&asked).await;
                assert!(
                    answer.len() < 10 * asked.len() && answer.len() <= 1232,
                    "{kind}"
                );
                truncated += usize::from(head(&answer).truncated);
            }
        }
    }
    assert!(truncated > 0, "some of these are long");
    // Over TCP the answers are complete.
    let whole = endpoints[1].dig(&["fn.test", "DNSKEY", "+dnssec"]).await;
    assert!(endpoints[1].tcp && whole.contains("ANSWER: 4"), "{whole}");
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_signed_twice_and_floods_of_names_make_few_signatures() {
    let keys = Keys::new(&[(100, None)]);
    let (fixture, endpoints) = four_endpoints(|s| {
        keys.set(s);
        s.zone.dnssec.denials_per_second = 1;
    })
    .await;
    let (udp, tcp) = (endpoints[0], endpoints[1]);
    let hello = request([1, 0, 0, 1], &[HELLO_A, OPT_DO]);
    udp.exchange(&hello).await;
    let made = fixture.metric("fdn_dns_signatures_total").await;
    for endpoint in &endpoints {
        assert_eq!(head(&endpoint.exchange(&hello).await).counts[1], 3);
    }
    assert_eq!(fixture.metric("fdn_dns_signatures_total").await, made);
    assert!(fixture.metric("fdn_dns_signatures_held").await >= 1);
    let mut cut = 0;
    for number in 0..50 {
        let label = format!("n{number:05}");
        let rest: [&[u8]; 4] = [
            &[6],
            label.as_bytes(),
            b"\x02fn\x04test\x00\x00\x01\x00\x01",
            OPT_DO,
        ];
        let asked = request([1, 0, 0, 1], &rest);
        cut += usize::from(head(&udp.exchange(&asked).await).truncated);
        // Over TCP there is always a proof, and afterwards over UDP too.
        assert_eq!(head(&tcp.exchange(&asked).await).counts[2], 4);
        assert_eq!(head(&udp.exchange(&asked).await).counts[2], 4);
    }
    assert!(cut > 0, "more names than a second has proofs");
    assert!(fixture.metric("fdn_dns_signatures_limited_total").await >= 1);
    assert_eq!(fixture.metric("fdn_dns_denial_signatures_held").await, 50);
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_roll_over_without_a_gap() {
    // Hours since the two keys were created, and since the second one's DS record was seen; then which key signs the zone, which one the
    // parent is asked for, and whether the first one's DS record still validates the zone.
    type Step = (u64, Option<u64>, &'static str, [usize; 2], bool);
    let stages: [Step; 5] = [
        (1, None, "published", [0, 0], true),
        (3, None, "ready", [0, 1], true),
        (40, Some(30), "waiting", [0, 1], true),
        (60, Some(50), "active", [1, 1], true),
        (200, Some(100), "active", [1, 1], false),
    ];
    let keys = Keys::new(&[(1000, None)]);
    let (fixture, endpoints) = four_endpoints(|s| keys.set(s)).await;
    let mut file = keys.read();
    file.add(
        &keys.master().keys(false).expect("the master key"),
        Timestamp(0),
    )
    .expect("a key");
    for (created, seen, stage, [signing, wanted], first_holds) in stages {
        keys.write(file.clone(), &[(1000, None), (created, seen)]);
        let tags = keys.tags();
        wait::until(&format!("the second key to be {stage}"), async || {
            let (_, text) = fixture.admin("/dnssec").await;
            let state: Value = serde_json::from_str(&text).expect("JSON");
            let first = if first_holds {
                state["keys"][0]["stage"] != "removed"
            } else {
                state["keys"][0]["stage"] == "removed"
            };
            if state["keys"][1]["stage"] == stage && state["keys"][1]["tag"] == tags[1] && first {
                Ok(())
            } else {
                Err(text)
            }
        })
        .await;
        for endpoint in &endpoints {
            let answer = endpoint.dig(&["hello.fn.test", "A", "+dnssec"]).await;
            assert!(
                answer.contains(&format!(" {} fn.test. ", tags[signing])),
                "{stage}: {answer}"
            );
            let cds = endpoint.dig(&["fn.test", "CDS", "+short"]).await;
            assert!(
                cds.starts_with(&format!("{} 13 2 ", tags[wanted])) && cds.lines().count() == 1,
                "{stage}: {cds}"
            );
            for (key, holds) in [(0, first_holds), (1, true)] {
                let anchor = keys.anchor(key);
                for (name, kind) in [
                    ("fn.test", "DNSKEY"),
                    ("hello.fn.test", "A"),
                    ("x.wild.fn.test", "TXT"),
                ] {
                    let text = delv(endpoint, &anchor, name, kind).await;
                    assert_eq!(
                        validated(&text),
                        holds,
                        "{endpoint:?} {stage} {key} {name}: {text}"
                    );
                }
                let text = delv(endpoint, &anchor, "nobody.fn.test", "A").await;
                assert_eq!(denied(&text), holds, "{endpoint:?} {stage} {key}: {text}");
            }
        }
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_with_the_same_keys_are_equally_right() {
    let keys = Keys::new(&[(100, None)]);
    let (first, endpoints) = four_endpoints(|s| keys.set(s)).await;
    let (second, others) = four_endpoints(|s| keys.set(s)).await;
    let anchor = keys.anchor(0);
    for endpoint in endpoints.iter().chain(&others) {
        assert!(validated(
            &delv(endpoint, &anchor, "hello.fn.test", "A").await
        ));
        assert!(denied(
            &delv(endpoint, &anchor, "nobody.fn.test", "A").await
        ));
    }
    // A key that is not in the zone does not validate it.
    let strange = Keys::new(&[(100, None)]);
    let text = delv(&endpoints[0], &strange.anchor(0), "hello.fn.test", "A").await;
    assert!(
        !validated(&text) && text.contains("resolution failed"),
        "{text}"
    );
    first.dns.stop().await;
    second.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_on_the_way_is_refused() {
    let keys = Keys::new(&[(100, None)]);
    let (fixture, endpoints) = four_endpoints(|s| keys.set(s)).await;
    let anchor = keys.anchor(0);
    // An address, the type list that denies a name, and the one that denies a type.
    let changes: [(&[u8], &[u8]); 3] = [
        (&[192, 0, 2, 80], &[192, 0, 2, 66]),
        (
            b"\x00\x11\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\x80",
            b"\x00\x11\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\x40",
        ),
        (b"\x00\x06\0\0\x80\0\0\x03", b"\x00\x06\0\0\x00\0\0\x03"),
    ];
    for endpoint in &endpoints {
        let honest = Relay::start(endpoint.server, None).await;
        let relay = Relay::start(endpoint.server, Some(changes.to_vec())).await;
        let through = |server| Endpoint {
            server,
            tcp: endpoint.tcp,
        };
        let (fair, foul) = (through(honest.address), through(relay.address));
        assert!(
            validated(&delv(&fair, &anchor, "long.fn.test", "A").await),
            "{endpoint:?}"
        );
        assert!(
            denied(&delv(&fair, &anchor, "nobody.fn.test", "A").await),
            "{endpoint:?}"
        );
        for name in ["long.fn.test", "nobody.fn.test"] {
            let text = delv(&foul, &anchor, name, "A").await;
            assert!(
                !validated(&text) && !denied(&text),
                "{endpoint:?} {name}: {text}"
            );
            assert!(
                text.contains("resolution failed"),
                "{endpoint:?} {name}: {text}"
            );
        }
        // Unchanged answers still validate through it.
        assert!(
            validated(&delv(&foul, &anchor, "fn.test", "TXT").await),
            "{endpoint:?}"
        );
        assert!(relay.changed() > 0);
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_file_that_cannot_be_read_changes_nothing() {
    let keys = Keys::new(&[(100, None)]);
    let (fixture, endpoints) = four_endpoints(|s| keys.set(s)).await;
    let anchor = keys.anchor(0);
    std::fs::write(keys.path(), "{").expect("written");
    wait::until("the file to be found broken", async || {
        match fixture.metric("fdn_dns_key_file_errors_total").await {
            0 => Err("not yet"),
            _ => Ok(()),
        }
    })
    .await;
    assert!(validated(
        &delv(&endpoints[0], &anchor, "hello.fn.test", "A").await
    ));
    fixture.dns.stop().await;
}
