//! The conventions of the API: pages, tags, idempotency keys.

use std::collections::BTreeSet;

use fdn_core::DurationMs;
use fdn_core::account::{CreatedApiToken, TenantInfo};
use fdn_core::api::{AppDetail, DeployResponse};
use fdn_core::fleet::JoinTokenInfo;
use fdn_core::policy::api::CreatedKey;
use fdn_testkit::components;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use crate::rig::{Backend, Rig, on_both};
use crate::walk::operations;

on_both!(
    pages_of_every_list_join_up,
    a_change_of_something_that_changed_is_refused,
    the_same_request_again_is_answered_alike,
    an_upload_sent_again_makes_no_second_version,
    keys_of_apps_and_ready_functions_are_made_once,
    what_is_told_when_an_answer_is_not_at_hand,
);

/// The path of the next page.
pub(crate) fn next(answer: &Response) -> Option<String> {
    let link = answer.headers().get("link")?.to_str().expect("text");
    let path = link
        .strip_prefix('<')
        .and_then(|link| link.strip_suffix(">; rel=\"next\""));
    Some(path.expect("a link to the next page").to_owned())
}

async fn pages_of_every_list_join_up(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    for n in 0..5 {
        let app = format!("app-{n}");
        rig.deploy(&app, components::hello("hello")).await;
        rig.cluster(&format!("eu-{n}")).await;
        rig.token("eu-0", 1).await;
        crate::accounts::user(&rig, &format!("user-{n}"), None).await;
        crate::accounts::tenant(&rig, &format!("tenant-{n}"), &format!("user-{n}")).await;
        crate::accounts::member(&rig, "default", &format!("user-{n}"), "viewer").await;
        crate::accounts::api_token(&rig, &rig.token, &[fdn_core::Right::Look]).await;
    }
    for (list, least) in [
        ("/v1/apps", 5),
        ("/v1/clusters", 5),
        ("/v1/nodes", 0),
        ("/v1/join-tokens", 5),
        ("/v1/users", 6),
        ("/v1/tenants", 6),
        ("/v1/tenants/default/members", 6),
        ("/v1/tokens", 5),
    ] {
        let whole: Vec<Value> = rig.get(list).await;
        assert!(whole.len() >= least, "{list}");
        let (mut joined, mut path) = (Vec::new(), Some(format!("{list}?limit=2")));
        while let Some(one) = path {
            let answer = rig
                .request(Method::GET, &one)
                .send()
                .await
                .expect("an answer");
            path = next(&answer);
            let rows: Vec<Value> = answer.json().await.expect("rows");
            assert!(rows.len() <= 2, "{list}");
            joined.extend(rows);
        }
        assert_eq!(joined, whole, "{list}");
        for bad in ["limit=0", "limit=1001", "cursor=zz", "limits=1"] {
            let request = rig.request(Method::GET, &format!("{list}?{bad}"));
            assert_eq!(rig.code(request).await, "FDN-2005", "{list}?{bad}");
        }
    }
    let tokens: Vec<JoinTokenInfo> = rig.get("/v1/join-tokens").await;
    assert!(
        tokens
            .windows(2)
            .all(|two| two[0].created_at >= two[1].created_at)
    );
}

/// The `ETag` of a path.
async fn tag(rig: &Rig, path: &str) -> String {
    let answer = rig
        .request(Method::GET, path)
        .send()
        .await
        .expect("an answer");
    let tag = answer
        .headers()
        .get("etag")
        .unwrap_or_else(|| panic!("{path} has a tag"));
    tag.to_str().expect("text").to_owned()
}

