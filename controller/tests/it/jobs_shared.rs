//! Limits that jobs of several apps, tenants and dispatchers share: concurrency of a function, and fair turns.

use std::sync::Arc;

use fdn_controller::Settings;
use fdn_controller::jobs::sweep::{self, OverdueLeases};
use fdn_controller::store::job::{job_get, job_insert};
use fdn_core::JobId;
use fdn_core::job::{JobInfo, JobReceipt, JobState, ScheduleInfo};
use fdn_testkit::{components, wait};
use reqwest::Method;
use serde_json::json;

use crate::accounts::{member, tenant, user};
use crate::gateway::FakeGateway;
use crate::jobs::{ended, quick, submission};
use crate::rig::{Backend, Rig, on_both};

on_both!(
    a_function_runs_for_as_many_jobs_as_its_policy_says_whatever_their_app,
    two_dispatchers_give_two_tenants_their_turns,
    lists_over_all_apps_show_what_the_caller_may_see,
    an_app_that_cannot_be_read_holds_up_no_other,
    a_job_that_cannot_be_read_holds_up_no_other,
    a_schedule_that_cannot_be_submitted_holds_up_no_other,
);

const FLOW: &str = "
stages:
  - { name: first, function: free }
  - { name: second, function: hello, needs: [first] }
";

async fn rig(backend: Backend, change: impl FnOnce(&mut Settings)) -> (Rig, FakeGateway) {
    let rig = Rig::start_with(backend, |settings| {
        quick(settings);
        change(settings);
    })
    .await;
    let gateway = FakeGateway::start(&rig).await;
    rig.deploy("hello", components::hello("hello")).await;
    (rig, gateway)
}

async fn submit(rig: &Rig, app: &str, body: &'static str) -> JobId {
    rig.json::<JobReceipt>(submission(rig, app, "", body))
        .await
        .id
}

async fn until_running(gateway: &FakeGateway, calls: u32) {
    wait::until("calls to run", async || match gateway.running().0 {
        some if some >= calls => Ok(()),
        some => Err(some),
    })
    .await;
}

async fn a_function_runs_for_as_many_jobs_as_its_policy_says_whatever_their_app(backend: Backend) {
    let (rig, gateway) = rig(backend, |s| s.jobs.running_per_app = 8).await;
    rig.deploy("free", components::hello("free")).await;
    let flow = rig.request(Method::PUT, "/v1/apps/flow/workflow");
    let flow = flow.header("content-type", "application/yaml").body(FLOW);
    let _: serde_json::Value = rig.json(flow).await;
    let policy = rig.request(Method::PUT, "/v1/apps/hello/policy");
    let _: serde_json::Value = rig.json(policy.json(&json!({ "jobs_at_once": 1 }))).await;
    let mut ids = Vec::new();
    for app in ["flow", "hello", "flow", "hello"] {
        ids.push(submit(&rig, app, "wait").await);
    }
    until_running(&gateway, 1).await;
    // A job that calls another function does not wait.
    let free = ended(&rig, submit(&rig, "free", "work").await).await;
    assert_eq!(free.state, JobState::Succeeded);
    assert_eq!(gateway.running().0, 1, "one of four");
    for _ in 0..ids.len() {
        until_running(&gateway, 1).await;
        gateway.open(1);
    }
    for id in ids {
        assert_eq!(ended(&rig, id).await.state, JobState::Succeeded);
        assert_eq!(gateway.calls(id), 1);
    }
    let most = gateway.running().1;
    assert!(most <= 2, "one, and the free one beside it, not {most}");
}

async fn two_dispatchers_give_two_tenants_their_turns(backend: Backend) {
    const BURST: usize = 100;
    const FEW: usize = 12;
    // Each controller runs one attempt at a time.
    let (first, gateway) = rig(backend, |s| s.jobs.parallel = 1).await;
    let outsider = user(&first, "outsider", None).await;
    tenant(&first, "other", "outsider").await;
    let mut second = Rig::start_on(
        first.settings.clone(),
        Arc::clone(&first.broker),
        Arc::clone(&first.folder),
    )
    .await;
    second.token = outsider;
    gateway.join(&second).await;
    second.deploy("theirs", components::hello("theirs")).await;

    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(submit(&first, "hello", "wait").await);
    }
    until_running(&gateway, 2).await;
    for _ in 0..BURST {
        ids.push(submit(&first, "hello", "work").await);
    }
    let mut theirs = Vec::new();
    for _ in 0..FEW {
        theirs.push(submit(&second, "theirs", "work").await);
    }
    gateway.open(2);
    for id in &ids {
        assert_eq!(ended(&first, *id).await.state, JobState::Succeeded);
    }
    for id in &theirs {
        assert_eq!(ended(&second, *id).await.state, JobState::Succeeded);
    }
    assert!(gateway.running().1 <= 2, "{:?}", gateway.running());
    for id in ids.iter().chain(&theirs) {
        assert_eq!(gateway.calls(*id), 1, "{id}");
    }
    // The few jobs came last but did not end last: while they waited, every second turn was theirs.
    let calls = gateway.passes();
    let last = calls
        .iter()
        .rposition(|(host, _)| host == "theirs.fn.test")
        .expect("they ran");
    let before = last + 1 - FEW;
    assert!(
        before < BURST / 2,
        "{before} of the other tenant's ran before their last"
    );
    let attempts = |rig: &Rig| {
        let attempts = &rig.controller.state().metrics.jobs.attempts;
        attempts.with_label_values(&["succeeded"]).get()
    };
    let (one, two) = (attempts(&first), attempts(&second));
    assert!(one > 0 && two > 0, "both dispatch: {one}, {two}");
    assert_eq!(one + two, (2 + BURST + FEW) as u64);
}

