//! Previews of plans before a deploy, compared with the plans after it; and the explanations of plans.

use fdn_core::api::Explanation;
use fdn_core::applied::AppliedSet;
use fdn_core::message::{AppPhase, NodeStatus};
use fdn_core::preview::{PlanPreview, PlannedGroup};
use fdn_testkit::{components, wait};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::accounts::people;
use crate::explain::told;
use crate::rig::{Backend, Rig, on_both, two_regions};

on_both!(
    a_change_that_has_not_happened_is_planned_for,
    a_prediction_is_what_is_planned_then,
    a_prediction_counts_every_stage_the_speed_and_the_memory,
    sets_are_remembered_by_tenant,
    beyond_so_many_at_once_a_preview_is_told_to_come_later,
);

fn ask(rig: &Rig, wish: &Value) -> RequestBuilder {
    rig.request(Method::POST, "/v1/plan").json(wish)
}

async fn prices(rig: &Rig) {
    let month = fdn_core::billing::Month::of(fdn_service::now());
    let list = json!({
        "name": "first", "currency": "EUR", "from": month.first_day().to_string(),
        "prices": { "invocations": { "price": "0.20", "per": 1_000_000 }, "gib_seconds": { "price": "10", "per": 1_000_000 } },
    });
    let applied = rig.request(Method::POST, "/v1/billing/prices").json(&list);
    let _: Value = rig.json(applied).await;
}

async fn a_prediction_is_what_is_planned_then(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    prices(&rig).await;
    let clients = ["192.0.2.0/24", "198.51.100.0/24"];
    // 512 MiB for 20 ms: 0.01 GiB-seconds per call, 0.10 per million calls at 10 per million GiB-seconds; and 0.20 for the calls.
    let manifest = "expected = \"20ms\"\nmemory = \"512MiB\"\n";
    let wish = json!({ "app": "hello", "manifest": manifest, "clients": clients, "rate": 2.0 });
    let predicted: PlanPreview = rig.json(ask(&rig, &wish)).await;
    assert_eq!(predicted.groups.len(), 2, "{predicted:?}");
    assert!(predicted.unplaced.is_empty());
    assert_eq!(predicted.price.million.micros, 300_000);
    // Thirty days at two calls per second are 5,184,000 calls.
    assert_eq!(predicted.price.month.micros, 1_555_200);
    assert_eq!(
        predicted
            .price
            .price_list
            .as_ref()
            .expect("in force")
            .as_str(),
        "first"
    );
    let listed: Vec<Value> = rig.get("/v1/apps").await;
    assert!(listed.is_empty(), "nothing was deployed");
    // After the deploy, clients are sent where the preview said.
    let upload = rig.upload("hello", components::hello("x"), Some(manifest), None);
    let _: Value = rig.json(upload).await;
    for group in &predicted.groups {
        let client = group.clients[0].to_string();
        let path = format!("/v1/apps/hello/explain?client={client}");
        let found: Explanation = wait::until("a plan", async || {
            let found: Explanation = rig.get(&path).await;
            match found.plan.is_some() {
                true => Ok(found),
                false => Err(format!("{found:?}")),
            }
        })
        .await;
        assert_eq!(found.chosen.as_ref(), Some(&group.cluster), "{client}");
        let plan = found.plan.expect("a plan");
        assert_eq!(plan.stages.values().next(), Some(&group.cluster));
        assert!(
            !plan.reason.is_empty() && plan.candidates.len() == 2,
            "{plan:?}"
        );
        assert!(plan.planned_at.get() > 0);
        assert_eq!(found.bound.expect("bound").cluster, group.cluster);
    }
    // A preview of the deployed app, without a manifest.
    let wish = json!({ "app": "hello", "clients": clients });
    let again: PlanPreview = rig.json(ask(&rig, &wish)).await;
    let clusters = |preview: &PlanPreview| -> Vec<String> {
        preview
            .groups
            .iter()
            .map(|group| group.cluster.to_string())
            .collect()
    };
    assert_eq!(clusters(&again), clusters(&predicted));
    let flow = json!({ "stages": [
        { "name": "a", "function": "hello" }, { "name": "b", "function": "hello", "needs": ["a"] },
    ] });
    let wish = json!({ "workflow": flow, "clients": clients });
    let flow: PlanPreview = rig.json(ask(&rig, &wish)).await;
    assert!(
        flow.groups.iter().all(|group| group.stages.len() == 2),
        "{flow:?}"
    );
    for (wish, status) in [
        (json!({}), 400),
        (json!({ "app": "absent" }), 404),
        (json!({ "app": "hello", "rate": -1.0 }), 400),
        (json!({ "manifest": "memory = 5" }), 422),
        (
            json!({ "workflow": { "stages": [{ "name": "a", "function": "absent" }] } }),
            422,
        ),
        (json!({ "manifest": "", "workflow": { "stages": [] } }), 400),
    ] {
        let (answered, problem) = rig.refused(ask(&rig, &wish)).await;
        assert_eq!(answered, status, "{wish}: {problem}");
    }
}

