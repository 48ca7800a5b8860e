//! Single calls of an app, gathered from fake nodes.

use std::sync::{Arc, Mutex};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use fdn_core::trace::CallTrace;
use fdn_core::usage::{
    CallLine, CallList, CallQuery, CallRecord, Routed, StatusFilter, UsageOutcome, UsageRecord,
};
use fdn_core::{ErrorCode, InvocationId, MebiBytes, Revision, Timestamp, VersionNumber};
use fdn_testkit::{components, wait};
use reqwest::Method;

use crate::accounts::people;
use crate::nodes;
use crate::rig::{Backend, Rig, on_both};

on_both!(
    the_newest_calls_of_all_nodes_are_told_and_who_is_silent,
    calls_of_the_owner_before_are_not_told,
    a_call_is_traced_with_its_plan_and_an_unknown_one_says_where_it_was_looked_for,
);

/// A fake node that answers `/calls/{app}`.
#[derive(Clone)]
struct FakeNode {
    answer: CallList,
    asked: Arc<Mutex<Vec<CallQuery>>>,
}

fn call(node: &str, app: &str, at: Timestamp) -> CallLine {
    let used = UsageRecord {
        invocation: InvocationId::from_uuid(uuid::Uuid::from_u128(u128::from(at.get()))),
        app: app.parse().expect("app"),
        function: app.parse().expect("function"),
        version: VersionNumber::FIRST,
        started_at: at,
        duration_us: 5,
        cpu_us: 4,
        memory_mib: MebiBytes(64),
        gpu_memory_mib: MebiBytes(0),
        egress_bytes: 10,
        outcome: UsageOutcome::Ok,
    };
    let record = CallRecord {
        used,
        call: None,
        noted: None,
    };
    CallLine::new(node.parse().expect("node"), record)
}

async fn serve(request: HttpRequest, node: web::Data<FakeNode>) -> HttpResponse {
    let query = web::Query::<CallQuery>::from_query(request.query_string()).expect("a question");
    let mut asked = node.asked.lock().expect("not poisoned");
    asked.push(query.into_inner());
    HttpResponse::Ok().json(&node.answer)
}

impl FakeNode {
    async fn start(rig: &Rig, name: &str, calls: Vec<CallLine>) -> Self {
        Self::start_as(
            rig,
            name,
            &format!("fdn://cluster/eu-west/node/{name}"),
            calls,
        )
        .await
    }

    /// Starts a node whose server presents the certificate of `identity`.
    async fn start_as(rig: &Rig, name: &str, identity: &str, calls: Vec<CallLine>) -> Self {
        let node = Self {
            answer: CallList {
                calls,
                ..CallList::default()
            },
            asked: Arc::default(),
        };
        let data = web::Data::new(node.clone());
        let (listener, status) = nodes::listener(name);
        let server = HttpServer::new(move || {
            App::new()
                .app_data(data.clone())
                .route("/calls/{app}", web::get().to(serve))
        })
        .workers(1)
        .disable_signals()
        .listen_rustls_0_23(listener, nodes::shown(rig, identity).await)
        .expect("listens");
        tokio::spawn(server.run());
        rig.node(status).await;
        node
    }
}

async fn known(rig: &Rig, count: usize) {
    wait::until("the nodes to be known", async || {
        let nodes: Vec<serde_json::Value> = rig.get("/v1/nodes").await;
        if nodes.len() == count {
            Ok(())
        } else {
            Err(nodes.len())
        }
    })
    .await;
}

fn times(list: &CallList) -> Vec<u64> {
    let calls = list.calls.iter();
    calls.map(|call| call.started_at.get()).collect()
}

async fn the_newest_calls_of_all_nodes_are_told_and_who_is_silent(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.deploy("hello", components::hello("x")).await;
    let now = fdn_service::now().get() + 1000;
    let at = |n: u64| Timestamp(now + n);
    let mut of_a = vec![call("a", "hello", at(5)), call("a", "hello", at(1))];
    // Calls outside the query, and one of another node.
    of_a.push(call("a", "other", at(9)));
    of_a.push(call("b", "hello", at(8)));
    of_a.push(call("a", "hello", Timestamp(1)));
    let a = FakeNode::start(&rig, "a", of_a).await;
    FakeNode::start(&rig, "b", vec![call("b", "hello", at(3))]).await;
    rig.node(nodes::asked_at("dead", fdn_testkit::ports::local()))
        .await;
    // Servers with the certificate of another node and of a DNS server, and an agent that controllers cannot ask.
    let forged = vec![call("forged", "hello", at(6))];
    let another = "fdn://cluster/eu-west/node/a";
    let forged_node = FakeNode::start_as(&rig, "forged", another, forged.clone()).await;
    let dns = "fdn://cluster/eu-west/dns/served";
    let served = FakeNode::start_as(&rig, "served", dns, forged).await;
    rig.node(nodes::older()).await;
    known(&rig, 6).await;
    let all: CallList = rig.get("/v1/apps/hello/calls").await;
    assert_eq!(times(&all), [now + 5, now + 3, now + 1]);
    assert!(!all.more);
    let silent = ["dead", "forged", "older", "served"];
    assert_eq!(all.silent, silent.map(|node| node.parse().expect("node")));
    for node in [forged_node, served] {
        let asked = node.asked.lock().expect("not poisoned");
        assert!(asked.is_empty(), "nothing was sent there");
    }
    let path = format!(
        "/v1/apps/hello/calls?since={now}&until={}&status=5xx&outcome=client&version=2&request=r&trace=t&limit=2",
        now + 7
    );
    let some: CallList = rig.get(&path).await;
    assert_eq!((times(&some), some.more), (vec![now + 5, now + 3], true));
    let asked = a.asked.lock().expect("not poisoned").last().cloned();
    let expected = CallQuery {
        since: Timestamp(now),
        until: Some(at(7)),
        status: Some(StatusFilter::Class(5)),
        outcome: Some(UsageOutcome::Client),
        version: VersionNumber::try_from(2).ok(),
        request: Some("r".to_owned()),
        trace: Some("t".to_owned()),
        limit: 2,
    };
    assert_eq!(asked, Some(expected));
    for bad in ["limit=0", "limit=1001", "status=9xx", "version=0", "who=me"] {
        let path = format!("/v1/apps/hello/calls?{bad}");
        let (status, _) = rig.refused(rig.request(Method::GET, &path)).await;
        assert_eq!(status, 400, "{bad}");
    }
    let people = people(&rig).await;
    let by = |token: &str| {
        rig.anonymous(Method::GET, "/v1/apps/hello/calls")
            .bearer_auth(token)
    };
    let viewer = by(&people.viewer).send().await.expect("an answer");
    assert_eq!(viewer.status(), 200);
    assert_eq!(rig.code(by(&people.outsider)).await, "FDN-2003");
    let none = rig.request(Method::GET, "/v1/apps/none/calls");
    assert_eq!(rig.code(none).await, "FDN-2003");
}

