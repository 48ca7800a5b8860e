//! Tenants, members, users and API tokens over the API.

use fdn_core::account::{ApiTokenInfo, CreatedApiToken, MemberInfo, TenantInfo, UserInfo, WhoAmI};
use fdn_core::api::{AppSummary, DeployResponse};
use fdn_core::{Right, TenantRole};
use fdn_testkit::components;
use reqwest::Method;
use reqwest::multipart::{Form, Part};
use serde_json::json;

use crate::rig::{Backend, Rig, on_both};

on_both!(
    tenants_have_apps_of_their_own,
    members_come_change_and_go,
    the_last_owner_and_the_last_admin_stay,
    a_suspended_tenant_is_only_looked_at,
    a_disabled_user_is_out_at_once,
    api_tokens_are_made_used_and_taken_back,
);

/// The password of all users in these tests.
pub(crate) const PASSWORD: &str = "correct horse battery";

/// Sessions: of one member per role in the tenant `default`, of another tenant's owner, and of an operator.
pub(crate) struct People {
    pub(crate) owner: String,
    pub(crate) developer: String,
    pub(crate) viewer: String,
    pub(crate) outsider: String,
    pub(crate) operator: String,
}

impl People {
    pub(crate) fn member(&self, role: TenantRole) -> &str {
        match role {
            TenantRole::Owner => &self.owner,
            TenantRole::Developer => &self.developer,
            TenantRole::Viewer => &self.viewer,
        }
    }
}

/// Creates a user and logs in; returns the session's token.
pub(crate) async fn user(rig: &Rig, name: &str, network_role: Option<&str>) -> String {
    let wish = json!({ "name": name, "password": PASSWORD, "network_role": network_role });
    let made: UserInfo = rig
        .json(rig.request(Method::POST, "/v1/users").json(&wish))
        .await;
    assert_eq!(made.name.as_str(), name);
    rig.login(name, PASSWORD).await
}

/// Adds a member to a tenant, or changes the role.
pub(crate) async fn member(rig: &Rig, tenant: &str, user: &str, role: &str) -> MemberInfo {
    let path = format!("/v1/tenants/{tenant}/members/{user}");
    rig.json(
        rig.request(Method::PUT, &path)
            .json(&json!({ "role": role })),
    )
    .await
}

/// Creates a tenant with an owner.
pub(crate) async fn tenant(rig: &Rig, name: &str, owner: &str) -> TenantInfo {
    let wish = json!({ "name": name, "owner": owner });
    rig.json(rig.request(Method::POST, "/v1/tenants").json(&wish))
        .await
}

pub(crate) async fn people(rig: &Rig) -> People {
    let made = People {
        owner: user(rig, "owner", None).await,
        developer: user(rig, "developer", None).await,
        viewer: user(rig, "viewer", None).await,
        outsider: user(rig, "outsider", None).await,
        operator: user(rig, "operator", Some("operator")).await,
    };
    for role in ["owner", "developer", "viewer"] {
        member(rig, "default", role, role).await;
    }
    tenant(rig, "other", "outsider").await;
    made
}

/// Creates an API token for the user of `session`.
pub(crate) async fn api_token(rig: &Rig, session: &str, scopes: &[Right]) -> String {
    let wish = json!({ "name": "a tool", "scopes": scopes, "ttl": "1h" });
    let request = rig
        .anonymous(Method::POST, "/v1/tokens")
        .bearer_auth(session);
    let made: CreatedApiToken = rig.json(request.json(&wish)).await;
    made.token
}

/// Deletes the app `hello`, and deploys one of this name for the tenant of the outsider.
pub(crate) async fn hello_changes_hands(rig: &Rig, people: &People) {
    let gone = rig.request(Method::DELETE, "/v1/apps/hello").send().await;
    assert_eq!(gone.expect("an answer").status(), 204);
    let form = Form::new().part("component", Part::bytes(components::hello("y")));
    let deploy = by(
        rig,
        &people.outsider,
        Method::POST,
        "/v1/apps/hello/versions",
    );
    let _: DeployResponse = rig.json(deploy.multipart(form)).await;
}

/// A request with the token of another user than the first.
fn by(rig: &Rig, token: &str, method: Method, path: &str) -> reqwest::RequestBuilder {
    rig.anonymous(method, path).bearer_auth(token)
}

