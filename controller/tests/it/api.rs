//! The life cycle of an app over the API.

use std::collections::BTreeMap;

use fdn_controller::store::audit::{AuditFilter, audit_list};
use fdn_core::api::{AppDetail, AppSummary, NetworkInfo, NodeInfo};
use fdn_core::message::{AppObserved, AppPhase, NodeStatus};
use fdn_core::{Digest, Millis};
use fdn_service::seal::SealKey;
use fdn_testkit::{components, wait};
use reqwest::Method;
use serde_json::json;

use crate::rig::{Backend, Rig, node_at, on_both};

on_both!(
    versions_come_and_go_back,
    a_deleted_app_leaves_only_its_numbers,
    the_same_again_changes_nothing,
);

async fn rolled_back(rig: &Rig, body: serde_json::Value) -> AppDetail {
    let request = rig.request(Method::POST, "/v1/apps/hello/rollback");
    rig.json(request.json(&body)).await
}

async fn versions_come_and_go_back(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    let one = components::hello("one");
    let first = rig.deploy("hello", one.clone()).await;
    assert_eq!(
        (first.version.get(), first.host.as_str(), first.unchanged),
        (1, "hello.fn.test", false)
    );
    assert_eq!(
        (first.digest, first.size),
        (Digest::of(&one), one.len() as u64)
    );
    let steps: Vec<&str> = first
        .validation
        .iter()
        .map(|step| step.step.as_str())
        .collect();
    assert_eq!(
        steps,
        [
            "signature",
            "size",
            "format",
            "exports",
            "imports",
            "compile",
            "probe"
        ]
    );
    let second = rig.deploy("hello", components::hello("two")).await;
    assert_eq!(second.version.get(), 2);
    assert!(second.revision > first.revision);

    let detail: AppDetail = rig.get("/v1/apps/hello").await;
    assert_eq!(detail.summary.version.get(), 2);
    let numbers: Vec<u32> = detail.versions.iter().map(|v| v.version.get()).collect();
    assert_eq!(numbers, [2, 1]);
    assert_eq!(detail.bindings.len(), 2, "one for each configured location");
    assert_eq!(detail.workflow.entry().function.as_str(), "hello");

    assert_eq!(rolled_back(&rig, json!({})).await.summary.version.get(), 1);
    let forth = rolled_back(&rig, json!({})).await.summary;
    assert_eq!(
        forth.version.get(),
        2,
        "without a version, the one that was current before"
    );
    let named = rolled_back(&rig, json!({ "version": 1 })).await.summary;
    assert_eq!(named.version.get(), 1);
    assert!(named.revision > forth.revision);
    let again = rolled_back(&rig, json!({ "version": 1 })).await.summary;
    assert_eq!(again.revision, named.revision, "it is current already");
    let request = rig.request(Method::POST, "/v1/apps/hello/rollback");
    let (_, problem) = rig.refused(request.json(&json!({ "version": 9 }))).await;
    assert_eq!(problem.code.as_str(), "FDN-2003");
    assert!(
        problem.detail.contains("version v9 of app hello"),
        "{}",
        problem.detail
    );
}

async fn a_deleted_app_leaves_only_its_numbers(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let one = components::hello("one");
    rig.deploy("hello", one.clone()).await;
    let request = rig.request(Method::POST, "/v1/apps/hello/rollback");
    let (_, problem) = rig.refused(request.json(&json!({}))).await;
    assert_eq!(
        problem.code.as_str(),
        "FDN-2004",
        "there is nothing to go back to"
    );
    rig.deploy("hello", components::hello("two")).await;
    rolled_back(&rig, json!({})).await;
    let request = rig.request(Method::DELETE, "/v1/apps/hello");
    assert_eq!(request.send().await.expect("an answer").status(), 204);
    assert_eq!(rig.get::<Vec<AppSummary>>("/v1/apps").await, []);
    assert_eq!(rig.artifacts().len(), 2, "they are collected later");
    let (_, problem) = rig
        .refused(rig.request(Method::GET, "/v1/apps/hello"))
        .await;
    assert_eq!(problem.code.as_str(), "FDN-2003");
    let third = rig.deploy("hello", one).await;
    assert_eq!(third.version.get(), 3, "numbers are never given twice");

    let mut connection = rig
        .controller
        .state()
        .store
        .read()
        .await
        .expect("connected");
    let filter = AuditFilter::default();
    let log = audit_list(&mut connection, &filter, 100)
        .await
        .expect("read");
    let of_app = log.iter().filter(|entry| entry.subject == "app/hello");
    let number = |state: &Option<serde_json::Value>| {
        let version = state.as_ref().map(|state| state["version"].clone());
        version.and_then(|number| number.as_u64())
    };
    let actions: Vec<(&str, &str, Option<u64>, Option<u64>)> = of_app
        .map(|e| {
            assert!(e.tenant.is_some() && e.request.is_some());
            assert_eq!(e.address.as_deref(), Some("127.0.0.1"));
            (
                e.actor.as_str(),
                e.action.as_str(),
                number(&e.before),
                number(&e.after),
            )
        })
        .collect();
    let expected = [
        ("admin", "deploy", None, Some(3)),
        ("admin", "delete", Some(1), None),
        ("admin", "rollback", Some(2), Some(1)),
        ("admin", "deploy", Some(1), Some(2)),
        ("admin", "deploy", None, Some(1)),
    ];
    assert_eq!(actions, expected);
}

