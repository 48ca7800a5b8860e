//! Invitations: an admin creates one, and whoever presents it sets a password, once.

use fdn_core::NetworkRole;
use fdn_core::account::{AuditRecord, UserInfo, WhoAmI};
use fdn_core::invitation::{AcceptedInvitation, CreatedInvitation};
use fdn_testkit::wait;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::accounts::{PASSWORD, member, user};
use crate::rig::{Backend, Rig, on_both};

on_both!(
    whoever_is_invited_chooses_a_password_once,
    a_browser_that_accepts_gets_a_cookie,
    a_newer_invitation_and_time_end_one,
    a_disabled_user_accepts_nothing,
    who_is_gone_or_has_a_password_accepts_nothing,
    who_has_a_password_already_is_not_invited,
    of_two_that_accept_at_once_one_does,
    a_password_that_an_admin_sets_meanwhile_stays,
    the_network_is_not_left_to_an_admin_who_has_no_password_yet,
    wrong_invitations_are_throttled_like_logins,
    controllers_of_the_release_before_end_invitations_too,
);

fn invite(rig: &Rig, wish: Value) -> RequestBuilder {
    rig.request(Method::POST, "/v1/invitations").json(&wish)
}

/// Invites a user for an hour; returns the token of the link.
async fn invited(rig: &Rig, name: &str) -> String {
    let made: CreatedInvitation = rig
        .json(invite(rig, json!({ "name": name, "ttl": "1h" })))
        .await;
    assert_eq!(made.info.user.as_str(), name);
    made.token
}

fn accept(rig: &Rig, token: &str, password: &str, kind: &str) -> RequestBuilder {
    let body = json!({ "token": token, "password": password, "kind": kind });
    rig.anonymous(Method::POST, "/v1/invitations/accept")
        .json(&body)
}

/// The error code with which an invitation is refused.
async fn refused(rig: &Rig, token: &str) -> String {
    let (status, problem) = rig.refused(accept(rig, token, PASSWORD, "bearer")).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{problem}");
    problem.code.to_string()
}

async fn execute(rig: &Rig, sql: &'static str) {
    let store = &rig.controller.state().store;
    let mut connection = store.read().await.expect("connected");
    let done = sqlx::query(sql).execute(&mut *connection).await;
    assert_eq!(done.expect(sql).rows_affected(), 1, "{sql}");
}

async fn whoever_is_invited_chooses_a_password_once(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let wish = json!({ "name": "ann", "network_role": "operator", "ttl": "72h" });
    let answer = invite(&rig, wish).send().await.expect("an answer");
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let made: CreatedInvitation = answer.json().await.expect("an invitation");
    let (prefix, secret) = made.token.rsplit_once('.').expect("two parts");
    assert_eq!((prefix, secret.len()), ("fdn-invite.616e6e", 64));
    assert_eq!(made.info.created_by, "admin");
    let ann: UserInfo = rig.get("/v1/users/ann").await;
    assert_eq!(ann.network_role, Some(NetworkRole::Operator));
    assert_eq!(ann.invited_until, Some(made.info.expires_at));
    // A user without a password may be a member already.
    member(&rig, "default", "ann", "developer").await;
    // An unacceptable password is refused and does not consume the invitation.
    let (_, problem) = rig
        .refused(accept(&rig, &made.token, "short", "bearer"))
        .await;
    assert_eq!(problem.code.as_str(), "FDN-2017");
    let accepted: AcceptedInvitation = rig
        .json(accept(&rig, &made.token, PASSWORD, "bearer"))
        .await;
    assert_eq!(accepted.user.as_str(), "ann");
    let token = accepted.token.expect("a token");
    let who = rig
        .anonymous(Method::GET, "/v1/session")
        .bearer_auth(&token);
    let who: WhoAmI = rig.json(who).await;
    assert_eq!(
        (who.user.as_str(), who.network_role, who.tenants.len()),
        ("ann", Some(NetworkRole::Operator), 1)
    );
    assert_eq!(refused(&rig, &made.token).await, "FDN-2042", "good once");
    rig.login("ann", PASSWORD).await;
    let ann: UserInfo = rig.get("/v1/users/ann").await;
    assert_eq!(ann.invited_until, None);
    told_by_the_audit_log(&rig, &made.token, secret).await;
}

