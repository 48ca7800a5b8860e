//! Browser sessions: cookies, their protection, and their end.

use fdn_controller::app::access::{Credential, Person};
use fdn_controller::app::actor::Actor;
use fdn_controller::app::api_token;
use fdn_controller::app::login::hash_password;
use fdn_controller::store::revision::revision_lock;
use fdn_controller::store::session::session_delete_others;
use fdn_controller::store::user::user_set_password;
use fdn_core::account::{CreateApiToken, SessionInfo, SessionKind, UserInfo, WhoAmI};
use fdn_core::api::LoginInfo;
use fdn_core::{Coded as _, DurationMs, Right, Timestamp, UserName};
use fdn_testkit::wait;
use reqwest::{Method, RequestBuilder};
use serde_json::json;

use crate::accounts::{self, PASSWORD, user};
use crate::rig::{Backend, Rig, on_both};

on_both!(
    a_browser_logs_in_changes_and_logs_out,
    one_cannot_end_anothers_session,
    a_session_that_is_left_alone_ends,
    a_new_password_ends_the_other_sessions,
    a_password_that_is_changed_while_it_is_checked_opens_nothing,
    a_disabled_user_gets_no_token_any_more,
    unknown_tokens_are_throttled_and_logins_are_not,
    a_dead_token_keeps_no_valid_one_out,
);

/// A browser session: the cookie and the CSRF value for changes.
struct Browser {
    cookie: String,
    csrf: String,
}

async fn browser(rig: &Rig, user: &str, password: &str) -> Browser {
    let request = rig
        .anonymous(Method::POST, "/v1/session")
        .json(&json!({ "user": user, "password": password }));
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let set = answer.headers()["set-cookie"]
        .to_str()
        .expect("text")
        .to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="] {
        assert!(set.contains(part), "{set}");
    }
    assert!(!set.contains("Secure"), "plain HTTP on this machine: {set}");
    let who: WhoAmI = answer.json().await.expect("who it is");
    assert_eq!(who.user.as_str(), user);
    Browser {
        cookie: set.split(';').next().expect("a pair").to_owned(),
        csrf: who.csrf.expect("a token against foreign pages"),
    }
}

impl Browser {
    fn ask(&self, rig: &Rig, method: Method, path: &str) -> reqwest::RequestBuilder {
        rig.anonymous(method, path).header("cookie", &self.cookie)
    }

    fn change(&self, rig: &Rig, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.ask(rig, method, path).header("x-fdn-csrf", &self.csrf)
    }
}

async fn a_browser_logs_in_changes_and_logs_out(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let one = browser(&rig, "admin", &rig.password).await;
    let other = browser(&rig, "admin", &rig.password).await;
    let who: WhoAmI = rig.json(one.ask(&rig, Method::GET, "/v1/session")).await;
    assert_eq!(
        who.csrf.as_deref(),
        Some(one.csrf.as_str()),
        "a page that is loaded again learns it"
    );
    let asked: LoginInfo = rig.json(one.ask(&rig, Method::GET, "/v1/login")).await;
    assert_eq!((asked.oidc, asked.session), (false, Some(who)));
    let wish = json!({ "cluster": "eu", "region": "eu", "location": { "lat": 1.0, "lon": 2.0 } });
    // Another site's page can make the browser send the cookie, but cannot read the CSRF value.
    for foreign in [
        one.ask(&rig, Method::POST, "/v1/clusters"),
        one.ask(&rig, Method::POST, "/v1/clusters")
            .header("x-fdn-csrf", ""),
        one.ask(&rig, Method::POST, "/v1/clusters")
            .header("x-fdn-csrf", &other.csrf),
    ] {
        let (_, problem) = rig.refused(foreign.json(&wish)).await;
        assert_eq!(problem.code.as_str(), "FDN-2012");
    }
    let _: serde_json::Value = rig
        .json(one.change(&rig, Method::POST, "/v1/clusters").json(&wish))
        .await;
    // The cookie's value is not a bearer token.
    let value = one.cookie.split_once('=').expect("a pair").1;
    let request = rig.anonymous(Method::GET, "/v1/apps").bearer_auth(value);
    assert_eq!(rig.refused(request).await.1.code.as_str(), "FDN-2001");

    let rows: Vec<SessionInfo> = rig.json(one.ask(&rig, Method::GET, "/v1/sessions")).await;
    let kinds = rows
        .iter()
        .filter(|row| row.kind == SessionKind::Cookie)
        .count();
    assert_eq!((rows.len(), kinds), (3, 2));
    assert_eq!(rows.iter().filter(|row| row.current).count(), 1);
    assert_eq!(rows[0].address.as_deref(), Some("127.0.0.1"));
    let out = one.change(&rig, Method::DELETE, "/v1/session");
    let answer = out.send().await.expect("an answer");
    assert_eq!(answer.status(), 204);
    assert!(
        answer.headers()["set-cookie"]
            .to_str()
            .expect("text")
            .contains("Max-Age=0")
    );
    let gone = one.ask(&rig, Method::GET, "/v1/session");
    assert_eq!(rig.refused(gone).await.1.code.as_str(), "FDN-2001");
    // Without a session, this is no error for a page that only asks.
    let asked: LoginInfo = rig.json(one.ask(&rig, Method::GET, "/v1/login")).await;
    assert_eq!(asked.session, None);

    let rows: Vec<SessionInfo> = rig.json(other.ask(&rig, Method::GET, "/v1/sessions")).await;
    let own = rows.iter().find(|row| row.current).expect("its own");
    let end = rig.request(Method::DELETE, &format!("/v1/sessions/{}", own.id));
    assert_eq!(end.send().await.expect("an answer").status(), 204);
    let gone = other.ask(&rig, Method::GET, "/v1/session");
    assert_eq!(rig.refused(gone).await.1.code.as_str(), "FDN-2001");
}

