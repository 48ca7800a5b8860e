//! Billing through the API, on both databases: prices, statements, closing, views, budgets.

use std::collections::BTreeSet;

use fdn_controller::app::billing::rounds::round;
use fdn_controller::store::billing::budget::budget_upsert;
use fdn_controller::store::billing::clock::clock_close;
use fdn_core::billing::{
    Budget, BudgetAlert, BudgetSet, Day, Meter, Month, PriceList, Statement, StatementState,
    UsageView,
};
use fdn_core::{DurationMs, Timestamp};
use fdn_service::secret::Secret;
use fdn_testkit::wait;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::billing::{prices, record};
use crate::rig::{Backend, Rig, node_at, on_both};

on_both!(
    a_month_is_billed_closed_and_never_changed,
    what_was_sold_at_a_price_stays_sold_at_it,
    a_price_list_without_an_end_is_valid_until_the_next_one,
    a_budget_alerts_once_for_each_threshold,
    what_the_end_of_a_month_spends_alerts_until_it_is_closed,
    alerts_of_a_month_that_another_controller_closed_are_raised_once,
    whoever_a_budget_names_is_told_of_alerts_in_signed_words,
    what_fails_for_one_tenant_keeps_no_other_from_its_alerts,
);

/// A controller with an app and a node, whose own billing loop does not run.
async fn rig(backend: Backend) -> Rig {
    let rig = Rig::start_with(backend, |settings| {
        settings.billing.interval = DurationMs::from_secs(3600);
    })
    .await;
    prepare(&rig).await;
    rig
}

/// Adds an app, and a node in a region.
async fn prepare(rig: &Rig) {
    rig.node(node_at("eu-1", "eu-west", 53.35, -6.26)).await;
    fdn_testkit::wait::until("the node to be stored", async || {
        let c = &mut *rig
            .controller
            .state()
            .store
            .read()
            .await
            .map_err(|e| e.to_string())?;
        let nodes: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM nodes")
            .fetch_one(c)
            .await
            .map_err(|e| e.to_string())?;
        if nodes == 1 {
            Ok(())
        } else {
            Err("none".to_owned())
        }
    })
    .await;
    rig.deploy("thumbs", fdn_testkit::components::hello("thumbs"))
        .await;
}

/// A price list of 1 per call with nothing free, from the beginning of this month.
fn one_a_call() -> PriceList {
    let month = Month::of(fdn_service::now());
    PriceList {
        prices: [(
            Meter::Invocations,
            fdn_core::billing::Price::new(1_000_000, 1),
        )]
        .into(),
        free: [].into(),
        ..prices("first", &month.first_day().to_string(), 1)
    }
}

/// Creates a budget `all` of 10, and calls that cost half of it.
pub(crate) async fn reach_a_budget(rig: &Rig) {
    prepare(rig).await;
    apply(rig, &one_a_call()).await;
    let put = rig.request(Method::PUT, "/v1/billing/budgets/all");
    let _: Value = rig.json(put.json(&json!({ "limit": "10" }))).await;
    send(rig, 1, fdn_service::now(), &[1; 5]).await;
    let state = rig.controller.state();
    round(state, fdn_service::now()).await.expect("a round");
}

async fn send(rig: &Rig, n: u128, at: Timestamp, sizes: &[u32]) {
    let records = sizes
        .iter()
        .enumerate()
        .map(|(i, size)| record(n * 1000 + i as u128, at, *size));
    let records: Vec<_> = records.map(|used| crate::usage::call(used, None)).collect();
    let sent = crate::usage::sums(n, "eu-1", &records);
    let receipt = crate::usage::add(rig, &sent).await;
    assert_eq!(receipt.stored, sizes.len() as u64);
}

fn today() -> Day {
    Day::of(fdn_service::now())
}

async fn apply(rig: &Rig, list: &PriceList) -> PriceList {
    rig.json(rig.request(Method::POST, "/v1/billing/prices").json(list))
        .await
}

async fn refused(rig: &Rig, list: &PriceList) -> (u16, String) {
    let request = rig.request(Method::POST, "/v1/billing/prices").json(list);
    let (status, problem) = rig.refused(request).await;
    (status.as_u16(), problem.code.to_string())
}

