//! Jobs through the API: each accepted job ends, once.

use std::collections::BTreeSet;

use fdn_controller::Settings;
use fdn_controller::jobs::sweep::OverdueLeases;
use fdn_core::api::Explanation;
use fdn_core::job::{AttemptEnd, JobInfo, JobReceipt, JobState, Redriven, ScheduleInfo};
use fdn_core::message::AppPhase;
use fdn_core::{DurationMs, ErrorCode, JobId};
use fdn_service::secret::Secret;
use fdn_testkit::{components, wait};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::json;

use crate::explain::told;
use crate::gateway::FakeGateway;
use crate::rig::{Backend, Rig, node_at, on_both};

on_both!(
    a_job_runs_and_its_answer_is_kept,
    what_fails_ends_as_its_function_allows,
    what_is_never_let_in_is_dropped,
    a_job_goes_where_its_app_is_ready,
    a_key_makes_one_job,
    without_the_broker_nothing_is_accepted,
    a_cancelled_job_stays_so,
    large_inputs_and_answers_lie_in_the_object_store_and_go_with_the_job,
    no_more_attempts_run_than_an_app_may_have,
    the_policy_of_an_app_says_how_many_of_its_jobs_run_at_once,
    whoever_is_named_is_told_in_signed_words,
    schedules_are_set_listed_and_removed,
    every_accepted_job_ends_once_though_controller_and_broker_come_and_go,
);

/// Intervals short enough for tests.
pub(crate) fn quick(settings: &mut Settings) {
    let jobs = &mut settings.jobs;
    jobs.interval = DurationMs::from_millis(50);
    jobs.retry_first = DurationMs::from_millis(20);
    jobs.retry_longest = DurationMs::from_millis(50);
    jobs.attempts = 3;
    jobs.webhooks.private = true;
    jobs.webhooks.retry_first = DurationMs::from_millis(20);
}

async fn rig(backend: Backend) -> (Rig, FakeGateway) {
    rig_with(backend, |_| {}).await
}

async fn rig_with(backend: Backend, change: impl FnOnce(&mut Settings)) -> (Rig, FakeGateway) {
    let rig = Rig::start_with(backend, |settings| {
        quick(settings);
        change(settings);
    })
    .await;
    let gateway = FakeGateway::start(&rig).await;
    rig.deploy("hello", components::hello("hello")).await;
    (rig, gateway)
}

pub(crate) fn submission(
    rig: &Rig,
    app: &str,
    query: &str,
    body: impl Into<reqwest::Body>,
) -> RequestBuilder {
    rig.request(Method::POST, &format!("/v1/apps/{app}/jobs{query}"))
        .header("content-type", "text/plain")
        .body(body)
}

async fn submit(rig: &Rig, body: &'static str) -> JobId {
    let answer = submission(rig, "hello", "", body).send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
    let receipt: JobReceipt = answer.json().await.expect("a receipt");
    receipt.id
}

async fn job(rig: &Rig, job: JobId) -> JobInfo {
    rig.get(&format!("/v1/jobs/{job}")).await
}

pub(crate) async fn ended(rig: &Rig, id: JobId) -> JobInfo {
    wait::until("the job to end", async || {
        let job = job(rig, id).await;
        match job.state.is_final() {
            true => Ok(job),
            false => Err(format!("{job:?}")),
        }
    })
    .await
}

async fn list(rig: &Rig, query: &str) -> Vec<JobInfo> {
    rig.get(&format!("/v1/apps/hello/jobs{query}")).await
}