async fn a_prediction_counts_every_stage_the_speed_and_the_memory(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let [near, far] = two_regions();
    rig.node(near).await;
    rig.node(NodeStatus { speed: 2.0, ..far }).await;
    wait::until("both nodes to be known", async || {
        let clusters: Vec<Value> = rig.get("/v1/clusters").await;
        match clusters.len() {
            2 => Ok(()),
            other => Err(other),
        }
    })
    .await;
    prices(&rig).await;
    let manifest = "expected = \"20ms\"\nmemory = \"512MiB\"\n";
    let (paris, new_york) = ("192.0.2.0/24", "198.51.100.0/24");
    let single = json!({ "manifest": manifest, "clients": [paris], "rate": 0.0 });
    let single: PlanPreview = rig.json(ask(&rig, &single)).await;
    let latency = |preview: &PlanPreview| preview.groups[0].latency.expect("known").get();
    // On a node that is twice as fast, a call takes half the time and costs accordingly: 512 MiB for 10 ms.
    let fast = json!({ "manifest": manifest, "clients": [new_york] });
    let fast: PlanPreview = rig.json(ask(&rig, &fast)).await;
    assert_eq!(fast.groups[0].cluster.as_str(), "us-east");
    assert_eq!(fast.price.million.micros, 250_000);
    // The mean over both groups of clients: 15 ms.
    let both = json!({ "manifest": manifest, "clients": [paris, new_york] });
    let both: PlanPreview = rig.json(ask(&rig, &both)).await;
    assert_eq!(both.price.million.micros, 275_000);
    // A workflow takes the time of all its stages in sequence, and costs the sum.
    let upload = rig.upload("hello", components::hello("x"), Some(manifest), None);
    let _: Value = rig.json(upload).await;
    let flow = json!({ "stages": [
        { "name": "a", "function": "hello" }, { "name": "b", "function": "hello", "needs": ["a"] },
    ] });
    let flow = json!({ "workflow": flow, "clients": [paris], "rate": 0.0 });
    let flow: PlanPreview = rig.json(ask(&rig, &flow)).await;
    let stages = &flow.groups[0].stages;
    assert!(
        stages.values().all(|at| at.as_str() == "eu-west"),
        "{stages:?}"
    );
    let more = latency(&flow) - latency(&single);
    assert!((more - 20.0).abs() < 1e-6, "{more}");
    assert_eq!(flow.price.million.micros, 2 * single.price.million.micros);
    // A hundred calls per second of one second each need 110 instances; a node has memory for eight.
    let many = "runtime = \"docker\"\nexpected = \"1s\"\nmemory = \"512MiB\"\n";
    let many = json!({ "manifest": many, "clients": [paris], "rate": 100.0 });
    let many: PlanPreview = rig.json(ask(&rig, &many)).await;
    assert!(many.groups.is_empty(), "{many:?}");
    let why = &many.unplaced[0];
    assert!(
        why.contains("has its memory promised to others: wants 56320 MiB memory"),
        "{why}"
    );
}

