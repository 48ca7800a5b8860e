//! `fdn calls`: its output, as golden files, and its requests.

use clap::Parser;
use fdn_cli::args::Cli;
use fdn_cli::commands::calls::Calls;
use fdn_cli::exit::Exit;
use fdn_core::usage::{CallLine, CallList, Routed, UsageOutcome};
use fdn_core::{InvocationId, MebiBytes};
use uuid::Uuid;

use crate::golden_output::check;
use crate::support::sample::{ago, parse, version};
use crate::support::{Fake, Home, Reply};

fn calls() -> CallList {
    let failed = CallLine {
        invocation: InvocationId::from_uuid(Uuid::from_u128(2)),
        app: parse("hello"),
        function: parse("hello"),
        version: version(2),
        node: parse("eu-west-1"),
        started_at: ago(5),
        outcome: UsageOutcome::FunctionError,
        status: Some(503),
        method: "GET".to_owned(),
        request: "r-2".to_owned(),
        trace: "0af7651916cd43dd8448eb211c80319c".to_owned(),
        wait_us: 50,
        start_us: 120,
        head_us: 5_300,
        total_us: 6_012,
        duration_us: 5_700,
        cpu_us: 4_100,
        memory_mib: MebiBytes(64),
        gpu_memory_mib: MebiBytes(0),
        egress_bytes: 3_000,
        routed: Routed::default(),
    };
    let left = CallLine {
        invocation: InvocationId::from_uuid(Uuid::from_u128(1)),
        node: parse("us-east-1"),
        started_at: ago(65),
        outcome: UsageOutcome::Client,
        status: None,
        ..failed.clone()
    };
    CallList {
        calls: vec![failed, left],
        more: true,
        silent: vec![parse("us-east-2")],
    }
}

#[test]
fn calls_are_printed_as_reviewed() {
    check("calls", &Calls(&calls()));
}

#[tokio::test]
async fn what_is_typed_is_what_is_asked_for() {
    let fake = Fake::start(|_, _| Reply::json(&calls())).await;
    let home = Home::logged_in(&fake.url());
    let ran = home
        .fdn(&[
            "calls",
            "hello",
            "--since",
            "2h",
            "--until",
            "1h",
            "--status",
            "5xx",
            "--outcome",
            "function_error",
            "--version",
            "v2",
            "--request",
            "r-2",
            "--trace",
            "t",
            "--limit",
            "7",
            "-o",
            "name",
        ])
        .await;
    assert_eq!(ran.exit, Exit::Ok, "{}", ran.err);
    assert_eq!(ran.out.lines().count(), 2, "{}", ran.out);
    let path = fake.requests()[0].path.clone();
    let (place, query) = path.split_once('?').expect("a question");
    assert_eq!(place, "/v1/apps/hello/calls");
    let asked: std::collections::BTreeMap<&str, &str> = query
        .split('&')
        .filter_map(|one| one.split_once('='))
        .collect();
    for (name, value) in [
        ("status", "5xx"),
        ("outcome", "function_error"),
        ("version", "2"),
        ("request", "r-2"),
        ("trace", "t"),
        ("limit", "7"),
    ] {
        assert_eq!(asked.get(name), Some(&value), "{path}");
    }
    let number = |name: &str| asked[name].parse::<u64>().expect("a moment");
    assert_eq!(number("until") - number("since"), 3_600_000);
    for wrong in [["--status", "9xx"], ["--outcome", "fine"], ["--limit", "0"]] {
        let parsed = Cli::try_parse_from(["fdn", "calls", "hello", wrong[0], wrong[1]]);
        assert!(parsed.is_err(), "{wrong:?}");
    }
}
