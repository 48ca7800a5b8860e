//! Transfers of the zone's fixed part to clients with a key: queried with `dig`, and by a secondary (`nsd`).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use fdn_core::DurationMs;
use fdn_dns::Settings;
use fdn_testkit::process::Program;
use fdn_testkit::{ports, wait};
use tokio::net::UdpSocket;

use crate::common::{Fixture, app, dig};
use crate::endpoints::{four_endpoints, head};

const ZONE: &str = r#"
serial = 100
servers = [{ name = "ns1.fn.test", addresses = ["127.0.0.1", "::1"] }, { name = "ns.example.org" }]

[[records]]
name = "fn.test"
txt = ["v=spf1 -all"]
caa = [{ tag = "issue", value = "ca.example.org" }]

[[records]]
name = "long.fn.test"
txt = ["one", "two"]
https = [{ priority = 1, alpn = ["h2", "h3"], port = 8443 }]
addresses = ["192.0.2.80", "2001:db8::80"]

[[records]]
name = "*.wild.fn.test"
ttl = "60s"
txt = ["from a wildcard"]
"#;
/// The content of the transfer, without the SOA record at both ends.
const RECORDS: [&str; 11] = [
    "*.wild.fn.test. 60 IN TXT \"from a wildcard\"",
    "fn.test. 3600 IN CAA 0 issue \"ca.example.org\"",
    "fn.test. 3600 IN NS ns.example.org.",
    "fn.test. 3600 IN NS ns1.fn.test.",
    "fn.test. 3600 IN TXT \"v=spf1 -all\"",
    "long.fn.test. 3600 IN A 192.0.2.80",
    "long.fn.test. 3600 IN AAAA 2001:db8::80",
    "long.fn.test. 3600 IN HTTPS 1 . alpn=\"h2,h3\" port=8443",
    "long.fn.test. 3600 IN TXT \"one\"",
    "long.fn.test. 3600 IN TXT \"two\"",
    "ns1.fn.test. 3600 IN A 127.0.0.1",
];
/// Secrets of 32 bytes in base64.
const SECRET: &str = "c2VjcmV0IG9mIDMyIG9jdGV0cywgc3VyZWx5LCB5ZXM=";
const OTHER: &str = "c2VjcmV0IG9mIDMyIG9jdGV0cywgc3VyZWx5LCBubyE=";

/// Three keys, one of each algorithm.
fn keyed(settings: &mut Settings, dir: &Path) {
    settings.zone = toml::from_str(ZONE).expect("settings of a zone");
    let path = dir.join("secret");
    std::fs::write(&path, SECRET).expect("written");
    let keys: String = ["256", "384", "512"]
        .map(|bits| format!("[[keys]]\nname = \"k{bits}.fn.test\"\nalgorithm = \"hmac-sha{bits}\"\nsecret_file = {path:?}\n"))
        .concat();
    settings.transfer = toml::from_str(&keys).expect("settings of transfers");
}

fn key(bits: &str, secret: &str) -> String {
    format!("hmac-sha{bits}:k{bits}.fn.test:{secret}")
}

