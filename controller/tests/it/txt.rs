//! TXT records through the API on both databases: which names may be set, by whom, how many, and what DNS servers are told.

use std::collections::BTreeMap;

use fdn_controller::app::txt::watch;
use fdn_core::api::DnsSnapshot;
use fdn_core::app::AppDns;
use fdn_core::message::TxtRecords;
use fdn_core::txt::TxtInfo;
use fdn_core::{DurationMs, Right, Timestamp};
use fdn_testkit::components;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::accounts::{api_token, people};
use crate::rig::{Backend, Rig, on_both};

on_both!(
    values_come_and_go_one_by_one_or_all_at_once,
    what_makes_no_sense_is_refused,
    rights_decide_which_names,
    there_are_only_so_many,
    records_go_when_their_time_is_over_and_with_their_app,
    the_answers_of_an_app_live_for_a_time_of_its_own,
);

const NAME: &str = "_acme-challenge.hello.fn.test";

async fn rig(backend: Backend) -> Rig {
    let rig = Rig::start_with(backend, |settings| {
        settings.records.values_per_name = 3;
        settings.records.names_per_tenant = 2;
        settings.records.names_of_network = 1;
        // The controller's own loop does not run: the tests call it, at times of their choice.
        settings.records.interval = DurationMs::from_secs(86_400);
    })
    .await;
    // Before the app: nodes that come later would make the planner plan it again at any time.
    rig.two_regions().await;
    rig.deploy("hello", components::hello("hi")).await;
    rig
}

fn path(name: &str) -> String {
    format!("/v1/dns/txt/{name}")
}

fn put(rig: &Rig, name: &str, wish: Value) -> RequestBuilder {
    rig.request(Method::PUT, &path(name)).json(&wish)
}

fn post(rig: &Rig, name: &str, wish: Value) -> RequestBuilder {
    rig.request(Method::POST, &path(name)).json(&wish)
}

async fn refused(rig: &Rig, request: RequestBuilder) -> (u16, String) {
    let (status, problem) = rig.refused(request).await;
    (status.as_u16(), problem.code.to_string())
}