/// The log has the inviter, the user who accepted, and the address; and no secret.
async fn told_by_the_audit_log(rig: &Rig, token: &str, secret: &str) {
    let log: Vec<AuditRecord> = rig.get("/v1/audit?subject=user/ann").await;
    let lines: Vec<_> = log
        .iter()
        .map(|entry| {
            (
                entry.action.as_str(),
                entry.actor.as_str(),
                entry.address.as_deref(),
            )
        })
        .collect();
    let here = Some("127.0.0.1");
    assert_eq!(
        lines,
        [
            ("invitation.accept", "ann", here),
            ("invitation.create", "admin", here)
        ]
    );
    let made = log[1].after.as_ref().expect("what was made");
    assert_eq!(
        (&made["network_role"], &made["new_user"]),
        (&json!("operator"), &json!(true))
    );
    let all: Vec<Value> = rig.get("/v1/audit?limit=1000").await;
    let text = serde_json::to_string(&all).expect("JSON");
    assert!(!text.contains(secret) && !text.contains(token) && !text.contains(PASSWORD));
}

async fn a_browser_that_accepts_gets_a_cookie(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let token = invited(&rig, "jane doe@example.org").await;
    let answer = accept(&rig, &token, PASSWORD, "cookie").send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["cache-control"], "no-store");
    let set = answer.headers()["set-cookie"].to_str().expect("text");
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(set.contains(part), "{set}");
    }
    let cookie = set.split(';').next().expect("a pair").to_owned();
    let accepted: AcceptedInvitation = answer.json().await.expect("accepted");
    assert!(accepted.token.is_none(), "no script gets it");
    let who = rig.anonymous(Method::GET, "/v1/session");
    let who: WhoAmI = rig.json(who.header("cookie", &cookie)).await;
    assert_eq!(who.user.as_str(), "jane doe@example.org");
    assert!(who.csrf.is_some(), "it is a session of the console");
}

async fn a_newer_invitation_and_time_end_one(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let first = invited(&rig, "ann").await;
    let before: UserInfo = rig.get("/v1/users/ann").await;
    let second = invited(&rig, "ann").await;
    let after: UserInfo = rig.get("/v1/users/ann").await;
    assert!(
        after.generation > before.generation,
        "what is shown has another tag"
    );
    assert_eq!(refused(&rig, &first).await, "FDN-2042");
    execute(
        &rig,
        "UPDATE invitations SET expires_at = expires_at - 10900000",
    )
    .await;
    let (_, problem) = rig.refused(accept(&rig, &second, PASSWORD, "bearer")).await;
    assert_eq!(problem.code.as_str(), "FDN-2043");
    assert!(
        problem.detail.contains("ended 2h ago") && problem.detail.contains("ask admin"),
        "{problem}"
    );
    // Nobody without the secret can find out that it has expired.
    assert_eq!(refused(&rig, &first).await, "FDN-2042");
    let third = invited(&rig, "ann").await;
    let _: AcceptedInvitation = rig.json(accept(&rig, &third, PASSWORD, "bearer")).await;
    for wish in [
        json!({ "name": "bob", "ttl": "0s" }),
        json!({ "name": "bob", "ttl": "721h" }),
        json!({ "name": "bob", "ttl": "1h", "password": PASSWORD }),
        json!({ "name": "a/b", "ttl": "1h" }),
    ] {
        assert_eq!(rig.code(invite(&rig, wish.clone())).await, "FDN-2005");
    }
    let malformed = accept(&rig, "fdn-invite.616e6e", PASSWORD, "bearer");
    let (_, problem) = rig.refused(malformed).await;
    assert_eq!(problem.code.as_str(), "FDN-2005");
}