async fn apps(rig: &Rig, token: &str, path: &str) -> Vec<String> {
    let rows: Vec<AppSummary> = rig.json(by(rig, token, Method::GET, path)).await;
    rows.into_iter().map(|row| row.app.to_string()).collect()
}

async fn code(rig: &Rig, request: reqwest::RequestBuilder) -> String {
    rig.refused(request).await.1.code.to_string()
}

async fn tenants_have_apps_of_their_own(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let people = people(&rig).await;
    rig.deploy("hello", components::hello("default")).await;
    let upload = |token: &str, app: &str, query: &str| {
        let form = reqwest::multipart::Form::new().part(
            "component",
            reqwest::multipart::Part::bytes(components::hello("other")),
        );
        by(
            &rig,
            token,
            Method::POST,
            &format!("/v1/apps/{app}/versions{query}"),
        )
        .multipart(form)
    };
    let taken = upload(&people.outsider, "hello", "");
    assert_eq!(
        code(&rig, taken).await,
        "FDN-2004",
        "names are unique in the network"
    );
    let _: serde_json::Value = rig.json(upload(&people.outsider, "theirs", "")).await;
    assert_eq!(apps(&rig, &people.outsider, "/v1/apps").await, ["theirs"]);
    assert_eq!(apps(&rig, &people.viewer, "/v1/apps").await, ["hello"]);
    assert_eq!(apps(&rig, &people.operator, "/v1/apps").await, [""; 0]);
    assert_eq!(
        apps(&rig, &rig.token, "/v1/apps").await,
        ["hello", "theirs"]
    );
    assert_eq!(
        apps(&rig, &rig.token, "/v1/apps?tenant=other").await,
        ["theirs"]
    );
    let other: TenantInfo = rig.get("/v1/tenants/other").await;
    assert_eq!((other.apps, other.members), (1, 1));
    let by_id = format!("/v1/apps?tenant={}", other.id);
    assert_eq!(apps(&rig, &rig.token, &by_id).await, ["theirs"]);

    // A member of two tenants must name the tenant.
    member(&rig, "other", "developer", "developer").await;
    let dev = &people.developer;
    assert_eq!(code(&rig, upload(dev, "new", "")).await, "FDN-2011");
    let made: serde_json::Value = rig.json(upload(dev, "new", "?tenant=other")).await;
    assert_eq!(made["app"], "new");
    assert_eq!(
        apps(&rig, dev, "/v1/apps?tenant=other").await,
        ["new", "theirs"]
    );
    assert_eq!(
        apps(&rig, dev, "/v1/apps").await,
        ["hello", "new", "theirs"]
    );
    let nobody = user(&rig, "nobody", None).await;
    assert_eq!(code(&rig, upload(&nobody, "mine", "")).await, "FDN-2002");
    let deleted = by(&rig, &people.outsider, Method::DELETE, "/v1/apps/theirs");
    assert_eq!(deleted.send().await.expect("an answer").status(), 204);
    assert_eq!(apps(&rig, &people.outsider, "/v1/apps").await, ["new"]);
}

async fn members_come_change_and_go(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let people = people(&rig).await;
    let path = "/v1/tenants/default/members";
    let rows: Vec<MemberInfo> = rig.json(by(&rig, &people.viewer, Method::GET, path)).await;
    let names: Vec<&str> = rows.iter().map(|row| row.user.as_str()).collect();
    assert_eq!(names, ["admin", "developer", "owner", "viewer"]);
    // A membership given by an owner takes effect with the next request, without a new login.
    let look = async || apps(&rig, &people.outsider, "/v1/apps?tenant=default").await;
    let one = format!("{path}/outsider");
    let put = by(&rig, &people.owner, Method::PUT, &one).json(&json!({ "role": "viewer" }));
    let _: MemberInfo = rig.json(put).await;
    assert_eq!(look().await, [""; 0]);
    let who: WhoAmI = rig
        .json(by(&rig, &people.outsider, Method::GET, "/v1/session"))
        .await;
    let roles: Vec<(&str, TenantRole)> = who
        .tenants
        .iter()
        .map(|t| (t.tenant.as_str(), t.role))
        .collect();
    assert_eq!(
        roles,
        [
            ("default", TenantRole::Viewer),
            ("other", TenantRole::Owner)
        ]
    );
    let gone = by(&rig, &people.owner, Method::DELETE, &one);
    assert_eq!(gone.send().await.expect("an answer").status(), 204);
    let hidden = by(
        &rig,
        &people.outsider,
        Method::GET,
        "/v1/apps?tenant=default",
    );
    assert_eq!(code(&rig, hidden).await, "FDN-2003");
    let absent = by(
        &rig,
        &people.owner,
        Method::PUT,
        &format!("{path}/stranger"),
    );
    assert_eq!(
        code(&rig, absent.json(&json!({ "role": "viewer" }))).await,
        "FDN-2003"
    );
    let tenants: Vec<TenantInfo> = rig
        .json(by(&rig, &people.outsider, Method::GET, "/v1/tenants"))
        .await;
    assert_eq!(tenants.len(), 1);
    assert_eq!(rig.get::<Vec<TenantInfo>>("/v1/tenants").await.len(), 2);
}

