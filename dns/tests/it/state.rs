//! Where the answers come from: the controller and the disk; and what is reported back.

use fdn_core::message::{BindingsDesired, Message};
use fdn_core::{AppName, Revision};
use fdn_dns::Dns;
use fdn_testkit::wait;

use crate::common::{FakeController, Fixture, app, network, settings};

const EU: [&str; 2] = ["127.0.1.1", "127.0.1.2"];
const US: [&str; 2] = ["127.0.2.1", "127.0.2.2"];
const CLIENT: &str = "192.0.2.0/24";

#[tokio::test(flavor = "multi_thread")]
async fn older_and_doubled_messages_are_harmless() {
    let fixture = Fixture::with_hello(|_| {}).await;
    let bound = app("hello", 9, &[(CLIENT, "us-east")]);
    fixture.publish(bound.clone()).await;
    fixture.publish(bound).await;
    fixture
        .publish(app("hello", 8, &[(CLIENT, "ap-south")]))
        .await;
    fixture.publish(app("marker", 10, &[])).await;
    // The feed is ordered: once the last message is answered, all earlier ones have been handled.
    fixture.answers("marker.fn.test", CLIENT, &EU).await;
    assert_eq!(fixture.addresses("hello.fn.test", CLIENT).await, US);
    let (_, metrics) = fixture.admin("/metrics").await;
    assert!(
        metrics.contains("fdn_dns_stale_messages_total 2"),
        "{metrics}"
    );
    assert!(metrics.contains("fdn_dns_revision 10"), "{metrics}");
    assert!(metrics.contains("fdn_dns_apps 2"), "{metrics}");
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_is_removed_is_no_longer_a_name() {
    let fixture = Fixture::with_hello(|_| {}).await;
    let gone = BindingsDesired {
        app: "hello".parse().expect("app"),
        revision: Revision(5),
        state: None,
    };
    fixture.publish(Message::BindingsDesired(gone)).await;
    wait::until("hello to be gone", async || {
        let out = fixture.dig(&["hello.fn.test"]).await;
        if out.contains("NXDOMAIN") {
            Ok(())
        } else {
            Err(out)
        }
    })
    .await;
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_cannot_be_written_is_counted_and_written_once_it_can_be() {
    let fixture = Fixture::start(|_| {}).await;
    std::fs::remove_dir_all(fixture.dir.path()).expect("taken away");
    fixture.publish(Message::NetworkDesired(network(1))).await;
    fixture.publish(app("marker", 3, &[])).await;
    wait::until("the state not to be written", async || {
        match fixture.metric("fdn_dns_state_write_errors_total").await {
            0 => Err("none yet"),
            _ => Ok(()),
        }
    })
    .await;
    wait::until("it to answer by what it heard", async || {
        match fixture.addresses("marker.fn.test", CLIENT).await.len() {
            0 => Err("no address"),
            _ => Ok(()),
        }
    })
    .await;
    std::fs::create_dir_all(fixture.dir.path()).expect("there again");
    wait::until("the state to be written", async || {
        let mut files = std::fs::read_dir(fixture.dir.path())?;
        match files.next() {
            Some(file) => file.map(drop),
            None => Err(std::io::ErrorKind::NotFound.into()),
        }
    })
    .await;
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_counted_by_app() {
    let fixture = Fixture::with_hello(|settings| settings.metrics.apps = 1).await;
    let count = async |app: &str| {
        let name = format!("fdn_dns_app_answers_total{{app=\"{app}\"}}");
        fixture.metric(&name).await
    };
    fixture.publish(app("second", 3, &[])).await;
    fixture.answers("second.fn.test", CLIENT, &EU).await;
    let before = [count("hello").await, count("other").await];
    // On both paths, over both transports, and queries without an answer for an app.
    for (name, more) in [
        ("hello.fn.test", "+nocookie"),
        ("hello.fn.test", "+tcp"),
        ("hello.fn.test", "+dnssec"),
        ("second.fn.test", "+nocookie"),
        ("second.fn.test", "+tcp"),
        ("nobody.fn.test", "+nocookie"),
    ] {
        fixture.dig(&[name, more]).await;
    }
    let after = [count("hello").await, count("other").await];
    assert_eq!(after, [before[0] + 3, before[1] + 2]);
    // A deleted app's series is removed, and the next app that changes can have one.
    let gone = BindingsDesired {
        app: "hello".parse().expect("app"),
        revision: Revision(5),
        state: None,
    };
    fixture.publish(Message::BindingsDesired(gone)).await;
    fixture
        .publish(app("second", 6, &[(CLIENT, "us-east")]))
        .await;
    fixture.answers("second.fn.test", CLIENT, &US).await;
    assert!(count("second").await >= 1);
    let (_, metrics) = fixture.admin("/metrics").await;
    assert!(!metrics.contains("{app=\"hello\"}"), "{metrics}");
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_anybody_answers_from_disk_at_once() {
    let fixture = Fixture::with_hello(|_| {}).await;
    fixture
        .publish(app("hello", 5, &[(CLIENT, "us-east")]))
        .await;
    fixture.answers("hello.fn.test", CLIENT, &US).await;
    let Fixture { dns, dir, .. } = fixture;
    dns.stop().await;

    // A controller without data.
    let again = settings(dir.path());
    let fixture = Fixture::on(dir, again).await;
    assert_eq!(fixture.addresses("hello.fn.test", CLIENT).await, US);
    assert_eq!(fixture.admin("/readyz").await.0, 200);
    // It still knows which messages are outdated.
    fixture
        .publish(app("hello", 4, &[(CLIENT, "ap-south")]))
        .await;
    fixture.publish(app("marker", 6, &[])).await;
    fixture.answers("marker.fn.test", CLIENT, &EU).await;
    assert_eq!(fixture.addresses("hello.fn.test", CLIENT).await, US);
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn before_anything_is_known_it_is_not_ready_and_denies_nothing() {
    let fixture = Fixture::start(|_| {}).await;
    let (status, reasons) = fixture.admin("/readyz").await;
    assert_eq!(status, 503);
    assert!(
        reasons.contains("neither the disk nor the controller"),
        "{reasons}"
    );
    assert_eq!(fixture.admin("/healthz").await.0, 200);
    assert!(fixture.dig(&["hello.fn.test"]).await.contains("SERVFAIL"));
    assert!(fixture.dig(&["fn.test", "SOA"]).await.contains("NOERROR"));
    fixture.publish(Message::NetworkDesired(network(1))).await;
    wait::until("readiness", async || match fixture.admin("/readyz").await {
        (200, _) => Ok(()),
        (_, text) => Err(text),
    })
    .await;
    assert!(fixture.dig(&["hello.fn.test"]).await.contains("NXDOMAIN"));
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn demand_is_reported() {
    let fixture = Fixture::with_hello(|_| {}).await;
    for _ in 0..3 {
        fixture
            .dig(&["hello.fn.test", "+subnet=203.0.113.200/32"])
            .await;
    }
    let hello: AppName = "hello".parse().expect("app");
    let prefix = "203.0.113.0/24".parse().expect("prefix");
    let mut seen = 0;
    wait::until("three questions to be reported", async || {
        for message in fixture.controller.reports() {
            let Message::DemandReport(report) = message else {
                panic!("not a demand report")
            };
            assert_eq!(report.server, "dns-1");
            let entries = report.entries.into_iter();
            seen += entries
                .filter(|e| e.0 == hello && e.1 == prefix)
                .map(|e| e.2)
                .sum::<u64>();
        }
        if seen >= 3 { Ok(()) } else { Err(seen) }
    })
    .await;
    assert_eq!(seen, 3);
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_explained() {
    let fixture = Fixture::with_hello(|_| {}).await;
    fixture
        .publish(app("hello", 5, &[(CLIENT, "us-east")]))
        .await;
    fixture.answers("hello.fn.test", CLIENT, &US).await;
    let (status, text) = fixture
        .admin("/lookup?name=Hello.fn.test.&client=192.0.2.7")
        .await;
    assert_eq!(status, 200);
    let told: serde_json::Value = serde_json::from_str(&text).expect("json");
    assert_eq!(
        (&told["result"], &told["scope"]),
        (&"answer".into(), &24.into())
    );
    let steering = &told["steering"];
    assert_eq!(
        (&steering["reason"], &steering["bound"]),
        (&"bound".into(), &"us-east".into())
    );
    let nearest = &steering["clusters"][0];
    assert_eq!(nearest["cluster"], "eu-west");
    let live = nearest["live"].as_array().expect("addresses").len();
    assert_eq!(nearest["weights"], serde_json::json!(vec![100; live]));
    let (status, text) = fixture
        .admin("/lookup?name=hello.fn.test&client=nowhere")
        .await;
    assert!(status == 400 && text.contains("FDN-2005"), "{text}");
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_address_is_said_with_its_key() {
    let fixture = Fixture::with_hello(|_| {}).await;
    let dir = tempfile::tempdir().expect("folder");
    let mut second = settings(dir.path());
    second.listen = vec![fixture.dns.address()];
    let error = Dns::start(second, Some(FakeController::new().0))
        .await
        .err()
        .expect("refused")
        .to_string();
    assert!(
        error.contains("already taken") && error.contains("listen"),
        "{error}"
    );
    fixture.dns.stop().await;
}
