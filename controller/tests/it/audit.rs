//! The audit log: every write of the API adds one entry (a deploy another for each secret that it sets), entries cannot be removed, and none contains a secret.

mod apps;
mod holds;

use std::collections::BTreeSet;

use fdn_controller::store::StoreError;
use fdn_core::Coded as _;
use fdn_core::account::{AuditRecord, CreatedApiToken, SessionInfo};
use fdn_core::enrol::{EnrolResponse, Role};
use fdn_core::fleet::NodeDetail;
use fdn_testkit::dns::DnsServer;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use self::holds::States;
use crate::accounts::{PASSWORD, member, people, tenant, user};
use crate::edge_member::Member;
use crate::fleet::out_of_service;
use crate::machines::{Machine, until};
use crate::rig::{Backend, Rig, node_at, on_both};
use crate::walk::operations;

on_both!(
    every_write_leaves_one_entry,
    rows_are_only_ever_added,
    owners_see_their_tenants_and_pages_join_up,
);

/// Writes without an entry, with the reason.
const WITHOUT: [(&str, &str); 3] = [
    ("POST /v1/plan", "it says what would be and changes nothing"),
    (
        "POST /v1/apps/{app}/try",
        "a call like any other: the record of the call tells of it",
    ),
    (
        "POST /v1/apps/{app}/jobs",
        "many in a second: a job is its own record of who submitted it and when",
    ),
];

/// A walk over all writes, with what the entry of each must contain.
struct Walk<'a> {
    rig: &'a Rig,
    states: States,
}

impl Walk<'_> {
    async fn log(&self) -> Vec<AuditRecord> {
        self.rig.get("/v1/audit?limit=1000").await
    }

    /// Sends a write, and checks that it added one entry, with the required content.
    async fn wrote(&mut self, operation: &str, request: RequestBuilder, action: &str) -> Value {
        self.wrote_also(operation, request, action, &[]).await
    }

    /// Like [`Self::wrote`], with entries before that one for what the write also changed, newest first.
    async fn wrote_also(
        &mut self,
        operation: &str,
        request: RequestBuilder,
        action: &str,
        also: &[&str],
    ) -> Value {
        let before = self.log().await.len();
        let id = format!("walk-{before}");
        let answer = request.header("x-request-id", &id).send().await;
        let answer = answer.expect("an answer");
        let (status, text) = (answer.status(), answer.text().await.expect("text"));
        assert!(status.is_success(), "{operation}: {status}: {text}");
        let log = self.log().await;
        let added = log.iter().take(log.len() - before);
        let added: Vec<&str> = added.map(|entry| entry.action.as_str()).collect();
        let expected = [&[action][..], also].concat();
        assert_eq!(added, expected, "{operation} leaves these entries");
        let entry = &log[0];
        assert_eq!(entry.request.as_deref(), Some(id.as_str()), "{operation}");
        assert_eq!(entry.address.as_deref(), Some("127.0.0.1"), "{operation}");
        assert!(
            !entry.actor.is_empty() && entry.subject.contains('/'),
            "{operation}"
        );
        self.states.look(operation, entry);
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Like [`Self::wrote`], by the first user with a JSON body.
    async fn admin(&mut self, operation: &str, path: &str, body: Value, action: &str) -> Value {
        let method: Method = operation
            .split(' ')
            .next()
            .expect("a method")
            .parse()
            .expect("one");
        let request = self.rig.request(method, path).json(&body);
        self.wrote(operation, request, action).await
    }
}