async fn a_month_is_billed_closed_and_never_changed(backend: Backend) {
    let rig = rig(backend).await;
    let month = Month::of(fdn_service::now());
    apply(
        &rig,
        &prices("first", &month.first_day().to_string(), 1_000_000),
    )
    .await;
    send(&rig, 1, fdn_service::now(), &[100, 200, 300]).await;
    let open: Statement = rig.get("/v1/billing/statements/current").await;
    assert_eq!((open.month, open.state), (month, StatementState::Open));
    let calls = open
        .lines
        .iter()
        .find(|line| line.meter == Meter::VcpuSeconds)
        .expect("a line");
    assert_eq!(
        (calls.region.as_ref().map(|r| r.as_str()), calls.quantity.0),
        (Some("eu-west"), 180_000)
    );
    for (by, name) in [
        ("function", "thumbs"),
        ("region", "eu-west"),
        ("day", &*today().to_string()),
    ] {
        let view: UsageView = rig.get(&format!("/v1/billing/usage?by={by}")).await;
        assert_eq!(view.rows.len(), 1, "{by}: {view:?}");
        assert_eq!(view.rows[0].name, name);
        assert_eq!(view.rows[0].quantities[&Meter::Invocations].0, 3);
    }
    // After the end of the month and the waiting time for late usage.
    let later = Timestamp(month.end().get() + 73 * 3_600_000);
    for _ in 0..2 {
        round(rig.controller.state(), later).await.expect("a round");
    }
    let issued: Statement = rig.get(&format!("/v1/billing/statements/{month}")).await;
    assert_eq!(issued.state, StatementState::Issued);
    assert_eq!(used(&issued, Meter::Invocations), 3);
    // Usage that arrives now is on the next statement, as usage of this month.
    send(&rig, 2, fdn_service::now(), &[400]).await;
    assert_eq!(
        rig.get::<Statement>(&format!("/v1/billing/statements/{month}"))
            .await,
        issued
    );
    let after = Timestamp(month.next().end().get() + 73 * 3_600_000);
    round(rig.controller.state(), after).await.expect("a round");
    let (status, problem) = rig
        .refused(rig.request(
            Method::GET,
            &format!("/v1/billing/statements/{}", month.next()),
        ))
        .await;
    assert_eq!(
        status,
        StatusCode::BAD_REQUEST,
        "it has not begun: {problem:?}"
    );
    let listed: Value = rig.get("/v1/billing/statements?limit=1").await;
    assert_eq!(listed[0]["state"], "issued");
    let cursor = hex::encode(month.to_string());
    let rest: Value = rig
        .get(&format!("/v1/billing/statements?cursor={cursor}"))
        .await;
    assert_eq!(rest, json!([]));
    pages_and_csv(&rig, &issued).await;
    let c = &mut *rig
        .controller
        .state()
        .store
        .read()
        .await
        .expect("connected");
    let late = fdn_controller::store::billing::statement::statement_get(
        c,
        crate::billing::tenant(),
        month.next(),
        (0, 1000),
    );
    let late = late.await.expect("read").expect("issued");
    assert_eq!(used(&late, Meter::Invocations), 1);
    let line = late
        .lines
        .iter()
        .find(|line| line.meter == Meter::Invocations)
        .expect("a line");
    assert_eq!(line.month, month);
}

fn used(statement: &Statement, meter: Meter) -> i128 {
    statement
        .meters
        .iter()
        .find(|total| total.meter == meter)
        .map_or(0, |total| total.quantity.0)
}

