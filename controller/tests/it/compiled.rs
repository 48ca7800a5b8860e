//! Machine code for nodes: kept and signed when an upload was compiled to be judged, gone with its component.

use fdn_controller::app::collect::round;
use fdn_core::Timestamp;
use fdn_core::api::{AppsSnapshot, DeployResponse};
use fdn_core::compiled::CompiledHead;
use fdn_core::digest::Digest;
use fdn_runtime::{Engine, EngineOptions};
use fdn_service::pki::PublicKey;
use fdn_testkit::components;
use reqwest::{Method, StatusCode};

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

fn path(deployed: &DeployResponse) -> String {
    format!("/agent/v1/compiled/{}/{}", deployed.digest, engine())
}

async fn nodes_get_signed_machine_code_until_its_component_goes(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let deployed = rig.deploy("hello", components::hello("hi")).await;
    let answer = rig
        .network(&path(&deployed))
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    let octets = answer.bytes().await.expect("octets");
    let end = octets
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a head");
    let head: CompiledHead = serde_json::from_slice(&octets[..end]).expect("a head");
    let code = &octets[end + 1..];
    assert_eq!(head.component, deployed.digest);
    assert_eq!(head.engine.as_str(), engine());
    assert_eq!(
        (head.code, head.size),
        (Digest::of(code), code.len() as u64)
    );
    let snapshot: AppsSnapshot = rig.json(rig.network("/agent/v1/apps")).await;
    let authorities = snapshot.fleet.expect("told").authorities;
    let key = PublicKey::of_authority(&authorities[0], fdn_service::now()).expect("an authority");
    assert!(key.verifies(&head.text(), &head.signature));
    assert_eq!(rig.leftovers(), [""; 0]);

    // Nobody but the network's machines, and for no other engine.
    let stranger = rig.anonymous(Method::GET, &path(&deployed));
    assert_eq!(
        stranger.send().await.expect("an answer").status(),
        StatusCode::UNAUTHORIZED
    );
    for other in ["00", "..%2f..%2fetc", "ABC"] {
        let path = format!("/agent/v1/compiled/{}/{other}", deployed.digest);
        let (status, problem) = rig.refused(rig.network(&path)).await;
        let expected = if other == "00" {
            (404, "FDN-2003")
        } else {
            (400, "FDN-2005")
        };
        assert_eq!(
            (status.as_u16(), problem.code.as_str()),
            expected,
            "{other}"
        );
    }

    // With the component, whose grace time is over.
    let delete = rig.request(Method::DELETE, "/v1/apps/hello");
    assert_eq!(delete.send().await.expect("an answer").status(), 204);
    let grace = rig.settings.artifacts.grace.as_millis();
    let later = Timestamp(fdn_service::now().get() + 2 * grace);
    assert_eq!(round(rig.controller.state(), later).await.expect("done"), 1);
    assert_eq!(rig.compiled(), [""; 0]);
    let (_, problem) = rig.refused(rig.network(&path(&deployed))).await;
    assert_eq!(problem.code.as_str(), "FDN-2003");
}

async fn without_the_setting_nothing_is_kept(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| settings.artifacts.compiled = false).await;
    let deployed = rig.deploy("hello", components::hello("hi")).await;
    assert_eq!(rig.compiled(), [""; 0]);
    let (_, problem) = rig.refused(rig.network(&path(&deployed))).await;
    assert_eq!(problem.code.as_str(), "FDN-2003");
    assert_eq!(rig.leftovers(), [""; 0]);
}
