//! Calls joined by hand.

use uuid::Uuid;

use super::*;
use crate::api::{BindingInfo, StoredPlan};
use crate::id::{InvocationId, VersionNumber};
use crate::predicted::StageCompared;
use crate::runs::RunStatus;
use crate::unit::MebiBytes;
use crate::usage::{CallFacts, CallRecord, Routed, UsageOutcome, UsageRecord};

fn call(node: &str, at: u64, trace: &str, routed: Routed) -> CallLine {
    let used = UsageRecord {
        invocation: InvocationId::from_uuid(Uuid::from_u128(u128::from(at))),
        app: "hello".parse().expect("app"),
        function: "hello".parse().expect("function"),
        version: VersionNumber::FIRST,
        started_at: Timestamp(at),
        duration_us: 5_000,
        cpu_us: 4_000,
        memory_mib: MebiBytes(64),
        gpu_memory_mib: MebiBytes(0),
        egress_bytes: 10,
        outcome: UsageOutcome::Ok,
    };
    let facts = CallFacts {
        request: "r".to_owned(),
        trace: trace.to_owned(),
        wait_us: 250,
        start_us: 500,
        head_us: 4_500,
        total_us: 6_000,
        routed,
        ..CallFacts::default()
    };
    let record = CallRecord {
        used,
        call: Some(facts),
        noted: None,
    };
    CallLine::new(node.parse().expect("node"), record)
}

fn by(revision: u64) -> Routed {
    Routed {
        revision: Some(Revision(revision)),
        client: Some("192.0.2.0/24".parse().expect("prefix")),
        ..Routed::default()
    }
}

/// `eu-1` is of `eu`; one that is dead has none.
fn cluster_of(node: &NodeId) -> Option<ClusterId> {
    let (cluster, _) = node.as_str().split_once('-')?;
    (cluster != "dead").then(|| cluster.parse().expect("cluster"))
}

fn explained(cluster: &str, planned_at: u64) -> Explanation {
    let compared = |predicted: f64| Compared {
        predicted: Millis::new(predicted),
        actual: None,
    };
    Explanation {
        app: "hello".parse().expect("app"),
        client: "192.0.2.0/24".parse().expect("client"),
        chosen: None,
        reason: String::new(),
        bound: Some(BindingInfo {
            prefix: "192.0.2.0/24".parse().expect("prefix"),
            cluster: cluster.parse().expect("cluster"),
            revision: Revision(6),
        }),
        candidates: Vec::new(),
        stages: Vec::new(),
        plan: Some(StoredPlan {
            group: "g".to_owned(),
            revision: Revision(6),
            planned_at: Timestamp(planned_at),
            reason: "no plan before".to_owned(),
            candidates: Vec::new(),
            stages: std::collections::BTreeMap::new(),
        }),
        actual: vec![StageCompared {
            stage: "hello".parse().expect("stage"),
            cluster: cluster.parse().expect("cluster"),
            calls: 1,
            way: None,
            queue: compared(1.0),
            execution: compared(10.0),
            correction: 1.0,
            error: None,
        }],
        forms: Vec::new(),
    }
}

fn joined(
    calls: Vec<CallLine>,
    told: u64,
    run: Option<RunInfo>,
    why: Option<Explanation>,
) -> CallTrace {
    let chosen = TraceCalls::newest(calls).expect("a call");
    join(
        chosen,
        TraceSources {
            app: "hello".parse().expect("app"),
            cluster_of,
            told: PresentRevisions {
                nodes: Revision(told),
                dns: Revision(told),
            },
            run,
            explained: why,
            silent: Vec::new(),
        },
    )
}

#[test]
fn a_call_by_what_holds_now_differs_in_nothing() {
    let told = joined(
        vec![call("eu-1", 100, "t", by(6))],
        6,
        None,
        Some(explained("eu", 50)),
    );
    assert_eq!(told.differs, [""; 0]);
    assert_eq!((told.request.as_str(), told.others), ("r", 0));
    assert_eq!(
        told.client.map(|c| c.to_string()).as_deref(),
        Some("192.0.2.0/24")
    );
    assert_eq!(told.gateway.node.as_str(), "eu-1");
    assert_eq!(told.started_at(), Timestamp(100));
    let predicted = told.calls[0].predicted.expect("there is a plan for it");
    assert_eq!(predicted.queue.actual, Some(Millis::new(0.25)));
    assert_eq!(predicted.execution.predicted, Millis::new(10.0));
    assert_eq!(predicted.execution.actual, Some(Millis::new(5.0)));
    assert_eq!(told.calls[0].call.rest_us(), 750);
}

