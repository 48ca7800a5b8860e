//! What nodes may fetch: everything that they are told to serve, in all forms and versions, and nothing else.

use fdn_core::api::DeployResponse;
use fdn_core::enrol::Role;
use fdn_core::{Digest, DurationMs};
use fdn_testkit::components;
use reqwest::Method;
use serde_json::{Value, json};

use crate::edge_member::{Member, Wire};
use crate::forms::{MANIFEST, image, upload};
use crate::machines::until;
use crate::rig::{Backend, Rig, on_both, two_regions};

on_both!(
    a_node_fetches_all_that_it_is_told_to_serve,
    a_controller_that_has_not_heard_of_a_version_asks_the_database,
);

/// Two clusters with a node each.
async fn two_clusters(rig: &Rig) {
    for (cluster, lat, lon) in [("eu-west", 53.35, -6.26), ("us-east", 39.04, -77.49)] {
        rig.cluster_at(cluster, lat, lon).await;
    }
    speak(rig).await;
    until("both to live", async || {
        let clusters: Vec<Value> = rig.get("/v1/clusters").await;
        clusters.iter().all(|one| one["nodes_alive"] == 1)
    })
    .await;
}

async fn speak(rig: &Rig) {
    for mut status in two_regions() {
        status.region = "eu".parse().expect("a region");
        rig.node(status).await;
    }
}

/// Deploys a version of `hello` that is a component, with an image as a second form; returns the digests of both.
async fn two_forms(rig: &Rig) -> [Digest; 2] {
    let both = upload(rig, MANIFEST, &[("form.image", image())]);
    let deployed: DeployResponse = rig.json(both).await;
    let all = rig.apps_snapshot().await;
    let spec = all.apps[0].spec.as_ref().expect("there");
    [deployed.digest, spec.functions[0].forms[0].digest]
}

/// The response statuses of a node's fetches.
async fn answers(wire: &Wire, digests: &[Digest]) -> Vec<u16> {
    let mut all = Vec::new();
    for digest in digests {
        let path = format!("/edge/v1/artifacts/{digest}");
        all.push(wire.get(&path, None).await.0);
    }
    all
}

/// Waits until a node's fetches get these statuses.
async fn answered(wire: &Wire, digests: &[Digest], expected: &[u16]) {
    until(&format!("{expected:?}"), async || {
        answers(wire, digests).await == expected
    })
    .await;
}

async fn split(rig: &Rig, shares: &[(u32, u32)]) {
    let one = |(version, weight): &(u32, u32)| json!({ "version": version, "weight": weight });
    let split: Vec<Value> = shares.iter().map(one).collect();
    let put = rig.request(Method::PUT, "/v1/apps/hello/traffic");
    let _: Value = rig.json(put.json(&json!({ "split": split }))).await;
}

/// The number of refused fetches that counted as offences.
fn offences(rig: &Rig) -> u64 {
    let refused = &rig.controller.state().metrics.edge.refused;
    refused.with_label_values(&["artifact"]).get()
}

async fn a_node_fetches_all_that_it_is_told_to_serve(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| settings.planner.spread = 2).await;
    two_clusters(&rig).await;
    let [main, image] = two_forms(&rig).await;
    let second = rig.deploy("hello", components::hello("two")).await;
    let all = [main, image, second.digest];
    split(&rig, &[(1, 1), (2, 1)]).await;
    let node = Member::join(&rig, Role::Node, "eu-west", "m-1").await;
    // This cluster joins after others hold everything.
    rig.cluster("rack-3").await;
    let other = Member::join(&rig, Role::Node, "rack-3", "m-3").await;
    let (mut wire, mut far) = (node.connect(&[&rig]), other.connect(&[&rig]));
    wire.up().await;
    far.up().await;
    answered(&wire, &all, &[200, 200, 200]).await;
    let before = offences(&rig);
    assert_eq!(answers(&far, &all).await, [403, 403, 403]);
    assert_eq!(offences(&rig), before + 3);
    drop((wire, far));

    // A controller that has just started knows the older version, too.
    let rig = rig.restart().await;
    speak(&rig).await;
    let mut wire = node.connect(&[&rig]);
    wire.up().await;
    assert_eq!(answers(&wire, &all).await, [200, 200, 200]);
    assert_eq!(offences(&rig), 0);

    // A version without a share of the calls is no longer served, but a fetch is no offence: neither now nor after another restart.
    split(&rig, &[(2, 1)]).await;
    answered(&wire, &all, &[404, 404, 200]).await;
    drop(wire);
    let rig = rig.restart().await;
    speak(&rig).await;
    let (mut wire, mut far) = (node.connect(&[&rig]), other.connect(&[&rig]));
    wire.up().await;
    far.up().await;
    assert_eq!(answers(&wire, &all).await, [404, 404, 200]);
    assert_eq!(offences(&rig), 0);
    assert_eq!(answers(&far, &all).await, [403, 403, 403]);
    let none = [Digest::of(b"none")];
    assert_eq!(answers(&wire, &none).await, [403]);
    assert_eq!(offences(&rig), 4);

    // A rollback to the older version.
    let back = rig.request(Method::POST, "/v1/apps/hello/rollback");
    let _: Value = rig.json(back.json(&json!({ "version": 1 }))).await;
    answered(&wire, &all, &[200, 200, 404]).await;
    assert_eq!(offences(&rig), 4);
}

async fn a_controller_that_has_not_heard_of_a_version_asks_the_database(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        settings.edge.refresh = DurationMs::from_secs(3600);
    })
    .await;
    two_clusters(&rig).await;
    let first = rig.deploy("hello", components::hello("one")).await;
    let node = Member::join(&rig, Role::Node, "eu-west", "m-1").await;
    let mut wire = node.connect(&[&rig]);
    wire.up().await;
    answered(&wire, &[first.digest], &[200]).await;
    // Another controller may tell the node of the new version first.
    rig.broker.down();
    let second = rig.deploy("hello", components::hello("two")).await;
    assert_eq!(answers(&wire, &[second.digest]).await, [200]);
    let app = "hello".parse().expect("an app");
    let change_log = rig.controller.state().edge.change_log.lock();
    let heard = change_log.expect("not poisoned").revision_of(&app);
    assert!(heard < second.revision, "{heard:?}");
}
