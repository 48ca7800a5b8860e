//! Rollouts: versions that break their objective are rolled back, others stay; over the API and nodes' reports, on both databases.

use fdn_controller::app::rollout::watch;
use fdn_core::api::{AppDetail, AppsSnapshot, DeployResponse};
use fdn_core::message::{AppObserved, AppPhase, AppSpec, NodeStatus};
use fdn_core::policy::api::TrafficInfo;
use fdn_core::rollout::{CallCounts, ObjectiveInfo, RolloutState, VersionObserved, bucket_of};
use fdn_core::{DurationMs, MessageId, Millis, Timestamp, VersionNumber};
use fdn_testkit::{components, wait};
use reqwest::Method;
use serde_json::{Value, json};

use crate::rig::{Backend, Rig, node_at, on_both};

on_both!(
    a_deploy_that_breaks_its_objective_is_taken_back,
    a_deploy_that_holds_ends_the_watch,
    a_canary_gives_its_calls_back,
    what_people_decide_stands,
    a_split_of_a_persons_own_outlives_the_watch_of_a_deploy,
    without_an_objective_the_split_of_a_deploy_ends,
    variables_change_without_an_upload,
);

fn version(n: u32) -> VersionNumber {
    n.try_into().expect("a number")
}

/// A controller whose own watch loop does not run: the tests call it, at times of their choice.
async fn rig(backend: Backend) -> Rig {
    Rig::start_with(backend, |settings| {
        settings.rollouts.interval = DurationMs::from_secs(86_400);
    })
    .await
}

async fn objective(rig: &Rig) -> ObjectiveInfo {
    let wanted =
        json!({ "error_percent": 2.0, "p99_ms": 200, "window": "60s", "minimum_calls": 50 });
    let request = rig.request(Method::PUT, "/v1/apps/hello/objective");
    rig.json(request.json(&wanted)).await
}

async fn told(rig: &Rig) -> AppSpec {
    let snapshot: AppsSnapshot = rig.apps_snapshot().await;
    snapshot
        .apps
        .into_iter()
        .next()
        .expect("one app")
        .spec
        .expect("there")
}

/// The traffic split that nodes are told, as pairs of version and weight.
async fn split(rig: &Rig) -> Vec<(u32, u32)> {
    let spec = told(rig).await;
    let shares = spec.gateway.traffic.split;
    shares.iter().map(|s| (s.version.get(), s.weight)).collect()
}

/// Reports what a node counted for a version, and waits until the controller has it.
async fn counted(rig: &Rig, boot: u128, n: u32, calls: u64, failures: u64, ms: f64) {
    let bucket = u8::try_from(bucket_of(ms)).expect("few buckets");
    let latency = if calls == 0 {
        Vec::new()
    } else {
        vec![(bucket, calls)]
    };
    let counts = CallCounts {
        calls,
        failures,
        latency,
    };
    let app = AppObserved {
        app: "hello".parse().expect("app"),
        revision: fdn_core::Revision(1),
        phase: AppPhase::Ready,
        invocations: calls,
        errors: failures,
        execution_mean: Millis::new(1.0),
        instances: 0,
        degraded: None,
        versions: vec![VersionObserved {
            version: version(n),
            counts: counts.clone(),
        }],
        stages: Vec::new(),
        figures: None,
        serves: None,
        phases: None,
        form: None,
    };
    rig.node(NodeStatus {
        boot: MessageId::from_uuid(uuid::Uuid::from_u128(boot)),
        apps: vec![app],
        ..node_at("eu-1", "eu-west", 53.35, -6.26)
    })
    .await;
    wait::until("the controller to hear it", async || {
        let nodes: Vec<fdn_core::api::NodeInfo> = rig.get("/v1/nodes").await;
        let seen = nodes
            .iter()
            .flat_map(|node| &node.apps)
            .flat_map(|app| &app.versions);
        let heard = seen
            .clone()
            .any(|v| v.version == version(n) && v.counts == counts);
        if heard {
            Ok(())
        } else {
            Err(format!("{:?}", seen.collect::<Vec<_>>()))
        }
    })
    .await;
}

/// Runs the watch loop once, `seconds` from now.
async fn look(rig: &Rig, seconds: u64) {
    let at = Timestamp(fdn_service::now().get() + seconds * 1000);
    watch::round(rig.controller.state(), at)
        .await
        .expect("looked");
}