async fn every_write_leaves_one_entry(backend: Backend) {
    let dns = DnsServer::start().await;
    let resolver = dns.address();
    let rig = Rig::start_with(backend, |settings| {
        settings.domains.resolvers = vec![resolver];
    })
    .await;
    let mut walk = Walk {
        rig: &rig,
        states: States::default(),
    };
    apps::apps(&mut walk, &dns).await;
    accounts(&mut walk).await;
    invitations(&mut walk).await;
    machines(&mut walk).await;
    billing(&mut walk).await;
    apps::repository(&mut walk).await;
    let excepted: BTreeSet<String> = WITHOUT.iter().map(|(name, _)| (*name).to_owned()).collect();
    let all: BTreeSet<String> = operations()
        .iter()
        .filter(|operation| operation.method != Method::GET)
        .map(|operation| format!("{} {}", operation.method, operation.path))
        .collect();
    let walked: BTreeSet<String> = walk.states.operations().chain(&excepted).cloned().collect();
    assert_eq!(
        walked, all,
        "every operation that writes is walked or excepted with a reason"
    );
    let text = serde_json::to_string(&walk.log().await).expect("JSON");
    for secret in [PASSWORD, "hunter2", "another password", &rig.password] {
        assert!(!text.contains(secret), "{secret} is in the log");
    }
}

async fn accounts(walk: &mut Walk<'_>) {
    let login = |path: &str| {
        let body = json!({ "user": "ann", "password": PASSWORD });
        walk.rig.anonymous(Method::POST, path).json(&body)
    };
    let (bearer, cookie, again) = (login("/v1/login"), login("/v1/session"), login("/v1/login"));
    let wish = json!({ "name": "ann", "password": PASSWORD });
    walk.admin("POST /v1/users", "/v1/users", wish, "user.create")
        .await;
    walk.wrote("POST /v1/login", bearer, "login").await;
    walk.wrote("POST /v1/session", cookie, "login").await;
    let wish = json!({ "network_role": "operator" });
    walk.admin(
        "PATCH /v1/users/{user}",
        "/v1/users/ann",
        wish,
        "user.update",
    )
    .await;
    let wish = json!({ "name": "shop" });
    walk.admin("POST /v1/tenants", "/v1/tenants", wish, "tenant.create")
        .await;
    let wish = json!({ "suspended": true });
    walk.admin(
        "PATCH /v1/tenants/{tenant}",
        "/v1/tenants/shop",
        wish,
        "tenant.update",
    )
    .await;
    let (one, path) = (
        "/v1/tenants/{tenant}/members/{user}",
        "/v1/tenants/shop/members/ann",
    );
    let wish = json!({ "role": "owner" });
    walk.admin(&format!("PUT {one}"), path, wish.clone(), "member.put")
        .await;
    walk.admin(
        "PUT /v1/tenants/{tenant}/members/{user}",
        "/v1/tenants/shop/members/admin",
        wish,
        "member.put",
    )
    .await;
    walk.admin(&format!("DELETE {one}"), path, json!({}), "member.remove")
        .await;
    let wish = json!({ "name": "ci", "scopes": ["look"], "ttl": "1h" });
    let made = walk
        .admin("POST /v1/tokens", "/v1/tokens", wish, "token.create")
        .await;
    let made: CreatedApiToken = serde_json::from_value(made).expect("a token");
    let path = format!("/v1/tokens/{}", made.info.id);
    walk.admin(
        "DELETE /v1/tokens/{api_token}",
        &path,
        json!({}),
        "token.revoke",
    )
    .await;
    let session = walk.wrote("POST /v1/login", again, "login").await;
    let token = session["token"].as_str().expect("a token").to_owned();
    let rows = walk
        .rig
        .anonymous(Method::GET, "/v1/sessions")
        .bearer_auth(&token);
    let rows: Vec<SessionInfo> = walk.rig.json(rows).await;
    let other = rows.iter().find(|row| !row.current).expect("another one");
    let ann = |method, path: &str| walk.rig.anonymous(method, path).bearer_auth(&token);
    let end = ann(Method::DELETE, &format!("/v1/sessions/{}", other.id));
    let wish = json!({ "current": PASSWORD, "password": "another password" });
    let change = ann(Method::POST, "/v1/password").json(&wish);
    let out = ann(Method::DELETE, "/v1/session");
    walk.wrote("DELETE /v1/sessions/{session}", end, "logout")
        .await;
    walk.wrote("POST /v1/password", change, "user.password")
        .await;
    walk.wrote("DELETE /v1/session", out, "logout").await;
    let wish = json!({ "password": "another password" });
    walk.admin(
        "PUT /v1/users/{user}/password",
        "/v1/users/ann/password",
        wish,
        "user.password",
    )
    .await;
}

