//! Logs of an app, gathered from fake nodes.

use std::sync::{Arc, Mutex};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use bytes::Bytes;
use fdn_core::api::LogLine;
use fdn_core::job::JobReceipt;
use fdn_core::{DurationMs, InstanceId, Right, Timestamp};
use fdn_testkit::{components, wait};
use futures::StreamExt;
use reqwest::{Method, Response};
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;

use crate::accounts::{api_token, hello_changes_hands, people};
use crate::nodes;
use crate::rig::{Backend, Rig, on_both};

on_both!(
    the_last_lines_of_all_nodes_come_in_order_of_time,
    the_lines_of_a_job_are_picked_out,
    a_reader_that_follows_hears_old_and_new_nodes,
    a_reader_hears_nothing_of_another_owner,
    a_reader_who_may_not_look_any_more_is_cut_off,
    a_reader_that_follows_must_come_again,
);

/// A fake node that answers `/logs/{app}`.
#[derive(Clone)]
struct FakeNode {
    name: String,
    past: Vec<u64>,
    live: broadcast::Sender<String>,
    /// Lines of jobs, sent after the past ones.
    jobs: Arc<Mutex<String>>,
}

fn line(node: &str, at: u64) -> String {
    line_of(node, at, "r")
}

/// A line written during a call.
fn line_of(node: &str, at: u64, request: &str) -> String {
    let line = LogLine {
        at: Timestamp(at),
        app: "hello".parse().expect("app"),
        function: "hello".parse().expect("function"),
        version: fdn_core::VersionNumber::FIRST,
        node: node.parse().expect("node"),
        instance: InstanceId::from_uuid(uuid::Uuid::nil()),
        request: request.to_owned(),
        stage: None,
        stream: fdn_core::api::LogStream::Stdout,
        text: format!("{node} at {at}"),
    };
    serde_json::to_string(&line).expect("JSON") + "\n"
}

async fn serve(request: HttpRequest, node: web::Data<FakeNode>) -> HttpResponse {
    let tail = request.query_string().split('&');
    let tail = tail.filter_map(|one| one.strip_prefix("tail=")).next();
    let tail: usize = tail.expect("asked for").parse().expect("a number");
    let past = node.past.iter().map(|at| line(&node.name, *at));
    let jobs = node.jobs.lock().expect("not poisoned").clone();
    let jobs = jobs.split_inclusive('\n').map(ToOwned::to_owned);
    let past: Vec<Bytes> = past.chain(jobs).map(Bytes::from).collect();
    let past: Vec<Bytes> = past[past.len().saturating_sub(tail)..].to_vec();
    let past = futures::stream::iter(past);
    if request.query_string().contains("follow=true") {
        let live = BroadcastStream::new(node.live.subscribe())
            .filter_map(async |l| l.ok().map(Bytes::from));
        return HttpResponse::Ok()
            .streaming(past.chain(live).map(Ok::<_, std::convert::Infallible>));
    }
    HttpResponse::Ok().streaming(past.map(Ok::<_, std::convert::Infallible>))
}

impl FakeNode {
    async fn start(rig: &Rig, name: &str, past: &[u64]) -> Self {
        let (live, _) = broadcast::channel(10);
        let node = Self {
            name: name.to_owned(),
            past: past.to_vec(),
            live,
            jobs: Arc::default(),
        };
        let identity = format!("fdn://cluster/eu-west/node/{name}");
        let (listener, status) = nodes::listener(name);
        let data = web::Data::new(node.clone());
        let server = HttpServer::new(move || {
            App::new()
                .app_data(data.clone())
                .route("/logs/{app}", web::get().to(serve))
        })
        .workers(1)
        .disable_signals()
        .listen_rustls_0_23(listener, nodes::shown(rig, &identity).await)
        .expect("listens");
        tokio::spawn(server.run());
        rig.node(status).await;
        node
    }
}

