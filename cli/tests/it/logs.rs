//! `fdn logs`: following despite broken connections.

use fdn_cli::exit::Exit;
use fdn_core::api::{LogLine, LogStream};
use fdn_core::{ErrorCode, InstanceId, Timestamp};
use uuid::Uuid;

use crate::support::{End, Fake, Home, Reply, sample};

fn line(node: &str, at: u64, text: &str) -> String {
    let line = LogLine {
        at: Timestamp(at),
        app: sample::parse("hello"),
        function: sample::parse("hello"),
        version: sample::version(2),
        node: sample::parse(node),
        instance: InstanceId::from_uuid(Uuid::from_u128(1)),
        request: "r".into(),
        stage: None,
        stream: LogStream::Stdout,
        text: text.into(),
    };
    serde_json::to_string(&line).expect("a line")
}

#[tokio::test]
async fn the_past_is_printed_and_the_command_ends() {
    let fake = Fake::start(|_, _| {
        let lines = vec![
            line("eu-west-1", 1000, "one"),
            String::new(),
            line("us-east-1", 2000, "two"),
        ];
        Reply::Lines(lines, End::Well)
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let ran = home.fdn(&["logs", "hello", "--tail", "7"]).await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    assert_eq!(
        ran.out,
        "1970-01-01T00:00:01.000Z eu-west-1 v2 one\n1970-01-01T00:00:02.000Z us-east-1 v2 two\n"
    );
    assert_eq!(
        fake.requests()[0].path,
        "/v1/apps/hello/logs?follow=false&tail=7"
    );
    let json = home.fdn(&["logs", "hello", "-o", "json"]).await;
    assert_eq!(
        json.out,
        format!(
            "{}\n{}\n",
            line("eu-west-1", 1000, "one"),
            line("us-east-1", 2000, "two")
        )
    );
}

#[tokio::test]
async fn the_lines_of_a_job_are_printed() {
    let fake = Fake::start(|_, _| {
        let lines = vec![
            line("eu-west-1", 1000, "one"),
            line("us-east-1", 2000, "two"),
        ];
        Reply::Lines(lines, End::Well)
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let job = "job_00000000000070008000000000000001";
    let ran = home.fdn(&["job", "logs", job, "--tail", "7"]).await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    assert_eq!(
        ran.out,
        "1970-01-01T00:00:01.000Z eu-west-1 one\n1970-01-01T00:00:02.000Z us-east-1 two\n"
    );
    assert_eq!(
        fake.requests()[0].path,
        format!("/v1/jobs/{job}/logs?tail=7")
    );
}

#[tokio::test]
async fn following_goes_on_after_a_loss_without_repeating_or_missing_a_line() {
    let fake = Fake::start(|_, before| match before {
        0 => Reply::Lines(
            vec![line("a", 10, "1"), line("a", 11, "2"), line("b", 11, "x")],
            End::Cut,
        ),
        1 => Reply::problem(ErrorCode::DatabaseFailed, "not now"),
        2 => Reply::Lines(
            vec![
                line("a", 5, "older"),
                line("a", 10, "1"),
                line("a", 11, "2"),
                line("b", 11, "x"),
                line("a", 12, "3"),
            ],
            End::Well,
        ),
        3 => Reply::Lines(vec![line("a", 12, "3"), line("b", 13, "y")], End::Cut),
        _ => Reply::problem(ErrorCode::NotFound, "hello was deleted"),
    })
    .await;
    let ran = Home::logged_in(&fake.url())
        .fdn(&["logs", "hello", "-f"])
        .await;
    let texts: Vec<&str> = ran
        .out
        .lines()
        .filter_map(|l| l.rsplit(' ').next())
        .collect();
    assert_eq!(texts, ["1", "2", "x", "3", "y"], "{ran:?}");
    assert_eq!(ran.exit, Exit::NotFound, "a deleted app ends it: {ran:?}");
    assert!(ran.err.contains("connecting again"), "{}", ran.err);
    assert_eq!(
        fake.requests()[0].path,
        "/v1/apps/hello/logs?follow=true&tail=100"
    );
}

#[tokio::test]
async fn an_app_that_does_not_exist_is_an_error_at_once() {
    let fake =
        Fake::start(|_, _| Reply::problem(ErrorCode::NotFound, "there is no app hello")).await;
    let ran = Home::logged_in(&fake.url())
        .fdn(&["logs", "hello", "-f"])
        .await;
    assert_eq!(ran.exit, Exit::NotFound);
    assert_eq!(fake.requests().len(), 1);
}
