//! `GET /logs/{app}` of a controller.

use fdn_core::api::{LogLine, LogStream};
use fdn_core::manifest::Manifest;
use fdn_testkit::{components, wait};
use futures::StreamExt;

use crate::misbehaviour::log;
use crate::support::Network;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_function_writes_is_kept_with_its_request() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy(
            "chat",
            3,
            &components::logging("to out\n", "to err\n"),
            Manifest::default(),
        )
        .await;
    let answer = network
        .get(&agent, "chat", "/")
        .header("x-request-id", "r-1")
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 200);
    let lines = wait::until("both lines", async || {
        let lines: Vec<LogLine> = log(&network, &agent, "chat")
            .await
            .into_iter()
            .filter(|l| l.request == "r-1")
            .collect();
        if lines.len() == 2 {
            Ok(lines)
        } else {
            Err(format!("{lines:?}"))
        }
    })
    .await;
    assert_eq!(
        (lines[0].stream, lines[0].text.as_str()),
        (LogStream::Stdout, "to out")
    );
    assert_eq!(
        (lines[1].stream, lines[1].text.as_str()),
        (LogStream::Stderr, "to err")
    );
    for line in &lines {
        assert_eq!(
            (
                line.node.as_str(),
                line.version.get(),
                line.function.as_str()
            ),
            ("eu-west-1", 3, "chat")
        );
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_sees_lines_as_they_come_and_ends_with_the_agent() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy(
            "chat",
            1,
            &components::logging("hello\n", ""),
            Manifest::default(),
        )
        .await;
    network.until_text(&agent, "chat", "logged").await;
    let answer = network
        .ask(&agent, "/logs/chat?follow=true&tail=0")
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.headers()["content-type"], "application/x-ndjson");
    let mut pieces = answer.bytes_stream();
    for n in 0..3 {
        let id = format!("follow-{n}");
        network
            .get(&agent, "chat", "/")
            .header("x-request-id", &id)
            .send()
            .await
            .expect("an answer");
        let piece = tokio::time::timeout(wait::PATIENCE, pieces.next())
            .await
            .expect("in time");
        let piece = piece.expect("not ended").expect("a piece");
        let line: LogLine = serde_json::from_slice(&piece).expect("a line");
        assert_eq!(
            (line.request.as_str(), line.text.as_str()),
            (id.as_str(), "hello")
        );
    }
    agent.stop().await;
    let rest = async {
        while let Some(Ok(piece)) = pieces.next().await {
            assert!(piece.is_empty(), "{piece:?}");
        }
    };
    tokio::time::timeout(wait::PATIENCE, rest)
        .await
        .expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_told_is_said() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    for (target, status) in [
        ("/logs/hello", 404),
        ("/logs/hello?tail=x", 400),
        ("/logs/hello?more=1", 400),
        ("/calls/hello?limit=x", 400),
        ("/else", 404),
    ] {
        let answer = network.ask(&agent, target).send().await;
        assert_eq!(answer.expect("an answer").status(), status, "{target}");
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_are_bounded() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.logs.followers = 1;
    let agent = network.agent(settings).await;
    network
        .deploy(
            "chat",
            1,
            &components::logging("hello\n", ""),
            Manifest::default(),
        )
        .await;
    network.until_text(&agent, "chat", "logged").await;
    let follow = || network.ask(&agent, "/logs/chat?follow=true").send();
    let first = follow().await.expect("an answer");
    assert_eq!(first.status(), 200);
    assert_eq!(follow().await.expect("an answer").status(), 429);
    drop(first);
    wait::until("the place to be free", async || match follow().await {
        Ok(answer) if answer.status() == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    agent.stop().await;
}