fn texts(body: &str) -> Vec<String> {
    body.lines()
        .map(|line| {
            serde_json::from_str::<LogLine>(line)
                .expect("a log line")
                .text
        })
        .collect()
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

async fn the_last_lines_of_all_nodes_come_in_order_of_time(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.deploy("hello", components::hello("x")).await;
    FakeNode::start(&rig, "a", &[1, 4, 5]).await;
    FakeNode::start(&rig, "b", &[2, 3, 6]).await;
    // A node that does not answer does not delay the others.
    rig.node(nodes::asked_at("dead", fdn_testkit::ports::local()))
        .await;
    // Nor does one whose agent cannot be asked.
    rig.node(nodes::older()).await;
    known(&rig, 4).await;
    let answer = rig
        .request(Method::GET, "/v1/apps/hello/logs?tail=4")
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.headers()["content-type"], "application/x-ndjson");
    let body = answer.text().await.expect("text");
    assert_eq!(texts(&body), ["b at 3", "a at 4", "a at 5", "b at 6"]);
    let (_, problem) = rig
        .refused(rig.request(Method::GET, "/v1/apps/none/logs"))
        .await;
    assert_eq!(problem.code.as_str(), "FDN-2003");
}

async fn the_lines_of_a_job_are_picked_out(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.deploy("hello", components::hello("x")).await;
    let submit = || rig.request(Method::POST, "/v1/apps/hello/jobs").body("x");
    let one: JobReceipt = rig.json(submit()).await;
    let other: JobReceipt = rig.json(submit()).await;
    let a = FakeNode::start(&rig, "a", &[1]).await;
    let b = FakeNode::start(&rig, "b", &[2]).await;
    known(&rig, 2).await;
    let path = format!("/v1/jobs/{}/logs", one.id);
    let read = async |path: &str| {
        let answer = rig.request(Method::GET, path).send().await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "application/x-ndjson");
        texts(&answer.text().await.expect("text"))
    };
    assert_eq!(read(&path).await, [""; 0], "it has written nothing");
    // Two attempts on different nodes, with another job's lines between them.
    let said = |node: &str, at: u64, job: &JobReceipt, attempt: u32| {
        line_of(node, at, &format!("{}.{attempt}", job.id))
    };
    *a.jobs.lock().expect("not poisoned") =
        said("a", 3, &one, 1) + &said("a", 5, &other, 1) + &said("a", 8, &one, 3);
    *b.jobs.lock().expect("not poisoned") = said("b", 4, &other, 2) + &said("b", 6, &one, 2);
    assert_eq!(read(&path).await, ["a at 3", "b at 6", "a at 8"]);
    let path_of_other = format!("/v1/jobs/{}/logs", other.id);
    assert_eq!(read(&path_of_other).await, ["b at 4", "a at 5"]);
    let few = read(&format!("{path}?tail=3")).await;
    assert_eq!(few, ["b at 6", "a at 8"], "of the app's last three lines");

    let people = people(&rig).await;
    let by = |token: &str, path: &str| rig.anonymous(Method::GET, path).bearer_auth(token);
    let viewer = by(&people.viewer, &path).send().await;
    assert_eq!(viewer.expect("an answer").status(), 200);
    assert_eq!(rig.code(by(&people.outsider, &path)).await, "FDN-2003");
    let absent = format!("/v1/jobs/job_{}/logs", "0".repeat(32));
    assert_eq!(rig.code(by(&rig.token, &absent)).await, "FDN-2003");
}

async fn a_reader_that_follows_hears_old_and_new_nodes(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.deploy("hello", components::hello("x")).await;
    let a = FakeNode::start(&rig, "a", &[1]).await;
    known(&rig, 1).await;
    let answer = rig
        .request(Method::GET, "/v1/apps/hello/logs?follow=true")
        .send()
        .await
        .expect("an answer");
    let mut pieces = answer.bytes_stream();
    let mut read = String::new();
    let mut until = async |expected: &[&str]| {
        let deadline = tokio::time::Instant::now() + wait::PATIENCE;
        while texts(&read) != expected {
            let piece = tokio::time::timeout_at(deadline, pieces.next()).await;
            let piece = piece.unwrap_or_else(|_| panic!("waited for {expected:?}, got {read}"));
            read.push_str(
                std::str::from_utf8(&piece.expect("goes on").expect("a piece")).expect("text"),
            );
        }
    };
    until(&["a at 1"]).await;
    wait::until("the controller to follow", async || {
        if a.live.receiver_count() > 0 {
            Ok(())
        } else {
            Err("not yet")
        }
    })
    .await;
    a.live.send(line("a", 7)).expect("followed");
    until(&["a at 1", "a at 7"]).await;
    let _b = FakeNode::start(&rig, "b", &[8]).await;
    until(&["a at 1", "a at 7", "b at 8"]).await;
}

