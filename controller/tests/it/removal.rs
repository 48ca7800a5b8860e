//! Suspended tenants are not served; users and tenants are deleted, and bills remain.

use fdn_controller::store::billing::artifact::artifact_list_stored;
use fdn_core::Timestamp;
use fdn_core::account::{AuditRecord, TenantInfo, UserInfo};
use fdn_core::api::{AppSummary, AppsSnapshot, DnsSnapshot};
use fdn_core::message::{Channel, Message};
use fdn_testkit::components;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::accounts::{PASSWORD, api_token, member, people, tenant, user};
use crate::broker::next;
use crate::rig::{Backend, Rig, on_both};

on_both!(
    apps_of_a_suspended_tenant_are_not_served,
    nodes_are_told_which_apps_are_of_one_tenant_and_not_whose,
    a_deleted_user_is_gone_and_the_name_is_free,
    a_tenant_goes_with_what_it_has_but_for_its_bills,
);

/// For each app, whether nodes are told not to serve it.
async fn suspended(rig: &Rig) -> Vec<(String, bool)> {
    let snapshot: AppsSnapshot = rig.apps_snapshot().await;
    let told = snapshot.apps.into_iter();
    told.map(|app| {
        (
            app.app.to_string(),
            app.spec.expect("there").gateway.suspended,
        )
    })
    .collect()
}

/// Deploys an app of another tenant.
async fn deploy_theirs(rig: &Rig, outsider: &str) {
    let form = reqwest::multipart::Form::new().part(
        "component",
        reqwest::multipart::Part::bytes(components::hello("theirs")),
    );
    let theirs = rig
        .anonymous(Method::POST, "/v1/apps/theirs/versions")
        .bearer_auth(outsider);
    let _: Value = rig.json(theirs.multipart(form)).await;
}

async fn nodes_are_told_which_apps_are_of_one_tenant_and_not_whose(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let people = people(&rig).await;
    for app in ["also-mine", "mine"] {
        rig.deploy(app, components::hello(app)).await;
    }
    deploy_theirs(&rig, &people.outsider).await;
    let snapshot = rig.apps_snapshot().await;
    let text = serde_json::to_string(&snapshot).expect("JSON");
    let tags = snapshot.apps.into_iter().map(|app| {
        let tag = app.spec.expect("there").tenant;
        tag.expect("it is said")
    });
    let [also_mine, mine, theirs] = *tags.collect::<Vec<_>>() else {
        panic!("three apps: {text}");
    };
    assert_eq!((also_mine == mine, mine == theirs), (true, false));
    let other: TenantInfo = rig.get("/v1/tenants/other").await;
    assert_eq!(theirs, other.id.tag());
    for hidden in [other.id.to_string(), other.id.uuid().simple().to_string()] {
        assert!(!text.contains(&hidden), "{text}");
    }
}

async fn apps_of_a_suspended_tenant_are_not_served(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let people = people(&rig).await;
    rig.deploy("mine", components::hello("mine")).await;
    deploy_theirs(&rig, &people.outsider).await;
    let patch = |wish: Value| rig.request(Method::PATCH, "/v1/tenants/other").json(&wish);
    let before: Vec<AppSummary> = rig.get("/v1/apps").await;
    let mut told = rig.broker.listen(Channel::Changes).await;
    let _: TenantInfo = rig.json(patch(json!({ "suspended": true }))).await;
    let expected = |theirs| [("mine".to_owned(), false), ("theirs".to_owned(), theirs)];
    assert_eq!(suspended(&rig).await, expected(true));
    let after: Vec<AppSummary> = rig.get("/v1/apps").await;
    assert_eq!(after[0], before[0], "the others are not told anything");
    assert!(
        after[1].revision > before[1].revision,
        "nodes act on it at once"
    );
    // Clients still find the gateways, which tell them the reason.
    let dns: DnsSnapshot = rig.dns_snapshot().await;
    assert_eq!(dns.apps.len(), 2);
    // An app that an admin deploys there meanwhile is not served either.
    let request = rig.upload("theirs", components::hello("by the admin"), None, None);
    let _: Value = rig.json(request).await;
    assert_eq!(suspended(&rig).await, expected(true));
    let _: TenantInfo = rig.json(patch(json!({ "suspended": false }))).await;
    assert_eq!(suspended(&rig).await, expected(false));
    // The messages are sent in order: not served, not served, served.
    let mut sent = Vec::new();
    while sent.last() != Some(&false) {
        let Message::AppDesired(app) = next(&mut told).await.message else {
            continue;
        };
        // Messages about its upload may still be on the way.
        if app.app.as_str() == "theirs" && app.revision > before[1].revision {
            sent.push(app.spec.expect("there").gateway.suspended);
        }
    }
    assert!(sent[0], "{sent:?}");
}

fn delete(rig: &Rig, path: &str) -> RequestBuilder {
    rig.request(Method::DELETE, path)
}

async fn gone(request: RequestBuilder) {
    assert_eq!(request.send().await.expect("an answer").status(), 204);
}