async fn pages_and_csv(rig: &Rig, issued: &Statement) {
    let path = format!("/v1/billing/statements/{}", issued.month);
    let (mut lines, mut part) = (Vec::new(), Some(format!("{path}?limit=2")));
    while let Some(one) = part {
        let answer = rig.request(Method::GET, &one).send().await;
        let answer = answer.expect("an answer");
        part = crate::conventions::next(&answer);
        let page: Statement = answer.json().await.expect("a statement");
        assert!(page.lines.len() <= 2 && page.total == issued.total);
        lines.extend(page.lines);
    }
    assert_eq!(lines, issued.lines);
    let answer = rig
        .request(Method::GET, &format!("{path}/csv"))
        .send()
        .await
        .expect("an answer");
    assert!(
        answer.headers()["content-type"]
            .to_str()
            .expect("text")
            .starts_with("text/csv")
    );
    let text = answer.text().await.expect("text");
    assert_eq!(text.lines().count(), issued.lines.len() + 1);
    let amounts = text.lines().skip(1).map(|line| {
        let amount = line.split(',').nth(13).expect("an amount");
        amount.replace('.', "").parse::<i64>().expect("micro-units")
    });
    assert_eq!(amounts.sum::<i64>(), issued.total.micros);
}

async fn what_was_sold_at_a_price_stays_sold_at_it(backend: Backend) {
    let rig = rig(backend).await;
    let (today, tomorrow) = (today(), today().next());
    let first = prices("first", &today.month().first_day().to_string(), 17);
    assert_eq!(apply(&rig, &first).await, first);
    assert_eq!(
        apply(&rig, &first).await,
        first,
        "the same again changes nothing"
    );
    let dearer = PriceList {
        prices: prices("x", "2026-01-01", 99).prices,
        ..first.clone()
    };
    assert_eq!(refused(&rig, &dearer).await, (409, "FDN-8004".to_owned()));
    let second = |from: Day, micros| prices("second", &from.to_string(), micros);
    assert_eq!(
        refused(&rig, &second(today, 29)).await,
        (409, "FDN-8003".to_owned())
    );
    let dollars = PriceList {
        currency: "USD".parse().expect("currency"),
        ..second(tomorrow, 29)
    };
    assert_eq!(refused(&rig, &dollars).await, (422, "FDN-8002".to_owned()));
    apply(&rig, &second(tomorrow.next(), 29)).await;
    // A list that has not begun may be changed to begin earlier, and may be removed.
    apply(&rig, &second(tomorrow, 31)).await;
    let lists: Vec<PriceList> = rig.get("/v1/billing/prices").await;
    let spans: Vec<_> = lists
        .iter()
        .map(|l| (l.name.as_str(), l.from, l.to))
        .collect();
    assert_eq!(
        spans,
        [
            ("first", first.from, Some(tomorrow)),
            ("second", tomorrow, None)
        ]
    );
    assert_eq!(
        apply(&rig, &first).await.to,
        Some(tomorrow),
        "as it was written"
    );
    let removed = rig
        .request(Method::DELETE, "/v1/billing/prices/second")
        .send()
        .await;
    assert_eq!(removed.expect("an answer").status(), StatusCode::NO_CONTENT);
    assert_eq!(
        rig.get::<Vec<PriceList>>("/v1/billing/prices").await,
        [first]
    );
    let used = rig.request(Method::DELETE, "/v1/billing/prices/first");
    assert_eq!(rig.refused(used).await.1.code.as_str(), "FDN-8004");
    let none = rig.request(Method::DELETE, "/v1/billing/prices/none");
    assert_eq!(rig.refused(none).await.0, StatusCode::NOT_FOUND);
    let anonymous = rig.anonymous(Method::GET, "/v1/billing/prices");
    assert_eq!(rig.refused(anonymous).await.0, StatusCode::UNAUTHORIZED);
}

