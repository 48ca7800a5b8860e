//! Policies and keys of apps over the API, on both databases: validated, audited, pushed to nodes, and quotas counted from usage.

use fdn_controller::store::audit::{AuditFilter, audit_list};
use fdn_core::api::{AppDetail, AppsSnapshot};
use fdn_core::message::AppSpec;
use fdn_core::policy::api::{CreatedKey, KeyInfo, PolicyInfo, TrafficInfo};
use fdn_core::policy::quota::AppQuotaUsage;
use fdn_core::policy::{Authentication, key};
use fdn_core::usage::{InterimUsage, UsageBatch, UsageOutcome, UsageReceipt, UsageRecord};
use fdn_core::{BatchId, InvocationId, MebiBytes, Revision, Timestamp, VersionNumber};
use fdn_testkit::components;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::accounts::{hello_changes_hands, people};
use crate::rig::{Backend, Rig, on_both};

on_both!(
    a_policy_is_checked_and_pushed,
    keys_are_shown_once_and_taken_back,
    quotas_are_counted_once_from_usage,
    calls_of_the_owner_before_count_towards_no_quota,
    calls_are_split_between_versions_that_exist,
);

/// The app's revision and state for nodes.
async fn told(rig: &Rig) -> (Revision, AppSpec) {
    let snapshot = snapshot(rig).await;
    let app = snapshot.apps.into_iter().next().expect("one app");
    (app.revision, app.spec.expect("there"))
}

async fn snapshot(rig: &Rig) -> AppsSnapshot {
    rig.apps_snapshot().await
}

async fn set(rig: &Rig, policy: &Value) -> PolicyInfo {
    let request = rig.request(Method::PUT, "/v1/apps/hello/policy");
    rig.json(request.json(policy)).await
}

async fn audited(rig: &Rig) -> Vec<(String, Option<Value>, Option<Value>)> {
    let store = &rig.controller.state().store;
    let mut connection = store.read().await.expect("connected");
    let log = audit_list(&mut connection, &AuditFilter::default(), 100)
        .await
        .expect("read");
    log.into_iter()
        .filter(|entry| entry.subject == "app/hello" && entry.action != "deploy")
        .map(|entry| (entry.action, entry.before, entry.after))
        .collect()
}

async fn a_policy_is_checked_and_pushed(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let wanted = json!({ "authentication": { "kind": "api_key" }, "concurrency": 5 });
    for (method, path) in [(Method::GET, "policy"), (Method::GET, "keys")] {
        let request = rig.request(method, &format!("/v1/apps/hello/{path}"));
        assert_eq!(rig.refused(request).await.1.code.as_str(), "FDN-2003");
    }
    let deployed = rig.deploy("hello", components::hello("hi")).await;
    let none: PolicyInfo = rig.get("/v1/apps/hello/policy").await;
    assert!(none.policy.is_empty() && none.revision == Revision(0));

    for (wrong, code, word) in [
        (json!({ "concurrency": 0 }), "FDN-3049", "concurrency"),
        (
            json!({ "cors": { "origins": ["*"], "credentials": true } }),
            "FDN-3049",
            "cors.credentials",
        ),
        (json!({ "rates": {} }), "FDN-2005", "rates"),
    ] {
        let request = rig.request(Method::PUT, "/v1/apps/hello/policy");
        let (_, problem) = rig.refused(request.json(&wrong)).await;
        assert_eq!(problem.code.as_str(), code);
        assert!(problem.detail.contains(word), "{}", problem.detail);
    }
    assert_eq!(told(&rig).await.0, deployed.revision, "nothing was changed");

    let first = set(&rig, &wanted).await;
    assert!(first.revision > deployed.revision);
    assert_eq!(first.updated_by.as_deref(), Some("admin"));
    let (revision, spec) = told(&rig).await;
    assert_eq!(revision, first.revision);
    assert_eq!(spec.gateway.policy.concurrency, Some(5));
    assert_eq!(
        spec.gateway.policy.authentication,
        Authentication::ApiKey {}
    );
    let again = set(&rig, &wanted).await;
    assert_eq!(again.revision, first.revision, "the same changes nothing");

    // A new version of the app keeps the policy.
    rig.deploy("hello", components::hello("two")).await;
    assert_eq!(told(&rig).await.1.gateway.policy.concurrency, Some(5));

    let request = rig.request(Method::DELETE, "/v1/apps/hello/policy");
    assert_eq!(request.send().await.expect("an answer").status(), 204);
    assert!(told(&rig).await.1.gateway.is_empty());
    let log = audited(&rig).await;
    let actions: Vec<&str> = log.iter().map(|(action, ..)| action.as_str()).collect();
    assert_eq!(actions, ["policy.clear", "policy.set"]);
    let (_, before, after) = &log[0];
    assert!(
        before
            .as_ref()
            .is_some_and(|state| state["concurrency"] == 5)
    );
    assert_eq!(*after, None, "there is none");
    // The policy is deleted with the app, and a new app of the name starts without one.
    set(&rig, &wanted).await;
    let request = rig.request(Method::DELETE, "/v1/apps/hello");
    assert_eq!(request.send().await.expect("an answer").status(), 204);
    rig.deploy("hello", components::hello("hi")).await;
    assert!(told(&rig).await.1.gateway.is_empty());
}

