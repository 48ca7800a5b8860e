//! Events: those who may see an event get it, in order, also after an interruption and from another controller; nobody else does.

use std::time::Duration;

use fdn_controller::store::event::event_trim;
use fdn_core::account::AuditRecord;
use fdn_core::event::{Event, EventKind, MISSED, Missed};
use fdn_core::{DurationMs, Timestamp};
use fdn_testkit::{components, wait};
use reqwest::multipart::{Form, Part};
use reqwest::{Method, Response};
use serde_json::json;

use crate::accounts::{member, people};
use crate::rig::{Backend, Rig, on_both};

on_both!(
    changes_are_told_in_order_and_taken_up_again,
    another_controller_tells_the_same,
    while_nothing_changes_nothing_is_looked_up_of_nodes,
    others_see_nothing_of_a_tenant,
    a_reader_who_was_away_too_long_is_told,
    a_budget_that_is_reached_is_an_event,
    the_stream_of_a_user_who_is_disabled_ends,
    who_is_no_member_any_more_is_told_nothing_of_the_tenant,
);

/// A message of the stream.
#[derive(Debug)]
enum Said {
    Event(Event),
    Missed(Missed),
}

/// Reads a stream of events.
struct Reader {
    response: Response,
    buffer: String,
}

impl Reader {
    async fn open(rig: &Rig, token: &str, query: &str) -> Self {
        let request = rig.anonymous(Method::GET, &format!("/v1/events{query}"));
        let response = request.bearer_auth(token).send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            response,
            buffer: String::new(),
        }
    }

    /// The next message; `None` when the stream has ended.
    async fn next(&mut self) -> Option<Said> {
        loop {
            while let Some(end) = self.buffer.find("\n\n") {
                let block: String = self.buffer.drain(..end + 2).collect();
                if let Some(said) = said(&block) {
                    return Some(said);
                }
            }
            let chunk = self.response.chunk().await.expect("a stream")?;
            self.buffer
                .push_str(std::str::from_utf8(&chunk).expect("text"));
        }
    }

    /// The next event of this kind.
    async fn of(&mut self, kind: EventKind) -> Event {
        loop {
            match self.next().await {
                Some(Said::Event(event)) if event.kind == kind => return event,
                Some(_) => {}
                None => panic!("the stream ended before an event of {kind}"),
            }
        }
    }
}

fn said(block: &str) -> Option<Said> {
    let field = |name: &str| {
        let lines = block.lines().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value)
            .next()
    };
    let (name, data) = (field("event")?, field("data")?);
    if name == MISSED {
        return Some(Said::Missed(serde_json::from_str(data).expect("JSON")));
    }
    let event: Event = serde_json::from_str(data).expect("an event");
    assert_eq!(field("id").expect("an id"), event.id.to_string());
    assert_eq!(name, event.kind.as_str());
    Some(Said::Event(event))
}

fn quick(settings: &mut fdn_controller::Settings) {
    settings.events.interval = DurationMs::from_millis(50);
}

/// All stored events, as a caller sees them.
async fn all(rig: &Rig, token: &str, query: &str) -> Vec<Event> {
    let mut reader = Reader::open(rig, token, &format!("?follow=false{query}")).await;
    let mut events = Vec::new();
    while let Some(said) = reader.next().await {
        match said {
            Said::Event(event) => events.push(event),
            Said::Missed(missed) => panic!("{missed:?}"),
        }
    }
    events
}

/// Waits for an event of an app with this action; returns all events of the app.
async fn told(rig: &Rig, app: &str, action: &str) -> Vec<Event> {
    wait::until("the event", async || {
        let events = all(rig, &rig.token, &format!("&app={app}")).await;
        match events.iter().any(|event| event.action == action) {
            true => Ok(events),
            false => Err(format!("{events:?}")),
        }
    })
    .await
}