async fn a_job_runs_and_its_answer_is_kept(backend: Backend) {
    let (rig, gateway) = rig(backend).await;
    let id = submit(&rig, "work").await;
    let done = ended(&rig, id).await;
    assert_eq!(
        (done.state, done.attempts, done.failures, done.status),
        (JobState::Succeeded, 1, 0, Some(200))
    );
    assert_eq!(done.cluster.as_ref().map(|c| c.as_str()), Some("eu-west"));
    assert!(done.started_at >= Some(done.submitted_at) && done.ended_at >= done.started_at);
    let answer = rig.request(Method::GET, &format!("/v1/jobs/{id}/result"));
    let answer = answer.send().await.expect("an answer");
    assert_eq!(answer.headers()["content-type"], "text/plain");
    assert_eq!(answer.text().await.expect("text"), "work");
    // The gateway can tell which job a call belongs to.
    let (host, pass) = gateway.passes().remove(0);
    assert_eq!(
        (host.as_str(), pass.job, pass.attempt),
        ("hello.fn.test", id, 1)
    );

    let second = submit(&rig, "again").await;
    ended(&rig, second).await;
    let ids = |jobs: Vec<JobInfo>| jobs.into_iter().map(|job| job.id).collect::<Vec<_>>();
    assert_eq!(ids(list(&rig, "").await), [second, id]);
    assert_eq!(ids(list(&rig, "?state=succeeded&limit=1").await), [second]);
    assert!(list(&rig, "?state=dead").await.is_empty());
    let page = rig.request(Method::GET, "/v1/apps/hello/jobs?limit=1");
    let link = page.send().await.expect("an answer").headers()["link"].clone();
    let link = link.to_str().expect("text");
    let next = &link[1..link.find('>').expect("a link")];
    assert_eq!(ids(rig.get(next).await), [id]);
}

async fn what_fails_ends_as_its_function_allows(backend: Backend) {
    let (rig, gateway) = rig(backend).await;
    gateway.fail_with(422);
    let refused = ended(&rig, submit(&rig, "fail").await).await;
    assert_eq!(
        (refused.state, refused.status),
        (JobState::Failed, Some(422))
    );
    gateway.fail_with(500);
    let once = ended(&rig, submit(&rig, "fail").await).await;
    assert_eq!(
        (once.state, once.attempts),
        (JobState::Failed, 1),
        "it may have run"
    );
    assert!(once.reason.expect("a reason").contains("500"));

    let manifest = Some("idempotent = true\n");
    let upload = rig.upload("hello", components::hello("hello"), manifest, None);
    let _: serde_json::Value = rig.json(upload).await;
    let id = submit(&rig, "fail").await;
    let dead = ended(&rig, id).await;
    assert_eq!(
        (dead.state, dead.attempts, dead.failures),
        (JobState::Dead, 3, 3)
    );
    let other = ended(&rig, submit(&rig, "fail").await).await;
    let dead = list(&rig, "?state=dead").await;
    assert_eq!(dead.len(), 2);
    gateway.fail_with(200);
    let redrive = rig.request(Method::POST, &format!("/v1/jobs/{id}/redrive"));
    let again: JobInfo = rig.json(redrive).await;
    assert_eq!(again.failures, 0);
    let done = ended(&rig, id).await;
    assert_eq!((done.state, done.attempts), (JobState::Succeeded, 4));
    let ends: Vec<_> = done
        .history
        .iter()
        .map(|one| (one.number, one.end))
        .collect();
    let [cut, well] = [AttemptEnd::CutShort, AttemptEnd::Succeeded].map(Some);
    assert_eq!(ends, [(1, cut), (2, cut), (3, cut), (4, well)]);
    for one in &done.history {
        assert_eq!(one.cluster, done.cluster);
        assert!(one.ended_at >= Some(one.started_at), "{one:?}");
    }
    assert_eq!(
        done.history[3].started_at,
        done.started_at.expect("it began")
    );
    assert_eq!(done.history[3].ended_at, done.ended_at);
    assert!(
        done.history[0]
            .reason
            .as_ref()
            .is_some_and(|why| why.contains("500"))
    );
    assert!(
        list(&rig, "")
            .await
            .iter()
            .all(|job| job.history.is_empty())
    );
    let all = rig.request(Method::POST, "/v1/apps/hello/jobs/redrive");
    assert_eq!(
        rig.json::<Redriven>(all).await,
        Redriven {
            jobs: 1,
            more: false
        }
    );
    assert_eq!(ended(&rig, other.id).await.state, JobState::Succeeded);
    let redrive = rig.request(Method::POST, &format!("/v1/jobs/{id}/redrive"));
    assert_eq!(rig.refused(redrive).await.1.code, ErrorCode::JobEnded);
}

