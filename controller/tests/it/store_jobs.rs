//! Jobs whose dispatcher or submitter is lost, without a running dispatcher.

use fdn_controller::jobs::change::{Claim, Claimant, EventDetails, claim, step};
use fdn_controller::jobs::sweep;
use fdn_controller::store::job::{JobRow, job_get};
use fdn_core::job::{AttemptResult, Event, JobReceipt, JobState};
use fdn_core::{AppName, ClusterId, DurationMs, JobId, Timestamp};
use fdn_testkit::components;
use reqwest::Method;

use crate::rig::{Backend, Rig, on_both};

on_both!(
    a_job_is_claimed_once_and_its_lost_attempt_ends_by_the_lease,
    what_may_be_repeated_is_and_a_late_end_is_past,
    claims_of_an_app_are_counted_over_all_dispatchers,
    a_submission_that_broke_off_is_swept_away,
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
    sweep::round(state, later(30_000)).await.expect("swept");
    assert_eq!(row(&rig, id).await.progress.state, JobState::Running);
    // The sweep selects it by the time passed in; the transition itself uses the clock.
    sweep::round(state, later(120_000)).await.expect("swept");
    assert_eq!(
        row(&rig, id).await.progress.state,
        JobState::Running,
        "the lease has not ended"
    );
    let second = submit(&rig).await;
    let claim = claimed(&rig, second, "one", fdn_service::now()).await;
    assert!(matches!(claim, Claim::Granted(_)));
    sweep::round(state, later(1)).await.expect("swept");
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
    sweep::round(state, later(1)).await.expect("swept");
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
    fdn_controller::store::job::job_insert(&mut write, &broken, Some("eA=="), None)
        .await
        .expect("written");
    write.commit().await.expect("committed");
    let there = async |id: JobId| {
        let mut connection = state.store.read().await.expect("connected");
        job_get(&mut connection, id).await.expect("read").is_some()
    };
    sweep::round(state, fdn_service::now())
        .await
        .expect("swept");
    assert!(there(broken.id).await, "it may still be accepted");
    let shown = rig.request(Method::GET, &format!("/v1/jobs/{}", broken.id));
    assert_eq!(
        rig.refused(shown).await.0,
        404,
        "it does not exist for anybody yet"
    );
    sweep::round(state, later(61_000)).await.expect("swept");
    assert!(!there(broken.id).await);
    assert!(there(accepted).await);
}