/// A call with a request id, routed by this revision for a client in 192.0.2.0/24.
fn routed(node: &str, at: Timestamp, revision: Revision) -> CallLine {
    CallLine {
        request: "r-1".to_owned(),
        trace: "t-1".to_owned(),
        routed: Routed {
            revision: Some(revision),
            client: Some("192.0.2.0/24".parse().expect("prefix")),
            ..Routed::default()
        },
        ..call(node, "hello", at)
    }
}

async fn a_call_is_traced_with_its_plan_and_an_unknown_one_says_where_it_was_looked_for(
    backend: Backend,
) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let deployed = rig.deploy("hello", components::hello("x")).await;
    let path = "/v1/apps/hello/calls/trace?request=r-1";
    let lost = rig.refused(rig.request(Method::GET, path)).await.1;
    assert_eq!(lost.code, ErrorCode::NotFound);
    assert!(lost.detail.contains("kept by no nodes"), "{}", lost.detail);
    let at = Timestamp(fdn_service::now().get() + 1000);
    let of_a = vec![routed("a", at, deployed.revision)];
    let a = FakeNode::start(&rig, "a", of_a).await;
    rig.node(nodes::asked_at("dead", fdn_testkit::ports::local()))
        .await;
    known(&rig, 2).await;
    let traced = wait::until("the plan of the call's client", async || {
        let traced: CallTrace = rig.get(path).await;
        let why = traced.explained.as_ref().expect("the client is known");
        if why.plan.is_some() {
            Ok(traced)
        } else {
            Err(format!("{traced:#?}"))
        }
    })
    .await;
    let asked = a.asked.lock().expect("not poisoned").last().cloned();
    assert_eq!(asked.expect("asked").request.as_deref(), Some("r-1"));
    assert_eq!(
        (traced.request.as_str(), traced.trace.as_str()),
        ("r-1", "t-1")
    );
    assert_eq!(traced.silent, ["dead".parse().expect("node")]);
    let gateway = &traced.gateway;
    let cluster = gateway.cluster.as_ref().map(ToString::to_string);
    assert_eq!(
        (gateway.node.as_str(), cluster.as_deref()),
        ("a", Some("eu-west"))
    );
    let why = traced.explained.expect("explained");
    let (bound, plan) = (why.bound.expect("bound"), why.plan.expect("a plan"));
    assert_eq!(bound.cluster.as_str(), "eu-west");
    assert!(!plan.candidates.is_empty() && !plan.reason.is_empty());
    assert!(traced.told.nodes >= deployed.revision && traced.told.dns >= bound.revision);
    let served = traced.calls[0].call.routed.revision;
    assert_eq!(served, Some(deployed.revision));
    let is_older = traced
        .differs
        .iter()
        .any(|text| text.contains("nodes are told"));
    assert_eq!(is_older, traced.told.nodes > deployed.revision);

    // For a client other than the caller.
    let other: CallTrace = rig.get(&format!("{path}&client=198.51.100.7")).await;
    let client = other.explained.expect("explained").client;
    assert_eq!(client.to_string(), "198.51.100.7/32");
    for (bad, code) in [
        ("/v1/apps/hello/calls/trace", "FDN-2005"),
        ("/v1/apps/hello/calls/trace?request=", "FDN-2005"),
        ("/v1/apps/none/calls/trace?request=r-1", "FDN-2003"),
    ] {
        let got = rig.code(rig.request(Method::GET, bad)).await;
        assert_eq!(got, code, "{bad}");
    }
    let people = people(&rig).await;
    let by = |token: &str| rig.anonymous(Method::GET, path).bearer_auth(token);
    let viewer = by(&people.viewer).send().await.expect("an answer");
    assert_eq!(viewer.status(), 200);
    assert_eq!(rig.code(by(&people.outsider)).await, "FDN-2003");
}

async fn calls_of_the_owner_before_are_not_told(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let before = Timestamp(fdn_service::now().get() - 1000);
    rig.deploy("hello", components::hello("x")).await;
    let now = fdn_service::now();
    let calls = vec![call("a", "hello", now), call("a", "hello", before)];
    FakeNode::start(&rig, "a", calls).await;
    known(&rig, 1).await;
    let all: CallList = rig.get("/v1/apps/hello/calls?since=0").await;
    assert_eq!(times(&all), [now.get()]);
}
