//! Workflows over the API: validated, deployed, shown, rolled back, deleted; what nodes are told of them; and what the planner learns from runs.

use fdn_core::api::{AppDetail, AppSummary, AppsSnapshot, Explanation, WorkflowDetail};
use fdn_core::fleet::FleetDesired;
use fdn_core::message::{AppObserved, AppPhase, NodeStatus, StageObserved};
use fdn_core::{ByteSize, ErrorCode, FunctionName, Millis};
use fdn_testkit::{components, wait};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::json;

use crate::rig::{Backend, Rig, on_both, two_regions};

on_both!(
    a_workflow_is_deployed_shown_and_rolled_back,
    what_cannot_run_is_refused_and_nothing_is_stored,
    nodes_are_told_how_stages_run_and_where_others_listen,
    plans_learn_from_runs,
    learned_sizes_move_a_stage,
);

const DIAMOND: &str = "
timeout: 20s
stages:
  - { name: in, function: one }
  - { name: left, function: two, needs: [in], retries: { count: 1 } }
  - { name: right, function: two, needs: [{ stage: in, size: 1MiB }] }
  - { name: join, function: one, needs: [left, right], when: always }
";

fn put(rig: &Rig, app: &str, text: &str, dry_run: bool) -> RequestBuilder {
    let path = format!("/v1/apps/{app}/workflow?dry_run={dry_run}");
    let request = rig.request(Method::PUT, &path);
    request
        .header("content-type", "application/yaml")
        .body(text.to_owned())
}

async fn rig(backend: Backend) -> Rig {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    rig.deploy("one", components::hello("one")).await;
    rig.deploy("two", components::hello("two")).await;
    rig
}

async fn a_workflow_is_deployed_shown_and_rolled_back(backend: Backend) {
    let rig = rig(backend).await;
    let judged: WorkflowDetail = rig.json(put(&rig, "flow", DIAMOND, true)).await;
    assert_eq!(
        (judged.revision, judged.placement.is_empty()),
        (None, false)
    );
    let (status, _) = rig
        .refused(rig.request(Method::GET, "/v1/apps/flow/workflow"))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND, "judged only");

    let first: WorkflowDetail = rig.json(put(&rig, "flow", DIAMOND, false)).await;
    assert_eq!((first.version.get(), first.unchanged), (1, false));
    assert_eq!(first.host.as_str(), "flow.fn.test");
    let again: WorkflowDetail = rig.json(put(&rig, "flow", DIAMOND, false)).await;
    assert_eq!((again.version.get(), again.unchanged), (1, true));
    assert_eq!(again.revision, first.revision);

    // The list of apps shows which are workflows, and the functions of these.
    let listed: Vec<AppSummary> = rig.get("/v1/apps").await;
    let flow = listed.iter().find(|app| app.app.as_str() == "flow");
    let stages = first.definition.workflow.stages().iter();
    let runs: Vec<FunctionName> = stages.map(|stage| stage.function.clone()).collect();
    assert_eq!(runs.len(), 4);
    assert_eq!(flow.expect("listed").functions, runs);
    let plain = listed.iter().filter(|app| app.app.as_str() != "flow");
    assert!(plain.clone().count() == 2 && plain.clone().all(|app| app.functions.is_empty()));

    // `current` was resolved when the workflow was deployed: a new version of a function changes nothing.
    rig.deploy("two", components::hello("two, better")).await;
    let shown: WorkflowDetail = rig.get("/v1/apps/flow/workflow").await;
    assert_eq!(shown.definition, first.definition);
    let second: WorkflowDetail = rig.json(put(&rig, "flow", DIAMOND, false)).await;
    let version = |detail: &WorkflowDetail| detail.definition.workflow.stages()[1].version.get();
    assert_eq!(
        (second.version.get(), version(&first), version(&second)),
        (2, 1, 2)
    );

    let back = rig
        .request(Method::POST, "/v1/apps/flow/rollback")
        .json(&json!({}));
    let back: AppDetail = rig.json(back).await;
    assert_eq!(
        (back.summary.version.get(), back.workflow.stages().len()),
        (1, 4)
    );
    let shown: WorkflowDetail = rig.get("/v1/apps/flow/workflow").await;
    assert_eq!(shown.definition, first.definition);
    for places in shown.placement.values() {
        let stages: Vec<&str> = places.iter().map(|place| place.stage.as_str()).collect();
        assert_eq!(stages, ["in", "left", "right", "join"]);
    }
    let explained: Explanation = rig.get("/v1/apps/flow/explain?client=192.0.2.1").await;
    assert_eq!(explained.stages.len(), 4);
    assert_eq!(
        explained.stages[0].cluster,
        explained.chosen.expect("a cluster")
    );

    let delete = |app: &str| rig.request(Method::DELETE, &format!("/v1/apps/{app}"));
    let (status, problem) = rig.refused(delete("two")).await;
    assert_eq!(
        (status, problem.code),
        (StatusCode::CONFLICT, ErrorCode::Conflict)
    );
    assert!(
        problem.detail.contains("workflow flow"),
        "{}",
        problem.detail
    );
    for app in ["flow", "two"] {
        let gone = delete(app).send().await.expect("an answer");
        assert_eq!(gone.status(), StatusCode::NO_CONTENT, "{app}");
    }
}