async fn changes_are_told_in_order_and_taken_up_again(backend: Backend) {
    let rig = Rig::start_with(backend, quick).await;
    let mut reader = Reader::open(&rig, &rig.token, "?app=hello&kind=app,policy,traffic").await;
    rig.deploy("hello", components::hello("1")).await;
    let first = reader.of(EventKind::App).await;
    assert_eq!(
        (first.action.as_str(), first.subject.as_str()),
        ("deploy", "app/hello")
    );
    assert!(first.tenant.is_some());
    drop(reader);
    // These happen while nobody reads.
    let policy = json!({ "concurrency": 5 });
    let set = rig
        .request(Method::PUT, "/v1/apps/hello/policy")
        .json(&policy);
    assert_eq!(set.send().await.expect("an answer").status(), 200);
    rig.deploy("hello", components::hello("2")).await;
    rig.deploy("other", components::hello("3")).await;
    told(&rig, "other", "deploy").await;
    let resumed = rig
        .request(
            Method::GET,
            "/v1/events?app=hello&kind=app,policy&follow=false",
        )
        .header("last-event-id", first.id.to_string());
    let text = resumed
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("text");
    let events: Vec<Event> = text
        .split_inclusive("\n\n")
        .filter_map(|block| match said(block) {
            Some(Said::Event(event)) => Some(event),
            _ => None,
        })
        .collect();
    let actions: Vec<&str> = events.iter().map(|event| event.action.as_str()).collect();
    assert_eq!(
        actions,
        ["policy.set", "deploy"],
        "all of it once, and nothing of the other app"
    );
    assert!(events.iter().all(|event| event.id > first.id));
    for nonsense in ["?kind=apps", "?after=x", "?what=1"] {
        let request = rig.request(Method::GET, &format!("/v1/events{nonsense}"));
        assert_eq!(rig.refused(request).await.0, 400, "{nonsense}");
    }
}

async fn another_controller_tells_the_same(backend: Backend) {
    let rig = Rig::start_with(backend, quick).await;
    let other = Rig::start_on(
        rig.settings.clone(),
        std::sync::Arc::clone(&rig.broker),
        std::sync::Arc::clone(&rig.folder),
    )
    .await;
    let mut reader = Reader::open(&other, &other.token, "?kind=app,ready,plan").await;
    rig.two_regions().await;
    rig.deploy("hello", components::hello("1")).await;
    let seen = reader.of(EventKind::App).await;
    let here = told(&rig, "hello", "deploy").await;
    assert!(here.contains(&seen), "the same number and words at both");
    // Both nodes report that they serve it, and again when a controller that heard of the second node later has planned anew.
    wait::until("both nodes to serve it", async || {
        serves_hello(&rig).await;
        match all(&rig, &rig.token, "&kind=ready").await.len() {
            0 => Err("nobody has said so"),
            _ => Ok(()),
        }
    })
    .await;
    let ready = reader.of(EventKind::Ready).await;
    assert_eq!(ready.subject, "app/hello");
    let detail = ready.detail.expect("what is ready");
    assert!(detail.contains("on 2 nodes"), "{detail}");
    let nodes = all(&rig, &rig.token, "&kind=node").await;
    let came = nodes.iter().filter(|event| event.action == "node.alive");
    assert_eq!(came.count(), 2, "{nodes:?}");
}

/// Both nodes report that they serve the app at its present revision.
async fn serves_hello(rig: &Rig) {
    let app: serde_json::Value = rig.get("/v1/apps/hello").await;
    let revision = app["revision"].as_u64().expect("a revision");
    for mut status in crate::rig::two_regions() {
        status.apps = vec![fdn_core::message::AppObserved {
            app: "hello".parse().expect("app"),
            revision: fdn_core::Revision(revision),
            phase: fdn_core::message::AppPhase::Ready,
            invocations: 0,
            errors: 0,
            execution_mean: fdn_core::Millis::ZERO,
            instances: 0,
            degraded: None,
            stages: Vec::new(),
            figures: None,
            serves: None,
            phases: None,
            versions: Vec::new(),
            form: None,
        }];
        rig.node(status).await;
    }
}