async fn lists_over_all_apps_show_what_the_caller_may_see(backend: Backend) {
    let (rig, _gateway) = rig(backend, |_| {}).await;
    rig.deploy("free", components::hello("free")).await;
    let theirs = user(&rig, "ada", None).await;
    tenant(&rig, "other", "ada").await;
    let form = reqwest::multipart::Form::new().part(
        "component",
        reqwest::multipart::Part::bytes(components::hello("other")),
    );
    let upload = rig
        .anonymous(Method::POST, "/v1/apps/theirs/versions")
        .bearer_auth(&theirs);
    let _: serde_json::Value = rig.json(upload.multipart(form)).await;
    let mut ids = Vec::new();
    for app in ["hello", "free", "hello", "free"] {
        let id = submit(&rig, app, "x").await;
        ended(&rig, id).await;
        ids.insert(0, id);
    }
    let other = submission(&rig, "theirs", "?tenant=other", "x").bearer_auth(&theirs);
    let other = rig.json::<JobReceipt>(other).await.id;
    ended(&rig, other).await;
    for (app, name) in [
        ("hello", "b"),
        ("hello", "a"),
        ("free", "z"),
        ("theirs", "n"),
    ] {
        let path = format!("/v1/apps/{app}/schedules/{name}");
        let put = rig.request(Method::PUT, &path);
        let _: serde_json::Value = rig.json(put.json(&json!({ "cron": "0 3 * * *" }))).await;
    }

    let jobs = async |who: &str, query: &str| {
        let path = format!("/v1/jobs{query}");
        let rows: Vec<JobInfo> = rig
            .json(rig.anonymous(Method::GET, &path).bearer_auth(who))
            .await;
        rows.into_iter().map(|job| job.id).collect::<Vec<_>>()
    };
    let schedules = async |who: &str, query: &str| {
        let path = format!("/v1/schedules{query}");
        let rows: Vec<ScheduleInfo> = rig
            .json(rig.anonymous(Method::GET, &path).bearer_auth(who))
            .await;
        rows.into_iter()
            .map(|one| format!("{}/{}", one.app, one.name))
            .collect::<Vec<_>>()
    };
    let admin = rig.token.as_str();
    assert_eq!(jobs(admin, "?tenant=default").await, ids, "newest first");
    assert_eq!(
        jobs(admin, "").await,
        [&[other], &ids[..]].concat(),
        "an admin's are all"
    );
    assert_eq!(jobs(&theirs, "").await, [other]);
    assert_eq!(
        jobs(admin, "?tenant=default&state=succeeded&limit=2").await,
        ids[..2]
    );
    assert!(jobs(admin, "?tenant=default&state=dead").await.is_empty());
    assert_eq!(
        schedules(admin, "").await,
        ["free/z", "hello/a", "hello/b", "theirs/n"]
    );
    assert_eq!(schedules(&theirs, "").await, ["theirs/n"]);
    // Both lists continue where the previous page ended.
    for (path, all) in [("/v1/jobs?limit=2", 5), ("/v1/schedules?limit=2", 4)] {
        let (mut next, mut seen) = (Some(path.to_owned()), 0);
        while let Some(path) = next {
            let page = rig
                .request(Method::GET, &path)
                .send()
                .await
                .expect("an answer");
            next = page.headers().get("link").map(|link| {
                let link = link.to_str().expect("text");
                link[1..link.find('>').expect("a link")].to_owned()
            });
            seen += page
                .json::<Vec<serde_json::Value>>()
                .await
                .expect("rows")
                .len();
        }
        assert_eq!(seen, all, "{path}");
    }
    // A member of both tenants sees the jobs of both.
    member(&rig, "default", "ada", "viewer").await;
    assert_eq!(jobs(&theirs, "").await.len(), 5);
    assert_eq!(jobs(&theirs, "?tenant=other").await, [other]);
    let hidden = rig
        .anonymous(Method::GET, "/v1/jobs?tenant=nobody")
        .bearer_auth(&theirs);
    assert_eq!(rig.refused(hidden).await.0, 404);
}

