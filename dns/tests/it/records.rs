//! The operator's own records: several values, certificate authorities, services, wildcards.

use fdn_dns::Settings;

use crate::endpoints::{Endpoint, four_endpoints};

const ZONE: &str = r#"
app_service = { alpn = ["h2", "http/1.1"], port = 8443 }

[[records]]
name = "fn.test"
txt = ["v=spf1 -all"]
caa = [{ tag = "issue", value = "ca.example.org; account=7" }, { tag = "issuewild", value = ";", critical = true }]

[[records]]
name = "_acme-challenge.hello.fn.test"
ttl = "60s"
txt = ["first-value", "second-value"]

[[records]]
name = "long.fn.test"
txt = ["LONG"]
https = [{ priority = 1, alpn = ["h2", "h3"], port = 8443 }, { priority = 0, target = "hello.fn.test" }]
svcb = [{ target = "svc.example.org", port = 53 }]
addresses = ["192.0.2.80", "2001:db8::80"]

[[records]]
name = "*.wild.fn.test"
txt = ["from a wildcard"]
addresses = ["192.0.2.81"]

[[records]]
name = "leaf.branch.wild.fn.test"
txt = ["exact"]
"#;

fn with_records(settings: &mut Settings) {
    let text = ZONE.replace("LONG", &"0123456789".repeat(30));
    settings.zone = toml::from_str(&text).expect("settings of a zone");
}

/// The output of `dig +short`, sorted.
async fn short(endpoint: &Endpoint, name: &str, kind: &str) -> Vec<String> {
    let text = endpoint.dig(&[name, kind, "+short"]).await;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn text_authorities_services_and_addresses() {
    let (fixture, endpoints) = four_endpoints(with_records).await;
    for endpoint in &endpoints {
        assert_eq!(
            short(endpoint, "_acme-challenge.hello.fn.test", "TXT").await,
            ["\"first-value\"", "\"second-value\""]
        );
        let full = endpoint
            .dig(&["_acme-challenge.hello.fn.test", "TXT"])
            .await;
        assert!(
            full.contains("_acme-challenge.hello.fn.test. 60 IN\tTXT"),
            "{full}"
        );
        // The app above the record still exists.
        assert_eq!(short(endpoint, "hello.fn.test", "A").await.len(), 2);
        // 300 bytes are two character strings of one value.
        let digits = "0123456789".repeat(30);
        let expected = format!("\"{}\" \"{}\"", &digits[..255], &digits[255..]);
        assert_eq!(short(endpoint, "long.fn.test", "TXT").await, [expected]);
        assert_eq!(
            short(endpoint, "fn.test", "CAA").await,
            [
                "0 issue \"ca.example.org; account=7\"",
                "128 issuewild \";\""
            ]
        );
        assert_eq!(short(endpoint, "fn.test", "TXT").await, ["\"v=spf1 -all\""]);
        assert_eq!(short(endpoint, "fn.test", "NS").await, ["ns1.fn.test."]);
        assert_eq!(
            short(endpoint, "long.fn.test", "HTTPS").await,
            ["0 hello.fn.test.", "1 . alpn=\"h2,h3\" port=8443"]
        );
        assert_eq!(
            short(endpoint, "long.fn.test", "SVCB").await,
            ["1 svc.example.org. port=53"]
        );
        assert_eq!(short(endpoint, "long.fn.test", "A").await, ["192.0.2.80"]);
        assert_eq!(
            short(endpoint, "long.fn.test", "AAAA").await,
            ["2001:db8::80"]
        );
        // Every app has the service record, with the TTL of its addresses.
        let service = endpoint.dig(&["hello.fn.test", "HTTPS"]).await;
        assert!(
            service.contains("hello.fn.test.\t\t20\tIN\tHTTPS\t1 . alpn=\"h2,http/1.1\" port=8443"),
            "{service}"
        );
        assert!(
            endpoint
                .dig(&["hello.fn.test", "SVCB"])
                .await
                .contains("ANSWER: 0, AUTHORITY: 1")
        );
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wildcards_and_empty_non_terminals() {
    let (fixture, endpoints) = four_endpoints(with_records).await;
    for endpoint in &endpoints {
        for name in ["x.wild.fn.test", "deep.x.wild.fn.test", "*.wild.fn.test"] {
            assert_eq!(
                short(endpoint, name, "TXT").await,
                ["\"from a wildcard\""],
                "{name}"
            );
            let owner = endpoint.dig(&[name, "A"]).await;
            assert!(
                owner.contains(&format!("\n{name}.")) && owner.contains("192.0.2.81"),
                "{owner}"
            );
        }
        assert_eq!(
            short(endpoint, "leaf.branch.wild.fn.test", "TXT").await,
            ["\"exact\""]
        );
        for (name, code) in [
            // An empty non-terminal exists, so no wildcard covers it.
            ("branch.wild.fn.test", "NOERROR"),
            ("wild.fn.test", "NOERROR"),
            // Its closest encloser is `branch`, which has no wildcard.
            ("y.branch.wild.fn.test", "NXDOMAIN"),
            ("below.leaf.branch.wild.fn.test", "NXDOMAIN"),
        ] {
            let text = endpoint.dig(&[name, "TXT"]).await;
            assert!(
                text.contains(&format!("status: {code}"))
                    && text.contains("ANSWER: 0, AUTHORITY: 1"),
                "{text}"
            );
        }
        // The wildcard exists, but not with this type.
        let other = endpoint.dig(&["x.wild.fn.test", "CAA"]).await;
        assert!(
            other.contains("NOERROR") && other.contains("ANSWER: 0, AUTHORITY: 1"),
            "{other}"
        );
    }
    fixture.dns.stop().await;
}

#[test]
fn records_that_cannot_be_are_refused() {
    let cases = [
        ("name = \"x.example.org\"\ntxt = [\"a\"]", "not in the zone"),
        ("name = \"a b.fn.test\"\ntxt = [\"a\"]", "is no name"),
        ("name = \"a.*.fn.test\"\ntxt = [\"a\"]", "is no name"),
        ("name = \"x.fn.test\"", "without any record"),
        (
            "name = \"ns1.fn.test\"\naddresses = [\"192.0.2.1\"]",
            "zone.servers",
        ),
        (
            "name = \"x.fn.test\"\ncaa = [{ tag = \"is sue\", value = \"\" }]",
            "15 letters",
        ),
        (
            "name = \"x.fn.test\"\nhttps = [{ priority = 0, target = \"y.fn.test\", port = 1 }]",
            "neither alpn nor port",
        ),
        (
            "name = \"x.fn.test\"\nhttps = [{ priority = 0 }]",
            "needs a target",
        ),
        (
            "name = \"x.fn.test\"\ntxt = [\"a\"]\n[[zone.records]]\nname = \"X.fn.test\"\ntxt = [\"a\"]",
            "twice",
        ),
    ];
    for (record, expected) in cases {
        let parsed = toml::from_str::<Settings>(&format!("[[zone.records]]\n{record}"));
        let error = match parsed {
            Ok(settings) => settings.validate().expect_err(record).to_string(),
            Err(cause) => cause.to_string(),
        };
        assert!(error.contains(expected), "{record}: {error}");
    }
}
