//! `explain` compared with a computation by hand.
//!
//! One client, 203.0.113.0/24, with measured round trips; one stage of 20 ms of work at speed 1.
//!
//! | cluster | nodes | round trip | d = rtt / 2 | avail | EST = max(avail, d) | w = 20 / theta | EFT = EST + w | total = EFT + d |
//! | --- | --- | --- | --- | --- | --- | --- | --- | --- |
//! | ap-south | 1, theta 1, 2 slots, both busy, 200 ms of work queued | 20 | 10 | 200 / 1 / 2 - 20 / 2 = 90 | 90 | 20 | 110 | 120 |
//! | eu-west | 2, theta 2, idle | 80 | 40 | 0 | 40 | 10 | 50 | 90 |
//! | us-east | 1, theta 4, idle | 120 | 60 | 0 | 60 | 5 | 65 | 125 |
//!
//! What waits counts as the mean wait of calls that come within the planner's horizon, here 20 ms: half of that less for a queue that lasts longer.
//!
//! So eu-west wins with 90 ms: 30 ms ahead of ap-south, whose queue outweighs its nearness, and 35 ms ahead of us-east, whose speed does not
//! outweigh its distance.

use fdn_core::api::{Candidate, DeployResponse, Explanation, NodeInfo};
use fdn_core::device::{DeviceKind, DeviceState, DeviceStatus};
use fdn_core::latency::LatencySource;
use fdn_core::message::{
    AppObserved, AppPhase, DemandReport, Holders, Message, NodeStatus, RttReport,
};
use fdn_core::phases::PhaseTimes;
use fdn_core::preview::PlanPreview;
use fdn_core::serving::NodeRuntime;
use fdn_core::{DurationMs, MebiBytes, Millis, NodeId, Revision};
use fdn_testkit::{components, wait};
use reqwest::Method;

use crate::rig::{Backend, Rig, node_at, on_both};

on_both!(
    it_agrees_with_a_computation_by_hand,
    a_binding_is_kept_until_the_gain_passes_the_margin,
    a_cluster_that_cannot_serve_it_says_why,
    a_cluster_without_the_device_is_told_nothing_of_it,
    what_calls_took_stands_beside_what_is_predicted,
    when_no_cluster_can_take_it_each_says_why,
);

const CLIENT: &str = "203.0.113.7";

async fn measured(rig: &Rig, cluster: &str, rtt: f64) {
    let report = RttReport {
        cluster: cluster.parse().expect("cluster"),
        node: "measuring".parse::<NodeId>().expect("node"),
        samples: vec![(
            "203.0.113.0/24".parse().expect("prefix"),
            Millis::new(rtt),
            3,
        )],
        links: Vec::new(),
    };
    rig.report(Message::RttReport(report));
}

fn eu(node: &str) -> NodeStatus {
    NodeStatus {
        speed: 2.0,
        ..node_at(node, "eu-west", 53.35, -6.26)
    }
}

fn ap(queued: f64) -> NodeStatus {
    let busy = if queued > 0.0 { 2 } else { 0 };
    NodeStatus {
        slots: 2,
        busy,
        queued_work: Millis::new(queued),
        ..node_at("ap-1", "ap-south", 19.08, 72.88)
    }
}

async fn explanation(rig: &Rig) -> Explanation {
    rig.get(&format!("/v1/apps/hello/explain?client={CLIENT}"))
        .await
}

/// Waits until `holds` is true of the explanation.
async fn until(rig: &Rig, what: &str, holds: impl Fn(&Explanation) -> bool) -> Explanation {
    wait::until(what, async || {
        let found = explanation(rig).await;
        if holds(&found) {
            Ok(found)
        } else {
            Err(format!("{found:#?}"))
        }
    })
    .await
}

