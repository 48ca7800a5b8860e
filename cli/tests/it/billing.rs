//! `fdn bill`, `fdn price` and `fdn budget` against a fake controller: their requests, output and exit codes.

use fdn_cli::exit::Exit;
use fdn_core::billing::{Line, Statement};
use http::Method;
use serde_json::{Value, json};

use crate::support::{Fake, Home, Reply, bills};

#[tokio::test]
async fn a_bill_has_the_lines_of_all_pages() {
    let fake = Fake::start(|request, _| {
        let whole = bills::statement();
        let (first, rest) = whole.lines.split_at(1);
        let page = |lines: &[Line], next: Option<&str>| {
            let page = Statement {
                lines: lines.to_vec(),
                ..whole.clone()
            };
            let mut headers = vec![("content-type", "application/json".to_owned())];
            headers.extend(next.map(|next| {
                let path = "/v1/billing/statements/current";
                ("link", format!("<{path}?cursor={next}>; rel=\"next\""))
            }));
            Reply::Full(200, headers, serde_json::to_vec(&page).expect("JSON"))
        };
        match request.path.as_str() {
            "/v1/billing/statements/current" => page(first, Some("1")),
            "/v1/billing/statements/2026-11?cursor=1" => page(rest, None),
            path => panic!("{path}"),
        }
    })
    .await;
    let ran = Home::logged_in(&fake.url())
        .fdn(&["bill", "-o", "json"])
        .await;
    assert_eq!(ran.exit, Exit::Ok, "{}", ran.err);
    let printed: Statement = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(printed, bills::statement());
}

#[tokio::test]
async fn csv_and_views_come_from_their_own_operations() {
    let fake = Fake::start(|request, _| match request.path.as_str() {
        "/v1/billing/statements/2026-10/csv" => Reply::Full(
            200,
            vec![("content-type", "text/csv".into())],
            b"month\r\n2026-10\r\n".to_vec(),
        ),
        "/v1/billing/usage?month=2026-10&by=region" => Reply::json(&bills::usage_view()),
        path => panic!("{path}"),
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let ran = home.fdn(&["bill", "--month", "2026-10", "-o", "csv"]).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "month\r\n2026-10\n"),
        "{}",
        ran.err
    );
    let ran = home
        .fdn(&["bill", "--month", "2026-10", "--by", "region", "-o", "yaml"])
        .await;
    assert_eq!(ran.exit, Exit::Ok, "{}", ran.err);
    assert!(ran.out.contains("name: eu-west"), "{}", ran.out);
    let ran = home.fdn(&["bill", "--by", "region", "-o", "csv"]).await;
    assert_eq!(ran.exit, Exit::Usage);
}

#[tokio::test]
async fn a_price_list_is_read_from_toml_and_json() {
    let fake = Fake::start(|request, _| match request.method {
        Method::POST => Reply::json(&bills::price_lists()[0]),
        _ => Reply::Full(204, vec![], vec![]),
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let toml = home.file(
        "p.toml",
        "name = \"p\"\ncurrency = \"EUR\"\nfrom = \"2026-12-01\"\n[prices]\ninvocations = { price = \"0.20\", per = 1000000 }\n",
    );
    let json = home.file(
        "p.json",
        r#"{"name":"p","currency":"EUR","from":"2026-12-01","prices":{"invocations":{"price":"0.2","per":1000000}}}"#,
    );
    for file in [&toml, &json] {
        let ran = home.fdn(&["price", "apply", file]).await;
        assert_eq!(ran.exit, Exit::Ok, "{}", ran.err);
        assert!(
            ran.out
                .contains("is valid from 2026-11-01 until before 2026-12-01"),
            "{}",
            ran.out
        );
    }
    let sent = fake.requests();
    assert_eq!(sent[0].body, sent[1].body);
    let sent: Value = serde_json::from_slice(&sent[0].body).expect("JSON");
    assert_eq!(
        sent["prices"]["invocations"],
        json!({ "price": "0.200000", "per": 1_000_000 })
    );
    let ran = home
        .fdn(&["price", "apply", &home.file("bad.toml", "name = 7")])
        .await;
    assert_eq!(ran.exit, Exit::Usage);
    assert!(ran.err.contains("FDN-8002"), "{}", ran.err);
    let ran = home.fdn(&["price", "remove", "a", "b"]).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "removed a\nremoved b\n")
    );
}

