//! Machines on their edge connection: what they are told, and what they may send and fetch.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fdn_core::Digest;
use fdn_core::enrol::Role;
use fdn_core::feed::Frame;
use fdn_core::usage::UsageReceipt;
use fdn_testkit::proxy::Proxy;
use fdn_testkit::{components, wait};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;

use crate::edge_member::{Member, Wire};
use crate::edge_thief::{refused, three_clusters};
use crate::rig::{Backend, Rig, on_both};
use crate::usage;

on_both!(
    a_node_is_told_of_what_its_cluster_holds,
    a_removed_machine_is_cut_off,
);

async fn a_node_is_told_of_what_its_cluster_holds(backend: Backend) {
    let (rig, digest) = three_clusters(backend).await;
    let holder = Member::join(&rig, Role::Node, "eu-west", "m-1").await;
    let other = Member::join(&rig, Role::Node, "ap-south", "m-2").await;
    let (mut one, mut two) = (holder.connect(&[&rig]), other.connect(&[&rig]));
    let revision = rig.apps_snapshot().await.revision;
    let (frames, snapshots) = one.until(revision).await;
    assert_eq!(snapshots, 1);
    let secret = || vec!["hunter2".to_owned()];
    assert_eq!(Wire::app(&frames, "vault"), Some((true, secret())));
    let (frames, _) = two.until(revision).await;
    assert_eq!(Wire::app(&frames, "vault"), None);
    assert!(frames.iter().any(|frame| matches!(frame, Frame::Fleet(_))));
    let artifact = format!("/edge/v1/artifacts/{digest}");
    let (status, _, bytes) = one.get(&artifact, None).await;
    assert_eq!((status, bytes), (200, components::hello("x").into()));
    assert_eq!(two.get(&artifact, None).await.0, 403);
    // There is no machine code for such an engine.
    let compiled = format!("/edge/v1/compiled/{digest}/00");
    assert_eq!(one.get(&compiled, None).await.0, 404);
    assert_eq!(two.get(&compiled, None).await.0, 403);
    // Clients use the far cluster, and the others fall silent: it begins to hold the app, although the app has not changed.
    rig.silence("eu-1");
    rig.silence("us-1");
    assert_eq!(two.hears_of("vault", true).await, secret());
    assert_eq!(two.get(&artifact, None).await.0, 200);
    // The app is deleted.
    let deleted = rig.request(Method::DELETE, "/v1/apps/vault").send().await;
    assert_eq!(deleted.expect("an answer").status(), 204);
    two.hears_of("vault", false).await;
    // It served the app: a late fetch is not counted as an offence.
    let before = refused(&rig, "artifact");
    assert_eq!(two.get(&artifact, None).await.0, 404);
    assert_eq!(refused(&rig, "artifact"), before);
}

