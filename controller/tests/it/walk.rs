//! A walk over the API document: every operation is called by everybody; those with its right are admitted, and nobody else.
//!
//! A request with an invalid `if-match` is refused with FDN-2005 after the caller was authorized and before anything is done, so the walk
//! finds out who is authorized without changing anything.

use std::collections::BTreeSet;

use fdn_controller::openapi_json;
use fdn_core::job::{JobInfo, JobReceipt};
use fdn_core::rights::Scope;
use fdn_core::{NetworkRole, Right, TenantRole};
use fdn_testkit::components;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;

use crate::accounts::{People, member, people};
use crate::rig::{Backend, Rig, on_both};

on_both!(
    strangers_are_refused,
    members_are_let_in_by_their_roles,
    another_tenants_owner_sees_nothing,
    a_role_elsewhere_opens_nothing_here,
    a_tag_that_nothing_compares_is_refused,
    hidden_is_as_absent,
    api_tokens_do_what_their_scopes_say,
    the_networks_token_opens_nothing,
);

/// An operation of the API document.
pub(crate) struct Operation {
    pub(crate) method: Method,
    /// The path, with its parameters in braces.
    pub(crate) path: String,
    /// The security scheme; `None` if it is open to everybody.
    scheme: Option<String>,
    right: Option<Right>,
    /// Whether it accepts `if-match`.
    pub(crate) compares: bool,
}

/// All operations.
pub(crate) fn operations() -> Vec<Operation> {
    let document: Value =
        serde_json::from_str(&openapi_json().expect("the document")).expect("JSON");
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let schemes = operation["security"][0].as_object();
            let schemes = schemes.expect("every operation says what it needs");
            let right = operation["x-fdn-right"].as_str();
            let mut parameters = operation["parameters"].as_array().into_iter().flatten();
            all.push(Operation {
                method: method.to_uppercase().parse().expect("a method"),
                path: path.clone(),
                scheme: schemes.keys().next().cloned(),
                right: right.map(|right| right.parse().expect("a right")),
                compares: parameters.any(|one| one["name"] == "if-match"),
            });
        }
    }
    all
}

impl Operation {
    /// The path with its parameters filled in, for things of the tenant `default`, whose job is `job`.
    pub(crate) fn filled(&self, job: &str) -> String {
        let zeros = "0".repeat(32);
        let path = self
            .path
            .replace("{app}", "hello")
            .replace("{tenant}", "default")
            .replace("{user}", "viewer")
            .replace("{digest}", &format!("sha256:{zeros}{zeros}"))
            .replace("{cluster}", "eu-west")
            .replace("{node}", "eu-west-1")
            .replace("{server}", "ns1")
            .replace("{token}", &format!("jtk_{zeros}"))
            .replace("{api_token}", &format!("fdn_{zeros}"))
            .replace("{session}", &format!("ses_{zeros}"))
            .replace("{job}", job)
            .replace("{run}", &format!("run_{zeros}"))
            .replace("{key}", &format!("key_{zeros}"))
            .replace("{month}", "current")
            .replace("{set}", "default")
            .replace("{secret}", "KEY")
            .replace("{version}", "7")
            .replace("{host}", "shop.example.org")
            .replace("{name}", "first");
        assert!(!path.contains('{'), "the walk knows no value for {path}");
        path
    }