/// The app does not admit it, or its node takes no calls of this controller: it is retried until it expires, whatever the number of attempts.
async fn what_is_never_let_in_is_dropped(backend: Backend) {
    let (rig, _gateway) = rig(backend).await;
    for (body, why) in [("full", "FDN-3007"), ("barred", "certificate")] {
        let submitted = submission(&rig, "hello", "?max_age=1s", body);
        let id = rig.json::<JobReceipt>(submitted).await.id;
        let dropped = ended(&rig, id).await;
        assert_eq!((dropped.state, dropped.failures), (JobState::Dropped, 0));
        let reason = dropped.reason.expect("a reason");
        assert!(reason.contains(why), "{reason}");
        let result = rig.request(Method::GET, &format!("/v1/jobs/{id}/result"));
        assert_eq!(rig.refused(result).await.1.code, ErrorCode::JobNoResult);
    }
}

async fn a_job_goes_where_its_app_is_ready(backend: Backend) {
    let (rig, gateway) = rig(backend).await;
    // A cluster that is as fast and first by name, but has to fetch the app first. Nothing answers there.
    let other = node_at("ap-1", "ap-south", 19.08, 72.88);
    rig.node(told(other, AppPhase::Fetching, 0, 0.0)).await;
    rig.node(told(gateway.status(), AppPhase::Ready, 0, 0.0))
        .await;
    wait::until("both to be heard", async || {
        let found: Explanation = rig.get("/v1/apps/hello/explain?client=192.0.2.7").await;
        let excluded = |cluster: &str| {
            let mut rows = found.candidates.iter();
            let row = rows.find(|row| row.cluster.as_str() == cluster);
            row.map(|row| row.excluded.clone())
        };
        let not_ready = Some("is not ready yet to serve it".to_owned());
        match (excluded("ap-south"), excluded("eu-west")) {
            (Some(ap), Some(None)) if ap == not_ready => Ok(()),
            _ => Err(format!("{found:#?}")),
        }
    })
    .await;
    for _ in 0..5 {
        let done = ended(&rig, submit(&rig, "work").await).await;
        assert_eq!(
            (done.state, done.history.len(), done.attempts),
            (JobState::Succeeded, 1, 1),
            "{done:?}"
        );
        assert_eq!(done.cluster.as_ref().map(|c| c.as_str()), Some("eu-west"));
    }
}

async fn a_key_makes_one_job(backend: Backend) {
    let (rig, gateway) = rig(backend).await;
    let send =
        |body: &'static str| submission(&rig, "hello", "", body).header("idempotency-key", "k");
    let first: JobReceipt = rig.json(send("work")).await;
    ended(&rig, first.id).await;
    let again = send("work").send().await.expect("an answer");
    assert_eq!(again.status(), StatusCode::ACCEPTED);
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    let again: JobReceipt = again.json().await.expect("a receipt");
    assert_eq!((again.id, again.state), (first.id, JobState::Succeeded));
    let other = rig.refused(send("other")).await;
    assert_eq!(other.1.code, ErrorCode::IdempotencyMismatch);
    assert_eq!(gateway.calls(first.id), 1);
    // A concurrent request gets the same job, or is asked to retry.
    let both = futures::join!(
        submission(&rig, "hello", "", "x")
            .header("idempotency-key", "two")
            .send(),
        submission(&rig, "hello", "", "x")
            .header("idempotency-key", "two")
            .send(),
    );
    let mut made = BTreeSet::new();
    for answer in [both.0, both.1] {
        let answer = answer.expect("an answer");
        match answer.status() {
            StatusCode::ACCEPTED => {
                made.insert(answer.json::<JobReceipt>().await.expect("a receipt").id);
            }
            status => assert_eq!(status, StatusCode::CONFLICT),
        }
    }
    assert_eq!((made.len(), list(&rig, "").await.len()), (1, 2));
}