async fn what_cannot_run_is_refused_and_nothing_is_stored(backend: Backend) {
    let rig = rig(backend).await;
    let flow: WorkflowDetail = rig.json(put(&rig, "flow", DIAMOND, false)).await;
    let bad = "stages:\n  - { name: in, function: ghost }\n  - { name: b, function: flow, needs: [in] }\n";
    let (status, problem) = rig.refused(put(&rig, "other", bad, false)).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(problem.code, ErrorCode::WorkflowInvalid);
    for told in [
        "stage in: there is no function ghost",
        "stage b: flow is a workflow",
    ] {
        assert!(problem.detail.contains(told), "{}", problem.detail);
    }
    let (_, problem) = rig
        .refused(put(&rig, "other", "stages:\n  - nonsense\n", false))
        .await;
    assert!(problem.detail.contains("line 2"), "{}", problem.detail);
    let old = "stages:\n  - { name: in, function: one, version: 7 }\n";
    let (_, problem) = rig.refused(put(&rig, "other", old, false)).await;
    assert!(
        problem.detail.contains("no version v7"),
        "{}",
        problem.detail
    );
    let (status, _) = rig
        .refused(rig.request(Method::GET, "/v1/apps/other"))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    // A function cannot become a workflow, nor the reverse.
    let (status, _) = rig.refused(put(&rig, "one", DIAMOND, false)).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let upload = rig.upload("flow", components::hello("x"), None, None);
    let (status, problem) = rig.refused(upload).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(problem.detail.contains("workflow"), "{}", problem.detail);
    let shown: WorkflowDetail = rig.get("/v1/apps/flow/workflow").await;
    assert_eq!(shown.definition, flow.definition);
}

async fn snapshot(rig: &Rig) -> AppsSnapshot {
    rig.apps_snapshot().await
}

async fn nodes_are_told_how_stages_run_and_where_others_listen(backend: Backend) {
    let rig = rig(backend).await;
    for (n, status) in two_regions().into_iter().enumerate() {
        let port = 9000 + u16::try_from(n).expect("two");
        rig.node(NodeStatus {
            stage_calls: Some(([127, 0, 0, 1], port).into()),
            ..status
        })
        .await;
    }
    let _: WorkflowDetail = rig.json(put(&rig, "flow", DIAMOND, false)).await;
    let told = snapshot(&rig).await;
    let flow = told.apps.iter().find(|app| app.app.as_str() == "flow");
    let spec = flow.and_then(|app| app.spec.clone()).expect("it is told");
    assert_eq!(spec.functions.len(), 2, "each version once");
    let run = spec.run.expect("how it is run");
    assert_eq!(run.timeout.as_millis(), 20_000);
    assert_eq!(run.rules.len(), 2, "only what is not the default");
    let size = serde_json::to_vec(&run).expect("JSON").len();
    assert!(size < 2048, "{size} bytes");
    let plain = told.apps.iter().find(|app| app.app.as_str() == "one");
    assert!(
        plain
            .and_then(|app| app.spec.as_ref())
            .expect("told")
            .run
            .is_none()
    );
    wait::until("nodes to be told where others listen", async || {
        let fleet: Option<FleetDesired> = snapshot(&rig).await.fleet;
        let known = fleet
            .map(|fleet| fleet.stage_calls.len())
            .unwrap_or_default();
        if known == 2 { Ok(()) } else { Err(known) }
    })
    .await;
}

