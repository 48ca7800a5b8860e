//! Limits on what machines are told and may take from a controller.

use bytes::Bytes;
use fdn_controller::Settings;
use fdn_controller::app::lease;
use fdn_controller::store::outbox::outbox_waits;
use fdn_core::enrol::{LeaseRequest, Role};
use fdn_core::message::Message;
use fdn_core::{ByteSize, DurationMs, Revision};
use fdn_link::read_body;
use fdn_testkit::components;
use reqwest::Method;
use tokio::net::TcpStream;

use crate::edge_member::{Member, Wire};
use crate::machines::until;
use crate::rig::{Backend, Rig, node_at, two_regions};
use crate::usage;

/// Three clusters with a node each, and a deployed app.
async fn small_network() -> (Rig, fdn_core::api::DeployResponse) {
    network_of(components::hello("x"), |_| {}).await
}

/// Like [`small_network`], with this component and these settings.
async fn network_of(
    component: Vec<u8>,
    change: impl FnOnce(&mut Settings),
) -> (Rig, fdn_core::api::DeployResponse) {
    let rig = Rig::start_with(Backend::Sqlite, change).await;
    // Machines will join this cluster, so it exists before any node reports from it.
    rig.cluster_at("ap-south", -33.9, 151.2).await;
    rig.node(node_at("ap-1", "ap-south", -33.9, 151.2)).await;
    for status in two_regions() {
        rig.node(status).await;
    }
    until("all to live", async || {
        let clusters: Vec<serde_json::Value> = rig.get("/v1/clusters").await;
        clusters.len() == 3 && clusters.iter().all(|one| one["nodes_alive"] == 1)
    })
    .await;
    let deployed = rig.deploy("hello", component).await;
    (rig, deployed)
}

/// More bytes than fit into the buffers of a connection.
const LARGE: usize = 4 << 20;

/// A component padded by that many bytes.
fn large() -> Vec<u8> {
    let mut component = components::hello("x");
    // A custom section (WebAssembly, binary format, 5.5.3): 0, its length in LEB128, its name, and arbitrary content.
    let name = [3, b'p', b'a', b'd'];
    let mut left = LARGE + name.len();
    let seven = |of: usize| u8::try_from(of % 0x80).expect("seven bits");
    component.push(0);
    while left >= 0x80 {
        component.push(seven(left) | 0x80);
        left /= 0x80;
    }
    component.push(seven(left));
    component.extend(name);
    component.extend(std::iter::repeat_n(b' ', LARGE));
    component
}