async fn without_the_broker_nothing_is_accepted(backend: Backend) {
    let (rig, gateway) = rig(backend).await;
    rig.broker.down();
    let (status, problem) = rig.refused(submission(&rig, "hello", "", "work")).await;
    assert_eq!(
        (status, problem.code),
        (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::JobNotAccepted)
    );
    assert!(list(&rig, "").await.is_empty());
    rig.broker.up();
    // The ticket arrives, but its confirmation does not: whether accepted or not, the response is true.
    rig.broker.lose_a_confirmation();
    let answer = submission(&rig, "hello", "", "work").send().await;
    let answer = answer.expect("an answer");
    match answer.status() {
        StatusCode::ACCEPTED => {
            let receipt: JobReceipt = answer.json().await.expect("a receipt");
            assert_eq!(ended(&rig, receipt.id).await.state, JobState::Succeeded);
        }
        status => {
            assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
            assert!(list(&rig, "").await.is_empty());
            assert!(
                gateway.passes().is_empty(),
                "what is not accepted never runs"
            );
        }
    }
    for (query, body, code) in [
        ("?target=nowhere", "x", ErrorCode::JobInvalid),
        ("?max_age=1000000h", "x", ErrorCode::JobInvalid),
        ("?webhook=ftp://x/", "x", ErrorCode::WebhookRefused),
        ("?priority=10", "x", ErrorCode::BadRequest),
    ] {
        let refused = rig.refused(submission(&rig, "hello", query, body)).await;
        assert_eq!(refused.1.code, code, "{query}");
    }
    let bytes = vec![0u8; (rig.settings.jobs.input_limit.as_bytes() + 1) as usize];
    let refused = rig.refused(submission(&rig, "hello", "", bytes)).await;
    assert_eq!(refused.1.code, ErrorCode::JobTooLarge);
}

async fn a_cancelled_job_stays_so(backend: Backend) {
    let (rig, gateway) = rig(backend).await;
    let id = submit(&rig, "wait").await;
    wait::until("the call to run", async || match gateway.calls(id) {
        0 => Err("not yet"),
        _ => Ok(()),
    })
    .await;
    let result = rig.request(Method::GET, &format!("/v1/jobs/{id}/result"));
    assert_eq!(rig.refused(result).await.1.code, ErrorCode::JobNotFinal);
    let cancel = || rig.request(Method::DELETE, &format!("/v1/jobs/{id}"));
    let cancelled: JobInfo = rig.json(cancel()).await;
    assert_eq!(cancelled.state, JobState::Cancelled);
    // A late answer of the call changes nothing.
    gateway.open(1);
    let other = ended(&rig, submit(&rig, "work").await).await;
    assert_eq!(other.state, JobState::Succeeded);
    let still = job(&rig, id).await;
    assert_eq!(
        (still.state, still.result_size),
        (JobState::Cancelled, None)
    );
    assert_eq!(rig.refused(cancel()).await.1.code, ErrorCode::JobEnded);
}

async fn large_inputs_and_answers_lie_in_the_object_store_and_go_with_the_job(backend: Backend) {
    let (rig, _gateway) = rig(backend).await;
    let input = vec![b'y'; 200_000];
    let answer = submission(&rig, "hello", "", input.clone()).send().await;
    let receipt: JobReceipt = answer.expect("an answer").json().await.expect("a receipt");
    ended(&rig, receipt.id).await;
    let result = rig.request(Method::GET, &format!("/v1/jobs/{}/result", receipt.id));
    let result = result.send().await.expect("an answer").bytes().await;
    assert_eq!(result.expect("bytes"), input);
    assert_eq!(rig.objects_of_jobs(), ["input", "result-1"]);
    let later = fdn_service::now().get() + rig.settings.jobs.keep.as_millis() + 1;
    let round = fdn_controller::jobs::sweep::round;
    let clocks = (fdn_core::Timestamp(later), std::time::Instant::now());
    round(
        rig.controller.state(),
        &mut OverdueLeases::default(),
        clocks,
    )
    .await
    .expect("swept");
    assert_eq!(rig.objects_of_jobs(), [""; 0]);
    let gone = rig.request(Method::GET, &format!("/v1/jobs/{}", receipt.id));
    assert_eq!(rig.refused(gone).await.1.code, ErrorCode::NotFound);
}