async fn invitations(walk: &mut Walk<'_>) {
    let wish = json!({ "name": "bob", "ttl": "1h" });
    let made = walk
        .admin(
            "POST /v1/invitations",
            "/v1/invitations",
            wish,
            "invitation.create",
        )
        .await;
    let wish = json!({ "token": made["token"], "password": PASSWORD, "kind": "bearer" });
    let accept = walk.rig.anonymous(Method::POST, "/v1/invitations/accept");
    walk.wrote(
        "POST /v1/invitations/accept",
        accept.json(&wish),
        "invitation.accept",
    )
    .await;
}

async fn billing(walk: &mut Walk<'_>) {
    let prices = json!({
        "name": "first", "currency": "EUR", "from": "2099-01-01",
        "prices": { "invocations": { "price": "0.20", "per": 1_000_000 } },
    });
    walk.admin(
        "POST /v1/billing/prices",
        "/v1/billing/prices",
        prices,
        "price.apply",
    )
    .await;
    walk.admin(
        "DELETE /v1/billing/prices/{name}",
        "/v1/billing/prices/first",
        json!({}),
        "price.remove",
    )
    .await;
    let path = "/v1/billing/budgets/all?tenant=default";
    walk.admin(
        "PUT /v1/billing/budgets/{name}",
        path,
        json!({ "limit": "10" }),
        "budget.set",
    )
    .await;
    walk.admin(
        "DELETE /v1/billing/budgets/{name}",
        path,
        json!({}),
        "budget.remove",
    )
    .await;
}

async fn machines(walk: &mut Walk<'_>) {
    let rig = walk.rig;
    let wish =
        json!({ "cluster": "eu-1", "region": "eu", "location": { "lat": 53.35, "lon": -6.26 } });
    walk.admin("POST /v1/clusters", "/v1/clusters", wish, "cluster.create")
        .await;
    let wish = json!({ "cluster": "eu-1", "ttl": "1h", "uses": 1 });
    let made = walk
        .admin(
            "POST /v1/join-tokens",
            "/v1/join-tokens",
            wish,
            "join-token.create",
        )
        .await;
    let machine = Machine::new();
    let request = machine.request("n-1", made["token"].as_str().expect("a token"));
    let let_in = walk
        .wrote("POST /v1/nodes/enrol", rig.enrol(&request), "node.enrol")
        .await;
    let let_in: EnrolResponse = serde_json::from_value(let_in).expect("an identity");
    rig.age_certificates().await;
    let renewal = machine.renewal(&let_in.identity.serial);
    let renew = rig
        .anonymous(Method::POST, "/v1/nodes/renew")
        .json(&renewal);
    walk.wrote("POST /v1/nodes/renew", renew, "node.renew")
        .await;
    Member::join(rig, Role::Dns, "eu-1", "ns1").await;
    walk.admin(
        "DELETE /v1/dns-servers/{server}",
        "/v1/dns-servers/ns1",
        json!({}),
        "dns.remove",
    )
    .await;
    let path = format!(
        "/v1/join-tokens/{}",
        made["info"]["id"].as_str().expect("an id")
    );
    walk.admin(
        "DELETE /v1/join-tokens/{token}",
        &path,
        json!({}),
        "join-token.revoke",
    )
    .await;
    walk.admin(
        "POST /v1/nodes/{node}/drain",
        "/v1/nodes/n-1/drain",
        json!({}),
        "node.drain",
    )
    .await;
    walk.admin(
        "POST /v1/nodes/{node}/uncordon",
        "/v1/nodes/n-1/uncordon",
        json!({}),
        "node.uncordon",
    )
    .await;
    let mut status = node_at("n-1", "eu-1", 53.35, -6.26);
    status.devices = vec![out_of_service("GPU-1")];
    rig.node(status).await;
    until("the node to tell of its device", async || {
        let detail: NodeDetail = rig.get("/v1/nodes/n-1").await;
        detail
            .status
            .is_some_and(|status| !status.devices.is_empty())
    })
    .await;
    walk.admin(
        "POST /v1/nodes/{node}/restore-device",
        "/v1/nodes/n-1/restore-device",
        json!({ "device": "GPU-1" }),
        "node.restore-device",
    )
    .await;
    walk.admin(
        "DELETE /v1/nodes/{node}",
        "/v1/nodes/n-1?force=true",
        json!({}),
        "node.remove",
    )
    .await;
}