/// A conditional change.
struct Compared {
    /// The operation, as in the API document.
    operation: &'static str,
    path: &'static str,
    body: Value,
    /// The paths that show the tag, before and after the change.
    shown: [&'static str; 2],
}

fn compared(
    operation: &'static str,
    path: &'static str,
    body: Value,
    shown: &'static str,
) -> Compared {
    let shown = [shown; 2];
    Compared {
        operation,
        path,
        body,
        shown,
    }
}

/// Every operation that compares tags, in an order in which each has something to change.
fn all_compared() -> Vec<Compared> {
    let (member, hello) = ("/v1/tenants/home/members/ann", "/v1/apps/hello");
    let (policy, objective) = ("/v1/apps/hello/policy", "/v1/apps/hello/objective");
    let (labels, traffic) = ("/v1/apps/hello/labels", "/v1/apps/hello/traffic");
    let (set, flow) = ("/v1/sets/web", "/v1/apps/flow/workflow");
    let (member_op, policy_op) = (
        "/v1/tenants/{tenant}/members/{user}",
        "/v1/apps/{app}/policy",
    );
    let split = json!({ "split": [{ "version": 1, "weight": 1 }, { "version": 2, "weight": 1 }] });
    let stages = json!({ "stages": [{ "name": "other", "function": "hello" }] });
    let leak = |parts: [&str; 2]| -> &'static str { parts.join(" ").leak() };
    vec![
        Compared {
            operation: "PATCH /v1/tenants/{tenant}",
            path: "/v1/tenants/default",
            body: json!({ "name": "home" }),
            // The change renames it.
            shown: ["/v1/tenants/default", "/v1/tenants/home"],
        },
        compared(
            "PATCH /v1/users/{user}",
            "/v1/users/ann",
            json!({ "network_role": "operator" }),
            "/v1/users/ann",
        ),
        compared(
            leak(["PUT", member_op]),
            member,
            json!({ "role": "owner" }),
            member,
        ),
        compared(leak(["DELETE", member_op]), member, Value::Null, member),
        compared(
            "PUT /v1/tenants/{tenant}/signature-policy",
            "/v1/tenants/home/signature-policy",
            json!({ "policy": "required" }),
            "/v1/tenants/home",
        ),
        compared(
            leak(["PUT", policy_op]),
            policy,
            json!({ "concurrency": 5 }),
            policy,
        ),
        compared(leak(["DELETE", policy_op]), policy, Value::Null, policy),
        compared("PUT /v1/apps/{app}/traffic", traffic, split, traffic),
        compared(
            "PUT /v1/apps/{app}/objective",
            objective,
            json!({ "error_percent": 1.0 }),
            objective,
        ),
        compared(
            "DELETE /v1/apps/{app}/objective",
            objective,
            Value::Null,
            objective,
        ),
        compared(
            "PUT /v1/apps/{app}/labels",
            labels,
            json!({ "team": "shop" }),
            labels,
        ),
        compared("PUT /v1/sets/{set}", set, json!(["app/hello"]), set),
        compared("PUT /v1/apps/{app}/workflow", flow, stages, flow),
        compared(
            "POST /v1/apps/{app}/rollback",
            "/v1/apps/hello/rollback",
            json!({}),
            hello,
        ),
        compared(
            "PATCH /v1/apps/{app}/env",
            "/v1/apps/hello/env",
            json!({ "set": { "LEVEL": "debug" } }),
            hello,
        ),
        compared(
            "DELETE /v1/apps/{app}",
            "/v1/apps/flow",
            Value::Null,
            "/v1/apps/flow",
        ),
        compared(
            "DELETE /v1/tenants/{tenant}",
            "/v1/tenants/shop",
            Value::Null,
            "/v1/tenants/shop",
        ),
        compared(
            "DELETE /v1/users/{user}",
            "/v1/users/ann",
            Value::Null,
            "/v1/users/ann",
        ),
    ]
}

/// Covers every operation that compares tags.
async fn a_change_of_something_that_changed_is_refused(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    crate::accounts::user(&rig, "ann", None).await;
    crate::accounts::user(&rig, "bob", None).await;
    crate::accounts::member(&rig, "default", "ann", "viewer").await;
    crate::accounts::tenant(&rig, "shop", "bob").await;
    rig.deploy("hello", components::hello("one")).await;
    rig.deploy("hello", components::hello("two")).await;
    let put = |path: &str, body: Value| rig.request(Method::PUT, path).json(&body);
    let key = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAxyXfv7H0RrZnkcCrGxHFA2X1IfOeVWntgZV+sVQQ6zI=\n-----END PUBLIC KEY-----\n";
    let path = "/v1/tenants/default/signing-keys/release";
    let _: Value = rig.json(put(path, json!({ "public_key": key }))).await;
    let flow = json!({ "stages": [{ "name": "only", "function": "hello" }] });
    // For an app that does not exist, no tag can match.
    let new = put("/v1/apps/flow/workflow", flow.clone()).header("if-match", "*");
    assert_eq!(rig.code(new).await, "FDN-2013");
    let _: Value = rig.json(put("/v1/apps/flow/workflow", flow)).await;
    let mut walked = BTreeSet::new();
    for one in all_compared() {
        stale_tags_are_refused(&rig, &one).await;
        walked.insert(one.operation.to_owned());
    }
    let documented: BTreeSet<String> = operations()
        .iter()
        .filter(|operation| operation.compares)
        .map(crate::walk::Operation::name)
        .collect();
    assert_eq!(walked, documented, "every operation that compares tags");
    let absent = rig
        .request(Method::PUT, "/v1/tenants/home/members/admin2")
        .header("if-match", "*")
        .json(&json!({ "role": "viewer" }));
    assert_eq!(rig.code(absent).await, "FDN-2003");
}

/// A change is refused with a stale tag, succeeds with the present one, and is then refused with that.
async fn stale_tags_are_refused(rig: &Rig, one: &Compared) {
    let Compared {
        operation,
        path,
        body,
        shown: [before, after],
    } = one;
    let (method, _) = operation.split_once(' ').expect("a method and a path");
    let method: Method = method.parse().expect("a method");
    let request = |path: &str, tag: &str| {
        let request = rig.request(method.clone(), path).header("if-match", tag);
        match body {
            Value::Null => request,
            body => request.json(body),
        }
    };
    let old = tag(rig, before).await;
    for stale in ["\"nothing\"", &format!("W/{old}")] {
        let refused = request(path, stale);
        assert_eq!(rig.code(refused).await, "FDN-2013", "{operation}");
    }
    let present = tag(rig, before).await;
    assert_eq!(present, old, "{operation}: refused, it changes nothing");
    let answer = request(path, &format!("\"nothing\", {old}")).send().await;
    let answer = answer.expect("an answer");
    let (status, given) = (answer.status(), answer.headers().get("etag").cloned());
    let text = answer.text().await.expect("a body");
    assert!(status.is_success(), "{operation}: {text}");
    let again = request(&path.replace(before, after), &old);
    if status == StatusCode::NO_CONTENT {
        // What was deleted has no tag.
        let code = rig.code(again).await;
        assert!(
            ["FDN-2003", "FDN-2013"].contains(&code.as_str()),
            "{operation}: {code}"
        );
        return;
    }
    let given = given.unwrap_or_else(|| panic!("{operation} answers with a tag"));
    let new = given.to_str().expect("text");
    assert_ne!(new, old, "{operation}");
    assert_eq!(tag(rig, after).await, new, "{operation}");
    assert_eq!(rig.code(again).await, "FDN-2013", "{operation}");
}

fn tokens(rig: &Rig, key: &str, name: &str) -> RequestBuilder {
    let wish = json!({ "name": name, "scopes": ["look"], "ttl": "1h" });
    let request = rig.request(Method::POST, "/v1/tokens").json(&wish);
    request.header("idempotency-key", key)
}

async fn the_same_request_again_is_answered_alike(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let first = tokens(&rig, "k-1", "a").send().await.expect("an answer");
    assert!(first.headers().get("idempotency-replayed").is_none());
    let first: CreatedApiToken = first.json().await.expect("a token");
    let again = tokens(&rig, "k-1", "a").send().await.expect("an answer");
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    assert_eq!(again.headers()["cache-control"], "no-store");
    let again: CreatedApiToken = again.json().await.expect("a token");
    assert_eq!(
        (again.token, again.info.id),
        (first.token.clone(), first.info.id)
    );
    assert_eq!(
        rig.get::<Vec<Value>>("/v1/tokens").await.len(),
        1,
        "it was made once"
    );
    assert_eq!(rig.code(tokens(&rig, "k-1", "b")).await, "FDN-2014");
    // The same key of another caller is another key.
    let ann = crate::accounts::user(&rig, "ann", None).await;
    let wish = json!({ "name": "a", "scopes": ["look"], "ttl": "1h" });
    let request = rig.anonymous(Method::POST, "/v1/tokens").bearer_auth(&ann);
    let hers: CreatedApiToken = rig
        .json(request.header("idempotency-key", "k-1").json(&wish))
        .await;
    assert_ne!(hers.info.id, first.info.id);
    // A refused request may be sent again.
    let make = || {
        let request = rig.request(Method::POST, "/v1/tenants");
        request
            .header("idempotency-key", "k-2")
            .json(&json!({ "name": "shop", "owner": "bob" }))
    };
    assert_eq!(rig.code(make()).await, "FDN-2003", "there is no bob");
    crate::accounts::user(&rig, "bob", None).await;
    let one: TenantInfo = rig.json(make()).await;
    let two: TenantInfo = rig.json(make()).await;
    assert_eq!(one, two);
    assert_eq!(rig.code(tokens(&rig, "a b", "a")).await, "FDN-2005");
    // Of concurrent requests one is executed.
    let asked = (0..4).map(|_| tokens(&rig, "k-3", "c").send());
    let answers = futures::future::join_all(asked).await;
    for answer in answers {
        let status = answer.expect("an answer").status().as_u16();
        assert!([200, 409].contains(&status), "{status}");
    }
    assert_eq!(rig.get::<Vec<Value>>("/v1/tokens").await.len(), 2);
    let stored = async || {
        let mut connection = rig
            .controller
            .state()
            .store
            .read()
            .await
            .expect("connected");
        let rows: Vec<String> =
            sqlx::query_scalar("SELECT answer FROM idempotency WHERE answer IS NOT NULL")
                .fetch_all(&mut *connection)
                .await
                .expect("read");
        rows
    };
    let rows = stored().await;
    assert!(
        rows.len() >= 4 && rows.iter().all(|row| !row.contains("fdn_")),
        "answers are sealed"
    );
}

async fn an_upload_sent_again_makes_no_second_version(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let upload = |component: &str, key: &'static str| {
        rig.upload("hello", components::hello(component), None, None)
            .header("idempotency-key", key)
    };
    let first: DeployResponse = rig.json(upload("1", "k-1")).await;
    let second: DeployResponse = rig.json(upload("2", "k-2")).await;
    assert_eq!((first.version.get(), second.version.get()), (1, 2));
    // Without its key, the first upload would be a change back, and a third version.
    let again = upload("1", "k-1").send().await.expect("an answer");
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    let again: DeployResponse = again.json().await.expect("a deploy");
    assert_eq!(again, first);
    let detail: AppDetail = rig.get("/v1/apps/hello").await;
    assert_eq!(detail.versions.len(), 2, "nothing was made");
    assert_eq!(detail.summary.version.get(), 2, "nothing was changed");
    assert_eq!(rig.code(upload("3", "k-1")).await, "FDN-2014");
    // A refused upload may be sent again with its key.
    let bad = rig
        .upload("hello", b"nothing".to_vec(), None, None)
        .header("idempotency-key", "k-3");
    assert_eq!(rig.code(bad).await, "FDN-1002");
    let third: DeployResponse = rig.json(upload("3", "k-3")).await;
    assert_eq!(third.version.get(), 3);
}