async fn a_deleted_user_is_gone_and_the_name_is_free(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let people = people(&rig).await;
    let token = api_token(&rig, &people.developer, &[fdn_core::Right::Look]).await;
    assert_eq!(
        rig.code(delete(&rig, "/v1/users/admin")).await,
        "FDN-2018",
        "the last admin"
    );
    let (_, problem) = rig.refused(delete(&rig, "/v1/users/outsider")).await;
    assert_eq!(problem.code.as_str(), "FDN-2018");
    assert!(
        problem.detail.contains("tenant other"),
        "{}",
        problem.detail
    );
    let info: UserInfo = rig.get("/v1/users/outsider").await;
    assert_eq!(info.name.as_str(), "outsider", "nothing of it is done");
    let stale = delete(&rig, "/v1/users/developer").header("if-match", "\"99\"");
    assert_eq!(rig.code(stale).await, "FDN-2013");
    gone(delete(&rig, "/v1/users/developer")).await;
    assert_eq!(
        rig.code(delete(&rig, "/v1/users/developer")).await,
        "FDN-2003"
    );
    for credential in [&people.developer, &token] {
        let request = rig
            .anonymous(Method::GET, "/v1/apps")
            .bearer_auth(credential);
        assert_eq!(rig.code(request).await, "FDN-2001");
    }
    let login = rig
        .anonymous(Method::POST, "/v1/login")
        .json(&json!({ "user": "developer", "password": PASSWORD }));
    assert_eq!(rig.code(login).await, "FDN-2001");
    let log: Vec<AuditRecord> = rig.get("/v1/audit?subject=user/developer").await;
    let actions: Vec<&str> = log.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(
        actions,
        ["user.delete", "user.create"],
        "the log keeps the name"
    );
    // A new user with this name has nothing of the former one.
    let anew = user(&rig, "developer", None).await;
    let request = rig
        .anonymous(Method::GET, "/v1/tenants/default")
        .bearer_auth(&anew);
    assert_eq!(rig.code(request).await, "FDN-2003");
    member(&rig, "default", "developer", "viewer").await;
}

async fn a_tenant_goes_with_what_it_has_but_for_its_bills(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    user(&rig, "ann", None).await;
    let shop = tenant(&rig, "shop", "ann").await;
    assert_eq!(
        rig.code(delete(&rig, "/v1/tenants/default")).await,
        "FDN-2004"
    );
    for app in ["one", "two"] {
        let form = reqwest::multipart::Form::new().part(
            "component",
            reqwest::multipart::Part::bytes(components::hello(app)),
        );
        let path = format!("/v1/apps/{app}/versions?tenant=shop");
        let _: Value = rig
            .json(rig.request(Method::POST, &path).multipart(form))
            .await;
    }
    let flow = json!({ "stages": [{ "name": "only", "function": "one" }] });
    let request = rig.request(Method::PUT, "/v1/apps/flow/workflow?tenant=shop");
    let _: Value = rig.json(request.json(&flow)).await;
    let (_, problem) = rig.refused(delete(&rig, "/v1/tenants/shop")).await;
    assert_eq!(problem.code.as_str(), "FDN-2036");
    assert!(problem.detail.contains("has 3 apps"), "{}", problem.detail);

    gone(delete(&rig, "/v1/tenants/shop?force=true")).await;
    assert_eq!(rig.get::<Vec<AppSummary>>("/v1/apps").await, []);
    let listed: Vec<TenantInfo> = rig.get("/v1/tenants").await;
    assert_eq!(listed.len(), 1);
    for path in ["/v1/tenants/shop", "/v1/tenants/shop?force=true"] {
        assert_eq!(rig.code(delete(&rig, path)).await, "FDN-2003");
    }
    let id = shop.id;
    let again = delete(&rig, &format!("/v1/tenants/{id}"));
    assert_eq!(rig.code(again).await, "FDN-2003");
    // By its id, its bills and its log remain readable, and nothing can be created.
    let told: TenantInfo = rig.get(&format!("/v1/tenants/{id}")).await;
    assert!(told.deleted_at.is_some() && told.storage.bytes == 0);
    let bill = rig.request(
        Method::GET,
        &format!("/v1/billing/statements/current?tenant={id}"),
    );
    let bill: Value = rig.json(bill).await;
    assert!(bill["lines"].is_array(), "{bill}");
    let connection = &mut *rig
        .controller
        .state()
        .store
        .read()
        .await
        .expect("connected");
    let until = Timestamp(fdn_service::now().get() + 1);
    let kept = artifact_list_stored(connection, id, Timestamp(0), until);
    let kept = kept.await.expect("read");
    assert_eq!(
        kept.len(),
        3,
        "what it stored until then is billed: {kept:?}"
    );
    let log: Vec<AuditRecord> = rig.get(&format!("/v1/audit?tenant={id}&limit=1")).await;
    assert_eq!(log[0].action, "tenant.delete");
    let path = format!("/v1/apps/three/versions?tenant={id}");
    let form = reqwest::multipart::Form::new().part(
        "component",
        reqwest::multipart::Part::bytes(components::hello("three")),
    );
    let upload = rig.request(Method::POST, &path).multipart(form);
    assert_eq!(rig.code(upload).await, "FDN-2003");
    // The names are free for others.
    tenant(&rig, "shop", "ann").await;
    let again = rig.deploy("one", components::hello("mine now")).await;
    assert_eq!(again.version.get(), 1);
}