/// What a node measured for a stage.
fn observed(stage: &str, took: f64, output: ByteSize) -> StageObserved {
    StageObserved {
        stage: stage.parse().expect("stage"),
        runs: 9,
        execution_mean: Millis::new(took),
        output_mean: output,
        phases: None,
        form: None,
    }
}

/// A node's report on an app whose stages it ran.
fn ran(flow: &WorkflowDetail, stages: Vec<StageObserved>) -> AppObserved {
    AppObserved {
        app: flow.app.clone(),
        revision: flow.revision.expect("deployed"),
        phase: AppPhase::Ready,
        invocations: 9,
        errors: 0,
        execution_mean: Millis::new(5.0),
        instances: 0,
        degraded: None,
        versions: Vec::new(),
        stages,
        figures: None,
        serves: None,
        phases: None,
        form: None,
    }
}

/// A stage with much work runs in the fast cluster across the ocean while its input is small, and where its input is made once that is known to be
/// large: 2 s of work against 0.5 s there, but 5 s to transfer 500 MB at 100 MB/s.
async fn learned_sizes_move_a_stage(backend: Backend) {
    let rig = rig(backend).await;
    let chain = "stages:\n  - { name: in, function: one }\n  - { name: heavy, function: two, needs: [in] }\n";
    let flow: WorkflowDetail = rig.json(put(&rig, "flow", chain, false)).await;
    let [eu, us] = two_regions();
    // It is ready there too, but has not run.
    let ready = AppObserved {
        invocations: 0,
        ..ran(&flow, Vec::new())
    };
    rig.node(NodeStatus {
        speed: 4.0,
        apps: vec![ready],
        ..us
    })
    .await;
    for (output, home) in [
        (ByteSize::from_bytes(1000), "us-east"),
        (ByteSize::from_bytes(500_000_000), "eu-west"),
    ] {
        let stages = vec![
            observed("in", 20.0, output),
            observed("heavy", 2000.0, ByteSize::from_bytes(1000)),
        ];
        rig.node(NodeStatus {
            apps: vec![ran(&flow, stages)],
            ..eu.clone()
        })
        .await;
        wait::until("the stage to be where it ends first", async || {
            let told: Explanation = rig.get("/v1/apps/flow/explain?client=192.0.2.1").await;
            let now: Vec<&str> = told.stages.iter().map(|s| s.cluster.as_str()).collect();
            let detail: WorkflowDetail = rig.get("/v1/apps/flow/workflow").await;
            let in_force = detail.placement.values().any(|places| {
                let clusters: Vec<&str> = places.iter().map(|p| p.cluster.as_str()).collect();
                clusters == ["eu-west", home]
            });
            match now == ["eu-west", home] && in_force {
                true => Ok(()),
                false => Err(format!("{home}: {now:?} {:?}", detail.placement)),
            }
        })
        .await;
    }
}

async fn plans_learn_from_runs(backend: Backend) {
    let rig = rig(backend).await;
    let flow: WorkflowDetail = rig.json(put(&rig, "flow", DIAMOND, false)).await;
    let work = async || {
        let told: Explanation = rig.get("/v1/apps/flow/explain?client=192.0.2.1").await;
        told.candidates[0].work
    };
    let before = work().await;
    for status in two_regions() {
        let stage = observed("in", 700.0, ByteSize::from_bytes(12_345));
        rig.node(NodeStatus {
            apps: vec![ran(&flow, vec![stage])],
            ..status
        })
        .await;
    }
    wait::until("the plan to count with what was measured", async || {
        let now = work().await;
        if now > before && now.get() >= 300.0 {
            Ok(())
        } else {
            Err(now)
        }
    })
    .await;
}
