//! Text records set through the controller: received by messages and snapshots, answered, stored, and expired.

use fdn_core::Revision;
use fdn_core::feed::Frame;
use fdn_core::message::{Message, TxtDesired, TxtRecords};
use fdn_link::FeedEvent;
use fdn_testkit::wait;

use crate::common::{Fixture, bindings, network, settings};
use crate::endpoints::{Endpoint, four_endpoints};

const NAME: &str = "_acme-challenge.hello.fn.test";
const ZONE: &str = r#"
[[records]]
name = "both.fn.test"
ttl = "300s"
txt = ["own"]
caa = [{ tag = "issue", value = "ca.example.org" }]

[[records]]
name = "*.fn.test"
txt = ["from a wildcard"]
"#;

fn desired(name: &str, revision: u64, values: &[&str], lives_ms: Option<u64>) -> TxtDesired {
    let now = fdn_service::now();
    let state = TxtRecords {
        ttl_s: 60,
        values: values.iter().map(|value| (*value).to_owned()).collect(),
        expires_at: lives_ms.map(|ms| fdn_core::Timestamp(now.get() + ms)),
    };
    TxtDesired {
        name: name.parse().expect("a name"),
        revision: Revision(revision),
        state: (!values.is_empty()).then_some(state),
    }
}

pub(crate) fn told(name: &str, revision: u64, values: &[&str]) -> Message {
    Message::TxtDesired(desired(name, revision, values, None))
}

/// The output of `dig +short`, sorted.
fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Waits until a name has exactly these values.
pub(crate) async fn values(fixture: &Fixture, name: &str, expected: &[&str]) {
    let expected: Vec<String> = expected
        .iter()
        .map(|value| format!("\"{value}\""))
        .collect();
    let what = format!("the text records of {name} to be {expected:?}");
    wait::until(&what, async || {
        let got = sorted(&fixture.dig(&[name, "TXT", "+short"]).await);
        if got == expected {
            Ok(())
        } else {
            Err(format!("they are {got:?}"))
        }
    })
    .await;
}

async fn short(endpoint: &Endpoint, name: &str, kind: &str) -> Vec<String> {
    sorted(&endpoint.dig(&[name, kind, "+short"]).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_answered_beside_all_else() {
    let (fixture, endpoints) = four_endpoints(|settings| {
        settings.zone = toml::from_str(ZONE).expect("settings of a zone")
    })
    .await;
    fixture.publish(told(NAME, 10, &["one", "two"])).await;
    fixture
        .publish(told("both.fn.test", 11, &["api", "own"]))
        .await;
    fixture
        .publish(told("_a.between.fn.test", 12, &["deep"]))
        .await;
    // The name of an app belongs to the app.
    fixture.publish(told("hello.fn.test", 13, &["no"])).await;
    fixture.publish(told("last.fn.test", 14, &["last"])).await;
    values(&fixture, "last.fn.test", &["last"]).await;
    for endpoint in &endpoints {
        assert_eq!(short(endpoint, NAME, "TXT").await, ["\"one\"", "\"two\""]);
        let full = endpoint.dig(&[NAME, "TXT", "+subnet=192.0.2.0/24"]).await;
        assert!(
            full.contains("_acme-challenge.hello.fn.test. 60 IN\tTXT"),
            "{full}"
        );
        assert!(full.contains("CLIENT-SUBNET: 192.0.2.0/24/0"), "{full}");
        assert_eq!(short(endpoint, "hello.fn.test", "A").await.len(), 2);
        assert!(short(endpoint, "hello.fn.test", "TXT").await.is_empty());
        // The operator's own values and TTL take precedence, each value once.
        assert_eq!(
            short(endpoint, "both.fn.test", "TXT").await,
            ["\"api\"", "\"own\""]
        );
        let full = endpoint.dig(&["both.fn.test", "TXT"]).await;
        assert!(full.contains("300\tIN\tTXT\t\"api\""), "{full}");
        assert_eq!(
            short(endpoint, "both.fn.test", "CAA").await,
            ["0 issue \"ca.example.org\""]
        );
        // Names that exist, even as empty non-terminals, are not covered by the wildcard.
        for name in [NAME, "between.fn.test", "_a.between.fn.test"] {
            let other = endpoint.dig(&[name, "MX"]).await;
            assert!(
                other.contains("NOERROR") && other.contains("ANSWER: 0, AUTHORITY: 1"),
                "{other}"
            );
        }
        assert!(short(endpoint, "between.fn.test", "TXT").await.is_empty());
        for name in ["x.between.fn.test", "_b.hello.fn.test"] {
            let absent = endpoint.dig(&[name, "TXT"]).await;
            assert!(absent.contains("NXDOMAIN"), "{absent}");
        }
        assert_eq!(
            short(endpoint, "other.fn.test", "TXT").await,
            ["\"from a wildcard\""]
        );
    }
    // A removal, and an older message.
    fixture.publish(told(NAME, 16, &[])).await;
    fixture.publish(told(NAME, 15, &["late"])).await;
    fixture.publish(told("last.fn.test", 17, &["seen"])).await;
    values(&fixture, "last.fn.test", &["seen"]).await;
    assert!(fixture.dig(&[NAME, "TXT"]).await.contains("NXDOMAIN"));
    assert_eq!(fixture.metric("fdn_dns_txt_names").await, 4);
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn they_survive_a_restart_without_anybody_and_end_in_time() {
    let fixture = Fixture::with_hello(|_| {}).await;
    fixture.publish(told(NAME, 10, &["stays"])).await;
    let ends = desired("_b.hello.fn.test", 11, &["ends"], Some(10_000));
    fixture.publish(Message::TxtDesired(ends)).await;
    values(&fixture, "_b.hello.fn.test", &["ends"]).await;
    let Fixture { dns, dir, .. } = fixture;
    dns.stop().await;

    let again = settings(dir.path());
    let fixture = Fixture::on(dir, again).await;
    assert_eq!(
        fixture.dig(&[NAME, "TXT", "+short"]).await.trim(),
        "\"stays\""
    );
    // Without any message, it still expires.
    wait::until("the other to end", async || {
        let text = fixture.dig(&["_b.hello.fn.test", "TXT"]).await;
        if text.contains("NXDOMAIN") {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    // It still knows which messages are outdated.
    fixture.publish(told(NAME, 9, &["old"])).await;
    fixture.publish(told("marker.fn.test", 12, &["seen"])).await;
    values(&fixture, "marker.fn.test", &["seen"]).await;
    values(&fixture, NAME, &["stays"]).await;
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_repair_what_was_missed() {
    let fixture = Fixture::start(|_| {}).await;
    let frames = vec![
        Frame::Network(network(1)),
        Frame::Bindings(bindings("hello", 2, &[])),
        Frame::Txt(desired(NAME, 15, &["one", "two"], None)),
    ];
    let snapshot = || FeedEvent::Snapshot(Revision(20), frames.clone());
    fixture.controller.send_event(snapshot()).await;
    values(&fixture, NAME, &["one", "two"]).await;
    // Records newer than the snapshot stay, also if the snapshot is repeated.
    fixture
        .publish(told("_b.hello.fn.test", 21, &["new"]))
        .await;
    values(&fixture, "_b.hello.fn.test", &["new"]).await;
    fixture.controller.send_event(snapshot()).await;
    fixture.publish(told(NAME, 22, &["three"])).await;
    values(&fixture, NAME, &["three"]).await;
    values(&fixture, "_b.hello.fn.test", &["new"]).await;
    assert_eq!(fixture.metric("fdn_dns_revision").await, 22);
    fixture.dns.stop().await;
}
