//! A thief with the certificate and key of a node or a DNS server gets what that machine could, and nothing else: each attempt beyond that is
//! refused, counted, and logged with the machine's name.

use fdn_core::enrol::{LeaseRequest, RenewRequest, Role};
use fdn_core::feed::Frame;
use fdn_core::message::{AppDesired, DemandReport, Message, RttReport};
use fdn_core::{Digest, Revision};
use fdn_testkit::components;
use reqwest::Method;
use serde_json::{Value, json};

use crate::edge_member::Member;
use crate::heard;
use crate::machines::{addresses, until};
use crate::rig::{Backend, Rig, node_at, on_both, two_regions};
use crate::usage;

on_both!(
    the_thief_of_a_nodes_key_gets_no_further,
    the_thief_of_a_nodes_key_moves_no_users,
    the_thief_of_a_dns_servers_key_gets_no_further,
);

/// Two clusters that serve the app `vault`, and one far from all clients; with the digest of the app.
pub(crate) async fn three_clusters(backend: Backend) -> (Rig, Digest) {
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

/// The number of refusals of this kind.
pub(crate) fn refused(rig: &Rig, what: &str) -> u64 {
    let refused = &rig.controller.state().metrics.edge.refused;
    refused.with_label_values(&[what]).get()
}

/// Reports that only other machines may send: another node, a node of another cluster, a DNS server, a controller.
fn reports_for_others(thief: &Member, honest: &Member) -> [Message; 5] {
    let elsewhere = fdn_core::message::NodeStatus {
        cluster: "eu-west".parse().expect("a cluster"),
        ..thief.status()
    };
    let demand = DemandReport {
        server: thief.name.to_string(),
        entries: Vec::new(),
    };
    let rtt = RttReport {
        node: honest.name.clone(),
        ..round_trips(thief.name.as_str(), "ap-south")
    };
    let desired = AppDesired {
        app: "vault".parse().expect("app"),
        revision: Revision(1_000_000),
        spec: None,
    };
    [
        Message::NodeStatus(Box::new(honest.status())),
        Message::NodeStatus(Box::new(elsewhere)),
        Message::DemandReport(demand),
        Message::RttReport(rtt),
        Message::AppDesired(desired),
    ]
}

/// What the log must contain about the thief of a node's key, in order: the kind of each refusal, and the attempt.
fn tried_by_the_thief_of_a_node() -> Vec<(&'static str, &'static str)> {
    let reports = [
        "report for another node",
        "report for another node",
        "speak for controllers or DNS servers",
        "report for another node",
        "speak for controllers or DNS servers",
    ];
    [
        ("path", "call POST /v1/apps/vault/versions"),
        (
            "artifact",
            "fetch artifacts that its cluster does not serve",
        ),
        (
            "compiled",
            "fetch artifacts that its cluster does not serve",
        ),
    ]
    .into_iter()
    .chain(reports.map(|tried| ("report", tried)))
    .chain([
        (
            "usage",
            "write usage of apps that its cluster does not serve",
        ),
        ("usage", "write usage of another node"),
        (
            "usage",
            "write usage of apps that its cluster does not serve",
        ),
        ("lease", "ask for a lease in another node's name"),
        ("renew", "renew another machine's certificate"),
        ("renew", "renew another machine's certificate"),
        (
            "status_app",
            "tell of vault, which its cluster was never told of",
        ),
    ])
    .collect()
}

async fn the_thief_of_a_nodes_key_gets_no_further(backend: Backend) {
    let (rig, digest) = three_clusters(backend).await;
    let honest = Member::join(&rig, Role::Node, "eu-west", "m-1").await;
    let name = heard::fresh("node");
    let thief = Member::join(&rig, Role::Node, "ap-south", &name).await;
    let mut wire = thief.connect(&[&rig]);
    wire.up().await;
    // Deploying, over the edge connection or with the token from joining.
    assert_eq!(
        wire.post("/v1/apps/vault/versions", &json!({})).await.0,
        404
    );
    assert_eq!(refused(&rig, "path"), 1);
    // An unknown path among the machines' own may be of a later release.
    assert_eq!(wire.post("/edge/v2/report", &json!({})).await.0, 404);
    assert_eq!(refused(&rig, "path"), 1);
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
    // Reports for other machines.
    for (n, message) in reports_for_others(&thief, &honest).into_iter().enumerate() {
        assert_eq!(wire.report(message).await, 403, "report {n}");
        assert_eq!(refused(&rig, "report"), n as u64 + 1);
    }
    // Usage of apps that its cluster never served, and of another node.
    let own = usage::sums_of("vault", 1, &name);
    let others = usage::sums_of("vault", 2, "m-1");
    for sums in [own, others] {
        assert_eq!(wire.post("/edge/v1/usage/sums", &sums).await.0, 403);
    }
    let records = usage::records_of("vault", 3, &name);
    assert_eq!(wire.post("/edge/v1/usage/records", &records).await.0, 403);
    assert_eq!(refused(&rig, "usage"), 3);
    // The lease in another node's name; there is no request for another cluster's lease.
    let lease = LeaseRequest {
        node: honest.name.clone(),
        epoch: None,
        ttl_ms: 1000,
    };
    assert_eq!(wire.post("/edge/v1/lease", &lease).await.0, 403);
    assert_eq!(refused(&rig, "lease"), 1);
    // Another node's certificate, with its own key and with that node's key.
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
    // Its own report is accepted, without the app that its cluster does not hold.
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
    assert_eq!((status, &got["holder"]), (200, &json!(name)));
    // The log names the machine and each attempt, in order.
    assert_eq!(
        heard::refusals(&format!("fdn://cluster/ap-south/node/{name}")),
        heard::named(tried_by_the_thief_of_a_node())
    );
}

async fn the_thief_of_a_nodes_key_moves_no_users(backend: Backend) {
    let (rig, _) = three_clusters(backend).await;
    let name = heard::fresh("node");
    let thief = Member::join(&rig, Role::Node, "ap-south", &name).await;
    let mut wire = thief.connect(&[&rig]);
    wire.up().await;
    // Attempts to send users and controllers to an address of its choice.
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
    assert_eq!(refused(&rig, "address"), 3);
    let tried = "be reached elsewhere than it joined with; join it again if it moved";
    assert_eq!(
        heard::refusals(&format!("fdn://cluster/ap-south/node/{name}")),
        heard::named([("address", tried); 3])
    );
    // Its cluster's location is the operator's, whatever the node reports.
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
    let name = heard::fresh("dns");
    let thief = Member::join(&rig, Role::Dns, "eu-west", &name).await;
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
    // The nodes of its cluster hold the app; a DNS server does not.
    let artifact = format!("/edge/v1/artifacts/{digest}");
    assert_eq!(wire.get(&artifact, None).await.0, 403);
    let status = node_at(&name, "eu-west", 53.35, -6.26);
    let demand = |server: &str| {
        Message::DemandReport(DemandReport {
            server: server.to_owned(),
            entries: Vec::new(),
        })
    };
    for message in [
        Message::NodeStatus(Box::new(status)),
        Message::RttReport(round_trips(&name, "eu-west")),
        demand("another"),
    ] {
        assert_eq!(wire.report(message).await, 403);
    }
    assert_eq!(refused(&rig, "report"), 3);
    let sums = usage::sums_of("vault", 1, &name);
    assert_eq!(wire.post("/edge/v1/usage/sums", &sums).await.0, 403);
    let lease = LeaseRequest {
        node: thief.name.clone(),
        epoch: None,
        ttl_ms: 1000,
    };
    assert_eq!(wire.post("/edge/v1/lease", &lease).await.0, 403);
    assert_eq!(wire.report(demand(&name)).await, 204);
    assert_eq!(
        wire.post("/v1/apps/vault/versions", &json!({})).await.0,
        404
    );
    for what in ["artifact", "usage", "lease", "path"] {
        assert_eq!(refused(&rig, what), 1, "{what}");
    }
    let expected = [
        ("artifact", "do what nodes do"),
        ("report", "report anything but demand"),
        ("report", "report anything but demand"),
        ("report", "report for another DNS server"),
        ("usage", "do what nodes do"),
        ("lease", "do what nodes do"),
        ("path", "call POST /v1/apps/vault/versions"),
    ];
    assert_eq!(
        heard::refusals(&format!("fdn://cluster/eu-west/dns/{name}")),
        heard::named(expected)
    );
}
