//! The output of functions.

use fdn_core::api::LogStream;
use fdn_runtime::Limits;
use fdn_testkit::components;

use super::{call, context_with, generous};

#[tokio::test]
async fn both_streams_arrive_line_by_line() {
    let (context, log) = context_with(generous());
    call(&components::logging("one\ntwo", "oops\n"), context)
        .await
        .expect("an answer");
    let mut lines = log.lines();
    lines.sort_by_key(|(stream, _)| *stream == LogStream::Stderr);
    assert_eq!(
        lines,
        [
            (LogStream::Stdout, "one".to_owned()),
            (LogStream::Stdout, "two".to_owned()),
            (LogStream::Stderr, "oops".to_owned()),
        ]
    );
}

#[tokio::test]
async fn output_without_end_is_cut() {
    let (context, log) = context_with(Limits {
        log_total: 80,
        ..generous()
    });
    call(&components::chatty(100), context)
        .await
        .expect("an answer");
    let lines = log.lines();
    assert_eq!(lines.len(), 11, "{lines:?}");
    assert!(
        lines[..10]
            .iter()
            .all(|line| *line == (LogStream::Stdout, "1234567".to_owned()))
    );
    assert_eq!(lines[10].0, LogStream::System);
}