async fn the_last_owner_and_the_last_admin_stay(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let people = people(&rig).await;
    let last = "/v1/tenants/other/members/outsider";
    let demote = by(&rig, &people.outsider, Method::PUT, last).json(&json!({ "role": "viewer" }));
    assert_eq!(code(&rig, demote).await, "FDN-2018");
    let remove = by(&rig, &people.outsider, Method::DELETE, last);
    assert_eq!(code(&rig, remove).await, "FDN-2018");
    for wish in [
        json!({ "disabled": true }),
        json!({ "network_role": "none" }),
    ] {
        let request = rig.request(Method::PATCH, "/v1/users/admin").json(&wish);
        assert_eq!(code(&rig, request).await, "FDN-2018");
    }
    user(&rig, "second", Some("admin")).await;
    let wish = json!({ "network_role": "operator" });
    let info: UserInfo = rig
        .json(rig.request(Method::PATCH, "/v1/users/admin").json(&wish))
        .await;
    assert_eq!(
        info.network_role.map(|role| role.as_str()),
        Some("operator")
    );
    let refused = rig.request(Method::GET, "/v1/users");
    assert_eq!(code(&rig, refused).await, "FDN-2002", "it counts at once");
}

async fn a_suspended_tenant_is_only_looked_at(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let people = people(&rig).await;
    rig.deploy("hello", components::hello("one")).await;
    let patch = |wish| {
        rig.request(Method::PATCH, "/v1/tenants/default")
            .json(&wish)
    };
    let info: TenantInfo = rig.json(patch(json!({ "suspended": true }))).await;
    assert!(info.suspended_at.is_some());
    let rollback = || by(&rig, &people.owner, Method::DELETE, "/v1/apps/hello");
    assert_eq!(code(&rig, rollback()).await, "FDN-2010");
    assert_eq!(apps(&rig, &people.owner, "/v1/apps").await, ["hello"]);
    let info: TenantInfo = rig
        .json(patch(json!({ "suspended": false, "name": "renamed" })))
        .await;
    assert_eq!((info.suspended_at, info.name.as_str()), (None, "renamed"));
    assert_eq!(
        apps(&rig, &people.owner, "/v1/apps?tenant=renamed").await,
        ["hello"]
    );
    assert_eq!(rollback().send().await.expect("an answer").status(), 204);
    let taken = rig.request(Method::PATCH, "/v1/tenants/renamed");
    assert_eq!(
        code(&rig, taken.json(&json!({ "name": "other" }))).await,
        "FDN-2004"
    );
}

async fn a_disabled_user_is_out_at_once(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let people = people(&rig).await;
    let token = api_token(&rig, &people.developer, &[Right::Look]).await;
    assert_eq!(apps(&rig, &token, "/v1/apps").await, [""; 0]);
    let patch = |wish| {
        rig.request(Method::PATCH, "/v1/users/developer")
            .json(&wish)
    };
    let _: UserInfo = rig.json(patch(json!({ "disabled": true }))).await;
    for credential in [&people.developer, &token] {
        let request = by(&rig, credential, Method::GET, "/v1/apps");
        assert_eq!(code(&rig, request).await, "FDN-2001");
    }
    let login = || {
        rig.anonymous(Method::POST, "/v1/login")
            .json(&json!({ "user": "developer", "password": PASSWORD }))
    };
    assert_eq!(code(&rig, login()).await, "FDN-2001");
    let _: UserInfo = rig.json(patch(json!({ "disabled": false }))).await;
    let request = by(&rig, &token, Method::GET, "/v1/apps");
    assert_eq!(code(&rig, request).await, "FDN-2001", "what ended stays so");
    rig.login("developer", PASSWORD).await;
}

