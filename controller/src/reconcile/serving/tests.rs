use std::num::NonZeroU32;

use fdn_core::message::AppObserved;
use fdn_core::serving::NodeRuntime;

use super::*;
use crate::fixture;

const IMAGE: Holding = Holding::Instances(NonZeroU32::MIN);

fn name() -> AppName {
    "hello".parse().expect("app")
}

fn observed(phase: AppPhase, serves: bool) -> AppObserved {
    AppObserved {
        phase,
        serves: Some(serves),
        ..fixture::observed("hello")
    }
}

fn failed() -> AppPhase {
    AppPhase::Failed {
        reason: "the digest differs\nlong story".to_owned(),
    }
}

/// A node of a cluster, what it runs, and how far it is.
fn node(cluster: &str, runtimes: &[NodeRuntime], app: Option<AppObserved>) -> NodeStatus {
    NodeStatus {
        runtimes: Some(runtimes.iter().copied().collect()),
        apps: app.into_iter().collect(),
        ..fixture::status("n", cluster)
    }
}

fn serving(nodes: &[NodeStatus], stages: &[Holding]) -> Serving {
    let ids: Vec<ClusterId> = ["a", "b", "c"]
        .map(|id| id.parse().expect("cluster"))
        .to_vec();
    let clusters: Vec<&ClusterId> = ids.iter().collect();
    let alive: Vec<&NodeStatus> = nodes.iter().collect();
    let stages: Vec<_> = stages.iter().map(|one| (*one, MebiBytes(0))).collect();
    Phases::new(&clusters, &alive).serving(Some(&name()), &stages)
}

/// What is closed, in the order of the clusters, to clients of one stage that are sent to `previous`.
fn closed(serving: &Serving, previous: Option<usize>) -> [Option<Exclusion>; 3] {
    let previous = previous.map(|at| [ClusterIndex::new(at)]);
    let constraints = serving.constraints(previous.as_ref().map(|p| p.as_slice()));
    [0, 1, 2].map(|at| constraints.and_then(|constraints| constraints.get(0, at)))
}

/// A node of a cluster with so much GPU memory, and what it says of the app.
fn with_gpu(cluster: &str, gpu: u64, phase: Option<AppPhase>) -> NodeStatus {
    let app = phase.map(|phase| observed(phase, false));
    let mut status = node(cluster, &[NodeRuntime::Docker], app);
    status.capacity.gpu_memory_mib = MebiBytes(gpu);
    status
}

#[test]
fn who_has_no_device_is_closed_and_only_if_others_have_one_told_nothing() {
    let ids: Vec<ClusterId> = ["a", "b", "c"]
        .map(|id| id.parse().expect("cluster"))
        .into();
    let clusters: Vec<&ClusterId> = ids.iter().collect();
    let phases = |nodes: &[NodeStatus]| {
        let alive: Vec<&NodeStatus> = nodes.iter().collect();
        Phases::new(&clusters, &alive)
    };
    let without = |phases: &Phases, gpu| -> Vec<String> {
        let all = phases.without_gpu(MebiBytes(gpu)).into_iter();
        all.map(|id| id.to_string()).collect()
    };
    // Of b, one node of two has a device, and of c nothing is heard.
    let some = phases(&[
        with_gpu("a", 0, None),
        with_gpu("b", 0, None),
        with_gpu("b", 24, Some(AppPhase::Ready)),
    ]);
    let serving = some.serving(Some(&name()), &[(IMAGE, MebiBytes(16))]);
    let why = |serving: &Serving, at: usize| closed(serving, None)[at].map(|why| why.to_string());
    let told = why(&serving, 0).expect("no device");
    assert!(told.contains("16 MiB GPU memory"), "{told}");
    assert_eq!(why(&serving, 1), None);
    assert!(serving.lacking_time(None).iter().all(|at| *at != 0));
    assert_eq!(without(&some, 16), ["a"]);
    assert_eq!(without(&some, 0), [""; 0]);
    assert_eq!(without(&some, 25), ["a", "b"], "c may have it");
    let none = phases(&["a", "b", "c"].map(|id| with_gpu(id, 8, None)));
    assert_eq!(without(&none, 16), [""; 0], "each is to say what it lacks");
    let serving = none.serving(None, &[(IMAGE, MebiBytes(16))]);
    assert!((0..3).all(|at| why(&serving, at).is_some()));
}

const WASM: &[NodeRuntime] = &[NodeRuntime::Wasm];

#[test]
fn an_image_goes_only_where_a_node_runs_containers() {
    let nodes = [
        node("a", WASM, None),
        node("b", WASM, None),
        node("b", &[NodeRuntime::Wasm, NodeRuntime::Kubernetes], None),
        NodeStatus {
            runtimes: None,
            ..node("c", WASM, None)
        },
    ];
    let kind = RuntimeKind::Docker;
    let none = Some(Exclusion::NoRuntime { kind });
    for previous in [None, Some(0), Some(1)] {
        let serving = serving(&nodes, &[IMAGE]);
        assert_eq!(closed(&serving, previous), [none, None, None]);
    }
    assert!(
        serving(&nodes, &[Holding::Calls])
            .constraints(None)
            .is_none()
    );
    // Each stage for itself.
    let both = serving(&nodes, &[Holding::Calls, IMAGE]);
    let constraints = both.constraints(None).expect("a is closed to the image");
    assert_eq!((constraints.get(0, 0), constraints.get(1, 0)), (None, none));
}