async fn keys_of_apps_and_ready_functions_are_made_once(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let deploy = |key: &str, app: &str| {
        let request = rig.request(Method::POST, "/v1/catalogue/hello/deploy");
        let request = request.header("idempotency-key", key);
        request.json(&json!({ "app": app }))
    };
    let first: DeployResponse = rig.json(deploy("k-1", "shop")).await;
    rig.deploy("shop", components::hello("own")).await;
    // Without its key, this would be a change back, and a third version.
    let again = deploy("k-1", "shop").send().await.expect("an answer");
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    let again: DeployResponse = again.json().await.expect("a deploy");
    assert_eq!((&again, again.unchanged), (&first, false));
    let detail: AppDetail = rig.get("/v1/apps/shop").await;
    assert_eq!(detail.versions.len(), 2);
    assert_eq!(rig.code(deploy("k-1", "other")).await, "FDN-2014");

    rig.deploy("hello", components::hello("x")).await;
    let make = |app: &str, key: &str, name: &str| {
        let request = rig.request(Method::POST, &format!("/v1/apps/{app}/keys"));
        let request = request.header("idempotency-key", key);
        request.json(&json!({ "name": name }))
    };
    let first: CreatedKey = rig.json(make("shop", "k-2", "a")).await;
    let again = make("shop", "k-2", "a").send().await.expect("an answer");
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    assert_eq!(again.headers()["cache-control"], "no-store");
    let again: CreatedKey = again.json().await.expect("a key");
    assert_eq!((again.key, again.info), (first.key, first.info));
    assert_eq!(
        rig.get::<Vec<Value>>("/v1/apps/shop/keys").await.len(),
        1,
        "it was made once"
    );
    assert_eq!(rig.code(make("shop", "k-2", "b")).await, "FDN-2014");
    // The same body for another app is another request.
    assert_eq!(rig.code(make("hello", "k-2", "a")).await, "FDN-2014");
    assert_eq!(
        rig.code(make("shop", "k-3", "a")).await,
        "FDN-2004",
        "the name is taken"
    );
}