/// Follows the log of `hello`. Returns when the node has this many followers.
async fn follow(rig: &Rig, token: &str, node: &FakeNode, followers: usize) -> Response {
    let request = rig
        .anonymous(Method::GET, "/v1/apps/hello/logs?follow=true")
        .bearer_auth(token);
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    wait::until("the controller to follow", async || {
        match node.live.receiver_count() {
            count if count == followers => Ok(()),
            count => Err(count),
        }
    })
    .await;
    answer
}

/// The texts of a stream up to its end.
async fn rest(answer: Response) -> Vec<String> {
    let body = tokio::time::timeout(wait::PATIENCE, answer.text()).await;
    texts(&body.expect("it ends").expect("text"))
}

async fn a_reader_hears_nothing_of_another_owner(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let people = people(&rig).await;
    rig.deploy("hello", components::hello("x")).await;
    // The node goes on, as one does that has not heard yet that the app is another's.
    let node = FakeNode::start(&rig, "a", &[1]).await;
    known(&rig, 1).await;
    let reader = follow(&rig, &people.viewer, &node, 1).await;
    hello_changes_hands(&rig, &people).await;
    assert_eq!(rest(reader).await, ["a at 1"]);
    // Nor does the new owner hear what was written before.
    let at = fdn_service::now().get() + 1000;
    *node.jobs.lock().expect("not poisoned") = line("a", at);
    let read = rig.anonymous(Method::GET, "/v1/apps/hello/logs");
    let answer = read.bearer_auth(&people.outsider).send().await;
    assert_eq!(
        rest(answer.expect("an answer")).await,
        [format!("a at {at}")]
    );
}

async fn a_reader_who_may_not_look_any_more_is_cut_off(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let people = people(&rig).await;
    rig.deploy("hello", components::hello("x")).await;
    let node = FakeNode::start(&rig, "a", &[1]).await;
    known(&rig, 1).await;
    let token = api_token(&rig, &people.owner, &[Right::Look]).await;
    let mut readers = Vec::new();
    for (reader, followers) in [(&people.viewer, 1), (&people.developer, 2), (&token, 3)] {
        readers.push(follow(&rig, reader, &node, followers).await);
    }
    let mut stays = follow(&rig, &people.owner, &node, 4).await;
    let id = token.rsplit_once('_').expect("an id and a secret").0;
    let disable = serde_json::json!({ "disabled": true });
    for change in [
        rig.request(Method::DELETE, "/v1/tenants/default/members/viewer"),
        rig.request(Method::PATCH, "/v1/users/developer")
            .json(&disable),
        rig.anonymous(Method::DELETE, &format!("/v1/tokens/{id}"))
            .bearer_auth(&people.owner),
    ] {
        let answer = change.send().await.expect("an answer");
        assert!(answer.status().is_success(), "{}", answer.status());
    }
    for reader in readers {
        assert_eq!(rest(reader).await, ["a at 1"]);
    }
    node.live.send(line("a", 7)).expect("followed");
    let mut read = String::new();
    while !read.contains("a at 7") {
        let piece = tokio::time::timeout(wait::PATIENCE, stays.chunk()).await;
        let piece = piece.expect("in time").expect("goes on").expect("a piece");
        read.push_str(std::str::from_utf8(&piece).expect("text"));
    }
}

async fn a_reader_that_follows_must_come_again(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        settings.events.lifetime = DurationMs::from_millis(100);
    })
    .await;
    rig.deploy("hello", components::hello("x")).await;
    FakeNode::start(&rig, "a", &[1]).await;
    known(&rig, 1).await;
    let request = rig.request(Method::GET, "/v1/apps/hello/logs?follow=true");
    assert_eq!(
        rest(request.send().await.expect("an answer")).await,
        ["a at 1"]
    );
}