/// The response to a request for an artifact, whose body is not read yet.
async fn begin(wire: &Wire, path: &str) -> http::Response<fdn_link::Body> {
    let request = http::Request::get(path).body(Bytes::new());
    let answer = wire
        .connection
        .controllers
        .send(request.expect("a request"));
    let answer = answer.await.expect("an answer");
    assert_eq!(answer.status(), 200);
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_an_artifact_and_does_not_read_it_is_cut() {
    let stall = |settings: &mut Settings| settings.edge.stall = DurationMs::from_secs(1);
    let (rig, deployed) = network_of(large(), stall).await;
    let node = Member::join(&rig, Role::Node, "ap-south", "m-1").await;
    let mut wire = node.connect(&[&rig]);
    wire.until(deployed.revision).await;
    let path = format!("/edge/v1/artifacts/{}", deployed.digest);
    let (status, _, bytes) = wire.get(&path, None).await;
    assert_eq!((status, bytes), (200, large().into()));
    let metrics = &rig.controller.state().metrics.edge;
    assert_eq!(metrics.stalled.get(), 0);
    let answer = begin(&wire, &path).await;
    until("the slow reader to be cut", async || {
        metrics.stalled.get() > 0
    })
    .await;
    assert!(read_body(answer.into_body(), 2 * LARGE).await.is_err());
    // It connects again, and is told new changes.
    wire.up().await;
    let next = rig.deploy("other", components::hello("y")).await;
    wire.until(next.revision).await;
    assert_eq!(metrics.cut.get(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_removed_reads_no_artifact_to_its_end() {
    let (rig, deployed) = network_of(large(), |_| {}).await;
    let node = Member::join(&rig, Role::Node, "ap-south", "m-1").await;
    let mut wire = node.connect(&[&rig]);
    wire.until(deployed.revision).await;
    let path = format!("/edge/v1/artifacts/{}", deployed.digest);
    let answer = begin(&wire, &path).await;
    let removed = rig.request(Method::DELETE, "/v1/nodes/m-1").send().await;
    assert_eq!(removed.expect("an answer").status(), 204);
    let metrics = &rig.controller.state().metrics.edge;
    until("the connection to be cut", async || metrics.cut.get() > 0).await;
    assert!(read_body(answer.into_body(), 2 * LARGE).await.is_err());
    assert_eq!(metrics.stalled.get(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_joins_a_small_network_is_told_of_no_app() {
    let (rig, deployed) = small_network().await;
    let all = rig.apps_snapshot().await;
    let spec = all.apps[0].spec.as_ref().expect("there");
    assert_eq!(spec.holders.named().map(|named| named.len()), Some(3));
    rig.cluster("rack-4").await;
    let member = Member::join(&rig, Role::Node, "rack-4", "m-4").await;
    let mut wire = member.connect(&[&rig]);
    let (frames, snapshots) = wire.until(deployed.revision).await;
    assert_eq!(snapshots, 1);
    assert_eq!(Wire::app(&frames, "hello"), None);
    let artifact = format!("/edge/v1/artifacts/{}", deployed.digest);
    assert_eq!(wire.get(&artifact, None).await.0, 403);
    // Nor does it become a holder by reporting itself there; and it never served calls that it could bill.
    let far = member.status();
    let said = wire.report(Message::NodeStatus(Box::new(far)));
    assert_eq!(said.await, 204);
    let sums = usage::sums_of("hello", 1, "m-4");
    assert_eq!(wire.post("/edge/v1/usage/sums", &sums).await.0, 403);
    // Of the three clusters, a holder is told.
    let holder = Member::join(&rig, Role::Node, "ap-south", "m-1").await;
    let mut wire = holder.connect(&[&rig]);
    let (frames, _) = wire.until(deployed.revision).await;
    assert!(Wire::app(&frames, "hello").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_node_gets_no_lease_however_fast_it_asks() {
    let rig = Rig::start().await;
    rig.cluster("eu-west").await;
    let member = Member::join(&rig, Role::Node, "eu-west", "n-1").await;
    let state = rig.controller.state();
    let wish = LeaseRequest {
        node: member.name.clone(),
        epoch: None,
        ttl_ms: 1000,
    };
    let cluster = "eu-west".parse().expect("a cluster");
    let now = fdn_service::now();
    let got = lease::acquire(state, &cluster, &wish, now).await;
    assert_eq!(got.expect("a lease").holder, member.name);
    let removed = rig.request(Method::DELETE, "/v1/nodes/n-1").send().await;
    assert_eq!(removed.expect("an answer").status(), 204);
    // As if no controller had heard of the removal yet.
    let refused = lease::acquire(state, &cluster, &wish, now).await;
    assert!(matches!(
        refused,
        Err(fdn_controller::Error::Forbidden { .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_sent_yet_is_seen_in_the_database() {
    let rig = Rig::start().await;
    rig.cluster("eu-west").await;
    rig.broker.down();
    let deployed = rig.deploy("hello", components::hello("x")).await;
    let waits = async |after: Revision| {
        let mut connection = rig
            .controller
            .state()
            .store
            .read()
            .await
            .expect("connected");
        outbox_waits(&mut connection, after).await.expect("read")
    };
    let before = Revision(deployed.revision.get() - 1);
    assert!(waits(before).await);
    rig.broker.up();
    until("all to be sent", async || !waits(before).await).await;
}

/// Waits until connections were refused for the reason `why`.
async fn refused(rig: &Rig, why: &str) {
    let accepted = &rig.controller.state().metrics.edge.accepted;
    until(why, async || accepted.with_label_values(&[why]).get() > 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_take_no_machines_place() {
    let rig = Rig::start_with(Backend::Sqlite, |settings| {
        settings.edge.connections = 1;
        settings.edge.handshakes = 3;
    })
    .await;
    rig.cluster("eu-west").await;
    let members = [
        Member::join(&rig, Role::Node, "eu-west", "m-1").await,
        Member::join(&rig, Role::Node, "eu-west", "m-2").await,
    ];
    // Two connections that never present a certificate.
    let address = rig.controller.edge_address();
    let stranger = async || TcpStream::connect(address).await.expect("connected");
    let strangers = [stranger().await, stranger().await];
    let mut wire = members[0].connect(&[&rig]);
    wire.up().await;
    // There is no room for another machine.
    let second = members[1].connect(&[&rig]);
    refused(&rig, "full").await;
    drop(second);
    // Nor for further handshakes.
    let more = [stranger().await, stranger().await];
    refused(&rig, "busy").await;
    drop((strangers, more));
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_take_bounded_memory_and_dns_servers_hand_over_no_usage() {
    let rig = Rig::start_with(Backend::Sqlite, |settings| {
        settings.edge.report_limit = ByteSize::from_bytes(32 << 10);
        settings.edge.bodies_size = ByteSize::from_bytes(64 << 10);
        settings.usage.body_limit = ByteSize::from_bytes(64 << 10);
    })
    .await;
    rig.cluster("eu-west").await;
    let node = Member::join(&rig, Role::Node, "eu-west", "m-1").await;
    let mut wire = node.connect(&[&rig]);
    wire.up().await;
    let path = "/edge/v1/usage/sums";
    let post = async |wire: &Wire, size: usize| wire.post_bytes(path, vec![b' '; size]).await.0;
    assert_eq!(post(&wire, 100 << 10).await, 413);
    // There is room, but the content is not valid.
    assert_eq!(post(&wire, 60 << 10).await, 400);
    assert_eq!(post(&wire, 60 << 10).await, 400);
    assert_eq!(rig.controller.state().metrics.edge.body_bytes.get(), 0);
    let dns = Member::join(&rig, Role::Dns, "eu-west", "d-1").await;
    let mut wire = dns.connect(&[&rig]);
    wire.up().await;
    assert_eq!(post(&wire, 100 << 10).await, 403);
}
