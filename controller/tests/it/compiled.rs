//! Machine code for nodes: stored and signed when an upload was compiled, and deleted with its component.

use fdn_controller::app::collect::round;
use fdn_core::Timestamp;
use fdn_core::api::DeployResponse;
use fdn_core::compiled::CompiledHead;
use fdn_core::digest::Digest;
use fdn_core::enrol::Role;
use fdn_link::FeedEvent;
use fdn_runtime::{Engine, EngineOptions};
use fdn_service::pki::PublicKey;
use fdn_testkit::components;
use reqwest::Method;

use crate::edge_member::{Member, Wire};
use crate::rig::{Backend, Rig, on_both};

on_both!(
    nodes_get_signed_machine_code_until_its_component_goes,
    without_the_setting_nothing_is_kept,
);

fn engine() -> String {
    let engine = Engine::new(EngineOptions {
        max_instances: 1,
        ..EngineOptions::default()
    });
    engine.expect("an engine").compatibility_key().to_owned()
}

fn path(deployed: &DeployResponse, engine: &str) -> String {
    format!("/edge/v1/compiled/{}/{engine}", deployed.digest)
}

/// A node that has been told what was deployed.
async fn node(rig: &Rig, deployed: &DeployResponse) -> (Member, Wire) {
    let member = Member::join(rig, Role::Node, "eu-west", "m-1").await;
    let mut wire = member.connect(&[rig]);
    wire.until(deployed.revision).await;
    (member, wire)
}

async fn nodes_get_signed_machine_code_until_its_component_goes(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.cluster("eu-west").await;
    let deployed = rig.deploy("hello", components::hello("hi")).await;
    let (_member, mut wire) = node(&rig, &deployed).await;
    let here = path(&deployed, &engine());
    let (status, _, bytes) = wire.get(&here, None).await;
    assert_eq!(status, 200);
    let end = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a head");
    let head: CompiledHead = serde_json::from_slice(&bytes[..end]).expect("a head");
    let code = &bytes[end + 1..];
    assert_eq!(head.component, deployed.digest);
    assert_eq!(head.engine.as_str(), engine());
    assert_eq!(
        (head.code, head.size),
        (Digest::of(code), code.len() as u64)
    );
    let fleet = rig.apps_snapshot().await.fleet.expect("told");
    let key =
        PublicKey::of_authority(&fleet.authorities[0], fdn_service::now()).expect("an authority");
    assert!(key.verifies(&head.text(), &head.signature));
    assert_eq!(rig.leftovers(), [""; 0]);

    // There is none for other engines, nor for components that nobody deployed.
    for (engine, expected) in [("00", 404), ("..%2f..%2fetc", 400), ("ABC", 400), ("", 400)] {
        let (status, _, _) = wire.get(&path(&deployed, engine), None).await;
        assert_eq!(status, expected, "{engine}");
    }
    let none = format!("/edge/v1/compiled/{}/{}", Digest::of(b"none"), engine());
    assert_eq!(wire.get(&none, None).await.0, 403);
    // DNS servers get none either, since they run nothing.
    let resolver = Member::join(&rig, Role::Dns, "eu-west", "d-1").await;
    let mut other = resolver.connect(&[&rig]);
    other.up().await;
    assert_eq!(other.get(&here, None).await.0, 403);
    let refused = &rig.controller.state().metrics.edge.refused;
    assert_eq!(refused.with_label_values(&["compiled"]).get(), 2);

    // It is deleted with the component, after the grace period.
    let delete = rig.request(Method::DELETE, "/v1/apps/hello");
    assert_eq!(delete.send().await.expect("an answer").status(), 204);
    let grace = rig.settings.artifacts.grace.as_millis();
    let later = Timestamp(fdn_service::now().get() + 2 * grace);
    assert_eq!(round(rig.controller.state(), later).await.expect("done"), 1);
    assert_eq!(rig.compiled(), [""; 0]);
    until_deleted(&mut wire).await;
    assert_eq!(wire.get(&here, None).await.0, 404);
}

async fn until_deleted(wire: &mut Wire) {
    loop {
        if let FeedEvent::Change(frame) = wire.told().await
            && Wire::app(&[frame], "hello").is_some_and(|(there, _)| !there)
        {
            return;
        }
    }
}

async fn without_the_setting_nothing_is_kept(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| settings.artifacts.compiled = false).await;
    rig.cluster("eu-west").await;
    let deployed = rig.deploy("hello", components::hello("hi")).await;
    assert_eq!(rig.compiled(), [""; 0]);
    let (_member, wire) = node(&rig, &deployed).await;
    assert_eq!(wire.get(&path(&deployed, &engine()), None).await.0, 404);
    assert_eq!(rig.leftovers(), [""; 0]);
}
