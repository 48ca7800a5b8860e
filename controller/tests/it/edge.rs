//! Machines on their one connection: what they are told, and what they may say and take. The thief of a node's or a DNS server's
//! certificate and key gets what that machine had, and nothing else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fdn_core::enrol::{LeaseRequest, RenewRequest, Role};
use fdn_core::feed::Frame;
use fdn_core::message::{AppDesired, DemandReport, Message, RttReport};
use fdn_core::usage::UsageReceipt;
use fdn_core::{Digest, Revision};
use fdn_testkit::{components, wait};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;

use crate::edge_member::{Member, Wire};
use crate::machines::{addresses, until};
use crate::rig::{Backend, Rig, node_at, on_both, two_regions};
use crate::usage;

on_both!(
    a_node_is_told_of_what_its_cluster_holds,
    the_thief_of_a_nodes_key_gets_no_further,
    the_thief_of_a_nodes_key_moves_no_users,
    the_thief_of_a_dns_servers_key_gets_no_further,
    a_removed_machine_is_cut_off,
);

/// Two clusters that serve the app `vault`, and one that is far from all clients; the app's digest.
async fn three_clusters(backend: Backend) -> (Rig, Digest) {
    let rig = Rig::start_with(backend, |settings| settings.planner.spread = 1).await;
    for (cluster, lat, lon) in [
        ("ap-south", -33.9, 151.2),
        ("eu-west", 53.35, -6.26),
        ("us-east", 39.04, -77.49),
    ] {
        rig.cluster_at(cluster, lat, lon).await;
    }
    let mut far = node_at("ap-1", "ap-south", -33.9, 151.2);
    far.region = "eu".parse().expect("a region");
    rig.node(far).await;
    for mut near in two_regions() {
        near.region = "eu".parse().expect("a region");
        rig.node(near).await;
    }
    until("all to live", async || {
        let clusters: Vec<Value> = rig.get("/v1/clusters").await;
        clusters.iter().all(|one| one["nodes_alive"] == 1)
    })
    .await;
    let upload = rig.upload(
        "vault",
        components::hello("x"),
        Some("secrets = [\"KEY\"]"),
        Some(r#"{"KEY":"hunter2"}"#),
    );
    let deployed: fdn_core::api::DeployResponse = rig.json(upload).await;
    until("the far cluster to be left alone", async || {
        let all = rig.apps_snapshot().await;
        let spec = all.apps[0].spec.as_ref().expect("there");
        let named = spec.holders.named();
        named.is_some_and(|named| named.iter().all(|one| one.as_str() != "ap-south"))
    })
    .await;
    (rig, deployed.digest)
}

/// How often something was refused to machines.
fn refused(rig: &Rig, what: &str) -> u64 {
    let refused = &rig.controller.state().metrics.edge.refused;
    refused.with_label_values(&[what]).get()
}

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
    let (status, _, octets) = one.get(&artifact, None).await;
    assert_eq!((status, octets), (200, components::hello("x").into()));
    assert_eq!(two.get(&artifact, None).await.0, 403);
    // Of its machine code there is none for such an engine.
    let compiled = format!("/edge/v1/compiled/{digest}/00");
    assert_eq!(one.get(&compiled, None).await.0, 404);
    assert_eq!(two.get(&compiled, None).await.0, 403);
    // Clients come to the far cluster, and the others fall silent: it begins to hold the app, though the app is as old as it was.
    rig.silence("eu-1");
    rig.silence("us-1");
    assert_eq!(two.hears_of("vault", true).await, secret());
    assert_eq!(two.get(&artifact, None).await.0, 200);
    // And it is deleted.
    let deleted = rig.request(Method::DELETE, "/v1/apps/vault").send().await;
    assert_eq!(deleted.expect("an answer").status(), 204);
    two.hears_of("vault", false).await;
    // It served that: fetching it late is no offence.
    let before = refused(&rig, "artifact");
    assert_eq!(two.get(&artifact, None).await.0, 404);
    assert_eq!(refused(&rig, "artifact"), before);
}

