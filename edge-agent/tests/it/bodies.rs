//! Bodies in both directions: limits, streaming, responses without one.

use std::time::Duration;

use fdn_core::manifest::Manifest;
use fdn_core::{ByteSize, ErrorCode};
use fdn_testkit::{components, wait};
use futures::{StreamExt, stream};
use reqwest::Body;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::support::{Network, host, problem};

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_all_sizes_come_back_whole() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy("echo", 1, &components::echo(), Manifest::default())
        .await;
    for size in [0, 1, 1000, 64 << 10, (64 << 10) + 1, 3 << 20] {
        let body: Vec<u8> = (0..size)
            .map(|i| u8::try_from(i % 251).expect("small"))
            .collect();
        let answer = network
            .post(&agent, "echo", "/")
            .body(body.clone())
            .send()
            .await
            .expect("an answer");
        assert_eq!(answer.status(), 200, "{size}");
        assert!(answer.bytes().await.expect("body") == body, "{size}");
        let pieces: Vec<Result<Vec<u8>, std::io::Error>> =
            body.chunks(10_000).map(|c| Ok(c.to_vec())).collect();
        let chunked = Body::wrap_stream(stream::iter(pieces));
        let answer = network
            .post(&agent, "echo", "/")
            .body(chunked)
            .send()
            .await
            .expect("an answer");
        assert!(
            answer.bytes().await.expect("body") == body,
            "{size} in chunks"
        );
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_directions_stream_at_the_same_time() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy("echo", 1, &components::echo(), Manifest::default())
        .await;
    let (sender, receiver) = mpsc::channel::<Result<Vec<u8>, std::io::Error>>(1);
    sender.send(Ok(b"first".to_vec())).await.expect("sent");
    let body = Body::wrap_stream(ReceiverStream::new(receiver));
    let answer = network
        .post(&agent, "echo", "/")
        .body(body)
        .send()
        .await
        .expect("an answer before the request has ended");
    let mut pieces = answer.bytes_stream();
    for piece in ["first", "second", "third"] {
        if piece != "first" {
            sender
                .send(Ok(piece.as_bytes().to_vec()))
                .await
                .expect("sent");
        }
        let got = tokio::time::timeout(wait::PATIENCE, pieces.next())
            .await
            .expect("in time");
        assert_eq!(got.expect("not ended").expect("a piece"), piece);
    }
    drop(sender);
    assert!(pieces.next().await.is_none());
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_beyond_the_limit_is_refused_announced_or_not() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.gateway.body_limit = ByteSize::from_mib(2);
    let agent = network.agent(settings).await;
    let limited = Manifest {
        body_limit: ByteSize::from_bytes(1000),
        ..Manifest::default()
    };
    network
        .deploy("small", 1, &components::echo(), limited)
        .await;
    network
        .deploy(
            "node",
            1,
            &components::echo(),
            Manifest {
                body_limit: ByteSize::from_mib(400),
                ..Manifest::default()
            },
        )
        .await;
    let at_limit = network
        .post(&agent, "small", "/")
        .body(vec![0; 1000])
        .send()
        .await
        .expect("an answer");
    assert_eq!(at_limit.status(), 200);
    for (app, size) in [("small", 1001), ("node", (2 << 20) + 1)] {
        let answer = network
            .post(&agent, app, "/")
            .body(vec![0; size])
            .send()
            .await
            .expect("an answer");
        assert_eq!(problem(answer).await.code, ErrorCode::BodyTooLarge, "{app}");
    }
    let pieces: Vec<Result<Vec<u8>, std::io::Error>> = (0..20).map(|_| Ok(vec![0; 100])).collect();
    let answer = network
        .post(&agent, "small", "/")
        .body(Body::wrap_stream(stream::iter(pieces)))
        .send()
        .await;
    // Either a proper refusal or, if the echo had already begun its answer, a cut connection: never a complete answer.
    match answer {
        Ok(answer) if answer.status() == 200 => assert!(answer.bytes().await.is_err()),
        Ok(answer) => assert_eq!(problem(answer).await.code, ErrorCode::BodyTooLarge),
        Err(_) => {}
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_does_not_read_answers_all_the_same() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy(
            "hello",
            1,
            &components::hello("not interested"),
            Manifest::default(),
        )
        .await;
    for _ in 0..3 {
        let answer = network
            .post(&agent, "hello", "/")
            .body(vec![0; 200 << 10])
            .send()
            .await
            .expect("an answer");
        assert_eq!(answer.text().await.expect("text"), "not interested");
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_without_a_body_leave_the_connection_usable() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy("nothing", 1, &components::status(204), Manifest::default())
        .await;
    network
        .deploy("same", 1, &components::status(304), Manifest::default())
        .await;
    network
        .deploy("teapot", 1, &components::status(418), Manifest::default())
        .await;
    network
        .deploy("broken", 1, &components::status(500), Manifest::default())
        .await;
    for _ in 0..3 {
        for (app, status, body) in [
            ("nothing", 204, ""),
            ("same", 304, ""),
            ("teapot", 418, "status"),
            ("broken", 500, "status"),
        ] {
            let answer = network
                .get(&agent, app, "/")
                .send()
                .await
                .expect("an answer");
            assert_eq!(answer.status().as_u16(), status);
            assert!(
                !answer.headers().contains_key("x-fdn-error"),
                "the function's own answer"
            );
            assert_eq!(answer.text().await.expect("text"), body);
        }
    }
    let of = |outcome: &str, app: &str| {
        format!(
            "fdn_agent_requests_total{{app=\"{app}\",node=\"eu-west-1\",outcome=\"{outcome}\"}}"
        )
    };
    assert_eq!(network.metric(&agent, &of("ok", "teapot")).await, Some(3.0));
    assert_eq!(
        network
            .metric(&agent, &of("function_error", "broken"))
            .await,
        Some(3.0)
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_ends_its_call() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let patient = Manifest {
        timeout: fdn_core::DurationMs::from_secs(120),
        ..Manifest::default()
    };
    let mut settings = network.settings("eu-west-2");
    settings.apps.warm_call = false;
    let other = network.agent(settings).await;
    network
        .deploy("sleeper", 1, &components::sleeping(100_000), patient)
        .await;
    let call = network
        .get(&other, "sleeper", "/")
        .timeout(Duration::from_secs(60))
        .send();
    let call = tokio::spawn(call);
    let busy = async || {
        network
            .metric(&other, "fdn_agent_calls_busy")
            .await
            .unwrap_or(-1.0)
    };
    wait::until("the call to run", async || {
        if busy().await >= 1.0 {
            Ok(())
        } else {
            Err("not yet")
        }
    })
    .await;
    call.abort();
    wait::until("the call to end", async || {
        if busy().await < 1.0 {
            Ok(())
        } else {
            Err("still")
        }
    })
    .await;
    other.stop().await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_holds_its_call_until_the_timeout_only() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.apps.warm_call = false;
    let agent = network.agent(settings).await;
    let brief = Manifest {
        timeout: fdn_core::DurationMs::from_secs(3),
        // More than the buffers of a connection take.
        response_limit: ByteSize::from_mib(256),
        ..Manifest::default()
    };
    network
        .deploy("endless", 1, &components::endless_body(), brief)
        .await;
    let mut client = TcpStream::connect(agent.gateway_address())
        .await
        .expect("a connection");
    let request = format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", host("endless"));
    client.write_all(request.as_bytes()).await.expect("sent");
    let ended =
        r#"fdn_agent_requests_total{app="endless",node="eu-west-1",outcome="function_ended"}"#;
    wait::until("the call to end", async || {
        let ended = network.metric(&agent, ended).await;
        let busy = network.metric(&agent, "fdn_agent_calls_busy").await;
        match (ended, busy) {
            (Some(1.0), Some(0.0)) => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    drop(client);
    agent.stop().await;
}