async fn no_more_attempts_run_than_an_app_may_have(backend: Backend) {
    let (rig, gateway) = rig_with(backend, |s| s.jobs.running_per_app = 2).await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(submit(&rig, "wait").await);
    }
    for _ in 0..6 {
        wait::until("two calls, or the last one", async || {
            match gateway.running().0 {
                0 => Err("none"),
                _ => Ok(()),
            }
        })
        .await;
        gateway.open(1);
    }
    for id in ids {
        assert_eq!(ended(&rig, id).await.state, JobState::Succeeded);
        assert_eq!(gateway.calls(id), 1);
    }
    assert!(gateway.running().1 <= 2, "{:?}", gateway.running());
}

async fn the_policy_of_an_app_says_how_many_of_its_jobs_run_at_once(backend: Backend) {
    let (rig, gateway) = rig_with(backend, |s| s.jobs.running_per_app = 8).await;
    let put = |at_once: u32| {
        let body = json!({ "jobs_at_once": at_once });
        rig.request(Method::PUT, "/v1/apps/hello/policy")
            .json(&body)
    };
    assert_eq!(rig.refused(put(0)).await.1.code, ErrorCode::PolicyInvalid);
    let set = put(1).send().await.expect("an answer");
    assert!(set.status().is_success(), "{set:?}");
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(submit(&rig, "wait").await);
    }
    for _ in 0..4 {
        wait::until("a call", async || match gateway.running().0 {
            0 => Err("none"),
            _ => Ok(()),
        })
        .await;
        gateway.open(1);
    }
    for id in ids {
        assert_eq!(ended(&rig, id).await.state, JobState::Succeeded);
        assert_eq!(gateway.calls(id), 1);
    }
    assert_eq!(gateway.running().1, 1, "never two at once");
}

async fn whoever_is_named_is_told_in_signed_words(backend: Backend) {
    let (rig, gateway) = rig(backend).await;
    gateway.deaf(2);
    let query = format!("?webhook=http://{}/told", gateway.address);
    let answer = submission(&rig, "hello", &query, "work").send().await;
    let receipt: JobReceipt = answer.expect("an answer").json().await.expect("a receipt");
    let told = wait::until("the third try", async || {
        let told = gateway.told();
        if told.len() >= 3 {
            Ok(told)
        } else {
            Err(told.len())
        }
    })
    .await;
    let secret = Secret::new(receipt.webhook_secret.expect("a secret"));
    let ids: BTreeSet<_> = told
        .iter()
        .map(|(headers, _)| headers["fdn-webhook-id"].clone())
        .collect();
    assert_eq!(ids.len(), 1, "one event, whatever the tries");
    for (headers, body) in &told {
        let at = headers["fdn-webhook-timestamp"].parse().expect("seconds");
        let signed = secret.derive(&fdn_core::job::webhook::signed(at, body));
        assert_eq!(
            headers["fdn-webhook-signature"],
            format!("v1={}", signed.expose())
        );
    }
    let event: serde_json::Value = serde_json::from_str(&told[0].1).expect("JSON");
    assert_eq!(event["job"]["id"], receipt.id.to_string());
    assert_eq!(event["job"]["state"], "succeeded");
}