async fn the_thief_of_a_nodes_key_gets_no_further(backend: Backend) {
    let (rig, digest) = three_clusters(backend).await;
    let honest = Member::join(&rig, Role::Node, "eu-west", "m-1").await;
    let thief = Member::join(&rig, Role::Node, "ap-south", "m-2").await;
    let mut wire = thief.connect(&[&rig]);
    wire.up().await;
    // Deploying: neither here nor with what the machine got when it joined.
    assert_eq!(
        wire.post("/v1/apps/vault/versions", &json!({})).await.0,
        404
    );
    let call = rig.anonymous(Method::GET, "/v1/apps");
    let call = call.bearer_auth(&thief.answer.node_token);
    assert_eq!(rig.code(call).await, "FDN-2001");
    // Another cluster's artifact.
    let artifact = format!("/edge/v1/artifacts/{digest}");
    assert_eq!(wire.get(&artifact, None).await.0, 403);
    assert_eq!(refused(&rig, "artifact"), 1);
    let compiled = format!("/edge/v1/compiled/{digest}/00");
    assert_eq!(wire.get(&compiled, None).await.0, 403);
    assert_eq!(refused(&rig, "compiled"), 1);
    // Reports for others.
    let elsewhere = fdn_core::message::NodeStatus {
        cluster: "eu-west".parse().expect("a cluster"),
        ..thief.status()
    };
    let demand = DemandReport {
        server: "m-2".to_owned(),
        entries: Vec::new(),
    };
    let rtt = RttReport {
        node: honest.name.clone(),
        ..round_trips("m-2", "ap-south")
    };
    let desired = AppDesired {
        app: "vault".parse().expect("app"),
        revision: Revision(1_000_000),
        spec: None,
    };
    for (n, message) in [
        Message::NodeStatus(Box::new(honest.status())),
        Message::NodeStatus(Box::new(elsewhere)),
        Message::DemandReport(demand),
        Message::RttReport(rtt),
        Message::AppDesired(desired),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(wire.report(message).await, 403, "report {n}");
        assert_eq!(refused(&rig, "report"), n as u64 + 1);
    }
    // Usage for apps that its cluster never served, and in another's name.
    let own = usage::sums_of("vault", 1, "m-2");
    let others = usage::sums_of("vault", 2, "m-1");
    for sums in [own, others] {
        assert_eq!(wire.post("/edge/v1/usage/sums", &sums).await.0, 403);
    }
    let records = usage::records_of("vault", 3, "m-2");
    assert_eq!(wire.post("/edge/v1/usage/records", &records).await.0, 403);
    assert_eq!(refused(&rig, "usage"), 3);
    // To be the head in another's name; that of another cluster there is no way to ask for.
    let lease = LeaseRequest {
        node: honest.name.clone(),
        epoch: None,
        ttl_ms: 1000,
    };
    assert_eq!(wire.post("/edge/v1/lease", &lease).await.0, 403);
    assert_eq!(refused(&rig, "lease"), 1);
    // Another's certificate, by one's own key and by that of the other.
    for key in [&thief.key, &honest.key] {
        let (serial, at) = (&honest.answer.identity.serial, fdn_service::now());
        let text = RenewRequest::signed_text(serial, at, &addresses(1));
        let renewal = RenewRequest {
            serial: serial.clone(),
            at,
            addresses: addresses(1),
            signature: key.sign(&text).expect("signed"),
        };
        assert_eq!(wire.post("/edge/v1/renew", &renewal).await.0, 403);
    }
    assert_eq!(refused(&rig, "renew"), 2);
    // What is its own is taken, and an app that is not is left out.
    let mut status = thief.status();
    status.apps = vec![serde_json::from_value(json!({
        "app": "vault", "revision": 1, "phase": { "phase": "ready" }, "invocations": 1, "errors": 0, "execution_mean": 1.0
    }))
    .expect("a state")];
    assert_eq!(
        wire.report(Message::NodeStatus(Box::new(status))).await,
        204
    );
    assert_eq!(refused(&rig, "status_app"), 1);
    let lease = LeaseRequest {
        node: thief.name.clone(),
        ..lease
    };
    let (status, got) = wire.post("/edge/v1/lease", &lease).await;
    assert_eq!((status, &got["holder"]), (200, &json!("m-2")));
}

async fn the_thief_of_a_nodes_key_moves_no_users(backend: Backend) {
    let (rig, _) = three_clusters(backend).await;
    let thief = Member::join(&rig, Role::Node, "ap-south", "m-2").await;
    let mut wire = thief.connect(&[&rig]);
    wire.up().await;
    // Users and controllers sent to an address of its choice.
    let elsewhere = "169.254.169.254:80".parse().expect("address");
    let gateway = fdn_core::message::NodeStatus {
        gateway: elsewhere,
        ..thief.status()
    };
    let admin = fdn_core::message::NodeStatus {
        admin: elsewhere,
        ..thief.status()
    };
    for status in [gateway, admin] {
        let status = Message::NodeStatus(Box::new(status));
        assert_eq!(wire.report(status).await, 403);
    }
    assert_eq!(refused(&rig, "address"), 2);
    let (serial, at) = (&thief.answer.identity.serial, fdn_service::now());
    let text = RenewRequest::signed_text(serial, at, &addresses(2));
    let renewal = RenewRequest {
        serial: serial.clone(),
        at,
        addresses: addresses(2),
        signature: thief.key.sign(&text).expect("signed"),
    };
    let (_, problem) = wire.post("/edge/v1/renew", &renewal).await;
    assert_eq!(problem["code"], "FDN-7008", "{problem}");
    // Its cluster is where the operator said, wherever it says it is.
    let mut status = thief.status();
    (status.region, status.location) = (
        "moon".parse().expect("a region"),
        fdn_core::GeoPoint::new(53.35, -6.26).expect("a position"),
    );
    let status = Message::NodeStatus(Box::new(status));
    assert_eq!(wire.report(status).await, 204);
    let known = rig
        .controller
        .state()
        .live
        .lock()
        .expect("whole")
        .clusters();
    let far = known.get(&thief.cluster.parse().expect("a cluster"));
    let (region, location) = far.expect("there");
    assert_eq!(region.as_str(), "eu");
    assert_eq!(
        *location,
        fdn_core::GeoPoint::new(-33.9, 151.2).expect("a position")
    );
}

