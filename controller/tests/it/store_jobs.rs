//! Jobs whose dispatcher or submitter is lost, without a running dispatcher.

use std::time::Instant;

use fdn_controller::State;
use fdn_controller::jobs::change::{Claim, Claimant, EventDetails, claim, step};
use fdn_controller::jobs::sweep::{self, OverdueLeases};
use fdn_controller::store::job::{JobRow, job_get, job_give_up, job_insert};
use fdn_controller::store::job_queries::{lease_extend, waiting_tenants};
use fdn_controller::store::webhook::{Origin, WebhookRow, webhook_due, webhook_insert};
use fdn_core::job::{AttemptResult, Event, JobInfo, JobReceipt, JobState};
use fdn_core::{AppName, ClusterId, DurationMs, ErrorCode, JobId, MessageId, TenantId, Timestamp};
use fdn_testkit::components;
use reqwest::Method;

use crate::rig::{Backend, Rig, on_both};

on_both!(
    a_job_is_claimed_once_and_its_lost_attempt_ends_by_the_lease,
    what_may_be_repeated_is_and_a_late_end_is_past,
    claims_of_an_app_are_counted_over_all_dispatchers,
    a_submission_that_broke_off_is_swept_away,
    a_submission_whose_objects_cannot_be_deleted_stays_for_the_sweep,
    a_lease_that_its_dispatcher_does_not_know_of_ends,
    a_sweeper_whose_clock_is_ahead_ends_only_what_is_not_extended,
    what_runs_again_is_not_deleted_nor_the_other_way_round,
    what_runs_again_has_no_deadline,
    tenants_that_wait_are_found_in_turn,
    webhooks_of_one_tenant_do_not_fill_a_round,
);

/// A controller that accepts jobs but does not dispatch them.
async fn rig(backend: Backend, manifest: &str) -> Rig {
    let rig = Rig::start_with(backend, |settings| {
        settings.jobs.dispatch = false;
        settings.jobs.interval = DurationMs::from_secs(3600);
        settings.jobs.running_per_app = 2;
    })
    .await;
    let upload = rig.upload("hello", components::hello("hello"), Some(manifest), None);
    let _: serde_json::Value = rig.json(upload).await;
    rig
}

async fn submit(rig: &Rig) -> JobId {
    let request = rig.request(Method::POST, "/v1/apps/hello/jobs").body("x");
    rig.json::<JobReceipt>(request).await.id
}

async fn row(rig: &Rig, job: JobId) -> JobRow {
    let mut connection = rig
        .controller
        .state()
        .store
        .read()
        .await
        .expect("connected");
    let found = job_get(&mut connection, job).await.expect("read");
    found.expect("there")
}

fn app() -> AppName {
    "hello".parse().expect("app")
}

async fn claimed(rig: &Rig, job: JobId, holder: &str, lease_until: Timestamp) -> Claim {
    let cluster: ClusterId = "eu-west".parse().expect("cluster");
    let claimant = Claimant {
        holder,
        cluster: &cluster,
        lease_until,
    };
    let claim = claim(rig.controller.state(), (job, &app()), &claimant).await;
    claim.expect("asked")
}

/// Sweeps twice at this time of the wall clock, half a lease apart by the sweeper's steady clock.
async fn sweep_twice(state: &State, now: Timestamp) {
    let (mut leases, at) = (OverdueLeases::default(), Instant::now());
    for at in [at, at + state.settings.jobs.lease.as_duration() / 2] {
        let swept = sweep::round(state, &mut leases, (now, at)).await;
        swept.expect("swept");
    }
}

fn later(millis: u64) -> Timestamp {
    Timestamp(fdn_service::now().get() + millis)
}