async fn network(backend: Backend) -> Rig {
    let rig = Rig::start_with(backend, |settings| {
        settings.geo.locations.clear();
        settings.planner.horizon = DurationMs::from_millis(20);
    })
    .await;
    for status in [
        eu("eu-1"),
        eu("eu-2"),
        ap(200.0),
        NodeStatus {
            speed: 4.0,
            ..node_at("us-1", "us-east", 39.04, -77.49)
        },
    ] {
        rig.node(status).await;
    }
    for (cluster, rtt) in [("ap-south", 20.0), ("eu-west", 80.0), ("us-east", 120.0)] {
        measured(&rig, cluster, rtt).await;
    }
    let request = rig.upload(
        "hello",
        components::hello("x"),
        Some("expected = \"20ms\""),
        None,
    );
    let _: DeployResponse = rig.json(request).await;
    rig
}

fn terms(candidate: &Candidate) -> [f64; 6] {
    [
        candidate.distance,
        candidate.available,
        candidate.start,
        candidate.work,
        candidate.finish,
        candidate.total,
    ]
    .map(Millis::get)
}

async fn it_agrees_with_a_computation_by_hand(backend: Backend) {
    let rig = network(backend).await;
    let found = until(&rig, "everything to be heard", |found| {
        found.candidates.len() == 3
            && found
                .candidates
                .iter()
                .all(|c| c.latency.source == LatencySource::Measured)
    })
    .await;
    assert_eq!(found.chosen.as_ref().expect("chosen").as_str(), "eu-west");
    let rows: Vec<(&str, [f64; 6])> = found
        .candidates
        .iter()
        .map(|c| (c.cluster.as_str(), terms(c)))
        .collect();
    assert_eq!(
        rows,
        [
            ("eu-west", [40.0, 0.0, 40.0, 10.0, 50.0, 90.0]),
            ("ap-south", [10.0, 90.0, 90.0, 20.0, 110.0, 120.0]),
            ("us-east", [60.0, 0.0, 60.0, 5.0, 65.0, 125.0]),
        ]
    );
    let verdicts: Vec<&str> = found
        .candidates
        .iter()
        .map(|c| c.verdict.as_str())
        .collect();
    assert!(
        verdicts[0].contains("chosen: 30.00 ms ahead"),
        "{verdicts:?}"
    );
    assert!(
        verdicts[1]
            .contains("30.00 ms slower than eu-west: starts 50.00 ms later, works 10.00 ms more"),
        "{verdicts:?}"
    );
    assert!(
        verdicts[2]
            .contains("35.00 ms slower than eu-west: starts 20.00 ms later, works 5.00 ms less"),
        "{verdicts:?}"
    );
    assert!(found.bound.is_none(), "nobody asked yet");
}

