//! The part of the walk that writes about apps.

use fdn_testkit::components;
use fdn_testkit::dns::DnsServer;
use reqwest::Method;
use serde_json::json;

use super::Walk;

pub(super) async fn apps(walk: &mut Walk<'_>, dns: &DnsServer) {
    let deploy = "POST /v1/apps/{app}/versions";
    let (manifest, secrets) = ("secrets = [\"KEY\"]\n", r#"{"KEY":"hunter2"}"#);
    let one = walk.rig.upload(
        "hello",
        components::hello("1"),
        Some(manifest),
        Some(secrets),
    );
    walk.wrote_also(deploy, one, "deploy", &["secret.set"])
        .await;
    let path = "/v1/apps/hello/secrets/SPARE";
    let one = "/v1/apps/{app}/secrets/{secret}";
    let value = json!({ "value": "hunter2 again" });
    walk.admin(&format!("PUT {one}"), path, value, "secret.set")
        .await;
    walk.admin(&format!("DELETE {one}"), path, json!({}), "secret.remove")
        .await;
    let two = walk.rig.upload("hello", components::hello("2"), None, None);
    walk.wrote(deploy, two, "deploy").await;
    traffic(walk).await;
    jobs(walk).await;
    domains(walk, dns).await;
    records(walk).await;
    walk.admin(
        "POST /v1/apps/{app}/rollback",
        "/v1/apps/hello/rollback",
        json!({}),
        "rollback",
    )
    .await;
    walk.admin(
        "DELETE /v1/apps/{app}/versions/{version}",
        "/v1/apps/hello/versions/3",
        json!({}),
        "version.delete",
    )
    .await;
    walk.admin(
        "DELETE /v1/apps/{app}",
        "/v1/apps/hello",
        json!({}),
        "delete",
    )
    .await;
}

/// A job waits, since there is no cluster: it is cancelled, made a dead letter, and redriven, first by itself and then with all others.
async fn jobs(walk: &mut Walk<'_>) {
    let submit = walk
        .rig
        .request(Method::POST, "/v1/apps/hello/jobs")
        .body("x");
    let receipt: fdn_core::job::JobReceipt = walk.rig.json(submit).await;
    let path = format!("/v1/jobs/{}", receipt.id);
    let cancel = "DELETE /v1/jobs/{job}";
    walk.admin(cancel, &path, json!({}), "job.cancel").await;
    let (state, id) = (walk.rig.controller.state(), receipt.id);
    // As if it had failed, since a real failure needs a node.
    let mut write = state.store.begin().await.expect("a transaction");
    let row = fdn_controller::store::job::job_get(&mut write, id).await;
    let row = row.expect("read").expect("there");
    let mut dead = row.progress.clone();
    dead.state = fdn_core::job::JobState::Dead;
    let beside = fdn_controller::store::job::TransitionColumns {
        ended_at: row.ended_at,
        ..Default::default()
    };
    let written = fdn_controller::store::job::job_step(&mut write, &row, &dead, &beside).await;
    assert!(written.expect("written"));
    write.commit().await.expect("committed");
    let again = "POST /v1/jobs/{job}/redrive";
    walk.admin(again, &format!("{path}/redrive"), json!({}), "job.redrive")
        .await;
    let all = "POST /v1/apps/{app}/jobs/redrive";
    walk.admin(all, "/v1/apps/hello/jobs/redrive", json!({}), "job.redrive")
        .await;
    let (put, path) = (
        "PUT /v1/apps/{app}/schedules/{name}",
        "/v1/apps/hello/schedules/first",
    );
    walk.admin(put, path, json!({ "cron": "0 3 * * *" }), "schedule.set")
        .await;
    let remove = "DELETE /v1/apps/{app}/schedules/{name}";
    walk.admin(remove, path, json!({}), "schedule.remove").await;
}

/// Domains and objectives of an app, and its environment variables.
async fn domains(walk: &mut Walk<'_>, dns: &DnsServer) {
    let variables = json!({ "set": { "LEVEL": "debug" } });
    walk.admin(
        "PATCH /v1/apps/{app}/env",
        "/v1/apps/hello/env",
        variables,
        "env.set",
    )
    .await;
    walk.admin(
        "PUT /v1/apps/{app}/dns",
        "/v1/apps/hello/dns",
        json!({ "ttl": "30s" }),
        "dns.set",
    )
    .await;
    let (one, path) = ("/v1/apps/{app}/objective", "/v1/apps/hello/objective");
    let wish = json!({ "error_percent": 1.0 });
    walk.admin(&format!("PUT {one}"), path, wish, "objective.set")
        .await;
    walk.admin(&format!("DELETE {one}"), path, json!({}), "objective.clear")
        .await;
    let wish = json!({ "host": "shop.example.org" });
    let info = walk
        .admin(
            "POST /v1/apps/{app}/domains",
            "/v1/apps/hello/domains",
            wish,
            "domain.add",
        )
        .await;
    let record = &info["records"][0];
    let text = |field: &str| record[field].as_str().expect("a text");
    dns.set(text("name"), &[text("value")]);
    let path = "/v1/apps/hello/domains/shop.example.org";
    walk.admin(
        "POST /v1/apps/{app}/domains/{host}/verify",
        &format!("{path}/verify"),
        json!({}),
        "domain.verify",
    )
    .await;
    walk.admin(
        "DELETE /v1/apps/{app}/domains/{host}",
        path,
        json!({}),
        "domain.remove",
    )
    .await;
}

/// TXT records below an app's name.
async fn records(walk: &mut Walk<'_>) {
    let (one, path) = (
        "/v1/dns/txt/{name}",
        "/v1/dns/txt/_acme-challenge.hello.fn.test",
    );
    let wish = json!({ "values": ["one"] });
    walk.admin(&format!("PUT {one}"), path, wish, "txt.set")
        .await;
    let wish = json!({ "value": "two" });
    walk.admin(&format!("POST {one}"), path, wish, "txt.add")
        .await;
    walk.admin(&format!("DELETE {one}"), path, json!({}), "txt.remove")
        .await;
}

/// Policies, traffic splits, and workflows that run the app.
async fn traffic(walk: &mut Walk<'_>) {
    let policy = json!({ "concurrency": 5 });
    let path = "/v1/apps/hello/policy";
    walk.admin("PUT /v1/apps/{app}/policy", path, policy, "policy.set")
        .await;
    walk.admin(
        "DELETE /v1/apps/{app}/policy",
        path,
        json!({}),
        "policy.clear",
    )
    .await;
    let made = walk
        .admin(
            "POST /v1/apps/{app}/keys",
            "/v1/apps/hello/keys",
            json!({ "name": "shop" }),
            "key.create",
        )
        .await;
    let key = made["id"].as_str().expect("an id");
    walk.admin(
        "DELETE /v1/apps/{app}/keys/{key}",
        &format!("/v1/apps/hello/keys/{key}"),
        json!({}),
        "key.revoke",
    )
    .await;
    let split = json!({ "split": [{ "version": 1, "weight": 1 }, { "version": 2, "weight": 1 }] });
    walk.admin(
        "PUT /v1/apps/{app}/traffic",
        "/v1/apps/hello/traffic",
        split,
        "traffic.set",
    )
    .await;
    let items = json!(["app/hello", "budget/all"]);
    let path = "/v1/sets/web";
    walk.admin("PUT /v1/sets/{set}", path, items, "set.put")
        .await;
    let flow = json!({ "stages": [{ "name": "only", "function": "hello" }] });
    walk.admin(
        "PUT /v1/apps/{app}/workflow",
        "/v1/apps/flow/workflow",
        flow,
        "deploy",
    )
    .await;
    walk.admin(
        "DELETE /v1/apps/{app}",
        "/v1/apps/flow",
        json!({}),
        "delete",
    )
    .await;
}

/// Labels, signing keys and the catalogue; then deletions of tenants and users.
pub(super) async fn repository(walk: &mut Walk<'_>) {
    let deploy = "POST /v1/catalogue/{name}/deploy";
    walk.admin(
        deploy,
        "/v1/catalogue/hello/deploy?tenant=default",
        json!({}),
        "deploy",
    )
    .await;
    walk.admin(
        "PUT /v1/apps/{app}/labels",
        "/v1/apps/hello/labels",
        json!({ "team": "shop" }),
        "labels.set",
    )
    .await;
    let key = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAxyXfv7H0RrZnkcCrGxHFA2X1IfOeVWntgZV+sVQQ6zI=\n-----END PUBLIC KEY-----\n";
    let (one, path) = (
        "/v1/tenants/{tenant}/signing-keys/{name}",
        "/v1/tenants/default/signing-keys/release",
    );
    let wish = json!({ "public_key": key });
    walk.admin(&format!("PUT {one}"), path, wish, "signing-key.put")
        .await;
    for policy in ["required", "optional"] {
        walk.admin(
            "PUT /v1/tenants/{tenant}/signature-policy",
            "/v1/tenants/default/signature-policy",
            json!({ "policy": policy }),
            "signature-policy.set",
        )
        .await;
    }
    let none = json!({});
    walk.admin(
        &format!("DELETE {one}"),
        path,
        none.clone(),
        "signing-key.remove",
    )
    .await;
    walk.admin(
        "DELETE /v1/tenants/{tenant}",
        "/v1/tenants/shop?force=true",
        none.clone(),
        "tenant.delete",
    )
    .await;
    walk.admin(
        "DELETE /v1/users/{user}",
        "/v1/users/ann",
        none,
        "user.delete",
    )
    .await;
}