async fn a_disabled_user_accepts_nothing(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let token = invited(&rig, "ann").await;
    let patch = |disabled: bool| {
        rig.request(Method::PATCH, "/v1/users/ann")
            .json(&json!({ "disabled": disabled }))
    };
    let _: UserInfo = rig.json(patch(true)).await;
    assert_eq!(refused(&rig, &token).await, "FDN-2042");
    let again = invite(&rig, json!({ "name": "ann", "ttl": "1h" }));
    let (_, problem) = rig.refused(again).await;
    assert_eq!(problem.code.as_str(), "FDN-2004");
    assert!(problem.detail.contains("is disabled"), "{problem}");
    let _: UserInfo = rig.json(patch(false)).await;
    assert_eq!(
        refused(&rig, &token).await,
        "FDN-2043",
        "what ended stays so"
    );
    let token = invited(&rig, "ann").await;
    let _: AcceptedInvitation = rig.json(accept(&rig, &token, PASSWORD, "bearer")).await;
}

async fn who_is_gone_or_has_a_password_accepts_nothing(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let gone = invited(&rig, "ann").await;
    let delete = rig.request(Method::DELETE, "/v1/users/ann");
    assert_eq!(delete.send().await.expect("an answer").status(), 204);
    assert_eq!(refused(&rig, &gone).await, "FDN-2042");
    // A new user with the same name is somebody else.
    let token = invited(&rig, "ann").await;
    assert_eq!(refused(&rig, &gone).await, "FDN-2042");
    let set = rig.request(Method::PUT, "/v1/users/ann/password");
    let set = set.json(&json!({ "password": "set by an admin" }));
    assert_eq!(set.send().await.expect("an answer").status(), 204);
    assert_eq!(refused(&rig, &token).await, "FDN-2042");
    rig.login("ann", "set by an admin").await;
}

async fn who_has_a_password_already_is_not_invited(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    user(&rig, "bob", None).await;
    let provided = json!({ "name": "eve", "oidc": true });
    let request = rig.request(Method::POST, "/v1/users").json(&provided);
    let _: UserInfo = rig.json(request).await;
    invited(&rig, "ann").await;
    for (wish, words) in [
        (json!({ "name": "bob", "ttl": "1h" }), "has a password"),
        (json!({ "name": "admin", "ttl": "1h" }), "has a password"),
        (json!({ "name": "eve", "ttl": "1h" }), "identity provider"),
        (
            json!({ "name": "ann", "ttl": "1h", "network_role": "admin" }),
            "another role",
        ),
    ] {
        let (status, problem) = rig.refused(invite(&rig, wish.clone())).await;
        assert_eq!(status, StatusCode::CONFLICT, "{wish}");
        assert!(problem.detail.contains(words), "{wish}: {problem}");
    }
    rig.login("bob", PASSWORD).await;
    let users: Vec<UserInfo> = rig.get("/v1/users").await;
    let invited = users.iter().filter(|one| one.invited_until.is_some());
    let invited: Vec<_> = invited.map(|one| one.name.as_str()).collect();
    assert_eq!(invited, ["ann"]);
}

async fn of_two_that_accept_at_once_one_does(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let token = invited(&rig, "ann").await;
    let passwords = [
        "the first password",
        "the second password",
        "the third password",
    ];
    let asked = passwords.map(|password| accept(&rig, &token, password, "bearer").send());
    let answers = futures::future::join_all(asked).await;
    let mut chosen = Vec::new();
    for (answer, password) in answers.into_iter().zip(passwords) {
        match answer.expect("an answer").status() {
            StatusCode::OK => chosen.push(password),
            status => assert_eq!(status, StatusCode::FORBIDDEN),
        }
    }
    assert_eq!(chosen.len(), 1, "{chosen:?}");
    rig.login("ann", chosen[0]).await;
}

