//! Forms of a function on a node: which one it serves, how it changes between them, and what it reports.

use fdn_core::form::{FormManifest, FormSpec};
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::message::{AppDesired, AppObserved, AppPhase};
use fdn_core::usage::CallList;
use fdn_core::{Digest, DurationMs};
use fdn_testkit::{components, wait};

use crate::bursts::container;
use crate::support::Network;
use crate::support::peers::{Meeting, Member, address, is_whole, settings, until_status};

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

/// Chooses the form for the cluster.
fn choose(desired: &mut AppDesired, form: &str) {
    let spec = desired.spec.as_mut().expect("it exists");
    let stage = spec.workflow.entry().name.clone();
    let stages = [(stage, form.parse().expect("form"))].into();
    spec.forms = [("eu-west".parse().expect("cluster"), stages)].into();
}

/// Waits for the node's report that it serves a form.
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
    // Without a choice, the first form that runs here is served.
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
    // Records are written asynchronously.
    wait::until("the newest call's record", async || {
        let calls = network.ask(&agent, "/calls/hello?limit=1").send().await;
        let calls: CallList = calls.expect("an answer").json().await.expect("calls");
        let form = calls
            .calls
            .first()
            .and_then(|call| call.routed.form.as_ref());
        match form.is_some_and(|form| form.as_str() == "other") {
            true => Ok(()),
            false => Err(format!("{form:?}")),
        }
    })
    .await;
    // A form that the version does not have cannot be chosen.
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

/// The cluster's engine may be away when a node receives a form or starts: the substitute gives way once the engine is there.
#[tokio::test(flavor = "multi_thread")]
async fn what_stands_in_for_the_chosen_form_gives_way_to_it() {
    let network = Network::start().await;
    let mut first = settings(&network, "n-1", 4, None);
    first.apps.retry_max = DurationMs::from_millis(200);
    let first = network.agent(first).await;
    let seed = Some(address(&first));
    let second = network.agent(settings(&network, "n-2", 4, seed)).await;
    until_status(&first, |status| is_whole(status, 2)).await;
    let component = components::hello("component");
    network.controller.store(&component);
    network.controller.store(b"met");
    let mut desired = network.desired("hello", 1, &component, Manifest::default(), true);
    let spec = desired.spec.as_mut().expect("it exists");
    let mut image = form("image", RuntimeKind::Docker, b"met");
    image.manifest.cpu_milli = Some(container().cpu_milli);
    spec.functions[0].forms = vec![image];
    choose(&mut desired, "image");
    network.demand(desired).await;
    network.until_text(&first, "hello", "component").await;
    served(&network, "main").await;
    // No new state is sent.
    let host = settings(&network, "n-3", 4, seed);
    let host = Member::start(&network, host, "met", &Meeting::of(0)).await;
    network.until_text(&first, "hello", "met").await;
    for agent in [host.agent, second, first] {
        agent.stop().await;
    }
}
