//! `fdn trace`: its output, as golden files, and its requests.

use fdn_cli::commands::trace::TraceReport;
use fdn_cli::exit::Exit;
use fdn_core::runs::{AttemptOutcome, RunAttempt, RunInfo, RunStage, RunStatus};
use fdn_core::trace::{CallTrace, PresentRevisions, TraceCalls, TraceSources, join};
use fdn_core::usage::{CallLine, PlanUse, Routed, UsageOutcome};
use fdn_core::{ClusterId, ErrorCode, InvocationId, MebiBytes, NodeId, Revision, RunId, StageName};
use uuid::Uuid;

use crate::golden_output::check;
use crate::support::plans::explanation;
use crate::support::sample::{ago, parse, summary, version};
use crate::support::{Fake, Home, Reply};

fn line(id: u128, node: &str, routed: Routed) -> CallLine {
    CallLine {
        invocation: InvocationId::from_uuid(Uuid::from_u128(id)),
        app: parse("hello"),
        function: parse("hello"),
        version: version(2),
        node: parse(node),
        started_at: ago(5),
        outcome: UsageOutcome::Ok,
        status: Some(200),
        method: "GET".to_owned(),
        request: "r-2".to_owned(),
        trace: "0af7651916cd43dd8448eb211c80319c".to_owned(),
        wait_us: 250,
        start_us: 1_120,
        head_us: 11_300,
        total_us: 13_012,
        duration_us: 12_700,
        cpu_us: 9_100,
        memory_mib: MebiBytes(64),
        gpu_memory_mib: MebiBytes(0),
        egress_bytes: 3_000,
        routed,
    }
}

fn by(revision: u64) -> Routed {
    Routed {
        revision: Some(Revision(revision)),
        client: Some(parse("203.0.113.0/24")),
        ..Routed::default()
    }
}

/// The cluster in a node's name, before the last hyphen.
fn cluster_of(node: &NodeId) -> Option<ClusterId> {
    let (cluster, _) = node.as_str().rsplit_once('-')?;
    Some(parse(cluster))
}

fn traced(calls: Vec<CallLine>, run: Option<RunInfo>, silent: &[&str]) -> CallTrace {
    let chosen = TraceCalls::newest(calls).expect("a call");
    let sources = TraceSources {
        app: parse("hello"),
        cluster_of,
        told: PresentRevisions {
            nodes: Revision(6),
            dns: Revision(8),
        },
        run,
        explained: Some(explanation()),
        silent: silent.iter().map(|node| parse(node)).collect(),
    };
    join(chosen, sources)
}

/// A call that arrived at a cluster that its clients are leaving, and was forwarded to the one that they are sent to now.
fn handed_on() -> CallTrace {
    let routed = Routed {
        plan_use: PlanUse::Leaving,
        via: Some(parse("eu-west-1")),
        ..by(5)
    };
    let older = CallLine {
        trace: "another".to_owned(),
        started_at: ago(60),
        ..line(1, "eu-west-1", by(5))
    };
    let calls = vec![older, line(2, "ap-south-1", routed)];
    traced(calls, None, &["us-east-2"])
}

/// A workflow of two stages in two clusters.
fn workflow() -> CallTrace {
    let attempt = |n: u32, cluster: &str, outcome: AttemptOutcome| RunAttempt {
        attempt: n,
        cluster: parse(cluster),
        node: Some(parse(&format!("{cluster}-1"))),
        started_at: ago(5),
        ended_at: Some(ago(4)),
        outcome,
        reason: (outcome == AttemptOutcome::Lost).then(|| "the connection broke".to_owned()),
        output_bytes: Some(12),
    };
    let stage = |name: &str, attempts: Vec<RunAttempt>| RunStage {
        stage: parse(name),
        attempts,
    };
    let run = RunInfo {
        run: RunId::from_uuid(Uuid::from_u128(7)),
        request: "r-2".to_owned(),
        app: parse("hello"),
        revision: Revision(6),
        node: parse("ap-south-1"),
        cluster: parse("ap-south"),
        started_at: ago(5),
        ended_at: Some(ago(3)),
        status: RunStatus::Answered,
        stages: vec![
            stage("hello", vec![attempt(1, "ap-south", AttemptOutcome::Done)]),
            stage(
                "resize",
                vec![
                    attempt(1, "us-east", AttemptOutcome::Lost),
                    attempt(2, "eu-west", AttemptOutcome::Done),
                ],
            ),
        ],
        changes: 3,
    };
    let of = |stage: &str| {
        let stage: StageName = parse(stage);
        Routed {
            stage: Some(stage),
            ..by(6)
        }
    };
    let calls = vec![
        line(1, "ap-south-1", of("hello")),
        line(2, "eu-west-1", of("resize")),
    ];
    traced(calls, Some(run), &[])
}

#[test]
fn traces_are_printed_as_reviewed() {
    check("trace", &TraceReport(&handed_on()));
    check("trace-workflow", &TraceReport(&workflow()));
}

#[tokio::test]
async fn the_app_need_not_be_known_and_who_has_no_such_call_is_passed_over() {
    let fake = Fake::start(|request, _| {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        match (path, query) {
            ("/v1/apps", _) => Reply::json(&[summary("thumbs"), summary("hello")]),
            ("/v1/apps/hello/calls/trace", "request=r-2") => Reply::json(&handed_on()),
            ("/v1/apps/hello/calls/trace", "request=r-2&client=192.0.2.7%2F32") => {
                Reply::json(&workflow())
            }
            (other, _) => Reply::problem(ErrorCode::NotFound, &format!("{other}: nowhere")),
        }
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let found = home.fdn(&["trace", "r-2", "-o", "name"]).await;
    assert_eq!((found.exit, found.out.lines().count()), (Exit::Ok, 1));
    let asked: Vec<String> = fake.requests().iter().map(|r| r.path.clone()).collect();
    let expected = [
        "/v1/apps",
        "/v1/apps/thumbs/calls/trace?request=r-2",
        "/v1/apps/hello/calls/trace?request=r-2",
    ];
    assert_eq!(asked, expected);
    let named = [
        "trace",
        "r-2",
        "--app",
        "hello",
        "--client",
        "192.0.2.7",
        "-o",
        "name",
    ];
    let named = home.fdn(&named).await;
    assert_eq!((named.exit, named.out.lines().count()), (Exit::Ok, 2));
    let absent = home.fdn(&["trace", "r-9"]).await;
    assert_eq!(absent.exit, Exit::NotFound);
    assert!(
        absent.err.contains("/v1/apps/hello/calls/trace: nowhere"),
        "{}",
        absent.err
    );
}