#[test]
fn a_call_by_an_older_plan_says_in_what() {
    let left = Routed {
        plan_use: PlanUse::Leaving,
        ..by(5)
    };
    let told = joined(
        vec![call("eu-1", 100, "t", left)],
        6,
        None,
        Some(explained("us", 150)),
    );
    let expected = [
        "it was served by revision 5, and nodes are told 6 now",
        "no plan sent anybody to its cluster any more: it came by an older DNS answer",
        "it came to eu, and clients in 192.0.2.0/24 are sent to us since revision 6",
        "the plan of revision 6 was made after it",
    ];
    assert_eq!(told.differs, expected);
    assert_eq!(told.calls[0].predicted, None, "the plan says nothing of eu");
}

#[test]
fn a_call_that_was_handed_on_came_to_another_gateway() {
    let handed = Routed {
        via: Some("eu-2".parse().expect("node")),
        ..by(6)
    };
    let told = joined(vec![call("us-1", 100, "t", handed)], 6, None, None);
    assert_eq!(told.gateway.node.as_str(), "eu-2");
    assert_eq!(told.gateway.cluster, cluster_of(&told.gateway.node));
    assert_eq!(
        told.calls[0].cluster.as_ref().map(ClusterId::as_str),
        Some("us")
    );
    let dead = joined(vec![call("dead-1", 100, "t", by(6))], 6, None, None);
    assert_eq!((dead.gateway.cluster, dead.differs.len()), (None, 0));
}

#[test]
fn the_stages_of_a_run_stand_in_order_with_the_gateway_that_led_it() {
    let stage = |name: &str, revision: u64| Routed {
        stage: Some(name.parse().expect("stage")),
        ..by(revision)
    };
    let run = RunInfo {
        run: crate::id::RunId::from_uuid(Uuid::from_u128(1)),
        request: "r".to_owned(),
        app: "hello".parse().expect("app"),
        revision: Revision(7),
        node: "eu-9".parse().expect("node"),
        cluster: "eu".parse().expect("cluster"),
        started_at: Timestamp(99),
        ended_at: None,
        status: RunStatus::Answered,
        stages: Vec::new(),
        changes: 0,
    };
    let old = RunInfo {
        started_at: Timestamp(1),
        ..run.clone()
    };
    let calls = vec![
        call("us-1", 120, "t", stage("b", 7)),
        call("eu-1", 100, "t", stage("hello", 6)),
    ];
    let chosen = TraceCalls::newest(calls.clone()).expect("calls");
    let run = chosen.run(vec![old, run]);
    assert_eq!(run.as_ref().map(|run| run.started_at), Some(Timestamp(99)));
    let told = joined(calls, 7, run, Some(explained("eu", 50)));
    assert_eq!(told.gateway.node.as_str(), "eu-9");
    let order: Vec<&str> = told.calls.iter().map(|c| c.call.node.as_str()).collect();
    assert_eq!(order, ["eu-1", "us-1"]);
    assert!(told.calls[0].predicted.is_some() && told.calls[1].predicted.is_none());
    let expected = [
        "it was served by different revisions: 6, 7",
        "it was served by revision 6, and nodes are told 7 now",
    ];
    assert_eq!(told.differs, expected);
}

#[test]
fn an_id_that_was_used_twice_means_its_newest_trace() {
    assert_eq!(TraceCalls::newest(Vec::new()), None);
    let told = joined(
        vec![
            call("eu-1", 100, "old", Routed::default()),
            call("eu-1", 300, "new", Routed::default()),
            call("eu-1", 200, "older", Routed::default()),
        ],
        6,
        None,
        None,
    );
    assert_eq!((told.trace.as_str(), told.others), ("new", 2));
    assert_eq!(told.client, None);
    assert_eq!(
        told.differs,
        ["a node of an earlier release served it and kept no revision"]
    );
    let json = serde_json::to_string(&told).expect("JSON");
    assert_eq!(
        serde_json::from_str::<CallTrace>(&json).expect("read"),
        told
    );
}