#[test]
fn clients_who_are_served_are_not_sent_where_it_is_still_being_made_ready() {
    let nodes = [
        node("a", WASM, Some(observed(AppPhase::Ready, true))),
        node("b", WASM, Some(observed(AppPhase::Compiling, false))),
        node("c", WASM, None),
    ];
    let serving = serving(&nodes, &[Holding::Calls]);
    let wait = Some(Exclusion::NotReady);
    assert_eq!(closed(&serving, Some(0)), [None, wait, wait]);
    assert_eq!(closed(&serving, None), [None, wait, wait], "new clients");
    // Who is there already stays: its calls are handed on until it is ready.
    assert_eq!(closed(&serving, Some(1)), [None; 3]);
}

#[test]
fn clients_of_a_dead_or_draining_cluster_are_sent_only_where_it_is_ready() {
    let ready = node("a", WASM, Some(observed(AppPhase::Ready, true)));
    let dead = serving(std::slice::from_ref(&ready), &[Holding::Calls]);
    let drains = NodeStatus {
        draining: true,
        ..node("b", WASM, Some(observed(AppPhase::Ready, true)))
    };
    let drained = serving(&[ready, drains], &[Holding::Calls]);
    let wait = Some(Exclusion::NotReady);
    for serving in [dead, drained] {
        assert_eq!(closed(&serving, Some(1)), [None, wait, wait]);
    }
}

#[test]
fn where_nothing_serves_any_cluster_that_can_come_to_it_will_do() {
    let nodes = [
        node("a", WASM, Some(observed(failed(), false))),
        node("b", WASM, Some(observed(AppPhase::Fetching, false))),
        node("c", WASM, None),
    ];
    let serving = serving(&nodes, &[Holding::Calls]);
    let broken = Some(Exclusion::CannotServe);
    for previous in [None, Some(0), Some(1)] {
        assert_eq!(closed(&serving, previous), [broken, None, None]);
    }
}

#[test]
fn a_cluster_is_as_far_as_its_best_node() {
    let ready = || Some(observed(AppPhase::Ready, true));
    let nodes = [
        node("a", WASM, Some(observed(failed(), false))),
        node("a", WASM, ready()),
        // The revision before goes on being served.
        node("b", WASM, Some(observed(failed(), true))),
        // One has not said anything yet: it may come to it.
        node("c", WASM, Some(observed(failed(), false))),
        node("c", WASM, None),
    ];
    let all = serving(&nodes, &[Holding::Calls]);
    let wait = Some(Exclusion::NotReady);
    assert_eq!(closed(&all, Some(0)), [None, None, wait]);
    // Nodes that drain do not count, and a cluster without any other is left to that reason.
    let mut drained = nodes.clone();
    drained[1].draining = true;
    drained[2].draining = true;
    let broken = Some(Exclusion::CannotServe);
    let few = serving(&drained, &[Holding::Calls]);
    assert_eq!(closed(&few, Some(0)), [broken, None, None]);
}

#[test]
fn only_nodes_that_can_run_it_are_room_for_it() {
    let ready = || Some(observed(AppPhase::Ready, true));
    let both: &[NodeRuntime] = &[NodeRuntime::Wasm, NodeRuntime::Docker];
    let nodes = [
        // One of three nodes runs containers, with six of fourteen slots.
        node("a", WASM, ready()),
        node("a", WASM, ready()),
        NodeStatus {
            slots: 6,
            ..node("a", both, ready())
        },
        // One of two failed to make it ready.
        node("b", both, ready()),
        node("b", both, Some(observed(failed(), false))),
        node("c", both, ready()),
    ];
    let share = |stage: Holding, at: usize| {
        let serving = serving(&nodes, &[stage]);
        serving
            .constraints(None)
            .map_or(1.0, |constraints| constraints.share(0, at))
    };
    assert!((share(IMAGE, 0) - 6.0 / 14.0).abs() < 1e-9);
    assert_eq!((share(IMAGE, 1), share(IMAGE, 2)), (0.5, 1.0));
    assert_eq!(
        (share(Holding::Calls, 0), share(Holding::Calls, 1)),
        (1.0, 0.5)
    );
}

#[test]
fn rows_say_what_the_node_said() {
    let nodes = [node("b", WASM, Some(observed(failed(), false)))];
    let serving = serving(&nodes, &[Holding::Calls]);
    let row = |cluster: &str, why: Exclusion| {
        let text = why.to_string();
        let json = serde_json::json!({
            "cluster": cluster, "latency": {"rtt": 1.0, "source": "located"}, "distance": 0.5, "available": 0.0, "start": 0.5,
            "work": 1.0, "finish": 1.5, "total": 2.0, "excluded": text, "verdict": text,
        });
        serde_json::from_value::<Candidate>(json).expect("a row")
    };
    let mut rows = [
        row("b", Exclusion::CannotServe),
        row("b", Exclusion::Down),
        row("c", Exclusion::CannotServe),
    ];
    serving.annotate(&mut rows);
    let told: Vec<&str> = rows.iter().map(|row| row.verdict.as_str()).collect();
    let plain = "has no node that could make it ready";
    assert_eq!(
        told,
        [
            "has no node that could make it ready: the digest differs",
            "does not answer",
            plain
        ]
    );
    assert_eq!(rows[0].excluded.as_deref(), Some(told[0]));
}
