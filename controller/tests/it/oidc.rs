//! Logins with an identity provider, played by a small server that signs any claims and makes the checks of a real provider.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Mutex;

use actix_web::{App, HttpResponse, HttpServer, web};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use fdn_controller::settings::OidcSettings;
use fdn_core::account::{AuditRecord, UserInfo, WhoAmI};
use fdn_core::api::LoginInfo;
use fdn_core::{Digest, NetworkRole, TenantRole};
use p256::ecdsa::signature::Signer;
use p256::ecdsa::{Signature, SigningKey};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use url::Url;

use crate::accounts::{PASSWORD, user};
use crate::rig::{Backend, Rig, on_both};

on_both!(
    an_invited_user_logs_in_and_nobody_else,
    a_name_at_the_provider_opens_no_account_with_a_password,
    groups_give_and_take_roles,
);

/// The claims that the provider will issue for a code.
#[derive(Clone)]
struct Grant {
    challenge: String,
    claims: Value,
}

/// The fake provider.
struct Provider {
    issuer: String,
    key: SigningKey,
    codes: Mutex<BTreeMap<String, Grant>>,
}

type Shared = web::Data<Provider>;

impl Provider {
    fn start() -> Shared {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let provider = web::Data::new(Self {
            issuer: format!("http://{address}"),
            key: SigningKey::from_slice(&[7; 32]).expect("a key"),
            codes: Mutex::default(),
        });
        let shared = provider.clone();
        let server = HttpServer::new(move || {
            App::new()
                .app_data(shared.clone())
                .route(
                    "/.well-known/openid-configuration",
                    web::get().to(discovery),
                )
                .route("/keys", web::get().to(keys))
                .route("/token", web::post().to(token))
        });
        let server = server
            .workers(1)
            .disable_signals()
            .listen(listener)
            .expect("listens");
        tokio::spawn(server.run());
        provider
    }

    /// The user consents at the provider; returns code and state of the redirect.
    fn agree(&self, url: &Url, mut claims: Value) -> (String, String) {
        let query: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
        assert_eq!(query["response_type"], "code");
        assert_eq!(query["client_id"], "fdn");
        assert_eq!(query["code_challenge_method"], "S256");
        assert!(query["scope"].split(' ').any(|scope| scope == "openid"));
        let nonce = query["nonce"].clone();
        let all = claims.as_object_mut().expect("an object");
        let now = fdn_service::now().get() / 1000;
        for (name, value) in [
            ("iss", json!(self.issuer)),
            ("aud", json!("fdn")),
            ("iat", json!(now)),
            ("exp", json!(now + 300)),
            ("nonce", json!(nonce)),
        ] {
            all.entry(name).or_insert(value);
        }
        let mut codes = self.codes.lock().expect("not poisoned");
        let code = format!("code-{}", codes.len());
        let challenge = query["code_challenge"].clone();
        codes.insert(code.clone(), Grant { challenge, claims });
        (code, query["state"].clone())
    }

    fn signed(&self, claims: &Value) -> String {
        let header = json!({ "alg": "ES256", "kid": "one", "typ": "JWT" });
        let part = |value: &Value| BASE64.encode(value.to_string());
        let text = format!("{}.{}", part(&header), part(claims));
        let signature: Signature = self.key.sign(text.as_bytes());
        format!("{text}.{}", BASE64.encode(signature.to_bytes()))
    }
}

async fn discovery(provider: Shared) -> HttpResponse {
    let issuer = &provider.issuer;
    HttpResponse::Ok().json(json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{issuer}/authorize"),
        "token_endpoint": format!("{issuer}/token"),
        "jwks_uri": format!("{issuer}/keys"),
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    }))
}

async fn keys(provider: Shared) -> HttpResponse {
    let point = provider.key.verifying_key().to_sec1_point(false);
    let bytes = point.as_bytes();
    HttpResponse::Ok().json(json!({ "keys": [{
        "kty": "EC", "crv": "P-256", "use": "sig", "kid": "one", "alg": "ES256",
        "x": BASE64.encode(&bytes[1..33]), "y": BASE64.encode(&bytes[33..65]),
    }] }))
}