async fn a_job_is_claimed_once_and_its_lost_attempt_ends_by_the_lease(backend: Backend) {
    let rig = rig(backend, "").await;
    let id = submit(&rig).await;
    // Of two concurrent claims one succeeds.
    let both = futures::join!(
        claimed(&rig, id, "one", later(60_000)),
        claimed(&rig, id, "two", later(60_000))
    );
    let given = [&both.0, &both.1];
    let given = given
        .iter()
        .filter(|c| matches!(c, Claim::Granted(_)))
        .count();
    assert_eq!(given, 1, "{both:?}");
    let state = rig.controller.state();
    sweep_twice(state, later(30_000)).await;
    assert_eq!(row(&rig, id).await.progress.state, JobState::Running);
    // The sweep selects it by the time passed in; the transition itself uses the clock.
    sweep_twice(state, later(120_000)).await;
    assert_eq!(
        row(&rig, id).await.progress.state,
        JobState::Running,
        "the lease has not ended"
    );
    let second = submit(&rig).await;
    let claim = claimed(&rig, second, "one", fdn_service::now()).await;
    assert!(matches!(claim, Claim::Granted(_)));
    sweep_twice(state, later(1)).await;
    let failed = row(&rig, second).await;
    assert_eq!(
        (failed.progress.state, failed.progress.attempt),
        (JobState::Failed, 1)
    );
    assert!(failed.reason.expect("a reason").contains("lost"));
}