async fn rows_are_only_ever_added(backend: Backend) {
    let folder = tempfile::tempdir().expect("folder");
    let store = backend.store(folder.path()).await;
    store
        .migrate()
        .await
        .expect("again: the triggers are there already");
    let mut connection = store.read().await.expect("connected");
    let insert =
        "INSERT INTO audit (id, at, actor, action, subject) VALUES ('1', 1, 'a', 'b', 'c')";
    sqlx::query(insert)
        .execute(&mut *connection)
        .await
        .expect("added");
    for change in ["UPDATE audit SET actor = 'nobody'", "DELETE FROM audit"] {
        let error = sqlx::query(change).execute(&mut *connection).await;
        let error: StoreError = error.expect_err("refused").into();
        assert!(error.to_string().contains("only ever added to"), "{error}");
        assert_eq!(error.code().as_str(), "FDN-9001");
    }
    let left: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM audit WHERE actor = 'a'")
        .fetch_one(&mut *connection)
        .await
        .expect("counted");
    assert_eq!(left, 1);
}

async fn owners_see_their_tenants_and_pages_join_up(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let people = people(&rig).await;
    user(&rig, "extra", None).await;
    let third = tenant(&rig, "third", "extra").await;
    member(&rig, "third", "viewer", "developer").await;
    let all: Vec<AuditRecord> = rig.get("/v1/audit").await;
    let tool = crate::accounts::api_token(&rig, &rig.token, &[fdn_core::Right::Administer]).await;
    let request = rig
        .anonymous(Method::PATCH, "/v1/tenants/third")
        .bearer_auth(&tool);
    let _: Value = rig.json(request.json(&json!({ "name": "fourth" }))).await;
    let newest: Vec<AuditRecord> = rig.get("/v1/audit?limit=1").await;
    let entry = &newest[0];
    assert_eq!(
        (entry.actor.as_str(), entry.tenant),
        ("admin", Some(third.id))
    );
    assert!(
        entry
            .token
            .is_some_and(|id| tool.starts_with(&id.to_string()))
    );
    assert_eq!(entry.before.as_ref().expect("before")["name"], "third");
    assert_eq!(entry.after.as_ref().expect("after")["name"], "fourth");

    let seen = async |token: &str, query: &str| {
        let request = rig.anonymous(Method::GET, &format!("/v1/audit{query}"));
        let rows: Vec<AuditRecord> = rig.json(request.bearer_auth(token)).await;
        rows
    };
    let own = seen(&people.owner, "").await;
    assert!(!own.is_empty() && own.len() < all.len());
    let default = own[0].tenant;
    assert!(
        own.iter()
            .all(|entry| entry.tenant == default && default.is_some())
    );
    let refused = rig
        .anonymous(Method::GET, "/v1/audit")
        .bearer_auth(&people.developer);
    assert_eq!(rig.code(refused).await, "FDN-2002");
    let puts = seen(&rig.token, "?action=member.put&subject=member/viewer").await;
    assert_eq!(puts.len(), 2);
    let since = format!("?since={}&until={}", puts[1].at.get(), puts[0].at.get());
    assert!(
        seen(&rig.token, &since)
            .await
            .iter()
            .all(|e| e.at < puts[0].at && e.at >= puts[1].at)
    );

    let all = seen(&rig.token, "?limit=1000").await;
    let (mut joined, mut next) = (Vec::new(), Some("/v1/audit?limit=3".to_owned()));
    while let Some(path) = next {
        let answer = rig
            .request(Method::GET, &path)
            .send()
            .await
            .expect("an answer");
        next = crate::conventions::next(&answer);
        let rows: Vec<AuditRecord> = answer.json().await.expect("rows");
        assert!(rows.len() <= 3);
        joined.extend(rows);
    }
    assert_eq!(joined, all);
}