/// A code is valid once, and only with the verifier of its challenge.
async fn token(provider: Shared, form: web::Form<BTreeMap<String, String>>) -> HttpResponse {
    let code = form.get("code").cloned().unwrap_or_default();
    let grant = provider.codes.lock().expect("not poisoned").remove(&code);
    let verifier = form.get("code_verifier").cloned().unwrap_or_default();
    let challenge = BASE64.encode(Digest::of(verifier.as_bytes()).as_bytes());
    match grant.filter(|grant| grant.challenge == challenge) {
        None => HttpResponse::BadRequest().json(json!({ "error": "invalid_grant" })),
        Some(grant) => HttpResponse::Ok().json(json!({
            "access_token": "secret", "token_type": "Bearer", "id_token": provider.signed(&grant.claims),
        })),
    }
}

async fn start(backend: Backend, more: &str) -> (Rig, Shared) {
    let provider = Provider::start();
    let text = format!(
        "issuer = \"{}\"\nclient_id = \"fdn\"\nredirect_url = \"http://127.0.0.1:1/v1/oidc/callback\"\n{more}",
        provider.issuer
    );
    let oidc: OidcSettings = toml::from_str(&text).expect("settings");
    let rig = Rig::start_with(backend, |settings| settings.oidc = Some(oidc)).await;
    (rig, provider)
}

/// A browser: it keeps cookies and does not follow redirects by itself.
struct Browser {
    http: reqwest::Client,
    cookies: BTreeMap<String, String>,
}

impl Browser {
    fn new() -> Self {
        let idle = std::time::Duration::from_secs(60);
        Self {
            http: fdn_service::http_client::build_direct(idle).expect("a client"),
            cookies: BTreeMap::new(),
        }
    }

    fn get(&self, rig: &Rig, path: &str) -> RequestBuilder {
        let pairs: Vec<String> = self
            .cookies
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        let request = self.http.get(rig.url(path));
        request.header("cookie", pairs.join("; "))
    }