async fn audited(rig: &Rig, action: &str) -> Vec<Value> {
    let log: Vec<Value> = rig.get("/v1/audit?limit=1000").await;
    log.into_iter()
        .filter(|entry| entry["action"] == action)
        .collect()
}

async fn shown(rig: &Rig) -> AppDetail {
    rig.get("/v1/apps/hello").await
}

async fn a_deploy_that_breaks_its_objective_is_taken_back(backend: Backend) {
    let rig = rig(backend).await;
    rig.deploy("hello", components::hello("one")).await;
    for (wrong, word) in [
        (json!({ "error_percent": 100.0 }), "error_percent"),
        (json!({}), "p99_ms must be set"),
        (json!({ "p99_ms": 10, "window": "1ms" }), "window"),
    ] {
        let request = rig.request(Method::PUT, "/v1/apps/hello/objective");
        let (_, problem) = rig.refused(request.json(&wrong)).await;
        assert_eq!(problem.code.as_str(), "FDN-2022");
        assert!(problem.detail.contains(word), "{}", problem.detail);
    }
    assert!(
        objective(&rig).await.rollout.is_none(),
        "nothing to watch yet"
    );
    let second = rig.deploy("hello", components::hello("two")).await;
    // All calls go to the new version; the old one stays ready.
    assert_eq!(split(&rig).await, [(2, 1), (1, 0)]);
    let versions: Vec<u32> = told(&rig)
        .await
        .functions
        .iter()
        .map(|f| f.version.get())
        .collect();
    assert_eq!(versions, [2, 1]);

    counted(&rig, 1, 2, 40, 40, 5.0).await;
    look(&rig, 5).await;
    assert_eq!(
        shown(&rig).await.summary.version,
        version(2),
        "too few calls to say"
    );
    // The node restarts: the counts of its previous boot are not lost.
    counted(&rig, 2, 2, 20, 0, 5.0).await;
    look(&rig, 6).await;
    let detail = shown(&rig).await;
    assert_eq!(detail.summary.version, version(1), "back in one step");
    assert!(detail.traffic.is_empty());
    assert!(split(&rig).await.is_empty());
    let rollout = detail.rollout.expect("shown");
    assert_eq!(
        (rollout.version, rollout.baseline, rollout.state),
        (version(2), version(1), RolloutState::Broken)
    );
    assert_eq!((rollout.calls, rollout.failures), (60, 40));
    let bad = detail
        .versions
        .iter()
        .find(|v| v.version == version(2))
        .expect("kept");
    let reason = &bad.bad.as_ref().expect("marked").reason;
    assert!(reason.contains("40 of 60 calls failed"), "{reason}");
    assert!(
        detail
            .versions
            .iter()
            .all(|v| v.version == version(2) || v.bad.is_none())
    );
    assert!(detail.summary.revision > second.revision);
    let log = audited(&rig, "rollback.automatic").await;
    assert_eq!(
        (log.len(), log[0]["actor"].as_str()),
        (1, Some("the network"))
    );
    assert_eq!(log[0]["after"]["version"], 1);
    let metrics = rig
        .anonymous(Method::GET, "/metrics")
        .send()
        .await
        .expect("an answer");
    let metrics = metrics.text().await.expect("text");
    assert!(
        metrics.contains("fdn_controller_rollouts_ended_total{result=\"broken\"} 1"),
        "{metrics}"
    );
    // The watch has ended. To roll back once more without naming a version does not bring back the one that broke.
    look(&rig, 600).await;
    let back = rig.request(Method::POST, "/v1/apps/hello/rollback");
    let (_, problem) = rig.refused(back.json(&json!({}))).await;
    assert_eq!(problem.code.as_str(), "FDN-2004");
    assert!(
        problem.detail.contains("v2 of hello was taken back")
            && problem.detail.contains("fdn rollback hello VERSION"),
        "{}",
        problem.detail
    );
    let detail = shown(&rig).await;
    assert_eq!(detail.summary.version, version(1), "it stays current");
    let bad = detail.versions.iter().filter(|v| v.bad.is_some());
    let bad: Vec<VersionNumber> = bad.map(|v| v.version).collect();
    assert_eq!(bad, [version(2)], "the mark stays");
    // A user who chooses the version all the same gets it.
    let back = rig.request(Method::POST, "/v1/apps/hello/rollback");
    let detail: AppDetail = rig.json(back.json(&json!({ "version": 2 }))).await;
    assert_eq!(detail.summary.version, version(2));
    assert!(detail.versions.iter().all(|v| v.bad.is_none()));
}