async fn a_price_list_without_an_end_is_valid_until_the_next_one(backend: Backend) {
    let rig = rig(backend).await;
    let (begin, day) = (today().month().first_day(), |n: usize| {
        (0..n).fold(today(), |day, _| day.next())
    });
    let list = |name: &str, from: Day, micros| prices(name, &from.to_string(), micros);
    let is = |name: &str, from: Day, to: Option<Day>| (name.to_owned(), from, to);
    let spans = async || {
        // Bills are made of the same lists.
        let _: Statement = rig.get("/v1/billing/statements/current").await;
        let lists: Vec<PriceList> = rig.get("/v1/billing/prices").await;
        let spans = lists.iter().map(|l| (l.name.to_string(), l.from, l.to));
        spans.collect::<Vec<_>>()
    };
    let remove = async |name: &str| {
        let path = format!("/v1/billing/prices/{name}");
        let gone = rig.request(Method::DELETE, &path).send().await;
        assert_eq!(gone.expect("an answer").status(), StatusCode::NO_CONTENT);
    };
    apply(&rig, &list("a", begin, 1)).await;
    let b = list("b", day(3), 2);
    apply(&rig, &b).await;
    apply(&rig, &list("c", day(5), 3)).await;
    let all = |from: Day, to: Day| {
        let c = is("c", day(5), None);
        [is("a", begin, Some(from)), is("b", from, Some(to)), c]
    };
    assert_eq!(spans().await, all(day(3), day(5)));
    // The one in the middle is changed: its prices, its first day, its end, and that it has one.
    let cheaper = list("b", day(3), 1);
    assert_eq!(apply(&rig, &cheaper).await.prices, cheaper.prices);
    apply(&rig, &list("b", day(2), 1)).await;
    assert_eq!(spans().await, all(day(2), day(5)));
    let to = Some(day(4));
    apply(&rig, &PriceList { to, ..b.clone() }).await;
    assert_eq!(spans().await, all(day(3), day(4)));
    apply(&rig, &b).await;
    assert_eq!(spans().await, all(day(3), day(5)));
    remove("b").await;
    let c = is("c", day(5), None);
    assert_eq!(spans().await, [is("a", begin, Some(day(5))), c]);
    apply(&rig, &b).await;
    assert_eq!(spans().await, all(day(3), day(5)));
    remove("c").await;
    let both = [is("a", begin, Some(day(3))), is("b", day(3), None)];
    assert_eq!(spans().await, both);
    // A row that does not say where its list ends.
    let store = &rig.controller.state().store;
    let mut connection = store.read().await.expect("connected");
    let damage = sqlx::query("UPDATE price_lists SET valid_to = NULL");
    damage.execute(&mut *connection).await.expect("written");
    drop(connection);
    assert_eq!(spans().await, both);
    remove("b").await;
    assert_eq!(spans().await, [is("a", begin, None)]);
}

async fn a_budget_alerts_once_for_each_threshold(backend: Backend) {
    let rig = rig(backend).await;
    let month = Month::of(fdn_service::now());
    apply(&rig, &one_a_call()).await;
    let put = |name: &str, body: Value| {
        rig.request(Method::PUT, &format!("/v1/billing/budgets/{name}"))
            .json(&body)
    };
    let _: Value = rig.json(put("all", json!({ "limit": "10" }))).await;
    let (status, problem) = rig.refused(put("bad", json!({ "limit": "-1" }))).await;
    assert_eq!((status.as_u16(), problem.code.as_str()), (422, "FDN-8006"));
    let alerts = async || {
        let alerts: Vec<BudgetAlert> = rig.get("/v1/billing/alerts").await;
        let mut found: Vec<u16> = alerts.iter().map(|alert| alert.threshold).collect();
        found.sort_unstable();
        found
    };
    let state = rig.controller.state();
    for (n, calls, expected) in [
        (1, 4, vec![]),
        (2, 1, vec![50]),
        (3, 0, vec![50]),
        (4, 6, vec![50, 80, 100]),
    ] {
        if calls > 0 {
            send(&rig, n, fdn_service::now(), &vec![1; calls]).await;
        }
        for _ in 0..2 {
            round(state, fdn_service::now()).await.expect("a round");
        }
        assert_eq!(alerts().await, expected, "after {n}");
    }
    assert_eq!(state.metrics.billing.alerts.get(), 3);
    let newest = rig.request(Method::GET, "/v1/billing/alerts?limit=1");
    let newest = newest.send().await.expect("an answer");
    let second = crate::conventions::next(&newest).expect("there are more");
    let second: Vec<BudgetAlert> = rig.get(&second).await;
    assert_eq!(second.len(), 1);
    // Changed, removed, in another month: an alert is never repeated.
    let _: Value = rig
        .json(put("all", json!({ "limit": "5", "thresholds": [100] })))
        .await;
    round(state, fdn_service::now()).await.expect("a round");
    assert_eq!(alerts().await, [50, 80, 100]);
    let next = Timestamp(month.end().get() + 1000);
    round(state, next).await.expect("a round");
    assert_eq!(
        alerts().await,
        [50, 80, 100],
        "a new month begins at nothing"
    );
    let gone = rig
        .request(Method::DELETE, "/v1/billing/budgets/all")
        .send()
        .await;
    assert_eq!(gone.expect("an answer").status(), StatusCode::NO_CONTENT);
    assert_eq!(
        rig.get::<Vec<Value>>("/v1/billing/budgets").await,
        Vec::<Value>::new()
    );
    assert_eq!(alerts().await.len(), 3);
}