    fn keep(&mut self, answer: &Response) {
        for line in answer.headers().get_all("set-cookie") {
            let line = line.to_str().expect("text");
            assert!(line.contains("HttpOnly"), "{line}");
            let (name, value) = line
                .split(';')
                .next()
                .and_then(|p| p.split_once('='))
                .expect("a pair");
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Begins a login; returns the URL that the browser is sent to.
    async fn begin(&mut self, rig: &Rig) -> Url {
        let answer = self
            .get(rig, "/v1/oidc/login")
            .send()
            .await
            .expect("an answer");
        assert_eq!(answer.status(), 303);
        self.keep(&answer);
        let target = answer.headers()["location"].to_str().expect("text");
        target.parse().expect("a URL")
    }

    fn back(&self, rig: &Rig, (code, state): &(String, String)) -> RequestBuilder {
        self.get(rig, &format!("/v1/oidc/callback?code={code}&state={state}"))
    }

    /// A complete login.
    async fn login(
        &mut self,
        rig: &Rig,
        provider: &Provider,
        claims: Value,
    ) -> Result<WhoAmI, String> {
        let url = self.begin(rig).await;
        let back = provider.agree(&url, claims);
        let answer = self.back(rig, &back).send().await.expect("an answer");
        if answer.status() != 303 {
            let problem: fdn_core::Problem = answer.json().await.expect("a problem");
            return Err(problem.to_string());
        }
        self.keep(&answer);
        assert_eq!(answer.headers()["location"], "/");
        assert_eq!(
            self.cookies["fdn-login"], "",
            "what the login began with is forgotten"
        );
        let asked: LoginInfo = rig.json(self.get(rig, "/v1/login")).await;
        let who = rig.json(self.get(rig, "/v1/session")).await;
        assert_eq!((asked.oidc, asked.session.as_ref()), (true, Some(&who)));
        Ok(who)
    }
}

async fn invite(rig: &Rig, name: &str) {
    let wish = json!({ "name": name, "oidc": true });
    let _: UserInfo = rig
        .json(rig.request(Method::POST, "/v1/users").json(&wish))
        .await;
}

async fn an_invited_user_logs_in_and_nobody_else(backend: Backend) {
    let (rig, provider) = start(backend, "").await;
    let ann = json!({ "sub": "1", "preferred_username": "ann" });
    let refused = async |claims: Value, code: &str, word: &str| {
        let error = Browser::new().login(&rig, &provider, claims).await;
        let error = error.expect_err("refused");
        assert!(error.starts_with(code) && error.contains(word), "{error}");
    };
    refused(ann.clone(), "FDN-2039", "nobody is invited as ann").await;
    invite(&rig, "ann").await;
    let mut browser = Browser::new();
    let who = browser
        .login(&rig, &provider, ann.clone())
        .await
        .expect("logged in");
    assert_eq!((who.user.as_str(), who.network_role), ("ann", None));
    assert!(who.csrf.is_some(), "it is a session of the console");
    let log: Vec<AuditRecord> = rig.get("/v1/audit?action=login&limit=1").await;
    assert_eq!(
        (log[0].actor.as_str(), log[0].address.as_deref()),
        ("ann", Some("127.0.0.1"))
    );
    // From now on the subject identifies the user: another subject with the name is refused, and the same subject may change its name.
    refused(
        json!({ "sub": "2", "preferred_username": "ann" }),
        "FDN-2039",
        "belongs to somebody",
    )
    .await;
    let renamed = json!({ "sub": "1", "preferred_username": "anna" });
    let who = Browser::new()
        .login(&rig, &provider, renamed)
        .await
        .expect("logged in");
    assert_eq!(who.user.as_str(), "ann");
    // A name at the provider gives no access to an account with a password.
    refused(
        json!({ "sub": "3", "preferred_username": "admin" }),
        "FDN-2039",
        "belongs to somebody",
    )
    .await;
    user(&rig, "bob", None).await;
    refused(
        json!({ "sub": "4", "preferred_username": "bob" }),
        "FDN-2039",
        "belongs to somebody",
    )
    .await;

    // Invalid tokens.
    for (claims, what) in [
        (json!({ "sub": "1", "aud": "another" }), "for somebody else"),
        (
            json!({ "sub": "1", "iss": "https://evil.example" }),
            "by somebody else",
        ),
        (json!({ "sub": "1", "exp": 1000 }), "over"),
        (
            json!({ "sub": "1", "nonce": "another" }),
            "of another login",
        ),
    ] {
        let error = Browser::new()
            .login(&rig, &provider, claims)
            .await
            .expect_err(what);
        assert!(error.starts_with("FDN-2040"), "{what}: {error}");
    }
    // A link sent by an attacker: another browser, another state, no code, and the same code twice.
    let mut victim = Browser::new();
    let url = victim.begin(&rig).await;
    let back = provider.agree(&url, ann.clone());
    assert_eq!(rig.code(Browser::new().back(&rig, &back)).await, "FDN-2040");
    let forged = (back.0.clone(), "forged".to_owned());
    assert_eq!(rig.code(victim.back(&rig, &forged)).await, "FDN-2040");
    let no = victim.get(
        &rig,
        &format!("/v1/oidc/callback?error=access_denied&state={}", back.1),
    );
    assert_eq!(rig.code(no).await, "FDN-2040");
    let once = victim.back(&rig, &back).send().await.expect("an answer");
    assert_eq!(once.status(), 303);
    assert_eq!(rig.code(victim.back(&rig, &back)).await, "FDN-2040");

    let wish = json!({ "disabled": true });
    let _: UserInfo = rig
        .json(rig.request(Method::PATCH, "/v1/users/ann").json(&wish))
        .await;
    refused(ann.clone(), "FDN-2039", "disabled").await;
    let gone = rig.request(Method::DELETE, "/v1/users/ann");
    assert_eq!(gone.send().await.expect("an answer").status(), 204);
    refused(ann, "FDN-2039", "nobody is invited").await;
}

async fn a_name_at_the_provider_opens_no_account_with_a_password(backend: Backend) {
    let (rig, provider) = start(backend, "").await;
    let set_password = async |name: &str| {
        let path = format!("/v1/users/{name}/password");
        let request = rig.request(Method::PUT, &path);
        let request = request.json(&json!({ "password": PASSWORD }));
        assert_eq!(request.send().await.expect("an answer").status(), 204);
    };
    let login = async |subject: &str, name: &str| {
        let claims = json!({ "sub": subject, "preferred_username": name });
        Browser::new().login(&rig, &provider, claims).await
    };
    let refused = async || {
        let error = login("1", "ann").await.expect_err("refused");
        assert!(
            error.starts_with("FDN-2039") && error.contains("belongs to somebody"),
            "{error}"
        );
    };
    // A password that is set ends the permission to become this user with the first login there.
    invite(&rig, "ann").await;
    set_password("ann").await;
    refused().await;
    rig.login("ann", PASSWORD).await;
    // Nor does it count if a release before this one left it.
    let store = &rig.controller.state().store;
    let mut connection = store.read().await.expect("connected");
    sqlx::query("UPDATE users SET oidc = 1 WHERE name = 'ann'")
        .execute(&mut *connection)
        .await
        .expect("changed");
    drop(connection);
    refused().await;
    // Who has logged in there goes on doing so, with a password or without.
    invite(&rig, "bob").await;
    for _ in 0..2 {
        let who = login("2", "bob").await.expect("logged in");
        assert_eq!(who.user.as_str(), "bob");
        set_password("bob").await;
    }
    let both = json!({ "name": "eve", "password": PASSWORD, "oidc": true });
    let request = rig.request(Method::POST, "/v1/users").json(&both);
    let (status, problem) = rig.refused(request).await;
    assert_eq!((status.as_u16(), problem.code.as_str()), (400, "FDN-2005"));
    assert!(
        problem.detail.contains("either oidc or password"),
        "{}",
        problem.detail
    );
}

async fn groups_give_and_take_roles(backend: Backend) {
    let groups = r#"invite_only = false
        groups = [
            { group = "dev", tenant = "default", role = "developer" },
            { group = "ops", network_role = "operator" },
            { group = "root", network_role = "admin" },
            { group = "dev", tenant = "absent", role = "viewer" },
        ]"#;
    let (rig, provider) = start(backend, groups).await;
    let login = async |groups: Value| {
        let claims = json!({ "sub": "9", "preferred_username": "eve", "groups": groups });
        Browser::new()
            .login(&rig, &provider, claims)
            .await
            .expect("logged in")
    };
    let who = login(json!([])).await;
    assert!(
        who.tenants.is_empty() && who.network_role.is_none(),
        "a user, who may do nothing"
    );
    let who = login(json!(["dev", "ops"])).await;
    assert_eq!(who.network_role, Some(NetworkRole::Operator));
    assert_eq!(
        (who.tenants.len(), who.tenants[0].role),
        (1, TenantRole::Developer)
    );
    let who = login(json!(["root"])).await;
    assert_eq!(who.network_role, Some(NetworkRole::Admin));
    assert!(who.tenants.is_empty(), "what the group gave is taken");
    // The last admin remains one.
    let wish = json!({ "disabled": true });
    let _: UserInfo = rig
        .json(rig.request(Method::PATCH, "/v1/users/eve").json(&json!({})))
        .await;
    let admin = rig.request(Method::PATCH, "/v1/users/admin").json(&wish);
    let _: UserInfo = rig.json(admin).await;
    let who = login(json!([])).await;
    assert_eq!(who.network_role, Some(NetworkRole::Admin));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_settings_there_is_no_such_login() {
    let rig = Rig::start().await;
    let asked: LoginInfo = rig.json(rig.anonymous(Method::GET, "/v1/login")).await;
    assert!(!asked.oidc && asked.session.is_none());
    let request = || rig.anonymous(Method::GET, "/v1/oidc/login");
    assert_eq!(rig.code(request()).await, "FDN-2041");
    // A provider that is down is reported, and is no internal error.
    let oidc = "issuer = \"http://127.0.0.1:1\"\nclient_id = \"fdn\"\nredirect_url = \"http://127.0.0.1:1/v1/oidc/callback\"";
    let oidc: OidcSettings = toml::from_str(oidc).expect("settings");
    let rig = Rig::start_with(Backend::Sqlite, |settings| settings.oidc = Some(oidc)).await;
    let asked: LoginInfo = rig.json(rig.anonymous(Method::GET, "/v1/login")).await;
    assert!(asked.oidc, "it is told without asking the provider");
    let request = rig.anonymous(Method::GET, "/v1/oidc/login");
    assert_eq!(rig.code(request).await, "FDN-2040");
}