async fn a_binding_is_kept_until_the_gain_passes_the_margin(backend: Backend) {
    let rig = network(backend).await;
    until(&rig, "everything to be heard", |found| {
        found.candidates.len() == 3
            && found
                .candidates
                .iter()
                .all(|c| c.latency.source == LatencySource::Measured)
    })
    .await;
    let entries = vec![(
        "hello".parse().expect("app"),
        CLIENT.parse().expect("client"),
        1,
    )];
    rig.report(Message::DemandReport(DemandReport {
        server: "dns-1".to_owned(),
        entries,
    }));
    let bound_to = |cluster: &'static str| {
        move |found: &Explanation| {
            found
                .bound
                .as_ref()
                .is_some_and(|b| b.cluster.as_str() == cluster)
        }
    };
    let bound = until(&rig, "a binding", bound_to("eu-west"))
        .await
        .bound
        .expect("bound");
    assert_eq!(bound.prefix.to_string(), "203.0.113.0/24");

    // ap-south's queue shrinks to 130 ms: avail 65 - 10 = 55, total 55 + 20 + 10 = 85, 5.6 % less than 90.
    rig.node(ap(130.0)).await;
    let kept = until(&rig, "the shorter queue", |found| {
        found.candidates[0].cluster.as_str() == "ap-south"
    })
    .await;
    assert_eq!(kept.candidates[0].total, Millis::new(85.0));
    assert_eq!(kept.chosen.as_ref().expect("chosen").as_str(), "eu-west");
    assert!(
        kept.reason
            .contains("ap-south would take 85.00 ms instead of 90.00 ms, 5.6 % less"),
        "{}",
        kept.reason
    );

    // The queue is empty: EST = d = 10, total 10 + 20 + 10 = 40, 55.6 % less: all clients move.
    rig.node(ap(0.0)).await;
    let moved = until(&rig, "the binding to move", bound_to("ap-south")).await;
    assert_eq!(moved.candidates[0].total, Millis::new(40.0));

    // It drains: the best of the others takes over at once.
    rig.node(NodeStatus {
        draining: true,
        ..ap(0.0)
    })
    .await;
    let away = until(&rig, "the binding to leave", bound_to("eu-west")).await;
    let drained = away
        .candidates
        .iter()
        .find(|c| c.cluster.as_str() == "ap-south")
        .expect("listed");
    assert_eq!(drained.excluded.as_deref(), Some("is draining"));
    let plan = |found: &Explanation| found.plan.clone().expect("a plan");
    let moved = plan(&away);
    assert_eq!(moved.reason, "the cluster before, ap-south, is draining");

    // It accepts work again, and is not better by enough: the plan is the same, and its explanation is of the present.
    rig.node(ap(130.0)).await;
    let back = until(&rig, "the plan to say why it is so now", |found| {
        let plan = found.plan.as_ref();
        plan.is_some_and(|plan| !plan.reason.contains("the cluster before"))
    })
    .await;
    assert!(bound_to("eu-west")(&back), "{back:#?}");
    let stays = plan(&back);
    assert!(
        stays.reason.starts_with("ap-south would take 85.00 ms"),
        "{}",
        stays.reason
    );
    assert_eq!(
        (stays.revision, &stays.stages),
        (moved.revision, &moved.stages)
    );
    assert!(stays.planned_at >= moved.planned_at);
}

async fn when_no_cluster_can_take_it_each_says_why(backend: Backend) {
    let rig = network(backend).await;
    let large = "memory = \"1GiB\"";
    let _: DeployResponse = rig
        .json(rig.upload("hello", components::hello("x"), Some(large), None))
        .await;
    for mut status in [
        eu("eu-1"),
        eu("eu-2"),
        ap(0.0),
        node_at("us-1", "us-east", 39.04, -77.49),
    ] {
        status.free.memory_mib = fdn_core::MebiBytes(512);
        rig.node(status).await;
    }
    let found = until(&rig, "the nodes to fill", |found| found.chosen.is_none()).await;
    assert!(
        found.reason.contains("no cluster can take hello"),
        "{}",
        found.reason
    );
    assert_eq!(found.candidates.len(), 3);
    assert!(
        found.candidates.iter().all(|c| c
            .excluded
            .as_deref()
            .is_some_and(|e| e.contains("1024 MiB"))),
        "{found:#?}"
    );
    let (_, problem) = rig
        .refused(rig.request(Method::GET, "/v1/apps/hello/explain?client=nowhere"))
        .await;
    assert_eq!(problem.code.as_str(), "FDN-2005");
    let (_, problem) = rig
        .refused(rig.request(Method::GET, "/v1/apps/none/explain"))
        .await;
    assert_eq!(problem.code.as_str(), "FDN-2003");
}

/// A node's status with its phase of the app, and the mean time of so many calls.
pub(crate) fn told(status: NodeStatus, phase: AppPhase, calls: u64, took: f64) -> NodeStatus {
    let observed = AppObserved {
        app: "hello".parse().expect("app"),
        revision: Revision(1),
        serves: Some(phase == AppPhase::Ready),
        phase,
        invocations: calls,
        errors: 0,
        execution_mean: Millis::new(took),
        instances: 0,
        degraded: None,
        versions: Vec::new(),
        stages: Vec::new(),
        figures: None,
        phases: Some(PhaseTimes {
            queue: Millis::new(0.5),
            start: Millis::ZERO,
            execution: Millis::new(took),
            mean_ratio: None,
        }),
        form: None,
    };
    NodeStatus {
        apps: vec![observed],
        ..status
    }
}