/// Whichever comes first, the admin's password is the valid one, and there is no session without it.
async fn a_password_that_an_admin_sets_meanwhile_stays(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let token = invited(&rig, "ann").await;
    let set = rig.request(Method::PUT, "/v1/users/ann/password");
    let set = set.json(&json!({ "password": "set by an admin" }));
    let accept = accept(&rig, &token, PASSWORD, "bearer");
    let (set, accepted) = futures::join!(set.send(), accept.send());
    assert_eq!(set.expect("an answer").status(), 204);
    let accepted = accepted.expect("an answer");
    if accepted.status() == StatusCode::OK {
        let accepted: AcceptedInvitation = accepted.json().await.expect("accepted");
        let who = rig
            .anonymous(Method::GET, "/v1/session")
            .bearer_auth(accepted.token.expect("a token"));
        assert_eq!(rig.code(who).await, "FDN-2001", "the session has ended");
    } else {
        assert_eq!(accepted.status(), StatusCode::FORBIDDEN);
    }
    rig.login("ann", "set by an admin").await;
    let ann: UserInfo = rig.get("/v1/users/ann").await;
    assert_eq!(ann.invited_until, None);
}

async fn the_network_is_not_left_to_an_admin_who_has_no_password_yet(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let wish = json!({ "name": "ann", "network_role": "admin", "ttl": "1h" });
    let made: CreatedInvitation = rig.json(invite(&rig, wish)).await;
    let change = |wish: &Value| rig.request(Method::PATCH, "/v1/users/admin").json(wish);
    let demoted = json!({ "network_role": "none" });
    for wish in [&demoted, &json!({ "disabled": true })] {
        assert_eq!(rig.code(change(wish)).await, "FDN-2018", "{wish}");
    }
    let accept = accept(&rig, &made.token, PASSWORD, "bearer");
    let _: AcceptedInvitation = rig.json(accept).await;
    let admin: UserInfo = rig.json(change(&demoted)).await;
    assert_eq!(admin.network_role, None, "ann can log in now");
}

async fn wrong_invitations_are_throttled_like_logins(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| settings.accounts.login_attempts = 3).await;
    let token = invited(&rig, "ann").await;
    let wrong = format!("fdn-invite.616e6e.{}", "0".repeat(64));
    // The right invitation with an unacceptable password: it neither counts as a failure nor is consumed.
    wait::until("the right invitation to wait", async || {
        let failed = rig.code(accept(&rig, &wrong, PASSWORD, "bearer")).await;
        assert!(
            ["FDN-2042", "FDN-2006"].contains(&failed.as_str()),
            "{failed}"
        );
        let answer = accept(&rig, &token, "short", "bearer").send().await;
        let answer = answer.map_err(|e| e.to_string())?;
        match answer.status() {
            StatusCode::TOO_MANY_REQUESTS if answer.headers().contains_key("retry-after") => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
    let metrics = rig.anonymous(Method::GET, "/metrics").send().await;
    let text = metrics.expect("an answer").text().await.expect("text");
    for result in ["wrong", "throttled"] {
        let counted = format!("fdn_controller_logins_total{{result=\"{result}\"}}");
        assert!(text.contains(&counted), "{counted}");
    }
}

/// The changes of a controller of the previous release, which does not know invitations.
async fn controllers_of_the_release_before_end_invitations_too(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let token = invited(&rig, "ann").await;
    execute(
        &rig,
        "UPDATE users SET password_hash = 'x', password_changed_at = password_changed_at + 1, generation = generation + 1 \
         WHERE name = 'ann'",
    )
    .await;
    assert_eq!(
        refused(&rig, &token).await,
        "FDN-2042",
        "a password was set"
    );
    let ann: UserInfo = rig.get("/v1/users/ann").await;
    assert_eq!(ann.invited_until, None);
    let again = invite(&rig, json!({ "name": "ann", "ttl": "1h" }));
    assert_eq!(rig.code(again).await, "FDN-2004");
    let token = invited(&rig, "bob").await;
    execute(
        &rig,
        "UPDATE users SET disabled_at = 1, generation = generation + 1 WHERE name = 'bob'",
    )
    .await;
    assert_eq!(refused(&rig, &token).await, "FDN-2042", "disabled");
    execute(&rig, "DELETE FROM users WHERE name = 'bob'").await;
    assert_eq!(refused(&rig, &token).await, "FDN-2042", "deleted");
}
