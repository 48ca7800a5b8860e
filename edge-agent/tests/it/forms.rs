//! Forms of a function on a node: which one it serves, how it changes from one to the other, and who is told.

use fdn_core::Digest;
use fdn_core::form::{FormManifest, FormSpec};
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::message::{AppDesired, AppObserved, AppPhase};
use fdn_core::usage::CallList;
use fdn_testkit::components;

use crate::support::Network;

/// Another form, of a component.
fn form(name: &str, runtime: RuntimeKind, artifact: &[u8]) -> FormSpec {
    let text = format!("name = \"{name}\"\nruntime = \"wasm\"");
    let manifest: FormManifest = toml::from_str(&text).expect("a form");
    FormSpec {
        manifest: FormManifest {
            runtime,
            ..manifest
        },
        digest: Digest::of(artifact),
        size: artifact.len() as u64,
    }
}

/// Has the cluster serve a form.
fn choose(desired: &mut AppDesired, form: &str) {
    let spec = desired.spec.as_mut().expect("it exists");
    let stage = spec.workflow.entry().name.clone();
    let stages = [(stage, form.parse().expect("form"))].into();
    spec.forms = [("eu-west".parse().expect("cluster"), stages)].into();
}

/// What the node tells of the app once it serves a form.
async fn served(network: &Network, form: &str) -> AppObserved {
    let of = |app: &AppObserved| {
        app.app.as_str() == "hello"
            && app.phase == AppPhase::Ready
            && app
                .form
                .as_ref()
                .is_some_and(|known| known.as_str() == form)
    };
    let status = network.until_status(|status| status.apps.iter().any(of));
    let apps = status.await.apps;
    apps.into_iter().find(of).expect("it was there")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_serves_the_form_of_its_cluster_and_changes_without_a_gap() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let (first, second) = (components::hello("first"), components::hello("second"));
    network.controller.store(&first);
    network.controller.store(&second);
    let mut desired = network.desired("hello", 1, &first, Manifest::default(), true);
    let spec = desired.spec.as_mut().expect("it exists");
    spec.functions[0].forms = vec![form("other", RuntimeKind::Wasm, &second)];
    network.demand(desired.clone()).await;
    // Nothing was chosen: the first one that runs here.
    network.until_text(&agent, "hello", "first").await;
    served(&network, "main").await;
    desired.revision = network.next_revision();
    choose(&mut desired, "other");
    network.demand(desired.clone()).await;
    // Calls are answered all the time, by one form or the other.
    loop {
        let text = network.text(&agent, "hello").await;
        assert!(["first", "second"].contains(&text.as_str()), "{text}");
        if text == "second" {
            break;
        }
    }
    served(&network, "other").await;
    let calls = network.ask(&agent, "/calls/hello?limit=1").send().await;
    let calls: CallList = calls.expect("an answer").json().await.expect("calls");
    let form = calls.calls[0].routed.form.as_ref();
    assert_eq!(form.map(|form| form.as_str()), Some("other"));
    // A form that the version does not have is no choice.
    desired.revision = network.next_revision();
    choose(&mut desired, "gone");
    network.demand(desired).await;
    network.until_text(&agent, "hello", "first").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_containers_serves_the_component() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let component = components::hello("component");
    network.controller.store(&component);
    let image = b"ghcr.io/acme/thumbs@sha256:00".as_slice();
    let manifest = Manifest {
        runtime: RuntimeKind::Docker,
        ..Manifest::default()
    };
    let mut desired = network.desired("hello", 1, image, manifest, true);
    let spec = desired.spec.as_mut().expect("it exists");
    spec.functions[0].forms = vec![form("wasm", RuntimeKind::Wasm, &component)];
    // Chosen for other nodes of the cluster, which have an engine.
    choose(&mut desired, "main");
    network.demand(desired).await;
    network.until_text(&agent, "hello", "component").await;
    let found = served(&network, "wasm").await;
    assert_eq!(found.serves, Some(true));
    agent.stop().await;
}