fn round_trips(node: &str, cluster: &str) -> RttReport {
    RttReport {
        node: node.parse().expect("a node"),
        cluster: cluster.parse().expect("a cluster"),
        samples: Vec::new(),
        links: Vec::new(),
    }
}

async fn the_thief_of_a_dns_servers_key_gets_no_further(backend: Backend) {
    let (rig, digest) = three_clusters(backend).await;
    let thief = Member::join(&rig, Role::Dns, "eu-west", "d-1").await;
    let mut wire = thief.connect(&[&rig]);
    let revision = rig.dns_snapshot().await.revision;
    let (frames, _) = wire.until(revision).await;
    assert!(
        frames
            .iter()
            .any(|frame| matches!(frame, Frame::Bindings(_)))
    );
    assert!(
        frames
            .iter()
            .any(|frame| matches!(frame, Frame::Network(_)))
    );
    assert!(!frames.iter().any(|frame| matches!(frame, Frame::App(_))));
    let all = serde_json::to_string(&frames).expect("JSON");
    assert!(!all.contains("hunter2"));
    // Its own cluster's nodes hold the app; it does not.
    let artifact = format!("/edge/v1/artifacts/{digest}");
    assert_eq!(wire.get(&artifact, None).await.0, 403);
    let status = node_at("d-1", "eu-west", 53.35, -6.26);
    let demand = |server: &str| {
        Message::DemandReport(DemandReport {
            server: server.to_owned(),
            entries: Vec::new(),
        })
    };
    for message in [
        Message::NodeStatus(Box::new(status)),
        Message::RttReport(round_trips("d-1", "eu-west")),
        demand("d-2"),
    ] {
        assert_eq!(wire.report(message).await, 403);
    }
    assert_eq!(refused(&rig, "report"), 3);
    let sums = usage::sums_of("vault", 1, "d-1");
    assert_eq!(wire.post("/edge/v1/usage/sums", &sums).await.0, 403);
    let lease = LeaseRequest {
        node: thief.name.clone(),
        epoch: None,
        ttl_ms: 1000,
    };
    assert_eq!(wire.post("/edge/v1/lease", &lease).await.0, 403);
    assert_eq!(wire.report(demand("d-1")).await, 204);
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
        // No message is needed for it.
        rig.broker.down();
        let removed = rig.request(Method::DELETE, path).send().await;
        assert_eq!(removed.expect("an answer").status(), 204);
        wire.removed().await;
        again.removed().await;
        assert_eq!(rig.controller.state().metrics.edge.cut.get(), cut + 2);
        // It is told so at every handshake.
        let mut late = member.connect(&[&rig]);
        late.removed().await;
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
        // A fatal alert in the clear: certificate revoked (RFC 8446, 5.1 and 6).
        let alert = [0x15, 3, 3, 0, 2, 2, 44];
        stream.write_all(&alert).await.expect("written");
    }
    // It comes again at the pace of failures, and its parts have heard nothing.
    assert!(wire.connection.feed.told.try_recv().is_err());
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
    // Nor does a machine believe a controller of another network.
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
    // Whichever it is at, that one goes; the other one has all that is told from now on.
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
    let component = components::hello("octets");
    let deployed = rig.deploy("hello", component.clone()).await;
    let member = Member::join(&rig, Role::Node, "eu-west", "m-1").await;
    let mut wire = member.connect(&[&rig]);
    wire.until(deployed.revision).await;
    let path = format!("/edge/v1/artifacts/{}", deployed.digest);
    let (status, _, octets) = wire.get(&path, None).await;
    assert_eq!((status, &octets[..]), (200, &component[..]));
    let (status, range, octets) = wire.get(&path, Some("bytes=10-")).await;
    let expected = format!("bytes 10-{}/{}", component.len() - 1, component.len());
    assert_eq!((status, range), (206, expected));
    assert_eq!(&octets[..], &component[10..]);
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
            wire.post_octets(path, b"{\"batch\":7}".to_vec()).await.0,
            400
        );
        assert_eq!(wire.post_octets(path, vec![b' '; 17 << 20]).await.0, 413);
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

/// A way to a controller that swallows what it is given once it is told to, as a machine does that lost its power; how many came by it.
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