async fn keys_are_shown_once_and_taken_back(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.deploy("hello", components::hello("hi")).await;
    let create = |body: Value| rig.request(Method::POST, "/v1/apps/hello/keys").json(&body);
    let one: CreatedKey = rig.json(create(json!({ "name": "ci" }))).await;
    let two: CreatedKey = rig
        .json(create(json!({ "name": "shop", "ttl": "1h" })))
        .await;
    for (wrong, code) in [
        (json!({ "name": "ci" }), "FDN-2004"),
        (json!({ "name": "a b" }), "FDN-2005"),
        (json!({ "name": "x", "ttl": "1s" }), "FDN-2005"),
    ] {
        let (_, problem) = rig.refused(create(wrong)).await;
        assert_eq!(problem.code.as_str(), code, "{}", problem.detail);
    }
    let (_, spec) = told(&rig).await;
    let now = fdn_service::now();
    for made in [&one, &two] {
        let found = key::find(&spec.gateway.keys, &made.key, now).expect("pushed");
        assert_eq!(found.name, made.info.name);
    }
    let listed: Vec<KeyInfo> = rig.get("/v1/apps/hello/keys").await;
    assert_eq!(listed, [two.info.clone(), one.info.clone()]);
    // The key itself is neither stored nor told.
    let secret = one.key.rsplit('_').next().expect("a secret").to_owned();
    let log = audited(&rig).await;
    let spec = serde_json::to_string(&spec).expect("json");
    assert!(!format!("{log:?}{spec}").contains(&secret));

    let path = format!("/v1/apps/hello/keys/{}", one.info.id);
    for _ in 0..2 {
        let answer = rig.request(Method::DELETE, &path).send().await;
        assert_eq!(answer.expect("an answer").status(), 204);
    }
    let (_, spec) = told(&rig).await;
    assert!(key::find(&spec.gateway.keys, &one.key, now).is_none());
    assert!(key::find(&spec.gateway.keys, &two.key, now).is_some());
    let listed: Vec<KeyInfo> = rig.get("/v1/apps/hello/keys").await;
    assert!(listed[1].revoked_at.is_some() && listed[0].revoked_at.is_none());
    let actions: Vec<String> = audited(&rig).await.into_iter().map(|(a, ..)| a).collect();
    assert_eq!(actions, ["key.revoke", "key.create", "key.create"]);
    // The name of a revoked key is free again.
    let _: CreatedKey = rig.json(create(json!({ "name": "ci" }))).await;
    let none = format!(
        "/v1/apps/hello/keys/{}",
        fdn_core::KeyId::from_uuid(Uuid::nil())
    );
    let (_, problem) = rig.refused(rig.request(Method::DELETE, &none)).await;
    assert_eq!(problem.code.as_str(), "FDN-2003");
}

fn record(n: u128, app: &str, at: Timestamp, outcome: UsageOutcome) -> UsageRecord {
    UsageRecord {
        invocation: InvocationId::from_uuid(Uuid::from_u128(n)),
        app: app.parse().expect("app"),
        function: app.parse().expect("function"),
        version: VersionNumber::FIRST,
        started_at: at,
        duration_us: 10,
        cpu_us: 5,
        memory_mib: MebiBytes(64),
        gpu_memory_mib: MebiBytes(0),
        egress_bytes: 1,
        outcome,
    }
}