    /// Whether the path determines the tenant.
    fn names_tenant(&self) -> bool {
        ["{app}", "{tenant}", "{job}"]
            .iter()
            .any(|place| self.path.contains(place))
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn right(&self) -> Right {
        self.right
            .unwrap_or_else(|| panic!("{} has a right", self.name()))
    }
}

/// The id of a job that does not exist.
fn no_job() -> String {
    format!("job_{}", "0".repeat(32))
}

/// Creates an app of the tenant `default` with a job, which waits, since there is no cluster.
async fn job(rig: &Rig) -> String {
    rig.deploy("hello", components::hello("hello")).await;
    let submit = rig.request(Method::POST, "/v1/apps/hello/jobs").body("x");
    let receipt: JobReceipt = rig.json(submit).await;
    receipt.id.to_string()
}

/// The status and the error code of a request.
async fn answered(rig: &Rig, request: RequestBuilder) -> (StatusCode, String) {
    let (status, problem) = rig.refused(request.header("if-match", "nonsense")).await;
    (status, problem.code.to_string())
}

const LET_IN: (StatusCode, &str) = (StatusCode::BAD_REQUEST, "FDN-2005");
const REFUSED: (StatusCode, &str) = (StatusCode::FORBIDDEN, "FDN-2002");
const HIDDEN: (StatusCode, &str) = (StatusCode::NOT_FOUND, "FDN-2003");
const NAME_TAKEN: (StatusCode, &str) = (StatusCode::CONFLICT, "FDN-2004");

#[test]
fn every_operation_says_its_right() {
    let all = operations();
    assert!(all.len() >= 50, "the walk found {}", all.len());
    let mut open = Vec::new();
    for operation in &all {
        match operation.scheme.as_deref() {
            // Callers who log in, accept an invitation, join or renew identify themselves in the body; how to log in is told to everybody.
            None => {
                assert_eq!(operation.right, None, "{}", operation.name());
                open.push(operation.name());
            }
            Some("session") => assert!(operation.right.is_some(), "{}", operation.name()),
            Some(other) => panic!("{}: {other}", operation.name()),
        }
    }
    assert_eq!(
        open,
        [
            "POST /v1/invitations/accept",
            "GET /v1/login",
            "POST /v1/login",
            "POST /v1/nodes/enrol",
            "POST /v1/nodes/renew",
            "GET /v1/oidc/callback",
            "GET /v1/oidc/login",
            "POST /v1/session"
        ]
    );
}

async fn strangers_are_refused(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let job = job(&rig).await;
    for operation in operations().iter().filter(|o| o.scheme.is_some()) {
        let request = || rig.anonymous(operation.method.clone(), &operation.filled(&job));
        for stranger in [
            request(),
            request().bearer_auth("0".repeat(64)),
            request().bearer_auth(format!("fdn_{}_{}", "0".repeat(32), "0".repeat(64))),
            request().basic_auth("admin", Some(&rig.password)),
            request().header("cookie", format!("fdn-session={}", "0".repeat(64))),
            // The token of a command-line session is not accepted as a cookie.
            request().header("cookie", format!("fdn-session={}", rig.token)),
        ] {
            let answer = stranger.send().await.expect("an answer");
            assert_eq!(answer.status(), 401, "{}", operation.name());
            assert_eq!(answer.headers()["www-authenticate"], "Bearer");
        }
    }
}

async fn members_are_let_in_by_their_roles(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let job = job(&rig).await;
    let people = people(&rig).await;
    for operation in operations().iter().filter(|o| o.scheme.is_some()) {
        let right = operation.right();
        for role in TenantRole::ALL {
            let token = people.member(*role);
            let request = rig
                .anonymous(operation.method.clone(), &operation.filled(&job))
                .bearer_auth(token);
            let expected = match right.scope() == Scope::Everyone || role.has(right) {
                true => LET_IN,
                false => REFUSED,
            };
            let (status, code) = answered(&rig, request).await;
            assert_eq!(
                (status, code.as_str()),
                expected,
                "{role}: {}",
                operation.name()
            );
        }
        for (role, token) in [
            (NetworkRole::Operator, &people.operator),
            (NetworkRole::Admin, &rig.token),
        ] {
            let request = rig
                .anonymous(operation.method.clone(), &operation.filled(&job))
                .bearer_auth(token);
            let expected = match (role.has(right), right) {
                (true, _) => LET_IN,
                // An operator is not a member: things of a tenant are hidden.
                (false, Right::Look) if operation.names_tenant() => HIDDEN,
                (false, Right::Look) => LET_IN,
                (false, _) => REFUSED,
            };
            let (status, code) = answered(&rig, request).await;
            assert_eq!(
                (status, code.as_str()),
                expected,
                "{role}: {}",
                operation.name()
            );
        }
    }
}

async fn another_tenants_owner_sees_nothing(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let job = job(&rig).await;
    let people = people(&rig).await;
    let mut seen = 0;
    for operation in operations().iter().filter(|o| o.scheme.is_some()) {
        let right = operation.right();
        if right.scope() != Scope::Tenant {
            continue;
        }
        seen += 1;
        let path = match operation.names_tenant() {
            true => operation.filled(&job),
            false => format!("{}?tenant=default", operation.filled(&job)),
        };
        let request = rig
            .anonymous(operation.method.clone(), &path)
            .bearer_auth(&people.outsider);
        let expected = match (operation.method.as_str(), operation.path.as_str()) {
            // Names are unique in the network, so the caller must be told that it is taken.
            ("POST", "/v1/apps/{app}/versions") | ("PUT", "/v1/apps/{app}/workflow") => NAME_TAKEN,
            _ => HIDDEN,
        };
        let (status, code) = answered(&rig, request).await;
        assert_eq!((status, code.as_str()), expected, "{}", operation.name());
    }
    assert!(seen >= 12, "{seen}");
}

/// Rights are checked in the tenant of the thing: rights in another tenant give no access.
async fn a_role_elsewhere_opens_nothing_here(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let job = job(&rig).await;
    let people = people(&rig).await;
    // The owner of another tenant, who is a viewer here.
    member(&rig, "default", "outsider", "viewer").await;
    let mut refused = BTreeSet::new();
    for operation in operations().iter().filter(|o| o.scheme.is_some()) {
        let right = operation.right();
        if right.scope() != Scope::Tenant {
            continue;
        }
        let path = match operation.names_tenant() {
            true => operation.filled(&job),
            false => format!("{}?tenant=default", operation.filled(&job)),
        };
        let request = rig
            .anonymous(operation.method.clone(), &path)
            .bearer_auth(&people.outsider);
        let expected = match TenantRole::Viewer.has(right) {
            true => LET_IN,
            false => REFUSED,
        };
        let (status, code) = answered(&rig, request).await;
        assert_eq!((status, code.as_str()), expected, "{}", operation.name());
        if expected == REFUSED {
            refused.insert(operation.name());
        }
    }
    for name in ["DELETE /v1/jobs/{job}", "POST /v1/jobs/{job}/redrive"] {
        assert!(refused.contains(name), "{name} of a job that is there");
    }
    let info: JobInfo = rig.get(&format!("/v1/jobs/{job}")).await;
    assert!(!info.state.is_final(), "nothing was done: {info:?}");
}

/// An operation that compares no tags refuses `if-match`, so that nobody believes that it was checked.
async fn a_tag_that_nothing_compares_is_refused(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let job = job(&rig).await;
    let mut seen = 0;
    for operation in operations().iter().filter(|o| o.scheme.is_some()) {
        if operation.compares {
            continue;
        }
        seen += 1;
        for tag in ["\"1\"", "*"] {
            let request = rig
                .anonymous(operation.method.clone(), &operation.filled(&job))
                .bearer_auth(&rig.token)
                .header("if-match", tag);
            let (status, problem) = rig.refused(request).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{}", operation.name());
            assert_eq!(problem.code.as_str(), "FDN-2005", "{}", operation.name());
            assert!(
                problem.detail.contains("compares no tags"),
                "{}: {}",
                operation.name(),
                problem.detail
            );
        }
    }
    assert!(seen >= 50, "{seen}");
}

/// The response for something hidden is exactly that for something missing.
async fn hidden_is_as_absent(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let job = job(&rig).await;
    let people = people(&rig).await;
    let said = async |path: &str| {
        let request = rig
            .anonymous(Method::GET, path)
            .bearer_auth(&people.outsider);
        rig.refused(request).await.1.detail
    };
    for (there, absent, what) in [
        ("/v1/apps/hello", "/v1/apps/absent", ["hello", "absent"]),
        (
            "/v1/tenants/default",
            "/v1/tenants/absent",
            ["default", "absent"],
        ),
        (
            &format!("/v1/jobs/{job}"),
            &format!("/v1/jobs/{}", no_job()),
            [job.as_str(), &no_job()],
        ),
    ] {
        let (there, absent) = (said(there).await, said(absent).await);
        assert_eq!(there.replace(what[0], "X"), absent.replace(what[1], "X"));
    }
}

async fn api_tokens_do_what_their_scopes_say(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let job = job(&rig).await;
    let People { .. } = people(&rig).await;
    let all: Vec<Right> = Right::ALL
        .iter()
        .copied()
        .filter(|r| r.for_tokens())
        .collect();
    for right in Right::ALL {
        let others: Vec<Right> = all.iter().copied().filter(|r| r != right).collect();
        let without = crate::accounts::api_token(&rig, &rig.token, &others).await;
        let with = match right.for_tokens() {
            true => Some(crate::accounts::api_token(&rig, &rig.token, &[*right]).await),
            false => None,
        };
        for operation in operations().iter().filter(|o| o.right == Some(*right)) {
            let ask = async |token: &str| {
                let request = rig.anonymous(operation.method.clone(), &operation.filled(&job));
                let (status, code) = answered(&rig, request.bearer_auth(token)).await;
                (status, code)
            };
            let name = operation.name();
            // Every token may read what every user may.
            let expected = match right {
                Right::LookNetwork => LET_IN,
                _ => REFUSED,
            };
            let (status, code) = ask(&without).await;
            assert_eq!((status, code.as_str()), expected, "without {right}: {name}");
            if let Some(with) = &with {
                let (status, code) = ask(with).await;
                assert_eq!((status, code.as_str()), LET_IN, "with {right}: {name}");
            }
        }
    }
}

/// Machines have certificates and a listener of their own: the network's token gives no access here.
async fn the_networks_token_opens_nothing(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let job = no_job();
    let network = std::fs::read_to_string(&rig.settings.network.token_file).expect("token");
    for operation in operations().iter().filter(|o| o.scheme.is_some()) {
        let request = rig
            .anonymous(operation.method.clone(), &operation.filled(&job))
            .bearer_auth(&network);
        let (status, code) = answered(&rig, request).await;
        let expected = (StatusCode::UNAUTHORIZED, "FDN-2001");
        assert_eq!((status, code.as_str()), expected, "{}", operation.name());
    }
}