async fn sets_are_remembered_by_tenant(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let path = "/v1/sets/web?tenant=default";
    let none: AppliedSet = rig.get(path).await;
    assert!(none.items.is_empty() && none.applied_at.is_none());
    let put = |items: Value| rig.request(Method::PUT, path).json(&items);
    let first: AppliedSet = rig.json(put(json!(["app/hello", "member/ann"]))).await;
    assert_eq!(first.items.len(), 2);
    let same: AppliedSet = rig.json(put(json!(["member/ann", "app/hello"]))).await;
    assert_eq!(
        same.applied_at, first.applied_at,
        "the same again changes nothing"
    );
    let kept: AppliedSet = rig.get(path).await;
    assert_eq!(kept, first);
    assert_eq!(rig.refused(put(json!(["node/a"]))).await.0, 400);
    let people = people(&rig).await;
    let hidden = rig
        .anonymous(Method::GET, path)
        .bearer_auth(&people.outsider);
    assert_eq!(rig.refused(hidden).await.0, 404);
}

async fn a_change_that_has_not_happened_is_planned_for(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    let upload = rig.upload("hello", components::hello("x"), None, None);
    let _: Value = rig.json(upload).await;
    let (paris, new_york) = ("192.0.2.0/24", "198.51.100.0/24");
    let asked = async |changes: &[&str]| -> PlanPreview {
        let wish = json!({ "app": "hello", "clients": [paris, new_york], "what_if": changes });
        rig.json(ask(&rig, &wish)).await
    };
    let clusters = |groups: &[PlannedGroup]| -> Vec<(String, String)> {
        let each = groups.iter().flat_map(|group| {
            let cluster = group.cluster.to_string();
            let clients = group.clients.iter();
            clients.map(move |client| (client.to_string(), cluster.clone()))
        });
        let mut all: Vec<_> = each.collect();
        all.sort();
        all
    };
    let at = |paris_at: &str, new_york_at: &str| {
        vec![
            (paris.to_owned(), paris_at.to_owned()),
            (new_york.to_owned(), new_york_at.to_owned()),
        ]
    };
    let now = at("eu-west", "us-east");
    for (changes, then) in [
        (&["cluster eu-west down"][..], at("us-east", "us-east")),
        (&["rtt us-east +5s"][..], at("eu-west", "eu-west")),
        (&["nodes us-east 0"][..], at("eu-west", "eu-west")),
        (&["nodes us-east 8", "rtt eu-west +1ms"][..], now.clone()),
    ] {
        let found = asked(changes).await;
        assert_eq!(clusters(&found.groups), then, "{changes:?}");
        let outcome = found.what_if.expect("changes were asked about");
        assert_eq!(clusters(&outcome.before), now, "{changes:?}");
        assert_eq!((outcome.others_moved, outcome.others_unplaced), (0, 0));
    }
    // The function was measured in eu-west alone, which still counts if that is down.
    let [eu, us] = two_regions();
    rig.node(told(eu, AppPhase::Ready, 100, 800.0)).await;
    rig.node(told(us, AppPhase::Ready, 0, 0.0)).await;
    wait::until("the measurement to be known", async || {
        let found = asked(&["cluster eu-west down"]).await;
        let groups = found.groups.iter();
        let all: Vec<_> = groups.filter_map(|group| group.latency).collect();
        match all.iter().all(|latency| latency.get() >= 800.0) && !all.is_empty() {
            true => Ok(()),
            false => Err(format!("{all:?}")),
        }
    })
    .await;
    // The questions changed nothing, and without changes nothing is compared.
    let plain = asked(&[]).await;
    assert_eq!(clusters(&plain.groups), now);
    assert_eq!(plain.what_if, None);
    for changes in [
        json!(["cluster mars down"]),
        json!(["cluster eu-west up"]),
        json!(vec!["cluster eu-west down"; 17]),
    ] {
        let wish = json!({ "app": "hello", "what_if": changes });
        let (answered, problem) = rig.refused(ask(&rig, &wish)).await;
        assert_eq!(answered, 400, "{wish}: {problem}");
    }
}

async fn beyond_so_many_at_once_a_preview_is_told_to_come_later(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    let wish = json!({ "manifest": "", "clients": ["192.0.2.0/24"] });
    let previews = &rig.controller.state().previews;
    let most = u32::try_from(previews.available_permits()).expect("few");
    let all = previews.try_acquire_many(most).expect("free");
    let (status, problem) = rig.refused(ask(&rig, &wish)).await;
    assert_eq!((status.as_u16(), problem.code.as_str()), (429, "FDN-2006"));
    drop(all);
    let _: PlanPreview = rig.json(ask(&rig, &wish)).await;
}