async fn a_deploy_that_holds_ends_the_watch(backend: Backend) {
    let rig = rig(backend).await;
    rig.deploy("hello", components::hello("one")).await;
    objective(&rig).await;
    rig.deploy("hello", components::hello("two")).await;
    // A deploy during a watch: the last good version remains the one to roll back to.
    rig.deploy("hello", components::hello("three")).await;
    assert_eq!(split(&rig).await, [(3, 1), (1, 0)]);
    counted(&rig, 1, 3, 100, 1, 5.0).await;
    look(&rig, 10).await;
    assert_eq!(
        split(&rig).await,
        [(3, 1), (1, 0)],
        "the window is not over"
    );
    // The watch is stored, so another controller continues it in the same window.
    let rig = rig.restart().await;
    look(&rig, 61).await;
    assert!(
        split(&rig).await.is_empty(),
        "the old version need not be kept ready"
    );
    let detail = shown(&rig).await;
    assert_eq!(detail.summary.version, version(3));
    let rollout = detail.rollout.expect("shown");
    assert_eq!(
        (rollout.state, rollout.calls, rollout.failures),
        (RolloutState::Held, 100, 1)
    );
    assert_eq!(audited(&rig, "rollout.held").await.len(), 1);
}

async fn a_canary_gives_its_calls_back(backend: Backend) {
    let rig = rig(backend).await;
    for text in ["one", "two"] {
        rig.deploy("hello", components::hello(text)).await;
    }
    objective(&rig).await;
    let wanted = json!({ "split": [{ "version": 1, "weight": 90 }, { "version": 2, "weight": 10 }], "sticky": "cookie" });
    let put = rig.request(Method::PUT, "/v1/apps/hello/traffic");
    let info: TrafficInfo = rig.json(put.json(&wanted)).await;
    assert_eq!(info.rollout.expect("watched").version, version(2));
    // It had calls before the split, which do not count.
    counted(&rig, 1, 2, 1000, 900, 900.0).await;
    look(&rig, 1).await;
    assert_eq!(split(&rig).await, [(1, 90), (2, 10)]);
    // Slow calls, none failed.
    counted(&rig, 1, 2, 1100, 900, 900.0).await;
    look(&rig, 2).await;
    let detail = shown(&rig).await;
    assert_eq!(
        detail.summary.version,
        version(1),
        "the current version was the one that broke"
    );
    assert!(split(&rig).await.is_empty(), "one version is no split");
    let reason = detail.rollout.expect("shown").reason;
    assert!(
        reason.contains("100 of 100 calls took longer than 200 ms"),
        "{reason}"
    );
}

async fn what_people_decide_stands(backend: Backend) {
    let rig = rig(backend).await;
    rig.deploy("hello", components::hello("one")).await;
    objective(&rig).await;
    rig.deploy("hello", components::hello("two")).await;
    let back = rig.request(Method::POST, "/v1/apps/hello/rollback");
    let _: AppDetail = rig.json(back.json(&json!({}))).await;
    assert!(split(&rig).await.is_empty());
    counted(&rig, 1, 2, 100, 100, 5.0).await;
    look(&rig, 5).await;
    let detail = shown(&rig).await;
    assert!(detail.rollout.is_none(), "nothing is watched any more");
    assert!(detail.versions.iter().all(|v| v.bad.is_none()));
    // Without an objective there is no watch.
    let clear = rig.request(Method::DELETE, "/v1/apps/hello/objective");
    assert_eq!(clear.send().await.expect("an answer").status(), 204);
    rig.deploy("hello", components::hello("three")).await;
    assert!(split(&rig).await.is_empty());
    // A workflow has no calls to split.
    let flow = json!({ "stages": [{ "name": "only", "function": "hello" }] });
    let put = rig.request(Method::PUT, "/v1/apps/flow/workflow");
    let _: Value = rig.json(put.json(&flow)).await;
    let put = rig.request(Method::PUT, "/v1/apps/flow/objective");
    let (_, problem) = rig.refused(put.json(&json!({ "p99_ms": 5 }))).await;
    assert_eq!(problem.code.as_str(), "FDN-2004");
}