async fn quotas_are_counted_once_from_usage(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.deploy("hello", components::hello("hi")).await;
    rig.deploy("other", components::hello("hi")).await;
    set(&rig, &json!({ "quota": { "per_day": 100 } })).await;
    let now = fdn_service::now();
    let send = async |batch: u128, records: Vec<UsageRecord>| -> UsageReceipt {
        let batch = UsageBatch {
            batch: BatchId::from_uuid(Uuid::from_u128(batch)),
            node: "n-1".parse().expect("node"),
            records,
        };
        let bytes = serde_json::to_vec(&batch).expect("JSON");
        let stored = fdn_controller::app::usage::store(rig.controller.state(), &bytes);
        stored.await.expect("stored")
    };
    let long_ago = Timestamp(now.0 - 70 * 86_400_000);
    let running = UsageOutcome::Running;
    let first = vec![
        record(1, "hello", now, UsageOutcome::Ok),
        record(2, "hello", now, running),
        record(3, "hello", long_ago, UsageOutcome::Ok),
        record(4, "other", now, UsageOutcome::Ok),
    ];
    send(1, first.clone()).await;
    // The same batch again, and the end of a known call.
    assert!(send(1, first).await.duplicate);
    send(
        2,
        vec![
            record(2, "hello", now, UsageOutcome::Ok),
            record(5, "hello", now, UsageOutcome::Ok),
            record(5, "hello", now, UsageOutcome::Ok),
        ],
    )
    .await;
    let used: Vec<AppQuotaUsage> = snapshot(&rig).await.used;
    assert_eq!(used.len(), 1, "only apps with a quota are counted");
    assert_eq!(used[0].app.as_str(), "hello");
    assert_eq!((used[0].used.day, used[0].used.month), (3, 3));
    // The same as sums: the note of a running call and its end, which arrives first, are one call.
    let noted = record(6, "hello", now, running);
    let ended = crate::usage::call(
        record(6, "hello", now, UsageOutcome::Ok),
        InterimUsage::of(&noted),
    );
    for (n, records) in [(3, [ended]), (4, [crate::usage::call(noted, None)])] {
        for duplicate in [false, true] {
            let sums = crate::usage::sums(n, "n-1", &records);
            let receipt = crate::usage::add(&rig, &sums).await;
            assert_eq!(receipt.duplicate, duplicate);
        }
    }
    assert_eq!(snapshot(&rig).await.used[0].used.day, 4);
}

async fn calls_of_the_owner_before_count_towards_no_quota(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let people = people(&rig).await;
    rig.deploy("hello", components::hello("hi")).await;
    let before = fdn_service::now();
    hello_changes_hands(&rig, &people).await;
    let put = rig
        .anonymous(Method::PUT, "/v1/apps/hello/policy")
        .bearer_auth(&people.outsider);
    let quota = json!({ "quota": { "per_day": 100 } });
    let _: PolicyInfo = rig.json(put.json(&quota)).await;
    let after = fdn_service::now();
    for (n, at) in [(1, before), (2, after)] {
        let used = record(n, "hello", at, UsageOutcome::Ok);
        let sums = crate::usage::sums(n, "n-1", &[crate::usage::call(used, None)]);
        assert!(!crate::usage::add(&rig, &sums).await.duplicate);
    }
    let used: Vec<AppQuotaUsage> = snapshot(&rig).await.used;
    assert_eq!((used.len(), used[0].used.day), (1, 1));
}

async fn calls_are_split_between_versions_that_exist(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.deploy("hello", components::hello("one")).await;
    let second = rig.deploy("hello", components::hello("two")).await;
    let put = |body: Value| {
        rig.request(Method::PUT, "/v1/apps/hello/traffic")
            .json(&body)
    };
    let split = |one: u32, two: u32| json!({ "split": [{ "version": 1, "weight": one }, { "version": 2, "weight": two }], "sticky": "cookie" });
    let none: TrafficInfo = rig.get("/v1/apps/hello/traffic").await;
    assert!(none.traffic.is_empty() && none.current == second.version);
    for (wrong, code) in [
        (split(0, 0), "FDN-3049"),
        (
            json!({ "split": [{ "version": 9, "weight": 1 }] }),
            "FDN-2003",
        ),
        (
            json!({ "split": [{ "version": 1, "weight": -1 }] }),
            "FDN-2005",
        ),
    ] {
        let (_, problem) = rig.refused(put(wrong)).await;
        assert_eq!(problem.code.as_str(), code, "{}", problem.detail);
    }
    assert_eq!(told(&rig).await.0, second.revision, "nothing was changed");

    let set: TrafficInfo = rig.json(put(split(90, 10))).await;
    let (revision, spec) = told(&rig).await;
    assert_eq!(revision, set.revision);
    assert_eq!(spec.gateway.traffic, set.traffic);
    assert_eq!(spec.workflow.entry().version, second.version);
    let functions: Vec<u32> = spec.functions.iter().map(|f| f.version.get()).collect();
    assert_eq!(functions, [2, 1], "nodes can make every version ready");
    let again: TrafficInfo = rig.json(put(split(90, 10))).await;
    assert_eq!(again.revision, set.revision, "the same changes nothing");

    // While there is a split, a deploy gives the new version no calls; a rollback ends the split.
    rig.deploy("hello", components::hello("three")).await;
    let spec = told(&rig).await.1;
    let functions: Vec<u32> = spec.functions.iter().map(|f| f.version.get()).collect();
    assert_eq!(functions, [3, 1, 2]);
    let request = rig.request(Method::POST, "/v1/apps/hello/rollback");
    let back: AppDetail = rig.json(request.json(&json!({ "version": 1 }))).await;
    assert_eq!(back.summary.version.get(), 1);
    assert!(told(&rig).await.1.gateway.is_empty());
    let actions: Vec<String> = audited(&rig).await.into_iter().map(|(a, ..)| a).collect();
    assert_eq!(actions, ["rollback", "traffic.set"]);
}