/// Rounds cost nothing per node as long as nothing has changed: the marks are not read then.
async fn while_nothing_changes_nothing_is_looked_up_of_nodes(backend: Backend) {
    let rig = Rig::start_with(backend, quick).await;
    rig.two_regions().await;
    let alive = async |count: usize| {
        wait::until("the nodes", async || {
            let nodes = all(&rig, &rig.token, "&kind=node").await;
            let came = nodes.iter().filter(|event| event.action == "node.alive");
            match came.count() {
                came if came == count => Ok(()),
                came => Err(format!("{came} came: {nodes:?}")),
            }
        })
        .await;
    };
    rig.deploy("hello", components::hello("1")).await;
    told(&rig, "hello", "deploy").await;
    alive(2).await;
    // If the marks were read, they would be found missing, and all nodes would be reported again.
    let mut connection = rig
        .controller
        .state()
        .store
        .read()
        .await
        .expect("connected");
    sqlx::query("DELETE FROM event_marks WHERE subject LIKE 'node/%'")
        .execute(&mut *connection)
        .await
        .expect("forgotten");
    drop(connection);
    // The event of this change shows that a later round was made.
    let policy = json!({ "concurrency": 5 });
    let set = rig
        .request(Method::PUT, "/v1/apps/hello/policy")
        .json(&policy);
    assert_eq!(set.send().await.expect("an answer").status(), 200);
    told(&rig, "hello", "policy.set").await;
    alive(2).await;
    // After a change of one node, everything is looked up.
    rig.node(crate::rig::node_at("ap-3", "ap-south", 19.0, 72.8))
        .await;
    alive(5).await;
}

async fn others_see_nothing_of_a_tenant(backend: Backend) {
    let rig = Rig::start_with(backend, quick).await;
    rig.two_regions().await;
    rig.deploy("hello", components::hello("1")).await;
    let people = people(&rig).await;
    told(&rig, "hello", "deploy").await;
    let actions = async |token: &str| -> Vec<String> {
        let events = all(&rig, token, "").await;
        events.into_iter().map(|event| event.action).collect()
    };
    let member = actions(people.member(fdn_core::TenantRole::Viewer)).await;
    assert!(member.contains(&"deploy".to_owned()), "{member:?}");
    assert!(!member.iter().any(|action| action.starts_with("node.")));
    let outsider = all(&rig, &people.outsider, "").await;
    assert!(
        outsider
            .iter()
            .all(|event| event.app.is_none() && event.kind == EventKind::Tenant),
        "{outsider:?}"
    );
    let operator = actions(&people.operator).await;
    assert!(operator.contains(&"node.alive".to_owned()), "{operator:?}");
    assert!(!operator.contains(&"deploy".to_owned()), "{operator:?}");
    let named = rig
        .anonymous(Method::GET, "/v1/events?tenant=default")
        .bearer_auth(&people.outsider);
    assert_eq!(rig.refused(named).await.0, 404);
    let everything = all(&rig, &rig.token, "").await;
    assert!(
        everything
            .iter()
            .all(|event| !event.action.contains("login")),
        "people's sessions are their own"
    );
}