async fn a_removed_machine_is_cut_off(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.cluster("eu-west").await;
    for (role, name, path) in [
        (Role::Node, "m-1", "/v1/nodes/m-1"),
        (Role::Dns, "d-1", "/v1/dns-servers/d-1"),
    ] {
        let member = Member::join(&rig, role, "eu-west", name).await;
        let mut wire = member.connect(&[&rig]);
        wire.up().await;
        let mut again = member.connect(&[&rig]);
        again.up().await;
        let cut = rig.controller.state().metrics.edge.cut.get();
        // No message is needed for the removal.
        rig.broker.down();
        let removed = rig.request(Method::DELETE, path).send().await;
        assert_eq!(removed.expect("an answer").status(), 204);
        wire.removed().await;
        again.removed().await;
        assert_eq!(rig.controller.state().metrics.edge.cut.get(), cut + 2);
        // It is told so at every handshake, which is counted.
        let before = refused(&rig, "revoked");
        let mut late = member.connect(&[&rig]);
        late.removed().await;
        assert!(refused(&rig, "revoked") > before);
        assert!(!*late.connection.feed.connected.borrow());
        rig.broker.up();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_stands_on_the_way_cannot_tell_a_machine_that_it_was_removed() {
    let rig = Rig::start().await;
    rig.cluster("eu-west").await;
    let member = Member::join(&rig, Role::Node, "eu-west", "m-1").await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let wrong = listener.local_addr().expect("an address").to_string();
    let mut wire = member.connect_at(vec![wrong]);
    for _ in 0..2 {
        let accepted = tokio::time::timeout(wait::PATIENCE, listener.accept()).await;
        let (mut stream, _) = accepted.expect("in time").expect("a machine");
        // A fatal alert in plain text: certificate revoked (RFC 8446, 5.1 and 6).
        let alert = [0x15, 3, 3, 0, 2, 2, 44];
        stream.write_all(&alert).await.expect("written");
    }
    // It retries with the back-off of failures, and does not consider itself removed.
    assert!(wire.connection.feed.events.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_another_network_are_refused_at_the_handshake() {
    let (here, there) = (Rig::start().await, Rig::start().await);
    here.cluster("eu-west").await;
    there.cluster("eu-west").await;
    let ours = Member::join(&here, Role::Node, "eu-west", "m-1").await;
    let theirs = Member::join(&there, Role::Node, "eu-west", "m-1").await;
    let accepted = &here.controller.state().metrics.edge.accepted;
    let wire = ours.forged(&theirs).connect(&[&here]);
    wait::until("the handshakes to fail", async || {
        match accepted.with_label_values(&["handshake"]).get() {
            0 => Err("none yet"),
            _ => Ok(()),
        }
    })
    .await;
    assert!(!*wire.connection.feed.connected.borrow());
    assert_eq!(accepted.with_label_values(&["open"]).get(), 0);
    // Nor does a machine trust a controller of another network.
    let mut wire = ours.connect(&[&there, &here]);
    wire.up().await;
    assert_eq!(accepted.with_label_values(&["open"]).get(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_goes_on_at_another_controller_where_it_ended() {
    let first = Rig::start().await;
    first.cluster("eu-west").await;
    let second = Rig::start_on(
        first.settings.clone(),
        Arc::clone(&first.broker),
        Arc::clone(&first.folder),
    )
    .await;
    let member = Member::join(&first, Role::Node, "eu-west", "m-1").await;
    first.deploy("one", components::hello("one")).await;
    let mut wire = member.connect(&[&first, &second]);
    let revision = first.apps_snapshot().await.revision;
    let (frames, snapshots) = wire.until(revision).await;
    assert_eq!(snapshots, 1);
    assert!(Wire::app(&frames, "one").is_some());
    // The controller that the machine is connected to stops; the other one sends everything from then on.
    let at_first = first.controller.state().edge.machines.connected();
    let (gone, stays) = match at_first.is_empty() {
        true => (second, first),
        false => (first, second),
    };
    gone.controller.stop().await;
    stays.deploy("two", components::hello("two")).await;
    let revision = stays.apps_snapshot().await.revision;
    let (frames, snapshots) = wire.until(revision).await;
    assert_eq!(snapshots, 0, "what it missed was at hand");
    assert!(Wire::app(&frames, "two").is_some());
    assert!(Wire::app(&frames, "one").is_none(), "it has that");
}

#[test]
fn a_controller_that_says_nothing_any_more_is_left_within_five_seconds_by_the_defaults() {
    let heartbeat = fdn_controller::settings::EdgeSettings::default().heartbeat;
    let centre = fdn_link::ControllerLinkSettings::default();
    // A machine waits for two heartbeats, then for its random delay; connecting to a live controller takes little.
    let gone = heartbeat.as_duration() * 2 + centre.spread.as_duration();
    assert!(gone < std::time::Duration::from_secs(5), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_connected_through_a_proxy() {
    let rig = Rig::start().await;
    rig.cluster("eu-west").await;
    let member = Member::join(&rig, Role::Node, "eu-west", "m-1").await;
    let edge = rig.controller.edge_address().to_string();
    let only = edge.clone();
    let proxy = Proxy::start(move |to| to == only).await.expect("a proxy");
    // The proxy does not carry the first address, so it counts as unreachable and the next one is tried.
    let controllers = vec!["controller.fdn.invalid:8601".to_owned(), edge.clone()];
    let mut wire = member.connect_through(controllers, Some(proxy.url()));
    wire.up().await;
    assert_eq!(proxy.forwarded(), [edge]);
    let deployed = rig.deploy("hello", components::hello("x")).await;
    let (frames, _) = wire.until(deployed.revision).await;
    assert!(Wire::app(&frames, "hello").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_hear_of_changes_while_the_broker_is_away() {
    let rig = Rig::start().await;
    rig.cluster("eu-west").await;
    let member = Member::join(&rig, Role::Node, "eu-west", "m-1").await;
    let mut wire = member.connect(&[&rig]);
    wire.up().await;
    rig.broker.down();
    let deployed = rig.deploy("hello", components::hello("x")).await;
    let (frames, _) = wire.until(deployed.revision).await;
    assert!(Wire::app(&frames, "hello").is_some());
    assert!(rig.controller.state().metrics.edge.refreshed.get() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_are_fetched_whole_and_from_where_one_stopped() {
    let rig = Rig::start().await;
    rig.cluster("eu-west").await;
    let component = components::hello("bytes");
    let deployed = rig.deploy("hello", component.clone()).await;
    let member = Member::join(&rig, Role::Node, "eu-west", "m-1").await;
    let mut wire = member.connect(&[&rig]);
    wire.until(deployed.revision).await;
    let path = format!("/edge/v1/artifacts/{}", deployed.digest);
    let (status, _, bytes) = wire.get(&path, None).await;
    assert_eq!((status, &bytes[..]), (200, &component[..]));
    let (status, range, bytes) = wire.get(&path, Some("bytes=10-")).await;
    let expected = format!("bytes 10-{}/{}", component.len() - 1, component.len());
    assert_eq!((status, range), (206, expected));
    assert_eq!(&bytes[..], &component[10..]);
    assert_eq!(wire.get(&path, Some("bytes=99999999-")).await.0, 400);
    assert_eq!(wire.get(&path, Some("bytes=0-5")).await.0, 400);
    let none = format!("/edge/v1/artifacts/{}", Digest::of(b"none"));
    assert_eq!(wire.get(&none, None).await.0, 403);
    let bad = "/edge/v1/artifacts/..%2f..%2fetc%2fpasswd";
    assert_eq!(wire.get(bad, None).await.0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_hands_a_batch_over_as_often_as_it_likes() {
    let rig = Rig::start().await;
    rig.cluster("eu-west").await;
    let deployed = rig.deploy("thumbs", components::hello("x")).await;
    let member = Member::join(&rig, Role::Node, "eu-west", "m-1").await;
    let mut wire = member.connect(&[&rig]);
    wire.until(deployed.revision).await;
    let sums = json!(usage::sums_of("thumbs", 7, "m-1"));
    let records = json!(usage::records_of("thumbs", 8, "m-1"));
    for (path, sent) in [
        ("/edge/v1/usage/sums", sums),
        ("/edge/v1/usage/records", records),
    ] {
        for duplicate in [false, true] {
            let (status, receipt) = wire.post(path, &sent).await;
            assert_eq!(status, 200, "{receipt}");
            let receipt: UsageReceipt = serde_json::from_value(receipt).expect("a receipt");
            assert_eq!(receipt.duplicate, duplicate);
        }
        assert_eq!(
            wire.post_bytes(path, b"{\"batch\":7}".to_vec()).await.0,
            400
        );
        assert_eq!(wire.post_bytes(path, vec![b' '; 17 << 20]).await.0, 413);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_asks_for_the_lease_of_its_own_cluster() {
    let rig = Rig::start().await;
    rig.cluster("eu-west").await;
    let members = [
        Member::join(&rig, Role::Node, "eu-west", "n-1").await,
        Member::join(&rig, Role::Node, "eu-west", "n-2").await,
    ];
    let mut wires = members.each_ref().map(|member| member.connect(&[&rig]));
    for wire in &mut wires {
        wire.up().await;
    }
    let [first, second] = &wires;
    let path = "/edge/v1/lease";
    let (_, got) = first
        .post(path, &json!({ "node": "n-1", "ttl_ms": 10_000 }))
        .await;
    assert_eq!((&got["holder"], &got["epoch"]), (&json!("n-1"), &json!(1)));
    let kept = json!({ "node": "n-1", "epoch": 1, "ttl_ms": 3_600_000 });
    let (_, got) = first.post(path, &kept).await;
    assert_eq!(got["epoch"], 1);
    let expires = got["expires_ms"].as_u64().expect("a time");
    assert!(expires <= 60_000, "the controller bounds it");
    let wish = json!({ "node": "n-2", "ttl_ms": 1000 });
    let (_, other) = second.post(path, &wish).await;
    assert_eq!(other["holder"], "n-1", "it is not over");
    for bad in [
        json!({ "node": "n-1", "ttl_ms": 0 }),
        json!({ "node": "n-1", "epoch": 0, "ttl_ms": 1 }),
    ] {
        assert_eq!(first.post(path, &bad).await.0, 400);
    }
    let detail: Value = rig.get("/v1/clusters/eu-west").await;
    assert_eq!(detail["head"]["node"], "n-1");
    let removed = rig.request(Method::DELETE, "/v1/nodes/n-1").send().await;
    assert_eq!(removed.expect("an answer").status(), 204);
    let (_, next) = second.post(path, &wish).await;
    assert_eq!(
        (&next["holder"], &next["epoch"]),
        (&json!("n-2"), &json!(2))
    );
}

/// A relay to a controller that can be switched to drop everything, like a machine without power; with the number of connections made.
async fn way_to(to: SocketAddr) -> (String, watch::Sender<bool>, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (swallow, swallows) = watch::channel(false);
    let came = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&came);
    tokio::spawn(async move {
        while let Ok((mut here, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let mut swallows = swallows.clone();
            tokio::spawn(async move {
                let mut there = tokio::net::TcpStream::connect(to).await.expect("there");
                let told = async { drop(swallows.wait_for(|swallows| *swallows).await) };
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut here, &mut there) => {}
                    () = told => std::future::pending::<()>().await,
                }
            });
        }
    });
    (address, swallow, came)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_falls_silent_is_left_for_another() {
    let rig = Rig::start_with(Backend::Sqlite, |settings| {
        settings.edge.heartbeat = fdn_core::DurationMs::from_secs(1);
    })
    .await;
    rig.cluster("eu-west").await;
    let member = Member::join(&rig, Role::Node, "eu-west", "m-1").await;
    let to = rig.controller.edge_address();
    let ways = [way_to(to).await, way_to(to).await];
    let mut wire = member.connect_at(ways.iter().map(|(at, ..)| at.clone()).collect());
    let (_, snapshots) = wire.until(rig.apps_snapshot().await.revision).await;
    assert_eq!(snapshots, 1);
    let came = |way: usize| ways[way].2.load(Ordering::SeqCst);
    let first = usize::from(came(0) == 0);
    assert_eq!((came(first), came(1 - first)), (1, 0));
    ways[first].1.send_replace(true);
    rig.deploy("one", components::hello("one")).await;
    let (frames, snapshots) = wire.until(rig.apps_snapshot().await.revision).await;
    assert!(
        Wire::app(&frames, "one").is_some(),
        "{snapshots} {frames:?}"
    );
    assert!(came(1 - first) > 0);
}

mod soak {
    #![allow(clippy::print_stdout, reason = "what was measured is told")]

    use std::time::{Duration, Instant};

    use fdn_core::NodeId;
    use fdn_link::FeedEvent;

    use super::*;

    on_both!(a_removed_machine_is_out_within_two_seconds);

    /// The time that `fdn node remove` promises, from its answer on.
    const PROMISED: Duration = Duration::from_secs(2);

    /// Waits until a machine has no connection, and until it knows that it was removed; returns both times.
    async fn gone(wire: &mut Wire) -> (Instant, Instant) {
        let mut connected = wire.connection.feed.connected.clone();
        let cut = connected.wait_for(|up| !*up);
        let cut = tokio::time::timeout(wait::PATIENCE, cut).await;
        drop(cut.expect("in time").expect("the link lives"));
        let cut = Instant::now();
        wire.removed().await;
        (cut, Instant::now())
    }

    /// Waits until another machine is told that this one's certificate is revoked; returns that time.
    async fn told(witness: &mut Wire, name: &NodeId) -> Instant {
        let heard = async {
            loop {
                let frames = match witness.told().await {
                    FeedEvent::Change(frame) => vec![frame],
                    FeedEvent::Snapshot(_, frames) => frames,
                    FeedEvent::At(_) | FeedEvent::Removed => continue,
                };
                let names = frames.iter().any(|frame| match frame {
                    Frame::Fleet(fleet) => fleet.revoked.iter().any(|one| one.node == *name),
                    _ => false,
                });
                if names {
                    return Instant::now();
                }
            }
        };
        let heard = tokio::time::timeout(wait::PATIENCE, heard).await;
        heard.expect("told in time")
    }

    /// The machine has a connection to each of two controllers; one of them is asked to remove it.
    async fn a_removed_machine_is_out_within_two_seconds(backend: Backend) {
        let asked = Rig::start_with(backend, |_| {}).await;
        asked.cluster("eu-west").await;
        let other = Rig::start_on(
            asked.settings.clone(),
            Arc::clone(&asked.broker),
            Arc::clone(&asked.folder),
        )
        .await;
        let stays = Member::join(&asked, Role::Node, "eu-west", "stays").await;
        let mut witness = stays.connect(&[&other]);
        witness.up().await;
        for n in 0..20 {
            let (broker, role, path) = match n % 4 {
                0 => ("there", Role::Node, "nodes"),
                1 => ("away", Role::Node, "nodes"),
                2 => ("there", Role::Dns, "dns-servers"),
                _ => ("away", Role::Dns, "dns-servers"),
            };
            let name = format!("m-{n}");
            let member = Member::join(&asked, role, "eu-west", &name).await;
            let mut wires = [member.connect(&[&asked]), member.connect(&[&other])];
            for wire in &mut wires {
                wire.up().await;
            }
            if broker == "away" {
                asked.broker.down();
            }
            let removed = asked.request(Method::DELETE, &format!("/v1/{path}/{name}"));
            assert_eq!(removed.send().await.expect("an answer").status(), 204);
            let began = Instant::now();
            let [here, there] = &mut wires;
            let (here, there, heard) =
                tokio::join!(gone(here), gone(there), told(&mut witness, &member.name));
            let after = |at: Instant| at.saturating_duration_since(began);
            let [cut, knows] = [here.0.max(there.0), here.1.max(there.1)].map(after);
            let heard = after(heard);
            println!(
                "{backend:?}, {role:?}, broker {broker}: cut {cut:?}, it knows {knows:?}, others know {heard:?}"
            );
            assert!(cut < PROMISED && knows < PROMISED && heard < PROMISED);
            // No handshake with either of them succeeds.
            for rig in [&asked, &other] {
                let mut late = member.connect(&[rig]);
                late.removed().await;
                assert!(!*late.connection.feed.connected.borrow());
            }
            asked.broker.up();
        }
    }
}
