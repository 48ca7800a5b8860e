//! Logs of an app, gathered from nodes that are played by small servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use bytes::Bytes;
use fdn_core::api::LogLine;
use fdn_core::message::NodeStatus;
use fdn_core::{InstanceId, Timestamp};
use fdn_testkit::{components, wait};
use futures::StreamExt;
use reqwest::Method;
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;

use crate::rig::{Rig, node_at};

/// A node's admin listener that answers `/logs/{app}`.
#[derive(Clone)]
struct FakeNode {
    name: String,
    token: String,
    past: Vec<u64>,
    live: broadcast::Sender<String>,
    refused: Arc<AtomicU64>,
}

fn line(node: &str, at: u64) -> String {
    let line = LogLine {
        at: Timestamp(at),
        app: "hello".parse().expect("app"),
        function: "hello".parse().expect("function"),
        version: fdn_core::VersionNumber::FIRST,
        node: node.parse().expect("node"),
        instance: InstanceId::from_uuid(uuid::Uuid::nil()),
        request: "r".to_owned(),
        stream: fdn_core::api::LogStream::Stdout,
        text: format!("{node} at {at}"),
    };
    serde_json::to_string(&line).expect("JSON") + "\n"
}

async fn serve(request: HttpRequest, node: web::Data<FakeNode>) -> HttpResponse {
    let expected = format!("Bearer {}", node.token);
    if request
        .headers()
        .get("authorization")
        .and_then(|v| v.to_str().ok())
        != Some(&expected)
    {
        node.refused.fetch_add(1, Ordering::SeqCst);
        return HttpResponse::Unauthorized().finish();
    }
    let past: Vec<Bytes> = node
        .past
        .iter()
        .map(|at| Bytes::from(line(&node.name, *at)))
        .collect();
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
    async fn start(rig: &Rig, name: &str, past: &[u64]) -> (Self, SocketAddr) {
        let token = std::fs::read_to_string(&rig.settings.network.token_file).expect("token");
        let (live, _) = broadcast::channel(10);
        let node = Self {
            name: name.to_owned(),
            token,
            past: past.to_vec(),
            live,
            refused: Arc::default(),
        };
        let data = web::Data::new(node.clone());
        let server = HttpServer::new(move || {
            App::new()
                .app_data(data.clone())
                .route("/logs/{app}", web::get().to(serve))
        })
        .workers(1)
        .disable_signals()
        .bind("127.0.0.1:0")
        .expect("bound");
        let address = server.addrs()[0];
        tokio::spawn(server.run());
        let mut status: NodeStatus = node_at(name, "eu-west", 53.35, -6.26);
        status.admin = address;
        rig.node(status).await;
        (node, address)
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

#[tokio::test(flavor = "multi_thread")]
async fn the_last_lines_of_all_nodes_come_in_order_of_time() {
    let rig = Rig::start().await;
    rig.deploy("hello", components::hello("x")).await;
    let (a, _) = FakeNode::start(&rig, "a", &[1, 4, 5]).await;
    FakeNode::start(&rig, "b", &[2, 3, 6]).await;
    // A node that answers nothing does not hold up the others.
    let mut dead = node_at("dead", "eu-west", 53.35, -6.26);
    dead.admin = ([127, 0, 0, 1], fdn_testkit::ports::local()).into();
    rig.node(dead).await;
    known(&rig, 3).await;
    let answer = rig
        .request(Method::GET, "/v1/apps/hello/logs?tail=4")
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.headers()["content-type"], "application/x-ndjson");
    let body = answer.text().await.expect("text");
    assert_eq!(texts(&body), ["b at 3", "a at 4", "a at 5", "b at 6"]);
    assert_eq!(a.refused.load(Ordering::SeqCst), 0);
    let (_, problem) = rig
        .refused(rig.request(Method::GET, "/v1/apps/none/logs"))
        .await;
    assert_eq!(problem.code.as_str(), "FDN-2003");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_follows_hears_old_and_new_nodes() {
    let rig = Rig::start().await;
    rig.deploy("hello", components::hello("x")).await;
    let (a, _) = FakeNode::start(&rig, "a", &[1]).await;
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
    let (_b, _) = FakeNode::start(&rig, "b", &[8]).await;
    until(&["a at 1", "a at 7", "b at 8"]).await;
}
