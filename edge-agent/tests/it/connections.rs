//! Clients' connections: those on which nothing happens are closed, and what one HTTP/2 connection may do is limited.

use std::time::Duration;

use fdn_core::manifest::Manifest;
use fdn_core::{DurationMs, ErrorCode};
use fdn_edge_agent::{Agent, Settings};
use fdn_testkit::{components, wait};
use reqwest::{Body, Version};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;

use crate::support::{Network, host, http2_client, problem};

/// The time for what the node does by itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// A node that keeps idle connections only for this time and then a second for a head.
fn brief(network: &Network, keep_alive: DurationMs) -> Settings {
    let mut settings = network.settings("eu-west-1");
    settings.gateway.keep_alive = keep_alive;
    settings.gateway.head_timeout = DurationMs::from_secs(1);
    settings.apps.warm_call = false;
    settings
}

async fn until_busy(network: &Network, agent: &Agent, calls: f64) {
    wait::until("calls to run", async || {
        match network.metric(agent, "fdn_agent_calls_busy").await {
            Some(busy) if busy == calls => Ok(()),
            busy => Err(format!("{busy:?} of {calls}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_second_head_does_not_hold_a_connection() {
    let network = Network::start().await;
    let settings = brief(&network, DurationMs::from_secs(2));
    let agent = network.agent(settings).await;
    network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    let mut client = TcpStream::connect(agent.gateway_address())
        .await
        .expect("a connection");
    // Held until the app is ready, which is no idle time.
    let request = format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", host("hello"));
    client.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains("\r\n\r\nhi") {
        let read = client.read_buf(&mut answer).await.expect("an answer");
        let seen = String::from_utf8_lossy(&answer);
        assert!(read > 0, "closed before the whole answer: {seen}");
    }
    client.write_all(b"G").await.expect("sent");
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, client.read_to_end(&mut rest)).await;
    // Where the test is late, the connection is closed before this byte, which then meets a closed one.
    if let Err(error) = ended.expect("in time") {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_begins_no_request_does_not_hold_a_connection() {
    let network = Network::start().await;
    let settings = brief(&network, DurationMs::from_secs(2));
    let agent = network.agent(settings).await;
    // Nothing at all, and a part of what an HTTP/2 client sends first.
    for begun in ["", "PRI * "] {
        let mut client = TcpStream::connect(agent.gateway_address())
            .await
            .expect("a connection");
        client.write_all(begun.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        let ended = timeout(PATIENCE, client.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "open after {begun:?}");
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_call_runs_is_not_idle() {
    let network = Network::start().await;
    let settings = brief(&network, DurationMs::from_millis(300));
    let agent = network.agent(settings).await;
    network
        .deploy("echo", 1, &components::echo(), Manifest::default())
        .await;
    let (pieces, body) = mpsc::channel::<Result<&'static str, std::io::Error>>(1);
    let body = Body::wrap_stream(ReceiverStream::new(body));
    let call = tokio::spawn(network.post(&agent, "echo", "/").body(body).send());
    pieces.send(Ok("first ")).await.expect("taken");
    until_busy(&network, &agent, 1.0).await;
    // Longer than a connection without a call is kept.
    sleep(Duration::from_secs(2)).await;
    pieces.send(Ok("second")).await.expect("taken");
    drop(pieces);
    let answer = call.await.expect("no panic").expect("an answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.text().await.expect("whole"), "first second");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_http2_connection_runs_only_so_many_calls() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.gateway.streams = 2.try_into().expect("more than none");
    settings.apps.warm_call = false;
    let agent = network.agent(settings).await;
    network
        .deploy("echo", 1, &components::echo(), Manifest::default())
        .await;
    let client = http2_client(&agent, &["echo"]);
    let url = format!(
        "http://{}:{}/",
        host("echo"),
        agent.gateway_address().port()
    );
    let mut running = Vec::new();
    for _ in 0..2 {
        let (pieces, body) = mpsc::channel::<Result<&'static str, std::io::Error>>(1);
        let body = Body::wrap_stream(ReceiverStream::new(body));
        let call = tokio::spawn(client.post(&url).body(body).send());
        pieces.send(Ok("whole")).await.expect("taken");
        running.push((pieces, call));
    }
    until_busy(&network, &agent, 2.0).await;
    let refused = client.get(&url).send().await.expect("an answer");
    assert_eq!(
        (refused.version(), refused.status().as_u16()),
        (Version::HTTP_2, 503)
    );
    assert_eq!(problem(refused).await.code, ErrorCode::Overloaded);
    for (pieces, call) in running {
        drop(pieces);
        let answer = call.await.expect("no panic").expect("an answer");
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.text().await.expect("a body"), "whole");
    }
    until_busy(&network, &agent, 0.0).await;
    let answer = client.get(&url).send().await.expect("an answer");
    assert_eq!(answer.status(), 200, "there is room again");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_ends_when_its_http2_client_leaves() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.apps.warm_call = false;
    let agent = network.agent(settings).await;
    let patient = Manifest {
        timeout: DurationMs::from_secs(600),
        ..Manifest::default()
    };
    network
        .deploy("waits", 1, &components::waiting(), patient)
        .await;
    let port = agent.gateway_address().port();
    let url = format!("http://{}:{port}/600000", host("waits"));
    let left = r#"fdn_agent_requests_total{app="waits",node="eu-west-1",outcome="client"}"#;
    // First only the stream is reset, then the connection is closed.
    for (closes, count) in [(false, 1.0), (true, 2.0)] {
        let client = http2_client(&agent, &["waits"]);
        // With a body, and with an empty one.
        let body = if closes { "" } else { "a body" };
        let call = tokio::spawn(client.post(&url).body(body).send());
        until_busy(&network, &agent, 1.0).await;
        let kept = (!closes).then_some(client);
        call.abort();
        until_busy(&network, &agent, 0.0).await;
        wait::until("the calls to be counted", async || {
            match network.metric(&agent, left).await {
                Some(seen) if seen == count => Ok(()),
                seen => Err(format!("{seen:?} of {count}")),
            }
        })
        .await;
        drop(kept);
    }
    agent.stop().await;
}