fn us() -> NodeStatus {
    NodeStatus {
        speed: 4.0,
        ..node_at("us-1", "us-east", 39.04, -77.49)
    }
}

fn excluded(found: &Explanation, cluster: &str) -> Option<String> {
    let mut rows = found.candidates.iter();
    let row = rows.find(|row| row.cluster.as_str() == cluster);
    row.expect("listed").excluded.clone()
}

async fn a_cluster_that_cannot_serve_it_says_why(backend: Backend) {
    let rig = network(backend).await;
    // Both nodes of the best cluster fail, another cluster is not ready yet, and the third is ready.
    let failed = || AppPhase::Failed {
        reason: "the digest differs\nat byte 7".to_owned(),
    };
    rig.node(told(eu("eu-1"), failed(), 0, 0.0)).await;
    rig.node(told(eu("eu-2"), failed(), 0, 0.0)).await;
    rig.node(told(us(), AppPhase::Ready, 0, 0.0)).await;
    let why = "has no node that could make it ready: the digest differs";
    let found = until(&rig, "the failure to be told", |found| {
        excluded(found, "eu-west").as_deref() == Some(why) && excluded(found, "us-east").is_none()
    })
    .await;
    assert_eq!(found.chosen.as_ref().expect("chosen").as_str(), "us-east");
    let waits = "is not ready yet to serve it";
    assert_eq!(excluded(&found, "ap-south").as_deref(), Some(waits));
    // A node that meanwhile serves an older revision counts as ready.
    let mut older = told(eu("eu-1"), failed(), 0, 0.0);
    older.apps[0].serves = Some(true);
    rig.node(older).await;
    let back = until(&rig, "one node to serve", |found| {
        excluded(found, "eu-west").is_none()
    })
    .await;
    assert_eq!(back.chosen.as_ref().expect("chosen").as_str(), "eu-west");
    // An image needs a node that runs containers, in each cluster by itself.
    let image = "runtime = \"docker\"";
    let wish =
        serde_json::json!({ "app": "image", "manifest": image, "clients": ["203.0.113.0/24"] });
    let runtimes = |status: NodeStatus, all: &[NodeRuntime]| NodeStatus {
        runtimes: Some(all.iter().copied().collect()),
        ..status
    };
    for status in [eu("eu-1"), eu("eu-2"), ap(200.0)] {
        rig.node(runtimes(status, &[NodeRuntime::Wasm])).await;
    }
    rig.node(runtimes(us(), &[NodeRuntime::Wasm, NodeRuntime::Docker]))
        .await;
    wait::until("the runtimes to be told", async || {
        let request = rig.request(Method::POST, "/v1/plan").json(&wish);
        let plan: PlanPreview = rig.json(request).await;
        let Some(group) = plan.groups.first() else {
            return Err(format!("{plan:?}"));
        };
        let rows = group.candidates.iter();
        let lost: Vec<&str> = rows.filter_map(|row| row.excluded.as_deref()).collect();
        match (
            group.cluster.as_str(),
            lost[..] == ["has no node that runs containers"; 2],
        ) {
            ("us-east", true) => Ok(()),
            _ => Err(format!("{group:?}")),
        }
    })
    .await;
}

/// Deploys an image that needs a device; returns the result of the step `devices`, and the clusters that hold the app.
async fn drawn(rig: &Rig, app: &str) -> (String, Holders) {
    let manifest = "runtime = \"docker\"\n[gpu]\nmemory = \"16GiB\"\nmodel = \"L4\"\n";
    let image = crate::forms::image().into_bytes();
    let deployed: DeployResponse = rig.json(rig.upload(app, image, Some(manifest), None)).await;
    let mut steps = deployed.validation.into_iter();
    let found = steps.find(|step| step.step == "devices");
    let apps = rig.apps_snapshot().await.apps.into_iter();
    let mut of_it = apps.filter(|desired| desired.app.as_str() == app);
    let spec = of_it.next().expect("told").spec.expect("there");
    (found.expect("it was looked for").result, spec.holders)
}