async fn one_cannot_end_anothers_session(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let ann = user(&rig, "ann", None).await;
    let rows: Vec<SessionInfo> = rig.get("/v1/sessions").await;
    let path = format!("/v1/sessions/{}", rows[0].id);
    let request = rig.anonymous(Method::DELETE, &path).bearer_auth(&ann);
    assert_eq!(rig.refused(request).await.1.code.as_str(), "FDN-2003");
}

async fn a_session_that_is_left_alone_ends(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        settings.accounts.console_idle = DurationMs::from_millis(1);
    })
    .await;
    let request = rig
        .anonymous(Method::POST, "/v1/login")
        .json(&json!({ "user": "admin", "password": rig.password }));
    let _: serde_json::Value = rig.json(request).await;
    let request = rig
        .anonymous(Method::POST, "/v1/session")
        .json(&json!({ "user": "admin", "password": rig.password }));
    let answer = request.send().await.expect("an answer");
    // The session may end before its own response is made.
    let Some(cookie) = answer.headers().get("set-cookie") else {
        assert_eq!(answer.status(), 401);
        return;
    };
    let cookie = cookie
        .to_str()
        .expect("text")
        .split(';')
        .next()
        .expect("a pair");
    wait::until("the session to end", async || {
        let request = rig
            .anonymous(Method::GET, "/v1/apps")
            .header("cookie", cookie);
        match request
            .send()
            .await
            .map_err(|e| e.to_string())?
            .status()
            .as_u16()
        {
            401 => Ok(()),
            other => Err(other.to_string()),
        }
    })
    .await;
    let own: Vec<SessionInfo> = rig.get("/v1/sessions").await;
    assert!(!own.is_empty(), "the command line's may rest");
}

async fn a_new_password_ends_the_other_sessions(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let old = user(&rig, "ann", None).await;
    let page = browser(&rig, "ann", PASSWORD).await;
    let change = |current: &str, password: &str| {
        page.change(&rig, Method::POST, "/v1/password")
            .json(&json!({ "current": current, "password": password }))
    };
    let (_, problem) = rig.refused(change("wrong", "a much better one")).await;
    assert_eq!(problem.code.as_str(), "FDN-2001");
    let (_, problem) = rig.refused(change(PASSWORD, "short")).await;
    assert_eq!(problem.code.as_str(), "FDN-2017");
    let answer = change(PASSWORD, "a much better one").send().await;
    assert_eq!(answer.expect("an answer").status(), 204);
    let request = rig.anonymous(Method::GET, "/v1/session").bearer_auth(&old);
    assert_eq!(rig.refused(request).await.1.code.as_str(), "FDN-2001");
    let _: WhoAmI = rig.json(page.ask(&rig, Method::GET, "/v1/session")).await;
    rig.login("ann", "a much better one").await;
    let set = json!({ "password": "set by an admin" });
    let request = rig
        .request(Method::PUT, "/v1/users/ann/password")
        .json(&set);
    assert_eq!(request.send().await.expect("an answer").status(), 204);
    let gone = page.ask(&rig, Method::GET, "/v1/session");
    assert_eq!(rig.refused(gone).await.1.code.as_str(), "FDN-2001");
    rig.login("ann", "set by an admin").await;
}