#[tokio::test]
async fn a_budget_is_set_and_its_alerts_are_shown() {
    let fake = Fake::start(
        |request, _| match (&request.method, request.path.as_str()) {
            (&Method::PUT, "/v1/billing/budgets/all") => Reply::json(&bills::budgets()[0]),
            (&Method::GET, "/v1/billing/alerts") => Reply::json(&bills::budget_alerts()),
            (method, path) => panic!("{method} {path}"),
        },
    )
    .await;
    let home = Home::logged_in(&fake.url());
    let ran = home
        .fdn(&[
            "budget",
            "set",
            "all",
            "--limit",
            "99.50",
            "--threshold",
            "50",
            "--threshold",
            "100",
        ])
        .await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "all: 99.500000 EUR a month, alerts at 50% 100%\n"),
        "{}",
        ran.err
    );
    let ran = home
        .fdn(&["budget", "set", "all", "--limit", "99.50", "-o", "name"])
        .await;
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Ok, "all\n"));
    let sent: Vec<Value> = fake
        .requests()
        .iter()
        .map(|r| serde_json::from_slice(&r.body).expect("JSON"))
        .collect();
    assert_eq!(
        sent[0],
        json!({ "limit": "99.50", "thresholds": [50, 100] })
    );
    assert_eq!(sent[1], json!({ "limit": "99.50" }));
    let ran = home.fdn(&["budget", "alerts", "-o", "name"]).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "all/2026-11/50\n"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn the_tenant_that_is_named_is_sent() {
    let fake = Fake::start(|request, _| {
        let path = request.path.split('?').next().unwrap_or_default();
        match (&request.method, path) {
            (&Method::GET, "/v1/billing/statements/current") => Reply::json(&bills::statement()),
            (&Method::GET, "/v1/billing/statements/current/csv") => {
                Reply::Full(200, vec![("content-type", "text/csv".into())], vec![])
            }
            (&Method::GET, "/v1/billing/usage") => Reply::json(&bills::usage_view()),
            (&Method::GET, "/v1/billing/budgets") => Reply::json(&bills::budgets()),
            (&Method::GET, "/v1/billing/alerts") => Reply::json(&bills::budget_alerts()),
            (&Method::PUT, "/v1/billing/budgets/all") => Reply::json(&bills::budgets()[0]),
            (&Method::DELETE, "/v1/billing/budgets/all") => Reply::Full(204, vec![], vec![]),
            (method, path) => panic!("{method} {path}"),
        }
    })
    .await;
    let home = Home::logged_in(&fake.url());
    for (index, (args, expected)) in [
        (&["bill"][..], "/v1/billing/statements/current?tenant=shop"),
        (
            &["bill", "-o", "csv"][..],
            "/v1/billing/statements/current/csv?tenant=shop",
        ),
        (
            &["bill", "--by", "region"][..],
            "/v1/billing/usage?tenant=shop&month=current&by=region",
        ),
        (&["budget", "list"][..], "/v1/billing/budgets?tenant=shop"),
        (&["budget", "alerts"][..], "/v1/billing/alerts?tenant=shop"),
        (
            &["budget", "set", "all", "--limit", "1"][..],
            "/v1/billing/budgets/all?tenant=shop",
        ),
        (
            &["budget", "remove", "all"][..],
            "/v1/billing/budgets/all?tenant=shop",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let ran = home.fdn(&[args, &["--tenant", "shop"]].concat()).await;
        assert_eq!(ran.exit, Exit::Ok, "{args:?}: {}", ran.err);
        assert_eq!(fake.requests()[index].path, expected);
    }
}