async fn what_the_end_of_a_month_spends_alerts_until_it_is_closed(backend: Backend) {
    let rig = rig(backend).await;
    let month = Month::of(fdn_service::now());
    apply(&rig, &one_a_call()).await;
    let put = rig.request(Method::PUT, "/v1/billing/budgets/all");
    let _: Value = rig.json(put.json(&json!({ "limit": "10" }))).await;
    let alerts = async || {
        let alerts: Vec<BudgetAlert> = rig.get("/v1/billing/alerts").await;
        let mut found: Vec<_> = alerts.iter().map(|a| (a.month, a.threshold)).collect();
        found.sort_unstable();
        found
    };
    let state = rig.controller.state();
    // No round has seen these calls before the next month began.
    send(&rig, 1, fdn_service::now(), &[1; 5]).await;
    let next = Timestamp(month.end().get() + 1000);
    for _ in 0..2 {
        round(state, next).await.expect("a round");
    }
    assert_eq!(alerts().await, [(month, 50)]);
    // A budget of the next month says nothing of what was spent before it was set.
    let mut budget = rig
        .get::<Vec<Budget>>("/v1/billing/budgets")
        .await
        .remove(0);
    budget.name = "new".parse().expect("name");
    budget_upsert(
        &mut state.store.read().await.expect("connected"),
        crate::billing::tenant(),
        &budget,
        "jane",
        next,
    )
    .await
    .expect("set");
    // The round that closes the month still looks at what came since the one before.
    send(&rig, 2, fdn_service::now(), &[1; 3]).await;
    let later = Timestamp(month.end().get() + 73 * 3_600_000);
    for _ in 0..2 {
        round(state, later).await.expect("a round");
    }
    assert_eq!(alerts().await, [(month, 50), (month, 80)]);
}

async fn alerts_of_a_month_that_another_controller_closed_are_raised_once(backend: Backend) {
    let rig = rig(backend).await;
    let month = Month::of(fdn_service::now());
    apply(&rig, &one_a_call()).await;
    let put = rig.request(Method::PUT, "/v1/billing/budgets/all");
    let _: Value = rig.json(put.json(&json!({ "limit": "10" }))).await;
    let state = rig.controller.state();
    round(state, fdn_service::now()).await.expect("a round");
    send(&rig, 1, fdn_service::now(), &[1; 5]).await;
    // What a controller leaves that stops right after it has closed the month.
    let closed = clock_close(&mut state.store.read().await.expect("connected"), month).await;
    assert!(closed.expect("the clock"), "the month was open");
    // Another begins when the month after that is over, too.
    let later = Timestamp(month.next().end().get() + 73 * 3_600_000);
    for _ in 0..2 {
        round(state, later).await.expect("a round");
    }
    let alerts: Vec<BudgetAlert> = rig.get("/v1/billing/alerts").await;
    let found: Vec<_> = alerts.iter().map(|a| (a.month, a.threshold)).collect();
    assert_eq!(found, [(month, 50)]);
    assert_eq!(state.metrics.billing.alerts.get(), 1);
}