async fn a_reader_who_was_away_too_long_is_told(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        quick(settings);
        settings.events.keep = 1;
    })
    .await;
    rig.deploy("hello", components::hello("1")).await;
    told(&rig, "hello", "deploy").await;
    // As if the events were older than the span that is scanned again.
    let store = &rig.controller.state().store;
    let change = async |sql: &'static str| {
        let mut connection = store.read().await.expect("connected");
        sqlx::query(sql).execute(&mut *connection).await.expect(sql);
    };
    rig.deploy("other", components::hello("2")).await;
    told(&rig, "other", "deploy").await;
    change("UPDATE events SET at = at - 3600000").await;
    change(
        "UPDATE event_marks SET value = CAST(CAST(value AS BIGINT) + 600000 AS TEXT) WHERE subject = 'read/audit'",
    )
    .await;
    let since = Timestamp(fdn_service::now().get() - 60_000);
    let mut connection = store.read().await.expect("connected");
    event_trim(&mut connection, 1, since)
        .await
        .expect("trimmed");
    drop(connection);
    let mut reader = Reader::open(&rig, &rig.token, "?after=0&follow=false").await;
    match reader.next().await.expect("something") {
        Said::Missed(missed) => assert!(missed.after == 0 && missed.oldest > 1, "{missed:?}"),
        Said::Event(event) => panic!("{event:?}"),
    }
    // An event number of a database that is gone: all stored events are sent.
    let mut reader = Reader::open(&rig, &rig.token, "?after=999999&follow=false").await;
    assert!(matches!(reader.next().await, Some(Said::Missed(_))));
    assert!(matches!(reader.next().await, Some(Said::Event(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_are_bounded_and_end_with_the_controller() {
    let rig = Rig::start_with(Backend::Sqlite, |settings| {
        quick(settings);
        settings.events.readers = 1;
        settings.events.heartbeat = DurationMs::from_millis(50);
    })
    .await;
    let mut reader = Reader::open(&rig, &rig.token, "").await;
    let second = rig.request(Method::GET, "/v1/events");
    assert_eq!(rig.refused(second).await.0, 429);
    // A periodic line keeps the connection open.
    wait::until("a heartbeat", async || {
        let chunk = reader.response.chunk().await.expect("a stream");
        match chunk.as_deref() {
            Some(b":\n\n") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let metrics = rig.anonymous(Method::GET, "/metrics").send().await;
    let metrics = metrics.expect("an answer").text().await.expect("text");
    assert!(metrics.contains("fdn_controller_event_readers 1"));
    let Rig { controller, .. } = rig;
    let stop = controller.stop();
    let end = async { while reader.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(stop, end) })
        .await
        .expect("a stop does not wait for readers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_so_that_rights_are_looked_at_again() {
    let rig = Rig::start_with(Backend::Sqlite, |settings| {
        quick(settings);
        settings.events.lifetime = DurationMs::from_millis(200);
    })
    .await;
    let mut reader = Reader::open(&rig, &rig.token, "?kind=billing").await;
    assert!(reader.next().await.is_none(), "it ends by itself");
}

async fn a_budget_that_is_reached_is_an_event(backend: Backend) {
    let rig = Rig::start_with(backend, quick).await;
    let people = people(&rig).await;
    let mut reader = Reader::open(&rig, &people.owner, "?kind=billing").await;
    crate::billing_api::reach_a_budget(&rig).await;
    let alert = loop {
        let event = reader.of(EventKind::Billing).await;
        if event.action == "budget.alert" {
            break event;
        }
    };
    assert_eq!(alert.subject, "budget/all");
    let log: Vec<AuditRecord> = rig.get("/v1/audit?action=budget.alert").await;
    let [entry] = log.as_slice() else {
        panic!("one threshold was reached once: {log:?}");
    };
    assert_eq!(
        (alert.tenant, entry.actor.as_str()),
        (entry.tenant, "the network")
    );
    let after = entry.after.as_ref().expect("the alert");
    assert_eq!(
        (&after["budget"], &after["threshold"]),
        (&json!("all"), &json!(50))
    );
    let seen = all(&rig, &people.outsider, "&kind=billing").await;
    assert_eq!(seen, [], "another tenant's spending is nobody's");
}

async fn the_stream_of_a_user_who_is_disabled_ends(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        quick(settings);
        settings.events.heartbeat = DurationMs::from_millis(50);
    })
    .await;
    let people = people(&rig).await;
    let mut reader = Reader::open(&rig, &people.viewer, "?kind=billing").await;
    let disable = rig.request(Method::PATCH, "/v1/users/viewer");
    let _: serde_json::Value = rig.json(disable.json(&json!({ "disabled": true }))).await;
    // Long before the end of its lifetime, and without an event.
    let end = async { while reader.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(60), end)
        .await
        .expect("it ends with the session");
    let ended = &rig.controller.state().metrics.events.ended;
    assert_eq!(ended.with_label_values(&["revoked"]).get(), 1);
}

async fn who_is_no_member_any_more_is_told_nothing_of_the_tenant(backend: Backend) {
    let rig = Rig::start_with(backend, quick).await;
    let people = people(&rig).await;
    member(&rig, "other", "viewer", "viewer").await;
    let mut reader = Reader::open(&rig, &people.viewer, "?kind=app").await;
    rig.deploy("hello", components::hello("1")).await;
    assert_eq!(reader.of(EventKind::App).await.subject, "app/hello");
    let path = "/v1/tenants/default/members/viewer";
    let gone = rig.request(Method::DELETE, path).send().await;
    assert_eq!(gone.expect("an answer").status(), 204);
    rig.deploy("second", components::hello("2")).await;
    told(&rig, "second", "deploy").await;
    // What happens in the other tenant still comes, and nothing before it.
    let deploy = rig.anonymous(Method::POST, "/v1/apps/theirs/versions");
    let form = Form::new().part("component", Part::bytes(components::hello("3")));
    let deploy = deploy.bearer_auth(&people.outsider).multipart(form);
    let _: serde_json::Value = rig.json(deploy).await;
    assert_eq!(reader.of(EventKind::App).await.subject, "app/theirs");
}