async fn api_tokens_are_made_used_and_taken_back(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        settings.accounts.api_tokens_per_user = 2
    })
    .await;
    let people = people(&rig).await;
    let dev = &people.developer;
    let make = |wish: serde_json::Value| by(&rig, dev, Method::POST, "/v1/tokens").json(&wish);
    for wish in [
        json!({ "name": "", "scopes": ["look"], "ttl": "1h" }),
        json!({ "name": "a", "scopes": [], "ttl": "1h" }),
        json!({ "name": "a", "scopes": ["own-account"], "ttl": "1h" }),
        json!({ "name": "a", "scopes": ["look"], "ttl": "9000h" }),
        json!({ "name": "a", "scopes": ["everything"], "ttl": "1h" }),
    ] {
        assert_eq!(code(&rig, make(wish.clone())).await, "FDN-2005", "{wish}");
    }
    let foreign = json!({ "name": "a", "scopes": ["look"], "ttl": "1h", "tenant": "other" });
    assert_eq!(code(&rig, make(foreign)).await, "FDN-2003");
    let wish = json!({ "name": "ci", "scopes": ["look", "deploy", "administer"], "ttl": "1h", "tenant": "default" });
    let made: CreatedApiToken = rig.json(make(wish)).await;
    assert!(made.token.starts_with(&made.info.id.to_string()));
    let list = async || {
        let request = by(&rig, dev, Method::GET, "/v1/tokens");
        let text = request.send().await.expect("an answer").text().await;
        let text = text.expect("text");
        assert!(
            !text.contains(&made.token) && !text.contains("hash"),
            "{text}"
        );
        serde_json::from_str::<Vec<ApiTokenInfo>>(&text).expect("tokens")
    };
    assert_eq!(list().await[0].last_used_at, None);
    assert_eq!(apps(&rig, &made.token, "/v1/apps").await, [""; 0]);
    assert!(list().await[0].last_used_at.is_some());
    let wrong = format!("{}_{}", made.info.id, "0".repeat(64));
    for (token, expected) in [(&made.token, "FDN-2002"), (&wrong, "FDN-2001")] {
        let request = by(&rig, token, Method::GET, "/v1/users");
        assert_eq!(
            code(&rig, request).await,
            expected,
            "a scope gives no right that its user lacks"
        );
    }
    let own = by(&rig, &made.token, Method::POST, "/v1/tokens");
    let wish = json!({ "name": "b", "scopes": ["look"], "ttl": "1h" });
    assert_eq!(
        code(&rig, own.json(&wish)).await,
        "FDN-2002",
        "tokens make no tokens"
    );
    let _: CreatedApiToken = rig.json(make(wish.clone())).await;
    assert_eq!(
        code(&rig, make(wish.clone())).await,
        "FDN-2004",
        "two are the most here"
    );
    let path = format!("/v1/tokens/{}", made.info.id);
    let others = by(&rig, &people.owner, Method::DELETE, &path);
    assert_eq!(code(&rig, others).await, "FDN-2003", "it is not theirs");
    let revoke = || by(&rig, dev, Method::DELETE, &path).send();
    assert_eq!(revoke().await.expect("an answer").status(), 204);
    assert_eq!(revoke().await.expect("an answer").status(), 204);
    let request = by(&rig, &made.token, Method::GET, "/v1/apps");
    assert_eq!(code(&rig, request).await, "FDN-2001");
    let rows = list().await;
    assert_eq!(rows.len(), 2);
    assert!(
        rows[0].revoked_at.is_none() && rows[1].revoked_at.is_some(),
        "newest first"
    );
    let _: CreatedApiToken = rig.json(make(wish)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_that_sets_secrets_needs_the_right_to() {
    let rig = Rig::start().await;
    let tool = api_token(&rig, &rig.token, &[Right::Deploy]).await;
    let deploy = |app: &str, secrets: Option<&'static str>| {
        let component = reqwest::multipart::Part::bytes(components::hello("one"));
        let mut form = reqwest::multipart::Form::new().text("manifest", "secrets = []\n");
        if let Some(secrets) = secrets {
            form = form.text("secrets", secrets);
        }
        let path = format!("/v1/apps/{app}/versions");
        by(&rig, &tool, Method::POST, &path).multipart(form.part("component", component))
    };
    let refused = deploy("a", Some(r#"{"KEY":"value"}"#));
    assert_eq!(code(&rig, refused).await, "FDN-2002");
    let _: serde_json::Value = rig.json(deploy("a", None)).await;
}