async fn what_is_told_when_an_answer_is_not_at_hand(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        settings.api.idempotency_lease = DurationMs::from_secs(3600);
        settings.api.idempotency_keys = 2;
    })
    .await;
    let first: CreatedApiToken = rig.json(tokens(&rig, "k-1", "a")).await;
    let store = &rig.controller.state().store;
    let change = async |sql: &'static str| {
        let mut connection = store.read().await.expect("connected");
        sqlx::query(sql).execute(&mut *connection).await.expect(sql);
    };
    // As if the controller had crashed between executing the request and storing its answer.
    change("UPDATE idempotency SET answer = NULL").await;
    assert_eq!(rig.code(tokens(&rig, "k-1", "a")).await, "FDN-2016");
    // As if it had crashed before: once the lease has ended, the request may begin again.
    change("UPDATE idempotency SET done_at = NULL").await;
    assert_eq!(rig.code(tokens(&rig, "k-1", "a")).await, "FDN-2015");
    change("UPDATE idempotency SET created_at = created_at - 3700000").await;
    let second: CreatedApiToken = rig.json(tokens(&rig, "k-1", "a")).await;
    assert_ne!(first.info.id, second.info.id);
    // The oldest keys of a caller are evicted.
    for key in ["k-2", "k-3", "k-4"] {
        let _: CreatedApiToken = rig.json(tokens(&rig, key, "a")).await;
    }
    let left: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM idempotency")
        .fetch_one(&mut *store.read().await.expect("connected"))
        .await
        .expect("counted");
    assert_eq!(left, 3, "two, and the one that began last");
}

/// A refusal that claims to be compressed is: the final document with the request's id, not an earlier body.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_compressed_where_they_say_so() {
    let rig = Rig::start().await;
    let request = rig
        .request(Method::GET, "/v1/apps/absent")
        .header("accept-encoding", "gzip");
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), 404);
    let coded = answer
        .headers()
        .get("content-encoding")
        .map(|value| value.to_str().expect("text").to_owned());
    let bytes = answer.bytes().await.expect("a body");
    match coded.as_deref() {
        Some("gzip") => assert_eq!(bytes[..2], [0x1f, 0x8b], "gzip begins so (RFC 1952)"),
        None => {
            let problem: fdn_core::Problem = serde_json::from_slice(&bytes).expect("a problem");
            assert!(problem.request_id.is_some());
        }
        Some(other) => panic!("{other} was not asked for"),
    }
}
