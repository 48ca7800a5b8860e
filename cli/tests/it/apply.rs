//! `fdn apply` against a fake controller: what it remembers under the set's name, and when.

use fdn_cli::exit::Exit;
use fdn_core::ErrorCode;
use fdn_core::billing::Budget;
use http::Method;
use serde_json::json;

use crate::support::{Fake, Home, Ran, Recorded, Reply, bills, sample};

/// What the fake controller refuses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refuses {
    Nothing,
    Budgets,
    Sets,
}

/// A controller on which the set `web` has the budget `old`, and which gives the set another tag each time that it is stored.
async fn controller(refuses: Refuses) -> Fake {
    Fake::start(move |request, _| {
        let path = request.path.split('?').next().unwrap_or_default();
        let set = |items: serde_json::Value, tag: &str| {
            let body = json!({ "set": "web", "items": items }).to_string();
            let headers = vec![
                ("content-type", "application/json".to_owned()),
                ("etag", format!("\"{tag}\"")),
            ];
            Reply::Full(200, headers, body.into_bytes())
        };
        match (&request.method, path) {
            (&Method::GET, "/v1/sets/web") => set(json!(["budget/old"]), "0"),
            (&Method::PUT, "/v1/sets/web") if refuses == Refuses::Sets => {
                Reply::problem(ErrorCode::PreconditionFailed, "it is at \"7\" now")
            }
            (&Method::PUT, "/v1/sets/web") => set(json!([]), "1"),
            (&Method::GET, "/v1/billing/budgets") => Reply::json(&[Budget {
                name: sample::parse("old"),
                ..bills::budgets().remove(0)
            }]),
            (&Method::PUT, "/v1/billing/budgets/all") if refuses == Refuses::Budgets => {
                Reply::problem(ErrorCode::BadRequest, "not now")
            }
            (&Method::PUT, "/v1/billing/budgets/all") => Reply::json(&bills::budgets()[0]),
            (&Method::DELETE, "/v1/billing/budgets/old") => Reply::Full(204, vec![], vec![]),
            (method, path) => panic!("{method} {path}"),
        }
    })
    .await
}

/// Declares the budget `all` in place of `old`; returns what the command did, and the requests that change something.
async fn applied(refuses: Refuses) -> (Ran, Vec<String>) {
    let fake = controller(refuses).await;
    let home = Home::logged_in(&fake.url());
    let file = home.file("tenant.yaml", "budgets:\n  all: { limit: \"100\" }\n");
    let ran = home
        .fdn(&[
            "apply", "-f", &file, "--set", "web", "--tenant", "shop", "--prune",
        ])
        .await;
    let requests = fake.requests();
    let changes = requests
        .iter()
        .filter(|request| request.method != Method::GET);
    (ran, changes.map(line).collect())
}

/// The request's method and path; of a set, its condition and items too.
fn line(request: &Recorded) -> String {
    let path = request.path.split('?').next().unwrap_or_default();
    let line = format!("{} {path}", request.method);
    let Some(tag) = request.headers.get("if-match") else {
        return line;
    };
    let (tag, items) = (tag.to_str().expect("text"), &request.body);
    format!("{line} {tag} {}", String::from_utf8_lossy(items))
}

const FIRST: &str = r#"PUT /v1/sets/web "0" ["budget/all","budget/old"]"#;

#[tokio::test]
async fn what_will_be_created_is_remembered_before_it_is() {
    let (ran, changes) = applied(Refuses::Nothing).await;
    assert_eq!(ran.exit, Exit::Ok, "{}", ran.err);
    let all = [
        FIRST,
        "PUT /v1/billing/budgets/all",
        "DELETE /v1/billing/budgets/old",
        r#"PUT /v1/sets/web "1" ["budget/all"]"#,
    ];
    assert_eq!(changes, all);
    let (ran, changes) = applied(Refuses::Budgets).await;
    assert_ne!(ran.exit, Exit::Ok);
    assert!(ran.err.contains("0 of 2 changes"), "{}", ran.err);
    // What could not be created is no longer remembered.
    let kept = r#"PUT /v1/sets/web "1" ["budget/old"]"#;
    assert_eq!(changes, [all[0], all[1], kept]);
}

#[tokio::test]
async fn nothing_is_changed_if_the_set_has_been_applied_meanwhile() {
    let (ran, changes) = applied(Refuses::Sets).await;
    assert_eq!(ran.exit, Exit::Conflict, "{}", ran.err);
    for words in ["FDN-2013", "nothing was changed"] {
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
    }
    assert_eq!(changes, [FIRST]);
}