async fn unknown_tokens_are_throttled_and_logins_are_not(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| settings.accounts.token_attempts = 3).await;
    for n in 0..3 {
        let token = format!("fdn_{}_{n}", "0".repeat(32));
        let request = rig.anonymous(Method::GET, "/v1/apps").bearer_auth(token);
        assert_eq!(rig.refused(request).await.1.code.as_str(), "FDN-2001");
    }
    let request = rig
        .anonymous(Method::GET, "/v1/apps")
        .bearer_auth("fdn_x_y");
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), 429);
    assert!(answer.headers().contains_key("retry-after"));
    rig.login("admin", &rig.password).await;
}

async fn a_dead_token_keeps_no_valid_one_out(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| settings.accounts.token_attempts = 3).await;
    let tool = accounts::api_token(&rig, &rig.token, &[Right::Look]).await;
    let page = browser(&rig, "admin", &rig.password).await;
    // All of them come from one address.
    let apps = || rig.anonymous(Method::GET, "/v1/apps");
    let unknown = async || {
        let dead = apps().bearer_auth("0".repeat(64));
        dead.send().await.expect("an answer").status().as_u16()
    };
    for _ in 0..3 {
        assert_eq!(unknown().await, 401);
    }
    // The fourth one must wait, or a later one on a machine that stands still: each has to wait for longer.
    let throttled = async || {
        wait::until(
            "an unknown token to be throttled",
            async || match unknown().await {
                429 => Ok(()),
                other => Err(other.to_string()),
            },
        )
        .await;
    };
    throttled().await;
    for valid in [
        apps().bearer_auth(&rig.token),
        apps().bearer_auth(&tool),
        page.ask(&rig, Method::GET, "/v1/apps"),
    ] {
        assert_eq!(valid.send().await.expect("an answer").status(), 200);
    }
    throttled().await;
}

/// Sends a request with the password of `ann`, and sets another one as soon as that was found right. Returns the status of the answer.
async fn overtaken(rig: &Rig, request: RequestBuilder, password: &str) -> u16 {
    let state = rig.controller.state();
    let found_right = || state.metrics.logins.with_label_values(&["ok"]).get();
    let before = found_right();
    let ann: UserName = "ann".parse().expect("a name");
    let hash = hash_password(password).expect("hashed");
    let mut tx = state.store.begin().await.expect("begun");
    revision_lock(&mut tx).await.expect("locked");
    let asked = tokio::spawn(request.send());
    wait::until("the password to be found right", async || {
        if found_right() > before {
            Ok(())
        } else {
            Err("not yet")
        }
    })
    .await;
    user_set_password(&mut tx, &ann, &hash, fdn_service::now())
        .await
        .expect("set");
    session_delete_others(&mut tx, &ann, None)
        .await
        .expect("ended");
    tx.commit().await.expect("committed");
    let answer = asked.await.expect("sent").expect("an answer");
    answer.status().as_u16()
}

async fn a_password_that_is_changed_while_it_is_checked_opens_nothing(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    user(&rig, "ann", None).await;
    let wish = json!({ "user": "ann", "password": PASSWORD });
    let login = rig.anonymous(Method::POST, "/v1/login").json(&wish);
    assert_eq!(overtaken(&rig, login, "the second password").await, 401);
    // Nor does it set another one.
    let session = rig.login("ann", "the second password").await;
    let wish = json!({ "current": "the second password", "password": "of somebody else" });
    let change = rig.anonymous(Method::POST, "/v1/password");
    let change = change.bearer_auth(&session).json(&wish);
    assert_eq!(overtaken(&rig, change, "the third password").await, 401);
    rig.login("ann", "the third password").await;
}

async fn a_disabled_user_gets_no_token_any_more(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let session = user(&rig, "ann", None).await;
    let request = rig.anonymous(Method::GET, "/v1/sessions");
    let rows: Vec<SessionInfo> = rig.json(request.bearer_auth(&session)).await;
    // The request was let in before the user was disabled.
    let ann = Person {
        name: "ann".parse().expect("a name"),
        network_role: None,
        tenants: Vec::new(),
        credential: Credential::Session {
            id: rows[0].id,
            kind: SessionKind::Bearer,
            csrf: None,
        },
        expires_at: Timestamp(u64::MAX),
    };
    let disable = rig.request(Method::PATCH, "/v1/users/ann");
    let _: UserInfo = rig.json(disable.json(&json!({ "disabled": true }))).await;
    let wish = json!({ "name": "ci", "scopes": ["look"], "ttl": "1h" });
    let wish: CreateApiToken = serde_json::from_value(wish).expect("a request");
    let state = rig.controller.state();
    let made = api_token::create(state, &Actor::named("ann"), &ann, &wish, None).await;
    let Err(error) = made else {
        panic!("a token was left behind");
    };
    assert_eq!(error.code().as_str(), "FDN-2001");
}