async fn the_same_again_changes_nothing(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let component = components::hello("same");
    let manifest = "secrets = [\"KEY\"]\n[env]\nA = \"1\"\n";
    let send = |manifest, secrets| rig.upload("same", component.clone(), Some(manifest), secrets);
    let first: fdn_core::api::DeployResponse =
        rig.json(send(manifest, Some(r#"{"KEY":"hunter2"}"#))).await;
    assert!(!first.unchanged);
    // A damaged artifact is repaired by uploading the same again.
    let digest = first.digest.hex();
    let path = rig
        .settings
        .artifacts
        .local
        .join("sha256")
        .join(&digest[..2]);
    let path = std::fs::read_dir(path)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(&digest))
        })
        .expect("the artifact");
    std::fs::write(&path, b"damaged").expect("damaged");
    let again: fdn_core::api::DeployResponse =
        rig.json(send(manifest, Some(r#"{"KEY":"hunter2"}"#))).await;
    assert!(again.unchanged && again.validation.is_empty());
    assert_eq!(
        (again.version, again.revision),
        (first.version, first.revision)
    );
    assert_eq!(std::fs::read(&path).expect("healed"), component);
    let kept: fdn_core::api::DeployResponse = rig.json(send(manifest, None)).await;
    assert!(kept.unchanged, "a secret that is not sent keeps its value");
    let other: fdn_core::api::DeployResponse =
        rig.json(send(manifest, Some(r#"{"KEY":"other"}"#))).await;
    assert_eq!(
        (other.unchanged, other.version.get()),
        (false, 2),
        "another secret is another version"
    );
    let limits: fdn_core::api::DeployResponse = rig.json(send("secrets = [\"KEY\"]\n", None)).await;
    assert_eq!(
        (limits.unchanged, limits.version.get()),
        (false, 3),
        "another manifest is another version"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_travel_sealed_and_are_never_shown() {
    let rig = Rig::start().await;
    let request = rig.upload(
        "vault",
        components::hello("x"),
        Some("secrets = [\"KEY\"]"),
        Some(r#"{"KEY":"hunter2"}"#),
    );
    let _: fdn_core::api::DeployResponse = rig.json(request).await;
    let apps = rig.apps_snapshot().await;
    let snapshot = serde_json::to_string(&apps).expect("JSON");
    let detail = rig
        .request(Method::GET, "/v1/apps/vault")
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("text");
    assert!(!snapshot.contains("hunter2") && !detail.contains("hunter2"));
    let sealed = &apps.apps[0].spec.as_ref().expect("there").functions[0].secrets
        [&"KEY".parse().expect("name")];
    let key = SealKey::from_secret(
        &fdn_service::secret::read(&rig.settings.network.key_file).expect("key"),
    )
    .expect("key");
    assert_eq!(key.open("vault/KEY", sealed).expect("opened"), "hunter2");
    let database = std::fs::read(rig.folder.path().join("controller.db")).expect("the database");
    assert!(!database.windows(7).any(|window| window == b"hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_of_nodes_is_shown() {
    let rig = Rig::start().await;
    rig.two_regions().await;
    let deployed = rig.deploy("hello", components::hello("x")).await;
    let summary = async || rig.get::<Vec<AppSummary>>("/v1/apps").await.remove(0);
    let before = summary().await;
    assert_eq!((before.nodes_ready, before.nodes_total), (0, 2));
    let ready = AppObserved {
        app: deployed.app.clone(),
        revision: deployed.revision,
        phase: AppPhase::Ready,
        invocations: 7,
        errors: 1,
        execution_mean: Millis::new(2.0),
        instances: 0,
        degraded: None,
        versions: Vec::new(),
        stages: Vec::new(),
        figures: None,
        serves: None,
        phases: None,
        form: None,
    };
    rig.node(NodeStatus {
        apps: vec![ready.clone()],
        ..node_at("eu-1", "eu-west", 53.35, -6.26)
    })
    .await;
    wait::until("one node to be ready", async || {
        let summary = summary().await;
        if summary.nodes_ready == 1 {
            Ok(())
        } else {
            Err(format!("{summary:?}"))
        }
    })
    .await;
    let detail: AppDetail = rig.get("/v1/apps/hello").await;
    let progress: BTreeMap<&str, bool> = detail
        .nodes
        .iter()
        .map(|n| (n.node.as_str(), n.observed.is_some()))
        .collect();
    assert_eq!(progress, BTreeMap::from([("eu-1", true), ("us-1", false)]));
    let nodes: Vec<NodeInfo> = rig.get("/v1/nodes").await;
    assert_eq!(nodes[0].apps, [ready]);
    assert!(nodes[0].alive && nodes[1].alive);
    let network: NetworkInfo = rig.get("/v1/network").await;
    assert_eq!(
        (
            network.zone.as_str(),
            network.gateway_port,
            network.upload_limit
        ),
        ("fn.test", 8080, 64 << 20)
    );
}