/// The output of `kdig` over TCP: unlike `dig` it shows why there is no transfer.
async fn kdig(server: SocketAddr, arguments: &[&str]) -> String {
    let output = tokio::process::Command::new("kdig")
        .arg(format!("@{}", server.ip()))
        .args([
            "-p",
            &server.port().to_string(),
            "+tcp",
            "+retry=0",
            "+time=30",
        ])
        .args(arguments)
        .output()
        .await
        .expect("these tests need the client `kdig` (Debian package knot-dnsutils)");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// The records in the output of `dig`, with single spaces between their fields.
fn records(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with(';') && !line.is_empty());
    let lines = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.contains(" TSIG ")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_a_key_gets_the_fixed_part_whole() {
    let dir = tempfile::tempdir().expect("folder");
    let (fixture, endpoints) = four_endpoints(|s| keyed(s, dir.path())).await;
    let soa = "fn.test. 3600 IN SOA ns1.fn.test. hostmaster.fn.test. 102 3600 600 604800 30";
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.tcp) {
        for bits in ["256", "384", "512"] {
            let key = key(bits, SECRET);
            for kind in ["AXFR", "IXFR=101", "IXFR=4294967000"] {
                let text = endpoint.dig(&["fn.test", kind, "-y", &key]).await;
                // `dig` verifies the signatures of all messages, and reports an error.
                assert!(
                    !text.contains("erify") && !text.contains("failed"),
                    "{kind}: {text}"
                );
                let mut got = records(&text);
                assert_eq!(
                    (
                        got.first().map(String::as_str),
                        got.last().map(String::as_str)
                    ),
                    (Some(soa), Some(soa)),
                    "{kind}: {text}"
                );
                got = got[1..got.len() - 1].to_vec();
                got.sort();
                let mut expected = RECORDS.map(str::to_owned).to_vec();
                expected.push("ns1.fn.test. 3600 IN AAAA ::1".to_owned());
                expected.sort();
                assert_eq!(got, expected, "{kind}");
            }
            // A client with the newest version gets a single SOA record (RFC 1995, section 2).
            for kind in ["IXFR=102", "IXFR=103"] {
                let text = endpoint.dig(&["fn.test", kind, "-y", &key]).await;
                assert_eq!(records(&text), [soa], "{kind}: {text}");
            }
        }
    }
    let key = key("256", SECRET);
    for endpoint in &endpoints {
        // Any query may be signed, and gets a signed answer.
        for (name, kind, expected) in [
            ("fn.test", "SOA", soa),
            ("hello.fn.test", "A", "hello.fn.test. 20 IN A 127.0."),
            ("nobody.fn.test", "A", "IN SOA"),
        ] {
            let text = endpoint.dig(&[name, kind, "-y", &key]).await;
            assert!(
                !text.contains("erify") && text.contains(";; TSIG PSEUDOSECTION"),
                "{text}"
            );
            assert!(text.contains("NOERROR 0"), "{text}");
            assert!(
                records(&text)
                    .iter()
                    .any(|record| record.contains(expected)),
                "{text}"
            );
        }
    }
    // Over UDP the answer is a single SOA record.
    let text = endpoints[0]
        .dig(&["fn.test", "IXFR=5", "-y", &key, "+notcp"])
        .await;
    assert_eq!(records(&text), [soa], "{text}");
    assert_eq!(
        fixture
            .metric("fdn_dns_transfers_total{answer=\"whole\"}")
            .await,
        18
    );
    assert_eq!(
        fixture
            .metric("fdn_dns_transfers_total{answer=\"current\"}")
            .await,
        12
    );
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_gets_it() {
    let dir = tempfile::tempdir().expect("folder");
    let (fixture, endpoints) = four_endpoints(|s| keyed(s, dir.path())).await;
    let good = key("256", SECRET);
    let wrong = key("256", OTHER);
    let strange = format!("hmac-sha256:nobody.fn.test:{SECRET}");
    let mixed = format!("hmac-sha512:k256.fn.test:{SECRET}");
    for endpoint in &endpoints {
        // A wrong secret, name or algorithm; for any query.
        for (key, expected) in [(&wrong, "BADSIG"), (&strange, "BADKEY"), (&mixed, "BADKEY")] {
            let text = endpoint.dig(&["hello.fn.test", "A", "-y", key]).await;
            assert!(
                text.contains("status: NOTAUTH") && text.contains("ANSWER: 0"),
                "{text}"
            );
            assert!(text.contains(&format!(" {expected} 0")), "{text}");
            if endpoint.tcp {
                let text = kdig(endpoint.server, &["fn.test", "AXFR", "-y", key]).await;
                assert!(text.contains(&format!("error '{expected}'")), "{text}");
            }
        }
    }
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.tcp) {
        for (arguments, expected) in [
            // Without a key.
            (&["fn.test", "AXFR"][..], "REFUSED"),
            (&["fn.test", "IXFR=1"], "REFUSED"),
            (&["hello.fn.test", "AXFR"], "REFUSED"),
            // Names that are not a zone of this server.
            (&["hello.fn.test", "AXFR", "-y", &good], "NOTAUTH"),
            (&["example.org", "AXFR", "-y", &good], "NOTAUTH"),
        ] {
            let text = kdig(endpoint.server, arguments).await;
            assert!(
                text.contains(&format!("error '{expected}'")),
                "{arguments:?}: {text}"
            );
        }
    }
    for reason in ["BADSIG", "BADKEY"] {
        let name = format!("fdn_dns_signed_requests_denied_total{{reason=\"{reason}\"}}");
        assert!(fixture.metric(&name).await >= 4, "{name}");
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_longer_than_a_message_comes_in_several() {
    let dir = tempfile::tempdir().expect("folder");
    let text = "x".repeat(250);
    let (fixture, endpoints) = four_endpoints(|s| {
        keyed(s, dir.path());
        let many: String = (0..500)
            .map(|n| format!("[[records]]\nname = \"n{n:03}.fn.test\"\ntxt = [\"{text}\"]\n"))
            .collect();
        s.zone = toml::from_str(&format!("{ZONE}\n{many}")).expect("settings of a zone");
    })
    .await;
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.tcp) {
        let got = endpoint
            .dig(&["fn.test", "AXFR", "-y", &key("512", SECRET)])
            .await;
        assert!(
            !got.contains("erify"),
            "{}",
            &got[got.len().saturating_sub(500)..]
        );
        assert_eq!(records(&got).len(), RECORDS.len() + 1 + 500 + 2);
        let summary = got.lines().find(|line| line.starts_with(";; XFR size"));
        let messages = summary.and_then(|line| {
            line.split("messages ")
                .nth(1)?
                .split(',')
                .next()?
                .parse::<u32>()
                .ok()
        });
        assert!(messages.is_some_and(|messages| messages > 5), "{summary:?}");
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secondary_is_told_of_changes_and_fetches_them() {
    let dir = tempfile::tempdir().expect("folder");
    let own = ports::local();
    let secondary = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::local()));
    let home = dir.path().display();
    let config = format!(
        "server:\n  ip-address: 127.0.0.1@{port}\n  username: \"\"\n  zonesdir: \"{home}\"\n  database: \"\"\n  pidfile: \"{home}/pid\"\n  \
         xfrdfile: \"{home}/state\"\n  xfrdir: \"{home}\"\n  zonelistfile: \"{home}/zones\"\n  server-count: 1\n  verbosity: 2\n\
         remote-control:\n  control-enable: no\nkey:\n  name: \"k256.fn.test\"\n  algorithm: hmac-sha256\n  secret: \"{SECRET}\"\n\
         zone:\n  name: \"fn.test\"\n  zonefile: \"copy\"\n  request-xfr: 127.0.0.1@{own} k256.fn.test\n  allow-notify: 127.0.0.1 k256.fn.test\n",
        port = secondary.port(),
    );
    let file = dir.path().join("nsd.conf");
    std::fs::write(&file, config).expect("written");
    // It listens before the server starts, so that the first notice is received; refreshes are an hour apart.
    let mut nsd = Program::new("nsd", ["-d", "-c", &file.display().to_string()])
        .start(&dir.path().join("log"))
        .expect("these tests need the secondary `nsd` (Debian package nsd)");
    wait::until("the secondary to listen", async || {
        assert!(nsd.ended().is_none(), "it ended: {}", nsd.log());
        tokio::net::TcpStream::connect(secondary).await.map(drop)
    })
    .await;
    let fixture = Fixture::with_hello(|s| {
        keyed(s, dir.path());
        s.listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, own))];
        s.transfer.notify = toml::from_str::<fdn_dns::settings::TransferSettings>(&format!(
            "notify = [{{ address = \"{secondary}\", key = \"k256.fn.test\" }}]"
        ))
        .expect("a secondary")
        .notify;
        s.transfer.notify_pause = DurationMs::from_millis(50);
    })
    .await;
    let holds = async |serial: &str| {
        wait::until("the secondary to hold the zone", async || {
            let text = dig(secondary, &["fn.test", "SOA", "+short"]).await;
            if text.contains(serial) {
                Ok(())
            } else {
                Err(format!("{text}\n{}", nsd.log()))
            }
        })
        .await;
    };
    holds(" 102 ").await;
    for (name, kind, expected) in [
        ("fn.test", "CAA", "ca.example.org"),
        ("x.wild.fn.test", "TXT", "from a wildcard"),
        ("long.fn.test", "HTTPS", "alpn=\"h2,h3\""),
    ] {
        let text = dig(secondary, &[name, kind, "+short"]).await;
        assert!(text.contains(expected), "{name} {kind}: {text}");
    }
    fixture.publish(app("world", 9, &[])).await;
    holds(" 109 ").await;
    wait::until("the notices to be answered", async || {
        match fixture
            .metric("fdn_dns_notices_total{result=\"answered\"}")
            .await
        {
            0 => Err("not yet"),
            _ => Ok(()),
        }
    })
    .await;
    nsd.stop(Duration::from_secs(30)).expect("stopped");
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secondary_that_is_silent_gets_so_many_notices() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.expect("socket");
    let address = silent.local_addr().expect("address");
    let dir = tempfile::tempdir().expect("folder");
    let fixture = Fixture::start(|s| {
        keyed(s, dir.path());
        s.transfer.notify = toml::from_str::<fdn_dns::settings::TransferSettings>(&format!(
            "notify = [{{ address = \"{address}\", key = \"k256.fn.test\" }}]"
        ))
        .expect("a secondary")
        .notify;
        s.transfer.notify_attempts = 3;
        s.transfer.notify_timeout = DurationMs::from_millis(50);
    })
    .await;
    wait::until("the server to give up", async || {
        match fixture
            .metric("fdn_dns_notices_total{result=\"unanswered\"}")
            .await
        {
            1 => Ok(()),
            n => Err(format!("{n}")),
        }
    })
    .await;
    let (mut count, mut bytes) = (0, vec![0; 4096]);
    while let Ok(len) = silent.try_recv(&mut bytes) {
        count += 1;
        let notice = &bytes[..len];
        // Opcode 4, authoritative; the zone's SOA as question and as answer, and a signature (RFC 1996, section 3.7).
        assert_eq!(notice[2..4], [0x24, 0]);
        assert_eq!(head(notice).counts, [1, 1, 0, 1]);
        assert!(notice[12..].starts_with(b"\x02fn\x04test\x00\x00\x06\x00\x01"));
    }
    assert_eq!(count, 3);
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_that_are_none_are_refused() {
    let dir = tempfile::tempdir().expect("folder");
    for (text, expected) in [
        ("no base64!", "at least 16 bytes"),
        ("c2hvcnQ=", "at least 16 bytes"),
    ] {
        let mut settings = crate::common::settings(dir.path());
        keyed(&mut settings, dir.path());
        std::fs::write(dir.path().join("secret"), text).expect("written");
        let error = settings.guard().expect_err("no secret").to_string();
        assert!(
            error.contains(expected) && error.contains("secret_file"),
            "{error}"
        );
        assert!(!error.contains(text), "{error}");
    }
}