async fn a_split_of_a_persons_own_outlives_the_watch_of_a_deploy(backend: Backend) {
    let rig = rig(backend).await;
    rig.deploy("hello", components::hello("one")).await;
    objective(&rig).await;
    rig.deploy("hello", components::hello("two")).await;
    assert_eq!(split(&rig).await, [(2, 1), (1, 0)], "the deploy's");
    let wanted =
        json!({ "split": [{ "version": 1, "weight": 90 }, { "version": 2, "weight": 10 }] });
    let put = rig.request(Method::PUT, "/v1/apps/hello/traffic");
    let _: TrafficInfo = rig.json(put.json(&wanted)).await;
    // A split that stays is the person's, too, once the objective was changed.
    let loose = json!({ "error_percent": 5.0, "window": "60s", "minimum_calls": 50 });
    let put = rig.request(Method::PUT, "/v1/apps/hello/objective");
    let _: ObjectiveInfo = rig.json(put.json(&loose)).await;
    counted(&rig, 1, 2, 0, 0, 5.0).await;
    look(&rig, 1).await;
    counted(&rig, 1, 2, 100, 0, 5.0).await;
    look(&rig, 120).await;
    let rollout = shown(&rig).await.rollout.expect("shown");
    assert_eq!(rollout.state, RolloutState::Held);
    assert_eq!(split(&rig).await, [(1, 90), (2, 10)]);
    let clear = rig.request(Method::DELETE, "/v1/apps/hello/objective");
    assert_eq!(clear.send().await.expect("an answer").status(), 204);
    assert_eq!(split(&rig).await, [(1, 90), (2, 10)]);
}

async fn without_an_objective_the_split_of_a_deploy_ends(backend: Backend) {
    let rig = rig(backend).await;
    rig.deploy("hello", components::hello("one")).await;
    objective(&rig).await;
    let second = rig.deploy("hello", components::hello("two")).await;
    let clear = rig.request(Method::DELETE, "/v1/apps/hello/objective");
    assert_eq!(clear.send().await.expect("an answer").status(), 204);
    assert!(split(&rig).await.is_empty(), "nodes are told");
    let detail = shown(&rig).await;
    assert!(detail.summary.revision > second.revision);
    assert!(detail.rollout.is_none() && detail.traffic.is_empty());
    // The next version gets the calls, and the first is not kept from being deleted.
    rig.deploy("hello", components::hello("three")).await;
    assert!(split(&rig).await.is_empty());
    assert_eq!(told(&rig).await.functions[0].version, version(3));
    let delete = rig.request(Method::DELETE, "/v1/apps/hello/versions/1");
    assert_eq!(delete.send().await.expect("an answer").status(), 204);
}

async fn variables_change_without_an_upload(backend: Backend) {
    let rig = rig(backend).await;
    let manifest = "secrets = [\"KEY\"]\n[env]\nA = \"1\"\nB = \"2\"\n";
    let secrets = Some(r#"{"KEY":"hunter2"}"#);
    let upload = rig.upload("hello", components::hello("x"), Some(manifest), secrets);
    let first: DeployResponse = rig.json(upload).await;
    let change = |body: Value| rig.request(Method::PATCH, "/v1/apps/hello/env").json(&body);
    let second: DeployResponse = rig
        .json(change(
            json!({ "set": { "A": "3", "C": "4" }, "unset": ["B"] }),
        ))
        .await;
    assert_eq!(
        (second.version, second.digest, second.unchanged),
        (version(2), first.digest, false)
    );
    let spec = told(&rig).await;
    let function = &spec.functions[0];
    let env: Vec<(&str, &str)> = function
        .manifest
        .env
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    assert_eq!(env, [("A", "3"), ("C", "4")]);
    assert_eq!(
        function.secrets.len(),
        1,
        "the secret is the function's, whatever its version"
    );
    let same: DeployResponse = rig.json(change(json!({ "set": { "A": "3" } }))).await;
    assert_eq!((same.version, same.unchanged), (version(2), true));
    let (_, problem) = rig.refused(change(json!({ "set": { "KEY": "x" } }))).await;
    assert_eq!(problem.code.as_str(), "FDN-1010", "{}", problem.detail);
    let back = rig.request(Method::POST, "/v1/apps/hello/rollback");
    let detail: AppDetail = rig.json(back.json(&json!({}))).await;
    assert_eq!(detail.summary.version, version(1));
    assert_eq!(rig.artifacts().len(), 1, "nothing was uploaded");
}