async fn a_cluster_without_the_device_is_told_nothing_of_it(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| settings.geo.locations.clear()).await;
    rig.node(eu("eu-1")).await;
    let [eu_west, us_east] = ["eu-west", "us-east"].map(|id| id.parse().expect("a cluster"));
    wait::until("the node to be heard", async || {
        let nodes: Vec<NodeInfo> = rig.get("/v1/nodes").await;
        match nodes.is_empty() {
            true => Err("there is none"),
            false => Ok(()),
        }
    })
    .await;
    let (found, holders) = drawn(&rig, "early").await;
    assert!(
        found.starts_with(
            "no node of any cluster that runs containers has 1 device of model L4 with 16GiB"
        ),
        "{found}"
    );
    assert!(holders.has(&eu_west), "somebody is to say what it lacks");

    let mut status = us();
    status.capacity.gpu_memory_mib = MebiBytes(24 << 10);
    status.free.gpu_memory_mib = MebiBytes(24 << 10);
    status.devices = vec![DeviceStatus {
        id: "GPU-1".parse().expect("an id"),
        kind: DeviceKind::Gpu,
        model: "NVIDIA L4".to_owned(),
        parent: None,
        memory_mib: MebiBytes(24 << 10),
        bound_mib: MebiBytes(0),
        state: DeviceState::InService,
        slices: Vec::new(),
    }];
    rig.node(status).await;
    wait::until("its device to be heard of", async || {
        let nodes: Vec<NodeInfo> = rig.get("/v1/nodes").await;
        let has = |node: &NodeInfo| node.capacity.gpu_memory_mib > MebiBytes(0);
        match nodes.iter().any(has) {
            true => Ok(()),
            false => Err(format!("{nodes:?}")),
        }
    })
    .await;
    let (found, holders) = drawn(&rig, "hello").await;
    assert_eq!(found, "1 device of model L4 with 16GiB: in us-east");
    assert!(
        holders.has(&us_east) && !holders.has(&eu_west),
        "{holders:?}"
    );
    let found = until(&rig, "a cluster to be chosen", |found| {
        found.chosen.is_some()
    })
    .await;
    assert_eq!(found.chosen.as_ref().expect("chosen").as_str(), "us-east");
    let why = excluded(&found, "eu-west").expect("it has no device");
    assert!(why.contains("16384 MiB GPU memory"), "{why}");
}

async fn what_calls_took_stands_beside_what_is_predicted(backend: Backend) {
    let rig = network(backend).await;
    // Calls take 10 ms in ap-south as predicted everywhere, but 24 ms in eu-west, at twice the speed.
    let mut calls = 0;
    let found = wait::until("the prediction to be corrected", async || {
        calls += 1000;
        for (node, took) in [(ap(0.0), 10.0), (us(), 2.5), (eu("eu-1"), 24.0)] {
            rig.node(told(node, AppPhase::Ready, calls, took)).await;
        }
        let found = explanation(&rig).await;
        let mut rows = found.candidates.iter();
        let row = rows.find(|row| row.cluster.as_str() == "eu-west");
        let work = row.map_or(0.0, |row| row.work.get());
        let errors = found.actual.iter().map(|stage| stage.execution.error());
        let close = |error: Option<f64>| error.is_some_and(|error| error.abs() < 0.15);
        match (
            found.chosen.as_ref().map(|c| c.as_str()),
            (work - 24.0).abs() < 1.0 && errors.into_iter().all(close),
        ) {
            (Some("ap-south"), true) => Ok(found),
            _ => Err(format!("{found:#?}")),
        }
    })
    .await;
    let [stage] = &found.actual[..] else {
        panic!("{found:#?}");
    };
    assert_eq!(stage.cluster.as_str(), "ap-south");
    assert!(stage.calls >= 1000, "{stage:?}");
    assert_eq!(stage.queue.actual, Some(Millis::new(0.5)));
    assert_eq!(stage.execution.actual, Some(Millis::new(10.0)));
    let way = stage.way.expect("it is the entry");
    assert_eq!(
        (way.predicted, way.actual),
        (Millis::new(20.0), Some(Millis::new(20.0)))
    );
}