fn is(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

async fn removed(rig: &Rig, query: &str) -> StatusCode {
    let request = rig.request(Method::DELETE, &format!("{}{query}", path(NAME)));
    request.send().await.expect("an answer").status()
}

/// The records that DNS servers are told, and the revision.
async fn told(rig: &Rig) -> (u64, BTreeMap<String, TxtRecords>) {
    let snapshot: DnsSnapshot = rig.dns_snapshot().await;
    let told = snapshot.txt.expect("this controller knows of text records");
    let told = told
        .into_iter()
        .map(|one| (one.name.to_string(), one.state.expect("there")))
        .collect();
    (snapshot.revision.get(), told)
}

async fn names(rig: &Rig) -> Vec<String> {
    told(rig).await.1.into_keys().collect()
}

/// The audited actions on TXT records, newest first.
async fn actions(rig: &Rig) -> Vec<String> {
    let log: Vec<Value> = rig.get("/v1/audit?limit=1000").await;
    let actions = log.iter().filter_map(|entry| entry["action"].as_str());
    actions
        .filter(|action| action.starts_with("txt."))
        .map(str::to_owned)
        .collect()
}

async fn values_come_and_go_one_by_one_or_all_at_once(backend: Backend) {
    let rig = rig(backend).await;
    let set: TxtInfo = rig
        .json(put(&rig, NAME, json!({ "values": ["one"] })))
        .await;
    assert_eq!(
        (set.values.as_slice(), set.ttl),
        (&["one".to_owned()][..], DurationMs::from_secs(60))
    );
    assert_eq!(
        set.app.as_ref().map(ToString::to_string).as_deref(),
        Some("hello")
    );
    assert_eq!((set.updated_by.as_str(), set.expires_at), ("admin", None));
    // The same request again changes nothing; a second value is added to the first.
    let again: TxtInfo = rig
        .json(put(&rig, NAME, json!({ "values": ["one"] })))
        .await;
    assert_eq!(again, set);
    let more: TxtInfo = rig
        .json(post(&rig, NAME, json!({ "value": "two", "ttl": "30s" })))
        .await;
    assert_eq!(more.values, ["one", "two"]);
    assert!(more.revision > set.revision);
    let again: TxtInfo = rig.json(post(&rig, NAME, json!({ "value": "two" }))).await;
    assert_eq!(again, more);
    let (revision, records) = told(&rig).await;
    assert!(revision >= more.revision.get(), "{revision}");
    assert_eq!(
        records[NAME],
        TxtRecords {
            ttl_s: 30,
            values: more.values.clone(),
            expires_at: None
        }
    );
    let listed: Vec<TxtInfo> = rig.get("/v1/dns/txt").await;
    assert_eq!(listed, [more]);

    assert_eq!(removed(&rig, "?value=one").await, 204);
    assert_eq!(told(&rig).await.1[NAME].values, ["two"]);
    assert_eq!(removed(&rig, "?value=one").await, 404);
    assert_eq!(removed(&rig, "").await, 204);
    assert!(names(&rig).await.is_empty());
    assert_eq!(removed(&rig, "").await, 404);
    assert_eq!(
        actions(&rig).await,
        ["txt.remove", "txt.remove", "txt.add", "txt.set"]
    );
    let log: Vec<Value> = rig.get(&format!("/v1/audit?subject=txt/{NAME}")).await;
    assert_eq!(log[2]["before"]["values"], json!(["one"]));
    assert_eq!(log[2]["after"]["values"], json!(["one", "two"]));
    assert!(log[0]["after"].is_null());
}

async fn what_makes_no_sense_is_refused(backend: Backend) {
    let rig = rig(backend).await;
    let one = json!({ "values": ["one"] });
    let long = "x".repeat(256);
    for (name, wish, code) in [
        ("_a.hello.example.org", one.clone(), "FDN-2070"),
        ("hello.fn.test", one.clone(), "FDN-2070"),
        (NAME, json!({ "values": [] }), "FDN-2070"),
        (NAME, json!({ "values": [""] }), "FDN-2070"),
        (NAME, json!({ "values": [long] }), "FDN-2070"),
        (NAME, json!({ "values": ["a\u{0}b"] }), "FDN-2070"),
        (NAME, json!({ "values": ["a", "a"] }), "FDN-2070"),
        (NAME, json!({ "values": ["a"], "ttl": "9s" }), "FDN-2070"),
        (NAME, json!({ "values": ["a"], "ttl": "2h" }), "FDN-2070"),
        (
            NAME,
            json!({ "values": ["a"], "ttl": "10500ms" }),
            "FDN-2070",
        ),
        (
            NAME,
            json!({ "values": ["a"], "expires_in": "1s" }),
            "FDN-2070",
        ),
        (
            NAME,
            json!({ "values": ["a"], "expires_in": "721h" }),
            "FDN-2070",
        ),
    ] {
        assert_eq!(
            refused(&rig, put(&rig, name, wish.clone())).await,
            is(422, code),
            "{name}: {wish}"
        );
    }
    for (name, wish) in [
        ("*.hello.fn.test", one.clone()),
        ("_a..hello.fn.test", one.clone()),
        ("_A.hello.fn.test", one),
        (NAME, json!({ "value": "one" })),
        (NAME, json!({ "values": ["one"], "more": 1 })),
    ] {
        assert_eq!(
            refused(&rig, put(&rig, name, wish)).await,
            is(400, "FDN-2005"),
            "{name}"
        );
    }
    assert!(names(&rig).await.is_empty() && actions(&rig).await.is_empty());
}

async fn rights_decide_which_names(backend: Backend) {
    let rig = rig(backend).await;
    let people = people(&rig).await;
    let (forbidden, not_theirs) = (is(403, "FDN-2002"), is(403, "FDN-2071"));
    let by = |token: &str, name: &str| {
        let request = rig.anonymous(Method::PUT, &path(name)).bearer_auth(token);
        request.json(&json!({ "values": ["one"] }))
    };
    for (token, name, expected) in [
        (&people.viewer, NAME, &forbidden),
        (&people.outsider, NAME, &not_theirs),
        // Another tenant's app and a missing one are refused alike; names that clients are sent to are not the app owner's to set.
        (&people.outsider, "hello.fn.test", &not_theirs),
        (&people.developer, "_a.absent.fn.test", &not_theirs),
        (&people.developer, "_a.fn.test", &not_theirs),
        (&people.developer, "fn.test", &not_theirs),
        (&people.developer, "www.hello.fn.test", &not_theirs),
        (&people.developer, "_a.www.hello.fn.test", &not_theirs),
    ] {
        assert_eq!(refused(&rig, by(token, name)).await, *expected, "{name}");
    }
    for (token, name) in [
        (&people.developer, NAME),
        (&people.owner, "deep._acme-challenge.hello.fn.test"),
        (&people.operator, "fn.test"),
    ] {
        let info: TxtInfo = rig.json(by(token, name)).await;
        assert_eq!(info.name.as_str(), name);
        assert_eq!(info.app.is_some(), name.contains("hello"));
    }
    assert_eq!(names(&rig).await.len(), 3);
    // Members can neither remove the network's own records nor see them in the list.
    let remove = |token: &str, name: &str| {
        rig.anonymous(Method::DELETE, &path(name))
            .bearer_auth(token)
    };
    assert_eq!(
        refused(&rig, remove(&people.owner, "fn.test")).await,
        not_theirs
    );
    for (token, count) in [
        (&people.viewer, 2),
        (&people.developer, 2),
        (&people.outsider, 0),
        (&people.operator, 3),
        (&rig.token, 3),
    ] {
        let request = rig.anonymous(Method::GET, "/v1/dns/txt").bearer_auth(token);
        let rows: Vec<TxtInfo> = rig.json(request).await;
        assert_eq!(rows.len(), count);
    }
    // A token can have this one right and no other.
    let tool = api_token(&rig, &people.developer, &[Right::ManageRecords]).await;
    let gone = remove(&tool, NAME).send().await.expect("an answer");
    assert_eq!(gone.status(), 204);
    let deploy = rig
        .anonymous(Method::DELETE, "/v1/apps/hello")
        .bearer_auth(&tool);
    assert_eq!(refused(&rig, deploy).await, forbidden);
    // An app created later owns its name; records set there before can still be removed.
    let _: TxtInfo = rig.json(by(&people.operator, "fn.test")).await;
    let gone = remove(&people.operator, "fn.test").send().await;
    assert_eq!(gone.expect("an answer").status(), 204);
    let _: TxtInfo = rig.json(by(&people.operator, "later.fn.test")).await;
    rig.deploy("later", components::hello("hi")).await;
    assert_eq!(
        refused(&rig, by(&people.operator, "later.fn.test")).await,
        is(422, "FDN-2070")
    );
    let gone = remove(&people.operator, "later.fn.test").send().await;
    assert_eq!(gone.expect("an answer").status(), 204);
}

async fn there_are_only_so_many(backend: Backend) {
    let rig = rig(backend).await;
    let full = is(409, "FDN-2072");
    let many = json!({ "values": ["a", "b", "c", "d"] });
    assert_eq!(refused(&rig, put(&rig, NAME, many)).await, full);
    for value in ["a", "b", "c"] {
        let _: TxtInfo = rig.json(post(&rig, NAME, json!({ "value": value }))).await;
    }
    assert_eq!(
        refused(&rig, post(&rig, NAME, json!({ "value": "d" }))).await,
        full
    );
    let one = json!({ "values": ["one"], "expires_in": "1h" });
    let _: TxtInfo = rig.json(put(&rig, "_b.hello.fn.test", one.clone())).await;
    assert_eq!(
        refused(&rig, put(&rig, "_c.hello.fn.test", one.clone())).await,
        full
    );
    // The network's own names are counted separately, and a name that has records does not count again.
    let _: TxtInfo = rig.json(put(&rig, "fn.test", one.clone())).await;
    assert_eq!(
        refused(&rig, put(&rig, "_a.fn.test", one.clone())).await,
        full
    );
    let _: TxtInfo = rig.json(put(&rig, NAME, json!({ "values": ["e"] }))).await;
    assert_eq!(removed(&rig, "").await, 204);
    let _: TxtInfo = rig.json(put(&rig, "_c.hello.fn.test", one)).await;
    let page: Vec<TxtInfo> = rig.get("/v1/dns/txt?limit=2").await;
    assert_eq!(page.len(), 2);
    let text = rig.anonymous(Method::GET, "/metrics").send().await;
    let text = text.expect("an answer").text().await.expect("text");
    assert!(
        text.contains("fdn_controller_txt_changes_total{result=\"full\"} 4"),
        "{text}"
    );
}

async fn records_go_when_their_time_is_over_and_with_their_app(backend: Backend) {
    let rig = rig(backend).await;
    let before = fdn_service::now();
    let wish = json!({ "values": ["one"], "expires_in": "1h" });
    let set: TxtInfo = rig.json(put(&rig, NAME, wish)).await;
    let end = set.expires_at.expect("an end");
    assert!(end.get() >= before.get() + 3_600_000);
    assert_eq!(told(&rig).await.1[NAME].expires_at, Some(end));
    // An added value never shortens the lifetime of the records, and may extend it.
    let sooner = json!({ "value": "two", "expires_in": "10s" });
    let info: TxtInfo = rig.json(post(&rig, NAME, sooner)).await;
    assert_eq!(info.expires_at, Some(end));
    let later = json!({ "value": "three", "expires_in": "2h" });
    let info: TxtInfo = rig.json(post(&rig, NAME, later)).await;
    let end = info.expires_at.expect("an end");
    assert!(end.get() >= before.get() + 7_200_000);
    let state = rig.controller.state();
    watch::round(state, Timestamp(end.get() - 1))
        .await
        .expect("looked");
    assert_eq!(names(&rig).await, [NAME]);
    watch::round(state, end).await.expect("looked");
    assert!(names(&rig).await.is_empty());
    assert_eq!(
        actions(&rig).await,
        ["txt.expire", "txt.add", "txt.add", "txt.set"]
    );
    let _: TxtInfo = rig
        .json(put(&rig, NAME, json!({ "values": ["one"] })))
        .await;
    let _: TxtInfo = rig
        .json(put(&rig, "fn.test", json!({ "values": ["one"] })))
        .await;
    assert_eq!(names(&rig).await.len(), 2);
    let gone = rig.request(Method::DELETE, "/v1/apps/hello").send().await;
    assert_eq!(gone.expect("an answer").status(), 204);
    assert_eq!(names(&rig).await, ["fn.test"]);
}

async fn the_answers_of_an_app_live_for_a_time_of_its_own(backend: Backend) {
    let rig = rig(backend).await;
    let path = "/v1/apps/hello/dns";
    let put = |ttl: Value| rig.request(Method::PUT, path).json(&json!({ "ttl": ttl }));
    let told = async || {
        let snapshot: DnsSnapshot = rig.dns_snapshot().await;
        let app = snapshot
            .apps
            .into_iter()
            .find(|app| app.app.as_str() == "hello");
        let app = app.expect("the app");
        (app.state.expect("there").ttl_s, app.revision)
    };
    let before: AppDns = rig.get(path).await;
    let network = rig.settings.planner.ttl;
    assert_eq!((before.ttl, before.default), (network, true));
    for wrong in ["4s", "301s", "10500ms"] {
        assert_eq!(
            refused(&rig, put(json!(wrong))).await,
            is(422, "FDN-2070"),
            "{wrong}"
        );
    }
    assert_eq!(
        told().await.0,
        u32::try_from(network.as_millis() / 1000).expect("seconds")
    );

    let set: AppDns = rig.json(put(json!("90s"))).await;
    assert_eq!((set.ttl, set.default), (DurationMs::from_secs(90), false));
    assert!(set.revision > before.revision);
    assert_eq!(told().await, (90, set.revision));
    let again: AppDns = rig.json(put(json!("90s"))).await;
    assert_eq!(again, set, "nothing has changed");
    let lookup: Value = rig
        .get("/v1/dns/lookup?name=hello.fn.test&client=203.0.113.7")
        .await;
    assert_eq!(lookup["ttl_s"], 90);

    // A new version of the app does not change it.
    rig.deploy("hello", components::hello("again")).await;
    assert_eq!(told().await.0, 90);
    let back: AppDns = rig.json(put(Value::Null)).await;
    assert_eq!((back.ttl, back.default), (network, true));
}
