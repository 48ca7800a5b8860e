//! Workflow runs: reported by gateways, limited in number, shown to those who may see the app.

use fdn_core::api::WorkflowDetail;
use fdn_core::message::Message;
use fdn_core::runs::{AttemptOutcome, RunInfo, RunReport, RunStage, RunStatus};
use fdn_core::{Revision, RunId, Timestamp};
use fdn_testkit::{components, wait};
use reqwest::Method;

use crate::accounts::{hello_changes_hands, people};
use crate::conventions::next;
use crate::rig::{Backend, Rig, on_both};

on_both!(
    runs_are_told_kept_and_shown,
    runs_of_the_owner_before_are_not_shown,
);

const CHAIN: &str = "
stages:
  - { name: first, function: one }
  - { name: last, function: one, needs: [first] }
";

fn run(n: u128, node: &str) -> RunInfo {
    let stage = |name: &str| RunStage {
        stage: name.parse().expect("stage"),
        attempts: Vec::new(),
    };
    RunInfo {
        run: RunId::from_uuid(uuid::Uuid::from_u128(n)),
        request: format!("call-{n}"),
        app: "flow".parse().expect("app"),
        revision: Revision(1),
        node: node.parse().expect("node"),
        cluster: "eu-west".parse().expect("cluster"),
        started_at: fdn_service::now(),
        ended_at: None,
        status: RunStatus::Running,
        stages: vec![stage("first"), stage("last")],
        changes: 0,
    }
}

async fn tell(rig: &Rig, runs: Vec<RunInfo>) {
    rig.report(Message::RunReport(RunReport { runs }));
}

async fn shown(rig: &Rig, query: &str) -> Vec<RunInfo> {
    rig.get(&format!("/v1/apps/flow/runs{query}")).await
}

async fn until(rig: &Rig, what: &str, holds: impl Fn(&[RunInfo]) -> bool) -> Vec<RunInfo> {
    wait::until(what, async || {
        let runs = shown(rig, "").await;
        if holds(&runs) {
            Ok(runs)
        } else {
            Err(format!("{runs:?}"))
        }
    })
    .await
}

async fn runs_are_told_kept_and_shown(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| settings.console.runs_per_app = 3).await;
    rig.two_regions().await;
    rig.deploy("one", components::hello("one")).await;
    let put = rig.request(Method::PUT, "/v1/apps/flow/workflow");
    let _: WorkflowDetail = rig
        .json(put.header("content-type", "application/yaml").body(CHAIN))
        .await;
    let mut first = run(1, "eu-1");
    first.begin(0, 1, "us-east".parse().expect("cluster"), Timestamp(5));
    tell(&rig, vec![first.clone(), run(2, "a-node-that-is-gone")]).await;
    let runs = until(&rig, "two runs", |runs| runs.len() == 2).await;
    assert_eq!(
        runs[0].status,
        RunStatus::Lost,
        "its gateway will never tell how it ended"
    );
    assert_eq!(runs[1].status, RunStatus::Running);
    assert_eq!(runs[1].stages[0].attempts[0].cluster.as_str(), "us-east");

    let old = first.clone();
    first.changes = 4;
    first
        .attempt_mut(0, 1)
        .expect("began")
        .end(AttemptOutcome::Done, Timestamp(9));
    first.end(RunStatus::Answered, Timestamp(10));
    tell(&rig, vec![first.clone()]).await;
    until(&rig, "the run to end", |runs| {
        runs[1].status == RunStatus::Answered
    })
    .await;
    // A late report changes nothing; a run of a deleted app is dropped.
    let mut gone = run(9, "eu-1");
    gone.app = "gone".parse().expect("app");
    tell(&rig, vec![old, gone, run(3, "eu-1"), run(4, "eu-1")]).await;
    let runs = until(&rig, "the newest three", |runs| {
        runs.len() == 3 && runs[0].request == "call-4"
    })
    .await;
    let requests: Vec<&str> = runs.iter().map(|run| run.request.as_str()).collect();
    assert_eq!(requests, ["call-4", "call-3", "call-2"]);

    assert_eq!(shown(&rig, "?request=call-3").await.len(), 1);
    assert!(shown(&rig, "?request=call-x").await.is_empty());
    let page = rig
        .request(Method::GET, "/v1/apps/flow/runs?limit=2")
        .send()
        .await
        .expect("an answer");
    let rest: Vec<RunInfo> = rig.get(&next(&page).expect("a link")).await;
    assert_eq!(
        rest.iter()
            .map(|run| run.request.as_str())
            .collect::<Vec<_>>(),
        ["call-2"]
    );
    let one: RunInfo = rig
        .get(&format!("/v1/apps/flow/runs/{}", runs[1].run))
        .await;
    assert_eq!(one.request, "call-3");

    let (_, absent) = rig
        .refused(rig.request(
            Method::GET,
            &format!("/v1/apps/flow/runs/run_{}", "0".repeat(32)),
        ))
        .await;
    assert_eq!(absent.code.as_str(), "FDN-2003");
    let people = people(&rig).await;
    let hidden = rig
        .anonymous(Method::GET, "/v1/apps/flow/runs")
        .bearer_auth(&people.outsider);
    assert_eq!(rig.refused(hidden).await.0.as_u16(), 404);
}

async fn runs_of_the_owner_before_are_not_shown(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    let people = people(&rig).await;
    rig.deploy("hello", components::hello("hello")).await;
    let of_hello = |n| RunInfo {
        app: "hello".parse().expect("app"),
        ..run(n, "eu-1")
    };
    let late = of_hello(1);
    hello_changes_hands(&rig, &people).await;
    // The gateway reports a run of the app that was there before.
    let (late_path, own) = (format!("/v1/apps/hello/runs/{}", late.run), of_hello(2));
    tell(&rig, vec![late, own.clone()]).await;
    let by_new = |path: &str| {
        rig.anonymous(Method::GET, path)
            .bearer_auth(&people.outsider)
    };
    let path = format!("/v1/apps/hello/runs/{}", own.run);
    wait::until("the runs to be written", async || {
        match by_new(&path).send().await {
            Ok(answer) if answer.status() == 200 => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    })
    .await;
    let runs: Vec<RunInfo> = rig.json(by_new("/v1/apps/hello/runs")).await;
    let requests: Vec<&str> = runs.iter().map(|run| run.request.as_str()).collect();
    assert_eq!(requests, ["call-2"]);
    assert_eq!(rig.refused(by_new(&late_path)).await.0.as_u16(), 404);
}
