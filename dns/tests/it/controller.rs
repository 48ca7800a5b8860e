//! Snapshots pulled from the controller over HTTP.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fdn_core::Revision;
use fdn_core::api::DnsSnapshot;
use fdn_core::message::{BindingsChanged, Message};
use fdn_dns::Settings;
use fdn_testkit::wait;

use crate::common::{Fixture, Http, app, bindings, network};

const TOKEN: &str = "0123456789abcdef";
const CLIENT: &str = "192.0.2.0/24";

/// A controller that serves whatever snapshot is set, to those who know the token.
async fn controller(snapshot: &Arc<Mutex<DnsSnapshot>>) -> Http {
    let snapshot = Arc::clone(snapshot);
    Http::start(SocketAddr::from(([127, 0, 0, 1], 0)), move |head| {
        let head = head.to_ascii_lowercase();
        if !head.starts_with("get /dns/v1/snapshot ") {
            return (404, String::new());
        }
        if !head.contains(&format!("authorization: bearer {TOKEN}")) {
            return (401, String::new());
        }
        (
            200,
            serde_json::to_string(&*snapshot.lock().expect("not poisoned")).expect("json"),
        )
    })
    .await
}

fn pulling(settings: &mut Settings, from: SocketAddr) {
    let file = settings.data_dir.join("token");
    std::fs::write(&file, TOKEN).expect("token");
    settings.network.token_file = Some(file);
    settings.network.controller = format!("http://{from}").parse().ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_bring_change_and_remove() {
    let first = DnsSnapshot {
        txt: None,
        revision: Revision(4),
        network: network(1),
        apps: vec![bindings("a", 2, &[]), bindings("b", 3, &[])],
    };
    let snapshot = Arc::new(Mutex::new(first));
    let http = controller(&snapshot).await;
    let fixture = Fixture::start(|s| pulling(s, http.address)).await;
    fixture
        .answers("a.fn.test", CLIENT, &["127.0.1.1", "127.0.1.2"])
        .await;
    fixture
        .answers("b.fn.test", CLIENT, &["127.0.1.1", "127.0.1.2"])
        .await;

    // A message overtakes the next snapshot; neither may undo the other.
    fixture.publish(app("c", 9, &[])).await;
    fixture
        .answers("c.fn.test", CLIENT, &["127.0.1.1", "127.0.1.2"])
        .await;
    {
        let mut next = snapshot.lock().expect("not poisoned");
        *next = DnsSnapshot {
            txt: None,
            revision: Revision(7),
            network: network(1),
            apps: vec![bindings("a", 6, &[(CLIENT, "us-east")])],
        };
    }
    fixture
        .answers("a.fn.test", CLIENT, &["127.0.2.1", "127.0.2.2"])
        .await;
    assert!(fixture.dig(&["b.fn.test"]).await.contains("NXDOMAIN"));
    fixture
        .answers("c.fn.test", CLIENT, &["127.0.1.1", "127.0.1.2"])
        .await;

    // A controller that fell back to an older state is not believed.
    snapshot.lock().expect("not poisoned").revision = Revision(1);
    snapshot.lock().expect("not poisoned").apps.clear();
    fixture.publish(app("marker", 10, &[])).await;
    fixture
        .answers("marker.fn.test", CLIENT, &["127.0.1.1", "127.0.1.2"])
        .await;
    http.stop().await;
    // With the controller away answers go on.
    fixture
        .answers("a.fn.test", CLIENT, &["127.0.2.1", "127.0.2.2"])
        .await;
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_here_is_confirmed_and_not_sent_again() {
    let snapshot = DnsSnapshot {
        txt: None,
        revision: Revision(4),
        network: network(1),
        apps: vec![bindings("a", 2, &[])],
    };
    let snapshot = Arc::new(Mutex::new(snapshot));
    let sent = Arc::new(AtomicU64::new(0));
    let (held, counted) = (Arc::clone(&snapshot), Arc::clone(&sent));
    let http = Http::with_header(SocketAddr::from(([127, 0, 0, 1], 0)), move |head| {
        let snapshot = held.lock().expect("not poisoned");
        let tag = format!("\"{}\"", snapshot.revision.get());
        let header = format!("etag: {tag}\r\n");
        if head.contains(&format!("if-none-match: {tag}\r\n")) {
            return (304, header, String::new());
        }
        counted.fetch_add(1, Ordering::Relaxed);
        (
            200,
            header,
            serde_json::to_string(&*snapshot).expect("json"),
        )
    })
    .await;
    let fixture = Fixture::start(|s| pulling(s, http.address)).await;
    let confirmed = async |times: u64| {
        wait::until("pulls that change nothing", async || {
            match fixture.metric("fdn_dns_pulls_unchanged_total").await {
                count if count >= times => Ok(()),
                count => Err(count),
            }
        })
        .await;
    };
    fixture
        .answers("a.fn.test", CLIENT, &["127.0.1.1", "127.0.1.2"])
        .await;
    confirmed(3).await;
    assert_eq!(sent.load(Ordering::Relaxed), 1);
    assert!(fixture.metric("fdn_dns_state_age_seconds").await < 30);
    {
        let mut next = snapshot.lock().expect("not poisoned");
        next.revision = Revision(6);
        next.apps = vec![bindings("a", 5, &[(CLIENT, "us-east")])];
    }
    fixture
        .answers("a.fn.test", CLIENT, &["127.0.2.1", "127.0.2.2"])
        .await;
    assert_eq!(sent.load(Ordering::Relaxed), 2);
    // Changes that follow on nothing that is here are no reason to believe that all is as it was.
    fixture
        .publish(Message::BindingsChanged(BindingsChanged {
            app: "a".parse().expect("app"),
            revision: Revision(9),
            base: Revision(8),
            changes: vec![],
        }))
        .await;
    wait::until("the whole to be asked for", async || {
        match sent.load(Ordering::Relaxed) {
            0..=2 => Err("it was not"),
            _ => Ok(()),
        }
    })
    .await;
    fixture.dns.stop().await;
    http.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_too_large_is_not_taken() {
    let snapshot = DnsSnapshot {
        txt: None,
        revision: Revision(4),
        network: network(1),
        apps: vec![bindings("a", 2, &[])],
    };
    let size = serde_json::to_string(&snapshot).expect("json").len() as u64;
    let snapshot = Arc::new(Mutex::new(snapshot));
    let http = controller(&snapshot).await;
    let with_limit = async |limit: u64| {
        Fixture::start(|s| {
            pulling(s, http.address);
            s.sync.snapshot_limit = fdn_core::ByteSize::from_bytes(limit);
        })
        .await
    };
    let (refusing, taking) = (with_limit(size - 1).await, with_limit(size).await);
    wait::until("the one that may to be ready", async || {
        match taking.admin("/readyz").await {
            (200, _) => Ok(()),
            (_, text) => Err(text),
        }
    })
    .await;
    assert_eq!(refusing.admin("/readyz").await.0, 503);
    refusing.dns.stop().await;
    taking.dns.stop().await;
    http.stop().await;
}