async fn schedules_are_set_listed_and_removed(backend: Backend) {
    let (rig, gateway) = rig(backend).await;
    let path = "/v1/apps/hello/schedules/nightly";
    let put = |cron: &str, paused: bool| {
        let body = json!({ "cron": cron, "input": "work", "paused": paused });
        rig.request(Method::PUT, path).json(&body)
    };
    assert_eq!(
        rig.refused(put("61 * * * *", false)).await.1.code,
        ErrorCode::BadRequest
    );
    let set: ScheduleInfo = rig.json(put("0 3 * * *", false)).await;
    let at = set.next_at.expect("a moment");
    assert_eq!(at.get() % 3_600_000, 0);
    let listed: Vec<ScheduleInfo> = rig.get("/v1/apps/hello/schedules").await;
    assert_eq!(listed, [set]);
    // Several controllers process the same time, and once more later: there is one job.
    let state = rig.controller.state();
    let round = async |now| {
        let (mut leases, at) = (OverdueLeases::default(), std::time::Instant::now());
        fdn_controller::jobs::sweep::round(state, &mut leases, (now, at)).await
    };
    let (one, two) = futures::join!(round(at), round(at));
    one.and(two).expect("looked");
    round(fdn_core::Timestamp(at.get() + 1))
        .await
        .expect("looked");
    let jobs = list(&rig, "").await;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    assert_eq!(jobs[0].submitted_by, "schedule nightly");
    let listed: Vec<ScheduleInfo> = rig.get("/v1/apps/hello/schedules").await;
    assert_eq!(listed[0].last_job, Some(jobs[0].id));
    assert_eq!(
        listed[0].next_at.expect("the next").get(),
        at.get() + 86_400_000
    );
    let paused: ScheduleInfo = rig.json(put("0 3 * * *", true)).await;
    assert_eq!(paused.next_at, None);
    let removed = rig
        .request(Method::DELETE, path)
        .send()
        .await
        .expect("an answer");
    assert_eq!(removed.status(), StatusCode::NO_CONTENT);
    let gone = rig.request(Method::DELETE, path);
    assert_eq!(rig.refused(gone).await.1.code, ErrorCode::NotFound);
    drop(gateway);
}

async fn every_accepted_job_ends_once_though_controller_and_broker_come_and_go(backend: Backend) {
    come_and_go(backend, 100).await;
}

/// For each hundred of these jobs, the controller is stopped and started, and the broker goes down and comes back.
async fn come_and_go(backend: Backend, jobs: usize) {
    let (mut rig, gateway) = rig(backend).await;
    let manifest = Some("idempotent = true\n");
    let upload = rig.upload("hello", components::hello("hello"), manifest, None);
    let _: serde_json::Value = rig.json(upload).await;
    let mut accepted = BTreeSet::new();
    for n in 0..jobs {
        match n % 100 {
            30 => rig.broker.down(),
            40 => rig.broker.up(),
            50 => rig.broker.lose_a_confirmation(),
            60 => {
                rig.broker.up();
                rig = rig.restart().await;
                gateway.join(&rig).await;
            }
            _ => {}
        }
        let answer = submission(&rig, "hello", "", "work").send().await;
        let answer = answer.expect("an answer");
        if answer.status() == StatusCode::ACCEPTED {
            accepted.insert(answer.json::<JobReceipt>().await.expect("a receipt").id);
        }
    }
    assert!(accepted.len() >= jobs / 2, "{}", accepted.len());
    wait::within(2 * wait::PATIENCE, "all to have ended", async || {
        let open = list(&rig, "?state=queued&limit=1").await.len()
            + list(&rig, "?state=running&limit=1").await.len();
        if open == 0 {
            Ok(())
        } else {
            Err("some wait or run")
        }
    })
    .await;
    let all: Vec<JobInfo> = list(&rig, "?limit=1000").await;
    let ended: BTreeSet<JobId> = all.iter().map(|job| job.id).collect();
    assert!(ended.is_superset(&accepted), "an accepted job is not there");
    for job in &all {
        assert_eq!(job.state, JobState::Succeeded, "{job:?}");
        assert!(gateway.calls(job.id) >= 1);
    }
}

mod soak {
    use super::{Backend, come_and_go, on_both};

    on_both!(many_accepted_jobs_end_once_though_controller_and_broker_come_and_go);

    async fn many_accepted_jobs_end_once_though_controller_and_broker_come_and_go(
        backend: Backend,
    ) {
        come_and_go(backend, 400).await;
    }
}