async fn change_one(rig: &Rig, sql: &'static str) {
    let store = &rig.controller.state().store;
    let mut connection = store.read().await.expect("connected");
    let done = sqlx::query(sql).execute(&mut *connection).await;
    assert_eq!(done.expect(sql).rows_affected(), 1);
}

async fn an_app_that_cannot_be_read_holds_up_no_other(backend: Backend) {
    // Its job alone fills what is kept for a tenant.
    let (rig, gateway) = rig(backend, |s| s.jobs.tenant_buffer = 1).await;
    rig.deploy("broken", components::hello("broken")).await;
    let manifest = Some("idempotent = true\n");
    let upload = rig.upload("hello", components::hello("hello"), manifest, None);
    let _: serde_json::Value = rig.json(upload).await;
    change_one(
        &rig,
        "UPDATE versions SET manifest = 'none' WHERE function = 'broken'",
    )
    .await;
    let broken = submit(&rig, "broken", "work").await;
    // Further attempts have no tickets: they are found by looking into the store, after the job that waits for longer.
    gateway.fail_with(500);
    let dead = ended(&rig, submit(&rig, "hello", "fail").await).await;
    assert_eq!((dead.state, dead.attempts), (JobState::Dead, 3));
    let waits: JobInfo = rig.get(&format!("/v1/jobs/{broken}")).await;
    assert_eq!((waits.state, gateway.calls(broken)), (JobState::Queued, 0));
}

async fn a_job_that_cannot_be_read_holds_up_no_other(backend: Backend) {
    let (rig, gateway) = rig(backend, |_| {}).await;
    let manifest = Some("idempotent = true\n");
    let upload = rig.upload("hello", components::hello("hello"), manifest, None);
    let _: serde_json::Value = rig.json(upload).await;
    let done = ended(&rig, submit(&rig, "hello", "work").await).await;
    // Another one waits in the store, and was damaged before anybody could read it.
    let store = &rig.controller.state().store;
    let mut write = store.begin().await.expect("a transaction");
    let found = job_get(&mut write, done.id).await.expect("read");
    let mut job = found.expect("there");
    job.id = JobId::from_uuid(uuid::Uuid::now_v7());
    job.progress.state = JobState::Queued;
    let inserted = job_insert(&mut write, &job, Some("eA=="), None).await;
    inserted.expect("written");
    let damage = sqlx::query("UPDATE jobs SET history = 'none' WHERE id = $1");
    let damaged = damage.bind(job.id.to_string()).execute(&mut *write).await;
    assert_eq!(damaged.expect("written").rows_affected(), 1);
    write.commit().await.expect("committed");
    // Further attempts have no tickets: they are found by looking into the store, after the job that waits for longer.
    gateway.fail_with(500);
    let dead = ended(&rig, submit(&rig, "hello", "fail").await).await;
    assert_eq!((dead.state, dead.attempts), (JobState::Dead, 3));
    assert_eq!(gateway.calls(job.id), 0);
}

async fn a_schedule_that_cannot_be_submitted_holds_up_no_other(backend: Backend) {
    let (rig, _gateway) = rig(backend, |_| {}).await;
    let theirs = user(&rig, "ada", None).await;
    tenant(&rig, "other", "ada").await;
    let form = reqwest::multipart::Form::new().part(
        "component",
        reqwest::multipart::Part::bytes(components::hello("ahead")),
    );
    let upload = rig
        .anonymous(Method::POST, "/v1/apps/ahead/versions")
        .bearer_auth(&theirs);
    let _: serde_json::Value = rig.json(upload.multipart(form)).await;
    let mut due = fdn_core::Timestamp(0);
    for (app, name) in [
        ("ahead", "nightly"),
        ("hello", "damaged"),
        ("hello", "nightly"),
    ] {
        let path = format!("/v1/apps/{app}/schedules/{name}");
        let put = rig.request(Method::PUT, &path);
        let set: ScheduleInfo = rig.json(put.json(&json!({ "cron": "0 3 * * *" }))).await;
        due = due.max(set.next_at.expect("a moment"));
    }
    change_one(
        &rig,
        "UPDATE tenants SET created_at = -1 WHERE name = 'other'",
    )
    .await;
    change_one(
        &rig,
        "UPDATE job_schedules SET schedule = 'none' WHERE name = 'damaged'",
    )
    .await;
    let (mut leases, at) = (OverdueLeases::default(), std::time::Instant::now());
    let looked = sweep::round(rig.controller.state(), &mut leases, (due, at)).await;
    looked.expect("looked");
    let jobs: Vec<JobInfo> = rig.get("/v1/apps/hello/jobs").await;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
}
