//! Everything not about a single app: snapshots, request ids, metrics, health, the console's page.

use std::collections::BTreeMap;

use fdn_core::api::{AppsSnapshot, DnsSnapshot};
use fdn_testkit::{components, wait};
use reqwest::Method;
use serde_json::json;

use crate::rig::{Backend, Rig, on_both};

on_both!(
    snapshots_hold_everything_up_to_their_revision,
    requests_carry_an_id_and_are_counted,
    the_page_is_served_with_a_strict_policy_and_health_is_told,
);

async fn snapshots_hold_everything_up_to_their_revision(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    let a = rig.deploy("a", components::hello("a")).await;
    let b = rig.deploy("b", components::hello("b")).await;
    let apps: AppsSnapshot = rig.apps_snapshot().await;
    assert!(apps.revision >= b.revision && b.revision > a.revision);
    let names: Vec<&str> = apps.apps.iter().map(|app| app.app.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let spec = apps.apps[0].spec.as_ref().expect("there");
    assert_eq!(
        (spec.functions[0].digest, spec.primary.len()),
        (a.digest, 2)
    );
    let dns = wait::until("the network to be told", async || {
        let dns: DnsSnapshot = rig.dns_snapshot().await;
        match dns.network.clusters.len() {
            2 => Ok(dns),
            n => Err(n),
        }
    })
    .await;
    assert_eq!(dns.network.locations.len(), 2);
    let state = dns.apps[0].state.as_ref().expect("there");
    assert_eq!((state.host.as_str(), state.ttl_s), ("a.fn.test", 20));
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

async fn requests_carry_an_id_and_are_counted(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
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
    // A path has a route whatever the method, and a method is any text that a stranger likes.
    for method in ["X1", "X2"] {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let request = rig.anonymous(method, "/v1/apps");
        assert_eq!(rig.refused(request).await.0, 404);
    }
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
    let strange = r#"fdn_controller_requests_total{method="any",route="/v1/apps",status="404"} 2"#;
    assert!(metrics.contains(strange), "{metrics}");
    assert!(!metrics.contains("X1"), "{metrics}");
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

async fn the_page_is_served_with_a_strict_policy_and_health_is_told(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
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
    let deep = rig
        .anonymous(Method::GET, "/v1/nothing")
        .header("accept", "text/html")
        .send()
        .await
        .expect("an answer");
    assert_eq!(deep.status(), 404, "the API has no pages");
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