async fn whoever_a_budget_names_is_told_of_alerts_in_signed_words(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        settings.billing.interval = DurationMs::from_secs(3600);
        crate::jobs::quick(settings);
    })
    .await;
    prepare(&rig).await;
    apply(&rig, &one_a_call()).await;
    let gateway = crate::gateway::FakeGateway::start(&rig).await;
    gateway.deaf(1);
    let put = |webhook: &str| {
        let wish = json!({ "limit": "10", "thresholds": [50], "webhook": webhook });
        rig.request(Method::PUT, "/v1/billing/budgets/all")
            .json(&wish)
    };
    let (status, problem) = rig.refused(put("ftp://example.org/")).await;
    assert_eq!((status.as_u16(), problem.code.as_str()), (422, "FDN-6018"));
    let url = format!("http://{}/told", gateway.address);
    let set: BudgetSet = rig.json(put(&url)).await;
    assert_eq!(set.budget.webhook.as_deref(), Some(url.as_str()));
    let secret = Secret::new(set.webhook_secret.expect("the key of the signature"));
    // Nothing else shows the signing key.
    let listed: Vec<Value> = rig.get("/v1/billing/budgets").await;
    assert_eq!(listed[0]["webhook"], url);
    let audit: Vec<Value> = rig.get("/v1/audit").await;
    let shown = json!([listed, audit]).to_string();
    assert!(!shown.contains(secret.expose()), "{shown}");

    send(&rig, 1, fdn_service::now(), &[1; 5]).await;
    let state = rig.controller.state();
    for _ in 0..2 {
        round(state, fdn_service::now()).await.expect("a round");
    }
    let told = wait::until("the second try", async || {
        let told = gateway.told();
        if told.len() >= 2 {
            Ok(told)
        } else {
            Err(told.len())
        }
    })
    .await;
    let ids: BTreeSet<&String> = told
        .iter()
        .map(|(headers, _)| &headers["fdn-webhook-id"])
        .collect();
    assert_eq!(ids.len(), 1, "one alert, whatever the tries");
    for (headers, body) in &told {
        let at = headers["fdn-webhook-timestamp"].parse().expect("seconds");
        let signed = secret.derive(&fdn_core::job::webhook::signed(at, body));
        assert_eq!(
            headers["fdn-webhook-signature"],
            format!("v1={}", signed.expose())
        );
    }
    let event: Value = serde_json::from_str(&told[0].1).expect("JSON");
    assert_eq!(event["event"], "budget.alert");
    assert_eq!(
        (&event["alert"]["budget"], &event["alert"]["threshold"]),
        (&json!("all"), &json!(50))
    );
    wait::until("it to be written down", async || {
        let webhooks = &state.metrics.billing.webhooks;
        let count = |result| webhooks.with_label_values(&[result]).get();
        match (count("ok"), count("failed")) {
            (1, 1) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

async fn what_fails_for_one_tenant_keeps_no_other_from_its_alerts(backend: Backend) {
    let rig = rig(backend).await;
    apply(&rig, &one_a_call()).await;
    let put = rig.request(Method::PUT, "/v1/billing/budgets/all");
    let _: Value = rig.json(put.json(&json!({ "limit": "10" }))).await;
    send(&rig, 1, fdn_service::now(), &[1; 5]).await;
    let state = rig.controller.state();
    // A tenant that comes first has a budget that cannot be read.
    let mut connection = state.store.read().await.expect("connected");
    let id = format!("ten_{}", "0".repeat(32));
    sqlx::query("INSERT INTO tenants (id, name, created_at) VALUES ($1, 'first', 0)")
        .bind(&id)
        .execute(&mut *connection)
        .await
        .expect("a tenant");
    sqlx::query(
        "INSERT INTO budgets (tenant, name, budget, changed_at, changed_by) VALUES ($1, 'bad', 'no JSON', 0, 'somebody')",
    )
    .bind(&id)
    .execute(&mut *connection)
    .await
    .expect("a budget");
    drop(connection);
    let failures = state.metrics.billing.failures.get();
    round(state, fdn_service::now()).await.expect("a round");
    let alerts: Vec<BudgetAlert> = rig.get("/v1/billing/alerts").await;
    let thresholds: Vec<u16> = alerts.iter().map(|alert| alert.threshold).collect();
    assert_eq!(thresholds, [50]);
    assert_eq!(state.metrics.billing.failures.get(), failures + 1);
}
