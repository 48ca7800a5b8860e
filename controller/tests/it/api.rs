//! The life of an app over the API.

use std::collections::BTreeMap;

use fdn_controller::store::audit::audit_list;
use fdn_core::api::{AppDetail, AppSummary, AppsSnapshot, DnsSnapshot, NetworkInfo, NodeInfo};
use fdn_core::message::{AppObserved, AppPhase, NodeStatus};
use fdn_core::{Digest, Millis};
use fdn_service::seal::NetworkKey;
use fdn_testkit::{components, wait};
use reqwest::Method;
use serde_json::json;

use crate::rig::{Backend, Rig, node_at, on_both};

on_both!(an_app_lives_and_dies, the_same_again_changes_nothing);

async fn an_app_lives_and_dies(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    let (one, two) = (components::hello("one"), components::hello("two"));
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
        ["size", "format", "exports", "imports", "compile", "probe"]
    );
    let second = rig.deploy("hello", two.clone()).await;
    assert_eq!(second.version.get(), 2);
    assert!(second.revision > first.revision);

    let detail: AppDetail = rig.get("/v1/apps/hello").await;
    assert_eq!(detail.summary.version.get(), 2);
    assert_eq!(
        detail
            .versions
            .iter()
            .map(|v| v.version.get())
            .collect::<Vec<_>>(),
        [2, 1]
    );
    assert_eq!(detail.bindings.len(), 2, "one for each configured location");
    assert_eq!(detail.workflow.entry().function.as_str(), "hello");

    let back: AppDetail = rig
        .json(
            rig.request(Method::POST, "/v1/apps/hello/rollback")
                .json(&json!({})),
        )
        .await;
    assert_eq!(back.summary.version.get(), 1);
    let forth: AppDetail = rig
        .json(
            rig.request(Method::POST, "/v1/apps/hello/rollback")
                .json(&json!({})),
        )
        .await;
    assert_eq!(
        forth.summary.version.get(),
        2,
        "without a version, the one that was current before"
    );
    let named: AppDetail = rig
        .json(
            rig.request(Method::POST, "/v1/apps/hello/rollback")
                .json(&json!({ "version": 1 })),
        )
        .await;
    assert_eq!(named.summary.version.get(), 1);
    assert!(named.summary.revision > forth.summary.revision);
    let again: AppDetail = rig
        .json(
            rig.request(Method::POST, "/v1/apps/hello/rollback")
                .json(&json!({ "version": 1 })),
        )
        .await;
    assert_eq!(
        again.summary.revision, named.summary.revision,
        "it is current already"
    );
    let (_, problem) = rig
        .refused(
            rig.request(Method::POST, "/v1/apps/hello/rollback")
                .json(&json!({ "version": 9 })),
        )
        .await;
    assert_eq!(problem.code.as_str(), "FDN-2003");
    assert!(
        problem.detail.contains("version v9 of app hello"),
        "{}",
        problem.detail
    );

    let gone = rig
        .request(Method::DELETE, "/v1/apps/hello")
        .send()
        .await
        .expect("an answer");
    assert_eq!(gone.status(), 204);
    assert_eq!(rig.get::<Vec<AppSummary>>("/v1/apps").await, []);
    assert_eq!(
        rig.artifacts(),
        [""; 0],
        "nobody uses its artifacts any more"
    );
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
    let log = audit_list(&mut connection, 100).await.expect("read");
    let mut actions: Vec<(&str, &str)> = log
        .iter()
        .map(|e| (e.action.as_str(), e.subject.as_str()))
        .collect();
    actions.retain(|(action, _)| *action != "login");
    let app = "app/hello";
    assert_eq!(
        actions,
        [
            ("deploy", app),
            ("delete", app),
            ("rollback", app),
            ("rollback", app),
            ("rollback", app),
            ("deploy", app),
            ("deploy", app)
        ]
    );
    let rollback = log
        .iter()
        .find(|e| e.action == "rollback")
        .expect("audited");
    assert_eq!(
        (rollback.before.as_deref(), rollback.after.as_deref()),
        (Some(r#"{"version":2}"#), Some(r#"{"version":1}"#))
    );
    assert_eq!(rollback.actor, "admin");
}

async fn the_same_again_changes_nothing(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let component = components::hello("same");
    let manifest = "secrets = [\"KEY\"]\n[env]\nA = \"1\"\n";
    let send = |manifest, secrets| rig.upload("same", component.clone(), Some(manifest), secrets);
    let first: fdn_core::api::DeployResponse =
        rig.json(send(manifest, Some(r#"{"KEY":"hunter2"}"#))).await;
    assert!(!first.unchanged);
    // A damaged artifact is healed by uploading the same again.
    let digest = first.digest.hex();
    let path = rig
        .settings
        .artifacts
        .local
        .join("sha256")
        .join(&digest[..2])
        .join(&digest);
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
    let snapshot = rig
        .network("/agent/v1/apps")
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("text");
    let detail = rig
        .request(Method::GET, "/v1/apps/vault")
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("text");
    assert!(!snapshot.contains("hunter2") && !detail.contains("hunter2"));
    let apps: AppsSnapshot = serde_json::from_str(&snapshot).expect("a snapshot");
    let sealed = &apps.apps[0].spec.as_ref().expect("there").functions[0].secrets
        [&"KEY".parse().expect("name")];
    let key = NetworkKey::from_secret(
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

#[tokio::test(flavor = "multi_thread")]
async fn agents_fetch_artifacts_whole_and_in_ranges() {
    let rig = Rig::start().await;
    let component = components::hello("octets");
    let deployed = rig.deploy("hello", component.clone()).await;
    let path = format!("/agent/v1/artifacts/{}", deployed.digest);
    let whole = rig.network(&path).send().await.expect("an answer");
    assert_eq!(
        (whole.status().as_u16(), whole.content_length()),
        (200, Some(component.len() as u64))
    );
    assert_eq!(whole.bytes().await.expect("octets"), component);
    let part = rig
        .network(&path)
        .header("range", "bytes=10-")
        .send()
        .await
        .expect("an answer");
    assert_eq!(part.status(), 206);
    let expected = format!("bytes 10-{}/{}", component.len() - 1, component.len());
    assert_eq!(part.headers()["content-range"], expected);
    assert_eq!(part.bytes().await.expect("octets"), component[10..]);
    let (status, _) = rig
        .refused(rig.network(&path).header("range", "bytes=99999999-"))
        .await;
    assert_eq!(status, 400);
    let (_, problem) = rig
        .refused(rig.network(&format!("/agent/v1/artifacts/{}", Digest::of(b"none"))))
        .await;
    assert_eq!(problem.code.as_str(), "FDN-2003");
    let (_, problem) = rig
        .refused(rig.network("/agent/v1/artifacts/..%2f..%2fetc%2fpasswd"))
        .await;
    assert_eq!(problem.code.as_str(), "FDN-2005");
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_hold_everything_up_to_their_revision() {
    let rig = Rig::start().await;
    rig.two_regions().await;
    let a = rig.deploy("a", components::hello("a")).await;
    let b = rig.deploy("b", components::hello("b")).await;
    let apps: AppsSnapshot = rig.json(rig.network("/agent/v1/apps")).await;
    assert!(apps.revision >= b.revision && b.revision > a.revision);
    let names: Vec<&str> = apps.apps.iter().map(|app| app.app.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let spec = apps.apps[0].spec.as_ref().expect("there");
    assert_eq!(
        (spec.functions[0].digest, spec.primary.len()),
        (a.digest, 2)
    );
    let dns: DnsSnapshot = rig.json(rig.network("/dns/v1/snapshot")).await;
    assert_eq!(dns.network.clusters.len(), 2);
    assert_eq!(dns.network.locations.len(), 2);
    let state = dns.apps[0].state.as_ref().expect("there");
    assert_eq!((state.host.as_str(), state.ttl_s), ("a.fn.test", 10));
    let bindings: BTreeMap<String, &str> = state
        .bindings
        .iter()
        .map(|(p, c)| (p.to_string(), c.as_str()))
        .collect();
    assert_eq!(
        bindings,
        BTreeMap::from([
            ("192.0.2.0/24".to_owned(), "eu-west"),
            ("198.51.100.0/24".to_owned(), "us-east")
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_carry_an_id_and_are_counted() {
    let rig = Rig::start().await;
    let answer = rig
        .request(Method::GET, "/v1/apps/none")
        .header("x-request-id", "abc-1")
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.headers()["x-request-id"], "abc-1");
    let problem: fdn_core::Problem = answer.json().await.expect("a problem");
    assert_eq!(problem.request_id.as_deref(), Some("abc-1"));
    let answer = rig
        .request(Method::GET, "/v1/apps")
        .header("x-request-id", "{evil}")
        .send()
        .await
        .expect("an answer");
    assert_ne!(answer.headers()["x-request-id"], "{evil}");
    let metrics = rig
        .anonymous(Method::GET, "/metrics")
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("text");
    let counted =
        r#"fdn_controller_requests_total{method="GET",route="/v1/apps/{app}",status="404"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    for name in [
        "outbox_depth",
        "outbox_age_milliseconds",
        "plans_total",
        "consumer_lag_milliseconds",
        "database_connections",
    ] {
        assert!(
            metrics.contains(&format!("fdn_controller_{name}")),
            "{name}"
        );
    }
    let (status, problem) = rig
        .refused(rig.anonymous(Method::GET, "/nothing/here"))
        .await;
    assert_eq!((status.as_u16(), problem.code.as_str()), (404, "FDN-2003"));
    let large = "x".repeat(300 << 10);
    let request = rig
        .anonymous(Method::POST, "/v1/login")
        .json(&json!({ "user": large, "password": "" }));
    assert_eq!(rig.refused(request).await.1.code.as_str(), "FDN-2007");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_served_with_a_strict_policy_and_health_is_told() {
    let rig = Rig::start().await;
    let page = rig
        .anonymous(Method::GET, "/")
        .send()
        .await
        .expect("an answer");
    let policy = page.headers()["content-security-policy"]
        .to_str()
        .expect("text")
        .to_owned();
    assert!(
        policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert!(
        page.text()
            .await
            .expect("text")
            .contains("<form id=\"upload\">")
    );
    for (path, kind) in [
        ("/console.js", "text/javascript"),
        ("/console.css", "text/css"),
    ] {
        let file = rig
            .anonymous(Method::GET, path)
            .send()
            .await
            .expect("an answer");
        assert_eq!(file.status(), 200);
        assert!(
            file.headers()["content-type"]
                .to_str()
                .expect("text")
                .starts_with(kind)
        );
    }
    assert_eq!(
        rig.anonymous(Method::GET, "/healthz")
            .send()
            .await
            .expect("an answer")
            .status(),
        200
    );
    wait::until("readiness", async || {
        let answer = rig
            .anonymous(Method::GET, "/readyz")
            .send()
            .await
            .map_err(|e| e.to_string())?;
        if answer.status() == 200 {
            Ok(())
        } else {
            Err(answer.text().await.unwrap_or_default())
        }
    })
    .await;
}