async fn what_may_be_repeated_is_and_a_late_end_is_past(backend: Backend) {
    let rig = rig(backend, "idempotent = true\n").await;
    let (state, id) = (rig.controller.state(), submit(&rig).await);
    claimed(&rig, id, "one", fdn_service::now()).await;
    sweep_twice(state, later(1)).await;
    let again = row(&rig, id).await;
    assert_eq!(
        (again.progress.state, again.progress.failures),
        (JobState::Queued, 1)
    );
    // The dispatcher was not lost after all: it reports that its attempt succeeded.
    let ended = |attempt| Event::Ended {
        attempt,
        ending: AttemptResult::Succeeded,
    };
    let details = EventDetails::default();
    assert_eq!(
        step(state, id, ended(1), &details).await.expect("asked"),
        None
    );
    assert_eq!(row(&rig, id).await.progress.state, JobState::Queued);
    fdn_testkit::wait::until("the pause to be over", async || {
        match claimed(&rig, id, "two", later(60_000)).await {
            Claim::Granted(_) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    assert_eq!(
        step(state, id, ended(1), &details).await.expect("asked"),
        None
    );
    let done = step(state, id, ended(2), &details).await.expect("asked");
    assert_eq!(done.expect("new").progress.state, JobState::Succeeded);
    assert_eq!(
        step(state, id, ended(2), &details).await.expect("asked"),
        None
    );
}

async fn claims_of_an_app_are_counted_over_all_dispatchers(backend: Backend) {
    let rig = rig(backend, "").await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(submit(&rig).await);
    }
    let claims = ids
        .iter()
        .map(|id| claimed(&rig, *id, "any", later(60_000)));
    let claims = futures::future::join_all(claims).await;
    let given = claims
        .iter()
        .filter(|c| matches!(c, Claim::Granted(_)))
        .count();
    let busy = claims.iter().filter(|c| **c == Claim::Busy(2)).count();
    assert_eq!((given, busy), (2, 4), "{claims:?}");
}

async fn a_submission_that_broke_off_is_swept_away(backend: Backend) {
    let rig = rig(backend, "").await;
    let state = rig.controller.state();
    let accepted = submit(&rig).await;
    // As if the controller had died between the row and the ticket.
    let mut broken = row(&rig, accepted).await;
    broken.id = JobId::from_uuid(uuid::Uuid::now_v7());
    broken.progress.state = JobState::Submitted;
    let mut write = state.store.begin().await.expect("a transaction");
    job_insert(&mut write, &broken, Some("eA=="), None)
        .await
        .expect("written");
    write.commit().await.expect("committed");
    let there = async |id: JobId| {
        let mut connection = state.store.read().await.expect("connected");
        job_get(&mut connection, id).await.expect("read").is_some()
    };
    sweep_twice(state, fdn_service::now()).await;
    assert!(there(broken.id).await, "it may still be accepted");
    let shown = rig.request(Method::GET, &format!("/v1/jobs/{}", broken.id));
    assert_eq!(
        rig.refused(shown).await.0,
        404,
        "it does not exist for anybody yet"
    );
    sweep_twice(state, later(61_000)).await;
    assert!(!there(broken.id).await);
    assert!(there(accepted).await);
}

async fn a_submission_whose_objects_cannot_be_deleted_stays_for_the_sweep(backend: Backend) {
    let rig = rig(backend, "").await;
    let state = rig.controller.state();
    // The folder of the objects is a file: it takes no input, and cannot be searched either.
    let folder = rig.settings.artifacts.local.join("jobs");
    std::fs::write(&folder, "").expect("written");
    let send = || {
        let request = rig.request(Method::POST, "/v1/apps/hello/jobs");
        request
            .header("idempotency-key", "k")
            .body(vec![b'x'; 100_000])
    };
    let ids = async || {
        let mut connection = state.store.read().await.expect("connected");
        let ids = sqlx::query_scalar("SELECT id FROM jobs").fetch_all(&mut *connection);
        let ids: Vec<String> = ids.await.expect("read");
        ids
    };
    let refused = rig.refused(send()).await.1.code;
    assert_eq!(refused, ErrorCode::ArtifactStoreFailed);
    let [id]: [String; 1] = ids().await.try_into().expect("one job");
    // A ticket that comes late changes nothing.
    let id: JobId = id.parse().expect("an id");
    let details = EventDetails::default();
    let confirmed = step(state, id, Event::Confirmed, &details).await;
    assert_eq!(confirmed.expect("asked"), None);
    std::fs::remove_file(&folder).expect("removed");
    // Its key is free.
    let again = rig.json::<JobReceipt>(send()).await.id;
    assert_eq!(rig.objects_of_jobs(), ["input"]);
    sweep_twice(state, fdn_service::now()).await;
    assert_eq!(ids().await, [again.to_string()]);
    assert_eq!(rig.objects_of_jobs(), ["input"]);
}

async fn a_lease_that_its_dispatcher_does_not_know_of_ends(backend: Backend) {
    let rig = rig(backend, "").await;
    let (known, orphan, end) = (submit(&rig).await, submit(&rig).await, later(60_000));
    for id in [known, orphan] {
        let claim = claimed(&rig, id, "one", end).await;
        assert!(matches!(claim, Claim::Granted(_)));
    }
    let longer = Timestamp(end.get() + 1000);
    let state = rig.controller.state();
    let mut connection = state.store.read().await.expect("connected");
    for (holder, jobs) in [("one", vec![known]), ("two", vec![orphan]), ("one", vec![])] {
        let extended = lease_extend(&mut connection, holder, &jobs, longer).await;
        extended.expect("written");
    }
    drop(connection);
    assert_eq!(row(&rig, known).await.progress.lease_until, Some(longer));
    assert_eq!(row(&rig, orphan).await.progress.lease_until, Some(end));
}

async fn a_sweeper_whose_clock_is_ahead_ends_only_what_is_not_extended(backend: Backend) {
    let rig = rig(backend, "").await;
    let (state, id) = (rig.controller.state(), submit(&rig).await);
    // What a dispatcher writes whose clock is behind that of the sweeper by more than a lease.
    let ended = fdn_service::now();
    claimed(&rig, id, "one", ended).await;
    let (mut leases, start) = (OverdueLeases::default(), Instant::now());
    let lease = state.settings.jobs.lease.as_duration();
    for third in 0..6 {
        let mut connection = state.store.read().await.expect("connected");
        let extended = lease_extend(&mut connection, "one", &[id], ended).await;
        extended.expect("written");
        drop(connection);
        let clocks = (later(3_600_000), start + lease / 3 * third);
        let swept = sweep::round(state, &mut leases, clocks).await;
        swept.expect("swept");
        let now = row(&rig, id).await.progress.state;
        assert_eq!(now, JobState::Running, "its dispatcher lives");
    }
    let clocks = (later(3_600_000), start + lease * 3);
    let swept = sweep::round(state, &mut leases, clocks).await;
    swept.expect("swept");
    assert_eq!(row(&rig, id).await.progress.state, JobState::Failed);
}

async fn what_runs_again_is_not_deleted_nor_the_other_way_round(backend: Backend) {
    let rig = rig(backend, "").await;
    let state = rig.controller.state();
    let (first, second) = (submit(&rig).await, submit(&rig).await);
    for id in [first, second] {
        claimed(&rig, id, "one", fdn_service::now()).await;
    }
    sweep_twice(state, later(1)).await;
    let redrive = |id: JobId| rig.request(Method::POST, &format!("/v1/jobs/{id}/redrive"));
    let give_up = async |id: JobId| {
        let mut write = state.store.begin().await.expect("a transaction");
        // As a sweep that found both before one was redriven.
        let over = later(30 * 24 * 3_600_000);
        let given_up = job_give_up(&mut write, id, over).await.expect("written");
        write.commit().await.expect("committed");
        given_up
    };
    let again: JobInfo = rig.json(redrive(first)).await;
    assert_eq!(again.state, JobState::Queued);
    assert!(!give_up(first).await && give_up(second).await);
    assert_eq!(rig.refused(redrive(second)).await.0, 404);
    sweep_twice(state, fdn_service::now()).await;
    assert_eq!(row(&rig, first).await.progress.state, JobState::Queued);
    let mut connection = state.store.read().await.expect("connected");
    let gone = job_get(&mut connection, second).await.expect("read");
    assert_eq!(gone, None);
}

async fn what_runs_again_has_no_deadline(backend: Backend) {
    let rig = rig(backend, "").await;
    let request = rig.request(Method::POST, "/v1/apps/hello/jobs?deadline=1h");
    let id = rig.json::<JobReceipt>(request.body("x")).await.id;
    let deadline = row(&rig, id).await.deadline;
    assert!(deadline > Some(fdn_service::now()), "{deadline:?}");
    let claim = claimed(&rig, id, "one", later(60_000)).await;
    assert!(matches!(claim, Claim::Granted(_)), "{claim:?}");
    let refused = Event::Ended {
        attempt: 1,
        ending: AttemptResult::Refused,
    };
    let details = EventDetails::default();
    let ended = step(rig.controller.state(), id, refused, &details).await;
    let ended = ended.expect("written").expect("it ran");
    assert_eq!(
        (ended.progress.state, ended.deadline),
        (JobState::Failed, deadline)
    );
    let redrive = rig.request(Method::POST, &format!("/v1/jobs/{id}/redrive"));
    let _: JobInfo = rig.json(redrive).await;
    let again = row(&rig, id).await;
    assert_eq!(
        (again.progress.state, again.deadline),
        (JobState::Queued, None)
    );
}

async fn tenants_that_wait_are_found_in_turn(backend: Backend) {
    let rig = rig(backend, "").await;
    let state = rig.controller.state();
    let accepted = row(&rig, submit(&rig).await).await;
    let mut write = state.store.begin().await.expect("a transaction");
    for _ in 0..2 {
        let job = JobRow {
            id: JobId::from_uuid(uuid::Uuid::now_v7()),
            tenant: TenantId::from_uuid(uuid::Uuid::now_v7()),
            ..accepted.clone()
        };
        let inserted = job_insert(&mut write, &job, Some("eA=="), None).await;
        inserted.expect("written");
    }
    write.commit().await.expect("committed");
    let mut connection = state.store.read().await.expect("connected");
    let all = waiting_tenants(&mut connection, later(1), (None, 9)).await;
    let mut all = all.expect("read");
    assert_eq!(all.len(), 3);
    for _ in 0..3 {
        let after = (Some(all[0]), 9);
        let next = waiting_tenants(&mut connection, later(1), after).await;
        all.rotate_left(1);
        assert_eq!(next.expect("read"), all);
    }
}

async fn webhooks_of_one_tenant_do_not_fill_a_round(backend: Backend) {
    let rig = rig(backend, "").await;
    let state = rig.controller.state();
    let [many, one] = [1, 2].map(|n| TenantId::from_uuid(uuid::Uuid::from_u128(n)));
    let id = |n: u64| MessageId::from_uuid(uuid::Uuid::from_u128(u128::from(n)));
    let of_job = Origin::Job {
        job: JobId::from_uuid(uuid::Uuid::now_v7()),
        app: app(),
    };
    let of_budget = Origin::Budget("all".parse().expect("budget"));
    // Not due before the test is over: the sender must not find them.
    let due = later(3_600_000).get();
    let mut write = state.store.begin().await.expect("a transaction");
    for (base, origin) in [(0, of_job), (10, of_budget)] {
        for (n, tenant) in [(1, many), (2, many), (3, many), (4, one)] {
            let row = WebhookRow {
                id: id(base + n),
                origin: origin.clone(),
                tenant,
                url: "https://example.org/".to_owned(),
                body: "{}".to_owned(),
                due_at: Timestamp(due + n),
                failures: 0,
            };
            let inserted = webhook_insert(&mut write, &row).await;
            inserted.expect("written");
        }
    }
    write.commit().await.expect("committed");
    let mut connection = state.store.read().await.expect("connected");
    let found = webhook_due(&mut connection, Timestamp(due + 9), (9, 2)).await;
    let found: Vec<MessageId> = found.expect("read").iter().map(|row| row.id).collect();
    assert_eq!(found, [1, 4, 2, 11, 14, 12].map(id));
}
